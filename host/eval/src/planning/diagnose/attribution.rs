//! Where the time of requests goes: an observer of every step, which divides the life of each request among causes.
//!
//! * **Waiting** on an instance, from the queue to the first step: each step that it waits through has a reason, that of the head of
//!   the queue: the batch is full, the token budget is used up, otherwise KV blocks. A step that began before is one that it waits for
//!   anyhow: its prefill part is that of others, the rest decode.
//! * **A step** takes T; without its prefill it would take T₀ (the latency model says both). (T − T₀)/T of its time is prefill: interference for the
//!   requests that decode. A request that prefills n of its P tokens has T(P alone)·n/P for itself; what others prefill is
//!   interference, or the token budget if the step is full; what is left is the cost of cutting a prompt by the token budget.
//! * **Preemption**: from there until the request has computed as many tokens as before. Of waiting for KV blocks, the part of all computed tokens
//!   that had been computed before.
//! * **Cold cache**: of prefill, the share of the tokens that the service had computed for an earlier request, as its instance did not have
//!   them. Recomputed tokens in the steps of others count as preemption likewise; both also where a full budget makes requests wait.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::instance::StepRecord;
use blis_sim::latency::{Batch, LatencyModel};
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::{
    AdapterChange, Decision, GatewayChoice, GatewayDecision, Outcome, SchedulingDecision, SchedulingResult, StageTimes,
    Status, WaitReason,
};
use blis_sim::replica::{ReplicaEvent, ReplicaState};
use blis_sim::request::{BlockKey, Name, Request};
use blis_sim::units::Micros;

use super::cause::{Cause, TIMED};

/// Time by cause, µs.
pub(super) type CauseTimes = [f64; TIMED];

/// What the observer needs to know of a service.
#[derive(Clone, Debug)]
pub(super) struct ServiceLimits {
    pub latency: Arc<dyn LatencyModel>,
    pub block_size: u32,
    pub max_num_seqs: u32,
    pub max_num_batched_tokens: u32,
    /// Whether a step is planned while the one before is computed.
    pub plans_ahead: bool,
    pub has_adapters: bool,
    /// Requests that arrive before are left out.
    pub warmup: Micros,
}

/// The life of a request, divided.
#[derive(Clone, Debug)]
pub(super) struct AttributedRequest {
    pub id: RequestId,
    pub class: Name,
    pub arrival: Micros,
    pub deadline: Option<Micros>,
    pub instance: Option<InstanceIndex>,
    pub status: Status,
    /// Time to first token, µs; `None` if there was none.
    pub ttft_us: Option<f64>,
    /// From the arrival to its end, µs.
    pub life_us: f64,
    pub generated: u32,
    /// Up to the first token.
    pub before: CauseTimes,
    /// From the first token to the end.
    pub after: CauseTimes,
    pub preemptions: u32,
    pub recomputed_tokens: u64,
    pub cold_tokens: u64,
}

impl AttributedRequest {
    pub fn completed(&self) -> bool {
        matches!(self.status, Status::Completed | Status::LengthCapped)
    }
}

/// Why the head of a queue waits through a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueReason {
    /// The queue was empty.
    Nothing,
    Cause(Cause),
}

/// A step of an instance.
#[derive(Clone, Copy, Debug)]
struct StepShares {
    start: Micros,
    end: Micros,
    reason: QueueReason,
    /// Time of the prefill of others as a decoding request has it, by what it is, µs.
    parts: PrefillParts,
    /// Time of adapter loads, µs.
    loads_us: f64,
    /// Whether it has as many tokens as a step may have.
    is_full: bool,
}

/// The time that prefill adds to a step, µs.
#[derive(Clone, Copy, Debug, Default)]
struct PrefillParts {
    interference: f64,
    cold: f64,
    preemption: f64,
}

impl PrefillParts {
    fn sum(self) -> f64 {
        self.interference + self.cold + self.preemption
    }

