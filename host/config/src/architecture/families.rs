//! What families of models call differently, and the values of keys that their configs leave out: the defaults of their class in
//! `transformers`. After this, a config has the usual keys.

use blis_diag::Diagnostic;
use serde_json::{Map, Value};

/// Other names of keys, and the usual one. The first name that is there counts, unless the usual one is.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("attention_head_dim", "head_dim"),
    ("moe_topk", "num_experts_per_tok"),
    ("moe_k", "num_experts_per_tok"),
    ("num_experts_per_token", "num_experts_per_tok"),
    ("num_shared_expert", "n_shared_experts"),
    ("num_shared_experts", "n_shared_experts"),
    ("moe_num_shared_experts", "n_shared_experts"),
    ("moe_shared_expert_intermediate_size", "shared_expert_intermediate_size"),
    ("model_max_length", "max_position_embeddings"),
    ("mlp_hidden_act", "hidden_act"),
    ("activation_function", "hidden_act"),
    ("hidden_activation", "hidden_act"),
    ("mamba_ssm_cache_dtype", "mamba_ssm_dtype"),
    ("moe_latent_size", "routed_expert_hidden_size"),
];

/// Keys that some families list per layer: they are read if all layers have the same.
const PER_LAYER: [&str; 7] = [
    "intermediate_size",
    "moe_intermediate_size",
    "num_experts_per_tok",
    "n_shared_experts",
    "num_experts",
    "moe_num_experts",
    "num_attention_heads",
];

/// The defaults of a family.
struct Family {
    /// How its `model_type` begins.
    model_type: &'static str,
    /// Numbers.
    numbers: &'static [(&'static str, u32)],
    /// Whether input and output embedding are one matrix.
    tied: Option<bool>,
}

/// Families with keys that a config may leave out, by their classes in transformers 5.20; the first that fits counts.
const FAMILIES: &[Family] = &[
    Family {
        model_type: "gemma3n",
        numbers: &[("vocab_size", 262_400), ("max_position_embeddings", 32_768), ("head_dim", 256)],
        tied: Some(true),
    },
    Family {
        model_type: "gemma3",
        numbers: &[
            ("vocab_size", 262_208),
            ("max_position_embeddings", 131_072),
            ("num_attention_heads", 8),
            ("num_key_value_heads", 4),
            ("head_dim", 256),
            ("sliding_window", 4096),
        ],
        tied: Some(true),
    },
    Family {
        model_type: "gemma2",
        numbers: &[
            ("vocab_size", 256_000),
            ("max_position_embeddings", 8192),
            ("num_attention_heads", 8),
            ("num_key_value_heads", 4),
            ("head_dim", 256),
            ("sliding_window", 4096),
        ],
        tied: Some(true),
    },
    Family { model_type: "gemma4", numbers: &[("head_dim", 256)], tied: Some(true) },
    Family {
        model_type: "gemma",
        numbers: &[("vocab_size", 256_000), ("max_position_embeddings", 8192), ("head_dim", 256)],
        tied: Some(true),
    },
    Family { model_type: "falcon_h1", numbers: &[], tied: None },
    Family { model_type: "falcon_mamba", numbers: &[], tied: None },
    Family {
        model_type: "falcon",
        numbers: &[("vocab_size", 65_024), ("max_position_embeddings", 2048)],
        tied: Some(true),
    },
    Family {
        model_type: "opt",
        numbers: &[("vocab_size", 50_272), ("max_position_embeddings", 2048)],
        tied: Some(true),
    },
    Family { model_type: "cohere", numbers: &[], tied: Some(true) },
];

/// Gives `keys` the usual names and the defaults of the model's family, with a note about each default.
///
/// # Errors
/// If a list of values per layer has different ones, or a family's own key is invalid.
pub(crate) fn normalise(keys: &mut Map<String, Value>, notes: &mut Vec<String>) -> Result<(), Diagnostic> {
    keys.retain(|_, value| !value.is_null());
    let others = OTHER_NAMES.iter().filter(|(_, usual)| PER_LAYER.contains(usual)).map(|(other, _)| *other);
    for key in PER_LAYER.into_iter().chain(others) {
        if let Some(Value::Array(list)) = keys.get(key) {
            let value = the_same(key, list)?;
            keys.insert(key.to_owned(), value);
        }
    }
    for (other, usual) in OTHER_NAMES {
        if let Some(value) = keys.remove(*other) {
            keys.entry(*usual).or_insert(value);
        }
    }
    let kind = model_type(keys);
    match kind.as_str() {
        "falcon" | "RefinedWeb" | "RefinedWebModel" => falcon(keys),
        "opt" => opt(keys)?,
        kind if kind.starts_with("granitemoehybrid") => granite(keys),
        _ => {}
    }
    layers_of_mixers(keys);
    defaults(&kind, keys, notes);
    Ok(())
}

