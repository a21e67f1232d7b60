//! The evaluation server: one process that keeps suites in memory and evaluates one candidate after the other.
//!
//! ```text
//! lines on stdin ─┐                            ┌─ worker ─┐
//!                 ├─ EvaluationServer::submit ►│  queue   │──► reply: a line on stdout, or an HTTP response
//! HTTP requests  ─┘   full: busy               └─ worker ─┘
//! ```
//!
//! Each request has its own run budget, and workers share nothing that a candidate can change, so that requests do not
//! affect each other. A result is written to the cache, if there is one, before its reply is sent.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::cache::ResultCache;
use super::candidate::{CandidatePolicy, native_code};
use super::context::EvaluationSuite;
use super::evaluate::evaluate_cached;
use super::options::{EvaluationOptions, NativeCode};
use crate::cancel::{CancelHandle, CancelReason};
use crate::cascade::StagePlan;
use crate::error::RunError;
use crate::result::EvaluationResult;
use crate::suite::{Scenario, Split, Suite};
use blis_plugin::Technology;

/// One request, as a line or by HTTP. Unknown keys are refused, because they may be misspelled limits.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluationRequest {
    pub id: Option<Value>,
    pub candidate: Option<CandidateSource>,
    pub incumbent: Option<CandidateSource>,
    pub suite: Option<String>,
    pub stage: Option<Split>,
    pub epoch: u64,
    pub feedback_bytes: Option<usize>,
    pub wall_s: Option<f64>,
    /// Restricts the evaluation to one scenario.
    pub scenario: Option<String>,
    /// Restricts the evaluation to one seed.
    pub seed: Option<u64>,
    /// `scenario` or `scenario#number`: the seed with that number in the split of the scenario.
    pub example_id: Option<String>,
    pub example_ids: Option<Vec<String>>,
    pub cancel: Option<Value>,
    pub quit: bool,
    pub task: bool,
    pub status: bool,
}