    fn times(self, factor: f64) -> Self {
        Self {
            interference: factor * self.interference,
            cold: factor * self.cold,
            preemption: factor * self.preemption,
        }
    }

    /// For a request with a prompt to compute: of a full step, others have taken what it could have computed.
    fn add_waiting_to(self, times: &mut CauseTimes, is_full: bool) {
        let (budget, others) = if is_full { (self.interference, 0.0) } else { (0.0, self.interference) };
        times[Cause::TokenBudget as usize] += budget;
        Self { interference: others, ..self }.add_to(times);
    }

    fn add_to(self, times: &mut CauseTimes) {
        times[Cause::Interference as usize] += self.interference;
        times[Cause::ColdCache as usize] += self.cold;
        times[Cause::Preemption as usize] += self.preemption;
    }
}

#[derive(Debug, Default)]
struct InstanceLog {
    steps: Vec<StepShares>,
    /// Why the head of the queue waits, as it was reported last.
    head: Option<WaitReason>,
    /// Whether an adapter was loaded since the last step.
    loads: bool,
    /// The duration of the last step without loads over that of the latency model.
    stretch: f64,
    /// Requests that finished in the last step: under asynchronous scheduling they keep their slots for one more plan.
    draining: u32,
}

/// A request between its arrival and its end.
#[derive(Debug)]
struct DividedRequest {
    request: Request,
    gateway_wait: Micros,
    /// Time at which it joined the waiting queue of the instance.
    queued: Option<Micros>,
    /// Time of the embeddings of its media, from the routing decision.
    encode_us: f64,
    /// The instance that decodes it, if another one prefills it.
    decode: Option<InstanceIndex>,
    instance: Option<InstanceIndex>,
    /// End of the last step that computed it.
    last_end: Micros,
    generated: u32,
    first_token: bool,
    /// Time that the rest of its prompt takes alone in one step, and its tokens.
    alone_us: f64,
    alone_tokens: u32,
    /// Of these, the share that the service had computed before.
    cold_share: f64,
    cold_tokens: u64,
    computed: u32,
    /// Time of a preemption, and the tokens that it had computed then.
    preempted: Option<Preempted>,
    preemptions: u32,
    recomputed_tokens: u64,
    stages: Option<StageTimes>,
    before: CauseTimes,
    after: CauseTimes,
}

#[derive(Clone, Copy, Debug)]
struct Preempted {
    at: Micros,
    furthest: u32,
}

impl DividedRequest {
    fn new(request: &Request) -> Self {
        Self {
            request: request.clone(),
            gateway_wait: Micros::ZERO,
            queued: None,
            encode_us: 0.0,
            decode: None,
            instance: None,
            last_end: Micros::ZERO,
            generated: 0,
            first_token: false,
            alone_us: 0.0,
            alone_tokens: 0,
            cold_share: 0.0,
            cold_tokens: 0,
            computed: 0,
            preempted: None,
            preemptions: 0,
            recomputed_tokens: 0,
            stages: None,
            before: [0.0; TIMED],
            after: [0.0; TIMED],
        }
    }

    /// The part of its life that goes on.
    fn times(&mut self) -> &mut CauseTimes {
        if self.first_token { &mut self.after } else { &mut self.before }
    }

    /// Whether a step that computes tokens behind `context` is a part of its prefill.
    fn prefills(&self, context: u32) -> bool {
        context < self.request.input_tokens + self.generated.max(1) - 1
    }
}

/// What the observer found.
#[derive(Debug, Default)]
pub(super) struct Attribution {
    /// Requests that count, in the order of arrival.
    pub divided: Vec<AttributedRequest>,
    /// All requests as they arrived.
    pub requests: Vec<Request>,
    /// Those that can never be served, which are in no figure.
    pub dropped: u64,
}

