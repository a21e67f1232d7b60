//! Attention of DeepSeek-V4 (vLLM's models/deepseek_v4/attention.py): a window over the last tokens, and, by layer, one compressed
//! vector for each 4 or 128 earlier ones.

use super::cache::{CacheKind, LayerCache};
use super::index::Index;

/// Compressed attention. The heads share one vector per token, which is key and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressed {
    /// Number of heads.
    pub heads: u32,
    /// Width of a head, and of the one vector per token (`head_dim`).
    pub dim: u32,
    /// Width of its part with positions (`qk_rope_head_dim`).
    pub rope_dim: u32,
    /// Width of the compressed query (`q_lora_rank`).
    pub query_rank: u32,
    /// Groups of heads that the output is compressed by (`o_groups`), each to `o_lora_rank`.
    pub output_groups: u32,
    /// Width of a compressed output (`o_lora_rank`).
    pub output_rank: u32,
    /// Tokens that are read one by one (`sliding_window`).
    pub window: u32,
    /// Tokens that one compressed vector stands for (`compress_ratios`); 0: the window alone.
    pub ratio: u32,
    /// The index that chooses among the compressed vectors; none: all are read.
    pub index: Option<Index>,
    /// Residual streams that are mixed before and after the layer (`hc_mult`), at least 1.
    pub streams: u32,
}

impl Compressed {
    /// Bytes of a cached vector: positions in 16 bits, the rest in 8 with a scale of 8 bits per 64, 8 bytes of them at a time
    /// (`fp8_ds_mla`: 448 + 2 · 64 + 8).
    #[must_use]
    pub fn vector_bytes(self) -> f64 {
        let (rope, rest) = (f64::from(self.rope_dim), f64::from(self.dim.saturating_sub(self.rope_dim)));
        rest + 2.0 * rope + 8.0 * (rest / 512.0).ceil()
    }

    /// Blocks of compressed tokens overlap where an index chooses among them: the compressor makes two vectors of each.
    fn overlap(self) -> f64 {
        if self.index.is_some() { 2.0 } else { 1.0 }
    }

    /// Number of weights on each of `tensor` GPUs: compressions, compressors and the index are on every GPU.
    #[must_use]
    pub fn weights(self, hidden: f64, tensor: f64) -> f64 {
        let (heads, dim) = (f64::from(self.heads) / tensor, f64::from(self.dim));
        let (query, output) = (f64::from(self.query_rank), f64::from(self.output_rank));
        let groups = f64::from(self.output_groups) / tensor;
        let projections =
            hidden * (query + dim) + query * heads * dim + heads * dim * output + groups * output * hidden;
        let compressor = if self.ratio > 0 { hidden * 2.0 * self.overlap() * dim } else { 0.0 };
        let index = self.index.map_or(0.0, |index| {
            let (heads, dim) = (f64::from(index.heads), f64::from(index.dim));
            query * heads * dim + hidden * heads + hidden * 2.0 * self.overlap() * dim
        });
        projections + compressor + index
    }

    /// What the layer keeps on every GPU.
    #[must_use]
    pub fn caches(self) -> Vec<LayerCache> {
        let of = LayerCache::of_tokens;
        let mut caches = vec![of(CacheKind::LatentWindow(self.window), self.vector_bytes())];
        if self.ratio == 0 {
            return caches;
        }
        let (ratio, tokens) = (self.ratio, f64::from(self.ratio));
        let overlap = self.overlap();
        let window = if self.index.is_some() { ratio.saturating_mul(2) } else { ratio };
        // Two numbers of 32 bits per element: the vector and its weight.
        let state = |dim: u32| 2.0 * overlap * f64::from(dim) * 4.0;
        caches.push(of(CacheKind::CompressedLatent { ratio }, self.vector_bytes() / tokens));
        caches.push(of(CacheKind::CompressorState { ratio, window }, state(self.dim)));
        if let Some(index) = self.index {
            caches.push(of(CacheKind::CompressedIndex { ratio }, index.key_bytes() / tokens));
            caches.push(of(CacheKind::IndexCompressorState { ratio, window }, state(index.dim)));
        }
        caches
    }
}
