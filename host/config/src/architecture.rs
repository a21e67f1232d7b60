//! The layers of a model by kind, from the keys of its `config.json`: windows, chunks, linear and latent attention, experts
//! in some layers, layers without attention, and the precision of each kind of weights.
//!
//! Which layer has which kind follows the model's class in `transformers` (rules beside each function). A key that changes
//! attention, experts or precision and that is not read is refused or warned of by name: [`known_keys`].

mod known_keys;
mod layers;
mod precision;
#[cfg(test)]
mod tests;

pub(crate) use known_keys::foreign_keys;
pub(crate) use precision::is_fp8_kv_cache;

use blis_diag::Diagnostic;
use blis_sim::architecture::{
    Architecture, Attention, AttentionSpan, Heads, Index, Latent, Linear, Mlp, RoutedExperts,
};
use blis_sim::model::{Mla, ModelConfig};
use serde_json::{Map, Value};

/// Layers that can be of several kinds, at most.
const LAYERS: u32 = 4096;

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
    let quantized = keys.get("quantization_config").and_then(Value::as_object);
    let weights = quantized.map(|config| precision::read(config, model, notes)).unwrap_or_default();
    if let Some(blocks) = keys.get("block_configs") {
        return layers::of_blocks(blocks, model, weights);
    }
    let attention = Attentions::read(keys, model)?;
    let mlps = Mlps::read(keys, model)?;
    let architecture = if attention.differs() || mlps.differs() {
        if model.num_hidden_layers > LAYERS {
            let what = format!("`num_hidden_layers` is {}", model.num_hidden_layers);
            return Err(Diagnostic::new(what).hint(format!("layers of several kinds are read up to {LAYERS}")));
        }
        let layers = (0..model.num_hidden_layers).map(|layer| (1, attention.of_layer(layer), mlps.of_layer(layer)));
        Architecture::of_layers(layers, weights)
    } else {
        let of_any = (model.num_hidden_layers, attention.of_layer(0), mlps.of_layer(0));
        Architecture::of_layers([of_any], weights)
    };
    if architecture != model.architecture() {
        model.architecture = Some(architecture);
    }
    Ok(())
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

/// The keys of a config.
#[derive(Clone, Copy)]
struct ArchitectureKeys<'a>(&'a Map<String, Value>);

impl<'a> ArchitectureKeys<'a> {
    fn get(self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// The number of a key; `None` if it is absent or null.
    fn number(self, key: &str) -> Result<Option<u32>, Diagnostic> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64().and_then(|number| u32::try_from(number).ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(invalid(key, value, "a whole number from 0 to 4294967295")),
        }
    }

    /// The number of a key, if it is above 0.
    fn positive(self, key: &str) -> Result<Option<u32>, Diagnostic> {
        Ok(self.number(key)?.filter(|number| *number > 0))
    }

    /// The value of a key without which the model cannot be computed.
    fn required(self, key: &'static str, needed_for: &str) -> Result<u32, Diagnostic> {
        self.positive(key)?.ok_or_else(|| {
            Diagnostic::new(format!("`{key}` is missing or zero, which {needed_for} needs"))
                .hint("copy it from the config on Hugging Face")
        })
    }

    fn flag(self, key: &str) -> Result<Option<bool>, Diagnostic> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| invalid(key, value, "true or false"))
    }

    fn text(self, key: &str) -> &'a str {
        self.get(key).and_then(Value::as_str).unwrap_or("")
    }

    fn list(self, key: &str) -> Result<Option<&'a [Value]>, Diagnostic> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_array().map(|list| Some(list.as_slice())).ok_or_else(|| invalid(key, value, "a list"))
    }

    /// A list of layers, counted from 0.
    fn layers(self, key: &str) -> Result<Vec<u32>, Diagnostic> {
        let list = self.list(key)?.unwrap_or_default();
        let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        list.iter().map(|value| number(value).ok_or_else(|| invalid(key, value, "numbers of layers"))).collect()
    }
}

/// Words for the absence of keys, at least one.
pub(crate) fn absent(keys: &[&str]) -> String {
    let are = if keys.len() == 1 { "is" } else { "are" };
    let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    format!("{} {are} missing or zero", keys.join(", "))
}

