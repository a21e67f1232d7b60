//! The attention of each layer: which kind it is, by the rules of the model's class, and the shape of each kind.

use blis_diag::Diagnostic;
use blis_sim::architecture::{Attention, AttentionSpan, BlockSelector, Heads, Index, Latent};
use blis_sim::model::{Mla, ModelConfig};
use serde_json::Value;

use super::compressed;
use super::keys::{ArchitectureKeys, absent, check_length, invalid};
use super::states;

/// Layers that can be of several kinds, at most.
pub(super) const LAYERS: u32 = 4096;

/// Something of every layer.
pub(super) enum OfLayers<T> {
    /// All are equal.
    Equal(T),
    /// One by one.
    Each(Vec<T>),
}

impl<T: Copy> OfLayers<T> {
    /// That of one layer.
    pub(super) fn of_layer(&self, layer: u32) -> Option<T> {
        match self {
            Self::Equal(one) => Some(*one),
            Self::Each(all) => all.get(layer as usize).copied(),
        }
    }

    pub(super) fn differs(&self) -> bool {
        matches!(self, Self::Each(_))
    }
}

/// The chunk of Llama 4, if its config does not name it, tokens (`Llama4TextConfig`).
const LLAMA4_CHUNK: u32 = 8192;

/// The kind of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LayerKind {
    Full,
    Window,
    Chunk,
    Linear,
    Mamba,
}

/// The attention of the layers.
pub(super) fn read(keys: ArchitectureKeys<'_>, model: &ModelConfig) -> Result<OfLayers<Attention>, Diagnostic> {
    let layers = model.num_hidden_layers;
    if keys.get("compress_ratios").is_some() {
        return Ok(OfLayers::Each(compressed::read(keys, model)?));
    }
    let kinds = layer_kinds(keys, layers)?;
    let shapes = Shapes::read(keys, model, &kinds)?;
    let sparse = keys.object("sparse_attention_config")?;
    let sparse = sparse.map(|sparse| block_indexes(sparse, layers)).transpose()?.flatten();
    let shared = shared_indexes(keys, layers)?;
    let sharing = keys.number("num_kv_shared_layers")?.unwrap_or(0);
    let factor = shared_by(keys)?;
    if kinds.is_empty() && sparse.is_none() && shared.is_none() && sharing == 0 && factor == 1 {
        return Ok(OfLayers::Equal(shapes.full));
    }
    let of_layer = |layer: u32| {
        let kind = kinds.get(layer as usize).copied().unwrap_or(LayerKind::Full);
        match shapes.of(kind) {
            Attention::Heads(heads) => {
                let index = sparse.as_ref().and_then(|sparse| sparse.get(layer as usize).copied().flatten());
                let reuses_kv = layer >= layers.saturating_sub(sharing) || !layer.is_multiple_of(factor);
                Attention::Heads(Heads { index, reuses_kv, ..heads })
            }
            Attention::Latent(latent) => {
                let reused = shared.as_ref().is_some_and(|shared| shared.get(layer as usize) == Some(&true));
                let index = latent.index.map(|index| Index { reused, ..index });
                Attention::Latent(Latent { index, ..latent })
            }
            other => other,
        }
    };
    Ok(OfLayers::Each((0..layers.min(LAYERS + 1)).map(of_layer).collect()))
}

/// The attention of full layers, without regard to those of other kinds.
pub(super) fn full(keys: ArchitectureKeys<'_>, model: &ModelConfig) -> Result<Attention, Diagnostic> {
    Ok(Shapes::read(keys, model, &[])?.full)
}

/// The attention of a layer of each kind.
struct Shapes {
    full: Attention,
    window: Attention,
    linear: Attention,
    mamba: Attention,
}

