//! The layers of a model by kind, from the keys of its `config.json`: windows, chunks, linear and latent attention, experts
//! in some layers, layers without attention, and the precision of each kind of weights.
//!
//! Which layer has which kind follows the model's class in `transformers` (rules beside each function). A key that changes
//! attention, experts or precision and that is not read is refused or warned of by name: [`known_keys`].

mod attentions;
#[cfg(test)]
mod checkpoints;
mod compressed;
mod families;
mod formats;
mod keys;
mod known_keys;
mod layers;
mod mlps;
mod precision;
mod states;
#[cfg(test)]
mod tests;

pub(crate) use families::normalise;
pub(crate) use formats::{has_fp4_activations, of_sidecar, weight_bytes};
pub(crate) use keys::absent;
pub(crate) use known_keys::foreign_keys;
pub(crate) use precision::is_fp8_kv_cache;

use blis_diag::Diagnostic;
use blis_sim::architecture::{Architecture, Attention, Mlp, WeightBytes};
use blis_sim::model::ModelConfig;
use serde_json::{Map, Value};

use self::attentions::LAYERS;
use self::keys::ArchitectureKeys;
use self::mlps::Mlps;

/// Sets [`ModelConfig::architecture`] if the layers of the model differ or are of a kind that the other fields do not
/// describe, and adds warnings about keys that are not modelled. `keys`: the config, those of `text_config` before the others.
///
/// # Errors
/// If a key has an invalid value, or describes layers that are not known.
pub(crate) fn read(
    keys: &Map<String, Value>,
    model: &mut ModelConfig,
    notes: &mut Vec<String>,
    warnings: &mut Vec<String>,
) -> Result<(), Diagnostic> {
    known_keys::refuse(keys)?;
    known_keys::refuse_other_kv_heads(keys)?;
    known_keys::refuse_uneven_heads(keys, model)?;
    known_keys::warn(keys, warnings);
    let keys = ArchitectureKeys(keys);
    model.qk_norm = has_qk_norm(keys)?;
    warnings.extend(mlps::doubtful_gate(keys, model));
    let mut architecture = match keys.get("block_configs") {
        Some(blocks) => Architecture::of_layers(layers::of_blocks(blocks, model)?, WeightBytes::default()),
        None => Architecture::of_layers(groups(keys, model)?, WeightBytes::default()),
    };
    architecture.other_weights = positions(keys, model)? + embeddings_per_layer(keys, model)?;
    if let Some(quantized) = keys.get("quantization_config").and_then(Value::as_object) {
        let expert_dtype = keys.text("expert_dtype");
        architecture.weights = precision::read(quantized, expert_dtype, model, &architecture.groups, notes)?;
    }
    if architecture != model.architecture() {
        model.architecture = Some(architecture);
    }
    Ok(())
}

/// The layers, equal ones together if all are equal.
fn groups(keys: ArchitectureKeys<'_>, model: &ModelConfig) -> Result<Vec<(u32, Attention, Mlp)>, Diagnostic> {
    let layers = model.num_hidden_layers;
    let mlps = Mlps::read(keys, model)?;
    if let Some(mixers) = states::mixers(keys, layers)? {
        let full = attentions::full(keys, model)?;
        return states::of_mixers(&mixers, keys, model, full, mlps.dense, mlps.experts);
    }
    let attention = attentions::read(keys, model)?;
    let mlp = mlps.of_layers(keys, model)?;
    let differs = attention.differs() || mlp.differs();
    if differs && layers > LAYERS {
        let what = format!("`num_hidden_layers` is {layers}");
        return Err(Diagnostic::new(what).hint(format!("layers of several kinds are read up to {LAYERS}")));
    }
    let of_layer = |count, layer| Some((count, attention.of_layer(layer)?, mlp.of_layer(layer)?));
    Ok(if differs {
        (0..layers).filter_map(|layer| of_layer(1, layer)).collect()
    } else {
        of_layer(layers, 0).into_iter().collect()
    })
}

/// Weights of learned positions: OPT has two rows more than tokens (`OPTLearnedPositionalEmbedding`).
fn positions(keys: ArchitectureKeys<'_>, model: &ModelConfig) -> Result<f64, Diagnostic> {
    if keys.text("model_type") != "opt" {
        return Ok(0.0);
    }
    let rows = keys.number("max_position_embeddings")?.unwrap_or(0).saturating_add(2);
    Ok(f64::from(rows) * f64::from(model.hidden_size))
}

/// Weights of the embeddings that each layer of small Gemma 3n and 4 adds (`Gemma3nTextModel`): a table with a row for every layer and
/// word, a matrix that makes such rows of the hidden states, and two matrices in each layer.
fn embeddings_per_layer(keys: ArchitectureKeys<'_>, model: &ModelConfig) -> Result<f64, Diagnostic> {
    let Some(width) = keys.positive("hidden_size_per_layer_input")? else { return Ok(0.0) };
    let words = keys.positive("vocab_size_per_layer_input")?.unwrap_or(model.vocab_size);
    let of_layer = f64::from(words) + 3.0 * f64::from(model.hidden_size);
    Ok(f64::from(model.num_hidden_layers) * f64::from(width) * of_layer)
}

/// Whether queries and keys of each head are normalised: a flag of the config, or all models of the type (vLLM's
/// `qwen3.py`, `gemma3.py`, `olmo2.py`, `exaone4.py`).
fn has_qk_norm(keys: ArchitectureKeys<'_>) -> Result<bool, Diagnostic> {
    const TYPES: [&str; 6] = ["qwen3", "gemma3", "gemma4", "olmo2", "olmo3", "exaone4"];
    for key in ["use_qk_norm", "qk_norm", "qk_layernorm"] {
        if let Some(flag) = keys.flag(key)? {
            return Ok(flag);
        }
    }
    Ok(TYPES.iter().any(|kind| keys.text("model_type").starts_with(kind)))
}
