//! The keys of a `config.json` by what they change: read, harmless, refused. Others are warned of if their name is about
//! attention, experts or precision.

use blis_diag::Diagnostic;
use blis_sim::model::ModelConfig;
use serde_json::{Map, Value};

use super::keys::shown;

/// Keys of layers that are not modelled, with what they describe: the config is refused.
const REFUSED: &[(&str, &str)] = &[
    ("ssm_cfg", "Mamba layers of its own kind"),
    ("state_size", "Mamba-1 layers"),
    ("attn_layer_period", "Mamba-1 layers (Jamba)"),
    ("block_types", "recurrent layers"),
    ("is_encoder_decoder", "an encoder beside the decoder"),
    ("recurrent_block_type", "recurrent layers"),
];

/// Keys of Mamba layers, and those that say which layers they are.
const MAMBA: [&str; 5] = ["mamba_d_state", "mamba_n_heads", "mamba_num_heads", "mamba_d_ssm", "ssm_state_size"];
const MAMBA_LISTS: [&str; 4] = ["layer_types", "layers_block_type", "hybrid_override_pattern", "attn_layer_indices"];

/// Keys of configs that other architectures have instead of the usual one: GPT-2, GPT-J, Bloom, Falcon, MPT, DBRX, OPT, T5, ChatGLM.
const FOREIGN: &[(&str, &[&str])] = &[
    ("num_hidden_layers", &["n_layer", "n_layers", "num_layers"]),
    ("hidden_size", &["n_embd", "n_embed", "d_model"]),
    ("num_attention_heads", &["n_head", "n_heads", "num_heads"]),
    ("num_key_value_heads", &["multi_query", "n_head_kv", "kv_n_heads", "attn_config"]),
    ("intermediate_size", &["n_inner", "ffn_dim", "d_ff", "expansion_ratio", "ffn_config"]),
    ("vocab_size", &["padded_vocab_size", "n_vocab"]),
];

/// Keys that are read here or in `model.rs`.
pub(super) const READ: &[&str] = &[
    "architectures",
    "model_type",
    "text_config",
    "vision_config",
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "num_kv_heads",
    "multi_query_group_num",
    "multi_query",
    "vocab_size",
    "intermediate_size",
    "ffn_hidden_size",
    "intermediate_size_mlp",
    "head_dim",
    "hidden_act",
    "tie_word_embeddings",
    "torch_dtype",
    "dtype",
    "quantization_config",
    "num_experts",
    "moe_num_experts",
    "n_routed_experts",
    "num_local_experts",
    "num_routed_experts",
    "num_experts_per_tok",
    "experts_per_token",
    "top_k_experts",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "shared_intermediate_size",
    "n_shared_experts",
    "interleave_moe_layer_step",
    "first_k_dense_replace",
    "decoder_sparse_step",
    "mlp_only_layers",
    "moe_layer_freq",
    "enable_moe_block",
    "kv_lora_rank",
    "q_lora_rank",
    "qk_rope_head_dim",
    "qk_nope_head_dim",
    "v_head_dim",
    "index_topk",
    "index_n_heads",
    "index_head_dim",
    "sliding_window",
    "sliding_window_pattern",
    "_sliding_window_pattern",
    "use_sliding_window",
    "max_window_layers",
    "attention_chunk_size",
    "no_rope_layers",
    "no_rope_layer_interval",
    "layer_types",
    "full_attention_interval",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
    "mamba_ssm_dtype",
    "attn_output_gate",
    "attention_k_eq_v",
    "global_head_dim",
    "num_global_key_value_heads",
    "num_kv_shared_layers",
    "block_configs",
    "llm_config",
    "language_config",
    "layers_block_type",
    "hybrid_override_pattern",
    "hybrid_layer_pattern",
    "attn_layer_indices",
    "attn_type_list",
    "linear_attn_config",
    "sparse_attention_config",
    "compress_ratios",
    "indexer_types",
    "index_topk_freq",
    "o_groups",
    "o_lora_rank",
    "hc_mult",
    "expert_dtype",
    "swa_num_attention_heads",
    "swa_num_key_value_heads",
    "swa_head_dim",
    "swa_v_head_dim",
    "sliding_window_size",
    "dense_intermediate_size",
    "routed_expert_hidden_size",
    "moe_layer_start_index",
    "moe_layer_end_index",
    "moe_layer_interval",
    "moe_layer_num_skipped",
    "use_cla",
    "cla_share_factor",
    "mla_use_output_gate",
    "n_groups",
    "conv_kernel",
    "ssm_state_size",
    "mamba_num_heads",
    "mamba_head_dim",
    "mamba_n_heads",
    "mamba_d_head",
    "mamba_d_state",
    "mamba_n_groups",
    "mamba_d_conv",
    "mamba_expand",
    "hidden_size_per_layer_input",
    "use_double_wide_mlp",
];

