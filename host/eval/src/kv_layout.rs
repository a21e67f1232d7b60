//! The section `kv_cache` of a result: the KV groups of a deployment, as vLLM plans them at its start.

use blis_config::DeployedLayout;
use blis_sim::kv::pages::KvGroup;
use serde::Serialize;

/// KV groups and pages of an engine process on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KvCacheDocument {
    /// Pages, vLLM's null block included. Unit: blocks.
    num_blocks: u64,
    /// Bytes of a page of all layers of a group on one GPU. Unit: bytes.
    bytes_per_block: u64,
    /// Memory for KV pages on one GPU; `null` if the number of pages is given. Unit: bytes.
    available_bytes: Option<u64>,
    /// What vLLM logs as "GPU KV cache size": `max_concurrency` times `max_model_len`. Unit: tokens.
    tokens: u64,
    /// Requests of `max_model_len` tokens that fit at once. Unit: requests.
    max_concurrency: f64,
    /// Least common multiple of the groups' blocks: hits end there. Unit: tokens.
    scheduler_block: u32,
    /// Content hashes are of so many tokens. Unit: tokens.
    hash_block: u32,
    /// Maximum length of a request. Unit: tokens.
    max_model_len: u32,
    /// The groups, in the order in which they take pages.
    groups: Vec<KvGroupDocument>,
}

/// Layers that share a block table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KvGroupDocument {
    /// What a page holds. One of `full_attention`, `mla_attention`, `sliding_window`, `sliding_window_mla`,
    /// `chunked_local_attention`, `mamba`.
    kind: &'static str,
    /// Tokens of a block. Unit: tokens.
    block: u32,
    /// Bytes of a page of one layer, or of all layers if they differ. Unit: bytes.
    page: u64,
    /// Number of its layers. Unit: layers.
    layers: u32,
    /// Tokens before the present one that are kept, and it; `null` for all. Unit: tokens.
    window: Option<u32>,
    /// Pages that one request of `max_model_len` tokens takes at most. Unit: blocks.
    max_blocks_per_request: u64,
}

impl KvCacheDocument {
    pub(crate) fn new(deployed: &DeployedLayout) -> Self {
        let DeployedLayout { layout, num_blocks, limits, available_bytes, .. } = deployed;
        let group = |group: &KvGroup| KvGroupDocument {
            kind: group.rule.name(),
            block: group.block,
            page: group.page_bytes,
            layers: group.layers,
            window: group.rule.window(),
            max_blocks_per_request: group.pages(*limits),
        };
        Self {
            num_blocks: *num_blocks,
            bytes_per_block: layout.bytes_per_block,
            available_bytes: *available_bytes,
            tokens: layout.logged_tokens(*num_blocks, *limits),
            max_concurrency: layout.max_concurrency(*num_blocks, *limits),
            scheduler_block: layout.scheduler_block,
            hash_block: layout.hash_block,
            max_model_len: limits.max_model_len,
            groups: layout.groups.iter().map(group).collect(),
        }
    }
}