/// The observer: it divides the life of each request while the service runs.
#[derive(Debug)]
pub(super) struct AttributionLog {
    limits: ServiceLimits,
    live: HashMap<u32, DividedRequest>,
    instances: Vec<InstanceLog>,
    /// Blocks that an instance has computed.
    computed: HashSet<BlockKey>,
    /// The times in which a replica started, in order; the number that starts now, and since when.
    starts: Vec<TimeSpan>,
    starting: HashSet<u32>,
    starting_since: Micros,
    ended: Vec<AttributedRequest>,
    longest_prompt: u32,
    /// Requests that can never be served.
    dropped: u64,
    /// All tokens that were computed, and those that had been computed before a preemption.
    computed_tokens: u64,
    recomputed_tokens: u64,
    /// The requests as they arrived, in that order.
    requests: Vec<Request>,
}

#[derive(Clone, Copy, Debug)]
struct TimeSpan {
    from: Micros,
    to: Micros,
}

fn us(time: Micros) -> f64 {
    time.0 as f64
}

/// The common time of two spans, µs.
fn overlap_us(one: TimeSpan, other: TimeSpan) -> f64 {
    us(one.to.min(other.to).saturating_sub(one.from.max(other.from)))
}

/// A step as its requests see it.
#[derive(Clone, Copy, Debug)]
struct StepView {
    instance: InstanceIndex,
    end: Micros,
    /// Its duration without adapter loads, µs.
    duration_us: f64,
    loads_us: f64,
    parts: PrefillParts,
    prefill_tokens: f64,
    /// Whether it has as many tokens as a step may have.
    is_full: bool,
}

impl AttributionLog {
    pub fn new(limits: ServiceLimits) -> Self {
        Self {
            limits,
            live: HashMap::new(),
            instances: Vec::new(),
            computed: HashSet::new(),
            starts: Vec::new(),
            starting: HashSet::new(),
            starting_since: Micros::ZERO,
            ended: Vec::new(),
            longest_prompt: 0,
            dropped: 0,
            computed_tokens: 0,
            recomputed_tokens: 0,
            requests: Vec::new(),
        }
    }

    /// The divided requests in the order of arrival, and all requests as they arrived.
    pub fn finish(mut self) -> Attribution {
        // Requests hold blocks for as long as they compute: the part of it that is for tokens computed before makes others wait.
        let again = self.recomputed_tokens as f64 / self.computed_tokens.max(1) as f64;
        for request in &mut self.ended {
            for times in [&mut request.before, &mut request.after] {
                let moved = again * times[Cause::KvBlocks as usize];
                times[Cause::KvBlocks as usize] -= moved;
                times[Cause::Preemption as usize] += moved;
            }
        }
        self.ended.sort_by_key(|request| (request.arrival, request.id.0));
        Attribution { divided: self.ended, requests: self.requests, dropped: self.dropped }
    }

    fn instance(&mut self, instance: InstanceIndex) -> &mut InstanceLog {
        let index = instance.index();
        if self.instances.len() <= index {
            self.instances.resize_with(index + 1, || InstanceLog { stretch: 1.0, ..InstanceLog::default() });
        }
        &mut self.instances[index]
    }

    fn decided(&mut self, decision: &Decision<'_>) {
        match decision {
            Decision::Gateway(GatewayDecision {
                request, choice: GatewayChoice::Dispatched { waited, .. }, ..
            }) => {
                if let Some(live) = self.live.get_mut(&request.0) {
                    live.gateway_wait = *waited;
                }
            }
            Decision::Disaggregation(choice) if choice.disaggregate => {
                let waits = self.limits.latency.queueing_time(choice.request.input_tokens);
                if let Some(live) = self.live.get_mut(&choice.request.id.0) {
                    live.decode = Some(choice.decode);
                    live.queued = Some(choice.now.saturating_add(waits));
                }
            }
            Decision::Routing { request, cluster, .. } => {
                let waits = self.limits.latency.queueing_time(request.input_tokens);
                if let Some(live) = self.live.get_mut(&request.id.0) {
                    live.queued = Some(cluster.now.saturating_add(waits));
                }
            }
            Decision::Scheduling(SchedulingDecision { instance, result, .. }) => {
                self.instance(*instance).head = match result {
                    SchedulingResult::Waits(reason) => Some(*reason),
                    SchedulingResult::Scheduled { .. } => None,
                };
            }
            _ => {}
        }
    }

