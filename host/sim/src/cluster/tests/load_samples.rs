//! Sampled loads: the same from both engines, and without an effect on the simulation.

use super::*;

/// The load of each instance from a moment on, and when it was gone.
#[derive(Debug, Default)]
struct LoadSamples(BTreeMap<InstanceIndex, BTreeMap<Micros, InstanceLoad>>, BTreeMap<InstanceIndex, Micros>);

impl Observer for LoadSamples {
    fn interests(&self) -> Interests {
        Interests::LOAD_SAMPLES | Interests::OUTCOMES
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        if let SimEvent::Load { instance, at, load } = *event {
            let before = self.0.entry(instance).or_default().insert(at, *load);
            assert!(before.is_none(), "{instance:?} was sampled twice at {at:?}");
        }
        if let SimEvent::Replica(ReplicaEvent { at, instance: Some(instance), state: None, .. }) = event {
            self.1.insert(*instance, *at);
        }
    }
}

impl LoadSamples {
    /// The loads at the multiples of `interval`, up to 2 s.
    fn at_multiples_of(&self, interval: Micros) -> BTreeMap<(InstanceIndex, Micros), Option<InstanceLoad>> {
        let moments = (0..).map(|index| Micros(index * interval.0)).take_while(|&at| at <= Micros(2_000_000));
        let there = |instance, at| self.1.get(&instance).is_none_or(|&gone| at < gone);
        let each = moments.flat_map(|at| self.0.iter().map(move |(&instance, loads)| (instance, at, loads)));
        let each = each.filter(|&(instance, at, _)| there(instance, at));
        each.map(|(instance, at, loads)| ((instance, at), loads.range(..=at).next_back().map(|(_, load)| *load)))
            .collect()
    }

    /// The last sample of each instance, and when it was gone.
    fn last_moments(&self) -> impl Iterator<Item = Micros> {
        let last = self.0.values().filter_map(|loads| loads.keys().next_back());
        last.chain(self.1.values()).copied()
    }
}

fn sampled<I: Instance>(
    setup: &ClusterSetup,
    engine: impl Fn(InstanceConfig) -> I + Copy + Send + Sync + 'static,
    requests: &[Request],
    moments: SampledMoments,
) -> Option<(SimulationLog, LoadSamples)> {
    let mut both = (SimulationLog::default(), LoadSamples::default());
    let cluster = setup.cluster(engine).with_load_samples(moments);
    both.0.counters = cluster.run_sessions(requests.iter().cloned(), None, &mut both).ok()?;
    Some(both)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn both_engines_have_the_same_load_at_every_moment(
        mut setup in prop_oneof![2 => setup(), 1 => replicas::changing()],
        drafts in proptest::collection::vec(draft(), 1..50),
        horizon in prop_oneof![3 => Just(Micros::MAX), 1 => (1_000u64..900_000).prop_map(Micros)],
        interval in prop_oneof![1u64..5_000, Just(1_000), 5_000u64..200_000],
    ) {
        setup.config.horizon = horizon;
        let requests = requests(&drafts, setup.config.block_size);
        let moments = |factor| SampledMoments { interval: Micros(interval * factor), most: None };
        let Some((log, fast)) = sampled(&setup, Fast::new, &requests, moments(1)) else { return Ok(()) };
        let (_, plain) = sampled(&setup, Plain::new, &requests, moments(1)).expect("as fast");
        let grid = Micros(interval);
        prop_assert_eq!(fast.at_multiples_of(grid), plain.at_multiples_of(grid), "fast, plain");
        // Sampling changes nothing.
        let unsampled = simulate(&setup, Fast::new, &requests, Reads::NOTHING).expect("as before");
        prop_assert_eq!(&log, &unsampled);
        // Fewer moments give the same loads there, however they are chosen.
        let (coarse, fewest) = (Micros(interval * 3), SampledMoments { interval: grid, most: Some(5) });
        let (_, every_third) = sampled(&setup, Plain::new, &requests, moments(3)).expect("as before");
        prop_assert_eq!(fast.at_multiples_of(coarse), every_third.at_multiples_of(coarse), "every third");
        let (_, few) = sampled(&setup, Fast::new, &requests, fewest).expect("as before");
        // The interval doubles for a moment before which something may happen, also if nothing does: samples do not tell.
        let mut reached = fewest;
        let happened = requests.iter().map(|request| request.arrival).chain(fast.last_moments());
        happened.for_each(|at| reached.reach(reached.not_before(at.saturating_add(Micros(1)))));
        prop_assert_eq!(fast.at_multiples_of(reached.interval), few.at_multiples_of(reached.interval), "few");
    }
}

#[test]
fn the_interval_doubles_until_the_moments_are_few() {
    let mut moments = SampledMoments { interval: Micros(10), most: Some(4) };
    moments.reach(Micros(39));
    assert_eq!(moments.interval, Micros(10));
    moments.reach(Micros(40));
    assert_eq!(moments.interval, Micros(20));
    moments.reach(Micros(1_000));
    assert_eq!((moments.interval, moments.not_before(Micros(321))), (Micros(320), Micros(640)));
    let mut fixed = SampledMoments { interval: Micros(10), most: None };
    fixed.reach(Micros(u64::MAX - 1));
    assert_eq!((fixed.interval, fixed.not_before(Micros(u64::MAX))), (Micros(10), Micros::MAX));
}
