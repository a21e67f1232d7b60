//! CPU tiers of which the replicas of a group fetch from one another. The properties of random clusters hold with them, too (`setup`).

use super::replicas::{at, second, steady};
use super::*;

const SHORT: Micros = Micros(100);

/// Two replicas, a request a second to each in turn, all with the same prompt of 4 blocks, in tiers of `capacity` chunks. A chunk of
/// 1000 bytes is copied in 20 µs, and fetched in twice the latency and 100 µs.
fn two_replicas(seconds: u32, capacity: u32, latency: Micros) -> (ClusterSetup, Vec<Request>) {
    let below = SecondaryConfig {
        kind: SecondaryKind::Peers,
        bandwidth: 10.0,
        latency,
        backpressure: BackpressurePolicy::None,
        shared: false,
    };
    let tier = OffloadConfig {
        capacity,
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

/// Of each instance the tokens that it loaded after a fetch, and the bytes that it fetched and sent.
fn of_peers(log: &SimulationLog) -> Vec<(u64, u64, u64)> {
    let counters = log.counters.iter().map(|counters| counters.offload.secondary);
    counters.map(|below| (below.hit_tokens_of_others, below.read_bytes, below.written_bytes)).collect()
}

/// The first request is served by instance 0, and the second, on instance 1, fetches its whole prompt. Later ones are on the GPU.
#[test]
fn a_replica_fetches_what_another_has() {
    let (setup, requests) = two_replicas(6, 50, SHORT);
    let log = setup.run(&requests);
    assert_eq!(of_peers(&log), [(0, 0, 4000), (64, 4000, 0)]);
    let second = log.outcomes[&RequestId(1)];
    assert_eq!((second.cpu_cached_tokens, second.cached_tokens), (64, 63));
    // Two messages, 4000 bytes at 10 bytes/µs, and the load of 40 µs and its latency of 10 µs.
    assert!(second.kv_load_wait >= Micros(50), "{second:?}");
    let plain = simulate(&setup, Plain::new, &requests, Reads::NOTHING).expect("it ends");
    assert_eq!(log, plain);
}

#[test]
fn a_new_replica_fetches_what_others_have() {
    let (setup, requests) = two_replicas(200, 50, SHORT);
    let log = setup.scheduled(&[at(10, 3)]).run(&requests);
    assert_eq!(of_peers(&log), [(0, 0, 8000), (64, 4000, 0), (64, 4000, 0)]);
}

/// The service has one replica from 60 s on: the others fetch nothing from what is gone, and no request is lost.
#[test]
fn a_replica_that_is_gone_sends_nothing() {
    let (setup, requests) = two_replicas(200, 50, Micros(1_500_000));
    let setup = setup.scheduled(&[at(60, 1), at(120, 2)]);
    let log = setup.run(&requests);
    assert_eq!(log.outcomes.len(), requests.len());
    assert!(of_peers(&log).iter().all(|&(_, fetched, sent)| fetched <= 8000 && sent <= 8000), "{:?}", of_peers(&log));
    let plain = simulate(&setup, Plain::new, &requests, Reads::NOTHING).expect("it ends");
    assert_eq!(log, plain);
}

/// Requests with the prompts of these families at these times, ms, to the two replicas in turn.
fn of_families(requests: &[Request], families: &[(u64, u32)]) -> Vec<Request> {
    let with = |(request, &(at_ms, family)): (&Request, &(u64, u32))| Request {
        arrival: Micros(at_ms * 1_000),
        content: Content::shared(&[Span { first: family * 600, len: 4 }]),
        ..request.clone()
    };
    requests.iter().zip(families).map(with).collect()
}

/// With tiers of four chunks and messages of a second: instance 0 has prompt 1, and from 2 s on prompt 3 instead. Instance 1 asks for prompt 1
/// at 2.5 s, when it does not know that yet, and is refused at 3.5 s.
#[test]
fn a_chunk_that_has_left_is_refused_and_computed() {
    let (setup, requests) = two_replicas(4, 4, second(1));
    let requests = of_families(&requests, &[(0, 1), (500, 2), (2_000, 3), (2_500, 1)]);
    let log = setup.run(&requests);
    assert_eq!(of_peers(&log), [(0, 0, 0), (0, 4000, 0)]);
    let last = log.outcomes[&RequestId(3)];
    assert_eq!((last.cpu_cached_tokens, last.status), (0, Status::Completed));
    assert!(last.ttft.is_some_and(|ttft| ttft >= second(2)), "it waited for the fetch in vain: {last:?}");
    let plain = simulate(&setup, Plain::new, &requests, Reads::NOTHING).expect("it ends");
    assert_eq!(log, plain);
}

/// The same, but instance 1 asks at 1.9 s: its fetch reaches instance 0 at 2.9 s, when prompt 1 is still there, and is sent until 3.9 s. So
/// prompt 3, which instance 0 computes at 3 s, finds no room there.
#[test]
fn chunks_that_are_being_sent_are_not_evicted() {
    let (setup, requests) = two_replicas(4, 4, second(1));
    let requests = of_families(&requests, &[(0, 1), (1_900, 1), (3_000, 3)]);
    let log = setup.run(&requests);
    assert_eq!(of_peers(&log), [(0, 0, 4000), (64, 4000, 0)]);
    let refused: Vec<bool> = log.counters.iter().map(|counters| counters.offload.refused > 0).collect();
    assert_eq!(refused, [true, false]);
    let plain = simulate(&setup, Plain::new, &requests, Reads::NOTHING).expect("it ends");
    assert_eq!(log, plain);
}

/// Random clusters are a useful test of peers only if they fetch.
#[test]
fn random_clusters_fetch_from_one_another() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let (mut hits, mut senders, mut fetched, mut sent) = (0, 0, 0, 0);
    for _ in 0..600 {
        let setup = setup().new_tree(&mut runner).expect("a setup").current();
        let drafts = proptest::collection::vec(draft(), 1..50).new_tree(&mut runner).expect("drafts").current();
        let is_peers = |instance: &InstanceConfig| {
            instance.offload.and_then(|tier| tier.secondary).is_some_and(|below| below.kind == SecondaryKind::Peers)
        };
        if !setup.instances.iter().any(is_peers) {
            continue;
        }
        let requests = requests(&drafts, setup.config.block_size);
        let Ok(log) = simulate(&setup, Fast::new, &requests, Reads::NOTHING) else { continue };
        for (of_others, read, written) in of_peers(&log) {
            (hits, fetched, sent) = (hits + of_others, fetched + read, sent + written);
            senders += usize::from(written > 0);
        }
    }
    assert!(
        hits > 100 && senders > 5 && sent <= fetched,
        "{hits} tokens, {senders} senders, {sent} of {fetched} bytes"
    );
}