    fn replica(&mut self, event: &ReplicaEvent) {
        use ReplicaState::{Loading, Scheduling, Warming};
        let was_idle = self.starting.is_empty();
        if matches!(event.state, Some(Scheduling | Loading | Warming)) {
            self.starting.insert(event.replica);
        } else {
            self.starting.remove(&event.replica);
        }
        match (was_idle, self.starting.is_empty()) {
            (true, false) => self.starting_since = event.at,
            (false, true) => self.starts.push(TimeSpan { from: self.starting_since, to: event.at }),
            _ => {}
        }
    }

    /// The part of `span` in which a replica started, µs.
    fn starting_us(&self, span: TimeSpan) -> f64 {
        let first = self.starts.partition_point(|start| start.to <= span.from);
        let ended: f64 = self.starts[first..]
            .iter()
            .take_while(|start| start.from < span.to)
            .map(|&one| overlap_us(one, span))
            .sum();
        let now = TimeSpan { from: self.starting_since, to: Micros::MAX };
        ended + if self.starting.is_empty() { 0.0 } else { overlap_us(now, span) }
    }

    /// Divides the time in the queue of `instance` in `span`. `idle`: the cause of time without steps.
    fn waits(&self, instance: InstanceIndex, span: TimeSpan, idle: Cause, times: &mut CauseTimes) {
        let steps = self.instances.get(instance.index()).map_or(&[][..], |log| &log.steps);
        let first = steps.partition_point(|step| step.end <= span.from);
        let mut covered = 0.0;
        for (number, step) in steps[first..].iter().enumerate() {
            if step.start >= span.to {
                break;
            }
            let piece = TimeSpan { from: step.start.max(span.from), to: step.end.min(span.to) };
            let piece_us = us(piece.to.saturating_sub(piece.from));
            covered += piece_us;
            // It joins behind the plan of the step; behind two plans, if the next one is made ahead.
            let is_ahead = self.limits.plans_ahead && number <= 1;
            let cause = match step.reason {
                _ if step.start < span.from => None,
                QueueReason::Cause(Cause::KvBlocks) if is_ahead => None,
                QueueReason::Cause(cause) => Some(cause),
                QueueReason::Nothing => None,
            };
            self.waits_through(step, piece, cause, times);
        }
        let idle_us = us(span.to.saturating_sub(span.from)) - covered;
        times[idle as usize] += idle_us.max(0.0);
    }

    /// What an instance waits for that has requests and no step: adapters, or transfers that hold its blocks.
    fn idle_cause(&self, live: &DividedRequest) -> Cause {
        match (live.decode.is_some(), self.limits.has_adapters) {
            (true, _) => Cause::Transfer,
            (false, true) => Cause::AdapterLoad,
            (false, false) => Cause::Fixed,
        }
    }

    /// Divides a piece of a step: the time of `cause`, or that of the step itself.
    fn waits_through(&self, step: &StepShares, piece: TimeSpan, cause: Option<Cause>, times: &mut CauseTimes) {
        let piece_us = us(piece.to.saturating_sub(piece.from));
        let starting = self.starting_us(piece).min(piece_us);
        times[Cause::ColdStart as usize] += starting;
        let rest = piece_us - starting;
        let share = rest / us(step.end.saturating_sub(step.start)).max(1.0);
        match cause {
            // What fills the budget may be tokens that nothing would have to compute.
            Some(Cause::TokenBudget) if step.parts.sum() > 0.0 => {
                step.parts.times(rest / step.parts.sum()).add_waiting_to(times, true);
            }
            Some(cause) => times[cause as usize] += rest,
            None => {
                step.parts.times(share).add_waiting_to(times, step.is_full);
                times[Cause::AdapterLoad as usize] += share * step.loads_us;
                times[Cause::Decode as usize] += rest - share * (step.parts.sum() + step.loads_us);
            }
        }
    }

