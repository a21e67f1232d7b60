//! The evaluation cascade: from the runs of a candidate to its stages, gates and score.
//!
//! ```text
//! smoke ──► train ──► select          each: all scenarios × paired seeds → gates → score in its band
//!    └─ not promising    └─ worse than the incumbent
//! ```
//!
//! The score s of a stage is the geometric mean over its scenarios of the geometric mean over its seeds of the fitness
//! relative to the reference ([`FitnessWeights::relative`](super::FitnessWeights::relative)): 1 for the reference itself,
//! the best built-in policy of the suite. Means and intervals are those of ln s. A stage has a band of scores, in which
//! its score is s/(1 + s). The bands do not overlap, so a candidate that reaches a later stage always scores more. 0 is
//! the score of a candidate that cannot be used. Gates compare with the baseline, which may be a weaker policy, so that
//! a search can begin with it.
//!
//! The cascade is a function of [`RunSummary`]s. A [`RunSource`] provides them: it simulates in this process, or reads
//! a table that several machines have filled. Runs are requested by (policy, scenario, seed) and reduced in that
//! order, so the result does not depend on the order in which they end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::fitness::{Fitness, LOWEST};
use super::objective::{ChargedFigures, EndValues};
use super::paired::CONFIDENCE;
use super::stratified::{StratifiedDifference, confidence_at};
use super::suite::{Split, Suite};
use super::{Figure, Figures};

/// The results of one simulation that the cascade uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Figures that have a sample, by [`Figure::key`](crate::figures::Figure::key).
    pub figures: BTreeMap<String, f64>,
    /// The figures that the score reads, with every end of a request charged.
    pub charged: ChargedFigures,
    /// Results by SLO class; empty if the requests belong to one class only.
    pub classes: BTreeMap<String, ClassSummary>,
    /// Coefficient of variation of the number of requests per instance.
    pub imbalance: f64,
    /// Number of anomalies by name, for example priority inversions and instances with head-of-line blocking.
    pub anomalies: BTreeMap<String, u64>,
    /// Number of decisions that plugins made.
    pub decisions: u64,
    /// Fuel or operations that the plugins used.
    pub operations: u64,
}

/// Results of the requests of one SLO class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassSummary {
    /// Number of requests of the class that arrived.
    pub arrived: u64,
    /// Number of requests of the class that completed.
    pub completed: u64,
    /// Number of requests of the class that were lost: rejected, or starved (unfinished or timed out, while later ones were
    /// served in their stead).
    pub lost: u64,
    /// Mean end-to-end latency, ms: with every end charged if the class may not be shed, else of completed requests. 0
    /// without requests.
    pub mean_e2e_ms: f64,
    /// Whether requests of the class may be shed.
    pub sheddable: bool,
}

impl RunSummary {
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures::from_fn(|figure| self.figures.get(figure.key()).copied())
    }
}

/// Which of the policies of an evaluation is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyRole {
    /// The candidate: the policy under evaluation.
    Candidate,
    /// The reference, which scores are relative to.
    Reference,
    /// The baseline, which gates compare with. Not run if it is the reference.
    Baseline,
    /// The best candidate so far.
    Incumbent,
}

/// One simulation that the cascade requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Task {
    /// The policy that is simulated.
    pub role: PolicyRole,
    /// Index of the scenario in the suite.
    pub scenario: usize,
    /// Seed of the requests.
    pub seed: u64,
}

/// The requests of one run of a suite: the runs of all policies under the same key are of the same requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunKey {
    /// Index of the scenario in the suite.
    pub scenario: usize,
    /// Seed of the requests.
    pub seed: u64,
}

/// Provides the results of simulations.
pub trait RunSource {
    /// Why a run has no summary.
    type Error;

    /// The summaries of `tasks`, in the order of `tasks`.
    ///
    /// # Errors
    /// The error of the first failed task, in that order.
    fn run(&self, tasks: &[Task]) -> Result<Vec<RunSummary>, Self::Error>;
}

/// Which stages a candidate runs through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CascadeOptions {
    /// The last stage to run.
    pub until: Split,
    /// Epoch of the seeds: other epochs draw other requests.
    pub epoch: u64,
    /// Seeds of each scenario of train that run, the first ones; `None` for all.
    pub train_seeds: Option<usize>,
    /// Whether an incumbent exists that the candidate is compared with.
    pub incumbent: bool,
}

