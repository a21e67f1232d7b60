//! The CPU tier in the plain engine: requests that wait for loads, and transfers.

use super::{Plain, PlainRequest};
use crate::adapters::AdapterGate;
use crate::ids::RequestId;
use crate::instance::gates::Gate;
use crate::instance::offloading::{ChunkSource, LoadMoment, TierHit};
use crate::instance::policy::QueueKey;
use crate::kv::plain::AllocationRequest;
use crate::numbers::count;
use crate::observer::{Interests, Observer, SimEvent};
use crate::outcome::{Decision, SchedulingResult, WaitReason};
use crate::units::Micros;

impl PlainRequest {
    fn chunks(&self) -> ChunkSource<'_> {
        ChunkSource { id: self.request.id, request: &self.request, content: &self.request.content }
    }
}

impl Plain {
    /// Number of requests in the waiting queue, those included that wait for a load.
    pub(super) fn queue_len(&self) -> usize {
        self.waiting.len() + self.loading.len()
    }

    /// Looks up the waiting request `key` in the tier, and begins its load if there is something to load.
    pub(super) fn admit_through_tier(&mut self, key: QueueKey, now: Micros, observer: &mut impl Observer) -> Gate {
        if self.reads_kv(&self.waiting[&key]) {
            match self.begin_read(key, now) {
                Gate::Open => {}
                // The CPU tier is asked only if nothing is read from another instance.
                read => return read,
            }
        }
        // Without a CPU tier nothing is loaded.
        let Some(offloading) = &mut self.offloading else { return Gate::Open };
        let live = &self.waiting[&key];
        let cached = self.kv.cached_prefix(&live.request, live.target.saturating_sub(1));
        let local = cached.tokens(self.config.block_size);
        let tokens = match offloading.look_up(live.chunks(), local, live.target) {
            // Chunks of its prompt are still on their way: it is passed over and asks again, as in vLLM.
            TierHit::Deferred => return Gate::Skip(WaitReason::KvTransfer),
            // The tier has less than a chunk beyond what the GPU has: the prompt is computed.
            TierHit::Tokens(0) => return Gate::Open,
            TierHit::Tokens(tokens) => tokens,
        };
        if offloading.decides_loads() && !self.loads(key, local, tokens, now, observer) {
            // The policy prefers to compute: the request is scheduled as if the tier had nothing.
            return Gate::Open;
        }
        let live = &self.waiting[&key];
        let (spare, free) = (self.blocks_to_spare(), self.kv.free_blocks());
        let of_prompt = |end: u32| AllocationRequest::of_prompt(&live.request, local, end).claiming(&cached);
        let whole = self.kv.needs(&of_prompt(live.target), true) + spare;
        if self.config.reserve_full_prompt && whole > free {
            // vLLM begins a load only if the whole prompt fits (`scheduler_reserve_full_isl`).
            return Gate::Stop(WaitReason::KvBlocks { needed: whole });
        }
        let needed = self.kv.needs(&of_prompt(local + tokens), false) + spare + self.reserved_blocks();
        if needed > free {
            // A load takes all its blocks at once; those that other prompts still need must stay free.
            return Gate::Stop(WaitReason::KvBlocks { needed });
        }
        let mut live = self.waiting.remove(&key).expect("just seen");
        let allocation = AllocationRequest {
            in_flight: true, // they get their hashes after the load
            ..AllocationRequest::of_prompt(&live.request, local, local + tokens).claiming(&cached)
        };
        assert!(self.kv.allocate(&allocation), "there are enough free blocks");
        if let Some(offloading) = &mut self.offloading {
            offloading.load(live.chunks(), local, tokens);
        }
        self.count_look_up(&live, local);
        if live.scheduling_delay.is_none() {
            live.cpu_cached_tokens = tokens;
        }
        live.computed = local + tokens;
        live.load_began = now;
        self.loading.push(live);
        Gate::Left
    }

