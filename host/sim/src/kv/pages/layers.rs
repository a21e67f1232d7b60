//! What the layers of a model cache, before they form groups.

/// Equal layers of a model with a cache of their own: what vLLM calls a specification (`v1/kv_cache_interface.py`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSpec {
    /// Which tokens a page holds, and when it is given back.
    pub rule: LayerRule,
    /// Tokens of a block of these layers, at least 1.
    pub block: u32,
    /// Bytes of one block of one layer on one GPU.
    pub page_bytes: u64,
    /// Number of these layers.
    pub layers: u32,
}

/// What a cache holds of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerRule {
    /// Keys and values of all tokens.
    Full,
    /// One compressed vector per `tokens_per_state` tokens, of all tokens (MLA, its indexer, compressed attention).
    Latent {
        /// Tokens per vector: 1 but in compressed layers.
        tokens_per_state: u32,
    },
    /// Keys and values of the last so many tokens, the present one included.
    Window(u32),
    /// The same with compressed vectors.
    LatentWindow(u32),
    /// Keys and values of the present chunk of so many tokens.
    Chunk(u32),
    /// A state of constant size.
    State {
        /// Whether states are kept for the prefix cache.
        mode: StateMode,
        /// Further pages of a request in the step that stores a checkpoint of its state: 0 or 1.
        checkpoints: u32,
        /// A checkpoint lies at a multiple of so many tokens from the start of the chunk.
        checkpoint_alignment: u32,
    },
}

/// vLLM's `mamba_cache_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateMode {
    /// States are kept at block boundaries, and can be found (with prefix caching).
    Align,
    /// Each request has one page.
    None,
}

impl LayerRule {
    /// Its name in vLLM's plans.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full_attention",
            Self::Latent { .. } => "mla_attention",
            Self::Window(_) => "sliding_window",
            Self::LatentWindow(_) => "sliding_window_mla",
            Self::Chunk(_) => "chunked_local_attention",
            Self::State { .. } => "mamba",
        }
    }

    /// Whether it holds every token of a request.
    #[must_use]
    pub fn holds_all(self) -> bool {
        matches!(self, Self::Full | Self::Latent { .. })
    }

    /// The window, if it holds no more than that.
    #[must_use]
    pub fn window(self) -> Option<u32> {
        match self {
            Self::Window(tokens) | Self::LatentWindow(tokens) => Some(tokens),
            _ => None,
        }
    }
}

/// The rule of a group of states that can be found again.
#[derive(Clone, Copy, Debug)]
pub(in crate::kv) struct StateRule {
    /// Further pages where a chunk stores a checkpoint.
    pub checkpoints: u32,
    /// A checkpoint lies at a multiple of so many tokens from the start of its chunk.
    pub alignment: u32,
}

impl LayerRule {
    /// The rule of states, if it is one of states that can be found again.
    pub(in crate::kv) fn of_states(self) -> Option<StateRule> {
        match self {
            Self::State { mode: StateMode::Align, checkpoints, checkpoint_alignment } => {
                Some(StateRule { checkpoints, alignment: checkpoint_alignment.max(1) })
            }
            _ => None,
        }
    }
}
