//! Measured runs and the deployments that served them: `runs.csv`, or one file of requests with the deployment on the
//! command line.

use std::path::{Path, PathBuf};

use blis_config::{DeploymentArgs, LatencyKind};
use blis_diag::Diagnostic;
use serde::Deserialize;

use super::requests::{RequestFile, load_requests};
use super::runs::{FitError, MEASURED_ENGINE, MeasuredRun, RunOptions, RunStage, read, rows, served_by};

/// A line of `runs.csv`.
#[derive(Deserialize)]
struct RunEntry {
    run: String,
    model: String,
    gpu: String,
    tp: u32,
    dp: Option<u32>,
    ep: Option<String>,
    gpu_memory_utilization: Option<f64>,
    max_num_seqs: u32,
    max_num_batched_tokens: u32,
    max_model_len: Option<u32>,
    block_size: Option<u32>,
    kv_blocks: Option<u64>,
    distinct_prompts: Option<u32>,
    shared_system_prompt_tokens: Option<u32>,
    requests_given: Option<u64>,
    requests_in_run: Option<u64>,
    stages_rate_x_seconds: Option<String>,
    workload: Option<String>,
    /// File of the requests, relative to the folder of `runs.csv`.
    requests: Option<PathBuf>,
}

/// The deployment in a line of a catalogue.
pub(super) struct CatalogueDeployment {
    pub model: String,
    pub gpu: String,
    /// Tensor-parallel size.
    pub tp: u32,
    /// Data-parallel size; 1 by default.
    pub dp: Option<u32>,
    /// Whether experts are distributed over the ranks (vLLM's `--enable-expert-parallel`).
    pub ep: bool,
    /// Share of the GPU's memory that the server uses, in (0, 1]; 0.9 by default.
    pub gpu_memory_utilization: Option<f64>,
    /// Measured size of the KV cache, blocks.
    pub kv_blocks: Option<u64>,
}

/// The content of a column `ep`: empty is false. Sizes are refused: that of vLLM is always `tp` × `dp`.
pub(super) fn expert_parallel(text: Option<&str>) -> Result<bool, Diagnostic> {
    match text.unwrap_or_default() {
        "" | "false" => Ok(false),
        "true" => Ok(true),
        other => Err(Diagnostic::new(format!("`ep` is `{other}`"))
            .hint("write `true` if the server had `--enable-expert-parallel`, else `false`")),
    }
}

/// The runs of the `runs.csv` at `path`.
pub(super) fn load_catalogue(path: &Path, options: &RunOptions) -> Result<Vec<MeasuredRun>, FitError> {
    let (text, _) = read(path)?;
    let entries = rows::<RunEntry>(path, &text)?;
    entries.into_iter().zip(2..).map(|(entry, line)| entry.run(path, line, options)).collect()
}

/// A run of a catalogue without its requests.
pub(super) struct CatalogueRun {
    pub name: String,
    pub deployment: DeploymentArgs,
}

/// The deployments of the `runs.csv` at `path`, with the batch limits that the size of the KV cache depends on.
pub(super) fn catalogue_runs(path: &Path, options: &RunOptions) -> Result<Vec<CatalogueRun>, FitError> {
    let (text, _) = read(path)?;
    let entries = rows::<RunEntry>(path, &text)?;
    let run = |(entry, line): (RunEntry, u64)| {
        let deployment = entry.deployment(options).map_err(|mistake| FitError::file(path, Some(line), mistake))?;
        let (seqs, tokens) = (entry.max_num_seqs, entry.max_num_batched_tokens);
        let engine = options.engine.unwrap_or(MEASURED_ENGINE);
        Ok(CatalogueRun { name: entry.run, deployment: served_by(engine, options.parity, seqs, tokens, deployment) })
    };
    entries.into_iter().zip(2..).map(run).collect()
}

impl RunEntry {
    /// The deployment that served the run; the options take precedence.
    fn deployment(&self, options: &RunOptions) -> Result<DeploymentArgs, Diagnostic> {
        let entry = CatalogueDeployment {
            model: self.model.clone(),
            gpu: self.gpu.clone(),
            tp: self.tp,
            dp: self.dp,
            ep: expert_parallel(self.ep.as_deref())?,
            gpu_memory_utilization: self.gpu_memory_utilization,
            kv_blocks: self.kv_blocks,
        };
        Ok(DeploymentArgs {
            block_size: options.block_size.or(self.block_size).unwrap_or(16),
            max_model_len: options.max_model_len.or(self.max_model_len),
            ..catalogue_deployment(options, entry)
        })
    }

