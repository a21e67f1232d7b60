//! Tuning: a CMA-ES search for better values of the parameters that a candidate declares (`// @param`), on paired
//! seeds.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use blis_report::{Concludes, Conclusion};
use cmaes::{CMAESOptions, DVector, Mode};
use serde::{Deserialize, Serialize};

use super::candidate::CandidatePolicy;
use super::context::{EvaluatedPolicy, EvaluationContext, EvaluationSuite};
use super::history::{EvaluatedCandidate, SearchHistory};
use crate::cascade::{PolicyRole, StagePlan, StageResult, log_score, run_single_stage};
use crate::error::RunError;
use crate::lock::lock;
use crate::result::EvaluationStatus;
use crate::score_sentence::ScoreGain;
use crate::stratified::StratifiedDifference;
use crate::suite::Split;
use blis_config::policy::PREFIX_CAPACITY;
use blis_plugin::{LoadedPlugin, PolicyParameter};

/// What `blis tune` prints with `--output json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct TuningResult {
    /// Name of the suite.
    suite: String,
    /// Evaluations that ran; equal values of the parameters run once. Unit: evaluations.
    evaluations: usize,
    /// Score in train with the defaults; 1 is the reference. Unit: score.
    default_score: f64,
    /// Score in train with the best values. Unit: score.
    tuned_score: f64,
    /// Tuned against default, under the seeds of the search.
    train: Gain,
    /// The same under the seeds of select, which the search did not use; `null` if the suite has no such split.
    select: Option<Gain>,
    /// Each parameter of the candidate.
    parameters: Vec<ParameterGain>,
}

/// A parameter and the effect of its new value.
#[derive(Debug, Serialize, Deserialize)]
struct ParameterGain {
    /// Name of the parameter.
    name: String,
    /// Value that the candidate declares. Unit: of the parameter.
    default: f64,
    /// Best value found. Unit: of the parameter.
    tuned: f64,
    /// Loss of score in train if this parameter alone returns to its default; `null` if the candidate fails then.
    gain: Option<Gain>,
}

/// A ratio of scores − 1: 0.1 is a score that is 10 % higher.
#[derive(Debug, Serialize, Deserialize)]
struct Gain {
    /// Ratio − 1; the ratio is the geometric mean over scenarios of those over seeds. Unit: share.
    mean: f64,
    /// 95 % confidence interval of it; `null` without one. Unit: share.
    ci95: Option<[f64; 2]>,
    /// Number of pairs of runs. Unit: pairs.
    pairs: usize,
}

impl Concludes for TuningResult {
    fn conclusion(&self) -> Conclusion {
        let (gain, of) = match &self.select {
            Some(select) => (select, "under seeds that the search did not use"),
            None => (&self.train, "under the seeds of the search: chosen there, and so too good"),
        };
        let gain = ScoreGain { mean: gain.mean, ci95: gain.ci95 };
        Conclusion::new(gain.kind(), format!("Tuned: {} the defaults {of}", gain.words()))
    }
}

impl From<StratifiedDifference> for Gain {
    fn from(difference: StratifiedDifference) -> Self {
        let ci95 = difference.interval.map(|interval| [interval.low.exp_m1(), interval.high.exp_m1()]);
        Self { mean: difference.mean.exp_m1(), ci95, pairs: difference.pairs }
    }
}

/// A search for better values of the parameters that a candidate declares.
pub struct TuneRequest<'a> {
    /// A Rhai script or a component.
    pub candidate: &'a CandidatePolicy,
    pub prepared: &'a EvaluationSuite,
    /// Number of settings to try, each on all scenarios of train.
    pub evals: u32,
    /// Seed of the search.
    pub seed: u64,
    /// Epoch of the seeds of the suite: other epochs draw other requests.
    pub epoch: u64,
    /// Number of threads; 0 for one per core.
    pub threads: usize,
    /// Where every setting that was tried is noted.
    pub history: Option<&'a SearchHistory>,
}

