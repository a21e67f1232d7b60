//! The KV cache, seen through the engine: requests of 512 blocks, one after the other, that ask
//! for a single token. Items are blocks; `unique` is what everything but the cache costs.

use blis_config::LatencyKind;
use blis_sim::instance::Fast;
use blis_sim::request::{Content, Request, Span};
use blis_sim::units::Micros;
use divan::Bencher;
use divan::counter::ItemsCount;

use crate::setup::{BLOCK, Count, deployment, instance_of, request};

const BLOCKS: u32 = 512;
const REQUESTS: u32 = 1000;

/// Blocks of no interest to others: counted, not kept.
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

/// Every block is looked for in vain, taken from an older content, remembered and released.
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
            let mut ended = Count::default();
            blis_sim::instance::run_alone(instance, requests, Micros::MAX, &mut ended).expect("it does not get stuck");
            ended.0
        });
}
