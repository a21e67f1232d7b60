//! Fitness: one number for a run, computed from figures with weights of the user.
//!
//! There are two scales. On both, a figure without a sample has the worst value: a service that rejects everything has
//! no latency and must not win by it.
//!
//! # `baseline`, the default
//!
//! The run is compared with a run of the baseline policy under the same seed. With x the figure of the run and b that
//! of the baseline, the component of a figure is
//!
//! | figure | component | |
//! |---|---|---|
//! | more is better | x / (x + b) | |
//! | less is better | b / (x + b) | |
//! | share or index, more is better | (1 + x − b) / 2 | its natural scale: a change of 0.1 is 0.05, wherever it starts |
//! | share or index, less is better | (1 + b − x) / 2 | |
//! | x and b both 0 | 1/2 | |
//! | the run has no sample | 0 | also if the baseline has none |
//! | only the baseline has none | 1 | |
//!
//! Each component lies in 0 to 1, is 1/2 where run and baseline are equal, and is monotone in x. With weights w, and p
//! the completed share of the arrived requests,
//!
//! ```text
//! score = (Σ w·component / Σ w) · q²     q = min(1, p / p of the baseline)
//! ```
//!
//! but at least [`LOWEST`] if any request completed, and 0 if none did.
//!
//! Why q²: no component exceeds 1, so score ≤ q² whatever the weights. A policy that completes half of what the
//! baseline completes scores at most 1/4 and loses to the baseline, at 1/2, however fast the served half was; with q
//! alone the two would tie. Below q = 1/√2 ≈ 0.71 no policy can win. A policy that sheds 5 % of the requests (q² ≈
//! 0.90) wins with components above 0.554, that is with latencies below 80 % of the baseline's.
//!
//! # `blis`
//!
//! The formula of BLIS, for comparison with its published numbers: Σ w·component, with the weights not normalised, and
//! with the components r/(r + 100) for requests per second, t/(t + 10 000) for output tokens per second and 1/(1 + x/1
//! ms) for latencies. It has eight keys and saturates at the latencies of real services. BLIS itself gives 1 to a
//! latency without samples, so that rejecting everything scores highest; see [`NoSample`].

use std::fmt::{self, Display, Write as _};
use std::ops::Range;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use unicode_width::UnicodeWidthStr;

use super::figures::{Better, Figure, Figures, Needs, Unit};
use blis_diag::{Diagnose, Diagnostic, nearest};

/// The flag with the text that [`FitnessWeights::parse`] reads.
const FLAG: &str = "--fitness-weights";

/// Largest weight, so that sums of weights stay finite.
const MAX_WEIGHT: f64 = 1e12;

/// Lowest score of a run that completed a request: a score of 0 means that no request completed.
pub const LOWEST: f64 = 1e-6;

/// How figures become a score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FitnessScale {
    /// Relative to a baseline policy under the same seed: 0 to 1, and 0.5 for the baseline itself.
    #[default]
    Baseline,
    /// The formula of BLIS, with fixed scales.
    Blis,
}

impl FitnessScale {
    /// Both scales, in the order of help.
    pub const ALL: [Self; 2] = [Self::Baseline, Self::Blis];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Blis => "blis",
        }
    }

    /// The formula in words, for `--help`.
    #[must_use]
    pub const fn definition(self) -> &'static str {
        match self {
            Self::Baseline => {
                "weighted mean of components times q^2. Component of figure x against the baseline's b, same seed: \
                 x/(x+b) if more is better, b/(x+b) if less is, (1 +- (x-b))/2 for shares; 0.5 = equal, \
                 no sample = 0. q = completed share relative to the baseline's, at most 1: a policy that serves half \
                 scores at most 0.25. 0 = nothing completed"
            }
            Self::Blis => {
                "sum of weight times component, weights not normalised: r/(r+100) for requests/s, \
                 t/(t+10000) for tokens/s, 1/(1+x) for latencies x in ms. No sample = 0 \
                 (in BLIS itself, and under --parity blis, 1)"
            }
        }
    }

    /// Whether the scale has a component for `figure`.
    #[must_use]
    pub fn has(self, figure: Figure) -> bool {
        self == Self::Baseline || blis_component(figure, 0.0).is_some()
    }

    fn keys(self) -> Vec<&'static str> {
        Figure::ALL.iter().filter(|&&figure| self.has(figure)).map(|figure| figure.key()).collect()
    }
}

/// The component of a latency without samples on the scale `blis`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoSample {
    /// 0, the worst value.
    #[default]
    Worst,
    /// 1, the best value, as in BLIS: for `--parity blis` only.
    BestAsInBlis,
}

