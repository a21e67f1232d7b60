//! The number of KV blocks that fit on one GPU, as vLLM finds it: the share of memory that it may use, less the weights and
//! what its profile run needs, divided by the KV bytes of that GPU.
//!
//! vLLM measures at its start; here the parts of that measurement are computed. The constants are fitted to the blocks
//! that eleven deployments of vLLM 0.14 and 0.15 on H100 logged (Llama, CodeLlama, Mistral, Mixtral, Qwen, Yi, 1 to 4 GPUs).
//! BLIS's formula for the group of GPUs is [`crate::capacity`].

use crate::capacity::{CapacityError, MemoryBudget, check, head_dim};
use crate::limits;
use crate::model::{ModelConfig, Parallelism};

const GIB: f64 = 1_073_741_824.0;

/// CUDA context, CUDA graphs and workspaces, GiB per GPU: alone, and with the buffers of collectives.
const RUNTIME_GIB: f64 = 0.25;
const RUNTIME_TP_GIB: f64 = 0.45;
/// Bytes per request and word of the vocabulary in the sampler's profile run: 32-bit logits, sorted with their indices.
const SAMPLER_BYTES: f64 = 60.0;
/// Vision encoder with its profile run, the shared expert that the config of Llama 4 does not name, and layers that a
/// quantised model keeps in 16 bits, GiB per GPU. Measured on one deployment, Llama-4-Scout FP8 on two H100.
const MULTIMODAL_GIB: f64 = 8.9;

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
    /// Maximum batch size: the rows of the sampler's profile run.
    pub max_num_seqs: u32,
    /// Token budget of a step: the rows of the model's profile run.
    pub max_num_batched_tokens: u32,
    /// Whether the model has an encoder for images beside the language model.
    pub multimodal: bool,
}

/// KV blocks of `block_size` tokens per GPU, and over all data-parallel ranks of a mixture of experts.
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
    let per_block = kv_bytes_per_token(model, parallelism.tensor) * f64::from(block_size);
    if per_block < 1.0 {
        return Err(CapacityError::Missing { field: "num_key_value_heads" });
    }
    let available_gib = profile.usable_gib * profile.budget.utilization;
    let needed_gib = needed_gib(model, parallelism, profile);
    let free = (available_gib - needed_gib) * GIB;
    // If not even this many tokens fit the cache, the memory is too small, not the block too large.
    const SMALL_BLOCK: f64 = 256.0;
    if free < per_block {
        if free >= per_block / f64::from(block_size) * SMALL_BLOCK {
            let (block_gib, free_gib) = (per_block / GIB, free / GIB);
            return Err(CapacityError::BlockTooLarge { block_size, block_gib, free_gib });
        }
        return Err(CapacityError::DoesNotFit {
            needed_gib: needed_gib * f64::from(parallelism.tensor),
            available_gib: available_gib * f64::from(parallelism.tensor),
            gpus: parallelism.tensor,
            minimum_gpus: minimum_gpus(model, parallelism, profile),
        });
    }
    let ranks = if model.moe.is_some() { u64::from(parallelism.data) } else { 1 };
    Ok(((free / per_block) as u64).saturating_mul(ranks))
}

/// The smallest larger group that holds the weights and what the profile run needs.
fn minimum_gpus(model: &ModelConfig, parallelism: Parallelism, profile: MemoryProfile) -> Option<u64> {
    let available_gib = profile.usable_gib * profile.budget.utilization;
    let fits = |&tensor: &u32| needed_gib(model, Parallelism { tensor, ..parallelism }, profile) < available_gib;
    let sizes = (0..31).map(|power| 1_u32 << power);
    sizes
        .skip_while(|&tensor| tensor <= parallelism.tensor)
        .take_while(|&tensor| f64::from(tensor) <= limits::GPUS)
        .find(fits)
        .map(u64::from)
}

