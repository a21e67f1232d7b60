//! The engine as the specification describes it: every running request is updated at every step.
//!
//! It is kept simple rather than fast. [`Fast`](super::Fast) is tested against it.

mod adapters;
mod completion;
mod instance;
mod offloading;
mod prefilled;
mod waiting;

use std::collections::{BTreeMap, VecDeque};

use super::cache_events::{CacheEvents, PublishedStep};
use super::cadence::PrefillCadence;
use super::config::InstanceConfig;
use super::offloading::Offloading;
use super::policy::{JoiningRequest, QueueKey};
use super::prefilled::TransferredKv;
use super::record::StepRecord;
use super::step_limits::StepLimits;
use super::watchdog::Watchdog;
use super::{Instance, NoProgress};
use crate::adapters::{AdapterSlots, lengthened};
use crate::ids::{InstanceIndex, RequestId};
use crate::kv::cache::PlainCache;
use crate::kv::plain::AllocationRequest;
use crate::kv::tiers::LowerTiers;
use crate::latency::Batch;
use crate::numbers::count;
use crate::observer::{Interests, Observer, SimEvent};
use crate::outcome::{Counters, Decision, FirstToken, Outcome, PreemptionDecision, Rejection, Status};
use crate::policy::{BatchView, Progress, StepState};
use crate::request::{Request, Stage};
use crate::units::Micros;

/// One request between its arrival and its end.
#[derive(Clone, Debug)]
struct PlainRequest {
    request: Request,
    /// Tokens for which KV is computed.
    computed: u32,
    /// Tokens to compute before the next token is generated: the prompt, and the tokens generated before a preemption.
    target: u32,
    generated: u32,
    /// Maximum number of tokens that it had computed before a preemption.
    furthest: u32,
    /// Whether its prompt is complete: every further token is an output token.
    decoding: bool,
    /// Tokens computed in the present step.
    num_new: u32,
    /// Of the computed tokens, those of a step that has not finished when the present one is planned.
    in_flight: u32,
    /// Context length for the latency model in the present step.
    context: u32,
    ttft: Option<Micros>,
    /// Engine time at which the latest token was generated.
    last_token: Micros,
    itl: Vec<Micros>,
    scheduling_delay: Option<Micros>,
    cached_tokens: u32,
    /// Of these, the tokens that the CPU tier had.
    cpu_cached_tokens: u32,
    /// Time of its loads from the CPU tier, and the beginning of the present one.
    kv_load_wait: Micros,
    load_began: Micros,
    preemptions: u32,
    /// Time at which it last joined the waiting queue.
    queued_at: Micros,
    /// Time at which it first waited for a slot of its adapter, if it does.
    slot_wanted: Option<Micros>,
    /// Whether it has finished, but stays in the batch for one more plan (asynchronous scheduling).
    draining: bool,
}

impl PlainRequest {
    fn new(request: Request) -> Self {
        Self {
            computed: 0,
            target: request.input_tokens,
            generated: 0,
            furthest: 0,
            decoding: false,
            num_new: 0,
            in_flight: 0,
            context: 0,
            ttft: None,
            last_token: Micros::ZERO,
            itl: Vec::new(),
            scheduling_delay: None,
            cached_tokens: 0,
            cpu_cached_tokens: 0,
            kv_load_wait: Micros::ZERO,
            load_began: Micros::ZERO,
            preemptions: 0,
            queued_at: Micros::ZERO,
            slot_wanted: None,
            draining: false,
            request,
        }
    }

    fn prefilling(&self) -> bool {
        self.computed < self.target
    }

    /// KV for the tokens `start..end`.
    fn prompt(&self, start: u32, end: u32) -> AllocationRequest<'_> {
        let prefill_end = self.request.input_tokens.max(self.target.saturating_sub(1));
        AllocationRequest { prefill_end, ..AllocationRequest::of_prompt(&self.request, start, end) }
    }

    fn outcome(&self, instance: InstanceIndex, status: Status) -> Outcome {
        Outcome {
            instance: Some(instance),
            generated_tokens: self.generated,
            ttft: self.ttft,
            scheduling_delay: self.scheduling_delay,
            preemptions: self.preemptions,
            cached_tokens: self.cached_tokens,
            cpu_cached_tokens: self.cpu_cached_tokens,
            kv_load_wait: self.kv_load_wait,
            ..Outcome::new(&self.request, status)
        }
    }
}

