//! Model architectures from Hugging Face's `config.json`, read by BLIS's rules (`engine.md` §4.1).

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use blis_sim::model::{Mla, ModelConfig, Moe};
use blis_sim::sampling::{SamplingParam, SamplingParams};
use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::architecture;
use super::embedded;
use super::error::ConfigError;
use blis_diag::{Diagnostic, json_words};

/// Longer files are refused: with a quantization per layer a `config.json` has some 100 kB.
const BYTES_MAX: u64 = 4 << 20;

/// An architecture and the file that it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedModel {
    pub config: ModelConfig,
    /// The file; of an embedded one, its path in the repository.
    pub path: PathBuf,
    /// The sampling parameters that vLLM takes from the `generation_config.json` beside it.
    pub sampling: SamplingParams,
    /// Type of the activations, by the config's name.
    pub dtype: Option<String>,
    /// Method of quantisation (`quant_method`), if the weights are quantised.
    pub quantization: Option<String>,
    /// Whether the config says that the KV cache is in FP8.
    pub fp8_kv_cache: bool,
    /// Whether the config has chunked local attention (`attention_chunk_size`, Llama 4), which no CUDA graph captures.
    pub chunked_attention: bool,
    /// Whether the model has an encoder for images (`vision_config`, or an architecture for conditional generation beside
    /// a `text_config`).
    pub multimodal: bool,
    /// Keys under which configs of other architectures (GPT-2, MPT, DBRX) have what is read under a usual key: the usual one, which is
    /// absent, and that of the config.
    pub foreign_keys: Vec<(&'static str, &'static str)>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// What may make times and KV blocks wrong: keys that are not read.
    pub warnings: Vec<String>,
    /// Notes that concern only the formulas of BLIS (roofline, trained-physics, the KV blocks of `--parity blis`), which
    /// take all layers to be equal.
    pub formula_notes: Vec<String>,
}

/// The built-in architecture of the model `name` (short, lower case); `formats`: the `quantization_config` that it has instead of its
/// own. `None` if there is none.
///
/// # Errors
/// Never for the files of the repository, which a test reads.
pub(super) fn built_in(name: &str, formats: Option<Map<String, Value>>) -> Result<Option<LoadedModel>, ConfigError> {
    let Some(text) = embedded::model_config(name) else { return Ok(None) };
    let mut model = parse_beside(name, format!("model_configs/{name}/config.json").into(), text, formats)?;
    if let Some(text) = embedded::generation_config(name) {
        model.sampling = sampling(&PathBuf::from(format!("model_configs/{name}/generation_config.json")), text)?;
    }
    Ok(Some(model))
}

/// The architecture in the file `path`, with what lies beside it; `formats` as above, where neither names any.
///
/// # Errors
/// If a file cannot be read or is invalid.
pub(super) fn from_file(
    name: &str,
    path: PathBuf,
    formats: Option<Map<String, Value>>,
) -> Result<LoadedModel, ConfigError> {
    let read = |source| ConfigError::Read { path: path.clone(), source };
    let text = blis_diag::read_text(&path, BYTES_MAX).map_err(read)?;
    let (sampling, beside) = (sampling_beside(&path)?, formats_beside(&path)?);
    let model = parse_beside(name, path, &text, beside.or(formats))?;
    Ok(LoadedModel { sampling, ..model })
}

/// Reads the `config.json` of the model `name`; `path` is for messages.
///
/// # Errors
/// If the content is invalid.
pub fn parse(name: &str, path: PathBuf, text: &str) -> Result<LoadedModel, ConfigError> {
    parse_beside(name, path, text, None)
}

