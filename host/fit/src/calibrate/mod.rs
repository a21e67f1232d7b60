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

mod coefficients;
mod target;

use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::storage::Owned;
use nalgebra::{DMatrix, DVector, Dyn};
use rayon::prelude::*;

pub use self::coefficients::{CoefficientValues, NAMES, Prior};
pub use self::target::FitTarget;
pub(super) use self::target::robust;
use super::runs::FitError;
use blis_diag::Diagnostic;

/// Fitted coefficients and their uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fitted {
    pub weights: CoefficientValues,
    /// 95 % intervals; equal bounds for a coefficient that was not fitted.
    pub intervals: [(f64, f64); NAMES.len()],
}

/// Fits coefficients to the training part of the runs in `targets`, beginning at `start` or else at the median of the prior.
///
/// The slopes of the residuals are measured once, then corrected with each step (Schubert's form of Broyden's update), and
/// measured again where the fit has stopped, until it stays there.
///
/// # Errors
/// If a run cannot be simulated, or there is none.
pub fn calibrate(targets: &[&FitTarget], prior: &Prior, start: Option<&CoefficientValues>) -> Result<Fitted, FitError> {
    /// Most measurements of the slopes, and the share of the loss by which another one must reduce it to go on.
    const ROUNDS: usize = 6;
    const PROGRESS: f64 = 2e-3;
    if targets.is_empty() {
        return Err(FitError::nothing(Diagnostic::new("no run is left to fit to").hint("give more runs")));
    }
    let free: Vec<usize> = (0..NAMES.len()).filter(|&index| prior.spread[index] > 0.0).collect();
    let mut problem = FitProblem::new(targets, prior, free, start.unwrap_or(&prior.values))?;
    for _ in 0..ROUNDS {
        let before = problem.loss();
        problem.measure_slopes()?;
        problem = problem.minimized()?;
        if problem.loss() > (1.0 - PROGRESS) * before {
            break;
        }
    }
    Ok(problem.fitted())
}

/// The least-squares problem: the residuals of all windows, then the distance of each coefficient from its prior.
struct FitProblem<'a> {
    targets: &'a [&'a FitTarget],
    prior: &'a Prior,
    /// Indices of the coefficients that are fitted.
    free: Vec<usize>,
    /// Their logarithms relative to the prior, in standard deviations.
    at: DVector<f64>,
    residuals: DVector<f64>,
    /// Derivatives of the residuals with respect to `at`, a column each.
    slopes: DMatrix<f64>,
    failed: Option<FitError>,
}

impl<'a> FitProblem<'a> {
    fn new(
        targets: &'a [&'a FitTarget],
        prior: &'a Prior,
        free: Vec<usize>,
        start: &CoefficientValues,
    ) -> Result<Self, FitError> {
        let shift = |&index: &usize| (start[index] / prior.values[index]).ln() / prior.spread[index];
        let at = DVector::from_iterator(free.len(), free.iter().map(shift));
        let empty = (DVector::zeros(0), DMatrix::zeros(0, 0));
        let mut problem = Self { targets, prior, free, at, residuals: empty.0, slopes: empty.1, failed: None };
        problem.residuals = problem.evaluate(&problem.at)?;
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

    fn loss(&self) -> f64 {
        self.residuals.norm_squared()
    }

    /// Finite differences with a step that is large against the rounding of latencies to whole microseconds.
    fn measure_slopes(&mut self) -> Result<(), FitError> {
        /// Change of the logarithm of a coefficient.
        const STEP: f64 = 0.01;
        let column = |(column, &index): (usize, &usize)| -> Result<DVector<f64>, FitError> {
            let mut at = self.at.clone();
            let step = STEP / self.prior.spread[index];
            at[column] += step;
            Ok((self.evaluate(&at)? - &self.residuals) / step)
        };
        let columns: Result<Vec<DVector<f64>>, FitError> = self.free.par_iter().enumerate().map(column).collect();
        self.slopes = DMatrix::from_columns(&columns?);
        Ok(())
    }

    /// The least loss that Levenberg-Marquardt finds from here.
    fn minimized(self) -> Result<Self, FitError> {
        let (mut problem, _) = LevenbergMarquardt::new()
            .with_patience(2)
            .with_ftol(1e-4)
            .with_xtol(1e-3)
            .with_stepbound(1.0)
            .minimize(self);
        problem.failed.take().map_or(Ok(problem), Err)
    }

    /// Corrects each row of the slopes so that it predicts the residual at `at`. What is 0 stays 0: a coefficient that does
    /// not matter to a run.
    fn correct_slopes(&mut self, at: &DVector<f64>, residuals: &DVector<f64>) {
        /// Standard deviations of the prior; over a shorter step, differences of residuals are mostly chance.
        const SHORTEST: f64 = 0.05;
        let step = at - &self.at;
        if step.norm() < SHORTEST {
            return;
        }
        let missing = residuals - &self.residuals - &self.slopes * &step;
        for row in 0..missing.len() {
            let columns: Vec<usize> = (0..step.len()).filter(|&column| self.slopes[(row, column)] != 0.0).collect();
            let length: f64 = columns.iter().map(|&column| step[column] * step[column]).sum();
            for column in columns.into_iter().filter(|_| length > 0.0) {
                self.slopes[(row, column)] += missing[row] * step[column] / length;
            }
        }
    }

    /// The coefficients here, and how far the residuals determine them.
    fn fitted(&self) -> Fitted {
        let covariance = (self.slopes.transpose() * &self.slopes).try_inverse();
        let weights = self.weights(&self.at);
        let mut intervals = weights.map(|weight| (weight, weight));
        for (column, &index) in self.free.iter().enumerate() {
            let variance = covariance.as_ref().map_or(f64::INFINITY, |covariance| covariance[(column, column)]);
            let factor = (1.96 * variance.sqrt() * self.prior.spread[index]).exp();
            intervals[index] = (weights[index] / factor, weights[index] * factor);
        }
        Fitted { weights, intervals }
    }
}

