//! Evaluation of native code in a child process, which can be killed together with every process that it started.
//!
//! ```text
//! blis evaluate ── pipe ──◄ blis evaluate --native-here    in its own process group, killed at the wall limit
//!                            standard input: the pipe; standard output: discarded
//! ```
//!
//! Neither the output of a library nor the way in which it ends its process can be taken for an evaluation result.
//! This is no protection from a hostile library: it has the rights of the user, and could write to the pipe as well.

use std::io::{self, BufRead as _, BufReader, PipeReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde::{Deserialize, Serialize};

use super::candidate::CandidatePolicy;
use super::context::EvaluationSuite;
use super::options::{EvaluationOptions, GRACE, late_result};
use crate::error::RunError;
use crate::result::{EvaluationResult, EvaluationStatus};
use crate::result_figures::Traits;
use crate::suite::Suite;

/// Maximum size of the reply of a child.
const MAX_REPLY_BYTES: u64 = 64 << 20;
/// Time for reading the reply after the child has ended.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// The reply of the child, one line of JSON.
#[derive(Serialize, Deserialize)]
struct ChildReply {
    document: EvaluationResult,
    depends_on_clock: bool,
}

/// Evaluates `candidate` in a child process.
pub fn evaluate(
    prepared: &EvaluationSuite,
    candidate: &CandidatePolicy,
    options: &EvaluationOptions,
) -> EvaluationResult {
    run_child(prepared, candidate, options).unwrap_or_else(|failure| {
        EvaluationResult::invalid(EvaluationStatus::HostError, failure.text(), Traits::default())
    })
}

fn run_child(
    prepared: &EvaluationSuite,
    candidate: &CandidatePolicy,
    options: &EvaluationOptions,
) -> Result<EvaluationResult, RunError> {
    let (mut child, reply) = start(prepared, candidate, options).map_err(|error| cannot(&error))?;
    let start = Instant::now();
    let ended = loop {
        if has_ended(&child).map_err(|error| cannot(&error))? {
            break true;
        }
        if start.elapsed() > options.wall + GRACE {
            break false;
        }
        thread::sleep(Duration::from_millis(2));
    };
    // The child is not reaped yet, so that its number is still that of the group. The whole group is killed.
    let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    let status = child.wait().map_err(|error| cannot(&error))?;
    if !ended {
        return Ok(killed_result());
    }
    // The pipe may stay open: a process that left the group may hold its other end.
    let line = reply.recv_timeout(READ_TIMEOUT).unwrap_or_default();
    Ok(child_result(&line, candidate, status))
}

fn cannot(error: &io::Error) -> RunError {
    RunError::runtime(format_args!("cannot start a process for a native candidate: {error}"))
        .hint("evaluate fewer candidates at a time")
}

fn start(
    prepared: &EvaluationSuite,
    candidate: &CandidatePolicy,
    options: &EvaluationOptions,
) -> io::Result<(Child, Receiver<Vec<u8>>)> {
    let (reader, writer) = io::pipe()?;
    let child = Command::new(std::env::current_exe()?)
        .args(["evaluate", "--allow-native", "--native-here", "--suite", &prepared.suite.name_or_file()])
        .args(["--stage", options.until.into_str(), "--epoch", &options.epoch.to_string()])
        .args(["--feedback-bytes", &options.feedback_bytes.to_string()])
        .arg(format!("--patterns={}", options.patterns))
        .args(["--wall-s", &options.wall.as_secs_f64().to_string(), "--log", "off"])
        .args(granted_flags(&prepared.suite))
        .args(["--", &candidate.file])
        .stdin(Stdio::from(OwnedFd::from(writer)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(line(reader)));
    Ok((child, receiver))
}

/// The first line, or nothing if it is incomplete.
fn line(reader: PipeReader) -> Vec<u8> {
    let mut line = Vec::new();
    let read = BufReader::new(reader.take(MAX_REPLY_BYTES)).read_until(b'\n', &mut line);
    if read.is_ok() && line.ends_with(b"\n") { line } else { Vec::new() }
}

/// Whether the child has ended. Does not block and does not reap it.
fn has_ended(child: &Child) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(Pid::from_child(child)), options)?.is_some())
}

/// The result of a child that was killed at the wall limit.
fn killed_result() -> EvaluationResult {
    let mut document = late_result(Traits::default());
    document.artifacts.error = "it reached its wall limit and was killed".to_owned();
    document
}

