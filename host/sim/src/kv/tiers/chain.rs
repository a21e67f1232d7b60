//! BLIS's offload chain: the CPU tier, and storage tiers behind it (`engine.md` §3.4).

use rustc_hash::{FxHashMap, FxHashSet};

use super::config::ChainConfig;
use super::go_random::GoRandom;
use super::staging::CpuBlocks;
use super::transfers::{StorageDirection, StorageTransfer, Transfers};
use crate::ids::RequestId;
use crate::kv::plain::{AllocationRequest, BlockHash, PlainKv};
use crate::numbers::count;
use crate::outcome::Thrashing;
use crate::request::Request;
use crate::rng::fnv1a;
use crate::units::Micros;

/// Time after which a request computes its blocks instead of waiting for them, µs.
const LONGEST_WAIT: Micros = Micros(1_000_000_000);

/// The smallest factor of the time of a transfer.
const LEAST_JITTER: f64 = 0.05;

#[derive(Clone, Debug)]
pub(super) struct OffloadChain {
    config: ChainConfig,
    cpu: CpuBlocks,
    /// The blocks that each storage tier has.
    stored: Vec<FxHashSet<BlockHash>>,
    transfers: Transfers,
    /// Blocks of which storage was asked before: it need not look for them again.
    known: FxHashSet<BlockHash>,
    waiting: FxHashMap<RequestId, StorageWait>,
    /// Time of the step.
    now: Micros,
    random: GoRandom,
    /// Reads from storage for which the CPU tier had no room, among all that were attempted.
    pub thrashing: Thrashing,
}

/// Blocks from storage for which a new request waits, or has waited.
#[derive(Clone, Debug)]
struct StorageWait {
    phase: WaitPhase,
    blocks: Vec<BlockHash>,
    /// The tier that has them. Without one, another request reads them.
    tier: Option<usize>,
    since: Micros,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitPhase {
    /// The storage tier looks for the blocks, until the next step.
    LookUp,
    /// The blocks are being read.
    Reading,
    /// They are on the CPU, or they are not and are computed.
    Over,
}

impl OffloadChain {
    pub fn new(config: ChainConfig) -> Self {
        Self {
            cpu: CpuBlocks::new(config.cpu_blocks),
            stored: vec![FxHashSet::default(); config.storage.len()],
            transfers: Transfers::new(&config.storage),
            known: FxHashSet::default(),
            waiting: FxHashMap::default(),
            now: Micros::ZERO,
            random: GoRandom::new(config.seed ^ fnv1a(b"kv-offload")),
            thrashing: Thrashing::default(),
            config,
        }
    }

    /// A step starts at `now`: blocks are where completed transfers have put them.
    pub fn advance(&mut self, now: Micros) {
        self.now = now;
        for transfer in self.transfers.poll(now) {
            for hash in transfer.blocks {
                match transfer.direction {
                    StorageDirection::Read => self.cpu.arrived(hash),
                    StorageDirection::Write => {
                        self.stored[transfer.tier].insert(hash);
                        self.cpu.unpin(hash);
                    }
                }
            }
        }
    }

    /// Whether the request waits for storage: a request that holds no blocks, the prompt of which goes on in storage.
    pub fn defers(&mut self, gpu: &PlainKv, allocation: &AllocationRequest<'_>) -> bool {
        let id = allocation.request.id;
        if gpu.holds(id) {
            return false;
        }
        if let Some(wait) = self.waiting.get(&id) {
            return wait.phase != WaitPhase::Over;
        }
        let hashes = following_hashes(gpu, allocation);
        // Blocks on the CPU are reloaded when the request is scheduled.
        let Some(missing) = hashes.iter().position(|&hash| !gpu.contains(hash) && !self.cpu.is_readable(hash)) else {
            return false;
        };
        let wait = if self.cpu.is_arriving(hashes[missing]) {
            StorageWait { phase: WaitPhase::Reading, blocks: vec![hashes[missing]], tier: None, since: self.now }
        } else {
            let Some((blocks, tier)) = self.run_in_storage(gpu, &hashes[missing..]) else { return false };
            let phase = if !blocks.iter().all(|hash| self.known.contains(hash)) {
                WaitPhase::LookUp
            } else if self.read(blocks.clone(), tier) {
                WaitPhase::Reading
            } else {
                WaitPhase::Over
            };
            StorageWait { phase, blocks, tier: Some(tier), since: self.now }
        };
        self.waiting.insert(id, wait);
        true
    }

    /// Whether the first of `hashes`, successive blocks of a prompt, can be copied from the CPU. If storage has it, a read begins for
    /// requests that come later.
    pub fn reads(&mut self, gpu: &PlainKv, hashes: &[BlockHash]) -> bool {
        let is_readable = self.cpu.is_readable(hashes[0]);
        if !self.cpu.contains(hashes[0])
            && let Some((blocks, tier)) = self.run_in_storage(gpu, hashes)
        {
            self.read(blocks, tier);
        }
        is_readable
    }

    pub fn reloaded(&mut self, hash: BlockHash) {
        self.cpu.touch(hash);
    }

