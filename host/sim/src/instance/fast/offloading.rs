//! The CPU tier in the fast engine, as `plain/offloading.rs` has it. The end of a transfer is seen when a step is planned that could
//! depend on it; quiet runs of steps end before that.

use super::Fast;
use super::arena::RequestKey;
use super::deadlines::NEVER;
use super::left_blocks::AbandonedLoad;
use super::live::{LiveRequest, RequestState};
use super::plan::StepPlan;
use crate::adapters::AdapterGate;
use crate::instance::StoreFence;
use crate::instance::gates::Gate;
use crate::instance::offloading::{ChunkSource, LoadMoment, TierHit};
use crate::instance::policy::QueueKey;
use crate::numbers::count;
use crate::observer::{Interests, Observer, SimEvent};
use crate::outcome::{Decision, SchedulingDecision, SchedulingResult, WaitReason};
use crate::units::Micros;

impl LiveRequest {
    fn chunks(&self) -> ChunkSource<'_> {
        ChunkSource { id: self.request.id, request: &self.request, content: &self.keys.content }
    }
}

impl Fast {
    /// Number of requests in the waiting queue, those included that wait for a load.
    #[inline]
    pub(super) fn queue_len(&self) -> usize {
        self.queued::<true>()
    }

    /// As [`Self::queue_len`], if it is known whether requests can wait for loads.
    #[inline]
    pub(super) fn queued<const TIERED: bool>(&self) -> usize {
        if TIERED { self.waiting.len() + self.loading.len() } else { self.waiting.len() }
    }

    /// Looks up the waiting request `key` in the tier, and begins its load if there is something to load.
    #[inline]
    pub(super) fn admit_through_tier(
        &mut self,
        queue_key: QueueKey,
        key: RequestKey,
        now: Micros,
        observer: &mut impl Observer,
    ) -> Gate {
        if self.reads_kv(key) {
            match self.begin_read(queue_key, key, now) {
                Gate::Open => {}
                // The CPU tier is asked only if nothing is read from another instance.
                read => return read,
            }
        }
        if self.offloading.is_none() { Gate::Open } else { self.ask_tier(queue_key, key, now, observer) }
    }

    fn ask_tier(&mut self, queue_key: QueueKey, key: RequestKey, now: Micros, observer: &mut impl Observer) -> Gate {
        // Without a CPU tier nothing is loaded.
        let Some(offloading) = &mut self.offloading else { return Gate::Open };
        let live = &mut self.live[key];
        let hit = self.kv.look_up(&live.keys, live.target.saturating_sub(1));
        let block_size = self.config.block_size;
        let local = hit.blocks * block_size;
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
        let live = &self.live[key];
        let spare = self.limits.spare_blocks(self.running as usize);
        let blocks = |tokens: u32| tokens.div_ceil(block_size) - hit.blocks + hit.unheld + spare;
        let (whole, free) = (blocks(live.target), self.kv.free_blocks());
        if self.config.reserve_full_prompt && whole > free {
            // vLLM begins a load only if the whole prompt fits (`scheduler_reserve_full_isl`).
            return Gate::Stop(WaitReason::KvBlocks { needed: whole });
        }
        let needed = blocks(local + tokens) + self.reserved_blocks();
        if needed > free {
            // A load takes all its blocks at once; those that other prompts still need must stay free.
            return Gate::Stop(WaitReason::KvBlocks { needed });
        }
        let live = &mut self.live[key];
        if let Some(offloading) = &mut self.offloading {
            offloading.load(live.chunks(), local, tokens);
        }
        self.kv.claim_found(&mut live.holding);
        self.kv.take(tokens / block_size);
        live.computed = local + tokens;
        live.state = RequestState::Loading;
        let is_first = live.scheduling_delay().is_none();
        let rare = self.rares.state(live);
        if is_first {
            rare.cpu_cached_tokens = tokens;
        }
        rare.load_began = now;
        self.waiting.remove(&queue_key);
        self.count_look_up(key, local);
        self.loading.push(key);
        Gate::Left
    }

