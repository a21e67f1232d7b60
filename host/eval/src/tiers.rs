//! The settings of BLIS's tiers below the GPU's KV cache.

use blis_config::{KvOffload, TierArgs};
use blis_sim::kv::tiers::MirrorConfig;

use crate::error::RunError;
use crate::spec::{ExperimentSpec, ParityName};
use crate::workload_config::WorkloadConfig;

/// The tiers that `spec` sets, or those with which the trace of `workload` was recorded.
///
/// # Errors
/// What is wrong with the file of `--kv-offload-config` or the header of the trace, or that they differ.
pub(crate) fn tiers(spec: &ExperimentSpec, workload: &WorkloadConfig) -> Result<Option<TierArgs>, RunError> {
    let block_size = spec.block_size_in_tokens();
    let set = spec.kv_offload_config.as_deref().map(|path| KvOffload::load(path, block_size));
    let set = set.transpose().map_err(RunError::refused)?;
    let recorded = match workload {
        WorkloadConfig::Recorded { header, .. } if spec.parity == Some(ParityName::Blis) => {
            KvOffload::of_trace(header, block_size).map_err(RunError::refused)?
        }
        _ => None,
    };
    if let Some(recorded) = &recorded {
        if set.as_ref().is_some_and(|set| !set.is_same(recorded)) {
            let hint = "the trace was recorded with others: leave out the flag, or remove `kv_offload` from the header";
            return Err(spec.misplaced("kv-offload-config", "has other tiers than the header of the trace", hint));
        }
        if spec.has("kv-cpu-blocks") {
            let hint = "leave out the flag, or remove `kv_offload` from the header";
            return Err(spec.misplaced(
                "kv-cpu-blocks",
                "cannot be used with the tiers in the header of the trace",
                hint,
            ));
        }
    }
    if let Some(offload) = set.or(recorded) {
        return Ok(Some(TierArgs::Offload(offload)));
    }
    let mirror = Some(spec.kv_cpu_blocks()).filter(|&blocks| blocks > 0).map(|blocks| MirrorConfig {
        cpu_blocks: u64::from(blocks),
        bandwidth: spec.kv_transfer_bandwidth(),
        base_latency: spec.kv_transfer_base_latency(),
    });
    Ok(mirror.map(TierArgs::Mirror))
}

/// A warning if the threshold is set, which BLIS has kept from an earlier version.
pub(crate) fn without_effect(spec: &ExperimentSpec) -> Option<(String, String)> {
    spec.kv_offload_threshold.map(|_| {
        let what = "`--kv-offload-threshold` has no effect, as in BLIS: all full blocks are copied to the CPU";
        (what.to_owned(), "leave it out".to_owned())
    })
}
