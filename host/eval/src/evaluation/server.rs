//! The evaluation server: one process that keeps suites in memory and evaluates one candidate after the other.
//!
//! ```text
//! lines on stdin ─┐                            ┌─ thread ─┐                ┌─► worker: one evaluation
//!                 ├─ EvaluationServer::submit ►│  queue   │──► ForkServer ─┤
//! HTTP requests  ─┘   full: busy               └─ thread ─┘                └─► worker
//!                                                   └──► RemoteWorker: a server elsewhere
//! ```
//!
//! Each evaluation has a process of its own, so that requests do not affect each other, whatever a candidate does. A
//! result is written to the cache, if there is one, before its reply is sent.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use serde_json::{Value, json};

use super::cache::ResultCache;
use super::fork_server::{ForkServer, ForkServerCommand, ForkServerHealth, serve_on_stdin};
use super::history::{EvaluatedCandidate, SearchHistory};
use super::options::host;
use super::remote::RemoteWorker;
use super::request::CandidateSource;
pub use super::request::PathAccess;
use super::request::SuiteSet;
pub use super::request::{EvaluationRequest, RequestError, id_text};
use crate::error::RunError;
use crate::lock::lock;
use crate::result::EvaluationResult;
use crate::suite::SuiteGrants;
use crate::worker::WorkerSettings;

/// Called with the evaluation result, or with the message of an error.
pub type Reply = Box<dyn FnOnce(Result<EvaluationResult, String>) + Send>;

/// A request in the queue.
struct WaitingEvaluation {
    /// Number of the evaluation.
    number: u64,
    request: EvaluationRequest,
    id: Option<String>,
    reply: Reply,
}

/// The state that all requests share.
pub struct EvaluationServer {
    suites: SuiteSet,
    workers: ForkServer,
    queue: Mutex<Option<SyncSender<WaitingEvaluation>>>,
    /// Numbers of queued and running evaluations by id, for `cancel`.
    numbers: Mutex<HashMap<String, u64>>,
    /// Threads that evaluate, here and elsewhere.
    runners: AtomicUsize,
    running: AtomicUsize,
    waiting: AtomicUsize,
    completed: AtomicU64,
    accepted: AtomicU64,
    budget: Option<u64>,
    threads: usize,
    started: Instant,
    history: Option<Arc<SearchHistory>>,
    permissions: &'static [&'static str],
}

/// Settings of a server.
#[derive(Debug)]
pub struct ServerSettings {
    /// Names or files; the first one is used by requests that name no suite.
    pub suites: Vec<String>,
    /// Candidates evaluated at a time on this machine; `None`: one per core. 0 only with `commands`.
    pub threads: Option<usize>,
    /// Commands that evaluate as well: each starts a server with these suites that reads lines, on another machine.
    pub commands: Vec<String>,
    /// Capacity of the queue, requests.
    pub queue: NonZeroUsize,
    /// Number of evaluations after which further requests are refused.
    pub budget: Option<u64>,
    /// Folder of the result cache.
    pub cache: Option<PathBuf>,
    /// Folder of the runs that all candidates of a suite share; `None` if they are not kept.
    pub run_cache: Option<PathBuf>,
    /// Limits of the process of an evaluation.
    pub worker: WorkerSettings,
    /// Where every evaluated candidate is noted.
    pub history: Option<Arc<SearchHistory>>,
    /// Which files requests may name.
    pub paths: PathAccess,
    /// What the command line grants the suites and their candidates.
    pub granted: SuiteGrants,
    /// The names of all that the command line grants.
    pub permissions: &'static [&'static str],
}

impl ServerSettings {
    fn open_suites(&self) -> Result<SuiteSet, RunError> {
        SuiteSet::open(&self.suites, self.run_cache.as_deref(), self.paths.clone(), &self.granted)
    }

    fn result_cache(&self) -> Option<ResultCache> {
        self.cache.as_deref().map(ResultCache::new)
    }
}

/// The process that starts evaluations, for a server whose first one has ended: its standard input is a socket of that server.
///
/// # Errors
/// If a suite cannot be used, or standard input is something else.
pub fn serve_forks(settings: &ServerSettings) -> Result<(), RunError> {
    serve_on_stdin(&settings.open_suites()?, settings.result_cache(), settings.worker)
}

