//! The properties of a model and a GPU that the formulas use: numbers, already read and named.
//!
//! Other crates read them from `config.json` and hardware files.

use crate::architecture::{
    Architecture, Attention, AttentionSpan, Heads, Latent, LayerGroup, Mlp, RoutedExperts, WeightBytes,
};
use crate::numbers::narrow;

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
    /// Whether the inputs of its 4-bit weights are rounded to 4 bits as well (NVFP4), so that GPUs with FP4 tensor cores use
    /// them; other 4-bit weights are converted to 16 bits first.
    pub fp4_activations: bool,
    /// Whether queries and keys of each head are normalised before attention (QK-Norm: Qwen 3, Gemma 3).
    pub qk_norm: bool,
    /// Mixture of experts; `None` for a dense model.
    pub moe: Option<Moe>,
    /// Whether the config describes a mixture of experts without the number of experts.
    pub moe_without_expert_count: bool,
    /// Multi-head latent attention; `None` for ordinary attention.
    pub mla: Option<Mla>,
    /// Context length of the model, tokens: `max_position_embeddings`, scaled by `rope_scaling`.
    pub max_model_len: Option<u64>,
    /// The layers by kind, where the fields above do not describe them; see [`ModelConfig::architecture`]. The formulas of
    /// BLIS do not read it.
    pub architecture: Option<Architecture>,
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
            Some(moe) => narrow(u64::from(self.num_hidden_layers) / (u64::from(moe.interleave_moe_layer_step) + 1)),
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

/// Layers that are listed one by one at most, where dense layers and layers with experts alternate.
const ALTERNATING_LAYERS: u32 = 4096;

impl ModelConfig {
    /// The layers by kind: those of the config where they differ, else equal ones, made of the other fields.
    ///
    /// Unlike in BLIS, leading dense layers have no experts, and experts are in every `interleave_moe_layer_step`-th
    /// layer: in all of Llama-4-Scout (1), in half of Maverick (2).
    #[must_use]
    pub fn architecture(&self) -> Architecture {
        if let Some(architecture) = &self.architecture {
            return architecture.clone();
        }
        let (layers, attention) = (self.num_hidden_layers, self.uniform_attention());
        let dense = Mlp::Dense { width: self.dense_width() };
        let weights = WeightBytes::default();
        let Some(moe) = self.moe else { return Architecture::of_layers([(layers, attention, dense)], weights) };
        let experts = Mlp::Experts(RoutedExperts {
            count: moe.num_experts,
            per_token: moe.num_experts_per_tok,
            width: self.expert_width(),
            shared_width: self.shared_width(),
            matrices: 3,
            latent: None,
        });
        let leading = moe.first_k_dense_replace.min(layers);
        let (rest, step) = (layers - leading, moe.interleave_moe_layer_step.max(1));
        let behind: Vec<(u32, Attention, Mlp)> = if rest <= ALTERNATING_LAYERS {
            (1..=rest).map(|layer| (1, attention, if layer % step == 0 { experts } else { dense })).collect()
        } else {
            vec![(rest - rest / step, attention, dense), (rest / step, attention, experts)]
        };
        Architecture::of_layers([(leading, attention, dense)].into_iter().chain(behind), weights)
    }

    /// The attention of every layer, by the fields of this type.
    #[must_use]
    pub fn uniform_attention(&self) -> Attention {
        let heads = self.num_attention_heads;
        let dim = self.head_dim.map_or(f64::from(self.hidden_size) / f64::from(heads), f64::from);
        match self.mla {
            None => Attention::Heads(Heads {
                queries: heads,
                kv: self.num_key_value_heads,
                dim,
                value_dim: dim,
                span: AttentionSpan::Full,
                gated: false,
                values_from_keys: false,
                reuses_kv: false,
                index: None,
            }),
            Some(Mla { kv_lora_rank, qk_rope_head_dim }) => {
                let head = self.head_dim.unwrap_or(self.hidden_size / heads.max(1));
                Attention::Latent(Latent {
                    heads,
                    kv_rank: kv_lora_rank,
                    rope_dim: qk_rope_head_dim,
                    nope_dim: head,
                    value_dim: head,
                    query_rank: None,
                    gated: false,
                    index: None,
                })
            }
        }
    }

    /// Width of the shared experts of a layer. Llama 4, the only architecture with an `intermediate_size_mlp`, has one
    /// that its config does not name, as wide as a routed one.
    #[must_use]
    pub fn shared_width(&self) -> u32 {
        let named = self.moe.map_or(0, |moe| moe.shared_intermediate_size);
        if self.dense_intermediate_size.is_some() && named == 0 { self.expert_width() } else { named }
    }

