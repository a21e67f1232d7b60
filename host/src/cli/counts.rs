//! Counts of the commands that evaluate: each has a range, so that no number can ask for more than a machine has.

use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::RangeInclusive;
use std::str::FromStr;

use blis_eval::evaluation::options::MOST_FEEDBACK_BYTES;

/// Most threads and evaluations at a time, as `parse::threads` of other commands has it.
const MOST_THREADS: usize = 1024;

/// A whole number of `range`.
fn whole<T: FromStr + PartialOrd + std::fmt::Display>(text: &str, range: &RangeInclusive<T>) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("must be a whole number from {} to {}", range.start(), range.end()))
}

fn nonzero(text: &str, most: usize) -> Result<NonZeroUsize, String> {
    whole(text, &(1..=most)).map(|number| NonZeroUsize::new(number).unwrap_or(NonZeroUsize::MIN))
}

/// Threads, or evaluations at a time.
pub(super) fn threads(text: &str) -> Result<NonZeroUsize, String> {
    nonzero(text, MOST_THREADS)
}

/// Evaluations at a time on this machine; 0 where others evaluate.
pub(super) fn workers(text: &str) -> Result<usize, String> {
    whole(text, &(0..=MOST_THREADS))
}

/// Memory of a process, GiB: up to 16 TiB.
pub(super) fn memory_gib(text: &str) -> Result<NonZeroU32, String> {
    whole(text, &(1..=16_384)).map(|number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN))
}

/// Requests that wait: room for all is made at the start.
pub(super) fn queue(text: &str) -> Result<NonZeroUsize, String> {
    nonzero(text, 10_000)
}

/// Requests in flight: each has a connection.
pub(super) fn in_flight(text: &str) -> Result<NonZeroUsize, String> {
    nonzero(text, 1_000_000)
}

/// Feedback for a candidate, bytes.
pub(super) fn feedback_bytes(text: &str) -> Result<usize, String> {
    whole(text, &(0..=MOST_FEEDBACK_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_has_is_refused_with_the_range() {
        assert_eq!((threads("1").map(NonZeroUsize::get), workers("0"), queue("64").is_ok()), (Ok(1), Ok(0), true));
        assert_eq!((memory_gib("16384").is_ok(), feedback_bytes("0"), in_flight("7").is_ok()), (true, Ok(0), true));
        for wrong in ["-1", "1000000000", "9223372036854775808", "18446744073709551615", "NaN", "1e308", ""] {
            let refused =
                [threads(wrong).is_err(), workers(wrong).is_err(), memory_gib(wrong).is_err(), queue(wrong).is_err()];
            assert_eq!(refused, [true; 4], "{wrong}");
            assert!(in_flight(wrong).is_err() && feedback_bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(threads("0"), Err("must be a whole number from 1 to 1024".to_owned()));
    }
}
