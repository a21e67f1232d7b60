//! The number of KV blocks that fit on one GPU, as vLLM finds it: the share of memory that it may use, less the weights and
//! what its profile run needs, divided by the KV bytes of that GPU.
//!
//! vLLM measures at its start; here the parts of that measurement are computed. The constants are fitted to the blocks
//! that eleven deployments of vLLM 0.14 and 0.15 on H100 logged (Llama, CodeLlama, Mistral, Mixtral, Qwen, Yi, 1 to 4 GPUs).
//! BLIS's formula for the group of GPUs is [`crate::capacity`].

use crate::architecture::{Architecture, Mlp};
use crate::capacity::{CapacityError, MemoryBudget, check};
use crate::limits;
use crate::model::{ModelConfig, Parallelism};
use crate::numbers::truncated;

const GIB: f64 = 1_073_741_824.0;

/// CUDA context, CUDA graphs and workspaces, GiB per GPU: alone, and with the buffers of collectives.
const RUNTIME_GIB: f64 = 0.25;
const RUNTIME_TP_GIB: f64 = 0.45;
/// Bytes per request and word of the vocabulary in the sampler's profile run: 32-bit logits, sorted with their indices.
const SAMPLER_BYTES: f64 = 60.0;
/// Vision encoder with its profile run, and layers that a quantised model keeps in 16 bits although its config does not
/// say so, GiB per GPU. Measured on one deployment, Llama-4-Scout FP8 on two H100.
const MULTIMODAL_GIB: f64 = 6.1;

/// Requests and tokens of the profile run at most: a server with higher limits would not start, while simulations use them
/// for "no limit".
const PROFILED_SEQS: u32 = 4096;
const PROFILED_TOKENS: u32 = 131_072;

/// The memory of a GPU, and what vLLM does with it at its start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryProfile {
    /// Memory of the GPU that programs can allocate, GiB.
    pub usable_gib: f64,
    /// Share of it, and memory set aside on each GPU.
    pub budget: MemoryBudget,
    /// Memory of each GPU for KV blocks, bytes, instead of what the share leaves (`--kv-cache-memory-bytes`).
    pub kv_bytes: Option<u64>,
    /// Maximum batch size: the rows of the sampler's profile run.
    pub max_num_seqs: u32,
    /// Token budget of a step: the rows of the model's profile run.
    pub max_num_batched_tokens: u32,
    /// Whether the model has an encoder for images beside the language model.
    pub multimodal: bool,
    /// Pipeline stages, at least 1: each has its own layers and its own GPUs.
    pub pipeline: u32,
    /// Length of the requests for which blocks are counted where layers keep a window or a state, tokens: vLLM takes
    /// `max_model_len`. `None`: windows count as full attention, and states as nothing.
    pub request_tokens: Option<u64>,
}

