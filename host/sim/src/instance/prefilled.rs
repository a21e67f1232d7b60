//! KV blocks that move from a prefill instance to a decode instance, as one instance sees them; both engines share this.
//!
//! With vLLM and NIXL, after the prefill:
//! 1. When a prefill has ended, the blocks of its request stay where they are: [`TransferredKv::pin`].
//! 2. On the decode instance the request takes all its blocks at once when it is at the head of the queue, and begins to read
//!    what the instance lacks: [`TransferredKv::begin`]. It has neither a slot nor tokens of the budget, like a request that
//!    waits for a load from the CPU tier (`offloading.rs`).
//! 3. The end of the read is seen when the next step is planned: [`TransferredKv::notice`].
//! 4. The prefill instance releases the blocks.
//!
//! If decode instances keep blocks for the next turn of a session ([`keeps_decoded_kv`](super::SchedulerOptions::keeps_decoded_kv)), those of a decode part
//! stay as those of a prefill do, and the prefill of the next turn reads them as a decode part reads those of a prefill.
//!
//! In BLIS the blocks are reserved before the decode part arrives.

use rustc_hash::FxHashMap;

use crate::ids::RequestId;
use crate::instance::config::InstanceConfig;
use crate::request::{Request, Stage};
use crate::semantics::Semantics;
use crate::units::Micros;

/// A read of KV blocks that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvRead {
    /// The request of which the blocks are.
    pub id: RequestId,
    /// The start of the step that began it.
    pub at: Micros,
    /// Tokens of the prompt that the instance reads, ≥ 1.
    pub tokens: u32,
}

/// The state of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadProgress {
    InProgress,
    Done,
    /// Its request has ended: the KV blocks are released when the read has ended.
    Abandoned,
}

/// The KV blocks of requests that are prefilled on one instance and decoded on another. `H` is what an engine needs to
/// release the blocks of a request.
#[derive(Clone, Debug)]
pub(super) struct TransferredKv<H> {
    /// Reads that the service has not seen yet.
    begun: Vec<KvRead>,
    reads: FxHashMap<RequestId, ReadProgress>,
    /// Reads that have ended and were not seen yet, in the order of their ends.
    ended: Vec<(Micros, RequestId)>,
    /// Blocks without a request in queue or batch: of prefills to be read, reserved, or being read for requests that ended.
    pinned: FxHashMap<RequestId, H>,
    /// Prefills that have been read and still have a slot, for one more plan.
    unpinned: Vec<RequestId>,
}

impl<H> Default for TransferredKv<H> {
    fn default() -> Self {
        Self {
            begun: Vec::new(),
            reads: FxHashMap::default(),
            ended: Vec::new(),
            pinned: FxHashMap::default(),
            unpinned: Vec::new(),
        }
    }
}

impl<H> TransferredKv<H> {
    /// Request `id` ends its prefill with blocks `held`. Returns them if they need not stay, because they have been read.
    pub fn pin(&mut self, id: RequestId, held: H) -> Option<H> {
        if let Some(index) = self.unpinned.iter().position(|&other| other == id) {
            self.unpinned.swap_remove(index);
            // With asynchronous scheduling the blocks may be read before the prefill leaves its slot.
            return Some(held);
        }
        self.pinned.insert(id, held);
        None
    }

    /// The blocks of request `id` may be released. Returns them if they are there; if not, [`Self::pin`] will.
    pub fn unpin(&mut self, id: RequestId) -> Option<H> {
        let held = self.pinned.remove(&id);
        if held.is_none() {
            self.unpinned.push(id);
        }
        held
    }

    /// Reserves the blocks `held` for request `id`.
    pub fn reserve(&mut self, id: RequestId, held: H) {
        self.pinned.insert(id, held);
    }

    /// Removes and returns the blocks that were reserved for request `id`.
    pub fn take_reserved(&mut self, id: RequestId) -> Option<H> {
        self.pinned.remove(&id)
    }

    /// Request `id` begins at `now` to read the `tokens` tokens that this instance lacks.
    pub fn begin(&mut self, id: RequestId, now: Micros, tokens: u32) {
        self.begun.push(KvRead { id, at: now, tokens });
        self.reads.insert(id, ReadProgress::InProgress);
    }

