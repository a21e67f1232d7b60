//! The queue in front of routing: requests wait here while the service is full, in bands by priority and flows by tenant.
//!
//! ```text
//! admitted ──► enqueue ──► band ──► flow ──► … ──► dispatch ──► routing
//!                │                    │
//!             no room              expired, timed out
//! ```
//!
//! A dispatch cycle runs after every enqueue and at every tick while requests wait, and dispatches one request at most, as
//! llm-d does. Time in the queue is part of every latency.
//!
//! A cycle that dispatches nothing is the same again until a signal changes, a request joins or leaves the queue or is
//! routed, or the result of a policy changes with time. The ticks before that are skipped ([`Ticks`]).

mod evictable;
mod scrape;
mod settings;
mod ticks;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use rustc_hash::FxHashMap;
use slotmap::SlotMap;

use self::evictable::EvictableRequests;
use self::settings::bytes_of;
pub use self::settings::{FlowControl, FlowSettings};
use self::ticks::Ticks;
use super::decisions::ForcedDecision;
use crate::ids::{InstanceIndex, RequestId};
use crate::numbers::{count, truncated_u32};
use crate::outcome::{GatewayChoice, GatewayDecision, Outcome, Status};
use crate::policy::flow::{self, InFlight, ServedTokens, flow_of};
use crate::policy::{ClusterView, Event, Events, Reads, RequestView};
use crate::request::{Name, Request};
use crate::units::Micros;

slotmap::new_key_type! {
    /// A request in the queue.
    struct GatewayKey;
}

#[derive(Clone, Debug)]
struct QueuedRequest {
    request: Box<Request>,
    band: i32,
    tenant: Name,
    tenant_order: u32,
    enqueued: Micros,
    rank: FlowRank,
}

/// Position in a flow: the rank of the ordering policy, then the turn.
#[derive(Clone, Copy, Debug, PartialEq)]
struct FlowRank(f64, u64);

impl Eq for FlowRank {}

impl PartialOrd for FlowRank {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FlowRank {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

/// A band: its flows in the order of tenants' names.
#[derive(Clone, Debug, Default)]
struct BandQueue {
    queued: u32,
    bytes: u64,
    flows: BTreeMap<(u32, Name), FlowQueue>,
    /// Each request and the time at which it was enqueued, by turn: the first is the oldest.
    waiting: BTreeMap<u64, (GatewayKey, Micros)>,
}

#[derive(Clone, Debug, Default)]
struct FlowQueue {
    queue: BTreeMap<FlowRank, GatewayKey>,
    dispatched: u64,
}

/// What the service does for a tenant.
#[derive(Clone, Copy, Debug, Default)]
struct Service {
    in_flight: u32,
    served: ServedTokens,
}

/// The queue during a simulation.
#[derive(Debug)]
pub(super) struct Gateway {
    control: FlowControl,
    requests: SlotMap<GatewayKey, QueuedRequest>,
    /// By priority, highest first. A band stays when it is empty.
    bands: BTreeMap<Reverse<i32>, BandQueue>,
    /// Requests by the time at which they expire or time out; those that are gone are skipped.
    leaving: BinaryHeap<Reverse<(Micros, GatewayKey)>>,
    services: FxHashMap<Name, Service>,
    /// Outputs that will be complete in the future: (time, tenant, tokens).
    ending: BinaryHeap<Reverse<(Micros, Name, u32)>>,
    ticks: Ticks,
    evictable: EvictableRequests,
    /// No request is evicted before this time.
    evicts_from: Micros,
    turns: u64,
    /// The next choice of this kind about this request, which is forced.
    forced: Option<(RequestId, ForcedDecision)>,
    seen: CycleState,
}

/// What the policies saw and decided in the last cycle.
#[derive(Clone, Debug, Default)]
struct CycleState {
    saturation: f64,
    bands: Vec<flow::Band>,
    ceilings: Vec<f64>,
    flows: Vec<flow::Flow>,
    /// The band that was to be served by an eviction, and the requests that could be evicted.
    demand: Option<flow::Band>,
    evictable: Vec<InFlight>,
    /// The time until which the cycle would do nothing again if no signal changed, and the number of such cycles that the
    /// policy of ceilings would have the same result; `None` if it did something.
    steady: Option<(Micros, u64)>,
}

/// What became of a request that reached the queue.
#[derive(Debug)]
pub(super) enum Enqueued {
    /// It waits.
    Waits,
    /// There is no room for it.
    Refused(Box<Request>),
    /// It waits, and another one had to leave.
    Displaced(Box<Request>),
}

/// What a dispatch cycle does.
#[derive(Debug)]
pub(super) enum Cycle {
    /// Nothing: no request waits, or the service is full.
    Nothing,
    /// It dispatches a request, which waited for so long.
    Dispatch(Box<Request>, Micros),
    /// It ends these requests on their instances.
    Evict(Vec<(RequestId, InstanceIndex)>),
}

/// Why requests leave the queue unserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaves {
    Expired,
    TimedOut,
}

impl Gateway {
    pub fn new(control: FlowControl) -> Self {
        let ticks = Ticks::new(control.settings.tick, control.settings.ticks_from_enqueue);
        Self {
            control,
            requests: SlotMap::with_key(),
            bands: BTreeMap::new(),
            leaving: BinaryHeap::new(),
            services: FxHashMap::default(),
            ending: BinaryHeap::new(),
            ticks,
            evictable: EvictableRequests::default(),
            evicts_from: Micros::ZERO,
            turns: 0,
            forced: None,
            seen: CycleState::default(),
        }
    }

