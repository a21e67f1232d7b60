//! Planning of one step: the tokens of each running request, the requests scheduled from the queue, and preemptions.

use super::Fast;
use super::arena::RequestKey;
use super::deadlines::NEVER;
use super::live::{NOT_RUNNING, RequestState};
use crate::adapters::AdapterGate;
use crate::instance::cache_events::PublishedStep;
use crate::instance::gates::Gate;
use crate::instance::policy::{JoiningRequest, QueueKey};
use crate::instance::step_limits::StepLimits;
use crate::instance::{NoProgress, Preemption, PreemptionChoice};
use crate::latency::Batch;
use crate::numbers::count;
use crate::observer::{Interests, Observer, SimEvent};
use crate::outcome::{Decision, PreemptionDecision, SchedulingDecision, SchedulingResult, WaitReason};
use crate::policy::{BatchView, Progress, StepState};
use crate::units::Micros;

/// The result of scheduling the running requests.
#[derive(Debug, Default)]
pub(super) struct StepPlan {
    /// Remaining token budget for new requests.
    budget: u32,
    preempted: bool,
    /// Number of requests that the pass skips next, by a fault of vLLM 0.15.
    skips: u32,
    /// Whether a running request computes a part of its prompt, even if it was preempted later.
    pub prefill: bool,
    /// Decoders that get no token in this step.
    pub left_out: Vec<RequestKey>,
}

impl StepPlan {
    pub fn with_budget(budget: u32) -> Self {
        Self { budget, ..Self::default() }
    }
}

impl Fast {
    /// Executes one engine step that is not quiet. The order of operations is `reference/engine.md` §1.5.
    #[inline(always)]
    pub(super) fn step<const TIERED: bool>(
        &mut self,
        now: Micros,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        self.step_at = NEVER;
        if let Some(record) = &mut self.record {
            **record = super::StepRecord { now, ..super::StepRecord::default() };
        }
        if TIERED {
            self.notice_transfers(now);
        }
        if self.running == 0 && self.queued::<TIERED>() == 0 {
            self.wake_to_release();
            return Ok(()); // all requests of this step have timed out
        }
        let follows = self.follows_a_step();
        if TIERED {
            self.kv.begin_step();
            self.load_for_head(now, observer);
        }
        let decoding = self.prefilling.len() < self.running as usize;
        let holds_prefill = self.cadence.is_used() && self.cadence.holds(decoding);
        self.limits = StepLimits::new(&self.config, self.live.len(), holds_prefill);
        if self.config.policies.batching.is_used() {
            let state = self.step_state();
            let budget = self.config.policies.batching.budget(now, state);
            self.limits = budget.map_or(self.limits, |budget| self.limits.within(budget));
        }
        let plan = match self.budget_if_all_fit::<TIERED>() {
            Some((budget, in_order)) if TIERED && self.is_paged() => self.plan_pages_together(budget, in_order),
            Some((budget, _)) => self.plan_together(budget),
            None => self.plan_one_by_one(now, observer)?,
        };
        self.refused = None;
        let mut prefill = plan.prefill;
        if !plan.preempted {
            prefill |= self.plan_waiting::<TIERED>(now, plan.budget, observer);
            if TIERED {
                self.kv.end_plan();
            }
            if !holds_prefill {
                self.cadence.left_waiting(self.waiting.len());
            }
            if self.running == 0 && !(TIERED && self.next_load != NEVER) {
                if TIERED && self.waits_for_transfers(now) {
                    self.publish(PublishedStep { start: now, end: now, follows, computes: false });
                    // Nothing can be computed before a transfer ends: this is no lack of progress.
                    return Ok(());
                }
                self.useless(now)?;
            }
        }
        if TIERED {
            self.kv.end_plan();
        }
        let planned = self.kv.free_blocks();
        let held_pages = self.record.is_some().then(|| self.held_by_group(&plan.left_out));
        if !self.draining.is_empty() {
            self.release_drained(now);
        }
        let batch = self.batch::<TIERED>(&plan);
        if self.cadence.is_used() {
            self.cadence.executed(batch.tokens() > 0, prefill);
        }
        if let Some(held_pages) = held_pages {
            self.record_plan(&plan, planned, held_pages);
        }

        let mut end = now + self.config.latency.step_time(&batch);
        if TIERED {
            end = now + self.with_adapters(end - now, &plan) + self.start_transfers(now, &plan);
        }
        self.execute(now, end, &plan, observer);
        self.publish(PublishedStep { start: now, end, follows, computes: batch.tokens() > 0 });
        self.check_conservation::<TIERED>(&batch);
        self.schedule_next::<TIERED>(end);
        if TIERED {
            self.end_step_of_transfers(end);
        }
        self.trim_log();
        let free = self.kv.free_blocks();
        if let Some(record) = &mut self.record {
            record.free_blocks = free;
            record.end = end;
            if observer.interests().contains(Interests::STEPS) {
                observer.record(&SimEvent::Step { instance: self.config.index, step: record });
            }
        }
        Ok(())
    }

