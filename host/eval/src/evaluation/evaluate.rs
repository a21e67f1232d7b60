//! Evaluation of one candidate. It always produces a document: errors are part of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::cache::{self, ResultCache};
use super::candidate::CandidatePolicy;
use super::context::{EvaluationContext, EvaluationSuite};
use super::decision_patterns::{costs_of, patterns_of};
use super::native;
use super::options::{EvaluationOptions, NativeCode, host, late_result};
use crate::Fitness;
use crate::cancel::{CancelHandle, SimulationLimit};
use crate::cascade::{
    CascadeOptions, CascadeResult, PolicyRole, RunKey, ScoredRun, StagePlan, run_cascade, run_single_stage,
};
use crate::error::RunError;
use crate::feedback::{self, ComparedPolicy, PatternFeedback, ScenarioRegret};
use crate::result::{CostDocument, EvaluationHashes, EvaluationResult, EvaluationStatus};
use crate::result_figures::Traits;
use crate::suite::{Split, Suite};
use crate::timer::Timer;
use crate::worker::wall;
use blis_plugin::{FaultKind, Technology};

/// The more severe status of two.
pub fn worse(one: EvaluationStatus, other: EvaluationStatus) -> EvaluationStatus {
    const BY_SEVERITY: [EvaluationStatus; 6] = [
        EvaluationStatus::HostError,
        EvaluationStatus::Rejected,
        EvaluationStatus::Trap,
        EvaluationStatus::Limit,
        EvaluationStatus::GateFailed,
        EvaluationStatus::Ok,
    ];
    BY_SEVERITY.into_iter().find(|&status| status == one || status == other).unwrap_or(EvaluationStatus::Ok)
}

/// Compares two evaluations of the same candidate. A difference is a defect of the program.
pub fn verify(document: &mut EvaluationResult, again: &EvaluationResult) {
    if document.depends_on_clock || again.depends_on_clock {
        tracing::warn!("not compared: the wall limit was reached (`--wall-s` raises it)");
        return;
    }
    if document.hashes.result != again.hashes.result {
        let (one, two) = (&document.hashes.result, &again.hashes.result);
        let message = format!("two evaluations differ: {one} and {two}; please report it with the candidate");
        document.status = EvaluationStatus::HostError;
        document.combined_score = 0.0;
        document.artifacts.error = message;
    }
}

/// As [`evaluate`], but reads the result from `cache` if it is there, and keeps it there. A worker leaves that to the process that
/// started it: `keep`.
pub fn evaluate_cached(
    prepared: &EvaluationSuite,
    candidate: &CandidatePolicy,
    incumbent: Option<&CandidatePolicy>,
    options: &EvaluationOptions,
    cache: Option<&ResultCache>,
) -> EvaluationResult {
    let Some(cache) = cache else { return evaluate(prepared, candidate, incumbent, options) };
    let key = cache::key(prepared, candidate, incumbent, options);
    cached(cache, &key).unwrap_or_else(|| {
        let document = evaluate(prepared, candidate, incumbent, options);
        if !(wall::is_armed() || wall::is_up()) {
            keep(cache, &key, &document);
        }
        document
    })
}

/// The result under `key` in `cache`, marked as a hit.
pub(super) fn cached(cache: &ResultCache, key: &str) -> Option<EvaluationResult> {
    let start = Instant::now();
    let mut document = cache.get(key)?;
    let wall_ms = start.elapsed().as_secs_f64() * 1e3;
    document.cost = CostDocument { cache: HIT.to_owned(), wall_ms, cpu_ms: 0.0, ops: document.cost.ops };
    Some(document)
}

/// [`CostDocument::cache`] of a result from the cache.
const HIT: &str = "hit";

/// In the process that started a worker, which cannot write itself: keeps the result of the worker, unless it comes from the cache,
/// depends on the clock, or is an error of the host.
pub(super) fn keep(cache: &ResultCache, key: &str, document: &EvaluationResult) {
    let is_kept = document.cost.cache == HIT || document.depends_on_clock;
    if document.status != EvaluationStatus::HostError && !is_kept {
        cache.put(key, document);
    }
}