/// The figures that count, with their weights. Every weight is finite and ≥ 0, and at least one is positive.
#[derive(Clone, Debug, PartialEq)]
pub struct FitnessWeights {
    scale: FitnessScale,
    text: String,
    /// In the order of the text.
    weights: Vec<Weight>,
}

#[derive(Clone, Debug, PartialEq)]
struct Weight {
    figure: Figure,
    weight: f64,
    /// Position of the key in the text, bytes.
    key: Range<usize>,
}

impl FitnessWeights {
    /// Reads `key:weight,key:weight`. Blanks around keys and weights are ignored.
    ///
    /// # Errors
    ///
    /// If the text is empty or malformed, a key is unknown (to `scale`) or repeated, a weight is not a finite number ≥
    /// 0, or all weights are 0.
    pub fn parse(text: &str, scale: FitnessScale) -> Result<Self, WeightsError> {
        let fail = |span, problem| WeightsError { text: text.to_owned(), span, problem };
        if text.trim().is_empty() {
            return Err(fail(0..text.len(), WeightsProblem::Empty));
        }
        let mut weights: Vec<Weight> = Vec::new();
        let mut start = 0;
        for part in text.split(',') {
            let weight =
                parse_weight(text, start..start + part.len(), scale).map_err(|(span, problem)| fail(span, problem))?;
            if weights.iter().any(|earlier| earlier.figure == weight.figure) {
                return Err(fail(weight.key, WeightsProblem::Duplicate(weight.figure)));
            }
            weights.push(weight);
            start += part.len() + 1;
        }
        if weights.iter().all(|weight| weight.weight == 0.0) {
            return Err(fail(0..text.len(), WeightsProblem::AllZero));
        }
        Ok(Self { scale, text: text.to_owned(), weights })
    }

    /// The text as written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The scale for which the weights were read.
    #[must_use]
    pub fn scale(&self) -> FitnessScale {
        self.scale
    }

    /// The figures and their weights, in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = (Figure, f64)> + '_ {
        self.weights.iter().map(|weight| (weight.figure, weight.weight))
    }

    /// Checks that every figure can have a sample; `has` says what the settings and the workload provide.
    ///
    /// # Errors
    ///
    /// The first figure that cannot have a sample.
    pub fn check(&self, has: impl Fn(Needs) -> bool) -> Result<(), WeightsError> {
        let lacking = |weight: &&Weight| weight.figure.needs() != Needs::Nothing && !has(weight.figure.needs());
        match self.weights.iter().find(lacking) {
            None => Ok(()),
            Some(weight) => Err(WeightsError {
                text: self.text.clone(),
                span: weight.key.clone(),
                problem: WeightsProblem::Lacking(weight.figure),
            }),
        }
    }

    /// The score of `run` relative to `baseline`, a run under the same seed: 0 to 1, see the
    /// [scale](FitnessScale::Baseline).
    #[must_use]
    pub fn relative(&self, run: &Figures, baseline: &Figures) -> Fitness {
        let components = self.components(|figure| match run.get(figure) {
            None => ComponentValue { value: 0.0, sampled: false },
            Some(x) => ComponentValue { value: relative_component(figure, x, baseline.get(figure)), sampled: true },
        });
        let total: f64 = components.iter().map(|part| part.weight).sum();
        let mean = components.iter().map(|part| part.weight * part.value).sum::<f64>() / total;
        let completed = completed_factor(run, baseline);
        let score = if completed > 0.0 { (mean * completed).max(LOWEST) } else { 0.0 };
        Fitness { score, components, completed: Some(completed) }
    }

    /// The score of `run` by the formula of BLIS.
    ///
    /// # Panics
    ///
    /// If the weights were read for another scale: that formula does not have all of its keys.
    #[must_use]
    pub fn blis(&self, run: &Figures, no_sample: NoSample) -> Fitness {
        assert_eq!(self.scale, FitnessScale::Blis, "weights are read for the scale they are used on");
        let components = self.components(|figure| {
            let best = no_sample == NoSample::BestAsInBlis && figure.unit() == Unit::Milliseconds;
            match run.get(figure).and_then(|x| blis_component(figure, x)) {
                Some(value) => ComponentValue { value, sampled: true },
                None => ComponentValue { value: if best { 1.0 } else { 0.0 }, sampled: false },
            }
        });
        let score = components.iter().map(|part| part.weight * part.value).sum();
        Fitness { score, components, completed: None }
    }

    /// The components sorted by key. That is the order of output, and sums do not depend on the order of the user.
    fn components(&self, part: impl Fn(Figure) -> ComponentValue) -> Vec<FitnessComponent> {
        let mut components: Vec<FitnessComponent> = self
            .iter()
            .map(|(figure, weight)| {
                let ComponentValue { value, sampled } = part(figure);
                FitnessComponent { figure, weight, value, sampled }
            })
            .collect();
        components.sort_by_key(|component| component.figure.key());
        components
    }
}

