//! The service: instances behind admission and routing, on one clock.
//!
//! ```text
//! arrival ── admission latency ──► admit? ──[ gateway's queue ]── routing latency ──► which instance? ──► its queue …
//!                                    │             │                                      │
//!                                rejected   full, expired, timed out        rejected: no instance serves that model
//! ```
//!
//! The queue is there with flow control only ([`FlowControl`]).
//!
//! The events in front of the instances are executed by [`Cluster::run`], one after the other. At the same microsecond
//! the order is:
//!
//! | rank | event | reason |
//! |---|---|---|
//! | 0 | a replica is gone, then: one is ready | requests that arrive now may go to it |
//! | 1 | arrival | decisions of a tick are made in the order of arrival |
//! | 2 | admission | a request is routed after it was admitted |
//! | 3 | routing | |
//! | 4 | a request moves between its prefill and its decode instance | the prefill instance is chosen after all decode instances |
//! | 5 | a request leaves the gateway's queue unserved | what is dispatched now does not expire |
//! | 6 | tick of the gateway's queue | it sees what was enqueued now |
//! | 7 | the number of replicas changes | a replica that drains still gets the requests of this moment |
//! | 8 | instances, lowest number first | a router sees signals reported before, not events of this moment |
//!
//! The number of instances is fixed, or replicas come and go ([`Cluster::with_replicas`]): then decisions see the active ones
//! only, and a new one has a new index.
//!
//! Instances do not interact with each other, unless prefill is apart from decode (`disaggregation/`): then each end of a prefill, and
//! each beginning of a transfer, is executed in the order of time, as ends are for clients in closed loop; or they share storage
//! (`shared_storage.rs`): then they advance in windows. Otherwise they need not advance in lockstep: an instance catches up when a decision
//! is about to read something that may have changed on it. A tournament tree finds those instances; only the periodic
//! refresh scans all of them.

mod candidates;
mod compiled;
mod disaggregation;
mod gateway;
mod in_flight;
mod lifecycle;
mod live;
mod load_samples;
mod measures;
mod next_events;
mod replicas;
mod scaling;
mod sessions;
mod shared_storage;
mod signals;
mod timeline;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use thiserror::Error;

use self::candidates::CandidateSet;
pub use self::compiled::{AnyTimeline, Engine, needs_steps};
pub use self::disaggregation::{
    BlisTransfer, DisaggregationConfig, Encoder, InstanceRole, KvNetwork, NixlFlow, PoolRouting, RoleGroup,
    TransferFlow,
};
use self::disaggregation::{PairObserver, Pairs};
use self::gateway::{Cycle, Enqueued, Gateway, Leaves};
pub use self::gateway::{FlowControl, FlowSettings};
use self::lifecycle::EventDelivery;
use self::load_samples::LoadSampling;
use self::measures::RouterMeasures;
use self::next_events::NextEvents;
use self::replicas::Replicas;
pub use self::replicas::{
    DelayedActuation, EMPTY_NODE_DELAY, NodePool, PhaseTime, ReplicaGroup, ReplicaSettings, ScalingLoop,
    ScheduledReplicas, StartMode, StartTimes,
};
use self::scaling::NewInstance;
use self::sessions::{ArrivalQueue, ArrivalSource, FollowUpObserver};
pub use self::sessions::{FollowUps, SessionStates};
use self::shared_storage::SharedStorage;
use self::signals::{SignalBoard, SignalObserver, WatchedEvents};
pub use self::timeline::{
    ArrivalList, DecisionEvent, ForcedDecision, PendingDecision, RecordedDecision, RecordedDecisions, Timeline,
};
use crate::ids::{InstanceIndex, RequestId};
use crate::instance::{Instance, InstanceConfig, NoProgress, PrefetchDistance};
use crate::limits;
use crate::observer::{Interests, Observer, SimEvent};
use crate::outcome::{Counters, Decision, GatewayChoice, GatewayDecision, Outcome, Rejection, StageTimes, Status};
use crate::policy::{
    AdmissionDecision, AdmissionPolicy, Classes, Event, Events, PriorityPolicy, Reads, Reason, RequestView,
    RoutingDecision, RoutingPolicy, Ties,
};
use crate::request::{Name, Request};
use crate::semantics::Semantics;
use crate::units::Micros;

/// Ends a simulation early, from inside a policy that cannot continue.
#[derive(Clone, Debug, Default)]
pub struct Abort(Arc<AtomicBool>);

impl Abort {
    /// Ends the simulation before its next decision, with [`Halt::Aborted`].
    pub fn set(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether the simulation is to end.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }

    fn check(&self) -> Result<(), Halt> {
        if self.is_set() { Err(Halt::Aborted) } else { Ok(()) }
    }
}

/// Why a simulation ended without a result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Halt {
    /// An instance would execute for ever without completing a request.
    #[error(transparent)]
    NoProgress(#[from] NoProgress),
    /// A policy ended the simulation ([`Abort`]) and keeps the reason.
    #[error("a policy ended the simulation")]
    Aborted,
    /// Flow control dispatches nothing, although the service is idle and nothing else will happen.
    #[error("flow control keeps {waiting} requests in the gateway although the service is idle")]
    NothingDispatched {
        /// Requests in the queue.
        waiting: usize,
    },
}