    /// The run of line `line` of the file `path`, counted from 1.
    fn run(self, path: &Path, line: u64, options: &RunOptions) -> Result<MeasuredRun, FitError> {
        let wrong = |mistake: Diagnostic| FitError::file(path, Some(line), mistake);
        let folder = path.parent().unwrap_or(Path::new("."));
        let file = match &self.requests {
            Some(file) => folder.join(file),
            None => {
                let plain = folder.join("requests").join(format!("{}.csv", self.run));
                if plain.exists() { plain } else { plain.with_extension("csv.gz") }
            }
        };
        let last = self.run.rsplit('-').next().unwrap_or_default().to_owned();
        let stages = parse_stages(self.stages_rate_x_seconds.as_deref()).map_err(wrong)?;
        let deployment = self.deployment(options).map_err(wrong)?;
        let repeats = self.distinct_prompts.is_some_and(|prompts| prompts > 0);
        let read = load_requests(&file, repeats, deployment.block_size)?;
        let given = self.requests_given.zip(self.requests_in_run);
        Ok(MeasuredRun {
            name: self.run,
            workload: self.workload.unwrap_or(last),
            deployment,
            max_num_seqs: options.max_num_seqs.unwrap_or(self.max_num_seqs),
            max_num_batched_tokens: options.max_num_batched_tokens.unwrap_or(self.max_num_batched_tokens),
            prefix_caching: repeats || read.prefixes_known,
            shared_prefix_tokens: self.shared_system_prompt_tokens.unwrap_or(0),
            cut_off: given.is_some_and(|(given, all)| given < all),
            percentiles: None,
            stages: options.stages.clone().unwrap_or(stages),
            prefixes_known: self.distinct_prompts.is_some() || read.prefixes_known,
            parity: options.parity,
            engine: options.engine.unwrap_or(MEASURED_ENGINE),
            requests: read.requests,
            sha256: read.sha256,
            notes: read.notes,
        })
    }
}

/// The levels of load in a column; none if it is empty.
pub(super) fn parse_stages(text: Option<&str>) -> Result<Vec<RunStage>, Diagnostic> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(Vec::new()) };
    RunStage::parse(text).ok_or_else(|| {
        Diagnostic::new(format!("stages `{text}`")).hint("write requests per second x seconds: `8x600+20x600`")
    })
}

/// The deployment of a line of a catalogue; the options take precedence.
pub(super) fn catalogue_deployment(options: &RunOptions, entry: CatalogueDeployment) -> DeploymentArgs {
    DeploymentArgs {
        hardware: Some(options.hardware.clone().unwrap_or(entry.gpu)),
        tensor_parallel_size: Some(options.tensor_parallel_size.unwrap_or(entry.tp)),
        data_parallel_size: options.data_parallel_size.or(entry.dp).unwrap_or(1),
        enable_expert_parallel: options.enable_expert_parallel || entry.ep,
        gpu_memory_utilization: options.gpu_memory_utilization.or(entry.gpu_memory_utilization),
        total_kv_blocks: options.total_kv_blocks.or(entry.kv_blocks),
        block_size: options.block_size.unwrap_or(16),
        ..deployment(options, options.model.clone().unwrap_or(entry.model))
    }
}

fn deployment(options: &RunOptions, model: String) -> DeploymentArgs {
    DeploymentArgs {
        model_config_folder: options.model_config_folder.clone(),
        hardware_config: options.hardware_config.clone(),
        coefficients: options.coefficients.clone(),
        latency_model: Some(if options.parity { LatencyKind::TrainedPhysics } else { LatencyKind::Physics }),
        ..DeploymentArgs::new(model)
    }
}

/// The deployment of the command line, with `model` served.
pub(super) fn single_deployment(options: &RunOptions, model: String) -> DeploymentArgs {
    DeploymentArgs {
        hardware: options.hardware.clone(),
        tensor_parallel_size: options.tensor_parallel_size,
        data_parallel_size: options.data_parallel_size.unwrap_or(1),
        enable_expert_parallel: options.enable_expert_parallel,
        gpu_memory_utilization: options.gpu_memory_utilization,
        total_kv_blocks: options.total_kv_blocks,
        block_size: options.block_size.unwrap_or(16),
        max_model_len: options.max_model_len,
        ..deployment(options, model)
    }
}

