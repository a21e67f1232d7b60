//! A model as groups of equal layers: the attention and the MLP of each kind, with its weights and what it caches.
//!
//! Layers differ in one model: sliding windows beside full attention (Gemma, gpt-oss), linear attention beside full
//! attention (Qwen3-Next, Qwen3.5), dense layers before experts (DeepSeek), layers without attention (Nemotron). Widths
//! are numbers of elements; `hidden` is the width of the residual stream, `tensor` the number of GPUs that share a layer.

/// The layers of a model and the precision of its weights.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Architecture {
    /// Runs of equal layers, in the order of the model: kinds may recur.
    pub groups: Vec<LayerGroup>,
    /// Weights that are not stored in the model's own width.
    pub weights: WeightBytes,
}

/// Equal layers that follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerGroup {
    /// Number of layers, at least 1.
    pub count: u32,
    /// The attention of each.
    pub attention: Attention,
    /// The MLP of each.
    pub mlp: Mlp,
}

/// Bytes per weight where it differs from `ModelConfig::weight_bytes`: modules that quantisation leaves out, or experts
/// alone in four bits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WeightBytes {
    /// Projections of attention.
    pub attention: Option<f64>,
    /// Dense MLPs and shared experts.
    pub dense: Option<f64>,
    /// Routed experts.
    pub experts: Option<f64>,
    /// The matrix that chooses the experts.
    pub router: Option<f64>,
    /// The matrix that gives the logits (`lm_head`).
    pub output: Option<f64>,
}

impl WeightBytes {
    /// All of them.
    pub fn classes_mut(&mut self) -> [&mut Option<f64>; 5] {
        let Self { attention, dense, experts, router, output } = self;
        [attention, dense, experts, router, output]
    }
}

/// Bytes per weight in MXFP4: four bits, and a scale of eight bits for 32 weights (OCP Microscaling Formats 1.0, §5.1).
pub const MXFP4_BYTES: f64 = 4.25 / 8.0;

/// How tokens of one layer see each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Attention {
    /// Keys and values per head: multi-head, grouped or multi-query attention.
    Heads(Heads),
    /// Multi-head latent attention (MLA): one compressed vector per token for all heads.
    Latent(Latent),
    /// A state of constant size per request instead of keys and values (gated delta rule).
    Linear(Linear),
    /// One matrix of `hidden × hidden` instead of attention (`replace_with_linear`).
    Matrix,
    /// A layer without attention.
    None,
}

/// The tokens that a token attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionSpan {
    /// All before it, and itself.
    Full,
    /// The last so many, itself included (`sliding_window`), at least 1.
    Window(u32),
    /// Those before it in its own chunk of so many tokens (`attention_chunk_size`), at least 1.
    Chunk(u32),
}

impl AttentionSpan {
    /// The largest number of tokens that one token attends to; `None` if unlimited.
    #[must_use]
    pub fn limit(self) -> Option<u32> {
        match self {
            Self::Full => None,
            Self::Window(tokens) | Self::Chunk(tokens) => Some(tokens),
        }
    }
}

/// Attention with keys and values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heads {
    /// Number of query heads.
    pub queries: u32,
    /// Number of heads of keys, and of values.
    pub kv: u32,
    /// Width of a head.
    pub dim: f64,
    /// The tokens that are read.
    pub span: AttentionSpan,
    /// Whether a gate as wide as the queries multiplies the output (`attn_output_gate`).
    pub gated: bool,
    /// Whether values come from the projection of the keys (`attention_k_eq_v`, Gemma 4). Both are cached: keys are
    /// rotated and normalised, values are not.
    pub values_from_keys: bool,
    /// Whether the layer reads the cache of an earlier one and has none itself (`num_kv_shared_layers`).
    pub reuses_kv: bool,
}

/// Multi-head latent attention, with the names of DeepSeek-V3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latent {
    /// Number of heads.
    pub heads: u32,
    /// Width of the compressed vector of keys and values (`kv_lora_rank`).
    pub kv_rank: u32,
    /// Width of the part with positions, shared by all heads (`qk_rope_head_dim`).
    pub rope_dim: u32,
    /// Width of the part of a query head without positions (`qk_nope_head_dim`).
    pub nope_dim: u32,
    /// Width of a value head (`v_head_dim`).
    pub value_dim: u32,
    /// Width of the compressed query (`q_lora_rank`), if there is one.
    pub query_rank: Option<u32>,
    /// Sparse attention: an index chooses the tokens that are attended to.
    pub index: Option<Index>,
}

