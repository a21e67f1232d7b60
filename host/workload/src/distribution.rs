//! Generated workloads: arrivals at a rate, lengths from clamped normal distributions.
//!
//! Request `n` depends on (seed, stream, `n`) alone, and requests are generated when they are needed: a workload of any
//! length takes no memory, and its beginning does not depend on its length. Arrivals and lengths are separate streams,
//! so other arrivals leave the lengths unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::num::NonZeroU32;

use blis_sim::ids::RequestId;
use blis_sim::request::{Content, Request, Span};
use blis_sim::rng::Stream;
use blis_sim::units::Micros;
use rand_distr::{Distribution as _, Exp1, StandardNormal};

use super::error::Skipped;
use super::max_tokens::{MaxTokens, NORMAL_LONG, OutputScale};
use super::{Names, Workload};
use blis_diag::{Diagnose, Diagnostic, name_hint};
use strum::{Display, EnumMessage, IntoStaticStr, VariantArray};

/// A workload of one kind of request.
#[derive(Clone, Debug, PartialEq)]
pub struct DistributionSpec {
    /// Requests per second, above 0.
    pub rate: f64,
    /// Number of requests; `None` for all that arrive before the horizon.
    pub num_requests: Option<u64>,
    /// Distribution of the inter-arrival times.
    pub arrival: ArrivalProcess,
    /// Input tokens, without the shared prefix.
    pub prompt: LengthSpec,
    /// Output tokens.
    pub output: LengthSpec,
    /// The limits of output tokens that requests announce.
    pub max_tokens: MaxTokens,
    /// Length of the prefix that all prompts share, in addition to their own tokens.
    pub prefix_tokens: u32,
    /// Timeout of a request from its arrival; `None` for no deadline.
    pub timeout: Option<Micros>,
    /// Seed of the streams.
    pub seed: u64,
    /// No request arrives at this time or later. [`Micros::MAX`] = no limit.
    pub horizon: Micros,
}

/// Distribution of the inter-arrival times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display, EnumMessage, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum ArrivalProcess {
    /// Constant inter-arrival times
    #[default]
    Constant,
    /// Exponential inter-arrival times
    // A Poisson process, as of many independent clients.
    Poisson,
}

/// A normal distribution, clamped to integers from `min` to `max`. All in tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LengthSpec {
    /// Mean before clamping, within `min` and `max`, tokens.
    pub mean: f64,
    /// Standard deviation before clamping, tokens: 0, or from `min` to `max` as in BLIS.
    pub stdev: f64,
    /// Smallest length, tokens, at least 1.
    pub min: u32,
    pub max: u32,
}

/// An error in a [`DistributionSpec`].
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.diagnostic())]
pub enum SpecError {
    /// A value out of its range.
    Range {
        /// Name of the setting.
        name: String,
        value: String,
        range: String,
    },
    /// A workload without end.
    Endless,
    /// More requests than 32 bits can number.
    TooMany {
        /// Rate times horizon: the expected number of requests.
        requests: f64,
    },
    /// No preset or arrival process of this name.
    Unknown {
        /// Kind of the name.
        what: &'static str,
        name: String,
        /// The nearest known name, or all of them.
        hint: String,
    },
}

impl Diagnose for SpecError {
    fn diagnostic(&self) -> Diagnostic {
        match self {
            Self::Range { name, value, range } => Diagnostic::new(format!("`{name}` is {value}, but must be {range}")),
            Self::Endless => {
                Diagnostic::new("the workload has no end").hint("set the number of requests or the horizon")
            }
            Self::TooMany { requests } => {
                Diagnostic::new(format!("about {requests:.0} requests arrive before the horizon, more than 4294967295"))
                    .hint("lower rate or horizon")
            }
            Self::Unknown { what, name, hint } => Diagnostic::new(format!("unknown {what} `{name}`")).hint(hint),
        }
    }
}

const fn lengths(mean: f64, stdev: f64, min: u32, max: u32) -> LengthSpec {
    LengthSpec { mean, stdev, min, max }
}

/// Name, input and output lengths of each preset, as in BLIS's `defaults.yaml`.
const PRESETS: [(&str, LengthSpec, LengthSpec); 4] = [
    ("chatbot", lengths(256.0, 100.0, 2, 800), lengths(256.0, 100.0, 1, 1024)),
    ("contentgen", lengths(1024.0, 150.0, 10, 2048), lengths(1024.0, 200.0, 10, 2048)),
    ("summarization", lengths(4096.0, 500.0, 100, 8192), lengths(512.0, 150.0, 10, 2048)),
    ("multidoc", lengths(10240.0, 1200.0, 500, 20480), lengths(1536.0, 300.0, 50, 4096)),
];

