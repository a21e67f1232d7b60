//! `blis evaluate`: one evaluation result per candidate.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use blis_eval::envelope::Envelope;
use blis_eval::error::RunError;
use blis_eval::evaluation::cache::ResultCache;
use blis_eval::evaluation::candidate::CandidatePolicy;
use blis_eval::evaluation::context::EvaluationSuite;
use blis_eval::evaluation::evaluate::{evaluate, evaluate_cached, verify, worse};
use blis_eval::evaluation::isolated;
use blis_eval::evaluation::native;
use blis_eval::evaluation::options::{EvaluationOptions, NativeCode, checked_sample};
use blis_eval::evaluation::shard::{self, ShardChoice};
use blis_eval::result::{EvaluationResult, EvaluationStatus};
use blis_eval::spec::parse;
use blis_eval::suite::Split;
use blis_plugin::Technology;
use blis_report::{Concludes as _, PageResult, write_page};
use blis_sim::units::Micros;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::super::counts::{feedback_bytes, memory_gib, threads};
use super::super::envelope::Document;
use super::super::grant_flags::GrantFlags;
use super::super::output::{LogLevel, OutputForm, print, print_json, print_text, start_log, wants_text_form};
use super::super::progress::Spinner;
use super::super::view::check_page;
use super::super::workers::{DEFAULT_MEMORY_GIB, run_cache, worker_settings};
use super::summary::EvaluationSummary;

#[derive(Debug, Args)]
pub(in crate::cli) struct EvaluateArgs {
    /// Candidates: Rhai scripts, WebAssembly components, names of built-in policies, or `-` for one on standard
    /// input
    #[arg(required_unless_present = "record", value_name = "CANDIDATE")]
    pub candidates: Vec<String>,
    /// Record to check: a file, or a built-in one by its name. Its policy is evaluated again on the held-out scenarios of its suite; the exit
    /// code is 5 if the record does not hold
    #[arg(long, value_name = "RECORD", conflicts_with_all = ["candidates", "suite", "stage", "lang", "incumbent", "epoch", "wall_s",
        "feedback_bytes", "patterns", "shard", "cache", "allow_native", "verify", "strict_exit", "report"])]
    pub record: Option<String>,
    /// Suite of scenarios: chat, shared-prefix, agentic, stale-signals, slo-tiers, long-context, gateway, tenants, overload, kv-eviction, kv-offload, disaggregation, or a file
    #[arg(long, value_name = "SUITE", default_value = "chat")]
    pub suite: String,
    /// Last stage for candidates that pass the earlier ones
    #[arg(long, value_enum, value_name = "STAGE", default_value_t = StageName::Train)]
    pub stage: StageName,
    /// Language of candidates whose names have no known ending
    #[arg(long, value_enum, value_name = "LANG")]
    pub lang: Option<LangName>,
    /// Incumbent: the best candidate so far. A candidate that is worse in train is not run in select
    #[arg(long, value_name = "FILE")]
    pub incumbent: Option<String>,
    /// Epoch: other seeds for each number, against fitting to the seeds of one
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub epoch: u64,
    /// Threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<NonZeroUsize>,
    /// Memory limit of the process that evaluates a candidate, GiB
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MEMORY_GIB, value_parser = memory_gib)]
    pub worker_memory_gib: NonZeroU32,
    /// Time limit for one candidate, s or with a unit [default: that of the suite]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub wall_s: Option<f64>,
    /// Maximum feedback per candidate, bytes; 0 for none, which saves time
    #[arg(long, value_name = "N", default_value_t = 8000, value_parser = feedback_bytes)]
    pub feedback_bytes: usize,
    /// Patterns over N decisions of each kind, 128 if no number is given: where they are wrong, by which signal, and what the best
    /// reference policy would do; 0 for none. Takes about half as long again as an evaluation in train
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_value_t = 0, default_missing_value = "128",
        value_parser = patterns, conflicts_with = "shard")]
    pub patterns: u32,
    /// Run only part I of N of all simulations (I from 0) and write its results to --out: `blis
    /// evaluate merge` makes evaluation results of it. `next/N`: the parts that no other process with this folder has
    /// begun, until all are written. Feedback about single decisions is left out
    #[arg(long, value_name = "I/N", requires = "out")]
    pub shard: Option<ShardChoice>,
    /// Folder for the parts
    #[arg(long, value_name = "DIR", requires = "shard")]
    pub out: Option<PathBuf>,
    /// Folder of the result cache: results that it has are not computed again
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Allow native libraries: each runs in a process of its own, with your rights
    #[arg(long)]
    pub allow_native: bool,
    #[arg(long, hide = true, requires = "allow_native")]
    pub native_here: bool,
    /// Evaluate twice, and fail if the results differ
    #[arg(long)]
    pub verify: bool,
    /// Exit code by status: 2 rejected, 3 trap, 4 limit, 5 gate failed
    #[arg(long)]
    pub strict_exit: bool,
    #[command(flatten)]
    pub grants: GrantFlags,
    /// Form of the output; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto)]
    pub output: OutputForm,
    /// A page to look at, HTML: one file that needs no network, with the scores of all scenarios and the feedback
    #[arg(long, value_name = "FILE.html", conflicts_with = "shard")]
    pub report: Option<PathBuf>,
    /// Log level of messages on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = LogLevel::Warn)]
    pub log: LogLevel,
}