/// The stages that a candidate reached, and what it failed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CascadeResult {
    /// Results by stage, in the order in which they ran.
    pub stages: Vec<StageResult>,
    /// Why the cascade stopped before its last stage; `None` if it did not.
    pub stopped: Option<String>,
    /// Gates that the candidate failed, a line each; empty if it passed all.
    pub failed: Vec<String>,
}

/// The result of one stage.
#[derive(Clone, Debug, PartialEq)]
pub struct StageResult {
    pub split: Split,
    /// Each run, by scenario, then by seed.
    pub runs: Vec<ScoredRun>,
    /// Geometric mean over scenarios of those over seeds, above 0; 1 is as good as the reference.
    pub score: f64,
    /// Difference from the reference: ln of the score.
    pub against_reference: StratifiedDifference,
    /// Difference of ln of the scores from the incumbent, if there is one.
    pub against_incumbent: Option<StratifiedDifference>,
}

/// One run of the candidate beside those of the reference and the baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredRun {
    /// Index of the scenario in the suite.
    pub scenario: usize,
    /// Seed of the requests.
    pub seed: u64,
    /// Fitness relative to the reference; 1 is as good.
    pub score: f64,
    /// How the score came about.
    pub fitness: Fitness,
    /// Fitness relative to the baseline.
    pub against_baseline: f64,
    pub summary: RunSummary,
    pub reference: RunSummary,
    pub baseline: RunSummary,
}

impl StageResult {
    /// Geometric mean over scenarios of those over seeds of the fitness relative to the baseline.
    #[must_use]
    pub fn against_baseline(&self) -> f64 {
        // Every scenario has as many seeds, so that this is the mean over scenarios of means over seeds.
        let logs: f64 = self.runs.iter().map(|one| log_score(one.against_baseline)).sum();
        (logs / self.runs.len().max(1) as f64).exp()
    }
}

impl ScoredRun {
    /// The run `summary` of a policy in a scenario, relative to that of the reference under the same seed.
    pub(crate) fn new(
        suite: &Suite,
        RunKey { scenario, seed }: RunKey,
        summary: RunSummary,
        reference: RunSummary,
        baseline: RunSummary,
    ) -> Self {
        let fitness = suite.weights.relative(&summary.charged, &reference.charged);
        let against_baseline = suite.weights.relative(&summary.charged, &baseline.charged).score;
        Self { scenario, seed, score: fitness.score, fitness, against_baseline, summary, reference, baseline }
    }
}

/// ln of a score. That of a run in which nothing completed is that of the lowest score.
pub(crate) fn log_score(score: f64) -> f64 {
    score.max(LOWEST).ln()
}

/// A stage may end early after this many seeds.
const ENOUGH_SEEDS: usize = 3;

/// Runs the candidate through the stages of `suite` up to `options.until`.
///
/// # Errors
/// The first error of a run.
pub fn run_cascade<R: RunSource>(suite: &Suite, options: &CascadeOptions, runs: &R) -> Result<CascadeResult, R::Error> {
    let mut cascade = CascadeResult::default();
    for split in [Split::Smoke, Split::Train, Split::Select].into_iter().filter(|&split| split <= options.until) {
        let mut plan = StagePlan::new(suite, split, options.epoch);
        if plan.scenarios.is_empty() {
            continue;
        }
        if let Some(seeds) = options.train_seeds.filter(|_| split == Split::Train) {
            plan.scenarios.iter_mut().for_each(|(_, all)| all.truncate(seeds));
        }
        let (stage, worse) = run_stage(suite, &plan, options.incumbent, runs)?;
        cascade.failed = failed_gates(suite, &stage.runs);
        let next =
            if cascade.failed.is_empty() { check_promotion(suite, &stage, worse, options) } else { Err(String::new()) };
        cascade.stages.push(stage);
        if let Err(why) = next {
            cascade.stopped = (split < options.until && !why.is_empty()).then_some(why);
            break;
        }
    }
    Ok(cascade)
}

/// The runs of one stage.
#[derive(Clone, Debug, PartialEq)]
pub struct StagePlan {
    pub split: Split,
    /// Each scenario, as its index in the suite, with the seeds under which it runs: the same number for all.
    pub scenarios: Vec<(usize, Vec<u64>)>,
    /// Whether the stage ends as soon as the candidate is shown to be worse than the reference.
    pub may_stop: bool,
}

