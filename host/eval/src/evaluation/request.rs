//! A request for an evaluation: its form, its checks, and what it asks for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use blis_diag::OpenFolder;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cache::{self, ResultCache};
use super::candidate::{self, CandidatePolicy, native_code};
use super::context::EvaluationSuite;
use super::evaluate::evaluate_cached;
use super::options::{EvaluationOptions, MOST_FEEDBACK_BYTES, NativeCode, checked_sample};
use crate::cascade::StagePlan;
use crate::error::RunError;
use crate::result::EvaluationResult;
use crate::suite::{Scenario, Split, Suite, SuiteGrants};
use blis_plugin::Technology;

/// One request, as a line or by HTTP. Unknown keys are refused, because they may be misspelled limits.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluationRequest {
    pub id: Option<Value>,
    pub candidate: Option<CandidateSource>,
    pub incumbent: Option<CandidateSource>,
    pub suite: Option<String>,
    pub stage: Option<Split>,
    pub epoch: u64,
    /// Restricts train to the first seeds of each scenario; at least 1.
    pub train_seeds: Option<usize>,
    pub feedback_bytes: Option<usize>,
    pub patterns: Option<u32>,
    /// Decisions of each kind and scenario of which the costs of the alternatives are given; 0 for none.
    pub decisions: Option<u32>,
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
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged, expecting = "a candidate is a source text, or an object with `source`, `path` or one component")]
pub enum CandidateSource {
    Source(String),
    Spec(CandidateSpec),
    /// In the form of GEPA: source texts by component.
    Components(BTreeMap<String, String>),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CandidateSpec {
    lang: Option<String>,
    source: Option<String>,
    path: Option<String>,
}

/// Which files a request may name as candidates.
#[derive(Clone, Debug)]
pub enum PathAccess {
    /// All that this process can read: requests come from the program that has started it.
    All,
    /// Those in these folders, through no link: requests come from programs with other rights.
    Within(Arc<[OpenFolder]>),
}

impl PathAccess {
    /// Files in `folders`.
    ///
    /// # Errors
    /// If one is no folder that can be read.
    pub fn within(folders: &[PathBuf]) -> Result<Self, RunError> {
        let open = |path: &PathBuf| {
            OpenFolder::open(path).map_err(|error| {
                RunError::usage(format_args!("the folder `{}` cannot be opened: {error}", path.display()))
                    .hint("`--allow-path` names a folder whose files requests may name")
            })
        };
        Ok(Self::Within(folders.iter().map(open).collect::<Result<_, _>>()?))
    }

    /// The folders, without links; `None` for all.
    pub(super) fn folders(&self) -> Option<Vec<PathBuf>> {
        match self {
            Self::All => None,
            Self::Within(folders) => Some(folders.iter().map(|folder| folder.path().to_owned()).collect()),
        }
    }

    /// Refuses a path by its text. What lies there is not looked at.
    fn check(&self, path: &str) -> Result<(), String> {
        let Self::Within(folders) = self else { return Ok(()) };
        if folders.is_empty() {
            return Err("files are not read for requests: send a script as `source`, or start the server with `--allow-path DIR`".to_owned());
        }
        let absolute = absolute(path);
        if folders.iter().any(|folder| folder.name_of(&absolute).is_some()) {
            return Ok(());
        }
        Err("the `path` of the candidate is in no folder of `--allow-path`".to_owned())
    }

    /// The file at `path`. An error says nothing about its content.
    fn read(&self, path: &str, lang: Option<Technology>) -> Result<CandidatePolicy, String> {
        self.check(path)?;
        let Self::Within(folders) = self else {
            let about = std::fs::metadata(path);
            let about = about.map_err(|error| format!("the candidate `{path}` cannot be read: {error}"))?;
            if !about.is_file() {
                return Err(format!("the candidate `{path}` is not a regular file"));
            }
            return CandidatePolicy::read(path, lang).map_err(|failure| failure.text());
        };
        let absolute = absolute(path);
        let found = folders.iter().find_map(|folder| Some((folder, folder.name_of(&absolute)?)));
        let (folder, name) = found.ok_or("the `path` of the candidate is in no folder of `--allow-path`")?;
        let bytes = folder
            .read_bytes(name, candidate::BYTES_MAX)
            .map_err(|error| format!("the candidate `{path}` cannot be read: {error}"))?;
        CandidatePolicy::of_file(path, lang, bytes).map_err(|failure| failure.text())
    }
}

/// `path` from the root, by its text alone.
fn absolute(path: &str) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path))
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