    /// Removes and returns the reads that have begun since the last call.
    pub fn take_begun(&mut self) -> Vec<KvRead> {
        std::mem::take(&mut self.begun)
    }

    /// The read of request `id` has ended at `now`.
    pub fn end(&mut self, now: Micros, id: RequestId) {
        self.ended.push((now, id));
    }

    /// Notices the reads that have ended by `now`. Returns the blocks of those that ended requests have left.
    pub fn notice(&mut self, now: Micros) -> Vec<(RequestId, H)> {
        let mut released = Vec::new();
        let seen = self.ended.partition_point(|&(at, _)| at <= now);
        for (_, id) in self.ended.drain(..seen) {
            match self.reads.get_mut(&id) {
                Some(progress @ ReadProgress::InProgress) => *progress = ReadProgress::Done,
                Some(ReadProgress::Abandoned) => {
                    self.reads.remove(&id);
                    released.extend(self.pinned.remove(&id).map(|held| (id, held)));
                }
                Some(ReadProgress::Done) | None => {}
            }
        }
        released
    }

    /// Whether the read of request `id` has ended, and was seen.
    pub fn is_read(&self, id: RequestId) -> bool {
        self.reads.get(&id) == Some(&ReadProgress::Done)
    }

    /// Request `id` enters the batch after its read.
    pub fn enters(&mut self, id: RequestId) {
        self.reads.remove(&id);
    }

    /// Request `id` ends, which waits for its read or, after it, for the batch, with blocks `held`. Returns them if they can be
    /// released now.
    pub fn abandon(&mut self, id: RequestId, held: H) -> Option<H> {
        // Begun in a step at the time of the end: the service has not seen it, and will not begin it.
        if let Some(unseen) = self.begun.iter().position(|read| read.id == id) {
            self.begun.remove(unseen);
            self.reads.remove(&id);
            // No bytes move into these blocks: they are free at once.
            return Some(held);
        }
        match self.reads.get_mut(&id) {
            Some(progress @ ReadProgress::InProgress) => {
                *progress = ReadProgress::Abandoned;
                self.pinned.insert(id, held);
                None
            }
            _ => {
                self.reads.remove(&id);
                Some(held)
            }
        }
    }

    /// Whether a step without requests in the batch waits for an event from outside: for the end of a read, or for blocks
    /// that are released.
    pub fn awaits(&self) -> bool {
        !self.reads.is_empty() || !self.pinned.is_empty()
    }

    /// The end of the first read that was not seen; `None` if no end is known.
    pub fn next_end(&self) -> Option<Micros> {
        self.ended.first().map(|&(at, _)| at)
    }

    /// Number of requests that hold blocks outside of queue and batch.
    pub fn pins(&self) -> usize {
        self.pinned.len()
    }
}

impl Request {
    /// Whether it reads KV blocks when it is scheduled for the first time: as a decode part, or as a prefill of which a decode
    /// instance has an earlier turn.
    pub(super) fn reads_kv(&self, semantics: Semantics) -> bool {
        (self.stage == Stage::Decode && !semantics.reserves_before_decode) || self.remote_tokens > 0
    }

    /// Tokens of its prompt that it reads if it is scheduled at `now` and the prefix cache has the first `local`: all others, or those of
    /// an earlier turn if they are still there, and at least `threshold`.
    pub(super) fn tokens_to_read(&self, now: Micros, local: u32, threshold: u32) -> u32 {
        if self.stage == Stage::Decode {
            // vLLM's decode instance reads everything that its own prefix cache lacks.
            return self.input_tokens - local;
        }
        let remote = if now < self.remote_until { self.remote_tokens } else { 0 };
        let missing = remote.min(self.input_tokens).saturating_sub(local);
        if missing < threshold { 0 } else { missing }
    }

    /// Whether its KV blocks stay when it has completed, to be read by another instance.
    pub(super) fn leaves_kv(&self, config: &InstanceConfig) -> bool {
        match self.stage {
            Stage::Whole => false,
            Stage::Prefill => !config.semantics.reserves_before_decode,
            Stage::Decode => config.options.keeps_decoded_kv,
        }
    }

    /// The latency of the first token of a decode part that has one when it arrives: its latencies begin with the decode.
    pub(super) fn before_decode(&self) -> Option<Micros> {
        (self.stage == Stage::Decode).then_some(Micros::ZERO)
    }
}