/// Evaluates `candidate`. Never fails: errors are part of the document.
pub fn evaluate(
    prepared: &EvaluationSuite,
    candidate: &CandidatePolicy,
    incumbent: Option<&CandidatePolicy>,
    options: &EvaluationOptions,
) -> EvaluationResult {
    let handle = Arc::new(CancelHandle::after(options.wall));
    let _span = tracing::debug_span!("candidate", sha256 = &candidate.sha256[..8]).entered();
    let start = Instant::now();
    let timer = if options.parallel { Timer::start() } else { Timer::of_thread() };
    let in_child = candidate.technology == Technology::Native && options.native == NativeCode::InChild;
    let mut document = if in_child {
        native::evaluate(prepared, candidate, options)
    } else {
        let _wall_timer = WallTimer::new(&handle, options.wall);
        run_candidate(prepared, candidate, incumbent, options, &handle).unwrap_or_else(|document| *document)
    };
    if document.status == EvaluationStatus::Limit && document.depends_on_clock && handle.is_cancelled() {
        document.stopped = Some(format!("it took more than {} s", options.wall.as_secs_f64()));
    }
    let cpu_ms = if in_child { document.cost.cpu_ms } else { timer.elapsed().as_secs_f64() * 1e3 };
    let mut document = finish(document, &candidate.sha256, prepared, options.feedback_bytes);
    document.cost = CostDocument {
        cpu_ms,
        wall_ms: start.elapsed().as_secs_f64() * 1e3,
        cache: "miss".to_owned(),
        ops: document.cost.ops,
    };
    document
}

/// Adds the hashes of the inputs, and cuts the texts to `feedback_bytes`.
pub fn finish(
    mut document: EvaluationResult,
    candidate: &str,
    prepared: &EvaluationSuite,
    feedback_bytes: usize,
) -> EvaluationResult {
    feedback::cut(&mut document.artifacts, feedback_bytes.max(MIN_ERROR_BYTES));
    document.hashes = EvaluationHashes {
        candidate: candidate.to_owned(),
        suite: prepared.hash().to_owned(),
        host: host(),
        result: String::new(),
    };
    document.with_result_hash()
}

/// Bytes that the error text may use even if `feedback_bytes` is smaller.
const MIN_ERROR_BYTES: usize = 500;

/// A candidate that is compiled and configured.
pub struct ReadyCandidate<'a> {
    pub context: EvaluationContext<'a>,
    pub traits: Traits,
}

/// Compiles and configures a candidate. The error is the document of a candidate that cannot run.
pub fn ready<'a>(
    prepared: &'a EvaluationSuite,
    candidate: &CandidatePolicy,
    incumbent: Option<&CandidatePolicy>,
    options: &EvaluationOptions,
    handle: &Arc<CancelHandle>,
) -> Result<ReadyCandidate<'a>, Box<EvaluationResult>> {
    let suite = &prepared.suite;
    let traits = candidate.traits();
    let failed = |role: PolicyRole, failure: &RunError| Box::new(invalid(role, failure, traits, handle));
    let loaded = match options.native {
        NativeCode::Here => candidate.load_here(&suite.limits),
        NativeCode::InChild | NativeCode::Refused => candidate.load(&suite.limits),
    };
    let loaded = loaded.map_err(|fault| {
        // During a run a name that does not exist is a trap; found before, it is a reason to refuse the candidate.
        let is_name = fault.kind == FaultKind::UnknownName;
        let mut document = failed(PolicyRole::Candidate, &RunError::from(fault));
        document.status = if is_name { EvaluationStatus::Rejected } else { document.status };
        document
    })?;
    let kinds = &loaded.plugin.description().kinds;
    if !suite.decides.iter().any(|kind| kinds.contains(kind)) {
        let names: Vec<&str> = suite.decides.iter().map(|kind| kind.name()).collect();
        let message = format!("the candidate makes no decision that this suite uses: {}", names.join(", "));
        return Err(Box::new(EvaluationResult::invalid(EvaluationStatus::Rejected, message, traits)));
    }
    let policy =
        prepared.candidate(&loaded, &options.parameters).map_err(|failure| failed(PolicyRole::Candidate, &failure))?;
    let reference = prepared.named(&suite.reference).map_err(|failure| failed(PolicyRole::Reference, &failure))?;
    let baseline = prepared.named(&suite.baseline).map_err(|failure| failed(PolicyRole::Baseline, &failure))?;
    let incumbent = incumbent.map(|incumbent| {
        let loaded = incumbent.load(&suite.limits).map_err(RunError::from)?;
        prepared.candidate(&loaded, &[])
    });
    let incumbent = incumbent.transpose().map_err(|failure| failed(PolicyRole::Incumbent, &failure))?;
    let (handle, parallel) = (Arc::clone(handle), options.parallel);
    Ok(ReadyCandidate {
        context: EvaluationContext { prepared, candidate: policy, reference, baseline, incumbent, handle, parallel },
        traits,
    })
}

