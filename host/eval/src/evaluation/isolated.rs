//! Evaluation of a candidate in a worker process, so that nothing that it does reaches this process.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::cache::{self, ResultCache};
use super::candidate::CandidatePolicy;
use super::context::{EvaluationSuite, SharedRun};
use super::evaluate::{evaluate_cached, finish, keep};
use super::options::{EvaluationOptions, GRACE, cancelled_result, late_result};
use crate::cascade::RunKey;
use crate::error::RunError;
use crate::result::{CostDocument, EvaluationResult, EvaluationStatus};
use crate::result_figures::Traits;
use crate::worker::{self, TimeLimit, Worker, WorkerFailure, WorkerSettings, wall};
use blis_plugin::FaultKind;

/// What a worker sends back: the result, and what other workers can use again.
#[derive(Serialize, Deserialize)]
pub(super) struct EvaluationReply {
    result: EvaluationResult,
    depends_on_clock: bool,
    /// Runs that all candidates share and that the worker has simulated.
    shared_runs: Vec<SharedRun>,
    /// Workloads that it has generated.
    workloads: Vec<RunKey>,
}

impl EvaluationReply {
    /// In a worker: the result, and what has been added to `prepared` since the worker began.
    pub(super) fn new(prepared: &EvaluationSuite, result: EvaluationResult) -> Self {
        let (shared_runs, workloads) = prepared.added();
        Self { depends_on_clock: result.depends_on_clock, result, shared_runs, workloads }
    }

    /// Whether the worker can evaluate another candidate: it has all that the process has that started it, and its
    /// candidate has neither failed nor reached a limit.
    pub(super) fn is_reusable(&self) -> bool {
        let harmless = [EvaluationStatus::Ok, EvaluationStatus::GateFailed, EvaluationStatus::Rejected];
        !self.has_additions() && !self.depends_on_clock && harmless.contains(&self.result.status)
    }

    /// Whether there is something that others can use.
    pub(super) fn has_additions(&self) -> bool {
        !(self.shared_runs.is_empty() && self.workloads.is_empty())
    }

    /// The result. What others can use is kept in `prepared`.
    pub(super) fn accept(self, prepared: &EvaluationSuite) -> EvaluationResult {
        prepared.keep_added(self.shared_runs, self.workloads);
        EvaluationResult { depends_on_clock: self.depends_on_clock, ..self.result }
    }
}

/// An evaluation in progress, in a worker.
pub struct IsolatedEvaluation<'a> {
    prepared: &'a EvaluationSuite,
    candidate: &'a CandidatePolicy,
    options: &'a EvaluationOptions,
    /// The cache, and the key of the result in it.
    cache: Option<(&'a ResultCache, String)>,
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
    cache: Option<&'a ResultCache>,
    settings: &WorkerSettings,
) -> Result<IsolatedEvaluation<'a>, RunError> {
    prepared.prepare_engines();
    while prepared.generate_next() {}
    prepared.begin();
    let work = || {
        wall::arm();
        let evaluate = || evaluate_cached(prepared, candidate, incumbent, options, cache);
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
    let cache = cache.map(|cache| (cache, cache::key(prepared, candidate, incumbent, options)));
    Ok(IsolatedEvaluation { prepared, candidate, options, cache, worker, start })
}

impl IsolatedEvaluation<'_> {
    /// Waits for the result. The failure of the worker is one, too.
    #[must_use]
    pub fn wait(self) -> EvaluationResult {
        let Self { prepared, candidate, options, cache, worker, start } = self;
        match worker.wait() {
            Ok(reply) => {
                let result = reply.accept(prepared);
                if let Some((cache, key)) = cache {
                    keep(cache, &key, &result);
                }
                result
            }
            Err(failure) => failed(prepared, &candidate.sha256, Traits::default(), options, &failure, start.elapsed()),
        }
    }
}

/// The result of an evaluation by a worker that failed after `wall`. It depends on the clock or on the machine, so it is
/// never kept.
pub(super) fn failed(
    prepared: &EvaluationSuite,
    sha256: &str,
    traits: Traits,
    options: &EvaluationOptions,
    failure: &WorkerFailure,
    wall: Duration,
) -> EvaluationResult {
    let invalid = |status, message| EvaluationResult::invalid(status, message, traits);
    let limit = |kind: FaultKind| invalid(EvaluationStatus::Limit, format!("{}: {failure}", kind.name()));
    let mut result = match failure {
        WorkerFailure::WallLimit(_) => {
            let stopped = Some(format!("it took more than {} s", options.wall.as_secs_f64()));
            EvaluationResult { stopped, ..late_result(traits) }
        }
        WorkerFailure::Cancelled => cancelled_result(traits),
        WorkerFailure::CpuTime => limit(FaultKind::OutOfTime),
        WorkerFailure::Memory | WorkerFailure::Killed => limit(FaultKind::OutOfMemory),
        WorkerFailure::Stack => limit(FaultKind::TooDeep),
        WorkerFailure::Panic(_) => invalid(
            EvaluationStatus::HostError,
            format!("{failure}; this is a defect of the program: please report it"),
        ),
        WorkerFailure::Crash(_) => invalid(EvaluationStatus::Trap, format!("{}: {failure}", FaultKind::Trap.name())),
    };
    result.depends_on_clock = true;
    let mut result = finish(result, sha256, prepared, options.feedback_bytes);
    // The system does not report the CPU time; of a worker that is killed it is most often all of the time.
    let wall_ms = wall.as_secs_f64() * 1e3;
    result.cost = CostDocument { cpu_ms: wall_ms, wall_ms, cache: "miss".to_owned(), ops: 0 };
    result
}
