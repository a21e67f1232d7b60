//! The commands of the program.

use blis_eval::{Figure, FitnessScale};
use blis_report::anomaly_definitions;
use clap::{Parser, Subcommand};

use super::args::{CompareArgs, ReplayArgs, RunArgs};
use super::compose::ComposeArgs;
use super::fidelity::{FitArgs, ValidateArgs};
use super::judge::{EvaluateArgs, InitArgs, MergeArgs, ReportArgs, ServeArgs, ShinkaArgs, TuneArgs};
use super::plugin::PluginArgs;
use super::regret::RegretArgs;
use super::trace::TraceArgs;
use super::traces::{ConvertArgs, WorkloadCommandArgs};

/// Simulates LLM inference services without GPUs.
#[derive(Debug, Parser)]
#[command(name = "blis", version, max_term_width = 100, args_override_self = true, disable_help_subcommand = true)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Simulate a generated workload or a request trace
    #[command(args_override_self = true, allow_negative_numbers = true, after_long_help = anomalies_and_fitness(),
              override_usage = "blis run [OPTIONS] --model <NAME>")]
    Run(Box<RunArgs>),
    /// Compare routing policies or bundles under the same requests, seed by seed
    #[command(args_override_self = true, allow_negative_numbers = true, after_long_help = fitness(),
              override_usage = "blis compare [OPTIONS] --model <NAME> <POLICY|FILE>...")]
    Compare(Box<CompareArgs>),
    /// Simulate a recorded trace: a header (YAML) and its requests (CSV)
    #[command(args_override_self = true, allow_negative_numbers = true, after_long_help = anomalies_and_fitness(),
              override_usage = "blis replay [OPTIONS] --model <NAME> --trace-header <FILE> --trace-data <FILE>")]
    Replay(Box<ReplayArgs>),
    /// Tell what would have happened, had decisions been others: the regret of a policy, and how much a
    /// better one could gain
    #[command(
        args_override_self = true,
        allow_negative_numbers = true,
        override_usage = "blis regret [OPTIONS] --model <NAME>"
    )]
    Regret(Box<RegretArgs>),
    /// Judge candidates on a suite of scenarios, against a baseline: one JSON document each
    #[command(args_override_self = true)]
    Evaluate(EvaluateArgs),
    /// Put the parts of an evaluation on several machines together
    Merge(MergeArgs),
    /// Run candidates on the held-out scenarios of a suite, against its baseline and rivals
    #[command(args_override_self = true)]
    Report(ReportArgs),
    /// Find better values for the parameters that a candidate declares
    #[command(args_override_self = true)]
    Tune(TuneArgs),
    /// Write a project for a search tool, ready to run
    Init(InitArgs),
    /// Judge a candidate for ShinkaEvolve: writes metrics.json and correct.json
    #[command(name = "shinka-evaluate")]
    Shinka(ShinkaArgs),
    /// Judge candidates for other programs: lines of JSON, or HTTP on this machine
    Serve(ServeArgs),
    /// List, start, build, check and measure policies of your own
    Plugin(PluginArgs),
    /// Look at the decisions of a run, recorded with --trace-path
    Trace(TraceArgs),
    /// Look at workloads without simulating them
    Workload(WorkloadCommandArgs),
    /// Write a request trace in another format, and say what is lost
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Convert(ConvertArgs),
    /// Write one workload specification that sends what several send together
    #[command(args_override_self = true)]
    Compose(ComposeArgs),
    /// Calibrate the physics latency model against measured runs of real servers
    #[command(args_override_self = true)]
    Fit(FitArgs),
    /// Compare simulated with measured latencies of real servers
    #[command(args_override_self = true)]
    Validate(ValidateArgs),
    /// List the models with a configuration
    Models,
    /// List the GPUs with a description
    Hardware,
}

/// What is counted as an anomaly, and what a fitness can be made of.
fn anomalies_and_fitness() -> String {
    format!("Anomalies, as counted in the results:\n{}\n{}", anomaly_definitions(), fitness())
}

/// What a fitness can be made of.
fn fitness() -> String {
    let scale = |scale: FitnessScale| format!("  {}: {}\n", scale.name(), scale.definition());
    let scales: String = FitnessScale::ALL.into_iter().map(scale).collect();
    format!("Figures, for --fitness-weights and as compared:\n{}\nScales of --fitness-scale:\n{scales}", Figure::help())
}