/// The configuration of everything in front of the instances.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Time from arrival to the admission decision.
    pub admission_latency: Micros,
    /// Time from the admission decision to the routing decision.
    pub routing_latency: Micros,
    /// Refresh interval of the periodic signals; 0 for always fresh.
    pub snapshot_refresh_interval: Micros,
    /// Refresh interval of the signal of prefix-cache contents; 0 for always fresh.
    pub cache_signal_delay: Micros,
    /// Which instance is chosen among equally good ones.
    pub ties: Ties,
    /// Priorities of the SLO classes.
    pub classes: Classes,
    /// Names of the model that is served. A request that names another model is rejected; one that names none is
    /// served.
    pub serves: Vec<Name>,
    /// Size of a KV block on every instance, tokens.
    pub block_size: u32,
    /// Behaviour where vLLM and BLIS differ.
    pub semantics: Semantics,
    /// End of the simulation, inclusive.
    pub horizon: Micros,
    /// Lets a policy end the simulation before the horizon.
    pub abort: Abort,
}

/// The policies in front of the instances.
#[derive(Debug)]
pub struct Policies {
    /// Decides whether a request is admitted.
    pub admission: Box<dyn AdmissionPolicy>,
    /// Chooses the instance of a request.
    pub routing: Box<dyn RoutingPolicy>,
    /// Sets the priority of a request on its instance.
    pub priority: Box<dyn PriorityPolicy>,
}

impl Policies {
    fn events(&self) -> Events {
        self.admission.events().and(self.routing.events()).and(self.priority.events())
    }

    /// Delivers an event to the policies that receive its kind.
    fn observe(&mut self, event: &Event) {
        if self.admission.events().include(event.kind) {
            self.admission.observe(event);
        }
        if self.routing.events().include(event.kind) {
            self.routing.observe(event);
        }
        if self.priority.events().include(event.kind) {
            self.priority.observe(event);
        }
    }
}

/// Delivers an event to the policies of the service, those of the gateway's queue included.
fn to_policies<'a>(
    policies: &'a mut Policies,
    gateway: &'a mut Option<Box<Gateway>>,
    pairs: &'a mut Option<Box<Pairs>>,
) -> impl FnMut(&Event) + 'a {
    move |event| {
        policies.observe(event);
        if let Some(gateway) = gateway.as_mut() {
            gateway.observe(event);
        }
        if let Some(pairs) = pairs.as_mut() {
            pairs.observe(event);
        }
    }
}

impl Clone for Policies {
    fn clone(&self) -> Self {
        Self { admission: self.admission.fork(), routing: self.routing.fork(), priority: self.priority.fork() }
    }
}

/// A service during a simulation. A clone copies the live requests, not those that have ended.
#[derive(Clone, Debug)]
pub struct Cluster<I> {
    config: ClusterConfig,
    policies: Policies,
    instances: Vec<I>,
    next_events: NextEvents,
    /// The instance to be prefetched next, and how far its prefetch has progressed.
    prefetching: (InstanceIndex, usize),
    board: SignalBoard,
    lifecycle: EventDelivery,
    /// The signals that the policies read; each policy declares them once.
    admission_reads: Reads,
    routing_reads: Reads,
    /// Requests that have arrived and wait for admission.
    arrived: VecDeque<Box<Request>>,
    /// The queue of flow control.
    gateway: Option<Box<Gateway>>,
    /// Requests that wait for routing, and when they are routed.
    admitted: VecDeque<(Micros, Box<Request>)>,
    /// The routing policy's scores of the present decision.
    scores: Vec<f64>,
    /// The next decision of this kind about this request, which is forced.
    forced: Option<(RequestId, ForcedDecision)>,
    /// Recorded decisions that are replayed instead of made.
    recorded: Option<Arc<RecordedDecisions>>,
    /// The replicas, if their number changes.
    replicas: Option<Box<Replicas>>,
    new_instance: Option<NewInstance<I>>,
    /// The moments at which the load of instances is sampled, if it is.
    sampling: Option<Box<LoadSampling>>,
    /// Requests that are prefilled and decoded on different instances, if these are apart.
    pairs: Option<Box<Pairs>>,
    /// The storage that instances share, if they share any.
    shared: Option<Box<SharedStorage>>,
    /// Whether catching up is more than advancing, because one of the three above is there: it is asked at every event.
    more_than_advancing: bool,
}

/// The events in front of the instances, in the order of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrontEvent {
    /// Replicas are gone or ready.
    Replicas,
    Arrival,
    Admission,
    Routing,
    /// A request moves between its prefill and its decode instance.
    Pair,
    /// A request leaves the gateway's queue unserved.
    Leave,
    /// A tick of the gateway's queue.
    Tick,
    /// The number of replicas changes.
    Scaling,
}

