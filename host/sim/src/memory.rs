//! The memory balance of a GPU and the number of KV blocks that fit it, as vLLM finds them at its start: the share of memory that it
//! may use, less the weights and what its profile run needs, divided by the KV bytes of that GPU.
//!
//! vLLM measures; here the parts of that measurement are computed, by `memory.md` §4, with the constants of the version
//! ([`EngineVersion`]). [`balances`] has the parts, [`EngineBlocks::check_start`] decides whether a server would start with them. BLIS's formula for the group
//! of GPUs is [`crate::capacity`].

use crate::architecture::{Architecture, Mlp};
use crate::capacity::{CapacityError, MemoryBudget, check};
use crate::engine_version::{EngineVersion, GraphCapture};
use crate::kv::pages::{
    CacheSettings, KvLayout, MixedPages, NeedsTooMuch, StartLimits, estimated_length, layout_of, pages_of_request,
};
use crate::limits;
use crate::model::{ModelConfig, Parallelism};
use crate::numbers::truncated;

const GIB: f64 = 1_073_741_824.0;

/// The profile run of an encoder for images, over the formula for the language model, GiB per GPU: 0.1 to 0.4 in logs of Gemma-3,
/// Kimi-VL, MiMo-VL, Mistral-Small-3.1 and Llama-4 (`memory.md` §4.2, vLLM 0.19 on H100).
const MULTIMODAL_GIB: f64 = 0.2;

/// What the layers of the profile run take beside the tensors that the formula counts, as a factor.
const LAYERS_FACTOR: f64 = 1.1;

/// Requests and tokens of the profile run at most: a server with higher limits would not start, while simulations use them
/// for "no limit".
const PROFILED_SEQS: u32 = 4096;
const PROFILED_TOKENS: u32 = 131_072;

/// The memory of a GPU, and what vLLM does with it at its start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryProfile {
    /// The version of vLLM, which decides the constants.
    pub version: EngineVersion,
    /// Memory of the GPU that programs can allocate, GiB.
    pub usable_gib: f64,
    /// Share of it, and memory set aside on each GPU.
    pub budget: MemoryBudget,
    /// Memory of each GPU for KV blocks, bytes, instead of what the share leaves (`--kv-cache-memory-bytes`).
    pub kv_bytes: Option<u64>,
    /// Maximum batch size: the rows of the sampler's profile run. Of an engine process, as all limits.
    pub max_num_seqs: u32,
    /// Token budget of a step: the rows of the model's profile run.
    pub max_num_batched_tokens: u32,
    /// `--enforce-eager`: no CUDA graphs.
    pub eager: bool,
    /// Whether the model has an encoder for images beside the language model.
    pub multimodal: bool,
    /// Pipeline stages, at least 1: each has its own layers and its own GPUs.
    pub pipeline: u32,
    /// What decides about KV groups and their blocks.
    pub cache: CacheSettings,
    /// Batches in flight: pipeline stages, and one more with asynchronous scheduling.
    pub batches: u32,
}

/// The memory balance of one GPU of an engine process, bytes. The parts and [`Self::kv_cache`] add up to [`Self::budget`], unless the
/// memory for KV blocks is given: then [`Self::unused`] is the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryBalance {
    /// The version of vLLM that is followed.
    pub version: EngineVersion,
    /// What CUDA reports.
    pub total: u64,
    /// Share of it that the engine may use.
    pub utilization: f64,
    /// `⌈total · utilization⌉`.
    pub budget: u64,
    /// Weights.
    pub weights: u64,
    /// CUDA context, buffers of collectives and workspaces ("non-torch").
    pub context: u64,
    /// The peak of the profile run ("peak activation").
    pub activations: ActivationPeak,
    /// What is subtracted for CUDA graphs.
    pub graphs: u64,
    /// The profile run of an encoder for images.
    pub multimodal: u64,
    /// Memory set aside for adapters.
    pub reserved: u64,
    /// Memory for KV blocks ("Available KV cache memory"); below 0 if the parts take more than the budget.
    pub kv_cache: i64,
    /// What nothing is kept for, beside a given memory for KV blocks; below 0 if that does not leave what the parts take. Else 0.
    pub unused: i64,
}

