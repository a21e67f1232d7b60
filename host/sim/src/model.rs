//! The properties of a model and a GPU that the formulas use: numbers, already read and named.
//!
//! Other crates read them from `config.json` and hardware files.

/// Architecture of a transformer. The names are those of Hugging Face's `config.json`.
///
/// Rules for reading it: BLIS f90a1e3a, `engine.md` §4.1.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Number of transformer layers (`num_hidden_layers`).
    pub num_hidden_layers: u32,
    /// Width of the residual stream (`hidden_size`).
    pub hidden_size: u32,
    /// Number of query heads (`num_attention_heads`).
    pub num_attention_heads: u32,
    /// Number of KV heads (`num_key_value_heads`); equal to the query heads without grouping.
    pub num_key_value_heads: u32,
    /// Width of one head, if the config has it; otherwise it is `hidden_size / num_attention_heads`.
    pub head_dim: Option<u32>,
    /// Rows of the embedding (`vocab_size`).
    pub vocab_size: u32,
    /// Width of the MLP (`intermediate_size`).
    pub intermediate_size: u32,
    /// Width of the MLP of dense layers, where it differs (`intermediate_size_mlp`, Llama 4).
    pub dense_intermediate_size: Option<u32>,
    /// MLP activation (`hidden_act`); empty if the config has none.
    pub hidden_act: String,
    /// Whether input and output embedding are one matrix (`tie_word_embeddings`).
    pub tie_word_embeddings: bool,
    /// Bytes of an activation (`torch_dtype`): 1, 2 or 4.
    pub dtype_bytes: f64,
    /// Bytes of a cached KV element: [`Self::dtype_bytes`], or 1 for a cache in FP8.
    pub kv_dtype_bytes: f64,
    /// Bytes of a stored weight: below `dtype_bytes` for quantised models (0.5, 1, …).
    pub weight_bytes: f64,
    /// Mixture of experts; `None` for a dense model.
    pub moe: Option<Moe>,
    /// Whether the config describes a mixture of experts without the number of experts.
    pub moe_without_expert_count: bool,
    /// Multi-head latent attention; `None` for ordinary attention.
    pub mla: Option<Mla>,
    /// Context length of the model, tokens: `max_position_embeddings`, scaled by `rope_scaling`.
    pub max_model_len: Option<u64>,
}

/// The experts of a mixture-of-experts model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moe {
    /// Routed experts per layer, at least 2.
    pub num_experts: u32,
    /// Number of experts that each token visits (`num_experts_per_tok`); 0 if the config has none.
    pub num_experts_per_tok: u32,
    /// Width of one expert (`moe_intermediate_size`), where it differs from `intermediate_size`.
    pub moe_intermediate_size: Option<u32>,
    /// Width of the shared experts together; 0 if there are none.
    pub shared_intermediate_size: u32,
    /// `interleave_moe_layer_step`: BLIS counts one layer in `step + 1` as MoE. 0: every layer.
    pub interleave_moe_layer_step: u32,
    /// Leading dense layers (`first_k_dense_replace`). The KV capacity considers them, step times do not.
    pub first_k_dense_replace: u32,
}

/// Multi-head latent attention: the vectors that are cached per token instead of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mla {
    /// Width of the compressed KV vector (`kv_lora_rank`), at least 1.
    pub kv_lora_rank: u32,
    /// Width of the position-dependent part (`qk_rope_head_dim`).
    pub qk_rope_head_dim: u32,
}

impl ModelConfig {
    /// Number of layers with experts, as the step-time formulas count them.
    #[must_use]
    pub fn moe_layers(&self) -> u32 {
        match self.moe {
            None => 0,
            Some(moe) if moe.interleave_moe_layer_step == 0 => self.num_hidden_layers,
            Some(moe) => (u64::from(self.num_hidden_layers) / (u64::from(moe.interleave_moe_layer_step) + 1)) as u32,
        }
    }

    /// Width of an expert; in a dense model, of the MLP.
    #[must_use]
    pub fn expert_width(&self) -> u32 {
        self.moe.and_then(|moe| moe.moe_intermediate_size).unwrap_or(self.intermediate_size)
    }

    /// Width of the MLP of a dense layer.
    #[must_use]
    pub fn dense_width(&self) -> u32 {
        self.dense_intermediate_size.unwrap_or(self.intermediate_size)
    }
}

/// Performance and memory of one GPU, from its data sheet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpu {
    /// Dense FP16/BF16 tensor-core peak, TFLOPS.
    pub tflops_fp16: f64,
    /// Dense FP8 tensor-core peak, TFLOPS; 0 if the GPU has no FP8.
    pub tflops_fp8: f64,
    /// FP32 peak without tensor cores, TFLOPS; 0 if it is unknown.
    pub tflops_fp32: f64,
    /// Memory bandwidth, TB/s.
    pub hbm_tb_s: f64,
    /// Size of the memory, GiB.
    pub memory_gib: f64,
    /// Attainable share of the peak. Only the roofline model uses it.
    pub mfu: Option<Mfu>,
}