    /// The signals that its policies read.
    pub fn reads(&self) -> Reads {
        self.control.saturation.reads()
    }

    /// Whether the ends of requests must be known.
    pub fn reads_ends(&self) -> bool {
        self.control.fairness.reads_ends() || self.control.eviction.is_some()
    }

    /// The events that its policies receive.
    pub fn events(&self) -> Events {
        let FlowControl { saturation, ceilings, fairness, ordering, eviction, .. } = &self.control;
        let eviction = eviction.as_ref().map_or(Events::NONE, |eviction| eviction.events());
        saturation.events().and(ceilings.events()).and(fairness.events()).and(ordering.events()).and(eviction)
    }

    /// Delivers an event to the policies that receive its kind.
    pub fn observe(&mut self, event: &Event) {
        let FlowControl { saturation, ceilings, fairness, ordering, eviction, .. } = &mut self.control;
        if saturation.events().include(event.kind) {
            saturation.observe(event);
        }
        if ceilings.events().include(event.kind) {
            ceilings.observe(event);
        }
        if fairness.events().include(event.kind) {
            fairness.observe(event);
        }
        if ordering.events().include(event.kind) {
            ordering.observe(event);
        }
        if let Some(eviction) = eviction.as_mut().filter(|eviction| eviction.events().include(event.kind)) {
            eviction.observe(event);
        }
    }

    /// Number of requests that wait.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Forces the next dispatch or eviction of request `id` to be another.
    pub fn force(&mut self, id: RequestId, what: ForcedDecision) {
        self.forced = Some((id, what));
    }

    /// The requests of a flow, in their order.
    pub fn flow(&self, priority: i32, tenant: Name) -> impl Iterator<Item = &Request> {
        let flows = self.bands.get(&Reverse(priority)).into_iter().flat_map(|band| &band.flows);
        let keys = flows.filter(move |((_, name), _)| *name == tenant).flat_map(|(_, flow)| flow.queue.values());
        keys.map(|&key| &*self.requests[key].request)
    }

