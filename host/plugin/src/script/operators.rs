//! Operators on numbers, with the results of IEEE 754 and of the columns, on every machine.
//!
//! Rhai's own comparisons take numbers as equal that differ in their last digit, and no number as less than infinity; its
//! power is the platform's. These replace both, so the engine must look for functions before it uses its own
//! operators ([`rhai::Engine::set_fast_operators`]).

use std::cmp::Ordering;

use rhai::{FLOAT, INT};

use super::registry::Registry;

pub(super) fn register(to: &mut Registry) {
    comparisons(to);
    powers(to);
}

/// Whether a comparison holds in an order; `None` is that of not-a-number.
type Test = fn(Option<Ordering>) -> bool;

/// The comparisons.
pub(super) const COMPARISONS: [(&str, Test); 6] = [
    ("<", |order| order == Some(Ordering::Less)),
    ("<=", |order| matches!(order, Some(Ordering::Less | Ordering::Equal))),
    (">", |order| order == Some(Ordering::Greater)),
    (">=", |order| matches!(order, Some(Ordering::Greater | Ordering::Equal))),
    ("==", |order| order == Some(Ordering::Equal)),
    ("!=", |order| order != Some(Ordering::Equal)),
];

/// The order of a whole number and one with a fraction, without rounding either; `None` if that is not-a-number.
pub(super) fn exact(a: INT, b: FLOAT) -> Option<Ordering> {
    // Two to the power of 63, which INT does not reach.
    const END: FLOAT = 9_223_372_036_854_775_808.0;
    if b.is_nan() {
        return None;
    }
    if b >= END {
        return Some(Ordering::Less);
    }
    if b < -END {
        return Some(Ordering::Greater);
    }
    // The part without the fraction fits an INT.
    match a.cmp(&(b.trunc() as INT)) {
        Ordering::Equal => 0.0.partial_cmp(&b.fract()),
        order => Some(order),
    }
}

/// `<` and the like of two numbers, at least one of them with a fraction.
fn comparisons(to: &mut Registry) {
    for (operator, holds) in COMPARISONS {
        to.engine.register_fn(operator, move |a: FLOAT, b: FLOAT| holds(a.partial_cmp(&b)));
        to.engine.register_fn(operator, move |a: FLOAT, b: INT| holds(exact(b, a).map(Ordering::reverse)));
        to.engine.register_fn(operator, move |a: INT, b: FLOAT| holds(exact(a, b)));
    }
}

/// `**` with a fraction in it; that of whole numbers is exact, or an error.
fn powers(to: &mut Registry) {
    to.engine.register_fn("**", |a: FLOAT, b: FLOAT| libm::pow(a, b));
    to.engine.register_fn("**", |a: FLOAT, b: INT| libm::pow(a, b as FLOAT));
    to.engine.register_fn("**", |a: INT, b: FLOAT| libm::pow(a as FLOAT, b));
    to.engine.register_fn("**=", |a: &mut FLOAT, b: FLOAT| *a = libm::pow(*a, b));
    to.engine.register_fn("**=", |a: &mut FLOAT, b: INT| *a = libm::pow(*a, b as FLOAT));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Eight times `b`, which has no more than eighths, from its bits.
    fn eightfold(b: f64) -> i128 {
        let bits = b.to_bits();
        let exponent = (bits >> 52) & 0x7ff;
        if exponent == 0 {
            return 0;
        }
        let digits = i128::from(bits & ((1 << 52) - 1) | (1 << 52));
        let shift = exponent.cast_signed() - 1075 + 3;
        let magnitude = if shift >= 0 { digits << shift } else { digits >> -shift };
        if b.is_sign_negative() { -magnitude } else { magnitude }
    }

    proptest! {
        #[test]
        fn mixed_comparisons_are_exact(a: i64, shift in 0_u32..63, nudge in -2_i64..3, eighths in -3_i64..4) {
            let a = a >> shift;
            let b = a.saturating_add(nudge) as f64 + eighths as f64 / 8.0;
            prop_assert_eq!(exact(a, b), Some((i128::from(a) * 8).cmp(&eightfold(b))), "{} {}", a, b);
        }
    }

    #[test]
    fn the_ends_of_the_whole_numbers_are_exact() {
        use Ordering::{Equal, Greater, Less};
        let end = 2.0_f64.powi(63);
        let orders = [
            exact(i64::MAX, end),
            exact(i64::MIN, -end),
            exact(i64::MIN, f64::NEG_INFINITY),
            exact(9_007_199_254_740_993, 9_007_199_254_740_992.0),
            exact(-1, -1.5),
            exact(0, 5e-324),
            exact(0, -0.0),
        ];
        assert_eq!(orders, [Less, Equal, Greater, Greater, Greater, Less, Equal].map(Some));
        assert_eq!(exact(0, f64::NAN), None);
    }
}
