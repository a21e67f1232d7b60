//! Measured runs: the requests that a real server served, their latencies, and the configuration of the server.

use std::path::{Path, PathBuf};

use blis_sim::request::Content;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use blis_config::engine::{BatchSettings, EngineProfile};
use blis_config::{ConfigError, DeploymentArgs};
use blis_diag::{Diagnose, Diagnostic, Location, display, unreadable};

/// Longer files of measurements are refused, before and after decompression.
const BYTES_MAX: u64 = 64 << 20;

/// An error in measured runs, or in a fit to them.
#[derive(Debug, Error)]
#[error("{}", self.diagnostic())]
pub enum FitError {
    /// A file or folder cannot be read.
    Read { path: PathBuf, source: std::io::Error },
    /// The content of a file is invalid.
    File(Box<Diagnostic>),
    /// The deployment of a run cannot be simulated.
    Deployment { run: String, source: Box<ConfigError> },
    /// A run cannot be simulated or compared.
    Run { run: String, mistake: Box<Diagnostic> },
    /// There are no data to fit to.
    Nothing(Box<Diagnostic>),
}

impl FitError {
    /// There are no data to fit to.
    pub(super) fn nothing(mistake: Diagnostic) -> Self {
        Self::Nothing(Box::new(mistake))
    }

    /// A `mistake` in a file, or in one line of it.
    pub(super) fn file(path: &Path, line: Option<u64>, mistake: Diagnostic) -> Self {
        Self::File(Box::new(mistake.at(Location { line, ..Location::file(display(path)) })))
    }
}

impl Diagnose for FitError {
    fn diagnostic(&self) -> Diagnostic {
        match self {
            Self::Read { path, source } => unreadable(&display(path), source),
            Self::File(mistake) | Self::Nothing(mistake) => (**mistake).clone(),
            Self::Deployment { run, source } => of_run(run, source.diagnostic()),
            Self::Run { run, mistake } => of_run(run, (**mistake).clone()),
        }
    }
}

fn of_run(run: &str, mistake: Diagnostic) -> Diagnostic {
    let what = format!("run `{run}`: {}", mistake.without_hint());
    Diagnostic { hint: mistake.hint, ..Diagnostic::new(what) }
}

/// The part of a run that a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum RunSplit {
    /// Coefficients are fitted to these requests.
    Train,
    /// Alternatives are selected by these requests.
    Validation,
    /// Held out: takes part in neither fit nor selection.
    Test,
}

/// One request with its measured latencies.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredRequest {
    /// Arrival since the first arrival of the run, µs.
    pub arrival_us: u64,
    /// Length of the prompt, tokens.
    pub input_tokens: u32,
    /// Output tokens, at least 1: the number that the server had to generate.
    pub output_tokens: u32,
    /// From arrival to the first token, µs.
    pub ttft_us: f64,
    /// From arrival to the last token, µs.
    pub e2e_us: f64,
    /// From the waiting queue to the running batch, µs, if the server reports it.
    pub queue_us: Option<f64>,
    /// The part of the run that it belongs to.
    pub split: RunSplit,
    /// Number of its prompt: requests with the same number have the same prompt; `None` for a unique prompt, or one that
    /// `content` describes.
    pub prompt: Option<u32>,
    /// KV blocks that it may share with other requests, as its trace records them.
    pub content: Content,
    /// Number of preemptions, if the server reports them.
    pub preemptions: Option<u32>,
}

impl MeasuredRequest {
    /// Mean ITL, µs, counted in tokens: load generators publish it counted in events.
    #[must_use]
    pub fn itl_us(&self) -> Option<f64> {
        (self.output_tokens > 1).then(|| (self.e2e_us - self.ttft_us) / f64::from(self.output_tokens - 1))
    }
}

/// Percentiles of a run, ms, where single requests are not known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunPercentiles {
    /// 90th and 99th percentile of the end-to-end latency.
    pub e2e_ms: [f64; 2],
    /// 90th and 99th percentile of the TTFT.
    pub ttft_ms: [f64; 2],
}

