//! A model as groups of equal layers: the attention and the MLP of each kind, with its weights and what it caches.
//!
//! Layers differ in one model: sliding windows beside full attention (Gemma, gpt-oss), linear attention beside full
//! attention (Qwen3-Next, Qwen3.5), dense layers before experts (DeepSeek), layers without attention (Nemotron). Widths
//! are numbers of elements; `hidden` is the width of the residual stream, `tensor` the number of GPUs that share a layer.

mod cache;
mod compressed;
mod index;
mod linear;

pub use cache::{CacheKind, LayerCache};
pub use compressed::Compressed;
pub use index::{BlockSelector, Index};
pub use linear::{Linear, LinearKind};

/// The layers of a model and the precision of its weights.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Architecture {
    /// Runs of equal layers, in the order of the model: kinds may recur.
    pub groups: Vec<LayerGroup>,
    /// Weights that are not stored in the model's own width.
    pub weights: WeightBytes,
    /// Number of weights outside of the layers beside embedding and output matrix, on every GPU: learned positions.
    pub other_weights: f64,
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
    /// Projections of layers with a state, where they differ from those of attention.
    pub linear: Option<f64>,
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
    pub fn classes_mut(&mut self) -> [&mut Option<f64>; 6] {
        let Self { attention, linear, dense, experts, router, output } = self;
        [attention, linear, dense, experts, router, output]
    }

    /// That of a layer's attention.
    #[must_use]
    pub fn of(&self, attention: &Attention) -> Option<f64> {
        match attention {
            Attention::Linear(_) => self.linear.or(self.attention),
            _ => self.attention,
        }
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
    /// A window and compressed vectors for the tokens before it (DeepSeek-V4).
    Compressed(Compressed),
    /// A state of constant size per request instead of keys and values (gated delta rule, KDA, Mamba-2).
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
    /// Width of a head of queries and keys.
    pub dim: f64,
    /// Width of a head of values.
    pub value_dim: f64,
    /// The tokens that are read.
    pub span: AttentionSpan,
    /// Whether a gate as wide as the queries multiplies the output (`attn_output_gate`).
    pub gated: bool,
    /// Whether values come from the projection of the keys (`attention_k_eq_v`, Gemma 4). Both are cached: keys are
    /// rotated and normalised, values are not.
    pub values_from_keys: bool,
    /// Whether the layer reads the cache of an earlier one and has none itself (`num_kv_shared_layers`, `use_cla`).
    pub reuses_kv: bool,
    /// Block-sparse attention: an index chooses the blocks of tokens that are attended to.
    pub index: Option<BlockSelector>,
}

impl Heads {
    /// The largest number of tokens that one token attends to; `None` if unlimited.
    #[must_use]
    pub fn limit(self) -> Option<u32> {
        let chosen = self.index.map(|index| index.tokens);
        [self.span.limit(), chosen].into_iter().flatten().min()
    }

    /// KV heads on each of `tensor` GPUs: fewer of them than GPUs are copied.
    #[must_use]
    pub fn kv_on(self, tensor: f64) -> f64 {
        (f64::from(self.kv) / tensor).max(1.0)
    }

    /// Bytes of the keys and values of a token on each of `tensor` GPUs.
    #[must_use]
    pub fn token_bytes(self, tensor: f64, dtype_bytes: f64) -> f64 {
        (self.dim + self.value_dim) * self.kv_on(tensor) * dtype_bytes
    }

    /// Projections of keys and of values that the layer has.
    #[must_use]
    pub fn projections(self) -> HeadProjections {
        match (self.reuses_kv, self.values_from_keys) {
            (true, _) => HeadProjections { keys: 0.0, values: 0.0 },
            (false, true) => HeadProjections { keys: 1.0, values: 0.0 },
            (false, false) => HeadProjections { keys: 1.0, values: 1.0 },
        }
    }

    fn weights(self, hidden: f64, tensor: f64) -> f64 {
        let (queries, kv) = (f64::from(self.queries) / tensor, self.kv_on(tensor));
        let gate = if self.gated { queries * self.value_dim } else { 0.0 };
        let projections = self.projections();
        let kv = kv * (projections.keys * self.dim + projections.values * self.value_dim);
        let index = self.index.map_or(0.0, |index| index.weights(hidden));
        (queries * (self.dim + self.value_dim) + gate + kv) * hidden + index
    }

