//! `blis evaluate held-out`: candidates on the held-out split of a suite, against its baseline and reference policies.

use std::num::NonZeroUsize;
use std::time::Duration;

use blis_eval::envelope::Envelope;
use blis_eval::error::RunError;
use blis_eval::evaluation::context::EvaluationSuite;
use blis_eval::evaluation::held_out;
use blis_eval::worker::{self, TimeLimit};
use clap::Args;

use super::super::counts::threads;
use super::super::envelope::print_result;
use super::super::grant_flags::GrantFlags;
use super::super::output::{LogLevel, OutputForm, start_log};
use super::super::progress::Spinner;
use super::super::workers::default_worker_settings;

#[derive(Debug, Args)]
pub(in crate::cli) struct HeldOutArgs {
    /// Candidates: Rhai scripts or WebAssembly components
    #[arg(required = true, value_name = "CANDIDATE")]
    candidates: Vec<String>,
    /// Suite: chat, shared-prefix, agentic, stale-signals, slo-tiers, long-context, gateway, tenants, overload, kv-eviction, kv-offload, disaggregation, or a file
    #[arg(long, value_name = "SUITE", default_value = "chat")]
    suite: String,
    /// Threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<NonZeroUsize>,
    #[command(flatten)]
    grants: GrantFlags,
    /// Form of the output; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto)]
    output: OutputForm,
    /// Log level of messages on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = LogLevel::Warn)]
    log: LogLevel,
}

pub(super) fn held_out(args: &HeldOutArgs) -> Result<(), RunError> {
    start_log(args.log.into());
    let suite = EvaluationSuite::new(args.grants.open(&args.suite)?)?;
    let threads = args.threads.map_or(0, NonZeroUsize::get);
    let limit = TimeLimit::BetweenSimulations(Duration::from_secs_f64(suite.suite.limits.wall_s));
    let settings = default_worker_settings(args.threads);
    let worker = worker::start(&settings, limit, || held_out::report(&suite, &args.candidates, threads))?;
    let spinner = Spinner::start("evaluating on the held-out split", false);
    let report = worker.wait().map_err(|failure| failure.error("a simulation"));
    drop(spinner);
    let report = report??;
    let about =
        Envelope::in_words(format!("{} on the held-out scenarios of {}", args.candidates.join(", "), args.suite));
    print_result(args.output, &report, &about, report.text())
}