    /// What a batching policy gets before a step.
    fn step_state(&self) -> StepState {
        let prefilling = self.prefilling.iter().map(|&key| &self.live[key]);
        StepState {
            decoding: self.decoders.count,
            prefilling: count(self.prefilling.len()),
            prefill_tokens: prefilling.map(|live| live.target.saturating_sub(live.computed)).sum(),
            waiting: count(self.queue_len()),
            head_tokens: self.waiting.head().map_or(0, |(_, head)| self.live[head].target),
            free_kv_blocks: self.kv.free_blocks(),
            total_kv_blocks: self.config.total_kv_blocks,
            block_size: self.config.block_size,
            max_num_batched_tokens: self.config.max_num_batched_tokens,
            max_num_seqs: self.config.batch_limit(),
        }
    }

    /// Checks the invariants that hold after every step, as far as comparisons can. `batch` is the batch of that step.
    /// The checks cost 0.2 to 0.6 % of the instructions of a run; quiet steps check their KV blocks beforehand.
    #[inline]
    fn check_conservation<const TIERED: bool>(&self, batch: &Batch) {
        let in_batch = self.decoders.count as usize + self.prefilling.len() + self.draining.len();
        assert_eq!(in_batch, self.running as usize, "requests in the batch, by state and in total");
        assert_eq!(
            in_batch + self.queued::<TIERED>(),
            self.live.len(),
            "requests in batch and queue, and live requests"
        );
        assert!(self.running <= self.config.max_num_seqs, "{} requests in the batch", self.running);
        assert!(batch.tokens() <= u64::from(self.config.max_num_batched_tokens), "{} tokens in a step", batch.tokens());
        let (free, total) = (self.kv.free_blocks(), self.kv.total_blocks());
        let is_outside = TIERED && self.holds_outside_batch();
        assert!(
            free <= total && (self.running > 0 || free == total || is_outside),
            "KV blocks: {free} of {total} are free"
        );
    }

    /// The remaining token budget, if every running request gets all that it can use, in whatever order they are
    /// served; otherwise `None`. Sets the chunks of the requests in prefill. With KV groups also returns whether their order
    /// decides about the pages.
    ///
    /// Inlined: it is called for every step that is not quiet.
    #[inline(always)]
    fn budget_if_all_fit<const TIERED: bool>(&mut self) -> Option<(u32, bool)> {
        if (self.limits.holds_prefill || self.limits.has_budget) && !self.prefilling.is_empty() {
            // A prefill that is held back, or shares a budget, gets less than it can use.
            return None;
        }
        let is_paged = TIERED && self.is_paged();
        let mut budget = self.config.max_num_batched_tokens.checked_sub(self.decoders.count)?;
        let starting = self.decoders.starting(self.v);
        let mut blocks = if is_paged { 0 } else { starting };
        let behind_all = self.lone_prefill_is_last();
        for i in 0..self.prefilling.len() {
            let key = self.prefilling[i];
            let mut chunk = self.limits.running(self.live[key].target - self.live[key].computed, u32::MAX);
            if chunk > budget {
                if !behind_all || budget == 0 {
                    // Which request gets less than it can use depends on the order of the batch.
                    return None;
                }
                chunk = budget;
            }
            if is_paged {
                chunk = self.cut_chunk(key, chunk);
            }
            let live = &mut self.live[key];
            live.num_new = chunk;
            live.context = live.computed;
            budget -= chunk;
            if !is_paged || chunk > 0 {
                blocks += self.blocks_for(key, chunk);
            }
        }
        if is_paged {
            return self.find_fitting(blocks).map(|in_order| (budget, in_order));
        }
        // If contents are both hashed and evicted in one step, the order can matter.
        let filling = self.decoders.fills_in(self.v);
        let forgets = self.config.semantics.forget_duplicate_blocks && starting > 0;
        let mixed = !self.prefilling.is_empty() && !behind_all && (filling || forgets);
        let ordered = self.config.enable_prefix_caching && (mixed || filling && forgets);
        (blocks <= self.kv.free_blocks() && !ordered).then_some((budget, false))
    }