/// The peak of activations in the profile run, bytes: layers and sampler come one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActivationPeak {
    /// In the sampler: copies of the logits of `max_num_seqs` requests, and the hidden states of the step.
    pub sampler: u64,
    /// In the layers: an MLP, and the hidden states of the step.
    pub layers: u64,
    /// In the kernels of routed experts, beside either.
    pub experts: u64,
}

impl ActivationPeak {
    /// The largest sum at one moment.
    #[must_use]
    pub fn peak(self) -> u64 {
        self.sampler.max(self.layers).saturating_add(self.experts)
    }
}

impl MemoryBalance {
    /// What is no memory for KV blocks.
    #[must_use]
    pub fn parts(&self) -> u64 {
        let Self { weights, context, activations, graphs, multimodal, reserved, .. } = *self;
        [weights, context, activations.peak(), graphs, multimodal, reserved].into_iter().fold(0, u64::saturating_add)
    }

    /// Memory for KV blocks that is there, bytes.
    #[must_use]
    pub fn available(&self) -> u64 {
        u64::try_from(self.kv_cache).unwrap_or(0)
    }
}

/// What one request of the longest length takes of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestNeed {
    /// `max_model_len`, tokens.
    pub max_model_len: u64,
    /// KV bytes of such a request on one GPU, in whole blocks.
    pub bytes: u64,
    /// The longest request that fits the available memory, tokens; 0 for none.
    pub longest: u64,
}

/// The memory balance of one GPU of each pipeline stage, in their order.
///
/// # Errors
/// If the size of the weights cannot be computed.
pub fn balances(
    model: &ModelConfig,
    parallelism: Parallelism,
    profile: MemoryProfile,
) -> Result<Vec<MemoryBalance>, CapacityError> {
    check(model, profile.usable_gib, parallelism, 1)?;
    Ok(StageLayers::all(model, profile.pipeline).iter().map(|stage| stage.balance(parallelism, profile)).collect())
}

/// KV blocks of an engine process: of several pipeline stages those of the stage that has the fewest, as every request needs its blocks on
/// all of them. Data-parallel ranks have as many each.
///
/// # Errors
/// If no memory is left for the cache, or the size of the weights cannot be computed.
pub fn kv_blocks(
    model: &ModelConfig,
    parallelism: Parallelism,
    profile: MemoryProfile,
) -> Result<EngineBlocks, CapacityError> {
    check(model, profile.usable_gib, parallelism, profile.cache.block_size)?;
    let stages = StageLayers::all(model, profile.pipeline);
    let mut fewest: Option<EngineBlocks> = None;
    for stage in &stages {
        if let Some(blocks) = stage.kv_blocks(parallelism, profile)?
            && fewest.as_ref().is_none_or(|fewest| blocks.count < fewest.count)
        {
            fewest = Some(blocks);
        }
    }
    fewest.ok_or(CapacityError::Missing { field: "num_key_value_heads" })
}

/// The KV groups of a model on one GPU of its first pipeline stage, whatever its memory.
///
/// # Errors
/// If the pages of its layers cannot share a pool.
pub fn kv_layout(
    model: &ModelConfig,
    parallelism: Parallelism,
    pipeline: u32,
    cache: CacheSettings,
) -> Result<KvLayout, MixedPages> {
    let stages = StageLayers::all(model, pipeline);
    let first = stages.first().ok_or(MixedPages::NoLayers)?;
    layout_of(&first.layers, model, parallelism.tensor, cache)
}

/// KV blocks of an engine process, with the stage that has the fewest.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineBlocks {
    /// Blocks of each rank, vLLM's null block included.
    pub count: u64,
    /// The KV groups of that stage.
    pub layout: KvLayout,
    /// Tokens of the steps in flight.
    pub tokens_in_flight: u64,
    /// The memory of one of its GPUs.
    pub balance: MemoryBalance,
}

impl EngineBlocks {
    /// What a request of `max_model_len` tokens takes, and the longest one that fits.
    #[must_use]
    pub fn need(&self, max_model_len: u64) -> RequestNeed {
        let limits = self.limits(max_model_len);
        let usable = self.balance.available().saturating_sub(self.layout.bytes_per_block);
        RequestNeed {
            max_model_len,
            bytes: pages_of_request(&self.layout, limits).saturating_mul(self.layout.bytes_per_block),
            longest: u64::from(estimated_length(&self.layout, limits, usable)),
        }
    }

