//! The bytes per weight of each kind of matrix, from `quantization_config`.

use std::collections::{BTreeMap, BTreeSet};

use blis_diag::Diagnostic;
use blis_sim::architecture::{Attention, LayerGroup, MXFP4_BYTES, WeightBytes};
use blis_sim::model::ModelConfig;
use serde_json::{Map, Value};

use super::formats::{Format, group_size, of_algorithm};

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
    "quantized_layers",
    "moe_quant_algo",
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
    "load_in_4bit",
    "load_in_8bit",
    "_load_in_4bit",
    "_load_in_8bit",
    "bnb_4bit_compute_dtype",
    "bnb_4bit_quant_storage",
    "bnb_4bit_quant_type",
    "bnb_4bit_use_double_quant",
    "llm_int8_threshold",
];

/// The widths that differ from the model's own in its `quantization_config`, and notes about keys that are not understood.
/// `expert_dtype`: that of the config, which experts of DeepSeek-V4 have beside it; `groups`: the layers.
///
/// # Errors
/// If a format is not known.
pub(super) fn read(
    config: &Map<String, Value>,
    expert_dtype: &str,
    model: &ModelConfig,
    groups: &[LayerGroup],
    notes: &mut Vec<String>,
) -> Result<WeightBytes, Diagnostic> {
    for (key, value) in config {
        let active = !(value.is_null() || value.as_bool() == Some(false));
        if active && !UNDERSTOOD.contains(&key.as_str()) && !is_fp8_kv_cache(key, value) {
            notes.push(format!("config.json: `quantization_config.{key}` is not modelled"));
        }
    }
    let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or("");
    let mut weights = WeightBytes::default();
    if expert_dtype == "fp4" && !text("quant_method").is_empty() {
        weights.experts = Some(MXFP4_BYTES);
    }
    let modelopt = text("quant_method").starts_with("modelopt");
    match (text("quant_method"), text("quant_algo")) {
        // Only experts have this format (transformers: Mxfp4GptOssExperts; vLLM: Mxfp4MoEMethod).
        ("mxfp4", _) => weights.experts = Some(MXFP4_BYTES),
        (_, "MIXED_PRECISION") => {}
        (_, algorithm) if modelopt && of_algorithm(algorithm, None).is_ok_and(|format| format.bytes < 1.0) => {
            let bytes = Some(of_algorithm(algorithm, group_size(config))?.bytes);
            weights = WeightBytes {
                attention: bytes,
                linear: None,
                dense: bytes,
                experts: bytes,
                router: Some(model.dtype_bytes),
                output: Some(model.dtype_bytes),
            };
        }
        _ => {}
    }
    let listed: Vec<&str> =
        EXCEPTIONS.iter().filter_map(|key| config.get(*key)?.as_array()).flatten().filter_map(Value::as_str).collect();
    let of_experts_alone = config.contains_key("moe_quant_algo") && !modelopt;
    if !of_experts_alone {
        unconverted(&listed, model, groups, &mut weights);
    }
    if let Some(layers) = config.get("quantized_layers").and_then(Value::as_object) {
        mixed(layers, model, &mut weights)?;
    }
    Ok(weights)
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

/// The sum of the bytes per weight of some matrices, and their number.
#[derive(Clone, Copy, Default)]
struct ListedBytes {
    bytes: f64,
    matrices: f64,
}

/// `quantized_layers` of mixed precision: a format for each module that has one. Modules of a kind with several formats have the
/// mean of them. Where the list was cut (a last entry `…` counts the rest by format), formats that no listed module has are
/// those of the experts, which are most of the modules.
fn mixed(layers: &Map<String, Value>, model: &ModelConfig, weights: &mut WeightBytes) -> Result<(), Diagnostic> {
    let mut kinds: BTreeMap<WeightKind, ListedBytes> = BTreeMap::new();
    let mut formats: Vec<Format> = Vec::new();
    let mut cut: Option<&Value> = None;
    for (name, layer) in layers {
        if name.starts_with('…') {
            cut = layer.get("by_algorithm");
            continue;
        }
        let Some(format) = format_of(layer)? else { continue };
        formats.push(format);
        if let Some(kind) = WeightKind::from_entry(name).or_else(|| WeightKind::of_matrix(name)) {
            let listed = kinds.entry(kind).or_default();
            listed.bytes += format.bytes;
            listed.matrices += 1.0;
        }
    }
    for format in cut.and_then(Value::as_object).into_iter().flat_map(Map::keys) {
        let parsed: Option<Value> = serde_json::from_str(format).ok();
        let Some(format) = parsed.as_ref().map(format_of).transpose()?.flatten() else { continue };
        if !formats.contains(&format) && model.moe.is_some() && !kinds.contains_key(&WeightKind::Experts) {
            kinds.insert(WeightKind::Experts, ListedBytes { bytes: format.bytes, matrices: 1.0 });
        }
    }
    for (kind, listed) in kinds {
        *kind.class(weights) = Some(listed.bytes / listed.matrices);
    }
    Ok(())
}

/// The format of an entry of `quantized_layers`.
fn format_of(layer: &Value) -> Result<Option<Format>, Diagnostic> {
    let Some(layer) = layer.as_object() else { return Ok(None) };
    let Some(algorithm) = layer.get("quant_algo").and_then(Value::as_str) else { return Ok(None) };
    of_algorithm(algorithm, group_size(layer)).map(Some)
}

/// Gives the kinds of weights that are listed the model's own width. A kind is listed if an entry names it in every layer
/// (`model.layers.*.self_attn`, `re:.*self_attn.*`, `gate`), or entries name it in half of its layers or more. A list that was cut
/// (its last entry is `… N in all`) names in every layer what it names in one.
fn unconverted(listed: &[&str], model: &ModelConfig, groups: &[LayerGroup], weights: &mut WeightBytes) {
    let wide = Some(model.dtype_bytes);
    let cut = listed.iter().any(|entry| entry.starts_with('…'));
    let matrices = attention_by_matrix(listed);
    let entries: Vec<(WeightKind, &str)> =
        listed.iter().filter_map(|entry| Some((WeightKind::from_entry(entry)?, *entry))).chain(matrices).collect();
    for kind in WeightKind::ALL {
        let number = |entry: &str| entry.split('.').find_map(|part| part.parse::<u32>().ok());
        let numbers = || entries.iter().filter(|(other, _)| *other == kind).map(|(_, entry)| number(entry));
        let everywhere = numbers().any(|layer| layer.is_none());
        let layers: BTreeSet<u32> = numbers().flatten().collect();
        let few = cut || matches!(kind, WeightKind::Router | WeightKind::Output);
        let most = 2 * layers.len() as u64 >= kind.layers(model, groups);
        if everywhere || !layers.is_empty() && (few || most) {
            *kind.class(weights) = wide;
        }
    }
}

/// Attention as a whole where most of its matrices are listed one by one, in any layer: three of latent attention's five or of
/// the other's four.
fn attention_by_matrix<'a>(listed: &[&'a str]) -> Vec<(WeightKind, &'a str)> {
    let of_attention = |entry: &&&str| WeightKind::of_matrix(entry) == Some(WeightKind::Attention);
    let entries: Vec<&&str> = listed.iter().filter(of_attention).collect();
    let names: BTreeSet<&str> = entries.iter().filter_map(|entry| entry.rsplit('.').next()).collect();
    if names.len() < 3 {
        return Vec::new();
    }
    entries.into_iter().map(|entry| (WeightKind::Attention, *entry)).collect()
}

