//! `blis tune`: better values for the parameters that a candidate declares (`// @param`).

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use blis_eval::envelope::Envelope;
use blis_eval::error::RunError;
use blis_eval::evaluation::candidate::CandidatePolicy;
use blis_eval::evaluation::context::EvaluationSuite;
use blis_eval::evaluation::tune::{TuneRequest, tune as search};
use blis_eval::spec::parse;
use blis_eval::worker::{self, TimeLimit};
use blis_plugin::Technology;
use blis_report::write_text;
use clap::Args;

use super::super::counts::threads;
use super::super::envelope::{print_result, write_report};
use super::super::grant_flags::GrantFlags;
use super::super::output::{LogLevel, OutputForm, start_log};
use super::super::progress::Spinner;
use super::super::view::check_page;
use super::super::workers::{default_worker_settings, run_cache};
use super::live::{check_loopback, history, show};

#[derive(Debug, Args)]
pub(in crate::cli) struct TuneArgs {
    /// A Rhai script or a WebAssembly component that declares parameters, or the name of a built-in policy
    #[arg(value_name = "CANDIDATE")]
    candidate: String,
    /// Suite of scenarios: chat, shared-prefix, agentic, stale-signals, slo-tiers, long-context, gateway, tenants, overload, kv-eviction, kv-offload, disaggregation, or a file
    #[arg(long, value_name = "SUITE", default_value = "chat")]
    suite: String,
    /// Evaluations of parameter values, each on all scenarios of train
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = parse::count)]
    evals: u32,
    /// Seed of the search
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Epoch: other seeds of the suite for each number
    #[arg(long, value_name = "N", default_value_t = 0)]
    epoch: u64,
    /// File for the script with the new defaults
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<NonZeroUsize>,
    #[command(flatten)]
    grants: GrantFlags,
    /// Form of the output; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto)]
    output: OutputForm,
    /// A page that shows the search while it runs, on this address of this machine; without one on a free port, which is printed
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:0")]
    ui: Option<SocketAddr>,
    /// Folder for the history of the search, which `blis view FOLDER` shows
    #[arg(long, value_name = "FOLDER")]
    history: Option<PathBuf>,
    /// A page to look at, HTML: one file that needs no network
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Log level of messages on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = LogLevel::Warn)]
    log: LogLevel,
}

/// `blis tune`.
pub(in crate::cli) fn tune(args: &TuneArgs) -> Result<(), RunError> {
    start_log(args.log.into());
    check_page(args.report.as_deref())?;
    check_loopback(args.ui)?;
    let candidate = CandidatePolicy::read(&args.candidate, None)?;
    if args.write.is_some() && candidate.technology != Technology::Script {
        return Err(RunError::usage("`--write` writes scripts, and this candidate is not a script")
            .hint("set the tuned values with `--policy-param`"));
    }
    let suite = EvaluationSuite::new(args.grants.open(&args.suite)?)?;
    let suite = suite.with_run_cache(run_cache().as_deref());
    let TuneArgs { evals, seed, epoch, .. } = *args;
    let threads = args.threads.map_or(0, NonZeroUsize::get);
    let history = history(args.history.as_deref(), args.ui.is_some())?;
    let history = history.as_deref();
    let request = TuneRequest { candidate: &candidate, prepared: &suite, evals, seed, epoch, threads, history };
    let limit = TimeLimit::BetweenSimulations(Duration::from_secs_f64(suite.suite.limits.wall_s));
    let worker = worker::start(&default_worker_settings(args.threads), limit, || search(&request))?;
    let title = format!("Tuning of {}", candidate.file);
    let shown = args.ui.zip(history).map(|(address, history)| show(history, address, &title)).transpose()?;
    let spinner = Spinner::start("tuning", false);
    let found = worker.wait().map_err(|failure| failure.error(&format!("`{}`", candidate.file)));
    drop(spinner);
    if let (false, Some(history)) = (matches!(found, Ok(Ok(_))), history) {
        // The process of the search has not written its end; the failure itself is reported below.
        history.finish().map_err(RunError::runtime)?;
    }
    if let Some(server) = shown {
        server.finish().map_err(|error| RunError::runtime(format_args!("the page has ended early: {error}")))?;
    }
    let (tuned, text) = found??;
    if let Some(path) = &args.write {
        write_text(path, &text).map_err(|error| RunError::file(&error))?;
    }
    let about = Envelope::in_words(format!("{} on the suite {}", candidate.file, args.suite));
    print_result(args.output, &tuned, &about, tuned.text())?;
    write_report(args.report.as_deref(), &title, &tuned, &about)
}
