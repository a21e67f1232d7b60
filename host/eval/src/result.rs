//! The evaluation result: the JSON document about a candidate that a search tool reads.
//!
//! All fields but `id` and `cost` follow from candidate, suite, stage, epoch and program, and are hashed
//! (`hashes.result`). The same keys are always present, for tools that bin or average them. The schema is
//! `docs/evaluation.schema.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::cascade::{CascadeResult, ScoredRun, StageResult, log_score};
use super::decision_costs::DecisionCosts;
use super::fitness::FitnessComponent;
use super::patterns::DecisionPatterns;
use super::result_figures::{EvaluationFeatures, EvaluationMetrics, ServedFigures, Traits};
use super::stratified::StratifiedDifference;
use super::suite::{Split, Suite, hex};

/// Version of the document.
pub const SCHEMA: u32 = 2;

/// Status of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum EvaluationStatus {
    /// The candidate has a score.
    Ok,
    /// The candidate is not a valid policy, or makes no decision that the suite uses.
    Rejected,
    /// The candidate failed during a decision.
    Trap,
    /// The candidate exceeded a limit of resources.
    Limit,
    /// The candidate failed a gate.
    GateFailed,
    /// The host failed, not the candidate: the evaluation can be repeated.
    HostError,
}

/// The evaluation result of one candidate, as docs/evaluate.md defines it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationResult {
    /// Version of the document. Unit: number, 2 to 2.
    pub schema: u32,
    /// Id of the request, as given to `blis serve`.
    pub id: Option<String>,
    /// How the evaluation ended.
    pub status: EvaluationStatus,
    /// 0 if invalid; 1 to 2 after smoke, 2 to 3 after train, 3 to 4 after select. Unit: score, 0 to below 4.
    pub combined_score: f64,
    /// The last stage that ran; `static` for none. One of `static`, `smoke`, `train`, `select`.
    pub stage: String,
    /// Why the next stage did not run; `null` after the last one.
    pub stopped: Option<String>,
    /// Figures of the last stage that is shown to a search (smoke or train), mean over runs, 0 without a sample; and
    /// scores of the stages. The same keys in every document.
    pub metrics: EvaluationMetrics,
    /// The difference from the reference in the last stage before select.
    pub paired: Option<PairedScores>,
    /// Each run of smoke and train.
    pub scenarios: Vec<ScenarioDocument>,
    /// What was checked before any score.
    pub gates: GatesDocument,
    /// Properties of the source and of its behaviour. The same keys in every document.
    pub features: EvaluationFeatures,
    /// Feedback: texts for the author of the next candidate; empty ones are left out.
    pub artifacts: Artifacts,
    /// With `--patterns`: what is known about decisions of each kind in the worst run; absent without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<DecisionPatterns>,
    /// With `decisions` in a request: decisions with the costs of their alternatives; absent without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<DecisionCosts>,
    /// Results for people, which must not become part of a prompt.
    pub private: PrivateResults,
    /// Hashes of the inputs and of the result.
    pub hashes: EvaluationHashes,
    /// Resources that the evaluation used; they differ from call to call.
    pub cost: CostDocument,
    /// Whether the result depends on clock time, so that a repetition may differ.
    #[serde(skip)]
    pub depends_on_clock: bool,
}

/// By how much a candidate is better than the reference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairedScores {
    /// Name of the reference.
    pub reference: String,
    /// Number of pairs of runs. Unit: pairs, 1 or more.
    pub n: usize,
    /// Score − 1; the score is the geometric mean over scenarios of those over seeds. Unit: score, -1 or more.
    pub diff_mean: f64,
    /// 95 % confidence interval of it; `null` without one. Unit: score.
    pub ci95: Option<[f64; 2]>,
    /// Probability that it is above 0. Unit: probability, 0 to 1.
    pub p_better: Option<f64>,
}

