//! The command line. Only this module prints and reads the environment.
//!
//! `args` (flags) → [`ExperimentSpec`](blis_eval::spec::ExperimentSpec) → `blis_eval` (simulation and files) →
//! `output` (standard output). Results go to standard output, everything else to standard error.

mod advise;
mod args;
mod bound;
mod calibrate;
mod command;
mod counts;
mod decisions;
mod envelope;
mod evaluate;
mod exchange;
mod export_flags;
mod export_keda;
mod export_plugin;
mod exported_file;
mod fidelity;
mod fit_memory;
mod flags;
mod grant_flags;
mod help;
mod listing;
mod markdown;
mod mock_server;
mod model_facts;
mod observe;
mod one_of;
mod output;
mod pages;
mod planning;
mod plot;
mod plugin;
mod policies;
mod progress;
mod reference;
mod refused;
mod regret;
mod run_args;
mod steps;
mod suite;
mod validated;
mod view;
mod workers;
mod workload;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use blis_eval::compare;
use blis_eval::envelope::{Envelope, ResultSubject};
use blis_eval::error::RunError;
use blis_eval::experiment::Experiment;
use blis_eval::explain::explain;
use blis_eval::identity::RunIdentity;
use blis_eval::kv_layout::KvCacheDocument;
use blis_eval::open;
use blis_eval::prices::GpuPrice;
use blis_eval::regret::Regret;
use blis_eval::run::{self, RunResult};
use blis_report::{
    Caveat, Concludes as _, Conclusion, DecisionSummary, GpuEnergy, LoadReport, PageResult, ReplicasDocument,
    ServiceCost, Setting, Summary, plugins_document, report_document, write_page,
};
use blis_sim::metrics::Distribution;
use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _};
use serde::Serialize;

use command::{Cli, Command};
use envelope::{keep_command, print_result, write_report};
use output::{
    WithGrants, choose_color, color_of, colour_wanted, exit_code, grant, granted, print, print_error, print_text,
    wants_text_form,
};
use policies::{explain_policies, warn_of_policies};
use progress::{ProgressBars, Spinner};
use refused::reworded;
use run_args::{CompareArgs, OutputFlags};

pub use reference::flags_page;

/// Runs the program. Exit code 0: done; 1: the simulation or its output failed; 2: the command line or a file that it
/// names is invalid.
#[must_use]
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    choose_color(color_of(&words));
    keep_command(&words);
    let parsed = matches(&words).and_then(|matches| {
        grant(&matches);
        Cli::from_arg_matches(&matches)
    });
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return show_clap(&error, &words),
    };
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_quiet() {
                print_error(&failure);
            }
            exit_code(&failure)
        }
    }
}

fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&matches(words)?)
}

fn matches(words: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let color = if colour_wanted(&io::stdout()) { clap::ColorChoice::Always } else { clap::ColorChoice::Never };
    let only = help::only_simulating(words).map(|command| command.color(color).try_get_matches_from(words));
    let matches = match only {
        Some(Ok(matches)) => Ok(matches),
        _ => Cli::command().color(color).try_get_matches_from(words),
    };
    // The pages of all commands take longer to make than the rest of a start.
    match matches {
        Err(error) if !error.use_stderr() => help::command().color(color).try_get_matches_from(words),
        matches => matches,
    }
}

