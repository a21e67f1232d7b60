//! Bytes of a weight by the names of number formats, in `quantization_config` and `hf_quant_config.json`.

use blis_diag::Diagnostic;
use serde_json::{Map, Value};

use super::keys::shown;

/// Values that share a scale of 8 bits in NVFP4, and in formats of OCP Microscaling.
const NVFP4_GROUP: f64 = 16.0;
const MX_GROUP: f64 = 32.0;

/// A number format of weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Format {
    /// Bytes of a weight, with its share of scales.
    pub bytes: f64,
    /// Whether the inputs have 4 bits as well.
    pub fp4_inputs: bool,
}

/// The format that ModelOpt calls `algorithm` (`quant_algo`); `group`: weights that share a scale, if it is given.
pub(super) fn of_algorithm(algorithm: &str, group: Option<f64>) -> Result<Format, Diagnostic> {
    let scaled = |bits: f64, usual: f64| (bits + 8.0 / group.unwrap_or(usual)) / 8.0;
    let (bytes, fp4_inputs) = match algorithm {
        "FP8" | "FP8_PER_CHANNEL_PER_TOKEN" | "FP8_PB_WO" | "FP8_PB_REAL" | "FP8_BLOCK_SCALES" => (1.0, false),
        "MXFP8" => (scaled(8.0, MX_GROUP), false),
        "NVFP4" | "NVFP4_AWQ" => (scaled(4.0, NVFP4_GROUP), true),
        "W4A16_NVFP4" | "W4A8_NVFP4_FP8" => (scaled(4.0, NVFP4_GROUP), false),
        "MXFP4" | "W4A16_MXFP4" | "W4A8_MXFP4_FP8" => (scaled(4.0, MX_GROUP), false),
        "W4A16_AWQ" | "W4A8_AWQ" | "INT4_AWQ" => (0.5, false),
        "W8A16" | "INT8_SQ" | "W8A8_SQ_PER_CHANNEL" => (1.0, false),
        _ => {
            return Err(Diagnostic::new(format!("`quant_algo` is \"{algorithm}\", which is not known")).hint(
                "known: FP8, MXFP8, NVFP4, W4A16_NVFP4, MXFP4, W4A16_AWQ, W8A16, MIXED_PRECISION and their like",
            ));
        }
    };
    Ok(Format { bytes, fp4_inputs })
}

/// The weights that share a scale (`group_size`), if any.
pub(super) fn group_size(config: &Map<String, Value>) -> Option<f64> {
    config.get("group_size").and_then(Value::as_f64).filter(|size| *size >= 1.0)
}

/// Bytes per weight by `quantization_config`, if it says so; `dtype_bytes`: those of what it leaves out.
///
/// # Errors
/// If it names an unknown format.
pub(crate) fn weight_bytes(config: &Map<String, Value>, dtype_bytes: f64) -> Result<Option<f64>, Diagnostic> {
    let number = |value: &Value| value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
    let text = |key: &str| config.get(key).and_then(Value::as_str);
    let bits = |bits: f64| Some(bits / 8.0).filter(|bytes| *bytes > 0.0 && bytes.is_finite());
    if let Some(stored) = config.get("bits").and_then(number) {
        return Ok(bits(stored));
    }
    Ok(match text("quant_method") {
        Some("fp8" | "fbgemm_fp8" | "ptpc_fp8") => Some(1.0),
        Some("modelopt" | "modelopt_fp4" | "modelopt_mixed") => match text("quant_algo") {
            // What is not listed has the type of the activations.
            Some("MIXED_PRECISION") => Some(dtype_bytes),
            Some(algorithm) => Some(of_algorithm(algorithm, group_size(config))?.bytes),
            None if has_fp4_activations(config) => Some((4.0 + 8.0 / NVFP4_GROUP) / 8.0),
            // Only the KV cache is quantised.
            None if config.contains_key("kv_cache_quant_algo") => Some(dtype_bytes),
            None => None,
        },
        Some("bitsandbytes") => match ["load_in_4bit", "load_in_8bit"].map(|key| flag(config, key)) {
            [true, _] => Some(0.5),
            [_, true] => Some(1.0),
            _ => None,
        },
        Some("compressed-tensors") => {
            // A JSON map of serde_json is sorted by key, as in BLIS.
            let groups = config.get("config_groups").and_then(Value::as_object);
            let found = groups.into_iter().flat_map(Map::values).find_map(|group| group.get("weights")?.as_object());
            found.and_then(|weights| {
                let stored = number(weights.get("num_bits")?)?;
                // 4-bit floats come with a scale of 8 bits per group.
                let is_float4 = stored == 4.0 && weights.get("type").and_then(Value::as_str) == Some("float");
                bits(if is_float4 { stored + 8.0 / group_size(weights).unwrap_or(NVFP4_GROUP) } else { stored })
            })
        }
        _ => None,
    })
}

fn flag(config: &Map<String, Value>, key: &str) -> bool {
    config.get(key).and_then(Value::as_bool).unwrap_or(false)
}

/// Whether weights and inputs are rounded to FP4: ModelOpt's NVFP4, or 4-bit floating-point inputs of compressed-tensors.
pub(crate) fn has_fp4_activations(config: &Map<String, Value>) -> bool {
    let modelopt = config.get("quant_algo").and_then(Value::as_str);
    let modelopt = modelopt.is_some_and(|name| of_algorithm(name, None).is_ok_and(|format| format.fp4_inputs));
    let groups = config.get("config_groups").and_then(Value::as_object);
    let inputs = groups.into_iter().flat_map(Map::values).filter_map(|group| {
        let inputs = group.get("input_activations")?;
        Some(inputs.get("type")?.as_str()? == "float" && inputs.get("num_bits")?.as_f64()? == 4.0)
    });
    let listed = config.get("quantized_layers").and_then(Value::as_object);
    let layers = listed.into_iter().flat_map(Map::values).filter_map(|layer| layer.get("quant_algo")?.as_str());
    let layers = layers.into_iter().any(|name| of_algorithm(name, None).is_ok_and(|format| format.fp4_inputs));
    modelopt || layers || inputs.into_iter().any(|fp4| fp4)
}

/// The `quantization_config` that a `hf_quant_config.json` stands for: ModelOpt writes its formats there.
///
/// # Errors
/// If it has no formats.
pub(crate) fn of_sidecar(sidecar: &Map<String, Value>) -> Result<Map<String, Value>, Diagnostic> {
    let config = match sidecar.get("quantization") {
        Some(Value::Object(config)) => Ok(config.clone()),
        Some(other) => Err(Diagnostic::new(format!("`quantization` is {}", shown(other)))),
        None if sidecar.contains_key("quant_algo") => Ok(sidecar.clone()),
        None => Err(Diagnostic::new("`quantization` is missing")),
    };
    let mut config = config
        .map_err(|mistake| mistake.hint("copy the file from Hugging Face: {\"quantization\": {\"quant_algo\": …}}"))?;
    config.entry("quant_method").or_insert_with(|| "modelopt".into());
    Ok(config)
}
