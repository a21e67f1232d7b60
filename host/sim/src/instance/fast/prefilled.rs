//! Stages of requests in the fast engine: prefills that are read elsewhere, and decode parts, as `plain/prefilled.rs` has them.

use super::Fast;
use super::arena::RequestKey;
use super::deadlines::NEVER;
use super::left_blocks::StayingBlocks;
use super::live::{LiveRequest, RequestState};
use crate::ids::{InstanceIndex, RequestId};
use crate::instance::gates::Gate;
use crate::instance::policy::{JoiningRequest, QueueKey};
use crate::instance::prefilled::TransferredKv;
use crate::kv::fast::{BlockKeys, HeldBlocks};
use crate::observer::{Observer, SimEvent};
use crate::outcome::{FirstToken, Outcome, Status, WaitReason};
use crate::request::{Request, Stage};
use crate::units::Micros;

impl LiveRequest {
    /// Its first token as a decode part, which is generated at `at`, if it may be that token (BLIS).
    pub(super) fn first_of_decode(&self, instance: InstanceIndex, at: Micros) -> Option<FirstToken> {
        let may_be = self.request.stage == Stage::Decode && self.ttft().is_none();
        may_be.then(|| FirstToken::new(&self.request, instance, at - self.request.arrival))
    }
}

impl Fast {
    /// From now on looks at KV blocks that move between instances.
    pub(super) fn moves_kv(&mut self) -> &mut TransferredKv<StayingBlocks> {
        self.has_tier_or_adapters = true;
        self.transferred.get_or_insert_default()
    }

    /// Reserves blocks for the prompt of `request`.
    pub(super) fn reserve_prompt(&mut self, request: &Request) -> bool {
        if request.input_tokens.div_ceil(self.config.block_size) > self.kv.free_blocks() {
            // BLIS lets no decode part wait for KV blocks: the request is dropped.
            return false;
        }
        let mut holding = HeldBlocks::default();
        self.kv.extend(&mut holding, &BlockKeys::new(request.content.clone()), 0, request.input_tokens);
        let (tokens, known) = (request.input_tokens, request.input_tokens);
        self.moves_kv().reserve(request.id, StayingBlocks { holding, tokens, known, fence: None });
        true
    }

    /// The decode part `request` arrives; its blocks are reserved.
    pub(super) fn prefilled_arrives(&mut self, now: Micros, request: Box<Request>) {
        let index = self.arriving.partition_point(|&(other, _)| other < now);
        self.arriving.insert(index, (now, request));
        self.next_queued = self.next_queued.min(now);
    }

    /// Puts a decode part, which has reserved blocks and a token, into the waiting queue.
    pub(super) fn enqueue_prefilled(&mut self, now: Micros, request: Box<Request>, observer: &mut impl Observer) {
        let reserved = self.moves_kv().take_reserved(request.id);
        let mut holding = reserved.map(|blocks| blocks.holding).unwrap_or_default();
        let (computed, deadline) = (request.input_tokens, request.deadline);
        if deadline.is_some_and(|deadline| deadline <= now) {
            self.kv.release(&mut holding, computed, computed);
            self.refused = None;
            let outcome = self.untouched_outcome(&request, Status::TimedOut).ended_at(now);
            observer.record(&SimEvent::Outcome(&Outcome { generated_tokens: 1, ..outcome }));
            // Its client timed out before the decode: its reserved blocks are free.
            return;
        }
        self.turn_back += 1;
        let queue_key = self.config.queue_key(&JoiningRequest {
            now,
            request: &request,
            content: &request.content,
            generated_tokens: 1,
            preemptions: 0,
            turn: self.turn_back,
        });
        let left = self.tokens_left(&request, computed, 1);
        self.fewest_waiting = if self.queue_len() == 0 { left } else { self.fewest_waiting.min(left) };
        let mut live = LiveRequest::new(request, queue_key.rank, now);
        (live.computed, live.generated, live.holding) = (computed, 1, holding);
        let key = self.live.insert(live);
        self.queue_changes::<true>(now);
        self.waiting.insert(queue_key, key);
        self.refused = None;
        if let Some(deadline) = deadline {
            self.live[key].deadline = self.deadlines.watch(deadline, key.slot_index());
            self.next_deadline = self.next_deadline.min(deadline);
        }
        if self.step_at == NEVER {
            self.step_at = self.config.wakes_at(now, self.left_at);
        }
    }

