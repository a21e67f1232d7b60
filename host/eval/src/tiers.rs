//! The settings of BLIS's tiers below the GPU's KV cache.

use blis_config::{KvOffload, TierArgs};
use blis_sim::kv::tiers::MirrorConfig;
use blis_sim::units::Micros;

use crate::error::RunError;
use crate::spec::{ExperimentSpec, ParityName, defaults};
use crate::workload_config::WorkloadConfig;

/// BLIS's default of `--kv-transfer-bandwidth`, tokens per µs.
const BANDWIDTH: f64 = 100.0;

const SETTINGS: [&str; 5] =
    ["kv-cpu-blocks", "kv-transfer-bandwidth", "kv-transfer-base-latency", "kv-offload-threshold", "kv-offload-config"];

/// Refuses settings of tiers without `--parity blis`, and some without others.
pub(crate) fn check(spec: &ExperimentSpec) -> Result<(), RunError> {
    let Some(first) = SETTINGS.into_iter().find(|name| spec.has(name)) else { return Ok(()) };
    if spec.parity.unwrap_or(defaults::PARITY) != ParityName::Blis {
        let hint = "vLLM's CPU tier is `--kv-offloading-size`; leave it out, or add `--parity blis`";
        return Err(spec.misplaced(first, "needs `--parity blis`", hint));
    }
    for name in ["kv-transfer-bandwidth", "kv-transfer-base-latency", "kv-offload-threshold"] {
        if spec.has(name) && !spec.has("kv-cpu-blocks") {
            let hint = "set both, or neither; tiers of `--kv-offload-config` have their times in the file";
            return Err(spec.misplaced(name, "needs `--kv-cpu-blocks`", hint));
        }
    }
    for name in ["kv-cpu-blocks", "kv-offload-config"] {
        if spec.has(name) && spec.enable_prefix_caching == Some(false) {
            let hint = "tiers hold blocks by which prefixes are found: leave out one of them";
            return Err(spec.misplaced(name, "cannot be used with `--no-enable-prefix-caching`", hint));
        }
    }
    if spec.has("kv-cpu-blocks") && spec.has("kv-offload-config") {
        let hint = "they are two models of the same memory: leave out one of them";
        return Err(spec.misplaced("kv-offload-config", "cannot be used with `--kv-cpu-blocks`", hint));
    }
    Ok(())
}

/// The tiers that `spec` sets, or those with which the trace of `workload` was recorded.
///
/// # Errors
/// What is wrong with the file of `--kv-offload-config` or the header of the trace, or that they differ.
pub(crate) fn tiers(spec: &ExperimentSpec, workload: &WorkloadConfig) -> Result<Option<TierArgs>, RunError> {
    let block_size = spec.block_size_in_tokens.unwrap_or(defaults::BLOCK_SIZE_IN_TOKENS);
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
    let mirror = spec.kv_cpu_blocks.filter(|&blocks| blocks > 0).map(|blocks| MirrorConfig {
        cpu_blocks: u64::from(blocks),
        bandwidth: spec.kv_transfer_bandwidth.unwrap_or(BANDWIDTH),
        base_latency: spec.kv_transfer_base_latency.unwrap_or(Micros::ZERO),
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
