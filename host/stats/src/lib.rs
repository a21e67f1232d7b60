//! Statistics.
mod batch_means;
mod correlation;
mod error;
mod interval;
mod mean;
mod moments;
mod samples;
mod skewness;
mod student;

pub use correlation::Correlation;
pub use error::StatisticsError;
pub use interval::{Interval, MeanEstimate, TooShort};
pub use mean::{mean_interval, mean_interval_with, mean_of_runs};
pub use samples::{FEWEST_FOR_PREDICTION, prediction_interval, sample_interval};
pub use student::{CONFIDENCE, t_quantile, two_sided_p};

#[cfg(test)]
mod tests;