/// Runs the cascade. The error is the document of a candidate without a score.
fn run_candidate(
    prepared: &EvaluationSuite,
    candidate: &CandidatePolicy,
    incumbent: Option<&CandidatePolicy>,
    options: &EvaluationOptions,
    handle: &Arc<CancelHandle>,
) -> Result<EvaluationResult, Box<EvaluationResult>> {
    let suite = &prepared.suite;
    let ReadyCandidate { context, traits } = ready(prepared, candidate, incumbent, options, handle)?;
    let EvaluationOptions { until, epoch, train_seeds, .. } = *options;
    let cascade_options = CascadeOptions { until, epoch, train_seeds, incumbent: context.incumbent.is_some() };
    raise_wall(prepared, options);
    let cascade = match &options.only {
        Some(plan) => run_single_stage(suite, plan, &context),
        None => run_cascade(suite, &cascade_options, &context),
    };
    let cascade = cascade.map_err(|(role, failure)| Box::new(invalid(role, &failure, traits, handle)))?;
    if handle.is_cancelled() {
        return Err(Box::new(late_result(traits)));
    }
    let mut document = EvaluationResult::from_cascade(suite, &cascade, traits);
    document.cost.ops = cascade.stages.iter().flat_map(|stage| &stage.runs).map(|one| one.summary.operations).sum();
    add_feedback(&mut document, &context, &cascade, options)
        .map_err(|failure| Box::new(invalid(PolicyRole::Reference, &failure, traits, handle)))?;
    Ok(document)
}

/// Raises the wall around a worker, between the loading of its candidate and the first decision.
pub(super) fn raise_wall(prepared: &EvaluationSuite, options: &EvaluationOptions) {
    if !wall::is_armed() {
        return;
    }
    let suite = &prepared.suite;
    let plans = match &options.only {
        Some(plan) => vec![plan.clone()],
        None => {
            let splits =
                [Split::Smoke, Split::Train, Split::Select].into_iter().filter(|&split| split <= options.until);
            splits.map(|split| StagePlan::new(suite, split, options.epoch)).collect()
        }
    };
    let mut names = BTreeSet::from([&suite.reference, &suite.baseline]);
    if options.feedback_bytes > 0 {
        names.extend(compared_names(suite));
    }
    if prepared.read_ahead(&plans, &names) {
        wall::raise();
    }
}

/// Adds the costs of `decisions` decisions of each kind and scenario; none if they cannot be computed within the limits.
fn add_decisions(
    document: &mut EvaluationResult,
    context: &EvaluationContext<'_>,
    cascade: &CascadeResult,
    decisions: u32,
) {
    match (decisions > 0).then(|| costs_of(context, cascade, decisions)).flatten() {
        None => {}
        Some(Ok(costs)) => document.decisions = costs,
        Some(Err(failure)) => document.depends_on_clock |= missing(&failure, &context.handle).depends_on_clock,
    }
}

