//! What is wrong with the numbers that were handed in.

use thiserror::Error;

/// Numbers that no procedure of this crate can use. A run that is merely too short is no error: see
/// [`TooShort`](crate::TooShort).
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum StatisticsError {
    /// A series, or a list of series, is empty.
    #[error("there are no values")]
    Empty,
    /// A value is infinite or not a number.
    #[error("value {index} is not a finite number")]
    NotFinite {
        /// Index in its series, from 0.
        index: usize,
    },
    /// Two series that belong together have different lengths.
    #[error("{left} values stand beside {right}")]
    Lengths {
        /// Length of the first.
        left: usize,
        /// Length of the second.
        right: usize,
    },
    /// A parameter is outside its range.
    #[error("{what} is {value}, but must be {range}")]
    OutOfRange {
        /// Name of the parameter.
        what: &'static str,
        /// The value that it was given.
        value: f64,
        /// The values that it may have.
        range: &'static str,
    },
}

/// # Errors
/// If `values` is empty or has a value that is not finite.
pub(crate) fn check_series(values: &[f64]) -> Result<(), StatisticsError> {
    if values.is_empty() {
        return Err(StatisticsError::Empty);
    }
    match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(StatisticsError::NotFinite { index }),
        None => Ok(()),
    }
}

/// # Errors
/// If the lengths differ.
pub(crate) fn check_lengths(left: usize, right: usize) -> Result<(), StatisticsError> {
    if left == right { Ok(()) } else { Err(StatisticsError::Lengths { left, right }) }
}

/// # Errors
/// If `is_inside` is false.
pub(crate) fn check_range(
    what: &'static str,
    value: f64,
    is_inside: bool,
    range: &'static str,
) -> Result<(), StatisticsError> {
    if is_inside { Ok(()) } else { Err(StatisticsError::OutOfRange { what, value, range }) }
}
