//! The KV cache below the GPU: which chunk makes room for others, which are stored, and whether a request loads what was found.
//!
//! A rank is computed when a chunk is touched: when it is stored, when another request uses it, and when a request that used it
//! ends. It holds until the next touch. So an order in which chunks overtake one another as time passes is approximated by the
//! state at the last touch; an order by times and counts (`last_use`, `uses`) is exact, and an eviction takes O(log n).

mod frequency;
mod recency;
mod workload;

use std::fmt::Debug;

pub use frequency::{Lfu, SegmentedLru};
pub use recency::LeastRecent;
pub use workload::WorkloadAware;

use crate::ids::RequestId;
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
    fn keep(&mut self, now: Micros, chunks: &[ChunkView], ranks: &mut Vec<f64>);

    /// Appends to `stored` for each of `chunks`, which are not in the tier, whether it is to be stored.
    fn store(&mut self, _tier: &TierView, chunks: &[ChunkView], stored: &mut Vec<bool>) {
        stored.extend(chunks.iter().map(|_| true));
    }

    /// Whether a request loads what the tier has for it; if not, it computes it again. Called once for each time that the request
    /// is scheduled.
    fn load(&mut self, _hit: &TierHitView) -> bool {
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

    /// Its number for plugins.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Cpu => 1,
            Self::AdapterSlots => 2,
            Self::AdapterMemory => 3,
        }
    }
}

/// A chunk as a policy sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ChunkView {
    /// Where it is. All chunks of a call are in one tier.
    pub tier: CacheTier,
    /// Why it is ranked; [`ChunkTouch::Stored`] of one that may be stored.
    pub touch: ChunkTouch,
    /// Time at which it was stored; of an adapter, at which it was loaded.
    pub created: Micros,
    /// Time of its last use: when a request first used a chunk of the tier, and again when that request ended. Of an adapter: when
    /// a request with it last entered a batch.
    pub last_use: Micros,
    /// [`Self::last_use`] when the request came that uses it now; `None` if it is the first.
    pub previous_use: Option<Micros>,
    /// Tokens of the prompt in front of it.
    pub position: u32,
    /// Number of its tokens, ≥ 1; 1 for an adapter.
    pub tokens: u32,
    /// Number of requests that used it since it was stored, the one that stored it included. Of an adapter: since it was read from
    /// disk.
    pub uses: u32,
    /// Number of times it was offered for storing, if offers are counted: with a threshold, and if the policy
    /// decides about stores; else 0.
    pub offers: u32,
    /// The request that used it last.
    pub user: ChunkUser,
}

/// The request that uses a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkUser {
    /// Metadata of the request.
    pub tags: Tags,
    /// Length of its prompt, tokens.
    pub input_tokens: u32,
}

/// A tier when chunks are offered to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierView {
    /// Time of the offer.
    pub now: Micros,
    /// Share of its chunks in use, from 0 to 1.
    pub fill: f64,
    /// Bytes that wait to be stored or are being stored, on the link of one GPU.
    pub queued_bytes: u64,
    /// Number of chunks that it can hold.
    pub capacity: u32,
}

/// What a tier has for a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierHitView {
    /// Time of the decision.
    pub now: Micros,
    /// The request.
    pub request: RequestId,
    /// Its metadata and the length of its prompt.
    pub user: ChunkUser,
    /// Tokens of its prompt that the GPU has, in front of the others.
    pub gpu_tokens: u32,
    /// Tokens behind them that the tier has, ≥ 1.
    pub tokens: u32,
    /// Size of these on the link of one GPU, bytes.
    pub bytes: u64,
    /// Bytes of loads that are queued or in progress, on the link of one GPU.
    pub queued_bytes: u64,
    /// Bandwidth of a load while nothing is stored, bytes/µs.
    pub bandwidth: f64,
    /// Prompt tokens that the requests of the running batch still have to compute after this step.
    pub prefill_tokens: u64,
    /// Requests in the waiting queue, this one included.
    pub waiting: u32,
    /// Requests in the running batch.
    pub running: u32,
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