    /// Whether the waiting request `key` loads `tokens` tokens behind the `local` ones that the GPU has.
    fn loads(&mut self, key: RequestKey, local: u32, tokens: u32, now: Micros, observer: &mut impl Observer) -> bool {
        let prefills = self.prefilling.iter().map(|&key| &self.live[key]);
        let moment = LoadMoment {
            instance: self.config.index,
            now,
            prefill_tokens: prefills.map(|live| u64::from(live.target - live.computed - live.num_new)).sum(),
            waiting: count(self.queue_len()),
            running: self.running,
        };
        // Without a CPU tier no policy decides about loads.
        let Some(offloading) = &mut self.offloading else { return true };
        let (loads, decision) = offloading.loads(self.live[key].chunks(), local, tokens, moment);
        if let Some(decision) = decision
            && observer.interests().contains(Interests::SCHEDULING)
        {
            observer.record(&SimEvent::Decision(&Decision::Load(decision)));
        }
        loads
    }

    /// KV blocks that requests still need for their prompts, in the batch and while they wait for loads.
    pub(super) fn reserved_blocks(&self) -> u32 {
        if self.is_paged() {
            return self.reserved_pages();
        }
        let missing = |&key: &RequestKey| {
            let live = &self.live[key];
            let held = (live.computed + live.num_new).div_ceil(self.config.block_size);
            live.target.div_ceil(self.config.block_size).saturating_sub(held)
        };
        self.prefilling.iter().chain(&self.loading).map(missing).sum()
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
        while i < self.loading.len() && *budget > 0 && self.running < self.config.batch_limit() {
            let key = self.loading[i];
            if !self.is_loaded(key) {
                i += 1;
                // vLLM skips a request that still loads, and schedules those after it.
                continue;
            }
            if self.is_paged() {
                self.register_computed(key);
            }
            if self.gate(key) != AdapterGate::Open {
                self.rares.state(&mut self.live[key]).slot_wanted.get_or_insert(now);
                i += 1;
                // All adapter slots are in use: requests with other adapters may pass, as in vLLM.
                continue;
            }
            let live = &self.live[key];
            let (loaded, target) = (live.computed, live.target);
            // The last token is computed again: something must be.
            let computed = loaded.min(target - 1);
            let left = target - computed;
            let num_tokens = match self.limits.entering(left, *budget) {
                Ok(num_tokens) => num_tokens,
                // vLLM lets none pass it.
                Err(found) => return Some(found),
            };
            let spare = self.limits.spare_blocks(self.running as usize);
            let end = loaded.max(computed + num_tokens);
            let reserves = self.config.reserve_full_prompt;
            let needed = if self.is_paged() {
                let whole = if reserves { self.pages_for_loaded(key, loaded, target, true) } else { 0 };
                whole.max(self.pages_for_loaded(key, loaded, end, false))
            } else {
                let up_to = if reserves { target } else { end };
                up_to.div_ceil(self.config.block_size) - loaded.div_ceil(self.config.block_size)
            } + spare;
            if needed > self.kv.free_blocks() {
                // vLLM lets none pass it: those behind must not take the blocks that it waits for.
                return Some(WaitReason::KvBlocks { needed });
            }
            if observer.interests().contains(Interests::SCHEDULING) {
                let result = SchedulingResult::Scheduled { cached_tokens: computed, num_tokens };
                let decision = SchedulingDecision { result, ..self.scheduling(key, *budget, now) };
                observer.record(&SimEvent::Decision(&Decision::Scheduling(decision)));
            }
            self.enter_adapter(key, now, observer);
            self.queue_changes::<true>(now);
            self.loading.remove(i);
            *budget -= num_tokens;
            self.limits.take(num_tokens);
            *prefill |= computed + 1 < target;
            self.enter_loaded(key, computed, num_tokens, now);
        }
        None
    }