struct ComponentValue {
    value: f64,
    sampled: bool,
}

/// q², 0 to 1; 0 if no request completed.
fn completed_factor(run: &Figures, baseline: &Figures) -> f64 {
    let share = |figures: &Figures| figures.get(Figure::CompletedShare).unwrap_or(0.0);
    let (ours, theirs) = (share(run), share(baseline));
    if ours >= theirs { f64::from(ours > 0.0) } else { (ours / theirs).powi(2) }
}

/// Component on the scale `baseline`: 0 to 1, 0.5 for x = b.
fn relative_component(figure: Figure, x: f64, baseline: Option<f64>) -> f64 {
    let Some(b) = baseline else { return 1.0 };
    let (ours, theirs) = match figure.better() {
        Better::Higher => (x, b),
        Better::Lower => (b, x),
    };
    if figure.unit().bounded() {
        f64::midpoint(1.0, ours - theirs)
    } else if ours == theirs {
        0.5
    } else if ours < theirs {
        let ratio = ours / theirs;
        ratio / (1.0 + ratio)
    } else {
        1.0 / (1.0 + theirs / ours)
    }
}

/// Component on the scale `blis`; `None` for figures that BLIS has no key for.
fn blis_component(figure: Figure, x: f64) -> Option<f64> {
    match figure {
        Figure::Throughput => Some(x / (x + 100.0)),
        Figure::TokensPerSec => Some(x / (x + 10_000.0)),
        Figure::P99Ttft | Figure::P50Ttft | Figure::MeanTtft | Figure::P99E2e | Figure::P50E2e | Figure::MeanE2e => {
            Some(1.0 / (1.0 + x))
        }
        _ => None,
    }
}

/// A score and its components.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitness {
    /// Higher is better. On the scale `baseline` 0 to 1, and 0 only if no request completed.
    pub score: f64,
    /// The components of the weighted mean, sorted by key.
    pub components: Vec<FitnessComponent>,
    /// q², by which the weighted mean was multiplied; `None` on the scale `blis`.
    pub completed: Option<f64>,
}

/// The contribution of one figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FitnessComponent {
    pub figure: Figure,
    /// The weight as written.
    pub weight: f64,
    /// 0 (worst) to 1 (best).
    pub value: f64,
    /// Whether the run had a sample of the figure. If not, the value is a penalty, which deserves a warning.
    pub sampled: bool,
}

impl Fitness {
    /// The block for the terminal, in the form of BLIS. `baseline`: the name of the policy that the score is relative
    /// to; `None` on the scale `blis`, where the block equals that of BLIS byte for byte.
    #[must_use]
    pub fn block(&self, baseline: Option<&str>) -> String {
        let mut text = format!("=== Fitness Evaluation ===\nScore: {:.6}", self.score);
        let _ = match baseline {
            Some(name) => writeln!(text, " (0.500000 = {})", shown(name)),
            None => writeln!(text),
        };
        for FitnessComponent { figure, value, sampled, .. } in &self.components {
            // In BLIS the line ends after the value.
            let note = if *sampled || baseline.is_none() { "" } else { " (no sample)" };
            let _ = writeln!(text, "  {}: {value:.6}{note}", figure.key());
        }
        if let Some(factor) = self.completed {
            let _ = writeln!(text, "  times, for completed requests: {factor:.6}");
        }
        text
    }

    /// The JSON object `{scale, baseline, score, completed_factor, components}`; `baseline` as for [`Self::block`],
    /// its keys absent on the scale `blis`.
    #[must_use]
    pub fn document<'a>(&'a self, baseline: Option<&'a str>) -> impl Serialize + 'a {
        let scale = if self.completed.is_some() { FitnessScale::Baseline } else { FitnessScale::Blis };
        FitnessDocument {
            scale: scale.name(),
            baseline,
            score: self.score,
            completed_factor: self.completed,
            components: ComponentMap(&self.components),
        }
    }
}

#[derive(Serialize)]
struct FitnessDocument<'a> {
    scale: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline: Option<&'a str>,
    score: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_factor: Option<f64>,
    components: ComponentMap<'a>,
}

