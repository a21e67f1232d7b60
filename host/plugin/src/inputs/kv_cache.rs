//! Chunks of a KV tier, and what it has for a request.

use blis_abi::Row as _;
use rand::RngExt as _;

use super::{GuestCall, generator};
use crate::rows::{ChunkOfferRow, ChunkRow, NONE_U64, TierHitRow};

/// Chunks that are ranked or offered, and their tier.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunksState {
    pub(crate) offer: ChunkOfferRow,
    /// There is always at least one.
    pub(crate) chunks: Vec<ChunkRow>,
}

/// What a tier has for a request.
#[derive(Clone, Debug, PartialEq)]
pub struct TierHitState {
    pub(crate) hit: TierHitRow,
}

const LATEST: u64 = i64::MAX.cast_unsigned();

/// Calls with values at the limits of their ranges, by name.
pub(super) fn extreme(n: usize) -> Vec<(&'static str, GuestCall)> {
    let smallest = ChunksState { offer: ChunkOfferRow::ZERO, chunks: vec![ChunkRow::ZERO; n] };
    let largest = ChunksState {
        offer: ChunkOfferRow { now_us: LATEST, queued_bytes: LATEST, fill: 1.0, tier: 1, capacity: u32::MAX },
        chunks: vec![
            ChunkRow {
                created_us: LATEST,
                last_use_us: LATEST,
                previous_use_us: NONE_U64,
                tier: 1,
                position: u32::MAX,
                tokens: u32::MAX,
                uses: u32::MAX,
                offers: u32::MAX,
                touch: 2,
                slo_class: 0,
                tenant: 0,
                session: 0,
                prefix_group: 0,
                round: u32::MAX,
                input_tokens: u32::MAX,
                client: 0,
                adapter: 0,
            };
            n
        ],
    };
    let hit = TierHitRow {
        now_us: LATEST,
        bytes: LATEST,
        queued_bytes: LATEST,
        bandwidth: 1e300,
        request: u32::MAX,
        gpu_tokens: u32::MAX,
        tokens: u32::MAX,
        input_tokens: u32::MAX,
        prefill_tokens: u32::MAX,
        waiting: u32::MAX,
        running: u32::MAX,
        slo_class: 0,
        tenant: 0,
        session: 0,
        prefix_group: 0,
        round: u32::MAX,
    };
    let slow = TierHitRow { bandwidth: f64::MIN_POSITIVE, ..TierHitState::plausible(1).hit };
    vec![
        ("everything 0", GuestCall::Keep(smallest.clone())),
        ("everything as large as it can be", GuestCall::Keep(largest.clone())),
        ("an empty tier", GuestCall::Store(smallest)),
        ("a full tier", GuestCall::Store(largest)),
        ("a hit as large as it can be", GuestCall::Load(TierHitState { hit })),
        ("a link without bandwidth", GuestCall::Load(TierHitState { hit: slow })),
    ]
}

impl ChunksState {
    /// State number `item`, with `n` chunks.
    #[must_use]
    pub fn plausible(n: usize, item: u64) -> Self {
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
                slo_class: 0,
                tenant: 0,
                session: 0,
                prefix_group: 0,
                round: rng.random_range(0..4),
                input_tokens: 16 * n as u32 + rng.random_range(0..16),
                client: 0,
                adapter: 0,
            }
        };
        Self { offer, chunks: (0..n).map(chunk).collect() }
    }
}

impl TierHitState {
    /// The state with the number `item`.
    #[must_use]
    pub fn plausible(item: u64) -> Self {
        let mut rng = generator("tier hit", item);
        let (gpu_tokens, tokens) = (16 * rng.random_range(0..100), 16 * rng.random_range(1..1000));
        let hit = TierHitRow {
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
            slo_class: 0,
            tenant: 0,
            session: 0,
            prefix_group: 0,
            round: rng.random_range(0..4),
        };
        Self { hit }
    }
}
