//! The fork server: a process with a single thread that holds suites, workloads and baselines, and forks a worker for
//! each evaluation.
//!
//! ```text
//! threads of the server ─ socket ─► fork server ── fork ──► worker: one evaluation
//!        ▲  start, cancel            │  poll: socket, workers, limits
//!        └────────── results ────────┘
//! ```
//!
//! It runs no code of a candidate, so that only the system or a person ends it: for want of memory, or by mistake. Then it is started
//! again, and the evaluations that it had are evaluated anew. The process that uses it has threads by then and must not fork, so the
//! new one is this program from its start (`blis serve --stdio --fork-server`), with its socket as standard input; it first says which program
//! and which suites it has, because a file may have changed meanwhile. A few attempts are made, no more (`RESTARTS`).
//!
//! A worker starts with everything that it holds: workloads that
//! workers have used are generated here when there is nothing else to do, and runs of the baseline are kept as workers
//! have simulated them.
//!
//! A worker is used again if its candidate kept to all limits, because a new process costs a millisecond and cold memory.
//! If it fails then, the evaluation is repeated in a new one: every failure is that of a candidate alone.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use super::cache::ResultCache;
use super::candidate::CandidatePolicy;
use super::evaluate::{cached, keep};
use super::isolated::{EvaluationReply, failed};
use super::options::{GRACE, host};
use super::request::{EvaluationRequest, Job, SuiteSet};
use crate::error::RunError;
use crate::lock::lock;
use crate::result::EvaluationResult;
use crate::result_figures::Traits;
use crate::worker::{
    CPU_GRACE, ChildProcess, Frame, FrameBuffer, ReadyPipes, Results, WorkerFailure, WorkerProcess, WorkerSettings,
    cannot_start, fork, fork_process, is_ready, read_some, wall,
};

/// Restarts within [`RESTART_PERIOD`]; further ones would fail for the same reason.
const RESTARTS: usize = 5;
const RESTART_PERIOD: Duration = Duration::from_secs(60);
/// Time until a new process has read the suites.
const START_LIMIT: Duration = Duration::from_secs(120);
/// Processes in which an evaluation is tried: another one may have ended the first, but hardly the second.
const ATTEMPTS: usize = 2;

/// The fork server, as the process that uses it sees it. Its process ends when this is dropped.
pub struct ForkServer {
    state: Arc<ForkServerState>,
}

/// What the threads share that wait for results.
struct ForkServerState {
    current: Mutex<Arc<ForkConnection>>,
    /// Held while a process is started.
    restarts: Mutex<RestartLog>,
    command: Option<ForkServerCommand>,
    /// Evaluations that were cancelled, until they end.
    cancelled: Mutex<HashSet<u64>>,
    numbers: AtomicU64,
    /// How often a process was started again.
    restarted: AtomicU64,
    /// Whether a process is being started.
    is_starting: AtomicBool,
    is_ending: AtomicBool,
}

/// A process and the evaluations that it has.
struct ForkConnection {
    socket: Mutex<UnixStream>,
    /// Receivers of results by number; `None` if the process has ended.
    waiting: Mutex<Option<HashMap<u64, Sender<EvaluationOutcome>>>>,
    /// Ends after the socket is closed.
    _process: ForkedProcess,
}

