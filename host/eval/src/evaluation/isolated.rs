//! Evaluation of a candidate in a worker process, so that nothing that it does reaches this process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::cache::ResultCache;
use super::candidate::CandidatePolicy;
use super::context::{EvaluationSuite, SharedRun};
use super::evaluate::{evaluate_cached, finish};
use super::options::{EvaluationOptions, cancelled_result};
use crate::cancel::CancelReason;
use crate::error::RunError;
use crate::result::{CostDocument, EvaluationResult, EvaluationStatus, Traits};
use crate::worker::{self, Death, DeathCause, TimeLimit, Worker, WorkerSettings};
use blis_plugin::FaultKind;

/// Time that a worker gets beyond the wall limit, which it observes itself.
pub(super) const GRACE: Duration = Duration::from_millis(400);

/// What a worker sends back: the result, and what other workers can use again.
#[derive(Serialize, Deserialize)]
pub(super) struct EvaluationReply {
    result: EvaluationResult,
    depends_on_clock: bool,
    /// Runs that all candidates share and that the worker has simulated.
    shared_runs: Vec<SharedRun>,
    /// Scenario and seed of the workloads that it has generated.
    pub(super) workloads: Vec<(usize, u64)>,
}

impl EvaluationReply {
    /// In a worker: the result, and what has been added to `prepared` since the worker began.
    pub(super) fn new(prepared: &EvaluationSuite, result: EvaluationResult) -> Self {
        let (shared_runs, workloads) = prepared.added();
        Self { depends_on_clock: result.depends_on_clock, result, shared_runs, workloads }
    }

    /// The result. What others can use is kept in `prepared`.
    pub(super) fn accept(self, prepared: &EvaluationSuite) -> EvaluationResult {
        prepared.keep(self.shared_runs);
        EvaluationResult { depends_on_clock: self.depends_on_clock, ..self.result }
    }
}

/// An evaluation in progress, in a worker.
pub struct IsolatedEvaluation<'a> {
    prepared: &'a EvaluationSuite,
    candidate: &'a CandidatePolicy,
    options: &'a EvaluationOptions,
    worker: Worker<EvaluationReply>,
    start: Instant,
}

/// Starts the evaluation of `candidate` in a worker with a pool of `settings.threads` threads. Only for a process with
/// a single thread.
///
/// # Errors
/// If the system cannot start a process.
pub fn start<'a>(
    prepared: &'a EvaluationSuite,
    candidate: &'a CandidatePolicy,
    incumbent: Option<&CandidatePolicy>,
    options: &'a EvaluationOptions,
    cache: Option<&ResultCache>,
    settings: &WorkerSettings,
) -> Result<IsolatedEvaluation<'a>, RunError> {
    prepared.prepare_engines();
    prepared.begin();
    let work = || {
        let handle = Arc::default();
        let evaluate = || evaluate_cached(prepared, candidate, incumbent, options, &handle, cache);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(settings.threads).build();
        let result = match pool {
            Ok(pool) => pool.install(evaluate),
            Err(error) => {
                let message = format!("cannot start threads: {error}");
                EvaluationResult::invalid(EvaluationStatus::HostError, message, Traits::default())
            }
        };
        EvaluationReply::new(prepared, result)
    };
    let start = Instant::now();
    let worker = worker::start(settings, TimeLimit::Total(options.wall + GRACE), work)?;
    Ok(IsolatedEvaluation { prepared, candidate, options, worker, start })
}

impl IsolatedEvaluation<'_> {
    /// Waits for the result. The death of the worker is one, too.
    #[must_use]
    pub fn wait(self) -> EvaluationResult {
        let Self { prepared, candidate, options, worker, start } = self;
        match worker.wait() {
            Ok(reply) => reply.accept(prepared),
            Err(death) => died(prepared, &candidate.sha256, Traits::default(), options, &death, start.elapsed()),
        }
    }
}

/// The result of a candidate whose worker died after `wall`. It depends on the clock or on the machine, so it is never
/// kept.
pub(super) fn died(
    prepared: &EvaluationSuite,
    sha256: &str,
    traits: Traits,
    options: &EvaluationOptions,
    death: &Death,
    wall: Duration,
) -> EvaluationResult {
    let invalid = |status, message| EvaluationResult::invalid(status, message, traits);
    let limit = |kind: FaultKind| invalid(EvaluationStatus::Limit, format!("{}: {death}", kind.name()));
    let mut result = match &death.cause {
        DeathCause::WallLimit(_) => {
            let stopped = Some(format!("it took more than {} s", options.wall.as_secs_f64()));
            EvaluationResult { stopped, ..cancelled_result(CancelReason::TimedOut, traits) }
        }
        DeathCause::Cancelled => cancelled_result(CancelReason::Cancelled, traits),
        DeathCause::CpuTime => limit(FaultKind::OutOfTime),
        DeathCause::Memory | DeathCause::Killed => limit(FaultKind::OutOfMemory),
        DeathCause::Stack => limit(FaultKind::TooDeep),
        DeathCause::Panic(_) => {
            invalid(EvaluationStatus::HostError, format!("{death}; this is a defect of the program: please report it"))
        }
        DeathCause::Crash(_) => invalid(EvaluationStatus::Trap, format!("{}: {death}", FaultKind::Trap.name())),
    };
    result.depends_on_clock = true;
    let mut result = finish(result, sha256, prepared, options.feedback_bytes);
    let wall_ms = wall.as_secs_f64() * 1e3;
    result.cost = CostDocument { cpu_ms: wall_ms, wall_ms, cache: "miss".to_owned(), ops: 0 };
    result
}
