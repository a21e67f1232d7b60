//! `blis capacity`, `blis size`, `blis sweep`, `blis diagnose`: planning of capacity within SLOs, and what binds.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr as _;

use blis_eval::envelope::Envelope;
use blis_eval::error::RunError;
use blis_eval::planning::{
    self, ComparedBy, CsvTable, DiagnoseConfig, ElasticCurve, ModelErrorDraws, PlanConfig, Slo, SweepConfig, Variation,
};
use blis_eval::spec::{commands, parse};
use blis_report::{Concludes, check_target, write_text};
use blis_sim::units::Micros;
use clap::Args;
use serde::Serialize;

use super::args::Settings;
use super::envelope::{csv_header, print_result, write_report};
use super::policies::{explain_policies, warn_of_policies};
use super::progress::Spinner;
use super::run_args::OutputFlags;
use super::view::check_page;

pub(super) const PLANNING: &str = "Planning";

#[derive(Debug, Args)]
pub(super) struct PlanArgs<const COMMANDS: u16> {
    #[command(flatten)]
    given: Settings<COMMANDS>,
    /// SLOs, as ttft_p99=500ms,tpot_p90=60ms; of one class, as critical.ttft_p99=300ms. Latencies are ttft, tpot, itl and
    /// e2e, statistics mean, p50, p90, p95 and p99. A request that does not complete violates all
    #[arg(long, value_name = "LIMIT,…", required = true, value_delimiter = ',', value_parser = Slo::parse,
          help_heading = PLANNING)]
    slo: Vec<Slo>,
    /// Errors of the latency model like those of measured deployments are drawn, and what they change is shown: on (20 draws, 5 where
    /// runs are long), off, or their number
    #[arg(long, value_name = "on|off|N", default_value = "on", value_parser = ModelErrorDraws::from_str,
          help_heading = PLANNING)]
    model_error: ModelErrorDraws,
    #[command(flatten)]
    replications: ReplicationFlags,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Debug, Args)]
pub(super) struct CapacityArgs {
    #[command(flatten)]
    plan: PlanArgs<{ commands::CAPACITY }>,
    /// Whole deployments: a flag of `blis run` and its values, as tp=1,2; may be given several times for all combinations. The
    /// others are compared with the first
    #[arg(long, value_name = "FLAG=VALUE,…", value_parser = Variation::parse, help_heading = PLANNING)]
    vary: Vec<Variation>,
}

#[derive(Debug, Args)]
pub(super) struct SizeArgs {
    #[command(flatten)]
    plan: PlanArgs<{ commands::SIZE }>,
    /// The perfect elastic curve: replicas that follow the arrivals, each at the highest rate that one serves within the SLOs,
    /// and are there at once; against the fewest fixed replicas
    #[arg(long, help_heading = PLANNING)]
    elastic: bool,
    /// Interval of the curve, s or with a unit [default: 60]
    #[arg(long, value_name = "S", value_parser = parse::seconds_above_0, requires = "elastic", help_heading = PLANNING)]
    interval: Option<Micros>,
}

#[derive(Debug, Args)]
pub(super) struct SweepArgs {
    #[command(flatten)]
    given: Settings<{ commands::SWEEP }>,
    /// A flag of `blis run` and its values, as tp=1,2,4, or a range, as rate=10:50:10; may be given several times for all combinations
    #[arg(long, value_name = "FLAG=VALUE,…", required = true, value_parser = Variation::parse, help_heading = PLANNING)]
    vary: Vec<Variation>,
    /// The figures that are shown, with their limits, as for `blis capacity` [default: ttft_p90 and tpot_p50, without
    /// limits]
    #[arg(long, value_name = "LIMIT,…", value_delimiter = ',', value_parser = Slo::parse, help_heading = PLANNING)]
    slo: Vec<Slo>,
    /// Points are compared by the share of requests within all limits of --slo, instead of the figures: what an autoscaler costs
    /// against what it attains
    #[arg(long, requires = "slo", help_heading = PLANNING)]
    by_attainment: bool,
    #[command(flatten)]
    replications: ReplicationFlags,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Debug, Args)]
pub(super) struct DiagnoseArgs {
    #[command(flatten)]
    given: Settings<{ commands::DIAGNOSE }>,
    /// SLOs, as for `blis capacity`: the figure of the worst violated one counts [default: p95 TTFT or mean E2E, where
    /// more of the time is lost]
    #[arg(long, value_name = "LIMIT,…", value_delimiter = ',', value_parser = Slo::parse, help_heading = PLANNING)]
    slo: Vec<Slo>,
    /// Instead of a simulated service a real one: two scrapes of the /metrics of vLLM, the earlier one first. Its counters
    /// say what binds; no knob is tried
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], help_heading = PLANNING)]
    metrics: Vec<PathBuf>,
    #[command(flatten)]
    replications: ReplicationFlags,
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
    /// File for the table as CSV: a line for each policy, number of replicas, point or knob
    #[arg(long, value_name = "FILE", help_heading = PLANNING)]
    csv: Option<PathBuf>,
}

impl ReplicationFlags {
    /// The seeds and threads, if the files can be written.
    fn checked(&self, output: &OutputFlags) -> Result<(u32, usize), RunError> {
        check_page(output.report.as_deref())?;
        self.csv.iter().try_for_each(|path| check_target(path).map_err(|error| RunError::file(&error)))?;
        Ok((self.seeds, self.threads))
    }