impl StagePlan {
    /// All scenarios of `split`, under the seeds of `epoch`. The held-out split never ends early.
    #[must_use]
    pub fn new(suite: &Suite, split: Split, epoch: u64) -> Self {
        let seeds =
            |scenario| (0..suite.seeds_of(split)).map(|turn| suite.seed(split, epoch, scenario, turn)).collect();
        let scenarios = suite.scenarios_in(split).into_iter().map(|scenario| (scenario, seeds(scenario))).collect();
        Self { split, scenarios, may_stop: split != Split::Test }
    }

    /// The same to its end, whatever its first seeds show: for comparisons with other runs of the stage.
    #[must_use]
    pub fn whole(self) -> Self {
        Self { may_stop: false, ..self }
    }

    /// Number of seeds of each scenario.
    #[must_use]
    pub fn seeds(&self) -> usize {
        self.scenarios.first().map_or(0, |(_, seeds)| seeds.len())
    }

    /// Confidence level of the interval after `taken` seeds of each scenario. There is a look after [`ENOUGH_SEEDS`]
    /// and after each further one.
    fn confidence(&self, taken: usize) -> f64 {
        let looks = |seeds: usize| (seeds + 1).saturating_sub(ENOUGH_SEEDS).max(1);
        if self.may_stop { confidence_at(looks(taken), looks(self.seeds())) } else { CONFIDENCE }
    }
}

/// Runs one stage to its end, without the stages before it.
///
/// # Errors
/// The first error of a run.
pub fn run_single_stage<R: RunSource>(suite: &Suite, plan: &StagePlan, runs: &R) -> Result<CascadeResult, R::Error> {
    let (stage, _) = run_stage(suite, plan, false, runs)?;
    Ok(CascadeResult { failed: failed_gates(suite, &stage.runs), stages: vec![stage], stopped: None })
}

/// Runs one stage, seed after seed. The second value is `true` if the stage ended early.
fn run_stage<R: RunSource>(
    suite: &Suite,
    plan: &StagePlan,
    incumbents: bool,
    runs: &R,
) -> Result<(StageResult, bool), R::Error> {
    let split = plan.split;
    let _span = tracing::debug_span!("stage", split = split.into_str()).entered();
    let scenarios: Vec<usize> = plan.scenarios.iter().map(|(scenario, _)| *scenario).collect();
    let seeds = plan.seeds();
    let mut done: Vec<ScoredRun> = Vec::new();
    let mut incumbent: BTreeMap<(usize, u64), f64> = BTreeMap::new();
    let mut taken = 0;
    while taken < seeds {
        // The first seeds run together, because many tasks at a time keep all threads busy.
        let turns = taken..if taken == 0 { ENOUGH_SEEDS.min(seeds) } else { taken + 1 };
        let pairs: Vec<(usize, u64)> = turns
            .clone()
            .flat_map(|turn| plan.scenarios.iter().map(move |(scenario, seeds)| (*scenario, seeds[turn])))
            .collect();
        let task = |role: PolicyRole| pairs.iter().map(move |&(scenario, seed)| Task { role, scenario, seed });
        let roles = roles(suite, incumbents);
        let tasks: Vec<Task> = roles.iter().flat_map(|&role| task(role)).collect();
        let summaries = runs.run(&tasks)?;
        let by_role: Vec<&[RunSummary]> = summaries.chunks(pairs.len().max(1)).collect();
        let of = |role: PolicyRole| roles.iter().position(|&other| other == role).map(|at| by_role[at]);
        for (index, &(scenario, seed)) in pairs.iter().enumerate() {
            let (summary, reference) = (by_role[0][index].clone(), by_role[1][index].clone());
            let baseline = of(PolicyRole::Baseline).map_or_else(|| reference.clone(), |all| all[index].clone());
            if let Some(best) = of(PolicyRole::Incumbent) {
                let score = suite.weights.relative(&best[index].charged, &reference.charged).score;
                incumbent.insert((scenario, seed), log_score(score));
            }
            done.push(ScoredRun::new(suite, RunKey { scenario, seed }, summary, reference, baseline));
        }
        taken = turns.end;
        let confidence = plan.confidence(taken);
        if plan.may_stop && taken < seeds && difference(&scenarios, &done, confidence, |_| 0.0).is_worse() {
            break;
        }
    }
    done.sort_by_key(|one| one.scenario);
    let confidence = plan.confidence(taken);
    let against_reference = difference(&scenarios, &done, confidence, |_| 0.0);
    let against_incumbent = incumbents.then(|| {
        let of = |one: &ScoredRun| incumbent.get(&(one.scenario, one.seed)).copied().unwrap_or(0.0);
        difference(&scenarios, &done, confidence, of)
    });
    let score = against_reference.mean.exp();
    Ok((StageResult { split, runs: done, score, against_reference, against_incumbent }, taken < seeds))
}

