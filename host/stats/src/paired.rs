//! Two policies under the same requests.
//!
//! Latencies of the same request under both differ far less than two runs do: the interval is that of their differences (common random
//! numbers), request by request, never of the two means.

use crate::conclusion::{BetterSide, MeanDifference};
use crate::error::{StatisticsError, check_lengths, check_range, check_series};
use crate::interval::{MeanEstimate, TooShort};
use crate::mean::{Series, mean_of_runs_with};
use crate::moments::mean;

/// Requests without which the dependence of differences is not seen: that of one request on the next is weak, but lasts.
const FEWEST_DIFFERENCES: usize = 2000;
/// Stretches into which all requests are cut.
const STRETCHES: usize = 100;
/// Stretches in which policies must differ at least.
const FEWEST_STRETCHES: usize = 20;

/// The figure of every request of one sample of traffic under two policies, in order of arrival, after the warm-up of both.
#[derive(Clone, Copy, Debug)]
pub struct PairedRun<'a> {
    /// The figures under A, each finite.
    pub a: &'a [f64],
    /// The figures under B, of the same requests.
    pub b: &'a [f64],
}

/// How two policies are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComparisonRule {
    /// Level of the interval, 0 to 1, exclusive.
    pub confidence: f64,
    /// Margin of interest as a share of the mean of A, ≥ 0.
    pub margin_share: f64,
    /// Which values are better.
    pub direction: BetterSide,
}

impl ComparisonRule {
    /// At 95 % with a margin of 1 %.
    #[must_use]
    pub const fn standard(direction: BetterSide) -> Self {
        Self { confidence: crate::student::CONFIDENCE, margin_share: 0.01, direction }
    }
}

/// A figure of two policies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedComparison {
    /// Mean of A over the runs.
    pub mean_a: f64,
    /// Mean of B over the runs.
    pub mean_b: f64,
    /// The margin, in the unit of the figure.
    pub margin: f64,
    /// B − A and what follows.
    pub difference: MeanDifference,
}

/// Compares the means of a figure under two policies, over one or more independent samples of traffic ([`mean_of_runs`](crate::mean_of_runs)). One run: the
/// conclusion is about the process of which this trace is a sample, and a sentence about it should say "on this trace".
///
/// # Errors
/// If there is no run, both sides of one have different lengths, or a value is not finite.
pub fn compare_paired(runs: &[PairedRun], rule: &ComparisonRule) -> Result<PairedComparison, StatisticsError> {
    for run in runs {
        check_lengths(run.a.len(), run.b.len())?;
        check_series(run.a)?;
        check_series(run.b)?;
    }
    check_range("the margin", rule.margin_share, rule.margin_share >= 0.0, "0 or more")?;
    let differences: Vec<Vec<f64>> = runs.iter().map(differences).collect();
    let slices: Vec<&[f64]> = differences.iter().map(Vec::as_slice).collect();
    let estimate = mean_difference(&slices, rule.confidence)?;
    let mean_of = |side: fn(&PairedRun) -> f64| mean(&runs.iter().map(side).collect::<Vec<_>>());
    let mean_a = mean_of(|run| mean(run.a));
    let margin = rule.margin_share * mean_a.abs();
    let difference = MeanDifference::conclude(&estimate, margin, rule.direction);
    Ok(PairedComparison { mean_a, mean_b: mean_of(|run| mean(run.b)), margin, difference })
}

/// Figures that differ by less than this part of them differ by rounding errors.
const ROUNDING: f64 = 1e-12;

/// B − A of each request; 0 if they differ by no more than rounding errors.
fn differences(run: &PairedRun) -> Vec<f64> {
    let untied = |(a, b): (&f64, &f64)| if (b - a).abs() <= ROUNDING * a.abs().max(b.abs()) { 0.0 } else { b - a };
    run.a.iter().zip(run.b).map(untied).collect()
}

/// The mean of differences of requests, or of their influence on a figure, over one or more runs. No interval for fewer than 2 000 requests, nor
/// if policies differ in a few stretches only: most samples of so few show a spread that is too small (Kvanli, Shen and Deng 1998, *Journal of
/// Business & Economic Statistics* 16). Where they never differ, the difference is 0.
pub(crate) fn mean_difference(runs: &[&[f64]], confidence: f64) -> Result<MeanEstimate, StatisticsError> {
    let estimate = mean_of_runs_with(runs, confidence, Series::Differences)?;
    let all = runs.concat();
    let stretches = all.chunks(all.len().div_ceil(STRETCHES).max(1));
    let differ = stretches.filter(|stretch| stretch.iter().any(|&difference| difference != 0.0)).count();
    let missing_ties = FEWEST_STRETCHES as f64 / differ.max(1) as f64;
    let missing = missing_ties.max(FEWEST_DIFFERENCES as f64 / all.len() as f64);
    Ok(match estimate {
        MeanEstimate::Known(interval) if differ > 0 && missing > 1.0 => {
            MeanEstimate::TooShort(TooShort::new(interval.estimate, missing))
        }
        MeanEstimate::TooShort(short) if differ > 0 => {
            MeanEstimate::TooShort(TooShort::new(short.estimate, short.factor.max(missing)))
        }
        _ => estimate,
    })
}

/// The values with those of lost requests filled in: `deadline`, or the largest value of the run where there is none (0 if there is no value).
/// For a policy would otherwise gain from losing what is slow.
#[must_use]
pub fn with_lost(values: &[Option<f64>], deadline: Option<f64>) -> Vec<f64> {
    let largest = values.iter().flatten().copied().fold(0.0, f64::max);
    values.iter().map(|value| value.unwrap_or(deadline.unwrap_or(largest))).collect()
}
