//! Statistics of simulated services: one definition for every command that concludes anything from a run.
//!
//! | question | function |
//! |---|---|
//! | From when on is the service warm, and how long must the run be? | [`mser_5`], [`WarmUp`], [`SessionLoad`] |
//! | Is it steady? | [`Growth`], [`dispersion`], [`state_of`] |
//! | How well is a figure known? | [`mean_of_runs`], [`quantile_of_runs`], [`share_of_runs`], [`mean_over_time`], [`bootstrap_interval`], [`sample_interval`] |
//! | Which of two policies is better? | [`compare_paired`], [`quantile_difference`], [`MeanDifference::conclude`] |
//! | And in a table, or after several looks? | [`allow_for_multiplicity`], [`UntilDecided`], [`confidence_sequence`] |
//! | By how much does the latency model err? | [`ErrorBands`], [`draw_step_factors`] |
//!
//! Runs that are too short have no interval: [`TooShort`] says by which factor they would have to be longer.
//!
//! ```
//! use blis_stats::{ComparisonRule, BetterSide, PairedRun, compare_paired};
//!
//! let ttft_ms_a: Vec<f64> = (0..9000).map(|i| 40.0 + f64::from(i * 7919 % 101)).collect();
//! let ttft_ms_b: Vec<f64> = ttft_ms_a.iter().map(|ttft| 0.9 * ttft).collect();
//! let run = PairedRun { a: &ttft_ms_a, b: &ttft_ms_b };
//! let comparison = compare_paired(&[run], &ComparisonRule::standard(BetterSide::Less))?;
//! assert_eq!(comparison.difference.conclusion.name(), "better");
//! # Ok::<(), blis_stats::StatisticsError>(())
//! ```

mod batch_means;
mod bootstrap;
mod conclusion;
mod correlation;
mod error;
mod growth;
mod interval;
mod looks;
mod mean;
mod model_error;
mod moments;
mod multiplicity;
mod paired;
mod quantile;
mod random;
mod ratio;
mod samples;
mod sessions;
mod shares;
mod skewness;
mod state;
mod student;
mod warm_up;

pub use bootstrap::bootstrap_interval;
pub use conclusion::{BetterSide, DifferenceConclusion, MOST_TIMES_MORE, MeanDifference};
pub use correlation::Correlation;
pub use error::StatisticsError;
pub use growth::{Growth, kendall};
pub use interval::{MeanEstimate, MeanInterval, TooShort};
pub use looks::{Look, MOST_LOOKS, UntilDecided, confidence_sequence, level_of_look, widening};
pub use mean::{mean_interval, mean_interval_with, mean_of_runs};
pub use model_error::{
    ErrorBand, ErrorBands, FEWEST_CLASS_DEPLOYMENTS, FEWEST_CLASS_ROWS, MOST_DRAWS, ModelErrorRow, StepFactors,
    draw_step_factors,
};
pub use multiplicity::{ComparisonRow, allow_for_multiplicity, benjamini_hochberg, holm};
pub use paired::{ComparisonRule, PairedComparison, PairedRun, compare_paired, with_lost};
pub use quantile::{quantile, quantile_difference, quantile_of_runs};
pub use ratio::{mean_over_time, ratio_interval};
pub use samples::{FEWEST_FOR_PREDICTION, prediction_interval, sample_interval};
pub use sessions::{SessionLoad, dispersion};
pub use shares::{FEWEST_EVENTS, ShareEstimate, share_of_runs};
pub use state::{FEWEST_LATENCIES, MOST_LOST, RunEvidence, RunState, StateReason, StateReport, state_of};
pub use student::{CONFIDENCE, t_quantile, two_sided_p};
pub use warm_up::{SlowClock, SlowPart, WarmUp, autoscaler_clock_s, cache_clock_s, mser_5};

#[cfg(test)]
mod tests;