fn invalid(key: &str, value: &Value, expected: &str) -> Diagnostic {
    Diagnostic::new(format!("`{key}` is `{value}`")).hint(format!("{expected} belongs there"))
}

/// The attention of each layer.
struct Attentions {
    /// By layer; empty if all layers have `other`.
    local: Vec<LayerKind>,
    /// The attention of a layer of each kind.
    full: Attention,
    window: Attention,
    linear: Attention,
    layers: u32,
    /// The last so many layers read the cache of earlier ones.
    sharing: u32,
}

/// What `layer_types` says of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LayerKind {
    Full,
    Window,
    Chunk,
    Linear,
}

impl Attentions {
    fn read(keys: ArchitectureKeys<'_>, model: &ModelConfig) -> Result<Self, Diagnostic> {
        let local = layer_kinds(keys, model)?;
        let has = |kind| local.contains(&kind);
        let base = match model.mla {
            Some(mla) => Attention::Latent(latent(keys, model, mla)?),
            None => gated(keys, model)?,
        };
        let span = match (has(LayerKind::Window), has(LayerKind::Chunk)) {
            (true, _) => AttentionSpan::Window(keys.required("sliding_window", "sliding-window attention")?),
            (_, true) => AttentionSpan::Chunk(keys.positive("attention_chunk_size")?.unwrap_or(LLAMA4_CHUNK)),
            _ => AttentionSpan::Full,
        };
        let window = match base {
            Attention::Heads(heads) => Attention::Heads(Heads { span, ..heads }),
            other => other,
        };
        let linear = if has(LayerKind::Linear) { linear(keys)? } else { Attention::None };
        let full = match base {
            Attention::Heads(heads) => Attention::Heads(global(keys, heads)?),
            other => other,
        };
        let sharing = keys.number("num_kv_shared_layers")?.unwrap_or(0);
        Ok(Self { local, full, window, linear, layers: model.num_hidden_layers, sharing })
    }

    fn differs(&self) -> bool {
        !self.local.is_empty() || self.sharing > 0
    }

    fn of_layer(&self, layer: u32) -> Attention {
        let attention = match self.local.get(layer as usize).unwrap_or(&LayerKind::Full) {
            LayerKind::Full => self.full,
            LayerKind::Window | LayerKind::Chunk => self.window,
            LayerKind::Linear => self.linear,
        };
        match attention {
            Attention::Heads(heads) if layer >= self.layers.saturating_sub(self.sharing) => {
                Attention::Heads(Heads { reuses_kv: true, ..heads })
            }
            other => other,
        }
    }
}

/// The chunk of Llama 4, if its config does not name it, tokens (`Llama4TextConfig`).
const LLAMA4_CHUNK: u32 = 8192;

/// The kind of each layer; empty if all have full attention.
fn layer_kinds(keys: ArchitectureKeys<'_>, model: &ModelConfig) -> Result<Vec<LayerKind>, Diagnostic> {
    let layers = model.num_hidden_layers;
    if let Some(list) = keys.list("layer_types")? {
        return listed_kinds(list, layers);
    }
    let kind = keys.text("model_type");
    let every = |interval: u32, other: LayerKind| {
        let of_layer = |layer: u32| if (layer + 1).is_multiple_of(interval.max(1)) { LayerKind::Full } else { other };
        (0..layers.min(LAYERS + 1)).map(of_layer).collect()
    };
    if keys.positive("linear_num_value_heads")?.is_some() {
        return Ok(every(keys.positive("full_attention_interval")?.unwrap_or(4), LayerKind::Linear));
    }
    if kind.starts_with("llama4") || keys.positive("attention_chunk_size")?.is_some() {
        return chunked_kinds(keys, layers, every);
    }
    let Some(_) = keys.positive("sliding_window")? else { return Ok(Vec::new()) };
    let pattern = keys.positive("sliding_window_pattern")?.or(keys.positive("_sliding_window_pattern")?);
    Ok(match (keys.flag("use_sliding_window")?, pattern) {
        (Some(false), _) => Vec::new(),
        // Qwen2 and later: off unless switched on, and only behind the first `max_window_layers`.
        (None, _) if kind.starts_with("qwen") => Vec::new(),
        (Some(true), _) if kind.starts_with("qwen") => {
            let first = keys.number("max_window_layers")?.unwrap_or(layers);
            let of_layer = |layer| if layer >= first { LayerKind::Window } else { LayerKind::Full };
            (0..layers.min(LAYERS + 1)).map(of_layer).collect()
        }
        (_, Some(pattern)) => every(pattern, LayerKind::Window),
        (_, None) if kind.starts_with("gemma3") => every(6, LayerKind::Window),
        (_, None) if kind.starts_with("gemma2") || kind == "gpt_oss" => every(2, LayerKind::Window),
        (_, None) if kind.starts_with("cohere2") => every(4, LayerKind::Window),
        // Mistral, Mixtral, Phi-3, Starcoder 2: every layer.
        _ => vec![LayerKind::Window; layers.min(LAYERS + 1) as usize],
    })
}

