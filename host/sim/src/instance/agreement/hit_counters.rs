//! What counts as a prefix-cache hit, by hand.

use super::*;
use crate::outcome::PrefixCacheCounters;

/// The counters of both engines, which must be equal.
fn counters_of(config: &InstanceConfig, requests: &[Request]) -> Counters {
    let plain = simulate(Plain::new(config.clone()), requests, Micros::MAX).counters;
    assert_eq!(plain, simulate(Fast::new(config.clone()), requests, Micros::MAX).counters);
    plain
}

/// Requests of 1024 tokens with the same prompt, one after the other.
fn equal_prompts(number: u32, outputs: u32) -> Vec<Request> {
    let request = |id: u32| Request {
        content: Content::shared(&[Span { first: 0, len: 64 }]),
        ..Request::new(RequestId(id), Micros(u64::from(id) * 1_000_000), 1024, outputs)
    };
    (0..number).map(request).collect()
}

/// Of 1023 tokens that may come from the cache 63 blocks are whole: 1008 of 2048 tokens, whatever is generated.
#[test]
fn two_equal_prompts_hit_all_but_the_last_block() {
    for async_scheduling in [false, true] {
        let config = InstanceConfig { async_scheduling, ..steady() };
        let found = counters_of(&config, &equal_prompts(2, 1600)).prefix_cache;
        assert_eq!(found, PrefixCacheCounters { queries: 2048, hits: 1008, ..PrefixCacheCounters::default() });
        assert_eq!(found.hit_rate().map(|rate| (1000.0 * rate).round()), Some(492.0));
    }
}

/// BLIS counts blocks: 63 that are found, of 2 · 164 for prompts and outputs.
#[test]
fn blis_counts_the_blocks_of_outputs() {
    let config =
        InstanceConfig { semantics: Semantics { hit_rate_of_blocks: true, ..Semantics::VLLM_0_33 }, ..steady() };
    let found = counters_of(&config, &equal_prompts(2, 1600)).prefix_cache;
    assert_eq!(found, PrefixCacheCounters::of_blocks(63, 2 * 164 - 63));
}

#[test]
fn nothing_is_looked_up_without_prefix_caching() {
    let config = InstanceConfig { enable_prefix_caching: false, ..steady() };
    assert_eq!(counters_of(&config, &equal_prompts(2, 16)).prefix_cache, PrefixCacheCounters::default());
}

/// A request that waits for KV blocks is looked up at every step, and counted once: when it gets them.
#[test]
fn a_request_that_waits_is_counted_once() {
    let config = InstanceConfig { total_kv_blocks: 68, ..steady() };
    let mut requests = equal_prompts(2, 60);
    requests[1].arrival = Micros(250); // the first one needs all blocks but its own
    requests[1].content = Content::UNIQUE;
    let counters = counters_of(&config, &requests);
    assert_eq!((counters.prefix_cache.queries, counters.preemptions), (2048, 0));
}

/// Ten prompts that have nothing in common, and half the KV blocks that they need with their outputs. What they find of
/// themselves after a preemption is counted apart, and they compute the rest again.
#[test]
fn unique_prompts_hit_nothing_under_preemption() {
    let requests: Vec<Request> = (0..10).map(|id| Request::new(RequestId(id), Micros(0), 64, 64)).collect();
    let config = InstanceConfig { total_kv_blocks: 41, ..steady() };
    let counters = counters_of(&config, &requests);
    assert!(counters.preemptions > 0 && counters.recomputed_tokens > 0, "{counters:?}");
    let found = counters.prefix_cache;
    assert_eq!((found.queries, found.hits, found.hit_rate()), (640, 0, Some(0.0)));
    assert!(found.preempted_queries > 64 * counters.preemptions && found.preempted_hits > 0, "{found:?}");
}

/// Two requests of 32 tokens in four blocks of 16. The first output tokens of both are generated at 100 µs, and their next tokens need
/// two blocks: there is none for the second one, which leaves with 32 computed tokens, and comes back when the first has ended.
#[test]
fn tokens_computed_again_by_hand() {
    let requests: Vec<Request> = (0..2).map(|id| Request::new(RequestId(id), Micros(0), 32, 4)).collect();
    for enable_prefix_caching in [false, true] {
        let config = InstanceConfig { total_kv_blocks: 5, enable_prefix_caching, ..steady() };
        let counters = counters_of(&config, &requests);
        // With prefix caching, both blocks of its prompt are still there, and one token of 33 is new.
        let expected = if enable_prefix_caching { 0 } else { 32 };
        assert_eq!((counters.preemptions, counters.recomputed_tokens), (1, expected), "{enable_prefix_caching}");
    }
}
