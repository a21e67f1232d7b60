//! Layers with a state of constant size: the gated delta rule, KDA, Mamba-2; and models of single mixers (Nemotron-H).

use blis_diag::Diagnostic;
use blis_sim::architecture::{Attention, Linear, LinearKind, Mlp};
use blis_sim::model::ModelConfig;
use serde_json::Value;

use super::keys::{ArchitectureKeys, check_length, invalid};

/// Bytes of an element of the state: those that the config names (vLLM's `--mamba-ssm-cache-dtype auto`), else `usual`.
fn element_bytes(keys: ArchitectureKeys<'_>, usual: f64) -> Result<f64, Diagnostic> {
    let Some(value) = keys.get("mamba_ssm_dtype") else { return Ok(usual) };
    match value.as_str() {
        Some("float32") => Ok(4.0),
        Some("bfloat16" | "float16") => Ok(2.0),
        Some("auto") => Ok(usual),
        _ => Err(invalid("mamba_ssm_dtype", value, "float32, bfloat16, float16 or auto")),
    }
}

/// Linear attention: KDA if the config has `linear_attn_config`, else the gated delta rule.
pub(super) fn linear(keys: ArchitectureKeys<'_>) -> Result<Attention, Diagnostic> {
    if let Some(delta) = keys.object("linear_attn_config")? {
        return kda(keys, delta);
    }
    let number = |key| keys.required(key, "linear attention");
    Ok(Attention::Linear(Linear {
        kind: LinearKind::GatedDelta,
        key_heads: number("linear_num_key_heads")?,
        value_heads: number("linear_num_value_heads")?,
        key_dim: number("linear_key_head_dim")?,
        value_dim: number("linear_value_head_dim")?,
        convolution: number("linear_conv_kernel_dim")?,
        state_element_bytes: element_bytes(keys, 2.0)?,
    }))
}

/// Kimi Delta Attention: as many heads of keys as of values, all of one width.
fn kda(keys: ArchitectureKeys<'_>, delta: ArchitectureKeys<'_>) -> Result<Attention, Diagnostic> {
    let number = |key| delta.required(key, "KDA (`linear_attn_config`)");
    let (heads, dim) = (number("num_heads")?, number("head_dim")?);
    Ok(Attention::Linear(Linear {
        kind: LinearKind::Kda {
            full_rank_gate: delta.flag("use_full_rank_gate")?.unwrap_or(false),
            flash: delta.get("gate_lower_bound").is_some(),
        },
        key_heads: heads,
        value_heads: heads,
        key_dim: dim,
        value_dim: dim,
        convolution: delta.positive("short_conv_kernel_size")?.unwrap_or(4),
        state_element_bytes: element_bytes(keys, 4.0)?,
    }))
}

/// Mamba-2 by the names of Nemotron-H, or by those of Granite 4 and Bamba. Its state has 32 bits in Nemotron-H (`NemotronHConfig`),
/// else those of the activations.
pub(super) fn mamba(keys: ArchitectureKeys<'_>, model: &ModelConfig) -> Result<Attention, Diagnostic> {
    let either = |first: &'static str, second: &'static str| match keys.positive(second)? {
        Some(number) => Ok(number),
        None => keys.required(first, "Mamba-2"),
    };
    let value_heads = either("mamba_num_heads", "mamba_n_heads")?;
    let value_dim = match keys.get("mamba_d_head") {
        // Bamba: what the expanded width leaves for each head.
        Some(Value::String(auto)) if auto == "auto" => {
            let expand = keys.positive("mamba_expand")?.unwrap_or(2);
            expand.saturating_mul(model.hidden_size) / value_heads
        }
        _ => either("mamba_head_dim", "mamba_d_head")?,
    };
    let usual = if keys.text("model_type").starts_with("nemotron_h") { 4.0 } else { model.dtype_bytes.clamp(1.0, 2.0) };
    Ok(Attention::Linear(Linear {
        kind: LinearKind::Mamba2,
        key_heads: either("n_groups", "mamba_n_groups")?,
        value_heads,
        key_dim: either("ssm_state_size", "mamba_d_state")?,
        value_dim,
        convolution: either("conv_kernel", "mamba_d_conv")?,
        state_element_bytes: element_bytes(keys, usual)?,
    }))
}

/// The one mixer of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mixer {
    Mamba,
    Attention,
    Experts,
    Mlp,
}

/// The mixers of a model with one per layer (Nemotron-H): `layers_block_type`, a list of names, or `hybrid_override_pattern`, a letter
/// per layer. `None`: a model of another kind.
pub(super) fn mixers(keys: ArchitectureKeys<'_>, layers: u32) -> Result<Option<Vec<Mixer>>, Diagnostic> {
    let mixers = if let Some(list) = keys.list("layers_block_type")? {
        check_length("layers_block_type", list.len(), layers)?;
        let named = |value: &Value| match value.as_str() {
            Some("mamba") => Ok(Mixer::Mamba),
            Some("attention") => Ok(Mixer::Attention),
            Some("moe") => Ok(Mixer::Experts),
            Some("mlp") => Ok(Mixer::Mlp),
            _ => Err(Diagnostic::new(format!("`layers_block_type`: layers of the kind {value} are not modelled"))
                .hint("known: mamba, attention, moe, mlp")),
        };
        list.iter().map(named).collect::<Result<_, _>>()?
    } else if let Some(pattern) = keys.get("hybrid_override_pattern") {
        let text = pattern.as_str().ok_or_else(|| invalid("hybrid_override_pattern", pattern, "a text"))?;
        check_length("hybrid_override_pattern", text.chars().count(), layers)?;
        let letter = |letter: char| match letter {
            'M' => Ok(Mixer::Mamba),
            '*' => Ok(Mixer::Attention),
            'E' => Ok(Mixer::Experts),
            '-' => Ok(Mixer::Mlp),
            other => {
                Err(Diagnostic::new(format!("`hybrid_override_pattern` has `{other}`, which is no kind of layer"))
                    .hint("M is Mamba-2, * attention, E experts, - a dense MLP"))
            }
        };
        text.chars().map(letter).collect::<Result<_, _>>()?
    } else {
        return Ok(None);
    };
    Ok(Some(mixers))
}

/// The parts of the layers: each has one mixer and nothing beside it.
pub(super) fn of_mixers(
    mixers: &[Mixer],
    keys: ArchitectureKeys<'_>,
    model: &ModelConfig,
    full: Attention,
    dense: Mlp,
    experts: Option<Mlp>,
) -> Result<Vec<(u32, Attention, Mlp)>, Diagnostic> {
    let mamba = if mixers.contains(&Mixer::Mamba) { mamba(keys, model)? } else { Attention::None };
    let of = |mixer: &Mixer| {
        Ok(match mixer {
            Mixer::Mamba => (1, mamba, Mlp::None),
            Mixer::Attention => (1, full, Mlp::None),
            Mixer::Mlp => (1, Attention::None, dense),
            Mixer::Experts => {
                let experts = experts.ok_or_else(|| {
                    Diagnostic::new("`n_routed_experts` is missing or below 2, and there are layers of experts")
                        .hint("copy it from the config on Hugging Face")
                })?;
                (1, Attention::None, experts)
            }
        })
    };
    mixers.iter().map(of).collect()
}