    fn caches(self, tensor: f64, dtype_bytes: f64) -> Vec<LayerCache> {
        if self.reuses_kv {
            return vec![LayerCache::of_tokens(CacheKind::Reused, 0.0)];
        }
        let kind = match self.span {
            AttentionSpan::Full => CacheKind::Full,
            AttentionSpan::Window(tokens) => CacheKind::Window(tokens),
            AttentionSpan::Chunk(tokens) => CacheKind::Chunk(tokens),
        };
        let index = self.index.map(|index| LayerCache::of_tokens(CacheKind::BlockIndex, index.key_bytes()));
        [Some(LayerCache::of_tokens(kind, self.token_bytes(tensor, dtype_bytes))), index]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// How many projections a layer has of keys and of values: 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadProjections {
    /// Of keys.
    pub keys: f64,
    /// Of values.
    pub values: f64,
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
    /// Whether a gate as wide as the values multiplies the output (`mla_use_output_gate`).
    pub gated: bool,
    /// Sparse attention: an index chooses the tokens that are attended to.
    pub index: Option<Index>,
}

impl Attention {
    /// Number of weights on each of `tensor` GPUs. KV heads are never divided; compressions (`q_lora_rank`,
    /// `kv_lora_rank`) and the index are on every GPU.
    #[must_use]
    pub fn weights(&self, hidden: f64, tensor: f64) -> f64 {
        match *self {
            Self::Heads(heads) => heads.weights(hidden, tensor),
            Self::Latent(latent) => latent.weights(hidden, tensor),
            Self::Compressed(compressed) => compressed.weights(hidden, tensor),
            Self::Linear(linear) => linear.weights(hidden, tensor),
            Self::Matrix => hidden * hidden / tensor,
            Self::None => 0.0,
        }
    }

    /// What a layer keeps on each of `tensor` GPUs, by kind; `kv_dtype_bytes` per element of keys and values, `dtype_bytes` per
    /// activation.
    #[must_use]
    pub fn caches(&self, tensor: f64, kv_dtype_bytes: f64, dtype_bytes: f64) -> Vec<LayerCache> {
        match *self {
            Self::Heads(heads) => heads.caches(tensor, kv_dtype_bytes),
            Self::Latent(latent) => latent.caches(kv_dtype_bytes),
            Self::Compressed(compressed) => compressed.caches(),
            Self::Linear(linear) => vec![state(linear, tensor, dtype_bytes)],
            Self::Matrix | Self::None => Vec::new(),
        }
    }

    /// Bytes that a layer caches per token on each GPU, if it caches the whole context; `dtype_bytes` per element. Of
    /// compressed attention, those of tokens that have left its window.
    #[must_use]
    pub fn cached_bytes(&self, tensor: f64, dtype_bytes: f64) -> f64 {
        let compressed = matches!(self, Self::Compressed(_));
        let caches = self.caches(tensor, dtype_bytes, dtype_bytes).into_iter();
        caches.filter(|cache| !compressed || cache.kind.window().is_none()).map(|cache| cache.token_bytes).sum()
    }

    /// Bytes that a layer keeps per request on each GPU, whatever the length of the request: states, and the windows of
    /// compressed attention.
    #[must_use]
    pub fn state_bytes(&self, tensor: f64, dtype_bytes: f64) -> f64 {
        match *self {
            Self::Linear(linear) => linear.state_bytes(tensor, dtype_bytes),
            Self::Compressed(compressed) => {
                let window = |cache: LayerCache| cache.kind.window().map_or(0.0, f64::from) * cache.token_bytes;
                compressed.caches().into_iter().map(window).sum()
            }
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
        matches!(self, Self::Heads(_) | Self::Latent(_) | Self::Compressed(_) | Self::Linear(_))
    }
}

/// The cache of a layer with a state.
fn state(linear: Linear, tensor: f64, dtype_bytes: f64) -> LayerCache {
    let convolution_bytes = linear.convolution_bytes(tensor, dtype_bytes);
    let recurrent_bytes = linear.recurrent_bytes(tensor);
    let kind = CacheKind::State { kind: linear.kind, convolution_bytes, recurrent_bytes };
    LayerCache { kind, token_bytes: 0.0, request_bytes: convolution_bytes + recurrent_bytes }
}

impl Latent {
    fn weights(self, hidden: f64, tensor: f64) -> f64 {
        let heads = f64::from(self.heads) / tensor;
        let (rank, rope) = (f64::from(self.kv_rank), f64::from(self.rope_dim));
        let (nope, value) = (f64::from(self.nope_dim), f64::from(self.value_dim));
        let query_inputs = self.query_rank.map_or(hidden, f64::from);
        let compression = self.query_rank.map_or(0.0, f64::from) + rank + rope;
        let index = self.index.and_then(Index::own).map_or(0.0, |index| index.weights(hidden, query_inputs));
        let gate = if self.gated { heads * value * hidden } else { 0.0 };
        compression * hidden
            + heads * ((nope + rope) * query_inputs + (nope + value) * rank + value * hidden)
            + gate
            + index
    }