/// The process of a fork server, killed when dropped.
enum ForkedProcess {
    Forked(#[expect(dead_code, reason = "held for its drop")] ChildProcess),
    Spawned(Child),
}

impl Drop for ForkedProcess {
    fn drop(&mut self) {
        if let Self::Spawned(child) = self {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// When processes were started again, and what prevents a further one.
#[derive(Default)]
struct RestartLog {
    times: VecDeque<Instant>,
}

/// How the fork server is started when the first one has ended.
#[derive(Clone, Debug)]
pub struct ForkServerCommand {
    /// The suites, by name or file.
    pub suites: Vec<String>,
    /// Folder of the result cache.
    pub cache: Option<PathBuf>,
    /// Folders from which candidates are read, `None` for all; see [`PathAccess`](super::request::PathAccess).
    pub allowed: Option<Vec<PathBuf>>,
    /// Their hashes: results of other suites cannot be compared.
    pub hashes: BTreeMap<String, String>,
    pub memory_bytes: u64,
    /// Whether large components are allowed.
    pub large_components: bool,
}

/// What a process says once it can evaluate.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Hello {
    host: String,
    suites: BTreeMap<String, String>,
}

/// Whether evaluations can be started, for `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum ForkServerHealth {
    Ok,
    /// It has ended, and another one is being started.
    Starting,
    /// It has ended, and none could be started.
    Down,
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
    /// Starts the process, and starts it again with `command` if it ends. Only for a process with a single thread.
    ///
    /// # Errors
    /// If the system cannot start a process.
    pub fn start(
        suites: &SuiteSet,
        cache: Option<ResultCache>,
        settings: WorkerSettings,
        command: Option<ForkServerCommand>,
    ) -> Result<Self, RunError> {
        let (socket, other) = UnixStream::pair().map_err(|error| cannot_start(&error))?;
        let own = socket.try_clone().map_err(|error| cannot_start(&error))?;
        let process = fork_process(|| {
            drop(own);
            serve(other, suites, cache, settings);
        });
        let process = ForkedProcess::Forked(process.map_err(|error| cannot_start(&error))?);
        let (connection, from) = ForkConnection::new(socket, process).map_err(|error| cannot_start(&error))?;
        let state = Arc::new(ForkServerState {
            current: Mutex::new(Arc::clone(&connection)),
            restarts: Mutex::default(),
            command,
            cancelled: Mutex::default(),
            numbers: AtomicU64::new(0),
            restarted: AtomicU64::new(0),
            is_starting: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
        });
        state.watch(connection, from);
        Ok(Self { state })
    }

    /// A number for an evaluation.
    pub fn reserve(&self) -> u64 {
        self.state.numbers.fetch_add(1, Ordering::SeqCst)
    }

    /// Evaluates the candidate of `request` in a worker.
    ///
    /// # Errors
    /// If the candidate cannot be read, or the fork server has ended and cannot be started again.
    pub fn evaluate(&self, number: u64, request: &EvaluationRequest) -> EvaluationOutcome {
        for _ in 0..ATTEMPTS {
            let connection = self.state.connection()?;
            let (sender, receiver) = channel();
            let Some(()) = lock(&connection.waiting).as_mut().map(|waiting| drop(waiting.insert(number, sender)))
            else {
                continue;
            };
            connection.send(&Order::Start { number, request: Box::new(request.clone()) });
            // It may have been cancelled before the order to start it was sent.
            if lock(&self.state.cancelled).contains(&number) {
                connection.send(&Order::Cancel { number });
            }
            if let Ok(outcome) = receiver.recv() {
                lock(&self.state.cancelled).remove(&number);
                return outcome;
            }
        }
        Err(format!("the process that starts evaluations has ended {ATTEMPTS} times during this evaluation"))
    }

    /// Cancels the evaluation `number`, whether it has been started or not.
    pub fn cancel(&self, number: u64) {
        // In this order: what is started meanwhile finds it in the set.
        lock(&self.state.cancelled).insert(number);
        lock(&self.state.current).send(&Order::Cancel { number });
    }

    /// Whether evaluations can be started, and how often the process was started again.
    pub fn health(&self) -> (ForkServerHealth, u64) {
        let state = &self.state;
        let health = if lock(&state.current).is_up() {
            ForkServerHealth::Ok
        } else if state.is_starting.load(Ordering::SeqCst) {
            ForkServerHealth::Starting
        } else {
            ForkServerHealth::Down
        };
        (health, state.restarted.load(Ordering::SeqCst))
    }
}

impl Drop for ForkServer {
    fn drop(&mut self) {
        self.state.is_ending.store(true, Ordering::SeqCst);
        let _ = lock(&lock(&self.state.current).socket).shutdown(std::net::Shutdown::Both);
    }
}

impl ForkServerState {
    /// The process, which is started again if it has ended.
    fn connection(self: &Arc<Self>) -> Result<Arc<ForkConnection>, String> {
        let current = || Some(Arc::clone(&lock(&self.current))).filter(|current| current.is_up());
        if let Some(current) = current() {
            return Ok(current);
        }
        // The others wait for the first one.
        let mut restarts = lock(&self.restarts);
        if let Some(current) = current() {
            return Ok(current);
        }
        self.is_starting.store(true, Ordering::SeqCst);
        let started = self.restart(&mut restarts);
        self.is_starting.store(false, Ordering::SeqCst);
        started
    }

    fn restart(self: &Arc<Self>, restarts: &mut RestartLog) -> Result<Arc<ForkConnection>, String> {
        let ended = "the process that starts evaluations has ended";
        if self.is_ending.load(Ordering::SeqCst) {
            return Err(ended.to_owned());
        }
        let Some(command) = &self.command else { return Err(format!("{ended}: start the server again")) };
        restarts.times.retain(|time| time.elapsed() < RESTART_PERIOD);
        if restarts.times.len() >= RESTARTS {
            let times = restarts.times.len();
            return Err(format!(
                "{ended} again, after {times} restarts within a minute: see why it ends, and retry later"
            ));
        }
        restarts.times.push_back(Instant::now());
        let (connection, from) =
            command.start().map_err(|why| format!("{ended}, and cannot be started again: {why}"))?;
        self.restarted.fetch_add(1, Ordering::SeqCst);
        *lock(&self.current) = Arc::clone(&connection);
        self.watch(Arc::clone(&connection), from);
        Ok(connection)
    }