/// The `model_type` of a map of keys; empty if there is none.
pub(super) fn model_type(keys: &Map<String, Value>) -> String {
    keys.get("model_type").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The value of all entries of a list.
fn the_same(key: &str, list: &[Value]) -> Result<Value, Diagnostic> {
    let first = list.first().ok_or_else(|| Diagnostic::new(format!("`{key}` is an empty list")))?;
    match list.iter().position(|value| value != first) {
        None => Ok(first.clone()),
        Some(layer) => {
            Err(Diagnostic::new(format!("`{key}` is {first} in layer 0 and {} in layer {layer}", list[layer]))
                .hint("one number for all layers is read"))
        }
    }
}

fn defaults(kind: &str, keys: &mut Map<String, Value>, notes: &mut Vec<String>) {
    let kind = if kind.starts_with("RefinedWeb") { "falcon" } else { kind };
    let Some(family) = FAMILIES.iter().find(|family| kind.starts_with(family.model_type)) else { return };
    let mut taken = Vec::new();
    for (key, number) in family.numbers {
        if !keys.contains_key(*key) {
            keys.insert((*key).to_owned(), (*number).into());
            taken.push(format!("`{key}` {number}"));
        }
    }
    if let (Some(tied), false) = (family.tied, keys.contains_key("tie_word_embeddings")) {
        keys.insert("tie_word_embeddings".to_owned(), tied.into());
        taken.push(format!("`tie_word_embeddings` {tied}"));
    }
    if !taken.is_empty() {
        notes.push(format!("config.json: absent keys have the values of the class `{kind}`: {}", taken.join(", ")));
    }
}

/// Falcon (`FalconConfig`): KV heads by three keys, an MLP of four times the width if no other is given.
fn falcon(keys: &mut Map<String, Value>) {
    for (other, usual) in
        [("n_layer", "num_hidden_layers"), ("n_head", "num_attention_heads"), ("n_head_kv", "num_kv_heads")]
    {
        if let Some(value) = keys.remove(other) {
            keys.entry(usual).or_insert(value);
        }
    }
    let is = |key: &str, default: bool| keys.get(key).and_then(Value::as_bool).unwrap_or(default);
    let new = is("new_decoder_architecture", keys.contains_key("num_kv_heads") && model_type(keys) == "RefinedWeb");
    let heads = keys.get("num_attention_heads").cloned();
    let kv = match (new, is("multi_query", true)) {
        (true, _) => keys.get("num_kv_heads").cloned().or(heads),
        (false, true) => Some(1.into()),
        (false, false) => heads,
    };
    if let Some(kv) = kv {
        keys.insert("num_key_value_heads".to_owned(), kv);
    }
    let width = keys.get("ffn_hidden_size").and_then(Value::as_u64);
    let width = width.or_else(|| keys.get("hidden_size")?.as_u64()?.checked_mul(4));
    if let Some(width) = width {
        keys.insert("intermediate_size".to_owned(), width.into());
    }
    for known in
        ["multi_query", "new_decoder_architecture", "num_kv_heads", "parallel_attn", "alibi", "ffn_hidden_size"]
    {
        keys.remove(known);
    }
}

/// OPT: its embeddings may have another width than its layers, which two matrices convert (OPT-350M).
fn opt(keys: &mut Map<String, Value>) -> Result<(), Diagnostic> {
    if let Some(width) = keys.remove("ffn_dim") {
        keys.insert("intermediate_size".to_owned(), width);
    }
    match (keys.remove("word_embed_proj_dim"), keys.get("hidden_size")) {
        (Some(width), Some(hidden)) if width != *hidden => {
            Err(Diagnostic::new(format!("`word_embed_proj_dim` is {width}, and `hidden_size` is {hidden}"))
                .hint("embeddings of another width than the layers are not modelled"))
        }
        _ => Ok(()),
    }
}

/// Granite 4: without experts, only the MLP that is shared between them is left (`GraniteMoeHybridMLP`).
fn granite(keys: &mut Map<String, Value>) {
    let experts = keys.get("num_local_experts").and_then(Value::as_u64).unwrap_or(0);
    if experts > 0 {
        return;
    }
    if let Some(width) = keys.remove("shared_intermediate_size") {
        keys.insert("intermediate_size".to_owned(), width);
    }
    keys.remove("num_experts_per_tok");
}

/// Nemotron-H counts its layers by their list (`layers_block_type`, `hybrid_override_pattern`).
fn layers_of_mixers(keys: &mut Map<String, Value>) {
    let listed = keys.get("layers_block_type").and_then(Value::as_array).map(Vec::len);
    let letters = || keys.get("hybrid_override_pattern").and_then(Value::as_str).map(|text| text.chars().count());
    if let Some(layers) = listed.or_else(letters) {
        keys.entry("num_hidden_layers").or_insert(layers.into());
    }
}
