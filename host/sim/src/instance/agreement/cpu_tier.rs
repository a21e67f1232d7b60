//! The CPU tier: times worked out by hand, and what holds for every load.

use super::*;
use crate::policy::kv_cache::LeastRecent;

const TIER: OffloadConfig = OffloadConfig {
    capacity: 100,
    blocks_per_chunk: 1,
    block_bytes: 1000,
    gpus: 1,
    eviction: ChunkEviction::Lru,
    store_threshold: 0,
    prompt_only: true,
    speed: LinkSpeed { alone: 10.0, together: 10.0, base: Micros(10) },
    secondary: None,
};

/// A prompt of `blocks` blocks that others have, too, from block `first` on, and one output token.
fn shared(id: u32, arrival: u64, first: u32, blocks: u32) -> Request {
    Request {
        content: Content::shared(&[Span { first, len: blocks }]),
        ..Request::new(RequestId(id), Micros(arrival), 16 * blocks, 1)
    }
}

/// The outcomes of both engines by id.
fn outcomes(config: &InstanceConfig, requests: &[Request]) -> (Vec<Outcome>, Counters) {
    let mut log = simulate(Plain::new(config.clone()), requests, Micros::MAX);
    assert_eq!(log, simulate(Fast::new(config.clone()), requests, Micros::MAX));
    log.outcomes.sort_by_key(|outcome| outcome.id);
    (log.outcomes, log.counters)
}

/// Steps of 100 µs, 6 blocks. The third request is as the first, of which the second has left one block on the GPU: it loads three
/// from 2000 on, 10 µs and 3000 bytes at 10 bytes/µs, waits on the idle instance, and computes its last token again.
#[test]
fn a_prompt_is_loaded_and_its_last_token_computed() {
    let config = InstanceConfig { total_kv_blocks: 6, offload: Some(TIER), ..steady() };
    let requests = [shared(0, 0, 0, 4), shared(1, 1000, 50, 5), shared(2, 2000, 0, 4)];
    let (outcomes, counters) = outcomes(&config, &requests);
    assert_eq!(
        outcomes.iter().map(|outcome| outcome.ttft).collect::<Vec<_>>(),
        [100, 100, 410].map(|us| Some(Micros(us)))
    );
    let third = outcomes[2];
    assert_eq!((third.cached_tokens, third.cpu_cached_tokens, third.kv_load_wait), (63, 48, Micros(310)));
    let offload = OffloadCounters { loaded_bytes: 3000, stored_bytes: 9000, loads: 1, ..OffloadCounters::default() };
    assert_eq!(counters.offload, offload);
}

/// Of two equal prompts that come together, the second waits until the first has loaded, and finds the blocks on the GPU.
#[test]
fn what_is_being_loaded_is_not_loaded_again() {
    let config = InstanceConfig { total_kv_blocks: 6, offload: Some(TIER), ..steady() };
    let requests = [shared(0, 0, 0, 4), shared(1, 1000, 50, 6), shared(2, 2000, 0, 4), shared(3, 2000, 0, 4)];
    let (outcomes, counters) = outcomes(&config, &requests);
    // 4 blocks: 10 + 400 µs. The fourth request takes the first three blocks from the GPU, and loads the last one.
    assert_eq!(outcomes[2].ttft, Some(Micros(510)));
    assert_eq!((outcomes[3].cpu_cached_tokens, counters.offload.loads), (16, 2));
}

/// The second request needs the blocks of the first, which are being stored until 510: its step waits.
#[test]
fn blocks_that_are_being_stored_are_waited_for() {
    let config = InstanceConfig { total_kv_blocks: 4, offload: Some(TIER), ..steady() };
    let (outcomes, counters) = outcomes(&config, &[shared(0, 0, 0, 4), shared(1, 200, 50, 4)]);
    assert_eq!(outcomes[1].ttft, Some(Micros(310 + 100)));
    assert_eq!((counters.offload.flushes, counters.offload.flush_time), (1, Micros(310)));
}

/// A prompt that is longer than the tier is not stored at all, and is computed as without it.
#[test]
fn a_tier_smaller_than_a_prompt_stores_nothing_of_it() {
    let tier = OffloadConfig { capacity: 3, ..TIER };
    let config = InstanceConfig { total_kv_blocks: 6, offload: Some(tier), ..steady() };
    let requests = [shared(0, 0, 0, 4), shared(1, 1000, 50, 6), shared(2, 2000, 0, 4)];
    let (outcomes, counters) = outcomes(&config, &requests);
    assert!(outcomes.iter().all(|outcome| outcome.ttft == Some(Micros(100)) && outcome.cpu_cached_tokens == 0));
    assert_eq!((counters.offload.stored_bytes, counters.offload.refused), (0, 14));
}

