//! Numbers in traces, parsed from bytes without a copy.
//!
//! Every error contains the name of the field and its value; nothing panics.

use blis_diag::{RowError, quoted};

/// A count or time that fits `u64`: decimal digits, possibly between blanks.
pub(super) fn unsigned(bytes: &[u8], name: &str) -> Result<u64, RowError> {
    let digits = bytes.trim_ascii();
    let mut value: u64 = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(not_a_count(digits, name));
        }
        value = match value.checked_mul(10).and_then(|tens| tens.checked_add(u64::from(digit))) {
            Some(value) => value,
            None => return Err(RowError::new(format!("`{name}` is too large: {}", quoted(digits)))),
        };
    }
    if digits.is_empty() { Err(RowError::new(format!("`{name}` is empty"))) } else { Ok(value) }
}

#[cold]
fn not_a_count(bytes: &[u8], name: &str) -> RowError {
    match bytes {
        [b'-', rest @ ..] if !rest.is_empty() && rest.iter().all(u8::is_ascii_digit) => {
            RowError::new(format!("`{name}` is negative: {}", quoted(bytes)))
        }
        _ => RowError::new(format!("`{name}` is not a whole number: {}", quoted(bytes))),
    }
}

/// A count that fits `u32`.
#[inline]
pub(super) fn count(bytes: &[u8], name: &str) -> Result<u32, RowError> {
    fits_u32(unsigned(bytes, name)?, name)
}

/// A count, which may be written as `12.0`: pandas writes columns with gaps in this way.
pub(super) fn count_of_table(bytes: &[u8], name: &str) -> Result<u32, RowError> {
    let text = bytes.trim_ascii();
    count(text.strip_suffix(b".0").unwrap_or(text), name)
}

/// `value` as a 32-bit count.
#[inline]
pub(super) fn fits_u32(value: u64, name: &str) -> Result<u32, RowError> {
    u32::try_from(value).map_err(|_| RowError::new(format!("`{name}` is {value}, more than {}", u32::MAX)))
}

/// A time in µs that fits a signed 64-bit integer, as in every BLIS file.
#[inline]
pub(super) fn micros(bytes: &[u8], name: &str) -> Result<u64, RowError> {
    let value = unsigned(bytes, name)?;
    if value > i64::MAX as u64 {
        return Err(RowError::new(format!("`{name}` is {value}, more than {}", i64::MAX)));
    }
    Ok(value)
}

/// A finite floating-point number.
pub(super) fn float(bytes: &[u8], name: &str) -> Result<f64, RowError> {
    let text = bytes.trim_ascii();
    let value: Option<f64> = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    match value {
        Some(value) if value.is_finite() => Ok(value),
        Some(_) => Err(RowError::new(format!("`{name}` is not finite: {}", quoted(text)))),
        None => Err(RowError::new(format!("`{name}` is not a number: {}", quoted(text)))),
    }
}

/// Refuses an empty prompt: it has at least one token.
pub(super) fn prompt_tokens(tokens: u32, name: &str) -> Result<u32, RowError> {
    if tokens == 0 { Err(RowError::new(format!("`{name}` is 0: a prompt has at least one token"))) } else { Ok(tokens) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message<T: std::fmt::Debug>(result: Result<T, RowError>) -> String {
        result.unwrap_err().what().to_owned()
    }

    #[test]
    fn what_is_not_a_count_is_named() {
        assert_eq!(count(b" 4294967295 ", "n"), Ok(u32::MAX));
        assert_eq!(message(count(b"4294967296", "n")), "`n` is 4294967296, more than 4294967295");
        assert_eq!(message(count(b"-3", "n")), "`n` is negative: `-3`");
        assert_eq!(message(count(b"3.5", "n")), "`n` is not a whole number: `3.5`");
        assert_eq!(message(count(b"", "n")), "`n` is empty");
        assert_eq!(message(unsigned(b"99999999999999999999", "n")), "`n` is too large: `99999999999999999999`");
        assert_eq!(message(float(b"NaN", "x")), "`x` is not finite: `NaN`");
        assert_eq!(message(float(b"1s", "x")), "`x` is not a number: `1s`");
        assert!(micros(b"9223372036854775808", "t").is_err());
    }

    proptest! {
        #[test]
        fn every_u64_reads_back(value: u64) {
            prop_assert_eq!(unsigned(value.to_string().as_bytes(), "n"), Ok(value));
        }
    }
}