/// Runs the search. Returns its result and the source of the script with the tuned values as defaults; for other
/// candidates the text has no meaning.
///
/// # Errors
/// If the candidate cannot be loaded or declares no parameters, or fails with its own defaults.
pub fn tune(request: &TuneRequest<'_>) -> Result<(TuningResult, String), RunError> {
    let TuneRequest { candidate, prepared, evals, seed, epoch, threads, history } = *request;
    let loaded = candidate.load(&prepared.suite.limits).map_err(RunError::from)?;
    let declared = loaded.plugin.description().parameters.clone();
    // How much the router remembers is a fact of the service.
    let is_free = |parameter: &PolicyParameter| parameter.min < parameter.max && parameter.name != PREFIX_CAPACITY;
    let free: Vec<PolicyParameter> = declared.into_iter().filter(is_free).collect();
    if free.is_empty() {
        return Err(RunError::usage(format_args!("`{}` declares no parameters", candidate.file))
            .hint("a script declares one by `// @param name default min max about`; `blis plugin list` shows all"));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(RunError::runtime)?;
    let tuning = Tuning { prepared, loaded: &loaded, free, epoch, history };
    let (tuned, values) = pool.install(|| tuning.run(evals as usize, seed))?;
    if let Some(history) = history {
        let incomplete = |error| RunError::runtime(format_args!("the history of the search is not complete: {error}"));
        history.finish().map_err(incomplete)?;
    }
    let text = with_defaults(&String::from_utf8_lossy(&candidate.bytes), &tuning.free, &values);
    Ok((tuned, text))
}

struct Tuning<'a> {
    prepared: &'a EvaluationSuite,
    loaded: &'a LoadedPlugin,
    free: Vec<PolicyParameter>,
    epoch: u64,
    history: Option<&'a SearchHistory>,
}

/// The best setting so far: its score, its point, and the number of settings tried.
struct Best {
    score: f64,
    point: Vec<f64>,
    tried: usize,
}