    /// Prints `found`, and writes its table and its page.
    fn show<T: Display + Serialize + CsvTable + Concludes>(
        &self,
        title: &str,
        found: &T,
        envelope: &Envelope,
        output: &OutputFlags,
    ) -> Result<(), RunError> {
        print_result(output.output, found, envelope, found)?;
        let csv = || format!("{}{}", csv_header(found, envelope), found.csv());
        let write = |path: &PathBuf| write_text(path, &csv()).map_err(|error| RunError::file(&error));
        self.csv.iter().try_for_each(write)?;
        write_report(output.report.as_deref(), title, found, envelope)
    }
}

/// `blis capacity`.
pub(super) fn capacity(args: &CapacityArgs) -> Result<(), RunError> {
    plan(&args.plan, &args.vary, "Capacity", "searching the capacity", planning::capacity)
}

/// `blis size`.
pub(super) fn size(args: &SizeArgs) -> Result<(), RunError> {
    const TITLE: &str = "Size";
    const WHAT: &str = "searching the number of replicas";
    if args.elastic {
        let interval = args.interval.unwrap_or(ElasticCurve::INTERVAL);
        return plan(&args.plan, &[], TITLE, WHAT, |config| planning::elastic(config, interval));
    }
    plan(&args.plan, &[], TITLE, WHAT, planning::size)
}

/// Prints what `search` finds, over deployments with the values of `vary` if there are any; `what` it does is shown meanwhile, `title` is that of its page.
fn plan<T: Display + Serialize + CsvTable + Concludes, const COMMANDS: u16>(
    args: &PlanArgs<COMMANDS>,
    vary: &[Variation],
    title: &str,
    what: &'static str,
    search: impl FnOnce(&PlanConfig) -> Result<T, RunError>,
) -> Result<(), RunError> {
    let PlanArgs { given, slo, model_error, replications, output } = args;
    output.begin();
    let (seeds, threads) = replications.checked(output)?;
    let spec = given.over(output.config.as_deref())?;
    let config = match vary {
        [] => PlanConfig::new(spec, slo, seeds, threads)?,
        vary => PlanConfig::of_settings(spec, vary, slo, seeds, threads)?,
    };
    let config = config.with_model_error(*model_error);
    if output.explain_config {
        return explain_policies(&config.policies);
    }
    let spinner = Spinner::start(what, output.no_progress);
    let found = search(&config);
    drop(spinner);
    let found = found?;
    warn_of_policies(&config.policies);
    let envelope = Envelope::of_service(&config.base, config.seeds(), &config.policies)?;
    replications.show(title, &found, &envelope, output)
}

/// `blis sweep`.
pub(super) fn sweep(args: &SweepArgs) -> Result<(), RunError> {
    let SweepArgs { given, vary, slo, replications, output, .. } = args;
    output.begin();
    let by = if args.by_attainment { ComparedBy::Attainment } else { ComparedBy::Figures };
    let spec = given.over(output.config.as_deref())?;
    let (seeds, threads) = replications.checked(output)?;
    let config = SweepConfig::new(&spec, vary, slo, by, seeds, threads)?;
    if output.explain_config {
        let points = config.experiments().map(|(name, experiment)| (name, experiment.clone()));
        return explain_policies(&points.collect::<Vec<_>>());
    }
    let spinner = Spinner::start("measuring points", output.no_progress);
    let found = planning::sweep(&config);
    drop(spinner);
    let found = found?;
    let points: Vec<_> = config.experiments().map(|(name, experiment)| (name, experiment.clone())).collect();
    // Points that cannot be deployed are results, too.
    let mut services = points.iter().map(|(_, point)| Envelope::of_service(point, config.seeds(), &points));
    let envelope =
        services.find_map(Result::ok).unwrap_or_else(|| Envelope::in_words("points that cannot be deployed"));
    replications.show("Sweep", &found, &envelope, output)
}

/// `blis diagnose`: what binds, as a sentence, a table of causes and one of knobs.
pub(super) fn diagnose(args: &DiagnoseArgs) -> Result<(), RunError> {
    let DiagnoseArgs { given, slo, metrics, replications, output } = args;
    output.begin();
    let (seeds, threads) = replications.checked(output)?;
    let spec = given.over(output.config.as_deref())?;
    if let [before, after] = &metrics[..] {
        let flag = spec.entries().next().map(|(key, _)| key.name).or_else(|| slo.first().map(|_| "slo"));
        if let Some(flag) = flag {
            return Err(RunError::usage(format_args!("`--{flag}` has no effect with `--metrics`"))
                .hint("counters are those of a real server: leave out what describes a simulated one"));
        }
        let about = Envelope::in_words(format!("a server between {} and {}", before.display(), after.display()));
        return replications.show("Diagnosis", &planning::diagnose_metrics(before, after)?, &about, output);
    }
    let config = DiagnoseConfig::new(spec, slo, seeds, threads)?;
    if output.explain_config {
        return explain_policies(&[("service".to_owned(), config.base.clone())]);
    }
    let spinner = Spinner::start("trying knobs", output.no_progress);
    let found = planning::diagnose(&config);
    drop(spinner);
    let found = found?;
    let service = [("service".to_owned(), config.base)];
    warn_of_policies(&service);
    let about = Envelope::of_service(&service[0].1, &found.seeds, &[])?;
    replications.show("Diagnosis", &found, &about, output)
}
