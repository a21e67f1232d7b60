//! Chunks of a KV tier, and what it has for a request.

use std::sync::Arc;

use blis_abi::Row as _;
use blis_sim::units::Micros;
use rand::RngExt as _;

use super::call_inputs::{CallInputs, largest};
use super::point::generator;
use crate::Function;
use crate::rows::{ChunkOfferRow, ChunkRow, NONE_U64, TierHitRow};

/// Inputs of call number `item` of `function`, with `n` chunks.
pub(super) fn plausible(function: Function, n: usize, item: u64) -> CallInputs {
    if function == Function::Load {
        return of_hit(hit(item));
    }
    let (offer, chunks) = chunks(n, item);
    of_chunks(function, offer, chunks)
}

fn of_hit(hit: TierHitRow) -> CallInputs {
    CallInputs::at(Micros(hit.now_us), vec![Arc::new(vec![hit])])
}

fn of_chunks(function: Function, offer: ChunkOfferRow, chunks: Vec<ChunkRow>) -> CallInputs {
    let now = Micros(offer.now_us);
    match function {
        Function::Keep => CallInputs::at(now, vec![Arc::new(chunks)]),
        _ => CallInputs::at(now, vec![Arc::new(vec![offer]), Arc::new(chunks)]),
    }
}

/// Inputs of `function` with values at the limits of their ranges, by name.
pub(super) fn extreme(function: Function, n: usize) -> Vec<(&'static str, CallInputs)> {
    if function == Function::Load {
        let slow = TierHitRow { bandwidth: f64::MIN_POSITIVE, ..hit(1) };
        return vec![("a hit as large as it can be", of_hit(largest())), ("a link without bandwidth", of_hit(slow))];
    }
    let [small, large] = match function {
        Function::Keep => ["everything 0", "everything as large as it can be"],
        _ => ["an empty tier", "a full tier"],
    };
    let offer = ChunkOfferRow { fill: 1.0, tier: 1, ..largest() };
    let chunk = ChunkRow { previous_use_us: NONE_U64, tier: 1, touch: 2, ..largest() };
    vec![
        (small, of_chunks(function, ChunkOfferRow::ZERO, vec![ChunkRow::ZERO; n])),
        (large, of_chunks(function, offer, vec![chunk; n])),
    ]
}

/// Tier and chunks number `item`, with `n` chunks.
fn chunks(n: usize, item: u64) -> (ChunkOfferRow, Vec<ChunkRow>) {
    let mut rng = generator("chunks", item);
    let now_us = 1_000_000_000 + 250_000 * item;
    let offer = ChunkOfferRow {
        now_us,
        queued_bytes: rng.random_range(0..100_000_000),
        fill: f64::from(rng.random_range(0..=1000)) / 1000.0,
        tier: 1,
        capacity: 4096,
    };
    let chunk = |index: usize| {
        let uses = rng.random_range(1..6);
        let created_us = now_us - rng.random_range(0..600_000_000);
        let last_use_us = rng.random_range(created_us..=now_us);
        ChunkRow {
            created_us,
            last_use_us,
            previous_use_us: if uses > 1 { rng.random_range(created_us..=last_use_us) } else { NONE_U64 },
            tier: 1,
            position: 16 * index as u32,
            tokens: 16,
            uses,
            offers: uses + rng.random_range(0..2),
            touch: (item % 3) as u32,
            round: rng.random_range(0..4),
            input_tokens: 16 * n as u32 + rng.random_range(0..16),
            ..ChunkRow::ZERO
        }
    };
    (offer, (0..n).map(chunk).collect())
}

/// Hit number `item`.
fn hit(item: u64) -> TierHitRow {
    let mut rng = generator("tier hit", item);
    let (gpu_tokens, tokens) = (16 * rng.random_range(0..100), 16 * rng.random_range(1..1000));
    TierHitRow {
        now_us: 1_000_000_000 + 250_000 * item,
        bytes: u64::from(tokens) * 131_072,
        queued_bytes: u64::from(16 * rng.random_range(0..2000_u32)) * 131_072,
        bandwidth: 50_000.0,
        request: item as u32,
        gpu_tokens,
        tokens,
        input_tokens: gpu_tokens + tokens + rng.random_range(0..500),
        prefill_tokens: rng.random_range(0..20_000),
        waiting: rng.random_range(1..40),
        running: rng.random_range(0..256),
        round: rng.random_range(0..4),
        ..TierHitRow::ZERO
    }
}