/// The policies that are simulated: first the candidate, then the reference.
pub(crate) fn roles(suite: &Suite, incumbents: bool) -> Vec<PolicyRole> {
    let baseline = (suite.baseline != suite.reference).then_some(PolicyRole::Baseline);
    let incumbent = incumbents.then_some(PolicyRole::Incumbent);
    [PolicyRole::Candidate, PolicyRole::Reference].into_iter().chain(baseline).chain(incumbent).collect()
}

/// Differences between ln of the scores of `runs` and `other`, those of another policy under the same scenario and seed,
/// with an interval of the level `confidence`.
fn difference(
    scenarios: &[usize],
    runs: &[ScoredRun],
    confidence: f64,
    other: impl Fn(&ScoredRun) -> f64,
) -> StratifiedDifference {
    let of = |&scenario: &usize| {
        let those = runs.iter().filter(|one| one.scenario == scenario);
        those.map(|one| log_score(one.score) - other(one)).collect()
    };
    StratifiedDifference::at_level(&scenarios.iter().map(of).collect::<Vec<Vec<f64>>>(), confidence)
}

/// Whether the next stage is run; the error says why not.
fn check_promotion(
    suite: &Suite,
    stage: &StageResult,
    ended_early: bool,
    options: &CascadeOptions,
) -> Result<(), String> {
    const SMOKE: f64 = 0.5;
    let least = suite.promote.get(&stage.split).copied();
    let least = least.unwrap_or(if stage.split == Split::Smoke { SMOKE } else { 0.0 });
    if ended_early {
        return Err(format!("worse than the reference after {} runs", stage.runs.len()));
    }
    // A search may begin with the baseline, which may be far from the reference.
    let score = stage.against_baseline();
    if score < least {
        return Err(format!("scored {score:.3} relative to the baseline in {}, less than {least}", stage.split));
    }
    if stage.split == Split::Train && stage.against_reference.is_worse() {
        return Err("worse than the reference".to_owned());
    }
    if options.incumbent && stage.against_incumbent.as_ref().is_some_and(StratifiedDifference::is_worse) {
        return Err("worse than the incumbent".to_owned());
    }
    Ok(())
}

/// The gates that the runs failed, a line each.
pub(crate) fn failed_gates(suite: &Suite, runs: &[ScoredRun]) -> Vec<String> {
    let mut failed = Vec::new();
    let mut scenarios: Vec<usize> = runs.iter().map(|one| one.scenario).collect();
    scenarios.dedup();
    for scenario in scenarios {
        let name = &suite.scenarios[scenario].name;
        let those: Vec<&ScoredRun> = runs.iter().filter(|one| one.scenario == scenario).collect();
        failed.extend(unserved(suite, name, &those));
        failed.extend(unattained(suite, name, &those));
        let mut classes: BTreeMap<&str, (ClassSummary, ClassSummary)> = BTreeMap::new();
        for one in &those {
            for (class, baseline) in &one.baseline.classes {
                let own = one.summary.classes.get(class).copied().unwrap_or_default();
                let (sum, base) = classes.entry(class).or_default();
                sum.add(&own);
                base.add(baseline);
            }
        }
        for (class, (own, baseline)) in classes {
            failed.extend(starved(suite, name, class, &own, &baseline));
        }
    }
    failed
}

