//! Random tiers for tests, small ones with transfers of some µs.

use proptest::prelude::*;

use super::{BlisTiers, ChainConfig, MirrorConfig, StorageTier};
use crate::units::Micros;

pub(crate) fn tiers() -> impl Strategy<Value = BlisTiers> {
    prop_oneof![mirror().prop_map(BlisTiers::Mirror), chain().prop_map(BlisTiers::Chain)]
}

fn mirror() -> impl Strategy<Value = MirrorConfig> {
    (1u64..120, prop_oneof![0.01f64..4.0, Just(100.0)], 0u64..300)
        .prop_map(|(cpu_blocks, bandwidth, base)| MirrorConfig { cpu_blocks, bandwidth, base_latency: Micros(base) })
}

pub(crate) fn chain() -> impl Strategy<Value = ChainConfig> {
    let storage = proptest::collection::vec(storage(), 0..3);
    (1u64..120, 1u64..5000, any::<bool>(), storage, any::<u64>()).prop_map(
        |(cpu_blocks, block_bytes, prompt_only, storage, seed)| ChainConfig {
            cpu_blocks,
            block_bytes,
            prompt_only,
            storage,
            seed,
        },
    )
}

fn storage() -> impl Strategy<Value = StorageTier> {
    let base = prop_oneof![Just(0u64), 1u64..200, 1u64..30_000];
    let ramp = prop_oneof![Just((0u32, 0.0f64)), (2u32..6, 0.1f64..1.0)];
    let jitter = prop_oneof![3 => Just(0.0f64), 1 => 0.0f64..1.5];
    (1u32..4, 1u32..4, 0.5f64..4000.0, 0.5f64..4000.0, base, ramp, jitter).prop_map(
        |(read_threads, write_threads, read_bandwidth, write_bandwidth, base, ramp, jitter)| StorageTier {
            read_threads,
            write_threads,
            read_bandwidth,
            write_bandwidth,
            base_latency: Micros(base),
            saturation_queue_depth: ramp.0,
            single_transfer_fraction: ramp.1,
            latency_jitter_stddev: jitter,
        },
    )
}