/// Parses a command line, the program's name first, and runs nothing.
///
/// # Errors
/// The message that the program would print for an invalid command line.
pub fn check_words(words: &[OsString]) -> Result<(), String> {
    match parse(words) {
        Err(error) if error.use_stderr() => Err(reworded(&error, words).to_string()),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn dispatch(cli: Cli) -> Result<(), RunError> {
    match cli.command {
        Some(Command::Run(args)) => simulate(&args.experiment()?, &args.output),
        Some(Command::Replay(args)) => simulate(&args.experiment()?, &args.output),
        Some(Command::Compare(args)) => compare(&args),
        Some(Command::Regret(args)) => regret::dispatch(*args),
        Some(Command::Capacity(args)) => planning::capacity(&args),
        Some(Command::Size(args)) => planning::size(&args),
        Some(Command::Sweep(args)) => planning::sweep(&args),
        Some(Command::Advise(args)) => advise::advise(&args),
        Some(Command::Diagnose(args)) => planning::diagnose(&args),
        Some(Command::View(args)) => view::view(&args),
        Some(Command::Plot(args)) => plot::plot_results(&args),
        Some(Command::Evaluate(command)) => evaluate::dispatch(&command),
        Some(Command::Search(args)) => evaluate::search(&args),
        Some(Command::Tune(args)) => evaluate::tune(&args),
        Some(Command::Serve(args)) => evaluate::serve(&args),
        Some(Command::Calibrate(args)) => calibrate::run(&args),
        Some(Command::Observe(args)) => observe::run(&args),
        Some(Command::MockServer(args)) => mock_server::run(&args),
        Some(Command::Suite(args)) => suite::dispatch(&args),
        Some(Command::Plugin(args)) => plugin::dispatch(args),
        Some(Command::Decisions(args)) => decisions::dispatch(args),
        Some(Command::Workload(args)) => workload::dispatch(args),
        Some(Command::Import(args)) => exchange::import(&args),
        Some(Command::Export(args)) => exchange::export(&args),
        Some(Command::Models(args)) => listing::dispatch_models(&args),
        Some(Command::Hardware(args)) => listing::hardware(&args),
        Some(Command::Fit(args)) => fidelity::run_fit(&args),
        Some(Command::FitMemory(args)) => fit_memory::run(&args),
        Some(Command::Validate(args)) => fidelity::run_validate(&args),
        Some(Command::Completions(args)) => pages::completions(&args, help::command()),
        Some(Command::Man(args)) => pages::man(&args, help::command()),
        Some(Command::Version) => print(format_args!("blis {}\n", env!("CARGO_PKG_VERSION"))),
        Some(Command::Convert(args)) => workload::convert(&args),
        Some(Command::Steps(args)) => steps::run(&args),
        Some(Command::Compose(args)) => workload::compose(&args),
        None => print(help::command().render_help()),
    }
}

fn compare(args: &CompareArgs) -> Result<(), RunError> {
    let config = args.config()?;
    let report = args.output.report.as_deref();
    view::check_page(report)?;
    args.output.begin();
    if args.output.explain_config {
        return explain_policies(&config.policies);
    }
    let spinner = Spinner::start("comparing", args.output.no_progress);
    let compared = compare::compare(&config);
    drop(spinner);
    let comparison = compared?;
    for caveat in comparison.caveats() {
        tracing::warn!("{}", caveat.text);
    }
    warn_of_policies(&config.policies);
    let about = Envelope::of_service(&config.base, comparison.seeds(), &config.policies)?;
    print_result(args.output.output, &comparison, &about, &comparison)?;
    write_report(report, "Comparison of policies", &comparison, &about)
}

fn simulate(config: &Experiment, flags: &OutputFlags) -> Result<(), RunError> {
    let text = wants_text_form(flags.output);
    flags.begin();
    if flags.explain_config {
        return print(explain(config, &open::resolve(config)?));
    }
    let progress = ProgressBars { visible: !flags.no_progress && io::stderr().is_terminal() };
    let finished = run::run(config, &progress)?;
    let colour = colour_wanted(&io::stdout());
    let printed = if text { print_summary(&finished, colour) } else { print_json(&finished) };
    printed?;
    // A file that could not be written costs the exit code, not the results.
    let page = config.files.page.as_deref().map_or(Ok(()), |path| page_of_run(path, &finished));
    finished.files.and(page)
}

/// Writes the page of `--report`.
fn page_of_run(path: &Path, finished: &RunResult) -> Result<(), RunError> {
    let Setting { model, workload, .. } = &finished.setting;
    let result = PageResult::new("run", &document(finished), finished.charts.as_ref());
    write_page(path, &format!("{model}: {workload}"), &[result]).map_err(|error| RunError::file(&error))
}

fn print_summary(finished: &RunResult, colour: bool) -> Result<(), RunError> {
    let RunResult { setting, report, tpot, load, replicas, cost, energy, names, warnings, cpu, .. } = finished;
    let (load, replicas, cost) = (load.as_ref(), replicas.as_ref(), cost.as_ref().map(ServiceCost::line));
    let (cost, energy) = (cost.as_deref(), energy.as_ref().map(GpuEnergy::line));
    let energy = energy.as_deref();
    let summary = Summary { setting, report, tpot, load, replicas, cost, energy, names, warnings, colour };
    print_text(format_args!("{}\n\n{summary}", finished.conclusion()))?;
    if let Some((fitness, baseline)) = &finished.fitness {
        print_text(format_args!("\n{}", fitness.block(baseline.as_deref())))?;
    }
    if let Some(decisions) = &finished.decisions {
        print_text(format_args!("\n{decisions}"))?;
    }
    if let Some(regret) = &finished.regret {
        print_text(format_args!("\n{regret}"))?;
    }
    // The speed goes to standard error: it changes from run to run, so it is not a result.
    let (requests, seconds) = (report.cluster.counts.injected(), cpu.as_secs_f64());
    let speed = if seconds > 0.0 { requests as f64 / seconds } else { 0.0 };
    let _ = writeln!(io::stderr(), "simulated in {seconds:.3} CPU s: {speed:.0} requests per CPU second");
    Ok(())
}

fn print_json(finished: &RunResult) -> Result<(), RunError> {
    for (what, hint) in &finished.warnings {
        tracing::warn!("{what} (hint: {hint})");
    }
    output::print_json(&document(finished))
}

/// The results of a run as JSON.
fn document(finished: &RunResult) -> impl Serialize + '_ {
    let report = report_document(&finished.report, &finished.names, finished.empty);
    let fitness = finished.fitness.as_ref().map(|(fitness, baseline)| fitness.document(baseline.as_deref()));
    let plugins = plugins_document(&finished.policies, &finished.incidents);
    RunDocument {
        conclusion: finished.conclusion(),
        state: finished.state.state.name(),
        report,
        cache_hit_rate: finished.report.cluster.cache_hit_rate,
        tpot: TpotFigures::new(&finished.tpot),
        load: finished.load.as_ref(),
        replicas: finished.replicas.as_ref(),
        cost: finished.cost.as_ref(),
        energy: finished.energy.as_ref(),
        plugins,
        fitness,
        decisions: finished.decisions.as_ref(),
        regret: finished.regret.as_ref(),
        kv_cache: finished.kv_cache.as_ref(),
        run: WithGrants {
            document: IdentityWithCommand {
                identity: &finished.identity,
                command: envelope::command(),
                subject: &finished.subject,
                caveats: finished.caveats(),
            },
            granted: granted(),
        },
    }
}

/// What `blis run` and `blis replay` print with `--output json`: the report, then the further results that flags request.
#[derive(Serialize)]
struct RunDocument<'a, R: Serialize, P: Serialize, F: Serialize> {
    /// What follows from the figures.
    conclusion: Conclusion,
    /// Whether the figures are those of a steady service. One of `steady`, `overloaded`, `saturated`, `starved`, `synchronised`,
    /// `too_short`, `deadline`, `undecided`.
    state: &'static str,
    /// The figures of the simulation. JSON: `RunFigures`.
    #[serde(flatten)]
    report: R,
    /// Prefix-cache hits of the tokens looked up, with `--parity blis` of the KV blocks; the mean of the instances. Unit: share.
    cache_hit_rate: f64,
    #[serde(flatten)]
    tpot: TpotFigures,
    /// Offered and served load; absent if all requests arrive at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    load: Option<&'a LoadReport>,
    /// Replicas over time, with `--autoscaler`, `--group` or `--node-pool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<&'a ReplicasDocument>,
    /// Cost of the run, with `--prices`.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<&'a ServiceCost<Vec<GpuPrice>>>,
    /// Energy of the GPUs, with `--energy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    energy: Option<&'a GpuEnergy>,
    /// Plugins that decided; absent if all policies are built in. JSON: `Vec<UsedPlugin>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    plugins: Option<P>,
    /// Score of the run, with `--fitness-weights`. JSON: `FitnessDocument`.
    #[serde(skip_serializing_if = "Option::is_none")]
    fitness: Option<F>,
    /// Numbers of decisions, with `--summarize-trace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    decisions: Option<&'a DecisionSummary>,
    /// Regret of sampled decisions, with `--regret`.
    #[serde(skip_serializing_if = "Option::is_none")]
    regret: Option<&'a Regret>,
    /// KV groups and pages of an engine process; absent without a config of the model, and with `--parity blis`.
    #[serde(skip_serializing_if = "Option::is_none")]
    kv_cache: Option<&'a KvCacheDocument>,
    /// What the results are the results of.
    run: WithGrants<IdentityWithCommand<'a>>,
}

