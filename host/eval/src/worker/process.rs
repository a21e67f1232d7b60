//! The process of a worker: fork, limits of the operating system, end.

#![allow(unsafe_code)] // fork

use std::cell::RefCell;
use std::fmt::{self, Display};
use std::io::{self, PipeReader, PipeWriter, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus, getrlimit, kill_process, setrlimit, waitpid,
};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::frames::{Frame, FrameBuffer, read_some};
use crate::error::RunError;

/// Limits of workers, and the receiver of their messages.
#[derive(Clone, Copy, Debug)]
pub struct WorkerSettings {
    /// Memory that a worker may use besides what it shares with the process that started it, bytes.
    pub memory_bytes: u64,
    /// Number of threads that it starts.
    pub threads: usize,
    /// Called with each line that a worker writes to its standard error.
    pub message: fn(&[u8]),
}

/// CPU time of each thread beyond the wall limit, before the system ends a worker that nothing else ends.
pub(crate) const CPU_GRACE: Duration = Duration::from_secs(5);
/// Time between two reports of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);
/// Resident memory beyond that of its start with which a worker may be used again, bytes.
const KEPT_BYTES: u64 = 8 << 20;
/// Bytes of an incomplete line of messages.
const LINE_BYTES: usize = 1 << 16;

/// Why a worker ended without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerFailure {
    /// It was killed after this time.
    WallLimit(Duration),
    /// It was killed because its work was cancelled.
    Cancelled,
    /// It used all CPU time that it had.
    CpuTime,
    /// It needed more memory than it had.
    Memory,
    /// The stack of a thread was full.
    Stack,
    /// The system killed it, most likely for lack of memory.
    Killed,
    /// The host has a defect, with the message.
    Panic(String),
    /// A signal or an exit code that has no other cause.
    Crash(String),
}

impl WorkerFailure {
    /// Whether a limit of time caused it, or the user.
    pub(crate) fn is_late(&self) -> bool {
        matches!(self, Self::WallLimit(_) | Self::Cancelled | Self::CpuTime)
    }

    /// The error of a command that worked on `about`.
    #[must_use]
    pub fn error(&self, about: &str) -> RunError {
        let error = RunError::runtime(format_args!("{about}: {self}"));
        match self {
            Self::Panic(_) => error.hint("this is a defect of the program: please report it with the file"),
            _ => error.hint("look for endless loops and for values that grow without bound"),
        }
    }
}

impl Display for WorkerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WallLimit(limit) => write!(f, "it took more than {} s, and was ended", limit.as_secs_f64()),
            Self::Cancelled => f.write_str("it was cancelled"),
            Self::CpuTime => f.write_str("it used more CPU time than its process may"),
            Self::Memory => f.write_str("it used more memory than its process may"),
            Self::Stack => f.write_str("it used more stack than its process has"),
            Self::Killed => f.write_str("the system killed its process, most likely for lack of memory"),
            Self::Panic(message) => f.write_str(message),
            Self::Crash(status) => write!(f, "its process ended with {status}"),
        }
    }
}

/// A process that this one has started. Killed when dropped.
pub(crate) struct ChildProcess {
    pid: Pid,
    is_reaped: bool,
}

/// Whether a descriptor with these events can be read: something is there, or its other end is closed.
pub(crate) fn is_ready(events: PollFlags) -> bool {
    !events.is_empty()
}

/// A worker, seen from the process that started it. Killed when dropped.
pub(crate) struct WorkerProcess {
    process: ChildProcess,
    results: Option<PipeReader>,
    messages: Option<PipeReader>,
    frames: FrameBuffer,
    line: Vec<u8>,
    /// Lines from the first one on that the Rust runtime writes before it ends a process.
    last_words: Vec<Vec<u8>>,
    done: Option<Vec<u8>>,
    orders: PipeWriter,
    settings: WorkerSettings,
}

/// The pipes of a worker that can be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadyPipes {
    results: bool,
    messages: bool,
}

/// The pipes of a worker, in the worker.
pub(crate) struct Results {
    orders: RefCell<(PipeReader, FrameBuffer)>,
    threads: usize,
    /// Resident memory at the start, bytes.
    resident: u64,
}

/// The writing end in the worker, for progress from any thread.
static RESULTS: OnceLock<Mutex<PipeWriter>> = OnceLock::new();

impl Results {
    pub(crate) fn note(&self, value: &impl Serialize) {
        send(&Frame::note(value));
    }