impl Counters {
    /// Counts the time that one request was in the waiting queue, from `since` to `now`.
    fn waited(&mut self, since: Micros, now: Micros) {
        self.queue_time = self.queue_time.saturating_add(now.saturating_sub(since));
    }
}

/// The reference engine, which updates every running request at every step.
#[derive(Clone, Debug)]
pub struct Plain {
    config: InstanceConfig,
    kv: PlainCache,
    /// What the router has still to learn of the cache; `None` if it learns nothing, or all at once.
    cache_events: Option<Box<CacheEvents>>,
    /// The tiers below the GPU, if it has any.
    tiers: Option<Box<LowerTiers>>,
    /// Requests between arrival and queue, with the time of queueing, in that order.
    arriving: VecDeque<(Micros, PlainRequest)>,
    waiting: BTreeMap<QueueKey, PlainRequest>,
    /// The CPU tier, if there is one.
    offloading: Option<Offloading>,
    /// Requests that wait for their load from the CPU tier or, after it, for the batch, in the order of the loads.
    loading: Vec<PlainRequest>,
    /// KV blocks that move between prefill and decode instances, if a request has such a stage.
    transferred: Option<Box<TransferredKv<()>>>,
    /// The running batch in the order of admission.
    running: Vec<PlainRequest>,
    /// Number of requests in queue and batch, counted when they join and leave.
    present: usize,
    deadlines: BTreeMap<(Micros, i64), RequestId>,
    step_at: Option<Micros>,
    turn_back: i64,
    turn_front: i64,
    watchdog: Watchdog,
    cadence: PrefillCadence,
    /// Limits of the present step.
    limits: StepLimits,
    /// Number of requests that the pass over the running ones skips next, by a fault of vLLM 0.15.
    skips: usize,
    /// The head of the queue, if its waiting was reported already.
    reported_waiting: Option<RequestId>,
    /// End of the last step in which a request finished.
    left_at: Micros,
    /// Time at which the requests join the queue that were postponed last, because a step was planned without them.
    postponed_until: Option<Micros>,
    /// The LoRA adapters, if there are any.
    adapters: Option<Box<AdapterSlots>>,
    /// Time that the present step spends on loading adapters.
    adapter_loading: Micros,
    counters: Counters,
    /// Record of the last step, for tests that compare step by step.
    pub last_step: StepRecord,
}

impl Plain {
    /// An idle instance with this configuration.
    #[must_use]
    pub fn new(mut config: InstanceConfig) -> Self {
        let adapters = config.adapter_slots();
        let kv = config.plain_cache();
        Self {
            kv,
            cache_events: None,
            tiers: config.blis_tiers.as_deref().map(|tiers| Box::new(LowerTiers::new(tiers))),
            arriving: VecDeque::new(),
            waiting: BTreeMap::new(),
            offloading: config.offload.map(|offload| {
                Offloading::new(offload, std::mem::take(&mut config.policies.kv_cache), config.block_size, config.index)
            }),
            loading: Vec::new(),
            transferred: None,
            running: Vec::new(),
            present: 0,
            deadlines: BTreeMap::new(),
            step_at: None,
            turn_back: 0,
            turn_front: 0,
            watchdog: Watchdog::default(),
            cadence: PrefillCadence::new(config.options.prefill_schedule_interval),
            limits: StepLimits::new(&config, 0, false),
            skips: 0,
            reported_waiting: None,
            left_at: Micros::ZERO,
            postponed_until: None,
            adapters,
            adapter_loading: Micros::ZERO,
            counters: Counters::default(),
            last_step: StepRecord::default(),
            config,
        }
    }