impl Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "busy",
            Self::Budget => "the budget is used up",
            Self::Invalid(message) => message,
        })
    }
}

/// The suites of a server.
pub struct SuiteSet {
    by_name: BTreeMap<String, Arc<EvaluationSuite>>,
    /// Name of the suite of requests that name none.
    default: String,
    paths: PathAccess,
}

/// An evaluation as a request asks for it.
pub(super) struct Job {
    pub prepared: Arc<EvaluationSuite>,
    candidate: QueuedCandidate,
    incumbent: Option<QueuedCandidate>,
    pub options: EvaluationOptions,
    pub id: Option<String>,
}

/// A candidate before it is read. A file is read by a worker, because reading may take long and must not delay the
/// listener.
enum QueuedCandidate {
    Sent(CandidatePolicy),
    File { path: String, lang: Option<Technology>, paths: PathAccess },
}

impl SuiteSet {
    /// The suites called `names`, or in these files. The first one is that of requests that name none. Runs that all
    /// candidates share are kept in `run_cache`.
    ///
    /// # Errors
    /// If a suite cannot be used, or is named twice.
    pub fn open(
        names: &[String],
        run_cache: Option<&Path>,
        paths: PathAccess,
        granted: &SuiteGrants,
    ) -> Result<Self, RunError> {
        let mut by_name = BTreeMap::new();
        let mut default = None;
        for name in names {
            let suite = Suite::open(name).map_err(RunError::refused)?.granted(granted);
            default.get_or_insert_with(|| suite.name.clone());
            if by_name
                .insert(suite.name.clone(), Arc::new(EvaluationSuite::new(suite)?.with_run_cache(run_cache)))
                .is_some()
            {
                return Err(
                    RunError::usage(format_args!("the suite `{name}` is named twice")).hint("leave out one of the two")
                );
            }
        }
        let default = default.ok_or_else(|| RunError::usage("there is no suite").hint("name one with `--suite`"))?;
        Ok(Self { by_name, default, paths })
    }

    /// Generates a workload that workers of a suite had to generate. Returns `false` if there is none.
    pub(super) fn generate_next(&self) -> bool {
        self.by_name.values().any(|suite| suite.generate_next())
    }

    /// Whether there are workloads for [`Self::generate_next`].
    pub(super) fn has_missing(&self) -> bool {
        self.by_name.values().any(|suite| suite.has_missing())
    }

    /// Makes the engines that workers need.
    pub(super) fn prepare_engines(&self) {
        self.by_name.values().for_each(|suite| suite.prepare_engines());
    }