    /// Whether a server with that `max_model_len` would start.
    ///
    /// # Errors
    /// If it would not.
    pub fn check_start(&self, max_model_len: u64) -> Result<(), NeedsTooMuch> {
        self.layout.blocks(self.balance.available(), self.limits(max_model_len)).map(|_| ())
    }

    /// Requests of `max_model_len` tokens that fit at once ("Maximum concurrency").
    #[must_use]
    pub fn concurrency(&self, max_model_len: u64) -> f64 {
        self.layout.max_concurrency(self.count, self.limits(max_model_len))
    }

    /// The limits of a server with that `max_model_len`.
    #[must_use]
    pub fn limits(&self, max_model_len: u64) -> StartLimits {
        let max_model_len = u32::try_from(max_model_len).unwrap_or(u32::MAX);
        StartLimits { max_model_len, tokens_in_flight: self.tokens_in_flight }
    }
}

/// Bytes of the weights of one GPU: of several pipeline stages, those of the stage that has the most.
#[must_use]
pub fn weight_bytes(model: &ModelConfig, parallelism: Parallelism, pipeline: u32) -> f64 {
    let stages = StageLayers::all(model, pipeline);
    stages.iter().map(|stage| stage.weight_bytes(parallelism)).fold(0.0, f64::max)
}

/// The layers of one pipeline stage.
struct StageLayers<'a> {
    model: &'a ModelConfig,
    layers: Architecture,
    /// Whether it has the embedding, and whether it has output matrix and sampling.
    first: bool,
    last: bool,
}

impl<'a> StageLayers<'a> {
    fn all(model: &'a ModelConfig, stages: u32) -> Vec<Self> {
        let architecture = model.architecture();
        let stages = stages.clamp(1, architecture.layers().max(1));
        let stage = |index| {
            let layers = architecture.stage(index, stages);
            Self { model, layers, first: index == 0, last: index + 1 == stages }
        };
        (0..stages).map(stage).collect()
    }

    /// Blocks per GPU; `None` if the layers cache nothing.
    fn kv_blocks(
        &self,
        parallelism: Parallelism,
        profile: MemoryProfile,
    ) -> Result<Option<EngineBlocks>, CapacityError> {
        let layout = match layout_of(&self.layers, self.model, parallelism.tensor, profile.cache) {
            Ok(layout) if layout.bytes_per_block > 0 => layout,
            // This stage caches nothing.
            Ok(_) | Err(MixedPages::NoLayers) => return Ok(None),
            Err(error) => return Err(CapacityError::Pages(error)),
        };
        let balance = self.balance(parallelism, profile);
        let (free, block_bytes) = (balance.available(), layout.bytes_per_block);
        // If not even this many tokens fit the cache, the memory is too small, not the block too large.
        const SMALL_BLOCK: u64 = 256;
        if profile.exceeds(&balance) || free < block_bytes {
            let block_size = layout.scheduler_block;
            let small = block_bytes / u64::from(block_size.max(1)) * SMALL_BLOCK;
            if (profile.kv_bytes.is_some() && free > 0 || free >= small) && !profile.exceeds(&balance) {
                let (block_gib, free_gib) = (block_bytes as f64 / GIB, free as f64 / GIB);
                return Err(CapacityError::BlockTooLarge { block_size, block_gib, free_gib });
            }
            let of_group = |bytes: u64| bytes as f64 / GIB * f64::from(parallelism.tensor);
            return Err(CapacityError::DoesNotFit {
                needed_gib: of_group(balance.parts()),
                available_gib: of_group(balance.budget),
                gpus: parallelism.tensor,
                minimum_gpus: self.minimum_gpus(parallelism, profile),
            });
        }
        let tokens_in_flight = u64::from(profile.max_num_batched_tokens) * u64::from(profile.batches);
        Ok(Some(EngineBlocks { count: free / block_bytes, layout, tokens_in_flight, balance }))
    }