/// By key: `{"mean_ttft": {"weight": …, "value": …, "sampled": …}}`.
struct ComponentMap<'a>(&'a [FitnessComponent]);

impl Serialize for ComponentMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct ComponentDocument {
            weight: f64,
            value: f64,
            sampled: bool,
        }
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for &FitnessComponent { figure, weight, value, sampled } in self.0 {
            map.serialize_entry(figure.key(), &ComponentDocument { weight, value, sampled })?;
        }
        map.end()
    }
}

/// Why weights are invalid, and the position in their text.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightsError {
    text: String,
    span: Range<usize>,
    problem: WeightsProblem,
}

#[derive(Clone, Debug, PartialEq)]
enum WeightsProblem {
    Empty,
    NoColon,
    UnknownKey { scale: FitnessScale },
    NotOnScale(Figure),
    Duplicate(Figure),
    NotANumber,
    OutOfRange,
    AllZero,
    Lacking(Figure),
}

impl WeightsError {
    /// Position of the invalid part in the text, bytes.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    fn culprit(&self) -> String {
        shown(&self.text[self.span.clone()])
    }

    fn what(&self) -> String {
        let culprit = self.culprit();
        match &self.problem {
            WeightsProblem::Empty => "the fitness weights are empty".into(),
            WeightsProblem::NoColon => format!("invalid fitness weight `{culprit}`: expected key:value"),
            WeightsProblem::UnknownKey { .. } => format!("unknown fitness key `{culprit}`"),
            WeightsProblem::NotOnScale(figure) => format!("fitness scale `blis` has no key `{}`", figure.key()),
            WeightsProblem::Duplicate(figure) => format!("fitness key `{}` is repeated", figure.key()),
            WeightsProblem::NotANumber => format!("fitness weight `{culprit}` is not a number"),
            WeightsProblem::OutOfRange => format!("fitness weight `{culprit}` is out of range"),
            WeightsProblem::AllZero => "all fitness weights are 0".into(),
            WeightsProblem::Lacking(figure) => format!("this run has no sample of `{}`", figure.key()),
        }
    }

    fn hint(&self) -> String {
        let keys = |scale: FitnessScale| scale.keys().join(", ");
        match &self.problem {
            WeightsProblem::Empty | WeightsProblem::NoColon => "write for example `throughput:1,p99_ttft:0.5`".into(),
            WeightsProblem::UnknownKey { scale } => {
                let near = nearest(&self.culprit(), &scale.keys());
                let guess = near.map_or(String::new(), |key| format!("did you mean `{key}`? "));
                format!("{guess}known: {}", keys(*scale))
            }
            WeightsProblem::NotOnScale(_) => {
                format!("leave out `--fitness-scale blis`, or choose from {}", keys(FitnessScale::Blis))
            }
            WeightsProblem::Duplicate(_) => "keep one of them".into(),
            WeightsProblem::NotANumber | WeightsProblem::OutOfRange => {
                format!("a weight is a number from 0 to {MAX_WEIGHT:e}")
            }
            WeightsProblem::AllZero => "set the weight of at least one figure above 0".into(),
            WeightsProblem::Lacking(figure) => format!("it needs {}", figure.needs().name()),
        }
    }
}

/// The excerpt is the text of the flag with the invalid part underlined.
impl Diagnose for WeightsError {
    fn diagnostic(&self) -> Diagnostic {
        let before = format!("  {FLAG} \"{}", shown(&self.text[..self.span.start]));
        let (indent, carets) = (before.width(), self.culprit().width().max(1));
        let excerpt = format!("\n  {FLAG} \"{}\"\n{:indent$}{:^<carets$}", shown(&self.text), "", "");
        Diagnostic { excerpt: Some(excerpt.into()), ..Diagnostic::new(self.what()).hint(self.hint()) }
    }
}

impl Display for WeightsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.diagnostic().fmt(f)
    }
}

impl std::error::Error for WeightsError {}