    /// The reason for which the head of the queue of `log` waits through `step`, which computes `tokens` tokens.
    fn reason(&self, step: &StepRecord, tokens: u64, log: &InstanceLog) -> QueueReason {
        let ServiceLimits { max_num_seqs, max_num_batched_tokens, .. } = self.limits;
        if step.waiting == 0 {
            return QueueReason::Nothing;
        }
        QueueReason::Cause(if step.running.saturating_add(log.draining) >= max_num_seqs {
            Cause::BatchSlots
        } else if !step.preempted.is_empty() {
            Cause::KvBlocks
        } else if tokens >= u64::from(max_num_batched_tokens) {
            Cause::TokenBudget
        } else {
            // The reason is reported once for a head, and may have become another one since.
            let free_tokens = u64::from(step.free_blocks_planned) * u64::from(self.limits.block_size);
            let has_blocks = step.held_pages.is_empty() && free_tokens > 2 * u64::from(self.longest_prompt);
            match log.head {
                Some(WaitReason::AdapterSlot) => Cause::AdapterLoad,
                Some(WaitReason::KvTransfer) => Cause::Transfer,
                Some(WaitReason::UnsplitPrompt { .. } | WaitReason::PrefillInterval) => Cause::TokenBudget,
                Some(WaitReason::KvBlocks { .. }) => Cause::KvBlocks,
                _ if has_blocks && self.limits.has_adapters => Cause::AdapterLoad,
                _ if has_blocks => return QueueReason::Nothing,
                _ => Cause::KvBlocks,
            }
        })
    }

    fn step(&mut self, instance: InstanceIndex, step: &StepRecord) {
        for id in &step.preempted {
            if let Some(live) = self.live.get_mut(&id.0) {
                live.preemptions += 1;
                let at = live.preempted.map_or(step.now, |before| before.at);
                let furthest = live.preempted.map_or(0, |before| before.furthest).max(live.computed);
                live.preempted = Some(Preempted { at, furthest });
            }
        }
        for &(id, _, context) in &step.scheduled {
            self.enters(id, instance, step.now, context);
        }
        let view = self.view(instance, step);
        for &(id, n, context) in &step.scheduled {
            self.computes(id, n, context, &view);
        }
    }

    /// The step in parts. Adds it to those of the instance.
    fn view(&mut self, instance: InstanceIndex, step: &StepRecord) -> StepView {
        let (mut batch, mut decodes) = (Batch::default(), Batch::default());
        let (mut cold, mut again) = (0.0, 0.0);
        for &(id, n, context) in &step.scheduled {
            let Some(live) = self.live.get(&id.0) else { continue };
            if live.prefills(context) {
                batch.add_prefill(n, context, live.request.input_tokens.max(context + n));
                match live.preempted {
                    Some(_) => again += f64::from(n),
                    None => cold += f64::from(n) * live.cold_share,
                }
            } else {
                batch.add_decode(context);
                decodes.add_decode(context);
            }
        }
        let whole = us(step.end.saturating_sub(step.now));
        let model = us(self.limits.latency.step_time(&batch));
        let without = if decodes.decode_requests > 0 { us(self.limits.latency.step_time(&decodes)) } else { 0.0 };
        let max_tokens = self.limits.max_num_batched_tokens;
        self.instance(instance);
        let reason = self.reason(step, batch.tokens(), &self.instances[instance.index()]);
        let log = self.instance(instance);
        log.draining = u32::try_from(step.finished.len()).unwrap_or(u32::MAX);
        let loads_us =
            if std::mem::take(&mut log.loads) { (whole - log.stretch * model).clamp(0.0, whole) } else { 0.0 };
        if loads_us == 0.0 && model > 0.0 {
            log.stretch = whole / model;
        }
        let duration_us = whole - loads_us;
        let prefill_us = duration_us * (1.0 - without / model.max(1.0)).clamp(0.0, 1.0);
        let prefill_tokens = batch.prefill_tokens as f64;
        let share = |tokens: f64| if prefill_tokens > 0.0 { prefill_us * tokens / prefill_tokens } else { 0.0 };
        let (cold, preemption) = (share(cold), share(again));
        let is_full = batch.tokens() >= u64::from(max_tokens);
        let parts = PrefillParts { interference: (prefill_us - cold - preemption).max(0.0), cold, preemption };
        log.steps.push(StepShares { start: step.now, end: step.end, reason, parts, loads_us, is_full });
        StepView { instance, end: step.end, duration_us, loads_us, parts, prefill_tokens, is_full }
    }

