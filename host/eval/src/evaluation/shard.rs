//! One evaluation on several machines: each machine runs every n-th simulation and writes the summaries to a file;
//! `blis evaluate merge` reads the files and runs the cascade. The machines decide nothing, so that neither the order nor the
//! number of parts changes the results. With many parts in one folder, machines take the next one that none has begun
//! ([`ShardChoice::Next`]), so that no machine waits for a slower one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use blis_diag::read_bytes;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::candidate::CandidatePolicy;
use super::context::{EvaluationContext, EvaluationSuite};
use super::evaluate::{ReadyCandidate, finish, raise_wall, ready};
use super::isolated::failed;
use super::options::{EvaluationOptions, GRACE, host};
use crate::cancel::CancelHandle;
use crate::cascade::{CascadeOptions, PolicyRole, RunSource, RunSummary, StagePlan, Task, roles, run_cascade};
use crate::error::RunError;
use crate::feedback;
use crate::result::{EvaluationResult, EvaluationStatus};
use crate::result_figures::Traits;
use crate::suite::{Split, Suite, hex};
use crate::worker::{self, TimeLimit, WorkerSettings, wall};

/// Longer files are refused as parts of an evaluation.
const BYTES_MAX: u64 = 64 << 20;

/// Which part of the simulations: the `index`-th of `count`, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: usize,
    count: usize,
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        match parts {
            Some((index, count)) if index < count && count <= MOST_PARTS => Ok(Self { index, count }),
            _ => Err(format!("write I/N with I from 0 to N − 1 and N at most {MOST_PARTS}, as in 0/4, or next/N")),
        }
    }
}

/// Most parts of an evaluation: more than any has simulations.
const MOST_PARTS: usize = 100_000;

/// The parts that a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardChoice {
    /// One part.
    One(Shard),
    /// Of `count` parts, one after the other those that no other process has begun; then those that none has written.
    Next { count: usize },
}

impl std::str::FromStr for ShardChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("next/").map(str::parse) {
            Some(Ok(count)) if (1..=MOST_PARTS).contains(&count) => Ok(Self::Next { count }),
            Some(_) => Err(format!("write next/N with N from 1 to {MOST_PARTS}")),
            None => text.parse().map(Self::One),
        }
    }
}

impl Shard {
    fn file(self, out: &Path) -> PathBuf {
        out.join(format!("part-{}-of-{}.json", self.index, self.count))
    }

