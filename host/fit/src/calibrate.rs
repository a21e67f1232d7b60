//! Closed-loop calibration: finds the coefficients with which the simulator comes closest to the measurements.
//!
//! Under load, a step that is 5 % too slow makes batches larger, which makes steps slower still. Coefficients are
//! therefore not fitted to single steps but to the latencies of requests, with the whole simulation between
//! coefficients and errors. A run is divided into time windows. Each window contributes the logarithm of simulated over
//! measured mean end-to-end latency and TTFT, so that every level of load in the run has equal weight. A robust loss
//! limits the influence of a few windows in which the server stalled.
//!
//! Coefficients are fitted as logarithms, so that they stay positive, and each has a prior: the curves measured on
//! kernels say 1 within a few percent. The prior separates coefficients that load alone cannot separate (requests in
//! the batch and tokens of KV grow together), and is the reason why the coefficients hold for other models.

use blis_sim::latency::{PhysicsAlpha, PhysicsBeta};
use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::storage::Owned;
use nalgebra::{DMatrix, DVector, Dyn};
use rayon::prelude::*;

use super::errors::{comparable, mean};
use super::replay::replay;
use super::runs::{FitError, MeasuredRun, RunSplit};
use super::validate::deployment;
use blis_diag::Diagnostic;

/// Names of the coefficients: α, then β.
pub const NAMES: [&str; 13] = [
    PhysicsAlpha::NAMES[0],
    PhysicsAlpha::NAMES[1],
    PhysicsAlpha::NAMES[2],
    PhysicsBeta::NAMES[0],
    PhysicsBeta::NAMES[1],
    PhysicsBeta::NAMES[2],
    PhysicsBeta::NAMES[3],
    PhysicsBeta::NAMES[4],
    PhysicsBeta::NAMES[5],
    PhysicsBeta::NAMES[6],
    PhysicsBeta::NAMES[7],
    PhysicsBeta::NAMES[8],
    PhysicsBeta::NAMES[9],
];

/// Values of the coefficients: α, then β, in the order of [`NAMES`].
pub type CoefficientValues = [f64; NAMES.len()];

/// Prior distribution of the coefficients, before any measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prior {
    /// Median of each coefficient.
    pub values: CoefficientValues,
    /// Standard deviation of its logarithm; 0 fixes the coefficient.
    pub spread: CoefficientValues,
    /// Expected standard deviation of the logarithm of a window's mean end-to-end latency.
    pub e2e_spread: f64,
}

impl Prior {
    /// Prior of the general coefficients: kernels are as measured, the others are free within reason.
    pub const GENERAL: Self = Self {
        values: [3000.0, 0.0, 2000.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 12.0, 50.0, 1.0, 200.0],
        spread: [0.7, 0.0, 0.7, 0.05, 0.05, 0.05, 0.3, 0.3, 0.2, 0.7, 1.0, 1.5, 1.0],
        e2e_spread: 0.02,
    };

    /// Prior of the coefficients of one deployment, given the general ones: only the fit of the curves to its shapes
    /// differs.
    #[must_use]
    pub fn around(values: CoefficientValues) -> Self {
        Self { values, spread: [0.5, 0.0, 0.5, 0.05, 0.05, 0.05, 0.3, 0.3, 0.1, 0.5, 0.5, 1.5, 1.0], e2e_spread: 0.01 }
    }
}

/// Fitted coefficients and their uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fitted {
    pub weights: CoefficientValues,
    /// 95 % intervals; equal bounds for a coefficient that was not fitted.
    pub intervals: [(f64, f64); NAMES.len()],
}

/// Seconds at the start of a long run that are left out: caches fill, and kernels are still being compiled.
const WARM_UP_S: u64 = 30;

/// A shorter run has no warm-up that could be left out, s.
const LONG_RUN_S: u64 = 300;

/// As [`Prior::e2e_spread`], for the mean TTFT.
const TTFT_SPREAD: f64 = 0.1;

/// As [`Prior::e2e_spread`], for the mean time in the waiting queue.
const QUEUE_SPREAD: f64 = 0.2;

/// Added to both times in the waiting queue before they are compared, µs: about a step, below which waiting is chance.
const QUEUE_FLOOR_US: f64 = 10_000.0;

/// Weight of every run in windows, whatever its length.
const WINDOWS: f64 = 20.0;

