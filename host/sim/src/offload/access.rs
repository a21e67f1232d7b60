//! What a request uses of a tier.

use super::chunk::{ChunkKey, Positioned};

/// One chunk that a request used.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsedChunk {
    pub key: ChunkKey,
    pub position: Option<u32>,
    /// Whether the request stored it first, whether it found it, and whether it offered it when it was absent.
    pub inserted: bool,
    pub reused: bool,
    pub missed: bool,
}

impl UsedChunk {
    /// The request reads it, or finds it when it offers it. What it has stored itself is no second use.
    pub fn reuse(&mut self) {
        self.reused |= !self.inserted;
    }
}

/// What one request has read and stored.
#[derive(Clone, Debug, Default)]
pub struct RequestAccess {
    /// The chunks it used: by position if all have one, else in the order in which it used them.
    chunks: Vec<UsedChunk>,
    /// Whether a chunk has no position.
    unordered: bool,
    /// Its provisional rank, once it has one.
    pub(super) rank: Option<u64>,
}

impl RequestAccess {
    /// The index of this chunk, if it was used, or else where it belongs.
    pub(super) fn find(&self, (key, position): Positioned) -> Result<usize, usize> {
        let end = self.chunks.len();
        let Some(position) = position.filter(|_| !self.unordered) else {
            return self.chunks.iter().position(|chunk| chunk.key == key).ok_or(end);
        };
        if self.chunks.last().is_none_or(|last| last.position < Some(position)) {
            return Err(end);
        }
        self.chunks.binary_search_by_key(&Some(position), |chunk| chunk.position)
    }

    /// This chunk, and whether it is new.
    pub(super) fn add(&mut self, (key, position): Positioned) -> (&mut UsedChunk, bool) {
        if position.is_none() {
            self.unordered = true;
        }
        let found = self.find((key, position));
        let at = found.unwrap_or_else(|at| at);
        if found.is_err() {
            self.chunks.insert(at, UsedChunk { key, position, inserted: false, reused: false, missed: false });
        }
        (&mut self.chunks[at], found.is_err())
    }

    /// The chunk if it was used.
    pub(super) fn get_mut(&mut self, chunk: Positioned) -> Option<&mut UsedChunk> {
        let at = self.find(chunk).ok()?;
        self.chunks.get_mut(at)
    }

    /// The chunks from the head of the prompt to its tail.
    pub(super) fn into_chunks(self) -> Vec<UsedChunk> {
        self.chunks
    }
}
