//! The engine that updates only requests to which something happens.
//!
//! In a step, every decoding request computes one token, so nothing is written per request:
//! * a *virtual step counter* `v` counts steps; a request that joined the decoders has `computed = base + v`, and
//!   finishes when `v` reaches a number that is known when it joins (the finish heap);
//! * a request needs a new KV block when its `computed` is a multiple of the block size, so a histogram over
//!   `-base mod block_size` gives the number of blocks that step `v` needs;
//! * the latency model reads sums, and the sum of contexts grows by the number of decoders;
//! * inter-token latencies are reported for the whole batch, and the log of step durations lets the engine retract
//!   those of the few requests that never complete.
//!
//! With KV groups it needs pages, and gives some back, in one step of every block as well ([`page_cycle`]); requests of which that is not so
//! are in a calendar of the steps in which they need the pool.
//!
//! A *quiet* run of steps (no prefill, no request to schedule) is a tight loop, or one multiplication if the latency
//! model does not depend on the context. It ends before the next event of another kind: a finish, a request that joins
//! the queue, a deadline, a shortage of KV blocks.
//!
//! The engine is exact because a step's duration is an integer function of the same sums in both engines, and because
//! the head of the queue, once it cannot be scheduled, stays so while nothing is released: decoding only uses up KV
//! blocks (`quiet` has the conditions). Steps in which a request gets less than it could use (token budget, KV blocks,
//! preemption) are computed request by request in batch order, as in the plain engine.

mod adapters;
mod advance;
mod arena;
mod calendar;
mod deadlines;
mod decoders;
mod execute;
mod left_blocks;
mod live;
mod offloading;
mod order;
mod page_cycle;
mod pages;
mod plan;
mod prefetch;
mod prefilled;
mod steplog;
mod waiting;

use std::collections::VecDeque;

use self::arena::{RequestArena, RequestKey};
use self::calendar::PageCalendar;
use self::deadlines::{Deadlines, NEVER};
use self::decoders::Decoders;
use self::left_blocks::{AbandonedLoad, StayingBlocks};
use self::live::{LiveRequest, RareStates, RequestState};
use self::order::BatchOrder;
use self::page_cycle::PageCycle;

use self::steplog::StepLog;
use self::waiting::WaitingQueue;
use super::cache_events::{CacheEvents, PublishedStep};
use super::cadence::PrefillCadence;
use super::config::InstanceConfig;
use super::offloading::Offloading;
use super::policy::JoiningRequest;
use super::prefilled::{KvRead, TransferredKv};
use super::step_limits::StepLimits;
use super::watchdog::Watchdog;
use super::{Instance, InstanceLoad, LoadMoments, NoProgress, PrefetchDistance, StepRecord};
use crate::adapters::{AdapterReport, AdapterSlots};
use crate::ids::{InstanceIndex, RequestId};
use crate::kv::fast::FastKv;
use crate::kv::fast_pages::FastPages;
use crate::limits::USUAL_REQUESTS;
use crate::numbers::count;
use crate::observer::{Observer, SimEvent};
use crate::offload::{ChunkKey, CpuTier, PeerTier, SharedChunks};
use crate::outcome::{Counters, Outcome, PrefixCacheCounters, Rejection, Status};
use crate::policy::kv_cache::CacheTier;
use crate::request::{BlockKey, Name, Request, Stage};
use crate::units::Micros;

