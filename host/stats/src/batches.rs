//! The interval of a mean within one run: batch means that refuse a run that is too short.
//!
//! The run is cut into 30 or 20 batches of equal length, the larger number that passes both tests:
//!
//! 1. each batch lasts at least 20 correlation times;
//! 2. neighbouring batch means are independent by von Neumann's test: z = (r₁ + 1/b)/√((b − 2)/(b² − 1)) ≤ 1.2816 (10 %, one-sided), where
//!    r₁ is the autocorrelation of the batch means at lag 1.
//!
//! Batches are cut from the end; what remains at the front is left out of them, but not of the mean. The half width is
//! t(b − 1)·s/√b·√((1 + r)/(1 − r)) with r = max(0, r₁). If neither number passes there is no interval.

use crate::correlation::Correlation;
use crate::error::{StatisticsError, check_series};
use crate::interval::{Interval, MeanEstimate, TooShort};
use crate::moments::{centred, dot, mean, sample_variance};
use crate::student::t_quantile;

/// Numbers of batches that are tried, in this order.
pub(crate) const BATCHES: [usize; 2] = [30, 20];
/// Correlation times that a batch lasts at least.
pub(crate) const TIMES_PER_BATCH: f64 = 20.0;
/// Values without which no correlation can be estimated.
pub(crate) const FEWEST_VALUES: usize = 100;
/// The standard normal quantile at 90 %.
const NEUMANN_LIMIT: f64 = 1.2816;

/// The mean of one run, whose correlation is estimated from `values` themselves.
pub fn mean_interval(values: &[f64], confidence: f64) -> Result<MeanEstimate, StatisticsError> {
    mean_interval_with(values, &Correlation::of(&[values])?, confidence)
}

/// The mean of one run with the correlation of all runs of its scenario.
pub fn mean_interval_with(
    values: &[f64],
    correlation: &Correlation,
    confidence: f64,
) -> Result<MeanEstimate, StatisticsError> {
    check_series(values)?;
    let fits = |batches: usize| values.len() as f64 / batches as f64 >= TIMES_PER_BATCH * correlation.time;
    let tried = BATCHES.into_iter().filter(|&batches| values.len() >= FEWEST_VALUES && fits(batches));
    let found = tried.map(|batches| BatchMeans::cut(values, batches)).find(|means| means.are_independent());
    let mean = mean(values);
    Ok(match found {
        Some(batches) => MeanEstimate::Known(Interval::about(mean, batches.half_width(confidence), batches.freedom())),
        None => MeanEstimate::TooShort(TooShort::new(mean, values.len(), correlation.time)),
    })
}

/// Means of consecutive batches of equal length.
pub(crate) struct BatchMeans {
    means: Vec<f64>,
    lag_1: f64,
}

impl BatchMeans {
    pub(crate) fn cut(values: &[f64], batches: usize) -> Self {
        let length = values.len() / batches;
        Self::new(values[values.len() - length * batches..].chunks_exact(length).map(mean).collect())
    }

    pub(crate) fn new(means: Vec<f64>) -> Self {
        let centred = centred(&means);
        let variance = dot(&centred, &centred);
        let lag_1 = if variance > 0.0 { dot(&centred, &centred[1..]) / variance } else { 0.0 };
        Self { means, lag_1 }
    }

    pub(crate) fn are_independent(&self) -> bool {
        let b = self.means.len() as f64;
        (self.lag_1 + 1.0 / b) / ((b - 2.0) / (b * b - 1.0)).sqrt() <= NEUMANN_LIMIT
    }

    pub(crate) fn freedom(&self) -> f64 {
        self.means.len() as f64 - 1.0
    }

    /// Standard error of the mean of all batches.
    pub(crate) fn standard_error(&self) -> f64 {
        let r = self.lag_1.max(0.0);
        (sample_variance(&self.means) / self.means.len() as f64 * (1.0 + r) / (1.0 - r)).sqrt()
    }

    pub(crate) fn half_width(&self, confidence: f64) -> f64 {
        t_quantile(self.freedom(), confidence) * self.standard_error()
    }
}