    /// Executes one engine step. The order of operations is `reference/engine.md` §1.5.
    fn step(&mut self, now: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
        self.step_at = None;
        self.last_step = StepRecord { now, ..StepRecord::default() };
        self.notice_transfers(now);
        if self.running.is_empty() && self.queue_len() == 0 {
            self.wake_to_release();
            return Ok(()); // all requests of this step have timed out
        }
        let follows = self.follows_a_step();
        self.kv.begin_step();
        self.tiers.iter_mut().for_each(|tiers| tiers.start_step(now));
        self.load_for_head(now, observer);
        let holds_prefill = self.cadence.holds(self.running.iter().any(|live| !live.prefilling()));
        self.limits = StepLimits::new(&self.config, self.running.len() + self.queue_len(), holds_prefill);
        if self.config.policies.batching.is_used() {
            let state = self.step_state();
            let budget = self.config.policies.batching.budget(now, state);
            self.limits = budget.map_or(self.limits, |budget| self.limits.within(budget));
        }
        let (budget, mut prefill) = self.plan_running(now, observer)?;
        self.tiers.iter_mut().for_each(|tiers| tiers.poll());
        if self.last_step.preempted.is_empty() {
            prefill |= self.plan_waiting(now, budget, observer);
            self.kv.end_plan();
            if !holds_prefill {
                self.cadence.left_waiting(self.waiting.len());
            }
            let awaits_storage = self.tiers.as_ref().is_some_and(|tiers| tiers.any_awaits());
            if self.running.is_empty() && !awaits_storage && self.adapter_loaded_at().is_none() {
                if self.waits_for_transfers(now) {
                    self.publish(PublishedStep { start: now, end: now, follows, computes: false });
                    // Nothing can be computed before a transfer ends: this is no lack of progress.
                    return Ok(());
                }
                self.useless(now)?;
            }
        }
        self.kv.end_plan();
        self.last_step.free_blocks_planned = self.kv.free_blocks();
        self.last_step.held_pages = self.kv.held_by_group();
        self.release_drained(now);
        self.counters.steps += 1;
        self.cadence.executed(self.running.iter().any(|live| live.num_new > 0), prefill);

        self.last_step.waiting = count(self.queue_len());
        self.last_step.running = count(self.running.len());
        let batch = self.batch();
        let adapters = self.adapters_of_step();
        self.counters.adapter_uses += u64::from(adapters.distinct);
        let step_time = lengthened(self.config.latency.step_time(&batch), adapters.factor());
        let reloads = self.tiers.as_mut().map_or(Micros::ZERO, |tiers| tiers.take_delay());
        let more = self.start_transfers(now) + std::mem::take(&mut self.adapter_loading);
        let end = now.saturating_add(step_time).saturating_add(more).saturating_add(reloads);
        self.execute(now, end, observer);
        if let (Some(tiers), Some(kv)) = (&mut self.tiers, self.kv.blocks_mut()) {
            tiers.copy(kv, self.running.iter().map(|live| &live.request));
        }
        self.complete(end, observer);
        self.publish(PublishedStep { start: now, end, follows, computes: batch.tokens() > 0 });
        self.last_step.free_blocks = self.kv.free_blocks();
        self.last_step.end = end;
        self.check_conservation(&batch);
        if observer.interests().contains(Interests::STEPS) {
            observer.record(&SimEvent::Step { instance: self.config.index, step: &self.last_step });
        }
        let waits = self.queue_len() > 0 && self.adapter_loaded_at().is_none();
        self.step_at = (!self.running.is_empty() || waits).then_some(end);
        self.end_step_of_transfers(end);
        Ok(())
    }

    /// Whether the step that is about to be planned was scheduled with the one before under way, under asynchronous scheduling:
    /// whether that one left it something to do.
    fn follows_a_step(&self) -> bool {
        let Some(events) = &self.cache_events else { return false };
        let head = self.waiting.first_key_value().map(|(_, head)| head.queued_at);
        self.running.iter().any(|live| !live.draining) || head.is_some_and(|joined| events.was_queued(joined))
    }

    /// Records when the router learns what `step` changed in the cache.
    fn publish(&mut self, step: PublishedStep) {
        if let Some(events) = &mut self.cache_events {
            events.add(step, |each| self.kv.take_changes(each));
        }
    }

