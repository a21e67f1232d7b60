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
use super::stratified::StratifiedDifference;
use super::suite::{Split, Suite, hex};
use super::{Figure, Figures};

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

/// The evaluation result of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationResult {
    /// Version of the document, [`SCHEMA`].
    pub schema: u32,
    /// The id of the request.
    pub id: Option<String>,
    pub status: EvaluationStatus,
    /// 0 if invalid; 1 to 2 after smoke, 2 to 3 after train, 3 to 4 after select.
    pub combined_score: f64,
    /// The last stage that ran: `static` for none, else as [`Split`].
    pub stage: String,
    /// Why the cascade stopped before its last stage; `null` if it did not.
    pub stopped: Option<String>,
    /// Figures by name; the same keys in every document.
    pub metrics: BTreeMap<String, f64>,
    /// The difference from the reference in the last stage before select.
    pub paired: Option<PairedDocument>,
    /// Each run of smoke and train.
    pub scenarios: Vec<ScenarioDocument>,
    /// The gates, which are checked before any score.
    pub gates: GatesDocument,
    /// Properties of the source and of its behaviour, for maps of different solutions; the same keys in every
    /// document.
    pub features: BTreeMap<String, f64>,
    /// Feedback: texts for the author of the next candidate.
    pub artifacts: Artifacts,
    /// Patterns over the decisions of the worst run, if they are asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<DecisionPatterns>,
    /// Decisions with the costs of their alternatives, if they are asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<DecisionCosts>,
    /// Results for people, which must not become part of a prompt.
    pub private: PrivateDocument,
    /// Hashes of the inputs and of the result.
    pub hashes: EvaluationHashes,
    /// Resources that the evaluation used. They differ from call to call.
    pub cost: CostDocument,
    /// Whether the result depends on clock time, so that a repetition may differ.
    #[serde(skip)]
    pub depends_on_clock: bool,
}

/// By how much a candidate is better than the reference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairedDocument {
    /// Name of the reference.
    pub reference: String,
    /// Number of pairs of runs.
    pub n: usize,
    /// Score − 1; the score is the geometric mean over scenarios of those over seeds.
    pub diff_mean: f64,
    /// 95 % confidence interval of it, from that of the mean of ln of the scores.
    pub ci95: Option<[f64; 2]>,
    /// Probability that it is above 0.
    pub p_better: Option<f64>,
}

/// One run of the candidate beside that of the reference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScenarioDocument {
    /// Name of the scenario.
    pub id: String,
    /// The stage in which it ran.
    pub stage: String,
    /// The group of similar scenarios.
    pub family: String,
    /// Seed of the requests.
    pub seed: u64,
    /// Above 0; 1 is as good as the reference.
    pub score: f64,
    /// How the score came about, by objective.
    pub objectives: BTreeMap<String, ObjectiveDocument>,
    /// Factor of the score for requests that may not be shed and were not served, 0 to 1.
    pub completed_factor: f64,
    /// Factor of the score for the value of requests that were shed, 0 to 1.
    pub kept_factor: f64,
    /// Figures of the candidate's run: of the requests that were served.
    pub metrics: BTreeMap<String, f64>,
    /// Figures of the reference's run.
    pub reference: BTreeMap<String, f64>,
}

/// An objective in one run, with every end of a request charged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectiveDocument {
    /// The ratio to the reference: above 1 is better.
    pub ratio: f64,
    /// The figure of the candidate, in its unit; absent without a sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<f64>,
    /// The figure of the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<f64>,
}

/// The gates and their values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GatesDocument {
    /// Whether every request was accounted for.
    pub conservation: bool,
    /// The lowest completed share of a run, of the requests that may not be shed, divided by the baseline's.
    pub completed: f64,
    /// The largest part of the requests that may not be shed that was lost in a run.
    pub lost: f64,
    /// The longest mean end-to-end latency of a class that may not be shed in a run, divided by the baseline's.
    pub worst_class: f64,
    /// Whether all figures were finite.
    pub finite: bool,
    /// Gates that failed, a line each.
    pub failed: Vec<String>,
}

/// Feedback texts, most important first. Empty ones are left out.
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
    /// Where decisions are wrong, by which signal, and what the best reference policy would have decided.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub patterns: String,
    /// The minute in which the candidate does worst beside that policy.
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

/// Results that a search must not see: those of the split that candidates are selected by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PrivateDocument {
    /// Its runs.
    pub scenarios: Vec<ScenarioDocument>,
    /// Its score, if it ran; 1 is as good as the reference.
    pub score: Option<f64>,
    /// The difference from the reference in its runs.
    pub paired: Option<PairedDocument>,
    /// Gates that failed in its runs, a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// Score in train − score in select, if both ran: a measure of overfitting.
    pub train_select_gap: Option<f64>,
    /// A warning about overfitting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// Hashes of the inputs and of the result: SHA-256, hexadecimal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EvaluationHashes {
    /// Hash of the candidate's bytes.
    pub candidate: String,
    /// Hash of the suite's file and of the files that it names.
    pub suite: String,
    /// Version of the program and platform, as text.
    pub host: String,
    /// Hash of this document without `id`, `cost` and this field.
    pub result: String,
}

