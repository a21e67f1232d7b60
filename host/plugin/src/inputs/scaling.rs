//! Groups of replicas at a decision, for scaling.

use std::sync::Arc;

use blis_abi::Row as _;
use blis_sim::units::Micros;
use rand::RngExt as _;

use super::call_inputs::{CallInputs, largest};
use super::point::{MAX_NUM_SEQS, generator};
use crate::rows::{GroupRow, HISTORY, NONE_U64};

/// The groups at `now`, and at the decisions before it, oldest first: as many rows for each decision as there are groups.
fn of_groups(now: Micros, groups: Vec<GroupRow>, history: Vec<GroupRow>) -> CallInputs {
    CallInputs::at(now, vec![Arc::new(groups), Arc::new(history)])
}

/// Inputs number `item`, with `n` groups.
pub(super) fn plausible(n: usize, item: u64) -> CallInputs {
    let (now, groups, history) = state(n, item);
    of_groups(now, groups, history)
}

/// Time, groups and their history number `item`.
fn state(n: usize, item: u64) -> (Micros, Vec<GroupRow>, Vec<GroupRow>) {
    const PERIOD_US: u64 = 15_000_000;
    let mut rng = generator("scaling", item);
    let before = item.min(HISTORY as u64);
    let mut rows: Vec<GroupRow> = Vec::new();
    for tick in item - before..=item {
        let now_us = PERIOD_US * (1 + tick);
        for index in 0..n {
            let ready = rng.random_range(0..8);
            let batch_size = rng.random_range(0..=40 * ready);
            let [loading, pending] = [rng.random_range(0..3), rng.random_range(0..2)];
            rows.push(GroupRow {
                now_us,
                scraped_us: now_us - rng.random_range(0..PERIOD_US),
                next_ready_us: if loading > 0 { now_us + rng.random_range(0..200_000_000) } else { NONE_U64 },
                kv_tokens: 400_000,
                in_flight_tokens: rng.random_range(0..200_000),
                queued_tokens: rng.random_range(0..100_000),
                oldest_wait_us: rng.random_range(0..5_000_000),
                ttft_p90_us: rng.random_range(0..6_000_000),
                tpot_p90_us: rng.random_range(0..200_000),
                input_tokens: rng.random_range(0..1_000_000),
                cached_tokens: 0,
                output_tokens: rng.random_range(0..1_000_000),
                price: 2.5,
                kv_used: f64::from(ready) * rng.random_range(0.0..1.0),
                kv_used_max: rng.random_range(0.0..1.0),
                saturation: if index % 2 == 0 { rng.random_range(0.0..1.5) } else { -1.0 },
                model: 0,
                gpus: 1 << (index % 4),
                min_replicas: 1,
                max_replicas: 16,
                max_num_seqs: MAX_NUM_SEQS,
                max_num_batched_tokens: 2048,
                replicas: ready + loading + pending,
                ready,
                loading,
                pending,
                draining: rng.random_range(0..2),
                queue_depth: rng.random_range(0..=10 * ready),
                queue_depth_max: rng.random_range(0..=10),
                batch_size,
                in_flight: batch_size + rng.random_range(0..10),
                queued: rng.random_range(0..40),
                arrived: rng.random_range(0..600),
                completed: rng.random_range(0..600),
            });
        }
    }
    let groups = rows.split_off(rows.len() - n);
    (Micros(PERIOD_US * (1 + item)), groups, rows)
}

/// Inputs with values at the limits of their ranges, by name.
pub(super) fn extreme(n: usize) -> Vec<(&'static str, CallInputs)> {
    let smallest = GroupRow { saturation: -1.0, ..GroupRow::ZERO };
    let largest = GroupRow { kv_used: 1e9, kv_used_max: 1.0, ..largest() };
    let of = |row, now, before| of_groups(now, vec![row; n], vec![row; n * before]);
    let (now, mut groups, mut history) = state(n, 30);
    if let Some(&first) = groups.first() {
        groups.fill(first);
        history.fill(first);
    }
    vec![
        ("everything 0", of(smallest, Micros::ZERO, 0)),
        ("everything as large as it can be", of(largest, Micros(largest.now_us), HISTORY)),
        ("all groups equal", of_groups(now, groups, history)),
    ]
}
