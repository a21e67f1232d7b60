//! The CPU tier of the KV cache: which chunks of prompts are in host memory.
//!
//! As vLLM 0.33's `CPUOffloadingManager`: a chunk is some successive KV blocks of a prompt. It is absent, being written, or
//! readable; a readable chunk with loads in progress is pinned. What is evicted is decided by a [`CachePolicy`], all or nothing:
//! a store for which too few chunks can be evicted does not happen.
//!
//! Requests tell what they use through a [`RequestAccess`]. A request that ends ([`CpuTier::end`]) counts as one use of all
//! its chunks, the head of the prompt newer than its tail; until then its chunks have one provisional rank.
//!
//! [`CpuTier`] holds only what is in memory when. It takes no time: [`MemoryLinks`] has the times of transfers, and the engines
//! (`instance/offloading.rs`) report their ends.

mod access;
mod arc;
mod cache_policy;
mod chunk;
mod config;
mod links;
mod lru;
mod peers;
mod queue;
mod ranked;
mod secondary;
mod shared;

use hashlink::LinkedHashMap;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

pub use self::access::RequestAccess;
use self::access::UsedChunk;
pub use self::arc::Arc;
pub use self::cache_policy::{CachePolicy, EndedUse, OfferedChunk, RequestRank};
pub use self::chunk::{ChunkKey, ChunkSlot, Positioned};
pub use self::config::{ChunkEviction, OffloadConfig};
pub use self::links::{LinkSpeed, MemoryLinks, TransferDirection};
pub use self::lru::Lru;
pub use self::peers::{FetchRefusal, FetchRequest, PeerChange, PeerIndex, PeerNews, PeerTier};
pub use self::ranked::RankedChunks;
pub use self::secondary::{
    BackpressurePolicy, EndedTransfer, READ, SecondaryConfig, SecondaryCounters, SecondaryKind, SecondaryLookup,
    SecondaryTier,
};
pub use self::shared::SharedChunks;
use crate::numbers::count;
use crate::policy::kv_cache::{CacheTier, ChunkOffer, ChunkUser, KvCacheDecisions, KvHit};
use crate::units::Micros;

/// What a look-up finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The chunk is not in the tier.
    Miss,
    /// It is being written: it can be read later.
    Pending,
    /// It can be read.
    Hit,
}

/// The chunks that a store takes in, and those that make room for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// To be written, in the order of the offer. They are pending until [`CpuTier::written`].
    pub chunks: Vec<ChunkKey>,
    /// Evicted, in this order.
    pub evicted: Vec<ChunkKey>,
}

/// How often a chunk must be offered before it is stored.
#[derive(Clone, Debug)]
struct StoreFilter {
    threshold: u32,
    /// Number of offers of the chunks that were offered last, in the order of the last offer.
    offers: LinkedHashMap<ChunkKey, u32, FxBuildHasher>,
    size: usize,
}

impl StoreFilter {
    /// Counts an offer of `keys`; as many others are forgotten as there are too many, the oldest first.
    fn count(&mut self, keys: &[ChunkKey]) {
        let mut counted = FxHashSet::default();
        for key in keys {
            if let Some(count) = self.offers.to_back(key) {
                *count += 1;
                counted.insert(*key);
            }
        }
        let mut others = self.offers.len() - counted.len();
        for &key in keys {
            if self.offers.contains_key(&key) {
                continue;
            }
            if self.offers.len() >= self.size {
                if others == 0 {
                    continue;
                }
                self.offers.pop_front();
                others -= 1;
            }
            self.offers.insert(key, 1);
        }
    }
}

/// A chunk in the tier.
#[derive(Clone, Copy, Debug)]
struct StoredChunk {
    key: ChunkKey,
    /// Whether it is being written.
    writing: bool,
    /// Number of loads in progress.
    loads: u32,
    /// The last offer that it was part of.
    offer: u64,
}

