//! Compares measured runs with simulations under given coefficients.

use serde::Serialize;

use super::errors::{Errors, comparable, compare};
use super::replay::{Predicted, replay};
use super::runs::{FitError, MeasuredRun, RunSplit};
use blis_config::engine::BatchSettings;
use blis_config::{Deployment, DeploymentArgs, resolve};
use blis_diag::Diagnostic;

/// Errors of the simulation of one measured run.
#[derive(Clone, Debug, Serialize)]
pub struct Validated {
    pub run: String,
    /// The part of its requests that was compared.
    pub split: String,
    /// How far the deployment is from those that coefficients were fitted to.
    pub class: DeploymentClass,
    /// Errors of the simulation.
    #[serde(flatten)]
    pub errors: Errors,
    /// Notes for the user: the origin of the coefficients.
    pub notes: Vec<String>,
    /// (arrival s, measured s, simulated s) of each compared request.
    #[serde(skip)]
    pub points: Vec<(f64, f64, f64)>,
}

/// How far a deployment is from those that coefficients were fitted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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
    /// All classes, from near to far.
    pub const ALL: [Self; 5] =
        [Self::ExactDeployment, Self::SameArchitecture, Self::Moe, Self::Quantized, Self::OtherGpu];

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

    fn of(deployment: &Deployment) -> Self {
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

/// The deployment of `run`, resolved.
///
/// # Errors
/// If it cannot be simulated.
pub fn deployment(run: &MeasuredRun) -> Result<Deployment, FitError> {
    let batch = BatchSettings {
        engine: Some(run.engine),
        max_num_seqs: Some(run.max_num_seqs),
        max_num_batched_tokens: Some(run.max_num_batched_tokens),
        unchunked_prefill: false,
    };
    let deployment = DeploymentArgs { batch, sampler: run.engine.sampler(), ..run.deployment.clone() };
    resolve(&deployment).map_err(|source| FitError::Deployment { run: run.name.clone(), source: Box::new(source) })
}

/// Simulates `run` and compares its requests of `splits`; all requests if it has none of them.
///
/// # Errors
/// If it cannot be simulated.
pub fn validate(run: &MeasuredRun, splits: &[RunSplit]) -> Result<Validated, FitError> {
    let deployment = deployment(run)?;
    let predicted = replay(run, &deployment, &deployment.latency)?;
    let class = DeploymentClass::of(&deployment);
    compare_predicted(run, &predicted, splits, (class, deployment.notes))
}

fn compare_predicted(
    run: &MeasuredRun,
    predicted: &[Predicted],
    splits: &[RunSplit],
    (class, notes): (DeploymentClass, Vec<String>),
) -> Result<Validated, FitError> {
    const ALL: [RunSplit; 3] = [RunSplit::Train, RunSplit::Validation, RunSplit::Test];
    let present = |split: &RunSplit| run.requests.iter().any(|request| request.split == *split);
    let chosen: Vec<RunSplit> = splits.iter().copied().filter(present).collect();
    let all = chosen.is_empty() || ALL.into_iter().filter(present).all(|split| chosen.contains(&split));
    let splits = if all { ALL.to_vec() } else { chosen };
    let numbers = comparable(run, &splits);
    let errors = compare(run, predicted, &numbers).ok_or_else(|| FitError::Run {
        run: run.name.clone(),
        mistake: Box::new(Diagnostic::new("no request can be compared").hint("the run is too short for its latencies")),
    })?;
    let point = |number: &usize| {
        let request = &run.requests[*number];
        (request.arrival_us as f64 / 1e6, request.e2e_us / 1e6, predicted[*number].e2e_us / 1e6)
    };
    Ok(Validated {
        run: run.name.clone(),
        split: if all { "all".into() } else { splits.iter().map(|split| split.name()).collect::<Vec<_>>().join("+") },
        class,
        errors,
        notes,
        points: numbers.iter().map(point).collect(),
    })
}
