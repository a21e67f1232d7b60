//! Measured runs: the requests that a real server served, their latencies, and the configuration of the server.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Cursor, Read as _};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use blis_config::engine::EngineProfile;
use blis_config::{ConfigError, DeploymentArgs};
use blis_diag::{Diagnose, Diagnostic, Location, display, unreadable};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunSplit {
    /// Coefficients are fitted to these requests.
    Train,
    /// Alternatives are selected by these requests.
    Validation,
    /// Held out: takes part in neither fit nor selection.
    Test,
}

impl RunSplit {
    /// The name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::Test => "test",
        }
    }
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
    /// Number of its prompt: requests with the same number have the same prompt; `None` for a unique prompt.
    pub prompt: Option<u32>,
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
    /// Folders of models and GPUs that are not built in.
    pub model_config_folder: Option<PathBuf>,
    pub hardware_config: Option<PathBuf>,
    /// A coefficient file instead of the built-in one.
    pub coefficients: Option<PathBuf>,
}

/// A line of `runs.csv`.
#[derive(Deserialize)]
struct RunEntry {
    run: String,
    model: String,
    gpu: String,
    tp: u32,
    max_num_seqs: u32,
    max_num_batched_tokens: u32,
    max_model_len: Option<u32>,
    block_size: Option<u32>,
    kv_blocks: Option<u64>,
    distinct_prompts: Option<u32>,
    shared_system_prompt_tokens: Option<u32>,
    requests_given: Option<u64>,
    requests_in_run: Option<u64>,
    workload: Option<String>,
    /// File of the requests, relative to the folder of `runs.csv`.
    requests: Option<PathBuf>,
}

