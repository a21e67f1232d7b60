//! Candidates that are native code run in a process of their own, which can be killed. Whatever they do there ends
//! with it.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::super::error::Failure;
use super::bench::Bench;
use super::candidate::Candidate;
use super::evaluate::Terms;
use crate::evaluate::verdict::{Status, Traits, VerdictDocument};

/// Most that a child may answer with.
const ANSWER_BYTES: u64 = 64 << 20;
/// What the child gets beyond the wall limit that it keeps itself.
const GRACE: Duration = Duration::from_secs(2);

/// The verdict of a child process on `candidate`.
pub(super) fn evaluate(bench: &Bench, candidate: &Candidate, terms: &Terms) -> VerdictDocument {
    ask(bench, candidate, terms)
        .unwrap_or_else(|failure| VerdictDocument::invalid(Status::HostError, failure.text(), Traits::default()))
}

fn ask(bench: &Bench, candidate: &Candidate, terms: &Terms) -> Result<VerdictDocument, Failure> {
    let cannot = |error: std::io::Error| Failure::runtime(format_args!("no process for a native candidate: {error}"));
    let program = std::env::current_exe().map_err(cannot)?;
    let mut child = Command::new(program)
        .args(["evaluate", &candidate.file, "--native-here", "--suite", &bench.suite.name_or_file()])
        .args(["--stage", terms.until.name(), "--epoch", &terms.epoch.to_string()])
        .args(["--feedback-bytes", &terms.feedback_bytes.to_string()])
        .args(["--wall-s", &terms.wall.as_secs_f64().to_string(), "--log", "off"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(cannot)?;
    let output = child.stdout.take();
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        output.map(|output| output.take(ANSWER_BYTES).read_to_end(&mut text)).transpose().map(|_| text)
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(cannot)? {
            break Some(status);
        }
        if start.elapsed() > terms.wall + GRACE {
            // It may have ended by itself meanwhile.
            let _ = child.kill();
            child.wait().map_err(cannot)?;
            break None;
        }
        thread::sleep(Duration::from_millis(2));
    };
    let text = reader.join().unwrap_or_else(|_| Ok(Vec::new())).unwrap_or_default();
    let Some(status) = status else {
        return Ok(VerdictDocument::invalid(
            Status::Limit,
            "it took too long and was killed".to_owned(),
            Traits::default(),
        ));
    };
    match serde_json::from_slice(&text) {
        Ok(document) if status.success() => Ok(document),
        _ => {
            let told = format!("trap: the process of the native library ended with {status}");
            Ok(VerdictDocument::invalid(Status::Trap, told, Traits::default()))
        }
    }
}

/// In the child: no core files, and an end to its CPU time.
pub(super) fn confine(wall: Duration) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let limit = |most| Rlimit { current: Some(most), maximum: Some(most) };
    let cores = thread::available_parallelism().map_or(1, usize::from) as u64;
    for (resource, most) in
        [(Resource::Core, 0), (Resource::Cpu, (wall.as_secs() + 2) * cores), (Resource::As, 8 << 30)]
    {
        // A system that refuses has its own limits.
        let _ = setrlimit(resource, limit(most));
    }
}