impl Default for DistributionSpec {
    /// BLIS's `--workload distribution` without further flags.
    fn default() -> Self {
        let usual = lengths(512.0, 256.0, 2, 7000);
        Self {
            rate: 1.0,
            num_requests: Some(100),
            arrival: ArrivalProcess::Constant,
            prompt: usual,
            output: usual,
            max_tokens: MaxTokens::Drawn,
            prefix_tokens: 0,
            timeout: Some(Micros(300_000_000)),
            seed: 42,
            horizon: Micros::MAX,
        }
    }
}

impl DistributionSpec {
    /// Names for [`DistributionSpec::preset`].
    #[must_use]
    pub fn preset_names() -> [&'static str; 5] {
        let [a, b, c, d] = PRESETS.map(|(name, ..)| name);
        ["distribution", a, b, c, d]
    }

    /// The lengths of a named kind of application; everything else has its default.
    ///
    /// # Errors
    /// [`SpecError::Unknown`], with the nearest name.
    pub fn preset(name: &str) -> Result<Self, SpecError> {
        if name == "distribution" {
            return Ok(Self::default());
        }
        match PRESETS.iter().find(|(known, ..)| *known == name) {
            Some(&(_, prompt, output)) => Ok(Self { prompt, output, ..Self::default() }),
            None => Err(unknown("workload", name, &Self::preset_names())),
        }
    }

    /// Checks all values against their ranges (BLIS's rules).
    ///
    /// # Errors
    /// The first [`SpecError`].
    pub fn validate(&self) -> Result<(), SpecError> {
        check(self.rate > 0.0 && self.rate.is_finite(), "rate", self.rate, "a finite number > 0")?;
        self.prompt.validate("prompt")?;
        self.output.validate("output")?;
        let longest = self.prefix_tokens.checked_add(self.prompt.max);
        let most = format!("at most {}, 2^32 less the longest prompt", u32::MAX - self.prompt.max);
        check(longest.is_some(), "prefix tokens", self.prefix_tokens, &most)?;
        check(self.timeout != Some(Micros::ZERO), "timeout", 0, "> 0, or negative for none")?;
        match self.num_requests {
            Some(count) => {
                check((1..=u64::from(u32::MAX)).contains(&count), "number of requests", count, "1 to 4294967295")
            }
            None if self.horizon == Micros::MAX => Err(SpecError::Endless),
            None => {
                let requests = self.rate * self.horizon.as_secs_f64();
                // 1 % is many standard deviations of a Poisson count of this size.
                if requests > f64::from(u32::MAX) * 0.99 { Err(SpecError::TooMany { requests }) } else { Ok(()) }
            }
        }
    }

    /// The requests, for an engine with KV blocks of `block_size` tokens.
    ///
    /// # Errors
    /// See [`DistributionSpec::validate`].
    pub fn generate(&self, block_size: NonZeroU32) -> Result<Workload, SpecError> {
        self.validate()?;
        let requests = DistributionRequests::new(self, block_size);
        let count = requests.known_count();
        Ok(Workload {
            requests: Box::new(requests),
            follow_ups: None,
            count,
            names: Names::default(),
            slo_targets: BTreeMap::new(),
            aside: BTreeSet::new(),
            recorded: Vec::new(),
            skipped: Skipped::default(),
            notes: Vec::new(),
        })
    }
}

impl LengthSpec {
    fn validate(&self, what: &str) -> Result<(), SpecError> {
        let Self { mean, stdev, min, max } = *self;
        let (low, high) = (f64::from(min), f64::from(max));
        check(min >= 1, &format!("{what} min"), min, "≥ 1")?;
        check(max >= min, &format!("{what} max"), max, &format!("≥ the minimum, {min}"))?;
        check((low..=high).contains(&mean), &format!("{what} mean"), mean, &format!("from {min} to {max}"))?;
        let stdev_fits = stdev == 0.0 || (low..=high).contains(&stdev);
        check(stdev_fits, &format!("{what} stdev"), stdev, &format!("0, or from {min} to {max}"))
    }

    fn scale(&self) -> OutputScale {
        OutputScale { typical: self.mean, long: self.at(NORMAL_LONG) }
    }

