//! Numbers as YAML writes them.

use super::real;

/// A floating-point number; `None` if it is none, or too large to be one.
pub(super) fn float(text: &str) -> Option<f64> {
    let text = text.trim();
    let named = text.trim_start_matches(['+', '-']).to_ascii_lowercase();
    real(text).filter(|number| number.is_finite() || matches!(named.as_str(), ".inf" | ".nan"))
}

/// A whole number: decimal without leading zeros, or after `0x`, `0o`, `0b`; single `_` between digits.
pub(super) fn whole(text: &str) -> Option<i128> {
    let text = text.trim();
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let prefixed = |small, large| unsigned.strip_prefix(small).or_else(|| unsigned.strip_prefix(large));
    let (radix, digits) = [(16, "0x", "0X"), (8, "0o", "0O"), (2, "0b", "0B")]
        .into_iter()
        .find_map(|(radix, small, large)| Some((radix, prefixed(small, large)?)))
        .unwrap_or((10, unsigned));
    let leading_zero = radix == 10 && digits.starts_with('0') && digits != "0";
    if leading_zero || digits.split('_').any(str::is_empty) || digits.contains(['+', '-']) {
        return None;
    }
    let number = i128::from_str_radix(&digits.replace('_', ""), radix).ok()?;
    Some(if text.starts_with('-') { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_a_radix_and_underscores() {
        let numbers = ["0", "+7", "-12", "0xFf", "0b1_0", "-0o17", "1_000"].map(whole);
        assert_eq!(numbers, [0, 7, -12, 255, 2, -15, 1000].map(Some));
        for text in ["", "-", "007", "1.0", "1e3", "_1", "1_", "1__0", "0x", "--1", "0x-1", "a"] {
            assert_eq!(whole(text), None, "{text}");
        }
    }

    #[test]
    fn floats_are_finite_unless_they_say_so() {
        assert_eq!(
            ["1e12", "-.5", ".inf", "-.INF"].map(float),
            [1e12, -0.5, f64::INFINITY, f64::NEG_INFINITY].map(Some)
        );
        assert!(float(".nan").is_some_and(f64::is_nan));
        for text in ["1e999", "-.5e999", "inf", "nan", "0x10", "1_000", "", "a"] {
            assert_eq!(float(text), None, "{text}");
        }
    }
}