/// Model FLOPS utilisation: attainable share of a GPU's peak, in (0, 1].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mfu {
    /// Attainable share in prefill.
    pub prefill: f64,
    /// Attainable share in decode.
    pub decode: f64,
}

impl Gpu {
    /// Peak compute for weights of that many bytes, TFLOPS: the FP8 figure for exactly one byte if the GPU has one,
    /// otherwise FP16 (4-bit weights are computed in FP16). BLIS f90a1e3a, `engine.md` §4.2.
    #[must_use]
    pub fn peak_tflops(&self, weight_bytes: f64) -> f64 {
        if weight_bytes == 1.0 && self.tflops_fp8 > 0.0 { self.tflops_fp8 } else { self.tflops_fp16 }
    }

    /// Peak compute for activations of that many bytes, TFLOPS: FP32 for four if the figure is known, otherwise FP16.
    #[must_use]
    pub fn dense_tflops(&self, dtype_bytes: f64) -> f64 {
        if dtype_bytes == 4.0 && self.tflops_fp32 > 0.0 { self.tflops_fp32 } else { self.tflops_fp16 }
    }
}

/// How an engine instance is distributed over GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallelism {
    /// Tensor-parallel degree, at least 1.
    pub tensor: u32,
    /// Data-parallel degree (attention replicas that share experts), at least 1.
    pub data: u32,
}

#[cfg(test)]
pub(crate) mod samples {
    //! Models for tests, from their public configs.
    use super::*;

    /// Llama-3.1-8B, a dense model.
    pub fn llama_8b() -> ModelConfig {
        ModelConfig {
            num_hidden_layers: 32,
            hidden_size: 4096,
            num_attention_heads: 32,
            num_key_value_heads: 8,
            head_dim: None,
            vocab_size: 128_256,
            intermediate_size: 14_336,
            dense_intermediate_size: None,
            hidden_act: "silu".into(),
            tie_word_embeddings: false,
            dtype_bytes: 2.0,
            kv_dtype_bytes: 2.0,
            weight_bytes: 2.0,
            moe: None,
            moe_without_expert_count: false,
            mla: None,
            max_model_len: Some(131_072),
        }
    }

    /// Qwen3-30B-A3B: many small experts.
    pub fn qwen_moe() -> ModelConfig {
        ModelConfig {
            num_hidden_layers: 48,
            hidden_size: 2048,
            num_key_value_heads: 4,
            head_dim: Some(128),
            vocab_size: 151_936,
            intermediate_size: 6144,
            moe: Some(Moe {
                num_experts: 128,
                num_experts_per_tok: 8,
                moe_intermediate_size: Some(768),
                shared_intermediate_size: 0,
                interleave_moe_layer_step: 0,
                first_k_dense_replace: 0,
            }),
            ..llama_8b()
        }
    }

    /// Llama-4-Scout in FP8: interleaved experts, one-byte weights.
    pub fn scout_fp8() -> ModelConfig {
        ModelConfig {
            num_hidden_layers: 48,
            hidden_size: 5120,
            num_attention_heads: 40,
            head_dim: Some(128),
            vocab_size: 202_048,
            intermediate_size: 8192,
            dense_intermediate_size: Some(16_384),
            weight_bytes: 1.0,
            moe: Some(Moe {
                num_experts: 16,
                num_experts_per_tok: 1,
                moe_intermediate_size: None,
                shared_intermediate_size: 0,
                interleave_moe_layer_step: 1,
                first_k_dense_replace: 0,
            }),
            ..llama_8b()
        }
    }

    /// DeepSeek-V2-Lite: latent attention, shared experts, one dense layer.
    pub fn deepseek_lite() -> ModelConfig {
        ModelConfig {
            num_hidden_layers: 27,
            hidden_size: 2048,
            num_attention_heads: 16,
            num_key_value_heads: 16,
            vocab_size: 102_400,
            intermediate_size: 10_944,
            moe: Some(Moe {
                num_experts: 64,
                num_experts_per_tok: 6,
                moe_intermediate_size: Some(1408),
                shared_intermediate_size: 2816,
                interleave_moe_layer_step: 0,
                first_k_dense_replace: 1,
            }),
            mla: Some(Mla { kv_lora_rank: 512, qk_rope_head_dim: 64 }),
            ..llama_8b()
        }
    }

    /// The H100 of BLIS's hardware table.
    pub fn h100() -> Gpu {
        Gpu {
            tflops_fp16: 989.5,
            tflops_fp8: 1979.0,
            tflops_fp32: 67.0,
            hbm_tb_s: 3.35,
            memory_gib: 80.0,
            mfu: Some(Mfu { prefill: 0.45, decode: 0.30 }),
        }
    }
}