/// A run of the candidate beside that of the reference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScenarioDocument {
    /// Name of the scenario.
    pub id: String,
    /// The stage in which it ran. One of `smoke`, `train`, `select`.
    pub stage: String,
    /// Group of similar scenarios.
    pub family: String,
    /// Seed of the requests. Unit: number.
    pub seed: u64,
    /// 1 is as good as the reference. Unit: score, 0 or more.
    pub score: f64,
    /// By key of the weights, with every end of a request charged.
    pub objectives: BTreeMap<String, ObjectiveDocument>,
    /// Factor of the score for requests that may not be shed and were not served. Unit: factor, 0 to 1.
    pub completed_factor: f64,
    /// Factor of the score for the value of requests that were shed; above 1 if the reference shed more. Unit: factor,
    /// 0 or more.
    pub kept_factor: f64,
    /// Figures of the run of the candidate: of the requests that were served; those without a sample are absent.
    pub metrics: ServedFigures,
    /// Figures of the run of the reference, likewise.
    pub reference: ServedFigures,
}

/// An objective in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectiveDocument {
    /// Ratio to the reference, above 1 is better. Unit: ratio, 0 or more.
    pub ratio: f64,
    /// The figure of the candidate; absent without a sample. Unit: of the figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<f64>,
    /// The figure of the reference; absent without a sample. Unit: of the figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<f64>,
}

/// The gates, which are checked before any score.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GatesDocument {
    /// Whether every request was accounted for.
    pub conservation: bool,
    /// Lowest completed share of a run, of the requests that may not be shed, divided by that of the baseline. Unit:
    /// ratio, 0 or more.
    pub completed: f64,
    /// Largest part of the requests that may not be shed that was rejected or starved in a run. Unit: share, 0 to 1.
    pub lost: f64,
    /// Longest mean end-to-end latency of a class that may not be shed in a run, divided by that of the baseline. Unit:
    /// ratio, 0 or more.
    pub worst_class: f64,
    /// Whether all figures were finite.
    pub finite: bool,
    /// Gates that failed, a line each.
    pub failed: Vec<String>,
}

/// Feedback: texts for the author of the next candidate; empty ones are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Artifacts {
    /// Why there is no score, with line and source.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// Candidate and reference by scenario, worst first.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scenarios: String,
    /// Known policies that do better in the worst scenario.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub better_policies: String,
    /// Where decisions are wrong, by which signal, and what the best reference policy would decide; with `--patterns`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub patterns: String,
    /// The minute in which the candidate does worst beside that policy, as a table; with `--patterns`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub worst_minute: String,
    /// The decisions with the largest regret, with the signals that the policy read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub worst_decisions: String,
    /// Mean regret by situation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub situations: String,
    /// Priority inversions, head-of-line blocking, rejections.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub anomalies: String,
    /// Operations used, and the limits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub limits: String,
}

impl Artifacts {
    /// The texts that are not empty, by name, most important first.
    pub fn texts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let Self {
            error,
            scenarios,
            better_policies,
            patterns,
            worst_minute,
            worst_decisions,
            situations,
            anomalies,
            limits,
        } = self;
        let all = [
            ("error", error),
            ("scenarios", scenarios),
            ("better_policies", better_policies),
            ("patterns", patterns),
            ("worst_minute", worst_minute),
            ("worst_decisions", worst_decisions),
            ("situations", situations),
            ("anomalies", anomalies),
            ("limits", limits),
        ];
        all.into_iter().filter(|(_, text)| !text.is_empty()).map(|(name, text)| (name, text.as_str()))
    }
}

/// Results for people, which must not become part of a prompt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PrivateResults {
    /// Each run of select.
    pub scenarios: Vec<ScenarioDocument>,
    /// Score in select, if it ran; 1 is as good as the reference. Unit: score.
    pub score: Option<f64>,
    /// The difference from the reference in select.
    pub paired: Option<PairedScores>,
    /// Gates that failed in select, a line each; absent if none did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// Score in train − score in select, if both ran. Unit: score.
    pub train_select_gap: Option<f64>,
    /// A warning about overfitting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// Hashes of the inputs and of the result, hexadecimal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EvaluationHashes {
    /// SHA-256 of the bytes of the candidate.
    pub candidate: String,
    /// SHA-256 of the file of the suite and of the files that it names.
    pub suite: String,
    /// Version of the program and platform.
    pub host: String,
    /// SHA-256 of this document without `id`, `cost` and this field.
    pub result: String,
}

