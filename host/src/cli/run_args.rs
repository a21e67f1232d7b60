//! The arguments of `blis run`, `replay` and `compare`: beside settings what is none, as operands, files that are written, and forms of
//! the output.

use std::path::PathBuf;
use std::str::FromStr as _;

use blis_eval::compare::CompareConfig;
use blis_eval::comparison_rules::ComparisonRules;
use blis_eval::error::RunError;
use blis_eval::experiment::{Experiment, OutputFiles};
use blis_eval::planning::{ModelErrorDraws, Variation};
use blis_eval::spec::{ExperimentSpec, commands, parse};
use clap::Args;

use super::args::Settings;
use super::bound::BoundArgs;
use super::export_flags::ExportFlags;
use super::output::{LogLevel, OUTPUT, OutputForm, start_log};

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub given: Settings<{ commands::RUN }>,
    #[command(flatten)]
    pub output: OutputFlags,
    /// File for the results and every request, JSON
    #[arg(long, visible_alias = "results-path", value_name = "FILE", help_heading = OUTPUT)]
    pub metrics_path: Option<PathBuf>,
    #[command(flatten)]
    pub export: ExportFlags,
}

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    pub given: Settings<{ commands::REPLAY }>,
    #[command(flatten)]
    pub output: OutputFlags,
    /// File for the results and every request, JSON
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub metrics_path: Option<PathBuf>,
    /// File for the latencies of completed requests in µs, JSON
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub results_path: Option<PathBuf>,
    #[command(flatten)]
    pub export: ExportFlags,
}

#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    #[command(flatten)]
    pub given: Settings<{ commands::COMPARE }>,
    /// Two or more policies: names, scripts, components, lists of scorers like queue-depth:2,kv-utilization:1, or
    /// bundles (YAML); or as many configuration files (as of --config, with a `model` or `deployment`): whole deployments
    /// under the same requests. The first is the baseline
    #[arg(value_name = "POLICY|FILE", required_unless_present = "vary")]
    pub compared_policies: Vec<String>,
    /// Whole deployments instead of policies: a flag of `blis run` and its values, as tp=1,2; may be given several times
    /// for all combinations. The first is the baseline
    #[arg(long, value_name = "FLAG=VALUE,…", value_parser = Variation::parse, conflicts_with = "compared_policies",
          help_heading = COMPARISON)]
    pub vary: Vec<Variation>,
    /// Replications: seeds from --seed on. Each is a run of every policy under the same requests
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = parse::seeds, help_heading = COMPARISON)]
    pub seeds: u32,
    /// Twice as many seeds, up to four times, until it is decided; intervals allow for the number of looks
    #[arg(long, help_heading = COMPARISON)]
    pub until_decided: bool,
    /// Difference of interest, as a share of the figure of the baseline: smaller ones are equal
    #[arg(long, value_name = "SHARE", default_value_t = ComparisonRules::default().margin, value_parser = parse::part, help_heading = COMPARISON)]
    pub margin: f64,
    /// The figures that the conclusion is about, as p99_ttft,throughput [default: the fitness, else mean_ttft, p99_ttft, mean_e2e,
    /// throughput]
    #[arg(long, value_name = "FIGURE,…", value_delimiter = ',', help_heading = COMPARISON)]
    pub primary: Vec<String>,
    /// Of deployments: errors of the latency model like those of measured deployments are drawn, at the same quantile for all, and how
    /// often the conclusion holds is shown: on (20 draws, 5 where runs are long), off, or their number
    #[arg(long, value_name = "on|off|N", default_value = "on", value_parser = ModelErrorDraws::from_str,
          help_heading = COMPARISON)]
    pub model_error: ModelErrorDraws,
    /// Threads; 0 for one per core. Results do not depend on it
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse::threads, help_heading = COMPARISON)]
    pub threads: usize,
    #[command(flatten)]
    pub output: OutputFlags,
}

const COMPARISON: &str = "Comparison";
const SIMULATION: &str = "Simulation";
/// The heading of what `blis regret` computes, beside its settings.
pub(super) const REGRET: &str = "Counterfactual regret";

#[derive(Debug, Args)]
pub(super) struct OutputFlags {
    /// Configuration file, YAML, as --explain-config prints it; flags win over it
    #[arg(long, value_name = "FILE", help_heading = SIMULATION)]
    pub config: Option<PathBuf>,
    /// Print the whole configuration as YAML with the source of each value, and simulate nothing
    #[arg(long, help_heading = OUTPUT)]
    pub explain_config: bool,
    /// Log level of messages on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = LogLevel::Warn, help_heading = OUTPUT)]
    pub log: LogLevel,
    /// Form of the output; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto, help_heading = OUTPUT)]
    pub output: OutputForm,
    /// No progress bar
    #[arg(long, help_heading = OUTPUT)]
    pub no_progress: bool,
    /// A page to look at, HTML: one file that needs no network, with charts, and a table behind every chart. Of one run:
    /// the service over time, latencies by class and tenant, stages, the slowest requests
    #[arg(long, value_name = "FILE.html", help_heading = OUTPUT)]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub bound: BoundArgs,
}

impl OutputFlags {
    /// Begins to log, and to watch the bound of the command, which has started no threads.
    pub(super) fn begin(&self) {
        start_log(self.log.into());
        self.bound.start().watch();
    }
}

impl RunArgs {
    /// The specification of the experiment.
    pub(super) fn spec(&self) -> Result<ExperimentSpec, RunError> {
        self.given.over(self.output.config.as_deref())
    }

    /// The files that the run writes.
    pub(super) fn files(&self) -> OutputFiles {
        OutputFiles { page: self.output.report.clone(), ..self.export.files(&self.metrics_path, &None) }
    }

    /// The experiment, validated.
    pub(super) fn experiment(&self) -> Result<Experiment, RunError> {
        Experiment::new(self.spec()?, self.files())
    }
}

impl ReplayArgs {
    /// The experiment, validated.
    pub(super) fn experiment(&self) -> Result<Experiment, RunError> {
        let spec = self.given.over(self.output.config.as_deref())?;
        if spec.trace_header.is_none() && spec.trace_data.is_none() {
            let two_files = "a recorded trace has two files: `--trace-header FILE.yaml --trace-data FILE.csv`";
            return Err(RunError::usage("no trace to replay").hint(two_files));
        }
        let files = self.export.files(&self.metrics_path, &self.results_path);
        Experiment::new(spec, OutputFiles { page: self.output.report.clone(), ..files })
    }
}

impl CompareArgs {
    /// The comparison, validated.
    pub(super) fn config(&self) -> Result<CompareConfig, RunError> {
        let spec = self.given.over(self.output.config.as_deref())?;
        let rules = ComparisonRules::new(self.margin, &self.primary, self.until_decided)?;
        let config = CompareConfig::chosen(spec, &self.vary, &self.compared_policies, self.seeds, self.threads)?;
        Ok(config.with_rules(rules, self.model_error))
    }
}