    fn is_loaded(&self, key: RequestKey) -> bool {
        self.is_read(key)
            || self.offloading.as_ref().is_some_and(|offloading| offloading.is_loaded(self.live[key].request.id))
    }

    /// Adds a request with an ended load to the batch: of its prompt `computed` tokens are there, and it computes `num_tokens`.
    fn enter_loaded(&mut self, key: RequestKey, computed: u32, num_tokens: u32, now: Micros) {
        let reads = self.reads_kv(key);
        let loaded = self.live[key].computed;
        let end = loaded.max(computed + num_tokens);
        if self.is_paged() {
            self.enter_loaded_pages(key, loaded, end);
        }
        let live = &mut self.live[key];
        if live.holding.pages.is_none() {
            self.kv.hash_loaded(&mut live.holding, &live.keys, loaded / self.config.block_size);
            self.kv.extend(&mut live.holding, &live.keys, loaded, end);
        }
        if reads {
            self.transferred.iter_mut().for_each(|transferred| transferred.enters(live.request.id));
        } else {
            if let Some(offloading) = &mut self.offloading {
                offloading.enters(live.request.id);
            }
            let rare = self.rares.state(live);
            rare.kv_load_wait += now - rare.load_began;
            if live.scheduling_delay().is_none() {
                live.cached_tokens = computed;
            }
        }
        live.set_scheduling_delay(now - live.request.arrival + self.config.latency.scheduling_time());
        live.computed = computed;
        live.num_new = num_tokens;
        live.context = computed;
        live.state = RequestState::Prefilling;
        live.seq = self.order.join(key);
        live.admitted_v = self.v;
        self.running += 1;
        self.prefilling.push(key);
    }

    /// Notices the transfers that have ended by `now`, before a step.
    pub(super) fn notice_transfers(&mut self, now: Micros) {
        self.notice_reads(now);
        let Some(offloading) = &mut self.offloading else { return };
        offloading.notice(now, self.v);
        let released = offloading.take_released();
        if !offloading.has_fences() {
            self.kv.forget_fences();
        }
        for id in released {
            let index = self.abandoned.iter().position(|load| load.id == id).expect("it was abandoned");
            let AbandonedLoad { mut holding, tokens, .. } = self.abandoned.remove(index);
            self.kv.release(&mut holding, tokens, 0);
            self.refused = None;
        }
    }

    /// Offers the chunks of the step that starts at `now`, and starts its loads. Returns how long the step waits for stores.
    pub(super) fn start_transfers(&mut self, now: Micros, plan: &StepPlan) -> Micros {
        let Some(offloading) = &mut self.offloading else { return Micros::ZERO };
        let also_output = offloading.is_offered_output();
        let mut offer = |live: &LiveRequest, computed: u32| {
            offloading.offer(live.chunks(), computed, live.request.input_tokens);
        };
        if also_output {
            for key in self.order.iter() {
                let live = &self.live[key];
                match live.state {
                    RequestState::Prefilling if live.num_new > 0 => offer(live, live.computed + live.num_new),
                    RequestState::Decoding if !plan.left_out.contains(&key) => {
                        offer(live, live.computed_at(self.v) + u32::from(!self.config.async_scheduling));
                    }
                    _ => {}
                }
            }
        } else {
            for live in self.prefilling.iter().map(|&key| &self.live[key]).filter(|live| live.num_new > 0) {
                offer(live, live.computed + live.num_new);
            }
        }
        // Without a CPU tier no step waits for stores.
        let Some(offloading) = &mut self.offloading else { return Micros::ZERO };
        offloading.flush(self.kv.take_flush());
        offloading.start_loads(now)
    }

    /// A step has ended at `end`.
    pub(super) fn end_step_of_transfers(&mut self, end: Micros) {
        let Some(offloading) = &mut self.offloading else { return };
        offloading.end_step(end, self.v);
        self.quiet_end_of_transfers();
    }