/// DeepSeek sparse attention (DSA): a small attention in 8 bits chooses the tokens of the large one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// Query heads of the index (`index_n_heads`).
    pub heads: u32,
    /// Width of its one key per token (`index_head_dim`).
    pub dim: u32,
    /// Tokens that attention reads at most (`index_topk`).
    pub top_k: u32,
}

impl Index {
    /// Bytes of a key of the index: 8 bits per element and a 32-bit scale per 128 (vLLM's `DeepseekV32IndexerCache`).
    #[must_use]
    pub fn key_bytes(self) -> f64 {
        f64::from(self.dim) + 4.0 * (f64::from(self.dim) / 128.0).ceil()
    }
}

/// Linear attention by the gated delta rule, with the names of Qwen3-Next without `linear_`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
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
    /// Bytes of an element of the state (`mamba_ssm_dtype`).
    pub state_element_bytes: f64,
}

impl Linear {
    /// Width of queries, keys and values together.
    #[must_use]
    pub fn mixed(self) -> f64 {
        2.0 * f64::from(self.key_heads) * f64::from(self.key_dim) + self.values()
    }

    /// Width of all values.
    #[must_use]
    pub fn values(self) -> f64 {
        f64::from(self.value_heads) * f64::from(self.value_dim)
    }

    /// Bytes that a layer keeps per request: a matrix per value head, and the last inputs of the convolution, which have
    /// `dtype_bytes` per element.
    #[must_use]
    pub fn state_bytes(self, dtype_bytes: f64) -> f64 {
        self.values() * f64::from(self.key_dim) * self.state_element_bytes
            + self.mixed() * f64::from(self.convolution.saturating_sub(1)) * dtype_bytes
    }
}

impl Attention {
    /// Number of weights on each of `tensor` GPUs. KV heads are never divided; compressions (`q_lora_rank`,
    /// `kv_lora_rank`) and the index are on every GPU.
    #[must_use]
    pub fn weights(&self, hidden: f64, tensor: f64) -> f64 {
        match *self {
            Self::Heads(heads) => {
                let queries = f64::from(heads.queries) * heads.dim / tensor;
                let kv = (f64::from(heads.kv) / tensor).max(1.0) * heads.dim;
                let gate = if heads.gated { queries } else { 0.0 };
                let projections = match (heads.reuses_kv, heads.values_from_keys) {
                    (true, _) => 0.0,
                    (false, true) => 1.0,
                    (false, false) => 2.0,
                };
                (2.0 * queries + gate + projections * kv) * hidden
            }
            Self::Latent(latent) => latent.weights(hidden, tensor),
            Self::Linear(linear) => {
                let beta_and_decay = 2.0 * f64::from(linear.value_heads);
                let (mixed, values) = (linear.mixed(), linear.values());
                let convolution = mixed * f64::from(linear.convolution);
                ((mixed + values + beta_and_decay + values) * hidden + convolution) / tensor
            }
            Self::Matrix => hidden * hidden / tensor,
            Self::None => 0.0,
        }
    }

    /// Bytes that a layer caches per token on each GPU, if it caches the whole context; `dtype_bytes` per element.
    #[must_use]
    pub fn cached_bytes(&self, tensor: f64, dtype_bytes: f64) -> f64 {
        match *self {
            Self::Heads(heads) if heads.reuses_kv => 0.0,
            Self::Heads(heads) => 2.0 * heads.dim * (f64::from(heads.kv) / tensor).max(1.0) * dtype_bytes,
            Self::Latent(latent) => {
                let index = latent.index.map_or(0.0, Index::key_bytes);
                (f64::from(latent.kv_rank) + f64::from(latent.rope_dim)) * dtype_bytes + index
            }
            Self::Linear(_) | Self::Matrix | Self::None => 0.0,
        }
    }

    /// Bytes that a layer keeps per request on each GPU, whatever the length of the request.
    #[must_use]
    pub fn state_bytes(&self, tensor: f64, dtype_bytes: f64) -> f64 {
        match *self {
            Self::Linear(linear) => linear.state_bytes(dtype_bytes) / tensor,
            _ => 0.0,
        }
    }

    /// The sliding window, tokens, of layers whose older keys and values are dropped from the cache. Chunks are not:
    /// vLLM keeps all of their tokens, unless `VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE` is set.
    #[must_use]
    pub fn cached_window(&self) -> Option<u32> {
        match *self {
            Self::Heads(Heads { span: AttentionSpan::Window(tokens), .. }) => Some(tokens),
            _ => None,
        }
    }