/// The same, with the `quantization_config` that its `hf_quant_config.json` or its name stands for. vLLM reads that file only if the config has
/// none of its own (transformers_utils/config.py).
pub(crate) fn parse_beside(
    name: &str,
    path: PathBuf,
    text: &str,
    formats: Option<Map<String, Value>>,
) -> Result<LoadedModel, ConfigError> {
    let text = &python_json(text);
    // serde would read a list as a config, its items in the order of the fields.
    if text.trim_start().starts_with('[') {
        let list = Diagnostic::new("this is a JSON list").hint("a config is an object: {\"hidden_size\": …}");
        return Err(ConfigError::in_file(&path, list));
    }
    if let Some(key) = null_key(text) {
        let null = Diagnostic::new(format!("`{key}` is null")).hint("a number belongs here: copy it from Hugging Face");
        return Err(ConfigError::in_file(&path, null));
    }
    // Read once as it is written, for the locations of mistakes.
    let written: ConfigKeys = serde_json::from_str(text).map_err(|error| ConfigError::json(&path, &error))?;
    let multimodal = written.is_multimodal();
    let in_file = |mistake| ConfigError::in_file(&path, mistake);
    let (mut notes, mut warnings) = (Vec::new(), Vec::new());
    let mut all_keys = all_keys(text);
    let own_formats = all_keys.get("quantization_config").is_some_and(|config| !config.is_null());
    if let (Some(formats), false) = (formats, own_formats) {
        all_keys.insert("quantization_config".to_owned(), formats.into());
    }
    architecture::normalise(&mut all_keys, &mut notes).map_err(in_file)?;
    let keys: ConfigKeys = serde_json::from_value(Value::Object(all_keys.clone()))
        .map_err(|error| in_file(Diagnostic::new(json_words(&error))))?;
    // A released config of Llama 4 has the key; reduced ones are known by the type.
    let llama4 = keys.model_type.as_deref().is_some_and(|kind| kind.starts_with("llama4"));
    let chunked_attention =
        llama4 || keys.hybrid_layer_pattern.is_none() && nonzero(keys.attention_chunk_size).is_some();
    let dtype = keys.torch_dtype.clone().or_else(|| keys.dtype.clone());
    let (quantization, fp8_kv_cache) = (keys.quantization_method(), keys.has_fp8_kv_cache());
    let named = if quantization.is_none() { format_of_name(name) } else { None };
    let mut config = keys.resolve(name, named, &mut notes, &mut warnings).map_err(in_file)?;
    architecture::read(&all_keys, &mut config, &mut notes, &mut warnings).map_err(in_file)?;
    let quantization = quantization.or_else(|| named.map(|(method, _)| method.to_owned()));
    let formula_notes = formula_notes(name, &config);
    Ok(LoadedModel {
        config,
        path,
        sampling: SamplingParams::default(),
        dtype,
        quantization,
        fp8_kv_cache,
        chunked_attention,
        multimodal,
        foreign_keys: architecture::foreign_keys(&all_keys),
        notes,
        warnings,
        formula_notes,
    })
}

/// The keys under which multimodal models keep those of their language model.
const LANGUAGE_MODELS: [&str; 3] = ["text_config", "llm_config", "language_config"];

/// All keys, those of the language model before the others. The text was read as an object before.
fn all_keys(text: &str) -> Map<String, Value> {
    let Ok(Value::Object(mut keys)) = serde_json::from_str(text) else { return Map::new() };
    for key in LANGUAGE_MODELS {
        if let Some(Value::Object(inner)) = keys.remove(key) {
            keys.extend(inner.into_iter().filter(|(_, value)| !value.is_null()));
        }
    }
    keys
}

/// The text with the numbers that Python's `json` writes and JSON lacks replaced by others of the same length, so that locations
/// stay: `Infinity` by the largest number, `NaN` by a text. No key that is read has one of them.
fn python_json(text: &str) -> Cow<'_, str> {
    const NUMBERS: [(&str, &str); 3] = [("-Infinity", "-1.7e+308"), ("Infinity", "1.7e+308"), ("NaN", "\"?\"")];
    if !NUMBERS.iter().any(|(number, _)| text.contains(number)) {
        return Cow::Borrowed(text);
    }
    let (mut replaced, mut rest, mut within) = (String::with_capacity(text.len()), text, false);
    while let Some(next) = rest.chars().next() {
        let number = NUMBERS.iter().find(|(number, _)| !within && rest.starts_with(number));
        let (written, length) = match number {
            Some((number, other)) => ((*other).to_owned(), number.len()),
            None if within && next == '\\' => {
                let escaped: String = rest.chars().take(2).collect();
                let length = escaped.len();
                (escaped, length)
            }
            None => (next.to_string(), next.len_utf8()),
        };
        within ^= number.is_none() && next == '"';
        replaced.push_str(&written);
        rest = &rest[length..];
    }
    Cow::Owned(replaced)
}

