//! What a model is, as its config was understood: layers by kind, parameters, weights and caches of one GPU.

use std::path::PathBuf;

use blis_diag::Diagnostic;
use blis_sim::architecture::{Attention, AttentionSpan, CacheKind, Heads, LayerGroup, Mlp};
use blis_sim::memory;
use blis_sim::model::{ModelConfig, Parallelism};

use super::architecture;
use super::error::ConfigError;
use super::known::known_models;
use super::model_source;
use super::precision::PrecisionArgs;

/// The model that is asked for.
#[derive(Clone, Debug, Default)]
pub struct ModelArgs {
    /// Its name or folder (`--model`).
    pub model: String,
    /// Folder with configs (`--model-config-folder`).
    pub folder: Option<PathBuf>,
    /// GPUs that share a layer, at least 1.
    pub tensor: u32,
    /// Number formats.
    pub precision: PrecisionArgs,
}

/// What a model is.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFacts {
    /// Short name.
    pub name: String,
    /// The file that it was read from.
    pub file: String,
    /// Number of weights, all of them.
    pub parameters: f64,
    /// Number of weights that one token uses.
    pub active_parameters: f64,
    /// Bytes of the weights of one GPU.
    pub weight_bytes: f64,
    /// Type of activations, quantisation of weights, and type of the KV cache, by vLLM's names.
    pub dtype: Option<String>,
    pub quantization: Option<String>,
    pub kv_cache_dtype: Option<String>,
    /// Context length, tokens.
    pub max_model_len: Option<u64>,
    /// Equal layers, in the order of their first.
    pub layers: Vec<LayerFacts>,
    /// What they keep on one GPU, by kind.
    pub caches: Vec<CacheFacts>,
    /// What was assumed, and what may be wrong.
    pub notes: Vec<String>,
    pub warnings: Vec<String>,
}

/// Layers of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerFacts {
    /// Their number.
    pub count: u32,
    /// Words for their attention.
    pub attention: String,
    /// Words for their MLP.
    pub mlp: String,
}

/// Caches of one kind, of one GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheFacts {
    /// Words for the kind.
    pub kind: String,
    /// Number of layers that have it.
    pub layers: u32,
    /// Bytes per token of a request in all of them, as long as the token is kept.
    pub bytes_per_token: f64,
    /// Bytes per request in one of them, whatever its length.
    pub bytes_per_request_and_layer: f64,
    /// Number of tokens that are kept, the last ones; `None`: all.
    pub window_tokens: Option<u32>,
}

/// Reads a model and counts what it has.
///
/// # Errors
/// If the model is unknown, its config cannot be read, or lacks a number that all models have.
pub fn explain_model(args: &ModelArgs) -> Result<ModelFacts, ConfigError> {
    if args.tensor == 0 {
        let (option, expected) = ("--tensor-parallel-size", "it must be at least 1");
        return Err(ConfigError::OutOfRange { option, given: "0".to_owned(), expected });
    }
    let mut notes = Vec::new();
    let (name, loaded) = model_source::load(&args.model, args.folder.as_deref(), &mut notes)?;
    let (loaded, precision) = args.precision.apply(&name, loaded, &mut notes)?;
    let Some(loaded) = loaded else {
        let known = known_models().into_iter().filter(|model| model.has_config).map(|model| model.name).collect();
        let extra = "`blis models` lists the built-in ones; of another model, put the Hugging Face `config.json` into a folder and \
                     name it with `--model-config-folder`";
        return Err(ConfigError::unknown("model", &name, known, Some(extra)));
    };
    let model = &loaded.config;
    check(model).map_err(|mistake| ConfigError::in_file(&loaded.path, mistake))?;
    let parameters = model.parameters();
    notes.extend(loaded.notes.iter().cloned());
    Ok(ModelFacts {
        file: loaded.path.display().to_string(),
        parameters: parameters.total,
        active_parameters: parameters.active,
        weight_bytes: memory::weight_bytes(model, Parallelism { tensor: args.tensor, data: 1 }, 1),
        dtype: precision.dtype,
        quantization: precision.quantization,
        kv_cache_dtype: precision.kv_cache_dtype,
        max_model_len: model.max_model_len,
        layers: layers(model),
        caches: caches(model, args.tensor),
        notes,
        warnings: loaded.warnings.clone(),
        name,
    })
}

