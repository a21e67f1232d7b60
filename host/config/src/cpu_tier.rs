//! The CPU tier of the KV cache, from options that are named after vLLM's.

use blis_sim::memory;
use blis_sim::model::{ModelConfig, Parallelism};
use blis_sim::offload::{BackpressurePolicy, ChunkEviction, LinkSpeed, OffloadConfig, SecondaryConfig, SecondaryKind};
use blis_sim::units::Micros;

use super::error::ConfigError;

/// vLLM rounds the size of a chunk up to whole pages of memory.
const PAGE_BYTES: u64 = 4096;
const GIB: f64 = (1_u64 << 30) as f64;
/// Bytes per µs in GB/s.
const GB_PER_SECOND: f64 = 1000.0;

/// The least bandwidth, GB/s: 10 kB/s. With far less, transfers end beyond the times that whole microseconds in 64 bits can tell apart.
const LEAST_BANDWIDTH: f64 = 1e-5;

/// Refuses a bandwidth of nearly nothing, GB/s, given by `flag`.
fn check_bandwidth(flag: &str, bandwidth: f64) -> Result<(), ConfigError> {
    if bandwidth >= LEAST_BANDWIDTH {
        return Ok(());
    }
    Err(ConfigError::Conflict {
        message: format!("a bandwidth of {bandwidth} GB/s (`{flag}`) is less than 10 kB/s"),
        hint: format!("give at least {LEAST_BANDWIDTH} GB/s"),
    })
}

/// The options of a CPU tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OffloadArgs {
    /// `--kv-offloading-size`, GiB, of all GPUs of an instance together; > 0.
    pub size_gib: f64,
    /// `--kv-offloading-eviction-policy`: which chunk makes room for another.
    pub eviction: ChunkEviction,
    /// `--kv-offloading-blocks-per-chunk`: KV blocks per chunk, ≥ 1.
    pub blocks_per_chunk: u32,
    /// `--kv-offloading-store-threshold`: the number of the offer at which a chunk is stored; 0 and 1 for the first.
    pub store_threshold: u32,
    /// Whether generated tokens are not stored: without `--kv-offloading-all-tokens`.
    pub prompt_only: bool,
    /// `--kv-offloading-bandwidth`: of one direction between a GPU and the host, while the other is idle; GB/s, > 0.
    pub bandwidth: f64,
    /// `--kv-offloading-bandwidth-both`: of both directions together, GB/s; by default in proportion to `bandwidth`.
    pub bandwidth_both: Option<f64>,
    /// `--kv-offloading-latency`: time before the first byte of a transfer.
    pub latency: Micros,
    /// The tier below it, if there is one.
    pub secondary: Option<SecondaryArgs>,
}

/// The options of a secondary tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SecondaryArgs {
    /// `--kv-offloading-secondary`: what it is made of.
    pub kind: SecondaryKind,
    /// `--kv-offloading-secondary-bandwidth`: of each direction, GB/s, > 0; by default that of the kind.
    pub bandwidth: Option<f64>,
    /// `--kv-offloading-secondary-latency`: of an access or a look-up; by default that of the kind.
    pub latency: Option<Micros>,
    /// `--kv-offloading-backpressure`: what happens to copies while it is slow.
    pub backpressure: BackpressurePolicy,
    /// `--kv-offloading-secondary-shared`: whether the instances of a group share it.
    pub shared: bool,
}

impl SecondaryArgs {
    /// Bandwidth without the option, GB/s: an NVMe disk, and a file system over the network as vLLM's authors saw them (0.33,
    /// comments of `kv_offload/tiering/backpressure.py`); of peers that of a network card of 400 Gb/s.
    #[must_use]
    pub fn usual_bandwidth(self) -> f64 {
        match self.kind {
            SecondaryKind::Files if !self.shared => 5.0,
            SecondaryKind::Files | SecondaryKind::Objects => 1.5,
            SecondaryKind::Peers => 50.0,
        }
    }

