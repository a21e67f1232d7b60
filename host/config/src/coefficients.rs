//! Trained coefficients: the `blackbox` table with its presets, and the `trained-physics` defaults.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::embedded::{self, Embedded};
use super::error::ConfigError;
use super::short_name::short_name;
use blis_diag::Diagnostic;

/// Coefficients fitted to one measured deployment: a row of `model_configs/blackbox.csv`.
#[derive(Clone, Debug, PartialEq)]
pub struct BlackboxRow {
    /// Short name of the model: after the last `/`, lower case.
    pub model: String,
    /// GPU of the measurement, by the name of its hardware file.
    pub hardware: String,
    /// Tensor-parallel size: GPUs of one instance.
    pub tensor_parallel_size: u32,
    /// vLLM release, like `v0.8.4`.
    pub vllm_version: String,
    /// Number of KV blocks of 16 tokens, if it was recorded.
    pub total_kv_blocks: Option<u32>,
    /// Host times, µs: per request, per input token, per output token.
    pub alpha: [f64; 3],
    /// Step times, µs: per step, per prefill token, per decode token.
    pub beta: [f64; 3],
}

impl BlackboxRow {
    /// The deployment in messages, like `H100 tp1 v0.8.4`.
    #[must_use]
    pub fn deployment(&self) -> String {
        format!("{} tp{} {}", self.hardware, self.tensor_parallel_size, self.vllm_version)
    }
}

/// All rows, in the order of the file.
#[must_use]
pub fn blackbox_rows() -> &'static [BlackboxRow] {
    static ROWS: LazyLock<Vec<BlackboxRow>> = LazyLock::new(|| {
        let rows = parse_rows(&embedded::BLACKBOX);
        rows.expect("the embedded table is read by a test")
    });
    &ROWS
}

/// Defaults of BLIS (February 2026) for options that the command line leaves out.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Presets {
    /// GPU of all models.
    pub hardware: String,
    /// vLLM release, unless the model has its own.
    pub vllm_version: String,
    models: BTreeMap<String, BlackboxPreset>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BlackboxPreset {
    tensor_parallel_size: u32,
    vllm_version: Option<String>,
}

impl Presets {
    /// The presets of `model_configs/blackbox-presets.yaml`.
    #[must_use]
    pub fn get() -> &'static Self {
        static PRESETS: LazyLock<Presets> = LazyLock::new(|| embedded_yaml(&embedded::BLACKBOX_PRESETS));
        &PRESETS
    }

    /// Tensor-parallel size, if the model has a preset.
    #[must_use]
    pub fn tensor_parallel_size(&self, model: &str) -> Option<u32> {
        self.models.get(model).map(|preset| preset.tensor_parallel_size)
    }

    /// The default vLLM release for the model.
    #[must_use]
    pub fn vllm_version(&self, model: &str) -> &str {
        self.models.get(model).and_then(|preset| preset.vllm_version.as_deref()).unwrap_or(&self.vllm_version)
    }
}

/// Default coefficients of `trained-physics`, from `model_configs/trained-physics.yaml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainedDefaults {
    /// Origin of the coefficients.
    pub source: String,
    /// Host times, µs: per request before the queue, per request after its last token, per output token.
    pub alpha: Vec<f64>,
    /// The weights b0 … b10 of `engine.md` §4.3.
    pub beta: Vec<f64>,
}

impl TrainedDefaults {
    #[must_use]
    pub fn get() -> &'static Self {
        static DEFAULTS: LazyLock<TrainedDefaults> = LazyLock::new(|| embedded_yaml(&embedded::TRAINED_PHYSICS));
        &DEFAULTS
    }
}

fn embedded_yaml<T: DeserializeOwned>(file: &Embedded) -> T {
    let parsed = blis_diag::yaml::from_str(file.text).map_err(|error| ConfigError::yaml(Path::new(file.path), &error));
    parsed.expect("embedded files are read by a test")
}

fn parse_rows(file: &Embedded) -> Result<Vec<BlackboxRow>, ConfigError> {
    const COLUMNS: usize = 12;
    let mut lines = file.text.lines().zip(1..).filter(|(line, _)| !line.starts_with('#'));
    lines.next(); // the header
    let mut rows = Vec::new();
    for (line, number) in lines {
        let wrong =
            |what: &str| ConfigError::in_file(Path::new(file.path), Diagnostic::new(format!("line {number}: {what}")));
        let cells: Vec<&str> = line.split(',').collect();
        let [model, hardware, tp, version, blocks, numbers @ .., _source] = cells.as_slice() else {
            return Err(wrong("too few columns"));
        };
        if cells.len() != COLUMNS {
            return Err(wrong("wrong number of columns"));
        }
        let mut coefficients = [0.0; 6];
        for (slot, cell) in coefficients.iter_mut().zip(numbers) {
            *slot = cell.parse().map_err(|_| wrong(cell))?;
        }
        let [a0, a1, a2, b0, b1, b2] = coefficients;
        rows.push(BlackboxRow {
            model: short_name(model),
            hardware: (*hardware).into(),
            tensor_parallel_size: tp.parse().map_err(|_| wrong(tp))?,
            vllm_version: (*version).into(),
            total_kv_blocks: if blocks.is_empty() { None } else { Some(blocks.parse().map_err(|_| wrong(blocks))?) },
            alpha: [a0, a1, a2],
            beta: [b0, b1, b2],
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_complete() {
        let rows = blackbox_rows();
        assert_eq!(rows.len(), 89);
        let row = rows.iter().find(|row| row.model == "llama-3.1-8b-instruct" && row.deployment() == "H100 tp2 v0.8.4");
        assert_eq!(row.unwrap().beta, [6910.420479880494, 17.67057489844186, 2.8377471109943855]);
        assert_eq!(row.unwrap().total_kv_blocks, Some(132_139));
        assert_eq!(rows.iter().filter(|row| row.total_kv_blocks.is_none()).count(), 4, "v0.11.0 recorded none");
    }

    #[test]
    fn every_preset_names_a_row() {
        let presets = Presets::get();
        for model in presets.models.keys() {
            let (tp, version) = (presets.tensor_parallel_size(model), presets.vllm_version(model));
            let deployment = format!("{} tp{} {version}", presets.hardware, tp.unwrap());
            let found = blackbox_rows().iter().any(|row| row.model == *model && row.deployment() == deployment);
            assert!(found, "{model}: {deployment}");
        }
        assert_eq!(presets.models.len(), 28);
    }

    #[test]
    fn trained_defaults_are_eleven_weights() {
        let defaults = TrainedDefaults::get();
        assert_eq!((defaults.alpha.len(), defaults.beta.len()), (3, 11));
        assert!(defaults.source.contains("iter29"));
    }
}
