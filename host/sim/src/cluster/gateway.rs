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

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use rustc_hash::FxHashMap;
use slotmap::SlotMap;

use crate::ids::{InstanceIndex, RequestId};
use crate::outcome::{Outcome, Status};
use crate::policy::flow::{
    BandView, CeilingsPolicy, EvictionPolicy, FairnessPolicy, FlowView, HeadView, InFlightView, OrderingPolicy,
    SaturationPolicy, ServedTokens,
};
use crate::policy::{ClusterView, Event, Events, Reads, RequestView};
use crate::request::{Name, Request};
use crate::units::Micros;

/// The policies and limits of the queue.
#[derive(Debug)]
pub struct FlowControl {
    /// Says how full the service is.
    pub saturation: Box<dyn SaturationPolicy>,
    /// Says up to which saturation each band is served.
    pub ceilings: Box<dyn CeilingsPolicy>,
    /// Chooses the flow.
    pub fairness: Box<dyn FairnessPolicy>,
    /// Orders the requests of a flow.
    pub ordering: Box<dyn OrderingPolicy>,
    /// Chooses requests in flight that are ended to make room; `None` for none.
    pub eviction: Option<Box<dyn EvictionPolicy>>,
    /// Limits and times of the queue.
    pub settings: FlowSettings,
}

/// Limits and times of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSettings {
    /// Requests that the queue holds at most; `None` for no limit.
    pub max_requests: Option<u32>,
    /// Requests that a band holds at most; `None` for no limit.
    pub band_requests: Option<u32>,
    /// A request that arrives at a full queue displaces the one of the lowest priority, below 0 and below its own (BLIS's
    /// `--queue-shedding`; llm-d rejects the one that arrives).
    pub displaces: bool,
    /// Time after which a request leaves the queue unserved; `None` for never.
    pub ttl: Option<Micros>,
    /// Interval at which expired requests are looked for, on multiples of it; 0 for the moment at which they expire (BLIS).
    pub sweep: Micros,
    /// Interval between dispatch cycles while requests wait, > 0.
    pub tick: Micros,
    /// Whether ticks count from the request that found the queue empty (BLIS), instead of being multiples of the interval.
    pub ticks_from_enqueue: bool,
    /// Whether the clients' deadlines hold in the queue. (In BLIS they begin to hold on an instance.)
    pub clients_time_out: bool,
    /// Time after an eviction before the next ones.
    pub eviction_grace: Micros,
    /// Requests that are evicted at once at most, ≥ 1.
    pub evictions_at_once: u32,
    /// For each tenant by the index of its name, the position in the order of names, and the name under which its requests
    /// are queued.
    pub tenants: Vec<(u32, Name)>,
}

impl FlowSettings {
    /// The settings of llm-d's flow control: 5 000 requests in a band, 60 s in the queue, looked for every second, a cycle
    /// every millisecond.
    #[must_use]
    pub fn usual() -> Self {
        Self {
            max_requests: None,
            band_requests: Some(5000),
            displaces: false,
            ttl: Some(Micros(60_000_000)),
            sweep: Micros(1_000_000),
            tick: Micros(1000),
            ticks_from_enqueue: false,
            clients_time_out: true,
            eviction_grace: Micros(500_000),
            evictions_at_once: 2,
            tenants: Vec::new(),
        }
    }

    fn tenant(&self, name: Name) -> (u32, Name) {
        self.tenants.get(name.index()).copied().unwrap_or((name.0, name))
    }
}

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
struct Band {
    queued: u32,
    flows: BTreeMap<(u32, Name), Flow>,
    /// The time at which each request was enqueued, by turn: the first is the oldest.
    waiting: BTreeMap<u64, Micros>,
}

