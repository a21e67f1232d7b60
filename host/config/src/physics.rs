//! Coefficient files of the `physics` latency model: `blis fit` writes them, simulations read them.

use std::fmt::{self, Display};
use std::path::Path;
use std::sync::LazyLock;

use blis_sim::latency::{PhysicsAlpha, PhysicsBeta, Sampler};
use serde::{Deserialize, Serialize};

use super::embedded;
use super::error::ConfigError;

/// Longer files are refused.
const BYTES_MAX: u64 = 4 << 20;

/// A coefficient file: general coefficients for any deployment, and specific ones for those that were measured.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CoefficientFile {
    /// Date of the fit, as `2026-11-22`.
    pub fitted: String,
    /// Version of the program that fitted it.
    pub blis: String,
    /// Implementation of top-k and top-p sampling in the engine that was measured: `sort`, `triton` or `flashinfer`.
    #[serde(default, with = "sampler_name")]
    pub sampler: Sampler,
    /// Measured runs that the coefficients were fitted to.
    pub data: Vec<FittedRun>,
    /// Coefficients for deployments that were not measured.
    pub general: Coefficients,
    /// Coefficients for deployments that were measured.
    #[serde(default)]
    pub deployments: Vec<DeploymentCoefficients>,
}

/// A measured run that took part in a fit.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FittedRun {
    pub run: String,
    /// SHA-256 of the file with its requests, compressed or not, as it is stored.
    pub sha256: String,
    /// Number of its requests that were compared.
    pub requests: usize,
}

/// Coefficients for one deployment.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DeploymentCoefficients {
    /// Short name of the model, lower case.
    pub model: String,
    /// Name of the GPU's file in `hardware/`.
    pub hardware: String,
    /// Tensor-parallel size: GPUs of one instance.
    pub tensor_parallel_size: u32,
    #[serde(flatten)]
    pub coefficients: Coefficients,
}

/// Coefficients and their validation.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Coefficients {
    /// Times of the host around the engine.
    #[serde(with = "AlphaCoefficients")]
    pub alpha: PhysicsAlpha,
    /// Weights of the parts of a step.
    #[serde(with = "BetaCoefficients")]
    pub beta: PhysicsBeta,
    /// Fitted coefficients with their 95 % intervals, which show how well the data determine them.
    #[serde(default)]
    pub intervals: Vec<CoefficientInterval>,
    /// Errors on requests that took no part in the fit.
    #[serde(default)]
    pub errors: Vec<RunErrors>,
}

/// α by name; units as in [`PhysicsAlpha`].
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, remote = "PhysicsAlpha")]
struct AlphaCoefficients {
    arrival_us: f64,
    input_token_us: f64,
    first_token_us: f64,
}

/// β by name; units as in [`PhysicsBeta`].
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, remote = "PhysicsBeta")]
struct BetaCoefficients {
    gemm: f64,
    experts: f64,
    decode_attention: f64,
    prefill_attention: f64,
    collectives: f64,
    sampling: f64,
    layer_us: f64,
    launch_us: f64,
    request_us: f64,
    step_us: f64,
}

/// The interval that probably contains a coefficient.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CoefficientInterval {
    pub coefficient: String,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
}

/// Signed errors on one run, %: positive if the simulation is slower than the measurement.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RunErrors {
    /// Name of the measured run.
    pub run: String,
    /// The requests that were compared: `validation`, `left out`, …
    pub requests: String,
    /// Class of the deployment, as [`ErrorClass`] writes it; `None` for a run of the deployment itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Error of the mean end-to-end latency, %.
    pub mean_e2e: f64,
    /// Error of the 99th percentile of the end-to-end latency, %.
    pub p99_e2e: f64,
    /// Error of the mean TTFT, %.
    pub mean_ttft: f64,
    /// Error of the mean ITL, %.
    pub mean_itl: f64,
}

/// [`RunErrors::requests`] of a run that was simulated with coefficients fitted to other models only.
pub const MODEL_LEFT_OUT: &str = "model left out";

/// The largest errors of some runs, %, without signs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorstErrors {
    /// Number of the runs.
    pub runs: usize,
    /// Of the mean end-to-end latency.
    pub mean_e2e: f64,
    /// Of its 99th percentile.
    pub p99_e2e: f64,
    /// Of the mean TTFT.
    pub mean_ttft: f64,
}