    /// `request`, which policies see as a `view`, joins the queue at `now`, if there is room.
    pub fn enqueue(
        &mut self,
        now: Micros,
        request: Box<Request>,
        view: impl for<'r> Fn(&'r Request) -> RequestView<'r>,
    ) -> Enqueued {
        self.pass_ticks(now);
        self.ticks.changed();
        let priority = view(&request).class_priority;
        let is_full = |limit: Option<u32>, queued: usize| limit.is_some_and(|limit| queued >= limit as usize);
        let (in_band, bytes) = self.bands.get(&Reverse(priority)).map_or((0, 0), |band| (band.queued, band.bytes));
        let too_large = |limit| bytes + bytes_of(&request) > limit;
        let settings = &self.control.settings;
        if is_full(settings.band_requests, in_band as usize) || settings.band_bytes.is_some_and(too_large) {
            // The limit of a band is its own: no request of a lower band leaves for this one.
            return Enqueued::Refused(request);
        }
        let mut displaced = None;
        if is_full(self.control.settings.max_requests, self.requests.len()) {
            displaced = self.displaced_by(priority);
            if displaced.is_none() {
                // llm-d refuses what arrives at a full queue; BLIS only if no queued request may be shed for it.
                return Enqueued::Refused(request);
            }
        }
        let expires = self.control.settings.ttl.map_or(Micros::MAX, |ttl| now.saturating_add(ttl));
        let rank = self.control.ordering.rank(&view(&request), now, expires);
        self.insert(now, request, priority, rank, expires);
        displaced.map_or(Enqueued::Waits, Enqueued::Displaced)
    }

    fn insert(&mut self, now: Micros, request: Box<Request>, band: i32, rank: f64, expires: Micros) {
        let settings = &self.control.settings;
        let times_out = request.deadline.filter(|_| settings.clients_time_out).unwrap_or(Micros::MAX);
        let (tenant_order, tenant) = settings.tenant(request.tags.tenant);
        let rank = FlowRank(if rank.is_nan() { f64::INFINITY } else { rank }, self.turns);
        self.turns += 1;
        // The client may have timed out before.
        let leaves = self.swept_at(expires).min(times_out).max(now);
        let bytes = bytes_of(&request);
        let key = self.requests.insert(QueuedRequest { request, band, tenant, tenant_order, enqueued: now, rank });
        if leaves < Micros::MAX {
            self.leaving.push(Reverse((leaves, key)));
        }
        let band = self.bands.entry(Reverse(band)).or_default();
        band.queued += 1;
        band.bytes += bytes;
        band.waiting.insert(rank.1, (key, now));
        band.flows.entry((tenant_order, tenant)).or_default().queue.insert(rank, key);
    }

    /// The moment at which a request that expires at `expires` is found expired.
    fn swept_at(&self, expires: Micros) -> Micros {
        let sweep = self.control.settings.sweep.0;
        if sweep == 0 || expires == Micros::MAX { expires } else { Micros(expires.0.next_multiple_of(sweep)) }
    }

    /// Removes the request that one of priority `priority` displaces: of the lowest priority, the one enqueued last.
    fn displaced_by(&mut self, priority: i32) -> Option<Box<Request>> {
        if !self.control.settings.displaces {
            return None;
        }
        let (&Reverse(lowest), band) = self.bands.iter().rev().find(|(_, band)| band.queued > 0)?;
        if lowest >= 0 || lowest >= priority {
            // BLIS sheds only sheddable requests, of a priority below 0, and only for more important ones.
            return None;
        }
        let &(last, _) = band.waiting.values().next_back()?;
        self.remove(last).map(|queued| queued.request)
    }

    fn remove(&mut self, key: GatewayKey) -> Option<QueuedRequest> {
        let queued = self.requests.remove(key)?;
        if let Some(band) = self.bands.get_mut(&Reverse(queued.band)) {
            band.queued -= 1;
            band.bytes -= bytes_of(&queued.request);
            band.waiting.remove(&queued.rank.1);
            if let Some(flow) = band.flows.get_mut(&(queued.tenant_order, queued.tenant)) {
                flow.queue.remove(&queued.rank);
            }
        }
        if self.requests.is_empty() {
            self.leaving.clear();
        }
        Some(queued)
    }