impl<I: Instance> Cluster<I> {
    /// An idle service; `engine` makes an instance for each of `configs`, which are in the order of their indices.
    pub fn new(
        config: ClusterConfig,
        policies: Policies,
        configs: impl IntoIterator<Item = InstanceConfig>,
        engine: impl Fn(InstanceConfig) -> I,
    ) -> Self {
        let mut infos = Vec::new();
        let mut instances = Vec::new();
        let mut shared = None;
        for instance in configs {
            debug_assert_eq!(instance.index.index(), instances.len(), "configurations in the order of instances");
            SharedStorage::add(&mut shared, &instance);
            infos.push((&instance).into());
            instances.push(engine(instance));
        }
        Self {
            next_events: NextEvents::new(instances.len()),
            prefetching: (InstanceIndex(0), 0),
            board: SignalBoard::new(infos, &config),
            lifecycle: EventDelivery::new(policies.events()),
            instances,
            admission_reads: policies.admission.reads(),
            routing_reads: policies.routing.reads(),
            arrived: VecDeque::new(),
            gateway: None,
            admitted: VecDeque::new(),
            scores: Vec::new(),
            forced: None,
            recorded: None,
            replicas: None,
            new_instance: None,
            sampling: None,
            pairs: None,
            more_than_advancing: shared.is_some(),
            shared,
            policies,
            config,
        }
    }

    /// The same service with a queue between admission and routing.
    #[must_use]
    pub fn with_flow_control(mut self, control: FlowControl) -> Self {
        let gateway = Gateway::new(control);
        self.lifecycle.want(gateway.events());
        Self { gateway: Some(Box::new(gateway)), ..self }
    }

    /// Simulates the service under `arrivals` (in order of time) up to the horizon. Returns the counters of each
    /// instance.
    ///
    /// # Errors
    /// [`Halt`] if an instance would execute for ever without completing a request, or if a policy ends the simulation.
    pub fn run(
        self,
        arrivals: impl IntoIterator<Item = Request>,
        observer: &mut impl Observer,
    ) -> Result<Vec<Counters>, Halt> {
        self.run_sessions(arrivals, None, observer)
    }

    /// As [`Self::run`], with closed-loop clients: further requests follow from the ends of earlier ones.
    ///
    /// # Errors
    /// The same as of [`Self::run`].
    pub fn run_sessions(
        mut self,
        arrivals: impl IntoIterator<Item = Request>,
        follow_ups: Option<&mut dyn FollowUps>,
        observer: &mut impl Observer,
    ) -> Result<Vec<Counters>, Halt> {
        self.start(observer.interests().reads(), follow_ups.is_some());
        let mut arrivals = ArrivalQueue::new(arrivals.into_iter(), follow_ups);
        self.execute_until(self.config.horizon, &mut FollowUpObserver::new(&mut arrivals, observer))?;
        self.finish(observer)
    }

    /// Executes the events in front of the instances until `end`, inclusive.
    fn execute_until(
        &mut self,
        end: Micros,
        clients: &mut FollowUpObserver<'_, impl ArrivalSource, impl Observer>,
    ) -> Result<(), Halt> {
        loop {
            let next = self.next(clients.arrivals).filter(|&(now, _)| now <= end);
            let until = next.map_or(end.saturating_add(Micros(1)), |(now, _)| now);
            let waits = clients.arrivals.wait_for_ends() || self.pairs.is_some();
            if waits && self.next_end_before(until, clients)? {
                continue; // its end may cause an earlier event
            }
            let Some((now, event)) = next else { return Ok(()) };
            self.execute(now, event, clients)?;
        }
    }

    /// Executes one event in front of the instances.
    #[inline]
    fn execute(
        &mut self,
        now: Micros,
        event: FrontEvent,
        clients: &mut FollowUpObserver<'_, impl ArrivalSource, impl Observer>,
    ) -> Result<(), Halt> {
        self.config.abort.check()?;
        self.prefetch_next();
        clients.now = now;
        match event {
            FrontEvent::Replicas => self.change_states(now, clients)?,
            FrontEvent::Arrival => self.arrive(clients),
            FrontEvent::Admission => self.admit(now, clients)?,
            FrontEvent::Routing => self.route(now, clients)?,
            FrontEvent::Pair => self.move_pair(now, clients)?,
            FrontEvent::Leave => self.leave(now, clients)?,
            FrontEvent::Tick => self.tick(now, clients)?,
            FrontEvent::Scaling => self.scale(now, clients)?,
        }
        Ok(())
    }

    /// The earliest event in front of the instances; among simultaneous ones that of lowest rank.
    #[inline]
    fn next(&mut self, arrivals: &mut impl ArrivalSource) -> Option<(Micros, FrontEvent)> {
        let mut next = (arrivals.next_at().unwrap_or(Micros::MAX), FrontEvent::Arrival);
        if let Some(request) = self.arrived.front() {
            let at = request.arrival.saturating_add(self.config.admission_latency);
            next = earlier(next, at, FrontEvent::Admission);
        }
        if let Some(&(at, _)) = self.admitted.front() {
            next = earlier(next, at, FrontEvent::Routing);
        }
        if let Some(pairs) = &self.pairs {
            next = earlier(next, pairs.next_event(), FrontEvent::Pair);
        }
        if let Some(gateway) = &mut self.gateway {
            next = earlier(next, gateway.next_leave().unwrap_or(Micros::MAX), FrontEvent::Leave);
            next = earlier(next, gateway.next_tick().unwrap_or(Micros::MAX), FrontEvent::Tick);
        }
        if let Some(replicas) = &self.replicas {
            next = earlier(next, replicas.next_scaling().unwrap_or(Micros::MAX), FrontEvent::Scaling);
            // Its rank is the lowest.
            if let Some(at) = replicas.next_transition().filter(|&at| at <= next.0) {
                next = (at, FrontEvent::Replicas);
            }
        }
        (next.0 < Micros::MAX).then_some(next)
    }