    /// A step has ended that had no transfers of its own.
    pub(super) fn quiet_end_of_transfers(&mut self) {
        // If there is a next step, it notices what has ended.
        let Some(offloading) = self.offloading.as_mut().filter(|_| self.step_at == NEVER) else { return };
        offloading.forget_ended(u64::MAX);
        self.wake_to_release();
    }

    /// Without requests: wakes at the end of the next load of a request that has ended, to release its blocks.
    pub(super) fn wake_to_release(&mut self) {
        if let Some(offloading) = self.offloading.as_ref().filter(|offloading| offloading.has_abandoned()) {
            self.step_at = offloading.next_end().unwrap_or(NEVER);
        }
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
        let next = read.into_iter().chain(transfer).min();
        next.into_iter().for_each(|at| self.step_at = at);
        next.is_some()
    }

    /// A request ends at `now` that is not waiting for a load. Returns its blocks that are still being stored.
    pub(super) fn end_offloading(&mut self, key: RequestKey, now: Micros) -> Option<StoreFence> {
        self.offloading.as_mut()?.end(self.live[key].request.id, now, self.v)
    }

    /// [`Self::release`] with a CPU tier.
    #[inline(never)]
    pub(super) fn release_stored(&mut self, key: RequestKey, tokens: u32, known: u32, now: Micros) {
        let fence = self.end_offloading(key, now);
        let holding = &mut self.live[key].holding;
        match fence {
            None => self.kv.release(holding, tokens, known),
            Some(fence) => self.kv.release_fenced(holding, tokens, known, fence),
        }
    }

    /// The request `key` ends, which waits for a load. Its blocks are released when the load has ended.
    pub(super) fn abandon_load(&mut self, key: RequestKey, now: Micros) {
        if self.reads_kv(key) {
            // A read from another instance is no load from the CPU tier.
            return self.abandon_read(key);
        }
        let live = &mut self.live[key];
        let rare = self.rares.state(live);
        rare.kv_load_wait += now - rare.load_began;
        // Without a CPU tier only reads keep requests outside the batch.
        let Some(offloading) = &mut self.offloading else { return };
        let (id, tokens) = (live.request.id, live.computed);
        let mut holding = std::mem::take(&mut live.holding);
        if offloading.abandon(id, now, self.v) {
            self.kv.release(&mut holding, tokens, 0);
            self.refused = None;
        } else {
            self.abandoned.push(AbandonedLoad { id, holding, tokens });
        }
    }

    /// The end of the next transfer that requests wait for; [`NEVER`] if there is none.
    #[inline]
    pub(super) fn next_transfer(&self) -> Micros {
        let awaited = self.offloading.as_ref().filter(|offloading| offloading.is_awaited());
        awaited.and_then(|offloading| offloading.next_change()).unwrap_or(NEVER)
    }

    /// Whether transfers allow a quiet run of steps: none starts or offers a store, none must wait for one, and which of the waiting
    /// requests could be scheduled does not change before [`Self::next_transfer`].
    pub(super) fn transfers_are_quiet(&self) -> bool {
        // Without a CPU tier only reads from other instances change what can be scheduled.
        let Some(offloading) = &self.offloading else { return self.reads_are_quiet() };
        let is_full = self.running >= self.config.batch_limit() || self.running == self.config.max_num_batched_tokens;
        let queue_rests = (self.waiting.is_empty() || offloading.is_still() && !offloading.decides_loads())
            && !self.loading.iter().any(|&key| self.is_loaded(key));
        let offers = offloading.stores_output() || offloading.repeats_offers();
        !offers && !offloading.has_fences() && (is_full || queue_rests) && self.reads_are_quiet()
    }

    /// See `Offloading::without_transfers`; `None` without a tier.
    #[cfg(test)]
    pub(in crate::instance) fn idle_tier(&mut self) -> Option<(usize, usize, usize)> {
        self.offloading.as_mut().map(|offloading| offloading.without_transfers())
    }
}
