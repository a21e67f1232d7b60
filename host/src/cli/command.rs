//! The commands of the program, as one tree. [`help`](super::help) adds examples and short pages to it.

use blis_eval::{Figure, FitnessScale};
use blis_report::anomaly_definitions;
use clap::{Args, Parser, Subcommand};

use super::advise::AdviseArgs;
use super::calibrate::CalibrateArgs;
use super::decisions::DecisionsArgs;
use super::evaluate::{EvaluateArgs, HeldOutArgs, InitArgs, MergeArgs, SearchArgs, ServeArgs, ShinkaArgs, TuneArgs};
use super::exchange::{ExportArgs, ImportArgs};
use super::fidelity::{FitArgs, ValidateArgs};
use super::fit_memory::FitMemoryArgs;
use super::listing::{ListingArgs, ModelsArgs};
use super::mock_server::MockServerArgs;
use super::observe::ObserveArgs;
use super::output::ColorChoice;
use super::pages::{CompletionsArgs, ManArgs};
use super::planning::{CapacityArgs, DiagnoseArgs, SizeArgs, SweepArgs};
use super::plot::PlotArgs;
use super::plugin::PluginArgs;
use super::regret::RegretArgs;
use super::run_args::{CompareArgs, ReplayArgs, RunArgs};
use super::steps::StepsArgs;
use super::suite::SuiteArgs;
use super::view::ViewArgs;
use super::workload::{ComposeArgs, ConvertArgs, WorkloadArgs};

