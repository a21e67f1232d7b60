//! Sampled scheduler steps of a server against predicted step times.
//!
//! The time of a step is the time between the starts of two adjacent steps that were both sampled (the cycle time).
//! `step.duration_us` is not: it ends when the step is handed to the GPU, and says 0.1 to 3 ms where a cycle takes 15 to
//! 45 ms. A step is predicted from its batch: requests and tokens as sampled; the context from the KV blocks in use,
//! equally divided among the running requests. Blocks that several requests share count once, so that the context is a
//! lower bound where prompts repeat.
//!
//! With asynchronous scheduling, vLLM plans a step while the one before it is computed, so that the time after the start
//! of a plan is mostly that of the step before. Neighbours have nearly the same decodes; where one of them computes a
//! long prompt, the comparison is blurred, which the median absolute error shows less than the mean.

use std::collections::BTreeMap;
use std::path::Path;

use blis_config::{Deployment, DeploymentArgs};
use blis_diag::{Diagnose as _, Diagnostic, display};
use blis_sim::latency::Batch;
use blis_workload::otel_steps::{self, SampledStep};
use serde::{Deserialize, Serialize};

use super::catalogue::{CatalogueRun, catalogue_runs, single_deployment};
use super::errors::{mean, pearson, percent};
use super::runs::{FitError, MEASURED_ENGINE, RunOptions, read, rows, served_by};
use super::validate::{computed_kv_blocks, resolved};

/// Predicted step times of a run against the times between the starts of adjacent sampled steps; errors are signed,
/// predicted against measured.
#[derive(Clone, Debug, Serialize)]
pub struct ValidatedSteps {
    /// Name of the run.
    pub run: String,
    /// Steps in the file. Unit: steps, 1 or more.
    pub sampled: usize,
    /// All steps with a cycle time.
    #[serde(flatten)]
    pub all: StepErrors,
    /// The same steps by the composition of their batch.
    pub by_composition: Vec<CompositionErrors>,
    /// Mean of the recorded `step.duration_us`, which is not the time of a step; `null` if it was not recorded.
    pub recorded_duration_ms: Option<f64>,
    /// KV blocks of the server. Unit: blocks.
    pub kv_blocks_measured: u64,
    /// KV blocks that the simulator computes for the deployment; `null` if it cannot. Unit: blocks.
    pub kv_blocks_computed: Option<u32>,
    /// Notes, as the origin of the deployment and of the coefficients.
    pub notes: Vec<String>,
}

/// Errors of the predicted step times of a set of steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepErrors {
    /// Steps that were compared: those followed by another sampled step. Unit: steps, 1 or more.
    pub steps: usize,
    /// Mean time from the start of a step to the start of the next.
    pub measured_ms: f64,
    /// Mean predicted time of the same steps.
    pub simulated_ms: f64,
    /// Error of the mean. Unit: %.
    pub mean: f64,
    /// Mean absolute error of single steps. Unit: %.
    pub mape: f64,
    /// Median absolute error of single steps: unlike `mape`, hardly affected by stalls of the server. Unit: %.
    pub median_ape: f64,
    /// Pearson's r between measured and predicted times; `null` if one is constant. Unit: correlation.
    pub pearson: Option<f64>,
}

/// Predicted step times of similar batches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompositionErrors {
    /// `prefill` (at least one request in prefill), or the number of decoding requests of steps without: `decode
    /// 16-31`.
    pub composition: String,
    #[serde(flatten)]
    pub errors: StepErrors,
}

/// A sampled step: a line of the file. Other columns are not read.
#[derive(Clone, Debug, Deserialize)]
struct StepRow {
    #[serde(rename = "step.id")]
    id: u64,
    #[serde(rename = "step.ts_start_ns")]
    start_ns: u64,
    #[serde(rename = "step.duration_us")]
    duration_us: Option<f64>,
    #[serde(rename = "queue.running_depth")]
    running: u32,
    #[serde(rename = "batch.num_prefill_reqs")]
    prefill_requests: u32,
    #[serde(rename = "batch.num_decode_reqs")]
    decode_requests: u32,
    #[serde(rename = "batch.prefill_tokens")]
    prefill_tokens: u32,
    #[serde(rename = "batch.num_finished")]
    finished: Option<u32>,
    #[serde(rename = "kv.blocks_total_gpu")]
    kv_blocks: u64,
    #[serde(rename = "kv.blocks_free_gpu")]
    free_kv_blocks: u64,
    run: Option<String>,
    experiment_id: Option<String>,
    model: Option<String>,
    gpu: Option<String>,
    tp: Option<u32>,
}