/// The fast engine. A clone copies the live requests, not those that have ended.
///
/// With many instances, none of this is in the processor's caches when an event of the instance comes. Fields that are
/// used together therefore lie together, ordered by the frequency of use: the first cache lines hold the next events
/// and the reported load, and with them quiet steps can be executed.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Fast {
    /// Start of the next step; [`NEVER`] if there is none.
    step_at: Micros,
    /// Time at which the first of `arriving` joins the queue; [`NEVER`] if there is none.
    next_queued: Micros,
    /// Time of the first deadline in `deadlines`; [`NEVER`] if there is none.
    next_deadline: Micros,
    /// Time at which an adapter that is being loaded between steps is loaded; [`NEVER`] if there is none.
    next_load: Micros,
    /// The next moment at which the load is sampled; [`NEVER`] outside of [`Instance::advance_sampled`].
    next_sample: Micros,
    /// Number of requests in the batch.
    running: u32,
    /// Growth of the context during the last run of equal steps, tokens: an estimate for the length of the next run.
    equal_tokens: u32,
    /// Number of preemptions since the start.
    preemptions: u64,
    /// Whether there is a CPU tier, or adapters, or KV groups, or KV blocks that move between instances: without them nothing of
    /// what they need is looked at.
    has_tier_or_adapters: bool,
    waiting: WaitingQueue,
    // The first cache lines of the following two hold what decoding needs.
    kv: FastKv,
    decoders: Decoders,
    /// Decoders that were left out of the previous step.
    stalled: Vec<RequestKey>,
    /// Requests that the present step finishes; empty between steps.
    finished: Vec<RequestKey>,
    log: StepLog,
    /// The counters, of which the last field is the clock. Steps, preemptions and prefix-cache hits are counted
    /// elsewhere.
    counters: Counters,
    /// Number of steps executed: the virtual clock of the decoders.
    v: u64,
    /// [`LatencyModel::output_token_time`](crate::latency::LatencyModel::output_token_time).
    per_token: Micros,
    /// The record of the last step if steps are recorded; then every step is executed by `step`.
    record: Option<Box<StepRecord>>,
    config: InstanceConfig,
    /// Time at which the length of the queue last changed.
    queue_changed: Micros,
    /// The head of the queue that could not be scheduled, with the token budget at that time; reset when blocks or
    /// slots are released.
    refused: Option<(RequestKey, u32)>,
    /// With KV groups: the pages with which it can be scheduled.
    refused_pages: u32,
    /// A lower bound of the tokens left of any request in the waiting queue.
    fewest_waiting: u32,
    turn_back: i64,
    watchdog: Watchdog,
    cadence: PrefillCadence,
    /// Limits of the present step.
    limits: StepLimits,
    /// [`LatencyModel::reads_common_prefix`](crate::latency::LatencyModel::reads_common_prefix).
    reads_common_prefix: bool,
    /// The head of the queue, if its waiting was reported already.
    reported_waiting: Option<RequestId>,
    /// Every request in the queue or the batch.
    live: RequestArena<LiveRequest>,
    /// Requests between arrival and queue, with the time of queueing, in that order.
    arriving: VecDeque<(Micros, Box<Request>)>,
    /// The batch in the order of admission.
    order: BatchOrder,
    /// Time at which the requests join the queue that were postponed last, because a step was planned without them.
    postponed_until: Micros,
    /// End of the last step in which a request finished.
    left_at: Micros,
    /// [`LatencyModel::shortest_step`](crate::latency::LatencyModel::shortest_step).
    shortest_step: Micros,
    /// Requests of the batch in prefill, in batch order.
    prefilling: Vec<RequestKey>,
    /// Finished requests that keep their slot for one more plan (asynchronous scheduling).
    draining: Vec<RequestKey>,
    turn_front: i64,
    deadlines: Deadlines,
    rares: RareStates,
    /// The CPU tier, if there is one.
    offloading: Option<Box<Offloading>>,
    /// Requests that wait for their load from the CPU tier or, after it, for the batch, in the order of the loads.
    loading: Vec<RequestKey>,
    /// KV blocks that are being loaded for requests that have ended.
    abandoned: Vec<AbandonedLoad>,
    /// KV blocks that move between prefill and decode instances, if a request has such a stage.
    transferred: Option<Box<TransferredKv<StayingBlocks>>>,
    /// The LoRA adapters, if there are any.
    adapters: Option<Box<AdapterSlots>>,
    /// Time that the present step spends on loading adapters.
    adapter_loading: Micros,
    /// What the router has still to learn of the cache; `None` if it learns nothing, or all at once.
    cache_events: Option<Box<CacheEvents>>,
    /// When decoding requests take and give back pages, if the model has KV groups.
    calendar: Option<Box<PageCalendar>>,
    /// The moments of [`Self::next_sample`].
    samples: Option<(InstanceIndex, LoadMoments)>,
}