    /// The next request arrives at the service.
    fn arrive(&mut self, clients: &mut FollowUpObserver<'_, impl ArrivalSource, impl Observer>) {
        let Some(request) = clients.arrivals.take() else { return };
        clients.record(&SimEvent::Arrival(&request));
        if let Some(log) = self.replicas.as_mut().and_then(|replicas| replicas.outcome_log()) {
            log.arrived(&request);
        }
        self.arrived.push_back(Box::new(request));
    }

    /// Makes the admission decision about the next request.
    fn admit(&mut self, now: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
        let request = self.arrived.pop_front().expect("an admission is due");
        let recorded = self.recorded(&request);
        if recorded.is_some() && self.reads_signals() {
            self.refresh_signals(now, observer)?;
        }
        match recorded {
            Some(
                RecordedDecision::Admitted
                | RecordedDecision::Routed(_)
                | RecordedDecision::Split { .. }
                | RecordedDecision::Encoded { .. },
            ) => {
                return self.admitted(now, request, observer);
            }
            Some(RecordedDecision::Rejected) => {
                observer.record(&SimEvent::Outcome(&Outcome::new(&request, Status::Rejected(Rejection::Admission))));
                return Ok(());
            }
            None => {}
        }
        self.refresh_signals(now, observer)?;
        let view = self.config.view(&request);
        self.board.probe(&view, self.admission_reads);
        self.select(now, Some(request.tags.model));
        let cluster = self.board.view(now);
        let mut decision = self.policies.admission.admit(&view, &cluster);
        if let Some(ForcedDecision::Admit(admit)) = forced(&mut self.forced, &request, FrontEvent::Admission) {
            decision = if admit { AdmissionDecision::Admit } else { AdmissionDecision::Reject(Reason::Forced) };
        }
        if observer.interests().contains(Interests::DECISIONS) {
            let columns = self.board.columns(self.admission_reads);
            let event = Decision::Admission { request: &view, cluster: &cluster, columns, decision: &decision };
            observer.record(&SimEvent::Decision(&event));
        }
        match decision {
            AdmissionDecision::Admit => self.admitted(now, request, observer)?,
            AdmissionDecision::Reject(_) => {
                self.lifecycle.decided(
                    now,
                    &view,
                    None,
                    to_policies(&mut self.policies, &mut self.gateway, &mut self.pairs),
                );
                observer.record(&SimEvent::Outcome(&Outcome::new(&request, Status::Rejected(Rejection::Admission))));
            }
        }
        Ok(())
    }

    /// A request that was admitted at `now` goes to routing, or to the gateway's queue.
    fn admitted(&mut self, now: Micros, request: Box<Request>, observer: &mut impl Observer) -> Result<(), NoProgress> {
        // What happened before is delivered to the policies of the queue before they decide.
        if self.gateway.as_ref().is_some_and(|gateway| gateway.events() != Events::NONE) {
            self.refresh_signals(now, observer)?;
        }
        let Some(gateway) = &mut self.gateway else {
            self.admitted.push_back((now.saturating_add(self.config.routing_latency), request));
            return Ok(());
        };
        let id = request.id;
        match gateway.enqueue(now, request, |request| self.config.view(request)) {
            Enqueued::Waits => {}
            Enqueued::Refused(request) => {
                record(observer, || gateway.left(now, &request, GatewayChoice::Refused));
                self.refuse(now, &request, Status::Rejected(Rejection::GatewayFull), observer);
                return Ok(()); // the queue has not changed
            }
            Enqueued::Displaced(request) => {
                record(observer, || gateway.left(now, &request, GatewayChoice::Displaced { by: id }));
                self.refuse(now, &request, Status::Rejected(Rejection::GatewayDisplaced), observer);
            }
        }
        self.dispatch_cycle(now, observer)?;
        self.gateway.iter_mut().for_each(|gateway| gateway.enqueued(now));
        self.skip_ticks();
        Ok(())
    }

    /// The next request of the gateway's queue leaves it unserved.
    fn leave(&mut self, now: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
        if self.lifecycle.wanted().rejected {
            // Policies receive what happened before.
            self.catch_up_watched(now, observer)?;
            self.deliver(now);
        }
        let Some(gateway) = &mut self.gateway else { return Ok(()) };
        let Some((request, why)) = gateway.leave() else { return Ok(()) };
        let (choice, status) = match why {
            Leaves::Expired => (GatewayChoice::Expired, Status::Rejected(Rejection::GatewayExpired)),
            Leaves::TimedOut => (GatewayChoice::TimedOut, Status::TimedOut),
        };
        record(observer, || gateway.left(now, &request, choice));
        self.refuse(now, &request, status, observer);
        Ok(())
    }