/// The CPU tier has room for five chunks, so that the third and fourth request displace the first. Every request is looked up
/// below first, for 50 µs. The first prompt comes again at 2000: looked up until 2050, read until 2300 (50 µs and 4000 bytes at 20 bytes/µs), loaded until 2710, and its last token
/// computed until 2810.
#[test]
fn a_chunk_that_the_tier_has_no_more_is_read_from_the_one_below() {
    let below = SecondaryConfig {
        kind: SecondaryKind::Files,
        bandwidth: 20.0,
        latency: Micros(50),
        backpressure: BackpressurePolicy::None,
        shared: false,
    };
    let tier = OffloadConfig { capacity: 5, secondary: Some(below), ..TIER };
    let config = InstanceConfig { total_kv_blocks: 6, offload: Some(tier), ..steady() };
    let others = [shared(1, 600, 40, 1), shared(2, 1000, 50, 4), shared(3, 1600, 90, 1)];
    let mut requests = vec![shared(0, 0, 0, 4)];
    requests.extend(others);
    requests.push(shared(4, 2000, 0, 4));
    let (outcomes, counters) = outcomes(&config, &requests);
    let last = outcomes[4];
    assert_eq!((last.ttft, last.cached_tokens, last.cpu_cached_tokens), (Some(Micros(810)), 63, 64));
    let secondary =
        SecondaryCounters { hit_tokens: 64, read_bytes: 4000, written_bytes: 10_000, ..SecondaryCounters::default() };
    assert_eq!(counters.offload.secondary, secondary);
}

/// Of a prompt that the tier below has and the CPU tier has no room for, as much is read as there is room for, once.
#[test]
fn a_prompt_larger_than_the_cpu_tier_is_not_read_for_ever() {
    let below = SecondaryConfig {
        kind: SecondaryKind::Files,
        bandwidth: 20.0,
        latency: Micros(50),
        backpressure: BackpressurePolicy::None,
        shared: false,
    };
    let tier = OffloadConfig { capacity: 2, secondary: Some(below), ..TIER };
    let options = SchedulerOptions::default();
    let config =
        InstanceConfig { total_kv_blocks: 6, max_num_batched_tokens: 16, options, offload: Some(tier), ..steady() };
    let requests = [shared(0, 0, 0, 5), shared(1, 5000, 50, 5), shared(2, 10_000, 0, 5), shared(3, 20_000, 0, 5)];
    let (outcomes, counters) = outcomes(&config, &requests);
    assert!(outcomes.iter().all(|outcome| outcome.status == Status::Completed));
    assert!(counters.offload.secondary.read_bytes <= 10_000, "{:?}", counters.offload.secondary);
}

/// A client times out while its prompt is loaded: the blocks are free when the load has ended.
#[test]
fn a_timeout_during_a_load_frees_everything() {
    let config = InstanceConfig { total_kv_blocks: 6, offload: Some(TIER), ..steady() };
    let late = Request { deadline: Some(Micros(2100)), ..shared(2, 2000, 0, 4) };
    let requests = [shared(0, 0, 0, 4), shared(1, 1000, 50, 5), late];
    let (outcomes, _) = outcomes(&config, &requests);
    assert_eq!((outcomes[2].status, outcomes[2].kv_load_wait), (Status::TimedOut, Micros(100)));
    let used = |until: u64| {
        let mut instance = Fast::new(config.clone());
        for request in requests.clone() {
            instance.advance(request.arrival, &mut EngineLog::default()).expect("not stuck");
            instance.arrive(request.arrival, request);
        }
        instance.advance(Micros(until), &mut EngineLog::default()).expect("not stuck");
        instance.load().used_kv_blocks
    };
    assert_eq!((used(2300), used(2311)), (4, 0), "the load ends at 2310");
}

