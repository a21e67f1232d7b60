//! Chunks by the number of their uses.

use super::{KvCachePolicy, KvChunk};
use crate::units::Micros;

/// Least frequently used: the rank is the number of requests that used the chunk since it was stored.
#[derive(Clone, Copy, Debug)]
pub struct Lfu;

impl KvCachePolicy for Lfu {
    fn keep(&mut self, _now: Micros, chunks: &[KvChunk], ranks: &mut Vec<f64>) {
        ranks.extend(chunks.iter().map(|chunk| f64::from(chunk.uses)));
    }

    fn fork(&self) -> Box<dyn KvCachePolicy> {
        Box::new(*self)
    }
}

/// Segmented LRU, as SGLang's `slru` (`SLRUStrategy` in `mem_cache/evict_policy.py`): chunks with fewer than `protected_uses`
/// uses are evicted before the others, each from the least recently used on.
#[derive(Clone, Copy, Debug)]
pub struct SegmentedLru {
    /// Number of uses from which on a chunk is protected.
    pub protected_uses: u32,
}

impl KvCachePolicy for SegmentedLru {
    fn keep(&mut self, _now: Micros, chunks: &[KvChunk], ranks: &mut Vec<f64>) {
        ranks.extend(chunks.iter().map(|chunk| f64::from(u8::from(chunk.uses >= self.protected_uses))));
    }

    fn fork(&self) -> Box<dyn KvCachePolicy> {
        Box::new(*self)
    }
}