/// What the results of a run are the results of, with the command.
#[derive(Serialize)]
struct IdentityWithCommand<'a> {
    #[serde(flatten)]
    identity: &'a RunIdentity,
    /// The command, without flags that change no figure.
    command: &'static str,
    /// What the result is about.
    subject: &'a ResultSubject,
    /// What limits the conclusion.
    caveats: Vec<Caveat>,
}

/// Time per output token, over completed requests with two tokens or more; `null` if there are none.
#[derive(Serialize)]
struct TpotFigures {
    /// Time per output token, (E2E − TTFT) / (output tokens − 1) of each completed request with two or more: mean over
    /// requests; `null` without one.
    tpot_mean_ms: Option<f64>,
    /// Time per output token, median over requests.
    tpot_p50_ms: Option<f64>,
    /// Time per output token, 90th percentile over requests.
    tpot_p90_ms: Option<f64>,
    /// Time per output token, 99th percentile over requests.
    tpot_p99_ms: Option<f64>,
}

impl TpotFigures {
    fn new(tpot: &Distribution) -> Self {
        let figure = |ms| (tpot.count > 0).then_some(ms);
        Self {
            tpot_mean_ms: figure(tpot.mean_ms),
            tpot_p50_ms: figure(tpot.p50_ms),
            tpot_p90_ms: figure(tpot.p90_ms),
            tpot_p99_ms: figure(tpot.p99_ms),
        }
    }
}

/// Help and version go to standard output and are no error.
fn show_clap(error: &clap::Error, words: &[OsString]) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A closed pipe is no error, and nothing could report another.
        let page = error.render();
        let _ = if colour_wanted(&io::stdout()) { print(page.ansi()) } else { print(page) };
        ExitCode::SUCCESS
    } else {
        print_error(&reworded(error, words));
        ExitCode::from(2)
    }
}

#[cfg(test)]
mod tests;
