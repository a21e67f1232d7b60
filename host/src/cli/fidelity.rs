//! `blis fit` and `blis validate`: measurements of real servers.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::markdown::{kernel_page, run_page, step_page};
use super::one_of::OneOf;
use super::output::{TableForm, print, print_table};
use super::validated::{kernel_table, steps_table, table};
use blis_config::Catalogue;
use blis_config::physics::CoefficientFile;
use blis_eval::error::RunError;
use blis_eval::spec::{EngineName, ParityName, parse};
use blis_fit::kernels::{OperationErrors, fit_kernels, kernel_errors, table_prefixes, yaml};
use blis_fit::plot::draw;
use blis_fit::{
    FitError, FitReport, LeaveOut, MeasuredRun, RunOptions, RunSplit, RunStage, Validated, ValidatedSteps, fit,
    is_steps, load, validate, validate_steps,
};
use blis_report::{check_target, write_text};

#[derive(Debug, Args)]
pub(super) struct ValidateArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Instead: DATA is a folder with tables of measured kernels; compare the curves of every GPU with its tables
    #[arg(long, conflicts_with_all = ["requests", "fail_over", "plot", "only"])]
    kernels: bool,
    /// Which requests to compare: those that no fit has seen, if the data tell, or all
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = Which::Unseen)]
    requests: Which,
    /// Compare sampled scheduler steps instead of requests; tables of steps need no flag, OpenTelemetry files have both
    #[arg(long, conflicts_with = "plot")]
    steps: bool,
    /// Exit with code 1 if the mean end-to-end latency of a run is off by more, % > 0
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_over: Option<f64>,
    /// Simulator to compare with the measurements; blis: its latency model, scheduler and KV formula
    #[arg(long, value_parser = OneOf::<ParityName>::new(), value_name = "NAME", default_value = "vllm")]
    parity: ParityName,
    /// Draw measured and simulated latency over time, one panel per run (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Form of the output; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = TableForm::Auto)]
    output: TableForm,
}

#[derive(Debug, Args)]
pub(super) struct FitArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Coefficient file to write, for `--coefficients`
    #[arg(long, value_name = "FILE", required_unless_present = "kernels")]
    out: Option<PathBuf>,
    /// Instead: DATA is a folder with tables of measured kernels; print the curves of `--hardware` fitted to the
    /// files whose name starts so (`h100`), as they stand in its file
    #[arg(long, value_name = "PREFIX", requires = "hardware")]
    kernels: Option<String>,
    /// Keep the general weights and the other deployments of this coefficient file; fit only the deployments
    /// of DATA, around those weights
    #[arg(long, value_name = "FILE", conflicts_with = "leave_one_model_out")]
    base: Option<PathBuf>,
    /// Fit to all other models, and see what that predicts for each
    #[arg(long)]
    leave_one_model_out: bool,
    /// Fit each deployment to its other workloads, and see what that predicts for each
    #[arg(long)]
    leave_one_workload_out: bool,
    /// Form of the output; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = TableForm::Auto)]
    output: TableForm,
}

