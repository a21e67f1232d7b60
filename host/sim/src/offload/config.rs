//! The configuration of a CPU tier.

use super::cache_policy::CachePolicy;
use super::{
    Arc, CpuTier, LinkSpeed, Lru, PeerTier, RankedChunks, SecondaryConfig, SecondaryKind, SecondaryTier, TRACKED_CHUNKS,
};
use crate::ids::InstanceIndex;
use crate::policy::kv_cache::KvCacheChoice;

/// Which chunk makes room for another (vLLM `eviction_policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChunkEviction {
    /// The one that was used least recently.
    #[default]
    Lru,
    /// The one that adaptive replacement chooses.
    Arc,
}

impl ChunkEviction {
    /// All choices, by vLLM's names.
    pub const ALL: [(&'static str, Self); 2] = [("lru", Self::Lru), ("arc", Self::Arc)];

    fn policy(self, capacity: usize) -> Box<dyn CachePolicy> {
        match self {
            Self::Lru => Box::new(Lru::default()),
            Self::Arc => Box::new(Arc::new(capacity)),
        }
    }
}

/// The CPU tier of an instance, as vLLM 0.33's `OffloadingConnector` has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OffloadConfig {
    /// Number of chunks that it holds, ≥ 1.
    pub capacity: u32,
    /// KV blocks per chunk (vLLM `blocks_per_chunk`), ≥ 1.
    pub blocks_per_chunk: u32,
    /// Size of a KV block on one GPU, bytes: each GPU moves its share over its own link, all at the same time.
    pub block_bytes: u64,
    /// Number of GPUs that hold a share of each block.
    pub gpus: u32,
    /// Which chunk makes room for another.
    pub eviction: ChunkEviction,
    /// A chunk is stored when it is offered this often (vLLM `store_threshold`); 0 and 1: at once.
    pub store_threshold: u32,
    /// Whether only chunks of prompts are stored, not generated tokens (vLLM `offload_prompt_only`).
    pub prompt_only: bool,
    /// The links between GPU and host.
    pub speed: LinkSpeed,
    /// The tier below it, if there is one.
    pub secondary: Option<SecondaryConfig>,
}

impl OffloadConfig {
    /// The tier that it describes, empty, with the policy `choice` and KV blocks of `block_size` tokens.
    #[must_use]
    pub fn tier(&self, choice: KvCacheChoice, block_size: u32) -> CpuTier {
        let capacity = self.capacity as usize;
        let policy: Box<dyn CachePolicy> = match choice {
            KvCacheChoice::BuiltIn => self.eviction.policy(capacity),
            KvCacheChoice::Custom(policy) => Box::new(RankedChunks::new(policy, self.blocks_per_chunk * block_size)),
        };
        CpuTier::new(capacity, policy, self.store_threshold, TRACKED_CHUNKS)
    }

    /// The tier below it, empty, if it is storage.
    #[must_use]
    pub fn secondary_tier(&self) -> Option<SecondaryTier> {
        let storage = self.secondary.filter(|config| config.kind != SecondaryKind::Peers);
        storage.map(|config| SecondaryTier::new(config, self.chunk_bytes()))
    }

    /// The tier below it for instance `index`, if that is the CPU tiers of other replicas.
    #[must_use]
    pub fn peer_tier(&self, index: InstanceIndex) -> Option<PeerTier> {
        let peers = self.secondary.filter(|config| config.kind == SecondaryKind::Peers);
        peers.map(|config| PeerTier::new(index, config, self.chunk_bytes()))
    }

    /// Size of a chunk, of all GPUs, bytes, ≥ 1.
    fn chunk_bytes(&self) -> u64 {
        (self.block_bytes * u64::from(self.blocks_per_chunk) * u64::from(self.gpus)).max(1)
    }
}
