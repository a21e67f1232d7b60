//! The balance beside what servers logged at their start: `shared/data/memory/logs.csv`, where it is.

use std::path::{Path, PathBuf};

use blis_sim::engine_version::EngineVersion;
use serde::Deserialize;

use crate::engine::EngineProfile;
use crate::{DeploymentArgs, Dtype, KvCacheDtype, Quantization, known_models, resolve, short_name};

/// A start, with the columns that decide its balance.
#[derive(Deserialize)]
struct Start {
    id: String,
    model: String,
    gpu: String,
    tp: Option<u32>,
    pp: Option<u32>,
    weights_format: String,
    kv_dtype: String,
    vllm: String,
    /// A number, or `default`.
    util: String,
    max_num_seqs: Option<u32>,
    max_num_batched_tokens: Option<u32>,
    weights_gib: Option<f64>,
    activation_gib: Option<f64>,
    available_gib: Option<f64>,
    outcome: String,
}

impl Start {
    /// The deployment; `None` without a configuration of its model.
    fn args(&self, shared: &Path) -> Option<DeploymentArgs> {
        let name = short_name(&self.model);
        let unquantised = name.trim_end_matches("-fp8-dynamic").to_owned();
        let built_in = |name: &str| known_models().iter().any(|known| known.name == name && known.has_config);
        let mut args = DeploymentArgs::new(name.clone());
        if !built_in(&name) {
            let file = format!("{}.config.json", self.model.replace('/', "--"));
            let folders = ["reference/models", "reference/architectures"].map(|folder| shared.join(folder).join(&file));
            match folders.into_iter().find(|file| file.is_file()) {
                Some(file) => args.model_config_folder = Some(renamed(&file)?),
                None if built_in(&unquantised) => args.model = unquantised,
                None => return None,
            }
        }
        args.hardware =
            Some(if self.gpu.starts_with("A100") { "A100-SXM".into() } else { self.gpu.replace("-80", "") });
        (args.tensor_parallel_size, args.pipeline_parallel_size) = (self.tp, self.pp);
        args.precision.quantization = self.weights_format.starts_with("fp8").then_some(Quantization::Fp8);
        if self.weights_format == "fp32" {
            args.precision.dtype = Dtype::Float32;
        }
        if self.kv_dtype == "fp8" {
            args.precision.kv_cache_dtype = KvCacheDtype::Fp8;
        }
        args.gpu_memory_utilization = self.util.parse().ok();
        args.engine_version = self.vllm.parse().ok();
        args.batch.engine = Some(EngineProfile::Vllm033);
        args.batch.max_num_seqs = self.max_num_seqs;
        args.batch.max_num_batched_tokens = self.max_num_batched_tokens;
        Some(args)
    }
}

/// A folder with that file as `config.json`.
fn renamed(file: &Path) -> Option<PathBuf> {
    let folder = std::env::temp_dir().join(format!("blis-start-logs-{}", std::process::id())).join(file.file_stem()?);
    std::fs::create_dir_all(&folder).ok()?;
    std::fs::copy(file, folder.join("config.json")).ok()?;
    Some(folder)
}

/// `memory.md` §4.4: median error 1.5 %, at most 1.5 GiB, without a constant of a model.
#[test]
fn available_memory_is_that_of_the_logs() {
    const GIB: f64 = 1_073_741_824.0;
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let file = shared.join("data/memory/logs.csv");
    if !file.is_file() {
        eprintln!("skipped: {} is not there", file.display());
        return;
    }
    let mut errors = Vec::new();
    for start in csv::Reader::from_path(file).unwrap().deserialize() {
        let start: Start = start.unwrap();
        let numbered = start.vllm.parse::<EngineVersion>().is_ok();
        let limited =
            start.util.parse::<f64>().is_ok() && start.max_num_seqs.is_some() && start.max_num_batched_tokens.is_some();
        let (Some(logged), true) = (start.available_gib, numbered && limited && start.outcome == "started") else {
            continue;
        };
        let Some(args) = start.args(&shared) else {
            eprintln!("{} {}: no configuration of the model", start.id, start.model);
            continue;
        };
        let memory = resolve(&args).unwrap_or_else(|error| panic!("{} {}: {error}", start.id, start.model)).memory;
        let balance = memory.expect("its model has a configuration").balance;
        let [available, weights, peak] =
            [balance.available(), balance.weights, balance.activations.peak()].map(|bytes| bytes as f64 / GIB);
        let error = available - logged;
        eprintln!(
            "{} {:<44} {:<7} tp{} weights {weights:.2} ({:.2}) peak {peak:.2} ({:.2}) available {available:.2} ({logged:.2}) {error:+.2} GiB, \
             {:+.1} %",
            start.id,
            start.model,
            start.vllm,
            start.tp.unwrap_or(1),
            start.weights_gib.unwrap_or(f64::NAN),
            start.activation_gib.unwrap_or(f64::NAN),
            error / logged * 100.0
        );
        errors.push((error.abs() / logged, error.abs()));
    }
    errors.sort_by(|a, b| a.0.total_cmp(&b.0));
    let worst = errors.iter().map(|error| error.1).fold(0.0, f64::max);
    let median = errors[errors.len() / 2].0;
    eprintln!("{} starts: median error {:.2} %, worst {worst:.2} GiB", errors.len(), median * 100.0);
    assert!(errors.len() >= 12 && median <= 0.015 && worst <= 1.5, "{median} {worst}");
}