impl Fast {
    /// An idle instance with this configuration.
    ///
    /// # Panics
    /// With BLIS's tiers, which only [`Plain`](super::Plain) has; and with KV groups and a CPU tier or BLIS's ways with KV blocks, which do
    /// not go together.
    #[must_use]
    pub fn new(mut config: InstanceConfig) -> Self {
        assert!(config.blis_tiers.is_none(), "the fast engine has no tiers");
        let pages = config.page_rules().map(|rules| FastPages::new(rules, config.total_kv_blocks));
        let of_vllm = !config.semantics.final_token_kv
            && !config.semantics.full_hit_is_free
            && !config.semantics.reserves_before_decode;
        assert!(pages.is_none() || of_vllm && config.offload.is_none(), "KV groups with what does not know them");
        let cycle = |pages: &FastPages| PageCycle::new(&pages.rules.layout, config.async_scheduling);
        let calendar = pages.as_ref().map(|pages| Box::new(PageCalendar::new(cycle(pages))));
        let kv = FastKv::new(config.total_kv_blocks, config.block_size, config.enable_prefix_caching, config.semantics)
            .with_pages(pages);
        Self {
            kv,
            per_token: config.latency.output_token_time(),
            shortest_step: config.latency.shortest_step(),
            reads_common_prefix: config.latency.reads_common_prefix(),
            fewest_waiting: u32::MAX,
            live: RequestArena::with_capacity(USUAL_REQUESTS / 2),
            rares: RareStates::default(),
            arriving: VecDeque::new(),
            waiting: WaitingQueue::default(),
            queue_changed: Micros::ZERO,
            order: BatchOrder::with_capacity(USUAL_REQUESTS),
            running: 0,
            decoders: Decoders::new(config.block_size, USUAL_REQUESTS),
            prefilling: Vec::new(),
            draining: Vec::new(),
            v: 0,
            refused: None,
            refused_pages: 0,
            deadlines: Deadlines::with_capacity(USUAL_REQUESTS),
            step_at: NEVER,
            log: StepLog::with_capacity(2 * USUAL_REQUESTS),
            equal_tokens: 64,
            turn_back: 0,
            turn_front: 0,
            next_queued: NEVER,
            next_deadline: NEVER,
            next_load: NEVER,
            next_sample: NEVER,
            samples: None,
            cache_events: None,
            has_tier_or_adapters: config.offload.is_some() || config.adapters.is_some() || calendar.is_some(),
            calendar,
            adapters: config.adapter_slots(),
            adapter_loading: Micros::ZERO,
            preemptions: 0,
            stalled: Vec::new(),
            finished: Vec::new(),
            watchdog: Watchdog::default(),
            cadence: PrefillCadence::new(config.options.prefill_schedule_interval),
            limits: StepLimits::new(&config, 0, false),
            reported_waiting: None,
            postponed_until: NEVER,
            left_at: Micros::ZERO,
            counters: Counters::default(),
            record: None,
            offloading: config.offload.map(|offload| {
                Box::new(Offloading::new(
                    offload,
                    std::mem::take(&mut config.policies.kv_cache),
                    config.block_size,
                    config.index,
                ))
            }),
            loading: Vec::new(),
            abandoned: Vec::new(),
            transferred: None,
            config,
        }
    }

    /// Records every step from now on, for comparison. Prevents runs of quiet steps from being executed at once.
    #[must_use]
    pub fn recording(mut self) -> Self {
        self.record = Some(Box::default());
        self
    }

    /// The record of the last step, if steps are recorded.
    #[must_use]
    pub fn last_step(&self) -> Option<&StepRecord> {
        self.record.as_deref()
    }

    /// Number of entries that a clone copies.
    #[cfg(test)]
    pub(super) fn state_size(&self) -> usize {
        let lists = self.arriving.len() + self.waiting.len() + self.order.len() + self.prefilling.len();
        let saved: usize = self.live.values().map(|live| self.rares.saved(live).len()).sum();
        lists + saved + self.live.slots() + self.deadlines.len() + self.log.len() + self.decoders.len() + self.kv.len()
    }

    fn queued_at(&self, now: Micros, request: &Request) -> Micros {
        now.saturating_add(self.config.latency.queueing_time(request.input_tokens))
    }