/// Measured runs, and what their files do not say.
#[derive(Debug, Args)]
pub(super) struct DataArgs {
    /// Measured runs: a folder with `runs.csv` or `aggregates.csv`, such a file, or one file of requests: CSV, results of
    /// vllm bench, AIPerf, guidellm, OpenTelemetry, TraceV2; for validate also sampled scheduler steps
    #[arg(value_name = "DATA", required = true)]
    data: Vec<PathBuf>,
    /// Only runs whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Model that was served; needed with a file of requests alone
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// GPU it was served on
    #[arg(long, value_name = "NAME")]
    hardware: Option<String>,
    /// GPUs per instance
    #[arg(long, visible_alias = "tensor-parallel-size", value_name = "N")]
    tp: Option<u32>,
    /// Engine that served them [default: vllm-0.15, on which the coefficients were measured]
    #[arg(long, value_parser = OneOf::<EngineName>::new(), value_name = "NAME")]
    engine: Option<EngineName>,
    /// Data parallelism of mixture-of-experts models, replicas ≥ 1 [default: 1]
    #[arg(long, visible_alias = "data-parallel-size", value_name = "N", value_parser = parse::parallelism)]
    dp: Option<u32>,
    /// Expert parallelism: experts are distributed over the ranks
    #[arg(long)]
    enable_expert_parallel: bool,
    /// Share of GPU memory for weights and KV cache, above 0, at most 1 [default: that of the engine: 0.9 of vLLM 0.15]
    #[arg(long, value_name = "SHARE", value_parser = parse::share)]
    gpu_memory_utilization: Option<f64>,
    /// Levels of load, requests/s x seconds, as 8x600+20x600: errors are shown for each
    #[arg(long, value_name = "STAGES", value_parser = load_stages)]
    stages: Option<LoadStages>,
    /// Most requests in the running batch [default: 256]
    #[arg(long, value_name = "N")]
    max_num_seqs: Option<u32>,
    /// Most tokens computed in one step [default: 2048]
    #[arg(long, value_name = "N")]
    max_num_batched_tokens: Option<u32>,
    /// KV cache of the server, blocks [default: computed from the GPU's memory]
    #[arg(long, visible_alias = "num-gpu-blocks", value_name = "N")]
    total_kv_blocks: Option<u64>,
    /// KV block, tokens [default: 16]
    #[arg(long, visible_alias = "block-size", value_name = "N")]
    block_size_in_tokens: Option<u32>,
    /// Longest prompt plus output, tokens [default: the model's own limit]
    #[arg(long, value_name = "N")]
    max_model_len: Option<u32>,
    /// Folder with `config.json` or `<model>/config.json` [default: built in]
    #[arg(long, value_name = "DIR")]
    model_config_folder: Option<PathBuf>,
    /// File that describes GPUs, or a folder of them [default: built in]
    #[arg(long, value_name = "PATH")]
    hardware_config: Option<PathBuf>,
    /// Coefficients of the physics model, as `blis fit` writes them [default: built in]
    #[arg(long, value_name = "FILE")]
    coefficients: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// `validation` and `test`; all where there is no split
    Unseen,
    /// `train`
    Train,
    /// `validation`
    Validation,
    /// `test`
    Test,
    /// Every request
    All,
}

impl Which {
    fn splits(self) -> &'static [RunSplit] {
        match self {
            Self::Unseen => &[RunSplit::Validation, RunSplit::Test],
            Self::Train => &[RunSplit::Train],
            Self::Validation => &[RunSplit::Validation],
            Self::Test => &[RunSplit::Test],
            Self::All => &[RunSplit::Train, RunSplit::Validation, RunSplit::Test],
        }
    }
}

/// The levels of load of a run. A type of its own, because clap takes a vector for a repeated flag.
#[derive(Clone, Debug)]
struct LoadStages(Vec<RunStage>);

fn load_stages(text: &str) -> Result<LoadStages, String> {
    RunStage::parse(text).map(LoadStages).ok_or_else(|| "write requests per second x seconds: 8x600+20x600".to_owned())
}

pub(super) fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("it must be a number above 0".to_owned()),
    }
}

impl DataArgs {
    fn options(&self) -> RunOptions {
        RunOptions {
            model: self.model.clone(),
            hardware: self.hardware.clone(),
            tensor_parallel_size: self.tp,
            engine: self.engine,
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
            total_kv_blocks: self.total_kv_blocks,
            block_size: self.block_size_in_tokens,
            max_model_len: self.max_model_len,
            data_parallel_size: self.dp,
            enable_expert_parallel: self.enable_expert_parallel,
            gpu_memory_utilization: self.gpu_memory_utilization,
            stages: self.stages.as_ref().map(|stages| stages.0.clone()),
            parity: false,
            model_config_folder: self.model_config_folder.clone(),
            hardware_config: self.hardware_config.clone(),
            coefficients: self.coefficients.clone(),
        }
    }

    fn load(&self, options: &RunOptions) -> Result<Vec<MeasuredRun>, RunError> {
        let mut runs = load(&self.data, options).map_err(failure)?;
        if let Some(part) = &self.only {
            runs.retain(|run| run.name.contains(part));
            if runs.is_empty() {
                return Err(no_such_run(part));
            }
        }
        Ok(runs)
    }
}