    /// Latency without the option: guesses, since no source has them. Files that instances share are on another machine.
    #[must_use]
    pub fn usual_latency(self) -> Micros {
        match self.kind {
            SecondaryKind::Files if !self.shared => Micros(100),
            SecondaryKind::Files => Micros(1_000),
            SecondaryKind::Objects => Micros(5_000),
            SecondaryKind::Peers => Micros(500),
        }
    }

    /// Refuses what the CPU tiers of other instances cannot have.
    fn check_peers(self) -> Result<(), ConfigError> {
        let refused =
            |message: &str, hint: &str| Err(ConfigError::Conflict { message: message.into(), hint: hint.into() });
        if self.shared {
            return refused(
                "`--kv-offloading-secondary p2p` has nothing to share (`--kv-offloading-secondary-shared`)",
                "replicas fetch from the CPU tiers of one another: leave `--kv-offloading-secondary-shared` out",
            );
        }
        if self.backpressure != BackpressurePolicy::None {
            return refused(
                "`--kv-offloading-secondary p2p` copies nothing that back-pressure could drop (`--kv-offloading-backpressure`)",
                "leave `--kv-offloading-backpressure` out",
            );
        }
        if self.latency == Some(Micros::ZERO) {
            return refused(
                "messages between replicas have a latency of 0 (`--kv-offloading-secondary-latency`)",
                "they cross a network: give at least 1 µs",
            );
        }
        Ok(())
    }

    /// The tier that it describes.
    ///
    /// # Errors
    /// If peers have what only storage can have, instances share it and it takes no time, or the bandwidth is next to nothing.
    fn tier(self) -> Result<SecondaryConfig, ConfigError> {
        let Self { kind, bandwidth, latency, backpressure, shared } = self;
        if kind == SecondaryKind::Peers {
            self.check_peers()?;
        }
        if shared && latency == Some(Micros::ZERO) {
            return Err(ConfigError::Conflict {
                message: "storage that instances share has a latency of 0 (`--kv-offloading-secondary-latency`)".into(),
                hint: "it is reached over a network: give at least 1 µs".into(),
            });
        }
        let bandwidth = bandwidth.unwrap_or_else(|| self.usual_bandwidth());
        check_bandwidth("--kv-offloading-secondary-bandwidth", bandwidth)?;
        Ok(SecondaryConfig {
            kind,
            bandwidth: bandwidth * GB_PER_SECOND,
            latency: latency.unwrap_or_else(|| self.usual_latency()),
            backpressure,
            shared,
        })
    }
}

impl Default for OffloadArgs {
    /// The defaults of all options, of a tier without a size.
    fn default() -> Self {
        Self {
            size_gib: 0.0,
            eviction: ChunkEviction::Lru,
            blocks_per_chunk: 1,
            store_threshold: 0,
            prompt_only: true,
            bandwidth: Self::BANDWIDTH,
            bandwidth_both: None,
            latency: Self::LATENCY,
            secondary: None,
        }
    }
}

impl OffloadArgs {
    /// Bandwidth of one direction, GB/s: vLLM on an H100 with PCIe 5 (blog of 8 January 2026).
    pub const BANDWIDTH: f64 = 50.0;
    /// Bandwidth of both directions together, GB/s (the same source).
    pub const BANDWIDTH_BOTH: f64 = 83.4;
    /// Time before the first byte: a guess, since no source has it; the launch of a copy takes some 10 µs.
    pub const LATENCY: Micros = Micros(30);

