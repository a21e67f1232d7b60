//! What the formats say of the service.

use std::collections::BTreeMap;

use blis_workload::trace_v2::GoodputTargets;

/// The properties of the service that the formats contain.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceInfo {
    pub model: String,
    /// Tokens per KV block.
    pub block_size: u32,
    /// Size of the KV cache of an instance, blocks.
    pub total_kv_blocks: u32,
    /// Tensor-parallel size: GPUs of one instance.
    pub tensor_parallel: u32,
    /// Maximum batch size, sequences.
    pub max_num_seqs: u32,
    /// Maximum length of a request, input and output tokens together.
    pub max_model_len: Option<u32>,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Latency targets by class, from the workload.
    pub slo_targets: BTreeMap<String, GoodputTargets>,
}