impl Shapes {
    fn read(keys: ArchitectureKeys<'_>, model: &ModelConfig, kinds: &[LayerKind]) -> Result<Self, Diagnostic> {
        let has = |kind| kinds.contains(&kind);
        let base = match model.mla {
            Some(mla) => Attention::Latent(latent(keys, model, mla)?),
            None => gated(keys, model)?,
        };
        let span = match (has(LayerKind::Window), has(LayerKind::Chunk)) {
            (true, _) => AttentionSpan::Window(window_tokens(keys)?),
            (_, true) => AttentionSpan::Chunk(keys.positive("attention_chunk_size")?.unwrap_or(LLAMA4_CHUNK)),
            _ => AttentionSpan::Full,
        };
        let (full, window) = match base {
            Attention::Heads(heads) => {
                let window = Heads { span, ..of_windows(keys, heads)? };
                (Attention::Heads(global(keys, heads)?), Attention::Heads(window))
            }
            other => (other, other),
        };
        let linear = if has(LayerKind::Linear) { states::linear(keys)? } else { Attention::None };
        let mamba = if has(LayerKind::Mamba) { states::mamba(keys, model)? } else { Attention::None };
        Ok(Self { full, window, linear, mamba })
    }

    fn of(&self, kind: LayerKind) -> Attention {
        match kind {
            LayerKind::Full => self.full,
            LayerKind::Window | LayerKind::Chunk => self.window,
            LayerKind::Linear => self.linear,
            LayerKind::Mamba => self.mamba,
        }
    }
}

fn window_tokens(keys: ArchitectureKeys<'_>) -> Result<u32, Diagnostic> {
    match keys.positive("sliding_window")? {
        Some(tokens) => Ok(tokens),
        None => keys.required("sliding_window_size", "sliding-window attention"),
    }
}

/// The kind of each layer; empty if all have full attention. `layer_types` wins over all patterns.
fn layer_kinds(keys: ArchitectureKeys<'_>, layers: u32) -> Result<Vec<LayerKind>, Diagnostic> {
    if let Some(list) = keys.list("layer_types")? {
        return listed_kinds(list, layers);
    }
    if let Some(delta) = keys.object("linear_attn_config")? {
        return kimi_kinds(delta, layers);
    }
    if let Some(pattern) = keys.per_layer("hybrid_layer_pattern", layers)? {
        return coded_kinds("hybrid_layer_pattern", &pattern, LayerKind::Window);
    }
    if let Some(attention) = keys.list("attn_layer_indices")? {
        return indexed_kinds(attention, layers);
    }
    if let Some(list) = keys.per_layer("attn_type_list", layers)? {
        softmax_only(&list)?;
    }
    if keys.positive("linear_num_value_heads")?.is_some() {
        return Ok(every(keys.positive("full_attention_interval")?.unwrap_or(4), LayerKind::Linear, layers));
    }
    if keys.text("model_type").starts_with("llama4") || keys.positive("attention_chunk_size")?.is_some() {
        return chunked_kinds(keys, layers);
    }
    windowed_kinds(keys, layers)
}

/// Full attention in every so many-th layer, and `other` in the rest.
fn every(interval: u32, other: LayerKind, layers: u32) -> Vec<LayerKind> {
    let of_layer = |layer: u32| if (layer + 1).is_multiple_of(interval.max(1)) { LayerKind::Full } else { other };
    (0..layers.min(LAYERS + 1)).map(of_layer).collect()
}

/// Layers with a sliding window by the rules of the model's class.
fn windowed_kinds(keys: ArchitectureKeys<'_>, layers: u32) -> Result<Vec<LayerKind>, Diagnostic> {
    let Some(_) = keys.positive("sliding_window")? else { return Ok(Vec::new()) };
    let kind = keys.text("model_type");
    if let pattern @ [_, ..] = keys.text("sliding_window_pattern").as_bytes() {
        return lettered_kinds(pattern, layers);
    }
    let pattern = keys.positive("sliding_window_pattern")?.or(keys.positive("_sliding_window_pattern")?);
    let every = |interval| every(interval, LayerKind::Window, layers);
    Ok(match (keys.flag("use_sliding_window")?, pattern) {
        (Some(false), _) => Vec::new(),
        // Qwen2 and later: off unless switched on, and only from the layer `max_window_layers` on.
        (None, _) if kind.starts_with("qwen") => Vec::new(),
        (Some(true), _) if kind.starts_with("qwen") => {
            let first = keys.number("max_window_layers")?.unwrap_or(layers);
            let of_layer = |layer| if layer >= first { LayerKind::Window } else { LayerKind::Full };
            (0..layers.min(LAYERS + 1)).map(of_layer).collect()
        }
        (_, Some(pattern)) => every(pattern),
        (_, None) if kind.starts_with("gemma3n") => every(5),
        (_, None) if kind.starts_with("gemma3") || kind.starts_with("gemma4") => every(6),
        (_, None) if kind.starts_with("gemma2") || kind == "gpt_oss" => every(2),
        (_, None) if ["cohere2", "exaone4", "olmo3"].iter().any(|four| kind.starts_with(four)) => every(4),
        // Mistral, Mixtral, Phi-3, Starcoder 2: every layer.
        _ => vec![LayerKind::Window; layers.min(LAYERS + 1) as usize],
    })
}

