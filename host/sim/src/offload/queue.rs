//! Chunks in an order, the oldest first.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::ChunkKey;

/// A queue in which a chunk moves to the end when it is pushed again. All operations take O(log n).
#[derive(Clone, Debug, Default)]
pub(super) struct ChunkQueue {
    turns: FxHashMap<ChunkKey, u64>,
    order: BTreeMap<u64, ChunkKey>,
    next: u64,
}

impl ChunkQueue {
    pub fn push(&mut self, key: ChunkKey) {
        self.remove(key);
        self.turns.insert(key, self.next);
        self.order.insert(self.next, key);
        self.next += 1;
    }

    /// Removes `key`; `false` if it is not in the queue.
    pub fn remove(&mut self, key: ChunkKey) -> bool {
        let turn = self.turns.remove(&key);
        turn.is_some_and(|turn| self.order.remove(&turn).is_some())
    }

    pub fn pop(&mut self) -> Option<ChunkKey> {
        let (_, key) = self.order.pop_first()?;
        self.turns.remove(&key);
        Some(key)
    }

    pub fn contains(&self, key: ChunkKey) -> bool {
        self.turns.contains_key(&key)
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = ChunkKey> + '_ {
        self.order.values().copied()
    }
}
