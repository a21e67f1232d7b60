//! What is known of a mean: its interval, or how much longer a run must be.

/// The mean of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MeanEstimate {
    /// The run is long enough.
    Known(Interval),
    /// It is not: there is no interval.
    TooShort(TooShort),
}

/// An estimate with its confidence interval, in the unit of the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The estimate.
    pub estimate: f64,
    /// Lower limit.
    pub low: f64,
    /// Upper limit.
    pub high: f64,
    /// Degrees of freedom of Student's t.
    pub freedom: f64,
}

impl Interval {
    pub(crate) fn about(estimate: f64, half: f64, freedom: f64) -> Self {
        Self { estimate, low: estimate - half, high: estimate + half, freedom }
    }

    /// Half the width.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        0.5 * (self.high - self.low)
    }
}

/// A run without an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TooShort {
    /// The mean of the run.
    pub estimate: f64,
    /// By which factor the run would have to be longer, about.
    pub factor: f64,
}

impl TooShort {
    pub(crate) fn new(estimate: f64, values: usize, correlation_time: f64) -> Self {
        Self { estimate, factor: (400.0 * correlation_time / values as f64).max(2.0) }
    }
}
