//! What is known of a figure: its interval, or how much longer a run must be.

use crate::student::t_quantile;

/// A figure of one or more runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MeanEstimate {
    /// The runs are long enough.
    Known(MeanInterval),
    /// They are not: there is no interval.
    TooShort(TooShort),
}

impl MeanEstimate {
    /// The estimate, with or without an interval.
    #[must_use]
    pub fn estimate(&self) -> f64 {
        match self {
            Self::Known(interval) => interval.estimate,
            Self::TooShort(short) => short.estimate,
        }
    }

    /// The interval, if there is one.
    #[must_use]
    pub fn interval(&self) -> Option<MeanInterval> {
        match self {
            Self::Known(interval) => Some(*interval),
            Self::TooShort(_) => None,
        }
    }

    /// The estimate with its interval changed by `change`.
    pub(crate) fn map(self, change: impl Fn(MeanInterval) -> MeanInterval) -> Self {
        match self {
            Self::Known(interval) => Self::Known(change(interval)),
            Self::TooShort(_) => self,
        }
    }

    /// The estimate `of` the estimate, whether there is an interval or not.
    pub(crate) fn shifted(self, scale: f64, shift: f64) -> Self {
        match self {
            Self::Known(interval) => Self::Known(interval.scaled(scale, shift)),
            Self::TooShort(short) => Self::TooShort(TooShort { estimate: short.estimate * scale + shift, ..short }),
        }
    }
}

/// An estimate with its confidence interval, in the unit of the values. The limits may be at unequal distances from the estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanInterval {
    /// The estimate from all values of the runs.
    pub estimate: f64,
    /// Lower limit, in the unit of the values.
    pub low: f64,
    /// Upper limit, in the unit of the values.
    pub high: f64,
    /// Standard error of the estimate.
    pub standard_error: f64,
    /// Degrees of freedom of Student's t, above 0.
    pub freedom: f64,
    /// Level of the interval, 0 to 1.
    pub confidence: f64,
}

impl MeanInterval {
    /// The interval `estimate` ± t·`standard_error` of the level `confidence`, 0 to 1.
    #[must_use]
    pub fn symmetric(estimate: f64, standard_error: f64, freedom: f64, confidence: f64) -> Self {
        // An infinite quantile times no spread is no spread.
        let half = if standard_error > 0.0 { t_quantile(freedom, confidence) * standard_error } else { 0.0 };
        Self { estimate, low: estimate - half, high: estimate + half, standard_error, freedom, confidence }
    }

    /// Half the width: the mean distance of the limits from the estimate.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        0.5 * (self.high - self.low)
    }

    /// Whether `value` is between the limits, or on one.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// The interval with each limit `factor` times as far from the estimate.
    #[must_use]
    pub fn widened(&self, factor: f64) -> Self {
        let limit = |limit: f64| self.estimate + factor * (limit - self.estimate);
        Self { low: limit(self.low), high: limit(self.high), ..*self }
    }

    /// The interval of `scale`·x + `shift`, with `scale` > 0.
    pub(crate) fn scaled(&self, scale: f64, shift: f64) -> Self {
        let of = |value: f64| value * scale + shift;
        Self {
            estimate: of(self.estimate),
            low: of(self.low),
            high: of(self.high),
            standard_error: self.standard_error * scale,
            ..*self
        }
    }

    /// The interval of −x.
    pub(crate) fn negated(&self) -> Self {
        Self { estimate: -self.estimate, low: -self.high, high: -self.low, ..*self }
    }
}

/// Runs without an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TooShort {
    /// The figure of the runs as they are.
    pub estimate: f64,
    /// By which factor the runs would have to be longer, about; at least 2.
    pub factor: f64,
}

impl TooShort {
    pub(crate) fn new(estimate: f64, factor: f64) -> Self {
        Self { estimate, factor: factor.max(2.0) }
    }
}
