//! Storage below the CPU tiers that instances share. The properties of random clusters hold with it, too (`setup`).

use super::replicas::{at, second, steady};
use super::*;

const SHORT: Micros = Micros(100);

/// Two replicas, a request a second to each in turn, all with the same prompt of 4 blocks. A chunk of 1000 bytes is copied in 20 µs,
/// and written in 100 µs and the latency.
fn two_replicas(seconds: u32, shared: bool, latency: Micros) -> (ClusterSetup, Vec<Request>) {
    let below = SecondaryConfig {
        kind: SecondaryKind::Objects,
        bandwidth: 10.0,
        latency,
        backpressure: BackpressurePolicy::None,
        shared,
    };
    let tier = OffloadConfig {
        capacity: 50,
        blocks_per_chunk: 1,
        block_bytes: 1000,
        gpus: 1,
        eviction: ChunkEviction::Lru,
        store_threshold: 0,
        prompt_only: true,
        speed: LinkSpeed { alone: 100.0, together: 100.0, base: Micros(10) },
        secondary: Some(below),
    };
    let (mut setup, requests) = steady(2, seconds, |group| group.instance.offload = Some(tier));
    setup.instances.iter_mut().for_each(|instance| instance.offload = Some(tier));
    (setup, requests)
}

fn of_storage(log: &SimulationLog) -> Vec<(u64, u64, u64)> {
    let counters = log.counters.iter().map(|counters| counters.offload.secondary);
    counters.map(|below| (below.hit_tokens, below.hit_tokens_of_others, below.written_bytes)).collect()
}

/// The first request is served by instance 0, and the second, on instance 1, loads its whole prompt. Later ones are on the GPU.
#[test]
fn a_replica_loads_what_another_has_written() {
    let (setup, requests) = two_replicas(6, true, SHORT);
    let log = setup.run(&requests);
    assert_eq!(of_storage(&log), [(0, 0, 4000), (64, 64, 0)]);
    let second = log.outcomes[&RequestId(1)];
    assert_eq!((second.cpu_cached_tokens, second.cached_tokens), (64, 63));
    let own = two_replicas(6, false, SHORT).0.run(&requests);
    assert_eq!(of_storage(&own), [(0, 0, 4000), (0, 0, 4000)]);
    assert_eq!(own.outcomes[&RequestId(1)].cpu_cached_tokens, 0);
    let plain = simulate(&setup, Plain::new, &requests, Reads::NOTHING).expect("it ends");
    assert_eq!(log, plain);
}

#[test]
fn a_new_replica_finds_what_others_have_written() {
    let (setup, requests) = two_replicas(200, true, SHORT);
    let log = setup.scheduled(&[at(10, 3)]).run(&requests);
    assert_eq!(of_storage(&log), [(0, 0, 4000), (64, 64, 0), (64, 64, 0)]);
}

/// Within the latency of 5 s each instance is simulated by itself. The first prompt is looked up until 5 s and written until 10 s, and the
/// second request, at 7 s, is looked up until 12 s: the write has to be passed on before the time without events is skipped.
#[test]
fn a_write_of_an_instance_that_ran_ahead_is_found() {
    let (setup, mut requests) = two_replicas(2, true, Micros(5_000_000));
    requests[1].arrival = second(7);
    let log = setup.run(&requests);
    assert_eq!(log.outcomes[&RequestId(1)].cpu_cached_tokens, 64);
}

/// Random clusters are a useful test of shared storage only if they use it.
#[test]
fn random_clusters_reach_shared_storage() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let (mut hits, mut readers) = (0, 0);
    for _ in 0..300 {
        let setup = setup().new_tree(&mut runner).expect("a setup").current();
        let drafts = proptest::collection::vec(draft(), 1..50).new_tree(&mut runner).expect("drafts").current();
        let requests = requests(&drafts, setup.config.block_size);
        let Ok(log) = simulate(&setup, Fast::new, &requests, Reads::NOTHING) else { continue };
        hits += of_storage(&log).iter().map(|&(_, of_others, _)| of_others).sum::<u64>();
        readers += log.counters.iter().filter(|counters| counters.offload.secondary.read_bytes > 0).count();
    }
    assert!(hits > 100 && readers > 15, "{hits} tokens, {readers} instances");
}