    /// The smallest larger group that holds the weights and what the profile run needs.
    fn minimum_gpus(&self, parallelism: Parallelism, profile: MemoryProfile) -> Option<u64> {
        let fits = |&tensor: &u32| !profile.exceeds(&self.balance(Parallelism { tensor, ..parallelism }, profile));
        let sizes = (0..31).map(|power| 1_u32 << power);
        sizes
            .skip_while(|&tensor| tensor <= parallelism.tensor)
            .take_while(|&tensor| f64::from(tensor) <= limits::GPUS)
            .find(fits)
            .map(u64::from)
    }

    /// Beside a given number of bytes for KV blocks vLLM takes no profile into account: then they are there, whatever the parts take.
    fn balance(&self, parallelism: Parallelism, profile: MemoryProfile) -> MemoryBalance {
        let gib = |gib: f64| truncated((gib * GIB).ceil());
        let total = gib(profile.usable_gib);
        let utilization = if profile.kv_bytes.is_some() { 1.0 } else { profile.budget.utilization };
        let capture = GraphCapture { max_num_seqs: profile.max_num_seqs, eager: profile.eager };
        let mut balance = MemoryBalance {
            version: profile.version,
            total,
            utilization,
            budget: truncated((total as f64 * utilization).ceil()),
            weights: truncated(self.weight_bytes(parallelism)),
            context: gib(profile.version.context_gib(parallelism, profile.pipeline)),
            activations: self.activations(parallelism, profile),
            graphs: gib(profile.version.graphs_gib(capture)),
            multimodal: gib(if profile.multimodal && self.first { MULTIMODAL_GIB } else { 0.0 }),
            reserved: gib(profile.budget.reserved_gib),
            kv_cache: 0,
            unused: 0,
        };
        let left = difference(balance.budget, balance.parts());
        match profile.kv_bytes {
            None => balance.kv_cache = left,
            Some(bytes) => {
                balance.kv_cache = i64::try_from(bytes).unwrap_or(i64::MAX);
                balance.unused = left.saturating_sub(balance.kv_cache);
            }
        }
        balance
    }

    /// The peak of the profile run, by `memory.md` §4.2: 30 of 31 logs within 0.14 GiB.
    fn activations(&self, parallelism: Parallelism, profile: MemoryProfile) -> ActivationPeak {
        let (model, tp) = (self.model, f64::from(parallelism.tensor));
        let tokens = f64::from(profile.max_num_batched_tokens.min(PROFILED_TOKENS)) * model.dtype_bytes;
        // A step has a token of each of its requests at least.
        let seqs = profile.max_num_seqs.min(profile.max_num_batched_tokens).min(PROFILED_SEQS);
        let rows = if self.last { f64::from(seqs) } else { 0.0 };
        let hidden = f64::from(model.hidden_size);
        let (mut dense, mut experts) = (0.0_f64, 0.0_f64);
        for group in &self.layers.groups {
            match group.mlp {
                Mlp::Dense { width } | Mlp::Plain { width } => dense = dense.max(f64::from(width)),
                Mlp::Experts(routed) => {
                    dense = dense.max(f64::from(routed.shared_width));
                    let width = f64::from(routed.width) / tp;
                    experts = experts.max(f64::from(routed.per_token) * ((2.0 * width).max(hidden) + width));
                }
                Mlp::Matrix | Mlp::None => {}
            }
        }
        // Kernels for experts in four bits need no such buffers (gpt-oss).
        if self.layers.weights.experts.unwrap_or(model.weight_bytes) < 1.0 {
            experts = 0.0;
        }
        ActivationPeak {
            sampler: truncated(profile.version.sampler_bytes() * rows * f64::from(model.vocab_size) + tokens * hidden),
            layers: truncated(LAYERS_FACTOR * tokens * (3.0 * dense / tp + 3.0 * hidden)),
            experts: truncated(tokens * experts),
        }
    }