    /// Whether the waiting request `key` loads `tokens` tokens behind the `local` ones that the GPU has.
    fn loads(&mut self, key: QueueKey, local: u32, tokens: u32, now: Micros, observer: &mut impl Observer) -> bool {
        let prefills = self.running.iter().filter(|live| live.prefilling());
        let moment = LoadMoment {
            instance: self.config.index,
            now,
            prefill_tokens: prefills.map(|live| u64::from(live.target - live.computed - live.num_new)).sum(),
            waiting: count(self.queue_len()),
            running: count(self.running.len()),
        };
        // Without a CPU tier no policy decides about loads.
        let Some(offloading) = &mut self.offloading else { return true };
        let (loads, decision) = offloading.loads(self.waiting[&key].chunks(), local, tokens, moment);
        if let Some(decision) = decision
            && observer.interests().contains(Interests::SCHEDULING)
        {
            observer.record(&SimEvent::Decision(&Decision::Load(decision)));
        }
        loads
    }

    /// KV blocks that requests still need for their prompts, in the batch and while they wait for loads.
    pub(super) fn reserved_blocks(&self) -> u32 {
        let prefills = self.running.iter().filter(|live| live.prefilling()).chain(&self.loading);
        let missing =
            |live: &PlainRequest| self.kv.grows(&live.prompt(live.computed + live.num_new, live.target), true);
        prefills.map(missing).sum()
    }

    /// Schedules the requests with ended loads, in the order of the loads. Returns why one of them waits.
    pub(super) fn plan_loaded(
        &mut self,
        now: Micros,
        budget: &mut u32,
        prefill: &mut bool,
        observer: &mut impl Observer,
    ) -> Option<WaitReason> {
        let mut i = 0;
        while i < self.loading.len() && *budget > 0 && self.running.len() < self.config.batch_limit() as usize {
            let id = self.loading[i].request.id;
            if !self.is_loaded(id) {
                i += 1;
                // vLLM skips a request that still loads, and schedules those after it.
                continue;
            }
            self.kv.register_loaded(&self.loading[i].request, self.loading[i].computed);
            if self.gate(&self.loading[i]) != AdapterGate::Open {
                self.loading[i].slot_wanted.get_or_insert(now);
                i += 1;
                // All adapter slots are in use: requests with other adapters may pass, as in vLLM.
                continue;
            }
            let live = &self.loading[i];
            let loaded = live.computed;
            // The last token is computed again: something must be.
            let computed = loaded.min(live.target - 1);
            let left = live.target - computed;
            let num_tokens = match self.limits.entering(left, *budget) {
                Ok(num_tokens) => num_tokens,
                // vLLM lets none pass it.
                Err(found) => return Some(found),
            };
            let end = loaded.max(computed + num_tokens);
            let reserves = self.config.reserve_full_prompt;
            let whole = if reserves { self.kv.grows(&live.prompt(loaded, live.target), true) } else { 0 };
            let needed = whole.max(self.kv.grows(&live.prompt(loaded, end), false)) + self.blocks_to_spare();
            if needed > self.kv.free_blocks() {
                // vLLM lets none pass it: those behind must not take the blocks that it waits for.
                return Some(WaitReason::KvBlocks { needed });
            }
            let result = SchedulingResult::Scheduled { cached_tokens: computed, num_tokens };
            if observer.interests().contains(Interests::SCHEDULING) {
                let decision = self.scheduling(live, *budget, now, result);
                observer.record(&SimEvent::Decision(&Decision::Scheduling(decision)));
            }
            let mut live = self.loading.remove(i);
            self.enter_adapter(&mut live, now, observer);
            *budget -= num_tokens;
            self.limits.take(num_tokens);
            *prefill |= computed + 1 < live.target;
            self.enter_loaded(live, computed, num_tokens, now);
        }
        None
    }

    /// Adds a request with an ended load to the batch: of its prompt `computed` tokens are there, and it computes `num_tokens`.
    fn enter_loaded(&mut self, mut live: PlainRequest, computed: u32, num_tokens: u32, now: Micros) {
        self.kv.hash_loaded(&live.request, live.computed, self.config.block_size);
        let end = live.computed.max(computed + num_tokens);
        let allocation = AllocationRequest::of_prompt(&live.request, live.computed, end);
        assert!(self.kv.allocate(&allocation), "there are enough free blocks");
        self.counters.waited(live.queued_at, now);
        if self.reads_kv(&live) {
            self.transferred.iter_mut().for_each(|transferred| transferred.enters(live.request.id));
        } else {
            if let Some(offloading) = &mut self.offloading {
                offloading.enters(live.request.id);
            }
            if live.scheduling_delay.is_none() {
                live.cached_tokens = computed;
            }
            live.kv_load_wait += now - live.load_began;
        }
        live.scheduling_delay = Some(now - live.request.arrival + self.config.latency.scheduling_time());
        live.computed = computed;
        live.num_new = num_tokens;
        live.context = computed;
        self.running.push(live);
    }

