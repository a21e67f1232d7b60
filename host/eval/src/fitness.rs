//! Fitness: one number for a run, computed from figures with weights of the user.
//!
//! There are two scales.
//!
//! # `ratio`, the default
//!
//! The run is compared with a run of a reference policy under the same requests. With x the figure of the run and b
//! that of the reference, both with every end charged ([`EndLog`](super::charges::EndLog)), the ratio of a figure is
//!
//! | figure | ratio |
//! |---|---|
//! | less is better | b / x |
//! | more is better | x / b |
//! | share, less is better | (1 − x) / (1 − b) |
//! | the run has no sample, the reference has one | [`LEAST_RATIO`] |
//! | the reference has none | 1 |
//!
//! at least [`LEAST_RATIO`] and at most its inverse; values below the resolution of the unit (1 µs for latencies) count as that.
//! The score is the weighted geometric mean of the ratios, times two factors for requests that were not served:
//!
//! ```text
//! score = min(Π ratio^(w / Σ w) · q² · u, q² / (1 − q²), 0.002 · (1 − l) / l)
//! ```
//!
//! but at least [`LOWEST`] if any request completed, and 0 if none did. q is the completed share, less the lost share,
//! of the requests that may not be shed, relative to the reference's, at most 1
//! ([`EndValues::completed_factor`](super::objective::EndValues::completed_factor)). u is the value that is left of all
//! requests where those that may be shed are ([`kept_factor`](super::objective::EndValues::kept_factor)). l is the lost share
//! beyond the reference's ([`most`](super::objective::EndValues::most)).
//!
//! So the reference itself scores 1, better policies more, and there is no upper end at which the scale saturates: 30 %
//! less of a latency with a third of the weight is (1 / 0.7)^(1/3) = 1.126, wherever it starts. A geometric mean, because
//! then the score of A relative to B times that of B relative to C is that of A relative to C, and the choice of the
//! reference changes no order (apart from q and u).
//!
//! Why a policy cannot win by rejecting half of what may not be shed: each rejected request counts in every latency of all
//! requests with at least [`NEVER`](super::charges::NEVER), and whatever the weights are, the score is at most q²/(1 − q²):
//! 1/3 for q = 1/2, and below 1 for every q below 1/√2 ≈ 0.71. Nor by rejecting or starving a few, which is worth most near
//! the capacity of a service: with 0.2 % lost the score is at most 1, with 2 % at most 0.1.
//!
//! # `blis`
//!
//! The formula of BLIS, for comparison with its published numbers: Σ w·component, with the weights not normalised, and
//! with the components r/(r + 100) for requests per second, t/(t + 10 000) for output tokens per second and 1/(1 + x/1
//! ms) for latencies. It has eight keys and saturates at the latencies of real services. BLIS itself gives 1 to a
//! latency without samples, so that rejecting everything scores highest; see [`NoSample`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use super::figures::{Better, Figure, Figures, Needs, Unit};
use super::objective::{ChargedFigures, Objective};
use blis_diag::{Diagnose, Diagnostic, nearest};
use strum::{Display, EnumMessage, IntoStaticStr, VariantArray};

/// The flag with the text that [`FitnessWeights::parse`] reads.
const FLAG: &str = "--fitness-weights";

/// Largest weight, so that sums of weights stay finite.
const MAX_WEIGHT: f64 = 1e12;

/// Lowest score of a run that completed a request: a score of 0 means that no request completed.
pub const LOWEST: f64 = 1e-6;

/// Lowest ratio of a figure; the highest is its inverse.
pub const LEAST_RATIO: f64 = 1e-3;

/// How figures become a score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display, EnumMessage, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum FitnessScale {
    /// Ratios to the same figures of the baseline
    #[default]
    Ratio,
    /// Fixed scales, as in the published simulator
    Blis,
}

