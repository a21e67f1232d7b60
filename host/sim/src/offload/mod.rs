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

mod arc;
mod config;
mod links;
mod lru;
mod queue;

use std::fmt::Debug;

use rustc_hash::{FxHashMap, FxHashSet};

pub use self::arc::Arc;
pub use self::config::{ChunkEviction, OffloadConfig};
pub use self::links::{LinkSpeed, MemoryLinks, TransferDirection};
pub use self::lru::Lru;
use self::queue::ChunkQueue;

/// The content of a chunk: equal for equal prefixes of prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkKey(pub u64);

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

/// What one request has read and stored.
#[derive(Clone, Debug, Default)]
pub struct RequestAccess {
    /// The chunks it used, in the order in which it did, with their positions.
    seen: Vec<(ChunkKey, Option<u32>)>,
    known: FxHashSet<ChunkKey>,
    /// Of these, the ones that it stored first, and the ones that were there already.
    inserted: FxHashSet<ChunkKey>,
    reused: FxHashSet<ChunkKey>,
    /// The ones that it wanted to store and that the policy knows of.
    missed: FxHashSet<ChunkKey>,
    /// Its provisional rank, once it has one.
    rank: Option<u64>,
}

impl RequestAccess {
    fn reuse(&mut self, key: ChunkKey) {
        // Reading what it has stored itself is no second use.
        if !self.inserted.contains(&key) {
            self.reused.insert(key);
        }
    }
}

/// A chunk and the number of its last token in the prompt, if that is known.
pub type Positioned = (ChunkKey, Option<u32>);

/// The chunks that a store takes in, and those that make room for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// To be written, in the order of the offer. They are pending until [`CpuTier::written`].
    pub chunks: Vec<ChunkKey>,
    /// Evicted, in this order.
    pub evicted: Vec<ChunkKey>,
}

/// Decides which chunk is evicted. It receives every chunk that is inserted, removed or used, and which of them can be
/// evicted at present: those that are readable and not pinned.
pub trait CachePolicy: Debug + Send {
    /// `chunk` is inserted, not yet readable, by a request of this provisional rank.
    fn insert(&mut self, chunk: Positioned, request: &mut RequestRank<'_>);

    /// `key` is removed, because its store failed.
    fn remove(&mut self, key: ChunkKey);

    /// `key` can be evicted from now on, or no longer.
    fn set_evictable(&mut self, key: ChunkKey, evictable: bool);

    /// A request offers chunks that are not in the tier; once per chunk and request, before they are inserted.
    fn missed(&mut self, keys: &[ChunkKey]);

    /// A request uses these chunks for the first time; those to be stored are not in the tier yet.
    fn used(&mut self, chunks: &[Positioned], request: &mut RequestRank<'_>);

    /// A request ends that used `keys`, from the head of its prompt to the tail. `is_inserted`: it stored the chunk and did not
    /// find it. `is_reused`: it found the chunk.
    fn ended(
        &mut self,
        keys: &[ChunkKey],
        is_inserted: &dyn Fn(ChunkKey) -> bool,
        is_reused: &dyn Fn(ChunkKey) -> bool,
    );

    /// Removes and returns `number` chunks that can be evicted and are not `protected`; if there are fewer, none.
    fn evict(&mut self, number: usize, protected: &FxHashSet<ChunkKey>) -> Option<Vec<ChunkKey>>;

    /// A copy with its state.
    fn fork(&self) -> Box<dyn CachePolicy>;
}

/// The provisional rank of a request, which it gets when a policy first asks.
#[derive(Debug)]
pub struct RequestRank<'a>(&'a mut Option<u64>);

impl RequestRank<'_> {
    /// The rank; a new one is `next()`.
    pub fn get_or(&mut self, next: impl FnOnce() -> u64) -> u64 {
        *self.0.get_or_insert_with(next)
    }
}

/// How often a chunk must be offered before it is stored.
#[derive(Clone, Debug)]
struct StoreFilter {
    threshold: u32,
    /// Number of offers of the chunks that were offered last.
    offers: FxHashMap<ChunkKey, u32>,
    order: ChunkQueue,
    size: usize,
}

impl StoreFilter {
    /// Counts an offer of `keys`; as many others are forgotten as there are too many, the oldest first.
    fn count(&mut self, keys: &[ChunkKey]) {
        let mut counted = FxHashSet::default();
        for key in keys {
            if let Some(count) = self.offers.get_mut(key) {
                *count += 1;
                self.order.push(*key);
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
                self.order.pop().iter().for_each(|oldest| {
                    self.offers.remove(oldest);
                });
                others -= 1;
            }
            self.offers.insert(key, 1);
            self.order.push(key);
        }
    }
}

/// The state of a chunk in the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    Writing,
    /// With this number of loads in progress.
    Readable(u32),
}

/// The CPU tier of one instance.
#[derive(Debug)]
pub struct CpuTier {
    capacity: usize,
    chunks: FxHashMap<ChunkKey, ChunkState>,
    policy: Box<dyn CachePolicy>,
    filter: Option<StoreFilter>,
    evictable: usize,
    skipped: u64,
    refused: u64,
}