/// Resources that the evaluation used; they differ from call to call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostDocument {
    /// CPU time of the program. Unit: ms, 0 or more.
    pub cpu_ms: f64,
    /// Clock time of the evaluation. Unit: ms, 0 or more.
    pub wall_ms: f64,
    /// Whether the result came from the cache. One of `hit`, `miss`.
    pub cache: String,
    /// Fuel or operations that the candidate used. Unit: operations.
    pub ops: u64,
}

impl Default for CostDocument {
    fn default() -> Self {
        Self { cpu_ms: 0.0, wall_ms: 0.0, cache: "miss".to_owned(), ops: 0 }
    }
}

impl EvaluationResult {
    /// Why the candidate has no score, in one text; `None` if it has one.
    #[must_use]
    pub fn rejection(&self) -> Option<String> {
        if self.status == EvaluationStatus::Ok {
            return None;
        }
        let texts = [&self.artifacts.error, &self.gates.failed.join("; ")].map(String::clone);
        texts.into_iter().find(|text| !text.is_empty()).or_else(|| self.stopped.clone())
    }

    /// The result of a candidate that was not run, or with runs that do not count.
    #[must_use]
    pub fn invalid(status: EvaluationStatus, error: String, traits: Traits) -> Self {
        let cascade = CascadeResult::default();
        let mut document = Self::new(None, &cascade, traits);
        document.status = status;
        document.artifacts.error = error;
        document
    }

    /// The result of a candidate that ran through the cascade.
    #[must_use]
    pub fn from_cascade(suite: &Suite, cascade: &CascadeResult, traits: Traits) -> Self {
        let mut document = Self::new(Some(suite), cascade, traits);
        if !cascade.failed.is_empty() {
            document.status = EvaluationStatus::GateFailed;
            document.artifacts.error = format!("gate failed\n{}", document.gates.failed.join("\n"));
        }
        document
    }

    fn new(suite: Option<&Suite>, cascade: &CascadeResult, traits: Traits) -> Self {
        let shown = |stage: &&StageResult| stage.split != Split::Select;
        let runs = |stages: &mut dyn Iterator<Item = &StageResult>| {
            let of = |stage: &StageResult| {
                let split = stage.split;
                stage.runs.iter().filter_map(|one| Some(scenario(suite?, split, one))).collect::<Vec<_>>()
            };
            stages.flat_map(of).collect::<Vec<_>>()
        };
        let select = cascade.stage(Split::Select);
        let gap = cascade.stage(Split::Train).zip(select);
        let against = |stage: &StageResult| suite.map(|suite| paired(&suite.reference, &stage.against_reference));
        let last = cascade.last();
        let failed = if select.is_some() { cascade.failed.clone() } else { Vec::new() };
        let public = without_select(cascade);
        Self {
            schema: SCHEMA,
            id: None,
            status: EvaluationStatus::Ok,
            combined_score: cascade.score(),
            stage: last.map_or("static", |stage| stage.split.into_str()).to_owned(),
            stopped: cascade.stopped.clone(),
            metrics: EvaluationMetrics::new(&public),
            paired: public.last().and_then(against),
            scenarios: runs(&mut cascade.stages.iter().filter(shown)),
            gates: gates(&public, !cascade.stages.is_empty()),
            features: EvaluationFeatures::new(&public, traits),
            artifacts: Artifacts::default(),
            patterns: Vec::new(),
            decisions: Vec::new(),
            private: PrivateResults {
                scenarios: runs(&mut cascade.stages.iter().filter(|stage| stage.split == Split::Select)),
                score: select.map(|stage| stage.score),
                paired: select.and_then(against),
                failed,
                train_select_gap: gap.map(|(train, select)| train.score - select.score),
                warning: gap.and_then(|(train, select)| overfitted(train, select)),
            },
            hashes: EvaluationHashes::default(),
            cost: CostDocument::default(),
            depends_on_clock: false,
        }
    }

    /// The document without the results that a search must not see.
    #[must_use]
    pub fn without_private(self) -> Self {
        Self { private: PrivateResults::default(), ..self }
    }

