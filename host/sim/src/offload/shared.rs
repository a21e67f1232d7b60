//! What instances have written to storage that they share.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::chunk::ChunkKey;
use crate::units::Micros;

/// The chunks in storage that several instances share, each with the time from which it can be read. A clone is a handle to the
/// same content, until one of the handles changes it.
#[derive(Clone, Debug, Default)]
pub struct SharedChunks(Arc<FxHashMap<ChunkKey, Micros>>);

impl SharedChunks {
    /// Whether `key` can be read at `at`.
    #[must_use]
    pub fn has(&self, key: ChunkKey, at: Micros) -> bool {
        self.0.get(&key).is_some_and(|&from| from <= at)
    }

    /// Adds chunks with the times from which they can be read; of two times for a chunk the first counts. O(1) each if this is the
    /// only handle.
    pub fn add(&mut self, written: &[(ChunkKey, Micros)]) {
        let chunks = Arc::make_mut(&mut self.0);
        for &(key, from) in written {
            let first = chunks.entry(key).or_insert(from);
            *first = from.min(*first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_can_be_read_from_its_first_time_on() {
        let mut chunks = SharedChunks::default();
        chunks.add(&[(ChunkKey(1), Micros(20)), (ChunkKey(1), Micros(10)), (ChunkKey(2), Micros(30))]);
        let branch = chunks.clone();
        chunks.add(&[(ChunkKey(2), Micros(15)), (ChunkKey(3), Micros(0))]);
        let has = |chunks: &SharedChunks, at| [1, 2, 3].map(|key| chunks.has(ChunkKey(key), Micros(at)));
        assert_eq!((has(&chunks, 9), has(&chunks, 10)), ([false, false, true], [true, false, true]));
        assert_eq!((has(&chunks, 15), has(&branch, 15)), ([true, true, true], [true, false, false]));
    }
}
