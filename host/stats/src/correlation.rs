//! How long the values of a series depend on each other.
//!
//! γ(k) is the autocovariance at lag k, with 1/n before its sum. The correlation time is τ = σ²∞/γ(0), where σ²∞ = γ(0) + 2 Σ λ(k/M) γ(k)
//! over k ≤ M, with the flat-top window λ(t) = 1 up to t = ½ and 2(1 − t) up to 1: the mean of n values varies like that of n/τ independent
//! ones. M = 2·max(m̂, 1), where m̂ is the smallest lag after which K = max(5, ⌈√log₁₀ n⌉) autocorrelations in a row are below
//! 2√(log₁₀ n/n); if there is none, the largest lag above that; M ≤ ⌈√n⌉ + K (Politis and White 2004, *Econometric Reviews* 23; Patton,
//! Politis and White 2009, *Econometric Reviews* 28).
//!
//! Several runs of one scenario share their autocovariances: a run that happens to show little of its correlation would otherwise get an
//! interval, which is too narrow.

use crate::error::{StatisticsError, check_series};
use crate::moments::{centred, dot};

/// The correlation of a series, or of several runs of one scenario.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correlation {
    /// γ(0), in the square of the unit of the values.
    pub variance: f64,
    /// σ²∞ ≥ 0: n times the variance of a mean of n values, for large n.
    pub long_run_variance: f64,
    /// τ ≥ 1, in values.
    pub time: f64,
    /// M ≥ 1, in values.
    pub bandwidth: usize,
    /// Length of the blocks of a circular block bootstrap, in values, at least 1: (2Ĝ²/D̂)^⅓ n^⅓ with Ĝ = 2 Σ λ(k/M) k γ(k) and
    /// D̂ = (4/3) σ⁴∞, at most ⌈min(3√n, n/3)⌉.
    pub block_length: f64,
}

impl Correlation {
    /// The correlation of `runs`, each in the order of arrival, each about its own mean.
    ///
    /// # Errors
    /// If there is no run, or a run is empty or has a value that is not finite.
    pub fn of(runs: &[&[f64]]) -> Result<Self, StatisticsError> {
        let mut lags = Lags::new(runs)?;
        let bandwidth = bandwidth(&mut lags);
        let weighted = |k: usize| flat_top(k as f64 / bandwidth as f64);
        let variance = lags.autocovariance(0);
        let mut long_run = variance;
        let mut slope = 0.0;
        for k in 1..=bandwidth {
            let term = 2.0 * weighted(k) * lags.autocovariance(k);
            long_run += term;
            slope += term * k as f64;
        }
        Ok(Self {
            variance,
            long_run_variance: long_run.max(0.0),
            time: if variance > 0.0 { (long_run / variance).max(1.0) } else { 1.0 },
            bandwidth,
            block_length: block_length(lags.values, long_run, slope),
        })
    }
}

fn block_length(values: usize, long_run: f64, slope: f64) -> f64 {
    if long_run <= 0.0 {
        return 1.0;
    }
    let n = values as f64;
    let most = (3.0 * n.sqrt()).min(n / 3.0).ceil().max(1.0);
    let denominator = 4.0 / 3.0 * long_run * long_run;
    ((2.0 * slope * slope / denominator).cbrt() * n.cbrt()).clamp(1.0, most)
}

fn flat_top(t: f64) -> f64 {
    if t <= 0.5 { 1.0 } else { (2.0 * (1.0 - t)).max(0.0) }
}

fn bandwidth(lags: &mut Lags) -> usize {
    let n = lags.values as f64;
    let variance = lags.autocovariance(0);
    if variance <= 0.0 {
        return 1;
    }
    let in_a_row = n.log10().sqrt().ceil().max(5.0) as usize;
    let most = (n.sqrt().ceil() as usize + in_a_row).min(lags.longest);
    let limit = 2.0 * (n.log10() / n).sqrt() * variance;
    let (mut below, mut largest_above) = (0, None);
    for k in 1..=most {
        let is_above = lags.autocovariance(k).abs() >= limit;
        below = if is_above { 0 } else { below + 1 };
        largest_above = if is_above { Some(k) } else { largest_above };
        if below == in_a_row {
            return (2 * (k - in_a_row).max(1)).min(most);
        }
    }
    (2 * largest_above.unwrap_or(1)).min(most).max(1)
}

/// Autocovariances, each computed when it is first read.
struct Lags {
    runs: Vec<Vec<f64>>,
    /// Values of all runs.
    values: usize,
    /// The largest lag at which every run has a product.
    longest: usize,
    known: Vec<f64>,
}

impl Lags {
    fn new(runs: &[&[f64]]) -> Result<Self, StatisticsError> {
        for run in runs {
            check_series(run)?;
        }
        let values = runs.iter().map(|run| run.len()).sum();
        let longest = runs.iter().map(|run| run.len() - 1).min().ok_or(StatisticsError::Empty)?;
        let largest = runs.iter().flat_map(|run| run.iter()).fold(0.0, |most: f64, value| most.max(value.abs()));
        let mut lags = Self { runs: runs.iter().map(|run| centred(run)).collect(), values, longest, known: Vec::new() };
        // Equal values differ from their mean by a rounding error.
        if lags.autocovariance(0) <= (largest * 1e-13).powi(2) {
            lags.known[0] = 0.0;
        }
        Ok(lags)
    }

    fn autocovariance(&mut self, k: usize) -> f64 {
        while self.known.len() <= k {
            let lag = self.known.len();
            let sum: f64 = self.runs.iter().filter(|run| run.len() > lag).map(|run| dot(run, &run[lag..])).sum();
            self.known.push(sum / self.values as f64);
        }
        self.known[k]
    }
}
