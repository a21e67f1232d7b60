//! Worker processes: everything that a candidate does happens in a process that can be killed.
//!
//! ```text
//! this process, one thread ── fork ──► worker: work(), with limits of CPU time and memory
//!        ▲                               │  results pipe: progress, notes, the result
//!        └──── poll, until the limit ◄───┘  messages pipe: its standard error
//! ```
//!
//! The limits that decide a result are deterministic: operations, fuel, bytes. Those of a worker are the last resort: they
//! end in a [`WorkerFailure`], never in the end of this process, and never in a result that is kept. A worker starts with a copy
//! of this process's memory, so what was read, generated or simulated before is there.
//!
//! A process with several threads must not fork: locks that other threads hold would stay closed in the copy. Programs
//! start workers before they start threads, or from a process that stays single-threaded
//! ([`ForkServer`](crate::evaluation::fork_server::ForkServer)).

mod frames;
mod process;
mod progress;
pub mod wall;

use std::io;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use process::{CPU_GRACE, ChildProcess, ReadyPipes, Results, WorkerProcess, fork, fork_process, is_ready};
pub use process::{WorkerFailure, WorkerSettings};
pub use progress::finished_simulations;
pub(crate) use progress::simulation_completed;

pub(crate) use frames::{Frame, FrameBuffer, read_some};

use crate::error::RunError;

/// How long a worker may run.
#[derive(Clone, Copy, Debug)]
pub enum TimeLimit {
    /// In all.
    Total(Duration),
    /// Without a completed simulation.
    BetweenSimulations(Duration),
    /// CPU time of each thread, in whole seconds; in all, ten times as long.
    Cpu(Duration),
    /// In all, and CPU time of each thread, in whole seconds.
    Both { wall: Duration, cpu: Duration },
}

impl TimeLimit {
    /// This limit, or what is given where that is less. CPU time is rounded up to whole seconds.
    #[must_use]
    pub fn at_most(self, wall: Option<Duration>, cpu: Option<Duration>) -> Self {
        let (own_wall, own_cpu) = match self {
            Self::Total(own) => (own, None),
            Self::Cpu(own) => (own * WALL_PER_CPU, Some(own)),
            Self::Both { wall, cpu } => (wall, Some(cpu)),
            // It has no total: what is given is one.
            Self::BetweenSimulations(_) if wall.is_none() && cpu.is_none() => return self,
            Self::BetweenSimulations(_) => (Duration::MAX, None),
        };
        let wall = wall.map_or(own_wall, |wall| wall.min(own_wall));
        match [own_cpu, cpu].into_iter().flatten().min() {
            Some(cpu) => Self::Both { wall, cpu },
            None => Self::Total(wall),
        }
    }
}

/// How long a worker with a limit of CPU time may take, as a multiple of that: others may use the processors.
const WALL_PER_CPU: u32 = 10;

/// A worker that returns a `T`.
pub struct Worker<T> {
    process: WorkerProcess,
    limit: TimeLimit,
    result: PhantomData<T>,
}

/// Starts `work` in a worker. Only for a process with a single thread.
///
/// # Errors
/// If the system cannot start a process.
pub fn start<T: Serialize + DeserializeOwned>(
    settings: &WorkerSettings,
    limit: TimeLimit,
    work: impl FnOnce() -> T,
) -> Result<Worker<T>, RunError> {
    let cpu = match limit {
        TimeLimit::Total(wall) => Some(wall.saturating_add(CPU_GRACE)),
        TimeLimit::Cpu(cpu) | TimeLimit::Both { cpu, .. } => Some(cpu),
        TimeLimit::BetweenSimulations(_) => None,
    };
    let process = fork(settings, cpu, |results| results.done(&work()));
    let process = process.map_err(|error| cannot_start(&error))?;
    Ok(Worker { process, limit, result: PhantomData })
}

/// The error of a process that cannot be started.
pub(crate) fn cannot_start(error: &io::Error) -> RunError {
    RunError::runtime(format_args!("cannot start a worker process: {error}"))
        .hint("end other programs, or raise the limit of processes (`ulimit -u`)")
}

/// Runs `work` in a worker and waits for its result.
///
/// # Errors
/// If no process can be started, or the worker fails: with the cause and `about`, which names what it worked on.
pub fn run<T: Serialize + DeserializeOwned>(
    settings: &WorkerSettings,
    limit: TimeLimit,
    about: &str,
    work: impl FnOnce() -> T,
) -> Result<T, RunError> {
    start(settings, limit, work)?.wait().map_err(|failure| failure.error(about))
}

impl<T: DeserializeOwned> Worker<T> {
    /// Waits for the result.
    ///
    /// # Errors
    /// If the worker fails, or does not end in its time; then it is killed.
    pub fn wait(mut self) -> Result<T, WorkerFailure> {
        let limit = match self.limit {
            TimeLimit::Total(limit) | TimeLimit::BetweenSimulations(limit) | TimeLimit::Both { wall: limit, .. } => {
                limit
            }
            TimeLimit::Cpu(cpu) => cpu * WALL_PER_CPU,
        };
        let mut since = Instant::now();
        let mut cause = None;
        while !self.process.is_finished() {
            let left = limit.saturating_sub(since.elapsed());
            if left.is_zero() {
                cause = Some(WorkerFailure::WallLimit(limit));
                break;
            }
            let ready = wait_for(&self.process, left);
            self.process.read(ready, &mut |frame| match frame {
                Frame::Progress(simulations) => {
                    progress::simulations_of_worker(simulations);
                    if matches!(self.limit, TimeLimit::BetweenSimulations(_)) {
                        since = Instant::now();
                    }
                }
                Frame::Note(_) | Frame::Done(_) => {}
            });
        }
        let result = self.process.finish(cause)?;
        serde_json::from_slice(&result)
            .map_err(|error| WorkerFailure::Panic(format!("the result of a worker cannot be read: {error}")))
    }
}

/// Waits until `process` has written something or `time` has passed.
fn wait_for(process: &WorkerProcess, time: Duration) -> ReadyPipes {
    let mut ready: Vec<PollFd<'_>> = process.poll_fds().collect();
    // A signal ends the wait early, as does a time too long for the system: the caller repeats.
    let _ = poll(&mut ready, Timespec::try_from(time).ok().as_ref());
    process.ready(ready.iter().map(PollFd::revents))
}
