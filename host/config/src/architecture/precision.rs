//! The bytes per weight of each kind of matrix, from `quantization_config`.

use blis_sim::architecture::{MXFP4_BYTES, WeightBytes};
use blis_sim::model::ModelConfig;
use serde_json::{Map, Value};

/// Bytes per weight in NVFP4: four bits, and a scale of eight bits for 16 weights.
const NVFP4_BYTES: f64 = 4.5 / 8.0;

/// Lists of modules that stay in 16 bits, by the quantisation method that writes them.
const EXCEPTIONS: [&str; 4] = ["modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules"];

/// Keys of `quantization_config` that change nothing else than what is read.
const UNDERSTOOD: &[&str] = &[
    "quant_method",
    "bits",
    "fmt",
    "format",
    "activation_scheme",
    "weight_block_size",
    "scale_fmt",
    "config_groups",
    "group_size",
    "sym",
    "desc_act",
    "static_groups",
    "true_sequential",
    "damp_percent",
    "zero_point",
    "version",
    "backend",
    "modules_to_not_convert",
    "ignore",
    "ignored_layers",
    "exclude_modules",
    "quant_algo",
    "producer",
    "quantization_status",
    "global_compression_ratio",
    "sparsity_config",
    "transform_config",
    "is_marlin_format",
    "checkpoint_format",
    "lm_head",
    "model_name_or_path",
    "dequantize",
];

/// The widths that differ from the model's own in its `quantization_config`, and notes about keys that are not understood.
pub(super) fn read(config: &Map<String, Value>, model: &ModelConfig, notes: &mut Vec<String>) -> WeightBytes {
    for (key, value) in config {
        let active = !(value.is_null() || value.as_bool() == Some(false));
        if active && !UNDERSTOOD.contains(&key.as_str()) && !is_fp8_kv_cache(key, value) {
            notes.push(format!("config.json: `quantization_config.{key}` is not modelled"));
        }
    }
    let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or("");
    let mut weights = WeightBytes::default();
    match (text("quant_method"), text("quant_algo")) {
        // Only experts have this format (transformers: Mxfp4GptOssExperts; vLLM: Mxfp4MoEMethod).
        ("mxfp4", _) => weights.experts = Some(MXFP4_BYTES),
        ("modelopt" | "modelopt_fp4", "NVFP4") => {
            weights = WeightBytes {
                attention: Some(NVFP4_BYTES),
                dense: Some(NVFP4_BYTES),
                experts: Some(NVFP4_BYTES),
                router: Some(model.dtype_bytes),
                output: Some(model.dtype_bytes),
            };
        }
        _ => {}
    }
    let listed: Vec<&str> =
        EXCEPTIONS.iter().filter_map(|key| config.get(*key)?.as_array()).flatten().filter_map(Value::as_str).collect();
    unconverted(&listed, model, &mut weights);
    weights
}

/// Whether this entry of `quantization_config` says that keys and values are cached in FP8: `kv_cache_scheme`
/// (compressed-tensors) or `kv_cache_quant_algo` (ModelOpt).
pub(crate) fn is_fp8_kv_cache(key: &str, value: &Value) -> bool {
    match key {
        "kv_cache_scheme" => value.get("num_bits").and_then(Value::as_u64) == Some(8),
        "kv_cache_quant_algo" => value.as_str() == Some("FP8"),
        _ => false,
    }
}

/// Gives the kinds of weights that are listed the model's own width. A kind is listed if an entry names it in every layer
/// (`model.layers.*.self_attn`, `re:.*self_attn.*`, `gate`), or entries name it in half of the layers or more.
fn unconverted(listed: &[&str], model: &ModelConfig, weights: &mut WeightBytes) {
    let wide = Some(model.dtype_bytes);
    let has = |kind: WeightKind| {
        let entries = || listed.iter().filter(|entry| WeightKind::from_entry(entry) == Some(kind));
        let of_one_layer = |entry: &&&str| entry.split('.').any(|part| part.parse::<u32>().is_ok());
        let everywhere = entries().any(|entry| !of_one_layer(&entry));
        let mut layers: Vec<&str> =
            entries().filter_map(|entry| entry.split('.').find(|part| part.parse::<u32>().is_ok())).collect();
        layers.sort_unstable();
        layers.dedup();
        let few = matches!(kind, WeightKind::Router | WeightKind::Output) && !layers.is_empty();
        everywhere || few || (!layers.is_empty() && 2 * layers.len() >= model.num_hidden_layers as usize)
    };
    for kind in [WeightKind::Output, WeightKind::Attention, WeightKind::Router, WeightKind::Experts, WeightKind::Dense]
    {
        if !has(kind) {
            continue;
        }
        match kind {
            WeightKind::Output => weights.output = wide,
            WeightKind::Attention => weights.attention = wide,
            WeightKind::Router => weights.router = wide,
            WeightKind::Experts => weights.experts = wide,
            WeightKind::Dense => weights.dense = wide,
        }
    }
}

/// A kind of weights that a list of exceptions can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WeightKind {
    Output,
    Attention,
    Router,
    Experts,
    Dense,
}

impl WeightKind {
    /// The kind that an entry names; `None` for norms, embeddings, encoders and single matrices of attention.
    fn from_entry(entry: &str) -> Option<Self> {
        if entry.contains("vision") || entry.contains("visual") || entry.contains("norm") || entry.contains("mtp") {
            return None;
        }
        let last = entry.rsplit(['.', '/']).find(|part| part.chars().any(|c| c.is_ascii_alphabetic()))?;
        if entry.contains("lm_head") {
            Some(Self::Output)
        } else if last.starts_with("router") || matches!(last.trim_end_matches('$'), "gate" | "shared_expert_gate") {
            Some(Self::Router)
        } else if last.starts_with("self_attn") || last.starts_with("linear_attn") || entry.contains("attn.*") {
            Some(Self::Attention)
        } else if entry.contains("shared_expert") || last.starts_with("mlp") || last.starts_with("feed_forward") {
            Some(Self::Dense)
        } else if last.starts_with("experts") {
            Some(Self::Experts)
        } else {
            None
        }
    }
}
