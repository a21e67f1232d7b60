//! The interval of a mean within one run: batch means that refuse a run that is too short.
//!
//! The run is cut into 30 or 20 batches of equal length, the larger number that passes both tests:
//!
//! 1. each batch lasts at least 20 correlation times ([`Correlation::time`]);
//! 2. neighbouring batch means are independent by von Neumann's test at 10 %, one-sided: z = (r₁ + 1/b)/√((b − 2)/(b² − 1)) ≤ 1.2816, where
//!    r₁ is the autocorrelation of the batch means at lag 1.
//!
//! Batches are cut from the end; what remains at the front is left out of them, but not of the mean. The half width is
//! t(b − 1)·s/√b·√((1 + r)/(1 − r)) with r = max(0, r₁), and both limits are corrected for the skewness of the mean (`skewness.rs`). If
//! neither number of batches passes there is no interval.
//!
//! The flat-top window finds no dependence that is weak but long, as that of response times, which are mostly service with a rare
//! congestion. Therefore a batch must also last 0.7 · 20 times the correlation time of 100 batch means, b·s²/n/γ(0)·(1 + r)/(1 − r), and
//! neighbours may be correlated by no more than 0.3 among 100 batches, and 0.5 among 300.
//!
//! A short run of a queue that happens to see no congestion looks like one of a queue that has none, and no test tells: of sessions at a load of 0.6
//! with 600 to 2 000 requests, the intervals of a third of the runs cover 72 to 83 %. Therefore a figure with a tail on one side has none below
//! 4 000 requests.

use crate::batch_means::BatchMeans;
use crate::correlation::Correlation;
use crate::error::{StatisticsError, check_series};
use crate::interval::{MeanEstimate, MeanInterval, TooShort};
use crate::moments::{centred, mean, sample_variance};
use crate::samples::{run_means, sample_interval};
use crate::skewness::{SkewShape, Skewness};
use crate::student::{f_tail, t_quantile};

/// Numbers of batches that are tried, in this order.
const BATCHES: [usize; 2] = [30, 20];
/// Correlation times that a batch lasts at least.
const TIMES_PER_BATCH: f64 = 20.0;
/// Correlation times of a run that are enough: [`TIMES_PER_BATCH`] in each of the fewest batches.
pub(crate) const TIMES_PER_RUN: f64 = 400.0;
/// Values without which no correlation can be estimated.
const FEWEST_VALUES: usize = 100;
/// Requests without which a figure with a tail has no interval.
const FEWEST_SKEWED: usize = 4000;
/// Independent runs from which the spread of their means is all that counts.
const ENOUGH_RUNS: usize = 8;
/// The share of the correlation time of batch means that counts: their estimate is noisier than that of the flat-top window.
const COUNTED: f64 = 0.7;

/// The mean of one run, with the correlation of its own values. `confidence`: 0 to 1, exclusive.
///
/// # Errors
/// If there are no values, or one is not finite.
pub fn mean_interval(values: &[f64], confidence: f64) -> Result<MeanEstimate, StatisticsError> {
    mean_interval_with(values, &Correlation::of(&[values])?, confidence)
}

/// The mean of one run with the correlation of all runs of its scenario, so that a run that shows little of it gets no interval.
///
/// # Errors
/// If there are no values, or one is not finite.
pub fn mean_interval_with(
    values: &[f64],
    correlation: &Correlation,
    confidence: f64,
) -> Result<MeanEstimate, StatisticsError> {
    batched(values, correlation, confidence, Series::Figures)
}

/// What the values of a series are.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Series {
    /// A figure of each request.
    Figures,
    /// Differences of two policies. Limits only move outwards for skewness: where there is no difference, heavy tails on both sides show a
    /// skewness of chance, towards the side of their mean.
    Differences,
    /// Sums over slices of a run, with many requests each.
    Slices,
}

fn batched(
    values: &[f64],
    correlation: &Correlation,
    confidence: f64,
    series: Series,
) -> Result<MeanEstimate, StatisticsError> {
    check_series(values)?;
    let mean = mean(values);
    let n = values.len() as f64;
    let too_short = |time: f64| Ok(MeanEstimate::TooShort(TooShort::new(mean, TIMES_PER_RUN * time / n)));
    if values.len() < FEWEST_VALUES || !is_long(values.len(), correlation.time) {
        return too_short(correlation.time.max(1.0));
    }
    if is_constant(values) {
        return Ok(MeanEstimate::Known(MeanInterval::symmetric(mean, 0.0, BATCHES[0] as f64 - 1.0, confidence)));
    }
    if series == Series::Figures && values.len() < FEWEST_SKEWED && has_tail(values) {
        let missing = FEWEST_SKEWED as f64 / n;
        return Ok(MeanEstimate::TooShort(TooShort::new(mean, missing.max(TIMES_PER_RUN * correlation.time / n))));
    }
    let shape = SkewShape::of(values);
    let medium = BatchMeans::cut(values, 100);
    let time = correlation.time.max(COUNTED * time_of_batches(&medium, n, correlation.variance));
    let depends = medium.lag_1 > 0.3 || shape.lag_1 > 0.5;
    match independent_batches(values, time).filter(|_| !depends) {
        None => too_short(time),
        Some(batches) => {
            let skewness = shape.of_mean(n / time);
            Ok(MeanEstimate::Known(corrected(mean, &batches, skewness, confidence, series)))
        }
    }
}

