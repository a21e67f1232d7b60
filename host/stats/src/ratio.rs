//! Figures by time instead of by request, and ratios of sums.
//!
//! Where arrivals are bursty, requests of a batch of equal number last very different times. A figure per request over slices of equal time is a
//! ratio of two sums, R = Σy/Σm, and its interval that of the mean of yⱼ − R·mⱼ over m̄ (Cochran 1977, *Sampling Techniques*, ch. 6).

use crate::error::{StatisticsError, check_lengths, check_range, check_series};
use crate::interval::{MeanEstimate, TooShort};
use crate::mean::{Series, mean_of_runs_with};
use crate::moments::mean;

/// Slices of a run: enough for the correlation time, few enough that most have requests.
const SLICES: usize = 3000;
const FEWEST_SLICES: usize = 600;
/// Requests without which a rare congestion may not be seen.
const FEWEST_REQUESTS: usize = 4000;
/// Requests of a slice, about.
const REQUESTS_PER_SLICE: usize = 5;

/// Σ`sums`/Σ`counts` over consecutive slices of a run, with its interval: `sums` per `counts`.
///
/// # Errors
/// If there are no slices, the lengths differ, a value is not finite, or the counts add up to nothing above 0.
pub fn ratio_interval(sums: &[f64], counts: &[f64], confidence: f64) -> Result<MeanEstimate, StatisticsError> {
    check_lengths(sums.len(), counts.len())?;
    check_series(sums)?;
    check_series(counts)?;
    let mean_count = mean(counts);
    check_range("the sum of the counts", mean_count, mean_count > 0.0, "above 0")?;
    let ratio = mean(sums) / mean_count;
    let residuals: Vec<f64> = sums.iter().zip(counts).map(|(sum, count)| sum - ratio * count).collect();
    Ok(mean_of_runs_with(&[&residuals], confidence, Series::Slices)?.shifted(1.0 / mean_count, ratio))
}

/// The mean of `values` of requests, with an interval by slices of equal time; `times_s` are the times of arrival, ascending. For bursty
/// arrivals, closed loops and sessions.
///
/// # Errors
/// If there are no requests, the lengths differ, a number is not finite, or no time passes.
pub fn mean_over_time(times_s: &[f64], values: &[f64], confidence: f64) -> Result<MeanEstimate, StatisticsError> {
    check_lengths(times_s.len(), values.len())?;
    check_series(times_s)?;
    check_series(values)?;
    let first = times_s.iter().copied().fold(f64::INFINITY, f64::min);
    let span = times_s.iter().copied().fold(f64::NEG_INFINITY, f64::max) - first;
    check_range("the span of the arrivals", span, span > 0.0, "above 0 s")?;
    let slices = (values.len() / REQUESTS_PER_SLICE).clamp(FEWEST_SLICES, SLICES);
    let (mut sums, mut counts) = (vec![0.0; slices], vec![0.0; slices]);
    for (time, value) in times_s.iter().zip(values) {
        let slice = ((time - first) / span * slices as f64) as usize;
        sums[slice.min(slices - 1)] += value;
        counts[slice.min(slices - 1)] += 1.0;
    }
    let estimate = ratio_interval(&sums, &counts, confidence)?;
    Ok(match estimate {
        MeanEstimate::Known(interval) if values.len() < FEWEST_REQUESTS => {
            MeanEstimate::TooShort(TooShort::new(interval.estimate, FEWEST_REQUESTS as f64 / values.len() as f64))
        }
        _ => estimate,
    })
}