impl WorstErrors {
    fn over<'a>(runs: impl Iterator<Item = &'a RunErrors>) -> Option<Self> {
        runs.fold(None, |worst: Option<Self>, run| {
            let Self { runs, mean_e2e, p99_e2e, mean_ttft } =
                worst.unwrap_or(Self { runs: 0, mean_e2e: 0.0, p99_e2e: 0.0, mean_ttft: 0.0 });
            Some(Self {
                runs: runs + 1,
                mean_e2e: mean_e2e.max(run.mean_e2e.abs()),
                p99_e2e: p99_e2e.max(run.p99_e2e.abs()),
                mean_ttft: mean_ttft.max(run.mean_ttft.abs()),
            })
        })
    }
}

impl Display for WorstErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mean_e2e, p99_e2e, mean_ttft, .. } = self;
        write!(f, "mean E2E within {mean_e2e:.1} %, p99 within {p99_e2e:.1} %, mean TTFT within {mean_ttft:.1} %")
    }
}

/// A sampler by its name.
mod sampler_name {
    use blis_sim::latency::Sampler;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(sampler: &Sampler, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(sampler.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Sampler, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(|message| D::Error::custom(format!("`sampler` {message}")))
    }
}

/// What deployments have in common whose errors are similar: kind of the model, width of its weights, GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorClass<'a> {
    /// Whether the model has experts.
    pub experts: bool,
    /// Whether it has latent attention (MLA).
    pub latent_attention: bool,
    /// Bytes of a weight.
    pub weight_bytes: f64,
    /// Name of the GPU.
    pub hardware: &'a str,
}

impl Display for ErrorClass<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.experts { "experts" } else { "dense" };
        let latent = if self.latent_attention { " with latent attention" } else { "" };
        write!(f, "{}-bit {kind}{latent} on {}", self.weight_bytes * 8.0, self.hardware)
    }
}

impl Coefficients {
    /// The largest error of the mean end-to-end latency on requests that took no part in the fit, %, and the number of
    /// runs; `None` without validation.
    #[must_use]
    pub fn validated(&self) -> Option<(f64, usize)> {
        WorstErrors::over(self.errors.iter()).map(|worst| (worst.mean_e2e, worst.runs))
    }

    /// Whether every error is that of coefficients fitted to other models only.
    #[must_use]
    pub fn models_left_out(&self) -> bool {
        self.errors.iter().all(|run| run.requests == MODEL_LEFT_OUT)
    }

    /// The largest errors of all runs, or of those of one class; `None` if there is no such run.
    #[must_use]
    pub fn worst(&self, class: Option<ErrorClass<'_>>) -> Option<WorstErrors> {
        let class = class.map(|class| class.to_string());
        WorstErrors::over(self.errors.iter().filter(|run| class.is_none() || run.class == class))
    }
}

impl CoefficientFile {
    /// The file at `path`, or the embedded one.
    ///
    /// # Errors
    /// If it cannot be read or is invalid.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(path) = path else { return Ok(Self::embedded().clone()) };
        let text =
            blis_diag::read_text(path, BYTES_MAX).map_err(|source| ConfigError::Read { path: path.into(), source })?;
        Self::parse(path, &text)
    }

    /// Reads the text of a coefficient file.
    ///
    /// # Errors
    /// If it is invalid.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        blis_diag::yaml::from_str(text).map_err(|error| ConfigError::yaml(path, &error))
    }

    /// The file of the repository, `model_configs/physics.yaml`.
    #[must_use]
    pub fn embedded() -> &'static Self {
        static FILE: LazyLock<CoefficientFile> = LazyLock::new(|| {
            let file = embedded::PHYSICS;
            CoefficientFile::parse(Path::new(file.path), file.text).expect("embedded files are read by a test")
        });
        &FILE
    }

    /// The coefficients fitted to that deployment, if it was measured.
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
        assert_eq!(file.sampler, Sampler::Sort, "the engine of the measurements was vLLM 0.15");
        assert!(file.general.errors.iter().all(|run| run.class.is_some()));
        let class = ErrorClass { experts: true, latent_attention: false, weight_bytes: 1.0, hardware: "H100" };
        assert_eq!(class.to_string(), "8-bit experts on H100");
        assert_eq!(file.general.worst(Some(class)).map(|worst| worst.runs), Some(2), "Llama-4-Scout FP8");
        assert_eq!(file.general.worst(Some(ErrorClass { hardware: "B200", ..class })), None);
        let [all, of_class] = [None, Some(class)].map(|class| file.general.worst(class).unwrap());
        assert!(all.runs == file.general.errors.len() && all.mean_e2e >= of_class.mean_e2e);
    }

    #[test]
    fn mistakes_have_a_location() {
        let parse = |text| CoefficientFile::parse(Path::new("mine.yaml"), text).unwrap_err().to_string();
        assert!(parse("fitted: 2026-11-22\nblis: 1\ndatas: []\n").starts_with("mine.yaml:3:1: unknown field `datas`"));
    }
}
