//! Models that list each of their layers by its contents (`block_configs`: Nemotron Super and Ultra, `DeciLM`).

use blis_diag::Diagnostic;
use blis_sim::architecture::{Attention, Heads, Mlp};
use blis_sim::model::ModelConfig;
use serde_json::Value;

/// The layers of `block_configs`; sets the KV heads and MLP width that such a config leaves null to the largest of its
/// layers.
pub(super) fn of_blocks(blocks: &Value, model: &mut ModelConfig) -> Result<Vec<(u32, Attention, Mlp)>, Diagnostic> {
    let list = blocks.as_array().ok_or_else(|| Diagnostic::new("`block_configs` is no list"))?;
    if list.len() as u64 != u64::from(model.num_hidden_layers) {
        let what = format!(
            "`block_configs` has {} entries, and `num_hidden_layers` is {}",
            list.len(),
            model.num_hidden_layers
        );
        return Err(Diagnostic::new(what).hint("it lists every layer"));
    }
    let mut layers = Vec::with_capacity(list.len());
    for (layer, block) in list.iter().enumerate() {
        let part = |name: &str| {
            let missing = || Diagnostic::new(format!("`block_configs[{layer}].{name}` is missing"));
            block.get(name).filter(|part| part.is_object()).ok_or_else(missing)
        };
        layers.push((1, attention(part("attention")?, layer, model)?, mlp(part("ffn")?, layer, model.hidden_size)?));
    }
    let heads = layers.iter().filter_map(|(_, attention, _)| match attention {
        Attention::Heads(heads) => Some(heads.kv),
        _ => None,
    });
    model.num_key_value_heads = heads.max().unwrap_or(model.num_attention_heads);
    let widths = layers.iter().filter_map(|(.., mlp)| match mlp {
        Mlp::Dense { width } => Some(*width),
        _ => None,
    });
    model.intermediate_size = widths.max().unwrap_or(0).max(model.intermediate_size);
    Ok(layers)
}

fn is_set(part: &Value, key: &str) -> bool {
    part.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn attention(part: &Value, layer: usize, model: &ModelConfig) -> Result<Attention, Diagnostic> {
    const UNKNOWN: [&str; 4] = ["window_length", "num_sink_tokens", "sparsify", "unshifted_sink"];
    let unknown = |key: &&&str| part.get(**key).is_some_and(|value| !value.is_null() && value.as_bool() != Some(false));
    if let Some(key) = UNKNOWN.iter().find(unknown) {
        return Err(Diagnostic::new(format!("`block_configs[{layer}].attention.{key}` is not modelled")));
    }
    if is_set(part, "no_op") {
        return Ok(Attention::None);
    }
    if is_set(part, "replace_with_linear") {
        return Ok(Attention::Matrix);
    }
    let group = part.get("n_heads_in_group").and_then(Value::as_u64).and_then(|group| u32::try_from(group).ok());
    let Some(group) = group.filter(|group| (1..=model.num_attention_heads).contains(group)) else {
        let what = format!("`block_configs[{layer}].attention.n_heads_in_group` is missing or not from 1 to the heads");
        return Err(Diagnostic::new(what));
    };
    Ok(match model.uniform_attention() {
        Attention::Heads(heads) => Attention::Heads(Heads { kv: model.num_attention_heads / group, ..heads }),
        other => other,
    })
}

/// The width of an MLP is `ffn_mult · 2/3 · hidden_size`, up to the next multiple of 256 (`_ffn_mult_to_intermediate_size`
/// of the model's class).
fn mlp(part: &Value, layer: usize, hidden: u32) -> Result<Mlp, Diagnostic> {
    if is_set(part, "no_op") {
        return Ok(Mlp::None);
    }
    if is_set(part, "replace_with_linear") {
        return Ok(Mlp::Matrix);
    }
    let multiple = part.get("ffn_mult").and_then(Value::as_f64).filter(|multiple| *multiple > 0.0 && *multiple < 1e3);
    let Some(multiple) = multiple else {
        return Err(Diagnostic::new(format!("`block_configs[{layer}].ffn.ffn_mult` is missing or no number above 0")));
    };
    let width = (2.0 * multiple * f64::from(hidden) / 3.0) as u64;
    match u32::try_from(width.div_ceil(256) * 256) {
        Ok(width) => Ok(Mlp::Dense { width }),
        Err(_) => Err(Diagnostic::new(format!("`block_configs[{layer}].ffn.ffn_mult` is too large"))),
    }
}