/// Fits coefficients to the training part of `runs`, beginning at `start` or else at the median of the prior.
///
/// # Errors
/// If a run cannot be simulated, or no run has requests to fit to.
pub fn calibrate(runs: &[&MeasuredRun], prior: &Prior, start: Option<&CoefficientValues>) -> Result<Fitted, FitError> {
    if runs.is_empty() {
        return Err(FitError::nothing(Diagnostic::new("no run is left to fit to").hint("give more runs")));
    }
    let targets: Vec<FitTarget> = runs.iter().map(|run| FitTarget::new(run)).collect::<Result<_, _>>()?;
    let free: Vec<usize> = (0..NAMES.len()).filter(|&index| prior.spread[index] > 0.0).collect();
    let problem = FitProblem::new(&targets, prior, free, start.unwrap_or(&prior.values))?;
    let (problem, _) = LevenbergMarquardt::new()
        .with_patience(2)
        .with_ftol(1e-4)
        .with_xtol(1e-3)
        .with_stepbound(1.0)
        .minimize(problem);
    let Some(jacobian) = problem.jacobian() else {
        return Err(problem.failed.unwrap_or_else(|| FitError::nothing(Diagnostic::new("the fit did not converge"))));
    };
    let covariance = (jacobian.transpose() * &jacobian).try_inverse();
    let weights = problem.weights(&problem.at);
    let mut intervals = weights.map(|weight| (weight, weight));
    for (column, &index) in problem.free.iter().enumerate() {
        let variance = covariance.as_ref().map_or(f64::INFINITY, |covariance| covariance[(column, column)]);
        let factor = (1.96 * variance.sqrt()).exp();
        intervals[index] = (weights[index] / factor, weights[index] * factor);
    }
    Ok(Fitted { weights, intervals })
}

/// A run prepared for the fit: its training part, the requests served at the same time, and the windows of comparison.
struct FitTarget {
    run: MeasuredRun,
    windows: Vec<FitWindow>,
}

/// Requests whose means are compared.
struct FitWindow {
    /// Their numbers.
    numbers: Vec<usize>,
    /// Measured mean end-to-end latency and TTFT, µs, where they are known.
    e2e_us: Option<f64>,
    ttft_us: Option<f64>,
    /// Measured mean time from QUEUED to SCHEDULED, µs, if the server reports it.
    queue_us: Option<f64>,
}

impl FitTarget {
    fn new(run: &MeasuredRun) -> Result<Self, FitError> {
        /// Number of requests that gives a reliable mean, and maximum number of windows.
        const REQUESTS: usize = 30;
        const MOST: usize = 40;
        let mut run = run.clone();
        // Of later requests only the arrivals are needed: training requests were served at the same time as the first
        // of them.
        let total = run.requests.len();
        let trained = run.requests.iter().filter(|request| request.split == RunSplit::Train);
        let last = trained.clone().map(|request| request.arrival_us).max().unwrap_or(0);
        let longest = trained.map(|request| request.e2e_us).fold(0.0, f64::max);
        run.requests.retain(|request| request.arrival_us as f64 <= last as f64 + 2.0 * longest);
        run.cut_off |= run.requests.len() < total;
        let start = if last > LONG_RUN_S * 1_000_000 { WARM_UP_S * 1_000_000 } else { 0 };
        let mut numbers = comparable(&run, &[RunSplit::Train]);
        numbers.retain(|&number| run.requests[number].arrival_us >= start);
        if numbers.is_empty() {
            let mistake =
                Diagnostic::new("no training request can be compared").hint("the run is too short for its latencies");
            return Err(FitError::Run { run: run.name, mistake: Box::new(mistake) });
        }
        let windows = match run.percentiles {
            Some(_) => stages(&run, numbers),
            None => {
                let count = (numbers.len() / REQUESTS).clamp(1, MOST);
                let part = |window| &numbers[window * numbers.len() / count..(window + 1) * numbers.len() / count];
                (0..count).map(|window| FitWindow::new(&run, part(window).to_vec(), true, true)).collect()
            }
        };
        Ok(Self { run, windows })
    }

    /// Errors of the simulation with these coefficients, one per window and figure, in expected deviations.
    fn residuals(&self, weights: &CoefficientValues, e2e_spread: f64) -> Result<Vec<f64>, FitError> {
        let mut run = self.run.clone();
        run.deployment.alpha_coeffs = Some(weights[..3].to_vec());
        run.deployment.beta_coeffs = Some(weights[3..].to_vec());
        let deployment = deployment(&run)?;
        let predicted = replay(&run, &deployment, &deployment.latency)?;
        let share = (WINDOWS / self.windows.len() as f64).sqrt();
        let mut residuals = Vec::with_capacity(2 * self.windows.len());
        for window in &self.windows {
            let of = |what: fn(&super::replay::Predicted) -> f64| {
                mean(&window.numbers.iter().map(|&number| what(&predicted[number])).collect::<Vec<_>>())
            };
            if let Some(e2e_us) = window.e2e_us {
                residuals.push(share * robust((of(|request| request.e2e_us) / e2e_us).ln() / e2e_spread));
            }
            if let Some(ttft_us) = window.ttft_us {
                residuals.push(share * robust((of(|request| request.ttft_us) / ttft_us).ln() / TTFT_SPREAD));
            }
            if let Some(queue_us) = window.queue_us {
                let ratio = (of(|request| request.queue_us) + QUEUE_FLOOR_US) / (queue_us + QUEUE_FLOOR_US);
                residuals.push(share * robust(ratio.ln() / QUEUE_SPREAD));
            }
        }
        Ok(residuals)
    }
}

