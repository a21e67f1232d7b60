//! The whole of `blis fit`: general coefficients, those of each measured deployment, and validation on data that were
//! left out.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::calibrate::{CoefficientValues, FitTarget, Fitted, NAMES, Prior, calibrate};
use super::errors::{Errors, comparable};
use super::runs::{FitError, MeasuredRun, RunSplit};
use super::validate::{Validated, deployment, validate};
use blis_config::physics::{
    CoefficientFile, CoefficientInterval, Coefficients, DeploymentCoefficients, ErrorClass, FittedRun, MODEL_LEFT_OUT,
    RunErrors,
};
use blis_config::{DeploymentArgs, short_name};
use blis_sim::latency::Sampler;

/// Further fits for validation on data that were left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeaveOut {
    /// Leave out each model in turn.
    pub models: bool,
    /// Leave out each workload of a deployment in turn.
    pub workloads: bool,
}

/// The results of a fit.
#[derive(Clone, Debug)]
pub struct FitReport {
    /// The coefficients, with their errors.
    pub file: CoefficientFile,
    /// Errors on the validation part of each run, with the coefficients of its deployment.
    pub validation: Vec<Validated>,
    /// Errors on all of each run, with coefficients fitted to the other models.
    pub models_left_out: Vec<Validated>,
    /// Errors on all of each run, with coefficients fitted to the other workloads of its deployment.
    pub workloads_left_out: Vec<Validated>,
}

/// Model, GPU and tensor-parallel size of a measured run.
type MeasuredDeployment = (String, String, u32);

/// Fits general coefficients to all `runs` and those of each deployment to its own runs, and validates them. If there
/// is a `base`, its general coefficients and its other deployments are kept. `fitted` is the date.
///
/// # Errors
/// If a run cannot be simulated.
pub fn fit(
    runs: &[MeasuredRun],
    base: Option<CoefficientFile>,
    fitted: &str,
    leave_out: LeaveOut,
) -> Result<FitReport, FitError> {
    let runs: Vec<MeasuredRun> = runs.iter().map(split_by_time).collect();
    let deployments: Vec<MeasuredDeployment> = runs.iter().map(measured_deployment).collect::<Result<_, _>>()?;
    let targets: Vec<FitTarget> = runs.par_iter().map(FitTarget::new).collect::<Result<_, _>>()?;
    let measured = MeasuredRuns { runs: &runs, deployments: &deployments, targets: &targets };
    let base = match base {
        Some(base) => base,
        None => CoefficientFile {
            fitted: String::new(),
            blis: String::new(),
            sampler: runs.first().map_or(Sampler::default(), |run| run.engine.sampler()),
            data: Vec::new(),
            general: coefficients(&calibrate(&targets.iter().collect::<Vec<_>>(), &Prior::GENERAL, None)?),
            deployments: Vec::new(),
        },
    };
    let mut data = base.data;
    data.retain(|known| runs.iter().all(|run| run.name != known.run));
    data.extend(runs.iter().map(fitted_run));
    let general = weights(&base.general);
    let mut report = FitReport {
        file: CoefficientFile { fitted: fitted.into(), blis: env!("CARGO_PKG_VERSION").into(), data, ..base },
        validation: Vec::new(),
        models_left_out: Vec::new(),
        workloads_left_out: Vec::new(),
    };
    // Means of a whole run leave nothing to test coefficients of its deployment on.
    // Those of a deployment are used only without data and expert parallelism.
    let single = |run: &MeasuredRun| {
        let DeploymentArgs { data_parallel_size, enable_expert_parallel, .. } = run.deployment;
        run.percentiles.is_none() && data_parallel_size == 1 && !enable_expert_parallel
    };
    let with_requests = runs.iter().zip(&deployments).filter(|(run, _)| single(run)).map(|(_, here)| here);
    for here in with_requests.collect::<BTreeSet<_>>() {
        let members = measured.select(|run, deployment| deployment == here && single(run));
        report.deployment(here, &members, &general, leave_out)?;
    }
    if leave_out.models {
        (report.models_left_out, report.file.general.errors) = measured.leave_models_out(&general)?.into_iter().unzip();
    }
    Ok(report)
}

