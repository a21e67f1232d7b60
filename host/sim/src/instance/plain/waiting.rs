//! The waiting queue in the plain engine: which requests enter the batch.

use std::ops::Bound;

use super::{Plain, PlainRequest, allocate};
use crate::adapters::AdapterGate;
use crate::instance::gates::Gate;
use crate::instance::policy::QueueKey;
use crate::kv::hit::CachedPrefix;
use crate::numbers::count;
use crate::observer::{Interests, Observer, SimEvent};
use crate::outcome::{Decision, SchedulingDecision, SchedulingResult, WaitReason};
use crate::units::Micros;

impl Plain {
    /// Schedules new requests, from the head of the queue on, up to the first that a gate stops; those that a gate skips wait alone. Returns
    /// whether one of them has more than its last token to compute.
    pub(super) fn plan_waiting(&mut self, now: Micros, mut budget: u32, observer: &mut impl Observer) -> bool {
        let mut prefill = false;
        let mut wait_reason = self.plan_loaded(now, &mut budget, &mut prefill, observer);
        let is_blocked = wait_reason.is_some();
        // The last request that was passed over.
        let mut after: Option<QueueKey> = None;
        while !is_blocked && budget > 0 && self.running.len() < self.config.batch_limit() as usize {
            let Some(key) = self.next_waiting(after) else { break };
            let gate = self.gates(key, now, observer).then(|| self.enter(key, &mut budget, now, observer));
            match gate {
                Gate::Open => {
                    prefill |= self.running.last().is_some_and(|live| live.computed + 1 < live.target);
                    if after.is_none() {
                        self.reported_waiting = None;
                    }
                }
                Gate::Left => {}
                Gate::Skip(found) => {
                    wait_reason.get_or_insert(found);
                    after = Some(key);
                }
                Gate::Stop(found) => {
                    wait_reason.get_or_insert(found);
                    break; // what it waits for must not go to those behind it
                }
            }
        }
        if observer.interests().contains(Interests::SCHEDULING) {
            let full = if budget == 0 { WaitReason::TokenBudget } else { WaitReason::BatchFull };
            self.report_waiting(wait_reason.unwrap_or(full), budget, now, observer);
        }
        prefill
    }

    /// The next waiting request behind `after`.
    pub(super) fn next_waiting(&self, after: Option<QueueKey>) -> Option<QueueKey> {
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.waiting.range((behind, Bound::Unbounded)).next().map(|(&key, _)| key)
    }

    /// The gates of all features for the waiting request `key`: its adapter, BLIS's storage, then reads and the CPU tier, which may begin a load.
    pub(super) fn gates(&mut self, key: QueueKey, now: Micros, observer: &mut impl Observer) -> Gate {
        let gate = self.gate(&self.waiting[&key]);
        if gate != AdapterGate::Open {
            self.waiting.get_mut(&key).expect("just found").slot_wanted.get_or_insert(now);
        }
        Gate::from(gate).then(|| self.storage_gate(key)).then(|| self.admit_through_tier(key, now, observer))
    }

    /// BLIS's storage tiers: requests with a transfer are passed over.
    pub(super) fn storage_gate(&self, key: QueueKey) -> Gate {
        let id = self.waiting[&key].request.id;
        let awaits = self.tiers.as_ref().is_some_and(|tiers| tiers.awaits(id));
        if awaits { Gate::Skip(WaitReason::KvTransfer) } else { Gate::Open }
    }

    /// The waiting request `key` enters the batch, if budget and KV blocks are left for it: then the gate is open.
    pub(super) fn enter(&mut self, key: QueueKey, budget: &mut u32, now: Micros, observer: &mut impl Observer) -> Gate {
        if self.waiting[&key].computed > 0 {
            // A decode part with reserved blocks has its prompt, and computes one token.
            return self.admit_prefilled(key, budget, now, observer).map_or_else(Gate::Stop, |()| Gate::Open);
        }
        let live = &self.waiting[&key];
        let (cached, num_tokens) = match self.admission(live, *budget) {
            Ok(admission) => admission,
            // vLLM lets none pass it: those behind must not take what it waits for.
            Err(found) => return Gate::Stop(found),
        };
        let start = cached.tokens(self.config.block_size);
        let request = live.prompt(start, start + num_tokens).claiming(&cached);
        let result = SchedulingResult::Scheduled { cached_tokens: start, num_tokens };
        let decision = self.scheduling(live, *budget, now, result);
        let needed = self.kv.needs(&request, false) + self.blocks_to_spare();
        // BLIS's tiers may have some of the blocks.
        let fits = needed <= self.kv.free_blocks() || self.tiers.is_some();
        if !fits || !allocate(&mut self.kv, &mut self.tiers, &request) {
            // The allocation may have begun a transfer.
            return self.storage_gate(key).then(|| Gate::Stop(WaitReason::KvBlocks { needed }));
        }
        if observer.interests().contains(Interests::SCHEDULING) {
            observer.record(&SimEvent::Decision(&Decision::Scheduling(decision)));
        }
        let mut live = self.waiting.remove(&key).expect("just found");
        self.enter_adapter(&mut live, now, observer);
        self.counters.waited(live.queued_at, now);
        self.count_look_up(&live, start);
        if live.scheduling_delay.is_none() {
            live.cached_tokens = start;
        }
        live.scheduling_delay = Some(now - live.request.arrival + self.config.latency.scheduling_time());
        live.computed = start;
        live.num_new = num_tokens;
        live.context = if self.config.semantics.hit_context_is_zero { 0 } else { start };
        *budget -= num_tokens;
        self.limits.take(num_tokens);
        self.running.push(live);
        Gate::Open
    }