    /// When a request leaves the queue unserved next.
    pub fn next_leave(&mut self) -> Option<Micros> {
        while let Some(&Reverse((at, key))) = self.leaving.peek() {
            // Requests that were dispatched or displaced stay in the heap until their time is the first.
            if self.requests.contains_key(key) {
                return Some(at);
            }
            self.leaving.pop();
        }
        None
    }

    /// Removes the next request that leaves unserved, and says why.
    pub fn leave(&mut self) -> Option<(Box<Request>, Leaves)> {
        self.next_leave()?;
        let Reverse((at, key)) = self.leaving.pop()?;
        self.pass_ticks(at);
        self.ticks.changed();
        let request = self.remove(key)?.request;
        let timed_out =
            self.control.settings.clients_time_out && request.deadline.is_some_and(|deadline| deadline <= at);
        Some((request, if timed_out { Leaves::TimedOut } else { Leaves::Expired }))
    }

    /// Removes request `id` at `now`, if it waits: its client has disconnected.
    pub fn cancel(&mut self, now: Micros, id: RequestId) -> Option<Box<Request>> {
        let (key, _) = self.requests.iter().find(|(_, queued)| queued.request.id == id)?;
        self.pass_ticks(now);
        self.ticks.changed();
        self.remove(key).map(|queued| queued.request)
    }

    /// When the next tick is due; `None` while no request waits.
    pub fn next_tick(&self) -> Option<Micros> {
        self.ticks.due()
    }

    /// The cycle after an enqueue at `now` is over: ticks begin if requests wait.
    pub fn enqueued(&mut self, now: Micros) {
        if !self.requests.is_empty() {
            self.ticks.begin(now);
        }
    }

    /// A tick at `now` is over: the next one follows if requests wait. Returns whether nothing has happened for so many
    /// ticks that the simulation may never end.
    pub fn ticked(&mut self, now: Micros) -> bool {
        self.ticks.executed(now, !self.requests.is_empty())
    }

    /// A request that may be evicted has just been ended.
    pub fn evicted(&mut self) {
        self.ticks.changed();
    }

    /// No signal changes until `steady`, inclusive: skips the ticks that would do nothing.
    pub fn skip_ticks(&mut self, steady: Micros) {
        if let Some((until, cycles)) = self.seen.steady {
            self.ticks.skip(steady.min(until), cycles);
        }
    }

    /// Other instances may be chosen from now on: ticks from `from` on see them.
    pub fn instances_changed(&mut self, from: Micros) {
        self.pass_ticks(from);
        self.ticks.changed();
    }

    /// Something changes at `now`: counts the ticks before as executed, and executes those from `now` on.
    fn pass_ticks(&mut self, now: Micros) {
        let passed = self.ticks.pass(now);
        if passed > 0 {
            self.control.ceilings.repeated(self.seen.saturation, passed);
        }
    }

    /// One dispatch cycle at `now`.
    pub fn cycle(&mut self, now: Micros, cluster: &ClusterView<'_>) -> Cycle {
        self.seen.steady = None;
        if self.requests.is_empty() {
            return Cycle::Nothing;
        }
        self.pass_ticks(now);
        self.catch_up(now);
        self.seen.saturation = self.saturation(cluster);
        self.show_bands(now);
        let CycleState { saturation, bands, ceilings, .. } = &mut self.seen;
        self.control.ceilings.ceilings(now, *saturation, bands, ceilings);
        // Not-a-number and a missing ceiling count as 1.
        ceilings.resize(bands.len(), 1.0);
        ceilings.iter_mut().filter(|ceiling| ceiling.is_nan()).for_each(|ceiling| *ceiling = 1.0);
        for rank in 0..self.seen.bands.len() {
            if cluster.is_empty() || self.seen.saturation >= self.seen.ceilings[rank] {
                // By priority: a lower band waits behind a ceiling that is reached, even if its own is higher.
                return self.stop(now, rank, cluster);
            }
            let band = self.seen.bands[rank];
            if band.queued > 0 {
                let dispatched = self.dispatch_from(now, band);
                // As in llm-d a cycle dispatches one request at most: the next cycle sees the load with this one.
                return dispatched.map_or(Cycle::Nothing, |(request, waited)| Cycle::Dispatch(request, waited));
            }
        }
        Cycle::Nothing
    }

