//! The KV cache, measured through the engine: requests of 512 blocks, one after the other, with a single output token.
//! Items are blocks; `unique` is the cost of everything except the cache.

use blis_config::LatencyKind;
use blis_sim::instance::Fast;
use blis_sim::request::{Content, Request, Span};
use blis_sim::units::Micros;
use divan::Bencher;
use divan::counter::ItemsCount;

use crate::setup::{BLOCK, OutcomeCounter, deployment, instance_of, request};

const BLOCKS: u32 = 512;
const REQUESTS: u32 = 1000;

/// Blocks that no other request can share: counted, not kept.
#[divan::bench]
fn unique(bencher: Bencher) {
    measure(bencher, |_| Content::UNIQUE);
}

/// Every block is found, claimed and released.
#[divan::bench]
fn found(bencher: Bencher) {
    let content = Content::shared(&[Span { first: 0, len: BLOCKS }]);
    measure(bencher, |_| content.clone());
}

/// Every block misses, is allocated (which evicts an older content), hashed and released.
#[divan::bench]
fn new_every_time(bencher: Bencher) {
    measure(bencher, |index| Content::shared(&[Span { first: index * BLOCKS, len: BLOCKS }]));
}

fn measure(bencher: Bencher, content: impl Fn(u32) -> Content) {
    let deployment = deployment(LatencyKind::Blackbox);
    // Ten seconds apart, so that each request has the instance for itself.
    let at = |index: u32| Micros(10_000_000 * u64::from(index));
    let requests: Vec<Request> =
        (0..REQUESTS).map(|index| request(index, at(index), BLOCKS * BLOCK, 1, content(index))).collect();
    bencher
        .counter(ItemsCount::new(BLOCKS * REQUESTS))
        .with_inputs(|| (Fast::new(instance_of(&deployment)), requests.clone()))
        .bench_values(|(instance, requests)| {
            let mut ended = OutcomeCounter::default();
            blis_sim::instance::run_alone(instance, requests, Micros::MAX, &mut ended).expect("it does not get stuck");
            ended.0
        });
}
