//! Percentiles within a run, with their intervals.
//!
//! The value Q is that of the whole run. Its error is that of a mean: the influence of request i on Q is ψᵢ = (1{xᵢ > Q} − (1 − q))/f(Q), where
//! f is the density there, from the distance of neighbouring quantiles; the interval of the mean of ψ, with its warnings about short runs, is
//! that of Q (Bahadur 1966, *Annals of Mathematical Statistics* 37). Two policies are compared by ψ of B less ψ of A, request by request.
//!
//! A percentile needs requests beyond it: 10/(1 − q) in each of 20 batches, so that of the 99th percentile 20 000.

use crate::error::{StatisticsError, check_lengths, check_range, check_series};
use crate::interval::{MeanEstimate, TooShort};
use crate::mean::mean_of_runs;
use crate::paired::mean_difference;

/// Requests beyond the percentile in a batch.
const BEYOND: f64 = 10.0;
/// The fewest batches of a run.
const BATCHES: f64 = 20.0;

/// The quantile `q` (0 to 1) of `values`, in any order, with linear interpolation between neighbours (type 7 of Hyndman and Fan 1996).
///
/// # Errors
/// If there are no values, one is not finite, or `q` is out of range.
pub fn quantile(values: &[f64], q: f64) -> Result<f64, StatisticsError> {
    check_series(values)?;
    check_range("a quantile", q, (0.0..=1.0).contains(&q), "from 0 to 1")?;
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Ok(of_sorted(&sorted, q))
}

fn of_sorted(sorted: &[f64], q: f64) -> f64 {
    let at = q.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (at - below as f64) * (sorted[above] - sorted[below])
}

/// The quantile `q` (above 0, below 1) of the requests of all `runs`, each in order of arrival, with its interval.
///
/// # Errors
/// If there is no run, a run is empty or has a value that is not finite, or `q` is out of range.
pub fn quantile_of_runs(runs: &[&[f64]], q: f64, confidence: f64) -> Result<MeanEstimate, StatisticsError> {
    let influence = Influence::of(runs, q)?;
    let series: Vec<Vec<f64>> = runs.iter().map(|run| influence.series(run)).collect();
    let slices: Vec<&[f64]> = series.iter().map(Vec::as_slice).collect();
    let requests = runs.iter().map(|run| run.len()).sum();
    Ok(enough_beyond(mean_of_runs(&slices, confidence)?.shifted(1.0, influence.value), requests, q))
}

/// The quantile `q` under B less that under A, of the same requests under both: `a` and `b` have a run each for every sample of traffic.
///
/// # Errors
/// As [`quantile_of_runs`], and if runs have different lengths under both.
pub fn quantile_difference(
    a: &[&[f64]],
    b: &[&[f64]],
    q: f64,
    confidence: f64,
) -> Result<MeanEstimate, StatisticsError> {
    check_lengths(a.len(), b.len())?;
    let (of_a, of_b) = (Influence::of(a, q)?, Influence::of(b, q)?);
    let mut series = Vec::with_capacity(a.len());
    for (a, b) in a.iter().zip(b) {
        check_lengths(a.len(), b.len())?;
        series.push(of_b.series(b).iter().zip(of_a.series(a)).map(|(b, a)| b - a).collect::<Vec<f64>>());
    }
    let slices: Vec<&[f64]> = series.iter().map(Vec::as_slice).collect();
    let requests = a.iter().map(|run| run.len()).sum();
    let difference = mean_difference(&slices, confidence)?.shifted(1.0, of_b.value - of_a.value);
    Ok(enough_beyond(difference, requests, q))
}

/// No interval if too few requests are beyond the percentile.
fn enough_beyond(estimate: MeanEstimate, requests: usize, q: f64) -> MeanEstimate {
    let needed = BATCHES * BEYOND / q.min(1.0 - q);
    match estimate {
        MeanEstimate::Known(interval) if (requests as f64) < needed * (1.0 - 1e-9) => {
            MeanEstimate::TooShort(TooShort::new(interval.estimate, needed / requests as f64))
        }
        _ => estimate,
    }
}

/// What each request contributes to a quantile.
struct Influence {
    q: f64,
    value: f64,
    density: f64,
}

impl Influence {
    fn of(runs: &[&[f64]], q: f64) -> Result<Self, StatisticsError> {
        check_range("a quantile", q, q > 0.0 && q < 1.0, "above 0 and below 1")?;
        for run in runs {
            check_series(run)?;
        }
        let mut sorted = runs.concat();
        check_series(&sorted)?;
        sorted.sort_by(f64::total_cmp);
        Ok(Self { q, value: of_sorted(&sorted, q), density: density(&sorted, q) })
    }

    /// Without the mean of the indicators, so that the mean over all runs is 0: the estimate is the quantile itself.
    fn series(&self, run: &[f64]) -> Vec<f64> {
        let beyond = |value: f64| f64::from(u8::from(value > self.value)) - (1.0 - self.q);
        run.iter().map(|&value| beyond(value) / self.density).collect()
    }
}

/// The density at the quantile `q`: the distance of ranks over that of values, from a fifth of the tail to either side, but no more than 0.02.
fn density(sorted: &[f64], q: f64) -> f64 {
    let half = 0.02_f64.min(0.2 * q.min(1.0 - q)).max(1.0 / sorted.len() as f64);
    let (low, high) = ((q - half).max(0.0), (q + half).min(1.0));
    let distance = of_sorted(sorted, high) - of_sorted(sorted, low);
    if distance > 0.0 { (high - low) / distance } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        let values = [40.0, 10.0, 30.0, 20.0];
        assert_eq!(quantile(&values, 0.5), Ok(25.0));
        assert_eq!((quantile(&values, 0.0), quantile(&values, 1.0)), (Ok(10.0), Ok(40.0)));
        assert_eq!(quantile(&[7.0], 0.99), Ok(7.0));
        assert!(quantile(&[], 0.5).is_err() && quantile(&values, 1.5).is_err() && quantile(&values, f64::NAN).is_err());
    }
}