impl FitWindow {
    fn new(run: &MeasuredRun, numbers: Vec<usize>, e2e: bool, ttft: bool) -> Self {
        let of = |what: fn(&super::MeasuredRequest) -> f64| {
            mean(&numbers.iter().map(|&number| what(&run.requests[number])).collect::<Vec<_>>())
        };
        let queued = numbers.iter().all(|&number| run.requests[number].queue_us.is_some());
        Self {
            queue_us: (ttft && queued).then(|| of(|request| request.queue_us.unwrap_or_default())),
            e2e_us: e2e.then(|| of(|request| request.e2e_us)),
            ttft_us: ttft.then(|| of(|request| request.ttft_us)),
            numbers,
        }
    }
}

/// The windows of a run of which only means are known: the stages by their end-to-end latency, and all by their TTFT.
fn stages(run: &MeasuredRun, numbers: Vec<usize>) -> Vec<FitWindow> {
    let same = |&a: &usize, &b: &usize| run.requests[a].e2e_us == run.requests[b].e2e_us;
    let stages = numbers.chunk_by(same).map(|stage| FitWindow::new(run, stage.to_vec(), true, false));
    let mut windows: Vec<FitWindow> = stages.collect();
    windows.push(FitWindow::new(run, numbers, false, true));
    windows
}

/// A residual that has the soft-L1 loss of `r` as its square: quadratic for small ones, linear for large ones.
pub(super) fn robust(r: f64) -> f64 {
    (2.0 * ((1.0 + r * r).sqrt() - 1.0)).sqrt().copysign(r)
}

/// The least-squares problem: the residuals of all windows, then the distance of each coefficient from its prior.
struct FitProblem<'a> {
    targets: &'a [FitTarget],
    prior: &'a Prior,
    /// Indices of the coefficients that are fitted.
    free: Vec<usize>,
    /// Their logarithms relative to the prior, in standard deviations.
    at: DVector<f64>,
    residuals: Option<DVector<f64>>,
    failed: Option<FitError>,
}

impl<'a> FitProblem<'a> {
    fn new(
        targets: &'a [FitTarget],
        prior: &'a Prior,
        free: Vec<usize>,
        start: &CoefficientValues,
    ) -> Result<Self, FitError> {
        let shift = |&index: &usize| (start[index] / prior.values[index]).ln() / prior.spread[index];
        let at = DVector::from_iterator(free.len(), free.iter().map(shift));
        let mut problem = Self { targets, prior, free, at, residuals: None, failed: None };
        problem.residuals = Some(problem.evaluate(&problem.at)?);
        Ok(problem)
    }

    fn weights(&self, at: &DVector<f64>) -> CoefficientValues {
        let mut weights = self.prior.values;
        for (&index, shift) in self.free.iter().zip(at.iter()) {
            weights[index] *= (shift * self.prior.spread[index]).exp();
        }
        weights
    }

    fn evaluate(&self, at: &DVector<f64>) -> Result<DVector<f64>, FitError> {
        let weights = self.weights(at);
        let parts: Vec<Vec<f64>> = self
            .targets
            .par_iter()
            .map(|target| target.residuals(&weights, self.prior.e2e_spread))
            .collect::<Result<_, _>>()?;
        Ok(DVector::from_iterator(
            parts.iter().map(Vec::len).sum::<usize>() + at.len(),
            parts.into_iter().flatten().chain(at.iter().copied()),
        ))
    }
}