    pub(crate) fn done(&self, value: &impl Serialize) {
        send(&Frame::done(value));
    }

    /// Waits for what [`WorkerProcess::order`] sends; `None` if nothing will come. The worker gets CPU time for it.
    pub(crate) fn next_order<T: DeserializeOwned>(&self) -> Option<T> {
        let (pipe, frames) = &mut *self.orders.borrow_mut();
        loop {
            if let Some(Frame::Note(order)) = frames.next() {
                return serde_json::from_slice(&order).ok();
            }
            if !read_some(pipe, |bytes| frames.extend(bytes)) {
                return None;
            }
        }
    }

    /// From now on the worker may use `cpu` per thread, and [`CPU_GRACE`].
    pub(crate) fn allow_cpu(&self, cpu: Duration) {
        limit_cpu(cpu + CPU_GRACE, self.threads);
    }

    /// Whether the worker is known to be about as small as it was at its start.
    pub(crate) fn is_small(&self) -> bool {
        self.resident > 0 && resident_bytes() <= self.resident.saturating_add(KEPT_BYTES)
    }
}

fn send(frame: &Frame) {
    if let Some(pipe) = RESULTS.get() {
        // If the reader is gone, so is the purpose of this process.
        let _ = frame.write(&mut *pipe.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// In a worker: reports that `simulations` have completed, a few times a second.
pub(super) fn report_progress(simulations: u64) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    static START: OnceLock<Instant> = OnceLock::new();
    if RESULTS.get().is_none() {
        return;
    }
    let now = START.get_or_init(Instant::now).elapsed().as_millis() as u64 + 1;
    let last = LAST.load(Ordering::Relaxed);
    let is_due = last == 0 || now >= last + PROGRESS_INTERVAL.as_millis() as u64;
    if is_due && LAST.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        send(&Frame::Progress(simulations));
    }
}

/// Starts a worker that does `work`. `cpu`: CPU time of each of its threads.
pub(crate) fn fork(
    settings: &WorkerSettings,
    cpu: Option<Duration>,
    work: impl FnOnce(&Results),
) -> io::Result<WorkerProcess> {
    let (results, write_results) = io::pipe()?;
    let (messages, write_messages) = io::pipe()?;
    let (read_orders, orders) = io::pipe()?;
    let others = (results.try_clone()?, messages.try_clone()?, orders.try_clone()?);
    let process = fork_process(|| {
        drop(others);
        let _ = rustix::stdio::dup2_stderr(&write_messages);
        drop(write_messages);
        confine(settings, cpu);
        let _ = RESULTS.set(Mutex::new(write_results));
        let orders = RefCell::new((read_orders, FrameBuffer::default()));
        work(&Results { orders, threads: settings.threads, resident: resident_bytes() });
    })?;
    Ok(WorkerProcess {
        process,
        results: Some(results),
        messages: Some(messages),
        frames: FrameBuffer::default(),
        line: Vec::new(),
        last_words: Vec::new(),
        done: None,
        orders,
        settings: *settings,
    })
}

/// Starts a process that does `work` and ends.
pub(crate) fn fork_process(work: impl FnOnce()) -> io::Result<ChildProcess> {
    // Text in the buffer would be written by both processes.
    io::stdout().flush()?;
    let parent = rustix::process::getpid();
    // SAFETY: the callers have a single thread, so that no lock is held by a thread that the copy lacks; or a second one
    // that waits for the output of a native candidate, in a system call.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            die_with(parent);
            let ended = catch_unwind(AssertUnwindSafe(work));
            exit(if ended.is_ok() { 0 } else { PANIC_CODE })
        }
        pid => Ok(ChildProcess { pid: Pid::from_raw(pid).ok_or(io::ErrorKind::Other)?, is_reaped: false }),
    }
}

/// Ends this process without running what its parent has registered for its own end.
fn exit(code: i32) -> ! {
    // SAFETY: it has no conditions.
    unsafe { libc::_exit(code) }
}

/// In a child: ends it when `parent` ends.
fn die_with(parent: Pid) {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // It may have ended before.
    if rustix::process::getppid() != Some(parent) {
        exit(1);
    }
}

/// Exit code after a panic, as that of a Rust program.
const PANIC_CODE: i32 = 101;