#[derive(Clone, Debug, Default)]
struct Flow {
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
    bands: BTreeMap<Reverse<i32>, Band>,
    /// Requests by the time at which they expire or time out; those that are gone are skipped.
    leaving: BinaryHeap<Reverse<(Micros, GatewayKey)>>,
    services: FxHashMap<Name, Service>,
    /// Outputs that will be complete in the future: (time, tenant, tokens).
    ending: BinaryHeap<Reverse<(Micros, Name, u32)>>,
    next_tick: Option<Micros>,
    /// Dispatched requests that may be evicted, and their instances.
    in_flight: Vec<(InFlightView, InstanceIndex)>,
    /// No request is evicted before this time.
    evicts_from: Micros,
    turns: u64,
    ceilings: Vec<f64>,
    views: Vec<BandView>,
    flows: Vec<FlowView>,
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
        Self {
            control,
            requests: SlotMap::with_key(),
            bands: BTreeMap::new(),
            leaving: BinaryHeap::new(),
            services: FxHashMap::default(),
            ending: BinaryHeap::new(),
            next_tick: None,
            in_flight: Vec::new(),
            evicts_from: Micros::ZERO,
            turns: 0,
            ceilings: Vec::new(),
            views: Vec::new(),
            flows: Vec::new(),
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

    /// `request` joins the queue at `now`, if there is room.
    pub fn enqueue(&mut self, now: Micros, request: Box<Request>, view: &RequestView<'_>) -> Enqueued {
        let priority = view.class_priority;
        let is_full = |limit: Option<u32>, queued: usize| limit.is_some_and(|limit| queued >= limit as usize);
        let in_band = self.bands.get(&Reverse(priority)).map_or(0, |band| band.queued as usize);
        let settings = &self.control.settings;
        if is_full(settings.band_requests, in_band) {
            return Enqueued::Refused(request);
        }
        let mut displaced = None;
        if is_full(settings.max_requests, self.requests.len()) {
            displaced = self.displaced_by(priority);
            if displaced.is_none() {
                return Enqueued::Refused(request);
            }
        }
        self.insert(now, request, view);
        displaced.map_or(Enqueued::Waits, Enqueued::Displaced)
    }

    fn insert(&mut self, now: Micros, request: Box<Request>, view: &RequestView<'_>) {
        let settings = &self.control.settings;
        let expires = settings.ttl.map_or(Micros::MAX, |ttl| now.saturating_add(ttl));
        let times_out = request.deadline.filter(|_| settings.clients_time_out).unwrap_or(Micros::MAX);
        let (tenant_order, tenant) = settings.tenant(request.tags.tenant);
        let rank = self.control.ordering.rank(view, now, expires);
        let rank = FlowRank(if rank.is_nan() { f64::INFINITY } else { rank }, self.turns);
        self.turns += 1;
        let band = view.class_priority;
        let leaves = self.swept_at(expires).min(times_out);
        let key = self.requests.insert(QueuedRequest { request, band, tenant, tenant_order, enqueued: now, rank });
        if leaves < Micros::MAX {
            self.leaving.push(Reverse((leaves, key)));
        }
        let band = self.bands.entry(Reverse(band)).or_default();
        band.queued += 1;
        band.waiting.insert(rank.1, now);
        band.flows.entry((tenant_order, tenant)).or_default().queue.insert(rank, key);
    }

    /// The moment at which a request that expires at `expires` is found expired.
    fn swept_at(&self, expires: Micros) -> Micros {
        let sweep = self.control.settings.sweep.0;
        if sweep == 0 || expires == Micros::MAX { expires } else { Micros(expires.0.next_multiple_of(sweep)) }
    }

    fn tick_after(&self, now: Micros) -> Micros {
        let FlowSettings { tick, ticks_from_enqueue, .. } = self.control.settings;
        if ticks_from_enqueue { now.saturating_add(tick) } else { Micros((now.0 / tick.0 + 1) * tick.0) }
    }

    /// Removes the request that one of priority `priority` displaces: of the lowest priority, the one enqueued last.
    fn displaced_by(&mut self, priority: i32) -> Option<Box<Request>> {
        if !self.control.settings.displaces {
            return None;
        }
        let (&Reverse(lowest), band) = self.bands.iter().rev().find(|(_, band)| band.queued > 0)?;
        if lowest >= 0 || lowest >= priority {
            return None;
        }
        let last = band.flows.values().flat_map(|flow| flow.queue.iter()).max_by_key(|(rank, _)| rank.1);
        let key = *last?.1;
        self.remove(key).map(|queued| queued.request)
    }

    fn remove(&mut self, key: GatewayKey) -> Option<QueuedRequest> {
        let queued = self.requests.remove(key)?;
        if let Some(band) = self.bands.get_mut(&Reverse(queued.band)) {
            band.queued -= 1;
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
        let request = self.remove(key)?.request;
        let timed_out =
            self.control.settings.clients_time_out && request.deadline.is_some_and(|deadline| deadline <= at);
        Some((request, if timed_out { Leaves::TimedOut } else { Leaves::Expired }))
    }

    /// When the next tick is due; `None` while no request waits.
    pub fn next_tick(&self) -> Option<Micros> {
        self.next_tick
    }

    /// The cycle after an enqueue at `now` is over: ticks begin if requests wait.
    pub fn enqueued(&mut self, now: Micros) {
        if self.next_tick.is_none() && !self.requests.is_empty() {
            self.next_tick = Some(self.tick_after(now));
        }
    }

    /// A tick at `now` is over: the next one follows if requests wait.
    pub fn ticked(&mut self, now: Micros) {
        self.next_tick = (!self.requests.is_empty()).then(|| self.tick_after(now));
    }

    /// One dispatch cycle at `now`.
    pub fn cycle(&mut self, now: Micros, cluster: &ClusterView<'_>) -> Cycle {
        if self.requests.is_empty() {
            return Cycle::Nothing;
        }
        self.catch_up(now);
        let saturation = self.control.saturation.saturation(cluster);
        let saturation = if saturation.is_nan() { 1.0 } else { saturation };
        self.show_bands(now);
        self.ceilings.clear();
        self.control.ceilings.ceilings(now, saturation, &self.views, &mut self.ceilings);
        for rank in 0..self.views.len() {
            let ceiling = self.ceilings.get(rank).copied().filter(|ceiling| !ceiling.is_nan()).unwrap_or(1.0);
            if saturation >= ceiling {
                return self.evict(now, rank, saturation);
            }
            let band = self.views[rank];
            if band.queued > 0 {
                return self
                    .dispatch_from(now, saturation, band)
                    .map_or(Cycle::Nothing, |(one, waited)| Cycle::Dispatch(one, waited));
            }
        }
        Cycle::Nothing
    }

    /// Chooses requests in flight that make room for the first band from number `stopped` on that waits. Of llm-d's rule: as many
    /// as bring the saturation S below the band's ceiling c, each worth S / requests in flight.
    fn evict(&mut self, now: Micros, stopped: usize, saturation: f64) -> Cycle {
        let Some(policy) = &mut self.control.eviction else { return Cycle::Nothing };
        if now < self.evicts_from {
            return Cycle::Nothing;
        }
        let ceiling = |rank: usize| self.ceilings.get(rank).copied().unwrap_or(1.0);
        let waits = |&rank: &usize| self.views[rank].queued > 0 && ceiling(rank) > 0.0 && saturation >= ceiling(rank);
        let Some(rank) = (stopped..self.views.len()).find(waits) else { return Cycle::Nothing };
        let demand = self.views[rank];
        let sheddable =
            |(view, _): &(InFlightView, InstanceIndex)| view.priority < 0 && view.priority < demand.priority;
        let mut candidates: Vec<(InFlightView, InstanceIndex)> =
            self.in_flight.iter().copied().filter(sheddable).collect();
        let in_flight: u32 = self.services.values().map(|service| service.in_flight).sum();
        let credit = saturation / f64::from(in_flight.max(1));
        let wanted = libm::ceil((saturation - ceiling(rank)) / credit).max(1.0) as u32;
        let mut evicted = Vec::new();
        for _ in 0..wanted.min(self.control.settings.evictions_at_once) {
            let views: Vec<InFlightView> = candidates.iter().map(|(view, _)| *view).collect();
            if views.is_empty() {
                break;
            }
            let Some(victim) = policy.victim(now, demand, &views).filter(|&victim| victim < views.len()) else { break };
            let (view, instance) = candidates.remove(victim);
            evicted.push((view.id, instance));
        }
        if evicted.is_empty() {
            return Cycle::Nothing;
        }
        self.evicts_from = now.saturating_add(self.control.settings.eviction_grace);
        Cycle::Evict(evicted)
    }

    /// `request`, which was dispatched, goes to `instance` at `now`.
    pub fn routed(&mut self, now: Micros, request: &Request, priority: i32, instance: InstanceIndex) {
        if self.control.eviction.is_some() && priority < 0 {
            let (_, tenant) = self.control.settings.tenant(request.tags.tenant);
            let view = InFlightView {
                id: request.id,
                priority,
                dispatched_at: now,
                input_tokens: request.input_tokens,
                tenant,
            };
            self.in_flight.push((view, instance));
        }
    }

    fn show_bands(&mut self, now: Micros) {
        self.views.clear();
        self.views.extend(self.bands.iter().map(|(&Reverse(priority), band)| BandView {
            priority,
            queued: band.queued,
            oldest_wait: band.waiting.values().next().map_or(Micros::ZERO, |&enqueued| now.saturating_sub(enqueued)),
        }));
    }

    /// Removes the head of the flow that the fairness policy picks.
    fn dispatch_from(&mut self, now: Micros, saturation: f64, view: BandView) -> Option<(Box<Request>, Micros)> {
        let band = self.bands.get_mut(&Reverse(view.priority))?;
        self.flows.clear();
        for (&(tenant_order, tenant), flow) in &band.flows {
            let Some((&FlowRank(rank, turn), &key)) = flow.queue.first_key_value() else { continue };
            let QueuedRequest { request, enqueued, .. } = &self.requests[key];
            let Service { in_flight, served } = self.services.get(&tenant).copied().unwrap_or_default();
            let head = HeadView {
                id: request.id,
                rank,
                turn,
                wait: now.saturating_sub(*enqueued),
                input_tokens: request.input_tokens,
                max_output_tokens: request.max_output_tokens,
                deadline: request.deadline,
                slo_class: request.tags.slo_class,
            };
            let (queued, dispatched) = (flow.queue.len() as u32, flow.dispatched);
            self.flows.push(FlowView { tenant, tenant_order, queued, head, in_flight, dispatched, served });
        }
        let picked = self.control.fairness.pick(now, saturation, view, &self.flows);
        let FlowView { tenant, tenant_order, .. } = *self.flows.get(picked).or(self.flows.first())?;
        let flow = band.flows.get_mut(&(tenant_order, tenant))?;
        flow.dispatched += 1;
        let key = *flow.queue.first_key_value()?.1;
        let QueuedRequest { request, enqueued, .. } = self.remove(key)?;
        let service = self.services.entry(tenant).or_default();
        service.in_flight += 1;
        service.served.add(now, u64::from(request.input_tokens), 0);
        Some((request, now.saturating_sub(enqueued)))
    }

    /// A dispatched request ended, now or when its output will be complete.
    pub fn ended(&mut self, outcome: &Outcome) {
        let ends = matches!(outcome.status, Status::Queued | Status::Running | Status::Arriving);
        if ends || outcome.instance.is_none() {
            return;
        }
        self.in_flight.retain(|(view, _)| view.id != outcome.id);
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

impl Clone for FlowControl {
    fn clone(&self) -> Self {
        Self {
            saturation: self.saturation.fork(),
            ceilings: self.ceilings.fork(),
            fairness: self.fairness.fork(),
            ordering: self.ordering.fork(),
            eviction: self.eviction.as_ref().map(|eviction| eviction.fork()),
            settings: self.settings.clone(),
        }
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
            next_tick: self.next_tick,
            in_flight: self.in_flight.clone(),
            evicts_from: self.evicts_from,
            turns: self.turns,
            ceilings: Vec::new(),
            views: Vec::new(),
            flows: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RequestId;
    use crate::policy::flow::{ArrivalOrder, GlobalStrict, PriorityHoldback, StaticCeiling};
    use crate::policy::{InstanceInfo, Signals, Staleness, Versions};
    use crate::request::Tags;

    /// As full as the test says.
    #[derive(Clone, Debug)]
    struct FixedSaturation(std::sync::Arc<std::sync::Mutex<f64>>);

    impl SaturationPolicy for FixedSaturation {
        fn reads(&self) -> Reads {
            Reads::NOTHING
        }

        fn saturation(&mut self, _: &ClusterView<'_>) -> f64 {
            *self.0.lock().expect("one thread")
        }

        fn fork(&self) -> Box<dyn SaturationPolicy> {
            Box::new(self.clone())
        }
    }

    struct GatewayTrial {
        gateway: Gateway,
        full: std::sync::Arc<std::sync::Mutex<f64>>,
        next: u32,
    }

    impl GatewayTrial {
        fn new(ceilings: impl CeilingsPolicy + 'static, settings: FlowSettings) -> Self {
            let full = std::sync::Arc::new(std::sync::Mutex::new(0.0));
            let control = FlowControl {
                saturation: Box::new(FixedSaturation(std::sync::Arc::clone(&full))),
                ceilings: Box::new(ceilings),
                fairness: Box::new(GlobalStrict),
                ordering: Box::new(ArrivalOrder),
                eviction: None,
                settings,
            };
            Self { gateway: Gateway::new(control), full, next: 0 }
        }

        fn enqueue(&mut self, now: u64, priority: i32) -> Enqueued {
            let tags = Tags { tenant: Name(1), ..Tags::default() };
            let request = Request { tags, ..Request::new(RequestId(self.next), Micros(now), 100, 10) };
            self.next += 1;
            let copy = request.clone();
            self.gateway.enqueue(Micros(now), request.into(), &RequestView::new(&copy, priority, 16))
        }

        /// The request that is dispatched at a saturation of `full`.
        fn dispatch(&mut self, now: u64, full: f64) -> Option<u32> {
            *self.full.lock().expect("one thread") = full;
            let view = ClusterView {
                now: Micros(now),
                instances: &[] as &[InstanceInfo],
                signals: &Signals::default(),
                staleness: Staleness::default(),
                versions: Versions::default(),
                in_flight_changes: crate::policy::Changes::new(0, &[]),
                tenants_in_flight: &[],
                scores: &[],
            };
            match self.gateway.cycle(Micros(now), &view) {
                Cycle::Dispatch(request, _) => Some(request.id.0),
                Cycle::Nothing | Cycle::Evict(_) => None,
            }
        }
    }

    #[test]
    fn bands_are_served_from_the_top_below_their_ceilings() {
        let mut trial = GatewayTrial::new(PriorityHoldback { min: 0.5, max: 1.0 }, FlowSettings::usual());
        for priority in [-1, 3, 4, 3] {
            assert!(matches!(trial.enqueue(0, priority), Enqueued::Waits));
        }
        assert_eq!(trial.dispatch(1, 1.0), None, "the highest band waits, and so do all");
        assert_eq!(trial.dispatch(1, 0.9), Some(2));
        assert_eq!(trial.dispatch(1, 0.9), None, "0.75 for the second band");
        assert_eq!([trial.dispatch(1, 0.7), trial.dispatch(1, 0.7)], [Some(1), Some(3)]);
        assert_eq!(trial.dispatch(1, 0.7), None, "0.5 for the third");
        assert_eq!(trial.dispatch(1, 0.4), Some(0));
        assert_eq!(trial.dispatch(1, 0.0), None, "it is empty");
    }

    #[test]
    fn a_full_band_and_a_full_queue_refuse() {
        let settings = FlowSettings { band_requests: Some(2), max_requests: Some(3), ..FlowSettings::usual() };
        let mut trial = GatewayTrial::new(StaticCeiling { ceiling: 1.0 }, settings.clone());
        assert!((0..2).all(|_| matches!(trial.enqueue(0, 3), Enqueued::Waits)));
        assert!(matches!(trial.enqueue(0, 3), Enqueued::Refused(request) if request.id.0 == 2));
        assert!(matches!(trial.enqueue(0, -1), Enqueued::Waits));
        assert!(matches!(trial.enqueue(0, 4), Enqueued::Refused(_)));
        let mut trial = GatewayTrial::new(StaticCeiling { ceiling: 1.0 }, FlowSettings { displaces: true, ..settings });
        for priority in [-2, -1, -2] {
            trial.enqueue(0, priority);
        }
        assert!(
            matches!(trial.enqueue(0, 4), Enqueued::Displaced(request) if request.id.0 == 2),
            "the last of the lowest"
        );
        assert!(matches!(trial.enqueue(0, -2), Enqueued::Refused(_)), "it displaces none of its own priority");
    }

    #[test]
    fn requests_expire_at_the_next_sweep() {
        let settings = FlowSettings { ttl: Some(Micros(60_000_000)), ..FlowSettings::usual() };
        let mut trial = GatewayTrial::new(StaticCeiling { ceiling: 1.0 }, settings);
        trial.enqueue(1_500_000, 3);
        trial.enqueue(1_600_000, 3);
        trial.gateway.enqueued(Micros(1_600_000));
        assert_eq!(trial.gateway.next_tick(), Some(Micros(1_601_000)));
        assert_eq!(trial.dispatch(2_000_000, 0.0), Some(0));
        assert_eq!(trial.gateway.next_leave(), Some(Micros(62_000_000)), "up to a second late");
        assert!(matches!(trial.gateway.leave(), Some((request, Leaves::Expired)) if request.id.0 == 1));
        assert_eq!((trial.gateway.next_leave(), trial.gateway.len()), (None, 0));
        trial.gateway.ticked(Micros(62_000_000));
        assert_eq!(trial.gateway.next_tick(), None, "nothing waits");
    }
}
