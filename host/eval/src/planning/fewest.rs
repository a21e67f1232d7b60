//! The search for the fewest replicas, as of a number that holds if every larger one does.

use crate::error::RunError;

/// What a number of replicas does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeResult {
    Holds,
    Fails,
    /// It fails although the replicas have almost nothing to do: more of them change nothing.
    Idle,
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fewest {
    Found(u32),
    /// Not even the most that are allowed hold.
    Beyond(u32),
    /// This many fail while idle.
    Idle(u32),
}

/// The fewest of `least` to `most` that hold, searched from `start`: next to it first, then ever farther away.
pub(super) fn fewest(
    start: u32,
    least: u32,
    most: u32,
    mut probe: impl FnMut(u32) -> Result<ProbeResult, RunError>,
) -> Result<Fewest, RunError> {
    let (mut below, mut above, mut step) = (least.saturating_sub(1), None::<u32>, 1);
    let mut count = start.clamp(least, most);
    loop {
        match probe(count)? {
            ProbeResult::Holds => above = Some(count),
            ProbeResult::Fails => below = count,
            ProbeResult::Idle => return Ok(Fewest::Idle(count)),
        }
        count = match above {
            Some(above) if above - below == 1 => return Ok(Fewest::Found(above)),
            Some(above) if below < least => above.saturating_sub(step).max(least),
            Some(above) => below.midpoint(above),
            None if below >= most => return Ok(Fewest::Beyond(most)),
            None => below.saturating_add(step).min(most),
        };
        step = step.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_fewest_are_found_from_any_start(least in 1u32..4, span in 0u32..60, start in 0u32..80, needed in 0u32..80) {
            let most = least + span;
            let mut tried = 0;
            let probe = |count: u32| {
                tried += 1;
                assert!((least..=most).contains(&count));
                Ok(if count >= needed { ProbeResult::Holds } else { ProbeResult::Fails })
            };
            let found = fewest(start, least, most, probe).expect("no run fails");
            let expected = if needed > most { Fewest::Beyond(most) } else { Fewest::Found(needed.max(least)) };
            prop_assert_eq!(found, expected);
            prop_assert!(tried <= 14, "{}", tried);
        }
    }

    #[test]
    fn idle_replicas_end_the_search() {
        let probe = |count: u32| Ok(if count < 8 { ProbeResult::Fails } else { ProbeResult::Idle });
        assert_eq!(fewest(1, 1, 1000, probe), Ok(Fewest::Idle(8)));
    }
}