    /// Allocates a block for the first token that the waiting request `key` computes, if it needs one: its prompt is in
    /// reserved blocks. Returns the number of its tokens, 1.
    pub(super) fn admit_prefilled(&mut self, key: RequestKey, budget: u32, now: Micros) -> Result<u32, WaitReason> {
        let live = &mut self.live[key];
        let computed = live.computed;
        if computed.is_multiple_of(self.config.block_size) {
            if self.kv.free_blocks() == 0 {
                self.refused = Some((key, budget));
                // Its prompt fills the reserved blocks: the next token starts a block, and none is free.
                return Err(WaitReason::KvBlocks { needed: 1 });
            }
            self.kv.take(1);
        }
        if let Some(index) = self.config.shared_block_filled(live, computed) {
            self.kv.filled(&mut live.holding, &live.keys, index);
        }
        self.rares.state(live).last_token = now;
        Ok(1)
    }

    /// Releases the blocks of `key`, which has finished, as `Fast::release`, or keeps them until they are read.
    #[inline(always)]
    pub(super) fn release_finished(&mut self, key: RequestKey, tokens: u32, known: u32, now: Micros) {
        if self.transferred.is_some() && self.live[key].request.leaves_kv(&self.config) {
            self.pin(key, tokens, known, now);
        } else {
            self.release(key, tokens, known, now);
        }
    }

    fn pin(&mut self, key: RequestKey, tokens: u32, known: u32, now: Micros) {
        let fence = self.end_offloading(key, now);
        let live = &mut self.live[key];
        let (id, holding) = (live.request.id, std::mem::take(&mut live.holding));
        if let Some(mut blocks) = self.moves_kv().pin(id, StayingBlocks { holding, tokens, known, fence }) {
            self.release_staying(&mut blocks);
        }
    }

    fn release_staying(&mut self, blocks: &mut StayingBlocks) {
        match blocks.fence {
            None => self.kv.release(&mut blocks.holding, blocks.tokens, blocks.known),
            Some(fence) => self.kv.release_fenced(&mut blocks.holding, blocks.tokens, blocks.known, fence),
        }
        self.refused = None;
    }

    /// Whether `key` may read blocks of another instance: as long as it was not in the batch.
    pub(super) fn reads_kv(&self, key: RequestKey) -> bool {
        let live = &self.live[key];
        self.transferred.is_some() && live.scheduling_delay().is_none() && live.request.reads_kv(self.config.semantics)
    }

    /// Begins the read of the waiting request `key`, if there is something to read, and if there are blocks for its whole prompt.
    pub(super) fn begin_read(&mut self, queue_key: QueueKey, key: RequestKey, now: Micros) -> Gate {
        if self.is_paged() {
            return self.begin_read_of_pages(queue_key, key, now);
        }
        let reserved = self.reserved_blocks();
        let live = &mut self.live[key];
        let hit = self.kv.look_up(&live.keys, live.target.saturating_sub(1));
        let local = hit.blocks * self.config.block_size;
        let tokens = live.request.tokens_to_read(now, local, self.config.options.kv_recompute_threshold);
        if tokens == 0 {
            // All is in its own prefix cache, or no longer there, or below `kv_recompute_threshold`.
            return Gate::Open;
        }
        let spare = self.limits.spare_blocks(self.running as usize);
        let missing = |tokens: u32| tokens.div_ceil(self.config.block_size) - hit.blocks;
        let (whole, free) = (missing(live.target) + hit.unheld + spare, self.kv.free_blocks());
        if self.config.reserve_full_prompt && whole > free {
            // vLLM begins a read only if the whole prompt fits (`scheduler_reserve_full_isl`).
            return Gate::Stop(WaitReason::KvBlocks { needed: whole });
        }
        let taken = missing(local + tokens);
        let needed = taken + hit.unheld + spare + reserved;
        if needed > free {
            // A read takes all its blocks at once; those that other prompts still need must stay free.
            return Gate::Stop(WaitReason::KvBlocks { needed });
        }
        self.kv.claim_found(&mut live.holding);
        self.kv.take(taken);
        self.reads(queue_key, key, local, tokens, now);
        Gate::Left
    }