    /// Number of weights, all and those that one token uses: layers, embedding and output matrix; norms are left out, and
    /// so are the layers of speculative decoding and encoders of images.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        let architecture = self.architecture();
        let (d, others) = (f64::from(self.hidden_size), architecture.other_weights);
        let (mut total, mut active) = (0.0, 0.0);
        for LayerGroup { count, attention, mlp } in architecture.groups {
            let layers = f64::from(count);
            let always = attention.weights(d, 1.0) + mlp.always_used(d);
            let [every, used] = match mlp {
                Mlp::Experts(experts) => {
                    [experts.count, experts.per_token].map(|count| f64::from(count) * experts.expert_weights(d))
                }
                _ => [0.0; 2],
            };
            total += layers * (always + every);
            active += layers * (always + used);
        }
        let table = f64::from(self.vocab_size) * d;
        let tables = if self.tie_word_embeddings { table } else { 2.0 * table };
        Parameters { total: total + tables + others, active: active + tables + others }
    }
}

/// Number of weights of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// All of them.
    pub total: f64,
    /// Those that one token uses: of the experts, the ones that it visits.
    pub active: f64,
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
    /// Dense FP4 tensor-core peak, TFLOPS; 0 if the GPU has no FP4.
    pub tflops_fp4: f64,
    /// Memory bandwidth, TB/s.
    pub hbm_tb_s: f64,
    /// Size of the last-level cache, MB (10⁶ bytes); 0 if it is unknown.
    pub l2_mb: f64,
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
    use crate::architecture::{Linear, LinearKind};

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
            fp4_activations: false,
            qk_norm: false,
            moe: None,
            moe_without_expert_count: false,
            mla: None,
            max_model_len: Some(131_072),
            architecture: None,
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

    /// Gemma-4-26B-A4B: 25 layers with a sliding window and 5 without, and a dense MLP beside the experts.
    pub fn gemma_4() -> ModelConfig {
        let heads = |span, kv, dim| {
            let values_from_keys = span == AttentionSpan::Full;
            Attention::Heads(Heads {
                queries: 16,
                kv,
                dim,
                value_dim: dim,
                span,
                gated: false,
                values_from_keys,
                reuses_kv: false,
                index: None,
            })
        };
        let experts =
            RoutedExperts { count: 128, per_token: 8, width: 704, shared_width: 2112, matrices: 3, latent: None };
        let (local, global) = (heads(AttentionSpan::Window(1024), 8, 256.0), heads(AttentionSpan::Full, 2, 512.0));
        let layer = |layer| (1, if layer % 6 == 5 { global } else { local }, Mlp::Experts(experts));
        ModelConfig {
            num_hidden_layers: 30,
            hidden_size: 2816,
            num_attention_heads: 16,
            vocab_size: 262_144,
            intermediate_size: 2112,
            tie_word_embeddings: true,
            max_model_len: Some(262_144),
            architecture: Some(Architecture::of_layers((0..30).map(layer), WeightBytes::default())),
            ..llama_8b()
        }
    }

    /// Qwen3.5-35B-A3B: 30 layers of linear attention and 10 of full attention.
    pub fn qwen_3_5() -> ModelConfig {
        let linear = Attention::Linear(Linear {
            kind: LinearKind::GatedDelta,
            key_heads: 16,
            value_heads: 32,
            key_dim: 128,
            value_dim: 128,
            convolution: 4,
            state_element_bytes: 4.0,
        });
        let full = Attention::Heads(Heads {
            queries: 16,
            kv: 2,
            dim: 256.0,
            value_dim: 256.0,
            span: AttentionSpan::Full,
            gated: true,
            values_from_keys: false,
            reuses_kv: false,
            index: None,
        });
        let experts =
            RoutedExperts { count: 256, per_token: 8, width: 512, shared_width: 512, matrices: 3, latent: None };
        let layer = |layer| (1, if layer % 4 == 3 { full } else { linear }, Mlp::Experts(experts));
        ModelConfig {
            num_hidden_layers: 40,
            hidden_size: 2048,
            num_attention_heads: 16,
            num_key_value_heads: 2,
            head_dim: Some(256),
            vocab_size: 248_320,
            intermediate_size: 512,
            max_model_len: Some(262_144),
            architecture: Some(Architecture::of_layers((0..40).map(layer), WeightBytes::default())),
            ..llama_8b()
        }
    }

    /// The H100 of BLIS's hardware table.
    pub fn h100() -> Gpu {
        Gpu {
            tflops_fp16: 989.5,
            tflops_fp8: 1979.0,
            tflops_fp32: 67.0,
            tflops_fp4: 0.0,
            hbm_tb_s: 3.35,
            l2_mb: 50.0,
            memory_gib: 80.0,
            mfu: Some(Mfu { prefill: 0.45, decode: 0.30 }),
        }
    }
}
