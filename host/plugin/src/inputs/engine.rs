//! Engine steps.

use blis_sim::latency::Batch;
use rand::RngExt as _;

use super::point::generator;

/// Engine step number `item`, of about `n` requests.
pub(crate) fn step(n: usize, item: u64) -> Batch {
    let mut rng = generator("step", item);
    let mut batch = Batch::default();
    for _ in 0..n {
        if rng.random_bool(0.1) {
            let input = rng.random_range(1..4_000);
            let context = rng.random_range(0..input);
            batch.add_prefill(rng.random_range(1..=input - context), context, input);
        } else {
            batch.add_decode(rng.random_range(1..8_000));
        }
    }
    batch
}

pub(super) fn extreme_steps() -> Vec<(&'static str, Batch)> {
    let one = |make: fn(&mut Batch)| {
        let mut batch = Batch::default();
        make(&mut batch);
        batch
    };
    let full = |_: u32| {
        let mut batch = Batch::default();
        (0..1024).for_each(|_| batch.add_decode(1_000_000));
        (0..64).for_each(|_| batch.add_prefill(8192, 1_000_000, 1_008_192));
        batch
    };
    vec![
        ("an empty step", Batch::default()),
        ("one token of prefill", one(|batch| batch.add_prefill(1, 0, 1))),
        ("one request that decodes", one(|batch| batch.add_decode(1))),
        ("1024 requests of a million tokens", full(0)),
    ]
}
