//! Stages of requests in the plain engine: prefills that are read elsewhere, and decode parts.

use super::{Plain, PlainRequest};
use crate::ids::{InstanceIndex, RequestId};
use crate::instance::gates::Gate;
use crate::instance::policy::QueueKey;
use crate::kv::plain::AllocationRequest;
use crate::observer::{Interests, Observer, SimEvent};
use crate::outcome::{Decision, FirstToken, SchedulingResult, Status, WaitReason};
use crate::request::{Request, Stage};
use crate::units::Micros;

impl PlainRequest {
    /// Its first token as a decode part, which is generated at `at`, if it is that token (BLIS).
    pub(super) fn first_of_decode(&self, instance: InstanceIndex, at: Micros) -> Option<FirstToken> {
        let is_first = self.request.stage == Stage::Decode && self.itl.is_empty() && self.ttft.is_none();
        is_first.then(|| FirstToken::new(&self.request, instance, at - self.request.arrival))
    }
}

impl Plain {
    /// Reserves blocks for the prompt of `request`.
    pub(super) fn reserve_prompt(&mut self, request: &Request) -> bool {
        let allocation = AllocationRequest::of_prompt(request, 0, request.input_tokens);
        let reserved = super::allocate(&mut self.kv, &mut self.tiers, &allocation);
        if reserved {
            self.transferred.get_or_insert_default().reserve(request.id, ());
        }
        reserved
    }

    /// The decode part `request` arrives; its blocks are reserved, and it has a token.
    pub(super) fn prefilled_arrives(&mut self, now: Micros, request: Request) {
        let computed = request.input_tokens;
        let live = PlainRequest { computed, generated: 1, decoding: true, ..PlainRequest::new(request) };
        let index = self.arriving.partition_point(|&(other, _)| other < now);
        self.arriving.insert(index, (now, live));
    }

    /// Puts a decode part with reserved blocks into the waiting queue.
    pub(super) fn enqueue_prefilled(&mut self, now: Micros, live: PlainRequest, observer: &mut impl Observer) {
        let id = live.request.id;
        self.transferred.iter_mut().for_each(|transferred| {
            transferred.take_reserved(id);
        });
        if let Some(deadline) = live.request.deadline {
            if deadline <= now {
                self.kv.release(id);
                let outcome = live.outcome(self.config.index, Status::TimedOut).ended_at(now);
                observer.record(&SimEvent::Outcome(&outcome));
                // Its client timed out before the decode: its reserved blocks are free.
                return;
            }
            self.deadlines.insert((deadline, self.turn_back), id);
        }
        self.turn_back += 1;
        self.present += 1;
        self.join_queue(live, self.turn_back, now);
        self.step_at.get_or_insert(self.config.wakes_at(now, self.left_at));
    }

    /// Adds the waiting request `key` to the batch: its prompt is in reserved blocks, and it computes one token.
    pub(super) fn admit_prefilled(
        &mut self,
        key: QueueKey,
        budget: &mut u32,
        now: Micros,
        observer: &mut impl Observer,
    ) -> Result<(), WaitReason> {
        let live = &self.waiting[&key];
        let (start, end) = (live.computed, live.computed + 1);
        let allocation =
            AllocationRequest { prefill: false, ..AllocationRequest::of_prompt(&live.request, start, end) };
        let result = SchedulingResult::Scheduled { cached_tokens: live.computed, num_tokens: 1 };
        let decision = self.scheduling(live, *budget, now, result);
        if !super::allocate(&mut self.kv, &mut self.tiers, &allocation) {
            // Its prompt fills the reserved blocks: the next token starts a block, and none is free.
            return Err(WaitReason::KvBlocks { needed: 1 });
        }
        if observer.interests().contains(Interests::SCHEDULING) {
            observer.record(&SimEvent::Decision(&Decision::Scheduling(decision)));
        }
        let mut live = self.waiting.remove(&key).expect("just found");
        self.enter_adapter(&mut live, now, observer);
        self.counters.waited(live.queued_at, now);
        live.cached_tokens = live.computed;
        live.scheduling_delay = Some(now - live.request.arrival + self.config.latency.scheduling_time());
        live.num_new = 1;
        live.context = live.computed;
        *budget -= 1;
        self.running.push(live);
        Ok(())
    }

    /// Releases the blocks of `request`, which has finished, or keeps them until they are read.
    pub(super) fn release_finished(&mut self, request: &Request) {
        if request.leaves_kv(&self.config) && self.transferred.get_or_insert_default().pin(request.id, ()).is_none() {
            // The blocks stay until another instance has read them.
            return;
        }
        self.kv.release(request.id);
    }