    /// The length `z` standard deviations from the mean.
    fn at(&self, z: f64) -> u32 {
        let length = (self.mean + self.stdev * z).clamp(f64::from(self.min), f64::from(self.max));
        // As `round` does, half away from zero, which is a call of a function: the bounds are positive integers.
        let whole = length as u32;
        whole + u32::from(length - f64::from(whole) >= 0.5)
    }
}

fn check(fits: bool, name: &str, value: impl Display + Copy, range: &str) -> Result<(), SpecError> {
    if fits {
        return Ok(());
    }
    Err(SpecError::Range { name: name.into(), value: value.to_string(), range: range.into() })
}

fn unknown(what: &'static str, name: &str, known: &[&str]) -> SpecError {
    SpecError::Unknown { what, name: name.into(), hint: name_hint(name, known) }
}

/// Generates requests one at a time.
struct DistributionRequests {
    arrivals: Stream,
    lengths: Stream,
    limits: Stream,
    /// Mean inter-arrival time, µs.
    interval_us: f64,
    /// The inter-arrival time in whole µs, if it is constant.
    constant: Option<Micros>,
    prompt: LengthSpec,
    output: LengthSpec,
    output_scale: OutputScale,
    max_tokens: MaxTokens,
    prefix_tokens: u32,
    content: Content,
    timeout: Option<Micros>,
    horizon: Micros,
    limit: u64,
    next_id: u64,
    now: Micros,
}

impl DistributionRequests {
    fn new(spec: &DistributionSpec, block_size: NonZeroU32) -> Self {
        // Requests per µs first, then its inverse, so that it is truncated as in BLIS: 10/s is 99 999 µs.
        let interval_us = 1.0 / (spec.rate / 1e6).max(1e-15);
        let constant = matches!(spec.arrival, ArrivalProcess::Constant).then(|| whole_interval(interval_us));
        Self {
            arrivals: Stream::new(spec.seed, "workload-arrivals"),
            lengths: Stream::new(spec.seed, "workload-lengths"),
            limits: Stream::new(spec.seed, "workload-limits"),
            interval_us,
            constant,
            prompt: spec.prompt,
            output: spec.output,
            output_scale: spec.output.scale(),
            max_tokens: spec.max_tokens,
            prefix_tokens: spec.prefix_tokens,
            content: Content::shared(&[Span { first: 0, len: spec.prefix_tokens / block_size }]),
            timeout: spec.timeout,
            horizon: spec.horizon,
            limit: spec.num_requests.unwrap_or(u64::from(u32::MAX)),
            next_id: 0,
            now: Micros::ZERO,
        }
    }

    /// The number of requests, if it is known without generating them.
    fn known_count(&self) -> Option<u64> {
        let before_horizon = |interval: Micros| self.horizon.0.saturating_sub(1) / interval.0;
        match self.constant {
            Some(interval) => Some(before_horizon(interval).min(self.limit)),
            None => (self.horizon == Micros::MAX).then_some(self.limit),
        }
    }
}

fn whole_interval(us: f64) -> Micros {
    Micros::from_f64(us).max(Micros(1))
}

impl Iterator for DistributionRequests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let id = u32::try_from(self.next_id).ok()?;
        let interval = self.constant.unwrap_or_else(|| {
            let scaled: f64 = Exp1.sample(&mut self.arrivals.at(self.next_id));
            whole_interval(scaled * self.interval_us)
        });
        let arrival = self.now.saturating_add(interval);
        if self.next_id >= self.limit || arrival >= self.horizon {
            return None;
        }
        self.next_id += 1;
        self.now = arrival;
        let mut generator = self.lengths.at(u64::from(id));
        // Both are always drawn, so that the specification of one length does not shift the other's random numbers.
        let [prompt, output]: [f64; 2] = [StandardNormal.sample(&mut generator), StandardNormal.sample(&mut generator)];
        let (output_tokens, max_output_tokens) =
            self.max_tokens.announce(self.output.at(output), || self.output_scale, self.limits, u64::from(id));
        let input_tokens = self.prefix_tokens + self.prompt.at(prompt);
        Some(Request {
            max_output_tokens,
            deadline: self.timeout.map(|timeout| arrival.saturating_add(timeout)),
            content: self.content.clone(),
            ..Request::new(RequestId(id), arrival, input_tokens, output_tokens)
        })
    }
}

#[cfg(test)]
mod tests;