/// The engine of the runs that the built-in coefficients were fitted to.
pub const MEASURED_ENGINE: EngineProfile = EngineProfile::Vllm015;

/// `deployment` under an engine with these limits of a batch: requests and tokens. The size of the KV cache and the cost
/// of sampling depend on them; under `parity` the size follows BLIS's formula.
pub(super) fn served_by(
    engine: EngineProfile,
    parity: bool,
    max_num_seqs: u32,
    max_num_batched_tokens: u32,
    deployment: DeploymentArgs,
) -> DeploymentArgs {
    let batch = BatchSettings {
        engine: Some(engine).filter(|_| !parity),
        max_num_seqs: Some(max_num_seqs),
        max_num_batched_tokens: Some(max_num_batched_tokens),
        unchunked_prefill: false,
    };
    DeploymentArgs { batch, sampler: engine.sampler(), ..deployment }
}

/// One measured run of a server.
#[derive(Clone, Debug)]
pub struct MeasuredRun {
    pub name: String,
    /// Kind of the requests; runs of the same kind are left out together.
    pub workload: String,
    /// The deployment that was measured.
    pub deployment: DeploymentArgs,
    /// The engine that served it.
    pub engine: EngineProfile,
    /// `max_num_seqs` of the measured vLLM server.
    pub max_num_seqs: u32,
    /// `max_num_batched_tokens` of the measured vLLM server.
    pub max_num_batched_tokens: u32,
    /// Whether prompts could hit the prefix cache.
    pub prefix_caching: bool,
    /// Length of the shared prefix of all prompts, tokens.
    pub shared_prefix_tokens: u32,
    /// Whether later requests of the run are missing in the data.
    pub cut_off: bool,
    /// The requests in the order of arrival.
    pub requests: Vec<MeasuredRequest>,
    /// SHA-256 of the file of requests, hexadecimal.
    pub sha256: String,
    /// Percentiles of the run, if single requests are not known; their latencies are then means.
    pub percentiles: Option<RunPercentiles>,
    /// The levels of load, in their order; empty if they are not known.
    pub stages: Vec<RunStage>,
    /// Whether the data say which prompts have KV blocks in common (or that none have).
    pub prefixes_known: bool,
    /// Whether BLIS's latency model, scheduler and KV formula simulate it, instead of ours.
    pub parity: bool,
    /// Notes for the user about the reading of its files.
    pub notes: Vec<String>,
}

/// A level of load: Poisson arrivals at one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunStage {
    /// Requests per second, above 0.
    pub rate: f64,
    /// Duration, s, above 0.
    pub seconds: f64,
}

impl RunStage {
    /// The stages of `8x600+20x600`, requests per second × seconds; `None` if it is written otherwise.
    #[must_use]
    pub fn parse(text: &str) -> Option<Vec<Self>> {
        let stage = |part: &str| {
            let (rate, seconds) = part.split_once('x')?;
            let stage = Self { rate: rate.trim().parse().ok()?, seconds: seconds.trim().parse().ok()? };
            let valid = |value: f64| value > 0.0 && value.is_finite();
            (valid(stage.rate) && valid(stage.seconds)).then_some(stage)
        };
        text.split('+').map(stage).collect()
    }
}