/// The result that follows from the `line` of a child that ended with `status`.
fn child_result(line: &[u8], candidate: &CandidatePolicy, status: ExitStatus) -> EvaluationResult {
    if let (true, Ok(ChildReply { mut document, depends_on_clock })) = (status.success(), serde_json::from_slice(line))
    {
        if document.status != EvaluationStatus::HostError && document.hashes.candidate != candidate.sha256 {
            let message = format!("`{}` changed during its evaluation: try again", candidate.file);
            return EvaluationResult::invalid(EvaluationStatus::HostError, message, Traits::default());
        }
        document.depends_on_clock = depends_on_clock;
        return document;
    }
    // The kernel killed it: for the limit of CPU time, or for lack of memory.
    let killed = [Signal::KILL, Signal::XCPU].iter().any(|signal| status.signal() == Some(signal.as_raw()));
    let (kind, message) = match (killed, status.success()) {
        (true, _) => (EvaluationStatus::Limit, format!("the process of the native library was killed: {status}")),
        (_, true) => (EvaluationStatus::Trap, "trap: the native library ended its process".to_owned()),
        _ => (EvaluationStatus::Trap, format!("trap: the process of the native library ended with {status}")),
    };
    let mut document = EvaluationResult::invalid(kind, message, Traits::default());
    document.depends_on_clock = killed;
    document
}

/// In the child: writes the result of `evaluate` into the pipe. The pipe is duplicated before any code of the
/// candidate is loaded.
pub fn reply(evaluate: impl FnOnce() -> Result<EvaluationResult, RunError>) -> Result<(), RunError> {
    let out = io::stdin().as_fd().try_clone_to_owned().map_err(RunError::runtime)?;
    let document = evaluate().unwrap_or_else(|failure| {
        EvaluationResult::invalid(EvaluationStatus::HostError, failure.text(), Traits::default())
    });
    let depends_on_clock = document.depends_on_clock;
    let mut text = serde_json::to_vec(&ChildReply { document, depends_on_clock }).map_err(RunError::runtime)?;
    text.push(b'\n');
    io::PipeWriter::from(out).write_all(&text).map_err(|error| RunError::output(&error))
}

/// In the child: disables core files, and limits CPU time and address space.
pub fn confine(wall: Duration) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    // The library opens nothing once it is loaded.
    crate::worker::wall::arm();
    let limit = |most| Rlimit { current: Some(most), maximum: Some(most) };
    let cores = thread::available_parallelism().map_or(1, usize::from) as u64;
    for (resource, most) in
        [(Resource::Core, 0), (Resource::Cpu, (wall.as_secs() + 2) * cores), (Resource::As, 8 << 30)]
    {
        // If the system refuses, its own limits hold.
        let _ = setrlimit(resource, limit(most));
    }
}

/// The flags that grant what `suite` was granted.
fn granted_flags(suite: &Suite) -> Vec<String> {
    let paths = suite.paths.iter().map(|path| format!("--allow-path={}", path.display()));
    paths.chain(suite.limits.large_components.then(|| "--allow-large-components".to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_plugin::Technology;

    fn candidate() -> CandidatePolicy {
        CandidatePolicy::new("policy.so".to_owned(), Technology::Native, b"library".to_vec())
    }

    fn result_of(document: EvaluationResult, code: i32) -> EvaluationResult {
        let depends_on_clock = document.depends_on_clock;
        let line = serde_json::to_vec(&ChildReply { document, depends_on_clock }).expect("JSON");
        child_result(&line, &candidate(), ExitStatus::from_raw(code << 8))
    }

    /// Regression: host errors of the child were reported, and cached, as traps of the candidate.
    #[test]
    fn a_host_error_of_the_child_is_not_a_trap_of_the_candidate() {
        let failed = EvaluationResult::invalid(EvaluationStatus::HostError, "no suite".to_owned(), Traits::default());
        assert_eq!(result_of(failed, 0).status, EvaluationStatus::HostError);
        assert_eq!(child_result(b"", &candidate(), ExitStatus::from_raw(0)).status, EvaluationStatus::Trap);
    }

    /// Regression: the parent looked at its own cancel handle, which is not used when the child reaches the limit.
    #[test]
    fn a_limit_of_the_child_depends_on_the_clock() {
        let mut late = late_result(Traits::default());
        late.hashes.candidate = candidate().sha256;
        assert!(result_of(late, 0).depends_on_clock);
        let killed = child_result(b"", &candidate(), ExitStatus::from_raw(9));
        assert_eq!((killed.status, killed.depends_on_clock), (EvaluationStatus::Limit, true));
        assert!(!child_result(b"", &candidate(), ExitStatus::from_raw(11)).depends_on_clock, "a crash is its own");
    }
}