/// A pattern of letters that is repeated (EXAONE 4): `L` has a window, `G` full attention, as has the last layer.
fn lettered_kinds(pattern: &[u8], layers: u32) -> Result<Vec<LayerKind>, Diagnostic> {
    if let Some(other) = pattern.iter().find(|letter| !matches!(**letter, b'L' | b'G')) {
        let pattern = String::from_utf8_lossy(pattern);
        let what =
            format!("`sliding_window_pattern` is \"{pattern}\", and `{}` is no kind of layer", char::from(*other));
        return Err(Diagnostic::new(what).hint("L has a window, G full attention"));
    }
    let of_layer = |layer: u32| {
        let letter = pattern[layer as usize % pattern.len()];
        if letter == b'G' || layer + 1 == layers { LayerKind::Full } else { LayerKind::Window }
    };
    Ok((0..layers.min(LAYERS + 1)).map(of_layer).collect())
}

/// The kinds of `layer_types`, a list with an entry per layer.
fn listed_kinds(list: &[Value], layers: u32) -> Result<Vec<LayerKind>, Diagnostic> {
    check_length("layer_types", list.len(), layers)?;
    let kinds: Result<Vec<_>, _> = list
        .iter()
        .map(|value| match value.as_str() {
            Some("full_attention" | "attention") => Ok(LayerKind::Full),
            Some("sliding_attention") => Ok(LayerKind::Window),
            Some("chunked_attention") => Ok(LayerKind::Chunk),
            Some("linear_attention") => Ok(LayerKind::Linear),
            Some("mamba" | "mamba2") => Ok(LayerKind::Mamba),
            _ => Err(Diagnostic::new(format!("`layer_types`: layers of the kind {value} are not modelled"))
                .hint("known: full_attention, sliding_attention, chunked_attention, linear_attention, mamba")),
        })
        .collect();
    Ok(unless_all_full(kinds?))
}

fn unless_all_full(kinds: Vec<LayerKind>) -> Vec<LayerKind> {
    if kinds.iter().all(|kind| *kind == LayerKind::Full) { Vec::new() } else { kinds }
}

/// A list of 0 (full attention) and 1 (`other`).
fn coded_kinds(key: &str, list: &[u32], other: LayerKind) -> Result<Vec<LayerKind>, Diagnostic> {
    let kinds: Result<Vec<_>, _> = list
        .iter()
        .map(|code| match code {
            0 => Ok(LayerKind::Full),
            1 => Ok(other),
            _ => Err(invalid(key, &(*code).into(), "0 or 1 for every layer")),
        })
        .collect();
    Ok(unless_all_full(kinds?))
}

/// Bamba: the layers with attention, counted from 0; the others are Mamba-2.
fn indexed_kinds(list: &[Value], layers: u32) -> Result<Vec<LayerKind>, Diagnostic> {
    let mut kinds = vec![LayerKind::Mamba; layers.min(LAYERS + 1) as usize];
    for value in list {
        let layer = value.as_u64().and_then(|layer| usize::try_from(layer).ok()).and_then(|layer| kinds.get_mut(layer));
        *layer.ok_or_else(|| invalid("attn_layer_indices", value, "numbers of layers, from 0,"))? = LayerKind::Full;
    }
    Ok(unless_all_full(kinds))
}