    /// What `request` asks for.
    pub(super) fn job(&self, request: &EvaluationRequest) -> Result<Job, RequestError> {
        let wrong = |message: String| RequestError::Invalid(message);
        let name = request.suite.as_deref().unwrap_or(&self.default);
        let prepared = self.by_name.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.by_name.keys().map(String::as_str).collect();
            wrong(format!("there is no suite `{name}` here: {}", known.join(", ")))
        })?;
        let candidate = request.candidate.as_ref().ok_or_else(|| wrong("there is no `candidate`".to_owned()))?;
        let candidate = candidate.resolve(&self.paths).map_err(wrong)?;
        let incumbent = request.incumbent.as_ref().map(|incumbent| incumbent.resolve(&self.paths));
        let incumbent = incumbent.transpose().map_err(wrong)?;
        let wall = request.wall_s.unwrap_or(prepared.suite.limits.wall_s);
        if !(wall > 0.0 && wall <= prepared.suite.limits.wall_s) {
            let most = prepared.suite.limits.wall_s;
            return Err(wrong(format!("`wall_s` is {wall}; it must be above 0 and at most {most}")));
        }
        let until = request.stage.unwrap_or(Split::Train);
        if until == Split::Test {
            return Err(wrong("`test` is held out: `blis evaluate held-out` runs it".to_owned()));
        }
        if request.train_seeds == Some(0) {
            return Err(wrong("`train_seeds` is 0; it must be at least 1".to_owned()));
        }
        let feedback_bytes = request.feedback_bytes.unwrap_or(8000);
        if feedback_bytes > MOST_FEEDBACK_BYTES {
            let what = format!("`feedback_bytes` is {feedback_bytes}; it must be at most {MOST_FEEDBACK_BYTES}");
            return Err(wrong(what));
        }
        let options = EvaluationOptions {
            until,
            epoch: request.epoch,
            train_seeds: request.train_seeds,
            wall: Duration::from_secs_f64(wall),
            feedback_bytes,
            patterns: checked_sample("patterns", request.patterns.unwrap_or(0)).map_err(wrong)?,
            decisions: checked_sample("decisions", request.decisions.unwrap_or(0)).map_err(wrong)?,
            parallel: false,
            only: part(&prepared.suite, request).map_err(wrong)?,
            parameters: Vec::new(),
            native: NativeCode::Refused,
        };
        let id = request.id.as_ref().map(id_text);
        Ok(Job { prepared: Arc::clone(prepared), candidate, incumbent, options, id })
    }

    /// The hashes of the suites, by name.
    pub(super) fn hashes(&self) -> BTreeMap<String, String> {
        self.by_name.iter().map(|(name, suite)| (name.clone(), suite.hash().to_owned())).collect()
    }

    /// Wall limit of `request`, and the request with the name of its suite.
    pub(super) fn named(&self, request: &EvaluationRequest) -> (Duration, EvaluationRequest) {
        let suite = request.suite.as_ref().unwrap_or(&self.default);
        let limit = self.by_name.get(suite).map_or(0.0, |prepared| prepared.suite.limits.wall_s);
        let wall = Duration::from_secs_f64(request.wall_s.unwrap_or(limit).clamp(0.0, limit.max(0.0)));
        (wall, EvaluationRequest { suite: Some(suite.clone()), ..request.clone() })
    }

    /// Description of the suites, without the held-out split.
    pub fn task(&self) -> Value {
        let suite = |prepared: &Arc<EvaluationSuite>| {
            let suite = &prepared.suite;
            let scenarios = suite.scenarios.iter().filter_map(|scenario| {
                let splits = open_splits(&scenario.splits);
                let seeds: BTreeMap<&str, u32> =
                    splits.iter().map(|split| (split.into_str(), suite.seeds_of(*split))).collect();
                let message = json!({"id": scenario.name, "family": scenario.family, "splits": splits, "seeds": seeds});
                (!splits.is_empty()).then_some(message)
            });
            json!({
                "suite": suite.name,
                "about": suite.about,
                "version": suite.version,
                "baseline": suite.baseline,
                "reference": suite.reference,
                "reference_policies": suite.reference_policies,
                "decides": suite.decides.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
                "weights": suite.weights.text(),
                "limits": {"wall_s": suite.limits.wall_s},
                "scenarios": scenarios.collect::<Vec<_>>(),
            })
        };
        let suites: Vec<Value> = self.by_name.values().map(suite).collect();
        let first = self.by_name.get(&self.default).map(suite).unwrap_or_default();
        json!({
            "suite": self.default,
            "about": first["about"],
            "scenarios": first["scenarios"],
            "suites": suites,
            "interface": include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/rhai/README.md")),
        })
    }
}