/// KV blocks of `block_size` tokens per GPU, and over all data-parallel ranks of a mixture of experts; of several pipeline
/// stages, those of the stage that has the fewest, as every request needs its blocks on all of them.
///
/// # Errors
/// If no memory is left for the cache, or the size of the weights cannot be computed.
pub fn kv_blocks(
    model: &ModelConfig,
    parallelism: Parallelism,
    block_size: u32,
    profile: MemoryProfile,
) -> Result<u64, CapacityError> {
    check(model, profile.usable_gib, parallelism, block_size)?;
    let stages = StageLayers::all(model, profile.pipeline);
    let mut fewest: Option<u64> = None;
    for stage in &stages {
        if let Some(blocks) = stage.kv_blocks(parallelism, block_size, profile)? {
            fewest = Some(fewest.map_or(blocks, |fewest| fewest.min(blocks)));
        }
    }
    let blocks = fewest.ok_or(CapacityError::Missing { field: "num_key_value_heads" })?;
    let ranks = if model.moe.is_some() { u64::from(parallelism.data) } else { 1 };
    Ok(blocks.saturating_mul(ranks))
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
        block_size: u32,
        profile: MemoryProfile,
    ) -> Result<Option<u64>, CapacityError> {
        let cached = CachedBytes::new(self.model, &self.layers, parallelism.tensor, profile.max_num_batched_tokens);
        let per_block = cached.per_token(profile.request_tokens) * f64::from(block_size);
        if per_block < 1.0 {
            return Ok(None);
        }
        let available_gib = available_gib(profile);
        let needed_gib = self.needed_gib(parallelism, profile);
        let left = (available_gib - needed_gib) * GIB;
        let free = profile.kv_bytes.filter(|_| left >= 0.0).map_or(left, |bytes| bytes as f64);
        // If not even this many tokens fit the cache, the memory is too small, not the block too large.
        const SMALL_BLOCK: f64 = 256.0;
        if free < per_block {
            if profile.kv_bytes.is_some() && left >= 0.0 || free >= per_block / f64::from(block_size) * SMALL_BLOCK {
                let (block_gib, free_gib) = (per_block / GIB, free / GIB);
                return Err(CapacityError::BlockTooLarge { block_size, block_gib, free_gib });
            }
            return Err(CapacityError::DoesNotFit {
                needed_gib: needed_gib * f64::from(parallelism.tensor),
                available_gib: available_gib * f64::from(parallelism.tensor),
                gpus: parallelism.tensor,
                minimum_gpus: self.minimum_gpus(parallelism, profile),
            });
        }
        Ok(Some(truncated(free / per_block)))
    }

    /// The smallest larger group that holds the weights and what the profile run needs.
    fn minimum_gpus(&self, parallelism: Parallelism, profile: MemoryProfile) -> Option<u64> {
        let available_gib = available_gib(profile);
        let fits = |&tensor: &u32| self.needed_gib(Parallelism { tensor, ..parallelism }, profile) < available_gib;
        let sizes = (0..31).map(|power| 1_u32 << power);
        sizes
            .skip_while(|&tensor| tensor <= parallelism.tensor)
            .take_while(|&tensor| f64::from(tensor) <= limits::GPUS)
            .find(fits)
            .map(u64::from)
    }

    /// Weights, activations and runtime on one GPU, GiB. Beside a number of bytes for KV blocks vLLM takes no profile: then the weights
    /// and those bytes, without which no engine starts.
    fn needed_gib(&self, parallelism: Parallelism, profile: MemoryProfile) -> f64 {
        if let Some(bytes) = profile.kv_bytes {
            return (self.weight_bytes(parallelism) + bytes as f64) / GIB;
        }
        let model = self.model;
        let tp = f64::from(parallelism.tensor);
        let tokens = f64::from(profile.max_num_batched_tokens.min(PROFILED_TOKENS));
        // The hidden states and the residual live as long as the step; the MLP and the sampler come one after the other.
        let hidden = 2.0 * f64::from(model.hidden_size) * tokens * model.dtype_bytes;
        let mlp = 3.0 * f64::from(model.intermediate_size) / tp * tokens * model.dtype_bytes;
        let rows = if self.last { profile.max_num_seqs.min(PROFILED_SEQS) } else { 0 };
        let sampler = SAMPLER_BYTES * f64::from(rows) * f64::from(model.vocab_size);
        let alone = parallelism.tensor == 1 && profile.pipeline <= 1;
        let runtime_gib = if alone { RUNTIME_GIB } else { RUNTIME_TP_GIB };
        let multimodal_gib = if profile.multimodal && self.first { MULTIMODAL_GIB } else { 0.0 };
        (self.weight_bytes(parallelism) + hidden + mlp.max(sampler)) / GIB
            + runtime_gib
            + multimodal_gib
            + profile.budget.reserved_gib
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

/// Memory of one GPU that the engine may use, GiB.
fn available_gib(profile: MemoryProfile) -> f64 {
    profile.usable_gib * if profile.kv_bytes.is_some() { 1.0 } else { profile.budget.utilization }
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

    /// Whether the bytes per token depend on the length of a request.
    #[must_use]
    pub fn depends_on_length(&self) -> bool {
        self.windowed > 0.0 || self.state > 0.0
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
        usable_gib: 79.2,
        budget: MemoryBudget { utilization: 0.9, reserved_gib: 0.0 },
        kv_bytes: None,
        max_num_seqs: 128,
        max_num_batched_tokens: 2048,
        multimodal: false,
        pipeline: 1,
        request_tokens: None,
    };

    fn blocks(model: &ModelConfig, tensor: u32, data: u32) -> Result<u64, CapacityError> {
        kv_blocks(model, Parallelism { tensor, data }, 16, PROFILE)
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

    /// Two ranks that share the experts have more than twice the cache of one: each holds half of the experts.
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
        assert!(ranks.abs_diff(2 * (alone + freed)) <= 2, "{alone} + {freed}, {ranks}");
    }

    #[test]
    fn more_rows_in_the_profile_run_leave_fewer_blocks() {
        let of = |max_num_seqs, max_num_batched_tokens| {
            let profile = MemoryProfile { max_num_seqs, max_num_batched_tokens, ..PROFILE };
            kv_blocks(&llama_8b(), Parallelism { tensor: 1, data: 1 }, 16, profile).unwrap()
        };
        assert!(of(1024, 2048) < of(128, 2048) && of(128, 8192) < of(128, 2048));
    }

    /// Whatever a profile run would leave; 131 072 bytes a token.
    #[test]
    fn bytes_for_kv_blocks_are_those_of_the_blocks() {
        let of = |bytes, tensor| {
            let profile = MemoryProfile { kv_bytes: Some(bytes), ..PROFILE };
            kv_blocks(&llama_8b(), Parallelism { tensor, data: 1 }, 16, profile)
        };
        let block = 131_072 * 16;
        assert_eq!([of(block * 5, 1), of(block * 6 - 1, 1), of(block * 5, 2)], [Ok(5), Ok(5), Ok(10)]);
        assert!(matches!(of(block - 1, 1), Err(CapacityError::BlockTooLarge { .. })));
        assert!(matches!(of(70_000_000_000, 1), Err(CapacityError::DoesNotFit { minimum_gpus: Some(2), .. })));
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
        let blocks = |request_tokens| {
            let profile = MemoryProfile { request_tokens, ..PROFILE };
            kv_blocks(&gemma_4(), Parallelism { tensor: 1, data: 1 }, 16, profile).unwrap() as f64
        };
        assert!((blocks(Some(100_000)) / blocks(None) - 225_280.0 / long).abs() < 1e-3);
    }

    /// Qwen3.5-35B-A3B: states of 30 layers, beside 10 layers of full attention: 64 MB per request.
    #[test]
    fn states_count_per_request() {
        let cached = CachedBytes::of_model(&qwen_3_5(), 1, 2048);
        assert_eq!((cached.full, cached.state), (10.0 * 2.0 * 2.0 * 256.0 * 2.0, 30.0 * (2_097_152.0 + 49_152.0)));
        assert!((cached.per_token(Some(10_000)) - (20_480.0 + 6438.912)).abs() < 1e-9);
        assert!(cached.depends_on_length());
    }

    /// Two stages of 16 layers each: about twice the blocks of one GPU, and a little more, since they share the weights.
    /// The stage with sampler and output matrix has the fewest.
    #[test]
    fn stages_have_their_own_layers() {
        let model = llama_8b();
        let blocks = |pipeline| {
            kv_blocks(&model, Parallelism { tensor: 1, data: 1 }, 16, MemoryProfile { pipeline, ..PROFILE }).unwrap()
        };
        let last = StageLayers::all(&model, 2).pop().expect("two");
        let layers = 16.0 * (4096.0 * (2.0 * 4096.0 + 2.0 * 1024.0 + 3.0 * 14_336.0) + 2.0 * 4096.0);
        let weights = 2.0 * (layers + 128_256.0 * 4096.0 + 4096.0);
        assert_eq!(last.weight_bytes(Parallelism { tensor: 1, data: 1 }), weights);
        let activations = 2.0 * 4096.0 * 2048.0 * 2.0 + 60.0 * 128.0 * 128_256.0;
        let free = (79.2 * 0.9 - RUNTIME_TP_GIB) * GIB - weights - activations;
        assert_eq!(blocks(2), (free / (16.0 * 2.0 * 8.0 * 128.0 * 2.0 * 16.0)) as u64);
        assert!((2.0..2.5).contains(&(blocks(2) as f64 / blocks(1) as f64)));
    }
}