impl Tuning<'_> {
    fn run(&self, evals: usize, seed: u64) -> Result<(TuningResult, Vec<f64>), RunError> {
        let tried = StagePlan::new(&self.prepared.suite, Split::Train, self.epoch);
        let train = tried.clone().whole();
        let select = StagePlan::new(&self.prepared.suite, Split::Select, self.epoch).whole();
        let defaults: Vec<f64> = self.free.iter().map(|parameter| parameter.default).collect();
        let default = self.stage(&defaults, &train)?;
        self.note("defaults", &defaults, &Ok((default.clone(), Vec::new())));
        let start: Vec<f64> = self.free.iter().map(|parameter| unit(parameter, parameter.default)).collect();
        let best = Mutex::new(Best { score: default.score, point: start.clone(), tried: 1 });
        // An error does not end the search: a setting that fails scores 0.
        let objective = |x: &DVector<f64>| {
            let point: Vec<f64> = x.iter().map(|&x| folded(x)).collect();
            let values = self.values(&point);
            let stage = self.stage_with_gates(&values, &tried);
            let score = stage.as_ref().map_or(0.0, |(stage, _)| stage.score);
            let mut best = lock(&best);
            best.tried += 1;
            self.note(&format!("setting {}", best.tried), &values, &stage);
            if score > best.score {
                best.score = score;
                best.point = point;
            }
            score
        };
        const STEP: f64 = 0.3;
        let options = CMAESOptions::new(start, STEP).mode(Mode::Maximize).seed(seed);
        let left = evals.saturating_sub(1).max(1);
        let mut search = options
            .max_function_evals(left)
            .build(objective)
            .map_err(|error| RunError::runtime(format_args!("the search cannot start: {error:?}")))?;
        // A whole generation runs at a time, so the search stops when the next one would exceed the limit.
        let generation = search.parameters().lambda();
        while search.function_evals() + generation <= left && search.next().is_none() {}
        drop(search);
        let best = best.into_inner().unwrap_or_else(PoisonError::into_inner);
        let values = self.values(&best.point);
        let tuned = self.stage(&values, &train)?;
        let parameters = self.free.iter().enumerate().map(|(index, parameter)| {
            let mut without = values.clone();
            without[index] = parameter.default;
            let gain = self.stage(&without, &train).ok().map(|without| between(&without, &tuned).into());
            let (name, default) = (parameter.name.clone(), parameter.default);
            ParameterGain { name, default, tuned: values[index], gain }
        });
        let parameters = parameters.collect();
        let select = (!select.scenarios.is_empty())
            .then(|| {
                Ok::<_, RunError>(between(&self.stage(&defaults, &select)?, &self.stage(&values, &select)?).into())
            })
            .transpose()?;
        let train = between(&default, &tuned).into();
        let suite = self.prepared.suite.name.clone();
        let (default_score, tuned_score) = (default.score, tuned.score);
        let all =
            TuningResult { suite, evaluations: best.tried, default_score, tuned_score, train, select, parameters };
        Ok((all, values))
    }

    /// The parameter values at a point, rounded to four significant digits for readability.
    fn values(&self, point: &[f64]) -> Vec<f64> {
        let value = |(parameter, &x): (&PolicyParameter, &f64)| {
            let value = parameter.min + x * (parameter.max - parameter.min);
            let digits = if value == 0.0 { 0 } else { (3 - value.abs().log10().floor() as i32).clamp(0, 12) };
            let rounded = format!("{value:.*}", digits as usize).parse().unwrap_or(value);
            f64::clamp(rounded, parameter.min, parameter.max)
        };
        self.free.iter().zip(point).map(value).collect()
    }

    /// Adds a setting to the history, if there is one.
    fn note(&self, name: &str, values: &[f64], tried: &Result<(StageResult, Vec<String>), RunError>) {
        let Some(history) = self.history else { return };
        let lines = self.free.iter().zip(values).map(|(parameter, value)| format!("{} = {value}", parameter.name));
        let text = lines.collect::<Vec<_>>().join("\n");
        let (score, status, reason) = match tried {
            Ok((stage, failed)) if failed.is_empty() => (stage.score, EvaluationStatus::Ok, None),
            Ok((_, failed)) => (0.0, EvaluationStatus::GateFailed, Some(failed.join("; "))),
            Err(error) => (0.0, EvaluationStatus::Rejected, Some(error.to_string())),
        };
        let (status, reason) = (status.into_str(), reason.as_deref());
        history.add(&EvaluatedCandidate { name, score, status, reason, text: &text });
    }

    /// Runs one stage under `values`. A setting that fails a gate scores 0.
    fn stage(&self, values: &[f64], plan: &StagePlan) -> Result<StageResult, RunError> {
        self.stage_with_gates(values, plan).map(|(stage, _)| stage)
    }

    /// The same, with the gates that it failed, a line each.
    fn stage_with_gates(&self, values: &[f64], plan: &StagePlan) -> Result<(StageResult, Vec<String>), RunError> {
        let named: Vec<(String, f64)> =
            self.free.iter().zip(values).map(|(parameter, &value)| (parameter.name.clone(), value)).collect();
        let candidate: EvaluatedPolicy = self.prepared.candidate(self.loaded, &named)?;
        let reference = self.prepared.named(&self.prepared.suite.reference)?;
        let baseline = self.prepared.named(&self.prepared.suite.baseline)?;
        let context = EvaluationContext {
            prepared: self.prepared,
            candidate,
            reference,
            baseline,
            incumbent: None,
            handle: Arc::default(),
            parallel: true,
        };
        let cascade =
            run_single_stage(&self.prepared.suite, plan, &context).map_err(|(_, failure): (PolicyRole, _)| failure)?;
        let failed = cascade.failed;
        let stage = cascade.stages.into_iter().next();
        let stage = stage.ok_or_else(|| RunError::runtime("nothing was run"))?;
        let score = if failed.is_empty() { stage.score } else { 0.0 };
        Ok((StageResult { score, ..stage }, failed))
    }
}