    /// A request is scheduled: what it waited for, if it is new on the instance.
    fn enters(&mut self, id: RequestId, instance: InstanceIndex, now: Micros, context: u32) {
        let Some(mut live) = self.live.remove(&id.0) else { return };
        if live.instance != Some(instance) {
            let joined = if live.instance.is_some() { live.last_end } else { live.queued.unwrap_or(now) };
            live.instance = Some(instance);
            if live.preempted.is_none() {
                let mut times = [0.0; TIMED];
                self.waits(instance, TimeSpan { from: joined, to: now }, self.idle_cause(&live), &mut times);
                let of = live.times();
                of.iter_mut().zip(times).for_each(|(of, time)| *of += time);
            }
            if live.prefills(context) {
                self.begins(&mut live, context);
            }
        }
        self.live.insert(id.0, live);
    }

    /// The prefill of `live` begins, with `context` tokens from the cache.
    fn begins(&self, live: &mut DividedRequest, context: u32) {
        let input = live.request.input_tokens;
        let block = self.limits.block_size.max(1);
        let findable = (input.saturating_sub(1) / block) as usize;
        let known = live.request.content.keys().take(findable).take_while(|key| self.computed.contains(key)).count();
        let known_tokens = u32::try_from(known).unwrap_or(u32::MAX).saturating_mul(block);
        live.alone_tokens = input.saturating_sub(context).max(1);
        let cold = known_tokens.saturating_sub(context).min(live.alone_tokens);
        live.cold_tokens = u64::from(cold);
        live.cold_share = f64::from(cold) / f64::from(live.alone_tokens);
        let mut alone = Batch::default();
        alone.add_prefill(live.alone_tokens, context, input);
        live.alone_us = us(self.limits.latency.step_time(&alone));
    }

    fn computes(&mut self, id: RequestId, n: u32, context: u32, step: &StepView) {
        let Some(live) = self.live.get_mut(&id.0) else { return };
        live.last_end = step.end;
        let prefills = live.prefills(context);
        live.computed = context + n;
        self.computed_tokens += u64::from(n);
        match live.preempted {
            Some(Preempted { at, furthest }) => {
                let again = u64::from((context + n).min(furthest).saturating_sub(context));
                live.recomputed_tokens += again;
                self.recomputed_tokens += again;
                if context + n >= furthest {
                    live.preempted = None;
                    live.times()[Cause::Preemption as usize] += us(step.end.saturating_sub(at));
                }
            }
            None if prefills => live.prefill_step(n, step),
            None => live.decode_step(step),
        }
        if context + n == live.request.input_tokens + live.generated && live.generated < live.request.output_tokens {
            let is_here = live.decode.is_none_or(|decode| decode == step.instance);
            if is_here {
                live.generated += 1;
            }
            if is_here && !live.first_token {
                live.first_token = true;
            }
            if live.generated <= 1 {
                let block = self.limits.block_size.max(1);
                let blocks = (live.request.input_tokens / block) as usize;
                self.computed.extend(live.request.content.keys().take(blocks));
            }
        }
    }

