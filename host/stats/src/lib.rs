//! Statistics.
mod batches;
mod correlation;
mod error;
mod interval;
mod moments;
mod student;

pub use batches::{mean_interval, mean_interval_with};
pub use correlation::Correlation;
pub use error::StatisticsError;
pub use interval::{Interval, MeanEstimate, TooShort};
pub use student::{CONFIDENCE, t_quantile, two_sided_p};

#[cfg(test)]
mod tests;