    /// The cycle ends at band number `rank`, which has to wait: requests in flight may be evicted.
    fn stop(&mut self, now: Micros, rank: usize, cluster: &ClusterView<'_>) -> Cycle {
        let saturation = &self.control.saturation;
        let mut until = if cluster.is_empty() { Micros::MAX } else { saturation.steady_until(cluster) };
        if self.control.eviction.is_some() && self.demand(rank) {
            if now >= self.evicts_from {
                // The grace period is over, in which the last evictions could make room: further ones may follow.
                return self.evict(now);
            }
            until = until.min(self.evicts_from - Micros(1));
        }
        self.seen.steady = Some((until, self.control.ceilings.repeats(self.seen.saturation)));
        Cycle::Nothing
    }

    /// Finds the first band from number `stopped` on that waits for room, and the requests in flight that may make it.
    /// Returns whether there are any.
    fn demand(&mut self, stopped: usize) -> bool {
        let CycleState { saturation, bands, ceilings, evictable, .. } = &mut self.seen;
        let waits =
            |&(band, &ceiling): &(&flow::Band, &f64)| band.queued > 0 && ceiling > 0.0 && *saturation >= ceiling;
        // An eviction does not help a band that is empty, is below its ceiling or has a ceiling of 0.
        let Some((&band, _)) = bands.iter().zip(&*ceilings).skip(stopped).find(waits) else { return false };
        evictable.clear();
        evictable.extend(self.evictable.below(band.priority));
        self.seen.demand = Some(band);
        !self.seen.evictable.is_empty()
    }

    /// Chooses requests in flight that make room for the demanding band. Of llm-d's rule: as many as bring the saturation S
    /// below the band's ceiling c, each worth S / requests in flight.
    fn evict(&mut self, now: Micros) -> Cycle {
        let (Some(policy), Some(demand)) = (&mut self.control.eviction, self.seen.demand) else {
            return Cycle::Nothing;
        };
        let rank = self.seen.bands.iter().position(|band| band.priority == demand.priority);
        let ceiling = rank.map_or(1.0, |rank| self.seen.ceilings[rank]);
        let in_flight: u32 = self.services.values().map(|service| service.in_flight).sum();
        let credit = self.seen.saturation / f64::from(in_flight.max(1));
        let wanted = truncated_u32(libm::ceil((self.seen.saturation - ceiling) / credit).max(1.0));
        let mut candidates = self.seen.evictable.clone();
        let (mut evicted, mut is_spared) = (Vec::new(), false);
        for _ in 0..wanted.min(self.control.settings.evictions_at_once) {
            let victim = policy.victim(now, demand, &candidates).filter(|&victim| victim < candidates.len());
            // The policy spares the other candidates, even if llm-d's rule asks for more evictions.
            let Some(chosen) = victim.map(|victim| RequestId(candidates.remove(victim).id)) else { break };
            let is_this = |forced: &mut (RequestId, ForcedDecision)| {
                forced.0 == chosen && matches!(forced.1, ForcedDecision::Evict(_))
            };
            let id = match self.forced.take_if(is_this) {
                Some((_, ForcedDecision::Evict(other))) => other,
                _ => Some(chosen),
            };
            is_spared |= id.is_none();
            candidates.retain(|candidate| Some(RequestId(candidate.id)) != id);
            let victim = id.and_then(|id| Some((id, self.evictable.instance(id)?)));
            evicted.extend(victim);
            if candidates.is_empty() {
                // The eviction policy is never called without candidates, even if the rule asks for more.
                break;
            }
        }
        if evicted.is_empty() && !is_spared {
            // Without an eviction no grace period begins: the next tick asks the policy again.
            return Cycle::Nothing;
        }
        self.evicts_from = now.saturating_add(self.control.settings.eviction_grace);
        Cycle::Evict(evicted)
    }