    /// The tier of an instance of `gpus` GPUs, each of which holds `block_bytes` bytes of every KV block, or the same ones if they are
    /// `copies`.
    ///
    /// # Errors
    /// If not even one chunk fits, the bandwidths contradict each other, or the tier below is impossible.
    fn tier(&self, block_bytes: u64, gpus: u32, copies: u32) -> Result<OffloadConfig, ConfigError> {
        let chunk =
            block_bytes.saturating_mul(u64::from(self.blocks_per_chunk)).saturating_mul(u64::from(gpus / copies));
        let chunk = chunk.max(1).next_multiple_of(PAGE_BYTES);
        let capacity = (self.size_gib * GIB / chunk as f64) as u64;
        if capacity == 0 {
            return Err(ConfigError::Conflict {
                message: format!("a CPU tier of {} GiB is smaller than one chunk of KV blocks", self.size_gib),
                hint: format!(
                    "a chunk has {:.4} GiB: raise `--kv-offloading-size`, or set it to 0 for no CPU tier",
                    chunk as f64 / GIB
                ),
            });
        }
        check_bandwidth("--kv-offloading-bandwidth", self.bandwidth)?;
        let both = self.bandwidth_both.unwrap_or(self.bandwidth / Self::BANDWIDTH * Self::BANDWIDTH_BOTH);
        if !(self.bandwidth..=2.0 * self.bandwidth).contains(&both) {
            return Err(ConfigError::Conflict {
                message: format!(
                    "both directions have {both} GB/s together (`--kv-offloading-bandwidth-both`), and one has {} GB/s alone",
                    self.bandwidth
                ),
                hint: "together they have at least as much as one alone, and at most twice as much".into(),
            });
        }
        Ok(OffloadConfig {
            capacity: u32::try_from(capacity).unwrap_or(u32::MAX),
            blocks_per_chunk: self.blocks_per_chunk,
            block_bytes,
            gpus,
            eviction: self.eviction,
            store_threshold: self.store_threshold,
            prompt_only: self.prompt_only,
            speed: LinkSpeed {
                alone: self.bandwidth * GB_PER_SECOND,
                together: both / 2.0 * GB_PER_SECOND,
                base: self.latency,
            },
            secondary: self.secondary.map(SecondaryArgs::tier).transpose()?,
        })
    }

    /// The tier of an instance of `model` with that parallelism and `pipeline` stages, and a note about its size.
    pub(super) fn resolve(
        &self,
        model: &ModelConfig,
        Parallelism { tensor, data }: Parallelism,
        pipeline: u32,
        block_size: u32,
    ) -> Result<(OffloadConfig, String), ConfigError> {
        let token_bytes = memory::kv_bytes_per_token(model, tensor);
        // Latent attention: every tensor-parallel GPU has the same bytes, and vLLM stores them once.
        let copies = if model.mla.is_some() { tensor } else { 1 };
        let block_bytes = (token_bytes * f64::from(block_size) / f64::from(pipeline)).ceil() as u64;
        let gpus = tensor.saturating_mul(pipeline).saturating_mul(data);
        // Data-parallel servers have a tier each.
        let of_one = self.tier(block_bytes, gpus / data, copies)?;
        let tier = OffloadConfig { gpus, capacity: of_one.capacity.saturating_mul(data), ..of_one };
        let blocks = u64::from(tier.capacity) * u64::from(tier.blocks_per_chunk);
        let note = format!(
            "CPU tier of {} GiB: {blocks} KV blocks, {} tokens; of longer prompts only a part is stored",
            self.size_gib * f64::from(data),
            blocks * u64::from(block_size)
        );
        Ok((tier, note))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeploymentArgs, resolve};

    /// Options of a tier of 8 GiB.
    fn eight() -> OffloadArgs {
        OffloadArgs { size_gib: 8.0, ..OffloadArgs::default() }
    }

    fn tier(args: OffloadArgs, tensor: u32) -> Result<OffloadConfig, ConfigError> {
        let llama = DeploymentArgs::new("llama-3.1-8b-instruct");
        let args = DeploymentArgs { tensor_parallel_size: Some(tensor), offload: Some(args), ..llama };
        resolve(&args).map(|deployment| deployment.offload.expect("a tier"))
    }