    /// Whether `live` may read blocks of another instance: as long as it was not in the batch.
    pub(super) fn reads_kv(&self, live: &PlainRequest) -> bool {
        live.scheduling_delay.is_none() && live.request.reads_kv(self.config.semantics)
    }

    /// Begins the read of the waiting request `key`, if there is something to read, and if there are blocks for its whole prompt.
    pub(super) fn begin_read(&mut self, key: QueueKey, now: Micros) -> Gate {
        let live = &self.waiting[&key];
        let cached = self.kv.cached_prefix(&live.request, live.target.saturating_sub(1));
        let local = cached.tokens(self.config.block_size);
        let tokens = live.request.tokens_to_read(now, local, self.config.options.kv_recompute_threshold);
        if tokens == 0 {
            // All is in its own prefix cache, or no longer there, or below `kv_recompute_threshold`.
            return Gate::Open;
        }
        let (spare, free) = (self.blocks_to_spare(), self.kv.free_blocks());
        let of_prompt = |end: u32| AllocationRequest::of_prompt(&live.request, local, end).claiming(&cached);
        let whole = self.kv.needs(&of_prompt(live.target), true) + spare;
        if self.config.reserve_full_prompt && whole > free {
            // vLLM begins a read only if the whole prompt fits (`scheduler_reserve_full_isl`).
            return Gate::Stop(WaitReason::KvBlocks { needed: whole });
        }
        let needed = self.kv.needs(&of_prompt(local + tokens), false) + spare + self.reserved_blocks();
        if needed > free {
            // A read takes all its blocks at once; those that other prompts still need must stay free.
            return Gate::Stop(WaitReason::KvBlocks { needed });
        }
        let mut live = self.waiting.remove(&key).expect("just seen");
        let allocation = AllocationRequest {
            in_flight: true, // they get their hashes after the read
            ..AllocationRequest::of_prompt(&live.request, local, local + tokens).claiming(&cached)
        };
        assert!(self.kv.allocate(&allocation), "there are enough free blocks");
        self.transferred.get_or_insert_default().begin(live.request.id, now, tokens);
        self.count_look_up(&live, local);
        live.cached_tokens = local;
        live.computed = local + tokens;
        self.loading.push(live);
        Gate::Left
    }

    /// Whether the load or the read of request `id` has ended.
    pub(super) fn is_loaded(&self, id: RequestId) -> bool {
        self.offloading.as_ref().is_some_and(|offloading| offloading.is_loaded(id))
            || self.transferred.as_ref().is_some_and(|transferred| transferred.is_read(id))
    }

    /// Whether a request here has still to begin its read.
    pub(super) fn may_read(&self) -> bool {
        let arriving = self.arriving.iter().map(|(_, live)| live);
        self.transferred.is_some() && arriving.chain(self.waiting.values()).any(|live| self.reads_kv(live))
    }

    /// Notices the reads that have ended by `now`, before a step.
    pub(super) fn notice_reads(&mut self, now: Micros) {
        let Some(transferred) = &mut self.transferred else { return };
        for (id, ()) in transferred.notice(now) {
            self.kv.release(id);
        }
    }

    /// If reads in progress or blocks that are read elsewhere are waited for: the end of the next read, if one is known.
    pub(super) fn awaited_read(&self, now: Micros) -> Option<Option<Micros>> {
        let transferred = self.transferred.as_ref().filter(|transferred| transferred.awaits())?;
        Some(transferred.next_end().map(|end| end.max(now)))
    }

    /// The read of request `id` has ended.
    pub(super) fn end_read(&mut self, now: Micros, id: RequestId) {
        self.transferred.iter_mut().for_each(|transferred| transferred.end(now, id));
        self.step_at.get_or_insert(self.config.wakes_at(now, self.left_at));
    }

    /// The blocks of the prefill of request `id` are no longer needed.
    pub(super) fn unpin(&mut self, now: Micros, id: RequestId) {
        if self.transferred.as_mut().and_then(|transferred| transferred.unpin(id)).is_some() {
            self.kv.release(id);
        }
        if self.queue_len() > 0 {
            self.step_at.get_or_insert(self.config.wakes_at(now, self.left_at));
        }
    }

    /// Request `id` ends, which reads or has read its blocks.
    pub(super) fn abandon_read(&mut self, id: RequestId) {
        if self.transferred.as_mut().is_none_or(|transferred| transferred.abandon(id, ()).is_some()) {
            self.kv.release(id);
        }
    }
}