/// The number formats of the `hf_quant_config.json` beside the config at `path`; none without that file.
fn formats_beside(path: &Path) -> Result<Option<Map<String, Value>>, ConfigError> {
    let path = path.with_file_name("hf_quant_config.json");
    let text = match blis_diag::read_text(&path, BYTES_MAX) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(ConfigError::Read { path, source }),
    };
    let keys: Map<String, Value> =
        serde_json::from_str(&python_json(&text)).map_err(|error| ConfigError::json(&path, &error))?;
    architecture::of_sidecar(&keys).map(Some).map_err(|mistake| ConfigError::in_file(&path, mistake))
}

/// What the formulas of BLIS leave out of this model.
fn formula_notes(name: &str, config: &ModelConfig) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(head_dim) = config.head_dim
        && u64::from(head_dim) * u64::from(config.num_attention_heads) != u64::from(config.hidden_size)
    {
        notes.push(format!(
            "{name}: this latency model takes heads of hidden_size / num_attention_heads, not {head_dim}, as BLIS does"
        ));
    }
    if config.mla.is_some() {
        notes.push(format!(
            "{name}: latent attention (MLA) counts as full KV in this latency model, which overstates step times"
        ));
    }
    if config.architecture.is_some() {
        notes.push(format!(
            "{name}: this latency model takes all layers to be equal, with full attention and one precision; physics \
             computes each kind"
        ));
    }
    notes
}

/// The sampling parameters of the `generation_config.json` beside the config at `path`; none without that file.
fn sampling_beside(path: &Path) -> Result<SamplingParams, ConfigError> {
    let path = path.with_file_name("generation_config.json");
    match blis_diag::read_text(&path, BYTES_MAX) {
        Ok(text) => sampling(&path, &text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(SamplingParams::default()),
        Err(source) => Err(ConfigError::Read { path, source }),
    }
}

/// The keys of `generation_config.json` that vLLM takes as sampling parameters and that cost time. Parameters that are
/// null are not set.
fn sampling(path: &Path, text: &str) -> Result<SamplingParams, ConfigError> {
    type Keys = Map<String, Value>;
    let keys: Keys = serde_json::from_str(&python_json(text)).map_err(|error| ConfigError::json(path, &error))?;
    let mut params = SamplingParams::default();
    for param in SamplingParam::ALL {
        match keys.get(param.name()) {
            None | Some(Value::Null) => {}
            Some(value) => match value.as_f64() {
                Some(value) => params = params.with(param, value),
                None => {
                    let what = format!("`{}` is not a number", param.name());
                    return Err(ConfigError::in_file(
                        path,
                        Diagnostic::new(what).hint("copy the file from Hugging Face"),
                    ));
                }
            },
        }
    }
    Ok(params)
}

/// A key without which no model can be simulated, and whose value is null.
fn null_key(text: &str) -> Option<&'static str> {
    const KEYS: [&str; 4] = ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"];
    let config: Value = serde_json::from_str(text).ok()?;
    KEYS.into_iter().find(|key| config.get(key).is_some_and(Value::is_null))
}

/// The keys that are read, all optional. Those of `text_config` replace the others: there, multimodal models keep the
/// numbers of their language model.
macro_rules! keys {
    ($($key:ident: $type:ty),* $(,)?) => {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct ConfigKeys {
            $($key: Option<$type>,)*
            #[serde(alias = "llm_config", alias = "language_config")]
            text_config: Option<Box<ConfigKeys>>,
        }
    };
}

keys! {
    num_hidden_layers: u32,
    hidden_size: u32,
    num_attention_heads: u32,
    num_key_value_heads: u32,
    num_kv_heads: u32,
    multi_query_group_num: u32,
    vocab_size: u32,
    intermediate_size: NumberOrList,
    ffn_hidden_size: u32,
    intermediate_size_mlp: u32,
    dense_intermediate_size: u32,
    head_dim: u32,
    hidden_act: String,
    tie_word_embeddings: bool,
    torch_dtype: String,
    dtype: String,
    quantization_config: Value,
    num_experts: NumberOrList,
    moe_num_experts: NumberOrList,
    n_routed_experts: u32,
    num_local_experts: u32,
    num_routed_experts: u32,
    num_experts_per_tok: NumberOrList,
    experts_per_token: u32,
    top_k_experts: u32,
    moe_intermediate_size: NumberOrList,
    shared_expert_intermediate_size: u32,
    shared_intermediate_size: u32,
    n_shared_experts: NumberOrList,
    interleave_moe_layer_step: u32,
    first_k_dense_replace: u32,
    kv_lora_rank: u32,
    qk_rope_head_dim: u32,
    model_type: String,
    attention_chunk_size: u32,
    hybrid_layer_pattern: Value,
    architectures: Vec<String>,
    vision_config: Value,
    max_position_embeddings: u64,
    rope_scaling: Value,
    rope_parameters: Value,
}