    /// Whether a single prefill is behind all decoders: then the budget may cut it.
    #[inline]
    fn lone_prefill_is_last(&self) -> bool {
        matches!(self.prefilling[..], [key] if self.order.last() == Some(key))
    }

    /// Schedules the running requests if budget and blocks suffice for all of them.
    #[inline]
    fn plan_together(&mut self, budget: u32) -> StepPlan {
        self.kv.take(self.decoders.starting(self.v));
        if self.decoders.tracks() {
            self.fill_blocks();
        }
        for i in 0..self.prefilling.len() {
            self.limits.take(self.live[self.prefilling[i]].num_new);
            self.allocate_prefill(self.prefilling[i]);
        }
        StepPlan { budget, prefill: !self.prefilling.is_empty(), ..StepPlan::default() }
    }

    /// Hashes the blocks that decoders fill in this step, in batch order.
    fn fill_blocks(&mut self) {
        let mut filling = self.decoders.take_filling(self.v);
        filling.retain(|&key| self.live.get(key).is_some_and(|live| live.state == RequestState::Decoding));
        filling.sort_unstable_by_key(|&key| self.live[key].seq);
        filling.dedup(); // a request that left and joined again may be in the list twice
        for key in filling {
            self.fill(key);
            let computed = self.live[key].computed_at(self.v);
            // A request that was delayed since fills its blocks in other steps.
            let filled_at = if self.config.async_scheduling { 0 } else { self.config.block_size - 1 };
            if computed % self.config.block_size == filled_at {
                self.track(key, computed + 1, self.v + 1);
            }
        }
    }

    /// Schedules the running requests in batch order: some get fewer tokens than they could use, or are preempted.
    fn plan_one_by_one(&mut self, now: Micros, observer: &mut impl Observer) -> Result<StepPlan, NoProgress> {
        let order: Vec<RequestKey> = self.order.iter().collect();
        let mut plan = StepPlan::with_budget(self.config.max_num_batched_tokens);
        self.begin_one_by_one();
        for i in 0..self.prefilling.len() {
            let key = self.prefilling[i];
            self.live[key].num_new = 0;
        }
        for &key in &order {
            if plan.budget == 0 {
                // The token budget is spent: those behind get no token in this step, as in vLLM.
                break;
            }
            if !self.is_running(key) {
                continue; // preempted in this step
            }
            if plan.skips > 0 {
                plan.skips -= 1;
                // vLLM 0.15 does not move its index back after an idle victim in front: a fault.
                continue;
            }
            let live = &self.live[key];
            let num_tokens = match live.state {
                RequestState::Draining | RequestState::Waiting | RequestState::Loading => 0,
                RequestState::Prefilling => {
                    self.cut_chunk(key, self.limits.running(live.target - live.computed, plan.budget))
                }
                RequestState::Decoding => 1,
            };
            if num_tokens > 0 && !self.obtain(key, num_tokens, &mut plan, now, observer)? {
                if self.config.semantics.self_preemption_continues {
                    // After a request preempts itself vLLM 0.33 schedules those behind it, vLLM 0.15 none.
                    continue;
                }
                break;
            }
        }
        for key in order {
            if let Some(live) = self.live.get_mut(key).filter(|live| live.seq != NOT_RUNNING)
                && !std::mem::take(&mut live.planned)
                && live.state == RequestState::Decoding
            {
                plan.left_out.push(key);
            }
        }
        Ok(plan)
    }