    /// A lower bound of the time at which `request`, which joins the queue at `queued_at`, ends.
    fn soonest_end(&self, queued_at: Micros, request: &Request) -> Micros {
        if self.config.refuses(request).is_some() || self.config.server_is_limited() {
            // A refusal ends it as soon as it joins the queue.
            return queued_at;
        }
        let left = self.tokens_left(request, request.input_tokens, 0);
        let served = self.after_steps(queued_at, left.saturating_sub(self.free_tokens()));
        request.deadline.map_or(served, |deadline| served.min(deadline.max(queued_at)))
    }

    /// The earliest time at which the last of `tokens` tokens may be generated, if the first one is generated in a step
    /// that starts at `next` or later.
    fn after_steps(&self, next: Micros, tokens: u32) -> Micros {
        next.saturating_add(Micros(self.shortest_step.0 * u64::from(tokens.saturating_sub(1))))
    }

    /// Number of tokens that a step without computation may generate: the first token, if the whole prompt was found in
    /// the prefix cache and costs nothing.
    pub(super) fn free_tokens(&self) -> u32 {
        u32::from(self.config.semantics.full_hit_is_free)
    }

    /// Tokens to generate until `request` ends, of which it has `generated` after a prompt of `target`.
    fn tokens_left(&self, request: &Request, target: u32, generated: u32) -> u32 {
        let room = self.config.length_cap().saturating_sub(target);
        request.output_tokens.saturating_sub(generated).min(room)
    }

    /// Whether the step that is about to be planned was scheduled with the one before under way, under asynchronous scheduling:
    /// whether that one left it something to do.
    fn follows_a_step(&self) -> bool {
        let Some(events) = &self.cache_events else { return false };
        let head = self.waiting.head().map(|(_, head)| self.live[head].joined_at);
        self.decoders.count > 0 || !self.prefilling.is_empty() || head.is_some_and(|joined| events.was_queued(joined))
    }

    /// Records when the router learns what `step` changed in the cache.
    #[inline]
    fn publish(&mut self, step: PublishedStep) {
        let Some(events) = &mut self.cache_events else { return };
        if self.kv.has_changes() {
            events.add(step, |each| self.kv.take_changes(each));
        } else {
            events.started(step.start);
        }
    }

    fn prefix_cache(&self) -> PrefixCacheCounters {
        if self.config.semantics.hit_rate_of_blocks {
            let (hits, misses) = self.kv.hits_and_misses();
            return PrefixCacheCounters::of_blocks(hits, misses);
        }
        self.counters.prefix_cache
    }

    /// Counts the tokens of `key`, which gets its blocks and found `cached` tokens.
    #[inline]
    fn count_look_up(&mut self, key: RequestKey, cached: u32) {
        if self.config.enable_prefix_caching && !self.config.semantics.hit_rate_of_blocks {
            let live = &self.live[key];
            self.counters.prefix_cache.admit(live.target, cached, live.preemptions > 0);
        }
    }