/// Resources that an evaluation used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostDocument {
    /// CPU time of the program, ms.
    pub cpu_ms: f64,
    /// Wall time of the evaluation, ms.
    pub wall_ms: f64,
    /// `hit` if the result came from the cache, else `miss`.
    pub cache: String,
    /// Fuel or operations that the candidate used.
    pub ops: u64,
}

impl Default for CostDocument {
    fn default() -> Self {
        Self { cpu_ms: 0.0, wall_ms: 0.0, cache: "miss".to_owned(), ops: 0 }
    }
}

/// Properties of the source of a candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traits {
    /// Lines with code; 0 for candidates without a source.
    pub source_lines: usize,
    /// Number of different signals that it reads.
    pub signals: usize,
    /// Number of numeric constants in its code.
    pub constants: usize,
}

/// Figures in the document, with the names of their keys.
const METRIC_FIGURES: [(&str, Figure); 12] = [
    ("throughput_rps", Figure::Throughput),
    ("mean_ttft_ms", Figure::MeanTtft),
    ("p99_ttft_ms", Figure::P99Ttft),
    ("mean_itl_ms", Figure::MeanItl),
    ("mean_e2e_ms", Figure::MeanE2e),
    ("p99_e2e_ms", Figure::P99E2e),
    ("completed_share", Figure::CompletedShare),
    ("rejected_share", Figure::RejectedShare),
    ("timed_out_share", Figure::TimedOutShare),
    ("slo_attainment", Figure::SloAttainment),
    ("cache_hit_rate", Figure::CacheHitRate),
    ("preemptions_per_request", Figure::Preemptions),
];

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
            metrics: metrics(&public),
            paired: public.last().and_then(against),
            scenarios: runs(&mut cascade.stages.iter().filter(shown)),
            gates: gates(&public, !cascade.stages.is_empty()),
            features: features(&public, traits),
            artifacts: Artifacts::default(),
            patterns: Vec::new(),
            decisions: Vec::new(),
            private: PrivateDocument {
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
        Self { private: PrivateDocument::default(), ..self }
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
        metrics: named_figures(&one.summary.figures()),
        reference: named_figures(&one.reference.figures()),
    }
}

fn objective(component: &FitnessComponent) -> (String, ObjectiveDocument) {
    let FitnessComponent { objective, value: ratio, own, reference, .. } = component;
    (objective.key.clone(), ObjectiveDocument { ratio: *ratio, own: *own, reference: *reference })
}

fn named_figures(figures: &Figures) -> BTreeMap<String, f64> {
    METRIC_FIGURES.iter().filter_map(|&(name, figure)| Some((name.to_owned(), figures.get(figure)?))).collect()
}

fn paired(reference: &str, difference: &StratifiedDifference) -> PairedDocument {
    PairedDocument {
        reference: reference.to_owned(),
        n: difference.pairs,
        diff_mean: difference.mean.exp_m1(),
        ci95: difference.interval.map(|interval| [interval.low.exp_m1(), interval.high.exp_m1()]),
        p_better: difference.p_better,
    }
}

/// The same keys for every candidate; 0 for figures without a sample.
fn metrics(cascade: &CascadeResult) -> BTreeMap<String, f64> {
    let mut metrics: BTreeMap<String, f64> = BTreeMap::new();
    let mut set = |name: &str, value: f64| {
        metrics.insert(name.to_owned(), value);
    };
    for split in [Split::Smoke, Split::Train] {
        set(&format!("{split}_score"), cascade.stage(split).map_or(0.0, |stage| stage.score));
    }
    let difference = cascade.last().map(|stage| stage.against_reference);
    let interval = difference.and_then(|difference| difference.interval);
    set("diff_mean", difference.map_or(0.0, |difference| difference.mean.exp_m1()));
    set("diff_low", interval.map_or(0.0, |interval| interval.low.exp_m1()));
    set("diff_high", interval.map_or(0.0, |interval| interval.high.exp_m1()));
    set("runs", cascade.stages.iter().map(|stage| stage.runs.len()).sum::<usize>() as f64);
    for (name, figure) in METRIC_FIGURES {
        let values = cascade
            .last()
            .into_iter()
            .flat_map(|stage| &stage.runs)
            .filter_map(|one| one.summary.figures().get(figure));
        let values: Vec<f64> = values.collect();
        set(name, values.iter().fold(0.0, |sum, value| sum + value) / values.len().max(1) as f64);
    }
    metrics
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

fn features(cascade: &CascadeResult, traits: Traits) -> BTreeMap<String, f64> {
    let runs: Vec<&ScoredRun> = cascade.stages.iter().flat_map(|stage| &stage.runs).collect();
    // `sum` of an empty iterator of floats is −0.
    let mean =
        |of: &dyn Fn(&ScoredRun) -> f64| runs.iter().fold(0.0, |sum, one| sum + of(one)) / runs.len().max(1) as f64;
    let decisions: u64 = runs.iter().map(|one| one.summary.decisions).sum();
    let operations: u64 = runs.iter().map(|one| one.summary.operations).sum();
    let features = [
        ("source_lines", traits.source_lines as f64),
        ("ops_per_decision", operations as f64 / decisions.max(1) as f64),
        ("distinct_signals_read", traits.signals as f64),
        ("shed_frac", mean(&|one| one.summary.figures().get(Figure::RejectedShare).unwrap_or(0.0))),
        ("imbalance", mean(&|one| one.summary.imbalance)),
        ("constants", traits.constants as f64),
    ];
    features.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
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
