//! The number of KV blocks that fit beside the weights of a group of GPUs as BLIS computes it, and the longest request that
//! fits them. What vLLM finds on one GPU is [`crate::memory`].
//!
//! Formulas: BLIS f90a1e3a (`engine.md` §4.5). Everything is computed in `f64`, which is exact for real models (all
//! products stay below 2^53) and cannot overflow on absurd ones.

use thiserror::Error;

use crate::kv::pages::MixedPages;
use crate::limits;
use crate::model::{Gpu, ModelConfig, Parallelism};
use crate::numbers::truncated;

const GIB: f64 = 1_073_741_824.0;

/// Peak activation memory that BLIS reserves, GiB: dense and mixture-of-experts models.
const ACTIVATION_GIB: f64 = 5.5;
const MOE_ACTIVATION_GIB: f64 = 8.0;

/// Memory taken by CUDA context, graphs and NCCL, GiB per GPU: alone, and in a tensor-parallel group.
const RUNTIME_GIB: f64 = 0.15;
const RUNTIME_TP_GIB: f64 = 0.6;

/// Activations of MLPs with three matrices (gate, up, down), as counted by the weight formula.
const GATED_ACTIVATIONS: [&str; 5] = ["silu", "swiglu", "geglu", "situ", ""];

/// The KV capacity cannot be computed, or is zero.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("{}\nhint: {}", self.what(), self.hint())]
pub enum CapacityError {
    /// Weights and activations leave no memory for the KV cache.
    DoesNotFit {
        /// Weights, activations and runtime, GiB, over all GPUs of the group.
        needed_gib: f64,
        /// Usable memory of the group, GiB.
        available_gib: f64,
        /// Number of GPUs in the group.
        gpus: u32,
        /// The smallest group that holds weights and activations; `None` if no group does.
        minimum_gpus: Option<u64>,
    },
    /// There is free memory, but less than one block.
    BlockTooLarge {
        /// Size of a block, tokens.
        block_size: u32,
        /// Size of a block on one GPU, GiB.
        block_gib: f64,
        /// Memory left for the cache, GiB.
        free_gib: f64,
    },
    /// The weight formula counts three matrices per MLP; this activation has two.
    UnknownActivation {
        /// Activation in the config (`hidden_act`).
        activation: String,
    },
    /// KV heads cannot be split evenly over the GPUs.
    KvHeadsNotDivisible {
        /// Number of KV heads of the model.
        kv_heads: u32,
        /// Tensor-parallel degree (number of GPUs).
        tensor: u32,
    },
    /// The head width is no integer, and the config has no `head_dim`.
    HeadDimUnknown {
        /// Width of the model (`hidden_size`).
        hidden_size: u32,
        /// Number of query heads of the model.
        heads: u32,
    },
    /// A number is zero by which the formula divides, or multiplies everything.
    Missing {
        /// Its name in `config.json`, in the hardware file, or among the options.
        field: &'static str,
    },
    /// The weights of a mixture of experts of unknown size cannot be computed.
    ExpertCountUnknown,
    /// The KV pages of its layers cannot share a pool.
    Pages(MixedPages),
}

impl CapacityError {
    /// The message without its hint.
    #[must_use]
    pub fn what(&self) -> String {
        match self {
            Self::DoesNotFit { needed_gib, available_gib, gpus, .. } => format!(
                "the model does not fit: it needs {needed_gib:.1} GiB, and {gpus} GPU(s) offer {available_gib:.1} GiB"
            ),
            Self::BlockTooLarge { block_size, block_gib, free_gib } => format!(
                "one KV block of {block_size} tokens takes {}, and {} are free for the cache",
                memory_text(*block_gib),
                memory_text(*free_gib)
            ),
            Self::UnknownActivation { activation } => format!(
                "the weights of a model with activation `{activation}` are unknown: only gated MLPs (silu, swiglu, geglu, situ) \
                 are supported"
            ),
            Self::KvHeadsNotDivisible { kv_heads, tensor } => {
                format!("{kv_heads} KV heads cannot be split over tensor parallel size {tensor}")
            }
            Self::HeadDimUnknown { hidden_size, heads } => format!(
                "`hidden_size` {hidden_size} is no multiple of `num_attention_heads` {heads}, and the config has no \
                 `head_dim`"
            ),
            Self::Missing { field } => format!("`{field}` is missing or zero"),
            Self::Pages(error) => error.to_string(),
            Self::ExpertCountUnknown => {
                "the config describes a mixture of experts, but not how many experts it has".into()
            }
        }
    }