/// The gates about requests that may not be shed, which the runs of a scenario failed.
fn unserved(suite: &Suite, scenario: &str, runs: &[&ScoredRun]) -> Vec<String> {
    let mean = |of: &dyn Fn(&ScoredRun) -> f64| runs.iter().map(|one| of(one)).sum::<f64>() / runs.len() as f64;
    let means = |of: fn(&EndValues) -> f64| {
        [mean(&|one| of(&one.summary.charged.ends)), mean(&|one| of(&one.baseline.charged.ends))]
    };
    let shed = runs.iter().any(|one| one.baseline.classes.values().any(|class| class.sheddable));
    let requests = if shed { "requests that may not be shed" } else { "requests" };
    let allowed = suite.gates.completed;
    let points = 100.0 * allowed;
    let mut failed = Vec::new();
    let [own, base] = means(EndValues::completed_share);
    if own < base - allowed {
        let [own, base] = [100.0 * own, 100.0 * base];
        failed.push(format!(
            "completed: {scenario}: {own:.1} % of the {requests} completed, {base:.1} % under the baseline (at most {points:.1} points less)"
        ));
    }
    let [own, base] = means(EndValues::lost_share);
    if own > base + allowed {
        let [own, base] = [100.0 * own, 100.0 * base];
        failed.push(format!(
            "lost: {scenario}: {own:.1} % of the {requests} were rejected, or got no first or further tokens while later ones were served, {base:.1} % under the baseline (at most {points:.1} points more)"
        ));
    }
    failed
}

/// The gate of suites that weigh cost, which the runs of a scenario failed: the cheapest service misses its SLOs.
fn unattained(suite: &Suite, scenario: &str, runs: &[&ScoredRun]) -> Option<String> {
    if !suite.weights.iter().any(|(objective, weight)| weight > 0.0 && objective.figure.is_cost()) {
        return None;
    }
    let mean = |of: fn(&ScoredRun) -> &RunSummary| {
        let values: Option<Vec<f64>> = runs.iter().map(|one| of(one).figures().get(Figure::SloAttainment)).collect();
        values.map(|values| values.iter().sum::<f64>() / values.len() as f64)
    };
    // Without requests that have an SLO there is no attainment.
    let (own, base) = (mean(|one| &one.summary)?, mean(|one| &one.baseline)?);
    (own < base - suite.gates.attainment).then(|| {
        let [own, base, points] = [own, base, suite.gates.attainment].map(|share| 100.0 * share);
        format!(
            "attainment: {scenario}: {own:.1} % of the requests met their SLOs, {base:.1} % under the baseline (at most {points:.1} points less, because cost is weighed)"
        )
    })
}

/// The gate that a class failed: too few requests completed, too many were lost, or they took too long.
fn starved(suite: &Suite, scenario: &str, class: &str, own: &ClassSummary, baseline: &ClassSummary) -> Option<String> {
    let part = |count: u64, summary: &ClassSummary| count as f64 / summary.arrived.max(1) as f64;
    let completed = |summary: &ClassSummary| part(summary.completed, summary);
    let name = if class.is_empty() { "(none)" } else { class };
    let setting = if class.is_empty() { "default" } else { class };
    let floor = suite.classes.get(setting).map_or(0.0, |setting| setting.floor);
    // A class is smaller than the whole: one request of fifty is 2 %.
    let allowed = 2.0 * suite.gates.completed;
    let least = if baseline.sheddable { 0.0 } else { completed(baseline) - allowed };
    if completed(own) < least.max(floor.min(completed(baseline))) {
        return Some(format!(
            "worst_class: {scenario}: {:.1} % of class {name} completed, {:.1} % under the baseline",
            100.0 * completed(own),
            100.0 * completed(baseline)
        ));
    }
    if baseline.sheddable {
        return None;
    }
    let [ours, theirs] = [part(own.lost, own), part(baseline.lost, baseline)];
    if ours > theirs + allowed {
        return Some(format!(
            "worst_class: {scenario}: {:.1} % of class {name} were rejected, or got no first or further tokens while later ones were served, {:.1} % under the baseline",
            100.0 * ours,
            100.0 * theirs
        ));
    }
    let (own_ms, base_ms) = (own.mean_e2e_ms, baseline.mean_e2e_ms);
    (own_ms > base_ms * (1.0 + suite.gates.worst_class) && base_ms > 0.0).then(|| {
        format!(
            "worst_class: {scenario}: class {name} took {own_ms:.0} ms on average, {base_ms:.0} ms under the baseline (at most {:.0} % more)",
            100.0 * suite.gates.worst_class
        )
    })
}