/// Starts a server, calls `listen` to accept requests, and waits until the accepted requests are finished. Only for a
/// process with a single thread.
///
/// # Errors
/// If a suite cannot be used or a process cannot be started, or the error of `listen`.
pub fn serve(
    settings: &ServerSettings,
    listen: impl FnOnce(&Arc<EvaluationServer>) -> Result<(), RunError>,
) -> Result<(), RunError> {
    let suites = settings.open_suites()?;
    let again = ForkServerCommand {
        suites: settings.suites.clone(),
        cache: settings.cache.clone(),
        allowed: settings.paths.folders(),
        hashes: suites.hashes(),
        memory_bytes: settings.worker.memory_bytes,
        large_components: settings.granted.large_components,
    };
    let workers = ForkServer::start(&suites, settings.result_cache(), settings.worker, Some(again))?;
    let cores = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN).get();
    let here = settings.threads.unwrap_or_else(cores);
    let elsewhere = start_commands(&settings.commands, &suites)?;
    let threads = here + elsewhere.len();
    let (sender, receiver) = sync_channel(settings.queue.get());
    let server = Arc::new(EvaluationServer {
        suites,
        workers,
        queue: Mutex::new(Some(sender)),
        numbers: Mutex::default(),
        runners: AtomicUsize::new(threads),
        running: AtomicUsize::new(0),
        waiting: AtomicUsize::new(0),
        completed: AtomicU64::new(0),
        accepted: AtomicU64::new(0),
        budget: settings.budget,
        threads,
        started: Instant::now(),
        history: settings.history.clone(),
        permissions: settings.permissions,
    });
    let receiver = Arc::new(Mutex::new(receiver));
    let all = (0..here).map(|_| None).chain(elsewhere.into_iter().map(Some));
    let runners: Vec<JoinHandle<()>> = all
        .map(|remote| {
            let (server, receiver) = (Arc::clone(&server), Arc::clone(&receiver));
            thread::spawn(move || server.work(&receiver, remote.as_deref()))
        })
        .collect();
    let ended = listen(&server);
    // No further request can arrive; the accepted ones are finished.
    lock(&server.queue).take();
    for runner in runners {
        if runner.join().is_err() {
            return Err(RunError::runtime("a thread of the server ended before its time"));
        }
    }
    let noted = settings.history.as_ref().map_or(Ok(()), |history| history.finish());
    ended?;
    noted.map_err(|error| RunError::runtime(format_args!("the history of the search is not complete: {error}")))
}

/// Starts `commands`: a worker for each evaluation that they take at a time.
fn start_commands(commands: &[String], suites: &SuiteSet) -> Result<Vec<Arc<RemoteWorker>>, RunError> {
    let mut all = Vec::new();
    for command in commands {
        let worker = Arc::new(RemoteWorker::start(command, &suites.hashes())?);
        all.extend((0..worker.threads()).map(|_| Arc::clone(&worker)));
    }
    Ok(all)
}

/// Adds an evaluated candidate to the history.
fn note(
    history: &SearchHistory,
    request: &EvaluationRequest,
    id: Option<&str>,
    result: &Result<EvaluationResult, String>,
) {
    let source = request.candidate.as_ref();
    let name = id.or_else(|| source.and_then(CandidateSource::path)).unwrap_or("candidate");
    let text = source.map_or("", CandidateSource::text);
    match result {
        Ok(result) => {
            let reason = result.rejection();
            let (score, status, reason) = (result.combined_score, result.status.into_str(), reason.as_deref());
            history.add(&EvaluatedCandidate { name, score, status, reason, text });
        }
        Err(message) => {
            history.add(&EvaluatedCandidate { name, score: 0.0, status: "rejected", reason: Some(message), text });
        }
    }
}

/// The next evaluation of the queue; an error if there will be none.
fn receive(queue: &Mutex<Receiver<WaitingEvaluation>>) -> Result<WaitingEvaluation, RecvError> {
    lock(queue).recv()
}

impl EvaluationServer {
    /// Evaluates what is in the queue until that ends, or the worker `remote` does.
    fn work(&self, queue: &Mutex<Receiver<WaitingEvaluation>>, remote: Option<&RemoteWorker>) {
        loop {
            let Ok(evaluation) = receive(queue) else { return };
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            self.running.fetch_add(1, Ordering::SeqCst);
            let WaitingEvaluation { number, request, .. } = &evaluation;
            let result = match remote {
                None => self.workers.evaluate(*number, request),
                Some(remote) => {
                    let (wall, named) = self.suites.named(request);
                    match remote.evaluate(*number, &named, wall) {
                        Ok(result) => Ok(result),
                        Err(why) => return self.end_thread(evaluation, queue, &remote.ended(&why)),
                    }
                }
            };
            self.finish(evaluation, result);
        }
    }

