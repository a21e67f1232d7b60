//! The best of many, with ties broken as the built-in policies break them.

use std::hint::cold_path;

/// The place of the smallest value. Where several are the smallest, the host picks one of them
/// ([`crate::pick`]), as it does for its own policies. Not-a-number is never the smallest.
///
/// # Panics
/// If there is no value but not-a-number.
#[inline]
pub fn argmin<T: PartialOrd + Copy>(values: impl IntoIterator<Item = T, IntoIter: Clone>) -> usize {
    first_by(values.into_iter(), |a, b| a <= b)
}

/// The place of the largest value; ties and not-a-number as in [`argmin`].
///
/// # Panics
/// If there is no value but not-a-number.
#[inline]
pub fn argmax<T: PartialOrd + Copy>(values: impl IntoIterator<Item = T, IntoIter: Clone>) -> usize {
    first_by(values.into_iter(), |a, b| a >= b)
}

#[inline]
fn first_by<T: PartialOrd + Copy>(values: impl Iterator<Item = T> + Clone, no_worse: impl Fn(T, T) -> bool) -> usize {
    let mut rest = values.clone().enumerate();
    let Some((mut first, mut best)) = rest.find(|&(_, value)| comparable(value)) else {
        panic!("there is nothing to choose from: no value, or none that is a number");
    };
    let mut tied = 1_u32;
    for (place, value) in rest {
        // One comparison for most values, which are worse.
        if no_worse(value, best) {
            cold_path();
            if value == best {
                tied += 1;
            } else {
                (first, best, tied) = (place, value, 1);
            }
        }
    }
    if tied == 1 {
        return first;
    }
    let chosen = crate::pick(tied) as usize;
    let mut places = values.enumerate().skip(first).filter(|&(_, value)| value == best).map(|(place, _)| place);
    places.nth(chosen).expect("pick answers with a number below the one it was given")
}

#[expect(clippy::eq_op, reason = "not-a-number is not equal to itself")]
fn comparable<T: PartialOrd + Copy>(value: T) -> bool {
    value == value
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{Host, with};

    #[test]
    fn ties_are_counted_and_picked_in_order() {
        let values = [3, 1, 2, 1, 1];
        for (pick, place) in [(0, 1), (1, 3), (2, 4)] {
            let (chosen, host) = with(Host { picks: vec![pick], ..Host::default() }, || argmin(values));
            assert_eq!((chosen, host.asked), (place, vec![3]), "3 are equally good");
        }
    }

    #[test]
    fn one_best_needs_no_pick() {
        let (chosen, host) = with(Host::default(), || (argmin([2.0, f64::NAN, 1.5]), argmax([f64::NAN, 2.0, 1.0])));
        assert_eq!((chosen, host.asked), ((2, 1), vec![]));
    }

    #[test]
    #[should_panic(expected = "nothing to choose from")]
    fn not_a_number_is_no_choice() {
        let _ = argmax([f64::NAN, f64::NAN]);
    }

    proptest! {
        #[test]
        fn nothing_is_better_than_the_best(values in prop::collection::vec(0_u8..6, 1..40)) {
            let (place, _) = with(Host::default(), || argmax(values.iter().copied()));
            prop_assert_eq!(values[place], *values.iter().max().unwrap());
            let (place, _) = with(Host::default(), || argmin(values.iter().copied()));
            prop_assert_eq!(values[place], *values.iter().min().unwrap());
        }
    }
}
