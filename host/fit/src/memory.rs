//! The memory balance of a measured server beside the computed one: `blis fit-memory`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use blis_config::engine::EngineProfile;
use blis_config::{DeploymentArgs, resolve};
use blis_diag::{Diagnostic, display, read_text};
use blis_sim::engine_version::EngineVersion;
use serde::Serialize;

use crate::runs::FitError;
use crate::start_log::{self, StartLog};

const GIB: f64 = 1_073_741_824.0;

/// Longer logs are refused.
const BYTES_MAX: u64 = 64 << 20;

/// Settings of the command line, which take precedence over those of a log.
#[derive(Clone, Debug, Default)]
pub struct StartOptions {
    pub model: Option<String>,
    /// The GPU, which no log names; H100 by default.
    pub hardware: Option<String>,
    /// The version of vLLM.
    pub engine_version: Option<EngineVersion>,
    pub max_num_seqs: Option<u32>,
    pub max_num_batched_tokens: Option<u32>,
    /// Folders of models and GPUs that are not built in.
    pub model_config_folder: Option<PathBuf>,
    pub hardware_config: Option<PathBuf>,
}

/// What `blis fit-memory` prints with `--output json`: each log.
pub type MemoryOfLogs = Vec<MeasuredMemory>;

/// The memory of one GPU of a server: measured, and computed.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredMemory {
    /// The log.
    file: String,
    /// Name of the model.
    model: String,
    /// Name of the GPU.
    hardware: String,
    /// The version of vLLM of which the constants are.
    engine_version: String,
    /// GPUs that share each layer. Unit: GPUs, 1 or more.
    tensor_parallel_size: u32,
    /// Maximum batch size of the profile run. Unit: requests, 1 or more.
    max_num_seqs: u32,
    /// Token budget of the profile run. Unit: tokens, 1 or more.
    max_num_batched_tokens: u32,
    /// Share of the memory that the server uses. Unit: share, 0 to 1.
    gpu_memory_utilization: f64,
    /// The parts, in the order in which they are subtracted.
    parts: Vec<MemoryPart>,
    /// "GPU KV cache size"; `null` if the log does not have it. Unit: tokens.
    kv_cache_tokens: Option<u64>,
    /// "Maximum concurrency"; `null` if the log does not have it. Unit: requests.
    max_concurrency: Option<f64>,
    /// What was taken for what the log does not say.
    notes: Vec<String>,
}

/// A part of the memory of a GPU.
#[derive(Clone, Debug, Serialize)]
struct MemoryPart {
    /// Its name.
    name: &'static str,
    /// In the log; `null` if it is not there. Unit: GiB.
    measured_gib: Option<f64>,
    /// By the formula. Unit: GiB.
    computed_gib: f64,
    /// Computed less measured; `null` as that. Unit: GiB.
    error_gib: Option<f64>,
}

