//! The settings of KV groups, and the groups of a deployment.

use std::sync::Arc;

use blis_sim::instance::KvGroups;
use blis_sim::kv::pages::{KvLayout, StartLimits};

/// Settings of the KV cache that decide about its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheArgs {
    /// `--enable-prefix-caching`: whether blocks are hashed.
    pub prefix_caching: bool,
    /// `--disable-hybrid-kv-cache-manager`: windows and chunks hold all tokens.
    pub disable_hybrid: bool,
    /// `--prefix-match-unit`: tokens of one content hash.
    pub prefix_match_unit: Option<u32>,
    /// `--prefix-cache-retention-interval`, tokens; `None`: every boundary is kept.
    pub retention: Option<u32>,
    /// `--gdn-prefill-backend`; `None`: by the GPU.
    pub gdn_prefill: Option<GdnPrefill>,
    /// `--async-scheduling`: one more batch is in flight.
    pub asynchronous: bool,
}

impl Default for CacheArgs {
    fn default() -> Self {
        Self {
            prefix_caching: true,
            disable_hybrid: false,
            prefix_match_unit: None,
            retention: Some(0),
            gdn_prefill: None,
            asynchronous: true,
        }
    }
}

/// Kernels that compute the prefill of the gated delta rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GdnPrefill {
    /// FlashInfer's: states fall on multiples of 64 tokens
    FlashInfer,
    /// Triton's: states fall on blocks
    Triton,
}

impl GdnPrefill {
    /// The kernels that vLLM takes on a GPU of that name: FlashInfer's on Hopper and Blackwell.
    #[must_use]
    pub fn of_gpu(name: &str) -> Self {
        let name = name.to_ascii_uppercase();
        let has_it = ["H100", "H200", "H20", "H800", "GH200", "B200", "B300", "GB200", "GB300"];
        if has_it.iter().any(|gpu| name.starts_with(gpu)) { Self::FlashInfer } else { Self::Triton }
    }
}

/// The KV groups of a deployment.
#[derive(Clone, Debug, PartialEq)]
pub struct DeployedLayout {
    /// The groups of a GPU.
    pub layout: KvLayout,
    /// Pages of an engine process, vLLM's null block included.
    pub num_blocks: u64,
    /// What a request takes at most.
    pub limits: StartLimits,
    /// Bytes for KV pages on one GPU; `None` if the number of pages is given.
    pub available_bytes: Option<u64>,
    /// What the instances simulate, if some layers keep less than every token.
    pub groups: Option<Arc<KvGroups>>,
}