/// Control characters of the input are replaced, so that they do not reach a terminal.
fn shown(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// Reads the part of `text` at `span`; the error has the position and the problem.
fn parse_weight(text: &str, span: Range<usize>, scale: FitnessScale) -> Result<Weight, (Range<usize>, WeightsProblem)> {
    let part = trimmed(text, span);
    let Some(colon) = text[part.clone()].find(':') else { return Err((part, WeightsProblem::NoColon)) };
    let key = trimmed(text, part.start..part.start + colon);
    let number = trimmed(text, part.start + colon + 1..part.end);
    let Some(figure) = Figure::find(&text[key.clone()]) else {
        return Err((key, WeightsProblem::UnknownKey { scale }));
    };
    if !scale.has(figure) {
        return Err((key, WeightsProblem::NotOnScale(figure)));
    }
    let weight: f64 = text[number.clone()].parse().map_err(|_| (number.clone(), WeightsProblem::NotANumber))?;
    if !(0.0..=MAX_WEIGHT).contains(&weight) {
        return Err((number, WeightsProblem::OutOfRange));
    }
    Ok(Weight { figure, weight, key })
}

/// `span` without blanks at its ends.
fn trimmed(text: &str, span: Range<usize>) -> Range<usize> {
    let part = &text[span.clone()];
    let start = span.start + part.len() - part.trim_start().len();
    start..start + part.trim().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn weights(text: &str) -> FitnessWeights {
        FitnessWeights::parse(text, FitnessScale::Baseline).expect("weights")
    }

    fn run(values: &[(Figure, f64)]) -> Figures {
        let mut figures = Figures::default();
        figures.set(Figure::CompletedShare, Some(1.0));
        values.iter().for_each(|&(figure, value)| figures.set(figure, Some(value)));
        figures
    }

    fn message(text: &str, scale: FitnessScale) -> String {
        FitnessWeights::parse(text, scale).expect_err(text).to_string()
    }

    #[test]
    fn weights_are_read_as_written() {
        let read = weights(" p99_ttft : 0.5,throughput:1e3, jain:0 ");
        let expected = [(Figure::P99Ttft, 0.5), (Figure::Throughput, 1e3), (Figure::Jain, 0.0)];
        assert_eq!(read.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_misspelt_key_is_underlined() {
        insta::assert_snapshot!(message("throughput:0.5,p99_tft:1", FitnessScale::Baseline), @r#"
        unknown fitness key `p99_tft`
          --fitness-weights "throughput:0.5,p99_tft:1"
                                            ^^^^^^^
        hint: did you mean `p99_ttft`? known: throughput, tokens_per_sec, goodput, slo_attainment, completed_share, rejected_share, timed_out_share, mean_ttft, p50_ttft, p90_ttft, p95_ttft, p99_ttft, mean_itl, p95_itl, p99_itl, mean_e2e, p50_e2e, p90_e2e, p95_e2e, p99_e2e, jain, preemptions, cache_hit_rate, priority_inversions, hol_blocking, instance_seconds
        "#);
        insta::assert_snapshot!(message("größe: 1", FitnessScale::Blis), @r#"
        unknown fitness key `größe`
          --fitness-weights "größe: 1"
                             ^^^^^
        hint: known: throughput, tokens_per_sec, mean_ttft, p50_ttft, p99_ttft, mean_e2e, p50_e2e, p99_e2e
        "#);
        insta::assert_snapshot!(message("throughput:1,goodput:2", FitnessScale::Blis), @r#"
        fitness scale `blis` has no key `goodput`
          --fitness-weights "throughput:1,goodput:2"
                                          ^^^^^^^
        hint: leave out `--fitness-scale blis`, or choose from throughput, tokens_per_sec, mean_ttft, p50_ttft, p99_ttft, mean_e2e, p50_e2e, p99_e2e
        "#);
    }

    #[test]
    fn every_mistake_has_its_message_and_position() {
        let all = [
            "",
            " ",
            "a",
            "throughput:1,",
            "throughput:x",
            "throughput:",
            "throughput:NaN",
            "throughput:inf",
            "throughput: -1",
            "throughput:1e13",
            "throughput:0, jain:0",
            "jain:1,throughput:1,jain:2",
            "jain:1:2",
            "\x1b[1m:1",
        ];
        let messages: Vec<String> = all
            .iter()
            .map(|text| {
                let message = message(text, FitnessScale::Baseline);
                message.lines().take(3).collect::<Vec<_>>().join("\n")
            })
            .collect();
        insta::assert_snapshot!(messages.join("\n"), @r#"
        the fitness weights are empty
          --fitness-weights ""
                             ^
        the fitness weights are empty
          --fitness-weights " "
                             ^
        invalid fitness weight `a`: expected key:value
          --fitness-weights "a"
                             ^
        invalid fitness weight ``: expected key:value
          --fitness-weights "throughput:1,"
                                          ^
        fitness weight `x` is not a number
          --fitness-weights "throughput:x"
                                        ^
        fitness weight `` is not a number
          --fitness-weights "throughput:"
                                        ^
        fitness weight `NaN` is out of range
          --fitness-weights "throughput:NaN"
                                        ^^^
        fitness weight `inf` is out of range
          --fitness-weights "throughput:inf"
                                        ^^^
        fitness weight `-1` is out of range
          --fitness-weights "throughput: -1"
                                         ^^
        fitness weight `1e13` is out of range
          --fitness-weights "throughput:1e13"
                                        ^^^^
        all fitness weights are 0
          --fitness-weights "throughput:0, jain:0"
                             ^^^^^^^^^^^^^^^^^^^^
        fitness key `jain` is repeated
          --fitness-weights "jain:1,throughput:1,jain:2"
                                                 ^^^^
        fitness weight `1:2` is not a number
          --fitness-weights "jain:1:2"
                                  ^^^
        unknown fitness key `�[1m`
          --fitness-weights "�[1m:1"
                             ^^^^
        "#);
    }

    #[test]
    fn offsets_are_bytes_of_the_text() {
        let error = FitnessWeights::parse("jain:1, nope :2", FitnessScale::Baseline).expect_err("unknown");
        assert_eq!(error.span(), 8..12);
    }

    #[test]
    fn what_the_run_cannot_have_is_found_before_it() {
        let both = weights("throughput:1,goodput:1,jain:1");
        assert_eq!(both.check(|_| true), Ok(()));
        assert_eq!(weights("throughput:1").check(|_| false), Ok(()));
        let error = both.check(|needs| needs == Needs::SloTargets).expect_err("no tenants");
        insta::assert_snapshot!(error, @r#"
        this run has no sample of `jain`
          --fitness-weights "throughput:1,goodput:1,jain:1"
                                                    ^^^^
        hint: it needs a workload with tenants
        "#);
    }

    /// The published formula, computed independently in the test.
    #[test]
    fn the_formula_of_blis() {
        let read = |text| FitnessWeights::parse(text, FitnessScale::Blis).expect(text);
        let figures = run(&[(Figure::Throughput, 100.0), (Figure::P99Ttft, 52.5), (Figure::MeanE2e, 8_600.0)]);
        let fitness = read("throughput:0.4,p99_ttft:0.3,mean_e2e:0.3").blis(&figures, NoSample::Worst);
        let expected = 0.4 * 0.5 + 0.3 / 53.5 + 0.3 / 8_601.0;
        assert!((fitness.score - expected).abs() < 1e-15, "{}", fitness.score);
        insta::assert_snapshot!(fitness.block(None), @r"
        === Fitness Evaluation ===
        Score: 0.205642
          mean_e2e: 0.000116
          p99_ttft: 0.018692
          throughput: 0.500000
        ");
        let tokens = read("tokens_per_sec:3").blis(&run(&[(Figure::TokensPerSec, 30_000.0)]), NoSample::Worst);
        assert_eq!(tokens.score, 2.25, "weights are not normalised");
    }

    #[test]
    fn rejecting_everything_wins_in_blis_only() {
        let read = FitnessWeights::parse("p99_ttft:1,mean_e2e:1,throughput:1", FitnessScale::Blis).expect("weights");
        let mut nothing = Figures::default();
        nothing.set(Figure::Throughput, Some(0.0));
        nothing.set(Figure::CompletedShare, Some(0.0));
        assert_eq!(read.blis(&nothing, NoSample::BestAsInBlis).score, 2.0);
        assert_eq!(read.blis(&nothing, NoSample::Worst).score, 0.0);
        let baseline = run(&[(Figure::P99Ttft, 50.0)]);
        assert_eq!(weights("p99_ttft:1,mean_e2e:1").relative(&nothing, &baseline).score, 0.0);
        assert_eq!(weights("rejected_share:1").relative(&nothing, &nothing).score, 0.0, "even against itself");
    }

    #[test]
    fn components_at_their_corners() {
        let component = |figure, x: f64, b: Option<f64>| relative_component(figure, x, b);
        assert_eq!(component(Figure::P99Ttft, 50.0, Some(150.0)), 0.75);
        assert_eq!(component(Figure::Throughput, 50.0, Some(150.0)), 0.25);
        assert_eq!(component(Figure::Preemptions, 0.0, Some(0.0)), 0.5);
        assert_eq!(component(Figure::Preemptions, 1.0, Some(0.0)), 0.0);
        assert_eq!(component(Figure::Preemptions, 0.0, Some(1.0)), 1.0);
        assert_eq!(component(Figure::Goodput, 0.0, Some(3.0)), 0.0);
        assert_eq!(component(Figure::Goodput, 3.0, Some(0.0)), 1.0);
        assert_eq!(component(Figure::SloAttainment, 0.75, Some(0.25)), 0.75);
        assert_eq!(component(Figure::RejectedShare, 0.5, Some(0.0)), 0.25);
        assert_eq!(component(Figure::RejectedShare, 0.0, Some(0.0)), 0.5);
        assert_eq!(component(Figure::P99Ttft, 5.0, None), 1.0);
        assert_eq!(component(Figure::P99Ttft, f64::MAX, Some(f64::MIN_POSITIVE)), 0.0);
    }

    #[test]
    fn a_missing_sample_is_the_worst_even_if_the_baseline_misses_it_too() {
        let fitness =
            weights("p99_itl:1,p99_ttft:1").relative(&run(&[(Figure::P99Ttft, 1.0)]), &run(&[(Figure::P99Ttft, 1.0)]));
        assert_eq!(fitness.score, 0.25);
        let sampled: Vec<_> = fitness.components.iter().map(|part| (part.figure.key(), part.sampled)).collect();
        assert_eq!(sampled, [("p99_itl", false), ("p99_ttft", true)]);
        insta::assert_snapshot!(fitness.block(Some("round-robin")), @r"
        === Fitness Evaluation ===
        Score: 0.250000 (0.500000 = round-robin)
          p99_itl: 0.000000 (no sample)
          p99_ttft: 0.500000
          times, for completed requests: 1.000000
        ");
        let json = serde_json::to_string_pretty(&fitness.document(Some("round-robin"))).expect("JSON");
        insta::assert_snapshot!(json, @r#"
        {
          "scale": "baseline",
          "baseline": "round-robin",
          "score": 0.25,
          "completed_factor": 1.0,
          "components": {
            "p99_itl": {
              "weight": 1.0,
              "value": 0.0,
              "sampled": false
            },
            "p99_ttft": {
              "weight": 1.0,
              "value": 0.5,
              "sampled": true
            }
          }
        }
        "#);
    }

    /// A baseline that completes all requests, and a policy that sheds some of them to be faster.
    #[test]
    fn a_little_shedding_may_win_and_half_may_not() {
        let read = weights("p99_ttft:1,mean_e2e:1");
        let baseline = run(&[(Figure::P99Ttft, 400.0), (Figure::MeanE2e, 2_000.0)]);
        let score = |share: f64, speedup: f64| {
            let mut shed = run(&[(Figure::P99Ttft, 400.0 / speedup), (Figure::MeanE2e, 2_000.0 / speedup)]);
            shed.set(Figure::CompletedShare, Some(share));
            read.relative(&shed, &baseline).score
        };
        assert_eq!(score(1.0, 1.0), 0.5);
        assert!(score(0.95, 1.2) < 0.5 && score(0.95, 1.3) > 0.5);
        assert!(score(0.5, f64::MAX) <= 0.25 && score(0.7, f64::MAX) < 0.5 && score(0.71, f64::MAX) > 0.5);
    }

    /// Against an overloaded baseline, completing more requests gives no bonus, and no penalty either.
    #[test]
    fn completing_more_is_no_penalty() {
        let share = |share| run(&[(Figure::CompletedShare, share), (Figure::MeanTtft, 5.0)]);
        assert_eq!(weights("mean_ttft:1").relative(&share(0.9), &share(0.3)).score, 0.5);
        assert_eq!(weights("mean_ttft:1").relative(&share(0.9), &Figures::default()).score, 1.0);
    }

    #[test]
    fn definitions_fit_a_help_text() {
        for scale in FitnessScale::ALL {
            assert!(scale.definition().is_ascii() && scale.keys().len() >= 8, "{scale:?}");
        }
    }

    /// Any figures that a run can have; `completed` is its completed share.
    fn figures(completed: impl Strategy<Value = f64>) -> impl Strategy<Value = Figures> {
        let value = prop_oneof![
            Just(None),
            Just(Some(0.0)),
            (0.0..1.0f64).prop_map(Some),
            (0.0..1e9f64).prop_map(Some),
            Just(Some(1e300)),
            Just(Some(f64::MIN_POSITIVE)),
        ];
        (prop::collection::vec(value, Figure::COUNT), completed).prop_map(|(values, completed)| {
            let mut run = Figures::from_fn(|figure| {
                let value = values[figure as usize]?;
                Some(if figure.unit().bounded() { value.min(1.0) } else { value })
            });
            run.set(Figure::CompletedShare, Some(completed));
            run
        })
    }

    fn any_weights() -> impl Strategy<Value = FitnessWeights> {
        let weight = prop_oneof![1 => Just(0.0), 4 => 0.001..10.0f64, 1 => Just(1e12), 1 => Just(1e-300)];
        prop::sample::subsequence(Figure::ALL.to_vec(), 1..Figure::COUNT)
            .prop_flat_map(move |chosen| {
                let count = chosen.len();
                (Just(chosen), prop::collection::vec(weight.clone(), count))
            })
            .prop_filter_map("all zero", |(chosen, weights)| {
                let pairs = chosen.iter().zip(&weights).map(|(figure, weight)| format!("{}:{weight}", figure.key()));
                FitnessWeights::parse(&pairs.collect::<Vec<_>>().join(","), FitnessScale::Baseline).ok()
            })
    }

    proptest! {
        /// This holds for all weights, and however good the served requests were.
        #[test]
        fn serving_half_loses_to_the_baseline(
            weights in any_weights(),
            run in figures(0.0..=1.0f64),
            baseline in figures(0.01..=1.0f64),
            part in 0.0..=0.5f64,
        ) {
            let mut run = run;
            run.set(Figure::CompletedShare, baseline.get(Figure::CompletedShare).map(|share| share * part));
            let score = weights.relative(&run, &baseline).score;
            prop_assert!(score <= 0.25 + 1e-12, "{score}");
        }

        #[test]
        fn serving_nothing_is_the_only_zero(
            weights in any_weights(),
            run in figures(prop_oneof![Just(0.0), 0.001..=1.0f64]),
            baseline in figures(prop_oneof![Just(0.0), 0.001..=1.0f64]),
        ) {
            let score = weights.relative(&run, &baseline).score;
            prop_assert!((0.0..=1.0).contains(&score), "{score}");
            prop_assert_eq!(score == 0.0, run.get(Figure::CompletedShare) == Some(0.0));
        }

        #[test]
        fn the_baseline_scores_one_half(weights in any_weights(), run in figures(0.001..=1.0f64)) {
            let has_all = weights.iter().all(|(figure, weight)| weight == 0.0 || run.get(figure).is_some());
            let score = weights.relative(&run, &run).score;
            prop_assert!(if has_all { (score - 0.5).abs() < 1e-12 } else { score <= 0.5 + 1e-12 }, "{score}");
        }

        /// A better figure never lowers the score, on either scale.
        #[test]
        fn better_is_never_worse(
            figure in prop::sample::select(Figure::ALL),
            run in figures(0.001..=1.0f64),
            baseline in figures(0.001..=1.0f64),
            factor in 0.0..1.0f64,
            others in any_weights(),
        ) {
            let mut worse = run.clone();
            let Some(value) = run.get(figure).filter(|_| figure != Figure::CompletedShare) else { return Ok(()) };
            let worst = if figure.unit().bounded() { 1.0 } else { f64::MAX };
            worse.set(figure, Some(match figure.better() {
                Better::Higher => value * factor,
                Better::Lower => (value / (1.0 - factor)).min(worst),
            }));
            let single = weights(&format!("{}:2", figure.key()));
            for weights in [&single, &others] {
                let (better, worse) = (weights.relative(&run, &baseline), weights.relative(&worse, &baseline));
                prop_assert!(better.score >= worse.score - 1e-15, "{better:?} {worse:?}");
            }
            if let Ok(weights) = FitnessWeights::parse(&format!("{}:2", figure.key()), FitnessScale::Blis) {
                let score = |run: &Figures| weights.blis(run, NoSample::Worst).score;
                prop_assert!(score(&run) >= score(&worse));
                worse.set(figure, None);
                prop_assert_eq!(score(&worse), 0.0);
            }
        }

        /// The order in which a user writes weights changes no bit of the score.
        #[test]
        fn order_does_not_matter(weights in any_weights(), run in figures(0.5..=1.0f64), baseline in figures(0.5..=1.0f64)) {
            let mut reversed = weights.clone();
            reversed.weights.reverse();
            prop_assert_eq!(weights.relative(&run, &baseline), reversed.relative(&run, &baseline));
        }

        #[test]
        fn no_text_breaks_the_parser(text in "[a-z0-9_:,. \\-é\t]{0,24}") {
            for scale in FitnessScale::ALL {
                if let Err(error) = FitnessWeights::parse(&text, scale) {
                    prop_assert!(text.get(error.span()).is_some());
                    prop_assert_eq!(error.to_string().lines().count(), 4);
                }
            }
        }
    }
}
