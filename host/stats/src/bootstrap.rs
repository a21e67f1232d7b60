//! The circular block bootstrap, for figures that are no mean: ratios of percentiles, attainment per cost.
//!
//! Blocks of consecutive requests are drawn with all their values, those of both policies together, until they are as many as the run has
//! (Politis and Romano 1992, *Exploring the Limits of Bootstrap*). The interval is the estimate ± t·SE with n/b − 1 degrees of freedom, at most
//! 29: percentile intervals are too narrow at these sizes.

use crate::correlation::Correlation;
use crate::error::{StatisticsError, check_lengths, check_range};
use crate::interval::{MeanEstimate, MeanInterval, TooShort};
use crate::mean::TIMES_PER_RUN;
use crate::moments::sample_variance;
use crate::random::SplitMix;

/// Resamples of a run: their spread is known to 4 %.
const RESAMPLES: usize = 400;
/// Degrees of freedom at most.
const MOST_FREEDOM: f64 = 29.0;

/// The figure `of` the columns, each with a value of every request in order of arrival, and its interval. Every run of this function with the
/// same `seed` draws the same blocks. The correlation is that of the column that is correlated longest.
///
/// # Errors
/// If there is no column, one is empty or has a value that is not finite, or their lengths differ; and if the figure of all requests is not
/// finite. Resamples with a figure that is not finite are left out.
pub fn bootstrap_interval(
    columns: &[&[f64]],
    confidence: f64,
    seed: u64,
    of: impl Fn(&[Vec<f64>]) -> f64,
) -> Result<MeanEstimate, StatisticsError> {
    let (mut time, mut block) = (1.0_f64, 1.0_f64);
    for column in columns {
        check_lengths(columns[0].len(), column.len())?;
        let correlation = Correlation::of(&[column])?;
        time = time.max(correlation.time);
        block = block.max(correlation.block_length);
    }
    let n = columns.first().ok_or(StatisticsError::Empty)?.len();
    let estimate = of(&columns.iter().map(|column| column.to_vec()).collect::<Vec<_>>());
    check_range("the figure", estimate, estimate.is_finite(), "a finite number")?;
    if (n as f64) < TIMES_PER_RUN * time {
        return Ok(MeanEstimate::TooShort(TooShort::new(estimate, TIMES_PER_RUN * time / n as f64)));
    }
    let block = (block.ceil() as usize).min(n);
    let mut random = SplitMix::new(seed);
    let figures: Vec<f64> = (0..RESAMPLES).map(|_| of(&resample(columns, block, &mut random))).collect();
    let figures: Vec<f64> = figures.into_iter().filter(|figure| figure.is_finite()).collect();
    let freedom = (n as f64 / block as f64 - 1.0).clamp(1.0, MOST_FREEDOM);
    let error = sample_variance(&figures).sqrt();
    Ok(MeanEstimate::Known(MeanInterval::symmetric(estimate, error, freedom, confidence)))
}

fn resample(columns: &[&[f64]], block: usize, random: &mut SplitMix) -> Vec<Vec<f64>> {
    let n = columns[0].len();
    let starts: Vec<usize> = (0..n.div_ceil(block)).map(|_| random.below(n)).collect();
    let rows = starts.iter().flat_map(|&start| (start..start + block).map(move |row| row % n)).take(n);
    let rows: Vec<usize> = rows.collect();
    columns.iter().map(|column| rows.iter().map(|&row| column[row]).collect()).collect()
}