/// Refuses a config without the numbers that everything is computed from.
fn check(model: &ModelConfig) -> Result<(), Diagnostic> {
    let needed = [
        ("num_hidden_layers", model.num_hidden_layers),
        ("hidden_size", model.hidden_size),
        ("num_attention_heads", model.num_attention_heads),
        ("vocab_size", model.vocab_size),
    ];
    let missing: Vec<&str> = needed.into_iter().filter(|(_, number)| *number == 0).map(|(key, _)| key).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Diagnostic::new(architecture::absent(&missing)).hint("copy what is missing from the config on Hugging Face"))
}

fn layers(model: &ModelConfig) -> Vec<LayerFacts> {
    let mut found: Vec<LayerFacts> = Vec::new();
    for LayerGroup { count, attention, mlp } in model.architecture().groups {
        let (attention, mlp) = (attention_words(&attention), mlp_words(&mlp));
        match found.iter_mut().find(|layers| layers.attention == attention && layers.mlp == mlp) {
            Some(layers) => layers.count += count,
            None => found.push(LayerFacts { count, attention, mlp }),
        }
    }
    found
}

fn caches(model: &ModelConfig, tensor: u32) -> Vec<CacheFacts> {
    let mut found: Vec<CacheFacts> = Vec::new();
    for LayerGroup { count, attention, .. } in model.architecture().groups {
        for cache in attention.caches(f64::from(tensor), model.kv_dtype_bytes, model.dtype_bytes) {
            let (kind, bytes) = (cache_words(cache.kind), f64::from(count) * cache.token_bytes);
            let same = |facts: &&mut CacheFacts| {
                facts.kind == kind && facts.bytes_per_request_and_layer == cache.request_bytes
            };
            match found.iter_mut().find(same) {
                Some(facts) => {
                    facts.layers += count;
                    facts.bytes_per_token += bytes;
                }
                None => found.push(CacheFacts {
                    kind,
                    layers: count,
                    bytes_per_token: bytes,
                    bytes_per_request_and_layer: cache.request_bytes,
                    window_tokens: cache.kind.window(),
                }),
            }
        }
    }
    found
}

fn cache_words(kind: CacheKind) -> String {
    match kind {
        CacheKind::Full => "full".to_owned(),
        CacheKind::Window(tokens) => format!("window of {tokens}"),
        CacheKind::Chunk(tokens) => format!("chunks of {tokens}"),
        CacheKind::Latent => "latent".to_owned(),
        CacheKind::Index => "index of latent attention".to_owned(),
        CacheKind::BlockIndex => "index of blocks".to_owned(),
        CacheKind::State { kind, .. } => format!("state of {}", kind.name()),
        CacheKind::LatentWindow(tokens) => format!("latent window of {tokens}"),
        CacheKind::CompressedLatent { ratio } => format!("latent, one for {ratio} tokens"),
        CacheKind::CompressedIndex { ratio } => format!("index, one for {ratio} tokens"),
        CacheKind::CompressorState { ratio, .. } => format!("compressor of {ratio} tokens"),
        CacheKind::IndexCompressorState { ratio, .. } => format!("compressor of the index, {ratio} tokens"),
        CacheKind::Reused => "that of an earlier layer".to_owned(),
    }
}