/// The runs of the `runs.csv` at `path`.
pub(super) fn load_catalogue(path: &Path, options: &RunOptions) -> Result<Vec<MeasuredRun>, FitError> {
    let (text, _) = read(path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut runs = Vec::new();
    for entry in rows::<RunEntry>(path, &text)? {
        let file = match &entry.requests {
            Some(file) => folder.join(file),
            None => {
                let plain = folder.join("requests").join(format!("{}.csv", entry.run));
                if plain.exists() { plain } else { plain.with_extension("csv.gz") }
            }
        };
        let last = || entry.run.rsplit('-').next().unwrap_or_default().to_owned();
        let workload = entry.workload.clone().unwrap_or_else(last);
        let deployment = DeploymentArgs {
            block_size: options.block_size.or(entry.block_size).unwrap_or(16),
            max_model_len: options.max_model_len.or(entry.max_model_len),
            ..catalogue_deployment(options, (entry.model, entry.gpu, entry.tp), entry.kv_blocks)
        };
        let repeats = entry.distinct_prompts.is_some_and(|prompts| prompts > 0);
        let (requests, sha256) = load_requests(&file, repeats)?;
        runs.push(MeasuredRun {
            name: entry.run,
            workload,
            engine: options.engine.unwrap_or(MEASURED_ENGINE),
            deployment,
            max_num_seqs: options.max_num_seqs.unwrap_or(entry.max_num_seqs),
            max_num_batched_tokens: options.max_num_batched_tokens.unwrap_or(entry.max_num_batched_tokens),
            prefix_caching: repeats,
            shared_prefix_tokens: entry.shared_system_prompt_tokens.unwrap_or(0),
            cut_off: matches!((entry.requests_given, entry.requests_in_run), (Some(given), Some(all)) if given < all),
            requests,
            sha256,
            percentiles: None,
        });
    }
    Ok(runs)
}

/// The deployment of a line of a catalogue; the options take precedence.
pub(super) fn catalogue_deployment(
    options: &RunOptions,
    (model, gpu, tp): (String, String, u32),
    kv_blocks: Option<u64>,
) -> DeploymentArgs {
    DeploymentArgs {
        hardware: Some(options.hardware.clone().unwrap_or(gpu)),
        tensor_parallel_size: Some(options.tensor_parallel_size.unwrap_or(tp)),
        total_kv_blocks: options.total_kv_blocks.or(kv_blocks),
        block_size: options.block_size.unwrap_or(16),
        ..deployment(options, options.model.clone().unwrap_or(model))
    }
}

fn deployment(options: &RunOptions, model: String) -> DeploymentArgs {
    DeploymentArgs {
        model_config_folder: options.model_config_folder.clone(),
        hardware_config: options.hardware_config.clone(),
        coefficients: options.coefficients.clone(),
        latency_model: Some(blis_config::LatencyKind::Physics),
        ..DeploymentArgs::new(model)
    }
}

/// One run: the file of its requests, with the deployment of the command line.
pub(super) fn load_single(path: &Path, options: &RunOptions) -> Result<MeasuredRun, FitError> {
    let Some(model) = options.model.clone() else {
        let what = "a file of requests does not contain the deployment that was measured";
        let hint = "give `--model` and `--hardware`, or the folder of a `runs.csv`";
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mistake = if text.trim_start().starts_with('{') && text.contains("\"ttfts\"") {
            Diagnostic::new("this is a result of `vllm bench serve`, which has no arrival times of requests")
                .hint("measured runs are a table of requests (docs/fidelity.md); `blis run --workload-trace` replays this file")
        } else {
            Diagnostic::new(what).hint(hint)
        };
        return Err(FitError::file(path, None, mistake));
    };
    let (requests, sha256) = load_requests(path, false)?;
    let stem = path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    Ok(MeasuredRun {
        name: stem.split('.').next().unwrap_or_default().to_owned(),
        workload: "unnamed".to_owned(),
        deployment: DeploymentArgs {
            hardware: options.hardware.clone(),
            tensor_parallel_size: options.tensor_parallel_size,
            total_kv_blocks: options.total_kv_blocks,
            block_size: options.block_size.unwrap_or(16),
            max_model_len: options.max_model_len,
            ..deployment(options, model)
        },
        engine: options.engine.unwrap_or(MEASURED_ENGINE),
        max_num_seqs: options.max_num_seqs.unwrap_or(256),
        max_num_batched_tokens: options.max_num_batched_tokens.unwrap_or(2048),
        prefix_caching: requests.iter().any(|request| request.prompt.is_some()),
        shared_prefix_tokens: 0,
        cut_off: false,
        requests,
        sha256,
        percentiles: None,
    })
}

/// The requests of a file, and its SHA-256. With `repeats`, prompts of equal length count as the same prompt, unless
/// the file distinguishes them.
fn load_requests(path: &Path, repeats: bool) -> Result<(Vec<MeasuredRequest>, String), FitError> {
    let (text, sha256) = read(path)?;
    let json = text.trim_ascii_start().starts_with(b"{");
    let mut requests = if json { timestamps(path, &text)? } else { durations(path, &text, repeats)? };
    if requests.is_empty() {
        let mistake = Diagnostic::new("no request was completed").hint("is this the right file?");
        return Err(FitError::file(path, None, mistake));
    }
    requests.sort_by_key(|request| request.arrival_us);
    let first = requests[0].arrival_us;
    for request in &mut requests {
        request.arrival_us -= first;
    }
    Ok((requests, sha256))
}

/// A line of a file with durations.
#[derive(Deserialize)]
struct RequestRow {
    arrival_us: u64,
    input_tokens: u32,
    output_tokens: u32,
    ttft_us: f64,
    e2e_us: f64,
    queue_us: Option<f64>,
    ok: Option<u8>,
    split: Option<String>,
    prompt: Option<String>,
}

fn durations(path: &Path, text: &[u8], repeats: bool) -> Result<Vec<MeasuredRequest>, FitError> {
    let mut prompts = BTreeMap::new();
    let mut requests = Vec::new();
    for (row, line) in rows::<RequestRow>(path, text)?.into_iter().zip(2..) {
        if row.ok == Some(0) {
            continue;
        }
        let wrong = |what: String, hint| FitError::file(path, Some(line), Diagnostic::new(what).hint(hint));
        let split = match row.split.as_deref() {
            None | Some("train" | "") => RunSplit::Train,
            Some("validation") => RunSplit::Validation,
            Some("test") => RunSplit::Test,
            Some(other) => {
                return Err(wrong(format!("unknown split `{other}`"), "known: train, validation, test"));
            }
        };
        if !(row.ttft_us >= 0.0 && row.e2e_us >= row.ttft_us && row.e2e_us.is_finite()) || row.output_tokens == 0 {
            let (ttft, e2e, tokens) = (row.ttft_us, row.e2e_us, row.output_tokens);
            return Err(wrong(
                format!("first token after {ttft} µs, last after {e2e} µs, of {tokens} tokens"),
                "leave out requests that failed, or mark them with `ok` 0",
            ));
        }
        let name = row.prompt.filter(|name| !name.is_empty()).or_else(|| repeats.then(|| row.input_tokens.to_string()));
        let next = prompts.len() as u32;
        requests.push(MeasuredRequest {
            arrival_us: row.arrival_us,
            input_tokens: row.input_tokens,
            output_tokens: row.output_tokens,
            ttft_us: row.ttft_us,
            e2e_us: row.e2e_us,
            queue_us: row.queue_us,
            split,
            prompt: name.map(|name| *prompts.entry(name).or_insert(next)),
        });
    }
    Ok(requests)
}

/// A line of a file with timestamps, s, as in vLLM's `RequestStateStats`.
#[derive(Deserialize)]
struct TimestampRow {
    input_toks: u32,
    output_toks: u32,
    /// Time of day; the other timestamps count from the start of the machine.
    arrival_time: f64,
    queued_ts: f64,
    scheduled_ts: f64,
    first_token_ts: f64,
    last_token_ts: f64,
}

fn timestamps(path: &Path, text: &[u8]) -> Result<Vec<MeasuredRequest>, FitError> {
    let mut all = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.map_err(|source| FitError::Read { path: path.into(), source })?;
        if line.trim().is_empty() {
            continue;
        }
        let times: TimestampRow = serde_json::from_str(&line)
            .map_err(|error| FitError::file(path, Some(number), Diagnostic::new(error.to_string())))?;
        let ordered = [times.queued_ts, times.scheduled_ts, times.first_token_ts, times.last_token_ts];
        if !ordered.is_sorted() || !times.arrival_time.is_finite() || times.output_toks == 0 {
            let mistake = Diagnostic::new("its times are not in order").hint("leave out requests that failed");
            return Err(FitError::file(path, Some(number), mistake));
        }
        all.push(times);
    }
    // The two clocks are aligned at the request with the shortest time from arrival to queue.
    let offset = all.iter().map(|times| times.queued_ts - times.arrival_time).fold(f64::INFINITY, f64::min);
    let first = all.iter().map(|times| times.arrival_time).fold(f64::INFINITY, f64::min);
    let request = |times: &TimestampRow| MeasuredRequest {
        arrival_us: ((times.arrival_time - first) * 1e6).round() as u64,
        input_tokens: times.input_toks,
        output_tokens: times.output_toks,
        ttft_us: (times.first_token_ts - offset - times.arrival_time) * 1e6,
        e2e_us: (times.last_token_ts - offset - times.arrival_time) * 1e6,
        queue_us: Some((times.scheduled_ts - times.queued_ts) * 1e6),
        split: RunSplit::Train,
        prompt: None,
    };
    Ok(all.iter().map(request).collect())
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
    let bytes = std::fs::read(path).map_err(failed)?;
    let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok((bytes, sha256));
    }
    let mut text = Vec::new();
    MultiGzDecoder::new(BufReader::new(Cursor::new(bytes))).read_to_end(&mut text).map_err(failed)?;
    Ok((text, sha256))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "arrival_us,input_tokens,output_tokens,ttft_us,e2e_us,ok,split\n\
                        5000,100,11,30000,130000,1,train\n\
                        1000,100,2,20000,40000,1,validation\n\
                        2000,50,1,20000,20000,0,train\n";

    fn durations_of(text: &str, repeats: bool) -> Result<Vec<MeasuredRequest>, FitError> {
        durations(Path::new("a.csv"), text.as_bytes(), repeats)
    }

    #[test]
    fn failed_requests_are_left_out_and_equal_lengths_are_one_prompt() {
        let requests = durations_of(ROWS, true).unwrap();
        assert_eq!(requests.len(), 2);
        assert_eq!((requests[0].prompt, requests[1].prompt), (Some(0), Some(0)));
        assert_eq!(requests[0].itl_us(), Some(10_000.0), "10 gaps between 11 tokens");
        assert_eq!(requests[1].split, RunSplit::Validation);
        assert_eq!(durations_of(ROWS, false).unwrap()[0].prompt, None);
    }

    #[test]
    fn mistakes_have_a_location() {
        let error = |text: &str| durations_of(text, false).unwrap_err().to_string();
        let head = "arrival_us,input_tokens,output_tokens,ttft_us,e2e_us,split\n";
        assert!(error(&format!("{head}1,2,3,4,x,train\n")).starts_with("a.csv:2: "));
        assert!(
            error(&format!("{head}1,2,3,4,5,train\n1,2,3,4,5,later\n")).starts_with("a.csv:3: unknown split `later`")
        );
        let reversed = error(&format!("{head}1,2,3,9,5,train\n"));
        assert!(reversed.starts_with("a.csv:2: first token after 9 µs, last after 5 µs"), "{reversed}");
        assert!(error("arrival_us,input_tokens\n1,2\n").contains("missing field `output_tokens`"));
    }

    #[test]
    fn the_clocks_of_vllm_are_laid_over_each_other() {
        let line = |arrival: f64, queued: f64| {
            format!(
                "{{\"request_id\": \"r\", \"input_toks\": 10, \"output_toks\": 3, \"arrival_time\": {arrival}, \
                 \"queued_ts\": {queued}, \"scheduled_ts\": {}, \"first_token_ts\": {}, \"last_token_ts\": {}}}\n",
                queued + 0.5,
                queued + 0.75,
                queued + 1.0
            )
        };
        let text = format!("{}\n{}", line(1000.0, 50.0), line(1001.0, 51.25));
        let requests = timestamps(Path::new("a.jsonl"), text.as_bytes()).unwrap();
        assert_eq!((requests[0].ttft_us, requests[0].e2e_us), (750_000.0, 1_000_000.0));
        assert_eq!((requests[1].arrival_us, requests[1].ttft_us), (1_000_000, 1_000_000.0), "0.25 s on the way");
        assert_eq!(requests[1].queue_us, Some(500_000.0));
        let error = timestamps(Path::new("a.jsonl"), b"\n{\"input_toks\": 1}\n").unwrap_err().to_string();
        assert!(error.starts_with("a.jsonl:2: missing field `output_toks`"), "{error}");
    }
}