    /// What a batching policy gets before a step.
    fn step_state(&self) -> StepState {
        let present = self.running.iter().filter(|live| !live.draining);
        let (decoding, prefilling): (Vec<_>, Vec<_>) = present.partition(|live| live.decoding);
        StepState {
            decoding: count(decoding.len()),
            prefilling: count(prefilling.len()),
            prefill_tokens: prefilling.iter().map(|live| live.target.saturating_sub(live.computed)).sum(),
            waiting: count(self.queue_len()),
            head_tokens: self.waiting.first_key_value().map_or(0, |(_, live)| live.target),
            free_kv_blocks: self.kv.free_blocks(),
            total_kv_blocks: self.config.total_kv_blocks,
            block_size: self.config.block_size,
            max_num_batched_tokens: self.config.max_num_batched_tokens,
            max_num_seqs: self.config.batch_limit(),
        }
    }

    /// Checks the invariants that hold after every step. `batch` is the batch of that step.
    fn check_conservation(&self, batch: &Batch) {
        let (running, waiting) = (self.running.len(), self.queue_len());
        assert_eq!(
            running + waiting,
            self.present,
            "requests in batch and queue, and requests that joined and did not leave"
        );
        assert!(running <= self.config.max_num_seqs as usize, "{running} requests in the batch");
        assert!(batch.tokens() <= u64::from(self.config.max_num_batched_tokens), "{} tokens in a step", batch.tokens());
        let (free, held) = (self.kv.free_blocks(), self.kv.held_blocks());
        assert_eq!(free + held, self.config.total_kv_blocks, "KV blocks: {free} free, {held} held");
        // A request may hold blocks while they are loaded; with BLIS's tiers, while it waits.
        let loads = !self.loading.is_empty() || self.offloading.as_ref().is_some_and(Offloading::has_abandoned);
        let loads = loads || self.waiting.values().any(|live| live.computed > 0) || self.pins() > 0;
        let may_hold = running > 0 || loads || self.tiers.is_some();
        assert!(may_hold || held == 0, "the batch is empty, and {held} KV blocks are held");
        if let Some(slots) = &self.adapters {
            let keeps =
                |live: &&PlainRequest| self.config.semantics.adapters_load_ahead && live.scheduling_delay.is_some();
            let queued = self.waiting.values().chain(&self.loading).filter(keeps);
            let pinning = self.running.iter().chain(queued);
            slots.check(pinning.map(|live| live.request.tags.adapter));
        }
    }

    /// Schedules the running requests first, in batch order. Returns the remaining token budget, and whether one of them
    /// computes a part of its prompt.
    fn plan_running(&mut self, now: Micros, observer: &mut impl Observer) -> Result<(u32, bool), NoProgress> {
        for live in &mut self.running {
            // What the last step computed is still in flight if this one is planned before its end.
            live.in_flight = if self.config.async_scheduling { live.num_new } else { 0 };
            live.num_new = 0;
        }
        let mut budget = self.config.max_num_batched_tokens;
        let mut prefill = false;
        self.skips = 0;
        let mut i = 0;
        while i < self.running.len() && budget > 0 {
            let live = &self.running[i];
            let prefilling = live.prefilling();
            let num_tokens = if live.draining {
                0
            } else if prefilling {
                let chunk = self.limits.running(live.target - live.computed, budget);
                self.kv.cut_chunk(
                    &live.prompt(live.computed, live.computed + chunk),
                    live.target,
                    self.limits.most_tokens,
                )
            } else {
                1
            };
            if num_tokens > 0 && !self.obtain(&mut i, num_tokens, &mut budget, now, observer)? {
                if self.config.semantics.self_preemption_continues {
                    continue; // it left the batch: the next request has its index
                }
                break;
            }
            if prefilling && num_tokens > 0 {
                prefill = true;
                self.limits.take(num_tokens);
            }
            i += 1 + std::mem::take(&mut self.skips);
        }
        Ok((budget, prefill))
    }