    /// Whether this process is the first to begin the part: it creates a file that says so.
    fn claim(self, out: &Path) -> std::io::Result<bool> {
        fs::create_dir_all(out)?;
        let claim = self.file(out).with_extension("begun");
        match fs::OpenOptions::new().write(true).create_new(true).open(claim) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Calls `write` for each of `count` parts in `out` that no other process has begun, then for those that none has
/// written: the process that began them may have died, or be slow. Equal parts have equal runs, whichever process writes
/// them.
///
/// # Errors
/// If a file cannot be created, or that of `write`.
pub fn write_next(
    count: usize,
    out: &Path,
    mut write: impl FnMut(Shard) -> Result<(), RunError>,
) -> Result<(), RunError> {
    let parts = (0..count).map(|index| Shard { index, count });
    for shard in parts.clone() {
        if !shard.file(out).exists() && shard.claim(out).map_err(|error| cannot_write(out, &error))? {
            write(shard)?;
        }
    }
    // Processes that have nothing left to begin start at different parts.
    let first = std::process::id() as usize % count;
    for shard in parts.cycle().skip(first).take(count) {
        if !shard.file(out).exists() {
            write(shard)?;
        }
    }
    Ok(())
}

fn cannot_write(out: &Path, error: &dyn std::fmt::Display) -> RunError {
    RunError::runtime(format_args!("cannot write into `{}`: {error}", out.display()))
        .hint("check that it is a folder with write permission")
}

/// The runs of one part.
#[derive(Debug, Serialize, Deserialize)]
struct PartFile {
    /// Hash of the inputs that all parts must share.
    plan: String,
    index: usize,
    count: usize,
    suite: String,
    until: Split,
    epoch: u64,
    feedback_bytes: usize,
    /// SHA-256 of the bytes of the incumbent, if there is one.
    incumbent: Option<String>,
    /// SHA-256 of the candidates and their runs, as they are written.
    runs_sha256: String,
    candidates: Vec<CandidatePart>,
}

#[derive(Debug, Serialize, Deserialize)]
struct CandidatePart {
    file: String,
    sha256: String,
    traits: Traits,
    /// The result of a candidate that cannot run.
    invalid: Option<EvaluationResult>,
    runs: Vec<RunPart>,
}

#[derive(Debug, Serialize, Deserialize)]
struct RunPart {
    role: PolicyRole,
    scenario: usize,
    seed: u64,
    summary: Option<RunSummary>,
    /// Present if `summary` is missing.
    failed: Option<EvaluationResult>,
}

/// Runs the part `shard` of the simulations for `candidates`, each in a worker, and writes it to a file in `out`. Only
/// for a process with a single thread.
///
/// # Errors
/// If a process cannot be started or the file cannot be written.
pub fn write(
    prepared: &EvaluationSuite,
    candidates: &[CandidatePolicy],
    incumbent: Option<&CandidatePolicy>,
    options: &EvaluationOptions,
    shard: Shard,
    out: &Path,
    settings: &WorkerSettings,
) -> Result<(), RunError> {
    let mut number = 0;
    let mut parts = Vec::new();
    for candidate in candidates {
        let start = Instant::now();
        let work = || -> Result<_, RunError> {
            wall::arm();
            let pool = rayon::ThreadPoolBuilder::new().num_threads(settings.threads).build();
            let pool = pool.map_err(RunError::runtime)?;
            prepared.begin();
            let part = pool.install(|| part(prepared, candidate, incumbent, options, shard, number));
            Ok((part, prepared.added()))
        };
        // The wall limit is that of a whole evaluation; a part takes less.
        let worker = worker::start(settings, TimeLimit::Total(options.wall + GRACE), work)?;
        match worker.wait() {
            Ok(done) => {
                let ((part, next), (runs, workloads)) = done?;
                prepared.keep_added(runs, workloads);
                number = next;
                parts.push(part);
            }
            Err(failure) => {
                let result = failed(prepared, &candidate.sha256, Traits::default(), options, &failure, start.elapsed());
                parts.push(CandidatePart { invalid: Some(result), ..CandidatePart::new(candidate, Traits::default()) });
            }
        }
    }
    let mut file = PartFile {
        plan: String::new(),
        index: shard.index,
        count: shard.count,
        suite: prepared.suite.name_or_file(),
        until: options.until,
        epoch: options.epoch,
        feedback_bytes: options.feedback_bytes,
        incumbent: incumbent.map(|incumbent| incumbent.sha256.clone()),
        runs_sha256: String::new(),
        candidates: parts,
    };
    file.plan = file.planned(prepared);
    file.runs_sha256 = file.digest();
    fs::create_dir_all(out).map_err(|error| cannot_write(out, &error))?;
    let path = shard.file(out);
    // Written completely or not at all: another machine may read the folder at the same time.
    let draft = path.with_extension(format!("tmp-{}", std::process::id()));
    let text = serde_json::to_vec(&file).map_err(RunError::runtime)?;
    fs::write(&draft, text).and_then(|()| fs::rename(&draft, &path)).map_err(|error| cannot_write(out, &error))
}

/// The runs of one candidate, and the number of its tasks and those of the candidates before it, which is `number` at
/// first.
fn part(
    prepared: &EvaluationSuite,
    candidate: &CandidatePolicy,
    incumbent: Option<&CandidatePolicy>,
    options: &EvaluationOptions,
    shard: Shard,
    mut number: usize,
) -> (CandidatePart, usize) {
    let handle: Arc<CancelHandle> = Arc::default();
    let mut part = CandidatePart::new(candidate, candidate.traits());
    match ready(prepared, candidate, incumbent, options, &handle) {
        Ok(ReadyCandidate { context, .. }) => {
            raise_wall(prepared, options);
            let tasks = tasks(&prepared.suite, options.until, options.epoch, incumbent.is_some());
            let mine = mine(tasks, &mut number, shard);
            part.runs = mine.par_iter().map(|task| run(&context, task, part.traits, &handle)).collect();
        }
        Err(document) => part.invalid = Some(*document),
    }
    (part, number)
}

impl CandidatePart {
    fn new(candidate: &CandidatePolicy, traits: Traits) -> Self {
        let (file, sha256) = (candidate.file.clone(), candidate.sha256.clone());
        Self { file, sha256, traits, invalid: None, runs: Vec::new() }
    }
}

/// Every simulation that the cascade may request: a part cannot predict at which stage the cascade will stop.
fn tasks(suite: &Suite, until: Split, epoch: u64, incumbent: bool) -> Vec<Task> {
    let roles = roles(suite, incumbent);
    let mut tasks = Vec::new();
    for split in [Split::Smoke, Split::Train, Split::Select].into_iter().filter(|&split| split <= until) {
        for (scenario, seeds) in StagePlan::new(suite, split, epoch).scenarios {
            for seed in seeds {
                tasks.extend(roles.iter().map(|&role| Task { role, scenario, seed }));
            }
        }
    }
    tasks
}

/// The tasks of one candidate that the part `index` of `count` runs; `number` counts the tasks of all candidates.
fn mine(tasks: Vec<Task>, number: &mut usize, Shard { index, count }: Shard) -> Vec<Task> {
    let is_mine = |_: &Task| {
        *number += 1;
        (*number - 1) % count == index
    };
    tasks.into_iter().filter(is_mine).collect()
}

fn run(context: &EvaluationContext<'_>, task: &Task, traits: Traits, handle: &Arc<CancelHandle>) -> RunPart {
    let Task { role, scenario, seed } = *task;
    let (summary, failed) = match context.run(std::slice::from_ref(task)) {
        Ok(mut summary) => (summary.pop(), None),
        Err((role, failure)) => (None, Some(super::evaluate::invalid(role, &failure, traits, handle))),
    };
    RunPart { role, scenario, seed, summary, failed }
}

impl PartFile {
    /// The plan hash under the suite of `prepared`.
    fn planned(&self, prepared: &EvaluationSuite) -> String {
        let Self { until, epoch, feedback_bytes, count, incumbent, .. } = self;
        let mut text = format!("{}:{until}:{epoch}:{}:{count}:{feedback_bytes}:{incumbent:?}", prepared.hash(), host());
        for candidate in &self.candidates {
            text.push_str(&format!(":{}", candidate.sha256));
        }
        hex(&Sha256::digest(text))
    }

    fn digest(&self) -> String {
        hex(&Sha256::digest(serde_json::to_vec(&self.candidates).unwrap_or_default()))
    }

    /// Checks that the file is the part that it claims to be, and complete.
    fn check(&self, prepared: &EvaluationSuite) -> Result<(), RunError> {
        let &Self { index, count, until, epoch, .. } = self;
        let wrong = |message: String| {
            Err(RunError::usage(format_args!("part {index} {message}"))
                .hint("run it again with `blis evaluate --shard`"))
        };
        if index >= count {
            return wrong(format!("is not one of {count}"));
        }
        if self.digest() != self.runs_sha256 {
            return wrong("has changed since it was written".to_owned());
        }
        if self.planned(prepared) != self.plan {
            let suite = &prepared.suite.name;
            return wrong(format!("belongs to another version of the suite `{suite}` or of blis"));
        }
        let mut number = 0;
        for candidate in self.candidates.iter().filter(|candidate| candidate.invalid.is_none()) {
            let tasks = tasks(&prepared.suite, until, epoch, self.incumbent.is_some());
            let ran = candidate.runs.iter().map(RunPart::task);
            if !ran.eq(mine(tasks, &mut number, Shard { index, count })) {
                return wrong(format!("does not have the expected runs of `{}`", candidate.file));
            }
        }
        Ok(())
    }
}

impl RunPart {
    fn task(&self) -> Task {
        Task { role: self.role, scenario: self.scenario, seed: self.seed }
    }
}

/// Summaries that parts have computed.
struct RunTable(BTreeMap<Task, Result<RunSummary, EvaluationResult>>);

impl RunSource for RunTable {
    /// The result of a run that failed, or of one that is missing.
    type Error = Box<EvaluationResult>;

    fn run(&self, tasks: &[Task]) -> Result<Vec<RunSummary>, Self::Error> {
        let one = |task: &Task| match self.0.get(task) {
            Some(Ok(summary)) => Ok(summary.clone()),
            Some(Err(document)) => Err(Box::new(document.clone())),
            None => {
                let message = format!("the run of scenario {} under seed {} is missing", task.scenario, task.seed);
                Err(Box::new(EvaluationResult::invalid(EvaluationStatus::HostError, message, Traits::default())))
            }
        };
        tasks.iter().map(one).collect()
    }
}

/// The results of all candidates, from the parts in `dirs`.
///
/// # Errors
/// If parts are missing, or belong to different evaluations, or to another suite or program version than this one.
pub fn merge(dirs: &[PathBuf]) -> Result<Vec<EvaluationResult>, RunError> {
    let mut parts: Vec<PartFile> = Vec::new();
    for dir in dirs {
        parts.extend(read(dir)?);
    }
    parts.sort_by_key(|part| part.index);
    let Some(first) = parts.first() else {
        return Err(RunError::usage("there are no parts").hint("`blis evaluate --shard I/N --out DIR` writes them"));
    };
    if let Some(other) = parts.iter().find(|part| part.plan != first.plan) {
        return Err(RunError::usage(format_args!(
            "part {} belongs to another evaluation than part {}",
            other.index, first.index
        ))
        .hint("candidates, suite, stage, epoch, number of parts and version of blis must be the same for all"));
    }
    parts.dedup_by(|one, other| one.index == other.index && one.runs_sha256 == other.runs_sha256);
    if let Some(pair) = parts.windows(2).find(|pair| pair[0].index == pair[1].index) {
        return Err(RunError::usage(format_args!("there are two different parts {}", pair[0].index))
            .hint("keep the correct one, or run it again with `blis evaluate --shard`"));
    }
    let count = parts[0].count;
    let missing = (0..count).filter(|index| parts.binary_search_by_key(index, |part| part.index).is_err());
    let missing: Vec<String> = missing.take(MAX_LISTED).map(|index| format!("{index}/{count}")).collect();
    if !missing.is_empty() {
        return Err(RunError::usage(format_args!("parts are missing: {}", missing.join(", ")))
            .hint("run them with `blis evaluate --shard`, and merge again"));
    }
    let prepared = EvaluationSuite::new(Suite::open(&parts[0].suite).map_err(RunError::refused)?)?;
    parts.iter().try_for_each(|part| part.check(&prepared))?;
    Ok((0..parts[0].candidates.len()).map(|number| merged_result(&prepared, &parts, number)).collect())
}

/// Number of missing parts that a message lists.
const MAX_LISTED: usize = 20;

fn merged_result(prepared: &EvaluationSuite, parts: &[PartFile], number: usize) -> EvaluationResult {
    let PartFile { until, epoch, feedback_bytes, .. } = parts[0];
    let about = &parts[0].candidates[number];
    let all = || parts.iter().filter_map(|part| part.candidates.get(number));
    // A candidate may have failed to load on one machine only.
    let document = match all().find_map(|candidate| candidate.invalid.as_ref()) {
        Some(document) => document.clone(),
        None => {
            let table = all().flat_map(|candidate| &candidate.runs).filter_map(|run| {
                let summary = run.summary.clone().map(Ok).or(run.failed.clone().map(Err))?;
                Some((run.task(), summary))
            });
            let table = RunTable(table.collect());
            let incumbent = parts[0].incumbent.is_some();
            match run_cascade(&prepared.suite, &CascadeOptions { until, epoch, train_seeds: None, incumbent }, &table) {
                Ok(cascade) => {
                    let mut document = EvaluationResult::from_cascade(&prepared.suite, &cascade, about.traits);
                    feedback::fill(&mut document, &prepared.suite, &cascade, None, &[], feedback_bytes);
                    document
                }
                Err(document) => *document,
            }
        }
    };
    finish(document, &about.sha256, prepared, feedback_bytes)
}

fn read(dir: &Path) -> Result<Vec<PartFile>, RunError> {
    let cannot = |path: &Path, error: &dyn std::fmt::Display| {
        RunError::usage(format_args!("`{}` cannot be read: {error}", path.display()))
            .hint("it must be a part that `blis evaluate --shard I/N --out DIR` wrote")
    };
    let entries = fs::read_dir(dir).map_err(|error| cannot(dir, &error))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let part = |path: &PathBuf| -> Result<PartFile, RunError> {
        let text = read_bytes(path, BYTES_MAX).map_err(|error| cannot(path, &error))?;
        serde_json::from_slice(&text).map_err(|error| cannot(path, &error))
    };
    paths.iter().map(part).collect()
}