    /// Allocates KV blocks for `num_tokens` tokens of `key`, preempting others as needed. Returns `false` if the
    /// request itself was preempted.
    fn obtain(
        &mut self,
        key: RequestKey,
        num_tokens: u32,
        plan: &mut StepPlan,
        now: Micros,
        observer: &mut impl Observer,
    ) -> Result<bool, NoProgress> {
        let is_paged = self.is_paged();
        if is_paged {
            self.drop_pages(key);
        }
        while self.blocks_for(key, num_tokens) > self.kv.free_blocks() {
            self.useless(now)?;
            let victim = self.victim(key, now);
            if observer.interests().contains(Interests::SCHEDULING) {
                observer
                    .record(&SimEvent::Decision(&Decision::Preemption(self.preemption(victim, key, num_tokens, now))));
            }
            plan.preempted = true;
            let planned = self.planned(victim);
            plan.budget += planned;
            let in_front = self.live[victim].seq < self.live[key].seq;
            plan.skips += u32::from(in_front && planned == 0 && self.config.semantics.idle_victim_skips_next);
            self.preempt(victim, now, observer);
            if victim == key {
                // It was its own victim, and has left the batch: it computes its tokens again later.
                return Ok(false);
            }
        }
        plan.budget -= num_tokens;
        let computed = self.live[key].computed_at(self.v);
        let live = &mut self.live[key];
        if live.state == RequestState::Decoding {
            live.planned = true;
            if is_paged {
                self.allocate_pages(key, 1);
                return Ok(true);
            }
            let starts = computed.is_multiple_of(self.config.block_size);
            if starts && self.config.async_scheduling {
                self.fill(key); // the previous block is known to be complete only now
            }
            self.kv.take(u32::from(starts));
            if !self.config.async_scheduling {
                self.fill(key);
            }
        } else {
            live.num_new = num_tokens;
            live.context = computed;
            plan.prefill = true;
            self.limits.take(num_tokens);
            self.allocate_prefill(key);
        }
        Ok(true)
    }

    /// Tokens that `key` was given earlier in the present pass over the running requests.
    fn planned(&self, key: RequestKey) -> u32 {
        let live = &self.live[key];
        match live.state {
            RequestState::Prefilling => live.num_new,
            RequestState::Decoding => u32::from(live.planned),
            RequestState::Draining | RequestState::Waiting | RequestState::Loading => 0,
        }
    }

    /// New KV blocks for `num_tokens` more tokens of a running request.
    fn blocks_for(&self, key: RequestKey, num_tokens: u32) -> u32 {
        if self.is_paged() {
            return self.pages_for(key, num_tokens);
        }
        let computed = self.live[key].computed_at(self.v);
        (computed + num_tokens).div_ceil(self.config.block_size) - computed.div_ceil(self.config.block_size)
    }

    fn allocate_prefill(&mut self, key: RequestKey) {
        if self.is_paged() {
            return self.allocate_pages(key, self.live[key].num_new);
        }
        let live = &mut self.live[key];
        self.kv.extend(&mut live.holding, &live.keys, live.computed, live.computed + live.num_new);
    }

    /// Hashes the block that the decoding request `key` fills in this step, if other requests may share it.
    fn fill(&mut self, key: RequestKey) {
        let live = &mut self.live[key];
        let computed = live.computed_at(self.v);
        if let Some(index) = self.config.shared_block_filled(live, computed) {
            self.kv.filled(&mut live.holding, &live.keys, index);
        }
    }

    /// Chooses the preemption victim for `requester`.
    fn victim(&mut self, requester: RequestKey, now: Micros) -> RequestKey {
        let last = self.order.last().expect("the request that needs blocks is running");
        match self.config.policies.preemption {
            PreemptionChoice::BuiltIn(Preemption::Fcfs) => last,
            PreemptionChoice::BuiltIn(Preemption::Priority) => self.lowest_priority(last),
            PreemptionChoice::Custom(_) => self.victim_by_view(requester, now),
        }
    }

    /// The request of lowest priority; `last` is the last of the batch.
    fn lowest_priority(&self, last: RequestKey) -> RequestKey {
        let rank = |key: RequestKey| (self.live[key].request.priority, self.live[key].request.arrival);
        let mut victim = last;
        for key in self.order.iter().rev().skip(1) {
            let tied = rank(key) == rank(victim) && !self.config.semantics.preempt_last_of_ties;
            if rank(key) > rank(victim) || tied {
                victim = key;
            }
        }
        victim
    }