/// The candidate of a request: its source, its path, or its components.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a candidate is a source text, or an object with `source`, `path` or one component")]
pub enum CandidateSource {
    Source(String),
    Spec(CandidateSpec),
    /// In the form of GEPA: source texts by component.
    Components(BTreeMap<String, String>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CandidateSpec {
    lang: Option<String>,
    source: Option<String>,
    path: Option<String>,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestError {
    /// The queue is full.
    Busy,
    /// The number of evaluations has reached the budget.
    Budget,
    /// The request is invalid, with the message.
    Invalid(String),
}

/// Called with the evaluation result, or with the message of an error.
pub type Reply = Box<dyn FnOnce(Result<EvaluationResult, String>) + Send>;

/// A candidate in the queue. A file is read by the worker, because reading may take long and must not delay the
/// listener.
enum QueuedCandidate {
    Sent(CandidatePolicy),
    File { path: String, lang: Option<Technology> },
}

struct Job {
    prepared: Arc<EvaluationSuite>,
    candidate: QueuedCandidate,
    incumbent: Option<QueuedCandidate>,
    options: EvaluationOptions,
    handle: Arc<CancelHandle>,
    id: Option<String>,
    reply: Reply,
}

/// The state that all requests share.
pub struct EvaluationServer {
    suites: BTreeMap<String, Arc<EvaluationSuite>>,
    default_suite: String,
    queue: Mutex<Option<SyncSender<Job>>>,
    /// Handles of queued and running requests by id, for `cancel`.
    handles: Mutex<HashMap<String, Arc<CancelHandle>>>,
    running: AtomicUsize,
    waiting: AtomicUsize,
    completed: AtomicU64,
    accepted: AtomicU64,
    budget: Option<u64>,
    threads: usize,
    started: Instant,
}

/// Settings of a server.
#[derive(Debug)]
pub struct ServerSettings {
    /// Names or files; the first one is used by requests that name no suite.
    pub suites: Vec<String>,
    /// Candidates evaluated at a time; `None`: one per core.
    pub threads: Option<NonZeroUsize>,
    /// Capacity of the queue, requests.
    pub queue: NonZeroUsize,
    /// Number of evaluations after which further requests are refused.
    pub budget: Option<u64>,
    /// Folder of the result cache.
    pub cache: Option<PathBuf>,
}

/// Starts a server, calls `listen` to accept requests, and waits until the accepted requests are finished.
///
/// # Errors
/// If a suite cannot be used, or the error of `listen`.
pub fn serve(
    settings: &ServerSettings,
    listen: impl FnOnce(&Arc<EvaluationServer>) -> Result<(), RunError>,
) -> Result<(), RunError> {
    let mut suites = BTreeMap::new();
    for name in &settings.suites {
        let suite = Suite::open(name).map_err(RunError::refused)?;
        let known = suites.insert(suite.name.clone(), Arc::new(EvaluationSuite::new(suite)?));
        if known.is_some() {
            return Err(
                RunError::usage(format_args!("the suite `{name}` is named twice")).hint("leave out one of the two")
            );
        }
    }
    let default_suite = Suite::open(&settings.suites[0]).map_err(RunError::refused)?.name;
    let cores = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let threads = settings.threads.unwrap_or_else(cores).get();
    let (sender, receiver) = sync_channel(settings.queue.get());
    let server = Arc::new(EvaluationServer {
        suites,
        default_suite,
        queue: Mutex::new(Some(sender)),
        handles: Mutex::default(),
        running: AtomicUsize::new(0),
        waiting: AtomicUsize::new(0),
        completed: AtomicU64::new(0),
        accepted: AtomicU64::new(0),
        budget: settings.budget,
        threads,
        started: Instant::now(),
    });
    let receiver = Arc::new(Mutex::new(receiver));
    let cache = settings.cache.as_deref().map(ResultCache::new);
    let workers: Vec<JoinHandle<()>> = (0..threads)
        .map(|_| {
            let (server, receiver, cache) = (Arc::clone(&server), Arc::clone(&receiver), cache.clone());
            thread::spawn(move || server.work(&receiver, cache.as_ref()))
        })
        .collect();
    let ended = listen(&server);
    // No further request can arrive; the workers finish the accepted ones.
    lock(&server.queue).take();
    for worker in workers {
        if worker.join().is_err() {
            return Err(RunError::runtime("a worker ended before its time"));
        }
    }
    ended
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EvaluationServer {
    fn work(&self, jobs: &Mutex<Receiver<Job>>, cache: Option<&ResultCache>) {
        loop {
            let job = lock(jobs).recv();
            let Ok(job) = job else { return };
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            self.running.fetch_add(1, Ordering::SeqCst);
            let result = job.run(cache);
            if let Some(id) = &job.id {
                lock(&self.handles).remove(id);
            }
            self.running.fetch_sub(1, Ordering::SeqCst);
            self.completed.fetch_add(1, Ordering::SeqCst);
            (job.reply)(result);
        }
    }

    /// Accepts a request, or returns why it is refused. A worker calls `reply` once.
    pub fn submit(&self, request: &EvaluationRequest, reply: Reply) -> Result<(), RequestError> {
        let job = self.job(request, reply)?;
        if self.budget.is_some_and(|budget| self.accepted.load(Ordering::SeqCst) >= budget) {
            return Err(RequestError::Budget);
        }
        let queue = lock(&self.queue).clone();
        let Some(queue) = queue else { return Err(RequestError::Invalid("the server is stopping".to_owned())) };
        let known = job.id.clone().map(|id| (id, Arc::clone(&job.handle)));
        if let Some((id, handle)) = known.clone() {
            match lock(&self.handles).entry(id) {
                Entry::Occupied(id) => {
                    let message = format!("the id `{}` is in use: wait for its result, or use another id", id.key());
                    return Err(RequestError::Invalid(message));
                }
                Entry::Vacant(free) => free.insert(handle),
            };
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        queue.try_send(job).map_err(|error| {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            if let Some((id, _)) = known {
                lock(&self.handles).remove(&id);
            }
            match error {
                TrySendError::Full(_) => RequestError::Busy,
                TrySendError::Disconnected(_) => RequestError::Invalid("the server is stopping".to_owned()),
            }
        })?;
        self.accepted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn job(&self, request: &EvaluationRequest, reply: Reply) -> Result<Job, RequestError> {
        let wrong = |message: String| RequestError::Invalid(message);
        let name = request.suite.as_deref().unwrap_or(&self.default_suite);
        let prepared = self.suites.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.suites.keys().map(String::as_str).collect();
            wrong(format!("there is no suite `{name}` here: {}", known.join(", ")))
        })?;
        let candidate = request.candidate.as_ref().ok_or_else(|| wrong("there is no `candidate`".to_owned()))?;
        let candidate = candidate.resolve().map_err(wrong)?;
        let incumbent = request.incumbent.as_ref().map(CandidateSource::resolve).transpose().map_err(wrong)?;
        let wall = request.wall_s.unwrap_or(prepared.suite.limits.wall_s);
        if !(wall > 0.0 && wall <= prepared.suite.limits.wall_s) {
            let most = prepared.suite.limits.wall_s;
            return Err(wrong(format!("`wall_s` is {wall}; it must be above 0 and at most {most}")));
        }
        let until = request.stage.unwrap_or(Split::Train);
        if until == Split::Test {
            return Err(wrong("`test` is held out: `blis evaluate held-out` runs it".to_owned()));
        }
        let options = EvaluationOptions {
            until,
            epoch: request.epoch,
            wall: Duration::from_secs_f64(wall),
            feedback_bytes: request.feedback_bytes.unwrap_or(8000),
            parallel: false,
            only: part(&prepared.suite, request).map_err(wrong)?,
            parameters: Vec::new(),
            native: NativeCode::Refused,
        };
        let id = request.id.as_ref().map(id_text);
        Ok(Job { prepared: Arc::clone(prepared), candidate, incumbent, options, handle: Arc::default(), id, reply })
    }

    /// Cancels the request `id`. Returns whether there was one.
    pub fn cancel(&self, id: &str) -> bool {
        let handle = lock(&self.handles).get(id).cloned();
        handle.inspect(|handle| handle.cancel(CancelReason::Cancelled)).is_some()
    }

    pub fn budget(&self) -> Value {
        json!({"used": self.accepted.load(Ordering::SeqCst), "limit": self.budget})
    }

    pub fn status(&self) -> Value {
        json!({
            "status": "ok",
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_s": self.started.elapsed().as_secs(),
            "threads": self.threads,
            "waiting": self.waiting.load(Ordering::SeqCst),
            "running": self.running.load(Ordering::SeqCst),
            "completed": self.completed.load(Ordering::SeqCst),
            "budget": self.budget(),
        })
    }

    /// Description of the suites, without the held-out split.
    pub fn task(&self) -> Value {
        let suite = |prepared: &Arc<EvaluationSuite>| {
            let suite = &prepared.suite;
            let scenarios = suite.scenarios.iter().filter_map(|scenario| {
                let splits = open_splits(&scenario.splits);
                let seeds: BTreeMap<&str, u32> =
                    splits.iter().map(|split| (split.name(), suite.seeds_of(*split))).collect();
                let message = json!({"id": scenario.name, "family": scenario.family, "splits": splits, "seeds": seeds});
                (!splits.is_empty()).then_some(message)
            });
            json!({
                "suite": suite.name,
                "about": suite.about,
                "baseline": suite.baseline,
                "decides": suite.decides.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
                "weights": suite.weights.text(),
                "limits": {"wall_s": suite.limits.wall_s},
                "scenarios": scenarios.collect::<Vec<_>>(),
            })
        };
        let suites: Vec<Value> = self.suites.values().map(suite).collect();
        let first = self.suites.get(&self.default_suite).map(suite).unwrap_or_default();
        json!({
            "suite": self.default_suite,
            "about": first["about"],
            "scenarios": first["scenarios"],
            "suites": suites,
            "interface": include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/rhai/README.md")),
        })
    }
}

impl CandidateSource {
    fn resolve(&self) -> Result<QueuedCandidate, String> {
        let script = |source: &str| {
            let bytes = source.as_bytes().to_vec();
            QueuedCandidate::Sent(CandidatePolicy::new("candidate.rhai".to_owned(), Technology::Script, bytes))
        };
        match self {
            Self::Source(source) => Ok(script(source)),
            Self::Components(texts) => match texts.values().next() {
                Some(source) if texts.len() == 1 => Ok(script(source)),
                _ => Err("a candidate has a `source` (rhai), a `path`, or one component".to_owned()),
            },
            Self::Spec(CandidateSpec { lang, source, path }) => {
                let lang = match lang.as_deref() {
                    None => None,
                    Some("rhai") => Some(Technology::Script),
                    Some("wasm") => Some(Technology::Component),
                    Some(other) => return Err(format!("`lang` is `{other}`; it must be rhai or wasm")),
                };
                match (source, path) {
                    (Some(source), None) if lang != Some(Technology::Component) => Ok(script(source)),
                    (None, Some(path)) if Technology::of(Path::new(path)) == Some(Technology::Native) => {
                        Err(native_code(path).to_string())
                    }
                    (None, Some(path)) if path != "-" => Ok(QueuedCandidate::File { path: path.clone(), lang }),
                    _ => Err("a candidate has a `source` (rhai) or a `path`".to_owned()),
                }
            }
        }
    }
}

impl Job {
    fn run(&self, cache: Option<&ResultCache>) -> Result<EvaluationResult, String> {
        let Self { prepared, candidate, incumbent, options, handle, id, .. } = self;
        let (candidate, incumbent) = (candidate.read()?, incumbent.as_ref().map(QueuedCandidate::read).transpose()?);
        let document = evaluate_cached(prepared, &candidate, incumbent.as_deref(), options, handle, cache);
        Ok(EvaluationResult { id: id.clone(), ..document })
    }
}

impl QueuedCandidate {
    fn read(&self) -> Result<Cow<'_, CandidatePolicy>, String> {
        match self {
            Self::Sent(candidate) => Ok(Cow::Borrowed(candidate)),
            Self::File { path, lang } => read_file(path, *lang).map(Cow::Owned),
        }
    }
}

/// Reads a script or a component. Of other files nothing is reported, least of all their content, which the messages
/// of a script compiler would quote; and reading a pipe might never end.
fn read_file(path: &str, lang: Option<Technology>) -> Result<CandidatePolicy, String> {
    let about = std::fs::metadata(path);
    let about = about.map_err(|error| format!("the candidate `{path}` cannot be read: {error}"))?;
    if !about.is_file() {
        return Err(format!("the candidate `{path}` is not a regular file"));
    }
    let candidate = CandidatePolicy::read(path, lang).map_err(|failure| failure.text())?;
    let usable = match candidate.technology {
        Technology::Script => Path::new(path).extension().is_some_and(|extension| extension == "rhai"),
        Technology::Component => candidate.bytes.starts_with(b"\0asm"),
        Technology::Native | Technology::BuiltIn => false,
    };
    let message =
        || format!("`{path}` is neither a script (*.rhai) nor a component; send scripts with other names as `source`");
    usable.then_some(candidate).ok_or_else(message)
}

/// The splits that are not held out.
fn open_splits(splits: &[Split]) -> Vec<Split> {
    splits.iter().copied().filter(|&split| split != Split::Test).collect()
}

/// The split under which a scenario runs alone: the requested one; else the first of train, select and smoke to which
/// it belongs.
fn split_of(scenario: &Scenario, stage: Option<Split>) -> Result<Split, String> {
    let open = open_splits(&scenario.splits);
    let Scenario { name, .. } = scenario;
    if open.is_empty() {
        return Err(format!("the scenario `{name}` is held out: `blis evaluate held-out` runs it"));
    }
    let usual = [Split::Train, Split::Select, Split::Smoke];
    let found = usual.into_iter().find(|split| open.contains(split) && stage.is_none_or(|stage| stage == *split));
    found.ok_or_else(|| {
        let names: Vec<&str> = open.iter().map(|split| split.name()).collect();
        let stage = stage.map(Split::name).unwrap_or_default();
        format!("the scenario `{name}` is not of {stage}: `stage` must be {}", names.join(" or "))
    })
}

/// The single scenario, or seed, that the request names.
fn part(suite: &Suite, request: &EvaluationRequest) -> Result<Option<StagePlan>, String> {
    let (name, turn) = match (&request.scenario, &request.example_id) {
        (None, None) if request.seed.is_some() => return Err("`seed` needs a `scenario`".to_owned()),
        (None, None) => return Ok(None),
        (Some(name), None) => (name.as_str(), None),
        (None, Some(example)) => match example.split_once('#') {
            Some((name, turn)) => {
                (name, Some(turn.parse::<usize>().map_err(|_| format!("`{turn}` is not the number of a seed"))?))
            }
            None => (example.as_str(), None),
        },
        (Some(_), Some(_)) => return Err("`scenario` and `example_id` both name a scenario: leave one out".to_owned()),
    };
    let index = suite.scenarios.iter().position(|scenario| scenario.name == name);
    let index = index.ok_or_else(|| format!("there is no scenario `{name}`"))?;
    let split = split_of(&suite.scenarios[index], request.stage)?;
    let all = StagePlan::of(suite, split, request.epoch).seeds;
    let seeds = match (turn, request.seed) {
        (None, None) => all,
        (Some(turn), None) => vec![*all.get(turn).ok_or_else(|| format!("`{name}` has {} seeds", all.len()))?],
        (None, Some(seed)) => vec![seed],
        (Some(_), Some(_)) => return Err("`example_id` with `#` already names a seed".to_owned()),
    };
    Ok(Some(StagePlan { split, scenarios: vec![index], seeds }))
}

/// Strings as they are, all other values as JSON.
pub fn id_text(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}