/// Adds the texts, the patterns and the costs of decisions.
///
/// # Errors
/// If a policy of the suite fails.
fn add_feedback(
    document: &mut EvaluationResult,
    context: &EvaluationContext<'_>,
    cascade: &CascadeResult,
    options: &EvaluationOptions,
) -> Result<(), RunError> {
    let (suite, handle) = (&context.prepared.suite, &context.handle);
    add_decisions(document, context, cascade, options.decisions);
    if options.feedback_bytes == 0 {
        // Without texts, as in a search: the patterns without a reference.
        let found = (options.patterns > 0).then(|| found_patterns(context, cascade, options.patterns, &[])).flatten();
        match found.transpose() {
            Ok(found) => document.patterns = found.map(|found| found.patterns).unwrap_or_default(),
            Err(MissingRegret { depends_on_clock, .. }) => document.depends_on_clock |= depends_on_clock,
        }
        return Ok(());
    }
    let budget = document.cost.ops.saturating_mul(REGRET_OPERATIONS);
    let regret = || (options.patterns == 0).then(|| worst_run_regret(context, cascade, budget)).flatten();
    let (known, regret) = both(options.parallel, || known_policies(context, cascade), regret);
    let known = match known {
        Ok(known) => known,
        // The candidate has its score; only the text is missing.
        Err(_) if handle.is_cancelled() => {
            document.depends_on_clock = true;
            Vec::new()
        }
        Err(failure) => return Err(failure),
    };
    let mut regret = regret.transpose().unwrap_or_else(|MissingRegret { why, depends_on_clock }| {
        document.depends_on_clock |= depends_on_clock;
        document.artifacts.worst_decisions = format!("The regret of decisions was not computed: {why}\n");
        None
    });
    if options.patterns > 0 {
        match found_patterns(context, cascade, options.patterns, &known).transpose() {
            Ok(Some(PatternFeedback { regret: of_patterns, patterns, worst_minute })) => {
                regret = Some(of_patterns);
                feedback::fill_patterns(&mut document.artifacts, &patterns, worst_minute);
                document.patterns = patterns;
            }
            Ok(None) => {}
            Err(MissingRegret { why, depends_on_clock }) => {
                document.depends_on_clock |= depends_on_clock;
                document.artifacts.patterns = format!("The patterns were not computed: {why}\n");
            }
        }
    }
    feedback::fill(document, suite, cascade, regret.as_ref(), &known, options.feedback_bytes);
    Ok(())
}

/// The [patterns over `decisions` decisions](patterns_of) of each kind in the worst run; `None` if there is no such run.
fn found_patterns(
    context: &EvaluationContext<'_>,
    cascade: &CascadeResult,
    decisions: u32,
    known: &[ComparedPolicy],
) -> Option<Result<PatternFeedback, MissingRegret>> {
    let handle = &context.handle;
    if handle.is_cancelled() {
        return Some(Err(MissingRegret::at_the_wall_limit()));
    }
    let found = patterns_of(context, cascade, decisions, known)?;
    Some(found.map_err(|failure| missing(&failure, handle)))
}

/// Reference policies that the feedback compares a candidate with, of those that the suite has ranked: the best ones, because the first
/// evaluation on a suite simulates each of them.
const RANKED_POLICIES: usize = 3;

/// The reference and the reference policies of the suite, without those of the lowest rank.
fn compared_names(suite: &Suite) -> BTreeSet<&String> {
    let scores = suite.rebased.as_ref().map_or(&[][..], |record| &record.scores);
    let low = scores.get(RANKED_POLICIES..).unwrap_or_default();
    let is_low = |name: &String| low.iter().any(|(one, _)| one == name);
    suite.reference_policies.iter().filter(|name| !is_low(name)).chain([&suite.reference]).collect()
}

/// The reference and reference policies of the suite in the candidate's worst scenario.
fn known_policies(context: &EvaluationContext<'_>, cascade: &CascadeResult) -> Result<Vec<ComparedPolicy>, RunError> {
    let EvaluationContext { prepared, handle, parallel, .. } = context;
    let suite = &prepared.suite;
    let runs = feedback::shown(cascade).map(feedback::worst_scenario).unwrap_or_default();
    let compare = |name: &String| -> Result<ComparedPolicy, RunError> {
        let policy = prepared.named(name)?;
        let fitness = |run: &&ScoredRun| -> Result<Fitness, RunError> {
            let summary = prepared.shared_run(&policy, RunKey { scenario: run.scenario, seed: run.seed }, handle)?;
            Ok(suite.weights.relative(&summary.charged, &run.reference.charged))
        };
        Ok(ComparedPolicy { name: name.clone(), runs: runs.iter().map(fitness).collect::<Result<_, _>>()? })
    };
    let names = compared_names(suite);
    if *parallel {
        // All run before the first error is returned, so that it does not depend on the threads.
        names.into_par_iter().map(compare).collect::<Vec<_>>().into_iter().collect()
    } else {
        names.into_iter().map(compare).collect()
    }
}

