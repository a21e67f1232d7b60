//! Adaptive replacement.

use rustc_hash::{FxHashMap, FxHashSet};

use super::cache_policy::{CachePolicy, EndedUse, RequestRank};
use super::chunk::{ChunkKey, ChunkSlot, Positioned};
use super::queue::ChunkQueue;
use crate::numbers::{index, truncated};

/// Adaptive replacement (ARC), as vLLM's `ARCCachePolicy`: chunks that were stored once, and chunks that a later request reused,
/// each from the least recently used on; which of the two gives way follows from the chunks that were missed after their
/// eviction.
#[derive(Clone, Debug)]
pub struct Arc {
    capacity: usize,
    once: ChunkQueue,
    reused: ChunkQueue,
    /// The last chunks that were evicted from these.
    evicted_once: ChunkQueue,
    evicted_reused: ChunkQueue,
    /// The number of chunks from which on those that were stored once give way.
    target: f64,
    evictable: FxHashSet<ChunkKey>,
    /// The numbers of its chunks.
    slots: FxHashMap<ChunkKey, ChunkSlot>,
}

impl Arc {
    /// For a tier of `capacity` chunks.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            once: ChunkQueue::default(),
            reused: ChunkQueue::default(),
            evicted_once: ChunkQueue::default(),
            evicted_reused: ChunkQueue::default(),
            target: 0.0,
            evictable: FxHashSet::default(),
            slots: FxHashMap::default(),
        }
    }

    /// A chunk was missed after its eviction: those of its kind should have stayed.
    fn learn(&mut self, key: ChunkKey) {
        let [once, reused] = [&self.evicted_once, &self.evicted_reused].map(|queue| queue.len() as f64);
        if self.evicted_once.contains(key) {
            self.target = (self.target + (reused / once).max(1.0)).min(self.capacity as f64);
            self.evicted_once.push(key);
        } else if self.evicted_reused.contains(key) {
            self.target = (self.target - (once / reused).max(1.0)).max(0.0);
            self.evicted_reused.push(key);
        }
    }
}

impl CachePolicy for Arc {
    fn insert(&mut self, slot: ChunkSlot, (key, _): Positioned, _request: &mut RequestRank<'_>) {
        self.slots.insert(key, slot);
        self.once.push(key);
        self.evicted_once.remove(key);
        self.evicted_reused.remove(key);
    }

    fn remove(&mut self, _slot: ChunkSlot, key: ChunkKey) {
        self.slots.remove(&key);
        if !self.once.remove(key) {
            self.reused.remove(key);
        }
        self.evictable.remove(&key);
    }

    fn set_evictable(&mut self, _slot: ChunkSlot, key: ChunkKey, evictable: bool) {
        if evictable {
            self.evictable.insert(key);
        } else {
            self.evictable.remove(&key);
        }
    }

    fn missed(&mut self, keys: &[ChunkKey]) {
        keys.iter().rev().for_each(|&key| self.learn(key));
    }

    fn used(&mut self, _chunks: &[(Option<ChunkSlot>, Positioned)], _request: &mut RequestRank<'_>) {}

    fn ended(&mut self, chunks: &[EndedUse]) {
        for &EndedUse { key, inserted, reused, .. } in chunks.iter().rev() {
            if inserted {
                // To store a chunk is no second use, but a recent one.
                let queues = [&mut self.once, &mut self.reused];
                if let Some(queue) = queues.into_iter().find(|queue| queue.contains(key)) {
                    queue.push(key);
                }
            } else if reused && (self.once.remove(key) || self.reused.contains(key)) {
                self.reused.push(key);
            }
        }
    }

    fn evict(
        &mut self,
        number: usize,
        is_protected: &dyn Fn(ChunkSlot) -> bool,
        evicted_slots: &mut Vec<ChunkSlot>,
    ) -> bool {
        let is_free = |key: &ChunkKey| self.evictable.contains(key) && !is_protected(self.slots[key]);
        let (mut once, mut reused) = (self.once.iter().filter(is_free), self.reused.iter().filter(is_free));
        let mut left = self.once.len();
        let mut chosen = Vec::with_capacity(number);
        for _ in 0..number {
            let too_many = left >= index(truncated(self.target));
            let mut next = if too_many { once.next().map(|key| (key, true)) } else { None };
            next = next.or_else(|| reused.next().map(|key| (key, false)));
            next = next.or_else(|| once.next().map(|key| (key, true)));
            let Some((key, was_once)) = next else { return false };
            left -= usize::from(was_once);
            chosen.push((key, was_once));
        }
        drop((once, reused));
        for &(key, was_once) in &chosen {
            self.evictable.remove(&key);
            evicted_slots.extend(self.slots.remove(&key));
            let (queue, evicted) = if was_once {
                (&mut self.once, &mut self.evicted_once)
            } else {
                (&mut self.reused, &mut self.evicted_reused)
            };
            queue.remove(key);
            evicted.push(key);
        }
        for evicted in [&mut self.evicted_once, &mut self.evicted_reused] {
            while evicted.len() > self.capacity {
                evicted.pop();
            }
        }
        true
    }

    fn fork(&self) -> Box<dyn CachePolicy> {
        Box::new(self.clone())
    }
}
