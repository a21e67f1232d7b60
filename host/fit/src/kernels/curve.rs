//! Fits the parameters of one curve to measured kernels.

use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::storage::Owned;
use nalgebra::{DMatrix, DVector, Dyn};

use super::tables::{KernelTable, Point};
use crate::calibrate::robust;

/// Expected standard deviation of the logarithm of a measured kernel time around its curve.
const SPREAD: f64 = 0.1;

/// Weight of the prior of a share of peak bandwidth, 0.85, against all kernels of a table.
const BANDWIDTH_PRIOR: f64 = 0.5;

/// The parameters of the curve of `table`, fitted to the logarithm of the times, so that small and large kernels have equal
/// weight, and with a robust loss, because tables contain shapes for which the library selected a slow kernel.
pub(super) fn fitted(table: &KernelTable) -> Vec<f64> {
    let KernelTable { points, us, start, names, free, .. } = table;
    // Shares of peak bandwidth have a weak prior where padded rows cannot be distinguished from weights.
    let weight = BANDWIDTH_PRIOR * (points.len() as f64).sqrt();
    let share = names.iter().position(|name| *name == "bandwidth").filter(|_| table.name.starts_with("experts"));
    let residuals = |x: &[f64]| {
        let prior = share.map(|index| weight * (x[index] / 0.85).ln());
        let deviations = points.iter().map(|point| deviation(*us, x, point));
        deviations.map(|deviation| robust(deviation / SPREAD)).chain(prior).collect()
    };
    let problem = CurveProblem { start, free, at: DVector::zeros(free.len()), residuals: &residuals };
    let (problem, _) = LevenbergMarquardt::new().minimize(problem);
    problem.values(&problem.at)
}

/// Logarithm of the curve over the measured time.
pub(super) fn deviation(us: fn(&[f64], &[f64; 5]) -> f64, x: &[f64], point: &Point) -> f64 {
    (us(x, &point.parts) / point.us).ln()
}

/// Parameters of a curve as logarithms relative to their start values.
struct CurveProblem<'a> {
    start: &'a [f64],
    /// Indices of those that are fitted.
    free: &'a [usize],
    at: DVector<f64>,
    residuals: &'a dyn Fn(&[f64]) -> Vec<f64>,
}

impl CurveProblem<'_> {
    fn values(&self, at: &DVector<f64>) -> Vec<f64> {
        let mut values = self.start.to_vec();
        for (&index, shift) in self.free.iter().zip(at.iter()) {
            values[index] *= shift.exp();
        }
        values
    }

    fn evaluate(&self, at: &DVector<f64>) -> DVector<f64> {
        DVector::from_vec((self.residuals)(&self.values(at)))
    }
}

impl LeastSquaresProblem<f64, Dyn, Dyn> for CurveProblem<'_> {
    type ParameterStorage = Owned<f64, Dyn>;
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, Dyn>;

    fn set_params(&mut self, at: &DVector<f64>) {
        self.at.copy_from(at);
    }

    fn params(&self) -> DVector<f64> {
        self.at.clone()
    }

    fn residuals(&self) -> Option<DVector<f64>> {
        Some(self.evaluate(&self.at))
    }

    fn jacobian(&self) -> Option<DMatrix<f64>> {
        const STEP: f64 = 1e-5;
        let column = |index: usize, by: f64| {
            let mut at = self.at.clone();
            at[index] += by;
            self.evaluate(&at)
        };
        let columns: Vec<DVector<f64>> =
            (0..self.free.len()).map(|index| (column(index, STEP) - column(index, -STEP)) / (2.0 * STEP)).collect();
        Some(DMatrix::from_columns(&columns))
    }
}
