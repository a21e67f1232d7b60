//! Whether the requests of a stage can be numbered.

use super::super::error::SpecFileError;
use super::super::read::{Mark, SpecReader};

/// Refuses a stage with more requests than 32 bits can number: of `rate` requests per second for `duration` seconds.
pub(super) fn countable(
    reader: &SpecReader<'_>,
    subject: &str,
    rate: f64,
    duration: f64,
    at: Mark,
) -> Result<(), SpecFileError> {
    if rate * duration <= f64::from(u32::MAX) {
        return Ok(());
    }
    let what = format!("{subject} has about {:.0} requests, more than 4294967295", rate * duration);
    Err(reader.wrong(at, what, "lower its rate or its duration"))
}