impl FitnessScale {
    /// The formula in words, for `--help`.
    #[must_use]
    pub const fn definition(self) -> &'static str {
        match self {
            Self::Ratio => {
                "weighted geometric mean of the ratios to the figures of a baseline, same requests; 1 = equal, more is \
                 better. Figure x, baseline's b: b/x if less is better, x/b if more is, (1-x)/(1-b) for shares of \
                 which less is better. Every end is charged: unfinished and timed-out requests count with twice the \
                 time they waited, rejected ones with 10 min. Times q^2 (completed share relative to the baseline's, \
                 at most 1) and the value kept of classes that may be shed. 0 = nothing completed"
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
        self == Self::Ratio || blis_component(figure, 0.0).is_some()
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
    objective: Objective,
    weight: f64,
    /// Position of the key in the text, bytes.
    key: Range<usize>,
}

impl FitnessWeights {
    /// Reads `key:weight,key:weight`. Blanks around keys and weights are ignored. A key is that of a figure, or, on the
    /// scale `ratio`, `class.figure` for the requests of one class.
    ///
    /// # Errors
    ///
    /// If the text is empty or malformed, a key is unknown (to `scale`) or repeated, a figure has no value by class, a
    /// weight is not a finite number ≥ 0, or all weights are 0.
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
            if weights.iter().any(|earlier| earlier.objective == weight.objective) {
                return Err(fail(weight.key, WeightsProblem::Duplicate(weight.objective.key)));
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

    /// The objectives and their weights, in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = (&Objective, f64)> + '_ {
        self.weights.iter().map(|weight| (&weight.objective, weight.weight))
    }

    /// Checks that every objective can have a sample: `has` says what the settings and the workload provide, `occurs`
    /// whether requests of a class do.
    ///
    /// # Errors
    ///
    /// The first objective that cannot have a sample.
    pub fn check(&self, has: impl Fn(Needs) -> bool, occurs: impl Fn(&str) -> bool) -> Result<(), WeightsError> {
        let problem = |Weight { objective, .. }: &Weight| {
            let needs = objective.figure.needs();
            match &objective.class {
                Some(class) if !occurs(class) => Some(WeightsProblem::NoSuchClass(class.clone())),
                _ if needs != Needs::Nothing && !has(needs) => Some(WeightsProblem::Lacking(objective.figure)),
                _ => None,
            }
        };
        match self.weights.iter().find_map(|weight| Some((weight, problem(weight)?))) {
            None => Ok(()),
            Some((weight, problem)) => Err(WeightsError { text: self.text.clone(), span: weight.key.clone(), problem }),
        }
    }

    /// The score of `run` relative to `reference`, a run under the same requests: see the
    /// [scale](FitnessScale::Ratio).
    #[must_use]
    pub fn relative(&self, run: &ChargedFigures, reference: &ChargedFigures) -> Fitness {
        let components = self.components(|objective| {
            let (own, reference) = (run.get(objective), reference.get(objective));
            ComponentValue { value: ratio(objective.figure, own, reference), own, reference }
        });
        let total: f64 = components.iter().map(|part| part.weight).sum();
        let log: f64 = components.iter().map(|part| part.weight / total * part.value.ln()).sum();
        let completed = run.ends.completed_factor(&reference.ends);
        let kept = run.ends.kept_factor(&reference.ends);
        let most = run.ends.most(&reference.ends);
        let score = (log.exp() * completed * kept).min(most).clamp(LOWEST, 1.0 / LOWEST);
        let score = if run.ends.nothing_completed() { 0.0 } else { score };
        Fitness { score, components, factors: Some(Factors { completed, kept }) }
    }

    /// The score of `run` by the formula of BLIS.
    ///
    /// # Panics
    ///
    /// If the weights were read for another scale: that formula does not have all of its keys.
    #[must_use]
    pub fn blis(&self, run: &Figures, no_sample: NoSample) -> Fitness {
        assert_eq!(self.scale, FitnessScale::Blis, "weights are read for the scale they are used on");
        let components = self.components(|Objective { figure, .. }| {
            let best = no_sample == NoSample::BestAsInBlis && figure.unit() == Unit::Milliseconds;
            let own = run.get(*figure);
            let value = own.and_then(|x| blis_component(*figure, x));
            ComponentValue { value: value.unwrap_or(if best { 1.0 } else { 0.0 }), own, reference: None }
        });
        let score = components.iter().map(|part| part.weight * part.value).sum();
        Fitness { score, components, factors: None }
    }

    /// The components sorted by key. That is the order of output, and sums do not depend on the order of the user.
    fn components(&self, part: impl Fn(&Objective) -> ComponentValue) -> Vec<FitnessComponent> {
        let mut components: Vec<FitnessComponent> = self
            .iter()
            .map(|(objective, weight)| {
                let ComponentValue { value, own, reference } = part(objective);
                FitnessComponent { objective: objective.clone(), weight, value, own, reference }
            })
            .collect();
        components.sort_by(|one, other| one.objective.key.cmp(&other.objective.key));
        components
    }
}

struct ComponentValue {
    value: f64,
    own: Option<f64>,
    reference: Option<f64>,
}

/// The ratio of a figure on the scale `ratio`: above 1 if x is better than the reference's b.
fn ratio(figure: Figure, x: Option<f64>, b: Option<f64>) -> f64 {
    let (Some(x), Some(b)) = (x, b) else { return if b.is_some() { LEAST_RATIO } else { 1.0 } };
    let least = resolution(figure.unit());
    let (ours, theirs) = match (figure.better(), figure.unit()) {
        (Better::Higher, _) => (x, b),
        (Better::Lower, Unit::Share) => (1.0 - x, 1.0 - b),
        // Of events a run may have none, and one is not infinitely worse.
        (Better::Lower, Unit::Count | Unit::PerRequest) => (b + least, x + least),
        (Better::Lower, _) => (b, x),
    };
    (ours.max(least) / theirs.max(least)).clamp(LEAST_RATIO, 1.0 / LEAST_RATIO)
}

/// The value of a unit below which differences do not count.
fn resolution(unit: Unit) -> f64 {
    match unit {
        // A microsecond, as in the simulation.
        Unit::Milliseconds => 1e-3,
        Unit::Count => 1.0,
        Unit::PerRequest => 1e-2,
        Unit::RequestsPerSecond
        | Unit::TokensPerSecond
        | Unit::Share
        | Unit::Index
        | Unit::Seconds
        | Unit::RequestsPerGpuHour => 1e-3,
        Unit::Hours | Unit::Dollars | Unit::KilowattHours | Unit::Joules => 1e-6,
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
    /// Higher is better. On the scale `ratio` above 0, 1 for the reference, and 0 only if no request completed.
    pub score: f64,
    /// The components, sorted by key.
    pub components: Vec<FitnessComponent>,
    /// Factors of the score besides the mean of ratios; `None` on the scale `blis`.
    pub factors: Option<Factors>,
}

/// Factors for requests that were not served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    /// q², 0 to 1: requests that may not be shed, completed and not lost, relative to the reference.
    pub completed: f64,
    /// u: the value kept of all requests where those that may be shed are, relative to the reference.
    pub kept: f64,
}

/// The contribution of one objective.
#[derive(Clone, Debug, PartialEq)]
pub struct FitnessComponent {
    pub objective: Objective,
    /// The weight as written.
    pub weight: f64,
    /// On the scale `ratio` the ratio to the reference, above 0; on `blis` 0 (worst) to 1 (best).
    pub value: f64,
    /// The figure of the run, in the unit of the figure; `None` if it had no sample. Then the value is a penalty, which
    /// deserves a warning.
    pub own: Option<f64>,
    /// The figure of the reference; `None` if it had no sample, and on the scale `blis`.
    pub reference: Option<f64>,
}

impl Fitness {
    /// The block for the terminal, in the form of BLIS. `baseline`: the name of the policy that the score is relative
    /// to; `None` on the scale `blis`, where the block equals that of BLIS byte for byte.
    #[must_use]
    pub fn block(&self, baseline: Option<&str>) -> String {
        let mut text = format!("=== Fitness Evaluation ===\nScore: {:.6}", self.score);
        let _ = match baseline {
            Some(name) => writeln!(text, " (1.000000 = {})", shown(name)),
            None => writeln!(text),
        };
        for component in &self.components {
            let FitnessComponent { objective, value, .. } = component;
            // In BLIS the line ends after the value.
            let figures = if baseline.is_some() { component.figures() } else { String::new() };
            let _ = writeln!(text, "  {objective}: {value:.6}{figures}");
        }
        if let Some(Factors { completed, kept }) = self.factors {
            let _ = writeln!(text, "  times, for completed requests: {completed:.6}");
            let _ = writeln!(text, "  times, for the value of shed requests: {kept:.6}");
        }
        text
    }

    /// The JSON object `{scale, baseline, score, completed_factor, kept_factor, components}`; `baseline` as for
    /// [`Self::block`], its keys absent on the scale `blis`.
    #[must_use]
    pub fn document<'a>(&'a self, baseline: Option<&'a str>) -> impl Serialize + 'a {
        let scale = if self.factors.is_some() { FitnessScale::Ratio } else { FitnessScale::Blis };
        FitnessDocument {
            scale: scale.into(),
            baseline,
            score: self.score,
            completed_factor: self.factors.map(|factors| factors.completed),
            kept_factor: self.factors.map(|factors| factors.kept),
            components: self.components.iter().map(|part| (&*part.objective.key, part.into())).collect(),
        }
    }
}

impl FitnessComponent {
    /// Whether the run had a sample.
    #[must_use]
    pub fn sampled(&self) -> bool {
        self.own.is_some()
    }

    /// ` (84.1 ms, 2175 ms)`: the figures of the run and of the reference.
    fn figures(&self) -> String {
        let unit = self.objective.figure.unit().name();
        let text = |value: Option<f64>| {
            value.map_or_else(|| "no sample".to_owned(), |value| format!("{} {unit}", significant(value)))
        };
        format!(" ({}, baseline {})", text(self.own), text(self.reference))
    }
}

/// The number with four significant digits, at most six of them behind the point.
#[must_use]
pub fn significant(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { (3 - value.abs().log10().floor() as i32).clamp(0, 6) };
    format!("{value:.*}", digits as usize)
}

/// The score of the run (`--fitness-weights`).
#[derive(Serialize)]
struct FitnessDocument<'a> {
    /// Scale of the components. One of `ratio`, `blis`.
    scale: &'static str,
    /// The baseline; absent on the scale `blis`.
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline: Option<&'a str>,
    /// The fitness. Unit: score.
    score: f64,
    /// Factor for requests that may not be shed and were not served (q²); absent on the scale `blis`. Unit: factor.
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_factor: Option<f64>,
    /// Factor for the value of requests that were shed (u); absent on the scale `blis`. Unit: factor.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_factor: Option<f64>,
    /// By key of the figure, or class and figure.
    components: BTreeMap<&'a str, ComponentDocument>,
}

/// A figure in the fitness.
#[derive(Serialize)]
struct ComponentDocument {
    /// Its weight. Unit: weight.
    weight: f64,
    /// Its ratio to the baseline, above 1 is better; on the scale `blis` its component, 0 to 1. Unit: ratio.
    value: f64,
    /// Whether the run had a sample.
    sampled: bool,
    /// The figure of the run; absent without a sample. Unit: of the figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    own: Option<f64>,
    /// The figure of the baseline; absent without a sample, and on the scale `blis`. Unit: of the figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline: Option<f64>,
}

impl From<&FitnessComponent> for ComponentDocument {
    fn from(component: &FitnessComponent) -> Self {
        let &FitnessComponent { weight, value, own, reference: baseline, .. } = component;
        Self { weight, value, sampled: component.sampled(), own, baseline }
    }
}

/// Why weights are invalid, and the position in their text.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.diagnostic())]
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
    NotByClass(Figure),
    NoSuchClass(String),
    Duplicate(String),
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
            WeightsProblem::NotByClass(figure) => format!("`{}` has no value by class", figure.key()),
            WeightsProblem::NoSuchClass(class) => format!("no request of this run has the class `{}`", shown(class)),
            WeightsProblem::Duplicate(key) => format!("fitness key `{}` is repeated", shown(key)),
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
            WeightsProblem::NotByClass(figure) => format!("leave out the class: `{}`", figure.key()),
            WeightsProblem::NoSuchClass(_) => "name a class of the workload, or leave it out".into(),
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
    let (class, name) = match text[key.clone()].rsplit_once('.') {
        Some((class, name)) if !class.is_empty() && scale == FitnessScale::Ratio => (Some(class), name),
        _ => (None, &text[key.clone()]),
    };
    let Some(figure) = Figure::find(name) else {
        return Err((key, WeightsProblem::UnknownKey { scale }));
    };
    if !scale.has(figure) {
        return Err((key, WeightsProblem::NotOnScale(figure)));
    }
    if class.is_some() && !figure.has_classes() {
        return Err((key, WeightsProblem::NotByClass(figure)));
    }
    let objective = Objective::new(class, figure);
    let weight: f64 = text[number.clone()].parse().map_err(|_| (number.clone(), WeightsProblem::NotANumber))?;
    if !(0.0..=MAX_WEIGHT).contains(&weight) {
        return Err((number, WeightsProblem::OutOfRange));
    }
    Ok(Weight { objective, weight, key })
}