    /// Whether the layer launches a kernel of attention, linear or not.
    #[must_use]
    pub fn attends(&self) -> bool {
        matches!(self, Self::Heads(_) | Self::Latent(_) | Self::Linear(_))
    }
}

impl Latent {
    fn weights(self, hidden: f64, tensor: f64) -> f64 {
        let heads = f64::from(self.heads) / tensor;
        let (rank, rope) = (f64::from(self.kv_rank), f64::from(self.rope_dim));
        let (nope, value) = (f64::from(self.nope_dim), f64::from(self.value_dim));
        let query_inputs = self.query_rank.map_or(hidden, f64::from);
        let compression = self.query_rank.map_or(0.0, f64::from) + rank + rope;
        let index = self.index.map_or(0.0, |index| {
            let (heads, dim) = (f64::from(index.heads), f64::from(index.dim));
            heads * dim * query_inputs + (dim + heads) * hidden
        });
        compression * hidden + heads * ((nope + rope) * query_inputs + (nope + value) * rank + value * hidden) + index
    }
}

/// The part of a layer behind its attention. All MLPs have three matrices: gate, up and down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mlp {
    /// One MLP for all tokens.
    Dense {
        /// Its width (`intermediate_size`).
        width: u32,
    },
    /// A mixture of experts.
    Experts(RoutedExperts),
    /// One matrix of `hidden × hidden`.
    Matrix,
    /// A layer without MLP.
    None,
}

/// The experts of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutedExperts {
    /// Routed experts, at least 2.
    pub count: u32,
    /// Experts that a token visits.
    pub per_token: u32,
    /// Width of one expert.
    pub width: u32,
    /// Width of what every token visits besides, together: shared experts, or a dense MLP in parallel (Gemma 4); 0 if
    /// there is none.
    pub shared_width: u32,
}

impl RoutedExperts {
    /// Weights of one routed expert.
    #[must_use]
    pub fn expert_weights(&self, hidden: f64) -> f64 {
        3.0 * hidden * f64::from(self.width)
    }

    /// Weights of what every token visits.
    #[must_use]
    pub fn shared_weights(&self, hidden: f64) -> f64 {
        3.0 * hidden * f64::from(self.shared_width)
    }
}

impl Architecture {
    /// Equal neighbours in one group each, in the order of the layers.
    #[must_use]
    pub fn of_layers(layers: impl IntoIterator<Item = (u32, Attention, Mlp)>, weights: WeightBytes) -> Self {
        let mut groups: Vec<LayerGroup> = Vec::new();
        for (count, attention, mlp) in layers.into_iter().filter(|&(count, ..)| count > 0) {
            match groups.last_mut() {
                Some(last) if last.attention == attention && last.mlp == mlp => {
                    last.count = last.count.saturating_add(count);
                }
                _ => groups.push(LayerGroup { count, attention, mlp }),
            }
        }
        Self { groups, weights }
    }

    /// Number of layers.
    #[must_use]
    pub fn layers(&self) -> u32 {
        self.groups.iter().fold(0, |sum, group| sum.saturating_add(group.count))
    }

    /// The kinds of attention, in the order of their first layers, each with its number of layers.
    #[must_use]
    pub fn attentions(&self) -> Vec<(f64, Attention)> {
        kinds(self.groups.iter().map(|group| (group.count, group.attention)))
    }

    /// The kinds of MLP, likewise.
    #[must_use]
    pub fn mlps(&self) -> Vec<(f64, Mlp)> {
        kinds(self.groups.iter().map(|group| (group.count, group.mlp)))
    }

    /// The layers of stage `stage` of `stages`, from 0: as vLLM divides them (`get_pp_indices`), evenly, with a remainder
    /// from the last stage but one backwards.
    #[must_use]
    pub fn stage(&self, stage: u32, stages: u32) -> Self {
        let each = self.layers() / stages;
        let remainder = self.layers() % stages;
        // Stages before the last get one more, the later ones first.
        let before = |stage: u32| {
            let first_larger = (stages - 1).saturating_sub(remainder);
            each.saturating_mul(stage) + stage.min(stages - 1).saturating_sub(first_larger)
        };
        let (start, end) = (before(stage), if stage + 1 == stages { self.layers() } else { before(stage + 1) });
        let mut first = 0_u32;
        let cut = self.groups.iter().map(move |group| {
            let from = first.max(start);
            first = first.saturating_add(group.count);
            (first.min(end).saturating_sub(from), group.attention, group.mlp)
        });
        Self::of_layers(cut, self.weights)
    }
}

