//! What follows from a result, in one sentence that begins every text, page and document; and what limits it.

use std::fmt::{self, Display};

use blis_stats::RunState;
use blis_workload::profile::WorkloadProfile;
use serde::{Serialize, Serializer};

/// What follows from a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Conclusion {
    /// What kind of sentence it is: a state of a run (what is overloaded, too short or undecided comes before anything else), or `better`,
    /// `worse`, `equal`, `holds`, `fails`, `measured`.
    pub kind: ConclusionKind,
    /// The sentence: what it is about, figures with units, what limits them.
    pub text: String,
}

/// Kinds of conclusions: the states of runs, and what follows from steady ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConclusionKind {
    /// That of the state of a run.
    State(RunState),
    /// The first one is better.
    Better,
    /// The first one is worse.
    Worse,
    /// No difference that matters.
    Equal,
    /// Something holds: a size, a claim, a limit.
    Holds,
    /// It does not.
    Fails,
    /// Figures that nothing is concluded from.
    Measured,
}

impl ConclusionKind {
    /// More requests arrive than are served.
    pub const OVERLOADED: Self = Self::State(RunState::Overloaded);
    /// Nothing follows: differences are within chance.
    pub const UNDECIDED: Self = Self::State(RunState::Undecided);

    /// Its name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::State(state) => state.name(),
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Equal => "equal",
            Self::Holds => "holds",
            Self::Fails => "fails",
            Self::Measured => "measured",
        }
    }
}

/// Its name. JSON: `String`.
impl Serialize for ConclusionKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Conclusion {
    #[must_use]
    pub fn new(kind: ConclusionKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// Of figures that nothing is concluded from.
    #[must_use]
    pub fn measured(text: impl Into<String>) -> Self {
        Self::new(ConclusionKind::Measured, text)
    }
}

impl Display for Conclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What limits a conclusion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Caveat {
    /// Which one it is, the same in all versions.
    pub code: CaveatCode,
    /// What it is about.
    pub text: String,
}

/// Stable names of what limits conclusions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaveatCode {
    /// Latencies were never compared with measurements of a deployment of this class.
    UntestedClass,
    /// How far latencies were from measurements of this deployment, or of its class.
    ModelError,
    /// Every run has the same requests.
    OneSample,
    /// More requests arrive than are served.
    Overloaded,
    /// A run ends before the service is steady, or leaves too few requests for a percentile.
    TooShort,
    /// More users get no more throughput: they wait.
    Saturated,
    /// An instance gets hardly any requests.
    Starved,
    /// Clients send their requests together.
    Synchronised,
    /// The deadline is below what a request takes alone.
    Deadline,
    /// The number in flight may grow.
    Undecided,
    /// A policy is native code, which no sandbox contains.
    Unsandboxed,
    /// Something else that the figures do not show.
    Warning,
}

impl Caveat {
    #[must_use]
    pub fn new(code: CaveatCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

/// A result with a conclusion.
pub trait Concludes {
    /// What follows from it, in a sentence of about 160 characters.
    fn conclusion(&self) -> Conclusion;

    /// What limits that.
    fn caveats(&self) -> Vec<Caveat> {
        Vec::new()
    }

    /// Fields of its document that differ from run to run.
    fn volatile(&self) -> &'static [&'static str] {
        &[]
    }
}

impl<T: Concludes> Concludes for &T {
    fn conclusion(&self) -> Conclusion {
        (**self).conclusion()
    }

    fn caveats(&self) -> Vec<Caveat> {
        (**self).caveats()
    }

    fn volatile(&self) -> &'static [&'static str] {
        (**self).volatile()
    }
}

impl Concludes for WorkloadProfile {
    fn conclusion(&self) -> Conclusion {
        let rate = self.requests_per_s.map_or("all at once".to_owned(), |rate| {
            format!("{} requests/s over {} s", three_digits(rate), three_digits(self.span_s))
        });
        let (input, output) = (self.input_tokens.mean, self.output_tokens.mean);
        Conclusion::measured(format!(
            "{} requests, {rate}, of {input:.0} input and {output:.0} output tokens in the mean",
            self.requests
        ))
    }
}

/// A number with three significant digits, or all of those before its point.
#[must_use]
pub fn three_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value:.0}");
    }
    // The exponent of the rounded value: 9.999 is 10.0.
    let rounded = format!("{value:.2e}");
    let magnitude: i32 = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    format!("{value:.*}", (2 - magnitude).clamp(0, 9) as usize)
}

/// A latency with three significant digits at most and a fitting unit: `840 ms`, `1.31 s`, `2.4 h`.
#[must_use]
pub fn latency_in_words(ms: f64) -> String {
    let (value, unit) = match ms.abs() {
        below if below < 1e3 => (ms, "ms"),
        below if below < 6e5 => (ms / 1e3, "s"),
        below if below < 7.2e6 => (ms / 6e4, "min"),
        _ => (ms / 3.6e6, "h"),
    };
    let digits = three_digits(value);
    let digits = if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { &digits };
    format!("{digits} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.0, 0.012_34, 9.999, 12.34, 840.4, 12_345.6, -2.5].map(three_digits);
        assert_eq!(shown, ["0", "0.0123", "10.0", "12.3", "840", "12346", "-2.50"]);
        let shown = [0.5, 840.0, 1_310.0, 900_000.0, 9e6].map(latency_in_words);
        assert_eq!(shown, ["0.5 ms", "840 ms", "1.31 s", "15 min", "2.5 h"]);
    }
}