    /// Computes the hash of the result. All other fields must be set.
    #[must_use]
    pub fn with_result_hash(mut self) -> Self {
        let none = CostDocument { cache: String::new(), ..CostDocument::default() };
        let cost = std::mem::replace(&mut self.cost, none);
        let id = self.id.take();
        self.hashes.result.clear();
        // Maps are sorted, so that equal documents have equal texts.
        let text = serde_json::to_vec(&self).unwrap_or_default();
        self.hashes.result = hex(&Sha256::digest(text));
        (self.cost, self.id) = (cost, id);
        self
    }
}

/// The cascade as a search may see it: without the runs and figures of select.
fn without_select(cascade: &CascadeResult) -> CascadeResult {
    let stages: Vec<StageResult> =
        cascade.stages.iter().filter(|stage| stage.split != Split::Select).cloned().collect();
    let hides = stages.len() < cascade.stages.len() && !cascade.failed.is_empty();
    let failed = if hides { vec!["a gate failed in select".to_owned()] } else { cascade.failed.clone() };
    CascadeResult { stages, failed, ..cascade.clone() }
}

fn scenario(suite: &Suite, split: Split, one: &ScoredRun) -> ScenarioDocument {
    let scenario = &suite.scenarios[one.scenario];
    ScenarioDocument {
        id: scenario.name.clone(),
        stage: split.into_str().to_owned(),
        family: scenario.family.clone(),
        seed: one.seed,
        score: one.score,
        objectives: one.fitness.components.iter().map(objective).collect(),
        completed_factor: one.fitness.factors.map_or(1.0, |factors| factors.completed),
        kept_factor: one.fitness.factors.map_or(1.0, |factors| factors.kept),
        metrics: ServedFigures::new(&one.summary.figures()),
        reference: ServedFigures::new(&one.reference.figures()),
    }
}

fn objective(component: &FitnessComponent) -> (String, ObjectiveDocument) {
    let FitnessComponent { objective, value: ratio, own, reference, .. } = component;
    (objective.key.clone(), ObjectiveDocument { ratio: *ratio, own: *own, reference: *reference })
}

fn paired(reference: &str, difference: &StratifiedDifference) -> PairedScores {
    PairedScores {
        reference: reference.to_owned(),
        n: difference.pairs,
        diff_mean: difference.mean.exp_m1(),
        ci95: difference.interval.map(|interval| [interval.low.exp_m1(), interval.high.exp_m1()]),
        p_better: difference.p_better,
    }
}

/// `ran`: whether anything was simulated, of any stage.
fn gates(cascade: &CascadeResult, ran: bool) -> GatesDocument {
    let runs = || cascade.stages.iter().flat_map(|stage| &stage.runs);
    let share = |one: &ScoredRun| {
        let [own, baseline] = [&one.summary, &one.baseline].map(|summary| summary.charged.ends.completed_share());
        if baseline > 0.0 { own / baseline } else { 1.0 }
    };
    let longer = |one: &ScoredRun| {
        let classes = one.baseline.classes.iter().filter(|(_, base)| base.mean_e2e_ms > 0.0 && !base.sheddable);
        classes
            .filter_map(|(name, base)| Some(one.summary.classes.get(name)?.mean_e2e_ms / base.mean_e2e_ms))
            .fold(0.0, f64::max)
    };
    GatesDocument {
        conservation: ran,
        completed: if !cascade.stages.is_empty() { runs().map(share).fold(f64::INFINITY, f64::min) } else { 0.0 },
        lost: runs().map(|one| one.summary.charged.ends.lost_share()).fold(0.0, f64::max),
        worst_class: runs().map(longer).fold(0.0, f64::max),
        finite: ran,
        failed: cascade.failed.clone(),
    }
}

/// A warning if the candidate scored more in train than in select, by more than chance explains.
fn overfitted(train: &StageResult, select: &StageResult) -> Option<String> {
    let error = train.against_reference.standard_error?.hypot(select.against_reference.standard_error?);
    let gap = log_score(train.score) - log_score(select.score);
    (gap > 2.0 * error).then(|| {
        let percent = 100.0 * gap.exp_m1();
        format!("scored {percent:.1} % more in train than in select, more than two standard errors: it may be overfitted to the train split")
    })
}