/// A kind of weights that a list of modules can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WeightKind {
    Output,
    Attention,
    Linear,
    Router,
    Experts,
    Dense,
}

impl WeightKind {
    const ALL: [Self; 6] = [Self::Output, Self::Attention, Self::Linear, Self::Router, Self::Experts, Self::Dense];

    fn class(self, weights: &mut WeightBytes) -> &mut Option<f64> {
        match self {
            Self::Output => &mut weights.output,
            Self::Attention => &mut weights.attention,
            Self::Linear => &mut weights.linear,
            Self::Router => &mut weights.router,
            Self::Experts => &mut weights.experts,
            Self::Dense => &mut weights.dense,
        }
    }

    /// Number of layers that have it.
    fn layers(self, model: &ModelConfig, groups: &[LayerGroup]) -> u64 {
        let counted = |has: &dyn Fn(&Attention) -> bool| {
            groups.iter().filter(|group| has(&group.attention)).map(|group| u64::from(group.count)).sum::<u64>()
        };
        match self {
            Self::Linear => counted(&|kind| matches!(kind, Attention::Linear(_))),
            Self::Attention => counted(&|kind| kind.attends() && !matches!(kind, Attention::Linear(_))),
            _ => u64::from(model.num_hidden_layers),
        }
    }

    /// Whether the entry is of another part of the model, or of what stays in its type in any case.
    fn is_outside(entry: &str) -> bool {
        ["vision", "visual", "norm", "mtp", "indexer", "conv1d"].iter().any(|part| entry.contains(part))
    }

    /// The last part of an entry that has a name.
    fn last(entry: &str) -> Option<&str> {
        let last = entry.rsplit(['.', '/']).find(|part| part.chars().any(|c| c.is_ascii_alphabetic()))?;
        Some(last.trim_start_matches('*'))
    }

    /// The kind that an entry names as a whole; `None` for norms, embeddings, encoders and single matrices of attention.
    fn from_entry(entry: &str) -> Option<Self> {
        if Self::is_outside(entry) {
            return None;
        }
        let last = Self::last(entry)?;
        if entry.contains("lm_head") || entry == "head" {
            Some(Self::Output)
        } else if last.starts_with("router")
            || matches!(last.trim_end_matches(['$', '*']), "gate" | "shared_expert_gate")
        {
            Some(Self::Router)
        } else if last.starts_with("linear_attn") || entry.contains("linear_attn.*") {
            Some(Self::Linear)
        } else if last.starts_with("self_attn") || last == "attn" || entry.contains("attn.*") {
            Some(Self::Attention)
        } else if entry.contains("shared_expert") || last.starts_with("mlp") || last.starts_with("feed_forward") {
            Some(Self::Dense)
        } else if last.starts_with("experts") {
            Some(Self::Experts)
        } else {
            None
        }
    }

    /// The kind that a single matrix belongs to.
    fn of_matrix(entry: &str) -> Option<Self> {
        if Self::is_outside(entry) {
            return None;
        }
        let last = Self::last(entry)?;
        let within = |part: &str| entry.split('.').any(|name| name == part);
        if within("experts") {
            Some(Self::Experts)
        } else if matches!(last, "in_proj" | "out_proj") && within("mixer") || within("linear_attn") {
            Some(Self::Linear)
        } else if within("self_attn") || within("attn") || within("mixer") && is_head_matrix(last) {
            Some(Self::Attention)
        } else if within("mlp") || within("mixer") || within("feed_forward") || within("shared_experts") {
            Some(Self::Dense)
        } else {
            None
        }
    }
}

fn is_head_matrix(name: &str) -> bool {
    matches!(name.trim_end_matches('*'), "q_proj" | "k_proj" | "v_proj" | "o_proj" | "qkv_proj")
}
