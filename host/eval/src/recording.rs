//! The file of `--trace-path`: opened before the run with what it says of the run, and ended behind it.

use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::error::Failure;
use crate::experiment::Experiment;
use crate::explain::explain;
use blis_config::Deployment;
use blis_config::policy::PolicySettings;
use blis_plugin::Kind;
use blis_report::FileError;
use blis_report::decisions::{DecisionHeader, DecisionLog, FORMAT, InstanceGroup, PolicyNames, TraceFile, VERSION};
use blis_workload::Names;

/// The trace of a run, if one is wanted.
pub(crate) type Log<'a> = Option<DecisionLog<'a, TraceFile>>;

/// Opens it.
pub(crate) fn open<'a>(config: &Experiment, deployment: &Deployment, names: &'a Names) -> Result<Log<'a>, Failure> {
    let Some(path) = config.evaluation.trace_path.as_deref() else { return Ok(None) };
    let file = TraceFile::create(path).map_err(|source| failed(path, source))?;
    let candidates = config.evaluation.counterfactual_k as usize;
    Ok(Some(DecisionLog::new(file, &header(config, deployment), names, candidates)))
}

/// Ends it.
pub(crate) fn finish(log: Log<'_>, config: &Experiment) -> Result<(), Failure> {
    let Some((log, path)) = log.zip(config.evaluation.trace_path.as_deref()) else { return Ok(()) };
    log.finish().and_then(TraceFile::finish).map_err(|source| failed(path, source))
}

fn failed(path: &Path, source: std::io::Error) -> Failure {
    Failure::file(&FileError::Io { path: path.to_owned(), source })
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
            max_num_seqs: engine.max_num_seqs,
            max_num_batched_tokens: engine.max_num_batched_tokens,
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

/// Of what `--explain-config` prints: without where values come from, but for the digests of plugins, and
/// without how the run is judged and recorded.
fn digest(explained: &str) -> String {
    let mut digest = Sha256::new();
    let mut judged = false;
    for line in explained.lines().filter(|line| !line.starts_with('#')) {
        if !line.starts_with(' ') {
            judged = line == "evaluation:";
        }
        let (value, source) = line.split_once("  # ").unwrap_or((line, ""));
        if !judged {
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
    fn the_digest_is_of_what_shapes_the_simulation() {
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
