//! The small attentions that choose what a sparse attention reads.

/// DeepSeek sparse attention (DSA): a small attention in 8 bits chooses the tokens of the large one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// Query heads of the index (`index_n_heads`).
    pub heads: u32,
    /// Width of its one key per token (`index_head_dim`).
    pub dim: u32,
    /// Tokens that attention reads at most (`index_topk`).
    pub top_k: u32,
    /// Whether the layer takes the choice of an earlier layer and has no index itself (`indexer_types`: "shared", GLM-5.2).
    pub reused: bool,
}

impl Index {
    /// Bytes of a key of the index: 8 bits per element and a 32-bit scale per 128 (vLLM's `DeepseekV32IndexerCache`).
    #[must_use]
    pub fn key_bytes(self) -> f64 {
        f64::from(self.dim) + 4.0 * (f64::from(self.dim) / 128.0).ceil()
    }

    /// The index, if the layer has its own.
    #[must_use]
    pub fn own(self) -> Option<Self> {
        (!self.reused).then_some(self)
    }

    /// Number of weights: queries from `query_inputs`, the key, and a weight per head.
    #[must_use]
    pub fn weights(self, hidden: f64, query_inputs: f64) -> f64 {
        let (heads, dim) = (f64::from(self.heads), f64::from(self.dim));
        heads * dim * query_inputs + (dim + heads) * hidden
    }
}

/// Block-sparse attention (`sparse_attention_config`, MiniMax-M3): an index scores blocks of tokens, and attention reads the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSelector {
    /// Query heads of the index (`sparse_num_index_heads`).
    pub heads: u32,
    /// Width of its one key per token (`sparse_index_dim`).
    pub dim: u32,
    /// Tokens that attention reads at most: those of the chosen blocks, of the last and of the first ones.
    pub tokens: u32,
}

impl BlockSelector {
    /// Bytes of a key: 16 bits per element.
    #[must_use]
    pub fn key_bytes(self) -> f64 {
        2.0 * f64::from(self.dim)
    }

    /// Number of weights: queries and the key.
    #[must_use]
    pub fn weights(self, hidden: f64) -> f64 {
        (f64::from(self.heads) + 1.0) * f64::from(self.dim) * hidden
    }
}
