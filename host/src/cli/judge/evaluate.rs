//! `blis evaluate`: one verdict per candidate.

use std::io::{self, Write as _};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use super::super::error::Failure;
use super::super::timer::Timer;
use super::super::{print, start_log};
use super::bench::{Bench, Sitting};
use super::cache::{self, Cache};
use super::candidate::Candidate;
use super::native;
use super::shard::{self, Shard};
use super::{Hand, Pull};
use blis_eval::cascade::{Course, Judgement, Part, Who, judge, judge_part};
use blis_eval::feedback::{self, Lesson};
use blis_eval::suite::{Split, Suite};
use blis_eval::verdict::{CostDocument, Hashes, Status, Traits, VerdictDocument};
use blis_plugin::{FaultKind, Technology};

#[derive(Debug, Args)]
pub(in crate::cli) struct EvaluateArgs {
    /// Candidates: files, or `-` for one on standard input. A Rhai script or a WebAssembly component
    #[arg(required = true, value_name = "CANDIDATE")]
    pub candidates: Vec<String>,
    /// What they are judged on: chat, slo-tiers, long-context, or a file
    #[arg(long, value_name = "SUITE", default_value = "chat")]
    pub suite: String,
    /// How far to go, if they are good enough
    #[arg(long, value_enum, value_name = "STAGE", default_value_t = StageName::Train)]
    pub stage: StageName,
    /// What the candidates are written in, if their names do not tell
    #[arg(long, value_enum, value_name = "LANG")]
    pub lang: Option<LangName>,
    /// The best candidate so far: who is worse in train is not run in select
    #[arg(long, value_name = "FILE")]
    pub incumbent: Option<String>,
    /// Other seeds for each number: a search that changes it now and then fits less to what it sees
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub epoch: u64,
    /// Threads [default: one per core]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Seconds for one candidate [default: that of the suite]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub wall_s: Option<f64>,
    /// Most bytes of texts about a candidate; 0 for no texts, which saves time
    #[arg(long, value_name = "N", default_value_t = 8000)]
    pub feedback_bytes: usize,
    /// Run the I-th of N equal parts of all simulations only (I from 0), and write down what they came to: `blis
    /// merge` makes verdicts of it. Texts about single decisions are left out
    #[arg(long, value_name = "I/N", requires = "out")]
    pub shard: Option<Shard>,
    /// Folder for the part
    #[arg(long, value_name = "DIR", requires = "shard")]
    pub out: Option<PathBuf>,
    /// Folder for verdicts: what is known is not run again
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Judge native libraries, too. Each runs in a process of its own, with your rights
    #[arg(long)]
    pub allow_native: bool,
    #[arg(long, hide = true, requires = "allow_native")]
    pub native_here: bool,
    /// Run everything twice, and fail if the answers differ
    #[arg(long)]
    pub verify: bool,
    /// Tell the status by the exit code, too: 2 rejected, 3 trap, 4 limit, 5 gate failed
    #[arg(long)]
    pub strict_exit: bool,
    /// Which messages to print on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = super::super::args::LogLevel::Warn)]
    pub log: super::super::args::LogLevel,
}

/// `--stage`. The held-out split is for `blis report`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum StageName {
    /// A first look
    Smoke,
    /// What a search learns from
    Train,
    /// Other requests, for those that did well
    Select,
}

/// `--lang`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum LangName {
    /// A Rhai script
    Rhai,
    /// A WebAssembly component or module
    Wasm,
}

impl From<StageName> for Split {
    fn from(name: StageName) -> Self {
        match name {
            StageName::Smoke => Self::Smoke,
            StageName::Train => Self::Train,
            StageName::Select => Self::Select,
        }
    }
}

impl From<LangName> for Technology {
    fn from(name: LangName) -> Self {
        match name {
            LangName::Rhai => Self::Script,
            LangName::Wasm => Self::Component,
        }
    }
}