    /// Allocates KV blocks for `num_tokens` tokens of the request at `*i`, preempting others as needed (then `*i` is
    /// adjusted). Returns `false` if the request itself was preempted.
    fn obtain(
        &mut self,
        i: &mut usize,
        num_tokens: u32,
        budget: &mut u32,
        now: Micros,
        observer: &mut impl Observer,
    ) -> Result<bool, NoProgress> {
        loop {
            let live = &self.running[*i];
            let request = AllocationRequest {
                prefill: live.prefilling(),
                in_flight: self.config.async_scheduling && !live.prefilling(),
                finished: live.computed - live.in_flight,
                ..live.prompt(live.computed, live.computed + num_tokens)
            };
            if allocate(&mut self.kv, &mut self.tiers, &request) {
                let live = &mut self.running[*i];
                live.num_new = num_tokens;
                live.context = live.computed;
                *budget -= num_tokens;
                // No more victims than needed: each of them computes its tokens again.
                return Ok(true);
            }
            let needed = self.kv.grows(&request, false);
            self.useless(now)?;
            let victim = self.victim(*i, now);
            if observer.interests().contains(Interests::SCHEDULING) {
                observer.record(&SimEvent::Decision(&Decision::Preemption(self.preemption(victim, *i, needed, now))));
            }
            let was_scheduled = self.running[victim].num_new;
            *budget += was_scheduled;
            let itself = victim == *i;
            if victim < *i {
                *i -= 1;
                self.skips += usize::from(was_scheduled == 0 && self.config.semantics.idle_victim_skips_next);
            }
            self.preempt(victim, now);
            if itself {
                // It was its own victim, and has left the batch: it computes its tokens again later.
                return Ok(false);
            }
        }
    }

    /// Chooses the preemption victim for the request at `requester`.
    fn victim(&mut self, requester: usize, now: Micros) -> usize {
        let mut batch = BatchView::new(now, self.config.semantics.preempt_last_of_ties);
        batch.requester = requester;
        for live in &self.running {
            let progress = Progress {
                computed_tokens: live.computed,
                generated_tokens: live.generated,
                kv_blocks: self.kv.held_by(live.request.id),
                preemptions: live.preemptions,
            };
            batch.push(&live.request, self.config.classes.priority(live.request.tags.slo_class), progress);
        }
        self.config.victim_by_view(&batch)
    }

    /// The record of the preemption of `victim` so that the request at `requester` gets `needed` KV blocks.
    fn preemption(&self, victim: usize, requester: usize, needed: u32, now: Micros) -> PreemptionDecision {
        let (victim, requester) = (&self.running[victim], &self.running[requester]);
        PreemptionDecision {
            instance: self.config.index,
            now,
            victim: victim.request.id,
            requester: requester.request.id,
            needed_kv_blocks: needed,
            free_kv_blocks: self.kv.free_blocks(),
            running: count(self.running.len()),
            waiting: count(self.queue_len()),
            computed_tokens: victim.computed,
            generated_tokens: victim.generated,
            preemptions: victim.preemptions,
        }
    }

    fn preempt(&mut self, index: usize, now: Micros) {
        let mut live = self.running.remove(index);
        self.leaves_batch(live.request.tags.adapter, live.draining);
        self.counters.preemptions += 1;
        self.counters.preemption_time += self.config.latency.preemption_time();
        self.last_step.preempted.push(live.request.id);
        if live.draining {
            self.end_offloading(live.request.id, now);
        } else if let Some(offloading) = &mut self.offloading {
            offloading.preempted(live.request.id);
        }
        if live.draining {
            self.release_finished(&live.request);
            self.present -= 1;
            return; // its last token was generated: it only leaves earlier
        }
        self.kv.release(live.request.id);
        live.preemptions += 1;
        live.furthest = live.furthest.max(live.computed);
        live.decoding = false;
        live.computed = 0;
        live.num_new = 0;
        if self.config.semantics.preemption_restarts {
            live.generated = 0;
            live.itl.clear();
        }
        live.target = live.request.input_tokens + live.generated;
        self.turn_front -= 1;
        self.join_queue(live, self.turn_front, now);
    }

    fn join_queue(&mut self, mut live: PlainRequest, turn: i64, now: Micros) {
        live.queued_at = now;
        let queue_key = self.config.queue_key_by_view(&JoiningRequest {
            now,
            request: &live.request,
            content: &live.request.content,
            generated_tokens: live.generated,
            preemptions: live.preemptions,
            turn,
        });
        self.waiting.insert(queue_key, live);
    }