    fn victim_by_view(&mut self, requester: RequestKey, now: Micros) -> RequestKey {
        let mut batch = BatchView::new(now, self.config.semantics.preempt_last_of_ties);
        let mut keys = Vec::with_capacity(self.running as usize);
        for key in self.order.iter() {
            let live = &self.live[key];
            let computed_tokens = live.computed_at(self.v);
            let allocated = computed_tokens + self.planned(key);
            let blocks = || allocated.div_ceil(self.config.block_size) - live.holding.skipped;
            let progress = Progress {
                computed_tokens,
                generated_tokens: live.generated_at(self.v),
                kv_blocks: if self.is_paged() { self.held_pages(key) } else { blocks() },
                preemptions: live.preemptions,
            };
            if key == requester {
                batch.requester = keys.len();
            }
            batch.push(&live.request, self.config.classes.priority(live.request.tags.slo_class), progress);
            keys.push(key);
        }
        keys[self.config.victim_by_view(&batch)]
    }

    /// The record of the preemption of `victim` so that `requester` gets blocks for `num_tokens` tokens.
    fn preemption(
        &self,
        victim: RequestKey,
        requester: RequestKey,
        num_tokens: u32,
        now: Micros,
    ) -> PreemptionDecision {
        let live = &self.live[victim];
        PreemptionDecision {
            instance: self.config.index,
            now,
            victim: live.request.id,
            requester: self.live[requester].request.id,
            needed_kv_blocks: self.blocks_for(requester, num_tokens),
            free_kv_blocks: self.kv.free_blocks(),
            running: self.running,
            waiting: count(self.queue_len()),
            computed_tokens: live.computed_at(self.v),
            generated_tokens: live.generated_at(self.v),
            preemptions: live.preemptions,
        }
    }

    /// Preempts `key`: it leaves the batch and joins the front of the queue.
    fn preempt(&mut self, key: RequestKey, now: Micros, observer: &mut impl Observer) {
        self.preemptions += 1;
        self.counters.preemption_time += self.config.latency.preemption_time();
        let allocated = self.live[key].computed_at(self.v) + self.planned(key);
        if let Some(record) = &mut self.record {
            record.preempted.push(self.live[key].request.id);
        }
        self.leave_batch(key, self.live[key].state == RequestState::Draining);
        match self.live[key].state {
            RequestState::Draining => {
                // Its last token was generated: it only leaves earlier.
                let known = self.config.known_tokens(allocated, self.live[key].target);
                self.release_finished(key, allocated, known, now);
                let live = self.live.remove(key).expect("running");
                self.rares.forget(&live);
                self.draining.retain(|&other| other != key);
                // It has completed: unlike other victims it does not join the queue again.
                return;
            }
            RequestState::Decoding => self.leave_decoders(key, now, observer),
            RequestState::Prefilling | RequestState::Waiting | RequestState::Loading => {
                self.prefilling.retain(|&other| other != key);
            }
        }
        if let Some(offloading) = &mut self.offloading {
            offloading.preempted(self.live[key].request.id);
        }
        let live = &mut self.live[key];
        if self.config.semantics.preemption_restarts {
            live.generated = 0;
            self.rares.state(live).saved.clear();
        }
        live.preemptions += 1;
        let furthest = self.rares.furthest_at(live, self.v);
        self.rares.state(live).furthest = furthest;
        live.planned = false;
        live.computed = 0;
        live.num_new = 0;
        let block_size = self.config.block_size;
        let unhashed = block_size == 1 && self.config.semantics.skip_one_token_decode_blocks;
        let known = self.config.known_tokens(allocated, live.target);
        let hashed = if unhashed { known.min(live.target) } else { known / block_size };
        live.target = live.request.input_tokens + live.generated;
        let output_tokens = if self.config.semantics.preemption_restarts { 0 } else { live.request.output_tokens };
        let most = (live.request.input_tokens + output_tokens) / block_size;
        match live.holding.pages.take() {
            None => self.kv.release_for_resume(&mut live.holding, &mut live.keys, allocated, hashed, most),
            Some(number) => self.kv.release_pages_for_resume(number, &live.request, known),
        }
        self.turn_front -= 1;
        let queue_key = self.config.queue_key(&JoiningRequest {
            now,
            request: &live.request,
            content: &live.keys.content,
            generated_tokens: live.generated,
            preemptions: live.preemptions,
            turn: self.turn_front,
        });
        live.state = RequestState::Waiting;
        live.joined_at = now;
        live.rank = queue_key.rank;
        self.queue_changes::<true>(now);
        let left = self.tokens_left(&self.live[key].request, self.live[key].target, self.live[key].generated);
        self.fewest_waiting = if self.queue_len() == 0 { left } else { self.fewest_waiting.min(left) };
        self.waiting.insert(queue_key, key);
    }

