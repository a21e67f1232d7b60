//! What a layer keeps of a request on one GPU, as vLLM's planner of KV pages tells it apart (v1/kv_cache_interface.py).

use super::linear::LinearKind;

/// One cache of a layer. A layer has none, one, or several (sparse and compressed attention).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerCache {
    /// What is kept, and for how long.
    pub kind: CacheKind,
    /// Bytes on this GPU per token of the request, as long as the token is kept; of compressed tokens, their share.
    pub token_bytes: f64,
    /// Bytes on this GPU per request, whatever its length.
    pub request_bytes: f64,
}

/// The kinds of cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheKind {
    /// Keys and values of all tokens.
    Full,
    /// Keys and values of the last so many tokens.
    Window(u32),
    /// Keys and values of the chunks of so many tokens (Llama 4).
    Chunk(u32),
    /// The compressed vector of latent attention, on every GPU.
    Latent,
    /// The keys that the index of latent attention compares (DeepSeek-V3.2, GLM-5), on every GPU.
    Index,
    /// The keys that the index of blocks compares (MiniMax-M3), on every GPU.
    BlockIndex,
    /// A state of constant size.
    State {
        /// The rule that it follows.
        kind: LinearKind,
        /// Bytes of the last inputs of the convolution.
        convolution_bytes: f64,
        /// Bytes of the recurrent matrices.
        recurrent_bytes: f64,
    },
    /// DeepSeek-V4: the latent vectors of the last so many tokens.
    LatentWindow(u32),
    /// DeepSeek-V4: a latent vector for each `ratio` tokens.
    CompressedLatent {
        /// Tokens that one vector stands for.
        ratio: u32,
    },
    /// DeepSeek-V4: a key of the index for each `ratio` tokens.
    CompressedIndex {
        /// Tokens that one key stands for.
        ratio: u32,
    },
    /// DeepSeek-V4: what the compressor keeps of the last `window` tokens.
    CompressorState {
        /// Tokens that it makes one vector of.
        ratio: u32,
        /// Tokens that it keeps.
        window: u32,
    },
    /// DeepSeek-V4: the same, of the index.
    IndexCompressorState {
        /// Tokens that it makes one key of.
        ratio: u32,
        /// Tokens that it keeps.
        window: u32,
    },
    /// The layer reads the cache of an earlier one and has none itself.
    Reused,
}

impl CacheKind {
    /// The number of tokens, the last ones, that are kept at most; `None`: all of the request.
    ///
    /// Chunks keep all: vLLM frees none of their tokens, unless `VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE` is set.
    #[must_use]
    pub fn window(self) -> Option<u32> {
        match self {
            Self::Window(tokens) | Self::LatentWindow(tokens) => Some(tokens),
            Self::CompressorState { window, .. } | Self::IndexCompressorState { window, .. } => Some(window),
            _ => None,
        }
    }
}

impl LayerCache {
    /// A cache of so many bytes per token.
    #[must_use]
    pub fn of_tokens(kind: CacheKind, token_bytes: f64) -> Self {
        Self { kind, token_bytes, request_bytes: 0.0 }
    }
}