    /// The hint: what to change.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::DoesNotFit { minimum_gpus, .. } => at_least(*minimum_gpus),
            Self::BlockTooLarge { .. } => "choose a smaller `--block-size-in-tokens`; 16 is usual".into(),
            Self::UnknownActivation { .. } => "set `--total-kv-blocks`".into(),
            Self::KvHeadsNotDivisible { kv_heads, .. } => {
                format!("choose a `--tensor-parallel-size` that divides {kv_heads}")
            }
            Self::HeadDimUnknown { .. } => "correct the config, or set `--total-kv-blocks`".into(),
            Self::Missing { .. } => "correct the file or the flag that sets it".into(),
            Self::Pages(_) => {
                "choose another `--block-size` or `--prefix-match-unit`, or set `--total-kv-blocks`".into()
            }
            Self::ExpertCountUnknown => "add `num_experts` to the config, or set `--total-kv-blocks`".into(),
        }
    }
}

fn memory_text(gib: f64) -> String {
    if gib < 0.1 { format!("{:.3} MiB", gib * 1024.0) } else { format!("{gib:.1} GiB") }
}

fn at_least(gpus: Option<u64>) -> String {
    gpus.map_or_else(
        || "no number of these GPUs is enough; choose larger ones, or raise `--gpu-memory-utilization`".into(),
        |n| format!("use at least {n} GPUs (`--tensor-parallel-size {}`)", n.next_power_of_two()),
    )
}

/// The memory that an instance may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryBudget {
    /// Share of each GPU's memory given to the engine, in (0, 1] (`--gpu-memory-utilization`).
    pub utilization: f64,
    /// Further memory set aside (adapters), GiB over the group.
    pub reserved_gib: f64,
}

/// KV blocks of `block_size` tokens that fit beside the weights, over all data-parallel ranks.
///
/// # Errors
/// If no memory is left for the cache, or the size of the weights cannot be computed.
pub fn kv_blocks(
    model: &ModelConfig,
    gpu: &Gpu,
    parallelism: Parallelism,
    block_size: u32,
    budget: MemoryBudget,
) -> Result<u64, CapacityError> {
    check(model, gpu.memory_gib, parallelism, block_size)?;
    if !GATED_ACTIVATIONS.contains(&model.hidden_act.as_str()) {
        return Err(CapacityError::UnknownActivation { activation: model.hidden_act.clone() });
    }
    let tp = f64::from(parallelism.tensor);
    let per_block = (kv_bytes_per_token(model, tp) * f64::from(block_size)).trunc();
    if per_block < 1.0 {
        return Err(CapacityError::Missing { field: "num_key_value_heads" });
    }

    let weights_gib = (parameters(model) * model.weight_bytes).trunc() / GIB;
    let activation_gib = if model.moe.is_some() { MOE_ACTIVATION_GIB } else { ACTIVATION_GIB };
    let runtime_gib = if parallelism.tensor == 1 { RUNTIME_GIB } else { RUNTIME_TP_GIB };
    let overhead_gib = weights_gib + activation_gib + runtime_gib * tp + budget.reserved_gib;
    let usable_per_gpu = gpu.memory_gib * budget.utilization;
    let available_gib = usable_per_gpu * tp;
    let blocks = (((available_gib - overhead_gib) * GIB).trunc() / per_block).floor();
    // If not even this many tokens fit the cache, the memory is too small, not the block too large.
    const SMALL_BLOCK: f64 = 256.0;
    let free_gib = available_gib - overhead_gib;
    let fits_small_blocks = free_gib * GIB >= per_block / f64::from(block_size) * SMALL_BLOCK;
    if blocks < 1.0 && fits_small_blocks {
        return Err(CapacityError::BlockTooLarge { block_size, block_gib: per_block / GIB, free_gib });
    }
    if overhead_gib >= available_gib || blocks < 1.0 {
        let spread = usable_per_gpu - RUNTIME_TP_GIB;
        let load = weights_gib + activation_gib + budget.reserved_gib;
        return Err(CapacityError::DoesNotFit {
            needed_gib: overhead_gib,
            available_gib,
            gpus: parallelism.tensor,
            minimum_gpus: (spread > 0.0 && load / spread <= limits::GPUS)
                .then(|| truncated((load / spread).ceil()).max(u64::from(parallelism.tensor) + 1)),
        });
    }
    let ranks = if model.moe.is_some() { u64::from(parallelism.data) } else { 1 };
    Ok(truncated(blocks).saturating_mul(ranks))
}