fn failure(error: FitError) -> RunError {
    match error {
        FitError::Run { .. } => RunError::runtime(error),
        _ => RunError::refused(error),
    }
}

pub(super) fn run_validate(args: &ValidateArgs) -> Result<(), RunError> {
    if args.kernels {
        return validate_kernels(args);
    }
    if let Some(path) = &args.plot {
        check_target(path).map_err(|error| RunError::file(&error))?;
    }
    let options = RunOptions { parity: args.parity == ParityName::Blis, ..args.data.options() };
    match args.data.data.iter().filter(|path| is_steps(path)).count() {
        0 if !args.steps => {}
        _ if args.steps => return run_validate_steps(args, &options),
        count if count == args.data.data.len() => return run_validate_steps(args, &options),
        _ => {
            return Err(RunError::usage("sampled steps and runs of requests are different comparisons")
                .hint("name files of steps in a command of their own"));
        }
    }
    let runs = args.data.load(&options)?;
    let splits = args.requests.splits();
    let validated: ValidatedRuns =
        runs.iter().map(|run| validate(run, splits)).collect::<Result<_, _>>().map_err(failure)?;
    if let Some(path) = &args.plot {
        draw(path, &validated).map_err(RunError::runtime)?;
    }
    print_table(args.output, &validated, || table(&validated), || run_page(&validated))?;
    let errors: Vec<f64> = validated.iter().map(|run| run.errors.e2e.mean).collect();
    check_limit(args.fail_over, "end-to-end latency", &errors)
}

/// What `blis validate` prints with `--output json`: each measured run.
type ValidatedRuns = Vec<Validated>;

/// What `blis validate` prints with `--output json` for a file of sampled scheduler steps: each run in it.
type StepsOfRuns = Vec<ValidatedSteps>;

/// What `blis validate --kernels` prints with `--output json`: each operation of each GPU.
type KernelErrors = Vec<OperationErrors>;

/// What `blis fit` prints with `--output json`: errors on requests that the fit has not seen. The coefficients are in
/// the file of `--out`.
type FitParts<'a> = Vec<FitPart<'a>>;

/// One way to leave requests out of the fit.
#[derive(Serialize)]
struct FitPart<'a> {
    /// What was left out.
    what: &'static str,
    /// Errors by run; empty if nothing was left out this way.
    runs: &'a [Validated],
}

/// Refuses errors of means above the limit of `--fail-over`, one per run, %.
fn check_limit(limit: Option<f64>, what: &str, errors: &[f64]) -> Result<(), RunError> {
    let Some(limit) = limit else { return Ok(()) };
    match errors.iter().filter(|error| error.is_nan() || error.abs() > limit).count() {
        0 => Ok(()),
        count => Err(RunError::runtime(format_args!(
            "the mean {what} of {count} of {} runs is off by more than {limit} %",
            errors.len()
        ))
        .hint("`blis fit` calibrates the coefficients; docs/fidelity.md says what to expect")),
    }
}

/// Sampled scheduler steps instead of requests.
fn run_validate_steps(args: &ValidateArgs, options: &RunOptions) -> Result<(), RunError> {
    if args.plot.is_some() || args.requests != Which::Unseen {
        return Err(
            RunError::usage("`--plot` and `--requests` need requests, and DATA has steps").hint("leave them out")
        );
    }
    let mut runs: StepsOfRuns = Vec::new();
    for path in &args.data.data {
        runs.extend(validate_steps(path, options).map_err(failure)?);
    }
    if let Some(part) = &args.data.only {
        runs.retain(|run| run.run.contains(part));
        if runs.is_empty() {
            return Err(no_such_run(part));
        }
    }
    print_table(args.output, &runs, || steps_table(&runs), || step_page(&runs))?;
    let errors: Vec<f64> = runs.iter().map(|run| run.all.mean).collect();
    check_limit(args.fail_over, "step time", &errors)
}

fn no_such_run(part: &str) -> RunError {
    RunError::usage(format_args!("no run has `{part}` in its name")).hint("leave out `--only` to see all names")
}