    /// Counts the tokens of `live`, which gets its blocks and found `cached` tokens.
    pub(super) fn count_look_up(&mut self, live: &PlainRequest, cached: u32) {
        if self.config.enable_prefix_caching && !self.config.semantics.hit_rate_of_blocks {
            self.counters.prefix_cache.admit(live.target, cached, live.preemptions > 0);
        }
    }

    /// Reports why the head of the queue waits, unless that was reported before.
    pub(super) fn report_waiting(
        &mut self,
        wait_reason: WaitReason,
        budget: u32,
        now: Micros,
        observer: &mut impl Observer,
    ) {
        let Some((_, head)) = self.waiting.first_key_value() else { return };
        if self.reported_waiting != Some(head.request.id) {
            observer.record(&SimEvent::Decision(&Decision::Scheduling(self.scheduling(
                head,
                budget,
                now,
                SchedulingResult::Waits(wait_reason),
            ))));
            self.reported_waiting = Some(head.request.id);
        }
    }

    /// The record of a scheduling decision about `head`, the head of the queue.
    pub(super) fn scheduling(
        &self,
        head: &PlainRequest,
        token_budget: u32,
        now: Micros,
        result: SchedulingResult,
    ) -> SchedulingDecision {
        SchedulingDecision {
            instance: self.config.index,
            now,
            request: head.request.id,
            priority: head.request.priority,
            waiting: count(self.queue_len()),
            running: count(self.running.len()),
            free_kv_blocks: self.kv.free_blocks(),
            token_budget,
            waited: now - head.queued_at,
            generated_tokens: head.generated,
            preemptions: head.preemptions,
            result,
        }
    }

    /// KV blocks that must stay free when a request enters the batch.
    pub(super) fn blocks_to_spare(&self) -> u32 {
        self.limits.spare_blocks(self.running.len())
    }

    /// The cached blocks and the number of tokens with which `live` would be scheduled, or the reason why it waits.
    pub(super) fn admission(&self, live: &PlainRequest, budget: u32) -> Result<(CachedPrefix, u32), WaitReason> {
        // vLLM never takes the last token from the cache: something must be computed.
        let findable = if self.config.semantics.full_hit_is_free { live.target } else { live.target.saturating_sub(1) };
        let cached = self.kv.cached_prefix(&live.request, findable);
        let start = cached.tokens(self.config.block_size);
        let num_tokens = self.limits.entering(live.target - start, budget)?;
        let chunk = live.prompt(start, start + num_tokens).claiming(&cached);
        let num_tokens = self.kv.cut_chunk(&chunk, live.target, self.limits.most_tokens);
        if num_tokens == 0 && start < live.target {
            // A chunk must end where a block of states ends, and the step leaves less than that: it waits for the next one.
            return Err(WaitReason::TokenBudget);
        }
        let needed = self.kv.needs(&live.prompt(start, live.target).claiming(&cached), true) + self.blocks_to_spare();
        if self.config.reserve_full_prompt && needed > self.kv.free_blocks() {
            // To admit a prompt only as a whole avoids preemptions (`scheduler_reserve_full_isl`).
            return Err(WaitReason::KvBlocks { needed });
        }
        if self.kv.is_too_new(&cached) {
            // The state that it would copy is written in this very step.
            return Err(WaitReason::KvBlocks { needed });
        }
        Ok((cached, num_tokens))
    }

    pub(super) fn gate(&self, live: &PlainRequest) -> AdapterGate {
        self.adapters.as_ref().map_or(AdapterGate::Open, |slots| slots.gate(live.request.tags.adapter))
    }

    /// The adapter of `live`, which enters the batch, takes its slot.
    pub(super) fn enter_adapter(&mut self, live: &mut PlainRequest, now: Micros, observer: &mut impl Observer) {
        self.counters.slot_wait += live.slot_wanted.take().map_or(Micros::ZERO, |since| now - since);
        if let Some(slots) = &mut self.adapters {
            let again = live.scheduling_delay.is_some();
            let changes = self.config.adapter_changes(now, observer);
            self.adapter_loading += slots.enter(&live.request, now, again, changes);
            self.config.report_adapter_choices(slots, &live.request, now, observer);
        }
    }
}