    /// `request`, which was dispatched, goes to `instance` at `now`.
    pub fn routed(&mut self, now: Micros, request: &Request, priority: i32, instance: InstanceIndex) {
        self.pass_ticks(now);
        if self.control.eviction.is_some() && priority < 0 {
            let (_, tenant) = self.control.settings.tenant(request.tags.tenant);
            let view = InFlight {
                dispatched_us: now.0,
                id: request.id.0,
                priority,
                input_tokens: request.input_tokens,
                tenant: tenant.0,
            };
            self.evictable.add(view, instance);
        }
    }

    fn show_bands(&mut self, now: Micros) {
        let oldest = |band: &BandQueue| band.waiting.values().next().map(|&(_, enqueued)| now.saturating_sub(enqueued));
        self.seen.bands.clear();
        self.seen.bands.extend(self.bands.iter().map(|(&Reverse(priority), band)| flow::Band {
            oldest_wait_us: oldest(band).unwrap_or(Micros::ZERO).0,
            priority,
            queued: band.queued,
        }));
        self.seen.ceilings.clear();
    }

    /// Removes the head of the flow that the fairness policy picks.
    fn dispatch_from(&mut self, now: Micros, view: flow::Band) -> Option<(Box<Request>, Micros)> {
        let band = self.bands.get_mut(&Reverse(view.priority))?;
        self.seen.flows.clear();
        for (&(tenant_order, tenant), flow) in &band.flows {
            // An empty flow keeps its count of dispatches, but fairness chooses among flows with requests only.
            let Some((&FlowRank(rank, turn), &key)) = flow.queue.first_key_value() else { continue };
            let QueuedRequest { request, enqueued, .. } = &self.requests[key];
            let Service { in_flight, served } = self.services.get(&tenant).copied().unwrap_or_default();
            self.seen.flows.push(flow::Flow {
                served_decayed: served.decayed,
                head_rank: rank,
                served_as_of_us: served.as_of.0,
                head_turn: turn,
                head_wait_us: now.saturating_sub(*enqueued).0,
                dispatched: flow.dispatched,
                served_input: served.input,
                served_output: served.output,
                tenant: tenant.0,
                tenant_order,
                queued: count(flow.queue.len()),
                in_flight,
                ..flow_of(request)
            });
        }
        let flows = &self.seen.flows;
        let picked = self.control.fairness.pick(now, self.seen.saturation, view, flows);
        let flow::Flow { tenant, tenant_order, head_id, .. } = *flows.get(picked).or(flows.first())?;
        let mut key = *band.flows.get(&(tenant_order, Name(tenant)))?.queue.first_key_value()?.1;
        let is_this = |forced: &mut (RequestId, ForcedDecision)| {
            forced.0.0 == head_id && matches!(forced.1, ForcedDecision::Dispatch(_))
        };
        if let Some((_, ForcedDecision::Dispatch(other))) = self.forced.take_if(is_this) {
            let mut waiting = band.waiting.values().map(|&(key, _)| key);
            key = waiting.find(|&key| self.requests[key].request.id == other).unwrap_or(key);
        }
        let QueuedRequest { tenant, tenant_order, .. } = self.requests[key];
        band.flows.get_mut(&(tenant_order, tenant))?.dispatched += 1;
        let QueuedRequest { request, enqueued, .. } = self.remove(key)?;
        self.ticks.changed();
        let service = self.services.entry(tenant).or_default();
        service.in_flight += 1;
        service.served.add(now, u64::from(request.input_tokens), 0);
        Some((request, now.saturating_sub(enqueued)))
    }