/// Equal kinds together, with their numbers of layers.
fn kinds<K: PartialEq>(groups: impl Iterator<Item = (u32, K)>) -> Vec<(f64, K)> {
    let mut kinds: Vec<(f64, K)> = Vec::new();
    for (count, kind) in groups {
        match kinds.iter_mut().find(|(_, known)| *known == kind) {
            Some((layers, _)) => *layers += f64::from(count),
            None => kinds.push((f64::from(count), kind)),
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Attention = Attention::Heads(Heads {
        queries: 16,
        kv: 8,
        dim: 256.0,
        span: AttentionSpan::Window(1024),
        gated: false,
        values_from_keys: false,
        reuses_kv: false,
    });

    fn alternating(layers: u32) -> Architecture {
        let mlp = Mlp::Dense { width: 100 };
        let kind = |layer: u32| if layer % 6 == 5 { Attention::None } else { WINDOW };
        Architecture::of_layers((0..layers).map(|layer| (1, kind(layer), mlp)), WeightBytes::default())
    }

    #[test]
    fn equal_neighbours_are_one_group() {
        let model = alternating(30);
        assert_eq!((model.groups.len(), model.layers()), (10, 30));
        assert_eq!(model.attentions(), [(25.0, WINDOW), (5.0, Attention::None)]);
    }

    /// vLLM's rule for 30 and 31 layers: the last stage never gets one of the remainder.
    #[test]
    fn layers_are_divided_as_in_vllm() {
        let sizes = |layers, stages| -> Vec<u32> {
            (0..stages).map(|stage| alternating(layers).stage(stage, stages).layers()).collect()
        };
        assert_eq!(sizes(30, 2), [15, 15]);
        assert_eq!(sizes(31, 2), [16, 15]);
        assert_eq!(sizes(61, 8), [7, 7, 8, 8, 8, 8, 8, 7]);
        assert_eq!(sizes(30, 4), [7, 8, 8, 7]);
        let second = alternating(30).stage(1, 2);
        assert_eq!(second.groups[0], LayerGroup { count: 2, attention: WINDOW, mlp: Mlp::Dense { width: 100 } });
    }

    /// DeepSeek-V3, `DeepseekV3Attention`: q_a 1536 × 7168, q_b 128 · 192 × 1536, kv_a 576 × 7168, kv_b 128 · 256 × 512,
    /// o 7168 × 128 · 128.
    #[test]
    fn latent_attention_has_five_matrices() {
        let latent = Latent {
            heads: 128,
            kv_rank: 512,
            rope_dim: 64,
            nope_dim: 128,
            value_dim: 128,
            query_rank: Some(1536),
            index: None,
        };
        let expected = 1536.0 * 7168.0 + 24_576.0 * 1536.0 + 576.0 * 7168.0 + 32_768.0 * 512.0 + 7168.0 * 16_384.0;
        assert_eq!(Attention::Latent(latent).weights(7168.0, 1.0), expected);
        assert_eq!(Attention::Latent(latent).cached_bytes(8.0, 2.0), 1152.0);
        let index = Index { heads: 64, dim: 128, top_k: 2048 };
        let sparse = Attention::Latent(Latent { index: Some(index), ..latent });
        assert_eq!(sparse.cached_bytes(8.0, 2.0), 1152.0 + 132.0);
    }

    /// Qwen3.5-35B-A3B: 32 matrices of 128 × 128 in 32 bits, and 3 inputs of the convolution, 8192 wide, in 16 bits.
    #[test]
    fn linear_attention_has_a_state() {
        let linear = Linear {
            key_heads: 16,
            value_heads: 32,
            key_dim: 128,
            value_dim: 128,
            convolution: 4,
            state_element_bytes: 4.0,
        };
        assert_eq!(linear.mixed(), 8192.0);
        let bytes = 32.0 * 128.0 * 128.0 * 4.0 + 3.0 * 8192.0 * 2.0;
        assert_eq!(Attention::Linear(linear).state_bytes(1.0, 2.0), bytes);
        assert_eq!(Attention::Linear(linear).state_bytes(2.0, 2.0), bytes / 2.0);
        assert_eq!(Attention::Linear(linear).cached_bytes(1.0, 2.0), 0.0);
    }
}
