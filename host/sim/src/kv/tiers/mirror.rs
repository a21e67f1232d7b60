//! BLIS's mirror of full blocks on the CPU (`engine.md` §3.3).

use super::config::MirrorConfig;
use super::staging::CpuBlocks;
use crate::kv::plain::BlockHash;
use crate::numbers::truncated;
use crate::outcome::Thrashing;
use crate::units::Micros;

/// The least recently used blocks leave it first.
#[derive(Clone, Debug)]
pub(super) struct CpuMirror {
    blocks: CpuBlocks,
    config: MirrorConfig,
    /// Time of the reloads since the last [`Self::take_delay`].
    delay: Micros,
    /// Evictions among the copies to the CPU.
    pub thrashing: Thrashing,
}

impl CpuMirror {
    pub fn new(config: MirrorConfig) -> Self {
        let blocks = CpuBlocks::new(config.cpu_blocks);
        Self { blocks, config, delay: Micros::ZERO, thrashing: Thrashing::default() }
    }

    pub fn contains(&self, hash: BlockHash) -> bool {
        self.blocks.is_readable(hash)
    }

    /// A block of `block_size` tokens was copied to the GPU.
    pub fn reloaded(&mut self, hash: BlockHash, block_size: u32) {
        self.blocks.touch(hash);
        // BLIS calls the bandwidth blocks per µs, and divides tokens by it.
        let transfer = Micros(truncated((f64::from(block_size) / self.config.bandwidth).ceil()));
        self.delay = self.delay.saturating_add(self.config.base_latency).saturating_add(transfer);
    }

    /// Copies the full blocks of a request, of which the contents are `hashes`, after a step.
    pub fn copy(&mut self, hashes: impl Iterator<Item = Option<BlockHash>>) {
        for hash in hashes.flatten() {
            if self.contains(hash) {
                self.blocks.touch(hash);
            } else {
                self.thrashing.events += u64::from(self.blocks.is_full());
                self.thrashing.of += 1;
                self.blocks.store(hash);
            }
        }
    }

    pub fn take_delay(&mut self) -> Micros {
        std::mem::take(&mut self.delay)
    }
}