/// Reads the log at `path`, and computes the balance of its server.
///
/// # Errors
/// If it cannot be read, or its server cannot be described.
pub fn measured_memory(path: &Path, options: &StartOptions) -> Result<MeasuredMemory, FitError> {
    let text = read_text(path, BYTES_MAX).map_err(|source| FitError::Read { path: path.into(), source })?;
    let file = display(path).to_string();
    let log = start_log::read(&file, &text).map_err(FitError::File)?;
    let mut notes = Vec::new();
    let args = server(path, &log, options, &mut notes)?;
    let deployment =
        resolve(&args).map_err(|source| FitError::Deployment { run: file.clone(), source: Box::new(source) })?;
    let Some(memory) = &deployment.memory else {
        let what = format!("the memory of {} cannot be computed", deployment.model);
        let hint = "put its Hugging Face `config.json` into a folder and give `--model-config-folder`";
        return Err(FitError::file(path, None, Diagnostic::new(what).hint(hint)));
    };
    let balance = &memory.balance;
    let gib = |bytes: u64| bytes as f64 / GIB;
    let part = |name, measured_gib: Option<f64>, computed_gib: f64| MemoryPart {
        name,
        measured_gib,
        computed_gib: rounded(computed_gib),
        error_gib: measured_gib.map(|measured| rounded(computed_gib - measured)),
    };
    let non_torch = log.non_torch_gib.or_else(|| Some(rounded(log.consumed_gib? - log.weights_gib?)));
    let parts = vec![
        part("total", log.total_gib, gib(balance.total)),
        part("weights", log.weights_gib, gib(balance.weights)),
        part("activations", log.activation_gib, gib(balance.activations.peak().saturating_add(balance.multimodal))),
        part("non-torch", non_torch, gib(balance.context)),
        part("CUDA graphs, subtracted", log.graphs_estimate_gib, gib(balance.graphs)),
        part("available for the KV cache", log.available_gib, balance.kv_cache as f64 / GIB),
    ];
    if let Some(graphs) = log.graphs_gib {
        notes.push(format!("the CUDA graphs took {graphs:.2} GiB in the end"));
    }
    Ok(MeasuredMemory {
        file,
        model: deployment.model.clone(),
        hardware: deployment.hardware.clone(),
        engine_version: balance.version.to_string(),
        tensor_parallel_size: deployment.tensor_parallel_size,
        max_num_seqs: deployment.batch_limits.max_num_seqs,
        max_num_batched_tokens: deployment.batch_limits.max_num_batched_tokens,
        gpu_memory_utilization: deployment.gpu_memory_utilization,
        parts,
        kv_cache_tokens: log.kv_cache_tokens,
        max_concurrency: log.max_concurrency,
        notes,
    })
}

/// The deployment of a log; notes what it does not say.
fn server(
    path: &Path,
    log: &StartLog,
    options: &StartOptions,
    notes: &mut Vec<String>,
) -> Result<DeploymentArgs, FitError> {
    let refused = |what: String, hint: &str| Err(FitError::file(path, None, Diagnostic::new(what).hint(hint)));
    let Some(model) = options.model.clone().or_else(|| log.model.clone()) else {
        return refused("the log does not name the model".into(), "give `--model`");
    };
    let version = match (options.engine_version, &log.version) {
        (Some(version), _) => version,
        (None, Some(text)) => match text.parse() {
            Ok(version) => version,
            Err(expected) => {
                return refused(format!("version `{text}`: {expected}"), "give the nearest with `--engine-version`");
            }
        },
        (None, None) => {
            return refused("the log does not say the version of vLLM".into(), "give `--engine-version`");
        }
    };
    let mut args = DeploymentArgs::new(model);
    args.hardware.clone_from(&options.hardware);
    args.tensor_parallel_size = Some(log.tensor_parallel_size.unwrap_or(1));
    args.pipeline_parallel_size = log.pipeline_parallel_size;
    args.gpu_memory_utilization = log.gpu_memory_utilization;
    args.max_model_len = log.max_model_len.and_then(|length| u32::try_from(length).ok());
    args.enforce_eager = log.enforce_eager.unwrap_or(false);
    args.engine_version = Some(version);
    args.batch.engine = Some(EngineProfile::default());
    args.batch.max_num_seqs = options.max_num_seqs.or(log.max_num_seqs);
    args.batch.max_num_batched_tokens = options.max_num_batched_tokens.or(log.max_num_batched_tokens);
    args.model_config_folder.clone_from(&options.model_config_folder);
    args.hardware_config.clone_from(&options.hardware_config);
    // The balance does not depend on it, and a server that did not start has one as well.
    args.total_kv_blocks = Some(1);
    let defaults = [
        ("--hardware", options.hardware.is_none()),
        ("--gpu-memory-utilization", log.gpu_memory_utilization.is_none()),
        ("--max-num-seqs", args.batch.max_num_seqs.is_none()),
        ("--max-num-batched-tokens", args.batch.max_num_batched_tokens.is_none()),
    ];
    let defaults: Vec<&str> = defaults.into_iter().filter_map(|(name, missing)| missing.then_some(name)).collect();
    if !defaults.is_empty() {
        notes.push(format!("not in the log, the default is taken: {}", defaults.join(", ")));
    }
    Ok(args)
}

fn rounded(gib: f64) -> f64 {
    (gib * 1000.0).round() / 1000.0
}