    /// Reports that the gateway does not serve `request`.
    fn refuse(&mut self, now: Micros, request: &Request, status: Status, observer: &mut impl Observer) {
        self.lifecycle.decided(
            now,
            &self.config.view(request),
            None,
            to_policies(&mut self.policies, &mut self.gateway, &mut self.pairs),
        );
        observer.record(&SimEvent::Outcome(&Outcome::new(request, status).ended_at(now)));
    }

    /// A tick of the gateway's queue is due.
    fn tick(&mut self, now: Micros, observer: &mut impl Observer) -> Result<(), Halt> {
        self.dispatch_cycle(now, observer)?;
        let Some(gateway) = &mut self.gateway else { return Ok(()) };
        let moves = self.pairs.as_ref().is_some_and(|pairs| pairs.next_event() < Micros::MAX);
        let is_idle = || !moves && self.instances.iter().all(|instance| instance.next_event().is_none());
        let is_fixed = || self.replicas.as_ref().is_none_or(|replicas| !replicas.may_change());
        if gateway.ticked(now) && self.arrived.is_empty() && self.admitted.is_empty() && is_idle() && is_fixed() {
            return Err(Halt::NothingDispatched { waiting: gateway.len() });
        }
        self.skip_ticks();
        Ok(())
    }

    /// Skips the ticks of the gateway's queue before the next change of a signal.
    fn skip_ticks(&mut self) {
        let Some(gateway) = &mut self.gateway else { return };
        // Ends and events at a moment are seen by ticks after it, and the events of instances that no decision makes catch
        // up are seen at the next refresh.
        let next_event = self.next_events.first_time();
        let moves = self.pairs.as_ref().map_or(Micros::MAX, |pairs| pairs.next_event());
        let steady = next_event.min(self.board.steady_until()).min(self.lifecycle.next_event()).min(moves);
        gateway.skip_ticks(steady);
    }

    /// Dispatches one request of the gateway's queue, if the service has room.
    fn dispatch_cycle(&mut self, now: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
        // Without requests the signals are not read.
        if self.gateway.as_ref().is_none_or(|gateway| gateway.len() == 0) {
            return Ok(());
        }
        self.refresh_signals(now, observer)?;
        if self.pairs.as_ref().is_some_and(|pairs| pairs.lacks_pool()) {
            self.board.select(now, CandidateSet::Nothing, |_| {});
        } else {
            self.select(now, None);
        }
        let Some(gateway) = &mut self.gateway else { return Ok(()) };
        match gateway.cycle(now, &self.board.view(now)) {
            Cycle::Nothing => {}
            Cycle::Dispatch(request, waited) => {
                record(observer, || gateway.dispatched(now, &request, waited));
                observer.record(&SimEvent::Dispatched { request: &request, waited });
                self.admitted.push_back((now.saturating_add(self.config.routing_latency), request));
            }
            Cycle::Evict(victims) => {
                for &(id, instance) in &victims {
                    record(observer, || gateway.revoked(now, id, instance));
                }
                for (id, instance) in victims {
                    self.evict(now, id, instance, observer)?;
                }
            }
        }
        Ok(())
    }

    /// Ends request `id` on `instance`, unless it has finished.
    fn evict(
        &mut self,
        now: Micros,
        id: RequestId,
        instance: InstanceIndex,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        if self.pairs.is_some() && self.end_encoding(now, id, Status::Evicted, observer) {
            self.gateway.iter_mut().for_each(|gateway| gateway.evicted());
            return Ok(());
        }
        let instance = self.pairs.as_ref().and_then(|pairs| pairs.instance_of(id)).unwrap_or(instance);
        self.catch_up(instance, now, observer)?;
        let observer = &mut SignalObserver {
            observer,
            board: &mut self.board,
            lifecycle: &mut self.lifecycle,
            gateway: self.gateway.as_deref_mut(),
            outcomes: self.replicas.as_mut().and_then(|replicas| replicas.outcome_log()),
            pairs: self.pairs.as_deref_mut(),
        };
        if self.instances[instance.index()].evict(now, id, observer) {
            self.gateway.iter_mut().for_each(|gateway| gateway.evicted());
            self.replicas.iter_mut().for_each(|replicas| replicas.evicted(now, instance));
            self.board.mark_dirty(instance);
            self.watch(instance);
        }
        Ok(())
    }