fn attention_words(attention: &Attention) -> String {
    match attention {
        Attention::Heads(heads) => heads_words(*heads),
        Attention::Latent(latent) => {
            let sparse = match latent.index {
                None => String::new(),
                Some(index) if index.reused => format!(", the {} tokens of an earlier index", index.top_k),
                Some(index) => format!(", {} tokens by an index of {} heads", index.top_k, index.heads),
            };
            format!("latent attention, {} heads, {} + {}{sparse}", latent.heads, latent.kv_rank, latent.rope_dim)
        }
        Attention::Compressed(compressed) => {
            let rest = match (compressed.ratio, compressed.index) {
                (0, _) => String::new(),
                (ratio, Some(index)) => format!(", {} of the vectors for {ratio} tokens", index.top_k),
                (ratio, None) => format!(", all vectors for {ratio} tokens"),
            };
            format!(
                "compressed attention, {} heads of {}, window of {}{rest}",
                compressed.heads, compressed.dim, compressed.window
            )
        }
        Attention::Linear(linear) => {
            let (kind, heads, keys, values) =
                (linear.kind.name(), linear.value_heads, linear.key_dim, linear.value_dim);
            format!("{kind}, {heads} states of {keys} × {values}")
        }
        Attention::Matrix => "a matrix instead of attention".to_owned(),
        Attention::None => "no attention".to_owned(),
    }
}

fn heads_words(heads: Heads) -> String {
    let span = match heads.span {
        AttentionSpan::Full => "full attention".to_owned(),
        AttentionSpan::Window(tokens) => format!("window of {tokens}"),
        AttentionSpan::Chunk(tokens) => format!("chunks of {tokens}"),
    };
    let widths = if heads.dim == heads.value_dim {
        format!("{}", heads.dim)
    } else {
        format!("{} and {}", heads.dim, heads.value_dim)
    };
    let sparse = heads.index.map_or(String::new(), |index| format!(", {} tokens by an index of blocks", index.tokens));
    let reused = if heads.reuses_kv { ", KV of an earlier layer" } else { "" };
    format!("{span}, {} heads, {} of KV, width {widths}{sparse}{reused}", heads.queries, heads.kv)
}

fn mlp_words(mlp: &Mlp) -> String {
    match mlp {
        Mlp::Dense { width } => format!("MLP of {width}"),
        Mlp::Plain { width } => format!("MLP of {width}, two matrices"),
        Mlp::Experts(experts) => {
            let shared =
                if experts.shared_width > 0 { format!(", shared {}", experts.shared_width) } else { String::new() };
            let latent = experts.latent.map_or(String::new(), |latent| format!(", inputs of {latent}"));
            let two = if experts.matrices == 2 { ", two matrices" } else { "" };
            format!("{} of {} experts of {}{latent}{two}{shared}", experts.per_token, experts.count, experts.width)
        }
        Mlp::Matrix => "a matrix instead of an MLP".to_owned(),
        Mlp::None => "no MLP".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(model: &str, tensor: u32) -> ModelFacts {
        explain_model(&ModelArgs { model: model.to_owned(), tensor, ..ModelArgs::default() }).unwrap()
    }

    /// Half of each state and of the KV heads on each of two GPUs; no KV head is divided among eight.
    #[test]
    fn caches_are_those_of_one_gpu() {
        let [one, two, eight] = [1, 2, 8].map(|tensor| facts("qwen3.5-35b-a3b", tensor));
        let bytes = |facts: &ModelFacts| {
            let of = |start: &str| facts.caches.iter().find(|cache| cache.kind.starts_with(start)).unwrap().clone();
            [of("full").bytes_per_token, of("state").bytes_per_request_and_layer]
        };
        assert_eq!(bytes(&one), [20_480.0, 2_146_304.0]);
        assert_eq!(bytes(&two), [10_240.0, 1_073_152.0]);
        assert_eq!(bytes(&eight)[0], 10_240.0);
        assert_eq!(one.layers.iter().map(|layers| layers.count).sum::<u32>(), 40);
        assert!(two.weight_bytes < one.weight_bytes && one.active_parameters < one.parameters);
    }

    #[test]
    fn an_unknown_model_gets_the_nearest_as_hint() {
        let asked = ModelArgs { model: "qwen3-33b".to_owned(), tensor: 1, ..ModelArgs::default() };
        let error = explain_model(&asked).unwrap_err().to_string();
        assert!(error.contains("unknown model") && error.contains("did you mean `qwen3-32b`"), "{error}");
        assert!(explain_model(&ModelArgs { tensor: 0, ..asked }).is_err());
    }
}
