//! Independent samples: seeds of a generator, disjoint windows of a trace, drawn scenarios.

use crate::error::{StatisticsError, check_range, check_series};
use crate::interval::MeanInterval;
use crate::moments::{mean, sample_variance};

/// Samples from which a prediction interval is worth showing.
pub const FEWEST_FOR_PREDICTION: usize = 5;

/// Interval of the mean of independent `samples` by Student's t with one degree of freedom fewer than samples.
///
/// # Errors
/// If there are fewer than two samples, or one is not finite.
pub fn sample_interval(samples: &[f64], confidence: f64) -> Result<MeanInterval, StatisticsError> {
    check_samples(samples, 2)?;
    let error = (sample_variance(samples) / samples.len() as f64).sqrt();
    Ok(MeanInterval::symmetric(mean(samples), error, samples.len() as f64 - 1.0, confidence))
}

/// Interval in which the next sample lies with the probability `confidence`, if samples are normal: mean ± t·s·√(1 + 1/k). It stands beside the
/// interval of the mean: the next workload varies as the samples do, however well their mean is known.
///
/// # Errors
/// If there are fewer than [`FEWEST_FOR_PREDICTION`] samples, or one is not finite.
pub fn prediction_interval(samples: &[f64], confidence: f64) -> Result<MeanInterval, StatisticsError> {
    check_samples(samples, FEWEST_FOR_PREDICTION)?;
    let k = samples.len() as f64;
    let deviation = (sample_variance(samples) * (1.0 + 1.0 / k)).sqrt();
    Ok(MeanInterval::symmetric(mean(samples), deviation, k - 1.0, confidence))
}

/// The mean of each run.
pub(crate) fn run_means(runs: &[&[f64]]) -> Vec<f64> {
    runs.iter().map(|run| mean(run)).collect()
}

fn check_samples(samples: &[f64], fewest: usize) -> Result<(), StatisticsError> {
    check_series(samples)?;
    let range = if fewest == 2 { "two or more" } else { "five or more" };
    check_range("the number of samples", samples.len() as f64, samples.len() >= fewest, range)
}