    fn ended(&mut self, outcome: &Outcome) {
        let Some(mut live) = self.live.remove(&outcome.id.0) else { return };
        if outcome.completed() {
            self.computed.extend(live.request.content.keys());
        }
        if outcome.arrival < self.limits.warmup {
            return;
        }
        if matches!(outcome.status, Status::Dropped(_)) {
            self.dropped += 1;
            return;
        }
        let life = outcome.e2e.unwrap_or_else(|| outcome.ended_at.saturating_sub(outcome.arrival));
        let ended = outcome.arrival.saturating_add(life);
        match (live.instance, outcome.instance, live.queued, live.preempted) {
            (Some(_), _, _, Some(Preempted { at, .. })) => {
                live.times()[Cause::Preemption as usize] += us(ended.saturating_sub(at));
            }
            (None, Some(instance), Some(queued), _) => {
                let idle = self.idle_cause(&live);
                self.waits(instance, TimeSpan { from: queued, to: ended }, idle, &mut live.before);
            }
            _ => {}
        }
        let in_gateway = if live.queued.is_none() { life } else { live.gateway_wait };
        let span = TimeSpan { from: outcome.arrival, to: outcome.arrival.saturating_add(in_gateway) };
        let starting = self.starting_us(span).min(us(in_gateway));
        live.before[Cause::ColdStart as usize] += starting;
        live.before[Cause::GatewayQueue as usize] += us(in_gateway) - starting;
        live.before[Cause::Transfer as usize] += live.encode_us;
        live.moves_between_instances();
        live.waits_for_loads(us(outcome.kv_load_wait));
        let ttft_us = outcome.ttft.map(us);
        let life_us = us(life);
        let first = ttft_us.unwrap_or(life_us).min(life_us);
        reconcile(&mut live.before, first);
        reconcile(&mut live.after, life_us - first);
        self.ended.push(AttributedRequest {
            id: outcome.id,
            class: outcome.tags.slo_class,
            arrival: outcome.arrival,
            deadline: live.request.deadline.map(|deadline| deadline.saturating_sub(outcome.arrival)),
            instance: outcome.instance,
            status: outcome.status,
            ttft_us,
            life_us,
            generated: outcome.generated_tokens,
            before: live.before,
            after: live.after,
            preemptions: live.preemptions,
            recomputed_tokens: live.recomputed_tokens,
            cold_tokens: live.cold_tokens,
        });
    }
}

impl DividedRequest {
    fn prefill_step(&mut self, n: u32, step: &StepView) {
        let (tokens, n) = (f64::from(self.alone_tokens.max(1)), f64::from(n));
        let own = (self.alone_us * n / tokens).min(step.duration_us);
        let others = step.parts.times((1.0 - n / step.prefill_tokens.max(n)).max(0.0));
        let rest = step.duration_us - own;
        let factor = if others.sum() > rest { rest / others.sum() } else { 1.0 };
        let others = others.times(factor);
        let is_cut = n < tokens;
        let (cold_share, loads) = (self.cold_share, step.loads_us);
        let times = self.times();
        others.add_waiting_to(times, step.is_full);
        times[Cause::ColdCache as usize] += own * cold_share;
        times[Cause::OwnPrefill as usize] += own * (1.0 - cold_share);
        times[Cause::AdapterLoad as usize] += loads;
        let cause = if is_cut { Cause::TokenBudget } else { Cause::OwnPrefill };
        times[cause as usize] += (rest - others.sum()).max(0.0);
    }

    fn decode_step(&mut self, step: &StepView) {
        let times = self.times();
        step.parts.add_to(times);
        times[Cause::AdapterLoad as usize] += step.loads_us;
        times[Cause::Decode as usize] += step.duration_us - step.parts.sum();
    }