/// A number, or a list of numbers, one per layer; lists are read as far as all of them are equal (`architecture::normalise`).
#[derive(Clone, Copy, Debug)]
struct NumberOrList(u32);

impl<'de> Deserialize<'de> for NumberOrList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberReader;
        impl<'de> Visitor<'de> for NumberReader {
            type Value = NumberOrList;

            fn expecting(&self, words: &mut fmt::Formatter<'_>) -> fmt::Result {
                words.write_str("u32")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<NumberOrList, E> {
                let narrow = u32::try_from(number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self));
                narrow.map(NumberOrList)
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<NumberOrList, A::Error> {
                let mut largest = 0;
                while let Some(number) = list.next_element::<u32>()? {
                    largest = largest.max(number);
                }
                Ok(NumberOrList(largest))
            }
        }
        deserializer.deserialize_any(NumberReader)
    }
}

fn number(value: Option<NumberOrList>) -> Option<u32> {
    value.map(|NumberOrList(number)| number)
}

impl ConfigKeys {
    /// Whether there is an encoder beside the language model.
    fn is_multimodal(&self) -> bool {
        let conditional = |names: &Vec<String>| names.iter().any(|name| name.ends_with("ForConditionalGeneration"));
        self.vision_config.is_some()
            || (self.text_config.is_some() && self.architectures.as_ref().is_some_and(conditional))
    }

    /// The model `name`; `named`: the number format of its weights by the name, for a config without one.
    fn resolve(
        self,
        name: &str,
        named: Option<(&str, f64)>,
        notes: &mut Vec<String>,
        warnings: &mut Vec<String>,
    ) -> Result<ModelConfig, Diagnostic> {
        let heads = self.num_attention_heads.unwrap_or(0);
        let kv_heads = first_nonzero(&[self.num_key_value_heads, self.num_kv_heads, self.multi_query_group_num]);
        let method = self.quantization_config.as_ref().and_then(|config| config.get("quant_method"));
        let dtype_bytes = match (self.dtype_bytes()?, method) {
            (0.0, Some(_)) => {
                notes.push(format!("{name}: the config has no `torch_dtype`: activations and KV cache in 16 bits"));
                2.0
            }
            (bytes, _) => bytes,
        };
        let moe = self.moe();
        // Experts in this format have a width of their own in the architecture.
        let is_of_experts = moe.is_some() && method.and_then(Value::as_str) == Some("mxfp4");
        let weight_bytes = match (self.quantized_weight_bytes(dtype_bytes)?, named) {
            (Some(bytes), _) => bytes,
            (None, Some((_, bytes))) => {
                let bits = 8.0 * bytes;
                notes.push(format!("{name}: weights of {bits} bits by its name; the config names no quantisation"));
                bytes
            }
            (None, None) => {
                if let Some(method) = method.filter(|_| !is_of_experts) {
                    warnings.push(format!(
                        "{name}: quantisation {method} is not understood: weights take {dtype_bytes} bytes"
                    ));
                }
                dtype_bytes
            }
        };
        Ok(ModelConfig {
            num_hidden_layers: self.num_hidden_layers.unwrap_or(0),
            hidden_size: self.hidden_size.unwrap_or(0),
            num_attention_heads: heads,
            num_key_value_heads: kv_heads.unwrap_or(heads),
            head_dim: nonzero(self.head_dim),
            vocab_size: self.vocab_size.unwrap_or(0),
            intermediate_size: self.mlp_width(),
            dense_intermediate_size: first_nonzero(&[self.intermediate_size_mlp, self.dense_intermediate_size]),
            hidden_act: self.hidden_act.clone().unwrap_or_default(),
            tie_word_embeddings: self.tie_word_embeddings.unwrap_or(false),
            dtype_bytes,
            kv_dtype_bytes: dtype_bytes,
            weight_bytes,
            fp4_activations: self.quantized().is_some_and(architecture::has_fp4_activations),
            qk_norm: false,
            moe_without_expert_count: moe.is_none() && self.has_experts_but_no_count(),
            moe,
            mla: nonzero(self.kv_lora_rank)
                .map(|kv_lora_rank| Mla { kv_lora_rank, qk_rope_head_dim: self.qk_rope_head_dim.unwrap_or(0) }),
            max_model_len: self.max_model_len(),
            architecture: None,
        })
    }