impl LeastSquaresProblem<f64, Dyn, Dyn> for FitProblem<'_> {
    type ParameterStorage = Owned<f64, Dyn>;
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, Dyn>;

    fn set_params(&mut self, at: &DVector<f64>) {
        match self.evaluate(at) {
            Ok(residuals) => {
                self.correct_slopes(at, &residuals);
                self.residuals = residuals;
            }
            Err(error) => self.failed = Some(error),
        }
        self.at.copy_from(at);
    }

    fn params(&self) -> DVector<f64> {
        self.at.clone()
    }

    fn residuals(&self) -> Option<DVector<f64>> {
        self.failed.is_none().then(|| self.residuals.clone())
    }

    fn jacobian(&self) -> Option<DMatrix<f64>> {
        self.failed.is_none().then(|| self.slopes.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::replay;
    use crate::validate::deployment;
    use crate::{MeasuredRequest, MeasuredRun, RunSplit};
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
        let target = FitTarget::new(&run).unwrap();
        let fitted = calibrate(&[&target], &Prior::GENERAL, None).unwrap();
        let off = |weights: &CoefficientValues| {
            let residuals = target.residuals(weights, 0.02).unwrap();
            residuals.iter().map(|residual| residual * residual).sum::<f64>()
        };
        assert!(off(&truth) < 1e-9, "the true coefficients have no error");
        assert!(off(&fitted.weights) < 0.02 * off(&Prior::GENERAL.values), "the fit removes most of the error");
        let again = calibrate(&[&FitTarget::new(&run).unwrap()], &Prior::GENERAL, None).unwrap();
        assert_eq!(fitted.weights, again.weights, "the same data give the same coefficients");
        assert_eq!(fitted.weights[1], 0.0, "a coefficient without spread is fixed");
        for (weight, (low, high)) in fitted.weights.iter().zip(fitted.intervals) {
            assert!(low <= *weight && *weight <= high);
        }
    }

    /// One GPU, no experts: what does not matter is not simulated again, and α shifts the latencies.
    #[test]
    fn simulations_that_change_nothing_are_left_out() {
        let mut truth = Prior::GENERAL.values;
        let target = FitTarget::new(&synthetic(&truth)).unwrap();
        let matters = |name: &str| target.matters(NAMES.iter().position(|known| *known == name).expect("a name"));
        assert!(matters("gemm") && matters("launch_us") && matters("sampling") && matters("input_token_us"));
        assert!(!matters("experts") && !matters("collectives") && !matters("arrival_us") && !matters("first_token_us"));
        let at_truth = target.residuals(&truth, 0.02).unwrap();
        assert_eq!(target.simulations(), 1);
        (truth[coefficients::ARRIVAL], truth[4], truth[7]) = (9000.0, 3.0, 3.0);
        let later = target.residuals(&truth, 0.02).unwrap();
        assert_eq!(target.simulations(), 1);
        assert!(later.iter().zip(&at_truth).all(|(later, before)| later > before), "all latencies are longer");
        truth[3] = 1.1;
        target.residuals(&truth, 0.02).unwrap();
        assert_eq!(target.simulations(), 2);
    }

    #[test]
    fn nothing_to_fit_is_an_error() {
        let mut run = synthetic(&Prior::GENERAL.values);
        run.requests.iter_mut().for_each(|request| request.split = RunSplit::Test);
        let error = FitTarget::new(&run).err().expect("no training request").to_string();
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
