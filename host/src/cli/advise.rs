//! `blis advise`: the cheapest deployment for a load within SLOs.

use std::path::{Path, PathBuf};

use blis_eval::envelope::Envelope;
use blis_eval::error::RunError;
use blis_eval::planning::advise::{self, AdviceFile, AdviseConfig, AdviseOptions, Budget, Weights};
use blis_eval::planning::{CsvTable as _, Slo, Variation};
use blis_eval::spec::{commands, parse};
use blis_report::{check_target, write_text};
use clap::Args;
use strum::VariantNames as _;

use super::args::Settings;
use super::envelope::{csv_header, print_result, write_report};
use super::planning::PLANNING;
use super::policies::explain_policies;
use super::progress::Spinner;
use super::run_args::OutputFlags;
use super::view::check_page;

#[derive(Debug, Args)]
pub(super) struct AdviseArgs {
    #[command(flatten)]
    given: Settings<{ commands::ADVISE }>,
    /// SLOs, as ttft_p95=1s,tpot_p90=40ms; of one class, as critical.ttft_p99=300ms; as for `blis capacity`
    #[arg(long, value_name = "LIMIT,…", required = true, value_delimiter = ',', value_parser = Slo::parse,
          help_heading = PLANNING)]
    slo: Vec<Slo>,
    /// Maximum number of GPUs of a deployment, 1 or more [default: no limit]
    #[arg(long, value_name = "N", value_parser = parse::instances, help_heading = PLANNING)]
    max_gpus: Option<u32>,
    /// Maximum price of a deployment, dollars per hour, as 40$/h; needs --prices [default: no limit]
    #[arg(long, value_name = "USD", value_parser = Budget::parse_usd, conflicts_with = "max_gpus",
          help_heading = PLANNING)]
    budget: Option<f64>,
    /// Formats of weights to try beside those of the model: published (none), fp8 (quantised as they are loaded, where the GPU computes in
    /// FP8), nvfp4 (a checkpoint with -nvfp4 at the end of its name, where the GPU computes in FP4)
    #[arg(long, value_name = "FORMAT,…", value_delimiter = ',', value_parser = weights, default_value = "fp8",
          help_heading = PLANNING)]
    allow: Vec<Weights>,
    /// Values of a flag of `blis run` to try, as tp=1,2; instead of those that are tried by themselves. May be given several times. A setting that is
    /// set, as --tp 2, is not varied
    #[arg(long, value_name = "FLAG=VALUE,…", value_parser = Variation::parse, help_heading = PLANNING)]
    vary: Vec<Variation>,
    /// Share of the draws of the latency model's error that may fail, as 10% or 0.1
    #[arg(long, value_name = "SHARE", value_parser = risk, default_value = "10%", help_heading = PLANNING)]
    risk: f64,
    /// All deployments that hold, not only the best of each kind of GPU, parallel size and format
    #[arg(long, help_heading = PLANNING)]
    all: bool,
    /// Seeds of the search, from --seed on, each with requests of its own; as many others check it. A trace has one
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = parse::seeds, help_heading = PLANNING)]
    seeds: u32,
    /// Threads; 0 for one per core. Results do not depend on it
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse::threads, help_heading = PLANNING)]
    threads: usize,
    /// Folder for the files of the choice: commands of vLLM, values for llm-d, the configuration of `blis run`, and a README with caveats
    #[arg(long, value_name = "FOLDER", help_heading = PLANNING)]
    out: Option<PathBuf>,
    /// File for the table as CSV: a line for each deployment
    #[arg(long, value_name = "FILE", help_heading = PLANNING)]
    csv: Option<PathBuf>,
    #[command(flatten)]
    output: OutputFlags,
}

/// `blis advise`.
pub(super) fn advise(args: &AdviseArgs) -> Result<(), RunError> {
    let output = &args.output;
    output.begin();
    check_page(output.report.as_deref())?;
    args.csv.iter().try_for_each(|path| check_target(path).map_err(|error| RunError::file(&error)))?;
    args.out.as_deref().map_or(Ok(()), check_folder)?;
    let spec = args.given.over(output.config.as_deref())?;
    let config = AdviseConfig::new(&spec, &args.slo, &args.options())?;
    if output.explain_config {
        let designs = config.experiments().map(|(name, experiment)| (name, experiment.clone()));
        return explain_policies(&designs.collect::<Vec<_>>());
    }
    let spinner = Spinner::start("searching a deployment", output.no_progress);
    let found = advise::advise(&config);
    drop(spinner);
    let found = found?;
    let designs: Vec<_> = config.experiments().map(|(name, experiment)| (name, experiment.clone())).collect();
    let about = Envelope::of_service(config.base(), config.seeds(), &[])?.among(designs.len());
    print_result(output.output, &found, &about, &found)?;
    let csv = || format!("{}{}", csv_header(&found, &about), found.csv());
    let write = |path: &PathBuf| write_text(path, &csv()).map_err(|error| RunError::file(&error));
    args.csv.iter().try_for_each(write)?;
    args.out.as_deref().map_or(Ok(()), |folder| write_files(folder, &advise::files(&config, &found)))?;
    write_report(output.report.as_deref(), "Advice", &found, &about)
}

impl AdviseArgs {
    fn options(&self) -> AdviseOptions {
        let gpus = self.max_gpus.map(Budget::Gpus);
        AdviseOptions {
            budget: gpus.or(self.budget.map(Budget::UsdPerHour)).unwrap_or(Budget::Unlimited),
            weights: self.allow.clone(),
            variations: self.vary.clone(),
            risk: self.risk,
            all: self.all,
            seeds: self.seeds,
            threads: self.threads,
        }
    }
}

fn weights(text: &str) -> Result<Weights, String> {
    text.trim().parse().map_err(|_| {
        let known = Weights::VARIANTS;
        format!("there is no format `{text}` ({}): {}", known.join(", "), blis_diag::name_hint(text, known))
    })
}

/// A share from 0 to below 1, or per cent.
fn risk(text: &str) -> Result<f64, String> {
    let (number, per) = text.trim().strip_suffix('%').map_or((text, 1.0), |percent| (percent, 100.0));
    let share = number.trim().parse().ok().map(|number: f64| number / per);
    share
        .filter(|share| (0.0..1.0).contains(share))
        .ok_or_else(|| "must be a share from 0 to below 1, as 10% or 0.1".to_owned())
}

/// Refuses a folder that cannot be made, before anything is simulated.
fn check_folder(folder: &Path) -> Result<(), RunError> {
    std::fs::create_dir_all(folder).map_err(|error| {
        RunError::usage(format_args!("the folder `{}` cannot be made: {error}", folder.display()))
            .hint("name another one with `--out`")
    })
}

fn write_files(folder: &Path, files: &[AdviceFile]) -> Result<(), RunError> {
    let write =
        |file: &AdviceFile| write_text(&folder.join(file.name), &file.text).map_err(|error| RunError::file(&error));
    files.iter().try_for_each(write)
}