/// A step and its cycle time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct TimedStep {
    batch: Batch,
    cycle_us: f64,
}

/// Whether the file at `path` has sampled steps: CSV with a column `step.id`, gzip-compressed or not. False if it cannot
/// be read.
#[must_use]
pub fn is_steps(path: &Path) -> bool {
    let Ok(mut input) = blis_diag::open(path) else { return false };
    let mut header = Vec::new();
    // The header of any file that is meant here is shorter.
    let read = std::io::Read::read_to_end(&mut std::io::Read::take(&mut input, 4096), &mut header);
    let first = header.split(|&byte| byte == b'\n').next().unwrap_or_default();
    read.is_ok() && first.split(|&byte| byte == b',').any(|name| name.trim_ascii() == b"step.id")
}

/// Compares the sampled steps of the file at `path`, run by run. The deployments come from `options`, else from the
/// `runs.csv` beside the file or in the folder above it (the run whose name ends `experiment_id`), else from the columns
/// `model`, `gpu` and `tp`.
///
/// # Errors
/// If a file is invalid, a deployment is not known or cannot be simulated, or no two adjacent steps were sampled.
pub fn validate_steps(path: &Path, options: &RunOptions) -> Result<Vec<ValidatedSteps>, FitError> {
    let (text, _) = read(path)?;
    let mut runs: BTreeMap<String, Vec<StepRow>> = BTreeMap::new();
    let stem = path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    let stem = stem.split('.').next().unwrap_or_default();
    for row in read_steps(path, &text)? {
        let name = row.run.clone().or_else(|| row.experiment_id.clone()).unwrap_or_else(|| stem.to_owned());
        runs.entry(name).or_default().push(row);
    }
    if runs.is_empty() {
        let mistake = Diagnostic::new("it has no scheduler steps")
            .hint("they are rows with a `step.id`, or events `step.BATCH_SUMMARY` of OpenTelemetry spans");
        return Err(FitError::file(path, None, mistake));
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let catalogue = [folder.join("runs.csv"), folder.join("../runs.csv")].into_iter().find(|file| file.exists());
    let known = match &catalogue {
        Some(file) if options.model.is_none() => catalogue_runs(file, options)?,
        _ => Vec::new(),
    };
    runs.into_iter().map(|(name, rows)| validate_run(path, name, rows, &known, options)).collect()
}

/// The steps of a table, or those of an OTLP-JSON file.
fn read_steps(path: &Path, text: &[u8]) -> Result<Vec<StepRow>, FitError> {
    if !text.trim_ascii_start().starts_with(b"{") {
        return rows(path, text);
    }
    let steps = otel_steps::read(text, &display(path)).map_err(|error| FitError::File(Box::new(error.diagnostic())))?;
    Ok(steps.into_iter().map(StepRow::from).collect())
}

impl From<SampledStep> for StepRow {
    fn from(step: SampledStep) -> Self {
        Self {
            id: step.id,
            start_ns: step.start_ns,
            duration_us: step.duration_us,
            running: step.running,
            prefill_requests: step.prefill_requests,
            decode_requests: step.decode_requests,
            prefill_tokens: step.prefill_tokens,
            finished: step.finished,
            kv_blocks: step.kv_blocks,
            free_kv_blocks: step.free_kv_blocks,
            run: step.instance.map(|instance| format!("instance_{instance}")),
            experiment_id: None,
            model: None,
            gpu: None,
            tp: None,
        }
    }
}

fn validate_run(
    path: &Path,
    name: String,
    mut rows: Vec<StepRow>,
    known: &[CatalogueRun],
    options: &RunOptions,
) -> Result<ValidatedSteps, FitError> {
    rows.sort_by_key(|row| row.id);
    let kv_blocks_measured = rows[0].kv_blocks;
    let (args, origin) = deployment_args(&name, &rows[0], known, options)
        .map_err(|mistake| FitError::Run { run: name.clone(), mistake: Box::new(mistake) })?;
    let deployment = resolved(&name, &args)?;
    let block_size = args.block_size;
    let steps = timed_steps(&rows, block_size);
    let sampled = rows.len();
    let all = StepErrors::new(&steps, &deployment).ok_or_else(|| {
        let what = format!("no two adjacent steps are among its {sampled}: there is no cycle time");
        FitError::file(path, None, Diagnostic::new(what).hint("sample more of the steps, or every one for a while"))
    })?;
    let mut compositions: BTreeMap<u64, (String, Vec<TimedStep>)> = BTreeMap::new();
    for step in &steps {
        let (order, composition) = composition(&step.batch);
        compositions.entry(order).or_insert_with(|| (composition, Vec::new())).1.push(*step);
    }
    let by_composition = compositions.into_values().filter_map(|(composition, steps)| {
        Some(CompositionErrors { composition, errors: StepErrors::new(&steps, &deployment)? })
    });
    let durations: Option<Vec<f64>> = rows.iter().map(|row| row.duration_us).collect();
    let mut notes = vec![origin];
    notes.extend(deployment.notes.iter().cloned());
    Ok(ValidatedSteps {
        run: name,
        sampled,
        all,
        by_composition: by_composition.collect(),
        recorded_duration_ms: durations.map(|us| mean(&us) / 1e3),
        kv_blocks_measured,
        kv_blocks_computed: computed_kv_blocks(&args),
        notes,
    })
}

/// The deployment of a run, and a note on where it is from.
fn deployment_args(
    name: &str,
    row: &StepRow,
    known: &[CatalogueRun],
    options: &RunOptions,
) -> Result<(DeploymentArgs, String), Diagnostic> {
    if let Some(run) = known.iter().filter(|run| name.ends_with(&run.name)).max_by_key(|run| run.name.len()) {
        return Ok((run.deployment.clone(), format!("deployment of `{}` in runs.csv", run.name)));
    }
    let hint = "give `--model` and `--hardware`, or columns `model` and `gpu`, or a `runs.csv` beside the file";
    let model = options.model.clone().or_else(|| row.model.clone());
    let model = model.ok_or_else(|| Diagnostic::new("the model that was served is not known").hint(hint))?;
    let gpu = options.hardware.clone().or_else(|| row.gpu.clone());
    let gpu = gpu.ok_or_else(|| Diagnostic::new("the GPU that served is not known").hint(hint))?;
    let args = DeploymentArgs {
        hardware: Some(gpu),
        tensor_parallel_size: options.tensor_parallel_size.or(row.tp),
        total_kv_blocks: Some(options.total_kv_blocks.unwrap_or(row.kv_blocks)),
        ..single_deployment(options, model)
    };
    let engine = options.engine.unwrap_or(MEASURED_ENGINE);
    let (seqs, tokens) = (options.max_num_seqs.unwrap_or(256), options.max_num_batched_tokens.unwrap_or(2048));
    let args = served_by(engine, options.parity, seqs, tokens, args);
    Ok((args, "deployment of the command line and the columns of the file".to_owned()))
}

/// The steps whose successor was sampled too. Steps after which no request is left are not among them: the time to the
/// next is idle.
fn timed_steps(rows: &[StepRow], block_size: u32) -> Vec<TimedStep> {
    let adjacent = rows.windows(2).filter(|pair| {
        pair[1].id == pair[0].id + 1
            && pair[1].start_ns > pair[0].start_ns
            && pair[0].finished.unwrap_or(0) < pair[0].running
    });
    adjacent
        .map(|pair| TimedStep {
            batch: batch(&pair[0], block_size),
            cycle_us: (pair[1].start_ns - pair[0].start_ns) as f64 / 1e3,
        })
        .collect()
}

/// The batch of a sampled step. Its tokens in the KV cache, and its prompt tokens, are equally divided.
fn batch(row: &StepRow, block_size: u32) -> Batch {
    let requests = row.running.max(row.prefill_requests + row.decode_requests).max(1);
    let tokens = row.kv_blocks.saturating_sub(row.free_kv_blocks) * u64::from(block_size);
    let each = u32::try_from(tokens / u64::from(requests)).unwrap_or(u32::MAX);
    let mut batch = Batch::default();
    for number in 0..row.prefill_requests {
        let share = |part: u32| u64::from(row.prefill_tokens) * u64::from(part) / u64::from(row.prefill_requests);
        let n = u32::try_from(share(number + 1) - share(number)).unwrap_or(u32::MAX);
        if n > 0 {
            let context = each.saturating_sub(n);
            batch.add_prefill(n, context, context.saturating_add(n));
        }
    }
    (0..row.decode_requests).for_each(|_| batch.add_decode(each));
    batch
}

/// The class of a batch, with its order.
fn composition(batch: &Batch) -> (u64, String) {
    if batch.prefill_requests > 0 {
        return (u64::MAX, "prefill".to_owned());
    }
    // 1, 2-3, 4-7, 8-15, …
    let low = 1 << batch.decode_requests.max(1).ilog2();
    let name = if low == 1 { "decode 1".to_owned() } else { format!("decode {low}-{}", 2 * low - 1) };
    (low, name)
}

impl StepErrors {
    /// Compares `steps` with the step times of `deployment`; `None` if there are none.
    fn new(steps: &[TimedStep], deployment: &Deployment) -> Option<Self> {
        if steps.is_empty() {
            return None;
        }
        let measured: Vec<f64> = steps.iter().map(|step| step.cycle_us).collect();
        let simulated: Vec<f64> = steps.iter().map(|step| deployment.latency.step_time(&step.batch).0 as f64).collect();
        let mut absolute: Vec<f64> = measured.iter().zip(&simulated).map(|(m, s)| percent(*m, *s).abs()).collect();
        absolute.sort_by(f64::total_cmp);
        Some(Self {
            steps: steps.len(),
            measured_ms: mean(&measured) / 1e3,
            simulated_ms: mean(&simulated) / 1e3,
            mean: percent(mean(&measured), mean(&simulated)),
            mape: mean(&absolute),
            median_ape: absolute[absolute.len() / 2],
            pearson: pearson(&measured, &simulated),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: u64, start_ms: u64, requests: (u32, u32), prefill_tokens: u32) -> StepRow {
        StepRow {
            id,
            start_ns: start_ms * 1_000_000,
            duration_us: Some(300.0),
            running: requests.0 + requests.1,
            prefill_requests: requests.0,
            decode_requests: requests.1,
            prefill_tokens,
            finished: Some(0),
            kv_blocks: 1000,
            free_kv_blocks: 960,
            run: None,
            experiment_id: None,
            model: None,
            gpu: None,
            tp: None,
        }
    }

    #[test]
    fn cycles_are_between_adjacent_ids() {
        let mut rows =
            [row(5, 100, (0, 4), 0), row(6, 118, (0, 4), 0), row(9, 160, (0, 4), 0), row(10, 200, (0, 4), 0)];
        let cycles = |rows: &[StepRow]| timed_steps(rows, 16).iter().map(|step| step.cycle_us).collect::<Vec<_>>();
        assert_eq!(cycles(&rows), [18_000.0, 40_000.0]);
        rows[2].finished = Some(4);
        assert_eq!(cycles(&rows), [18_000.0], "the server was idle after step 9");
    }

    #[test]
    fn the_context_is_that_of_the_blocks_in_use() {
        // 40 blocks of 16 tokens among 4 requests: 160 tokens each.
        let decode = batch(&row(1, 0, (0, 4), 0), 16);
        assert_eq!((decode.decode_requests, decode.decode_context, decode.prefill_requests), (4, 640, 0));
        // Two of them compute 50 and 51 prompt tokens on top of 110 and 109.
        let mixed = batch(&row(1, 0, (2, 2), 101), 16);
        assert_eq!((mixed.prefill_requests, mixed.prefill_tokens, mixed.prefill_context), (2, 101, 219));
        assert_eq!((mixed.prefill_tokens_squared, mixed.decode_context), (2500 + 2601, 320));
    }

    #[test]
    fn compositions_are_powers_of_two() {
        let decode = |count| composition(&Batch { decode_requests: count, ..Batch::default() }).1;
        assert_eq!(
            [decode(1), decode(3), decode(16), decode(31)],
            ["decode 1", "decode 2-3", "decode 16-31", "decode 16-31"]
        );
        assert_eq!(composition(&batch(&row(1, 0, (1, 2), 5), 16)).1, "prefill");
    }
}
