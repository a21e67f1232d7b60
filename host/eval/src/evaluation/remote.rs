//! Workers on other machines: commands that speak the lines of `blis serve --stdio`.
//!
//! ```text
//! threads of the server ── lines ──► standard input of the command ─► `blis serve --stdio` elsewhere
//!          ▲                                                                    │
//!          └──────────────── standard output: results, in any order ◄───────────┘
//! ```
//!
//! The program and the suites there must be those here, so that results are the same wherever they are evaluated.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::options::host;
use super::request::{EvaluationRequest, id_text};
use crate::error::RunError;
use crate::lock::lock;
use crate::result::{EvaluationResult, EvaluationStatus};

/// Time until the first reply of a command: a cluster may start machines for it.
const START_LIMIT: Duration = Duration::from_secs(300);
/// Time that a result may take beyond its wall limit, which the other machine observes itself.
const REPLY_GRACE: Duration = Duration::from_secs(120);
/// Time that a command gets to end after its input was closed.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Time in which a command that has closed its output ends.
const EXIT_LIMIT: Duration = Duration::from_millis(500);
/// Pause before a request that was refused as `busy` is sent again.
const BUSY_PAUSE: Duration = Duration::from_millis(500);
/// Characters of a line that messages show.
const SHOWN_CHARACTERS: usize = 200;

/// A command with a process that evaluates candidates. Its input is closed when this is dropped.
pub(super) struct RemoteWorker {
    command: String,
    /// Evaluations that it takes at a time.
    threads: usize,
    lines: Arc<OpenLines>,
    /// Whether a warning says that it has ended.
    is_reported: AtomicBool,
    input: Mutex<Option<ChildStdin>>,
    process: Mutex<Child>,
}

/// Replies that are waited for.
struct OpenLines {
    /// By id; `None` if the process has ended.
    waiting: Mutex<Option<HashMap<String, Sender<Value>>>>,
    /// Why it has ended.
    ended: Mutex<Option<String>>,
}

/// The reply to `{"status": true}`, as far as it is read.
#[derive(Deserialize)]
struct WorkerStatus {
    host: String,
    suites: BTreeMap<String, String>,
    threads: usize,
}

impl RemoteWorker {
    /// Starts `command` in a shell, and checks that its program and its suites are those here: `suites` has their hashes by name.
    ///
    /// # Errors
    /// If it does not start or does not reply, or if its results would differ.
    pub fn start(command: &str, suites: &BTreeMap<String, String>) -> Result<Self, RunError> {
        let mut shell = Command::new("sh");
        let started = shell.arg("-c").arg(command).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = started.map_err(|error| unusable(command, &format!("does not start: {error}")))?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let lines = Arc::new(OpenLines { waiting: Mutex::new(Some(HashMap::new())), ended: Mutex::default() });
        let mut worker = Self {
            command: command.to_owned(),
            threads: 1,
            lines,
            is_reported: AtomicBool::new(false),
            input: Mutex::new(input),
            process: Mutex::new(process),
        };
        let (sender, first) = channel();
        let (reader, output) = (Arc::clone(&worker.lines), output.ok_or_else(|| unusable(command, "has no output"))?);
        thread::spawn(move || reader.receive(output, &sender));
        worker.threads = worker.hello(&first, suites).inspect_err(|_| worker.kill())?;
        Ok(worker)
    }

    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Asks for the status, and returns the number of evaluations at a time.
    fn hello(&self, first: &Receiver<String>, suites: &BTreeMap<String, String>) -> Result<usize, RunError> {
        let refused = |what: &str| unusable(&self.command, what);
        self.send(&json!({"status": true})).map_err(|why| refused(&why))?;
        let line = first.recv_timeout(START_LIMIT).map_err(|error| match error {
            RecvTimeoutError::Timeout => refused(&format!("has not replied within {} s", START_LIMIT.as_secs())),
            RecvTimeoutError::Disconnected => refused(&self.why()),
        })?;
        let WorkerStatus { host: theirs, suites: their_suites, threads } =
            serde_json::from_str(&line).map_err(|_| {
                let start: String = line.chars().take(SHOWN_CHARACTERS).collect();
                refused(&format!("does not reply as this version of `blis serve --stdio`, but with `{start}`"))
            })?;
        if theirs != host() {
            let what = format_args!("the worker `{}` runs `{theirs}`, but this is `{}`", self.command, host());
            return Err(RunError::usage(what).hint("results would differ: install the same program there"));
        }
        for (name, hash) in suites {
            let what = match their_suites.get(name) {
                Some(theirs) if theirs == hash => continue,
                Some(theirs) => format!("has another suite `{name}`: its SHA-256 is {theirs}, not {hash}"),
                None => format!("does not have the suite `{name}`"),
            };
            let hint = "start `blis serve --stdio --suite SUITE` there, with the same suite and the same files";
            return Err(RunError::usage(format_args!("the worker `{}` {what}", self.command)).hint(hint));
        }
        Ok(threads.max(1))
    }