/// A block of lines per log: its server, and a line per part.
#[must_use]
pub fn memory_table(logs: &[MeasuredMemory]) -> String {
    let mut text = String::new();
    for log in logs {
        let _ = writeln!(
            text,
            "{}: {} on {} × {}, vLLM {}, max_num_seqs {}, max_num_batched_tokens {}, utilisation {}",
            log.file,
            log.model,
            log.tensor_parallel_size,
            log.hardware,
            log.engine_version,
            log.max_num_seqs,
            log.max_num_batched_tokens,
            log.gpu_memory_utilization
        );
        let _ = writeln!(text, "  {:<28}{:>10}{:>10}{:>8}", "GiB per GPU", "measured", "computed", "error");
        for MemoryPart { name, measured_gib, computed_gib, error_gib } in &log.parts {
            let [measured, error] =
                [measured_gib.map(|gib| format!("{gib:.2}")), error_gib.map(|gib| format!("{gib:+.2}"))]
                    .map(|cell| cell.unwrap_or_else(|| "-".into()));
            let _ = writeln!(text, "  {name:<28}{measured:>10}{computed_gib:>10.2}{error:>8}");
        }
        for note in &log.notes {
            let _ = writeln!(text, "  {note}");
        }
    }
    text
}

/// A table per log, as Markdown.
#[must_use]
pub fn memory_page(logs: &[MeasuredMemory]) -> String {
    let mut text =
        String::from("| log | part | measured, GiB | computed, GiB | error, GiB |\n| --- | --- | --- | --- | --- |\n");
    for log in logs {
        for MemoryPart { name, measured_gib, computed_gib, error_gib } in &log.parts {
            let [measured, error] =
                [measured_gib.map(|gib| format!("{gib:.2}")), error_gib.map(|gib| format!("{gib:+.2}"))]
                    .map(Option::unwrap_or_default);
            let _ = writeln!(text, "| {} | {name} | {measured} | {computed_gib:.2} | {error} |", log.file);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &str, text: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("blis-fit-memory-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The start m008 of `data/memory/logs.csv`.
    #[test]
    fn a_server_has_measured_and_computed_parts() {
        let path = written(
            "m008.log",
            "vLLM API server version 0.19.0\n\
             non-default args: {'model': 'meta-llama/Llama-3.1-8B-Instruct', 'gpu_memory_utilization': 0.95, 'max_model_len': 8192}\n\
             Model loading took 14.99 GiB memory and 3.2 seconds\n\
             Actual usage is 14.99 GiB for weight, 1.89 GiB for peak activation, 0.25 GiB for non-torch memory, and 0.5 GiB for CUDAGraph memory.\n\
             Available KV cache memory: 58.11 GiB\n\
             GPU KV cache size: 476,016 tokens\n",
        );
        let log = measured_memory(&path, &StartOptions::default()).unwrap();
        let table = memory_table(std::slice::from_ref(&log)).replace(&*display(&path), "m008.log");
        insta::assert_snapshot!(table, @r"
        m008.log: llama-3.1-8b-instruct on 1 × H100, vLLM 0.19, max_num_seqs 1024, max_num_batched_tokens 8192, utilisation 0.95
          GiB per GPU                   measured  computed   error
          total                                -     79.19       -
          weights                          14.99     14.96   -0.03
          activations                       1.89      1.91   +0.02
          non-torch                         0.25      0.25   +0.00
          CUDA graphs, subtracted              -      0.00       -
          available for the KV cache       58.11     58.11   +0.00
          not in the log, the default is taken: --hardware, --max-num-seqs, --max-num-batched-tokens
        ");
        let refused = |text: &str| {
            let error = measured_memory(&written("other.log", text), &StartOptions::default()).unwrap_err().to_string();
            error.replace(&*display(&path.with_file_name("other.log")), "other.log")
        };
        insta::assert_snapshot!(refused("Available KV cache memory: 58.11 GiB\n"), @r"
        other.log: the log does not name the model
        hint: give `--model`
        ");
        insta::assert_snapshot!(
            refused("vLLM API server version 0.6.4\nnon-default args: {'model': 'm'}\nAvailable KV cache memory: 3.81 GiB\n"), @r"
        other.log: version `0.6.4`: it must be a version of vLLM, 0.10 to 0.33
        hint: give the nearest with `--engine-version`
        "
        );
    }
}