/// Weights, activations and runtime on one GPU, GiB.
fn needed_gib(model: &ModelConfig, parallelism: Parallelism, profile: MemoryProfile) -> f64 {
    let tp = f64::from(parallelism.tensor);
    let (tokens, d) = (f64::from(profile.max_num_batched_tokens.min(PROFILED_TOKENS)), f64::from(model.hidden_size));
    // The hidden states and the residual live as long as the step; the MLP and the sampler come one after the other.
    let hidden = 2.0 * d * tokens * model.dtype_bytes;
    let mlp = 3.0 * f64::from(model.intermediate_size) / tp * tokens * model.dtype_bytes;
    let sampler = SAMPLER_BYTES * f64::from(profile.max_num_seqs.min(PROFILED_SEQS)) * f64::from(model.vocab_size);
    let runtime_gib = if parallelism.tensor == 1 { RUNTIME_GIB } else { RUNTIME_TP_GIB };
    let multimodal_gib = if profile.multimodal { MULTIMODAL_GIB } else { 0.0 };
    (weight_bytes(model, parallelism) + hidden + mlp.max(sampler)) / GIB
        + runtime_gib
        + multimodal_gib
        + profile.budget.reserved_gib
}

/// Bytes of the weights of one GPU. Data-parallel ranks share the experts and replicate everything else.
fn weight_bytes(model: &ModelConfig, parallelism: Parallelism) -> f64 {
    let (layers, d) = (f64::from(model.num_hidden_layers), f64::from(model.hidden_size));
    let (tp, dp) = (f64::from(parallelism.tensor), f64::from(parallelism.data));
    let (heads, kv_heads) = (f64::from(model.num_attention_heads), f64::from(model.num_key_value_heads));
    let head = head_dim(model);
    // Fewer KV heads than GPUs are replicated.
    let attention = 2.0 * d * heads * head / tp + 2.0 * d * (kv_heads / tp).max(1.0) * head;
    let dense = 3.0 * d * f64::from(model.dense_width()) / tp;
    let (mlps, router) = match model.moe {
        None => (layers * 3.0 * d * f64::from(model.intermediate_size) / tp, 0.0),
        Some(moe) => {
            let experts = f64::from(moe.num_experts);
            let routed = 3.0 * d * f64::from(model.expert_width()) * experts / (tp * dp);
            let shared = 3.0 * d * f64::from(moe.shared_intermediate_size) / tp;
            let dense_layers = f64::from(moe.first_k_dense_replace.min(model.num_hidden_layers));
            (dense_layers * dense + (layers - dense_layers) * (routed + shared), layers * experts * d)
        }
    };
    let tables = if model.tie_word_embeddings { 1.0 } else { 2.0 };
    let vocabulary = tables * f64::from(model.vocab_size) * d / tp;
    (layers * attention + mlps) * model.weight_bytes
        + (vocabulary + router + layers * 2.0 * d + d) * model.dtype_bytes.max(model.weight_bytes)
}

/// Bytes that one GPU caches per token. Latent attention (MLA) caches one vector per layer on every GPU; a KV head is
/// never divided.
#[must_use]
pub fn kv_bytes_per_token(model: &ModelConfig, tensor: u32) -> f64 {
    let layers = f64::from(model.num_hidden_layers);
    match model.mla {
        Some(mla) => layers * (f64::from(mla.kv_lora_rank) + f64::from(mla.qk_rope_head_dim)) * model.kv_dtype_bytes,
        None => {
            let heads = (f64::from(model.num_key_value_heads) / f64::from(tensor)).max(1.0);
            layers * 2.0 * head_dim(model) * heads * model.kv_dtype_bytes
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Mla;
    use crate::model::samples::{llama_8b, qwen_moe};

    /// H100, and the limits of the measured deployments.
    const PROFILE: MemoryProfile = MemoryProfile {
        usable_gib: 79.2,
        budget: MemoryBudget { utilization: 0.9, reserved_gib: 0.0 },
        max_num_seqs: 128,
        max_num_batched_tokens: 2048,
        multimodal: false,
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

    #[test]
    fn a_model_that_does_not_fit_names_the_gpus_that_it_needs() {
        let model = ModelConfig { num_hidden_layers: 400, ..llama_8b() };
        let error = blocks(&model, 1, 1).unwrap_err();
        let CapacityError::DoesNotFit { minimum_gpus: Some(minimum), .. } = error else { panic!("{error:?}") };
        let minimum = u32::try_from(minimum).unwrap();
        assert!(blocks(&model, minimum, 1).is_ok() && blocks(&model, minimum / 2, 1).is_err(), "{minimum}");
    }
}