/// Bytes that a KV block of `block_size` tokens takes on each of `tensor` GPUs; `None` if the config of the model does not
/// say it.
#[must_use]
pub fn block_bytes(model: &ModelConfig, tensor: u32, block_size: u32) -> Option<u64> {
    if model.num_attention_heads == 0 || tensor == 0 {
        return None;
    }
    let bytes = truncated(kv_bytes_per_token(model, f64::from(tensor)) * f64::from(block_size));
    (bytes > 0).then_some(bytes)
}

/// The longest request (prompt and output, tokens) that a cache of that size can hold: `model_len`, limited to the
/// cache if it needs more blocks than there are. BLIS f90a1e3a, `engine.md` §4.5.
#[must_use]
pub fn max_model_len(model_len: u64, total_blocks: u64, block_size: u32) -> u64 {
    if model_len.div_ceil(u64::from(block_size.max(1))) > total_blocks {
        total_blocks * u64::from(block_size)
    } else {
        model_len
    }
}

/// Refuses what the formulas cannot compute.
pub(crate) fn check(
    model: &ModelConfig,
    memory_gib: f64,
    parallelism: Parallelism,
    block_size: u32,
) -> Result<(), CapacityError> {
    let nonzero = [
        ("num_hidden_layers", f64::from(model.num_hidden_layers)),
        ("hidden_size", f64::from(model.hidden_size)),
        ("num_attention_heads", f64::from(model.num_attention_heads)),
        ("num_key_value_heads", f64::from(model.num_key_value_heads)),
        ("intermediate_size", f64::from(model.intermediate_size)),
        ("vocab_size", f64::from(model.vocab_size)),
        ("torch_dtype", model.dtype_bytes),
        ("memory_gib", memory_gib),
        ("tensor_parallel_size", f64::from(parallelism.tensor)),
        ("block_size", f64::from(block_size)),
    ];
    if let Some(&(field, _)) = nonzero.iter().find(|(_, value)| *value <= 0.0) {
        return Err(CapacityError::Missing { field });
    }
    if model.moe_without_expert_count {
        return Err(CapacityError::ExpertCountUnknown);
    }
    let (kv_heads, tensor) = (model.num_key_value_heads, parallelism.tensor);
    if kv_heads >= tensor && !kv_heads.is_multiple_of(tensor) {
        return Err(CapacityError::KvHeadsNotDivisible { kv_heads, tensor });
    }
    let (hidden_size, heads) = (model.hidden_size, model.num_attention_heads);
    // The layers of a described architecture have widths of their own.
    if model.head_dim.is_none() && model.architecture.is_none() && !hidden_size.is_multiple_of(heads) {
        return Err(CapacityError::HeadDimUnknown { hidden_size, heads });
    }
    Ok(())
}

/// Width of a head: as in the config, or the integer quotient.
pub(crate) fn head_dim(model: &ModelConfig) -> f64 {
    f64::from(model.head_dim.unwrap_or(model.hidden_size / model.num_attention_heads))
}

/// Bytes that one GPU of the group caches per token. Latent attention caches one vector per layer, which is replicated
/// on every GPU; fewer KV heads than GPUs are divided nevertheless (optimistic, as in BLIS).
#[must_use]
pub fn kv_bytes_per_token(model: &ModelConfig, tp: f64) -> f64 {
    let layers = f64::from(model.num_hidden_layers);
    match model.mla {
        Some(mla) => layers * (f64::from(mla.kv_lora_rank) + f64::from(mla.qk_rope_head_dim)) * model.kv_dtype_bytes,
        None => layers * 2.0 * head_dim(model) * f64::from(model.num_key_value_heads) * model.kv_dtype_bytes / tp,
    }
}