    /// 32 layers with 8 KV heads of 128 in 16 bits: 128 KiB per token, 2 MiB per block.
    #[test]
    fn the_size_is_that_of_all_gpus() {
        for tensor in [1, 2, 4] {
            let tier = tier(eight(), tensor).expect("valid");
            assert_eq!((tier.capacity, tier.block_bytes), (4096, (2 << 20) / u64::from(tensor)));
        }
        let chunks = OffloadArgs { blocks_per_chunk: 4, ..eight() };
        assert_eq!(tier(chunks, 1).expect("valid").capacity, 1024);
    }

    #[test]
    fn both_directions_share_what_they_have_together() {
        let LinkSpeed { alone, together, base } = tier(eight(), 1).expect("valid").speed;
        assert_eq!((alone, together, base), (50_000.0, 41_700.0, Micros(30)));
        let slower = OffloadArgs { bandwidth: 5.0, ..eight() };
        assert!((tier(slower, 1).expect("valid").speed.together - 4170.0).abs() < 1e-9);
    }

    #[test]
    fn impossible_tiers_are_refused() {
        let refused = |args| tier(args, 1).expect_err("refused").to_string();
        insta::assert_snapshot!(refused(OffloadArgs { size_gib: 0.001, ..eight() }), @r"
        a CPU tier of 0.001 GiB is smaller than one chunk of KV blocks
        hint: a chunk has 0.0020 GiB: raise `--kv-offloading-size`, or set it to 0 for no CPU tier
        ");
        let below = SecondaryArgs {
            kind: SecondaryKind::Objects,
            bandwidth: None,
            latency: Some(Micros::ZERO),
            backpressure: BackpressurePolicy::None,
            shared: true,
        };
        // The simulation never ended.
        insta::assert_snapshot!(refused(OffloadArgs { bandwidth: 1e-30, ..eight() }), @r"
        a bandwidth of 0.000000000000000000000000000001 GB/s (`--kv-offloading-bandwidth`) is less than 10 kB/s
        hint: give at least 0.00001 GB/s
        ");
        let slow = SecondaryArgs { bandwidth: Some(1e-6), latency: None, ..below };
        insta::assert_snapshot!(refused(OffloadArgs { secondary: Some(slow), ..eight() }), @r"
        a bandwidth of 0.000001 GB/s (`--kv-offloading-secondary-bandwidth`) is less than 10 kB/s
        hint: give at least 0.00001 GB/s
        ");
        insta::assert_snapshot!(refused(OffloadArgs { secondary: Some(below), ..eight() }), @r"
        storage that instances share has a latency of 0 (`--kv-offloading-secondary-latency`)
        hint: it is reached over a network: give at least 1 µs
        ");
        let peers = SecondaryArgs { kind: SecondaryKind::Peers, ..below };
        let refused_peers = |peers| refused(OffloadArgs { secondary: Some(peers), ..eight() });
        insta::assert_snapshot!(refused_peers(peers), @r"
        `--kv-offloading-secondary p2p` has nothing to share (`--kv-offloading-secondary-shared`)
        hint: replicas fetch from the CPU tiers of one another: leave `--kv-offloading-secondary-shared` out
        ");
        let peers = SecondaryArgs { shared: false, ..peers };
        insta::assert_snapshot!(refused_peers(peers), @r"
        messages between replicas have a latency of 0 (`--kv-offloading-secondary-latency`)
        hint: they cross a network: give at least 1 µs
        ");
        insta::assert_snapshot!(refused_peers(SecondaryArgs { backpressure: BackpressurePolicy::Drop, ..peers }), @r"
        `--kv-offloading-secondary p2p` copies nothing that back-pressure could drop (`--kv-offloading-backpressure`)
        hint: leave `--kv-offloading-backpressure` out
        ");
        insta::assert_snapshot!(refused(OffloadArgs { bandwidth_both: Some(120.0), ..eight() }), @r"
        both directions have 120 GB/s together (`--kv-offloading-bandwidth-both`), and one has 50 GB/s alone
        hint: together they have at least as much as one alone, and at most twice as much
        ");
    }
}
