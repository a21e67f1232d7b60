//! The decision log of `--trace-path`: its header is written before the run, and the file is completed after it.

use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::explain::explain;
use blis_config::Deployment;
use blis_config::policy::PolicySettings;
use blis_plugin::Kind;
use blis_report::FileError;
use blis_report::decisions::{DecisionHeader, DecisionLog, FORMAT, InstanceGroup, PolicyNames, TraceFile, VERSION};
use blis_workload::Names;

/// The decision log of a run, if `--trace-path` requests one.
pub(crate) type OpenDecisionLog<'a> = Option<DecisionLog<'a, TraceFile>>;

/// Creates the file and writes the header.
pub(crate) fn open<'a>(
    config: &Experiment,
    deployment: &Deployment,
    names: &'a Names,
) -> Result<OpenDecisionLog<'a>, RunError> {
    let Some(path) = config.evaluation.trace_path.as_deref() else { return Ok(None) };
    let file = TraceFile::create(path).map_err(|source| failed(path, source))?;
    let candidates = config.evaluation.counterfactual_k as usize;
    Ok(Some(DecisionLog::new(file, &header(config, deployment), names, candidates)))
}

/// Writes the rest of the log and closes the file.
pub(crate) fn finish(log: OpenDecisionLog<'_>, config: &Experiment) -> Result<(), RunError> {
    let Some((log, path)) = log.zip(config.evaluation.trace_path.as_deref()) else { return Ok(()) };
    log.finish().and_then(TraceFile::finish).map_err(|source| failed(path, source))
}

fn failed(path: &Path, source: std::io::Error) -> RunError {
    RunError::file(&FileError::Io { path: path.to_owned(), source })
}

fn header(config: &Experiment, deployment: &Deployment) -> DecisionHeader {
    let (cluster, engine) = (&config.cluster, &config.engine);
    DecisionHeader {
        format: FORMAT.to_owned(),
        version: VERSION,
        program: format!("blis {}", env!("CARGO_PKG_VERSION")),
        config_sha256: digest(&explain(config, deployment).to_string()),
        seed: config.seed,
        model: deployment.model.clone(),
        hardware: deployment.hardware.clone(),
        workload: config.workload.to_string(),
        policies: policy_names(&cluster.policies),
        admission_latency_us: cluster.admission_latency.0,
        routing_latency_us: cluster.routing_latency.0,
        snapshot_refresh_interval_us: cluster.snapshot_refresh_interval.0,
        cache_signal_delay_us: cluster.cache_signal_delay.0,
        counterfactual_k: config.evaluation.counterfactual_k,
        instances: vec![InstanceGroup {
            first: 0,
            count: cluster.num_instances,
            max_num_seqs: deployment.instance_limits().max_num_seqs,
            max_num_batched_tokens: deployment.instance_limits().max_num_batched_tokens,
            total_kv_blocks: deployment.total_kv_blocks,
            block_size: engine.block_size,
        }],
    }
}

fn policy_names(policies: &PolicySettings) -> PolicyNames {
    let name = |kind| policies.name(kind).to_owned();
    PolicyNames {
        admission: name(Kind::Admission),
        routing: name(Kind::Routing),
        priority: name(Kind::Priority),
        scheduling: name(Kind::Scheduling),
        preemption: name(Kind::Preemption),
    }
}

/// Hash of the settings that shape the simulation: of the page of `--explain-config` without the sources of values
/// (except the digests of plugins), and without the section of the evaluation and the recording.
fn digest(explained: &str) -> String {
    let mut digest = Sha256::new();
    let mut in_evaluation = false;
    for line in explained.lines().filter(|line| !line.starts_with('#')) {
        if !line.starts_with(' ') {
            in_evaluation = line == "evaluation:";
        }
        let (value, source) = line.split_once("  # ").unwrap_or((line, ""));
        if !in_evaluation {
            digest.update(value);
            digest.update(source.split_once("SHA-256 ").map_or("", |(_, plugin)| plugin));
            digest.update("\n");
        }
    }
    format!("{:x}", digest.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_covers_the_settings_of_the_simulation() {
        let page = |tp: u32, source: &str, path: &str, plugin: &str| {
            format!(
                "model_and_hardware:\n  tp: {tp}  # {source}\nevaluation:\n  trace_path: {path}  # --trace-path\n\
                 routing:\n  policy: mine  # mine.rhai, SHA-256 {plugin}\n"
            )
        };
        let usual = digest(&page(1, "default", "a", "00"));
        assert_eq!(usual.len(), 64);
        assert_eq!(usual, digest(&page(1, "--tp", "b", "00")));
        assert_ne!(usual, digest(&page(2, "default", "a", "00")));
        assert_ne!(usual, digest(&page(1, "default", "a", "01")));
    }
}
