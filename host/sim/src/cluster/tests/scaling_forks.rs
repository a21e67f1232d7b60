//! Branches at calls of a scaling policy: another number of replicas is set once, and everything else follows.

use super::replicas::scaled;
use super::*;
use crate::cluster::{ArrivalList, DecisionEvent, Timeline};

/// A run, and a branch that begins before call number `call` of its policy, in which `change` of what it decides about
/// `group` is set instead; `None` if the run fails or has fewer calls.
fn branch<I: Instance + Clone>(
    setup: &ClusterSetup,
    engine: impl Fn(InstanceConfig) -> I + Copy + Send + Sync + 'static,
    requests: &[Request],
    (call, group): (usize, usize),
    change: impl Fn(u32) -> u32,
) -> Option<(SimulationLog, SimulationLog)> {
    let mut timeline = Timeline::new(setup.cluster(engine), ArrivalList::new(requests.into()), Reads::NOTHING);
    let (mut log, mut calls, mut fork) = (SimulationLog::default(), 0, None);
    while timeline.next_decision(&mut log).ok()? {
        let is_call = timeline.pending().is_some_and(|pending| pending.event == DecisionEvent::Scaling);
        if is_call && calls == call {
            fork = Some((timeline.clone(), log.clone()));
        }
        calls += usize::from(is_call);
        timeline.decide(&mut log).ok()?;
    }
    log.counters = timeline.finish(Micros::MAX, &mut log).ok()?;
    let (mut timeline, mut before) = fork?;
    let groups = setup.replicas.as_ref().expect("it has replicas").groups.len();
    let group = group % groups;
    timeline.force_scaling(group, change(log.scaling[call * groups + group].to));
    before.counters = timeline.finish(Micros::MAX, &mut before).ok()?;
    Some((log, before))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn the_same_number_of_replicas_changes_nothing(
        setup in scaled(),
        drafts in proptest::collection::vec(draft(), 1..50),
        at in (0usize..8, 0usize..2),
    ) {
        let requests = requests(&drafts, setup.config.block_size);
        let [fast, plain] = [
            branch(&setup, Fast::new, &requests, at, |same| same),
            branch(&setup, Plain::new, &requests, at, |same| same),
        ];
        prop_assert_eq!(&fast, &plain);
        if let Some((original, forced)) = fast {
            let whole = simulate(&setup, Fast::new, &requests, Reads::NOTHING).expect("as before");
            prop_assert_eq!((&original.scaling, &original.outcomes), (&whole.scaling, &whole.outcomes));
            prop_assert_eq!(forced, original);
        }
    }

    #[test]
    fn another_number_is_set_once_and_no_request_is_lost(
        setup in scaled(),
        drafts in proptest::collection::vec(draft(), 1..50),
        at in (0usize..8, 0usize..2),
        more in any::<bool>(),
    ) {
        let requests = requests(&drafts, setup.config.block_size);
        let other = |number: u32| if more { number + 1 } else { number.saturating_sub(1) };
        let [fast, plain] = [
            branch(&setup, Fast::new, &requests, at, other),
            branch(&setup, Plain::new, &requests, at, other),
        ];
        prop_assert_eq!(&fast, &plain);
        let Some((original, forced)) = fast else { return Ok(()) };
        let groups = &setup.replicas.as_ref().expect("it has replicas").groups;
        let (group, call) = (at.1 % groups.len(), at.0 * groups.len());
        prop_assert_eq!(&forced.scaling[..call], &original.scaling[..call], "nothing changes before it");
        let limits = groups[group].limits;
        let number = other(original.scaling[call + group].to).clamp(limits.min, limits.max);
        prop_assert_eq!(forced.scaling[call + group].to, number);
        prop_assert!(forced.outcomes.keys().eq(original.outcomes.keys()));
    }
}
