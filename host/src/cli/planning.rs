//! `blis capacity`, `blis size`, `blis sweep`: planning of capacity within SLOs.

use std::fmt::Display;
use std::path::PathBuf;

use blis_eval::error::RunError;
use blis_eval::planning::{self, CsvTable, PlanConfig, Slo, SweepConfig, Variation};
use blis_eval::spec::parse;
use blis_report::{check_target, write_text};
use clap::Args;
use serde::Serialize;

use super::args::{ClusterFlags, InstanceArgs, OutputFlags, PolicyFlags, Settings, SimulationArgs, WorkloadArgs};
use super::output::{print_document, print_text, start_log, wants_text_form};
use super::progress::Spinner;
use super::{explain_policies, warn_of_policies};

const PLANNING: &str = "Planning";

#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    given: Settings,
    #[command(flatten)]
    plan: PlanFlags,
    #[command(flatten)]
    instance: InstanceArgs,
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    policies: PolicyFlags,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    simulation: SimulationArgs,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Debug, Args)]
struct PlanFlags {
    /// SLOs, as ttft_p99=500ms,tpot_p90=60ms; of one class, as critical.ttft_p99=300ms. Latencies are ttft, tpot, itl and
    /// e2e, statistics mean, p50, p90, p95 and p99. A request that does not complete violates all
    #[arg(long, value_name = "LIMIT,…", required = true, value_delimiter = ',', value_parser = Slo::parse,
          help_heading = PLANNING)]
    slo: Vec<Slo>,
    #[command(flatten)]
    replications: ReplicationFlags,
}

#[derive(Debug, Args)]
pub(super) struct SweepArgs {
    #[command(flatten)]
    given: Settings,
    /// A flag of `blis run` and its values, as tp=1,2,4; may be given several times for all combinations
    #[arg(long, value_name = "FLAG=VALUE,…", required = true, value_parser = Variation::parse, help_heading = PLANNING)]
    vary: Vec<Variation>,
    /// The figures that are shown, with their limits, as for `blis capacity` [default: ttft_p90 and tpot_p50, without
    /// limits]
    #[arg(long, value_name = "LIMIT,…", value_delimiter = ',', value_parser = Slo::parse, help_heading = PLANNING)]
    slo: Vec<Slo>,
    #[command(flatten)]
    replications: ReplicationFlags,
    #[command(flatten)]
    instance: InstanceArgs,
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    policies: PolicyFlags,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    simulation: SimulationArgs,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Debug, Args)]
struct ReplicationFlags {
    /// Replications: seeds from --seed on, each with requests of its own. A trace has the same requests under every seed,
    /// and one is used
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = parse::seeds, help_heading = PLANNING)]
    seeds: u32,
    /// Threads; 0 for one per core. Results do not depend on it
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse::threads, help_heading = PLANNING)]
    threads: usize,
    /// File for the table as CSV: a line for each policy, number of replicas or point
    #[arg(long, value_name = "FILE", help_heading = PLANNING)]
    csv: Option<PathBuf>,
}

impl ReplicationFlags {
    /// The seeds and threads, if the file can be written.
    fn checked(&self) -> Result<(u32, usize), RunError> {
        self.csv.iter().try_for_each(|path| check_target(path).map_err(|error| RunError::file(&error)))?;
        Ok((self.seeds, self.threads))
    }

    /// Prints `found`, and writes its table.
    fn show<T: Display + Serialize + CsvTable>(&self, found: &T, output: &OutputFlags) -> Result<(), RunError> {
        if wants_text_form(output.output) { print_text(found) } else { print_document(found) }?;
        let write = |path: &PathBuf| write_text(path, &found.csv()).map_err(|error| RunError::file(&error));
        self.csv.iter().try_for_each(write)
    }
}

/// `blis capacity`.
pub(super) fn capacity(args: &PlanArgs) -> Result<(), RunError> {
    plan(args, "searching the capacity", planning::capacity)
}

/// `blis size`.
pub(super) fn size(args: &PlanArgs) -> Result<(), RunError> {
    plan(args, "searching the number of replicas", planning::size)
}

/// Prints what `search` finds; `what` it does is shown meanwhile.
fn plan<T: Display + Serialize + CsvTable>(
    args: &PlanArgs,
    what: &'static str,
    search: fn(&PlanConfig) -> Result<T, RunError>,
) -> Result<(), RunError> {
    let PlanArgs { given, plan, output, .. } = args;
    start_log(output.log.into());
    let (seeds, threads) = plan.replications.checked()?;
    let config = PlanConfig::new(given.over(output)?, &plan.slo, seeds, threads)?;
    if output.explain_config {
        return explain_policies(&config.base, &config.policies);
    }
    let spinner = Spinner::start(what, output.no_progress);
    let found = search(&config);
    drop(spinner);
    let found = found?;
    warn_of_policies(&config.policies);
    plan.replications.show(&found, output)
}

/// `blis sweep`.
pub(super) fn sweep(args: &SweepArgs) -> Result<(), RunError> {
    let SweepArgs { given, vary, slo, replications, output, .. } = args;
    start_log(output.log.into());
    let config = SweepConfig::new(&given.over(output)?, vary, slo, replications.checked()?)?;
    if output.explain_config {
        return config
            .experiments()
            .try_for_each(|(name, experiment)| explain_policies(experiment, &[(name, experiment.clone())]));
    }
    let spinner = Spinner::start("measuring points", output.no_progress);
    let found = planning::sweep(&config);
    drop(spinner);
    replications.show(&found?, output)
}
