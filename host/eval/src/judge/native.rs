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
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde::{Deserialize, Serialize};

use super::bench::Bench;
use super::candidate::Candidate;
use super::terms::{Terms, pulled};
use crate::cancel::{Hand, Pull};
use crate::error::Failure;
use crate::verdict::{Status, Traits, VerdictDocument};

/// Maximum size of the reply of a child.
const ANSWER_BYTES: u64 = 64 << 20;
/// Time that the child gets beyond the wall limit, which it observes itself.
const GRACE: Duration = Duration::from_secs(2);
/// Time for reading the reply after the child has ended.
const READING: Duration = Duration::from_secs(5);

/// The reply of the child, one line of JSON.
#[derive(Serialize, Deserialize)]
struct Answer {
    document: VerdictDocument,
    clocked: bool,
}

/// Evaluates `candidate` in a child process.
pub fn evaluate(bench: &Bench, candidate: &Candidate, terms: &Terms, hand: &Arc<Hand>) -> VerdictDocument {
    ask(bench, candidate, terms, hand)
        .unwrap_or_else(|failure| VerdictDocument::invalid(Status::HostError, failure.text(), Traits::default()))
}

fn ask(bench: &Bench, candidate: &Candidate, terms: &Terms, hand: &Hand) -> Result<VerdictDocument, Failure> {
    let (mut child, answer) = start(bench, candidate, terms).map_err(|error| cannot(&error))?;
    let start = Instant::now();
    let ended = loop {
        if has_ended(&child).map_err(|error| cannot(&error))? {
            break true;
        }
        if hand.is_pulled() || start.elapsed() > terms.wall + GRACE {
            break false;
        }
        thread::sleep(Duration::from_millis(2));
    };
    // The child is not reaped yet, so that its number is still that of the group. The whole group is killed.
    let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    let status = child.wait().map_err(|error| cannot(&error))?;
    if !ended {
        return Ok(late(hand.pulled()));
    }
    // The pipe may stay open: a process that left the group may hold its other end.
    let line = answer.recv_timeout(READING).unwrap_or_default();
    Ok(verdict(&line, candidate, status))
}

fn cannot(error: &io::Error) -> Failure {
    Failure::runtime(format_args!("no process for a native candidate: {error}")).hint("try again with fewer at a time")
}

fn start(bench: &Bench, candidate: &Candidate, terms: &Terms) -> io::Result<(Child, Receiver<Vec<u8>>)> {
    let (reader, writer) = io::pipe()?;
    let child = Command::new(std::env::current_exe()?)
        .args(["evaluate", "--allow-native", "--native-here", "--suite", &bench.suite.name_or_file()])
        .args(["--stage", terms.until.name(), "--epoch", &terms.epoch.to_string()])
        .args(["--feedback-bytes", &terms.feedback_bytes.to_string()])
        .args(["--wall-s", &terms.wall.as_secs_f64().to_string(), "--log", "off"])
        .args(["--", &candidate.file])
        .stdin(Stdio::from(OwnedFd::from(writer)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let (sender, answer) = mpsc::channel();
    thread::spawn(move || sender.send(line(reader)));
    Ok((child, answer))
}

/// The first line, or nothing if it is incomplete.
fn line(reader: PipeReader) -> Vec<u8> {
    let mut line = Vec::new();
    let read = BufReader::new(reader.take(ANSWER_BYTES)).read_until(b'\n', &mut line);
    if read.is_ok() && line.ends_with(b"\n") { line } else { Vec::new() }
}

/// Whether the child has ended. Does not block and does not reap it.
fn has_ended(child: &Child) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(Pid::from_child(child)), options)?.is_some())
}

/// The result of a child that was killed at the wall limit or cancelled.
fn late(why: Option<Pull>) -> VerdictDocument {
    let mut document = pulled(why.unwrap_or(Pull::Late), Traits::default());
    if document.status == Status::Limit {
        document.artifacts.error = "it took too long and was killed".to_owned();
    }
    document
}