    /// Schedules new requests, from the head of the queue on: of those behind the first that cannot be scheduled only if
    /// that one merely lacks a slot for its adapter. Returns whether one of them has more than its last
    /// token to compute.
    fn plan_waiting<const TIERED: bool>(&mut self, now: Micros, mut budget: u32, observer: &mut impl Observer) -> bool {
        let mut prefill = false;
        let reports = observer.interests().contains(Interests::SCHEDULING);
        let mut wait_reason = None;
        if TIERED && !self.loading.is_empty() {
            wait_reason = self.plan_loaded(now, &mut budget, &mut prefill, observer);
        }
        let is_blocked = wait_reason.is_some();
        // The last request that was passed over.
        let mut after: Option<QueueKey> = None;
        while !is_blocked && budget > 0 && self.running < self.config.batch_limit() {
            let next = match &after {
                None => self.waiting.head(),
                Some(after) => self.waiting.behind(after),
            };
            let Some((queue_key, key)) = next else {
                self.remember_head(after.is_some(), budget);
                // What is left in the queue, if anything, waits for adapter slots or transfers.
                break;
            };
            let gate = if TIERED { self.gates(queue_key, key, now, observer) } else { Gate::Open };
            match gate {
                Gate::Open => {}
                Gate::Left => continue, // the next one is the head
                Gate::Skip(found) => {
                    wait_reason.get_or_insert(found);
                    after = Some(queue_key);
                    continue; // those behind it need not wait for what it waits for
                }
                Gate::Stop(found) => {
                    wait_reason.get_or_insert(found);
                    if found == WaitReason::AdapterSlot || self.read_stays_blocked() {
                        self.remember_head(true, budget);
                    }
                    break; // what it waits for must not go to those behind it
                }
            }
            let decision = reports.then(|| self.scheduling(key, budget, now));
            let num_tokens = match self.admit::<TIERED>(key, budget, now) {
                Ok(num_tokens) => num_tokens,
                Err(found) => {
                    wait_reason.get_or_insert(found);
                    if self.refused.is_some() {
                        self.remember_head(after.is_some(), budget);
                    }
                    // vLLM lets none pass it: those behind must not take what it waits for.
                    break;
                }
            };
            if let Some(decision) = decision {
                let result = SchedulingResult::Scheduled { cached_tokens: self.live[key].computed, num_tokens };
                observer.record(&SimEvent::Decision(&Decision::Scheduling(SchedulingDecision { result, ..decision })));
                if after.is_none() {
                    self.reported_waiting = None;
                }
            }
            // A decode part with reserved blocks computes none of its prompt.
            if !TIERED || self.live[key].computed < self.live[key].target {
                self.limits.take(num_tokens);
            }
            prefill |= self.enter_batch::<TIERED>(queue_key, key, num_tokens, now, observer);
            budget -= num_tokens;
        }
        if reports {
            let wait_reason =
                wait_reason.unwrap_or(if budget == 0 { WaitReason::TokenBudget } else { WaitReason::BatchFull });
            self.report_waiting(wait_reason, budget, now, observer);
        }
        prefill
    }

    /// The waiting request `key` enters the batch with `num_tokens` tokens. Returns whether more of its prompt is left.
    #[inline(always)]
    fn enter_batch<const TIERED: bool>(
        &mut self,
        queue_key: QueueKey,
        key: RequestKey,
        num_tokens: u32,
        now: Micros,
        observer: &mut impl Observer,
    ) -> bool {
        if TIERED {
            self.enter_adapter(key, now, observer);
        }
        self.queue_changes::<TIERED>(now);
        self.waiting.remove(&queue_key);
        let live = &mut self.live[key];
        if live.scheduling_delay().is_none() {
            live.cached_tokens = live.computed;
        }
        live.set_scheduling_delay(now - live.request.arrival + self.config.latency.scheduling_time());
        live.num_new = num_tokens;
        // Only a decode part with reserved blocks has computed its whole prompt.
        let is_zero = self.config.semantics.hit_context_is_zero && (!TIERED || live.computed < live.target);
        live.context = if is_zero { 0 } else { live.computed };
        live.state = RequestState::Prefilling;
        live.seq = self.order.join(key);
        live.admitted_v = self.v;
        self.running += 1;
        self.prefilling.push(key);
        live.computed + 1 < live.target
    }