/// The CPU tier of one instance.
#[derive(Debug)]
pub struct CpuTier {
    capacity: usize,
    slots: FxHashMap<ChunkKey, ChunkSlot>,
    chunks: Vec<StoredChunk>,
    free: Vec<ChunkSlot>,
    policy: Box<dyn CachePolicy>,
    /// What a policy of ranks decides; `None` for the built-in ones, which see no requests.
    decides: Option<KvCacheDecisions>,
    filter: Option<StoreFilter>,
    evictable: usize,
    skipped: u64,
    refused: u64,
    /// Number of offers.
    offers: u64,
    /// Time of the present call, and bytes that wait to be stored, for a policy of ranks.
    now: Micros,
    queued_bytes: u64,
    /// Memory for one offer.
    wanted: Vec<Positioned>,
    used: Vec<(Option<ChunkSlot>, Positioned)>,
    chosen: Vec<ChunkSlot>,
}

impl Clone for CpuTier {
    fn clone(&self) -> Self {
        Self {
            slots: self.slots.clone(),
            chunks: self.chunks.clone(),
            free: self.free.clone(),
            policy: self.policy.fork(),
            filter: self.filter.clone(),
            wanted: Vec::new(),
            used: Vec::new(),
            chosen: Vec::new(),
            ..*self
        }
    }
}

/// Number of chunks of which vLLM counts the offers (`max_tracker_size`).
pub const TRACKED_CHUNKS: usize = 64_000;

impl CpuTier {
    /// An empty tier of `capacity` chunks. A chunk is stored when it is offered for the `threshold`-th time (vLLM's
    /// `store_threshold`; 0 and 1: at once); the offers of the last `tracked` chunks are counted.
    #[must_use]
    pub fn new(capacity: usize, policy: Box<dyn CachePolicy>, threshold: u32, tracked: usize) -> Self {
        let decides = policy.decides();
        let counts_offers = threshold >= 2 || decides.is_some_and(|decides| decides.store);
        let filter = counts_offers.then(|| StoreFilter { threshold, offers: LinkedHashMap::default(), size: tracked });
        Self {
            capacity,
            slots: FxHashMap::default(),
            chunks: Vec::new(),
            free: Vec::new(),
            policy,
            decides,
            filter,
            evictable: 0,
            skipped: 0,
            refused: 0,
            offers: 0,
            now: Micros::ZERO,
            queued_bytes: 0,
            wanted: Vec::new(),
            used: Vec::new(),
            chosen: Vec::new(),
        }
    }

    /// What the policy decides besides the evictions.
    #[must_use]
    pub fn decides(&self) -> KvCacheDecisions {
        self.decides.unwrap_or_default()
    }

    /// What happens from here on happens at `now`, to chunks of the request `user`; while `queued_bytes` wait to be stored.
    pub fn set_moment(&mut self, now: Micros, user: ChunkUser, queued_bytes: u64) {
        if self.decides.is_some() {
            self.policy.set_moment(now, user);
            (self.now, self.queued_bytes) = (now, queued_bytes);
        }
    }

    /// Whether a request loads what [`Self::lookup`] has found.
    pub fn loads(&mut self, hit: &KvHit) -> bool {
        self.policy.load(hit)
    }

    /// Whether `key` can be read.
    #[must_use]
    pub fn lookup(&self, key: ChunkKey) -> Lookup {
        match self.slots.get(&key) {
            None => Lookup::Miss,
            Some(&slot) if self.chunks[slot as usize].writing => Lookup::Pending,
            Some(_) => Lookup::Hit,
        }
    }

    /// Pins readable chunks for a load; chunks that cannot be read are left out. Each call needs one [`Self::loaded`].
    pub fn load(&mut self, chunks: &[Positioned], access: &mut RequestAccess) {
        self.used.clear();
        for &chunk in chunks {
            let slot = self.slots.get(&chunk.0).copied();
            if let Some(slot) = slot
                && let StoredChunk { writing: false, loads, .. } = &mut self.chunks[slot as usize]
            {
                *loads += 1;
                if *loads == 1 {
                    self.evictable -= 1;
                    self.policy.set_evictable(slot, chunk.0, false);
                }
            }
            self.use_chunk(slot, chunk, access).reuse();
        }
        self.tell_uses(access);
    }