/// A day, as of suites.
const MOST_SECONDS: f64 = 86_400.0;

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds <= MOST_SECONDS);
    seconds.ok_or_else(|| format!("seconds are a number above 0, at most {MOST_SECONDS}"))
}

/// How candidates are judged.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Terms {
    pub until: Split,
    pub epoch: u64,
    pub wall: Duration,
    pub feedback_bytes: usize,
    /// On all threads of the current pool; else one run after the other.
    pub parallel: bool,
    /// In place of all stages.
    pub only: Option<Part>,
    /// Set where they are not the candidate's defaults.
    pub parameters: Vec<(String, f64)>,
    pub native: NativeCode,
}

/// What becomes of native code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::cli) enum NativeCode {
    /// It is not loaded.
    #[default]
    Refused,
    /// It is run in a process of its own, which is killed when time is up.
    InChild,
    /// This is that process.
    Here,
}

/// Runs the command. The exit code is 0 whenever there is a verdict, unless asked otherwise.
pub(in crate::cli) fn dispatch(args: &EvaluateArgs) -> Result<(), Failure> {
    start_log(args.log.into());
    if args.native_here {
        return native::answer(|| judge_here(args));
    }
    let bench = Bench::new(Suite::open(&args.suite).map_err(Failure::usage)?)?;
    let terms = terms(args, &bench);
    let read = |path: &String| Candidate::read(path, args.lang.map(Technology::from));
    let candidates = args.candidates.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let incumbent = args.incumbent.as_ref().map(|path| Candidate::read(path, None)).transpose()?;
    refuse_native(args, &candidates, incumbent.as_ref())?;
    let pool = pool(args)?;
    if let (Some(shard), Some(out)) = (args.shard, &args.out) {
        return pool.install(|| shard::write(&bench, &candidates, incumbent.as_ref(), &terms, shard, out));
    }
    let cache = args.cache.as_deref().map(Cache::new);
    let mut worst = Status::Ok;
    for candidate in &candidates {
        let hand = Arc::default();
        let (incumbent, cache) = (incumbent.as_ref(), cache.as_ref().filter(|_| !args.verify));
        let evaluate = || pool.install(|| evaluate_known(&bench, candidate, incumbent, &terms, &hand, cache));
        let mut document = evaluate();
        if args.verify {
            verify(&mut document, &evaluate());
        }
        print_verdict(&document, candidates.len() > 1)?;
        worst = worse(worst, document.status);
    }
    ended(worst, args.strict_exit)
}

fn terms(args: &EvaluateArgs, bench: &Bench) -> Terms {
    Terms {
        until: args.stage.into(),
        epoch: args.epoch,
        wall: Duration::from_secs_f64(args.wall_s.unwrap_or(bench.suite.limits.wall_s)),
        feedback_bytes: args.feedback_bytes,
        parallel: true,
        only: None,
        parameters: Vec::new(),
        native: match (args.native_here, args.allow_native) {
            (true, _) => NativeCode::Here,
            (false, true) => NativeCode::InChild,
            (false, false) => NativeCode::Refused,
        },
    }
}

fn pool(args: &EvaluateArgs) -> Result<rayon::ThreadPool, Failure> {
    let threads = args.threads.map_or(0, NonZeroUsize::get);
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(Failure::runtime)
}

/// The only candidate, in the process that was started for it.
fn judge_here(args: &EvaluateArgs) -> Result<VerdictDocument, Failure> {
    let bench = Bench::new(Suite::open(&args.suite).map_err(Failure::usage)?)?;
    let terms = terms(args, &bench);
    native::confine(terms.wall);
    let candidate = args.candidates.first().ok_or_else(|| Failure::usage("there is no candidate"))?;
    let candidate = Candidate::read(candidate, None)?;
    Ok(pool(args)?.install(|| evaluate(&bench, &candidate, None, &terms, &Arc::default())))
}