    /// The gates of adapters and of the CPU tier for the waiting request `key`; a load from the tier begins, if there is one.
    #[inline(never)]
    fn gates(&mut self, queue_key: QueueKey, key: RequestKey, now: Micros, observer: &mut impl Observer) -> Gate {
        let gate = self.gate(key);
        if gate != AdapterGate::Open {
            self.rares.state(&mut self.live[key]).slot_wanted.get_or_insert(now);
        }
        Gate::from(gate).then(|| self.admit_through_tier(queue_key, key, now, observer))
    }

    /// No request of the queue can be scheduled while nothing is released. If requests were `passed` over, the head stands for
    /// all of them.
    fn remember_head(&mut self, passed: bool, budget: u32) {
        // With other counts a batching policy may leave it more.
        if passed
            && !self.is_paged() // decoding requests give pages back
            && !self.limits.has_budget
            && let Some((_, head)) = self.waiting.head()
        {
            self.refused = Some((head, budget));
        }
    }

    /// Reports why the head of the queue waits, unless that was reported before.
    fn report_waiting(&mut self, wait_reason: WaitReason, budget: u32, now: Micros, observer: &mut impl Observer) {
        let Some((_, head)) = self.waiting.head() else { return };
        let decision =
            SchedulingDecision { result: SchedulingResult::Waits(wait_reason), ..self.scheduling(head, budget, now) };
        if self.reported_waiting != Some(decision.request) {
            observer.record(&SimEvent::Decision(&Decision::Scheduling(decision)));
            self.reported_waiting = Some(decision.request);
        }
    }

    /// The record of a scheduling decision about `head`, the head of the queue, before its result is known.
    pub(super) fn scheduling(&self, head: RequestKey, token_budget: u32, now: Micros) -> SchedulingDecision {
        let live = &self.live[head];
        SchedulingDecision {
            instance: self.config.index,
            now,
            request: live.request.id,
            priority: live.request.priority,
            waiting: count(self.queue_len()),
            running: self.running,
            free_kv_blocks: self.kv.free_blocks(),
            token_budget,
            waited: now - live.joined_at,
            generated_tokens: live.generated,
            preemptions: live.preemptions,
            result: SchedulingResult::Waits(WaitReason::BatchFull),
        }
    }

    /// Allocates KV blocks, cached and new, for the waiting request `key`, and returns the number of tokens that it
    /// computes. If the request does not fit, nothing changes.
    fn admit<const TIERED: bool>(&mut self, key: RequestKey, budget: u32, now: Micros) -> Result<u32, WaitReason> {
        if TIERED && self.live[key].computed > 0 {
            // A decode part with reserved blocks has its prompt, and computes one token.
            return self.admit_prefilled(key, budget, now);
        }
        if TIERED && self.is_paged() {
            return self.admit_with_pages(key, budget);
        }
        let live = &mut self.live[key];
        // vLLM never takes the last token from the cache: something must be computed.
        let findable = if self.config.semantics.full_hit_is_free { live.target } else { live.target.saturating_sub(1) };
        let hit = self.kv.look_up(&live.keys, findable);
        let start = hit.blocks * self.config.block_size;
        let left = live.target - start;
        // The next step may have no limit that leaves it nothing: the head is not remembered.
        let chunk = self.limits.entering_chunk(left)?;
        let num_tokens = chunk.min(budget);
        let uncut = self.limits.is_uncut(chunk, budget);
        let spare = self.limits.spare_blocks(self.running as usize);
        let blocks = |tokens: u32| tokens.div_ceil(self.config.block_size) - hit.blocks + hit.unheld + spare;
        let free = self.kv.free_blocks();
        let whole = self.config.reserve_full_prompt && blocks(live.target) > free;
        if uncut || whole || blocks(start + num_tokens) > free {
            let stays = hit.blocks == 0 || !self.config.semantics.forget_duplicate_blocks;
            // Of a request with less in the GPU's cache the CPU tier may have more, or it may be deferred: only a prompt that
            // does not fit as a whole does not fit either way, if the look-up does nothing else.
            let tier = self.offloading.as_ref().is_some_and(|tier| !whole || tier.look_ups_have_effects());
            let may_change = self.config.options.adaptive_prefill_threshold || self.limits.has_budget;
            if stays && !tier && !may_change {
                self.refused = Some((key, budget));
            }
            // No part of it is allocated: it waits until KV blocks and budget suffice.
            return Err(match (uncut, whole) {
                (true, _) => WaitReason::UnsplitPrompt { num_tokens: chunk },
                (false, true) => WaitReason::KvBlocks { needed: blocks(live.target) },
                (false, false) => WaitReason::KvBlocks { needed: blocks(start + num_tokens) },
            });
        }
        live.computed = start;
        if num_tokens == 0 {
            live.holding.skipped = hit.blocks; // a free full hit: nothing to allocate, nothing claimed
        } else {
            self.kv.claim_found(&mut live.holding);
            self.kv.extend(&mut live.holding, &live.keys, start, start + num_tokens);
        }
        self.count_look_up(key, start);
        Ok(num_tokens)
    }

