//! Which chunk is evicted.

use std::fmt::Debug;

use super::chunk::{ChunkKey, ChunkSlot, Positioned};
use crate::policy::kv_cache::{ChunkOffer, ChunkUser, KvCacheDecisions, KvHit};
use crate::units::Micros;

/// Decides which chunk is evicted. It receives every chunk that is inserted, removed or used, and which of them can be
/// evicted at present: those that are readable and not pinned.
pub trait CachePolicy: Debug + Send {
    /// `chunk` is inserted as number `slot`, not yet readable, by a request of this provisional rank.
    fn insert(&mut self, slot: ChunkSlot, chunk: Positioned, request: &mut RequestRank<'_>);

    /// All chunks of an offer are inserted.
    fn inserted(&mut self) {}

    /// Chunk `slot` is removed, because its store failed.
    fn remove(&mut self, slot: ChunkSlot, key: ChunkKey);

    /// Chunk `slot` can be evicted from now on, or no longer.
    fn set_evictable(&mut self, slot: ChunkSlot, key: ChunkKey, evictable: bool);

    /// A request offers chunks that are not in the tier; once per chunk and request, before they are inserted.
    fn missed(&mut self, keys: &[ChunkKey]);

    /// A request uses these chunks for the first time; those to be stored are not in the tier yet and have no number.
    fn used(&mut self, chunks: &[(Option<ChunkSlot>, Positioned)], request: &mut RequestRank<'_>);

    /// A request ends that used `chunks`, from the head of its prompt to the tail.
    fn ended(&mut self, chunks: &[EndedUse]);

    /// Removes `number` chunks that can be evicted and are not protected, and adds them to `chosen`; if there are fewer, none, and the
    /// result is `false`.
    fn evict(&mut self, number: usize, is_protected: &dyn Fn(ChunkSlot) -> bool, chosen: &mut Vec<ChunkSlot>) -> bool;

    /// What it decides besides the evictions; `None`: no [`KvCachePolicy`](crate::policy::kv_cache::KvCachePolicy) ranks its
    /// chunks.
    fn decides(&self) -> Option<KvCacheDecisions> {
        None
    }

    /// What happens from here on happens at `now`, to the chunks of `user`.
    fn set_moment(&mut self, _now: Micros, _user: ChunkUser) {}

    /// Whether a request loads what was found.
    fn load(&mut self, _hit: &KvHit) -> bool {
        true
    }

    /// Appends to `stored` which of `chunks` the policy stores in `tier`; nothing: all.
    fn store(&mut self, _tier: &ChunkOffer, _chunks: &[OfferedChunk], _stored: &mut Vec<bool>) {}

    /// The request of this provisional rank ends.
    fn forget_rank(&mut self, _rank: u64) {}

    /// A copy with its state.
    fn fork(&self) -> Box<dyn CachePolicy>;
}

/// A chunk that is not in the tier.
#[derive(Clone, Copy, Debug)]
pub struct OfferedChunk {
    /// The chunk.
    pub key: ChunkKey,
    /// The number of its last token in the prompt, if that is known.
    pub position: Option<u32>,
    /// How often it was offered.
    pub offers: u32,
}

/// A chunk that a request has used, at the end of the request.
#[derive(Clone, Copy, Debug)]
pub struct EndedUse {
    /// The chunk.
    pub key: ChunkKey,
    /// Its number, if it is still in the tier.
    pub slot: Option<ChunkSlot>,
    /// The request stored it and did not find it.
    pub inserted: bool,
    /// The request found it.
    pub reused: bool,
}

/// The provisional rank of a request, which it gets when a policy first asks.
#[derive(Debug)]
pub struct RequestRank<'a>(pub(super) &'a mut Option<u64>);

impl RequestRank<'_> {
    /// The rank; a new one is `next()`.
    pub fn get_or(&mut self, next: impl FnOnce() -> u64) -> u64 {
        *self.0.get_or_insert_with(next)
    }
}
