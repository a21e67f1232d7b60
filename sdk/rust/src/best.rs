//! The best of many values, with ties broken as the built-in policies break them.

/// The index of the smallest value. If several values are the smallest, the host picks one of them ([`crate::pick`]),
/// as it does for its own policies. NaN is never the smallest.
///
/// # Panics
/// If all values are NaN, or there is none.
#[inline]
pub fn argmin<T: PartialOrd + Copy>(values: impl IntoIterator<Item = T, IntoIter: Clone>) -> usize {
    first_by(values.into_iter(), |a, b| a <= b)
}

/// The index of the largest value; ties and NaN as in [`argmin`].
///
/// # Panics
/// If all values are NaN, or there is none.
#[inline]
pub fn argmax<T: PartialOrd + Copy>(values: impl IntoIterator<Item = T, IntoIter: Clone>) -> usize {
    first_by(values.into_iter(), |a, b| a >= b)
}

/// Number of indices of equally good values that are kept; later ones are searched again.
const REMEMBERED: usize = 16;

/// Tuned for compilers to WebAssembly, which move variables between registers and memory in large loops: one branch skips
/// four values at a time, and rare cases are in separate functions.
#[inline]
fn first_by<T: PartialOrd + Copy>(values: impl Iterator<Item = T> + Clone, no_worse: impl Fn(T, T) -> bool) -> usize {
    let mut rest = values;
    let Some((first, mut best)) = rest.by_ref().enumerate().find(|&(_, value)| comparable(value)) else {
        panic!("there is nothing to choose from: no value, or none that is a number");
    };
    let mut indices = [0_usize; REMEMBERED];
    indices[0] = first;
    let (mut tied, mut index) = (1, first + 1);
    // The values after the last kept index.
    let mut later = rest.clone();
    'all: loop {
        let mut ahead = rest.clone();
        if let (Some(a), Some(b), Some(c), Some(d)) = (ahead.next(), ahead.next(), ahead.next(), ahead.next())
            && !(no_worse(a, best) | no_worse(b, best) | no_worse(c, best) | no_worse(d, best))
        {
            rest = ahead;
            index += 4;
            continue;
        }
        for _ in 0..4 {
            let Some(value) = rest.next() else { break 'all };
            if no_worse(value, best) {
                if value != best {
                    (best, tied) = (value, 0);
                }
                if let Some(room) = indices.get_mut(tied) {
                    *room = index;
                    later = rest.clone();
                }
                tied += 1;
            }
            index += 1;
        }
    }
    if tied == 1 {
        return indices[0];
    }
    let chosen = crate::pick(tied as u32) as usize;
    match indices.get(chosen) {
        Some(&index) => index,
        None => behind(later, best, indices[REMEMBERED - 1] + 1, chosen - REMEMBERED),
    }
}

/// The index of the value equal to `best` after `skipped` other such values. `values` begins at index `from`.
#[inline(never)]
fn behind<T: PartialOrd + Copy>(
    mut values: impl Iterator<Item = T> + Clone,
    best: T,
    from: usize,
    skipped: usize,
) -> usize {
    let (mut index, mut left) = (from, skipped);
    loop {
        let mut ahead = values.clone();
        let (Some(a), Some(b), Some(c), Some(d)) = (ahead.next(), ahead.next(), ahead.next(), ahead.next()) else {
            break;
        };
        let equal = [a, b, c, d].into_iter().map(|value| usize::from(value == best)).sum::<usize>();
        if equal > left {
            break;
        }
        (values, index, left) = (ahead, index + 4, left - equal);
    }
    let found = values.enumerate().filter(|&(_, value)| value == best).nth(left);
    index + found.expect("pick returns a number below its argument").0
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
        for (pick, index) in [(0, 1), (1, 3), (2, 4)] {
            let (chosen, host) = with(Host { picks: vec![pick], ..Host::default() }, || argmin(values));
            assert_eq!((chosen, host.pick_sizes), (index, vec![3]), "3 are equally good");
        }
    }

    #[test]
    fn so_many_ties_that_not_all_are_remembered() {
        let value = |index: usize| u8::from(index.is_multiple_of(3)); // 1, 2, 4, 5, 7, 8, …
        for (pick, index) in [(0, 1), (15, 23), (16, 25), (65, 98)] {
            let (chosen, host) = with(Host { picks: vec![pick], ..Host::default() }, || argmin((0..99).map(value)));
            assert_eq!((chosen, host.pick_sizes), (index, vec![66]));
        }
    }

    #[test]
    fn one_best_needs_no_pick() {
        let (chosen, host) = with(Host::default(), || (argmin([2.0, f64::NAN, 1.5]), argmax([f64::NAN, 2.0, 1.0])));
        assert_eq!((chosen, host.pick_sizes), ((2, 1), vec![]));
    }

    #[test]
    #[should_panic(expected = "nothing to choose from")]
    fn not_a_number_is_no_choice() {
        let _ = argmax([f64::NAN, f64::NAN]);
    }

    proptest! {
        #[test]
        fn nothing_is_better_than_the_best(values in prop::collection::vec(0_u8..6, 1..40)) {
            let (index, _) = with(Host::default(), || argmax(values.iter().copied()));
            prop_assert_eq!(values[index], *values.iter().max().unwrap());
            let (index, _) = with(Host::default(), || argmin(values.iter().copied()));
            prop_assert_eq!(values[index], *values.iter().min().unwrap());
        }
    }
}
