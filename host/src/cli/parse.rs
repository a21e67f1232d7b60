//! Values of flags: each parser refuses what can never make sense and says what would.

use std::num::NonZeroU32;

use blis_sim::units::Micros;

/// A whole number ≥ 1.
pub(super) fn count(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("must be a whole number from 1 to {}", u32::MAX)),
        Ok(number) => Ok(number),
    }
}

/// Like [`count`], for those who rely on it.
pub(super) fn nonzero(text: &str) -> Result<NonZeroU32, String> {
    count(text).and_then(|number| NonZeroU32::try_from(number).map_err(|error| error.to_string()))
}

/// A whole number ≥ 0.
pub(super) fn count_or_zero(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("must be a whole number from 0 to {}", u32::MAX))
}

/// A whole number of KV blocks ≥ 1.
pub(super) fn blocks(text: &str) -> Result<u64, String> {
    count(text).map(u64::from)
}

/// GPUs that share one instance.
pub(super) fn parallelism(text: &str) -> Result<u32, String> {
    const MOST: u32 = 1024;
    match text.parse() {
        Ok(number @ 1..=MOST) => Ok(number),
        _ => Err(format!("must be a whole number of GPUs from 1 to {MOST}")),
    }
}

/// Like [`parallelism`]; 0 leaves the choice to the model.
pub(super) fn parallelism_or_zero(text: &str) -> Result<u32, String> {
    if text == "0" { Ok(0) } else { parallelism(text).map_err(|told| format!("{told}, or 0 for the default")) }
}

/// Requests per second. Times are whole µs up to 2^63: more or fewer requests cannot be told apart.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let rate = finite(text).filter(|rate| (1e-6..=1e6).contains(rate));
    rate.ok_or_else(|| "must be a number of requests per second from 0.000001 to 1000000".to_owned())
}

/// A coefficient of a latency model, µs per something. Steps of more than 11 days are no latencies.
pub(super) fn coefficient(text: &str) -> Result<f64, String> {
    let number = finite(text).filter(|number| (0.0..=1e12).contains(number));
    number.ok_or_else(|| "must be a number from 0 to 1e12".to_owned())
}

/// A share: above 0, at most 1.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let number = finite(text).filter(|&number| number > 0.0 && number <= 1.0);
    number.ok_or_else(|| "must be a number above 0 and at most 1".to_owned())
}

/// Seconds until a client gives up; negative for never.
pub(super) fn timeout(text: &str) -> Result<f64, String> {
    let seconds = finite(text).filter(|seconds| !(0.0..1e-6).contains(seconds));
    seconds.ok_or_else(|| "must be a number of seconds from 0.000001 on, or negative for no deadline".to_owned())
}

/// A point in simulated time.
pub(super) fn horizon(text: &str) -> Result<Micros, String> {
    match text.parse() {
        Ok(us @ 1..=i64::MAX) => Ok(Micros(us.unsigned_abs())),
        _ => Err(format!("must be a whole number of microseconds from 1 to {}", i64::MAX)),
    }
}

/// A seed.
pub(super) fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("must be a whole number from 0 to {}", u64::MAX))
}

fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "0", "-1", "1.5", "1e3", "4294967296", "many"] {
            assert!(count(text).is_err() && blocks(text).is_err(), "{text}");
        }
        for text in ["", "NaN", "inf", "-inf", "-0.5", "x"] {
            assert!(rate(text).is_err() && coefficient(text).is_err() && share(text).is_err(), "{text}");
        }
        assert!(rate("0").is_err() && rate("1e-300").is_err() && rate("1e7").is_err() && coefficient("1e13").is_err());
        assert!(timeout("1e-9").is_err() && share("0").is_err() && share("1.01").is_err());
        assert!(timeout("0").is_err() && timeout("-0.0").is_err() && timeout("NaN").is_err());
        assert!(parallelism("0").is_err() && parallelism("1025").is_err() && parallelism_or_zero("1025").is_err());
        for text in ["0", "-1", "9223372036854775808", "1e6"] {
            assert!(horizon(text).is_err(), "{text}");
        }
    }

    #[test]
    fn limits_are_inclusive() {
        assert_eq!((count("1"), count("4294967295")), (Ok(1), Ok(u32::MAX)));
        assert_eq!((count_or_zero("0"), parallelism_or_zero("0"), parallelism("1024")), (Ok(0), Ok(0), Ok(1024)));
        assert_eq!((share("1"), coefficient("0"), timeout("-1")), (Ok(1.0), Ok(0.0), Ok(-1.0)));
        assert_eq!((horizon("1"), horizon("9223372036854775807")), (Ok(Micros(1)), Ok(Micros::MAX)));
    }
}