    /// Bytes of the weights of one GPU. Data-parallel ranks share the experts and replicate everything else.
    fn weight_bytes(&self, parallelism: Parallelism) -> f64 {
        let (model, weights) = (self.model, self.layers.weights);
        let d = f64::from(model.hidden_size);
        let (tp, dp) = (f64::from(parallelism.tensor), f64::from(parallelism.data));
        let bytes = |class: Option<f64>| class.unwrap_or(model.weight_bytes);
        // Embedding, output matrix, routers and norms stay in 16 bits.
        let whole = model.dtype_bytes.max(model.weight_bytes);
        let mut sum = 0.0;
        for group in &self.layers.groups {
            let mlp = match group.mlp {
                Mlp::Dense { width } => 3.0 * d * f64::from(width) / tp * bytes(weights.dense),
                Mlp::Plain { width } => 2.0 * d * f64::from(width) / tp * bytes(weights.dense),
                Mlp::Experts(experts) => {
                    let routed = experts.expert_weights(d) * f64::from(experts.count) / (tp * dp);
                    routed * bytes(weights.experts)
                        + experts.shared_weights(d) / tp * bytes(weights.dense)
                        + experts.latent_weights(d) * bytes(weights.dense)
                        + f64::from(experts.count) * d * whole
                }
                Mlp::Matrix => d * d / tp * bytes(weights.dense),
                Mlp::None => 0.0,
            };
            let attention = group.attention.weights(d, tp) * bytes(weights.of(&group.attention));
            sum += f64::from(group.count) * (attention + mlp + 2.0 * d * whole);
        }
        let tables = match (self.first, self.last) {
            (true, true) if model.tie_word_embeddings => 1.0,
            (first, last) => f64::from(u8::from(first) + u8::from(last)),
        };
        let others = if self.first { self.layers.other_weights * whole } else { 0.0 };
        sum + (tables * f64::from(model.vocab_size) / tp + 1.0) * d * whole + others
    }
}

impl MemoryProfile {
    /// Whether nothing is left for KV blocks. A given memory for them is there, whatever the parts take.
    fn exceeds(&self, balance: &MemoryBalance) -> bool {
        self.kv_bytes.is_none() && balance.kv_cache <= 0
    }
}

/// `of - part`, at the limits of the type where it does not fit.
fn difference(of: u64, part: u64) -> i64 {
    i64::try_from(i128::from(of) - i128::from(part)).unwrap_or(if of > part { i64::MAX } else { i64::MIN })
}

/// What the layers of one GPU cache, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CachedBytes {
    /// Per token, in layers that cache every token.
    pub full: f64,
    /// Per token, in layers that drop what no later token sees.
    pub windowed: f64,
    /// Tokens per request that those layers keep at most: the window, less the token that is computed, and the tokens of
    /// a step (vLLM's `SlidingWindowSpec`); of several windows the largest.
    pub window_tokens: u64,
    /// Per request: the states of linear attention.
    pub state: f64,
}

impl CachedBytes {
    /// What all layers of a model cache on each of `tensor` GPUs, without pipeline stages.
    #[must_use]
    pub fn of_model(model: &ModelConfig, tensor: u32, max_num_batched_tokens: u32) -> Self {
        Self::new(model, &model.architecture(), tensor, max_num_batched_tokens)
    }

    fn new(model: &ModelConfig, layers: &Architecture, tensor: u32, max_num_batched_tokens: u32) -> Self {
        let mut cached = Self::default();
        let tensor = f64::from(tensor);
        for group in &layers.groups {
            let count = f64::from(group.count);
            let bytes = count * group.attention.cached_bytes(tensor, model.kv_dtype_bytes);
            cached.state += count * group.attention.state_bytes(tensor, model.dtype_bytes);
            match group.attention.cached_window() {
                None => cached.full += bytes,
                Some(window) => {
                    let tokens = u64::from(window).saturating_sub(1) + u64::from(max_num_batched_tokens);
                    cached.window_tokens = cached.window_tokens.max(tokens);
                    cached.windowed += bytes;
                }
            }
        }
        cached
    }

    /// Bytes per token of requests of that length, their windows and states included. `None`: windows count as full
    /// attention, and states as nothing.
    #[must_use]
    pub fn per_token(&self, request_tokens: Option<u64>) -> f64 {
        match request_tokens {
            Some(tokens) if tokens > 0 => {
                let windowed = self.windowed * self.window_tokens.min(tokens) as f64;
                self.full + (windowed + self.state) / tokens as f64
            }
            _ => self.full + self.windowed,
        }
    }
}

