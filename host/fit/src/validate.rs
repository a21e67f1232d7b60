//! Compares measured runs with simulations under given coefficients.

use serde::Serialize;
use strum::VariantArray as _;

use super::breakdown::{LatencyBreakdown, RequestParts, replay_parts};
use super::errors::{Errors, LoadStageErrors, comparable, compare, compare_stages};
use super::replay::{Predicted, fully_cached, replay};
use super::runs::{FitError, MeasuredRun, RunSplit, served_by};
use blis_config::{Deployment, DeploymentArgs, resolve};
use blis_diag::Diagnostic;
use blis_sim::latency::PhysicsAlpha;

/// The simulation of a measured run; errors are signed, simulated against measured.
#[derive(Clone, Debug, Serialize)]
pub struct Validated {
    /// Name of the run.
    pub run: String,
    /// Model that was served, its short name.
    pub model: String,
    /// GPU that it was served on.
    pub hardware: String,
    /// Tensor parallelism of an instance. Unit: GPUs, 1 or more.
    pub tensor_parallel_size: u32,
    /// The part of its requests that was compared: `train`, `validation`, `test`, several with `+`, or `all`.
    pub split: String,
    /// How far the deployment is from those that coefficients were fitted to: coefficients of its own, a dense 16-bit
    /// model on H100, a mixture of experts, fewer bits, another GPU.
    pub class: DeploymentClass,
    /// Latency model: `physics`, or BLIS's `trained-physics` with `--parity blis`.
    pub latency_model: String,
    /// Errors of the simulation.
    #[serde(flatten)]
    pub errors: Errors,
    /// Errors by level of load; empty if the levels are not known (column `stages_rate_x_seconds`, `--stages`).
    pub stages: Vec<LoadStageErrors>,
    /// What prefix caching may change; `null` if the data say which prompts have KV blocks in common.
    pub prefix_bounds: Option<PrefixBounds>,
    /// The simulated end-to-end latency of the compared requests in parts.
    pub breakdown: LatencyBreakdown,
    /// Preemptions of the compared requests.
    pub preemptions: Preemptions,
    /// KV blocks of the server; `null` if they were not recorded. Unit: blocks.
    pub kv_blocks_measured: Option<u64>,
    /// KV blocks that the simulator computes for the deployment (with `--parity blis` by BLIS's formula); `null` if it
    /// cannot. Unit: blocks.
    pub kv_blocks_computed: Option<u32>,
    /// Notes, as the origin of the coefficients.
    pub notes: Vec<String>,
    /// Notes about the files of the run, which are among `notes`.
    #[serde(skip)]
    pub file_notes: Vec<String>,
    /// (arrival s, measured s, simulated s) of each compared request.
    #[serde(skip)]
    pub points: Vec<(f64, f64, f64)>,
}

/// How far a deployment is from those that coefficients were fitted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::VariantArray)]
#[serde(rename_all = "kebab-case")]
pub enum DeploymentClass {
    /// The coefficients are of this model, GPU and number of GPUs.
    ExactDeployment,
    /// A dense model in 16 bits on H100, as most that the general coefficients were fitted to.
    SameArchitecture,
    /// A mixture of experts in 16 bits on H100.
    Moe,
    /// Weights in 8 bits or fewer, on H100.
    Quantized,
    /// A GPU other than H100, the only one that the general coefficients were fitted to.
    OtherGpu,
}

impl DeploymentClass {
    /// The name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ExactDeployment => "exact deployment",
            Self::SameArchitecture => "same architecture",
            Self::Moe => "MoE",
            Self::Quantized => "FP8",
            Self::OtherGpu => "other GPU",
        }
    }

    fn new(deployment: &Deployment) -> Self {
        let fact = |wanted: &str| {
            deployment.model_facts.iter().find(|(name, _)| name == wanted).map_or(0.0, |(_, value)| *value)
        };
        let exact = |note: &String| note.starts_with("physics coefficients: measured on this deployment");
        if deployment.notes.iter().any(exact) {
            Self::ExactDeployment
        } else if deployment.hardware != "H100" {
            Self::OtherGpu
        } else if fact("weight_bytes") < fact("dtype_bytes") {
            Self::Quantized
        } else if fact("num_experts") > 0.0 {
            Self::Moe
        } else {
            Self::SameArchitecture
        }
    }
}

/// Errors at the two extremes of prefix caching, for data that do not say which prompts have KV blocks in common.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PrefixBounds {
    /// No prompt has a block in common with another; the errors of the run are these.
    pub none_cached: MeanErrors,
    /// All prompts are beginnings of one text, so that each block is computed once.
    pub all_cached: MeanErrors,
}

/// Signed errors of means, simulated against measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MeanErrors {
    /// Error of the mean end-to-end latency. Unit: %.
    pub e2e: f64,
    /// Error of the mean time to first token. Unit: %.
    pub ttft: f64,
}

impl From<&Errors> for MeanErrors {
    fn from(errors: &Errors) -> Self {
        Self { e2e: errors.e2e.mean, ttft: errors.ttft.mean }
    }
}

/// Preemptions of the compared requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Preemptions {
    /// Reported by the server; `null` if it reports none. Unit: preemptions.
    pub measured: Option<u64>,
    /// Those of the simulation. Unit: preemptions.
    pub simulated: u64,
}

/// The deployment of `run`, resolved.
///
/// # Errors
/// If it cannot be simulated.
pub fn deployment(run: &MeasuredRun) -> Result<Deployment, FitError> {
    resolved(&run.name, &deployment_args(run))
}

