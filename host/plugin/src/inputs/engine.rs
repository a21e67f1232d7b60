//! Running batches and engine steps.

use blis_sim::ids::RequestId;
use blis_sim::latency::Batch;
use blis_sim::policy::BatchView;
use blis_sim::request::Tags;
use blis_sim::units::Micros;
use rand::RngExt as _;

use super::point::{BLOCK_SIZE, generator, tags};

/// A running batch of `n` requests, number `item`.
pub(crate) fn batch(n: usize, item: u64) -> BatchView {
    let mut rng = generator("batch", item);
    let rng = &mut rng;
    let now = Micros(100_000_000 + 1_000 * item);
    let mut batch = BatchView { now, last_of_ties: true, ..BatchView::default() };
    for index in 0..n as u32 {
        let input: u32 = rng.random_range(1..4_000);
        let generated = rng.random_range(0..500);
        batch.id.push(RequestId(index + item as u32));
        batch.priority.push(rng.random_range(-5..=5));
        batch.arrival.push(Micros(now.0 - rng.random_range(0..50_000_000)));
        batch.deadline.push(rng.random_bool(0.3).then(|| Micros(now.0 + rng.random_range(0..60_000_000))));
        batch.class_priority.push(rng.random_range(-3..=4));
        batch.tags.push(tags(rng));
        batch.input_tokens.push(input);
        batch.computed_tokens.push(input + generated);
        batch.generated_tokens.push(generated);
        batch.kv_blocks.push((input + generated).div_ceil(BLOCK_SIZE));
        batch.preemptions.push(rng.random_range(0..3));
    }
    batch.requester = rng.random_range(0..n.max(1));
    batch
}

/// Batches with values at the limits of their ranges, by name.
pub(super) fn extreme_batches(n: usize) -> Vec<(&'static str, BatchView)> {
    let mut smallest = batch(n, 7);
    (smallest.now, smallest.requester) = (Micros::ZERO, 0);
    smallest.priority.fill(0);
    smallest.arrival.fill(Micros::ZERO);
    smallest.deadline.fill(None);
    smallest.class_priority.fill(0);
    smallest.tags.fill(Tags::default());
    smallest.id.fill(RequestId(0));
    for column in [
        &mut smallest.input_tokens,
        &mut smallest.computed_tokens,
        &mut smallest.generated_tokens,
        &mut smallest.kv_blocks,
        &mut smallest.preemptions,
    ] {
        column.fill(0);
    }
    let mut largest = smallest.clone();
    largest.now = Micros(i64::MAX.cast_unsigned());
    largest.priority.fill(i64::MAX);
    largest.deadline.fill(Some(largest.now));
    largest.class_priority.fill(i32::MAX);
    largest.requester = n - 1;
    largest.id.fill(RequestId(u32::MAX - 1));
    for column in [
        &mut largest.input_tokens,
        &mut largest.computed_tokens,
        &mut largest.generated_tokens,
        &mut largest.kv_blocks,
        &mut largest.preemptions,
    ] {
        column.fill(u32::MAX - 1);
    }
    vec![("everything 0", smallest), ("everything as large as it can be", largest)]
}

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