/// MiniMax: 1 is softmax attention.
fn softmax_only(list: &[u32]) -> Result<(), Diagnostic> {
    match list.iter().position(|kind| *kind != 1) {
        None => Ok(()),
        Some(layer) => {
            let (what, kind) = ("`attn_type_list` is", list[layer]);
            let known = if kind == 0 { "lightning attention" } else { "an unknown attention" };
            Err(Diagnostic::new(format!("{what} {kind} in layer {layer}: {known}, which is not modelled"))
                .hint("1 is softmax attention; with coefficients of its own, a model needs no architecture: `--latency-model blackbox`"))
        }
    }
}

/// Kimi: the layers of KDA and those of full attention, counted from 1.
fn kimi_kinds(delta: ArchitectureKeys<'_>, layers: u32) -> Result<Vec<LayerKind>, Diagnostic> {
    let mut kinds: Vec<Option<LayerKind>> = vec![None; layers.min(LAYERS + 1) as usize];
    for (key, kind) in [("kda_layers", LayerKind::Linear), ("full_attn_layers", LayerKind::Full)] {
        for layer in delta.numbers(key)? {
            let slot = layer.checked_sub(1).and_then(|layer| kinds.get_mut(layer as usize));
            let Some(slot @ None) = slot else {
                let what = format!("`linear_attn_config.{key}` has layer {layer}");
                return Err(
                    Diagnostic::new(what).hint(format!("each of the layers 1 to {layers} is in one of the lists"))
                );
            };
            *slot = Some(kind);
        }
    }
    match kinds.iter().position(Option::is_none) {
        None => Ok(kinds.into_iter().flatten().collect()),
        Some(layer) => {
            let what = format!("`linear_attn_config` has layer {} in none of its lists", layer + 1);
            Err(Diagnostic::new(what).hint("`kda_layers` and `full_attn_layers` count from 1"))
        }
    }
}

/// Llama 4: layers without rotary positions attend to everything, the others to their chunk. `no_rope_layers` has a 0 for
/// each of the former; by default it is every fourth layer.
fn chunked_kinds(keys: ArchitectureKeys<'_>, layers: u32) -> Result<Vec<LayerKind>, Diagnostic> {
    let listed = keys.numbers("no_rope_layers")?;
    if listed.is_empty() {
        return Ok(every(keys.positive("no_rope_layer_interval")?.unwrap_or(4), LayerKind::Chunk, layers));
    }
    if listed.len() as u64 != u64::from(layers) {
        let what = format!("`no_rope_layers` has {} entries, and `num_hidden_layers` is {layers}", listed.len());
        return Err(Diagnostic::new(what).hint("it has a 1 or 0 for every layer"));
    }
    Ok(listed.iter().map(|&rotary| if rotary == 0 { LayerKind::Full } else { LayerKind::Chunk }).collect())
}

/// Ordinary attention, with the output gate of Qwen3-Next and Qwen3.5, and values of another width than keys.
fn gated(keys: ArchitectureKeys<'_>, model: &ModelConfig) -> Result<Attention, Diagnostic> {
    let gated = keys.flag("attn_output_gate")?.unwrap_or(keys.text("model_type").starts_with("qwen3_next"));
    Ok(match model.uniform_attention() {
        Attention::Heads(heads) => {
            let value_dim = keys.positive("v_head_dim")?.map_or(heads.value_dim, f64::from);
            Attention::Heads(Heads { gated, value_dim, ..heads })
        }
        other => other,
    })
}

/// The heads of full attention, where they differ from those of the window (Gemma 4): `global_head_dim`,
/// `num_global_key_value_heads`, and values made of the keys (`attention_k_eq_v`).
fn global(keys: ArchitectureKeys<'_>, heads: Heads) -> Result<Heads, Diagnostic> {
    let dim = keys.positive("global_head_dim")?.map(f64::from);
    Ok(Heads {
        dim: dim.unwrap_or(heads.dim),
        value_dim: dim.unwrap_or(heads.value_dim),
        kv: keys.positive("num_global_key_value_heads")?.unwrap_or(heads.kv),
        values_from_keys: keys.flag("attention_k_eq_v")?.unwrap_or(false),
        ..heads
    })
}