    fn finish(&self, evaluation: WaitingEvaluation, result: Result<EvaluationResult, String>) {
        let WaitingEvaluation { request, id, reply, .. } = evaluation;
        if let Some(history) = &self.history {
            note(history, &request, id.as_deref(), &result);
        }
        if let Some(id) = &id {
            lock(&self.numbers).remove(id);
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
        self.completed.fetch_add(1, Ordering::SeqCst);
        reply(result);
    }

    /// Ends a thread of a worker that has ended. Other threads evaluate `evaluation`; the last one refuses it and all that follow.
    fn end_thread(&self, evaluation: WaitingEvaluation, queue: &Mutex<Receiver<WaitingEvaluation>>, why: &str) {
        let is_last = self.runners.fetch_sub(1, Ordering::SeqCst) == 1;
        let refused = if is_last { Some(evaluation) } else { self.queue_again(evaluation) };
        let Some(refused) = refused else { return };
        self.finish(refused, Err(format!("no worker is left: {why}")));
        while is_last && let Ok(next) = receive(queue) {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            self.running.fetch_add(1, Ordering::SeqCst);
            self.finish(next, Err(format!("no worker is left: {why}")));
        }
    }

    /// Puts `evaluation` back into the queue; returns it if the queue is full or has ended.
    fn queue_again(&self, evaluation: WaitingEvaluation) -> Option<WaitingEvaluation> {
        let Some(queue) = lock(&self.queue).clone() else { return Some(evaluation) };
        self.waiting.fetch_add(1, Ordering::SeqCst);
        match queue.try_send(evaluation) {
            Ok(()) => {
                self.running.fetch_sub(1, Ordering::SeqCst);
                None
            }
            Err(TrySendError::Full(evaluation) | TrySendError::Disconnected(evaluation)) => {
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                Some(evaluation)
            }
        }
    }

    /// Accepts a request, or returns why it is refused. `reply` is called once.
    pub fn submit(&self, request: &EvaluationRequest, reply: Reply) -> Result<(), RequestError> {
        let id = self.suites.job(request)?.id;
        if self.budget.is_some_and(|budget| self.accepted.load(Ordering::SeqCst) >= budget) {
            return Err(RequestError::Budget);
        }
        let queue = lock(&self.queue).clone();
        let Some(queue) = queue else { return Err(RequestError::Invalid("the server is stopping".to_owned())) };
        let number = self.workers.reserve();
        if let Some(id) = id.clone() {
            match lock(&self.numbers).entry(id) {
                Entry::Occupied(id) => {
                    let message = format!("the id `{}` is in use: wait for its result, or use another id", id.key());
                    return Err(RequestError::Invalid(message));
                }
                Entry::Vacant(free) => free.insert(number),
            };
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        queue.try_send(WaitingEvaluation { number, request: request.clone(), id: id.clone(), reply }).map_err(
            |error| {
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                if let Some(id) = id {
                    lock(&self.numbers).remove(&id);
                }
                match error {
                    TrySendError::Full(_) => RequestError::Busy,
                    TrySendError::Disconnected(_) => RequestError::Invalid("the server is stopping".to_owned()),
                }
            },
        )?;
        self.accepted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Cancels the request `id`. Returns whether there was one.
    pub fn cancel(&self, id: &str) -> bool {
        let number = lock(&self.numbers).get(id).copied();
        number.inspect(|&number| self.workers.cancel(number)).is_some()
    }

    pub fn budget(&self) -> Value {
        json!({"used": self.accepted.load(Ordering::SeqCst), "limit": self.budget})
    }

    pub fn status(&self) -> Value {
        let (health, restarts) = self.workers.health();
        json!({
            "status": if health == ForkServerHealth::Ok { "ok" } else { "degraded" },
            "fork_server": {"state": health.into_str(), "restarts": restarts},
            "version": env!("CARGO_PKG_VERSION"),
            "host": host(),
            "suites": self.suites.hashes(),
            "uptime_s": self.started.elapsed().as_secs(),
            "threads": self.threads,
            "waiting": self.waiting.load(Ordering::SeqCst),
            "running": self.running.load(Ordering::SeqCst),
            "completed": self.completed.load(Ordering::SeqCst),
            "budget": self.budget(),
            "isolation": crate::worker::wall::support(),
            "granted": self.permissions,
        })
    }

    /// Description of the suites, without the held-out split.
    pub fn task(&self) -> Value {
        self.suites.task()
    }
}