impl ClassSummary {
    fn add(&mut self, other: &Self) {
        // Latencies are those of all requests, or of completed ones if others may be shed.
        let counted = |one: &Self| if one.sheddable { one.completed } else { one.arrived } as f64;
        self.sheddable |= other.sheddable;
        let total = counted(self) + counted(other);
        if total > 0.0 {
            let sum = self.mean_e2e_ms * counted(self) + other.mean_e2e_ms * counted(other);
            self.mean_e2e_ms = sum / total;
        }
        self.completed += other.completed;
        self.arrived += other.arrived;
        self.lost += other.lost;
    }
}

impl CascadeResult {
    #[must_use]
    pub fn last(&self) -> Option<&StageResult> {
        self.stages.last()
    }

    /// The result of the stage `split`, if it ran.
    #[must_use]
    pub fn stage(&self, split: Split) -> Option<&StageResult> {
        self.stages.iter().find(|stage| stage.split == split)
    }

    /// 0 if a gate failed, else a number within the band of the last stage.
    #[must_use]
    pub fn score(&self) -> f64 {
        // Below 1, so that bands do not touch however good the candidate is.
        const MOST: f64 = 0.999;
        match self.last() {
            Some(stage) if self.failed.is_empty() => {
                stage.split.band() + (stage.score / (1.0 + stage.score)).clamp(0.0, MOST)
            }
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::ClassSetting;
    use crate::suite::tests::suite;
    use std::cell::RefCell;

    /// Computes the latency of a task, and records which tasks were requested.
    struct ComputedRuns<F> {
        latency: F,
        requested: RefCell<Vec<Task>>,
    }

    impl<F: Fn(&Task) -> RunSummary> RunSource for ComputedRuns<F> {
        type Error = ();

        fn run(&self, tasks: &[Task]) -> Result<Vec<RunSummary>, ()> {
            self.requested.borrow_mut().extend(tasks);
            Ok(tasks.iter().map(&self.latency).collect())
        }
    }

    fn summary(e2e: f64, completed: f64) -> RunSummary {
        let figures = [("mean_e2e".to_owned(), e2e)];
        let ends = EndValues { arrived: 100.0, completed: 100.0 * completed, ..EndValues::default() };
        RunSummary { charged: ChargedFigures { figures: figures.into(), ends }, ..RunSummary::default() }
    }

    fn options(until: Split) -> CascadeOptions {
        CascadeOptions { until, epoch: 0, train_seeds: None, incumbent: false }
    }

    fn run_until(until: Split, latency: impl Fn(&Task) -> RunSummary) -> (CascadeResult, usize) {
        let table = ComputedRuns { latency, requested: RefCell::default() };
        let cascade = run_cascade(&suite(), &options(until), &table).unwrap();
        let requested = table.requested.borrow().iter().filter(|task| task.role == PolicyRole::Candidate).count();
        (cascade, requested)
    }

    #[test]
    fn a_candidate_equal_to_the_reference_reaches_select_and_scores_one() {
        let (cascade, requested) = run_until(Split::Select, |_| summary(100.0, 1.0));
        assert_eq!((cascade.score(), cascade.stopped.as_deref(), requested), (3.5, None, 1 + 2 * 4 + 5));
        assert_eq!(cascade.last().unwrap().score, 1.0);
        let difference = cascade.last().unwrap().against_reference;
        assert_eq!((difference.pairs, difference.mean, difference.p_better), (5, 0.0, None));
    }

    #[test]
    fn train_may_be_restricted_to_the_first_seeds() {
        let requested = |train_seeds| {
            let table = ComputedRuns { latency: |_: &Task| summary(100.0, 1.0), requested: RefCell::default() };
            let options = CascadeOptions { train_seeds, ..options(Split::Train) };
            let stages = run_cascade(&suite(), &options, &table).unwrap().stages;
            let all = stages.last().map(|stage| stage.runs.iter().map(|run| (run.scenario, run.seed)).collect());
            all.unwrap_or_else(Vec::<(usize, u64)>::new)
        };
        let (all, first) = (requested(None), requested(Some(1)));
        assert_eq!((all.len(), first.as_slice()), (2 * 4, &[all[0], all[4]][..]));
        assert_eq!(requested(Some(9)), all);
    }

    #[test]
    fn bands_do_not_overlap() {
        let better = |task: &Task| summary(if task.role == PolicyRole::Candidate { 1e-9 } else { 100.0 }, 1.0);
        let (smoke, train, select) =
            (run_until(Split::Smoke, better).0, run_until(Split::Train, better).0, run_until(Split::Select, better).0);
        assert!(smoke.score() < 2.0 && smoke.score() > 1.99, "{}", smoke.score());
        assert!(train.score() < 3.0 && train.score() > 2.99, "{}", train.score());
        assert!(select.score() < 4.0 && select.score() > 3.99, "{}", select.score());
    }

    #[test]
    fn a_bad_candidate_stops_after_smoke() {
        let (cascade, requested) = run_until(Split::Select, |task| {
            summary(if task.role == PolicyRole::Candidate { 400.0 } else { 100.0 }, 1.0)
        });
        assert!((cascade.score() - 1.2).abs() < 1e-12 && requested == 1, "s/(1 + s) of 1/4: {cascade:?}");
        assert_eq!(cascade.stopped.as_deref(), Some("scored 0.250 relative to the baseline in smoke, less than 0.5"));
    }

    #[test]
    fn a_candidate_that_is_clearly_worse_stops_early() {
        let worse = |task: &Task| {
            let noise = (task.seed % 7) as f64 * 0.01;
            summary(if task.role == PolicyRole::Candidate { 120.0 + noise } else { 100.0 }, 1.0)
        };
        let (cascade, requested) = run_until(Split::Select, worse);
        assert_eq!(requested, 1 + 2 * 3, "the fourth seed is not run");
        assert_eq!(cascade.stopped.as_deref(), Some("worse than the reference after 6 runs"));
        assert!(cascade.score() < 2.5);
    }

    #[test]
    fn gates_come_before_the_score() {
        let (cascade, _) = run_until(Split::Train, |task| match task.role {
            PolicyRole::Candidate => summary(1.0, 0.9),
            _ => summary(100.0, 1.0),
        });
        assert_eq!(cascade.score(), 0.0);
        insta::assert_snapshot!(cascade.failed.join("\n"), @"completed: one: 90.0 % of the requests completed, 100.0 % under the baseline (at most 2.0 points less)");
        let class =
            |completed, mean_e2e_ms| ClassSummary { arrived: 100, completed, mean_e2e_ms, ..Default::default() };
        let with = |classes: &[(&str, ClassSummary)]| RunSummary {
            classes: classes.iter().map(|(name, summary)| ((*name).to_owned(), *summary)).collect(),
            ..summary(50.0, 1.0)
        };
        let (cascade, _) = run_until(Split::Smoke, |task| match task.role {
            PolicyRole::Candidate => with(&[("batch", class(90, 10.0)), ("critical", class(100, 151.0))]),
            _ => with(&[("batch", class(100, 10.0)), ("critical", class(100, 100.0))]),
        });
        insta::assert_snapshot!(cascade.failed.join("\n"), @r"
        worst_class: one: 90.0 % of class batch completed, 100.0 % under the baseline
        worst_class: one: class critical took 151 ms on average, 100 ms under the baseline (at most 50 % more)
        ");
    }

    #[test]
    fn a_cheap_service_must_not_miss_its_slos() {
        let run = |hours: f64, attainment: f64| {
            let mut run = summary(100.0, 1.0);
            run.charged.figures.insert("gpu_hours".to_owned(), hours);
            run.figures.insert("slo_attainment".to_owned(), attainment);
            run
        };
        let failed = |weights: &str, attainment: f64| {
            let mut suite = suite();
            suite.weights = crate::FitnessWeights::parse(weights, crate::FitnessScale::Ratio).expect("valid");
            let of = |task: &Task| match task.role {
                PolicyRole::Candidate => run(1.0, attainment),
                _ => run(2.0, 0.95),
            };
            let table = ComputedRuns { latency: of, requested: RefCell::default() };
            run_cascade(&suite, &options(Split::Smoke), &table).unwrap().failed.join("\n")
        };
        assert_eq!(failed("gpu_hours:1", 0.94), "", "within 2 points");
        assert_eq!(
            failed("gpu_hours:1", 0.92),
            "attainment: one: 92.0 % of the requests met their SLOs, 95.0 % under the baseline (at most 2.0 points less, because cost is weighed)"
        );
        assert_eq!(failed("mean_e2e:1", 0.5), "", "cost is not weighed");
    }

    #[test]
    fn a_candidate_worse_than_the_incumbent_is_not_selected() {
        let latency = |task: &Task| {
            let noise = (task.seed % 5) as f64 * 0.1;
            summary(
                match task.role {
                    PolicyRole::Candidate => 80.0 + noise,
                    PolicyRole::Reference | PolicyRole::Baseline => 100.0,
                    PolicyRole::Incumbent => 50.0,
                },
                1.0,
            )
        };
        let table = ComputedRuns { latency, requested: RefCell::default() };
        let options = CascadeOptions { incumbent: true, ..options(Split::Select) };
        let cascade = run_cascade(&suite(), &options, &table).unwrap();
        assert_eq!(cascade.stopped.as_deref(), Some("worse than the incumbent"));
        assert_eq!(cascade.last().unwrap().split, Split::Train);
    }

    /// A summary of the classes critical, which may not be shed, and batch, which may.
    fn two_classes(completed: [u64; 2], lost: u64) -> RunSummary {
        let class =
            |completed, lost, sheddable| ClassSummary { arrived: 100, completed, lost, mean_e2e_ms: 10.0, sheddable };
        let classes = [("critical", class(completed[0], lost, false)), ("batch", class(completed[1], 0, true))];
        let ends = EndValues {
            arrived: 100.0,
            completed: completed[0] as f64,
            lost: lost as f64,
            sheddable_completed: completed[1] as f64,
        };
        RunSummary {
            charged: ChargedFigures { ends, ..summary(100.0, 1.0).charged },
            classes: classes.map(|(name, class)| (name.to_owned(), class)).into(),
            ..RunSummary::default()
        }
    }

    #[test]
    fn what_may_be_shed_may_be_shed_down_to_its_floor() {
        let failed = |floor: f64, candidate: RunSummary| {
            let mut suite = suite();
            let setting = ClassSetting { floor, ..ClassSetting::default() };
            suite.classes.insert("batch".to_owned(), setting);
            let of = |task: &Task| match task.role {
                PolicyRole::Candidate => candidate.clone(),
                _ => two_classes([100, 100], 0),
            };
            let table = ComputedRuns { latency: of, requested: RefCell::default() };
            let cascade = run_cascade(&suite, &options(Split::Smoke), &table).unwrap();
            (cascade.failed.join("\n"), cascade.last().unwrap().score)
        };
        let (gates, score) = failed(0.0, two_classes([100, 20], 0));
        assert_eq!((gates.as_str(), score), ("", 0.6), "(100 + 20) / 200 of the value");
        let (gates, _) = failed(0.3, two_classes([100, 20], 0));
        insta::assert_snapshot!(gates, @"worst_class: one: 20.0 % of class batch completed, 100.0 % under the baseline");
        let (gates, _) = failed(0.0, two_classes([95, 100], 5));
        insta::assert_snapshot!(gates, @r"
        completed: one: 95.0 % of the requests that may not be shed completed, 100.0 % under the baseline (at most 2.0 points less)
        lost: one: 5.0 % of the requests that may not be shed were rejected, or got no first or further tokens while later ones were served, 0.0 % under the baseline (at most 2.0 points more)
        worst_class: one: 95.0 % of class critical completed, 100.0 % under the baseline
        ");
    }

    /// Gates compare with the baseline, scores with the reference.
    #[test]
    fn a_strong_reference_gates_nothing() {
        let suite = Suite { reference: "weighted".to_owned(), ..suite() };
        let of = |task: &Task| match task.role {
            PolicyRole::Candidate => summary(50.0, 0.9),
            PolicyRole::Baseline => summary(100.0, 0.9),
            PolicyRole::Reference | PolicyRole::Incumbent => summary(25.0, 1.0),
        };
        let table = ComputedRuns { latency: of, requested: RefCell::default() };
        let cascade = run_cascade(&suite, &options(Split::Smoke), &table).unwrap();
        assert_eq!(cascade.failed, Vec::<String>::new());
        assert!((cascade.last().unwrap().score - 0.5 * 0.81).abs() < 1e-12, "{cascade:?}");
        assert_eq!(table.requested.borrow().len(), 3, "candidate, reference and baseline");
    }
}