/// One run: the file of its requests, with the deployment of the command line.
pub(super) fn load_single(path: &Path, options: &RunOptions) -> Result<MeasuredRun, FitError> {
    let RequestFile { requests, sha256, prefixes_known, notes } =
        load_requests(path, false, options.block_size.unwrap_or(16))?;
    let Some(model) = options.model.clone() else {
        let what = "a file of requests does not contain the deployment that was measured";
        let hint = "give `--model` and `--hardware`, or the folder of a `runs.csv`";
        return Err(FitError::file(path, None, Diagnostic::new(what).hint(hint)));
    };
    let stem = path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    Ok(MeasuredRun {
        name: stem.split('.').next().unwrap_or_default().to_owned(),
        workload: "unnamed".to_owned(),
        deployment: single_deployment(options, model),
        max_num_seqs: options.max_num_seqs.unwrap_or(256),
        max_num_batched_tokens: options.max_num_batched_tokens.unwrap_or(2048),
        prefix_caching: prefixes_known,
        shared_prefix_tokens: 0,
        cut_off: false,
        requests,
        sha256,
        percentiles: None,
        stages: options.stages.clone().unwrap_or_default(),
        prefixes_known,
        parity: options.parity,
        engine: options.engine.unwrap_or(MEASURED_ENGINE),
        notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first run of a catalogue with one request.
    fn load(name: &str, columns: &str, values: &str, options: &RunOptions) -> Result<MeasuredRun, String> {
        let folder = std::env::temp_dir().join(format!("blis-fit-catalogue-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let catalogue = format!(
            "run,model,gpu,tp,max_num_seqs,max_num_batched_tokens,requests,{columns}\n\
             r,qwen3-30b-a3b,H100,1,128,2048,r.csv,{values}\n"
        );
        std::fs::write(folder.join("runs.csv"), catalogue).unwrap();
        std::fs::write(folder.join("r.csv"), "arrival_us,input_tokens,output_tokens,ttft_us,e2e_us\n5,10,2,30,40\n")
            .unwrap();
        let loaded = load_catalogue(&folder.join("runs.csv"), options);
        std::fs::remove_dir_all(&folder).unwrap();
        loaded.map(|mut runs| runs.remove(0)).map_err(|error| error.to_string())
    }

    #[test]
    fn columns_of_parallelism_and_memory_are_the_deployment() {
        let columns = "dp,ep,gpu_memory_utilization,stages_rate_x_seconds,distinct_prompts,unknown";
        let run = load("all", columns, "2,true,0.85,8x600+20x600,0,x", &RunOptions::default()).unwrap();
        let deployment = &run.deployment;
        assert_eq!((deployment.data_parallel_size, deployment.enable_expert_parallel), (2, true));
        assert_eq!(deployment.gpu_memory_utilization, Some(0.85));
        assert_eq!((run.stages.len(), run.stages[1].rate), (2, 20.0));
        assert!(run.prefixes_known && !run.prefix_caching, "0 distinct prompts: none repeats");
        let empty = load("empty", columns, ",,,,,", &RunOptions::default()).unwrap();
        assert_eq!((empty.deployment.data_parallel_size, empty.deployment.enable_expert_parallel), (1, false));
        assert_eq!((empty.deployment.gpu_memory_utilization, empty.prefixes_known), (None, false));
        let options = RunOptions {
            data_parallel_size: Some(4),
            gpu_memory_utilization: Some(0.5),
            parity: true,
            ..RunOptions::default()
        };
        let replaced = load("options", columns, "2,true,0.85,,,", &options).unwrap().deployment;
        assert_eq!((replaced.data_parallel_size, replaced.gpu_memory_utilization), (4, Some(0.5)));
        assert_eq!(replaced.latency_model, Some(LatencyKind::TrainedPhysics));
    }

    #[test]
    fn mistakes_in_a_catalogue_have_their_line() {
        let error = |name, column, value| load(name, column, value, &RunOptions::default()).unwrap_err();
        let ep = error("ep", "ep", "8");
        assert!(ep.contains("runs.csv:2: `ep` is `8`\nhint: write `true` if the server had"), "{ep}");
        let stages = error("stages", "stages_rate_x_seconds", "8");
        assert!(stages.contains("runs.csv:2: stages `8`\nhint: "), "{stages}");
    }
}