/// The difference of ln of the scores between two stages, run by run.
fn between(from: &StageResult, to: &StageResult) -> StratifiedDifference {
    let mut scenarios: Vec<usize> = to.runs.iter().map(|run| run.scenario).collect();
    scenarios.dedup();
    let of = |&scenario: &usize| {
        let those = |stage: &StageResult| -> Vec<(u64, f64)> {
            let those = stage.runs.iter().filter(|run| run.scenario == scenario);
            those.map(|run| (run.seed, log_score(run.score))).collect()
        };
        let (from, to) = (those(from), those(to));
        let pair = |(seed, score): &(u64, f64)| Some(score - from.iter().find(|(other, _)| other == seed)?.1);
        to.iter().filter_map(pair).collect()
    };
    StratifiedDifference::stratified(&scenarios.iter().map(of).collect::<Vec<Vec<f64>>>())
}

/// Maps the range of a parameter to 0 to 1, the range of the search.
fn unit(parameter: &PolicyParameter, value: f64) -> f64 {
    (value - parameter.min) / (parameter.max - parameter.min)
}

/// Reflects a coordinate at the ends of the range.
fn folded(x: f64) -> f64 {
    let x = x.rem_euclid(2.0);
    if x > 1.0 { 2.0 - x } else { x }
}

/// `text` with other defaults in its `// @param` lines.
fn with_defaults(text: &str, free: &[PolicyParameter], values: &[f64]) -> String {
    let line = |line: &str| {
        let Some((before, rest)) = line.split_once("@param") else { return line.to_owned() };
        let words: Vec<&str> = rest.split_whitespace().collect();
        let index = words.first().and_then(|name| free.iter().position(|parameter| parameter.name == *name));
        let (Some(index), true) = (index, before.trim_start().starts_with("//")) else { return line.to_owned() };
        let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        if let Some(default) = words.get_mut(1) {
            *default = values[index].to_string();
        }
        format!("{before}@param {}", words.join(" "))
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n") + "\n"
}

impl TuningResult {
    /// A table for the terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let gain = |gain: &Gain| {
            let percent = |share: f64| format!("{:+.2} %", 100.0 * share);
            let interval = gain.ci95.map(|[low, high]| format!(" ({} to {})", percent(low), percent(high)));
            format!("{}{}", percent(gain.mean), interval.unwrap_or_default())
        };
        let mut text = format!(
            "{} settings tried on `{}`: {:.4} with the defaults, {:.4} tuned (1 = the reference)\n",
            self.evaluations, self.suite, self.default_score, self.tuned_score
        );
        let _ = writeln!(text, "gain in train   {}", gain(&self.train));
        if let Some(select) = &self.select {
            let _ = writeln!(text, "gain in select  {}   under other seeds than the search used", gain(select));
        }
        let _ = writeln!(text, "\n{:<20}{:>12}{:>12}  loss in train without it", "parameter", "default", "tuned");
        for one in &self.parameters {
            let lost = one.gain.as_ref().map_or_else(|| "the candidate fails".to_owned(), gain);
            let _ = writeln!(text, "{:<20}{:>12}{:>12}  {lost}", one.name, one.default, one.tuned);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_outside_the_range_are_reflected() {
        let back: Vec<f64> = [0.25, 1.25, -0.25, 2.5, -1.5].into_iter().map(folded).collect();
        assert_eq!(back, [0.25, 0.75, 0.25, 0.5, 0.5]);
    }

    #[test]
    fn defaults_are_replaced_in_their_lines() {
        let parameter = |name: &str| PolicyParameter {
            name: name.to_owned(),
            default: 1.0,
            min: 0.0,
            max: 10.0,
            about: String::new(),
        };
        let text =
            "// @param a 1 0 10 weight of it\n  // @param ab 2 0 10\nfn route(r, s) { a * s.queue_depth } // @param\n";
        let changed = with_defaults(text, &[parameter("ab"), parameter("a")], &[2.5, 0.125]);
        assert_eq!(
            changed,
            "// @param a 0.125 0 10 weight of it\n  // @param ab 2.5 0 10\nfn route(r, s) { a * s.queue_depth } // @param\n"
        );
    }
}
