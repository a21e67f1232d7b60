//! Coefficient files of the `physics` latency model: what `blis fit` writes and every simulation reads.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use blis_sim::latency::{PhysicsAlpha, PhysicsBeta};
use serde::{Deserialize, Serialize};

use super::embedded;
use super::error::ConfigError;

/// One coefficient file: weights for any deployment, and better ones for those that were measured.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CoefficientFile {
    /// The day it was fitted, as `2026-11-22`.
    pub fitted: String,
    /// The version that fitted it.
    pub blis: String,
    /// What it was fitted to.
    pub data: Vec<FittedRun>,
    /// For deployments that are not below.
    pub general: Coefficients,
    /// For those that were measured.
    #[serde(default)]
    pub deployments: Vec<DeploymentCoefficients>,
}

/// A measured run that took part in a fit.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FittedRun {
    /// Its name.
    pub run: String,
    /// SHA-256 of the file with its requests, as it lies on disk.
    pub sha256: String,
    /// Requests of it that were compared.
    pub requests: usize,
}

/// Weights for one deployment.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DeploymentCoefficients {
    /// Short name of the model, lower case.
    pub model: String,
    /// Name of the GPU's file.
    pub hardware: String,
    /// GPUs per instance.
    pub tensor_parallel_size: u32,
    /// The weights.
    #[serde(flatten)]
    pub coefficients: Coefficients,
}

/// Weights, and how far they were tested.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Coefficients {
    /// Host times.
    pub alpha: Alpha,
    /// Weights of the parts of a step.
    pub beta: Beta,
    /// Fitted ones with their 95 % interval: what the data leave open.
    #[serde(default)]
    pub intervals: Vec<Interval>,
    /// Errors on requests that took no part in the fit.
    #[serde(default)]
    pub errors: Vec<RunErrors>,
}

/// α by name; see [`PhysicsAlpha`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "those of `PhysicsAlpha`")]
pub struct Alpha {
    pub arrival_us: f64,
    pub input_token_us: f64,
    pub first_token_steps: f64,
}

/// β by name; see [`PhysicsBeta`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "those of `PhysicsBeta`")]
pub struct Beta {
    pub gemm: f64,
    pub experts: f64,
    pub decode_attention: f64,
    pub prefill_attention: f64,
    pub collectives: f64,
    pub layer_us: f64,
    pub request_us: f64,
    pub step_us: f64,
}

/// Where a coefficient probably lies.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// Its name.
    pub coefficient: String,
    /// From.
    pub low: f64,
    /// To.
    pub high: f64,
}

/// Signed errors on one run, %: positive if the simulation is slower than the measurement.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RunErrors {
    /// Name of the run.
    pub run: String,
    /// Which of its requests: `validation`, `left out`, …
    pub requests: String,
    /// Of the mean end-to-end latency.
    pub mean_e2e: f64,
    /// Of its 99th percentile.
    pub p99_e2e: f64,
    /// Of the mean time to first token.
    pub mean_ttft: f64,
    /// Of the mean inter-token latency.
    pub mean_itl: f64,
}

impl Coefficients {
    /// As the model takes them.
    #[must_use]
    pub fn alpha(&self) -> PhysicsAlpha {
        let Alpha { arrival_us, input_token_us, first_token_steps } = self.alpha;
        PhysicsAlpha { arrival_us, input_token_us, first_token_steps }
    }

    /// As the model takes them.
    #[must_use]
    pub fn beta(&self) -> PhysicsBeta {
        let Beta { gemm, experts, decode_attention, prefill_attention, collectives, layer_us, request_us, step_us } =
            self.beta;
        PhysicsBeta { gemm, experts, decode_attention, prefill_attention, collectives, layer_us, request_us, step_us }
    }

    /// The largest error of the mean end-to-end latency on requests the fit has not seen, %, and how many runs
    /// that is over; `None` if it was never tested.
    #[must_use]
    pub fn validated(&self) -> Option<(f64, usize)> {
        let worst = self.errors.iter().map(|run| run.mean_e2e.abs()).max_by(f64::total_cmp)?;
        Some((worst, self.errors.len()))
    }
}

impl CoefficientFile {
    /// The file on the command line, or the embedded one.
    ///
    /// # Errors
    /// If it cannot be read or makes no sense.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(path) = path else { return Ok(Self::embedded().clone()) };
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.into(), source })?;
        Self::parse(path, &text)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it makes no sense.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        blis_diag::yaml::from_str(text).map_err(|error| ConfigError::yaml(path, &error))
    }

    /// The one of the repository.
    #[must_use]
    pub fn embedded() -> &'static Self {
        static FILE: LazyLock<CoefficientFile> = LazyLock::new(|| {
            let file = embedded::PHYSICS;
            CoefficientFile::parse(Path::new(file.path), file.text).expect("embedded files are read by a test")
        });
        &FILE
    }

    /// The weights measured on that deployment, if there are any.
    #[must_use]
    pub fn exact(&self, model: &str, hardware: &str, tensor_parallel_size: u32) -> Option<&Coefficients> {
        let same = |entry: &&DeploymentCoefficients| {
            entry.model == model
                && entry.hardware.eq_ignore_ascii_case(hardware)
                && entry.tensor_parallel_size == tensor_parallel_size
        };
        self.deployments.iter().find(same).map(|entry| &entry.coefficients)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_file_is_complete() {
        let file = CoefficientFile::embedded();
        assert!(file.exact("llama-2-7b-hf", "h100", 1).is_some());
        assert!(file.exact("llama-2-7b-hf", "H100", 2).is_none());
        for entry in &file.deployments {
            let (worst, runs) = entry.coefficients.validated().expect("every deployment was tested");
            assert!(worst < 10.0 && runs > 0, "{}: {worst} %", entry.model);
        }
        assert!(file.data.iter().all(|run| run.sha256.len() == 64));
    }

    #[test]
    fn mistakes_have_a_place() {
        let parse = |text| CoefficientFile::parse(Path::new("mine.yaml"), text).unwrap_err().to_string();
        assert!(parse("fitted: 2026-11-22\nblis: 1\ndatas: []\n").starts_with("mine.yaml:3:1: unknown field `datas`"));
    }
}