impl CandidateSource {
    /// Its text, if it was sent; else empty.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Source(source) => source,
            Self::Spec(spec) => spec.source.as_deref().unwrap_or_default(),
            Self::Components(texts) => texts.values().next().map_or("", String::as_str),
        }
    }

    /// Its file, if it has one.
    pub(super) fn path(&self) -> Option<&str> {
        match self {
            Self::Spec(spec) => spec.path.as_deref(),
            Self::Source(_) | Self::Components(_) => None,
        }
    }

    fn resolve(&self, paths: &PathAccess) -> Result<QueuedCandidate, String> {
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
                    (None, Some(path)) if path != "-" => {
                        paths.check(path)?;
                        Ok(QueuedCandidate::File { path: path.clone(), lang, paths: paths.clone() })
                    }
                    _ => Err("a candidate has a `source` (rhai) or a `path`".to_owned()),
                }
            }
        }
    }
}

impl Job {
    /// Whether the request has the texts of its policies: then nothing is read from files.
    pub(super) fn is_sent(&self) -> bool {
        let is_sent = |candidate: &QueuedCandidate| matches!(candidate, QueuedCandidate::Sent(_));
        is_sent(&self.candidate) && self.incumbent.as_ref().is_none_or(is_sent)
    }

    /// The key of the result in the cache, if the request has the texts of its policies.
    pub(super) fn key(&self) -> Option<String> {
        let sent = |candidate: &QueuedCandidate| match candidate {
            QueuedCandidate::Sent(candidate) => Some(candidate.clone()),
            QueuedCandidate::File { .. } => None,
        };
        let candidate = sent(&self.candidate)?;
        let incumbent = match &self.incumbent {
            Some(incumbent) => Some(sent(incumbent)?),
            None => None,
        };
        Some(cache::key(&self.prepared, &candidate, incumbent.as_ref(), &self.options))
    }

    /// Evaluates the candidate. `identify` gets it, and the key of its result in the cache, before anything is done with it.
    pub(super) fn run(
        &self,
        cache: Option<&ResultCache>,
        identify: impl FnOnce(&CandidatePolicy, String),
    ) -> Result<EvaluationResult, String> {
        let Self { prepared, candidate, incumbent, options, id } = self;
        let (candidate, incumbent) = (candidate.read()?, incumbent.as_ref().map(QueuedCandidate::read).transpose()?);
        identify(&candidate, cache::key(prepared, &candidate, incumbent.as_deref(), options));
        let document = evaluate_cached(prepared, &candidate, incumbent.as_deref(), options, cache);
        Ok(EvaluationResult { id: id.clone(), ..document })
    }
}

impl QueuedCandidate {
    fn read(&self) -> Result<Cow<'_, CandidatePolicy>, String> {
        match self {
            Self::Sent(candidate) => Ok(Cow::Borrowed(candidate)),
            Self::File { path, lang, paths } => read_file(path, *lang, paths).map(Cow::Owned),
        }
    }
}

/// Reads a script or a component. Of other files nothing is reported, least of all their content, which the messages
/// of a script compiler would quote; and reading a pipe might never end.
fn read_file(path: &str, lang: Option<Technology>, paths: &PathAccess) -> Result<CandidatePolicy, String> {
    let candidate = paths.read(path, lang)?;
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
        let names: Vec<&str> = open.iter().map(|split| split.into_str()).collect();
        let stage = stage.map(<&str>::from).unwrap_or_default();
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
    let plan = StagePlan::new(suite, split, request.epoch);
    let all = plan.scenarios.iter().find(|(scenario, _)| *scenario == index).map_or(Vec::new(), |(_, all)| all.clone());
    let seeds = match (turn, request.seed) {
        (None, None) => all,
        (Some(turn), None) => vec![*all.get(turn).ok_or_else(|| format!("`{name}` has {} seeds", all.len()))?],
        (None, Some(seed)) => vec![seed],
        (Some(_), Some(_)) => return Err("`example_id` with `#` already names a seed".to_owned()),
    };
    Ok(Some(StagePlan { scenarios: vec![(index, seeds)], ..plan }))
}

/// Strings as they are, all other values as JSON.
pub fn id_text(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}
