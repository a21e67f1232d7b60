//! Whether a stage can be simulated at all.

use super::super::error::SpecFileError;
use super::super::read::{Mark, Reader};

/// A stage has no more requests than can be numbered.
pub(super) fn countable(
    reader: &Reader<'_>,
    who: &str,
    (rate, duration): (f64, f64),
    at: Mark,
) -> Result<(), SpecFileError> {
    if rate * duration <= f64::from(u32::MAX) {
        return Ok(());
    }
    let what = format!("{who} has about {:.0} requests, more than 4294967295", rate * duration);
    Err(reader.wrong(at, what, "lower its rate or its duration"))
}