/// Decisions that the feedback samples for their regret. Each takes half as long again as the whole run, and a candidate has a dozen
/// runs: with 24 samples, two thirds of the time of an evaluation were for this text.
const SAMPLES: u32 = 8;
/// Operations that the regret of decisions may use, as a multiple of those of the evaluation.
const REGRET_OPERATIONS: u64 = 3;

/// Why there is no regret.
struct MissingRegret {
    why: &'static str,
    depends_on_clock: bool,
}

impl MissingRegret {
    fn at_the_wall_limit() -> Self {
        Self { why: "the wall limit was reached", depends_on_clock: true }
    }
}

/// Why a branch failed. Which of several failing branches fails first depends on the threads, so all failures get the same text.
fn missing(failure: &RunError, handle: &CancelHandle) -> MissingRegret {
    if handle.is_cancelled() || is_late(failure) {
        return MissingRegret::at_the_wall_limit();
    }
    MissingRegret { why: "the candidate failed, or took too many operations, in a branch", depends_on_clock: false }
}

/// The regret of decisions in the worst run of the stages that the feedback shows, of at most `budget` operations; `None` if
/// there is no such run.
fn worst_run_regret(
    context: &EvaluationContext<'_>,
    cascade: &CascadeResult,
    budget: u64,
) -> Option<Result<ScenarioRegret, MissingRegret>> {
    let shown = feedback::shown(cascade)?;
    let worst = shown.runs.iter().min_by(|one, other| one.score.total_cmp(&other.score))?;
    let EvaluationContext { prepared, candidate, handle, .. } = context;
    let at = RunKey { scenario: worst.scenario, seed: worst.seed };
    let limit = SimulationLimit { handle, budget };
    let compute = || prepared.scenario_regret(candidate, at, SAMPLES, worst.summary.operations, limit);
    if handle.is_cancelled() {
        return Some(Err(MissingRegret::at_the_wall_limit()));
    }
    Some(match compute() {
        Ok(Some(regret)) => Ok(regret),
        Ok(None) => Err(MissingRegret {
            why: "the branches of a few decisions would take too many operations",
            depends_on_clock: false,
        }),
        Err(failure) => Err(missing(&failure, handle)),
    })
}

/// Both results, computed at the same time if `parallel`.
fn both<A: Send, B: Send>(parallel: bool, a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
    if parallel { rayon::join(a, b) } else { (a(), b()) }
}

/// Whether a limit of clock time caused the error.
fn is_late(failure: &RunError) -> bool {
    failure.fault().is_some_and(|fault| fault.kind == FaultKind::OutOfTime)
}

/// The document of a candidate after a failed run of `role`.
pub fn invalid(role: PolicyRole, failure: &RunError, traits: Traits, handle: &Arc<CancelHandle>) -> EvaluationResult {
    if handle.is_cancelled() {
        // Whichever policy was running: all runs belong to the evaluation of the candidate.
        return late_result(traits);
    }
    let status = match (role, failure.fault()) {
        (PolicyRole::Candidate, Some(fault)) => status_of(fault.kind),
        _ => EvaluationStatus::HostError,
    };
    // The message of the plugin only: the hints of the program name flags that a candidate cannot set.
    let message = match (status, failure.fault()) {
        (EvaluationStatus::HostError, _) | (_, None) => failure.text(),
        (_, Some(fault)) => format!("{}: {}", fault.kind.name(), fault.diagnostic),
    };
    let mut document = EvaluationResult::invalid(status, message, traits);
    document.depends_on_clock = is_late(failure);
    document
}