    fn release_drained(&mut self, now: Micros) {
        let mut i = 0;
        while i < self.running.len() {
            if !self.running[i].draining {
                i += 1;
                // It still generates, and keeps its slot and KV blocks.
                continue;
            }
            let live = self.running.remove(i);
            self.leaves_batch(live.request.tags.adapter, true);
            // Its last token is processed only now, and with it the block that it filled.
            self.kv.finish_in_flight(&live.request, live.computed);
            self.end_offloading(live.request.id, now);
            self.release_finished(&live.request);
            self.present -= 1;
        }
    }

    /// [`Batch::common_prefix`].
    fn common_prefix(&self) -> u64 {
        // One request alone shares its prefix with none.
        let [first, _, ..] = &self.running[..] else { return 0 };
        if !self.config.latency.reads_common_prefix() {
            // To count blocks for a latency model that ignores them takes time.
            return 0;
        }
        let blocks = self.kv.common_blocks(first.request.id, count(self.running.len()));
        u64::from(blocks) * u64::from(self.config.block_size)
    }

    fn batch(&mut self) -> Batch {
        let mut batch = Batch { common_prefix: self.common_prefix(), ..Batch::default() };
        for live in self.running.iter().filter(|live| live.num_new > 0) {
            self.last_step.scheduled.push((live.request.id, live.num_new, live.computed));
            if live.prefilling() {
                batch.add_prefill(live.num_new, live.context, live.target);
            } else {
                batch.add_decode(live.context);
            }
            batch.sampled.add(self.config.sampling(&live.request));
        }
        batch
    }

    /// Applies the step to each request: tokens computed, tokens generated.
    fn execute(&mut self, now: Micros, end: Micros, observer: &mut impl Observer) {
        let per_token = self.config.latency.output_token_time();
        let spans_waits = self.config.semantics.itl_spans_waits;
        for live in &mut self.running {
            // Tokens that it had before a preemption, as far as its prompt goes: what BLIS generates anew is no repetition.
            let known = live.furthest.min(live.target).saturating_sub(live.computed);
            self.counters.recomputed_tokens += u64::from(known.min(live.num_new));
            live.computed += live.num_new;
            // A free full hit computes nothing and still generates its first token.
            if live.prefilling() || (live.decoding && live.num_new == 0) {
                continue;
            }
            if live.generated == 0 {
                let out = end + per_token + self.config.latency.first_token_time();
                let ttft = out - live.request.arrival;
                live.ttft = Some(ttft);
                observer.record(&SimEvent::FirstToken(&FirstToken::new(&live.request, self.config.index, ttft)));
            } else {
                if let Some(first) = live.first_of_decode(self.config.index, end + per_token) {
                    observer.record(&SimEvent::FirstToken(&first));
                }
                let since = if spans_waits || !live.decoding { live.last_token } else { now };
                live.itl.push(end - since + per_token);
            }
            live.decoding = true;
            live.last_token = end;
            if live.request.output_tokens > 0 {
                live.generated += 1;
            }
        }
    }

    /// Counts an event without progress: a preemption, or an empty batch while requests wait.
    fn useless(&mut self, now: Micros) -> Result<(), NoProgress> {
        if !self.watchdog.useless() {
            // To measure progress reads every request: it waits until many events in a row were useless.
            return Ok(());
        }
        let requests = || self.running.iter().chain(self.waiting.values()).chain(&self.loading);
        if !self.watchdog.stuck(requests().map(|live| u64::from(live.furthest.max(live.computed))).sum()) {
            // A request got further than ever before: thrashing, but no livelock.
            return Ok(());
        }
        let live = requests().next().expect("a request is waiting or running");
        Err(NoProgress::new(now, &live.request, live.generated, self.running.len(), self.queue_len(), &self.config))
    }