/// The kinds of `layer_types`, a list with an entry per layer.
fn listed_kinds(list: &[Value], layers: u32) -> Result<Vec<LayerKind>, Diagnostic> {
    if list.len() as u64 != u64::from(layers) {
        let what = format!("`layer_types` has {} entries, and `num_hidden_layers` is {layers}", list.len());
        return Err(Diagnostic::new(what).hint("it lists every layer"));
    }
    let kinds: Result<Vec<_>, _> = list
        .iter()
        .map(|value| match value.as_str() {
            Some("full_attention" | "attention") => Ok(LayerKind::Full),
            Some("sliding_attention") => Ok(LayerKind::Window),
            Some("chunked_attention") => Ok(LayerKind::Chunk),
            Some("linear_attention") => Ok(LayerKind::Linear),
            _ => Err(Diagnostic::new(format!("`layer_types`: layers of the kind {value} are not modelled"))
                .hint("known: full_attention, sliding_attention, chunked_attention, linear_attention")),
        })
        .collect();
    let kinds = kinds?;
    let full = kinds.iter().all(|kind| *kind == LayerKind::Full);
    Ok(if full { Vec::new() } else { kinds })
}

/// Llama 4: layers without rotary positions attend to everything, the others to their chunk. `no_rope_layers` has a 0 for
/// each of the former; by default it is every fourth layer.
fn chunked_kinds(
    keys: ArchitectureKeys<'_>,
    layers: u32,
    every: impl Fn(u32, LayerKind) -> Vec<LayerKind>,
) -> Result<Vec<LayerKind>, Diagnostic> {
    let listed = keys.layers("no_rope_layers")?;
    if listed.is_empty() {
        return Ok(every(keys.positive("no_rope_layer_interval")?.unwrap_or(4), LayerKind::Chunk));
    }
    if listed.len() as u64 != u64::from(layers) {
        let what = format!("`no_rope_layers` has {} entries, and `num_hidden_layers` is {layers}", listed.len());
        return Err(Diagnostic::new(what).hint("it has a 1 or 0 for every layer"));
    }
    Ok(listed.iter().map(|&rotary| if rotary == 0 { LayerKind::Full } else { LayerKind::Chunk }).collect())
}

/// Ordinary attention, with the output gate of Qwen3-Next and Qwen3.5.
fn gated(keys: ArchitectureKeys<'_>, model: &ModelConfig) -> Result<Attention, Diagnostic> {
    let gated = keys.flag("attn_output_gate")?.unwrap_or(keys.text("model_type").starts_with("qwen3_next"));
    Ok(match model.uniform_attention() {
        Attention::Heads(heads) => Attention::Heads(Heads { gated, ..heads }),
        other => other,
    })
}

/// The heads of full attention, where they differ from those of the window (Gemma 4): `global_head_dim`,
/// `num_global_key_value_heads`, and values made of the keys (`attention_k_eq_v`).
fn global(keys: ArchitectureKeys<'_>, heads: Heads) -> Result<Heads, Diagnostic> {
    Ok(Heads {
        dim: keys.positive("global_head_dim")?.map_or(heads.dim, f64::from),
        kv: keys.positive("num_global_key_value_heads")?.unwrap_or(heads.kv),
        values_from_keys: keys.flag("attention_k_eq_v")?.unwrap_or(false),
        ..heads
    })
}