/// `--stage`. The held-out split is for `blis evaluate held-out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum StageName {
    /// One seed of each scenario
    Smoke,
    /// The requests that a search learns from
    Train,
    /// Other requests, for candidates that passed train
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

/// One day, as in suites.
const MOST_SECONDS: f64 = 86_400.0;

/// Decisions of each kind for patterns.
pub(super) fn patterns(text: &str) -> Result<u32, String> {
    checked_sample("patterns", number_of_decisions(text)?)
}

/// Decisions of which the costs are measured.
pub(super) fn decisions(text: &str) -> Result<u32, String> {
    checked_sample("decisions", number_of_decisions(text)?)
}

fn number_of_decisions(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "must be a whole number of decisions".to_owned())
}

pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds = parse::seconds_above_0(text).ok().map(Micros::as_secs_f64);
    seconds
        .filter(|&seconds| seconds <= MOST_SECONDS)
        .ok_or_else(|| format!("must be a number of seconds above 0, at most {MOST_SECONDS}, or a time like 90s"))
}

/// Runs the command. The exit code is 0 whenever there is an evaluation result, except with `--strict-exit`.
pub(super) fn evaluate_candidates(args: &EvaluateArgs) -> Result<(), RunError> {
    start_log(args.log.into());
    if args.native_here {
        return native::reply(|| evaluate_here(args));
    }
    check_page(args.report.as_deref())?;
    let suite = EvaluationSuite::new(args.grants.open(&args.suite)?)?;
    // With --verify everything is simulated, twice.
    let suite = if args.verify { suite } else { suite.with_run_cache(run_cache().as_deref()) };
    let options = options(args, &suite);
    let read = |path: &String| CandidatePolicy::read(path, args.lang.map(Technology::from));
    let candidates = args.candidates.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let incumbent = args.incumbent.as_ref().map(|path| CandidatePolicy::read(path, None)).transpose()?;
    refuse_native(args, &candidates, incumbent.as_ref())?;
    let settings = worker_settings(args.threads, args.worker_memory_gib);
    if let (Some(shard), Some(out)) = (args.shard, &args.out) {
        let write = |shard| shard::write(&suite, &candidates, incumbent.as_ref(), &options, shard, out, &settings);
        return match shard {
            ShardChoice::One(shard) => write(shard),
            ShardChoice::Next { count } => shard::write_next(count, out, write),
        };
    }
    if let Some(missing) = blis_eval::worker::wall::support().missing() {
        tracing::info!("around the process of a candidate: {missing}");
    }
    let cache = args.cache.as_deref().map(ResultCache::new);
    let mut worst = EvaluationStatus::Ok;
    let mut shown = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let evaluate = || -> Result<EvaluationResult, RunError> {
            let cache = cache.as_ref().filter(|_| !args.verify);
            if candidate.technology == Technology::Native {
                // It has a process of its own already, started anew: native code may start threads when it is loaded.
                return Ok(evaluate_cached(&suite, candidate, incumbent.as_ref(), &options, cache));
            }
            // First the process, then the threads of the spinner.
            let evaluation = isolated::start(&suite, candidate, incumbent.as_ref(), &options, cache, &settings)?;
            let _spinner = Spinner::start("evaluating", false);
            Ok(evaluation.wait())
        };
        let mut result = evaluate()?;
        if args.verify {
            verify(&mut result, &evaluate()?);
        }
        if wants_text_form(args.output) {
            let separator = if index == 0 { "" } else { "\n" };
            let summary = EvaluationSummary { candidate: &candidate.file, result: &result };
            print_text(format_args!("{separator}{}\n\n{summary}", result.conclusion()))?;
        } else {
            print_line(&Document::new(&result, &about(candidate, args)), candidates.len() > 1)?;
        }
        worst = worse(worst, result.status);
        if args.report.is_some() {
            shown.push(PageResult::new(&*candidate.file, &Document::new(&result, &about(candidate, args)), None));
        }
    }
    if let Some(path) = &args.report {
        write_page(path, &format!("Evaluation on {}", args.suite), &shown).map_err(|error| RunError::file(&error))?;
    }
    ended(worst, args.strict_exit)
}

