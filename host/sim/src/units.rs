//! Time: integer microseconds from the start of the simulation.
//!
//! Floats never enter the order of events. A float becomes a time exactly once, here, by truncation toward zero, as in
//! the published BLIS.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};

use crate::numbers::truncated_i64;

/// A point in simulated time, or a duration, in whole microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Micros(pub u64);

impl Micros {
    /// The start of the simulation, or an empty duration.
    pub const ZERO: Self = Self(0);
    /// A time later than every event: "no horizon", "no deadline". It is the largest signed 64-bit value, so that
    /// traces written by other programs mean the same.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// Truncates toward zero. Negative values become 0; NaN and anything ≥ 2^63 become [`Micros::MAX`].
    #[must_use]
    pub fn from_f64(us: f64) -> Self {
        if us.is_nan() {
            return Self::MAX;
        }
        Self(truncated_i64(us).max(0).cast_unsigned()) // every step has some: it must be cheap
    }

    /// Converts a duration in seconds, truncated to whole microseconds.
    #[must_use]
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self::from_f64(seconds * 1e6)
    }

    /// The time in milliseconds, for output.
    #[must_use]
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// The time in seconds, for output.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Addition that saturates at [`Micros::MAX`] instead of wrapping.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0).min(Self::MAX.0))
    }

    /// The difference; 0 if `other` is later.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Micros {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Micros {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Micros {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl SubAssign for Micros {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl Sum for Micros {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        Self(iter.map(|m| m.0).sum())
    }
}

impl fmt::Debug for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}µs", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_truncate_toward_zero_and_clamp() {
        assert_eq!(Micros::from_f64(99_999.999), Micros(99_999));
        assert_eq!(Micros::from_f64(-3.0), Micros::ZERO);
        assert_eq!(Micros::from_f64(f64::NAN), Micros::MAX);
        assert_eq!(Micros::from_f64(1e30), Micros::MAX);
        assert_eq!(Micros::from_f64(9.3e18), Micros::MAX);
    }
}
