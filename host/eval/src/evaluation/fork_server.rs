//! The fork server: a process with a single thread that holds suites, workloads and baselines, and forks a worker for
//! each evaluation.
//!
//! ```text
//! threads of the server ─ socket ─► fork server ── fork ──► worker: one evaluation
//!        ▲  start, cancel            │  poll: socket, workers, limits
//!        └────────── results ────────┘
//! ```
//!
//! It runs no code of a candidate, so that nothing ends it. A worker starts with everything that it holds: workloads that
//! workers have used are generated here when there is nothing else to do, and runs of the baseline are kept as workers
//! have simulated them.
//!
//! A worker is used again if its candidate kept to all limits, because a new process costs a millisecond and cold memory.
//! If it fails then, the evaluation is repeated in a new one: every failure is that of a candidate alone.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use super::cache::ResultCache;
use super::candidate::CandidatePolicy;
use super::evaluate::{cached, keep};
use super::isolated::{EvaluationReply, failed};
use super::options::GRACE;
use super::request::{EvaluationRequest, Job, SuiteSet};
use crate::error::RunError;
use crate::result::{EvaluationResult, Traits};
use crate::worker::{
    CPU_GRACE, ChildProcess, Frame, FrameBuffer, ReadyPipes, Results, WorkerFailure, WorkerProcess, WorkerSettings,
    cannot_start, fork, fork_process, is_ready, read_some, wall,
};

/// The fork server, as the process that uses it sees it. Its process ends when this is dropped.
pub struct ForkServer {
    socket: Mutex<UnixStream>,
    replies: Arc<Replies>,
    /// Ends after the socket is closed.
    _process: ChildProcess,
}

/// Receivers of results.
#[derive(Default)]
struct Replies {
    /// By number; `None` if the fork server has ended.
    waiting: Mutex<Option<HashMap<u64, Sender<EvaluationOutcome>>>>,
    /// Evaluations that were cancelled, until they end.
    cancelled: Mutex<HashSet<u64>>,
    numbers: AtomicU64,
}

/// A result, or the message of an error.
type EvaluationOutcome = Result<EvaluationResult, String>;

/// What the fork server does next.
#[derive(Serialize, Deserialize)]
enum Order {
    Start { number: u64, request: Box<EvaluationRequest> },
    Cancel { number: u64 },
}

/// The result of an evaluation.
#[derive(Serialize, Deserialize)]
struct Finished {
    number: u64,
    depends_on_clock: bool,
    outcome: EvaluationOutcome,
}

/// What a worker has read: the identity of its candidate.
#[derive(Default, Serialize, Deserialize)]
struct Identity {
    sha256: String,
    traits: Traits,
    /// The key of its result in the cache. It comes before any code of the candidate runs.
    key: String,
}

impl ForkServer {
    /// Starts the process. Only for a process with a single thread.
    ///
    /// # Errors
    /// If the system cannot start a process.
    pub fn start(suites: &SuiteSet, cache: Option<ResultCache>, settings: WorkerSettings) -> Result<Self, RunError> {
        let (socket, other) = UnixStream::pair().map_err(|error| cannot_start(&error))?;
        let own = socket.try_clone().map_err(|error| cannot_start(&error))?;
        let process = fork_process(|| {
            drop(own);
            serve(other, suites, cache, settings);
        });
        let process = process.map_err(|error| cannot_start(&error))?;
        let replies = Arc::new(Replies { waiting: Mutex::new(Some(HashMap::new())), ..Replies::default() });
        let receiver = Arc::clone(&replies);
        let mut from = socket.try_clone().map_err(|error| cannot_start(&error))?;
        thread::spawn(move || receiver.receive(&mut from));
        Ok(Self { socket: Mutex::new(socket), replies, _process: process })
    }

    /// A number for an evaluation.
    pub fn reserve(&self) -> u64 {
        self.replies.numbers.fetch_add(1, Ordering::SeqCst)
    }