    /// Makes the routing decision about the next request, and dispatches it.
    fn route(&mut self, now: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
        let (_, mut request) = self.admitted.pop_front().expect("a routing is due");
        if self.pairs.is_some() {
            return self.route_pair(now, request, observer);
        }
        if let Some(RecordedDecision::Routed(instance)) = self.recorded(&request) {
            let view = self.config.view(&request);
            let priority = self.policies.priority.priority(&view, now).saturating_neg();
            if self.reads_signals() {
                self.refresh_signals(now, observer)?;
                self.board.probe(&view, self.routing_reads);
                self.board.routed(&view, instance);
            }
            request.priority = priority;
            return self.dispatch(now, request, instance, observer);
        }
        self.refresh_signals(now, observer)?;
        // Also of a request that left the gateway's queue before its last replica began to drain, as in llm-d's endpoint
        // picker.
        if let Some(rejection) = self.refusal(request.tags.model) {
            self.gateway.iter_mut().for_each(|gateway| gateway.refused(&request));
            self.lifecycle.decided(
                now,
                &self.config.view(&request),
                None,
                to_policies(&mut self.policies, &mut self.gateway, &mut self.pairs),
            );
            observer.record(&SimEvent::Outcome(&Outcome::new(&request, Status::Rejected(rejection))));
            return Ok(());
        }
        let view = self.config.view(&request);
        self.board.probe(&view, self.routing_reads);
        self.select(now, Some(request.tags.model));
        let cluster = self.board.view(now);
        self.scores.clear();
        let mut choice = self.policies.routing.route(&view, &cluster, &self.config.ties, &mut self.scores);
        if let Some(ForcedDecision::Route(instance)) = forced(&mut self.forced, &request, FrontEvent::Routing) {
            // In this branch the replica may drain already: then the policy decides.
            let target = cluster.instances.iter().position(|info| info.id == instance);
            choice = target.map_or(choice, |target| RoutingDecision { target, reason: Reason::Forced });
        }
        if observer.interests().contains(Interests::DECISIONS) {
            let (columns, scores) = (self.board.columns(self.routing_reads), &self.scores);
            let (request, all) = (&view, &cluster);
            let decision = Decision::Routing { request, cluster: &cluster, all, columns, choice: &choice, scores };
            observer.record(&SimEvent::Decision(&decision));
        }
        // The policy's numbers go up with priority, those of an instance go down.
        let priority = self.policies.priority.priority(&view, now).saturating_neg();
        let instance = cluster.instances[choice.target].id;
        self.policies.routing.dispatched(&view, instance);
        self.board.routed(&view, instance);
        self.lifecycle.decided(
            now,
            &view,
            Some(instance),
            to_policies(&mut self.policies, &mut self.gateway, &mut self.pairs),
        );
        request.priority = priority;
        self.dispatch(now, request, instance, observer)
    }

    /// The recorded decision about `request`, unless a decision about it is forced, or its instance is no longer active.
    #[inline]
    fn recorded(&self, request: &Request) -> Option<RecordedDecision> {
        let decision = self.recorded.as_ref()?.get(&request.id)?;
        if let Some(replicas) = &self.replicas
            && !match *decision {
                RecordedDecision::Routed(instance) => replicas.is_active(instance),
                RecordedDecision::Split { decode, prefill } => {
                    replicas.is_active(decode) && replicas.is_active(prefill)
                }
                RecordedDecision::Encoded { encode, prefill, decode } => {
                    [Some(encode), prefill, Some(decode)].into_iter().flatten().all(|id| replicas.is_active(id))
                }
                RecordedDecision::Rejected | RecordedDecision::Admitted => true,
            }
        {
            return None;
        }
        self.forced.is_none_or(|(id, _)| id != request.id).then_some(*decision)
    }

    fn dispatch(
        &mut self,
        now: Micros,
        request: Box<Request>,
        instance: InstanceIndex,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        self.count_dispatch(now, &request, instance);
        self.hand_over(now, request, instance, observer)
    }

    /// Counts `request` as in flight on `instance`, where it will arrive.
    #[inline(always)]
    fn count_dispatch(&mut self, now: Micros, request: &Request, instance: InstanceIndex) {
        self.board.dispatched(instance, request.tags.tenant);
        if let Some(gateway) = &mut self.gateway {
            gateway.routed(now, request, self.config.classes.priority(request.tags.slo_class), instance);
        }
    }

    /// `request` arrives on `instance`.
    #[inline(always)]
    fn hand_over(
        &mut self,
        now: Micros,
        request: Box<Request>,
        instance: InstanceIndex,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        match self.board.watches() {
            // No event makes this instance catch up, so its arrivals would pile up.
            WatchedEvents::Nothing
                if self.instances[instance.index()].pending_arrivals() > limits::PENDING_ARRIVALS =>
            {
                self.catch_up(instance, now, observer)?;
            }
            WatchedEvents::Nothing => {}
            WatchedEvents::Ends => {
                self.next_events.not_after(instance, self.instances[instance.index()].earliest_end(now, &request));
            }
            WatchedEvents::Events => self.next_events.not_after(instance, now),
        }
        self.instances[instance.index()].arrive(now, request);
        self.board.mark_dirty(instance);
        self.prefetch_next();
        Ok(())
    }

    /// Refreshes the signals that a policy or an observer reads.
    fn refresh_signals(&mut self, now: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
        if self.board.is_refreshed(now) {
            return Ok(());
        }
        if self.board.is_due(now) && self.board.watches() != WatchedEvents::Events {
            for i in 0..self.serving() {
                let behind = self.serving_at(i);
                self.prefetch_after(behind);
                if self.instances[behind.index()].next_event().is_some_and(|at| at < now) {
                    self.catch_up(behind, now, observer)?;
                }
            }
        } else {
            self.catch_up_watched(now, observer)?;
        }
        self.board.refresh(now, &mut self.instances, &mut self.lifecycle);
        self.deliver(now);
        Ok(())
    }

