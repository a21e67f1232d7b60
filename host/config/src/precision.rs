//! Number formats of activations, weights and KV cache: what `--dtype`, `--quantization` and `--kv-cache-dtype` change
//! of a model. Names and rules are vLLM's; what a step costs and how much memory it takes follows from the bytes per
//! number, and from whether tensor cores compute in 8 bits.

use super::error::ConfigError;
use super::model::LoadedModel;
use strum::{Display, EnumMessage, IntoStaticStr, VariantArray};

/// The options that choose number formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrecisionArgs {
    /// `--dtype`: type of activations, and of weights that are not quantised.
    pub dtype: Dtype,
    /// `--quantization`; `None`: that of the model's config.
    pub quantization: Option<Quantization>,
    /// `--kv-cache-dtype`: type of the cached keys and values.
    pub kv_cache_dtype: KvCacheDtype,
}

/// Type of activations (`--dtype`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dtype {
    /// That of the config, as BLIS reads it.
    Stored,
    /// That of the config; bfloat16 for float32, as vLLM serves such a model on a GPU with bfloat16.
    #[default]
    Auto,
    Float16,
    Bfloat16,
    /// Computed without tensor cores.
    Float32,
}

/// Type of cached keys and values (`--kv-cache-dtype`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display, EnumMessage, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum KvCacheDtype {
    /// That of the model's config, else that of the activations
    // FP8 if the config has a `kv_cache_scheme` of 8 bits.
    #[default]
    Auto,
    /// 16 bits
    Bfloat16,
    /// 8 bits
    // `fp8_e4m3` on NVIDIA GPUs.
    Fp8,
    /// 8 bits
    #[strum(to_string = "fp8_e4m3")]
    Fp8E4m3,
    /// 8 bits
    #[strum(to_string = "fp8_e5m2")]
    Fp8E5m2,
}

/// Method of quantisation (`--quantization`): those of vLLM whose weights have one width, and whose products are
/// computed in 16 bits or, with 8-bit weights, in 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Quantization {
    /// 8-bit weights, made from those of 16 bits as they are loaded; products in 8 bits where the GPU can
    Fp8,
    /// The same
    PtpcFp8,
    /// The same, of stored models
    FbgemmFp8,
    /// The same, of stored models
    Modelopt,
    /// 4-bit weights, products in 16 bits
    Awq,
    /// The same
    AwqMarlin,
    /// 4-bit weights, products in 16 bits
    Gptq,
    /// The same
    GptqMarlin,
    /// The experts of a model that is stored in awq or gptq
    MoeWna16,
    /// A model that is stored so, with the widths of its config
    #[strum(to_string = "compressed-tensors")]
    CompressedTensors,
    /// A model that is stored so
    Mxfp4,
}

/// The number formats of a resolved deployment, by vLLM's names; `None` without the model's config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Precision {
    /// Type of activations.
    pub dtype: Option<String>,
    /// Method of quantisation; `None` also if weights have the type of the activations.
    pub quantization: Option<String>,
    /// Type of cached keys and values.
    pub kv_cache_dtype: Option<String>,
    /// Whether any number has another width than by the model's config.
    pub changed: bool,
}

impl Dtype {
    /// The type that the option names; `None` if it follows from the config.
    fn named(self) -> Option<(&'static str, f64)> {
        match self {
            Self::Stored | Self::Auto => None,
            Self::Float16 => Some(("float16", 2.0)),
            Self::Bfloat16 => Some(("bfloat16", 2.0)),
            Self::Float32 => Some(("float32", 4.0)),
        }
    }
}

impl Quantization {
    /// Bits of a weight, scales left out; `None` if only the stored model says it.
    fn weight_bits(self) -> Option<f64> {
        match self {
            Self::Fp8 | Self::PtpcFp8 | Self::FbgemmFp8 | Self::Modelopt => Some(8.0),
            Self::Awq | Self::AwqMarlin | Self::Gptq | Self::GptqMarlin => Some(4.0),
            // Any width; any width; experts only, which a single width of weights does not describe.
            Self::CompressedTensors | Self::MoeWna16 | Self::Mxfp4 => None,
        }
    }

    /// Whether vLLM quantises 16-bit weights itself when it loads them.
    fn is_online(self) -> bool {
        matches!(self, Self::Fp8 | Self::PtpcFp8)
    }

    /// Whether it serves a model whose config has `stored` as `quant_method`.
    fn serves(self, stored: &str) -> bool {
        let other = match self {
            Self::AwqMarlin => &["awq"][..],
            Self::GptqMarlin => &["gptq"],
            Self::MoeWna16 => &["awq", "gptq"],
            _ => &[],
        };
        <&str>::from(self) == stored || other.contains(&stored)
    }
}