impl LeastSquaresProblem<f64, Dyn, Dyn> for FitProblem<'_> {
    type ParameterStorage = Owned<f64, Dyn>;
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, Dyn>;

    fn set_params(&mut self, at: &DVector<f64>) {
        self.at.copy_from(at);
        match self.evaluate(at) {
            Ok(residuals) => self.residuals = Some(residuals),
            Err(error) => {
                self.residuals = None;
                self.failed = Some(error);
            }
        }
    }

    fn params(&self) -> DVector<f64> {
        self.at.clone()
    }

    fn residuals(&self) -> Option<DVector<f64>> {
        self.residuals.clone()
    }

    /// Finite differences with a step that is large against the rounding of latencies to whole microseconds.
    fn jacobian(&self) -> Option<DMatrix<f64>> {
        /// Change of the logarithm of a coefficient.
        const STEP: f64 = 0.01;
        let here = self.residuals.as_ref()?;
        let columns: Option<Vec<DVector<f64>>> = self
            .free
            .par_iter()
            .enumerate()
            .map(|(column, &index)| {
                let mut at = self.at.clone();
                let step = STEP / self.prior.spread[index];
                at[column] += step;
                Some((self.evaluate(&at).ok()? - here) / step)
            })
            .collect();
        columns.map(|columns| DMatrix::from_columns(&columns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MeasuredRequest;
    use blis_config::DeploymentArgs;

    /// A run at two levels of load with the latencies of the simulator itself under `weights`.
    fn synthetic(weights: &CoefficientValues) -> MeasuredRun {
        let request = |number: u64| MeasuredRequest {
            arrival_us: if number < 400 { number * 150_000 } else { 60_000_000 + (number - 400) * 55_000 },
            input_tokens: 300 + 7 * (number % 40) as u32,
            output_tokens: 100 + (number % 60) as u32,
            ttft_us: 1.0,
            e2e_us: 2.0,
            queue_us: None,
            split: RunSplit::Train,
            prompt: None,
            content: Default::default(),
            preemptions: None,
        };
        let mut run = MeasuredRun {
            name: "synthetic".into(),
            workload: "synthetic".into(),
            deployment: DeploymentArgs {
                latency_model: Some(blis_config::LatencyKind::Physics),
                tensor_parallel_size: Some(1),
                alpha_coeffs: Some(weights[..3].to_vec()),
                beta_coeffs: Some(weights[3..].to_vec()),
                ..DeploymentArgs::new("llama-3.1-8b-instruct")
            },
            engine: crate::runs::MEASURED_ENGINE,
            max_num_seqs: 128,
            max_num_batched_tokens: 2048,
            prefix_caching: false,
            shared_prefix_tokens: 0,
            cut_off: false,
            requests: (0..1_000).map(request).collect(),
            sha256: String::new(),
            percentiles: None,
            stages: Vec::new(),
            prefixes_known: true,
            parity: false,
            notes: Vec::new(),
        };
        let deployment = deployment(&run).unwrap();
        let predicted = replay(&run, &deployment, &deployment.latency).unwrap();
        for (request, predicted) in run.requests.iter_mut().zip(predicted) {
            (request.ttft_us, request.e2e_us) = (predicted.ttft_us, predicted.e2e_us);
        }
        run
    }

    #[test]
    fn what_the_simulator_measured_is_found_again() {
        let mut truth = Prior::GENERAL.values;
        (truth[0], truth[2], truth[3], truth[5], truth[9]) = (4000.0, 1500.0, 1.06, 0.93, 20.0);
        let run = synthetic(&truth);
        let fitted = calibrate(&[&run], &Prior::GENERAL, None).unwrap();
        let target = FitTarget::new(&run).unwrap();
        let off = |weights: &CoefficientValues| {
            let residuals = target.residuals(weights, 0.02).unwrap();
            residuals.iter().map(|residual| residual * residual).sum::<f64>()
        };
        assert!(off(&truth) < 1e-9, "the true coefficients have no error");
        assert!(off(&fitted.weights) < 0.02 * off(&Prior::GENERAL.values), "the fit removes most of the error");
        let again = calibrate(&[&run], &Prior::GENERAL, None).unwrap();
        assert_eq!(fitted.weights, again.weights, "the same data give the same coefficients");
        assert_eq!(fitted.weights[1], 0.0, "a coefficient without spread is fixed");
        for (weight, (low, high)) in fitted.weights.iter().zip(fitted.intervals) {
            assert!(low <= *weight && *weight <= high);
        }
    }

    #[test]
    fn nothing_to_fit_is_an_error() {
        let mut run = synthetic(&Prior::GENERAL.values);
        run.requests.iter_mut().for_each(|request| request.split = RunSplit::Test);
        let error = calibrate(&[&run], &Prior::GENERAL, None).unwrap_err().to_string();
        assert!(error.starts_with("run `synthetic`: no training request can be compared\nhint: "), "{error}");
        assert!(calibrate(&[], &Prior::GENERAL, None).is_err());
    }

    #[test]
    fn the_loss_is_quadratic_near_zero_and_linear_far_away() {
        assert!((robust(0.01) - 0.01).abs() < 1e-6);
        assert!((robust(-100.0).powi(2) - 2.0 * (100.0 - 1.0)).abs() < 0.02);
        assert!(robust(-100.0) < 0.0);
    }
}
