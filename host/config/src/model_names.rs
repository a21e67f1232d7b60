//! Names of models as people and publishers write them: former names, and suffixes that say how weights are stored.

use serde_json::{Map, Value, json};

/// A name under which a model may be known, and what the given name says beside it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NameCandidate {
    /// Short name, lower case.
    pub name: String,
    /// What is noted of it; nothing of the name itself.
    pub note: Option<String>,
    /// The `quantization_config` that a suffix stands for.
    pub formats: Option<Map<String, Value>>,
}

/// How weights are stored, by the end of a name.
struct Suffix {
    /// The end, lower case.
    end: &'static str,
    /// Words for it.
    words: &'static str,
    method: StoredFormat,
}

/// The methods that suffixes name.
#[derive(Clone, Copy)]
enum StoredFormat {
    Awq,
    Gptq(u32),
    Fp8,
    Integers { weights: u32 },
    Fp8Channels,
    Nvfp4,
    Mxfp4,
    Bitsandbytes(u32),
}

const fn suffix(end: &'static str, words: &'static str, method: StoredFormat) -> Suffix {
    Suffix { end, words, method }
}

/// The longer of two that fit comes first.
const SUFFIXES: &[Suffix] = &[
    suffix("-unsloth-bnb-4bit", "weights of 4 bits (bitsandbytes)", StoredFormat::Bitsandbytes(4)),
    suffix("-bnb-4bit", "weights of 4 bits (bitsandbytes)", StoredFormat::Bitsandbytes(4)),
    suffix("-bnb-8bit", "weights of 8 bits (bitsandbytes)", StoredFormat::Bitsandbytes(8)),
    suffix("-gptq-int4", "weights of 4 bits (GPTQ)", StoredFormat::Gptq(4)),
    suffix("-gptq-int8", "weights of 8 bits (GPTQ)", StoredFormat::Gptq(8)),
    suffix("-gptq-4bit", "weights of 4 bits (GPTQ)", StoredFormat::Gptq(4)),
    suffix("-gptq-8bit", "weights of 8 bits (GPTQ)", StoredFormat::Gptq(8)),
    suffix("-gptq", "weights of 4 bits (GPTQ)", StoredFormat::Gptq(4)),
    suffix("-awq-int4", "weights of 4 bits (AWQ)", StoredFormat::Awq),
    suffix("-int4-awq", "weights of 4 bits (AWQ)", StoredFormat::Awq),
    suffix("-awq", "weights of 4 bits (AWQ)", StoredFormat::Awq),
    suffix("-quantized.w8a8", "weights and inputs of 8 bits", StoredFormat::Integers { weights: 8 }),
    suffix("-quantized.w8a16", "weights of 8 bits", StoredFormat::Integers { weights: 8 }),
    suffix("-quantized.w4a16", "weights of 4 bits", StoredFormat::Integers { weights: 4 }),
    suffix("-w8a8", "weights and inputs of 8 bits", StoredFormat::Integers { weights: 8 }),
    suffix("-w8a16", "weights of 8 bits", StoredFormat::Integers { weights: 8 }),
    suffix("-w4a16", "weights of 4 bits", StoredFormat::Integers { weights: 4 }),
    suffix("-fp8-dynamic", "weights and inputs of 8 bits (FP8)", StoredFormat::Fp8Channels),
    suffix("-fp8", "weights and inputs of 8 bits (FP8)", StoredFormat::Fp8),
    suffix("-nvfp4", "weights and inputs of 4 bits (NVFP4)", StoredFormat::Nvfp4),
    suffix("-fp4", "weights and inputs of 4 bits (NVFP4)", StoredFormat::Nvfp4),
    suffix("-mxfp4", "weights of 4 bits (MXFP4)", StoredFormat::Mxfp4),
];