/// Settings of the command line, which take precedence over those of files.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    pub model: Option<String>,
    pub hardware: Option<String>,
    /// Tensor-parallel size: GPUs of one instance.
    pub tensor_parallel_size: Option<u32>,
    /// The engine; [`MEASURED_ENGINE`] by default.
    pub engine: Option<EngineProfile>,
    pub max_num_seqs: Option<u32>,
    pub max_num_batched_tokens: Option<u32>,
    /// Size of the KV cache of the server, blocks.
    pub total_kv_blocks: Option<u64>,
    /// Tokens per KV block.
    pub block_size: Option<u32>,
    /// Maximum length of a request, input and output tokens together.
    pub max_model_len: Option<u32>,
    /// Data-parallel size: attention replicas that share experts.
    pub data_parallel_size: Option<u32>,
    /// Experts are distributed over the ranks instead of sliced.
    pub enable_expert_parallel: bool,
    /// Share of the GPU's memory that the server uses, in (0, 1].
    pub gpu_memory_utilization: Option<f64>,
    /// The levels of load, in their order.
    pub stages: Option<Vec<RunStage>>,
    /// Whether to simulate with BLIS's latency model, scheduler and KV formula.
    pub parity: bool,
    /// Folders of models and GPUs that are not built in.
    pub model_config_folder: Option<PathBuf>,
    pub hardware_config: Option<PathBuf>,
    /// A coefficient file instead of the built-in one.
    pub coefficients: Option<PathBuf>,
}

/// The records of a CSV file with a header, gzip-compressed or not.
pub(super) fn read_rows<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<Vec<T>, FitError> {
    rows(path, &read(path)?.0)
}

/// The records of a CSV text with a header.
pub(super) fn rows<T: for<'de> Deserialize<'de>>(path: &Path, text: &[u8]) -> Result<Vec<T>, FitError> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text);
    let mut rows = Vec::new();
    for row in reader.deserialize() {
        rows.push(row.map_err(|error: csv::Error| {
            let line = error.position().map(csv::Position::line);
            let message = match error.kind() {
                csv::ErrorKind::Deserialize { err, .. } => err.to_string(),
                _ => error.to_string(),
            };
            FitError::file(path, line, Diagnostic::new(message))
        })?);
    }
    Ok(rows)
}

/// The content of a file, decompressed if necessary, and the SHA-256 of the file itself.
pub(super) fn read(path: &Path) -> Result<(Vec<u8>, String), FitError> {
    let failed = |source| FitError::Read { path: path.into(), source };
    let bytes = blis_diag::read_bytes(path, BYTES_MAX).map_err(failed)?;
    let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((blis_diag::decompressed(bytes, BYTES_MAX).map_err(failed)?, sha256))
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// A run of Llama-3.1-8B on one H100 with requests of (arrival µs, input tokens, output tokens), measured at 1 ms to
    /// the first token and 2 ms in all.
    pub fn run(requests: &[(u64, u32, u32)]) -> MeasuredRun {
        let request = |&(arrival_us, input_tokens, output_tokens): &(u64, u32, u32)| MeasuredRequest {
            arrival_us,
            input_tokens,
            output_tokens,
            ttft_us: 1_000.0,
            e2e_us: 2_000.0,
            queue_us: None,
            split: RunSplit::Train,
            prompt: None,
            content: Content::UNIQUE,
            preemptions: None,
        };
        MeasuredRun {
            name: "test".into(),
            workload: "test".into(),
            deployment: DeploymentArgs {
                hardware: Some("H100".into()),
                tensor_parallel_size: Some(1),
                latency_model: Some(blis_config::LatencyKind::Physics),
                ..DeploymentArgs::new("llama-3.1-8b-instruct")
            },
            max_num_seqs: 128,
            max_num_batched_tokens: 2048,
            prefix_caching: false,
            shared_prefix_tokens: 0,
            cut_off: false,
            requests: requests.iter().map(request).collect(),
            sha256: String::new(),
            percentiles: None,
            stages: Vec::new(),
            prefixes_known: true,
            parity: false,
            engine: MEASURED_ENGINE,
            notes: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_rates_and_durations() {
        let stage = |rate, seconds| RunStage { rate, seconds };
        assert_eq!(RunStage::parse("8x600+20x300"), Some(vec![stage(8.0, 600.0), stage(20.0, 300.0)]));
        assert_eq!(["8", "0x600", "8x-1", "", "8xinf"].map(RunStage::parse), [None, None, None, None, None]);
    }
}
