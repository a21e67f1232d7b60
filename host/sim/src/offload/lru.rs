//! Least recently used.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{CachePolicy, ChunkKey, Positioned, RequestRank};

/// When a chunk was last used: a time, and within that of a request the tail of the prompt before its head.
type LastUse = (u64, Reverse<u32>);

/// Evicts the chunk with the oldest last use, as vLLM's `LRUCachePolicy`: when a load ends does not count, when the request
/// ends does.
#[derive(Clone, Debug, Default)]
pub struct Lru {
    ranks: FxHashMap<ChunkKey, LastUse>,
    evictable: BTreeSet<(LastUse, ChunkKey)>,
    /// The last time.
    now: u64,
}

impl Lru {
    fn set_rank(&mut self, key: ChunkKey, rank: LastUse) {
        let Some(previous) = self.ranks.insert(key, rank) else { return };
        if self.evictable.remove(&(previous, key)) {
            self.evictable.insert((rank, key));
        }
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }
}

impl CachePolicy for Lru {
    fn insert(&mut self, (key, position): Positioned, request: &mut RequestRank<'_>) {
        let rank = match position {
            None => (self.tick(), Reverse(0)),
            Some(position) => (request.get_or(|| self.tick()), Reverse(position)),
        };
        self.ranks.insert(key, rank);
    }

    fn remove(&mut self, key: ChunkKey) {
        if let Some(rank) = self.ranks.remove(&key) {
            self.evictable.remove(&(rank, key));
        }
    }

    fn set_evictable(&mut self, key: ChunkKey, evictable: bool) {
        let Some(&rank) = self.ranks.get(&key) else { return };
        if evictable {
            self.evictable.insert((rank, key));
        } else {
            self.evictable.remove(&(rank, key));
        }
    }

    fn missed(&mut self, _keys: &[ChunkKey]) {}

    fn used(&mut self, chunks: &[Positioned], request: &mut RequestRank<'_>) {
        let time = request.get_or(|| self.tick());
        for &(key, position) in chunks {
            let Some(position) = position else { continue };
            let rank = (time, Reverse(position));
            if self.ranks.get(&key).is_some_and(|&previous| previous < rank) {
                self.set_rank(key, rank);
            }
        }
    }

    fn ended(
        &mut self,
        keys: &[ChunkKey],
        _is_inserted: &dyn Fn(ChunkKey) -> bool,
        _is_reused: &dyn Fn(ChunkKey) -> bool,
    ) {
        for &key in keys.iter().rev() {
            if self.ranks.contains_key(&key) {
                let rank = (self.tick(), Reverse(0));
                self.set_rank(key, rank);
            }
        }
    }

    fn evict(&mut self, number: usize, protected: &FxHashSet<ChunkKey>) -> Option<Vec<ChunkKey>> {
        let free = self.evictable.iter().filter(|(_, key)| !protected.contains(key));
        let chosen: Vec<(LastUse, ChunkKey)> = free.take(number).copied().collect();
        if chosen.len() < number {
            return None;
        }
        for entry in &chosen {
            self.evictable.remove(entry);
            self.ranks.remove(&entry.1);
        }
        Some(chosen.into_iter().map(|(_, key)| key).collect())
    }

    fn fork(&self) -> Box<dyn CachePolicy> {
        Box::new(self.clone())
    }
}