    /// Checks a request and puts it into the waiting queue.
    fn enqueue<const TIERED: bool>(&mut self, now: Micros, request: Box<Request>, observer: &mut impl Observer) {
        if TIERED && request.stage == Stage::Decode && self.config.semantics.reserves_before_decode {
            // BLIS reserves its KV blocks before it arrives: the checks of a new request do not apply.
            return self.enqueue_prefilled(now, request, observer);
        }
        if let Some(reason) = self.config.refuses(&request) {
            observer
                .record(&SimEvent::Outcome(&self.untouched_outcome(&request, Status::Dropped(reason)).ended_at(now)));
            // It can never be served: as in vLLM and BLIS it does not reach the scheduler.
            return;
        }
        if self.server_refuses(now) {
            let status = Status::Rejected(Rejection::Server);
            observer.record(&SimEvent::Outcome(&self.untouched_outcome(&request, status).ended_at(now)));
            // The limits of vLLM's API server act before the scheduler.
            return;
        }
        if request.stage != Stage::Decode {
            self.counters.input_tokens += u64::from(request.input_tokens);
        }
        let deadline = request.deadline;
        if deadline.is_some_and(|deadline| deadline <= now) {
            observer.record(&SimEvent::Outcome(&self.untouched_outcome(&request, Status::TimedOut).ended_at(now)));
            // Its client timed out before it joined the queue.
            return;
        }
        self.turn_back += 1;
        let queue_key = self.config.queue_key(&JoiningRequest {
            now,
            request: &request,
            content: &request.content,
            generated_tokens: 0,
            preemptions: 0,
            turn: self.turn_back,
        });
        let left = self.tokens_left(&request, request.input_tokens, 0);
        self.fewest_waiting = if self.queued::<TIERED>() == 0 { left } else { self.fewest_waiting.min(left) };
        let mut live = LiveRequest::new(request, queue_key.rank, now);
        if TIERED && self.is_paged() {
            live.request.content = live.keys.content.clone(); // the pool looks at requests as a whole
        }
        let key = self.live.insert(live);
        self.queue_changes::<TIERED>(now);
        self.waiting.insert(queue_key, key);
        if TIERED && self.adapters.is_some() {
            self.refused = None; // it may pass the requests in front of it
        }
        if let Some(deadline) = deadline {
            self.live[key].deadline = self.deadlines.watch(deadline, key.slot_index());
            self.next_deadline = self.next_deadline.min(deadline);
        }
        if self.step_at == NEVER {
            self.step_at = self.config.wakes_at(now, self.left_at);
        }
    }

    /// Whether the API server refuses a further request.
    fn server_refuses(&self, now: Micros) -> bool {
        let prefilling = |live: &&LiveRequest| {
            let has_token = live.ttft().is_some_and(|ttft| live.request.arrival + ttft <= now);
            !has_token && live.state != RequestState::Draining
        };
        let prompts = || self.live.values().filter(prefilling).map(|live| u64::from(live.request.input_tokens)).sum();
        self.config.server_is_limited() && self.config.server_refuses(self.live.len() - self.draining.len(), prompts)
    }

    fn join_arriving(&mut self, at: Micros, request: Box<Request>) {
        if self.arriving.back().is_none_or(|&(other, _)| other <= at) {
            self.arriving.push_back((at, request));
        } else {
            let index = self.arriving.partition_point(|&(other, _)| other <= at);
            self.arriving.insert(index, (at, request));
        }
        self.next_queued = self.next_queued.min(at);
    }

    /// If steps are planned ahead and one is under way at `now`: the time just after the start of the next step, which
    /// was planned without `request`.
    #[inline]
    fn planned_until(&self, now: Micros, request: &Request) -> Option<Micros> {
        let under_way = self.step_at != NEVER && self.step_at > now;
        let ahead = under_way && self.config.plans_ahead() && now != self.postponed_until;
        (ahead && self.config.refuses(request).is_none()).then(|| self.step_at.saturating_add(Micros(1)))
    }

    /// The outcome of a request that was never in the queue.
    fn untouched_outcome(&self, request: &Request, status: Status) -> Outcome {
        Outcome { instance: Some(self.config.index), ..Outcome::new(request, status) }
    }

    /// The outcome of a request that the end of the simulation leaves behind.
    fn unfinished(&self, key: RequestKey, status: Status) -> Outcome {
        let live = &self.live[key];
        let mut outcome = live.outcome(self.config.index, live.generated, status);
        self.rares.add_loads(live, &mut outcome);
        outcome
    }

    /// Adds the time since the last change of the queue's length to the integral of the length, before the length
    /// changes again.
    fn queue_changes<const TIERED: bool>(&mut self, now: Micros) {
        let waited = now.saturating_sub(self.queue_changed).0.saturating_mul(self.queued::<TIERED>() as u64);
        self.counters.queue_time = self.counters.queue_time.saturating_add(Micros(waited));
        self.queue_changed = now;
    }

