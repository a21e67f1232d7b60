//! Means of consecutive batches of a run.

use crate::moments::{centred, dot, mean, sample_variance};

/// The standard normal quantile at 90 %.
const NEUMANN_LIMIT: f64 = 1.2816;

/// Means of consecutive batches of equal length.
pub(crate) struct BatchMeans {
    /// One mean of each batch, in order of time.
    pub means: Vec<f64>,
    /// Autocorrelation at lag 1; 0 if all means are equal.
    pub lag_1: f64,
}

impl BatchMeans {
    /// `batches` ≥ 1 batches, cut from the end; what remains at the front is left out. At least as many values as batches.
    pub(crate) fn cut(values: &[f64], batches: usize) -> Self {
        let length = (values.len() / batches).max(1);
        let used = length * (values.len() / length).min(batches);
        Self::new(values[values.len() - used..].chunks_exact(length).map(mean).collect())
    }

    /// `batches` or a few more, up to twice as many, so that a short remainder is left.
    pub(crate) fn cut_at_least(values: &[f64], batches: usize) -> Self {
        let length = (values.len() / batches).max(1);
        Self::cut(values, values.len() / length)
    }

    pub(crate) fn new(means: Vec<f64>) -> Self {
        let centred = centred(&means);
        let variance = dot(&centred, &centred);
        let lag_1 = if variance > 0.0 { dot(&centred, &centred[1..]) / variance } else { 0.0 };
        Self { means, lag_1 }
    }

    /// Von Neumann's test at 10 %, one-sided: without correlation r₁ is about normal with the mean −1/b and the variance
    /// (b − 2)/(b² − 1).
    pub(crate) fn are_independent(&self) -> bool {
        let b = self.means.len() as f64;
        (self.lag_1 + 1.0 / b) / ((b - 2.0) / (b * b - 1.0)).sqrt() <= NEUMANN_LIMIT
    }

    pub(crate) fn freedom(&self) -> f64 {
        self.means.len() as f64 - 1.0
    }

    /// Standard error of the mean of all batches: s/√b·√((1 + r)/(1 − r)), r = max(0, r₁).
    pub(crate) fn standard_error(&self) -> f64 {
        let r = self.lag_1.max(0.0);
        (sample_variance(&self.means) / self.means.len() as f64 * (1.0 + r) / (1.0 - r)).sqrt()
    }
}