    /// Passes results of `connection` on until its process ends, which is then started again.
    fn watch(self: &Arc<Self>, connection: Arc<ForkConnection>, mut from: UnixStream) {
        let state = Arc::downgrade(self);
        thread::spawn(move || {
            connection.receive(&mut from);
            let Some(state) = state.upgrade().filter(|state| !state.is_ending.load(Ordering::SeqCst)) else { return };
            tracing::warn!("the process that starts evaluations has ended, and is started again");
            if let Err(why) = state.connection() {
                tracing::error!("{why}");
            }
        });
    }
}

impl ForkConnection {
    /// The connection of `process`, and where its results come from.
    fn new(socket: UnixStream, process: ForkedProcess) -> io::Result<(Arc<Self>, UnixStream)> {
        let from = socket.try_clone()?;
        let waiting = Mutex::new(Some(HashMap::new()));
        Ok((Arc::new(Self { socket: Mutex::new(socket), waiting, _process: process }), from))
    }

    fn is_up(&self) -> bool {
        lock(&self.waiting).is_some()
    }

    fn send(&self, order: &Order) {
        // If the other process has ended, all receivers learn it.
        let _ = Frame::note(order).write(&mut *lock(&self.socket));
    }

    /// Passes results on until the process ends.
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

impl ForkServerCommand {
    /// Starts the program anew, and waits until it can evaluate.
    fn start(&self) -> Result<(Arc<ForkConnection>, UnixStream), String> {
        let (socket, other) = UnixStream::pair().map_err(|error| error.to_string())?;
        let mut command = Command::new(own_program().map_err(|error| error.to_string())?);
        command.args([
            "serve",
            "--stdio",
            "--fork-server",
            "--worker-memory-gib",
            &(self.memory_bytes >> 30).to_string(),
        ]);
        command.args(self.suites.iter().flat_map(|suite| ["--suite", suite]));
        if self.allowed.is_none() {
            command.arg("--all-paths");
        }
        for folder in self.allowed.iter().flatten() {
            command.arg("--allow-path").arg(folder);
        }
        if self.large_components {
            command.arg("--allow-large-components");
        }
        if let Some(cache) = &self.cache {
            command.arg("--cache").arg(cache);
        }
        // It ends when the socket is closed. A signal at the end of its parent would come when the thread ends that starts it.
        let child = command.stdin(Stdio::from(OwnedFd::from(other))).stdout(Stdio::null()).spawn();
        let process = ForkedProcess::Spawned(child.map_err(|error| error.to_string())?);
        drop(command);
        let hello = first_note(&socket).ok_or("it does not start")?;
        let hello: Hello = serde_json::from_slice(&hello).map_err(|error| error.to_string())?;
        if hello != (Hello { host: host(), suites: self.hashes.clone() }) {
            return Err("a suite or the program has changed: start the server again".to_owned());
        }
        ForkConnection::new(socket, process).map_err(|error| error.to_string())
    }
}

/// This program, also if another one has taken its path.
fn own_program() -> io::Result<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() { Ok(running) } else { std::env::current_exe() }
}

/// The first message of a process, within [`START_LIMIT`].
fn first_note(mut socket: &UnixStream) -> Option<Vec<u8>> {
    let mut frames = FrameBuffer::default();
    let end = Instant::now() + START_LIMIT;
    loop {
        if let Some(Frame::Note(note)) = frames.next() {
            socket.set_read_timeout(None).ok()?;
            return Some(note);
        }
        let left = end.saturating_duration_since(Instant::now());
        // A wait of no time is none to the system.
        socket.set_read_timeout(Some(left).filter(|left| !left.is_zero())).ok()?;
        if left.is_zero() || !read_some(&mut socket, |bytes| frames.extend(bytes)) {
            return None;
        }
    }
}

/// In a process that was started anew: the fork server, whose socket is its standard input, until that is closed.
///
/// # Errors
/// If standard input is no socket of a server.
pub fn serve_on_stdin(suites: &SuiteSet, cache: Option<ResultCache>, settings: WorkerSettings) -> Result<(), RunError> {
    let socket = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from).map_err(RunError::runtime)?;
    let hello = Frame::note(&Hello { host: host(), suites: suites.hashes() });
    hello.write(&mut &socket).map_err(|error| {
        RunError::usage(format_args!("standard input is no socket of a server: {error}"))
            .hint("`--fork-server` is for `blis serve` itself")
    })?;
    serve(socket, suites, cache, settings);
    Ok(())
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