    /// Width of the MLP; models that have experts in every layer may have no other.
    fn mlp_width(&self) -> u32 {
        let [dense, expert] = [self.intermediate_size, self.moe_intermediate_size].map(number);
        first_nonzero(&[dense, self.ffn_hidden_size, expert]).unwrap_or(0)
    }

    fn dtype_bytes(&self) -> Result<f64, Diagnostic> {
        let Some(dtype) = self.torch_dtype.as_deref().or(self.dtype.as_deref()) else { return Ok(0.0) };
        match dtype {
            "float32" => Ok(4.0),
            "float16" | "bfloat16" => Ok(2.0),
            "int8" | "uint8" | "fp8" | "int4" | "nf4" => Ok(1.0),
            _ => Err(Diagnostic::new(format!("unknown `torch_dtype`: `{dtype}`"))
                .hint("known: float32, float16, bfloat16, int8, uint8, fp8, int4, nf4")),
        }
    }

    fn expert_counts(&self) -> [Option<u32>; 5] {
        let [experts, of_ernie] = [self.num_experts, self.moe_num_experts].map(number);
        [experts, of_ernie, self.n_routed_experts, self.num_local_experts, self.num_routed_experts]
    }

    fn moe(&self) -> Option<Moe> {
        let num_experts = self.expert_counts().into_iter().flatten().find(|count| *count >= 2)?;
        let expert_width = nonzero(number(self.moe_intermediate_size));
        let each_shared = expert_width.unwrap_or(self.mlp_width());
        Some(Moe {
            num_experts,
            num_experts_per_tok: first_nonzero(&self.experts_per_token()).unwrap_or(0),
            moe_intermediate_size: expert_width,
            shared_intermediate_size: first_nonzero(&[
                self.shared_expert_intermediate_size,
                self.shared_intermediate_size,
            ])
            .unwrap_or_else(|| number(self.n_shared_experts).unwrap_or(0).saturating_mul(each_shared)),
            interleave_moe_layer_step: self.interleave_moe_layer_step.unwrap_or(0),
            first_k_dense_replace: self.first_k_dense_replace.unwrap_or(0),
        })
    }

    fn experts_per_token(&self) -> [Option<u32>; 3] {
        [number(self.num_experts_per_tok), self.experts_per_token, self.top_k_experts]
    }

    fn has_experts_but_no_count(&self) -> bool {
        let traits = [self.n_shared_experts, self.num_experts_per_tok].map(number);
        first_nonzero(&self.expert_counts()).is_none() && first_nonzero(&traits).is_some()
    }

    fn quantized(&self) -> Option<&Map<String, Value>> {
        self.quantization_config.as_ref()?.as_object()
    }

    /// Bytes per weight by `quantization_config`, if it says so.
    fn quantized_weight_bytes(&self, dtype_bytes: f64) -> Result<Option<f64>, Diagnostic> {
        self.quantized().map_or(Ok(None), |config| architecture::weight_bytes(config, dtype_bytes))
    }

    fn quantization_method(&self) -> Option<String> {
        let method = self.quantization_config.as_ref()?.get("quant_method")?;
        method.as_str().map(str::to_owned)
    }

    /// Whether keys and values are cached in FP8: `kv_cache_scheme` (compressed-tensors) or `kv_cache_quant_algo` (ModelOpt).
    fn has_fp8_kv_cache(&self) -> bool {
        let Some(Value::Object(config)) = &self.quantization_config else { return false };
        config.iter().any(|(key, value)| architecture::is_fp8_kv_cache(key, value))
    }