    /// Between a prefill and a decode instance it waited for the transfer, which no step shows.
    fn moves_between_instances(&mut self) {
        let Some(stages) = self.stages else { return };
        let of = |time: Option<Micros>| time.map_or(0.0, us);
        let transfer = of(stages.hold) + of(stages.transfer) + of(stages.reuse);
        let blocks = of(stages.decode_wait);
        // What the queue of the decode instance was taken for meanwhile.
        let waits = [
            Cause::Transfer,
            Cause::KvBlocks,
            Cause::BatchSlots,
            Cause::TokenBudget,
            Cause::Interference,
            Cause::Decode,
            Cause::Fixed,
        ];
        let mut left = transfer + blocks;
        for cause in waits {
            let taken = self.before[cause as usize].min(left);
            self.before[cause as usize] -= taken;
            left -= taken;
        }
        self.before[Cause::Transfer as usize] += transfer;
        self.before[Cause::KvBlocks as usize] += blocks;
    }

    /// `loads_us` of its waiting were loads from the CPU tier.
    fn waits_for_loads(&mut self, loads_us: f64) {
        let mut left = loads_us;
        for cause in [Cause::KvBlocks, Cause::TokenBudget, Cause::BatchSlots, Cause::Decode, Cause::Interference] {
            let taken = self.before[cause as usize].min(left);
            self.before[cause as usize] -= taken;
            self.before[Cause::Transfer as usize] += taken;
            left -= taken;
        }
    }
}

/// Makes `times` sum to `whole`: what is missing are fixed delays, what is too much is taken off in proportion.
fn reconcile(times: &mut CauseTimes, whole: f64) {
    let whole = whole.max(0.0);
    times.iter_mut().for_each(|time| *time = time.max(0.0));
    let sum: f64 = times.iter().sum();
    if sum > whole {
        let factor = whole / sum;
        times.iter_mut().for_each(|time| *time *= factor);
    } else {
        times[Cause::Fixed as usize] += whole - sum;
    }
}

impl Observer for AttributionLog {
    fn interests(&self) -> Interests {
        Interests::ARRIVALS | Interests::DECISIONS | Interests::SCHEDULING | Interests::STEPS | Interests::OUTCOMES
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        match *event {
            SimEvent::Arrival(request) => {
                self.longest_prompt = self.longest_prompt.max(request.input_tokens);
                self.requests.push(request.clone());
                self.live.insert(request.id.0, DividedRequest::new(request));
            }
            SimEvent::Decision(decision) => self.decided(decision),
            SimEvent::Replica(event) => self.replica(event),
            SimEvent::Adapter(event) if event.change != AdapterChange::Evicted => {
                self.instance(event.instance).loads = true;
            }
            SimEvent::Encoded(times) => {
                if let Some(live) = self.live.get_mut(&times.id.0) {
                    let took = [times.queue, times.time, times.transfer].into_iter().flatten().sum();
                    live.encode_us = us(took);
                    live.queued = live.queued.map(|queued| queued.saturating_add(took));
                }
            }
            SimEvent::Disaggregated(stages) => {
                if let Some(live) = self.live.get_mut(&stages.id.0) {
                    live.stages = Some(*stages);
                }
            }
            SimEvent::Step { instance, step } => self.step(instance, step),
            SimEvent::Outcome(outcome) => self.ended(outcome),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the parts, they become the whole: shares sum to 1.
        #[test]
        fn parts_sum_to_the_whole(parts in prop::collection::vec(-1e3..1e9_f64, TIMED), whole in 0.0..1e10_f64) {
            let mut times: CauseTimes = std::array::from_fn(|cause| parts[cause]);
            reconcile(&mut times, whole);
            let sum: f64 = times.iter().sum();
            prop_assert!((sum - whole).abs() <= 1e-9 * whole.max(1.0), "{} of {}", sum, whole);
            prop_assert!(times.iter().all(|time| *time >= 0.0));
        }

        #[test]
        fn the_common_time_of_two_spans_is_in_both(from in 0..100_u64, long in 0..100_u64, other in 0..100_u64, wide in 0..100_u64) {
            let span = |from, long| TimeSpan { from: Micros(from), to: Micros(from + long) };
            let (one, two) = (span(from, long), span(other, wide));
            let common = overlap_us(one, two);
            prop_assert!(common >= 0.0 && common <= (long.min(wide)) as f64);
            prop_assert_eq!(common, overlap_us(two, one));
        }
    }
}
