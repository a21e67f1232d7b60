//! The chunk that was used least recently.

use super::{KvCachePolicy, KvChunk};
use crate::units::Micros;

/// Least recently used: the rank is the time of the last use. The same as [`crate::offload::Lru`], which needs no ranks.
#[derive(Clone, Copy, Debug)]
pub struct LeastRecent;

impl KvCachePolicy for LeastRecent {
    fn keep(&mut self, _now: Micros, chunks: &[KvChunk], ranks: &mut Vec<f64>) {
        ranks.extend(chunks.iter().map(|chunk| chunk.last_use_us as f64));
    }

    fn fork(&self) -> Box<dyn KvCachePolicy> {
        Box::new(*self)
    }
}