/// Keys with names about attention, experts or precision, and that change neither shapes nor work: training,
/// normalisation, scores, positions, and layers that only speculative decoding loads.
const HARMLESS: &[&str] = &[
    "attention_bias",
    "attention_dropout",
    "attn_dropout",
    "attn_pdrop",
    "attention_multiplier",
    "attention_out_bias",
    "attn_logit_softcapping",
    "attn_scale",
    "attn_temperature_tuning",
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "attn_factor",
    "floor_scale",
    "query_pre_attn_scalar",
    "use_bidirectional_attention",
    "output_attentions",
    "output_router_logits",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "router_z_loss_coef",
    "router_bias",
    "use_routing_bias",
    "routed_scaling_factor",
    "norm_topk_prob",
    "topk_method",
    "topk_group",
    "n_group",
    "num_expert_group",
    "topk_limited_groups",
    "scoring_func",
    "seq_aux",
    "aux_loss_alpha",
    "moe_router_enable_expert_bias",
    "moe_router_use_sigmoid",
    "moe_aux_loss_coeff",
    "expert_bias",
    "ep_size",
    "use_qk_norm",
    "qk_layernorm",
    "qk_norm",
    "qk_norm_type",
    "qk_head_dim",
    "qkv_bias",
    "use_qkv_bias",
    "clip_qkv",
    "mlp_bias",
    "mlp_dropout",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "norm_eps",
    "layerdrop",
    "layernorm_epsilon",
    "initial_context_length",
    "indexer_rope_interleave",
    "partial_rotary_factor",
    "head_dim_ratio",
    "num_nextn_predict_layers",
    "num_mtp_modules",
    "mtp_num_hidden_layers",
    "mtp_transformer_layers",
    "mtp_use_dedicated_embeddings",
    "mtp_loss_scaling_factor",
    "use_mtp",
    "num_hash_layers",
    "swa_rope_parameters",
    "layer_scale_init_value",
    "num_labels",
    "use_cache",
    "vision_feature_layer",
    // Rows of the embeddings per layer; their width is `hidden_size_per_layer_input`.
    "vocab_size_per_layer_input",
    "keep_in_fp32_modules",
    "embedding_multiplier",
    "cache_implementation",
    "unquantized",
    // Mamba-2: chunks of its kernels, biases, activations.
    "mamba_chunk_size",
    "chunk_size",
    "mamba_conv_bias",
    "use_conv_bias",
    "mamba_proj_bias",
    "mamba_hidden_act",
    "attention_value_scale",
    "add_swa_attention_sink_bias",
    "add_full_attention_sink_bias",
    "swa_rope_theta",
    "mla_use_nope",
    "use_mixed_mlp_moe",
    "moe_use_aux_free",
    "moe_gate_act",
    "moe_renormalize",
    "moe_router_activation_func",
    "moe_router_topk_scaling_factor",
    "use_grouped_topk",
    "attn_res_block_size",
    "mtp_hybrid_override_pattern",
    "mtp_layers_block_type",
    "num_attn_module",
    "do_layer_norm_before",
    "layernorm_embedding",
    "output_multiplier_scale",
    "logits_scaling",
    "final_logit_softcapping",
    "index_topk_pattern",
    "compress_rope_theta",
    "num_ln_in_parallel_attn",
    "activation_sparsity_pattern",
];

/// Parts of names that are about attention, experts or precision.
const WORDS: &[&str] = &[
    "attn",
    "attention",
    "window",
    "chunk",
    "sparse",
    "linear",
    "mamba",
    "ssm",
    "state",
    "conv",
    "kv",
    "head",
    "lora_rank",
    "compress",
    "expert",
    "moe",
    "router",
    "topk",
    "top_k",
    "mlp",
    "ffn",
    "layer",
    "quant",
    "bits",
    "index",
    "hybrid",
    "alibi",
    "cla_",
    "decoder_architecture",
    "mixture_of_depths",
    "mla",
    "multi_query",
    "recurrent",
];

/// Whether a value switches something on.
fn is_active(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Array(list) => !list.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(true) | Value::Object(_) => true,
    }
}

/// Refuses layers that are not modelled.
pub(super) fn refuse(keys: &Map<String, Value>) -> Result<(), Diagnostic> {
    let active = |key: &str| keys.get(key).filter(|value| is_active(value));
    let refused = |key: &str, value: &Value, describes: &str| {
        Err(Diagnostic::new(format!("`{key}` is {}: {describes}, which is not modelled", shown(value)))
            .hint("with coefficients of its own, a model needs no architecture: `--latency-model blackbox`"))
    };
    for (key, describes) in REFUSED {
        if let Some(value) = active(key) {
            return refused(key, value, describes);
        }
    }
    if MAMBA_LISTS.into_iter().any(|key| active(key).is_some()) {
        return Ok(());
    }
    match MAMBA.into_iter().find_map(|key| Some((key, active(key)?))) {
        None => Ok(()),
        Some((key, value)) => refused(key, value, "Mamba layers, and no list says which layers they are"),
    }
}