/// Said before anything runs; whoever is asked to load it all the same refuses ([`Candidate::load`]).
fn refuse_native(args: &EvaluateArgs, candidates: &[Candidate], incumbent: Option<&Candidate>) -> Result<(), Failure> {
    let is_native = |candidate: &&Candidate| candidate.technology == Technology::Native;
    if let Some(incumbent) = incumbent.filter(is_native) {
        return Err(Failure::usage(format_args!("`{}` is native code, which cannot be an incumbent", incumbent.file))
            .hint("make a component of it: `blis plugin new` shows how"));
    }
    let Some(candidate) = candidates.iter().find(is_native) else { return Ok(()) };
    if args.shard.is_some() {
        return Err(Failure::usage(format_args!("`{}` is native code, which is not judged in parts", candidate.file))
            .hint("judge it on one machine, with `--allow-native` and without `--shard`"));
    }
    if !args.allow_native {
        return Err(Failure::usage(format_args!("`{}` is native code, which runs with your rights", candidate.file))
            .hint("if you trust it, add `--allow-native`"));
    }
    Ok(())
}

/// The one to be told of several.
pub(super) fn worse(one: Status, other: Status) -> Status {
    const BLAME: [Status; 6] =
        [Status::HostError, Status::Rejected, Status::Trap, Status::Limit, Status::GateFailed, Status::Ok];
    BLAME.into_iter().find(|&status| status == one || status == other).unwrap_or(Status::Ok)
}

/// How the program ends after verdicts of which the worst is `worst`.
pub(super) fn ended(worst: Status, strict: bool) -> Result<(), Failure> {
    match worst {
        Status::HostError => Err(Failure::runtime("a candidate could not be judged").hint("its verdict says why")),
        status if strict => exit(status),
        _ => Ok(()),
    }
}

/// One document; on a line where there are several.
fn print_verdict(document: &VerdictDocument, lines: bool) -> Result<(), Failure> {
    if lines {
        let text = serde_json::to_string(document).map_err(Failure::runtime)?;
        return print(format_args!("{text}\n"));
    }
    super::super::print_document(document)
}

fn exit(status: Status) -> Result<(), Failure> {
    let code = match status {
        Status::Ok => return Ok(()),
        Status::Rejected => 2,
        Status::Trap => 3,
        Status::Limit => 4,
        Status::GateFailed => 5,
        Status::HostError => 1,
    };
    let _ = io::stdout().flush();
    std::process::exit(code)
}

/// Twice the same, or the program is wrong.
fn verify(document: &mut VerdictDocument, again: &VerdictDocument) {
    if document.clocked || again.clocked {
        tracing::warn!("not compared: time was up (`--wall-s` gives more)");
        return;
    }
    if document.hashes.result != again.hashes.result {
        let (one, two) = (&document.hashes.result, &again.hashes.result);
        let told = format!("two evaluations differ: {one} and {two}; please report it with the candidate");
        document.status = Status::HostError;
        document.combined_score = 0.0;
        document.artifacts.error = told;
    }
}

/// As [`evaluate`], from `cache` if it is there. What depends on the clock or failed here is not kept.
pub(super) fn evaluate_known(
    bench: &Bench,
    candidate: &Candidate,
    incumbent: Option<&Candidate>,
    terms: &Terms,
    hand: &Arc<Hand>,
    cache: Option<&Cache>,
) -> VerdictDocument {
    let Some(cache) = cache else { return evaluate(bench, candidate, incumbent, terms, hand) };
    let start = Instant::now();
    let key = cache::key(bench, candidate, incumbent, terms);
    if let Some(mut document) = cache.get(&key) {
        let wall_ms = start.elapsed().as_secs_f64() * 1e3;
        document.cost = CostDocument { cache: "hit".to_owned(), wall_ms, cpu_ms: 0.0, ops: document.cost.ops };
        return document;
    }
    let document = evaluate(bench, candidate, incumbent, terms, hand);
    if document.status != Status::HostError && !document.clocked {
        cache.put(&key, &document);
    }
    document
}

