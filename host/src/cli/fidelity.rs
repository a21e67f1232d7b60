//! `blis fit` and `blis validate`: measurements of real servers.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::error::Failure;
use super::{print, print_document};
use crate::fit::errors::{OfDistribution, mean};
use crate::fit::{FitError, RunOptions, Split, Validated, load, validate};

#[derive(Debug, Args)]
pub(super) struct ValidateArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Which requests to compare: those that no fit has seen, if the data tell, or all
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = Which::Unseen)]
    requests: Which,
    /// Exit with code 1 if the mean end-to-end latency of a run is off by more, % > 0
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_over: Option<f64>,
    /// Draw measured and simulated latency over time, one panel per run (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// Measured runs, and what their files do not say.
#[derive(Debug, Args)]
pub(super) struct DataArgs {
    /// Measured runs: a folder with `runs.csv`, that file, or one file of requests (CSV or JSON lines)
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
    /// Longest prompt plus answer, tokens [default: the model's own limit]
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
    fn splits(self) -> &'static [Split] {
        match self {
            Self::Unseen => &[Split::Validation, Split::Test],
            Self::Train => &[Split::Train],
            Self::Validation => &[Split::Validation],
            Self::Test => &[Split::Test],
            Self::All => &[Split::Train, Split::Validation, Split::Test],
        }
    }
}

fn percent(text: &str) -> Result<f64, String> {
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
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
            total_kv_blocks: self.total_kv_blocks,
            block_size: self.block_size_in_tokens,
            max_model_len: self.max_model_len,
            model_config_folder: self.model_config_folder.clone(),
            hardware_config: self.hardware_config.clone(),
            coefficients: self.coefficients.clone(),
        }
    }

    fn load(&self) -> Result<Vec<crate::fit::MeasuredRun>, Failure> {
        let mut runs = load(&self.data, &self.options()).map_err(failure)?;
        if let Some(part) = &self.only {
            runs.retain(|run| run.name.contains(part));
            if runs.is_empty() {
                return Err(Failure::usage(format_args!("no run is called like `{part}`"))
                    .hint("drop `--only` to see what they are called"));
            }
        }
        Ok(runs)
    }
}

fn failure(error: FitError) -> Failure {
    match error {
        FitError::Run { .. } => Failure::runtime(error),
        _ => Failure::usage(error),
    }
}

pub(super) fn run_validate(args: &ValidateArgs) -> Result<(), Failure> {
    let runs = args.data.load()?;
    let splits = args.requests.splits();
    let validated: Vec<Validated> =
        runs.iter().map(|run| validate(run, splits)).collect::<Result<_, _>>().map_err(failure)?;
    if args.json {
        print_document(&validated)?;
    } else {
        print(table(&validated))?;
    }
    let Some(limit) = args.fail_over else { return Ok(()) };
    match validated.iter().filter(|run| run.errors.e2e.mean.is_nan() || run.errors.e2e.mean.abs() > limit).count() {
        0 => Ok(()),
        count => Err(Failure::runtime(format_args!(
            "the mean end-to-end latency of {count} of {} runs is off by more than {limit} %",
            validated.len()
        ))
        .hint("`blis fit` calibrates the coefficients; docs/fidelity.md says what to expect")),
    }
}

/// One line per run, then their mean.
fn table(runs: &[Validated]) -> String {
    let width = runs.iter().map(|run| run.run.len()).max().unwrap_or(0).max(4);
    let mut text = format!(
        "Signed errors, %: simulated against measured.\n{:width$}  {:>10} {:>8} {:>9} {:>6} {:>6} {:>6}  {:>6} {:>6} \
         {:>6}  {:>6} {:>6}  {:>6}  {:>6} {:>6}\n",
        "run",
        "requests",
        "number",
        "E2E ms",
        "mean",
        "p90",
        "p99",
        "TTFT",
        "p90",
        "p99",
        "ITL",
        "p99",
        "queue",
        "MAPE",
        "r",
    );
    for Validated { run, requests, errors, .. } in runs {
        let OfDistribution { measured_ms, mean, p90, p99, .. } = errors.e2e;
        let itl = errors.itl.map_or(["-".into(), "-".into()], |itl| [signed(itl.mean), signed(itl.p99)]);
        let queue = errors.queue.and_then(|queue| queue.mean).map_or("-".into(), signed);
        let r = errors.e2e_pearson.map_or("-".into(), |r| format!("{r:.3}"));
        let _ = writeln!(
            text,
            "{run:width$}  {requests:>10} {:>8} {measured_ms:>9.1} {:>6} {:>6} {:>6}  {:>6} {:>6} {:>6}  {:>6} {:>6}  \
             {queue:>6}  {:>6.1} {r:>6}",
            errors.requests,
            signed(mean),
            signed(p90),
            signed(p99),
            signed(errors.ttft.mean),
            signed(errors.ttft.p90),
            signed(errors.ttft.p99),
            itl[0],
            itl[1],
            errors.e2e_mape,
        );
    }
    let absolute: Vec<f64> = runs.iter().map(|run| run.errors.e2e.mean.abs()).collect();
    let worst = absolute.iter().copied().fold(0.0, f64::max);
    let _ = writeln!(text, "|mean E2E error|: mean {:.1} %, largest {worst:.1} %", mean(&absolute));
    let mut notes: Vec<String> = Vec::new();
    for run in runs {
        for note in run.notes.iter().filter(|note| note.starts_with("physics coefficients")) {
            notes.push(format!("{}: {note}", run.run));
        }
    }
    notes.iter().for_each(|note| {
        let _ = writeln!(text, "{note}");
    });
    text
}

fn signed(percent: f64) -> String {
    format!("{percent:+.1}")
}