impl Clone for CpuTier {
    fn clone(&self) -> Self {
        Self {
            capacity: self.capacity,
            chunks: self.chunks.clone(),
            policy: self.policy.fork(),
            filter: self.filter.clone(),
            evictable: self.evictable,
            skipped: self.skipped,
            refused: self.refused,
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
        let filter = (threshold >= 2).then(|| StoreFilter {
            threshold,
            offers: FxHashMap::default(),
            order: ChunkQueue::default(),
            size: tracked,
        });
        Self { capacity, chunks: FxHashMap::default(), policy, filter, evictable: 0, skipped: 0, refused: 0 }
    }

    /// Whether `key` can be read.
    #[must_use]
    pub fn lookup(&self, key: ChunkKey) -> Lookup {
        match self.chunks.get(&key) {
            None => Lookup::Miss,
            Some(ChunkState::Writing) => Lookup::Pending,
            Some(ChunkState::Readable(_)) => Lookup::Hit,
        }
    }

    /// Pins readable chunks for a load; chunks that cannot be read are left out. Each call needs one [`Self::loaded`].
    pub fn load(&mut self, chunks: &[Positioned], access: &mut RequestAccess) {
        for (key, _) in chunks {
            if let Some(ChunkState::Readable(loads)) = self.chunks.get_mut(key) {
                *loads += 1;
                if *loads == 1 {
                    self.evictable -= 1;
                    self.policy.set_evictable(*key, false);
                }
            }
        }
        self.use_chunks(chunks, access);
        chunks.iter().for_each(|&(key, _)| access.reuse(key));
    }

    /// A load of `keys` has ended.
    pub fn loaded(&mut self, keys: &[ChunkKey]) {
        for key in keys {
            if let Some(ChunkState::Readable(loads @ 1..)) = self.chunks.get_mut(key) {
                *loads -= 1;
                if *loads == 0 {
                    self.evictable += 1;
                    self.policy.set_evictable(*key, true);
                }
            }
        }
    }

    /// A request offers chunks. Returns which of them are to be written, and what is evicted for them; `None` if there is not
    /// enough room.
    pub fn store(&mut self, chunks: &[Positioned], access: &mut RequestAccess) -> Option<Stored> {
        let keys: Vec<ChunkKey> = chunks.iter().map(|&(key, _)| key).collect();
        if let Some(filter) = &mut self.filter {
            filter.count(&keys);
        }
        let absent = keys.iter().copied().filter(|key| !self.chunks.contains_key(key));
        let mut wanted: Vec<ChunkKey> = absent.collect();
        if let Some(StoreFilter { threshold, offers, .. }) = &self.filter {
            let candidates = wanted.len();
            wanted.retain(|key| offers.get(key).is_some_and(|count| count >= threshold));
            self.skipped += (candidates - wanted.len()) as u64;
        }
        let missed: Vec<ChunkKey> = wanted.iter().copied().filter(|&key| access.missed.insert(key)).collect();
        if !missed.is_empty() {
            self.policy.missed(&missed);
        }
        let is_ready = |key: &ChunkKey| matches!(self.chunks.get(key), Some(ChunkState::Readable(_)));
        let ready: Vec<ChunkKey> = keys.iter().copied().filter(is_ready).collect();
        let is_wanted: FxHashSet<ChunkKey> = wanted.iter().chain(&ready).copied().collect();
        let used: Vec<Positioned> = chunks.iter().copied().filter(|(key, _)| is_wanted.contains(key)).collect();
        self.use_chunks(&used, access);
        ready.into_iter().for_each(|key| access.reuse(key));
        self.insert(chunks, wanted, keys, access)
    }

    fn insert(
        &mut self,
        chunks: &[Positioned],
        wanted: Vec<ChunkKey>,
        offered: Vec<ChunkKey>,
        access: &mut RequestAccess,
    ) -> Option<Stored> {
        let missing = wanted.len().saturating_sub(self.capacity - self.chunks.len());
        let mut evicted = Vec::new();
        if missing > 0 {
            // What was offered stays, if it was there.
            let chosen = (missing <= self.evictable)
                .then(|| self.policy.evict(missing, &offered.into_iter().collect()))
                .flatten();
            let Some(chosen) = chosen else {
                self.refused += wanted.len() as u64;
                return None;
            };
            self.evictable -= chosen.len();
            for key in &chosen {
                self.chunks.remove(key);
            }
            evicted = chosen;
        }
        let is_new: FxHashSet<ChunkKey> = wanted.iter().copied().collect();
        for &chunk in chunks.iter().filter(|(key, _)| is_new.contains(key)) {
            self.chunks.insert(chunk.0, ChunkState::Writing);
            self.policy.insert(chunk, &mut RequestRank(&mut access.rank));
            access.inserted.insert(chunk.0);
        }
        Some(Stored { chunks: wanted, evicted })
    }

    /// The write of `keys` has ended: they are readable, or, if it failed, gone.
    pub fn written(&mut self, keys: &[ChunkKey], success: bool) {
        for key in keys {
            if self.chunks.get(key) != Some(&ChunkState::Writing) {
                continue;
            }
            if success {
                self.chunks.insert(*key, ChunkState::Readable(0));
                self.evictable += 1;
                self.policy.set_evictable(*key, true);
            } else {
                self.chunks.remove(key);
                self.policy.remove(*key);
            }
        }
    }

    /// A request ends: what it used has been used now.
    pub fn end(&mut self, access: RequestAccess) {
        let RequestAccess { mut seen, inserted, reused, .. } = access;
        if seen.iter().all(|(_, position)| position.is_some()) {
            seen.sort_by_key(|&(_, position)| position);
        }
        let keys: Vec<ChunkKey> = seen.into_iter().map(|(key, _)| key).collect();
        let is_inserted = |key| inserted.contains(&key) && !reused.contains(&key);
        self.policy.ended(&keys, &is_inserted, &|key| reused.contains(&key));
    }

    /// Tells the policy which of `chunks` the request uses for the first time.
    fn use_chunks(&mut self, chunks: &[Positioned], access: &mut RequestAccess) {
        let new: Vec<Positioned> = chunks.iter().copied().filter(|(key, _)| access.known.insert(*key)).collect();
        if !new.is_empty() {
            access.seen.extend(&new);
            self.policy.used(&new, &mut RequestRank(&mut access.rank));
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
        self.chunks.len()
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