impl StoredFormat {
    /// The `quantization_config` that such checkpoints have; `lm_head` stays in 16 bits in all of them.
    fn formats(self) -> Map<String, Value> {
        let compressed = |weights: Value| json!({"quant_method": "compressed-tensors", "ignore": ["lm_head"], "config_groups": {"group_0": {"weights": weights}}});
        let config = match self {
            Self::Awq => json!({"quant_method": "awq", "bits": 4, "modules_to_not_convert": ["lm_head"]}),
            Self::Gptq(bits) => json!({"quant_method": "gptq", "bits": bits, "modules_to_not_convert": ["lm_head"]}),
            Self::Fp8 => json!({"quant_method": "fp8", "modules_to_not_convert": ["lm_head"]}),
            Self::Integers { weights } => compressed(json!({"num_bits": weights, "type": "int"})),
            Self::Fp8Channels => compressed(json!({"num_bits": 8, "type": "float"})),
            Self::Nvfp4 => {
                json!({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]})
            }
            Self::Mxfp4 => compressed(json!({"num_bits": 4, "type": "float", "group_size": 32})),
            Self::Bitsandbytes(bits) => json!({
                "quant_method": "bitsandbytes", "load_in_4bit": bits == 4, "load_in_8bit": bits == 8,
                "modules_to_not_convert": ["lm_head"],
            }),
        };
        config.as_object().cloned().unwrap_or_default()
    }
}

/// The names under which the model `name` (short, lower case) may be known: itself, the present name of a former one, and both
/// without a suffix.
pub(super) fn candidates(name: &str) -> Vec<NameCandidate> {
    let mut found = vec![NameCandidate { name: name.to_owned(), note: None, formats: None }];
    for present in present_names(name) {
        let note = Some(format!("`{name}` is another name of `{present}`"));
        found.push(NameCandidate { name: present, note, formats: None });
    }
    if let Some((base, suffix)) = without_suffix(name) {
        let bases = std::iter::once(base.to_owned()).chain(present_names(base));
        found.extend(bases.map(|base| NameCandidate {
            note: Some(format!("`{name}`: the config of `{base}` with {} by the suffix of its name", suffix.words)),
            name: base,
            formats: Some(suffix.method.formats()),
        }));
    }
    found
}

fn without_suffix(name: &str) -> Option<(&str, &'static Suffix)> {
    SUFFIXES.iter().find_map(|suffix| {
        let base = name.strip_suffix(suffix.end)?;
        (!base.is_empty()).then_some((base, suffix))
    })
}

/// The names that a model has now, or had: Llama 3.1 was published as `Meta-Llama-3.1`, Llama 2 and CodeLlama have an `-hf` at the end
/// on Hugging Face, NVIDIA writes `Llama-3_3` for 3.3.
fn present_names(name: &str) -> Vec<String> {
    let mut names = Vec::new();
    let llama = name.strip_prefix("meta-").filter(|rest| rest.starts_with("llama-")).unwrap_or(name);
    if llama.starts_with("llama-") || llama.starts_with("codellama-") {
        let plain = llama.replace('_', ".");
        names.push(plain.clone());
        names.push(plain.strip_suffix("-hf").map_or_else(|| format!("{plain}-hf"), str::to_owned));
    }
    names.retain(|other| other != name);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(name: &str) -> Vec<String> {
        candidates(name).into_iter().map(|candidate| candidate.name).collect()
    }

    #[test]
    fn former_names_and_suffixes_lead_to_the_base() {
        assert_eq!(names("qwen3-32b"), ["qwen3-32b"]);
        assert!(names("meta-llama-3.1-8b-instruct").contains(&"llama-3.1-8b-instruct".to_owned()));
        assert!(names("llama-2-7b").contains(&"llama-2-7b-hf".to_owned()));
        assert!(names("llama-3_3-70b-instruct").contains(&"llama-3.3-70b-instruct".to_owned()));
        for suffix in SUFFIXES {
            let name = format!("qwen3-32b{}", suffix.end);
            let found = candidates(&name);
            let base = found.last().unwrap();
            assert_eq!(base.name, "qwen3-32b", "{name}");
            assert!(base.formats.is_some() && base.note.as_ref().unwrap().contains(suffix.words), "{name}");
        }
        assert!(names("meta-llama-3.1-8b-instruct-awq-int4").contains(&"llama-3.1-8b-instruct".to_owned()));
        assert_eq!(names("-fp8"), ["-fp8"]);
    }
}