    /// Evaluates the candidate of `request` there, within `wall` and some time for the way.
    ///
    /// # Errors
    /// Why it cannot evaluate any more. The request can be evaluated elsewhere.
    pub fn evaluate(
        &self,
        number: u64,
        request: &EvaluationRequest,
        wall: Duration,
    ) -> Result<EvaluationResult, String> {
        let sent = EvaluationRequest { id: Some(json!(number.to_string())), ..request.clone() };
        let sent = serde_json::to_value(&sent).map_err(|error| error.to_string())?;
        loop {
            let mut reply = self.reply(number, &sent, wall).inspect_err(|why| self.lines.end(why))?;
            if reply.get("error").is_some_and(|error| error == "busy") {
                thread::sleep(BUSY_PAUSE);
                continue;
            }
            return self.result(&mut reply, request).inspect_err(|why| self.lines.end(why));
        }
    }

    fn reply(&self, number: u64, sent: &Value, wall: Duration) -> Result<Value, String> {
        let (sender, receiver) = channel();
        match lock(&self.lines.waiting).as_mut() {
            Some(waiting) => drop(waiting.insert(number.to_string(), sender)),
            None => return Err(self.why()),
        }
        self.send(sent)?;
        let limit = wall + REPLY_GRACE;
        receiver.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("has not replied within {} s", limit.as_secs()),
            RecvTimeoutError::Disconnected => self.why(),
        })
    }

    fn result(&self, reply: &mut Value, request: &EvaluationRequest) -> Result<EvaluationResult, String> {
        if let Some(error) = reply.get("error") {
            return Err(format!("evaluates nothing: {}", id_text(error)));
        }
        let depends_on_clock = reply.get("depends_on_clock").is_some_and(|value| value == true);
        let result: EvaluationResult = serde_json::from_value(reply.take())
            .map_err(|error| format!("has sent a result that cannot be read: {error}"))?;
        if result.status == EvaluationStatus::HostError {
            return Err(format!("cannot evaluate: {}", result.artifacts.error));
        }
        Ok(EvaluationResult { id: request.id.as_ref().map(id_text), depends_on_clock, ..result })
    }

    fn send(&self, line: &Value) -> Result<(), String> {
        let mut input = lock(&self.input);
        let input = input.as_mut().ok_or_else(|| self.why())?;
        let written = input.write_all(format!("{line}\n").as_bytes()).and_then(|()| input.flush());
        written.map_err(|_| self.why())
    }

    /// Why it has ended, with the exit status of the command.
    fn why(&self) -> String {
        if let Some(why) = lock(&self.lines.ended).clone() {
            return why;
        }
        match self.wait(EXIT_LIMIT) {
            Some(status) => format!("has ended ({status})"),
            None => "has closed its output".to_owned(),
        }
    }

    /// Waits until the command ends, at most for `limit`.
    fn wait(&self, limit: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            if let Ok(Some(status)) = lock(&self.process).try_wait() {
                return Some(status);
            }
            if Instant::now() >= end {
                return None;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn kill(&self) {
        let mut process = lock(&self.process);
        // It may have ended.
        let _ = process.kill();
        let _ = process.wait();
    }

    /// That it has ended because `why`, as messages say it; the first time as a warning, too.
    pub fn ended(&self, why: &str) -> String {
        let text = format!("the worker `{}` {why}", self.command);
        if !self.is_reported.swap(true, Ordering::SeqCst) {
            tracing::warn!("{text}: the others evaluate what it was evaluating");
        }
        text
    }
}

impl Drop for RemoteWorker {
    fn drop(&mut self) {
        lock(&self.input).take();
        if self.wait(END_LIMIT).is_none() {
            self.kill();
        }
    }
}

impl OpenLines {
    /// Passes lines on until the output ends: results to those that wait for them, the first other one to `first`.
    fn receive(&self, output: ChildStdout, first: &Sender<String>) {
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { break };
            let reply: Option<Value> = serde_json::from_str(&line).ok();
            let id = reply.as_ref().and_then(|reply| reply.get("id")?.as_str().map(str::to_owned));
            let receiver = id.and_then(|id| lock(&self.waiting).as_mut()?.remove(&id));
            match receiver.zip(reply) {
                // It waits, unless its time is over.
                Some((receiver, reply)) => drop(receiver.send(reply)),
                // Only the first one is read.
                None => drop(first.send(line)),
            }
        }
        // Dropping the senders ends the waiting of all.
        lock(&self.waiting).take();
    }

    /// Notes why nothing is evaluated any more.
    fn end(&self, why: &str) {
        lock(&self.ended).get_or_insert_with(|| why.to_owned());
        lock(&self.waiting).take();
    }
}