fn latent(keys: ArchitectureKeys<'_>, model: &ModelConfig, mla: Mla) -> Result<Latent, Diagnostic> {
    let index = match keys.positive("index_topk")? {
        None => None,
        Some(top_k) => Some(Index {
            top_k,
            heads: keys.required("index_n_heads", "sparse attention")?,
            dim: keys.required("index_head_dim", "sparse attention")?,
        }),
    };
    let mut missing = Vec::new();
    for key in LATENT_KEYS {
        missing.extend(keys.positive(key)?.is_none().then_some(key));
    }
    if !missing.is_empty() {
        return Err(Diagnostic::new(format!("{}, which latent attention (`kv_lora_rank`) needs", absent(&missing)))
            .hint("copy what is missing from the config on Hugging Face"));
    }
    Ok(Latent {
        heads: model.num_attention_heads,
        kv_rank: mla.kv_lora_rank,
        rope_dim: mla.qk_rope_head_dim,
        nope_dim: keys.required("qk_nope_head_dim", "latent attention")?,
        value_dim: keys.required("v_head_dim", "latent attention")?,
        query_rank: keys.positive("q_lora_rank")?,
        index,
    })
}

/// What latent attention cannot be computed without, beside `kv_lora_rank`; `q_lora_rank` is absent where queries are not compressed.
const LATENT_KEYS: [&str; 3] = ["qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"];

fn linear(keys: ArchitectureKeys<'_>) -> Result<Attention, Diagnostic> {
    let number = |key| keys.required(key, "linear attention");
    Ok(Attention::Linear(Linear {
        key_heads: number("linear_num_key_heads")?,
        value_heads: number("linear_num_value_heads")?,
        key_dim: number("linear_key_head_dim")?,
        value_dim: number("linear_value_head_dim")?,
        convolution: number("linear_conv_kernel_dim")?,
        state_element_bytes: match keys.text("mamba_ssm_dtype") {
            // vLLM's `--mamba-ssm-cache-dtype auto`: the config's, else the model's.
            "float32" => 4.0,
            _ => 2.0,
        },
    }))
}

/// The MLP of each layer.
struct Mlps {
    dense: Mlp,
    experts: Option<RoutedExperts>,
    /// The first so many layers are dense.
    leading: u32,
    /// Experts are in every so many-th layer.
    step: u32,
    /// Dense layers by number.
    dense_layers: Vec<u32>,
}

impl Mlps {
    /// `first_k_dense_replace` (DeepSeek), `interleave_moe_layer_step` (Llama 4), `decoder_sparse_step` and
    /// `mlp_only_layers` (Qwen); Gemma 4 has a dense MLP beside the experts (`enable_moe_block`).
    fn read(keys: ArchitectureKeys<'_>, model: &ModelConfig) -> Result<Self, Diagnostic> {
        let beside = match keys.flag("enable_moe_block")? {
            Some(true) => model.intermediate_size,
            _ => 0,
        };
        let experts = model.moe.map(|moe| RoutedExperts {
            count: moe.num_experts,
            per_token: moe.num_experts_per_tok,
            width: model.expert_width(),
            shared_width: model.shared_width().saturating_add(beside),
        });
        let freq = match keys.get("moe_layer_freq") {
            Some(Value::Array(_)) => {
                return Err(Diagnostic::new("`moe_layer_freq` is a list, which is not modelled")
                    .hint("a number is: experts in every so many-th layer"));
            }
            _ => keys.positive("moe_layer_freq")?,
        };
        let step = [model.moe.map(|moe| moe.interleave_moe_layer_step), keys.number("decoder_sparse_step")?, freq];
        let step = step.into_iter().flatten().max().unwrap_or(1).max(1);
        Ok(Self {
            dense: Mlp::Dense { width: model.dense_width() },
            experts,
            leading: model.moe.map_or(0, |moe| moe.first_k_dense_replace),
            step,
            dense_layers: keys.layers("mlp_only_layers")?,
        })
    }

    fn differs(&self) -> bool {
        self.experts.is_some() && (self.leading > 0 || self.step > 1 || !self.dense_layers.is_empty())
    }

    fn of_layer(&self, layer: u32) -> Mlp {
        let Some(experts) = self.experts else { return self.dense };
        let behind = layer.checked_sub(self.leading);
        let has_experts = behind.is_some_and(|behind| (behind + 1).is_multiple_of(self.step));
        if has_experts && !self.dense_layers.contains(&layer) { Mlp::Experts(experts) } else { self.dense }
    }
}