    /// Evaluates the candidate of `request` in a worker.
    ///
    /// # Errors
    /// If the candidate cannot be read, or the fork server has ended.
    pub fn evaluate(&self, number: u64, request: &EvaluationRequest) -> EvaluationOutcome {
        const ENDED: &str = "the process that starts evaluations has ended: start the server again";
        let (sender, receiver) = channel();
        lock(&self.replies.waiting).as_mut().ok_or(ENDED)?.insert(number, sender);
        self.send(&Order::Start { number, request: Box::new(request.clone()) });
        // It may have been cancelled before the order to start it was sent.
        if lock(&self.replies.cancelled).contains(&number) {
            self.send(&Order::Cancel { number });
        }
        let outcome = receiver.recv().map_err(|_| ENDED)?;
        lock(&self.replies.cancelled).remove(&number);
        outcome
    }

    /// Cancels the evaluation `number`, whether it has been started or not.
    pub fn cancel(&self, number: u64) {
        // In this order: what is started meanwhile finds it in the set.
        lock(&self.replies.cancelled).insert(number);
        self.send(&Order::Cancel { number });
    }

    fn send(&self, order: &Order) {
        // If the other process has ended, all receivers learn it.
        let _ = Frame::note(order).write(&mut *lock(&self.socket));
    }
}

impl Drop for ForkServer {
    fn drop(&mut self) {
        let _ = lock(&self.socket).shutdown(std::net::Shutdown::Both);
    }
}

impl Replies {
    /// Passes results on until the fork server ends.
    fn receive(&self, from: &mut UnixStream) {
        let mut frames = FrameBuffer::default();
        while read_some(from, |bytes| frames.extend(bytes)) {
            while let Some(frame) = frames.next() {
                let Frame::Note(bytes) = frame else { continue };
                let Ok(Finished { number, outcome, depends_on_clock }) = serde_json::from_slice(&bytes) else {
                    continue;
                };
                let outcome = outcome.map(|result| EvaluationResult { depends_on_clock, ..result });
                let receiver = lock(&self.waiting).as_mut().and_then(|waiting| waiting.remove(&number));
                if let Some(receiver) = receiver {
                    // It waits, unless its thread has ended.
                    let _ = receiver.send(outcome);
                }
            }
        }
        // Dropping the senders ends the waiting of all.
        lock(&self.waiting).take();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An evaluation in progress.
struct RunningEvaluation {
    number: u64,
    request: EvaluationRequest,
    job: Job,
    worker: WorkerProcess,
    /// Whether the worker has evaluated another candidate before.
    is_used: bool,
    /// [`Forks::changes`] at its start.
    changes: u64,
    identity: Identity,
    start: Instant,
}

/// What a worker returns.
#[derive(Serialize, Deserialize)]
struct WorkerReply {
    outcome: Result<EvaluationReply, String>,
    /// Whether it waits for another evaluation.
    waits: bool,
}

/// In a worker: evaluates the candidate of `job`.
fn evaluate(job: &Job, cache: Option<&ResultCache>, results: &Results) -> Result<EvaluationReply, String> {
    let identify = |candidate: &CandidatePolicy, key: String| {
        results.note(&Identity { sha256: candidate.sha256.clone(), traits: candidate.traits(), key });
    };
    job.prepared.begin();
    // The process that started this one has looked there.
    let cache = cache.filter(|_| !job.is_sent());
    job.run(cache, identify).map(|result| EvaluationReply::new(&job.prepared, result))
}

/// The state of the process.
struct Forks<'a> {
    suites: &'a SuiteSet,
    cache: Option<ResultCache>,
    settings: WorkerSettings,
    socket: UnixStream,
    orders: FrameBuffer,
    running: Vec<RunningEvaluation>,
    /// Workers that wait. They hold all that this process holds.
    idle: Vec<WorkerProcess>,
    /// Number of changes of what this process holds.
    changes: u64,
}

/// The fork server's own process, until the socket is closed.
fn serve(socket: UnixStream, suites: &SuiteSet, cache: Option<ResultCache>, settings: WorkerSettings) {
    // The terminal's interrupt is for the server, which finishes what it has accepted. Its standard input and output
    // are not for this process, and would stay open as long as this process has them.
    let _ = rustix::process::setpgid(None, None);
    if let Ok(nothing) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&nothing);
        let _ = rustix::stdio::dup2_stdout(&nothing);
    }
    suites.prepare_engines();
    let orders = FrameBuffer::default();
    let (running, idle) = (Vec::new(), Vec::new());
    let mut forks = Forks { suites, cache, settings, socket, orders, running, idle, changes: 0 };
    while forks.step() {}
}