    /// The vector of a token. FP8 of sparse attention keeps the part with positions in 16 bits, and a scale of 32 bits per 128
    /// others (`fp8_ds_mla`: 512 + 16 + 2 · 64 = 656 bytes).
    fn vector_bytes(self, dtype_bytes: f64) -> f64 {
        let (rank, rope) = (f64::from(self.kv_rank), f64::from(self.rope_dim));
        if self.index.is_some() && dtype_bytes == 1.0 {
            return rank + 4.0 * (rank / 128.0).ceil() + 2.0 * rope;
        }
        (rank + rope) * dtype_bytes
    }

    fn caches(self, dtype_bytes: f64) -> Vec<LayerCache> {
        let index = self.index.and_then(Index::own);
        let index = index.map(|index| LayerCache::of_tokens(CacheKind::Index, index.key_bytes()));
        [Some(LayerCache::of_tokens(CacheKind::Latent, self.vector_bytes(dtype_bytes))), index]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// The part of a layer after its attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mlp {
    /// One MLP for all tokens, of three matrices: gate, up and down.
    Dense {
        /// Its width (`intermediate_size`).
        width: u32,
    },
    /// One MLP of two matrices, up and down (OPT, Falcon, squared ReLU of Nemotron-H).
    Plain {
        /// Its width.
        width: u32,
    },
    /// A mixture of experts.
    Experts(RoutedExperts),
    /// One matrix of `hidden × hidden`.
    Matrix,
    /// A layer without MLP.
    None,
}

impl Mlp {
    /// Number of weights that every token uses: all but those of routed experts.
    #[must_use]
    pub fn always_used(&self, hidden: f64) -> f64 {
        match *self {
            Self::Dense { width } => 3.0 * hidden * f64::from(width),
            Self::Plain { width } => 2.0 * hidden * f64::from(width),
            Self::Experts(experts) => {
                experts.shared_weights(hidden) + experts.latent_weights(hidden) + f64::from(experts.count) * hidden
            }
            Self::Matrix => hidden * hidden,
            Self::None => 0.0,
        }
    }
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
    /// Matrices of an expert, shared ones too: 3, or 2 without a gate.
    pub matrices: u32,
    /// Width at which routed experts work, if it is not that of the residual stream: one matrix compresses their inputs, one
    /// expands their outputs (`moe_latent_size`, `routed_expert_hidden_size`).
    pub latent: Option<u32>,
}

impl RoutedExperts {
    /// Width of the inputs and outputs of a routed expert.
    #[must_use]
    pub fn inputs(&self, hidden: f64) -> f64 {
        self.latent.map_or(hidden, f64::from)
    }

    /// Weights of one routed expert.
    #[must_use]
    pub fn expert_weights(&self, hidden: f64) -> f64 {
        f64::from(self.matrices) * self.inputs(hidden) * f64::from(self.width)
    }

    /// Weights of what every token visits.
    #[must_use]
    pub fn shared_weights(&self, hidden: f64) -> f64 {
        f64::from(self.matrices) * hidden * f64::from(self.shared_width)
    }

