//! Properties of an instance with BLIS's tiers. Only [`Plain`] has them.

use super::*;
use crate::kv::tiers::{BlisTiers, samples};
use crate::outcome::PrefixCacheCounters;

/// A configuration that BLIS has: with its semantics, and without what it does not know.
fn blis_config() -> impl Strategy<Value = InstanceConfig> {
    config().prop_map(|config| InstanceConfig {
        enable_prefix_caching: true,
        enable_chunked_prefill: true,
        async_scheduling: false,
        reserve_full_prompt: false,
        options: SchedulerOptions::default(),
        semantics: Semantics::BLIS,
        // BLIS has no batching policy.
        policies: InstancePolicies { batching: BatchingChoice::default(), ..config.policies },
        ..config
    })
}

fn with(config: &InstanceConfig, tiers: BlisTiers) -> Plain {
    Plain::new(InstanceConfig { blis_tiers: Some(Arc::new(tiers)), ..config.clone() })
}

/// As [`EngineLog`], with single steps of interest: none is skipped.
struct EveryStep(EngineLog);

impl Observer for EveryStep {
    fn interests(&self) -> Interests {
        self.0.interests() | Interests::STEPS
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        if !matches!(event, SimEvent::Step { .. }) {
            self.0.record(event);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn waiting_for_transfers_is_as_executing_every_step(
        config in blis_config(),
        drafts in drafts(),
        tiers in samples::tiers(),
        horizon in prop_oneof![3 => Just(Micros::MAX), 1 => (1000u64..200_000).prop_map(Micros)],
    ) {
        let requests = requests(&drafts, config.block_size);
        let skipping = simulate(with(&config, tiers.clone()), &requests, horizon);
        let mut every = EveryStep(EngineLog::default());
        let counters = run_alone(with(&config, tiers), requests.iter().cloned(), horizon, &mut every);
        match counters {
            Ok(counters) => {
                every.0.counters = counters;
                prop_assert_eq!(&skipping, &every.0);
                let arrived = requests.iter().filter(|request| request.arrival <= horizon).count();
                prop_assert_eq!(skipping.outcomes.len(), arrived, "every request ends exactly once");
            }
            Err(stuck) => prop_assert_eq!(skipping.stuck, Some(stuck.to_string())),
        }
    }

    #[test]
    fn tiers_change_nothing_while_nothing_leaves_the_gpu(
        config in blis_config(),
        drafts in drafts(),
        tiers in samples::tiers(),
    ) {
        // Room for every block of every request, twice for those that start again, and for blocks that are found twice.
        let config = InstanceConfig { total_kv_blocks: 100_000, ..config };
        let requests = requests(&drafts, config.block_size);
        let without = simulate(Fast::new(config.clone()), &requests, Micros::MAX);
        let with_tiers = simulate(with(&config, tiers), &requests, Micros::MAX);
        let PrefixCacheCounters { queries, hits, .. } = without.counters.prefix_cache;
        prop_assume!(queries - hits < 100_000);
        let counters = Counters { thrashing: None, ..with_tiers.counters };
        prop_assert_eq!(without, EngineLog { counters, ..with_tiers });
    }

    #[test]
    fn a_clone_with_tiers_continues_as_the_original_does(
        config in blis_config(),
        drafts in drafts(),
        tiers in samples::tiers(),
    ) {
        let requests = requests(&drafts, config.block_size);
        let original = simulate(with(&config, tiers.clone()), &requests, Micros::MAX);
        if original.stuck.is_none() {
            let cloned = simulate_with_clone(with(&config, tiers), &requests, Micros::MAX);
            prop_assert_eq!(original, cloned);
        }
    }
}

/// Random tiers are a useful test only if they reach the difficult cases.
#[test]
fn random_tiers_reach_the_difficult_cases() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let (mut waits, mut refused, mut thrashing, mut reloads, mut timed_out) = (0, 0, 0, 0, 0);
    for _ in 0..600 {
        let config = blis_config().new_tree(&mut runner).expect("a config").current();
        let tiers = samples::tiers().new_tree(&mut runner).expect("tiers").current();
        let requests = requests(&drafts().new_tree(&mut runner).expect("drafts").current(), config.block_size);
        let log = simulate(with(&config, tiers.clone()), &requests, Micros::MAX);
        let without = simulate(Plain::new(config), &requests, Micros::MAX);
        let transfers =
            log.scheduled.iter().filter(|one| one.result == SchedulingResult::Waits(WaitReason::KvTransfer));
        waits += transfers.count();
        timed_out += log.outcomes.iter().filter(|outcome| outcome.status == Status::TimedOut).count();
        let events = log.counters.thrashing.map_or(0, |thrashing| thrashing.events);
        match tiers {
            BlisTiers::Mirror(_) => thrashing += events,
            BlisTiers::Chain(_) => refused += events,
        }
        reloads += u64::from(log.counters.prefix_cache.hits > without.counters.prefix_cache.hits);
    }
    for (what, count) in [
        ("requests that wait for storage at the head of the queue", waits as u64),
        ("reads for which the CPU has no room", refused),
        ("evictions from the CPU", thrashing),
        ("loads with more hits than without tiers", reloads),
        ("timeouts", timed_out as u64),
    ] {
        assert!(count > 10, "{what}: only {count} in 600 loads");
    }
}