/// The verdict on `candidate`. Never fails: what goes wrong is in the document.
pub(in crate::cli) fn evaluate(
    bench: &Bench,
    candidate: &Candidate,
    incumbent: Option<&Candidate>,
    terms: &Terms,
    hand: &Arc<Hand>,
) -> VerdictDocument {
    let start = Instant::now();
    let timer = if terms.parallel { Timer::start() } else { Timer::of_thread() };
    let in_child = candidate.technology == Technology::Native && terms.native == NativeCode::InChild;
    let mut document = if in_child {
        native::evaluate(bench, candidate, terms, hand)
    } else {
        let _watch = Watch::new(hand, terms.wall);
        judged(bench, candidate, incumbent, terms, hand).unwrap_or_else(|document| *document)
    };
    if hand.pulled() == Some(Pull::Cancelled) {
        document = pulled(Pull::Cancelled, candidate.traits());
    }
    if document.status == Status::Limit && hand.pulled() == Some(Pull::Late) {
        document.stopped = Some(format!("it took more than {} s", terms.wall.as_secs_f64()));
    }
    let cpu_ms = if in_child { document.cost.cpu_ms } else { timer.elapsed().as_secs_f64() * 1e3 };
    let mut document = finish(document, &candidate.sha256, bench, terms.feedback_bytes);
    document.cost = CostDocument {
        cpu_ms,
        wall_ms: start.elapsed().as_secs_f64() * 1e3,
        cache: "miss".to_owned(),
        ops: document.cost.ops,
    };
    document
}

/// With what it follows from.
pub(super) fn finish(
    mut document: VerdictDocument,
    candidate: &str,
    bench: &Bench,
    feedback_bytes: usize,
) -> VerdictDocument {
    feedback::cut(&mut document.artifacts, feedback_bytes.max(LEAST_BYTES));
    document.hashes =
        Hashes { candidate: candidate.to_owned(), suite: bench.hash().to_owned(), host: host(), result: String::new() };
    document.sealed()
}

/// An error is told even to those who want no texts.
const LEAST_BYTES: usize = 500;

/// Of everything that answers may depend on besides the files.
pub(super) fn host() -> String {
    let (version, build) = (env!("CARGO_PKG_VERSION"), blis_eval::BUILD);
    format!("blis {version}+{build} {}-{}", std::env::consts::ARCH, std::env::consts::OS)
}

/// A candidate that can be run.
pub(super) struct Ready<'a> {
    pub sitting: Sitting<'a>,
    pub traits: Traits,
}

/// The error is the document of a candidate that cannot be run.
pub(super) fn ready<'a>(
    bench: &'a Bench,
    candidate: &Candidate,
    incumbent: Option<&Candidate>,
    terms: &Terms,
    hand: &Arc<Hand>,
) -> Result<Ready<'a>, Box<VerdictDocument>> {
    let suite = &bench.suite;
    let traits = candidate.traits();
    let failed = |who: Who, failure: &Failure| Box::new(invalid(who, failure, traits, hand));
    let loaded = match terms.native {
        NativeCode::Here => candidate.load_here(&suite.limits),
        NativeCode::InChild | NativeCode::Refused => candidate.load(&suite.limits),
    };
    let loaded = loaded.map_err(|fault| failed(Who::Candidate, &Failure::from(fault)))?;
    let kinds = &loaded.plugin.description().kinds;
    if !suite.decides.iter().any(|kind| kinds.contains(kind)) {
        let names: Vec<&str> = suite.decides.iter().map(|kind| kind.name()).collect();
        let told = format!("it decides nothing that this suite asks for: {}", names.join(", "));
        return Err(Box::new(VerdictDocument::invalid(Status::Rejected, told, traits)));
    }
    let player = bench.candidate(&loaded, &terms.parameters).map_err(|failure| failed(Who::Candidate, &failure))?;
    let baseline = bench.named(&suite.baseline).map_err(|failure| failed(Who::Baseline, &failure))?;
    let incumbent = incumbent.map(|incumbent| {
        let loaded = incumbent.load(&suite.limits).map_err(Failure::from)?;
        bench.candidate(&loaded, &[])
    });
    let incumbent = incumbent.transpose().map_err(|failure| failed(Who::Incumbent, &failure))?;
    let (hand, parallel) = (Arc::clone(hand), terms.parallel);
    Ok(Ready { sitting: Sitting { bench, candidate: player, baseline, incumbent, hand, parallel }, traits })
}

