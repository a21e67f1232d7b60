//! The configuration of BLIS's tiers.

use crate::units::Micros;

/// BLIS's tiers below the GPU's KV cache.
#[derive(Clone, Debug, PartialEq)]
pub enum BlisTiers {
    /// A copy of full blocks on the CPU (`--kv-cpu-blocks`).
    Mirror(MirrorConfig),
    /// A CPU tier with storage behind it (`--kv-offload-config`).
    Chain(ChainConfig),
}

impl BlisTiers {
    /// The same tiers in a run with this seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        if let Self::Chain(chain) = &mut self {
            chain.seed = seed;
        }
        self
    }
}

/// The CPU tier of `--kv-cpu-blocks`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MirrorConfig {
    /// Capacity, blocks of the GPU's block size, ≥ 1.
    pub cpu_blocks: u64,
    /// Transfer rate, *tokens* per µs (BLIS says blocks), finite and > 0.
    pub bandwidth: f64,
    /// Further time for each block.
    pub base_latency: Micros,
}

/// The tiers of `--kv-offload-config`.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainConfig {
    /// Capacity of the CPU tier, blocks of the GPU's block size, ≥ 1.
    pub cpu_blocks: u64,
    /// Size of a block on one GPU of the group, bytes, ≥ 1.
    pub block_bytes: u64,
    /// Only blocks of prompts are copied (`offload_prompt_only`).
    pub prompt_only: bool,
    /// The tiers behind the CPU. Blocks are copied to all of them, and read from the first that has them.
    pub storage: Vec<StorageTier>,
    /// Seed of the run, for the jitter of transfer times.
    pub seed: u64,
}

/// A storage tier, of unlimited capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StorageTier {
    /// Threads that read, and write if there is nothing to read.
    pub read_threads: u32,
    /// Threads that write, and read if there is nothing to write. There is at least one thread.
    pub write_threads: u32,
    /// Rate of reads with a full queue, bytes per µs, finite and > 0.
    pub read_bandwidth: f64,
    /// Rate of writes with a full queue, bytes per µs, finite and > 0.
    pub write_bandwidth: f64,
    /// Further time for each transfer.
    pub base_latency: Micros,
    /// Transfers of one direction at a time that reach the full bandwidth; below 2 the bandwidth is constant.
    pub saturation_queue_depth: u32,
    /// Share of the bandwidth that a single transfer reaches; from 1 on, and at 0, the bandwidth is constant.
    pub single_transfer_fraction: f64,
    /// Standard deviation of the transfer time relative to its mean, ≥ 0.
    pub latency_jitter_stddev: f64,
}
