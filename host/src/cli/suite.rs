//! `blis suite`: the suites that candidates are evaluated on.

use std::fmt::Write as _;
use std::num::NonZeroUsize;

use blis_diag::read_text;
use blis_eval::error::RunError;
use blis_eval::evaluation::context::EvaluationSuite;
use blis_eval::evaluation::rebase::{BestBuiltIn, RebasedSuite, best_built_in, file_of, rebased};
use blis_eval::suite::Suite;
use blis_report::write_text;
use clap::{Args, Subcommand};

use super::counts::threads;
use super::grant_flags::GrantFlags;
use super::output::{LogLevel, print_text, start_log};
use super::progress::Spinner;

/// `blis suite`.
#[derive(Debug, Args)]
pub(super) struct SuiteArgs {
    #[command(subcommand)]
    command: SuiteCommand,
}

#[derive(Debug, Subcommand)]
enum SuiteCommand {
    /// Choose the best built-in policy as the reference of a suite, and write it into the file
    Rebase(RebaseArgs),
}

#[derive(Debug, Args)]
struct RebaseArgs {
    /// File of the suite
    #[arg(value_name = "FILE")]
    suite: String,
    /// Print what was found, and leave the file as it is
    #[arg(long)]
    dry_run: bool,
    /// Threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<NonZeroUsize>,
    /// Log level of messages on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = LogLevel::Warn)]
    log: LogLevel,
    #[command(flatten)]
    grants: GrantFlags,
}

/// `blis suite`.
pub(super) fn dispatch(args: &SuiteArgs) -> Result<(), RunError> {
    match &args.command {
        SuiteCommand::Rebase(args) => rebase(args),
    }
}

fn rebase(args: &RebaseArgs) -> Result<(), RunError> {
    start_log(args.log.into());
    let path = file_of(&args.suite)?;
    let prepared = EvaluationSuite::new(args.grants.open(&args.suite)?)?;
    let spinner = Spinner::start("comparing built-in policies", false);
    let best = best_built_in(&prepared, args.threads.map_or(0, NonZeroUsize::get));
    drop(spinner);
    let best = best?;
    let text = read_text(path, blis_eval::suite::BYTES_MAX)
        .map_err(|error| RunError::refused(blis_diag::unreadable(&args.suite, &error)))?;
    let new = rebased(&prepared.suite, &text, &best)?;
    if !args.dry_run && new.text != text {
        write_text(path, &new.text).map_err(|error| RunError::file(&error))?;
    }
    print_text(format_args!("{}", summary(&prepared.suite, &best, &new, args.dry_run)))
}

fn summary(suite: &Suite, best: &BestBuiltIn, new: &RebasedSuite, dry: bool) -> String {
    let mut text =
        format!("Built-in policies on `{}`, relative to {}, after {} runs:\n", suite.name, suite.baseline, best.runs);
    for (name, score) in &best.scores {
        let _ = writeln!(text, "  {score:>7.3}  {name}");
    }
    for (name, gate) in &best.failed {
        let _ = writeln!(text, "  {:>7}  {name}: {gate}", "-");
    }
    let _ = match (new.version == suite.version, dry) {
        (true, _) => writeln!(text, "Reference {}, version {}: as before", best.reference, suite.version),
        (false, true) => writeln!(text, "Reference {}, version {}: not written", best.reference, new.version),
        (false, false) => writeln!(text, "Reference {}, version {}", best.reference, new.version),
    };
    text
}