/// The policy [`LeastRecent`], which ranks, and the tier's own LRU evict the same. It would rank adapters, too, which have an LRU of their
/// own by the end of their last use.
#[test]
fn ranks_by_the_last_use_are_lru() {
    let run = |config: &InstanceConfig, requests: &[Request]| {
        let log = simulate(Plain::new(config.clone()), requests, Micros::MAX);
        (log.outcomes, log.counters)
    };
    proptest!(ProptestConfig { cases: 300, ..ProptestConfig::default() }, |(config in config_with_tier(), drafts in drafts())| {
        let requests = requests(&drafts, config.block_size);
        let tier = OffloadConfig { eviction: ChunkEviction::Lru, ..config.offload.expect("a tier") };
        let mut own = InstanceConfig { offload: Some(tier), adapters: None, ..config };
        own.policies.kv_cache = KvCacheChoice::BuiltIn;
        let mut ranked = own.clone();
        ranked.policies.kv_cache = KvCacheChoice::Custom(Box::new(LeastRecent));
        prop_assert_eq!(run(&own, &requests), run(&ranked, &requests));
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// When all requests have ended, completed or not, nothing is held or pinned.
    #[test]
    fn nothing_is_left_behind(config in config_with_tier(), drafts in drafts()) {
        let requests = requests(&drafts, config.block_size);
        let (mut plain, mut fast) = (Plain::new(config.clone()), Fast::new(config));
        let [mut log, mut other] = [EngineLog::default(), EngineLog::default()];
        for request in requests {
            let arrival = request.arrival;
            if plain.advance(arrival, &mut log).is_err() || fast.advance(arrival, &mut other).is_err() {
                return Ok(());
            }
            plain.arrive(arrival, request.clone());
            fast.arrive(arrival, request);
        }
        if plain.advance(Micros::MAX, &mut log).is_err() || fast.advance(Micros::MAX, &mut other).is_err() {
            return Ok(());
        }
        prop_assert_eq!((plain.load().used_kv_blocks, fast.load().used_kv_blocks), (0, 0));
        for tier in [plain.idle_tier(), fast.idle_tier()] {
            let (used, evictable, requests) = tier.expect("a tier");
            prop_assert_eq!((used, requests), (evictable, 0), "chunks are pinned or pending, or requests remembered");
        }
    }

    /// With infinite bandwidth and no latency a tier makes no request wait longer for its first token, if they come one at a time.
    #[test]
    fn an_infinitely_fast_tier_raises_no_ttft(config in config_with_tier(), drafts in drafts()) {
        let tier = config.offload.expect("a tier");
        let speed = LinkSpeed { alone: f64::INFINITY, together: f64::INFINITY, base: Micros::ZERO };
        let mut config = InstanceConfig {
            offload: Some(OffloadConfig { speed, secondary: None, ..tier }), // look-ups below take a step
            latency: Arc::new(RandomLatency { base: 50, per_prefill: 3, per_decode: 2, ..RandomLatency::CONSTANT }),
            ..config
        };
        config.policies.kv_cache = KvCacheChoice::BuiltIn;
        // A budget that depends on free blocks may be smaller where a tier keeps some.
        config.policies.batching = BatchingChoice::default();
        let mut requests = requests(&drafts, config.block_size);
        for (index, request) in requests.iter_mut().enumerate() {
            (request.arrival, request.deadline) = (Micros(index as u64 * 10_000_000), None);
        }
        let with = simulate(Plain::new(config.clone()), &requests, Micros::MAX);
        let without = simulate(Plain::new(InstanceConfig { offload: None, ..config }), &requests, Micros::MAX);
        // Without chunks of prompts, the tier can be what makes a prompt fit a step.
        for without in &without.first_tokens {
            let with = with.first_tokens.iter().find(|with| with.id == without.id);
            prop_assert!(with.is_some_and(|with| with.ttft <= without.ttft), "{:?} {:?}", with, without);
        }
    }
}

/// Random loads are a useful test of the tier only if they reach its difficult cases.
#[test]
fn random_loads_reach_the_difficult_cases_of_tiers() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let (mut sum, mut deferred, mut lost, mut after_preemption) = (OffloadCounters::default(), 0, 0, 0);
    for _ in 0..1000 {
        let config = config_with_tier().new_tree(&mut runner).expect("a config").current();
        let requests = requests(&drafts().new_tree(&mut runner).expect("drafts").current(), config.block_size);
        let log = simulate(Fast::new(config), &requests, Micros::MAX);
        let OffloadCounters { skipped, refused, evicted, flushes, loads, .. } = log.counters.offload;
        sum.skipped += skipped;
        sum.refused += refused;
        sum.evicted += evicted;
        sum.flushes += flushes;
        sum.loads += loads;
        let waits = SchedulingResult::Waits(WaitReason::KvTransfer);
        deferred += log.scheduled.iter().filter(|decision| decision.result == waits).count();
        let waited = |outcome: &&Outcome| outcome.kv_load_wait > Micros::ZERO;
        lost += log.outcomes.iter().filter(waited).filter(|outcome| outcome.status == Status::TimedOut).count();
        after_preemption += log.outcomes.iter().filter(waited).filter(|outcome| outcome.preemptions > 0).count();
    }
    for (what, count) in [
        ("chunks offered too rarely", sum.skipped),
        ("chunks without room", sum.refused),
        ("evicted chunks", sum.evicted),
        ("flushes", sum.flushes),
        ("loads", sum.loads),
        ("deferred requests", deferred as u64),
        ("timeouts of requests that loaded", lost as u64),
        ("loads of preempted requests", after_preemption as u64),
    ] {
        assert!(count > 3, "{what}: only {count} in 1000 loads");
    }
}
