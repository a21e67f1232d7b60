//! Durations as text: Go's format, `1m30s`.

use blis_sim::units::Micros;

/// A duration in Go's format: `1m30s`, `1.5s`, `500us`. At least 1 µs; fractions of a µs are cut off, which changes no
/// comparison with whole µs.
///
/// # Errors
/// If `text` is no such duration.
pub fn duration(text: &str) -> Result<Micros, String> {
    from_zero(text).and_then(|time| if time == Micros::ZERO { Err(message(text)) } else { Ok(time) })
}

fn message(text: &str) -> String {
    format!("`{text}` must be a time of 1 µs to 292 years, like 100ms, 1.5s or 1m30s")
}

/// The same, or 0 with a unit; what is above 0 and below 1 µs is not 0.
fn from_zero(text: &str) -> Result<Micros, String> {
    const UNITS: [(&str, u128); 8] = [
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("μs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    let message = || message(text);
    let (mut rest, mut ns) = (text, 0u128);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(message)?;
        let (number, behind) = rest.split_at(end);
        let end = behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        let &(_, unit) = UNITS.iter().find(|&&(name, _)| name == unit).ok_or_else(message)?;
        ns += nanoseconds(number, unit).ok_or_else(message)?;
        rest = behind;
    }
    match u64::try_from(ns / 1_000) {
        Ok(us) if (us > 0 || ns == 0) && !text.is_empty() && ns <= i64::MAX as u128 => Ok(Micros(us)),
        _ => Err(message()),
    }
}

/// A time with a unit, as `500ms` or `0s`; `None` for a bare number, which keeps the unit of its setting.
pub(crate) fn with_unit(text: &str) -> Option<Result<Micros, String>> {
    let has_unit = text.ends_with(|c: char| c.is_alphabetic()) && text.starts_with(|c: char| c.is_ascii_digit());
    has_unit.then(|| from_zero(text))
}

/// A duration, or 0.
pub(crate) fn or_zero(text: &str) -> Result<Micros, String> {
    if text == "0" { Ok(Micros::ZERO) } else { from_zero(text) }
}

/// Whole seconds as such, other times in µs.
pub(crate) fn time_text(time: Micros) -> String {
    match time.0 {
        0 => "0".to_owned(),
        us if us % 1_000_000 == 0 => format!("{}s", us / 1_000_000),
        us => format!("{us}us"),
    }
}

/// `number` × `unit`, cut off at whole ns.
fn nanoseconds(number: &str, unit: u128) -> Option<u128> {
    /// More digits have no use and would overflow.
    const DIGITS: usize = 20;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() > DIGITS || fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let fraction = &fraction[..fraction.len().min(DIGITS)];
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u128>().ok() };
    Some(digits(whole)? * unit + digits(fraction)? * unit / 10u128.pow(fraction.len() as u32))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        let table = [
            ("100ms", 100_000),
            ("1.5s", 1_500_000),
            ("1m30s", 90_000_000),
            ("1h1m1s1ms1us1000ns", 3_661_001_002),
            ("2µs", 2),
            ("2μs", 2),
            (".5s", 500_000),
            ("1.s", 1_000_000),
            ("1999ns", 1),
            ("0.3333333333333333333333333333333s", 333_333),
            ("9223372036s", 9_223_372_036_000_000),
        ];
        for (text, us) in table {
            assert_eq!(duration(text), Ok(Micros(us)), "{text}");
        }
        for text in ["", "0", "5", "s", ".s", "1.2.3s", "1d", "-1s", "+1s", "1 s", "1ms5", "999ns", "0s", "1e3s", "١s"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
        for text in ["9223372037s", "99999999999999999999h", "999999999999999999999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn zero_may_have_a_unit_where_it_is_allowed() {
        for text in ["0s", "0ms", "0us", "0m0s", "0.0s"] {
            assert_eq!((with_unit(text), or_zero(text)), (Some(Ok(Micros::ZERO)), Ok(Micros::ZERO)), "{text}");
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(with_unit("999ns").is_some_and(|time| time.is_err()) && or_zero("").is_err());
    }

    proptest! {
        #[test]
        fn whole_durations_come_back(us in 1u64..=9_223_372_036_854_775) {
            prop_assert_eq!(duration(&format!("{us}us")), Ok(Micros(us)));
            prop_assert_eq!(duration(&format!("{}ms{}us", us / 1_000, us % 1_000)), Ok(Micros(us)));
            prop_assert_eq!(duration(&format!("{}.{:06}s", us / 1_000_000, us % 1_000_000)), Ok(Micros(us)));
        }
    }
}