impl Forks<'_> {
    /// Waits for one event and handles it. Returns `false` when the socket is closed.
    fn step(&mut self) -> bool {
        let (is_order, ready) = self.wait();
        if is_order {
            let orders = &mut self.orders;
            if !read_some(&mut self.socket, |bytes| orders.extend(bytes)) {
                return false;
            }
            while let Some(Frame::Note(order)) = self.orders.next() {
                match serde_json::from_slice(&order) {
                    Ok(Order::Start { number, request }) => self.start(number, *request),
                    Ok(Order::Cancel { number }) => self.end(number, WorkerFailure::Cancelled),
                    Err(_) => {}
                }
            }
        }
        for (number, ready) in ready {
            self.read(number, ready);
        }
        let late = |one: &&RunningEvaluation| one.start.elapsed() >= one.limit();
        let late: Vec<(u64, Duration)> =
            self.running.iter().filter(late).map(|one| (one.number, one.limit())).collect();
        for (number, limit) in late {
            self.end(number, WorkerFailure::WallLimit(limit));
        }
        true
    }

    /// Waits until something can be read or the first limit is reached; if workloads are missing, generates one instead
    /// of waiting. Returns whether there are orders, and which workers have written what.
    fn wait(&mut self) -> (bool, Vec<(u64, ReadyPipes)>) {
        let mut time = self.running.iter().map(|one| one.limit().saturating_sub(one.start.elapsed())).min();
        if self.suites.has_missing() {
            time = Some(Duration::ZERO);
        }
        let mut fds = vec![PollFd::new(&self.socket, PollFlags::IN)];
        fds.extend(self.running.iter().flat_map(|one| one.worker.poll_fds()));
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        let count = poll(&mut fds, time.as_ref()).unwrap_or(0);
        let events: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        if count == 0 && self.suites.generate_next() {
            self.changed();
        }
        let (socket, mut workers) = (events[0], events[1..].iter().copied());
        let ready = self.running.iter().map(|one| {
            let count = one.worker.poll_fds().count();
            (one.number, one.worker.ready(workers.by_ref().take(count).collect::<Vec<_>>()))
        });
        (is_ready(socket), ready.collect())
    }

    fn start(&mut self, number: u64, request: EvaluationRequest) {
        match self.suites.job(&request) {
            Ok(job) => {
                let known = self.cache.as_ref().and_then(|cache| cached(cache, &job.key()?));
                if let Some(result) = known {
                    return self.reply(number, Ok(EvaluationResult { id: job.id.clone(), ..result }));
                }
                // A worker that has evaluated a candidate opens no file any more.
                let idle = if job.is_sent() && job.prepared.is_self_contained() { self.idle.pop() } else { None };
                self.start_job(number, request, job, idle);
            }
            // The server has checked it before.
            Err(refused) => self.reply(number, Err(refused.to_string())),
        }
    }

    /// Starts `job` in `idle`, if that has not ended, else in a new worker.
    fn start_job(&mut self, number: u64, request: EvaluationRequest, job: Job, mut idle: Option<WorkerProcess>) {
        let is_used = idle.as_mut().is_some_and(|worker| worker.order(&request).is_ok());
        let worker = match idle.filter(|_| is_used) {
            Some(worker) => Ok(worker),
            None => self.fork(&request, &job),
        };
        match worker {
            Ok(worker) => {
                let (identity, start) = (Identity::default(), Instant::now());
                let changes = self.changes;
                let one = RunningEvaluation { number, request, job, worker, is_used, changes, identity, start };
                self.running.push(one);
            }
            Err(error) => self.reply(number, Err(cannot_start(&error).text())),
        }
    }

    /// A worker that does `job`, then others while orders come.
    fn fork(&self, request: &EvaluationRequest, job: &Job) -> io::Result<WorkerProcess> {
        let (cache, suites) = (self.cache.as_ref(), self.suites);
        fork(&self.settings, Some(job.options.wall + CPU_GRACE), |results| {
            wall::arm();
            let mut next = Some(request.clone());
            while let Some(Ok(job)) = next.map(|request| suites.job(&request)) {
                results.allow_cpu(job.options.wall);
                let outcome = evaluate(&job, cache, results);
                let is_reusable = outcome.as_ref().is_ok_and(EvaluationReply::is_reusable);
                let waits = is_reusable && results.is_small() && job.prepared.is_self_contained();
                results.done(&WorkerReply { outcome, waits });
                next = if waits { results.next_order() } else { None };
            }
        })
    }

    /// Reads what the worker of an evaluation has written, and ends the evaluation if that is all.
    fn read(&mut self, number: u64, ready: ReadyPipes) {
        let Some(one) = self.running.iter_mut().find(|one| one.number == number) else { return };
        let identity = &mut one.identity;
        one.worker.read(ready, &mut |frame| {
            // The first one, which is from before its code ran.
            if let Frame::Note(bytes) = frame
                && identity.sha256.is_empty()
            {
                *identity = serde_json::from_slice(&bytes).unwrap_or_default();
            }
        });
        if one.worker.is_finished() {
            self.finish(number, None);
        }
    }

    /// Kills the worker of an evaluation, if it is running.
    fn end(&mut self, number: u64, cause: WorkerFailure) {
        self.finish(number, Some(cause));
    }

    fn finish(&mut self, number: u64, cause: Option<WorkerFailure>) {
        let Some(index) = self.running.iter().position(|one| one.number == number) else { return };
        let mut one = self.running.swap_remove(index);
        if cause.is_none()
            && let Some(result) = one.worker.take_result()
        {
            return self.accept(one, &result);
        }
        let RunningEvaluation { request, job, worker, is_used, identity, start, .. } = one;
        let failure = worker.fail(cause);
        if is_used && !failure.is_late() {
            return self.start_job(number, request, job, None);
        }
        let Identity { sha256, traits, .. } = identity;
        let result = failed(&job.prepared, &sha256, traits, &job.options, &failure, start.elapsed());
        self.reply(number, Ok(EvaluationResult { id: job.id.clone(), ..result }));
    }

    /// Keeps what a worker has found out, and the worker if it waits.
    fn accept(&mut self, one: RunningEvaluation, result: &[u8]) {
        let RunningEvaluation { number, job, worker, changes, identity, .. } = one;
        let reply = serde_json::from_slice(result);
        let WorkerReply { outcome, waits } = reply.unwrap_or_else(|error| {
            let outcome = Err(format!("the result of a worker cannot be read: {error}"));
            WorkerReply { outcome, waits: false }
        });
        if outcome.as_ref().is_ok_and(EvaluationReply::has_additions) {
            self.changed();
        }
        if waits && changes == self.changes {
            self.idle.push(worker);
        }
        let outcome = outcome.map(|reply| reply.accept(&job.prepared));
        if let (Some(cache), Ok(result)) = (&self.cache, &outcome)
            && !identity.key.is_empty()
        {
            keep(cache, &identity.key, result);
        }
        self.reply(number, outcome);
    }

    /// Workers that were started before lack something.
    fn changed(&mut self) {
        self.changes += 1;
        self.idle.clear();
    }

    fn reply(&mut self, number: u64, outcome: EvaluationOutcome) {
        let depends_on_clock = outcome.as_ref().is_ok_and(|result| result.depends_on_clock);
        // If the server has ended, the next step ends this process as well.
        let _ = Frame::note(&Finished { number, depends_on_clock, outcome }).write(&mut self.socket);
    }
}

impl RunningEvaluation {
    /// Time after which it is killed.
    fn limit(&self) -> Duration {
        self.job.options.wall + GRACE
    }
}