    /// Weights of the two matrices around routed experts that work at a width of their own, which are on every GPU.
    #[must_use]
    pub fn latent_weights(&self, hidden: f64) -> f64 {
        self.latent.map_or(0.0, |latent| 2.0 * hidden * f64::from(latent))
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
        Self { groups, weights, other_weights: 0.0 }
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
        Self { other_weights: self.other_weights, ..Self::of_layers(cut, self.weights) }
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
        value_dim: 256.0,
        span: AttentionSpan::Window(1024),
        gated: false,
        values_from_keys: false,
        reuses_kv: false,
        index: None,
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
            gated: false,
            index: None,
        };
        let expected = 1536.0 * 7168.0 + 24_576.0 * 1536.0 + 576.0 * 7168.0 + 32_768.0 * 512.0 + 7168.0 * 16_384.0;
        assert_eq!(Attention::Latent(latent).weights(7168.0, 1.0), expected);
        assert_eq!(Attention::Latent(latent).cached_bytes(8.0, 2.0), 1152.0);
        let index = Index { heads: 64, dim: 128, top_k: 2048, reused: false };
        let sparse = Attention::Latent(Latent { index: Some(index), ..latent });
        assert_eq!(sparse.cached_bytes(8.0, 2.0), 1152.0 + 132.0);
        assert_eq!(sparse.cached_bytes(8.0, 1.0), 656.0 + 132.0);
        let reused = Latent { index: Some(Index { reused: true, ..index }), ..latent };
        assert_eq!(Attention::Latent(reused).cached_bytes(8.0, 2.0), 1152.0);
    }

    /// Qwen3.5-35B-A3B: 32 matrices of 128 × 128 in 32 bits, and 3 inputs of the convolution, 8192 wide, in 16 bits.
    #[test]
    fn linear_attention_has_a_state() {
        let linear = Linear {
            kind: LinearKind::GatedDelta,
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

    /// Granite-4.0-H-Small (one group) and Nemotron-H-56B (eight): memory.md §1.2.
    #[test]
    fn mamba_copies_groups_that_cannot_be_divided() {
        let granite = Linear {
            kind: LinearKind::Mamba2,
            key_heads: 1,
            value_heads: 128,
            key_dim: 128,
            value_dim: 64,
            convolution: 4,
            state_element_bytes: 2.0,
        };
        assert_eq!(granite.state_bytes(1.0, 2.0), 2_147_840.0);
        assert_eq!(granite.state_bytes(4.0, 2.0), 32.0 * 64.0 * 128.0 * 2.0 + 3.0 * (2048.0 + 2.0 * 128.0) * 2.0);
        let nemotron = Linear { key_heads: 8, value_heads: 256, key_dim: 256, state_element_bytes: 4.0, ..granite };
        assert_eq!([1.0, 8.0].map(|tensor| nemotron.state_bytes(tensor, 2.0)), [16_900_096.0, 16_900_096.0 / 8.0]);
    }

    /// A layer of DeepSeek-V4-Flash of each ratio: memory.md §1.6.
    #[test]
    fn compressed_attention_keeps_a_window_and_one_vector_per_block() {
        let window = Compressed {
            heads: 64,
            dim: 512,
            rope_dim: 64,
            query_rank: 1024,
            output_groups: 8,
            output_rank: 1024,
            window: 128,
            ratio: 0,
            index: None,
            streams: 4,
        };
        assert_eq!(window.vector_bytes(), 584.0);
        assert!((Attention::Compressed(window).weights(4096.0, 1.0) / 107.0e6 - 1.0).abs() < 1e-3);
        let index = Index { heads: 64, dim: 128, top_k: 512, reused: false };
        let sparse = Compressed { ratio: 4, index: Some(index), ..window };
        let bytes = |compressed: Compressed| -> Vec<f64> {
            compressed.caches().into_iter().map(|cache| cache.token_bytes).collect()
        };
        assert_eq!(bytes(sparse), [584.0, 146.0, 8192.0, 33.0, 2048.0]);
        assert_eq!(bytes(Compressed { ratio: 128, ..window }), [584.0, 584.0 / 128.0, 4096.0]);
        assert_eq!(Attention::Compressed(sparse).cached_bytes(8.0, 1.0), 179.0);
        let kept = 128.0 * 584.0 + 8.0 * (8192.0 + 2048.0);
        assert_eq!(Attention::Compressed(sparse).state_bytes(8.0, 1.0), kept);
    }
}