    fn release_drained(&mut self, now: Micros) {
        let mut draining = std::mem::take(&mut self.draining);
        for key in draining.drain(..) {
            self.leave_batch(key, true);
            let live = &mut self.live[key];
            debug_assert_eq!(live.seq, NOT_RUNNING);
            // Its last token is processed only now, and with it the block that it filled.
            if let Some(index) = self.config.shared_block_filled(live, live.computed) {
                self.kv.filled(&mut live.holding, &live.keys, index);
            }
            let computed = live.computed;
            if self.is_paged() {
                self.register_computed(key);
            }
            self.release_finished(key, computed, computed, now);
            let live = self.live.remove(key).expect("draining requests are live");
            self.rares.forget(&live);
        }
        self.draining = draining; // to be filled again without an allocation
    }

    /// [`Batch::common_prefix`].
    #[inline]
    pub(super) fn common_prefix(&self) -> u64 {
        if self.running < 2 || !self.reads_common_prefix {
            // One request shares with none, and to count blocks for a model that ignores them takes time.
            return 0;
        }
        let first = self.order.first().expect("requests are running");
        let blocks = self.kv.common_blocks(&self.live[first].holding, self.running);
        u64::from(blocks) * u64::from(self.config.block_size)
    }

    #[inline]
    fn batch<const TIERED: bool>(&self, plan: &StepPlan) -> Batch {
        let (sampled, common_prefix) = (self.decoders.sampled, self.common_prefix());
        let mut batch = Batch { sampled, common_prefix, ..Batch::default() };
        for live in self.prefilling.iter().map(|&key| &self.live[key]).filter(|live| live.num_new > 0) {
            if !TIERED || live.computed < live.target {
                batch.add_prefill(live.num_new, live.context, live.target);
            } else {
                batch.add_decode(live.context); // a decode part with reserved blocks
            }
            batch.sampled.add(self.config.sampling(&live.request));
        }
        batch.decode_requests += u64::from(self.decoders.count) - plan.left_out.len() as u64;
        batch.decode_context += self.decoders.context;
        for &key in &plan.left_out {
            let live = &self.live[key];
            batch.sampled.remove(self.config.sampling(&live.request));
            batch.decode_context -= u64::from(live.computed_at(self.v));
        }
        batch
    }

    fn record_plan(&mut self, plan: &StepPlan, planned: u32, held_pages: Vec<u32>) {
        let Some(mut record) = self.record.take() else { return };
        (record.free_blocks_planned, record.held_pages) = (planned, held_pages);
        (record.waiting, record.running) = (count(self.queue_len()), self.running);
        for key in self.order.iter() {
            let live = &self.live[key];
            let computed = live.computed_at(self.v);
            match live.state {
                RequestState::Prefilling if live.num_new > 0 => {
                    record.scheduled.push((live.request.id, live.num_new, computed));
                }
                RequestState::Decoding if !plan.left_out.contains(&key) => {
                    record.scheduled.push((live.request.id, 1, computed));
                }
                _ => {}
            }
        }
        self.record = Some(record);
    }
}