    /// Notices the transfers that have ended by `now`, before a step.
    pub(super) fn notice_transfers(&mut self, now: Micros) {
        self.notice_reads(now);
        let Some(offloading) = &mut self.offloading else { return };
        offloading.notice(now, self.counters.steps);
        for id in offloading.take_released() {
            self.kv.release(id);
        }
    }

    /// Offers the chunks of the step that starts at `now`, and starts its loads. Returns how long the step waits for stores.
    pub(super) fn start_transfers(&mut self, now: Micros) -> Micros {
        let Some(offloading) = &mut self.offloading else { return Micros::ZERO };
        for live in self.running.iter().filter(|live| live.num_new > 0) {
            // With asynchronous scheduling, the token itself is still being generated.
            let known = live.num_new - u32::from(self.config.async_scheduling && !live.prefilling());
            offloading.offer(live.chunks(), live.computed + known, live.request.input_tokens);
        }
        offloading.flush(self.kv.take_flush());
        offloading.start_loads(now)
    }

    /// A step has ended at `end`.
    pub(super) fn end_step_of_transfers(&mut self, end: Micros) {
        let Some(offloading) = &mut self.offloading else { return };
        offloading.end_step(end, self.counters.steps);
        if self.step_at.is_none() {
            offloading.forget_ended(u64::MAX);
            self.wake_to_release();
        }
    }

    /// Without requests: wakes at the end of the next load of a request that has ended, to release its blocks.
    pub(super) fn wake_to_release(&mut self) {
        // Without abandoned loads an idle instance has no KV blocks to release.
        let Some(offloading) = self.offloading.as_ref().filter(|offloading| offloading.has_abandoned()) else { return };
        self.step_at = offloading.next_end();
    }

    /// If the batch is empty and transfers are in progress: waits for the end of the next one, instead of a step.
    pub(super) fn waits_for_transfers(&mut self, now: Micros) -> bool {
        let read = self.awaited_read(now);
        let transfer = self.offloading.as_mut().and_then(|offloading| {
            offloading.flush(self.kv.take_flush());
            let stall = offloading.start_loads(now);
            offloading.forget_ended(u64::MAX);
            Some(offloading.next_end()?.max(now + stall))
        });
        let waits = read.is_some() || transfer.is_some();
        if waits {
            self.step_at = read.flatten().into_iter().chain(transfer).min();
        }
        waits
    }

    /// A request that is not waiting for a load ends at `now`.
    pub(super) fn end_offloading(&mut self, id: RequestId, now: Micros) {
        let steps = self.counters.steps;
        if let Some(fence) = self.offloading.as_mut().and_then(|offloading| offloading.end(id, now, steps)) {
            self.kv.fence(id, fence);
        }
    }

    /// Removes and returns request `id` if it waits for a load. Its blocks are released when the load has ended.
    pub(super) fn abandon_load(&mut self, now: Micros, id: RequestId) -> Option<PlainRequest> {
        let index = self.loading.iter().position(|live| live.request.id == id)?;
        let mut live = self.loading.remove(index);
        if self.reads_kv(&live) {
            self.abandon_read(id);
            // A read from another instance is no load from the CPU tier.
            return Some(live);
        }
        live.kv_load_wait += now - live.load_began;
        if self.offloading.as_mut().is_some_and(|offloading| offloading.abandon(id, now, self.counters.steps)) {
            self.kv.release(id);
        }
        Some(live)
    }

    /// See `Offloading::without_transfers`; `None` without a tier.
    #[cfg(test)]
    pub(in crate::instance) fn idle_tier(&mut self) -> Option<(usize, usize, usize)> {
        self.offloading.as_mut().map(|offloading| offloading.without_transfers())
    }
}
