//! The KV cache below the GPU: which chunk makes room for others, which are stored, and whether a request loads what was found.
//!
//! A rank is computed when a chunk is touched: when it is stored, when another request uses it, and when a request that used it
//! ends. It holds until the next touch. So an order in which chunks overtake one another as time passes is approximated by the
//! state at the last touch; an order by times and counts (`last_use_us`, `uses`) is exact, and an eviction takes O(log n).

mod frequency;
mod recency;
mod workload;

use std::fmt::Debug;

pub use blis_abi::{ChunkOffer, KvChunk, KvHit};
pub use frequency::{Lfu, SegmentedLru};
pub use recency::LeastRecent;
pub use workload::WorkloadAware;

use crate::request::Tags;
use crate::units::Micros;

/// Decides about the chunks of a tier. It is part of an instance, which may be copied while several threads share it; hence
/// `Sync`.
pub trait KvCachePolicy: Debug + Send + Sync {
    /// What it decides besides the ranks. Called once.
    fn decides(&self) -> KvCacheDecisions {
        KvCacheDecisions::default()
    }

    /// Appends to `ranks` the rank of each of `chunks`, which were touched now: the smallest is evicted first; of equal ones
    /// the chunk that was used least recently, as vLLM's LRU has it. NaN ranks behind everything.
    fn keep(&mut self, now: Micros, chunks: &[KvChunk], ranks: &mut Vec<f64>);

    /// Appends to `stored` for each of `chunks`, which are not in the tier, whether it is to be stored.
    fn store(&mut self, _tier: &ChunkOffer, chunks: &[KvChunk], stored: &mut Vec<bool>) {
        stored.extend(chunks.iter().map(|_| true));
    }

    /// Whether a request loads what the tier has for it; if not, it computes it again. Called once for each time that the request
    /// is scheduled.
    fn load(&mut self, _hit: &KvHit) -> bool {
        true
    }

    /// A copy with the same state.
    fn fork(&self) -> Box<dyn KvCachePolicy>;
}

/// What a policy decides besides ranks; what it does not decide is done always, as vLLM does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvCacheDecisions {
    /// Which chunks are stored.
    pub store: bool,
    /// Whether a request loads what was found.
    pub load: bool,
}

/// Why a chunk is ranked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChunkTouch {
    /// It is stored.
    #[default]
    Stored,
    /// A request uses it for the first time.
    Reused,
    /// A request that used it has ended.
    Ended,
}

impl ChunkTouch {
    /// All touches, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Stored, Self::Reused, Self::Ended];

    /// Its number in [`KvChunk::touch`].
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }
}

/// Where a chunk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheTier {
    /// KV blocks in host memory.
    #[default]
    Cpu,
    /// Slots for LoRA adapters on the GPU: the chunk is an adapter that no running request uses. It is ranked when a slot is needed.
    AdapterSlots,
    /// Room for LoRA adapters in host memory, likewise.
    AdapterMemory,
}

impl CacheTier {
    /// All tiers, in the order of their numbers, which begin with 1.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::AdapterSlots, Self::AdapterMemory];

    /// Its number in [`KvChunk::tier`].
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Cpu => 1,
            Self::AdapterSlots => 2,
            Self::AdapterMemory => 3,
        }
    }
}

/// The request that uses a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkUser {
    /// Metadata of the request.
    pub tags: Tags,
    /// Length of its prompt, tokens.
    pub input_tokens: u32,
}

impl ChunkUser {
    /// Notes it as the request that used `chunk` last.
    pub(crate) fn write_to(&self, chunk: &mut KvChunk) {
        let Tags { slo_class, tenant, session, client, prefix_group, round_index, adapter, model: _ } = self.tags;
        (chunk.slo_class, chunk.tenant, chunk.session) = (slo_class.0, tenant.0, session.0);
        (chunk.prefix_group, chunk.client, chunk.adapter) = (prefix_group.0, client.0, adapter.0);
        (chunk.round, chunk.input_tokens) = (round_index, self.input_tokens);
    }
}

/// The policy of the CPU tier of an instance.
#[derive(Debug, Default)]
pub enum KvCacheChoice {
    /// The eviction of [`crate::offload::OffloadConfig::eviction`]; everything is stored and loaded.
    #[default]
    BuiltIn,
    /// Another policy, such as a plugin.
    Custom(Box<dyn KvCachePolicy>),
}

/// A clone forks the policy.
impl Clone for KvCacheChoice {
    fn clone(&self) -> Self {
        match self {
            Self::BuiltIn => Self::BuiltIn,
            Self::Custom(policy) => Self::Custom(policy.fork()),
        }
    }
}