/// Runs with their deployments, prepared for fits.
struct MeasuredRuns<'a> {
    runs: &'a [MeasuredRun],
    deployments: &'a [MeasuredDeployment],
    targets: &'a [FitTarget],
}

/// A run and what it is prepared as.
type Member<'a> = (&'a MeasuredRun, &'a FitTarget);

impl<'a> MeasuredRuns<'a> {
    fn select(&self, wanted: impl Fn(&MeasuredRun, &MeasuredDeployment) -> bool) -> Vec<Member<'a>> {
        let all = self.runs.iter().zip(self.deployments).zip(self.targets);
        all.filter(|((run, deployment), _)| wanted(run, deployment)).map(|((run, _), target)| (run, target)).collect()
    }

    /// The errors of each run with coefficients fitted to the runs of other models. All these fits start at the general
    /// coefficients, around which they share their simulations.
    fn leave_models_out(&self, general: &CoefficientValues) -> Result<Vec<(Validated, RunErrors)>, FitError> {
        let models: BTreeSet<&str> = self.deployments.iter().map(|(model, ..)| model.as_str()).collect();
        let left_out = |model: &str| -> Result<Vec<(Validated, RunErrors)>, FitError> {
            let weights =
                fit_to(&self.select(|_, (other, ..)| other != model), &Prior::GENERAL, Some(general))?.weights;
            let errors = |(run, _): &Member<'_>| -> Result<(Validated, RunErrors), FitError> {
                let tested = test(run, &weights, &[RunSplit::Train, RunSplit::Validation])?;
                let errors = RunErrors { class: Some(error_class(run)?), ..run_errors(&tested, MODEL_LEFT_OUT) };
                Ok((tested, errors))
            };
            self.select(|_, (own, ..)| own == model).par_iter().map(errors).collect()
        };
        let by_model: Vec<Vec<_>> = models.into_iter().map(left_out).collect::<Result<_, _>>()?;
        Ok(by_model.into_iter().flatten().collect())
    }
}