    /// The waiting request `key`, which has blocks for them, reads `tokens` tokens behind the `local` ones that it found.
    pub(super) fn reads(&mut self, queue_key: QueueKey, key: RequestKey, local: u32, tokens: u32, now: Micros) {
        let live = &mut self.live[key];
        live.cached_tokens = local;
        live.computed = local + tokens;
        live.state = RequestState::Loading;
        let id = live.request.id;
        self.moves_kv().begin(id, now, tokens);
        self.waiting.remove(&queue_key);
        self.count_look_up(key, local);
        self.loading.push(key);
    }

    /// Whether the read of `key` has ended, and was seen.
    pub(super) fn is_read(&self, key: RequestKey) -> bool {
        self.transferred.as_ref().is_some_and(|transferred| transferred.is_read(self.live[key].request.id))
    }

    /// Whether a head of the queue that has too few blocks for its read stays so while nothing is released: no prompt in the
    /// batch needs blocks that it could have later.
    pub(super) fn read_stays_blocked(&self) -> bool {
        self.transferred.is_some() && self.offloading.is_none() && self.prefilling.is_empty()
    }

    /// Whether a request here has still to begin its read.
    pub(super) fn may_read(&self) -> bool {
        let reads = |request: &Request| request.reads_kv(self.config.semantics);
        self.transferred.is_some()
            && (self.arriving.iter().any(|(_, request)| reads(request))
                || self.waiting.requests().any(|key| self.reads_kv(key)))
    }

    /// Notices the reads that have ended by `now`, before a step.
    pub(super) fn notice_reads(&mut self, now: Micros) {
        let Some(transferred) = &mut self.transferred else { return };
        for (_, mut blocks) in transferred.notice(now) {
            self.release_staying(&mut blocks);
        }
    }

    /// If reads in progress or blocks that are read elsewhere are waited for: the end of the next read, [`NEVER`] if none is known.
    pub(super) fn awaited_read(&self, now: Micros) -> Option<Micros> {
        let transferred = self.transferred.as_ref().filter(|transferred| transferred.awaits())?;
        Some(transferred.next_end().map_or(NEVER, |end| end.max(now)))
    }

    /// Whether the next steps notice no end of a read that they could act on.
    pub(super) fn reads_are_quiet(&self) -> bool {
        let Some(transferred) = &self.transferred else { return true };
        let is_full = self.running >= self.config.batch_limit() || self.running == self.config.max_num_batched_tokens;
        transferred.next_end().is_none() && (is_full || !self.loading.iter().any(|&key| self.is_read(key)))
    }

    /// The read of request `id` has ended.
    pub(super) fn end_read(&mut self, now: Micros, id: RequestId) {
        self.moves_kv().end(now, id);
        if self.step_at == NEVER {
            self.step_at = self.config.wakes_at(now, self.left_at);
        }
    }

    /// The blocks of the prefill of request `id` are no longer needed.
    pub(super) fn unpin(&mut self, now: Micros, id: RequestId) {
        if let Some(mut blocks) = self.moves_kv().unpin(id) {
            self.release_staying(&mut blocks);
        }
        if self.queue_len() > 0 && self.step_at == NEVER {
            self.step_at = self.config.wakes_at(now, self.left_at);
        }
    }

    /// The request `key` ends, which reads or has read its blocks.
    pub(super) fn abandon_read(&mut self, key: RequestKey) {
        let live = &mut self.live[key];
        let (id, tokens) = (live.request.id, live.computed);
        // What is being read has no hashes.
        let blocks = StayingBlocks { holding: std::mem::take(&mut live.holding), tokens, known: 0, fence: None };
        if let Some(mut blocks) = self.moves_kv().abandon(id, blocks) {
            self.release_staying(&mut blocks);
        }
    }

    /// Whether blocks are held for requests outside of the batch.
    pub(super) fn holds_outside_batch(&self) -> bool {
        let reserved = || self.waiting.requests().any(|key| self.live[key].computed > 0);
        self.loading.len() + self.abandoned.len() > 0
            || self.transferred.as_ref().is_some_and(|transferred| transferred.pins() > 0 || reserved())
    }
}