fn unusable(command: &str, what: &str) -> RunError {
    RunError::usage(format_args!("the worker `{command}` {what}")).hint(
        "it is a command that starts `blis serve --stdio --suite SUITE` on another machine, as `ssh HOST blis serve …`",
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::result_figures::Traits;

    /// A worker that replies to the hello and to each request after it with the next of `replies`.
    fn worker(folder: &tempfile::TempDir, replies: &[Value]) -> RemoteWorker {
        let hello = json!({"host": host(), "suites": {}, "threads": 3});
        let mut command = String::new();
        for (number, line) in std::iter::once(&hello).chain(replies).enumerate() {
            let file = folder.path().join(number.to_string());
            fs::write(&file, format!("{line}\n")).expect("written");
            command.push_str(&format!("read request; cat {}; ", file.display()));
        }
        RemoteWorker::start(&format!("{command} cat > /dev/null"), &BTreeMap::new()).expect("a worker")
    }

    fn result(status: EvaluationStatus) -> Value {
        let result = EvaluationResult::invalid(status, "too late".to_owned(), Traits::default());
        let mut line = serde_json::to_value(result).expect("a document");
        line["id"] = json!("7");
        line
    }

    #[test]
    fn results_are_those_that_were_sent() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut late = result(EvaluationStatus::Limit);
        late["depends_on_clock"] = json!(true);
        let busy = json!({"id": "7", "error": "busy", "retry_after_s": 1});
        let worker = worker(&folder, &[busy, late, result(EvaluationStatus::Trap)]);
        assert_eq!(worker.threads(), 3);
        let request = EvaluationRequest { id: Some(json!("mine")), ..EvaluationRequest::default() };
        for (status, depends_on_clock) in [(EvaluationStatus::Limit, true), (EvaluationStatus::Trap, false)] {
            let found = worker.evaluate(7, &request, Duration::from_secs(5)).expect("a result");
            let expected = EvaluationResult::invalid(status, "too late".to_owned(), Traits::default());
            assert_eq!(found, EvaluationResult { id: Some("mine".to_owned()), depends_on_clock, ..expected });
        }
    }

    #[test]
    fn a_worker_that_cannot_evaluate_has_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let (request, wall) = (EvaluationRequest::default(), Duration::from_secs(5));
        for (reply, why) in [
            (result(EvaluationStatus::HostError), "cannot evaluate: too late"),
            (json!({"id": "7", "error": "the budget is used up"}), "evaluates nothing: the budget is used up"),
            (json!({"id": "7", "schema": 2}), "has sent a result that cannot be read: missing field `status`"),
        ] {
            let worker = worker(&folder, &[reply]);
            assert_eq!(worker.evaluate(7, &request, wall), Err(why.to_owned()));
            assert_eq!(worker.evaluate(8, &request, wall), Err(why.to_owned()), "it is not asked again");
        }
    }
}
