//! The command line. The only place that prints, and the only one that reads the environment.
//!
//! `args` (flags) → [`ExperimentSpec`](blis_eval::spec::ExperimentSpec) → `blis_eval` (simulation and files) →
//! `output` (standard output). Results go to standard output, everything else to standard error.

mod args;
mod command;
mod compose;
mod fidelity;
mod judge;
mod listing;
mod output;
mod plugin;
mod progress;
mod regret;
mod trace;
mod traces;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use blis_diag::Diagnostic;
use blis_eval::compare::{self, CompareConfig};
use blis_eval::error::RunError;
use blis_eval::experiment::Experiment;
use blis_eval::explain::explain;
use blis_eval::open;
use blis_eval::regret::Regret;
use blis_eval::run::{self, RunResult};
use blis_report::{DecisionSummary, Summary, plugins_document, report_document};
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use serde::Serialize;

use args::{CompareArgs, OutputFlags};
use command::{Cli, Command};
use output::{colour_wanted, exit_code, print, print_document, print_lines, start_log, wants_text_form};
use progress::ProgressBars;

/// Runs the program. Exit code 0: done; 1: the simulation or its output failed; 2: what was asked
/// makes no sense.
#[must_use]
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => return show_clap(&error, words.get(1).and_then(|word| word.to_str())),
    };
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_quiet() {
                // Nothing is left to do if even this fails.
                let _ = writeln!(io::stderr(), "{failure}");
            }
            exit_code(&failure)
        }
    }
}