fn options(args: &EvaluateArgs, suite: &EvaluationSuite) -> EvaluationOptions {
    EvaluationOptions {
        until: args.stage.into(),
        epoch: args.epoch,
        train_seeds: None,
        wall: Duration::from_secs_f64(args.wall_s.unwrap_or(suite.suite.limits.wall_s)),
        feedback_bytes: args.feedback_bytes,
        patterns: args.patterns,
        decisions: 0,
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

fn pool(args: &EvaluateArgs) -> Result<rayon::ThreadPool, RunError> {
    let threads = args.threads.map_or(0, NonZeroUsize::get);
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(RunError::runtime)
}

/// Evaluates the one candidate of a process that was started for native code.
fn evaluate_here(args: &EvaluateArgs) -> Result<EvaluationResult, RunError> {
    let suite = EvaluationSuite::new(args.grants.open(&args.suite)?)?;
    let options = options(args, &suite);
    native::confine(options.wall);
    let candidate = args.candidates.first().ok_or_else(|| RunError::usage("there is no candidate"))?;
    let candidate = CandidatePolicy::read(candidate, None)?;
    Ok(pool(args)?.install(|| evaluate(&suite, &candidate, None, &options)))
}

/// Reports native candidates before anything runs; [`CandidatePolicy::load`] refuses them as well.
fn refuse_native(
    args: &EvaluateArgs,
    candidates: &[CandidatePolicy],
    incumbent: Option<&CandidatePolicy>,
) -> Result<(), RunError> {
    let is_native = |candidate: &&CandidatePolicy| candidate.technology == Technology::Native;
    if let Some(incumbent) = incumbent.filter(is_native) {
        return Err(RunError::usage(format_args!("`{}` is native code, which cannot be an incumbent", incumbent.file))
            .hint("make a component of it: `blis plugin new` shows how"));
    }
    let Some(candidate) = candidates.iter().find(is_native) else { return Ok(()) };
    if args.shard.is_some() {
        return Err(RunError::usage(format_args!(
            "`{}` is native code, which is not evaluated in parts",
            candidate.file
        ))
        .hint("evaluate it on one machine, with `--allow-native` and without `--shard`"));
    }
    if !args.allow_native {
        return Err(RunError::usage(format_args!("`{}` is native code, which runs with your rights", candidate.file))
            .hint("if you trust it, add `--allow-native`"));
    }
    Ok(())
}

/// How the command ends: with an error or an exit code, by `worst`, the most severe status.
pub(super) fn ended(worst: EvaluationStatus, strict: bool) -> Result<(), RunError> {
    match worst {
        EvaluationStatus::HostError => {
            Err(RunError::runtime("a candidate could not be evaluated").hint("its result has the reason"))
        }
        status if strict => exit(status),
        _ => Ok(()),
    }
}

/// What the evaluation of `candidate` is about.
fn about(candidate: &CandidatePolicy, args: &EvaluateArgs) -> Envelope {
    Envelope::in_words(format!("{} on the suite {}", candidate.file, args.suite))
}

/// One document; a line each if there are several.
fn print_line(document: &impl Serialize, lines: bool) -> Result<(), RunError> {
    if lines {
        let text = serde_json::to_string(document).map_err(RunError::runtime)?;
        return print(format_args!("{text}\n"));
    }
    print_json(document)
}

fn exit(status: EvaluationStatus) -> Result<(), RunError> {
    let code = match status {
        EvaluationStatus::Ok => return Ok(()),
        EvaluationStatus::Rejected => 2,
        EvaluationStatus::Trap => 3,
        EvaluationStatus::Limit => 4,
        EvaluationStatus::GateFailed => 5,
        EvaluationStatus::HostError => 1,
    };
    Err(RunError::status(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_no_longer_than_a_day() {
        assert_eq!((seconds("86400"), seconds("1m30s")), (Ok(MOST_SECONDS), Ok(90.0)));
        for wrong in ["1e30", "0", "-1", "NaN", "inf", "x"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