    /// Pins readable chunks that are copied elsewhere: no use by a request. They need one [`Self::loaded`].
    pub fn pin(&mut self, keys: &[ChunkKey]) {
        for key in keys {
            let Some(&slot) = self.slots.get(key) else { continue };
            if let StoredChunk { writing: false, loads, .. } = &mut self.chunks[slot as usize] {
                *loads += 1;
                if *loads == 1 {
                    self.evictable -= 1;
                    self.policy.set_evictable(slot, *key, false);
                }
            }
        }
    }

    /// A load of `keys` has ended.
    pub fn loaded(&mut self, keys: &[ChunkKey]) {
        for key in keys {
            let Some(&slot) = self.slots.get(key) else { continue };
            if let StoredChunk { writing: false, loads: loads @ 1.., .. } = &mut self.chunks[slot as usize] {
                *loads -= 1;
                if *loads == 0 {
                    self.evictable += 1;
                    self.policy.set_evictable(slot, *key, true);
                }
            }
        }
    }

    /// A request offers chunks. Returns which of them are to be written, and what is evicted for them; `None` if there is not
    /// enough room.
    pub fn store(&mut self, chunks: &[Positioned], access: &mut RequestAccess) -> Option<Stored> {
        if let Some(filter) = &mut self.filter {
            let keys: Vec<ChunkKey> = chunks.iter().map(|&(key, _)| key).collect();
            filter.count(&keys);
        }
        let refused = if self.decides().store { self.not_stored(chunks) } else { FxHashSet::default() };
        self.offers += 1;
        let mut missed = Vec::new();
        self.wanted.clear();
        self.used.clear();
        for &chunk in chunks {
            let slot = self.slots.get(&chunk.0).copied();
            if let Some(slot) = slot {
                let stored = &mut self.chunks[slot as usize];
                stored.offer = self.offers;
                if !stored.writing {
                    self.use_chunk(Some(slot), chunk, access).reuse();
                }
                continue;
            }
            if let Some(StoreFilter { threshold, offers, .. }) = &self.filter
                && offers.get(&chunk.0).is_none_or(|count| count < threshold)
            {
                self.skipped += 1;
                continue;
            }
            if refused.contains(&chunk.0) {
                self.skipped += 1;
                continue;
            }
            self.wanted.push(chunk);
            if !std::mem::replace(&mut self.use_chunk(None, chunk, access).missed, true) {
                missed.push(chunk.0);
            }
        }
        if !missed.is_empty() {
            self.policy.missed(&missed);
        }
        self.tell_uses(access);
        self.insert(access)
    }

    /// The chunks that the policy does not store, of those that are not in the tier and were offered often enough.
    fn not_stored(&mut self, chunks: &[Positioned]) -> FxHashSet<ChunkKey> {
        let Some(StoreFilter { threshold, offers, .. }) = &self.filter else { return FxHashSet::default() };
        let offered = chunks.iter().filter(|(key, _)| !self.slots.contains_key(key));
        let offered = offered.map(|&(key, position)| {
            let offers = offers.get(&key).copied().unwrap_or(0);
            OfferedChunk { key, position, offers }
        });
        let offered: Vec<OfferedChunk> = offered.filter(|chunk| chunk.offers >= *threshold).collect();
        let fill = self.slots.len() as f64 / self.capacity as f64;
        let capacity = u32::try_from(self.capacity).unwrap_or(u32::MAX);
        let tier = ChunkOffer {
            now_us: self.now.0,
            queued_bytes: self.queued_bytes,
            fill,
            tier: CacheTier::Cpu.number(),
            capacity,
        };
        let mut stored = Vec::with_capacity(offered.len());
        if !offered.is_empty() {
            self.policy.store(&tier, &offered, &mut stored);
        }
        let refused = offered.iter().zip(stored).filter(|&(_, stored)| !stored);
        refused.map(|(chunk, _)| chunk.key).collect()
    }