/// The usual keys that are absent and what the config has instead.
pub(crate) fn foreign_keys(keys: &Map<String, Value>) -> Vec<(&'static str, &'static str)> {
    let has = |key: &&str| keys.get(*key).is_some_and(is_active);
    let absent = FOREIGN.iter().filter(|(usual, _)| !has(usual));
    absent
        .flat_map(|(usual, others)| others.iter().filter(|other| has(other)).map(move |other| (*usual, *other)))
        .collect()
}

/// Refuses a config that has the number of KV heads under another key only, a single one for all query heads (`multi_query`) among them: each
/// query head would get its own.
pub(super) fn refuse_other_kv_heads(keys: &Map<String, Value>) -> Result<(), Diagnostic> {
    let active = |key: &str| keys.get(key).is_some_and(is_active);
    let one = ["num_key_value_heads", "multi_query_group_num"].into_iter().any(active);
    if let Some(groups) =
        keys.get("num_query_groups").filter(|groups| is_active(groups) && !one && !active("num_kv_heads"))
    {
        return Err(Diagnostic::new(format!("`num_key_value_heads` is missing, and `num_query_groups` is {groups}"))
            .hint(format!("add `\"num_key_value_heads\": {groups}` if each group of query heads shares one KV head")));
    }
    // Falcon's second architecture groups its heads and ignores `multi_query`.
    let grouped = active("new_decoder_architecture") && active("num_kv_heads");
    if !active("multi_query") || one || grouped {
        return Ok(());
    }
    Err(Diagnostic::new("`num_key_value_heads` is missing, and `multi_query` is true")
        .hint("add `\"num_key_value_heads\": 1`: all query heads share one KV head"))
}

/// Refuses KV heads that query heads cannot share evenly.
pub(super) fn refuse_uneven_heads(keys: &Map<String, Value>, model: &ModelConfig) -> Result<(), Diagnostic> {
    let (heads, kv) = (model.num_attention_heads, model.num_key_value_heads);
    if keys.get("kv_lora_rank").is_some_and(is_active) || kv == 0 || heads.is_multiple_of(kv) {
        return Ok(());
    }
    Err(Diagnostic::new(format!("`num_key_value_heads` is {kv}, and `num_attention_heads` is {heads}"))
        .hint("as many query heads share each KV head: the one must divide the other"))
}

/// Keys that describe layers only together with one of others.
const INCOMPLETE: [(&str, &[&str]); 2] = [
    ("index_topk", &["kv_lora_rank", "compress_ratios"]),
    ("full_attention_interval", &["linear_num_value_heads", "layer_types"]),
];

/// Warns of keys that may change attention, experts or precision and that are not read, or have no effect in this config.
pub(super) fn warn(keys: &Map<String, Value>, warnings: &mut Vec<String>) {
    let active = |key: &str| keys.get(key).is_some_and(is_active);
    for (key, with) in INCOMPLETE {
        if active(key) && !with.iter().any(|other| active(other)) {
            warnings.push(format!(
                "config.json: `{key}` has no effect without `{}`: all layers have full attention",
                with[0]
            ));
        }
    }
    let is_qwen = keys.get("model_type").and_then(Value::as_str).is_some_and(|kind| kind.starts_with("qwen"));
    if is_qwen
        && !active("layer_types")
        && ["sliding_window_pattern", "_sliding_window_pattern"].into_iter().any(active)
    {
        warnings.push(
            "config.json: `sliding_window_pattern` has no effect in Qwen's models: their layers with a window follow from `use_sliding_window` and \
             `max_window_layers`"
                .to_owned(),
        );
    }
    for (key, value) in keys {
        let known = || READ.contains(&key.as_str()) || HARMLESS.contains(&key.as_str());
        // Most keys are known, and looking for each word in a key takes the longest.
        let about = || WORDS.iter().any(|word| key.contains(word));
        if !known() && is_active(value) && about() && !is_of_another_modality(key) {
            warnings.push(format!(
                "config.json: `{key}` is not modelled: if it changes attention, experts or precision, times and KV blocks \
                 are wrong"
            ));
        }
    }
}

/// Whether a key belongs to images or sound, or is the number of a token.
fn is_of_another_modality(key: &str) -> bool {
    const OTHERS: [&str; 8] = ["vision", "image", "video", "audio", "mm_", "speech", "token_id", "token_index"];
    OTHERS.iter().any(|other| key.contains(other))
}