/// The mean over independent runs of one scenario: seeds of a generator, or disjoint windows of a trace; each run is one slice, after its
/// warm-up. One run: as [`mean_interval`]. Eight or more: Student's t over their means, if each lasts 20 correlation times. Between: the
/// interval within all runs, one after the other, unless their means vary more than it says (F test at 10 %): then Student's t over them, where
/// that is wider. (Always the wider one of both covers 98 to 99 %.)
///
/// # Errors
/// If there is no run, or a run has no values, or one that is not finite.
pub fn mean_of_runs(runs: &[&[f64]], confidence: f64) -> Result<MeanEstimate, StatisticsError> {
    mean_of_runs_with(runs, confidence, Series::Figures)
}

/// As [`mean_of_runs`], of a kind of series.
pub(crate) fn mean_of_runs_with(
    runs: &[&[f64]],
    confidence: f64,
    series: Series,
) -> Result<MeanEstimate, StatisticsError> {
    let correlation = Correlation::of(runs)?;
    let means = run_means(runs);
    if runs.len() >= ENOUGH_RUNS {
        let shortest = runs.iter().map(|run| run.len()).min().unwrap_or(0) as f64;
        let missing = TIMES_PER_BATCH * correlation.time / shortest;
        return match missing <= 1.0 {
            true => Ok(MeanEstimate::Known(sample_interval(&means, confidence)?)),
            false => Ok(MeanEstimate::TooShort(TooShort::new(mean(&means), missing))),
        };
    }
    let within = batched(&runs.concat(), &correlation, confidence, series)?;
    if runs.len() == 1 {
        return Ok(within);
    }
    let between = sample_interval(&means, confidence)?;
    let is_wider = |within: &MeanInterval| varies_more(&between, within) && between.half_width() > within.half_width();
    Ok(within.map(|within| if is_wider(&within) { between } else { within }))
}

/// Whether the means of runs vary more than the interval within runs says.
fn varies_more(between: &MeanInterval, within: &MeanInterval) -> bool {
    let ratio = (between.standard_error / within.standard_error).powi(2);
    f_tail(ratio, between.freedom, within.freedom) <= 0.1
}

/// Whether values have a tail on one side, as latencies have: a skewness above 1.
fn has_tail(values: &[f64]) -> bool {
    let deviations = centred(values);
    let moment = |power: i32| deviations.iter().map(|d| d.powi(power)).sum::<f64>() / values.len() as f64;
    moment(3).abs() > moment(2).powf(1.5)
}

/// Whether values differ by no more than rounding errors, of which the means would look correlated.
fn is_constant(values: &[f64]) -> bool {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    most - least <= 1e-13 * most.abs().max(least.abs())
}

fn is_long(values: usize, time: f64) -> bool {
    BATCHES.into_iter().any(|batches| fits(values, batches, time))
}

fn fits(values: usize, batches: usize, time: f64) -> bool {
    values as f64 / batches as f64 >= TIMES_PER_BATCH * time
}

fn independent_batches(values: &[f64], time: f64) -> Option<BatchMeans> {
    let tried = BATCHES.into_iter().filter(|&batches| fits(values.len(), batches, time));
    tried.map(|batches| BatchMeans::cut(values, batches)).find(BatchMeans::are_independent)
}

/// The correlation time of a run of `n` values with the variance `variance` by its batch means.
fn time_of_batches(batches: &BatchMeans, n: f64, variance: f64) -> f64 {
    let r = batches.lag_1.clamp(0.0, 0.9);
    let long_run = sample_variance(&batches.means) * n / batches.means.len() as f64 * (1.0 + r) / (1.0 - r);
    if variance > 0.0 { long_run / variance } else { 1.0 }
}

fn corrected(mean: f64, batches: &BatchMeans, skewness: Skewness, confidence: f64, series: Series) -> MeanInterval {
    let symmetric = MeanInterval::symmetric(mean, batches.standard_error(), batches.freedom(), confidence);
    let t = t_quantile(symmetric.freedom, confidence);
    if symmetric.standard_error <= 0.0 {
        return symmetric;
    }
    let limit = |t: f64| mean - skewness.transformed(t) * symmetric.standard_error;
    let (low, high) = (limit(t), limit(-t));
    match series {
        Series::Differences => {
            MeanInterval { low: low.min(symmetric.low), high: high.max(symmetric.high), ..symmetric }
        }
        Series::Figures | Series::Slices => MeanInterval { low, high, ..symmetric },
    }
}