    /// Ends the request of `key` before it is complete, with `status`. Returns `false` if it ended before.
    fn end_early(&mut self, now: Micros, key: RequestKey, status: Status, observer: &mut impl Observer) -> bool {
        match self.live.get(key).map(|live| live.state) {
            // It has completed and was reported: a timeout or an eviction comes too late.
            None | Some(RequestState::Draining) => return false,
            Some(RequestState::Waiting) => {
                self.queue_changes::<true>(now);
                self.waiting.remove(&self.live[key].queue_key());
                self.end_offloading(key, now);
                self.leaves_queue(key);
            }
            Some(RequestState::Loading) => {
                self.queue_changes::<true>(now);
                self.loading.retain(|&other| other != key);
                self.abandon_load(key, now);
                self.leaves_queue(key);
            }
            Some(RequestState::Prefilling) => {
                self.prefilling.retain(|&other| other != key);
                self.leave_batch(key, true);
                let live = &mut self.live[key];
                // A token that its whole prompt generated in the step under way is not processed either.
                let in_flight = self.config.async_scheduling && live.computed >= live.target;
                live.generated -= u32::from(in_flight && live.generated > 0);
            }
            Some(RequestState::Decoding) => {
                // With asynchronous scheduling, the token of the step under way is not processed.
                let in_flight = self.config.async_scheduling && !self.live[key].stalled;
                self.leave_decoders(key, now, observer);
                self.leave_batch(key, true);
                let live = &mut self.live[key];
                live.generated -= u32::from(in_flight && live.generated > 0);
            }
        }
        let live = &self.live[key];
        let known = self.config.known_tokens(live.computed, live.target);
        let holds_none = live.state == RequestState::Waiting && live.computed == 0;
        if !holds_none && live.state != RequestState::Loading {
            self.release(key, live.computed, known, now);
        }
        let live = self.live.remove(key).expect("it has a state");
        let mut outcome = live.outcome(self.config.index, live.generated, status).ended_at(now);
        self.rares.add_loads(&live, &mut outcome);
        observer.record(&SimEvent::Outcome(&outcome));
        self.rares.forget(&live);
        self.watchdog.progress();
        if self.running == 0 && self.step_at == NEVER && self.queue_len() > 0 {
            self.step_at = self.config.wakes_at(now, self.left_at);
        }
        true
    }

    /// Releases the blocks of `key`, which ends at `now`, with `tokens` allocated tokens, of which `known` are generated.
    #[inline]
    fn release(&mut self, key: RequestKey, tokens: u32, known: u32, now: Micros) {
        self.refused = None;
        if self.offloading.is_some() {
            self.release_stored(key, tokens, known, now);
        } else {
            self.kv.release(&mut self.live[key].holding, tokens, known);
        }
    }

    /// Removes `key` from the batch. It has `ended`, or was preempted.
    fn leave_batch(&mut self, key: RequestKey, ended: bool) {
        if let Some(slots) = &mut self.adapters {
            slots.leave(self.live[key].request.tags.adapter, ended);
        }
        self.order.leave(std::mem::replace(&mut self.live[key].seq, live::NOT_RUNNING));
        self.running -= 1;
        if self.order.needs_compaction() {
            let live = &mut self.live;
            self.order.compact(|key, number| live[key].seq = number);
        }
    }

    /// Whether `key`, which was in the batch, still is.
    fn is_running(&self, key: RequestKey) -> bool {
        self.live.get(key).is_some_and(|live| live.seq != live::NOT_RUNNING)
    }

    /// Counts an event without progress: a preemption, or an empty batch while requests wait.
    fn useless(&mut self, now: Micros) -> Result<(), NoProgress> {
        if !self.watchdog.useless() {
            // To measure progress reads every request: it waits until many events in a row were useless.
            return Ok(());
        }
        let requests: Vec<RequestKey> =
            self.order.iter().chain(self.waiting.requests()).chain(self.loading.iter().copied()).collect();
        let furthest = |&key: &RequestKey| u64::from(self.rares.furthest_at(&self.live[key], self.v));
        if !self.watchdog.stuck(requests.iter().map(furthest).sum()) {
            // A request got further than ever before: thrashing, but no livelock.
            return Ok(());
        }
        let live = &self.live[requests[0]];
        let running = self.running as usize;
        Err(NoProgress::new(now, &live.request, live.generated_at(self.v), running, self.queue_len(), &self.config))
    }
}

impl Instance for Fast {
    #[inline]
    fn arrive(&mut self, now: Micros, request: impl Into<Box<Request>>) {
        let request = request.into();
        self.counters.clock = self.counters.clock.max(now);
        if request.stage != Stage::Whole {
            self.moves_kv();
        }
        self.join_arriving(self.queued_at(now, &request), request);
    }