    /// The context length, tokens: `max_position_embeddings`, scaled by `rope_scaling`.
    fn max_model_len(&self) -> Option<u64> {
        let native = nonzero(self.max_position_embeddings)?;
        let object = |value: &Option<Value>| value.as_ref().and_then(Value::as_object).cloned();
        let Some(rope) = object(&self.rope_scaling).or_else(|| object(&self.rope_parameters)) else {
            return Some(native);
        };
        let kind = rope.get("rope_type").or_else(|| rope.get("type")).and_then(Value::as_str).unwrap_or("");
        let included = self.model_type.as_deref().is_some_and(|model| model.contains("gemma3"))
            || matches!(kind, "su" | "longrope" | "llama3");
        let factor = rope.get("factor").and_then(Value::as_f64).unwrap_or(0.0);
        if included || factor <= 1.0 {
            return Some(native);
        }
        let original = rope.get("original_max_position_embeddings").and_then(Value::as_u64).filter(|len| *len > 0);
        let base = if kind == "yarn" { original.unwrap_or(native) } else { native };
        Some((base as f64 * factor) as u64)
    }
}

fn nonzero<T: Copy + PartialOrd + Default>(value: Option<T>) -> Option<T> {
    value.filter(|value| *value > T::default())
}

fn first_nonzero(values: &[Option<u32>]) -> Option<u32> {
    values.iter().copied().find_map(nonzero)
}