/// Simulates LLM inference services without GPUs, and hosts, evaluates and tunes the policies that run them.
#[derive(Debug, Parser)]
#[command(name = "blis", version, max_term_width = 100, args_override_self = true)]
pub(super) struct Cli {
    #[command(flatten)]
    pub global: GlobalFlags,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Flags of every command.
#[derive(Debug, Args)]
pub(super) struct GlobalFlags {
    /// Colour of messages, help and summaries; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = ColorChoice::Auto, hide_short_help = true)]
    pub color: ColorChoice,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Simulate a generated workload or a request trace
    #[command(args_override_self = true, allow_negative_numbers = true, after_long_help = anomalies_and_fitness(),
              override_usage = "blis run [OPTIONS] --model <NAME>")]
    Run(Box<RunArgs>),
    /// Simulate a recorded trace: a header (YAML) and its requests (CSV)
    #[command(args_override_self = true, allow_negative_numbers = true, after_long_help = anomalies_and_fitness(),
              override_usage = "blis replay [OPTIONS] --model <NAME> --trace-header <FILE> --trace-data <FILE>")]
    Replay(Box<ReplayArgs>),
    /// Compare policies or whole deployments under the same requests, seed by seed
    #[command(args_override_self = true, allow_negative_numbers = true, after_long_help = fitness(),
              override_usage = "blis compare [OPTIONS] --model <NAME> <POLICY|FILE>...\n       \
                                blis compare [OPTIONS] --model <NAME> --vary <FLAG=VALUE,…>...")]
    Compare(Box<CompareArgs>),
    /// Counterfactual regret of a policy's decisions, and a bound that no policy passes
    #[command(
        args_override_self = true,
        allow_negative_numbers = true,
        override_usage = "blis regret [OPTIONS] --model <NAME>"
    )]
    Regret(Box<RegretArgs>),

    /// The highest load that a deployment serves within its SLOs, per policy
    #[command(
        args_override_self = true,
        allow_negative_numbers = true,
        override_usage = "blis capacity [OPTIONS] --model <NAME> --slo <LIMIT,…>"
    )]
    Capacity(Box<CapacityArgs>),
    /// The fewest replicas that serve a load within SLOs, checked under other seeds
    #[command(
        args_override_self = true,
        allow_negative_numbers = true,
        override_usage = "blis size [OPTIONS] --model <NAME> --slo <LIMIT,…>"
    )]
    Size(Box<SizeArgs>),
    /// Runs over ranges of settings: latencies against cost, and the points that no other dominates
    #[command(
        args_override_self = true,
        allow_negative_numbers = true,
        override_usage = "blis sweep [OPTIONS] --model <NAME> --vary <FLAG=VALUE,…>..."
    )]
    Sweep(Box<SweepArgs>),
    /// The cheapest deployment for a load within SLOs: GPUs, parallel sizes, formats, batches, roles and routers
    #[command(
        args_override_self = true,
        allow_negative_numbers = true,
        override_usage = "blis advise [OPTIONS] --model <NAME> --slo <LIMIT,…>"
    )]
    Advise(Box<AdviseArgs>),
    /// What binds a service: the time of its requests by cause, and the knobs tried and ranked
    #[command(
        args_override_self = true,
        allow_negative_numbers = true,
        override_usage = "blis diagnose [OPTIONS] --model <NAME>"
    )]
    Diagnose(Box<DiagnoseArgs>),
    /// A page with charts of results: one HTML file
    View(ViewArgs),
    /// A figure of results for a paper: SVG or PNG, with its numbers beside it
    Plot(PlotArgs),

    /// Evaluate candidate policies on a suite of scenarios against its best built-in policy
    #[command(
        args_override_self = true,
        disable_help_subcommand = true,
        override_usage = "blis evaluate [OPTIONS] <CANDIDATE>...\n       blis evaluate <COMMAND>"
    )]
    Evaluate(EvaluateCommand),
    /// Search a policy for a suite: expressions over signals, state and events, without a language model or with one
    #[command(args_override_self = true)]
    Search(SearchArgs),
    /// Search better values for the parameters that a candidate declares
    #[command(args_override_self = true)]
    Tune(TuneArgs),
    /// Evaluate candidates for other programs: JSON lines, or HTTP on this machine
    Serve(ServeArgs),
    /// Choose the reference of a suite: the best built-in policy
    Suite(SuiteArgs),

    /// List, create, build, check and benchmark policies
    Plugin(PluginArgs),
    /// Analyse the recorded decisions of a run (--trace-path)
    Decisions(DecisionsArgs),

    /// Inspect, convert and compose workloads
    Workload(WorkloadArgs),

    /// Load on a server with OpenAI's interface, recorded as a trace
    #[command(
        args_override_self = true,
        allow_negative_numbers = true,
        override_usage = "blis observe [OPTIONS] --model <NAME> --trace-output <PREFIX>"
    )]
    Observe(Box<ObserveArgs>),
    /// Compare a measured trace with its simulation, request by request
    #[command(
        args_override_self = true,
        allow_negative_numbers = true,
        override_usage = "blis calibrate [OPTIONS] --model <NAME> --trace-header <FILE> --trace-data <FILE>"
    )]
    Calibrate(Box<CalibrateArgs>),
    /// Serve OpenAI's interface with the response times of a simulated service
    #[command(
        args_override_self = true,
        allow_negative_numbers = true,
        override_usage = "blis mock-server [OPTIONS] --model <NAME>"
    )]
    MockServer(Box<MockServerArgs>),

    /// Read the settings of other programs: llm-d's router
    Import(ImportArgs),
    /// Write settings for other programs: llm-d's router, vLLM's CPU tier, KEDA
    Export(ExportArgs),

    /// List the models with a configuration, or explain one
    Models(ModelsArgs),
    /// List the GPUs with a description
    Hardware(ListingArgs),
    /// Calibrate the physics latency model against measured runs of real servers
    #[command(args_override_self = true)]
    Fit(FitArgs),
    /// Compare the memory of real servers, from the logs of their starts, with the computed balance of a GPU
    #[command(args_override_self = true)]
    FitMemory(FitMemoryArgs),
    /// Compare simulated with measured latencies of real servers
    #[command(args_override_self = true)]
    Validate(ValidateArgs),

    /// Print the completion script of a shell
    #[command(visible_alias = "completion")]
    Completions(CompletionsArgs),
    /// Write the manual pages
    Man(ManArgs),
    /// Print the version
    Version,

    /// BLIS's name of `blis workload convert`
    #[command(args_override_self = true, allow_negative_numbers = true, hide = true)]
    Convert(ConvertArgs),
    /// BLIS's name of `blis workload compose`
    #[command(args_override_self = true, hide = true)]
    Compose(ComposeArgs),
    /// What the scheduler does with a recorded scenario, step by step
    #[command(args_override_self = true, hide = true)]
    Steps(StepsArgs),
}

/// `blis evaluate`: candidates, or a command.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct EvaluateCommand {
    #[command(flatten)]
    pub args: EvaluateArgs,
    #[command(subcommand)]
    pub command: Option<EvaluateSubcommand>,
}

#[derive(Debug, Subcommand)]
pub(super) enum EvaluateSubcommand {
    /// Run candidates on the held-out split of a suite, against its reference policies
    #[command(args_override_self = true)]
    HeldOut(HeldOutArgs),
    /// Merge the parts of an evaluation that ran on several machines
    Merge(MergeArgs),
    /// Evaluate a candidate for ShinkaEvolve: writes metrics.json and correct.json
    #[command(name = "shinka-evaluate")]
    Shinka(ShinkaArgs),
    /// Create a project for a search tool
    Init(InitArgs),
}

/// The definitions of anomalies, and what a fitness can weigh.
fn anomalies_and_fitness() -> String {
    format!("Anomalies, as counted in the results:\n{}\n{}", anomaly_definitions(), fitness())
}

/// What a fitness can weigh.
fn fitness() -> String {
    let scale = |scale: FitnessScale| format!("  {}: {}\n", scale, scale.definition());
    let scales: String = [FitnessScale::Ratio, FitnessScale::Blis].map(scale).concat();
    format!("Figures, for --fitness-weights and as compared:\n{}\nScales of --fitness-scale:\n{scales}", Figure::help())
}