fn status_of(fault: FaultKind) -> EvaluationStatus {
    match fault {
        FaultKind::OutOfFuel | FaultKind::OutOfTime | FaultKind::OutOfMemory | FaultKind::TooDeep => {
            EvaluationStatus::Limit
        }
        FaultKind::UnknownName | FaultKind::Trap | FaultKind::NotANumber | FaultKind::OutOfRange => {
            EvaluationStatus::Trap
        }
        FaultKind::Unreadable
        | FaultKind::Syntax
        | FaultKind::VersionSkew
        | FaultKind::ForbiddenImport
        | FaultKind::MissingExport
        | FaultKind::Refused
        | FaultKind::NotAllowed => EvaluationStatus::Rejected,
        FaultKind::HostResources => EvaluationStatus::HostError,
    }
}

/// Cancels an evaluation after its wall limit, unless it is dropped before.
struct WallTimer {
    // Dropping the sender ends the thread.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl WallTimer {
    fn new(handle: &Arc<CancelHandle>, wall: Duration) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let cancelled = Arc::clone(handle);
        let thread = std::thread::spawn(move || {
            if stopped.recv_timeout(wall) == Err(mpsc::RecvTimeoutError::Timeout) {
                cancelled.cancel();
            }
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for WallTimer {
    fn drop(&mut self) {
        drop(self.stop.take());
        // The thread has no operation that panics.
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_plugin::Fault;

    #[test]
    fn the_feedback_compares_with_the_best_of_the_ranked_policies() {
        let names = |rebased: &str| -> Vec<String> {
            let text = format!(
                "schema: 1\nname: s\nversion: 2\nbaseline: round-robin\nreference: e\nreference_policies: [a, b, c, d, own]\n{rebased}\
                 weights: 'mean_e2e:1'\nscenarios:\n  - {{name: one, splits: [smoke, train], run: {{model: qwen/qwen3-14b}}}}\n"
            );
            let suite = Suite::parse("s.yaml", &text).expect("a suite");
            compared_names(&suite).into_iter().cloned().collect()
        };
        assert_eq!(names(""), ["a", "b", "c", "d", "e", "own"]);
        assert_eq!(names("rebased: {program: x, scores: {e: 5, c: 4, d: 3, a: 2, b: 1}}\n"), ["c", "d", "e", "own"]);
    }

    #[test]
    fn the_more_severe_status_wins_in_any_order() {
        assert_eq!(worse(EvaluationStatus::Ok, EvaluationStatus::GateFailed), EvaluationStatus::GateFailed);
        assert_eq!(worse(EvaluationStatus::Trap, EvaluationStatus::Limit), EvaluationStatus::Trap);
        assert_eq!(worse(EvaluationStatus::HostError, EvaluationStatus::Ok), EvaluationStatus::HostError);
        assert_eq!(worse(EvaluationStatus::Ok, EvaluationStatus::Ok), EvaluationStatus::Ok);
    }

    /// Regression: a wall limit that passed during a run of the baseline was reported as a host error.
    #[test]
    fn a_wall_limit_is_a_limit_in_every_run() {
        let failure = RunError::runtime("a policy ended the simulation");
        for role in [PolicyRole::Candidate, PolicyRole::Baseline, PolicyRole::Incumbent] {
            let handle: Arc<CancelHandle> = Arc::default();
            handle.cancel();
            let document = invalid(role, &failure, Traits::default(), &handle);
            assert_eq!((document.status, document.depends_on_clock), (EvaluationStatus::Limit, true));
        }
    }

    /// Ten seconds of one machine are not those of another, so the result must not be cached.
    #[test]
    fn a_call_that_took_too_long_depends_on_the_clock() {
        let of = |kind: FaultKind| {
            let failure = RunError::from(Fault::new(kind, "it took more than 10 s"));
            let document = invalid(PolicyRole::Candidate, &failure, Traits::default(), &Arc::default());
            (document.status, document.depends_on_clock)
        };
        assert_eq!(of(FaultKind::OutOfTime), (EvaluationStatus::Limit, true));
        assert_eq!(of(FaultKind::OutOfFuel), (EvaluationStatus::Limit, false));
    }
}
