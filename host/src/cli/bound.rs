//! The bound of a whole command: `--wall-s` and `--cpu-s`. The limits of calls, of runs and of files come first, and are deterministic; this one
//! ends their sum, whatever it is made of, with one error that names the flag.
//!
//! A command flattens [`BoundArgs`] into its arguments and calls [`BoundArgs::start`] first. Then
//!
//! * if it works in worker processes, each gets [`CommandBound::left`], what is left of the bound, as its limit, and the failure of a worker at that
//!   limit is the error [`CommandBound::exceeded`];
//! * if it simulates in this process, it calls [`CommandBound::watch`], before it starts threads of its own and after it has started the last
//!   worker: a thread then ends the process.
//!
//! CPU time is that of all threads of this process and of workers that have ended.

use std::io::Write as _;
use std::time::{Duration, Instant};

use clap::Args;

use super::evaluate::seconds;
use blis_eval::error::RunError;
use blis_eval::worker::{TimeLimit, WorkerFailure};

/// The bound of a command.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct BoundArgs {
    /// Time limit of the whole command, s or with a unit; what takes longer is ended
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub wall_s: Option<f64>,
    /// CPU time limit of the whole command, s or with a unit
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub cpu_s: Option<f64>,
}

/// The bound of a command that runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandBound {
    wall: Option<Duration>,
    cpu: Option<Duration>,
    start: Instant,
}

/// Time between two looks at the clocks.
const INTERVAL: Duration = Duration::from_millis(20);

impl BoundArgs {
    /// The bound, from now on.
    pub(super) fn start(&self) -> CommandBound {
        let of = |seconds: Option<f64>| seconds.map(Duration::from_secs_f64);
        CommandBound { wall: of(self.wall_s), cpu: of(self.cpu_s), start: Instant::now() }
    }
}

impl CommandBound {
    /// The limit of the next worker: what is left, or `usual` if that is less.
    ///
    /// # Errors
    /// If nothing is left.
    pub(super) fn left(&self, usual: TimeLimit) -> Result<TimeLimit, RunError> {
        if let Some(error) = self.exceeded() {
            return Err(error);
        }
        let wall = self.wall.map(|wall| wall.saturating_sub(self.start.elapsed()));
        let cpu = self.cpu.map(|cpu| cpu.saturating_sub(used()));
        Ok(usual.at_most(wall, cpu))
    }

    /// The error of the whole command for `failure` of a worker that had [`Self::left`], if that was due to the bound.
    pub(super) fn ended(&self, failure: &WorkerFailure) -> Option<RunError> {
        match failure {
            WorkerFailure::WallLimit(_) | WorkerFailure::CpuTime => self.exceeded(),
            _ => None,
        }
    }

    /// The error if the bound is reached.
    pub(super) fn exceeded(&self) -> Option<RunError> {
        let error = |what: &str, flag: &str| {
            RunError::runtime(format_args!("the command: {what}, and was ended"))
                .hint(format_args!("`{flag}` sets that limit, of all its work together"))
        };
        match (self.wall, self.cpu) {
            (_, Some(cpu)) if used() >= cpu => {
                Some(error(&format!("it used more than {} s of CPU time", cpu.as_secs_f64()), "--cpu-s"))
            }
            (Some(wall), _) if self.start.elapsed() >= wall => {
                Some(error(&format!("it took more than {} s", wall.as_secs_f64()), "--wall-s"))
            }
            _ => None,
        }
    }

    /// Ends this process with the error, on standard error and with exit code 1, when the bound is reached. What is written by then
    /// stays as it is.
    pub(super) fn watch(self) {
        if self.wall.is_none() && self.cpu.is_none() {
            return;
        }
        let watch = move || {
            loop {
                if let Some(error) = self.exceeded() {
                    let _ = std::io::stdout().flush();
                    super::output::print_error(&error);
                    super::output::end_at_once(1);
                }
                std::thread::sleep(INTERVAL);
            }
        };
        // Without the thread the command runs without the bound, as on a system that has no threads left.
        if let Err(error) = std::thread::Builder::new().name("bound".to_owned()).spawn(watch) {
            tracing::warn!("`--wall-s` and `--cpu-s` are not watched: {error}");
        }
    }
}

/// CPU time of this process and of children that have ended.
fn used() -> Duration {
    blis_eval::timer::cpu_with_children()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(wall_s: Option<f64>, cpu_s: Option<f64>) -> CommandBound {
        BoundArgs { wall_s, cpu_s }.start()
    }

    #[test]
    fn what_is_left_gets_less_and_ends_in_an_error_that_names_the_flag() {
        let usual = TimeLimit::Total(Duration::from_secs(60));
        assert!(matches!(bound(None, None).left(usual), Ok(TimeLimit::Total(limit)) if limit.as_secs() == 60));
        let limited = bound(Some(5.0), None).left(usual);
        assert!(matches!(limited, Ok(TimeLimit::Total(limit)) if limit <= Duration::from_secs(5)), "{limited:?}");
        let text = |bound: CommandBound| bound.left(usual).expect_err("nothing is left").text();
        assert!(text(bound(Some(1e-9), None)).contains("--wall-s"));
        assert!(text(bound(None, Some(1e-9))).contains("--cpu-s"));
    }
}