/// The result that follows from the `line` of a child that ended with `status`.
fn verdict(line: &[u8], candidate: &Candidate, status: ExitStatus) -> VerdictDocument {
    if let (true, Ok(Answer { mut document, clocked })) = (status.success(), serde_json::from_slice(line)) {
        if document.status != Status::HostError && document.hashes.candidate != candidate.sha256 {
            let told = format!("`{}` changed while it was judged: try again", candidate.file);
            return VerdictDocument::invalid(Status::HostError, told, Traits::default());
        }
        document.clocked = clocked;
        return document;
    }
    // The kernel killed it: for the limit of CPU time, or for lack of memory.
    let killed = [Signal::KILL, Signal::XCPU].iter().any(|signal| status.signal() == Some(signal.as_raw()));
    let (kind, told) = match (killed, status.success()) {
        (true, _) => (Status::Limit, format!("the process of the native library was killed: {status}")),
        (_, true) => (Status::Trap, "trap: the native library ended its process".to_owned()),
        _ => (Status::Trap, format!("trap: the process of the native library ended with {status}")),
    };
    let mut document = VerdictDocument::invalid(kind, told, Traits::default());
    document.clocked = killed;
    document
}

/// In the child: writes the result of `evaluate` into the pipe. The pipe is duplicated before any code of the
/// candidate is loaded.
pub fn answer(judge: impl FnOnce() -> Result<VerdictDocument, Failure>) -> Result<(), Failure> {
    let out = io::stdin().as_fd().try_clone_to_owned().map_err(Failure::runtime)?;
    let document = judge()
        .unwrap_or_else(|failure| VerdictDocument::invalid(Status::HostError, failure.text(), Traits::default()));
    let clocked = document.clocked;
    let mut text = serde_json::to_vec(&Answer { document, clocked }).map_err(Failure::runtime)?;
    text.push(b'\n');
    io::PipeWriter::from(out).write_all(&text).map_err(|error| Failure::output(&error))
}

/// In the child: disables core files, and limits CPU time and address space.
pub fn confine(wall: Duration) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let limit = |most| Rlimit { current: Some(most), maximum: Some(most) };
    let cores = thread::available_parallelism().map_or(1, usize::from) as u64;
    for (resource, most) in
        [(Resource::Core, 0), (Resource::Cpu, (wall.as_secs() + 2) * cores), (Resource::As, 8 << 30)]
    {
        // If the system refuses, its own limits hold.
        let _ = setrlimit(resource, limit(most));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_plugin::Technology;

    fn candidate() -> Candidate {
        Candidate::new("policy.so".to_owned(), Technology::Native, b"library".to_vec())
    }

    fn said(document: VerdictDocument, code: i32) -> VerdictDocument {
        let clocked = document.clocked;
        let line = serde_json::to_vec(&Answer { document, clocked }).expect("JSON");
        verdict(&line, &candidate(), ExitStatus::from_raw(code << 8))
    }

    /// Regression: host errors of the child were reported, and cached, as traps of the candidate.
    #[test]
    fn a_host_error_of_the_child_is_none_of_the_candidate() {
        let failed = VerdictDocument::invalid(Status::HostError, "no suite".to_owned(), Traits::default());
        assert_eq!(said(failed, 0).status, Status::HostError);
        assert_eq!(verdict(b"", &candidate(), ExitStatus::from_raw(0)).status, Status::Trap);
    }

    /// Regression: the parent looked at its own cancel handle, which is not used when the child reaches the limit.
    #[test]
    fn what_the_child_was_too_late_for_depends_on_the_clock() {
        let mut late = pulled(Pull::Late, Traits::default());
        late.hashes.candidate = candidate().sha256;
        assert!(said(late, 0).clocked);
        let killed = verdict(b"", &candidate(), ExitStatus::from_raw(9));
        assert_eq!((killed.status, killed.clocked), (Status::Limit, true));
        assert!(!verdict(b"", &candidate(), ExitStatus::from_raw(11)).clocked, "a crash is its own");
    }
}
