//! Layers that keep a state of constant size per request: the gated delta rule, KDA, Mamba-2.

/// A layer with a state, with the names of Qwen3-Next without `linear_`. Mamba-2 has groups for key heads and the width of its
/// state for that of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    /// The rule by which the state changes.
    pub kind: LinearKind,
    /// Heads of queries, and of keys.
    pub key_heads: u32,
    /// Heads of values; each has a state.
    pub value_heads: u32,
    /// Width of a key head.
    pub key_dim: u32,
    /// Width of a value head.
    pub value_dim: u32,
    /// Length of the convolution before it, tokens, at least 1.
    pub convolution: u32,
    /// Bytes of an element of the state (`mamba_ssm_dtype`, `mamba_ssm_cache_dtype`).
    pub state_element_bytes: f64,
}

/// The rules of linear attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinearKind {
    /// The gated delta rule (GDN: Qwen3-Next, Qwen3.5): one decay per head and token.
    GatedDelta,
    /// Kimi Delta Attention: one decay per channel and token.
    Kda {
        /// Whether the output gate is one matrix (`use_full_rank_gate`) instead of two with the width of a head between them.
        full_rank_gate: bool,
        /// Whether vLLM computes prompts with FlashKDA (`gate_lower_bound` is set), which stores states inside of a chunk.
        flash: bool,
    },
    /// Mamba-2: groups of inputs and outputs of the state instead of keys and queries.
    Mamba2,
}

impl LinearKind {
    /// Its usual name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::GatedDelta => "gated delta rule",
            Self::Kda { .. } => "KDA",
            Self::Mamba2 => "Mamba-2",
        }
    }
}

impl Linear {
    /// Width of queries, keys and values together: what the convolution reads.
    #[must_use]
    pub fn mixed(self) -> f64 {
        2.0 * f64::from(self.key_heads) * f64::from(self.key_dim) + self.values()
    }

    /// Width of all values.
    #[must_use]
    pub fn values(self) -> f64 {
        f64::from(self.value_heads) * f64::from(self.value_dim)
    }

    /// Width of queries, keys and values on each of `tensor` GPUs. Groups of Mamba-2 that cannot be divided are on every GPU
    /// (vLLM's `extra_groups_for_head_shards`).
    #[must_use]
    pub fn mixed_on(self, tensor: f64) -> f64 {
        let groups = f64::from(self.key_heads);
        if self.kind == LinearKind::Mamba2 && groups % tensor != 0.0 {
            return 2.0 * f64::from(self.key_dim) + self.values() / tensor;
        }
        self.mixed() / tensor
    }

    /// Bytes that a layer keeps per request on each of `tensor` GPUs of the last inputs of the convolution, which have
    /// `dtype_bytes` per element.
    #[must_use]
    pub fn convolution_bytes(self, tensor: f64, dtype_bytes: f64) -> f64 {
        self.mixed_on(tensor) * f64::from(self.convolution.saturating_sub(1)) * dtype_bytes
    }

    /// Bytes of its matrices, one per value head.
    #[must_use]
    pub fn recurrent_bytes(self, tensor: f64) -> f64 {
        self.values() * f64::from(self.key_dim) * self.state_element_bytes / tensor
    }

    /// Bytes that a layer keeps per request on each of `tensor` GPUs.
    #[must_use]
    pub fn state_bytes(self, tensor: f64, dtype_bytes: f64) -> f64 {
        self.recurrent_bytes(tensor) + self.convolution_bytes(tensor, dtype_bytes)
    }

    /// Number of weights on each of `tensor` GPUs.
    #[must_use]
    pub fn weights(self, hidden: f64, tensor: f64) -> f64 {
        let (mixed, values) = (self.mixed_on(tensor), self.values() / tensor);
        let heads = f64::from(self.value_heads) / tensor;
        let convolution = mixed * f64::from(self.convolution);
        let gates = match self.kind {
            // The output gate; beta and decay.
            LinearKind::GatedDelta => (values + 2.0 * heads) * hidden,
            // The output gate; the time step.
            LinearKind::Mamba2 => (values + heads) * hidden,
            LinearKind::Kda { full_rank_gate, .. } => {
                let narrow = f64::from(self.value_dim) * (hidden + values);
                narrow + if full_rank_gate { values * hidden } else { narrow } + heads * hidden
            }
        };
        (mixed + values) * hidden + gates + convolution
    }
}