/// The error is the document of a candidate that never got a score.
fn judged(
    bench: &Bench,
    candidate: &Candidate,
    incumbent: Option<&Candidate>,
    terms: &Terms,
    hand: &Arc<Hand>,
) -> Result<VerdictDocument, Box<VerdictDocument>> {
    let suite = &bench.suite;
    let Ready { sitting, traits } = ready(bench, candidate, incumbent, terms, hand)?;
    let course = Course { until: terms.until, epoch: terms.epoch, incumbent: sitting.incumbent.is_some() };
    let judgement = match &terms.only {
        Some(part) => judge_part(suite, part, &sitting),
        None => judge(suite, &course, &sitting),
    };
    let judgement = judgement.map_err(|(who, failure)| Box::new(invalid(who, &failure, traits, hand)))?;
    let mut document = VerdictDocument::of(suite, &judgement, traits);
    document.cost.ops = judgement.stages.iter().flat_map(|stage| &stage.runs).map(|one| one.facts.operations).sum();
    if terms.feedback_bytes > 0 {
        let lesson = lesson(&sitting, &judgement, &mut document);
        feedback::tell(&mut document, suite, &judgement, lesson.as_ref(), terms.feedback_bytes);
    }
    Ok(document)
}

/// Decisions that are looked at for the texts.
const SAMPLES: u32 = 24;
/// Operations that looking at decisions may take, as a multiple of those that the verdict took.
const LESSON_SHARE: u64 = 3;

/// Decisions of the worst run that was shown. If they cannot be looked at, `document` says why.
fn lesson(sitting: &Sitting<'_>, judgement: &Judgement, document: &mut VerdictDocument) -> Option<Lesson> {
    let shown = judgement.stages.iter().rfind(|stage| stage.split != Split::Select)?;
    let worst = shown.runs.iter().min_by(|one, other| one.score.total_cmp(&other.score))?;
    let Sitting { bench, candidate, hand, .. } = sitting;
    let budget = document.cost.ops.saturating_mul(LESSON_SHARE);
    let at = (worst.scenario, worst.seed);
    let look = || bench.lesson(candidate, at, SAMPLES, worst.facts.operations, (hand, budget));
    let found = if hand.is_pulled() { None } else { Some(look()) };
    let (clocked, why) = match found {
        Some(Ok(Some(lesson))) => return Some(lesson),
        Some(Ok(None)) => (false, "each takes too many operations to make some of them again in copies of the run"),
        // Of several copies that fail it depends on the threads which is the first: the same is said of all.
        Some(Err(failure)) if !hand.is_pulled() && !is_late(&failure) => {
            (false, "the candidate failed, or took too many operations, when they were made again in copies of the run")
        }
        _ => (true, "time was up"),
    };
    document.clocked |= clocked;
    document.artifacts.worst_decisions = format!("Decisions were not looked at: {why}\n");
    None
}

/// Whether it is the clock that ended it.
fn is_late(failure: &Failure) -> bool {
    failure.fault().is_some_and(|fault| fault.kind == FaultKind::OutOfTime)
}

/// What is said of somebody whose run failed.
pub(super) fn invalid(who: Who, failure: &Failure, traits: Traits, hand: &Arc<Hand>) -> VerdictDocument {
    if let Some(why) = hand.pulled() {
        // Whoever was at work: all of it is done for the candidate.
        return pulled(why, traits);
    }
    let status = match (who, failure.fault()) {
        (Who::Candidate, Some(fault)) => status_of(fault.kind),
        _ => Status::HostError,
    };
    // In the plugin's words: hints of ours are about flags that a candidate does not have.
    let told = match (status, failure.fault()) {
        (Status::HostError, _) | (_, None) => failure.text(),
        (_, Some(fault)) => format!("{}: {}", fault.kind.name(), fault.diagnostic),
    };
    let mut document = VerdictDocument::invalid(status, told, traits);
    document.clocked = is_late(failure);
    document
}