/// Method of quantisation and bytes per weight by the name: `…-quantized.w4a16`, `…-awq` and `…-gptq` have 4-bit weights, `…-fp8-dynamic`
/// and `…-gptq-int8` 8-bit ones.
fn format_of_name(name: &str) -> Option<(&'static str, f64)> {
    let tokens = || name.split(|c: char| !c.is_ascii_alphanumeric());
    let eight = tokens().any(|token| matches!(token, "int8" | "8bit"));
    let integers = if eight { 1.0 } else { 0.5 };
    tokens().find_map(|token| {
        match token {
            "fp8" => return Some(("fp8", 1.0)),
            "awq" => return Some(("awq", integers)),
            "gptq" => return Some(("gptq", integers)),
            "bnb" => return Some(("bitsandbytes", integers)),
            "nvfp4" => return Some(("modelopt", 0.5625)),
            _ => {}
        }
        let (weights, activations) = token.strip_prefix('w')?.split_once('a')?;
        activations.parse::<u32>().ok()?;
        let bits = weights.parse::<u32>().ok().filter(|bits| *bits > 0)?;
        Some(("compressed-tensors", f64::from(bits) / 8.0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Catalogue, TrainedDefaults};
    use blis_sim::capacity::{self, MemoryBudget};
    use blis_sim::latency::{Batch, LatencyError, LatencyModel, MoeComm, Roofline, TrainedPhysics};
    use blis_sim::model::Parallelism;
    use blis_sim::sampling::Sampling;
    use blis_sim::units::Micros;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::Map;

    fn read(name: &str, text: &str) -> Result<LoadedModel, ConfigError> {
        parse(name, "config.json".into(), text)
    }

    fn config(text: &str) -> ModelConfig {
        read("m", text).unwrap().config
    }

    #[test]
    fn every_embedded_config_is_complete() {
        for name in embedded::model_names() {
            let model = built_in(name, None).unwrap().unwrap().config;
            assert!(model.num_hidden_layers > 0 && model.hidden_size > 0 && model.vocab_size > 0, "{name}");
            assert!(model.num_attention_heads > 0 && model.intermediate_size > 0, "{name}");
            assert!(model.dtype_bytes == 2.0 && model.weight_bytes > 0.0, "{name}");
            assert!(model.max_model_len.is_some() && !model.moe_without_expert_count, "{name}");
            if let Some((_, quantized)) = format_of_name(name) {
                assert_eq!(model.weight_bytes, quantized, "{name}: the name and the config agree");
            }
        }
    }

    #[test]
    fn sampling_parameters_come_from_the_generation_config() {
        let of = |text| sampling(Path::new("generation_config.json"), text).unwrap();
        let llama = of(r#"{"temperature": 0.6, "top_p": 0.9, "eos_token_id": [1, 2]}"#);
        assert_eq!(llama.work(), Sampling { truncates: true, ..Sampling::default() });
        assert!(of(r#"{"top_k": 20, "repetition_penalty": 1.05}"#).work().penalizes);
        let greedy =
            of(r#"{"temperature": 0.0, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.0, "top_k": null}"#);
        assert_eq!(greedy.work(), Sampling::default());
        let of_model = |name| built_in(name, None).unwrap().unwrap().sampling.work();
        assert!(of_model("qwen2.5-7b-instruct").truncates && of_model("llama-3.1-8b-instruct").truncates);
        assert_eq!(of_model("mixtral-8x7b-v0.1"), Sampling::default());
        insta::assert_snapshot!(sampling(Path::new("g.json"), r#"{"top_p": "0.9"}"#).unwrap_err(), @r"
        g.json: `top_p` is not a number
        hint: copy the file from Hugging Face
        ");
    }

    #[test]
    fn text_config_wins_and_alternative_keys_are_known() {
        let text = r#"{"hidden_size": 1, "vocab_size": 7, "text_config": {"hidden_size": 64, "num_attention_heads": 8,
                       "num_kv_heads": 2, "ffn_hidden_size": 256, "dtype": "float32"}}"#;
        let model = config(text);
        assert_eq!((model.hidden_size, model.vocab_size, model.num_key_value_heads), (64, 7, 2));
        assert_eq!((model.intermediate_size, model.dtype_bytes, model.weight_bytes), (256, 4.0, 4.0));
        assert_eq!(config(r#"{"num_attention_heads": 8, "num_key_value_heads": null}"#).num_key_value_heads, 8);
    }

    #[test]
    fn experts_are_counted_by_the_first_key_that_has_two() {
        let moe = config(
            r#"{"num_experts": 1, "n_routed_experts": 64, "num_local_experts": 8, "intermediate_size": 10,
                             "n_shared_experts": 2, "num_experts_per_tok": 6}"#,
        );
        let moe = moe.moe.unwrap();
        assert_eq!((moe.num_experts, moe.num_experts_per_tok, moe.shared_intermediate_size), (64, 6, 20));
        let unknown = config(r#"{"num_experts_per_tok": 2}"#);
        assert!(unknown.moe.is_none() && unknown.moe_without_expert_count);
        let dense = config(r#"{"num_experts": 1, "num_experts_per_tok": 1}"#);
        assert!(dense.moe.is_none() && !dense.moe_without_expert_count);
    }

    #[test]
    fn weight_bytes_come_from_the_config_then_from_the_name() {
        let bytes = |name: &str, quantization: &str| {
            let text = format!(r#"{{"torch_dtype": "bfloat16", "quantization_config": {quantization}}}"#);
            read(name, &text).unwrap().config.weight_bytes
        };
        assert_eq!(bytes("m", r#"{"bits": 4, "quant_method": "gptq"}"#), 0.5);
        assert_eq!(bytes("m", r#"{"bits": "8"}"#), 1.0);
        assert_eq!(bytes("m", r#"{"quant_method": "fp8"}"#), 1.0);
        let groups = r#"{"quant_method": "compressed-tensors", "config_groups":
                        {"group_1": {"weights": {"num_bits": 8}}, "group_0": {"weights": {"num_bits": 4}}}}"#;
        assert_eq!(bytes("m", groups), 0.5);
        assert_eq!(bytes("m-quantized.w4a16", "null"), 0.5);
        // 4 bits, and 8 bits for each 16 weights.
        assert_eq!(bytes("m", r#"{"quant_method": "modelopt", "quant_algo": "NVFP4"}"#), 0.5625);
        let fp4 = |quantization: &str| {
            let text = format!(r#"{{"torch_dtype": "bfloat16", "quantization_config": {quantization}}}"#);
            read("m", &text).unwrap().config.fp4_activations
        };
        assert!(fp4(r#"{"quant_method": "modelopt", "quant_algo": "NVFP4"}"#));
        assert!(!fp4(r#"{"bits": 4, "quant_method": "gptq"}"#));
        let inputs = r#"{"quant_method": "compressed-tensors", "config_groups": {"group_0":
            {"weights": {"num_bits": 4}, "input_activations": {"num_bits": 4, "type": "float"}}}}"#;
        assert!(fp4(inputs));
        assert_eq!(bytes("m-fp8-dynamic", "null"), 1.0);
        assert_eq!(bytes("fp8ish-waa", "null"), 2.0);
        let odd =
            read("m", r#"{"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "mxfp4"}}"#).unwrap();
        assert_eq!(odd.config.weight_bytes, 2.0);
        insta::assert_snapshot!(odd.warnings[0], @r#"m: quantisation "mxfp4" is not understood: weights take 2 bytes"#);
    }

    #[test]
    fn rope_scaling_stretches_the_context() {
        let length = |rest: &str| config(&format!(r#"{{"max_position_embeddings": 4096{rest}}}"#)).max_model_len;
        assert_eq!(length(""), Some(4096));
        assert_eq!(length(r#", "rope_scaling": {"type": "linear", "factor": 2.5}"#), Some(10_240));
        assert_eq!(length(r#", "rope_scaling": {"rope_type": "llama3", "factor": 8}"#), Some(4096));
        assert_eq!(
            length(r#", "rope_scaling": {"type": "linear", "factor": 8}, "model_type": "gemma3_text""#),
            Some(4096)
        );
        let yarn = r#", "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 1000}"#;
        assert_eq!(length(yarn), Some(4000));
        assert_eq!(length(r#", "rope_scaling": "none""#), Some(4096));
        assert_eq!(config("{}").max_model_len, None);
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text: String, json in "[{}\\[\\]\":,a-z_0-9.eE-]{0,80}") {
            let _ = read("m", &text);
            let _ = read("m-w4a16", &json);
        }

        /// Any numbers in a config are either refused or usable in everything that is computed from them.
        #[test]
        fn arbitrary_numbers_never_panic(
            values in vec((0..NUMBERS.len(), prop_oneof![0_u32..70, any::<u32>()]), 0..20), factor: f64,
        ) {
            let mut keys: Map<String, Value> = values.iter().map(|&(key, n)| (NUMBERS[key].into(), n.into())).collect();
            keys.insert("torch_dtype".into(), "bfloat16".into());
            keys.insert("rope_scaling".into(), serde_json::json!({"type": "yarn", "factor": factor}));
            if let Ok(model) = read("m", &Value::Object(keys).to_string()) {
                simulate_a_step(&model.config);
            }
        }
    }

    /// Runs every computation that uses a config.
    fn simulate_a_step(model: &ModelConfig) {
        let gpu = Catalogue::load(None).unwrap().find("H100").unwrap().gpu;
        let trained = TrainedDefaults::get();
        let budget = MemoryBudget { utilization: 0.9, reserved_gib: 0.0 };
        let mut batch = Batch::default();
        batch.add_prefill(1_000, 5_000, 100_000);
        for tensor in [1, 8] {
            let parallelism = Parallelism { tensor, data: 1 };
            let _ = capacity::kv_blocks(model, &gpu, parallelism, 16, budget);
            let comm = MoeComm::default();
            let built: [Result<Box<dyn LatencyModel>, LatencyError>; 2] = [
                Roofline::new(model, &gpu, parallelism).map(|model| Box::new(model) as _),
                TrainedPhysics::new(model, &gpu, parallelism, comm, &trained.alpha, &trained.beta)
                    .map(|model| Box::new(model) as _),
            ];
            for model in built.into_iter().flatten() {
                assert!(model.step_time(&batch) >= Micros(1));
            }
        }
    }

    const NUMBERS: [&str; 16] = [
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "vocab_size",
        "intermediate_size",
        "intermediate_size_mlp",
        "head_dim",
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "n_shared_experts",
        "interleave_moe_layer_step",
        "first_k_dense_replace",
        "kv_lora_rank",
        "max_position_embeddings",
    ];

    #[test]
    fn mistakes_have_a_location() {
        insta::assert_snapshot!(read("m", "{\n \"hidden_size\": \"big\"\n}").unwrap_err(), @r#"config.json:2:21: invalid type: string "big", expected u32"#);
        insta::assert_snapshot!(read("m", "{\n \"head_dim\": -1\n}").unwrap_err(), @"config.json:2:15: invalid value: integer `-1`, expected u32");
        insta::assert_snapshot!(read("m", "{").unwrap_err(), @"config.json:1:1: EOF while parsing an object");
        insta::assert_snapshot!(read("m", r#"{"torch_dtype": "float7"}"#).unwrap_err(), @r"
        config.json: unknown `torch_dtype`: `float7`
        hint: known: float32, float16, bfloat16, int8, uint8, fp8, int4, nf4
        ");
    }
}