impl PrecisionArgs {
    /// The first option that is set to a format.
    pub(super) fn first_set(&self) -> Option<&'static str> {
        let set = [
            (self.dtype.named().is_some(), "--dtype"),
            (self.quantization.is_some(), "--quantization"),
            (self.kv_cache_dtype != KvCacheDtype::Auto, "--kv-cache-dtype"),
        ];
        set.into_iter().find_map(|(set, option)| set.then_some(option))
    }

    /// `model`, called `name`, in the formats of these options, with notes for the user.
    ///
    /// # Errors
    /// If an option is set and the architecture is unknown, or an option contradicts the model or another one.
    pub(super) fn apply(
        &self,
        name: &str,
        model: Option<LoadedModel>,
        notes: &mut Vec<String>,
    ) -> Result<(Option<LoadedModel>, Precision), ConfigError> {
        let Some(mut model) = model else {
            return match self.first_set() {
                None => Ok((None, Precision::default())),
                Some(option) => Err(ConfigError::NoModelConfig {
                    model: name.into(),
                    needed_for: format!("`{option}`"),
                    instead: "",
                }),
            };
        };
        let own = model.config.clone();
        let dtype = self.set_dtype(name, &mut model, notes);
        let quantization = self.set_quantization(name, &mut model, notes)?;
        let kv_cache_dtype = self.set_kv_cache(name, &mut model, dtype.clone(), notes)?;
        let changed = model.config != own;
        Ok((Some(model), Precision { dtype, quantization, kv_cache_dtype, changed }))
    }

    fn set_dtype(&self, name: &str, model: &mut LoadedModel, notes: &mut Vec<String>) -> Option<String> {
        let config = &mut model.config;
        let (dtype, bytes) = match self.dtype.named() {
            Some(named) => named,
            None if self.dtype == Dtype::Auto && config.dtype_bytes == 4.0 => {
                notes.push(format!("{name} is stored in float32: served in bfloat16, as vLLM does without `--dtype`"));
                ("bfloat16", 2.0)
            }
            None => return model.dtype.clone(),
        };
        let stored = config.dtype_bytes;
        if config.weight_bytes == stored {
            config.weight_bytes = bytes;
        }
        // Weights that quantisation leaves out have the type of the activations.
        for class in config.architecture.iter_mut().flat_map(|layers| layers.weights.classes_mut()) {
            *class = class.map(|own| if own == stored { bytes } else { own });
        }
        config.dtype_bytes = bytes;
        config.kv_dtype_bytes = bytes;
        Some(dtype.to_owned())
    }

    fn set_quantization(
        &self,
        name: &str,
        model: &mut LoadedModel,
        notes: &mut Vec<String>,
    ) -> Result<Option<String>, ConfigError> {
        let Some(method) = self.quantization else { return Ok(model.quantization.clone()) };
        let (text, file): (&str, _) = (method.into(), model.path.display());
        let conflict = |message: String, hint: &str| Err(ConfigError::Conflict { message, hint: hint.to_owned() });
        if model.config.dtype_bytes == 4.0 {
            let message = format!("`--quantization {text}` needs activations in 16 bits, not in float32");
            return conflict(message, "drop `--dtype float32`");
        }
        if let Some(stored) = &model.quantization {
            if !method.serves(stored) {
                let message = format!("`--quantization {text}` contradicts the model: {file} says `{stored}`");
                return conflict(message, "leave it out: vLLM takes the method from there");
            }
            return Ok(Some(text.to_owned()));
        }
        let Some(bits) = method.weight_bits() else {
            let message =
                format!("`--quantization {text}` needs a model that is stored so, and {file} says nothing of it");
            return conflict(message, "`fp8` has weights of 8 bits, `awq` and `gptq` of 4");
        };
        model.config.weight_bytes = bits / 8.0;
        if let Some(layers) = &mut model.config.architecture {
            // As in vLLM, the matrices of routing and output keep the type of the activations.
            layers.weights.router = Some(model.config.dtype_bytes);
            layers.weights.output = Some(model.config.dtype_bytes);
        }
        let how = if method.is_online() { "quantised as they are loaded" } else { "as if the model were stored so" };
        notes.push(format!("{name}: weights of {bits} bits by `--quantization {text}`, {how}"));
        Ok(Some(text.to_owned()))
    }

    fn set_kv_cache(
        &self,
        name: &str,
        model: &mut LoadedModel,
        dtype: Option<String>,
        notes: &mut Vec<String>,
    ) -> Result<Option<String>, ConfigError> {
        let config = &mut model.config;
        let (bytes, kv_dtype) = match self.kv_cache_dtype {
            KvCacheDtype::Auto if model.fp8_kv_cache && self.dtype != Dtype::Stored => {
                notes.push(format!("{name}: KV cache in fp8, as its config says"));
                (1.0, "fp8")
            }
            KvCacheDtype::Auto => return Ok(dtype),
            KvCacheDtype::Bfloat16 => (2.0, "bfloat16"),
            KvCacheDtype::Fp8 => (1.0, "fp8"),
            KvCacheDtype::Fp8E4m3 => (1.0, "fp8_e4m3"),
            KvCacheDtype::Fp8E5m2 if config.weight_bytes == 1.0 => {
                return Err(ConfigError::Conflict {
                    message: "`--kv-cache-dtype fp8_e5m2` cannot be used with 8-bit weights, as in vLLM".into(),
                    hint: "`--kv-cache-dtype fp8` takes as much memory".into(),
                });
            }
            KvCacheDtype::Fp8E5m2 => (1.0, "fp8_e5m2"),
        };
        config.kv_dtype_bytes = bytes;
        Ok(Some(kv_dtype.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use blis_sim::architecture::WeightBytes;
    use blis_sim::latency::Batch;

    use super::*;
    use crate::engine::{BatchSettings, EngineProfile};
    use crate::{Deployment, DeploymentArgs, LatencyKind, resolve};

    fn batch() -> BatchSettings {
        let (max_num_seqs, max_num_batched_tokens) = (Some(256), Some(2048));
        BatchSettings {
            engine: Some(EngineProfile::Vllm033),
            max_num_seqs,
            max_num_batched_tokens,
            unchunked_prefill: false,
        }
    }

    fn args(precision: PrecisionArgs) -> DeploymentArgs {
        let llama = DeploymentArgs::new("meta-llama/llama-3.1-8b-instruct");
        DeploymentArgs { tensor_parallel_size: Some(1), batch: batch(), precision, ..llama }
    }

    fn resolved(precision: PrecisionArgs) -> Deployment {
        resolve(&args(precision)).unwrap()
    }

    fn refused(precision: PrecisionArgs) -> String {
        resolve(&args(precision)).unwrap_err().to_string()
    }

    /// A step of one request reads every weight once.
    fn decode_us(deployment: &Deployment, context: u32) -> f64 {
        let mut batch = Batch::default();
        batch.add_decode(context);
        deployment.latency.step_time(&batch).0 as f64
    }

    const USUAL: PrecisionArgs =
        PrecisionArgs { dtype: Dtype::Auto, quantization: None, kv_cache_dtype: KvCacheDtype::Auto };

    #[test]
    fn the_models_own_formats_change_nothing() {
        let same = PrecisionArgs { dtype: Dtype::Bfloat16, kv_cache_dtype: KvCacheDtype::Bfloat16, ..USUAL };
        let [usual, same] = [USUAL, same].map(resolved);
        assert_eq!(format!("{:?}", usual.latency), format!("{:?}", same.latency));
        assert_eq!((usual.total_kv_blocks, &usual.notes), (same.total_kv_blocks, &same.notes));
        assert_eq!((usual.precision.clone(), usual.precision.changed), (same.precision, false));
        assert_eq!(usual.precision.kv_cache_dtype.as_deref(), Some("bfloat16"));
    }

    /// The matrices of the 32 layers, 6.98 G weights, take one byte less each; a KV block takes 16 × 128 KiB.
    #[test]
    fn weights_of_8_bits_leave_memory_and_are_read_in_less_time() {
        let usual = resolved(USUAL);
        let fp8 = resolved(PrecisionArgs { quantization: Some(Quantization::Fp8), ..USUAL });
        let layers = 32.0 * (2.0 * 4096.0 * 4096.0 + 2.0 * 4096.0 * 1024.0 + 3.0 * 4096.0 * 14_336.0);
        let freed = layers / (131_072.0 * 16.0);
        let more = f64::from(fp8.total_kv_blocks - usual.total_kv_blocks);
        assert!((more - freed).abs() <= 1.0, "{more} {freed}");
        let ratio = decode_us(&fp8, 1) / decode_us(&usual, 1);
        assert!((0.5..0.9).contains(&ratio), "{ratio}: half of the bytes, and the launches that scale inputs");
        let awq = resolved(PrecisionArgs { quantization: Some(Quantization::Awq), ..USUAL });
        assert!(awq.total_kv_blocks > fp8.total_kv_blocks && decode_us(&awq, 1) < decode_us(&fp8, 1));
        assert!(fp8.precision.changed && fp8.notes.iter().any(|note| note.contains("weights of 8 bits")));
    }

    #[test]
    fn an_fp8_cache_holds_twice_the_tokens_and_is_read_in_less_time() {
        let usual = resolved(USUAL);
        for kv_cache_dtype in [KvCacheDtype::Fp8, KvCacheDtype::Fp8E4m3, KvCacheDtype::Fp8E5m2] {
            let fp8 = resolved(PrecisionArgs { kv_cache_dtype, ..USUAL });
            assert!(fp8.total_kv_blocks.abs_diff(2 * usual.total_kv_blocks) <= 1);
            let reading = |deployment| decode_us(deployment, 100_000) - decode_us(deployment, 0);
            let ratio = reading(&fp8) / reading(&usual);
            assert!((0.5..0.7).contains(&ratio), "{ratio}: half of the bytes, at 0.7 to 1 of the rate");
        }
    }

    /// Attention, MLPs and experts have 8 bits; the matrices of routing and output keep 16, and take 32 with float32.
    #[test]
    fn weights_by_class_follow_the_formats() {
        let weights = |model: &str, precision: PrecisionArgs| {
            let loaded = crate::model::built_in(model, None).unwrap();
            let (model, _) = precision.apply(model, loaded, &mut Vec::new()).unwrap();
            let config = model.unwrap().config;
            (config.weight_bytes, config.architecture().weights)
        };
        let wide = WeightBytes { router: Some(2.0), output: Some(2.0), ..WeightBytes::default() };
        let fp8 = PrecisionArgs { quantization: Some(Quantization::Fp8), ..USUAL };
        assert_eq!(weights("qwen3.5-35b-a3b", USUAL), (2.0, WeightBytes::default()));
        assert_eq!(weights("qwen3.5-35b-a3b", fp8), (1.0, wide));
        let float32 = PrecisionArgs { dtype: Dtype::Float32, ..USUAL };
        let (_, stored) = weights("qwen3-235b-a22b-fp8", USUAL);
        let (_, wider) = weights("qwen3-235b-a22b-fp8", float32);
        assert_eq!((stored.router, wider.router), (Some(2.0), Some(4.0)));
        assert_eq!((stored.experts, wider.experts), (None, None), "8 bits");
    }

    #[test]
    fn what_was_measured_in_other_formats_is_not_this_deployment() {
        let measured = |precision| {
            let llama = DeploymentArgs { model: "llama-2-7b-hf".into(), ..args(precision) };
            resolve(&llama).unwrap().notes.iter().any(|note| note.starts_with("physics coefficients: measured"))
        };
        assert!(measured(USUAL) && measured(PrecisionArgs { dtype: Dtype::Float16, ..USUAL }));
        assert!(!measured(PrecisionArgs { kv_cache_dtype: KvCacheDtype::Fp8, ..USUAL }));
    }

    #[test]
    fn contradictions_are_refused() {
        let of = |quantization| PrecisionArgs { quantization: Some(quantization), ..USUAL };
        insta::assert_snapshot!(refused(PrecisionArgs { dtype: Dtype::Float32, ..of(Quantization::Fp8) }), @r"
        `--quantization fp8` needs activations in 16 bits, not in float32
        hint: drop `--dtype float32`
        ");
        insta::assert_snapshot!(refused(of(Quantization::Mxfp4)), @r"
        `--quantization mxfp4` needs a model that is stored so, and model_configs/llama-3.1-8b-instruct/config.json says nothing of it
        hint: `fp8` has weights of 8 bits, `awq` and `gptq` of 4
        ");
        insta::assert_snapshot!(refused(PrecisionArgs { kv_cache_dtype: KvCacheDtype::Fp8E5m2, ..of(Quantization::Fp8) }), @r"
        `--kv-cache-dtype fp8_e5m2` cannot be used with 8-bit weights, as in vLLM
        hint: `--kv-cache-dtype fp8` takes as much memory
        ");
        let stored = DeploymentArgs { model: "phi-4-fp8-dynamic".into(), ..args(of(Quantization::Awq)) };
        insta::assert_snapshot!(resolve(&stored).unwrap_err(), @r"
        `--quantization awq` contradicts the model: model_configs/phi-4-fp8-dynamic/config.json says `compressed-tensors`
        hint: leave it out: vLLM takes the method from there
        ");
        let recorded = DeploymentArgs {
            latency_model: Some(LatencyKind::Blackbox),
            ..args(PrecisionArgs { dtype: Dtype::Float16, ..USUAL })
        };
        insta::assert_snapshot!(resolve(&recorded).unwrap_err(), @r"
        `--dtype` changes nothing of blackbox coefficients: they are those of llama-3.1-8b-instruct as measured
        hint: leave it out, or choose another latency model with `--latency-model`
        ");
    }
}