/// Number of weights. In a mixture of experts, every layer after the first `first_k_dense_replace` is counted with
/// experts, interleaved or not.
fn parameters(model: &ModelConfig) -> f64 {
    let (layers, d) = (f64::from(model.num_hidden_layers), f64::from(model.hidden_size));
    let kv_width = f64::from(model.num_key_value_heads) * head_dim(model);
    let attention = d * (d + 2.0 * kv_width) + d * d;
    let mlp = match model.moe {
        None => layers * (3.0 * d * f64::from(model.intermediate_size)),
        Some(moe) => {
            let experts = f64::from(moe.num_experts);
            let layer = 3.0 * d * f64::from(model.expert_width()) * experts
                + 3.0 * d * f64::from(moe.shared_intermediate_size)
                + experts * d;
            let dense_layers = f64::from(moe.first_k_dense_replace.min(model.num_hidden_layers));
            dense_layers * (3.0 * d * f64::from(model.dense_width())) + (layers - dense_layers) * layer
        }
    };
    let embedding = f64::from(model.vocab_size) * d;
    let unembedding = if model.tie_word_embeddings { 0.0 } else { embedding };
    embedding + layers * (attention + 2.0 * d) + mlp + unembedding + d
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Moe;
    use crate::model::samples::{deepseek_lite, h100, llama_8b, qwen_moe, scout_fp8};

    const BUDGET: MemoryBudget = MemoryBudget { utilization: 0.9, reserved_gib: 0.0 };

    fn blocks(model: &ModelConfig, tensor: u32) -> Result<u64, CapacityError> {
        kv_blocks(model, &h100(), Parallelism { tensor, data: 1 }, 16, BUDGET)
    }

    #[test]
    fn published_capacities() {
        assert_eq!([1, 2, 4, 8].map(|tp| blocks(&llama_8b(), tp).unwrap()), [26_312, 125_278, 543_011, 2_255_841]);
        assert_eq!([1, 2, 4, 8].map(|tp| blocks(&deepseek_lite(), tp).unwrap()), [74_312, 227_391, 535_491, 1_151_692]);
        assert_eq!([2, 4, 8].map(|tp| blocks(&scout_fp8(), tp).unwrap()), [27_345, 249_660, 1_279_198]);
        let two_ranks = Parallelism { tensor: 2, data: 2 };
        assert_eq!(kv_blocks(&qwen_moe(), &h100(), two_ranks, 16, BUDGET), Ok(214_846));
    }

    #[test]
    fn the_error_of_a_too_large_model_names_the_gpus_that_it_needs() {
        let error = blocks(&scout_fp8(), 1).unwrap_err();
        assert!(matches!(error, CapacityError::DoesNotFit { minimum_gpus: Some(2), .. }), "{error:?}");
        insta::assert_snapshot!(error, @r"
        the model does not fit: it needs 102.9 GiB, and 1 GPU(s) offer 72.0 GiB
        hint: use at least 2 GPUs (`--tensor-parallel-size 2`)
        ");
        let tiny = Gpu { memory_gib: 0.5, ..h100() };
        let error = kv_blocks(&llama_8b(), &tiny, Parallelism { tensor: 1, data: 1 }, 16, BUDGET).unwrap_err();
        assert!(matches!(error, CapacityError::DoesNotFit { minimum_gpus: None, .. }), "{error:?}");
    }

    #[test]
    fn a_model_too_large_for_any_group_has_a_message_of_its_own() {
        let moe = Moe { num_experts: u32::MAX, ..qwen_moe().moe.expect("it has experts") };
        let model = ModelConfig { intermediate_size: u32::MAX, moe: Some(moe), ..qwen_moe() };
        let message = blocks(&model, 1).unwrap_err().to_string();
        assert!(
            message.ends_with(
                "hint: no number of these GPUs is enough; choose larger ones, or raise `--gpu-memory-utilization`"
            ),
            "{message}"
        );
    }

    #[test]
    fn models_of_unknown_size_are_refused() {
        let model = ModelConfig { hidden_act: "gelu".into(), ..llama_8b() };
        assert_eq!(blocks(&model, 1), Err(CapacityError::UnknownActivation { activation: "gelu".into() }));
        assert_eq!(blocks(&llama_8b(), 3), Err(CapacityError::KvHeadsNotDivisible { kv_heads: 8, tensor: 3 }));
        assert!(blocks(&llama_8b(), 16).is_ok(), "fewer KV heads than GPUs are accepted");
        let model = ModelConfig { hidden_size: 4097, ..llama_8b() };
        assert_eq!(blocks(&model, 1), Err(CapacityError::HeadDimUnknown { hidden_size: 4097, heads: 32 }));
        let model = ModelConfig { vocab_size: 0, ..llama_8b() };
        assert_eq!(blocks(&model, 1), Err(CapacityError::Missing { field: "vocab_size" }));
        let model = ModelConfig { moe_without_expert_count: true, ..llama_8b() };
        assert_eq!(blocks(&model, 1), Err(CapacityError::ExpertCountUnknown));
        let huge = kv_blocks(&llama_8b(), &h100(), Parallelism { tensor: 1, data: 1 }, 1 << 20, BUDGET).unwrap_err();
        insta::assert_snapshot!(huge, @r"
        one KV block of 1048576 tokens takes 128.0 GiB, and 51.4 GiB are free for the cache
        hint: choose a smaller `--block-size-in-tokens`; 16 is usual
        ");
    }

    #[test]
    fn context_is_limited_to_the_cache() {
        assert_eq!(max_model_len(131_072, 20_000, 16), 131_072);
        assert_eq!(max_model_len(131_072, 8192, 16), 131_072);
        assert_eq!(max_model_len(131_073, 8192, 16), 131_072);
        assert_eq!(max_model_len(131_072, 100, 16), 1600);
    }
}