pub(super) fn run_fit(args: &FitArgs) -> Result<(), RunError> {
    if let Some(prefix) = &args.kernels {
        return fit_curves(args, prefix);
    }
    let Some(out) = &args.out else { return Err(RunError::usage("`--out` is missing").hint("name a file to write")) };
    check_target(out).map_err(|error| RunError::file(&error))?;
    let load_base = |path: &Path| CoefficientFile::load(Some(path)).map_err(RunError::refused);
    let base = args.base.as_deref().map(load_base).transpose()?;
    if args.data.data.iter().any(|path| is_steps(path)) {
        return Err(RunError::usage("sampled steps cannot be fitted to, only validated against")
            .hint("fit to the requests of the run; `blis validate` reads steps"));
    }
    let runs = args.data.load(&args.data.options())?;
    let leave_out = LeaveOut { models: args.leave_one_model_out, workloads: args.leave_one_workload_out };
    let report = fit(&runs, base, &today(), leave_out).map_err(failure)?;
    let text = serde_yaml::to_string(&report.file).map_err(RunError::runtime)?;
    let header = "# Coefficients of the `physics` latency model, written by `blis fit`: see docs/fidelity.md.\n\
                  # Errors are signed, %, on requests that the fit has not seen.\n";
    write_text(out, &format!("{header}{text}")).map_err(|error| RunError::file(&error))?;
    let FitReport { validation, models_left_out, workloads_left_out, .. } = &report;
    let parts = [
        ("validation requests, weights of the deployment", validation),
        ("model left out, general weights of the others", models_left_out),
        ("workload left out, weights of the deployment's others", workloads_left_out),
    ];
    let document: FitParts<'_> = parts.map(|(what, runs)| FitPart { what, runs }).into();
    // With the fields in the order of the alphabet.
    let document = serde_json::to_value(&document).map_err(RunError::runtime)?;
    let present = || parts.iter().filter(|(_, runs)| !runs.is_empty());
    let text = || present().map(|(what, runs)| format!("# {what}\n{}\n\n", table(runs))).collect::<String>();
    let markdown = || present().map(|(what, runs)| format!("### {what}\n\n{}\n", run_page(runs))).collect::<String>();
    print_table(args.output, &document, text, markdown)
}

/// The errors of every GPU's curves on the tables of a folder.
fn validate_kernels(args: &ValidateArgs) -> Result<(), RunError> {
    let catalogue = Catalogue::load(args.data.hardware_config.as_deref()).map_err(RunError::refused)?;
    let folder = one_folder(&args.data)?;
    let mut errors: KernelErrors = Vec::new();
    for prefix in table_prefixes(folder).map_err(failure)? {
        let hardware = catalogue.find(&prefix).map_err(RunError::refused)?;
        let kernels = catalogue.kernels(hardware).map_err(RunError::refused)?.curves;
        errors.extend(kernel_errors(folder, &prefix, &hardware.name, &hardware.gpu, &kernels).map_err(failure)?);
    }
    print_table(args.output, &errors, || kernel_table(&errors), || kernel_page(&errors))
}

/// The folder of tables that `--kernels` takes.
fn one_folder(data: &DataArgs) -> Result<&Path, RunError> {
    match data.data.as_slice() {
        [folder] => Ok(folder),
        _ => Err(RunError::usage("`--kernels` takes one folder").hint("name the folder with the tables")),
    }
}

fn fit_curves(args: &FitArgs, prefix: &str) -> Result<(), RunError> {
    let catalogue = Catalogue::load(args.data.hardware_config.as_deref()).map_err(RunError::refused)?;
    let gpu = catalogue.find(args.data.hardware.as_deref().unwrap_or_default()).map_err(RunError::refused)?.gpu;
    let folder = one_folder(&args.data)?;
    print(yaml(&fit_kernels(folder, prefix, &gpu).map_err(failure)?))
}

/// Today's date in UTC, as `2026-11-22`.
pub(super) fn today() -> String {
    let days = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
    date(days)
}

/// The date so many days after 1970-01-01. Years begin on 1 March, so that leap days end them (Howard Hinnant,
/// "chrono-compatible low-level date algorithms").
fn date(days: u64) -> String {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(19_782), "2024-02-29");
        assert_eq!(date(20_779), "2026-11-22");
        assert_eq!(date(47_540), "2100-02-28");
        assert_eq!(date(47_541), "2100-03-01", "2100 has no leap day");
    }
}