    /// Advances the requests that wait, in the order of their ids as text.
    pub fn poll(&mut self) {
        let mut waiting: Vec<(String, RequestId)> = self.waiting.keys().map(|&id| (id.0.to_string(), id)).collect();
        waiting.sort_unstable();
        for (_, id) in waiting {
            let Some(mut wait) = self.waiting.remove(&id) else { continue };
            if wait.phase != WaitPhase::Over {
                wait.phase = self.next_phase(&wait);
                if self.now.saturating_sub(wait.since) > LONGEST_WAIT {
                    wait.phase = WaitPhase::Over;
                }
            }
            self.waiting.insert(id, wait);
        }
    }

    fn next_phase(&mut self, wait: &StorageWait) -> WaitPhase {
        if wait.phase == WaitPhase::LookUp {
            self.known.extend(wait.blocks.iter().copied());
        }
        if wait.blocks.iter().all(|&hash| self.cpu.is_readable(hash)) {
            return WaitPhase::Over;
        }
        if wait.blocks.iter().all(|&hash| self.cpu.contains(hash)) {
            return WaitPhase::Reading;
        }
        match wait.tier {
            Some(tier) if wait.phase == WaitPhase::LookUp && self.read(wait.blocks.clone(), tier) => WaitPhase::Reading,
            _ => WaitPhase::Over, // there is no room for them, or they were evicted
        }
    }

    /// Copies the full blocks of a running request to the CPU, and from there to all storage tiers.
    pub fn copy(&mut self, gpu: &PlainKv, request: &Request) {
        let most = if self.config.prompt_only { request.input_tokens / gpu.block_size() } else { u32::MAX };
        for hash in gpu.held_hashes(request.id).take(most as usize).flatten() {
            if self.cpu.contains(hash) {
                self.cpu.touch(hash);
            } else if self.cpu.store(hash) {
                for tier in 0..self.stored.len() {
                    self.cpu.pin(hash);
                    self.submit(tier, StorageDirection::Write, vec![hash], 1);
                }
            }
        }
    }

    pub fn awaits(&self, id: RequestId) -> bool {
        self.waiting.get(&id).is_some_and(|wait| wait.phase != WaitPhase::Over)
    }

    pub fn any_awaits(&self) -> bool {
        self.waiting.values().any(|wait| wait.phase != WaitPhase::Over)
    }

    pub fn next_change(&self, now: Micros) -> Option<Micros> {
        if self.waiting.values().any(|wait| wait.phase == WaitPhase::LookUp) {
            return Some(now);
        }
        let times_out = |wait: &StorageWait| wait.since.saturating_add(LONGEST_WAIT).saturating_add(Micros(1));
        let waiting = self.waiting.values().filter(|wait| wait.phase == WaitPhase::Reading);
        waiting.map(times_out).chain(self.transfers.next_end()).min()
    }

    pub fn forget(&mut self, id: RequestId) {
        self.waiting.remove(&id);
    }

    /// The first of `hashes` and those that follow it in the same storage tier, as far as neither the GPU nor the CPU has them.
    fn run_in_storage(&self, gpu: &PlainKv, hashes: &[BlockHash]) -> Option<(Vec<BlockHash>, usize)> {
        let tier_of = |hash: &BlockHash| self.stored.iter().position(|stored| stored.contains(hash));
        let tier = tier_of(hashes.first()?)?;
        let belongs =
            |hash: &&BlockHash| !gpu.contains(**hash) && !self.cpu.contains(**hash) && tier_of(hash) == Some(tier);
        Some((hashes.iter().take_while(belongs).copied().collect(), tier))
    }

    /// Begins to read `blocks` from a storage tier, if the CPU has room for all of them.
    fn read(&mut self, blocks: Vec<BlockHash>, tier: usize) -> bool {
        self.thrashing.of += 1;
        let reserved = self.cpu.reserve(&blocks);
        if reserved == 0 {
            self.thrashing.events += 1;
            return false;
        }
        self.submit(tier, StorageDirection::Read, blocks, reserved);
        true
    }

    fn submit(&mut self, tier: usize, direction: StorageDirection, blocks: Vec<BlockHash>, count: u64) {
        let deviation = self.config.storage[tier].latency_jitter_stddev;
        let jitter = (deviation > 0.0).then(|| (1.0 + self.random.normal() * deviation).max(LEAST_JITTER));
        let bytes = count.saturating_mul(self.config.block_bytes);
        self.transfers.submit(self.now, StorageTransfer { tier, direction, blocks, bytes, jitter });
    }
}

/// The contents of the full blocks of the prompt behind those that the request holds or will claim.
pub(super) fn following_hashes(gpu: &PlainKv, allocation: &AllocationRequest<'_>) -> Vec<BlockHash> {
    let AllocationRequest { request, cached, .. } = allocation;
    let held = gpu.held_by(request.id);
    let (first, before) = if held as usize > cached.len() {
        (held, gpu.held_hashes(request.id).last().flatten())
    } else {
        (count(cached.len()), cached.last().and_then(|&block| gpu.hash_at(block)))
    };
    gpu.prompt_hashes(request, first, before)
}