/// The heads of windows, where they differ from those of full attention (MiMo-V2).
fn of_windows(keys: ArchitectureKeys<'_>, heads: Heads) -> Result<Heads, Diagnostic> {
    let dim = keys.positive("swa_head_dim")?.map(f64::from);
    let value_dim = keys.positive("swa_v_head_dim")?.map(f64::from);
    Ok(Heads {
        queries: keys.positive("swa_num_attention_heads")?.unwrap_or(heads.queries),
        kv: keys.positive("swa_num_key_value_heads")?.unwrap_or(heads.kv),
        dim: dim.unwrap_or(heads.dim),
        value_dim: value_dim.or(dim).unwrap_or(heads.value_dim),
        ..heads
    })
}

/// The number of layers that share one cache (`use_cla`, Hunyuan): the first of each has it.
fn shared_by(keys: ArchitectureKeys<'_>) -> Result<u32, Diagnostic> {
    match keys.flag("use_cla")? {
        Some(true) => keys.required("cla_share_factor", "cross-layer attention (`use_cla`)"),
        _ => Ok(1),
    }
}

/// MiniMax-M3: the index of each layer; a layer without reads everything.
fn block_indexes(sparse: ArchitectureKeys<'_>, layers: u32) -> Result<Option<Vec<Option<BlockSelector>>>, Diagnostic> {
    if sparse.flag("use_sparse_attention")? == Some(false) {
        return Ok(None);
    }
    let needed = "block-sparse attention";
    let block = sparse.required("sparse_block_size", needed)?;
    let others = sparse
        .number("sparse_local_block")?
        .unwrap_or(0)
        .saturating_add(sparse.number("sparse_init_block")?.unwrap_or(0));
    let blocks = sparse.required("sparse_topk_blocks", needed)?.saturating_add(others);
    let index = BlockSelector {
        heads: sparse.required("sparse_num_index_heads", needed)?,
        dim: sparse.required("sparse_index_dim", needed)?,
        tokens: blocks.saturating_mul(block),
    };
    let list = sparse.per_layer("sparse_attention_freq", layers)?;
    let Some(list) = list else { return Ok(Some(vec![Some(index); layers.min(LAYERS + 1) as usize])) };
    Ok(Some(list.iter().map(|kind| (*kind != 0).then_some(index)).collect()))
}

/// GLM-5.2: whether each layer takes the choice of an earlier index (`indexer_types`).
fn shared_indexes(keys: ArchitectureKeys<'_>, layers: u32) -> Result<Option<Vec<bool>>, Diagnostic> {
    let Some(list) = keys.list("indexer_types")? else {
        return match keys.number("index_topk_freq")? {
            Some(freq) if freq > 1 => {
                Err(Diagnostic::new(format!("`index_topk_freq` is {freq}, and `indexer_types` is missing"))
                    .hint("copy the list from the config on Hugging Face: it says which layers have an index"))
            }
            _ => Ok(None),
        };
    };
    check_length("indexer_types", list.len(), layers)?;
    let mut shared = Vec::with_capacity(list.len());
    for value in list {
        shared.push(match value.as_str() {
            Some("full") => false,
            Some("shared") if !shared.is_empty() => true,
            _ => {
                return Err(invalid(
                    "indexer_types",
                    value,
                    "\"full\" or, after a full one, \"shared\" for every layer",
                ));
            }
        });
    }
    Ok(Some(shared))
}

fn latent(keys: ArchitectureKeys<'_>, model: &ModelConfig, mla: Mla) -> Result<Latent, Diagnostic> {
    let index = match keys.positive("index_topk")? {
        None => None,
        Some(top_k) => Some(Index {
            top_k,
            heads: keys.required("index_n_heads", "sparse attention")?,
            dim: keys.required("index_head_dim", "sparse attention")?,
            reused: false,
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
        gated: keys.flag("mla_use_output_gate")?.unwrap_or(false),
        index,
    })
}

/// What latent attention cannot be computed without, beside `kv_lora_rank`; `q_lora_rank` is absent where queries are not compressed.
const LATENT_KEYS: [&str; 3] = ["qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"];