    /// Executes the watched events of the instances before `now`.
    fn catch_up_watched(&mut self, now: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
        while let Some(behind) = self.next_events.first_before(now) {
            self.catch_up(behind, now, observer)?;
        }
        Ok(())
    }

    /// Delivers the events before `now` to the policies.
    fn deliver(&mut self, now: Micros) {
        let Self { lifecycle, board, policies, gateway, pairs, .. } = self;
        let mut observe = to_policies(policies, gateway, pairs);
        lifecycle.deliver(now, |event| {
            board.observe(event);
            observe(event);
        });
    }

    /// Prefetches the instance of the next event, a little further at every call.
    fn prefetch_next(&mut self) {
        if self.instances.len() <= limits::INSTANCES_AT_HAND {
            return;
        }
        let Some(next) = self.next_events.first_before(Micros::MAX) else { return };
        let (instance, distance) = &mut self.prefetching;
        if *instance != next {
            (*instance, *distance) = (next, 0);
        }
        if let Some(&far) = PrefetchDistance::ALL.get(*distance) {
            self.instances[next.index()].prefetch(far);
            *distance += 1;
        }
    }

    /// As [`Self::prefetch_next`], while the instances are visited one after the other.
    fn prefetch_after(&self, present: InstanceIndex) {
        for (ahead, distance) in (1..).zip(PrefetchDistance::ALL.into_iter().rev()) {
            self.instances.get(present.index() + ahead).into_iter().for_each(|instance| instance.prefetch(distance));
        }
    }

    /// Advances the first instance on which a request may end before `until`, up to that moment. Returns `false` if
    /// there is none.
    fn next_end_before(&mut self, until: Micros, observer: &mut impl Observer) -> Result<bool, Halt> {
        let Some(instance) = self.next_events.first_before(until) else { return Ok(false) };
        self.config.abort.check()?;
        let at = self.next_events.time(instance);
        self.pairs.iter_mut().for_each(|pairs| pairs.now = at);
        self.catch_up(instance, at.saturating_add(Micros(1)), observer)?;
        Ok(true)
    }

    /// Executes the events of instance `behind` before `now`.
    fn catch_up(&mut self, behind: InstanceIndex, now: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
        debug_assert_eq!(
            self.more_than_advancing,
            self.shared.is_some() || self.sampling.is_some() || self.pairs.is_some()
        );
        if self.more_than_advancing {
            return self.catch_up_with_others(behind, now, observer);
        }
        self.advance(behind, now, observer)?;
        self.board.mark_dirty(behind);
        self.watch(behind);
        Ok(())
    }

    #[inline(never)]
    fn catch_up_with_others(
        &mut self,
        behind: InstanceIndex,
        now: Micros,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        if self.shared.is_some() {
            self.keep_together(now, observer)?;
        }
        self.catch_up_alone(behind, now, observer)
    }

    /// As [`Self::catch_up`], if instances share no storage or the others have caught up far enough.
    #[inline]
    fn catch_up_alone(
        &mut self,
        behind: InstanceIndex,
        now: Micros,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        if self.sampling.is_some() {
            self.advance_sampled(behind, now, observer)?;
        } else {
            self.advance(behind, now, observer)?;
        }
        if self.pairs.is_some() {
            self.begin_reads(behind);
        }
        self.board.mark_dirty(behind);
        self.watch(behind);
        Ok(())
    }

    /// Executes the events of instance `behind` before `now`, for [`Self::catch_up_alone`].
    #[inline(always)]
    fn advance(&mut self, behind: InstanceIndex, now: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
        let (instance, mut observer) = self.observed(behind, observer);
        instance.advance(now, &mut observer)
    }