/// The deployment of `run` with other coefficients: α, then β.
///
/// # Errors
/// If it cannot be simulated.
pub(super) fn weighted(run: &MeasuredRun, weights: &[f64]) -> Result<Deployment, FitError> {
    let (alpha, beta) = weights.split_at(PhysicsAlpha::NAMES.len());
    let coefficients = (Some(alpha.to_vec()), Some(beta.to_vec()));
    let args = DeploymentArgs { alpha_coeffs: coefficients.0, beta_coeffs: coefficients.1, ..deployment_args(run) };
    resolved(&run.name, &args)
}

/// The deployment options of `run`. Under parity, the size of the KV cache follows BLIS's formula.
fn deployment_args(run: &MeasuredRun) -> DeploymentArgs {
    served_by(run.engine, run.parity, run.max_num_seqs, run.max_num_batched_tokens, run.deployment.clone())
}

/// The deployment of the run `name`, resolved.
pub(super) fn resolved(name: &str, args: &DeploymentArgs) -> Result<Deployment, FitError> {
    resolve(args).map_err(|source| FitError::Deployment { run: name.to_owned(), source: Box::new(source) })
}

/// The KV blocks that the deployment would have if their number were not known; `None` if they cannot be computed.
pub(super) fn computed_kv_blocks(args: &DeploymentArgs) -> Option<u32> {
    let args = DeploymentArgs { total_kv_blocks: None, ..args.clone() };
    resolve(&args).ok().map(|deployment| deployment.total_kv_blocks)
}

/// Simulates `run` and compares its requests of `splits`; all requests if it has none of them.
///
/// # Errors
/// If it cannot be simulated.
pub fn validate(run: &MeasuredRun, splits: &[RunSplit]) -> Result<Validated, FitError> {
    let deployment = deployment(run)?;
    let (predicted, parts) = replay_parts(run, &deployment)?;
    let (split, numbers) = compared(run, splits);
    let errors = errors_of(run, &predicted, &numbers)?;
    let bounds = if run.prefixes_known { None } else { Some(prefix_bounds(run, &deployment, &errors, &numbers)?) };
    let args = deployment_args(run);
    let point = |number: &usize| {
        let request = &run.requests[*number];
        (request.arrival_us as f64 / 1e6, request.e2e_us / 1e6, predicted[*number].e2e_us / 1e6)
    };
    let mut notes = deployment.notes.clone();
    notes.extend(run.notes.iter().cloned());
    if run.parity {
        notes.push("latency model, scheduler and KV formula are BLIS's".to_owned());
    }
    Ok(Validated {
        run: run.name.clone(),
        model: deployment.model.clone(),
        hardware: deployment.hardware.clone(),
        tensor_parallel_size: deployment.tensor_parallel_size,
        split,
        class: DeploymentClass::new(&deployment),
        latency_model: deployment.latency_kind.name().to_owned(),
        errors,
        stages: compare_stages(run, &predicted, &numbers),
        prefix_bounds: bounds,
        breakdown: LatencyBreakdown::new(&numbers.iter().map(|&number| parts[number]).collect::<Vec<_>>()),
        preemptions: preemptions(run, &parts, &numbers),
        kv_blocks_measured: run.deployment.total_kv_blocks,
        kv_blocks_computed: computed_kv_blocks(&args),
        notes,
        file_notes: run.notes.clone(),
        points: numbers.iter().map(point).collect(),
    })
}

/// Errors at both extremes of prefix caching; `errors` are those of `run`, in which no prompt is cached.
fn prefix_bounds(
    run: &MeasuredRun,
    deployment: &Deployment,
    errors: &Errors,
    numbers: &[usize],
) -> Result<PrefixBounds, FitError> {
    let cached = fully_cached(run);
    let predicted = replay(&cached, deployment, &deployment.latency)?;
    let all_cached = MeanErrors::from(&errors_of(&cached, &predicted, numbers)?);
    Ok(PrefixBounds { none_cached: MeanErrors::from(errors), all_cached })
}

fn preemptions(run: &MeasuredRun, parts: &[RequestParts], numbers: &[usize]) -> Preemptions {
    let measured = numbers.iter().map(|&number| run.requests[number].preemptions.map(u64::from));
    let simulated = numbers.iter().map(|&number| u64::from(parts[number].preemptions)).sum();
    Preemptions { measured: measured.sum(), simulated }
}

fn errors_of(run: &MeasuredRun, predicted: &[Predicted], numbers: &[usize]) -> Result<Errors, FitError> {
    compare(run, predicted, numbers).ok_or_else(|| FitError::Run {
        run: run.name.clone(),
        mistake: Box::new(Diagnostic::new("no request can be compared").hint("the run is too short for its latencies")),
    })
}

/// The name of the part of `run` that is compared, and the numbers of its requests.
fn compared(run: &MeasuredRun, splits: &[RunSplit]) -> (String, Vec<usize>) {
    let present = |split: &RunSplit| run.requests.iter().any(|request| request.split == *split);
    let chosen: Vec<RunSplit> = splits.iter().copied().filter(present).collect();
    let all = chosen.is_empty()
        || RunSplit::VARIANTS.iter().filter(|split| present(split)).all(|split| chosen.contains(split));
    let splits = if all { RunSplit::VARIANTS.to_vec() } else { chosen };
    let name =
        if all { "all".into() } else { splits.iter().map(|split| split.into_str()).collect::<Vec<_>>().join("+") };
    (name, comparable(run, &splits))
}