    fn next_event(&self) -> Option<Micros> {
        let next = self.next_queued.min(self.next_deadline).min(self.step_at).min(self.next_load);
        (next != NEVER).then_some(next)
    }

    fn next_end(&self) -> Option<Micros> {
        let arriving = self.arriving.iter().map(|(at, request)| self.soonest_end(*at, request)).min();
        let step = self.step_at.min(self.next_load);
        let step = if step == NEVER { NEVER } else { self.last_step_at(step) };
        let next = arriving.unwrap_or(NEVER).min(step).min(self.next_deadline);
        (next != NEVER).then_some(next)
    }

    fn idle_since(&self) -> Option<Micros> {
        let left = self.live.len() - self.draining.len() + self.arriving.len();
        (left == 0).then_some(self.left_at)
    }

    fn earliest_end(&self, now: Micros, request: &Request) -> Micros {
        self.soonest_end(self.queued_at(now, request), request)
    }

    fn prefetch(&self, distance: PrefetchDistance) {
        self.prefetch_at(distance);
    }

    fn pending_arrivals(&self) -> usize {
        self.arriving.len()
    }

    fn advance(&mut self, limit: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
        if self.has_tier_or_adapters {
            self.catch_up::<true>(limit, observer)
        } else {
            self.catch_up::<false>(limit, observer)
        }
    }

    fn advance_sampled(
        &mut self,
        limit: Micros,
        instance: InstanceIndex,
        moments: &mut LoadMoments,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        (self.samples, self.next_sample) = (Some((instance, *moments)), moments.next_at());
        let advanced = self.advance(limit, observer);
        self.next_sample = NEVER;
        if let Some((_, known)) = self.samples.take() {
            *moments = known;
        }
        advanced
    }

    fn load(&self) -> InstanceLoad {
        InstanceLoad {
            queue_depth: count(self.queue_len()),
            batch_size: self.running,
            used_kv_blocks: self.kv.total_blocks() - self.kv.free_blocks(),
            total_kv_blocks: self.kv.total_blocks(),
            preemptions: self.preemptions,
            prefix_cache: self.prefix_cache(),
        }
    }

    fn waiting_tokens(&self) -> u64 {
        let waiting = self.waiting.requests().chain(self.loading.iter().copied());
        waiting.map(|key| u64::from(self.live[key].target)).sum()
    }

    fn adapters(&self, report: &mut AdapterReport) {
        self.report_adapters(report);
    }

    fn finds(&self, key: BlockKey) -> bool {
        self.kv.finds(key)
    }

    fn queue(&self) -> Vec<RequestId> {
        self.waiting.requests().map(|key| self.live[key].request.id).collect()
    }

    fn serve_next(&mut self, id: RequestId) -> bool {
        // Only a waiting request has a position in the queue that a counterfactual can change.
        let Some((head, _)) = self.waiting.head() else { return false };
        let Some(key) = self.waiting.requests().find(|&key| self.live[key].request.id == id) else { return false };
        let live = &mut self.live[key];
        self.waiting.remove(&live.queue_key());
        live.rank = head.rank.before();
        self.waiting.insert(live.queue_key(), key);
        self.refused = None;
        true
    }

    fn force_load(&mut self, id: RequestId, loads: bool) {
        if let Some(offloading) = &mut self.offloading {
            offloading.force_load(id, loads);
        }
    }

    fn force_eviction(&mut self, id: RequestId, tier: CacheTier, adapter: Name) {
        if let Some(slots) = &mut self.adapters {
            slots.force_eviction(id, tier, adapter);
        }
    }