fn fit_to(members: &[Member<'_>], prior: &Prior, start: Option<&CoefficientValues>) -> Result<Fitted, FitError> {
    calibrate(&members.iter().map(|(_, target)| *target).collect::<Vec<_>>(), prior, start)
}

impl FitReport {
    /// The coefficients of one deployment, fitted to its own runs.
    fn deployment(
        &mut self,
        (model, hardware, tensor_parallel_size): &MeasuredDeployment,
        members: &[Member<'_>],
        general: &CoefficientValues,
        leave_out: LeaveOut,
    ) -> Result<(), FitError> {
        let prior = Prior::around(*general);
        let own = fit_to(members, &prior, None)?;
        let mut coefficients = coefficients(&own);
        for (run, _) in members {
            let tested = test(run, &own.weights, &[RunSplit::Validation])?;
            coefficients.errors.push(run_errors(&tested, "validation"));
            self.validation.push(tested);
        }
        self.file.deployments.retain(|known| {
            (known.model.as_str(), known.hardware.as_str(), known.tensor_parallel_size)
                != (model.as_str(), hardware.as_str(), *tensor_parallel_size)
        });
        self.file.deployments.push(DeploymentCoefficients {
            model: model.clone(),
            hardware: hardware.clone(),
            tensor_parallel_size: *tensor_parallel_size,
            coefficients,
        });
        let workloads: BTreeSet<&str> = members.iter().map(|(run, _)| run.workload.as_str()).collect();
        if !leave_out.workloads || workloads.len() < 2 {
            return Ok(());
        }
        for workload in workloads {
            let (out, rest): (Vec<Member<'_>>, Vec<Member<'_>>) =
                members.iter().copied().partition(|(run, _)| run.workload == workload);
            let weights = fit_to(&rest, &prior, None)?.weights;
            for (run, _) in out {
                self.workloads_left_out.push(test(run, &weights, &[RunSplit::Train, RunSplit::Validation])?);
            }
        }
        Ok(())
    }
}

/// Splits by arrival if the data have no split: 60 % to fit, 20 % to select, 20 % held out.
fn split_by_time(run: &MeasuredRun) -> MeasuredRun {
    let mut run = run.clone();
    if run.percentiles.is_none() && run.requests.iter().all(|request| request.split == RunSplit::Train) {
        let count = run.requests.len();
        for (number, request) in run.requests.iter_mut().enumerate() {
            request.split = match 5 * number / count.max(1) {
                0..=2 => RunSplit::Train,
                3 => RunSplit::Validation,
                _ => RunSplit::Test,
            };
        }
    }
    run
}

fn measured_deployment(run: &MeasuredRun) -> Result<MeasuredDeployment, FitError> {
    let deployment = deployment(run)?;
    Ok((short_name(&run.deployment.model), deployment.hardware, deployment.tensor_parallel_size))
}

/// The class of the deployment of `run`, as [`ErrorClass`] writes it.
fn error_class(run: &MeasuredRun) -> Result<String, FitError> {
    let deployment = deployment(run)?;
    let fact = |wanted: &str| deployment.model_facts.iter().find(|(name, _)| name == wanted).map_or(0.0, |fact| fact.1);
    let class = ErrorClass {
        experts: fact("num_experts") > 0.0,
        latent_attention: fact("kv_lora_rank") > 0.0,
        weight_bytes: fact("weight_bytes"),
        hardware: &deployment.hardware,
    };
    Ok(class.to_string())
}

/// Errors of `run` with the coefficients `weights`, on its requests of `splits`.
fn test(run: &MeasuredRun, weights: &CoefficientValues, splits: &[RunSplit]) -> Result<Validated, FitError> {
    let mut run = run.clone();
    run.deployment.alpha_coeffs = Some(weights[..3].to_vec());
    run.deployment.beta_coeffs = Some(weights[3..].to_vec());
    validate(&run, splits)
}

fn fitted_run(run: &MeasuredRun) -> FittedRun {
    FittedRun { run: run.name.clone(), sha256: run.sha256.clone(), requests: comparable(run, &[RunSplit::Train]).len() }
}

fn run_errors(tested: &Validated, requests: &str) -> RunErrors {
    let Errors { e2e, ttft, itl, .. } = &tested.errors;
    RunErrors {
        run: tested.run.clone(),
        requests: requests.into(),
        class: None,
        mean_e2e: rounded(e2e.mean, 3),
        p99_e2e: rounded(e2e.p99, 3),
        mean_ttft: rounded(ttft.mean, 3),
        mean_itl: itl.map_or(0.0, |itl| rounded(itl.mean, 3)),
    }
}

/// The coefficients as one list: α, then β.
fn weights(coefficients: &Coefficients) -> CoefficientValues {
    let mut weights = [0.0; NAMES.len()];
    let values = coefficients.alpha.to_array().into_iter().chain(coefficients.beta.to_array());
    weights.iter_mut().zip(values).for_each(|(slot, value)| *slot = value);
    weights
}

fn coefficients(fitted: &Fitted) -> Coefficients {
    let [arrival_us, input_token_us, first_token_us, beta @ ..] = fitted.weights.map(|weight| rounded(weight, 6));
    let interval = |(coefficient, &(low, high)): (&&str, &(f64, f64))| {
        (low < high).then(|| CoefficientInterval {
            coefficient: (*coefficient).to_owned(),
            low: rounded(low, 4),
            high: rounded(high, 4),
        })
    };
    Coefficients {
        alpha: [arrival_us, input_token_us, first_token_us].into(),
        beta: beta.into(),
        intervals: NAMES.iter().zip(&fitted.intervals).filter_map(interval).collect(),
        errors: Vec::new(),
    }
}

/// Rounds to that many significant digits; more would claim a precision that the data do not have.
fn rounded(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10f64.powi(digits - 1 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_digits() {
        assert_eq!([rounded(1234.5678, 3), rounded(-0.012345, 2), rounded(0.0, 3)], [1230.0, -0.012, 0.0]);
    }
}