/// In the worker: sets the limits. If the system refuses one, its own hold.
fn confine(settings: &WorkerSettings, cpu: Option<Duration>) {
    let set = |resource, most| {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        let _ = setrlimit(resource, limit);
    };
    set(Resource::Core, 0);
    if let Some(cpu) = cpu {
        limit_cpu(cpu, settings.threads);
    }
    #[cfg(target_os = "linux")]
    {
        // Private memory that can be written. The address space would count what WebAssembly only reserves.
        set(Resource::Data, data_bytes().saturating_add(settings.memory_bytes));
        // If the machine runs out of memory, workers end first.
        let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    }
}

/// In the worker: ends it after `cpu` of further CPU time for each of its threads.
fn limit_cpu(cpu: Duration, threads: usize) {
    let used = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default();
    // The system counts whole seconds.
    let cpu = cpu.as_secs() + u64::from(cpu.subsec_nanos() > 0);
    let seconds = cpu.saturating_mul(threads.max(1) as u64).saturating_add(used.as_secs());
    // The maximum stays, so that the limit can be raised for the next evaluation.
    let maximum = getrlimit(Resource::Cpu).maximum;
    let current = Some(maximum.map_or(seconds, |maximum| maximum.min(seconds)));
    let _ = setrlimit(Resource::Cpu, Rlimit { current, maximum });
}

/// Private memory of this process that can be written, bytes.
#[cfg(target_os = "linux")]
fn data_bytes() -> u64 {
    memory_bytes(5)
}

/// Memory of this process that is in use, without that of files, bytes; 0 where the system does not tell.
fn resident_bytes() -> u64 {
    if cfg!(target_os = "linux") { memory_bytes(1).saturating_sub(memory_bytes(2)) } else { 0 }
}

/// `/proc/self/statm` of this process, open: behind the wall it cannot be opened.
static STATISTICS: OnceLock<Option<std::fs::File>> = OnceLock::new();

fn memory_statistics() -> Option<String> {
    use std::os::unix::fs::FileExt as _;
    let mut text = [0; 256];
    let file = STATISTICS.get_or_init(|| blis_diag::open_file("/proc/self/statm".as_ref()).ok()).as_ref()?;
    let length = file.read_at(&mut text, 0).ok()?;
    Some(String::from_utf8_lossy(&text[..length]).into_owned())
}