    /// `request`, which was dispatched, finds no instance at its routing.
    pub fn refused(&mut self, request: &Request) {
        let (_, tenant) = self.control.settings.tenant(request.tags.tenant);
        let service = self.services.entry(tenant).or_default();
        service.in_flight = service.in_flight.saturating_sub(1);
        self.ticks.changed();
    }

    /// The record of what the last cycle did to `request`.
    pub fn dispatched(&self, now: Micros, request: &Request, waited: Micros) -> GatewayDecision<'_> {
        let CycleState { bands, ceilings, flows, saturation, .. } = &self.seen;
        let band = bands.iter().find(|band| band.queued > 0).copied();
        GatewayDecision {
            now,
            request: request.id,
            saturation: Some(*saturation),
            bands,
            ceilings,
            choice: GatewayChoice::Dispatched { band: band.map_or(0, |band| band.priority), flows, waited },
        }
    }

    /// The record of an eviction by the last cycle.
    pub fn revoked(&self, now: Micros, id: RequestId, instance: InstanceIndex) -> GatewayDecision<'_> {
        let CycleState { bands, ceilings, demand, evictable, saturation, .. } = &self.seen;
        GatewayDecision {
            now,
            request: id,
            saturation: Some(*saturation),
            bands,
            ceilings,
            choice: GatewayChoice::Evicted {
                instance,
                demand: demand.map_or(0, |band| band.priority),
                candidates: evictable,
            },
        }
    }

    /// The record of a request that leaves the queue, or finds no room in it, without a cycle.
    pub fn left<'a>(&'a mut self, now: Micros, request: &Request, choice: GatewayChoice<'a>) -> GatewayDecision<'a> {
        self.show_bands(now);
        GatewayDecision { now, request: request.id, saturation: None, bands: &self.seen.bands, ceilings: &[], choice }
    }

    /// A dispatched request ended, now or when its output will be complete.
    pub fn ended(&mut self, outcome: &Outcome) {
        let ends = matches!(outcome.status, Status::Queued | Status::Running | Status::Arriving);
        if ends || outcome.instance.is_none() {
            // The end of the simulation is no end of a request, and without an instance a request was not in flight.
            return;
        }
        self.evictable.remove(outcome.id);
        let at = outcome.e2e.map_or(outcome.ended_at, |e2e| outcome.arrival.saturating_add(e2e));
        let (_, tenant) = self.control.settings.tenant(outcome.tags.tenant);
        self.ending.push(Reverse((at, tenant, outcome.generated_tokens)));
    }

    /// Counts the requests that ended before `now`.
    fn catch_up(&mut self, now: Micros) {
        while let Some(&Reverse((at, tenant, output))) = self.ending.peek()
            && at < now
        {
            self.ending.pop();
            let service = self.services.entry(tenant).or_default();
            service.in_flight = service.in_flight.saturating_sub(1);
            service.served.add(at, 0, u64::from(output));
        }
    }

    /// Removes all requests, in the order in which they were enqueued.
    pub fn drain(&mut self) -> Vec<Request> {
        let mut left: Vec<QueuedRequest> = self.requests.drain().map(|(_, queued)| queued).collect();
        left.sort_by_key(|queued| queued.rank.1);
        left.into_iter().map(|queued| *queued.request).collect()
    }
}

impl Clone for Gateway {
    fn clone(&self) -> Self {
        Self {
            control: self.control.clone(),
            requests: self.requests.clone(),
            bands: self.bands.clone(),
            leaving: self.leaving.clone(),
            services: self.services.clone(),
            ending: self.ending.clone(),
            ticks: self.ticks.clone(),
            evictable: self.evictable.clone(),
            evicts_from: self.evicts_from,
            turns: self.turns,
            forced: self.forced,
            seen: self.seen.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