    /// Instance `behind`, and the observer that keeps the signals of the service up to date with its events.
    #[inline(always)]
    fn observed<'a, O: Observer>(
        &'a mut self,
        behind: InstanceIndex,
        observer: &'a mut O,
    ) -> (&'a mut I, SignalObserver<'a, O>) {
        let observer = SignalObserver {
            observer,
            board: &mut self.board,
            lifecycle: &mut self.lifecycle,
            gateway: self.gateway.as_deref_mut().filter(|gateway| gateway.reads_ends()),
            outcomes: self.replicas.as_mut().and_then(|replicas| replicas.outcome_log()),
            pairs: self.pairs.as_deref_mut(),
        };
        (&mut self.instances[behind.index()], observer)
    }

    /// Records when `instance` must be advanced again.
    fn watch(&mut self, instance: InstanceIndex) {
        let next = match self.board.watches() {
            WatchedEvents::Nothing => return,
            WatchedEvents::Ends => self.instances[instance.index()].next_end(),
            WatchedEvents::Events => self.instances[instance.index()].next_event(),
        };
        if self.pairs.is_some() {
            return self.watch_reads(instance, next);
        }
        self.next_events.set(instance, next);
    }

    /// As [`Self::watch`], if requests move between instances.
    #[inline(never)]
    fn watch_reads(&mut self, instance: InstanceIndex, next: Option<Micros>) {
        let read = self.instances[instance.index()].next_read();
        self.next_events.set(instance, next.into_iter().chain(read).min());
    }

    /// Starts to keep the signals up to date that are read.
    fn start(&mut self, observed: Reads, ends_matter: bool) {
        let mut reads = self.admission_reads.and(self.routing_reads).and(observed);
        let mut ends_matter = ends_matter;
        if let Some(gateway) = &self.gateway {
            reads = reads.and(gateway.reads());
            ends_matter |= gateway.reads_ends();
        }
        if let Some(replicas) = &self.replicas {
            reads = reads.and(replicas.reads());
        }
        if let Some(pairs) = &self.pairs {
            // The policies of pools share what is computed for a request.
            self.routing_reads = self.routing_reads.and(pairs.reads());
            reads = reads.and(self.routing_reads);
            ends_matter = true;
        }
        self.lifecycle.want(RouterMeasures::events(reads));
        if reads.tokens {
            // They are counted when a request is routed, without what is cached then, for all readers.
            self.routing_reads.cached_blocks = true;
        }
        self.board.start(reads, self.lifecycle.wanted(), ends_matter, &mut self.instances);
    }

    fn finish(mut self, observer: &mut impl Observer) -> Result<Vec<Counters>, Halt> {
        let horizon = self.config.horizon;
        for request in self.arrived.drain(..).chain(self.admitted.drain(..).map(|(_, request)| request)) {
            observer.record(&SimEvent::Outcome(&Outcome::new(&request, Status::Arriving)));
        }
        for request in self.gateway.iter_mut().flat_map(|gateway| gateway.drain()) {
            observer.record(&SimEvent::Outcome(&Outcome::new(&request, Status::InGateway)));
        }
        if self.shared.is_some() {
            self.keep_together(horizon.saturating_add(Micros(1)), observer)?;
        }
        if self.sampling.is_some() {
            self.sample_rest(horizon, observer)?;
        }
        let rest = &mut PairObserver { observer, pairs: self.pairs.as_deref_mut() };
        let end = |(index, mut instance): (usize, I)| {
            instance.advance(horizon.saturating_add(Micros(1)), rest)?;
            // No further turn comes.
            let kept = rest.pairs.iter_mut().flat_map(|pairs| pairs.forget_kept(InstanceIndex::at(index)));
            kept.for_each(|turn| instance.release_prefilled(horizon, turn));
            Ok(instance.finish(horizon, rest))
        };
        let counters: Result<Vec<Counters>, Halt> = self.instances.into_iter().enumerate().map(end).collect();
        for (times, outcome) in self.pairs.iter_mut().flat_map(|pairs| pairs.drain_encoding()) {
            observer.record(&SimEvent::Encoded(&times));
            outcome.iter().for_each(|outcome| observer.record(&SimEvent::Outcome(outcome)));
        }
        for (times, outcome) in self.pairs.iter_mut().flat_map(|pairs| pairs.drain()) {
            record_of(observer, &times, &outcome);
        }
        self.config.abort.check()?;
        let mut counters = counters?;
        if let Some(replicas) = self.replicas {
            scaling::finish(*replicas, &mut counters, horizon, observer);
        }
        Ok(counters)
    }
}

/// `next`, or an event of higher rank if that comes before it.
#[inline]
fn earlier(next: (Micros, FrontEvent), at: Micros, event: FrontEvent) -> (Micros, FrontEvent) {
    if at < next.0 { (at, event) } else { next }
}

/// Reports a decision of the gateway, if `observer` is interested.
fn record<'a>(observer: &mut impl Observer, decision: impl FnOnce() -> GatewayDecision<'a>) {
    if observer.interests().contains(Interests::DECISIONS) {
        observer.record(&SimEvent::Decision(&Decision::Gateway(decision())));
    }
}

/// Reports the outcome of a request that was prefilled and decoded on different instances.
fn record_of(observer: &mut impl Observer, times: &StageTimes, outcome: &Outcome) {
    observer.record(&SimEvent::Disaggregated(times));
    observer.record(&SimEvent::Outcome(outcome));
}

/// Removes and returns the forced decision, if it is about `request` and of this kind.
fn forced(
    forced: &mut Option<(RequestId, ForcedDecision)>,
    request: &Request,
    event: FrontEvent,
) -> Option<ForcedDecision> {
    let &(id, force) = forced.as_ref()?;
    let kind = match force {
        ForcedDecision::Admit(_) => FrontEvent::Admission,
        ForcedDecision::Route(_) | ForcedDecision::Prefill(_) => FrontEvent::Routing,
        // The gateway has these.
        ForcedDecision::Dispatch(_) | ForcedDecision::Evict(_) => return None,
    };
    if (id, kind) == (request.id, event) { forced.take().map(|(_, force)| force) } else { None }
}

impl ClusterConfig {
    fn serves(&self, model: Name) -> bool {
        model == Name::NONE || self.serves.contains(&model)
    }

    fn view<'a>(&self, request: &'a Request) -> RequestView<'a> {
        let class = request.tags.slo_class;
        RequestView::new(request, self.classes.priority(class), self.block_size)
            .with_targets(self.classes.targets(class))
    }
}

#[cfg(test)]
mod tests;
