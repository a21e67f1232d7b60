//! `blis models explain`: a model as its config was understood.

use std::path::PathBuf;

use blis_config::{CacheFacts, LayerFacts, ModelArgs, ModelFacts, explain_model};
use blis_eval::error::RunError;
use clap::Args;
use serde::Serialize;

use super::output::{OutputForm, print_document, print_lines, wants_text_form};

#[derive(Debug, Args)]
pub(super) struct ExplainModelArgs {
    /// Name of the model, or a folder with its config.json
    #[arg(value_name = "NAME")]
    model: String,
    /// Folder with the config.json of models
    #[arg(long, value_name = "DIR")]
    model_config_folder: Option<PathBuf>,
    /// GPUs that share each layer
    #[arg(long, visible_alias = "tp", value_name = "N", default_value_t = 1)]
    tensor_parallel_size: u32,
    /// Form of the result; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto)]
    output: OutputForm,
}

/// `blis models explain`.
pub(super) fn explain(args: &ExplainModelArgs) -> Result<(), RunError> {
    let asked = ModelArgs {
        model: args.model.clone(),
        folder: args.model_config_folder.clone(),
        tensor: args.tensor_parallel_size,
        ..ModelArgs::default()
    };
    let facts = explain_model(&asked).map_err(RunError::refused)?;
    if wants_text_form(args.output) {
        return print_lines(&lines(&facts, args.tensor_parallel_size));
    }
    print_document(&ModelFactsDocument::new(&facts))
}

fn lines(facts: &ModelFacts, gpus: u32) -> Vec<String> {
    let mut lines = vec![format!("{}  ({})", facts.name, facts.file)];
    let mut row = |label: &str, value: String| lines.push(format!("  {label:<22} {value}"));
    row("parameters", format!("{:.3} G, {:.3} G active", facts.parameters / 1e9, facts.active_parameters / 1e9));
    let formats = [
        facts.dtype.clone(),
        facts.quantization.as_ref().map(|method| format!("weights {method}")),
        facts.kv_cache_dtype.as_ref().map(|dtype| format!("KV cache {dtype}")),
    ];
    row("number formats", formats.into_iter().flatten().collect::<Vec<_>>().join(", "));
    row("weights per GPU", format!("{:.2} GB on each of {gpus}", facts.weight_bytes / 1e9));
    if let Some(tokens) = facts.max_model_len {
        row("context", format!("{tokens} tokens"));
    }
    for LayerFacts { count, attention, mlp } in &facts.layers {
        row("layers", format!("{count} × {attention}; {mlp}"));
    }
    for cache in &facts.caches {
        let CacheFacts { kind, layers, .. } = cache;
        let window = cache.window_tokens.map_or(String::new(), |tokens| format!(", the last {tokens} tokens"));
        if cache.bytes_per_request_and_layer > 0.0 {
            let each = cache.bytes_per_request_and_layer;
            let all = each * f64::from(*layers);
            row("state per request", format!("{kind}: {layers} layers × {each} B = {all} B"));
        } else {
            row("KV per token", format!("{kind}: {} B in {layers} layers{window}", cache.bytes_per_token));
        }
    }
    for note in facts.notes.iter().chain(&facts.warnings) {
        row("note", note.clone());
    }
    lines
}

/// What `blis models explain` prints with `--output json`.
#[derive(Serialize)]
struct ModelFactsDocument<'a> {
    /// Number of weights that one token uses. Unit: weights.
    active_parameters: f64,
    /// What the layers keep on one GPU, by kind.
    caches: Vec<CacheDocument<'a>>,
    /// Type of the activations; `null` if the config names none.
    dtype: Option<&'a str>,
    /// The file that the model was read from.
    file: &'a str,
    /// Type of cached keys and values; `null` if nothing names one.
    kv_cache_dtype: Option<&'a str>,
    /// Layers of each kind, in the order of their first.
    layers: Vec<LayersDocument<'a>>,
    /// Context length; `null` if the config names none. Unit: tokens.
    max_model_len: Option<u64>,
    /// Its short name.
    name: &'a str,
    /// What was assumed.
    notes: &'a [String],
    /// Number of weights, norms and encoders left out. Unit: weights.
    parameters: f64,
    /// Method of quantisation; `null` if weights have the type of the activations.
    quantization: Option<&'a str>,
    /// What may be wrong.
    warnings: &'a [String],
    /// Size of the weights of one GPU. Unit: bytes.
    weight_bytes: f64,
}

/// Layers of one kind.
#[derive(Serialize)]
struct LayersDocument<'a> {
    /// Their attention, in words.
    attention: &'a str,
    /// Their number. Unit: layers.
    count: u32,
    /// Their MLP, in words.
    mlp: &'a str,
}

/// What layers keep, of one kind.
#[derive(Serialize)]
struct CacheDocument<'a> {
    /// Size per request in one layer, whatever the length of the request. Unit: bytes.
    bytes_per_request_and_layer: f64,
    /// Size per token of a request in all of these layers, as long as the token is kept. Unit: bytes.
    bytes_per_token: f64,
    /// The kind, in words.
    kind: &'a str,
    /// Number of layers that have it. Unit: layers.
    layers: u32,
    /// Number of tokens that are kept, the last ones; `null`: all. Unit: tokens.
    window_tokens: Option<u32>,
}

impl<'a> ModelFactsDocument<'a> {
    fn new(facts: &'a ModelFacts) -> Self {
        let cache = |cache: &'a CacheFacts| CacheDocument {
            bytes_per_request_and_layer: cache.bytes_per_request_and_layer,
            bytes_per_token: cache.bytes_per_token,
            kind: &cache.kind,
            layers: cache.layers,
            window_tokens: cache.window_tokens,
        };
        let layers = |layers: &'a LayerFacts| LayersDocument {
            attention: &layers.attention,
            count: layers.count,
            mlp: &layers.mlp,
        };
        Self {
            active_parameters: facts.active_parameters,
            caches: facts.caches.iter().map(cache).collect(),
            dtype: facts.dtype.as_deref(),
            file: &facts.file,
            kv_cache_dtype: facts.kv_cache_dtype.as_deref(),
            layers: facts.layers.iter().map(layers).collect(),
            max_model_len: facts.max_model_len,
            name: &facts.name,
            notes: &facts.notes,
            parameters: facts.parameters,
            quantization: facts.quantization.as_deref(),
            warnings: &facts.warnings,
            weight_bytes: facts.weight_bytes,
        }
    }
}