/// A column of `/proc/self/statm`, bytes.
fn memory_bytes(column: usize) -> u64 {
    let statistics = memory_statistics().unwrap_or_default();
    let pages = statistics.split_whitespace().nth(column).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

impl WorkerProcess {
    /// What to wait for: results, then messages, unless they are closed.
    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        [&self.results, &self.messages].into_iter().flatten().map(|pipe| PollFd::new(pipe, PollFlags::IN))
    }

    /// The pipes that can be read, by the events of [`Self::poll_fds`].
    pub(crate) fn ready(&self, events: impl IntoIterator<Item = PollFlags>) -> ReadyPipes {
        let mut events = events.into_iter();
        let mut of = |pipe: &Option<PipeReader>| pipe.is_some() && events.next().is_some_and(is_ready);
        ReadyPipes { results: of(&self.results), messages: of(&self.messages) }
    }

    /// Reads what is there. `frame` gets the frames.
    pub(crate) fn read(&mut self, ready: ReadyPipes, frame: &mut dyn FnMut(Frame)) {
        if ready.results
            && let Some(pipe) = &mut self.results
        {
            let frames = &mut self.frames;
            if !read_some(pipe, |bytes| frames.extend(bytes)) {
                self.results = None;
            }
            while let Some(one) = self.frames.next() {
                if let Frame::Done(result) = &one {
                    self.done = Some(result.clone());
                }
                frame(one);
            }
        }
        if ready.messages
            && let Some(pipe) = &mut self.messages
        {
            let line = &mut self.line;
            if !read_some(pipe, |bytes| line.extend_from_slice(bytes)) {
                self.messages = None;
            }
            self.pass_lines();
        }
    }

    /// Passes on whole lines of messages, except what the Rust runtime writes before it ends a process.
    fn pass_lines(&mut self) {
        while let Some(end) = self.line.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.line.drain(..=end).collect();
            self.pass(&line);
        }
        let is_last = self.messages.is_none() && !self.line.is_empty();
        if is_last || self.line.len() > LINE_BYTES {
            let line = std::mem::take(&mut self.line);
            self.pass(&line);
        }
    }

    fn pass(&mut self, line: &[u8]) {
        const RUNTIME: [&str; 6] = [
            "memory allocation of ",
            "thread '",
            "fatal runtime error",
            "thread caused",
            "note: run with",
            "stack backtrace",
        ];
        let is_of_runtime = |line: &[u8]| RUNTIME.iter().any(|start| line.starts_with(start.as_bytes()));
        if !self.last_words.is_empty() || is_of_runtime(line) {
            self.last_words.push(line.to_vec());
        } else {
            (self.settings.message)(line);
        }
    }

    /// Whether the result is there, or will not come.
    pub(crate) fn is_finished(&self) -> bool {
        self.done.is_some() || (self.results.is_none() && self.messages.is_none())
    }

    /// The result, after which the process waits for an order.
    pub(crate) fn take_result(&mut self) -> Option<Vec<u8>> {
        while self.messages.is_some() && self.has_message() {
            self.read(ReadyPipes { results: false, messages: true }, &mut |_| {});
        }
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.pass(&line);
        }
        self.pass_last_words();
        self.done.take()
    }

    fn has_message(&self) -> bool {
        let Some(messages) = &self.messages else { return false };
        let mut fds = [PollFd::new(messages, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }

    /// Gives a process that waits something to do. Fails if it has ended.
    pub(crate) fn order(&mut self, value: &impl Serialize) -> io::Result<()> {
        Frame::note(value).write(&mut self.orders)
    }

    /// Ends the process. Returns its result; if it has none, because it was killed for `cause` or ended on its own, why.
    pub(crate) fn finish(mut self, cause: Option<WorkerFailure>) -> Result<Vec<u8>, WorkerFailure> {
        match self.done.take().filter(|_| cause.is_none()) {
            Some(result) => {
                self.end(true);
                self.pass_last_words();
                Ok(result)
            }
            None => Err(self.fail(cause)),
        }
    }

    /// Ends the process for `cause`. Returns it, or why the process ended on its own.
    pub(crate) fn fail(mut self, cause: Option<WorkerFailure>) -> WorkerFailure {
        let status = self.end(cause.is_some());
        cause.unwrap_or_else(|| self.failure(status))
    }

    /// Waits for the end of the process, and reads its last messages.
    fn end(&mut self, kill: bool) -> Option<WaitStatus> {
        if kill {
            self.process.kill();
        }
        let status = self.process.reap();
        // All writers are gone, so this ends.
        while self.messages.is_some() {
            self.read(ReadyPipes { results: false, messages: true }, &mut |_| {});
        }
        status
    }

    /// What looked like the end of the process was not.
    fn pass_last_words(&mut self) {
        self.last_words.drain(..).for_each(|line| (self.settings.message)(&line));
    }

    /// Why a worker ended that was not killed by this process.
    fn failure(&self, status: Option<WaitStatus>) -> WorkerFailure {
        let words: Vec<String> =
            self.last_words.iter().map(|line| String::from_utf8_lossy(line).trim().to_owned()).collect();
        let wrote = |part: &str| words.iter().any(|line| line.contains(part));
        if wrote("memory allocation of ") {
            return WorkerFailure::Memory;
        }
        if wrote("overflowed its stack") {
            return WorkerFailure::Stack;
        }
        if wrote("panicked at") {
            return WorkerFailure::Panic(words.join(" "));
        }
        let signal = status.and_then(WaitStatus::terminating_signal);
        if signal == Some(Signal::XCPU.as_raw()) {
            return WorkerFailure::CpuTime;
        }
        if signal == Some(Signal::KILL.as_raw()) {
            return WorkerFailure::Killed;
        }
        WorkerFailure::Crash(match (signal, status.and_then(WaitStatus::exit_status)) {
            (Some(signal), _) => format!("signal {signal}"),
            (None, Some(code)) => format!("exit code {code}"),
            (None, None) => "an unknown status".to_owned(),
        })
    }
}

impl ChildProcess {
    fn kill(&self) {
        let _ = kill_process(self.pid, Signal::KILL);
    }

    /// Waits for the end of the process.
    fn reap(&mut self) -> Option<WaitStatus> {
        let mut status = waitpid(Some(self.pid), WaitOptions::empty());
        while status.as_ref().err() == Some(&rustix::io::Errno::INTR) {
            status = waitpid(Some(self.pid), WaitOptions::empty());
        }
        self.is_reaped = true;
        status.ok().flatten().map(|(_, status)| status)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.kill();
            self.reap();
        }
    }
}
