//! BLIS's tiers below the GPU's KV cache, quirks included: for `--parity blis` only. vLLM's own are [`crate::offload`].
//!
//! There are two of them, of which an instance has at most one:
//! * a *mirror* (`CpuMirror`): after every step all full blocks of the running requests are copied to the CPU, free of
//!   charge. A copy back to the GPU delays the step in which it happens;
//! * an *offload chain* (`OffloadChain`): a CPU tier, and storage tiers behind it. Copies between the CPU and the GPU take
//!   no time; transfers from storage take some, and new requests wait for them.
//!
//! Both act when KV blocks are allocated (`LowerTiers::allocate`): full blocks of the prompt that follow those found on the GPU
//! are *reloaded* to the end of the GPU's free blocks, from where the request claims them like any cached block.
//!
//! Only [`Plain`](crate::instance::Plain) has them. They read the contents of all blocks after every step, which the fast engine does
//! not keep, and no other mode needs them.
//!
//! Source: BLIS f90a1e3a (`engine.md` §3.3 and §3.4).

mod chain;
mod config;
mod go_random;
mod mirror;
mod staging;
mod transfers;

pub use self::config::{BlisTiers, ChainConfig, MirrorConfig, StorageTier};

use self::chain::{OffloadChain, following_hashes};
use self::mirror::CpuMirror;
use super::plain::{AllocationRequest, PlainKv};
use crate::ids::RequestId;
use crate::numbers::count;
use crate::outcome::Thrashing;
use crate::request::Request;
use crate::units::Micros;

/// The state of the tiers of one instance.
#[derive(Clone, Debug)]
pub(crate) struct LowerTiers {
    tiers: Tiers,
    /// Number of allocations that failed although no block could be reloaded.
    pub misses: u64,
}

#[derive(Clone, Debug)]
enum Tiers {
    Mirror(CpuMirror),
    Chain(Box<OffloadChain>),
}

impl LowerTiers {
    /// Empty tiers.
    pub fn new(config: &BlisTiers) -> Self {
        let tiers = match config {
            BlisTiers::Mirror(mirror) => Tiers::Mirror(CpuMirror::new(*mirror)),
            BlisTiers::Chain(chain) => Tiers::Chain(Box::new(OffloadChain::new(chain.clone()))),
        };
        Self { tiers, misses: 0 }
    }

    /// Allocates KV blocks for the tokens, some of them perhaps from the tiers. Returns `false` if the GPU has too few free blocks, or
    /// if the request has to wait for a transfer from storage ([`Self::awaits`]).
    pub fn allocate(&mut self, gpu: &mut PlainKv, allocation: &AllocationRequest<'_>) -> bool {
        if let Tiers::Chain(chain) = &mut self.tiers
            && chain.defers(gpu, allocation)
        {
            return false;
        }
        let allocated = self.allocate_now(gpu, allocation);
        if allocated {
            self.forget(allocation.request.id);
        }
        allocated
    }

    fn allocate_now(&mut self, gpu: &mut PlainKv, allocation: &AllocationRequest<'_>) -> bool {
        if !self.reload(gpu, allocation) {
            let allocated = gpu.allocate(allocation);
            self.misses += u64::from(!allocated);
            return allocated;
        }
        let (request, block_size) = (allocation.request, gpu.block_size());
        let cached = gpu.cached_prefix(request, request.input_tokens);
        let start = count(cached.len()) * block_size;
        if start <= allocation.start {
            return gpu.allocate(allocation);
        }
        let first = if gpu.holds(request.id) { allocation.start.div_ceil(block_size) } else { 0 };
        let end = start.min(allocation.end).div_ceil(block_size);
        gpu.claim_for(request.id, cached.get(first as usize..end as usize).unwrap_or_default());
        // If this fails, the request keeps the blocks that it has claimed, although it waits.
        start >= allocation.end || gpu.allocate(&AllocationRequest { start, cached: &cached, ..*allocation })
    }

    /// Reloads blocks of the prompt to the GPU, until one is in no tier. Returns whether it reloaded any.
    fn reload(&mut self, gpu: &mut PlainKv, allocation: &AllocationRequest<'_>) -> bool {
        let hashes = following_hashes(gpu, allocation);
        let mut free = gpu.free_blocks();
        let mut reloaded = false;
        for (index, &hash) in hashes.iter().enumerate() {
            if gpu.contains(hash) {
                continue;
            }
            let readable = match &mut self.tiers {
                Tiers::Mirror(mirror) => mirror.contains(hash),
                Tiers::Chain(chain) => chain.reads(gpu, &hashes[index..]),
            };
            if !readable || free == 0 {
                break;
            }
            free -= 1;
            reloaded = true;
            gpu.reload(hash);
            match &mut self.tiers {
                Tiers::Mirror(mirror) => mirror.reloaded(hash, gpu.block_size()),
                Tiers::Chain(chain) => chain.reloaded(hash),
            }
        }
        reloaded
    }

    /// A step starts at `now`: ends the transfers that are complete.
    pub fn start_step(&mut self, now: Micros) {
        if let Tiers::Chain(chain) = &mut self.tiers {
            chain.advance(now);
        }
    }

    /// Advances the requests that wait for storage, once in a step, before the waiting queue is scheduled.
    pub fn poll(&mut self) {
        if let Tiers::Chain(chain) = &mut self.tiers {
            chain.poll();
        }
    }

    /// Copies the full blocks of the running `requests` to the tiers.
    pub fn copy<'a>(&mut self, gpu: &PlainKv, requests: impl Iterator<Item = &'a Request>) {
        for request in requests {
            match &mut self.tiers {
                Tiers::Mirror(mirror) => mirror.copy(gpu.held_hashes(request.id)),
                Tiers::Chain(chain) => chain.copy(gpu, request),
            }
        }
    }

    /// Removes and returns the time that reloads add to the present step.
    pub fn take_delay(&mut self) -> Micros {
        match &mut self.tiers {
            Tiers::Mirror(mirror) => mirror.take_delay(),
            Tiers::Chain(_) => Micros::ZERO,
        }
    }

    /// Whether request `id` waits for a transfer from storage.
    pub fn awaits(&self, id: RequestId) -> bool {
        matches!(&self.tiers, Tiers::Chain(chain) if chain.awaits(id))
    }

    /// Whether any request waits for a transfer from storage.
    pub fn any_awaits(&self) -> bool {
        matches!(&self.tiers, Tiers::Chain(chain) if chain.any_awaits())
    }

    /// The first time after `now` at which [`Self::poll`] may change something, if nothing else happens until then.
    pub fn next_change(&self, now: Micros) -> Option<Micros> {
        match &self.tiers {
            Tiers::Mirror(_) => None,
            Tiers::Chain(chain) => chain.next_change(now),
        }
    }

    /// Request `id` waits no longer.
    pub fn forget(&mut self, id: RequestId) {
        if let Tiers::Chain(chain) = &mut self.tiers {
            chain.forget(id);
        }
    }

    pub fn thrashing(&self) -> Thrashing {
        match &self.tiers {
            Tiers::Mirror(mirror) => mirror.thrashing,
            Tiers::Chain(chain) => chain.thrashing,
        }
    }
}

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;
