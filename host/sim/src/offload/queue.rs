//! Chunks in an order, the oldest first.

use hashlink::LinkedHashSet;
use rustc_hash::FxBuildHasher;

use super::chunk::ChunkKey;

/// A queue in which a chunk moves to the end when it is pushed again. All operations take O(1).
#[derive(Clone, Debug, Default)]
pub(super) struct ChunkQueue(LinkedHashSet<ChunkKey, FxBuildHasher>);

impl ChunkQueue {
    pub fn push(&mut self, key: ChunkKey) {
        self.0.insert(key);
    }

    /// Removes `key`; `false` if it is not in the queue.
    pub fn remove(&mut self, key: ChunkKey) -> bool {
        self.0.remove(&key)
    }

    pub fn pop(&mut self) -> Option<ChunkKey> {
        self.0.pop_front()
    }

    pub fn contains(&self, key: ChunkKey) -> bool {
        self.0.contains(&key)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = ChunkKey> + '_ {
        self.0.iter().copied()
    }
}