/// Bytes that one GPU caches per token, if every layer caches every token. Latent attention (MLA) caches one vector per
/// layer on every GPU; a KV head is never divided.
#[must_use]
pub fn kv_bytes_per_token(model: &ModelConfig, tensor: u32) -> f64 {
    CachedBytes::of_model(model, tensor, 0).per_token(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Mla;
    use crate::model::samples::{gemma_4, llama_8b, qwen_3_5, qwen_moe};

    /// H100, and the limits of the measured deployments.
    const PROFILE: MemoryProfile = MemoryProfile {
        version: EngineVersion::NEWEST,
        usable_gib: 79.2,
        budget: MemoryBudget { utilization: 0.9, reserved_gib: 0.0 },
        kv_bytes: None,
        max_num_seqs: 128,
        max_num_batched_tokens: 2048,
        eager: false,
        multimodal: false,
        pipeline: 1,
        cache: CacheSettings {
            block_size: 16,
            max_model_len: 131_072,
            prefix_caching: true,
            disable_hybrid: false,
            prefix_match_unit: None,
            flashinfer_prefill: true,
        },
        batches: 2,
    };

    fn blocks(model: &ModelConfig, tensor: u32, data: u32) -> Result<u64, CapacityError> {
        kv_blocks(model, Parallelism { tensor, data }, PROFILE).map(|blocks| blocks.count)
    }

    /// Regression: the memory of the group was divided by the KV bytes of one GPU, so that two GPUs had four times as many
    /// blocks as one.
    #[test]
    fn two_gpus_have_about_twice_the_blocks() {
        let [one, two] = [1, 2].map(|tensor| blocks(&llama_8b(), tensor, 1).unwrap() as f64);
        assert!((2.0..2.5).contains(&(two / one)), "{one} {two}: the weights are shared as well");
    }

    /// 8.03 G parameters of two bytes; a GPU of a group or a stage has its share, and norms as a whole.
    #[test]
    fn a_gpu_has_its_share_of_the_weights() {
        let gigabytes = |tensor, pipeline| weight_bytes(&llama_8b(), Parallelism { tensor, data: 1 }, pipeline) / 1e9;
        assert!((16.05..16.07).contains(&gigabytes(1, 1)), "{}", gigabytes(1, 1));
        assert!((8.02..8.04).contains(&gigabytes(2, 1)) && (8.02..8.04).contains(&gigabytes(1, 2)));
    }

    /// 576 numbers of two bytes in each of 61 layers.
    #[test]
    fn latent_attention_is_replicated() {
        let mla = Some(Mla { kv_lora_rank: 512, qk_rope_head_dim: 64 });
        let model = ModelConfig { num_hidden_layers: 61, mla, ..llama_8b() };
        assert_eq!([1, 8].map(|tensor| kv_bytes_per_token(&model, tensor)), [576.0 * 61.0 * 2.0; 2]);
    }

    /// A token takes 128 KiB in 16 bits: 32 layers × 2 × 8 heads × 128 × 2 bytes; an FP8 cache half of it, so that twice as
    /// many blocks fit the memory that is left, less the rounding of one block.
    #[test]
    fn an_fp8_cache_holds_twice_the_tokens() {
        let model = ModelConfig { kv_dtype_bytes: 1.0, ..llama_8b() };
        assert_eq!([kv_bytes_per_token(&llama_8b(), 1), kv_bytes_per_token(&model, 1)], [131_072.0, 65_536.0]);
        let [whole, half] = [&llama_8b(), &model].map(|model| blocks(model, 1, 1).unwrap());
        assert!(half - 2 * whole <= 1, "{half} {whole}");
    }

    #[test]
    fn a_kv_head_is_not_divided() {
        let [eight, sixteen] = [8, 16].map(|tensor| kv_bytes_per_token(&llama_8b(), tensor));
        assert_eq!((eight, sixteen), (32.0 * 2.0 * 128.0 * 2.0, eight));
    }

    /// Each of two ranks that share the experts has a larger cache than one alone: it holds half of the experts.
    #[test]
    fn ranks_share_the_experts_only() {
        let model = qwen_moe();
        let [alone, ranks] = [1, 2].map(|data| blocks(&model, 2, data).unwrap());
        let experts = 3.0
            * f64::from(model.hidden_size)
            * f64::from(model.expert_width())
            * model.weight_bytes
            * f64::from(model.moe.expect("it has experts").num_experts)
            * f64::from(model.num_hidden_layers);
        let freed = (experts / 4.0 / (kv_bytes_per_token(&model, 2) * 16.0)) as u64;
        assert!(ranks.abs_diff(alone + freed) <= 1, "{alone} + {freed}, {ranks}");
    }

    #[test]
    fn more_rows_in_the_profile_run_leave_fewer_blocks() {
        let of = |max_num_seqs, max_num_batched_tokens| {
            let profile = MemoryProfile { max_num_seqs, max_num_batched_tokens, ..PROFILE };
            kv_blocks(&llama_8b(), Parallelism { tensor: 1, data: 1 }, profile).unwrap().count
        };
        assert!(of(1024, 2048) < of(128, 2048) && of(128, 8192) < of(128, 2048));
    }

    /// Whatever a profile run would leave; 131 072 bytes a token.
    #[test]
    fn bytes_for_kv_blocks_are_those_of_the_blocks() {
        let of = |bytes, tensor| {
            let profile = MemoryProfile { kv_bytes: Some(bytes), ..PROFILE };
            kv_blocks(&llama_8b(), Parallelism { tensor, data: 1 }, profile).map(|blocks| blocks.count)
        };
        let block = 131_072 * 16;
        assert_eq!([of(block * 5, 1), of(block * 6 - 1, 1), of(block * 5, 2)], [Ok(5), Ok(5), Ok(10)]);
        assert!(matches!(of(block - 1, 1), Err(CapacityError::BlockTooLarge { .. })));
        assert!(of(70_000_000_000, 1).is_ok(), "whatever the weights leave");
        assert!(matches!(of(0, 1), Err(CapacityError::DoesNotFit { .. })));
    }

    #[test]
    fn a_model_that_does_not_fit_names_the_gpus_that_it_needs() {
        let model = ModelConfig { num_hidden_layers: 400, ..llama_8b() };
        let error = blocks(&model, 1, 1).unwrap_err();
        let CapacityError::DoesNotFit { minimum_gpus: Some(minimum), .. } = error else { panic!("{error:?}") };
        let minimum = u32::try_from(minimum).unwrap();
        assert!(blocks(&model, minimum, 1).is_ok() && blocks(&model, minimum / 2, 1).is_err(), "{minimum}");
    }

    /// Gemma-4-26B-A4B: 25 layers of 2 · 8 · 256 numbers and 5 of 2 · 2 · 512, two bytes each. A request of 100 000 tokens
    /// keeps 1023 + 2048 of them in the former.
    #[test]
    fn windows_keep_the_last_tokens() {
        let cached = CachedBytes::of_model(&gemma_4(), 1, 2048);
        assert_eq!((cached.windowed, cached.full, cached.window_tokens), (204_800.0, 20_480.0, 3071));
        assert_eq!(cached.per_token(Some(3000)), 225_280.0);
        let long = 20_480.0 + 204_800.0 * 3071.0 / 100_000.0;
        assert!((cached.per_token(Some(100_000)) - long).abs() < 1e-9);
        assert_eq!(kv_bytes_per_token(&gemma_4(), 1), 225_280.0);
        // A page of five layers: 16 tokens of a window, or 32 of full attention.
        let blocks = kv_blocks(&gemma_4(), Parallelism { tensor: 1, data: 1 }, PROFILE).unwrap();
        assert_eq!((blocks.layout.bytes_per_block, blocks.layout.groups.len()), (655_360, 6));
    }

    /// Qwen3.5-35B-A3B: states of 30 layers, beside 10 layers of full attention: 64 MB per request.
    #[test]
    fn states_count_per_request() {
        let cached = CachedBytes::of_model(&qwen_3_5(), 1, 2048);
        assert_eq!((cached.full, cached.state), (10.0 * 2.0 * 2.0 * 256.0 * 2.0, 30.0 * (2_097_152.0 + 49_152.0)));
        assert!((cached.per_token(Some(10_000)) - (20_480.0 + 6438.912)).abs() < 1e-9);
    }

    /// Two stages of 16 layers each: about twice the blocks of one GPU, and a little more, since they share the weights.
    /// The stage with sampler and output matrix has the fewest.
    #[test]
    fn stages_have_their_own_layers() {
        let model = llama_8b();
        let blocks = |pipeline| {
            kv_blocks(&model, Parallelism { tensor: 1, data: 1 }, MemoryProfile { pipeline, ..PROFILE }).unwrap().count
        };
        let last = StageLayers::all(&model, 2).pop().expect("two");
        let layers = 16.0 * (4096.0 * (2.0 * 4096.0 + 2.0 * 1024.0 + 3.0 * 14_336.0) + 2.0 * 4096.0);
        let weights = 2.0 * (layers + 128_256.0 * 4096.0 + 4096.0);
        assert_eq!(last.weight_bytes(Parallelism { tensor: 1, data: 1 }), weights);
        let activations = 4096.0 * 2048.0 * 2.0 + 28.0 * 128.0 * 128_256.0;
        let free = (79.2 * 0.9 - 0.07 - 0.5) * GIB - weights - activations;
        assert_eq!(blocks(2), (free / (16.0 * 2.0 * 8.0 * 128.0 * 2.0 * 16.0)) as u64);
        assert!((2.0..2.5).contains(&(blocks(2) as f64 / blocks(1) as f64)));
    }

    /// The parts and the memory for KV blocks add up to the share of the memory, or to all of it beside a given memory.
    #[test]
    fn the_parts_add_up_to_the_share() {
        let one = Parallelism { tensor: 1, data: 1 };
        for model in [llama_8b(), qwen_moe(), gemma_4(), qwen_3_5()] {
            for pipeline in [1, 2] {
                let profile = MemoryProfile { pipeline, multimodal: true, max_num_seqs: 1024, ..PROFILE };
                for balance in balances(&model, one, profile).unwrap() {
                    assert_eq!(balance.kv_cache, balance.budget as i64 - balance.parts() as i64);
                    assert!((balance.budget as f64 - balance.total as f64 * 0.9).abs() < 2.0 && balance.unused == 0);
                }
                let given = MemoryProfile { kv_bytes: Some(1 << 32), ..profile };
                for balance in balances(&model, one, given).unwrap() {
                    let sum = balance.parts() as i64 + balance.kv_cache + balance.unused;
                    assert_eq!((sum, balance.available()), (balance.total as i64, 1 << 32));
                }
            }
        }
    }

    /// `memory.md` §4.2: 1.89 GiB of Llama-3.1-8B at 0.19, of which the formula gives 1.91; 4.76 of it at 0.11.
    #[test]
    fn the_peak_is_that_of_the_logs() {
        let peak = |model: &ModelConfig, minor| {
            let version = EngineVersion::new(minor).unwrap();
            let profile = MemoryProfile { version, max_num_seqs: 1024, max_num_batched_tokens: 8192, ..PROFILE };
            let balance = balances(model, Parallelism { tensor: 1, data: 1 }, profile).unwrap()[0];
            (balance.activations.peak() as f64 / GIB * 100.0).round() / 100.0
        };
        assert_eq!((peak(&llama_8b(), 19), peak(&llama_8b(), 11), peak(&qwen_moe(), 19)), (1.91, 4.75, 2.56));
    }

    /// 128 KiB a token; the block that is set aside is of 16.
    #[test]
    fn the_longest_request_leaves_a_block() {
        let one = Parallelism { tensor: 1, data: 1 };
        let profile = MemoryProfile { kv_bytes: Some(131_072 * 1600), ..PROFILE };
        let blocks = kv_blocks(&llama_8b(), one, profile).unwrap();
        assert_eq!((blocks.count, blocks.need(131_072).longest, blocks.need(1000).longest), (100, 1584, 1000));
        assert!(blocks.check_start(1584).is_ok() && blocks.check_start(1585).is_err());
        assert_eq!((blocks.concurrency(400), blocks.need(385).bytes), (4.0, 400 * 131_072));
    }
}