/// `span` without blanks at its ends.
fn trimmed(text: &str, span: Range<usize>) -> Range<usize> {
    let part = &text[span.clone()];
    let start = span.start + part.len() - part.trim_start().len();
    start..start + part.trim().len()
}

#[cfg(test)]
mod tests {
    use super::super::objective::EndValues;
    use super::*;
    use proptest::prelude::*;

    fn weights(text: &str) -> FitnessWeights {
        FitnessWeights::parse(text, FitnessScale::Ratio).expect("weights")
    }

    /// A run that completed all of 100 requests.
    fn run(values: &[(Figure, f64)]) -> ChargedFigures {
        let figures = values.iter().map(|&(figure, value)| (figure.key().to_owned(), value)).collect();
        ChargedFigures { figures, ends: EndValues { arrived: 100.0, completed: 100.0, ..EndValues::default() } }
    }

    /// The same, but only `completed` of the requests completed.
    fn completing(completed: f64, values: &[(Figure, f64)]) -> ChargedFigures {
        let mut part = run(values);
        part.ends.completed = completed;
        part
    }

    fn served(values: &[(Figure, f64)]) -> Figures {
        let mut figures = Figures::default();
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
        let figures = read.iter().map(|(objective, weight)| (objective.figure, weight));
        assert_eq!(figures.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn objectives_may_be_about_one_class() {
        let read = weights("critical.p90_ttft:2, gold.eu.goodput:1, p90_ttft:1");
        let all: Vec<_> = read.iter().map(|(one, _)| (one.key.as_str(), one.class.as_deref())).collect();
        let expected =
            [("critical.p90_ttft", Some("critical")), ("gold.eu.goodput", Some("gold.eu")), ("p90_ttft", None)];
        assert_eq!(all, expected);
        insta::assert_snapshot!(message("critical.jain:1", FitnessScale::Ratio), @r#"
        `jain` has no value by class
          --fitness-weights "critical.jain:1"
                             ^^^^^^^^^^^^^
        hint: leave out the class: `jain`
        "#);
        insta::assert_snapshot!(read.check(|_| true, |class| class == "critical").expect_err("no gold"), @r#"
        no request of this run has the class `gold.eu`
          --fitness-weights "critical.p90_ttft:2, gold.eu.goodput:1, p90_ttft:1"
                                                  ^^^^^^^^^^^^^^^
        hint: name a class of the workload, or leave it out
        "#);
        assert!(FitnessWeights::parse("critical.p99_ttft:1", FitnessScale::Blis).is_err(), "BLIS has no such key");
    }

    #[test]
    fn a_misspelt_key_is_underlined() {
        insta::assert_snapshot!(message("throughput:0.5,p99_tft:1", FitnessScale::Ratio), @r#"
        unknown fitness key `p99_tft`
          --fitness-weights "throughput:0.5,p99_tft:1"
                                            ^^^^^^^
        hint: did you mean `p99_ttft`? known: throughput, tokens_per_sec, goodput, slo_attainment, completed_share, rejected_share, timed_out_share, mean_ttft, p50_ttft, p90_ttft, p95_ttft, p99_ttft, mean_itl, p95_itl, p99_itl, mean_e2e, p50_e2e, p90_e2e, p95_e2e, p99_e2e, jain, preemptions, cache_hit_rate, recomputed_tokens, priority_inversions, hol_blocking, instance_seconds, gpu_hours, cost, goodput_per_gpu_hour, scale_events, kwh, joules_per_output_token
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
                let message = message(text, FitnessScale::Ratio);
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
        let error = FitnessWeights::parse("jain:1, nope :2", FitnessScale::Ratio).expect_err("unknown");
        assert_eq!(error.span(), 8..12);
    }

    #[test]
    fn what_the_run_cannot_have_is_found_before_it() {
        let both = weights("throughput:1,goodput:1,jain:1");
        assert_eq!(both.check(|_| true, |_| true), Ok(()));
        assert_eq!(weights("throughput:1").check(|_| false, |_| true), Ok(()));
        let error = both.check(|needs| needs == Needs::SloTargets, |_| true).expect_err("no tenants");
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
        let figures = served(&[(Figure::Throughput, 100.0), (Figure::P99Ttft, 52.5), (Figure::MeanE2e, 8_600.0)]);
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
        let tokens = read("tokens_per_sec:3").blis(&served(&[(Figure::TokensPerSec, 30_000.0)]), NoSample::Worst);
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
        let reference = run(&[(Figure::P99Ttft, 50.0)]);
        let nothing = completing(0.0, &[(Figure::RejectedShare, 1.0)]);
        assert_eq!(weights("p99_ttft:1,mean_e2e:1").relative(&nothing, &reference).score, 0.0);
        assert_eq!(weights("rejected_share:1").relative(&nothing, &nothing).score, 0.0, "even against itself");
    }

    /// The example of the documentation.
    #[test]
    fn a_third_less_of_a_third_of_the_weight() {
        let all = |ttft| run(&[(Figure::MeanTtft, ttft), (Figure::P99Ttft, 900.0), (Figure::MeanE2e, 4_000.0)]);
        let score = |ttft| weights("mean_ttft:1,p99_ttft:1,mean_e2e:1").relative(&all(ttft), &all(200.0)).score;
        assert!((score(140.0) - 1.126_247).abs() < 1e-6, "{}", score(140.0));
        assert_eq!(score(200.0), 1.0);
        // No saturation: the same again is the same factor again.
        assert!((score(98.0) / score(140.0) - score(140.0)).abs() < 1e-12);
    }

    #[test]
    fn ratios_at_their_corners() {
        let ratio = |figure, x: f64, b: Option<f64>| ratio(figure, Some(x), b);
        assert_eq!(ratio(Figure::P99Ttft, 50.0, Some(150.0)), 3.0);
        assert_eq!(ratio(Figure::Throughput, 50.0, Some(200.0)), 0.25);
        assert_eq!(ratio(Figure::Preemptions, 0.0, Some(0.0)), 1.0);
        assert_eq!(ratio(Figure::PriorityInversions, 1.0, Some(0.0)), 0.5);
        assert_eq!(ratio(Figure::Goodput, 0.0, Some(3.0)), LEAST_RATIO);
        assert_eq!(ratio(Figure::Goodput, 3.0, Some(0.0)), 1.0 / LEAST_RATIO);
        assert_eq!(ratio(Figure::SloAttainment, 0.75, Some(0.25)), 3.0);
        assert_eq!(ratio(Figure::RejectedShare, 0.5, Some(0.0)), 0.5);
        assert_eq!(ratio(Figure::RejectedShare, 1.0, Some(0.0)), LEAST_RATIO);
        assert_eq!(ratio(Figure::P99Ttft, 5.0, None), 1.0);
        assert_eq!(ratio(Figure::P99Ttft, f64::MAX, Some(f64::MIN_POSITIVE)), LEAST_RATIO);
        assert_eq!(super::ratio(Figure::P99Ttft, None, Some(5.0)), LEAST_RATIO);
        assert_eq!(super::ratio(Figure::P99Ttft, None, None), 1.0);
    }

    #[test]
    fn a_missing_sample_is_the_worst_unless_the_reference_misses_it_too() {
        let (own, reference) = (run(&[(Figure::P99Ttft, 1.0)]), run(&[(Figure::P99Ttft, 1.5), (Figure::P99Itl, 8.25)]));
        let fitness = weights("p99_itl:1,p99_ttft:1").relative(&own, &reference);
        let sampled: Vec<_> = fitness.components.iter().map(|part| (&*part.objective.key, part.sampled())).collect();
        assert_eq!(sampled, [("p99_itl", false), ("p99_ttft", true)]);
        insta::assert_snapshot!(fitness.block(Some("round-robin")), @r"
        === Fitness Evaluation ===
        Score: 0.038730 (1.000000 = round-robin)
          p99_itl: 0.001000 (no sample, baseline 8.250 ms)
          p99_ttft: 1.500000 (1.000 ms, baseline 1.500 ms)
          times, for completed requests: 1.000000
          times, for the value of shed requests: 1.000000
        ");
        let json = serde_json::to_string_pretty(&fitness.document(Some("round-robin"))).expect("JSON");
        insta::assert_snapshot!(json);
    }

    /// Latencies have the charges of rejected requests already; here only the factors.
    #[test]
    fn factors_for_requests_that_were_not_served() {
        let read = weights("p99_ttft:1");
        let of = |completed, lost, sheddable_completed| ChargedFigures {
            ends: EndValues { arrived: 100.0, completed, lost, sheddable_completed },
            ..run(&[(Figure::P99Ttft, 40.0)])
        };
        let score = |run: &ChargedFigures, reference: &ChargedFigures| read.relative(run, reference).score;
        let reference = of(100.0, 0.0, 60.0);
        assert_eq!(score(&of(50.0, 0.0, 60.0), &reference), 0.25, "half of what may not be shed: q² = 1/4");
        assert_eq!(score(&of(100.0, 0.0, 20.0), &reference), 0.75, "shed: (100 + 20) / (100 + 60) of the value");
        assert_eq!(score(&of(100.0, 0.0, 92.0), &reference), 1.2, "it sheds less than the reference");
        // As many complete, but each of them instead of one that is lost.
        let overload = of(60.0, 0.0, 60.0);
        let factors = read.relative(&of(60.0, 30.0, 60.0), &overload).factors.expect("on this scale");
        assert!((factors.completed - 0.25).abs() < 1e-12);
        assert_eq!(
            score(&of(60.0, 0.0, 60.0), &of(0.0, 0.0, 60.0)),
            1.0,
            "no penalty against a reference with nothing"
        );
    }

    /// Regression: starving the longest 2 % scored 1.11 on medians, in a service near its capacity.
    #[test]
    fn losing_a_few_does_not_pay() {
        let read = weights("p50_ttft:1");
        let of = |ttft: f64, lost: f64| ChargedFigures {
            ends: EndValues { arrived: 1000.0, completed: 1000.0 - lost, lost, sheddable_completed: 0.0 },
            ..run(&[(Figure::P50Ttft, ttft)])
        };
        let score = |lost: f64, theirs: f64| read.relative(&of(10.0, lost), &of(1000.0, theirs)).score;
        assert!(score(2.0, 0.0) < 1.0 && score(20.0, 0.0) < 0.1, "{} {}", score(2.0, 0.0), score(20.0, 0.0));
        assert!((score(20.0, 20.0) - 100.0).abs() < 1e-9, "as many as the reference");
        assert!(
            (score(21.0, 20.0) - 0.002 * 0.999 / 0.001).abs() < 1e-9,
            "one more of a thousand: {}",
            score(21.0, 20.0)
        );
    }

    #[test]
    fn definitions_fit_a_help_text() {
        for &scale in FitnessScale::VARIANTS {
            assert!(scale.definition().is_ascii() && scale.keys().len() >= 8, "{scale:?}");
        }
    }

    /// Any figures that a run can have; `completed` is its completed share.
    fn figures(completed: impl Strategy<Value = f64>) -> impl Strategy<Value = ChargedFigures> {
        let value = prop_oneof![
            Just(None),
            Just(Some(0.0)),
            (0.0..1.0f64).prop_map(Some),
            (0.0..1e9f64).prop_map(Some),
            Just(Some(1e300)),
            Just(Some(f64::MIN_POSITIVE)),
        ];
        let shares = (0.0..=1.0f64, 0.0..=1.0f64);
        (prop::collection::vec(value, Figure::COUNT), completed, shares).prop_map(|(values, completed, shares)| {
            let figures = Figure::ALL.iter().filter_map(|&figure| {
                let value = values[figure as usize]?;
                let value = if figure.unit().bounded() { value.min(1.0) } else { value };
                Some((figure.key().to_owned(), value))
            });
            let (lost, sheddable) = shares;
            let ends = EndValues {
                arrived: 100.0,
                completed: 100.0 * completed,
                lost: 100.0 * lost * (1.0 - completed),
                sheddable_completed: 50.0 * sheddable * f64::from(u8::from(completed > 0.0)),
            };
            ChargedFigures { figures: figures.collect(), ends }
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
                FitnessWeights::parse(&pairs.collect::<Vec<_>>().join(","), FitnessScale::Ratio).ok()
            })
    }

    proptest! {
        /// Whatever is weighed, and however good the figures of the served half are.
        #[test]
        fn serving_half_of_what_may_not_be_shed_loses(
            weights in any_weights(),
            run in figures(0.0..=1.0f64),
            reference in figures(0.01..=1.0f64),
            part in 0.0..=0.5f64,
        ) {
            let mut run = run;
            let served = (reference.ends.completed - reference.ends.lost).max(0.0);
            run.ends = EndValues { completed: part * served, lost: 0.0, ..run.ends };
            let score = weights.relative(&run, &reference).score;
            prop_assert!(score <= 1.0 / 3.0 + 1e-12 || served == 0.0, "{score}");
        }

        /// The factor alone: what rejecting costs in latencies is a test of the charges.
        #[test]
        fn half_of_what_may_not_be_shed_costs_three_quarters(
            weights in any_weights(),
            run in figures(0.01..=1.0f64),
            part in 0.0..=0.5f64,
        ) {
            let mut shed = run.clone();
            shed.ends.completed *= part;
            let (whole, half) = (weights.relative(&run, &run).score, weights.relative(&shed, &run).score);
            let served = run.ends.completed > run.ends.lost;
            prop_assert!(half <= whole * if served { 0.25 + 1e-12 } else { 1.0 }, "{half} of {whole}");
        }

        #[test]
        fn serving_nothing_is_the_only_zero(
            weights in any_weights(),
            run in figures(prop_oneof![Just(0.0), 0.001..=1.0f64]),
            reference in figures(prop_oneof![Just(0.0), 0.001..=1.0f64]),
        ) {
            let score = weights.relative(&run, &reference).score;
            prop_assert!(score.is_finite() && score >= 0.0, "{score}");
            prop_assert_eq!(score == 0.0, run.ends.nothing_completed());
        }

        #[test]
        fn the_reference_scores_one(weights in any_weights(), run in figures(0.001..=1.0f64)) {
            prop_assert_eq!(weights.relative(&run, &run).score, 1.0);
        }

        /// A relative to B times B relative to C is A relative to C, where no ratio reaches its limits.
        #[test]
        fn the_choice_of_the_reference_changes_no_order(latencies in prop::array::uniform6(1.0..30.0f64)) {
            let [a, b, c] = [0, 2, 4].map(|at| run(&[(Figure::MeanTtft, latencies[at]), (Figure::MeanE2e, latencies[at + 1])]));
            let read = weights("mean_ttft:1,mean_e2e:3");
            let score = |run: &ChargedFigures, reference: &ChargedFigures| read.relative(run, reference).score;
            prop_assert!((score(&a, &b) * score(&b, &c) / score(&a, &c) - 1.0).abs() < 1e-9);
        }

        /// A better figure never lowers the score, on either scale.
        #[test]
        fn better_is_never_worse(
            figure in prop::sample::select(Figure::ALL),
            run in figures(0.001..=1.0f64),
            reference in figures(0.001..=1.0f64),
            factor in 0.0..1.0f64,
            others in any_weights(),
        ) {
            let mut worse = run.clone();
            let Some(&value) = run.figures.get(figure.key()) else { return Ok(()) };
            let worst = if figure.unit().bounded() { 1.0 } else { f64::MAX };
            let changed = match figure.better() {
                Better::Higher => value * factor,
                Better::Lower => (value / (1.0 - factor)).min(worst),
            };
            worse.figures.insert(figure.key().to_owned(), changed);
            let single = weights(&format!("{}:2", figure.key()));
            for weights in [&single, &others] {
                let (better, worse) = (weights.relative(&run, &reference), weights.relative(&worse, &reference));
                prop_assert!(better.score >= worse.score * (1.0 - 1e-12), "{better:?} {worse:?}");
            }
            if let Ok(weights) = FitnessWeights::parse(&format!("{}:2", figure.key()), FitnessScale::Blis) {
                let score = |value| weights.blis(&served(&[(figure, value)]), NoSample::Worst).score;
                prop_assert!(score(value) >= score(changed));
                prop_assert_eq!(weights.blis(&Figures::default(), NoSample::Worst).score, 0.0);
            }
        }

        /// The order in which a user writes weights changes no bit of the score.
        #[test]
        fn order_does_not_matter(weights in any_weights(), run in figures(0.5..=1.0f64), other in figures(0.5..=1.0f64)) {
            let mut reversed = weights.clone();
            reversed.weights.reverse();
            prop_assert_eq!(weights.relative(&run, &other), reversed.relative(&run, &other));
        }

        #[test]
        fn no_text_breaks_the_parser(text in "[a-z0-9_:,. \\-é\t]{0,24}") {
            for &scale in FitnessScale::VARIANTS {
                if let Err(error) = FitnessWeights::parse(&text, scale) {
                    prop_assert!(text.get(error.span()).is_some());
                    prop_assert_eq!(error.to_string().lines().count(), 4);
                }
            }
        }
    }
}