    /// Checks a request and puts it into the waiting queue.
    fn enqueue(&mut self, now: Micros, live: PlainRequest, observer: &mut impl Observer) {
        if live.computed > 0 {
            // BLIS reserves its KV blocks before it arrives: the checks of a new request do not apply.
            return self.enqueue_prefilled(now, live, observer);
        }
        if let Some(reason) = self.config.refuses(&live.request) {
            observer
                .record(&SimEvent::Outcome(&live.outcome(self.config.index, Status::Dropped(reason)).ended_at(now)));
            // It can never be served: as in vLLM and BLIS it does not reach the scheduler.
            return;
        }
        if self.server_refuses(now) {
            let status = Status::Rejected(Rejection::Server);
            observer.record(&SimEvent::Outcome(&live.outcome(self.config.index, status).ended_at(now)));
            // The limits of vLLM's API server act before the scheduler.
            return;
        }
        if live.request.stage != Stage::Decode {
            self.counters.input_tokens += u64::from(live.request.input_tokens);
        }
        if let Some(deadline) = live.request.deadline {
            if deadline <= now {
                observer.record(&SimEvent::Outcome(&live.outcome(self.config.index, Status::TimedOut).ended_at(now)));
                // Its client timed out before it joined the queue.
                return;
            }
            self.deadlines.insert((deadline, self.turn_back), live.request.id);
        }
        self.turn_back += 1;
        self.present += 1;
        self.join_queue(live, self.turn_back, now);
        self.step_at.get_or_insert(self.config.wakes_at(now, self.left_at));
    }

    /// Whether the API server refuses a further request.
    fn server_refuses(&self, now: Micros) -> bool {
        let all = || self.running.iter().chain(self.waiting.values()).chain(&self.loading);
        let unfinished = || all().filter(|live| !live.draining);
        let no_token = |live: &&PlainRequest| live.ttft.is_none_or(|ttft| live.request.arrival + ttft > now);
        let prompts = || unfinished().filter(no_token).map(|live| u64::from(live.request.input_tokens)).sum();
        self.config.server_is_limited() && self.config.server_refuses(unfinished().count(), prompts)
    }

    /// Ends request `id` before it is complete, with `status`. Returns `false` if it ended before.
    fn end_early(&mut self, now: Micros, id: RequestId, status: Status, observer: &mut impl Observer) -> bool {
        if let Some(index) = self.running.iter().position(|live| live.request.id == id) {
            if self.running[index].draining {
                // It has completed and was reported: a timeout or an eviction comes too late.
                return false;
            }
            let mut live = self.running.remove(index);
            self.end_offloading(id, now);
            self.leaves_batch(live.request.tags.adapter, true);
            self.kv.release(id);
            // With asynchronous scheduling, the token of the step under way is not processed.
            let in_flight = self.config.async_scheduling && live.decoding && live.last_token == self.last_step.end;
            live.generated -= u32::from(in_flight && live.generated > 0);
            observer.record(&SimEvent::Outcome(&live.outcome(self.config.index, status).ended_at(now)));
        } else if let Some(key) = self.waiting.iter().find(|(_, live)| live.request.id == id).map(|(&key, _)| key) {
            let live = self.waiting.remove(&key).expect("just found");
            self.end_offloading(id, now);
            self.kv.release(id); // with BLIS's tiers it may hold blocks
            self.tiers.iter_mut().for_each(|tiers| tiers.forget(id));
            self.leaves_queue(&live);
            self.counters.waited(live.queued_at, now);
            observer.record(&SimEvent::Outcome(&live.outcome(self.config.index, status).ended_at(now)));
        } else if let Some(live) = self.abandon_load(now, id) {
            self.leaves_queue(&live);
            self.counters.waited(live.queued_at, now);
            observer.record(&SimEvent::Outcome(&live.outcome(self.config.index, status).ended_at(now)));
        } else {
            return false; // it ended before
        }
        self.present -= 1;
        self.watchdog.progress();
        if self.running.is_empty() && self.step_at.is_none() && self.queue_len() > 0 {
            self.step_at = Some(self.config.wakes_at(now, self.left_at));
        }
        true
    }
}

/// Allocates KV blocks for the tokens, or changes nothing and returns `false`. Tiers may change the cache in either case.
fn allocate(kv: &mut PlainCache, tiers: &mut Option<Box<LowerTiers>>, allocation: &AllocationRequest<'_>) -> bool {
    match (tiers, kv.blocks_mut()) {
        (Some(tiers), Some(kv)) => tiers.allocate(kv, allocation),
        _ => kv.allocate(allocation),
    }
}