/// Reads `words`, the program's name first, and does nothing of what they ask.
///
/// # Errors
/// What the user would be told, if they are no command line.
pub fn check_words(words: &[OsString]) -> Result<(), String> {
    match Cli::try_parse_from(words) {
        Err(error) if error.use_stderr() => {
            Err(reworded(&error, words.get(1).and_then(|word| word.to_str())).to_string())
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

fn dispatch(cli: Cli) -> Result<(), RunError> {
    match cli.command {
        Some(Command::Run(args)) => simulate(&args.experiment()?, &args.output),
        Some(Command::Replay(args)) => simulate(&args.experiment()?, &args.output),
        Some(Command::Compare(args)) => compare(&args),
        Some(Command::Regret(args)) => regret::dispatch(*args),
        Some(Command::Evaluate(args)) => judge::dispatch(&args),
        Some(Command::Merge(args)) => judge::merge(&args),
        Some(Command::Report(args)) => judge::report(&args),
        Some(Command::Serve(args)) => judge::serve(&args),
        Some(Command::Shinka(args)) => judge::shinka(&args),
        Some(Command::Tune(args)) => judge::tune(&args),
        Some(Command::Init(args)) => judge::init(&args),
        Some(Command::Plugin(args)) => plugin::dispatch(args),
        Some(Command::Trace(args)) => trace::dispatch(args),
        Some(Command::Workload(args)) => traces::dispatch(args),
        Some(Command::Convert(args)) => traces::convert(&args),
        Some(Command::Compose(args)) => compose::compose(&args),
        Some(Command::Fit(args)) => fidelity::run_fit(&args),
        Some(Command::Validate(args)) => fidelity::run_validate(&args),
        Some(Command::Models) => print_lines(&listing::models()),
        Some(Command::Hardware) => print_lines(&listing::hardware()),
        None => print(format_args!("{}", Cli::command().render_long_help())),
    }
}

fn compare(args: &CompareArgs) -> Result<(), RunError> {
    let config = CompareConfig::new(args.spec()?, &args.contestants, args.seeds, args.threads)?;
    start_log(args.output.log.into());
    if args.output.explain_config {
        let deployment = open::resolve(&config.base)?;
        let page = |(name, config): &(String, Experiment)| format!("# {name}\n{}", explain(config, &deployment));
        return print(config.policies.iter().map(page).collect::<Vec<_>>().join("---\n"));
    }
    let (comparison, notes) = compare::compare(&config)?;
    for note in notes {
        tracing::warn!("{note}");
    }
    for (name, contestant) in &config.policies {
        contestant.warnings.iter().for_each(|(what, hint)| tracing::warn!("{name}: {what} (hint: {hint})"));
    }
    if wants_text_form(args.output.output) { print(comparison) } else { print_document(&comparison) }
}

fn simulate(config: &Experiment, flags: &OutputFlags) -> Result<(), RunError> {
    let text = wants_text_form(flags.output);
    start_log(flags.log.into());
    if flags.explain_config {
        return print(explain(config, &open::resolve(config)?));
    }
    let progress = ProgressBars { visible: !flags.no_progress && io::stderr().is_terminal() };
    let finished = run::run(config, &progress)?;
    let colour = io::stdout().is_terminal() && colour_wanted();
    let printed = if text { print_summary(&finished, colour) } else { print_json(&finished) };
    printed?;
    // A file that could not be written costs the exit code, not the results.
    finished.files
}

fn print_summary(finished: &RunResult, colour: bool) -> Result<(), RunError> {
    let RunResult { setting, report, names, warnings, cpu, .. } = finished;
    print(Summary { setting, report, names, warnings, colour })?;
    if let Some((fitness, baseline)) = &finished.fitness {
        print(format_args!("\n{}", fitness.block(baseline.as_deref())))?;
    }
    if let Some(decisions) = &finished.decisions {
        print(format_args!("\n{decisions}"))?;
    }
    if let Some(regret) = &finished.regret {
        print(format_args!("\n{regret}"))?;
    }
    // How fast we were is no result: it changes from run to run.
    let (requests, seconds) = (report.cluster.counts.injected(), cpu.as_secs_f64());
    let speed = if seconds > 0.0 { requests as f64 / seconds } else { 0.0 };
    let _ = writeln!(io::stderr(), "simulated in {seconds:.3} CPU s: {speed:.0} requests per CPU second");
    Ok(())
}

fn print_json(finished: &RunResult) -> Result<(), RunError> {
    for (what, hint) in &finished.warnings {
        tracing::warn!("{what} (hint: {hint})");
    }
    let report = report_document(&finished.report, &finished.names);
    let fitness = finished.fitness.as_ref().map(|(fitness, baseline)| fitness.document(baseline.as_deref()));
    let plugins = plugins_document(&finished.policies, &finished.incidents);
    print_document(&Printed {
        report,
        plugins,
        fitness,
        decisions: finished.decisions.as_ref(),
        regret: finished.regret.as_ref(),
    })
}

/// The report, then what else was asked for.
#[derive(Serialize)]
struct Printed<'a, R: Serialize, P: Serialize, F: Serialize> {
    #[serde(flatten)]
    report: R,
    #[serde(skip_serializing_if = "Option::is_none")]
    plugins: Option<P>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fitness: Option<F>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decisions: Option<&'a DecisionSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    regret: Option<&'a Regret>,
}

/// Help and version go to standard output and are no error.
fn show_clap(error: &clap::Error, first: Option<&str>) -> ExitCode {
    // A reader that left is no error, and nobody could be told of another.
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = error.print();
        ExitCode::SUCCESS
    } else {
        let _ = writeln!(io::stderr(), "{}", reworded(error, first));
        ExitCode::from(2)
    }
}

/// clap's message in the form of ours: `error: …`, then `hint: …`. `first` is the user's first word.
fn reworded(error: &clap::Error, first: Option<&str>) -> Diagnostic {
    let text = error.to_string();
    let known = first.filter(|word| Cli::command().find_subcommand(word).is_some());
    let subcommand = known.unwrap_or("<COMMAND>");
    let told = text.split("\n\nUsage:").next().unwrap_or_default();
    let told = told.split("\n\nFor more information").next().unwrap_or_default().trim_end();
    match told.split_once("\n\n  tip: ") {
        Some((message, tip)) => Diagnostic::new(message).hint(tip.replace("\n  tip: ", "; ")),
        None => Diagnostic::new(told).hint(format!("`blis {subcommand} --help` describes every flag")),
    }
}

#[cfg(test)]
mod tests;