    /// Stores the chunks of [`Self::wanted`].
    fn insert(&mut self, access: &mut RequestAccess) -> Option<Stored> {
        let missing = self.wanted.len().saturating_sub(self.capacity - self.slots.len());
        self.chosen.clear();
        if missing > 0 {
            // What was offered stays, if it was there.
            let (chunks, offer) = (&self.chunks, self.offers);
            let is_protected = |slot: ChunkSlot| chunks[slot as usize].offer == offer;
            if missing > self.evictable || !self.policy.evict(missing, &is_protected, &mut self.chosen) {
                self.refused += self.wanted.len() as u64;
                return None;
            }
            self.evictable -= self.chosen.len();
        }
        let evicted: Vec<ChunkKey> = self.chosen.iter().map(|&slot| self.chunks[slot as usize].key).collect();
        for (&slot, key) in self.chosen.iter().zip(&evicted) {
            self.slots.remove(key);
            self.free.push(slot);
        }
        let mut stored = Stored { chunks: Vec::with_capacity(self.wanted.len()), evicted };
        for &chunk in &self.wanted {
            let record = StoredChunk { key: chunk.0, writing: true, loads: 0, offer: self.offers };
            let slot = match self.free.pop() {
                Some(slot) => {
                    self.chunks[slot as usize] = record;
                    slot
                }
                None => {
                    self.chunks.push(record);
                    count(self.chunks.len()) - 1
                }
            };
            self.slots.insert(chunk.0, slot);
            self.policy.insert(slot, chunk, &mut RequestRank(&mut access.rank));
            access.get_mut(chunk).expect("it was used").inserted = true;
            stored.chunks.push(chunk.0);
        }
        self.policy.inserted();
        Some(stored)
    }

    /// The write of `keys` has ended: they are readable, or, if it failed, gone.
    pub fn written(&mut self, keys: &[ChunkKey], success: bool) {
        for key in keys {
            let Some(&slot) = self.slots.get(key) else { continue };
            let stored = &mut self.chunks[slot as usize];
            if !stored.writing {
                continue;
            }
            if success {
                stored.writing = false;
                self.evictable += 1;
                self.policy.set_evictable(slot, *key, true);
            } else {
                self.slots.remove(key);
                self.free.push(slot);
                self.policy.remove(slot, *key);
            }
        }
    }

    /// A request ends: what it used has been used now.
    pub fn end(&mut self, access: RequestAccess) {
        let rank = access.rank;
        let ended = access.into_chunks().into_iter().map(|chunk| EndedUse {
            key: chunk.key,
            slot: self.slots.get(&chunk.key).copied(),
            inserted: chunk.inserted && !chunk.reused,
            reused: chunk.reused,
        });
        let ended: Vec<EndedUse> = ended.collect();
        self.policy.ended(&ended);
        if let Some(rank) = rank {
            self.policy.forget_rank(rank);
        }
    }

    /// Records that the request uses `chunk`; the policy learns of a first use by [`Self::tell_uses`].
    fn use_chunk<'a>(
        &mut self,
        slot: Option<ChunkSlot>,
        chunk: Positioned,
        access: &'a mut RequestAccess,
    ) -> &'a mut UsedChunk {
        let (used, is_new) = access.add(chunk);
        if is_new {
            self.used.push((slot, chunk));
        }
        used
    }

    /// Tells the policy which chunks the request uses for the first time.
    fn tell_uses(&mut self, access: &mut RequestAccess) {
        if !self.used.is_empty() {
            self.policy.used(&self.used, &mut RequestRank(&mut access.rank));
        }
    }

    /// Number of chunks that it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Number of chunks in it, those that are being written included.
    #[must_use]
    pub fn used(&self) -> usize {
        self.slots.len()
    }

    /// Number of chunks that could be evicted.
    #[must_use]
    pub fn evictable(&self) -> usize {
        self.evictable
    }

    /// Number of chunks that were offered too rarely to be stored.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Number of chunks that found no room.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests;