    fn evict(&mut self, now: Micros, id: RequestId, observer: &mut impl Observer) -> bool {
        self.counters.clock = self.counters.clock.max(now);
        if let Some(index) = self.arriving.iter().position(|(_, request)| request.id == id) {
            let (_, request) = self.arriving.remove(index).expect("just found");
            self.next_queued = self.arriving.front().map_or(NEVER, |&(at, _)| at);
            if request.stage == Stage::Decode && self.config.semantics.reserves_before_decode {
                self.unpin(now, id);
            }
            observer.record(&SimEvent::Outcome(&self.untouched_outcome(&request, Status::Evicted).ended_at(now)));
            // Before it joins the queue it holds no slot, and no KV blocks but reserved ones.
            return true;
        }
        let Some((key, deadline)) =
            self.live.find(|live| live.request.id == id).map(|(key, live)| (key, live.deadline))
        else {
            // It has ended: the eviction comes too late.
            return false;
        };
        let evicted = self.end_early(now, key, Status::Evicted, observer);
        if evicted && deadline != 0 && self.deadlines.forget(deadline) {
            self.next_deadline = self.deadlines.next();
        }
        evicted
    }

    fn watch_cache(&mut self) {
        self.kv.watch();
        self.cache_events = self.config.cache_events();
    }

    fn cache_changes(&mut self, now: Micros, each: &mut dyn FnMut(BlockKey, bool)) -> Option<Micros> {
        if let Some(events) = &mut self.cache_events {
            return events.take(now, each);
        }
        self.kv.take_changes(each);
        None
    }

    fn watch_tier(&mut self) -> u32 {
        self.offloading.as_mut().map_or(0, |offloading| offloading.watch())
    }

    fn tier_changes(&mut self, now: Micros, each: &mut dyn FnMut(BlockKey, bool)) {
        if let Some(offloading) = &mut self.offloading {
            offloading.take_changes(now, each);
        }
    }

    fn take_written_chunks(&mut self) -> Vec<(ChunkKey, Micros)> {
        self.offloading.as_mut().map(|offloading| offloading.take_written()).unwrap_or_default()
    }

    fn share_chunks(&mut self, content: &SharedChunks) {
        self.offloading.iter_mut().for_each(|offloading| offloading.share(content));
    }

    fn peers(&mut self) -> Option<(&mut PeerTier, &mut CpuTier)> {
        self.offloading.as_mut()?.peers()
    }

    fn reserve(&mut self, request: &Request) -> bool {
        self.reserve_prompt(request)
    }

    fn arrive_prefilled(&mut self, now: Micros, request: Box<Request>) {
        self.prefilled_arrives(now, request);
    }

    fn next_read(&self) -> Option<Micros> {
        self.may_read().then(|| self.next_event())?
    }

    fn take_reads(&mut self) -> Vec<KvRead> {
        self.transferred.as_mut().map(|transferred| transferred.take_begun()).unwrap_or_default()
    }

    fn read_ended(&mut self, now: Micros, id: RequestId) {
        self.end_read(now, id);
    }

    fn release_prefilled(&mut self, now: Micros, id: RequestId) {
        self.unpin(now, id);
    }

    fn pins(&self) -> usize {
        self.transferred.as_ref().map_or(0, |transferred| transferred.pins())
    }

    fn finish(mut self, horizon: Micros, observer: &mut impl Observer) -> Counters {
        let now = if self.step_at == NEVER { self.counters.clock } else { self.step_at };
        for key in std::mem::take(&mut self.order).iter() {
            match self.live[key].state {
                // Its completion was reported: it only keeps its slot for one more plan.
                RequestState::Draining => continue,
                RequestState::Decoding => self.leave_decoders(key, now, observer),
                RequestState::Prefilling | RequestState::Waiting | RequestState::Loading => {}
            }
            observer.record(&SimEvent::Outcome(&self.unfinished(key, Status::Running)));
        }
        for key in self.waiting.requests().chain(self.loading.iter().copied()) {
            observer.record(&SimEvent::Outcome(&self.unfinished(key, Status::Queued)));
        }
        for (_, request) in std::mem::take(&mut self.arriving) {
            observer.record(&SimEvent::Outcome(&self.untouched_outcome(&request, Status::Arriving)));
        }
        if self.left_at <= horizon {
            self.counters.clock = self.counters.clock.max(self.left_at);
        }
        self.queue_changes::<true>(self.counters.clock);
        let prefix_cache = self.prefix_cache();
        Counters {
            steps: self.v,
            preemptions: self.preemptions,
            prefix_cache,
            offload: self.offloading.map(|offloading| offloading.counters()).unwrap_or_default(),
            ..self.counters
        }
    }
}