/// What is said when a hand was pulled before there was a verdict.
pub(super) fn pulled(why: Pull, traits: Traits) -> VerdictDocument {
    let (status, told) = match why {
        Pull::Late => (Status::Limit, "it took too long"),
        Pull::Cancelled => (Status::HostError, "the request was cancelled; the candidate was not judged"),
    };
    let mut document = VerdictDocument::invalid(status, told.to_owned(), traits);
    document.clocked = true;
    document.stopped = (why == Pull::Cancelled).then(|| "cancelled".to_owned());
    document
}

fn status_of(fault: FaultKind) -> Status {
    match fault {
        FaultKind::OutOfFuel | FaultKind::OutOfTime | FaultKind::OutOfMemory | FaultKind::TooDeep => Status::Limit,
        FaultKind::Trap | FaultKind::NotANumber | FaultKind::OutOfRange => Status::Trap,
        FaultKind::Unreadable
        | FaultKind::Syntax
        | FaultKind::VersionSkew
        | FaultKind::ForbiddenImport
        | FaultKind::MissingExport
        | FaultKind::Refused
        | FaultKind::NotAllowed => Status::Rejected,
    }
}

/// Pulls a hand after some time, unless it is dropped before.
struct Watch {
    // Dropped first: that ends the thread.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watch {
    fn new(hand: &Arc<Hand>, wall: Duration) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let pulls = Arc::clone(hand);
        let thread = std::thread::spawn(move || {
            if stopped.recv_timeout(wall) == Err(mpsc::RecvTimeoutError::Timeout) {
                pulls.pull(Pull::Late);
            }
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        // It does nothing that panics.
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_plugin::Fault;

    #[test]
    fn seconds_are_no_longer_than_a_day() {
        assert_eq!(seconds("86400"), Ok(MOST_SECONDS));
        for wrong in ["1e30", "0", "-1", "NaN", "inf", "x"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_worst_status_is_told_whatever_the_order() {
        assert_eq!(worse(Status::Ok, Status::GateFailed), Status::GateFailed);
        assert_eq!(worse(Status::Trap, Status::Limit), Status::Trap);
        assert_eq!(worse(Status::HostError, Status::Ok), Status::HostError);
        assert_eq!(worse(Status::Ok, Status::Ok), Status::Ok);
    }

    /// Time that was up while the baseline ran was an error of the host.
    #[test]
    fn a_pulled_hand_is_a_limit_whoever_was_running() {
        let failure = Failure::runtime("a policy ended the simulation");
        for who in [Who::Candidate, Who::Baseline, Who::Incumbent] {
            let hand: Arc<Hand> = Arc::default();
            hand.pull(Pull::Late);
            hand.pull(Pull::Cancelled);
            let document = invalid(who, &failure, Traits::default(), &hand);
            assert_eq!((document.status, document.clocked), (Status::Limit, true));
        }
        let hand: Arc<Hand> = Arc::default();
        hand.pull(Pull::Cancelled);
        assert_eq!(invalid(Who::Candidate, &failure, Traits::default(), &hand).status, Status::HostError);
    }

    /// Ten seconds of one machine are not those of another.
    #[test]
    fn a_call_that_took_too_long_depends_on_the_clock() {
        let of = |kind: FaultKind| {
            let failure = Failure::from(Fault::new(kind, "it took more than 10 s"));
            let document = invalid(Who::Candidate, &failure, Traits::default(), &Arc::default());
            (document.status, document.clocked)
        };
        assert_eq!(of(FaultKind::OutOfTime), (Status::Limit, true));
        assert_eq!(of(FaultKind::OutOfFuel), (Status::Limit, false));
    }
}
