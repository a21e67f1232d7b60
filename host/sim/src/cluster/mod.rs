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
mod catch_up;
mod compiled;
mod config;
mod decisions;
mod disaggregation;
mod dispatch;
mod ends;
mod flow;
mod front_event;
mod gateway;
mod in_flight;
mod lifecycle;
mod live;
mod load_samples;
mod measures;
mod new_instance;
mod next_events;
mod replicas;
mod scaling;
mod sessions;
mod shared_storage;
mod signals;
mod storage_groups;
mod timeline;

use std::collections::VecDeque;
use std::sync::Arc;

pub use self::compiled::{AnyTimeline, Engine, needs_steps};
pub use self::config::{Abort, ClusterConfig, Halt, Policies};
use self::decisions::forced;
pub use self::decisions::{ForcedDecision, RecordedDecision, RecordedDecisions};
use self::disaggregation::Pairs;
pub use self::disaggregation::{
    BlisTransfer, DisaggregationConfig, Encoder, InstanceRole, KvNetwork, NixlFlow, PoolRouting, RoleGroup,
    TransferFlow,
};
use self::front_event::{FrontEvent, earlier};
use self::gateway::Gateway;
pub use self::gateway::{FlowControl, FlowSettings};
use self::lifecycle::EventDelivery;
use self::new_instance::NewInstance;
use self::next_events::NextEvents;
use self::replicas::Replicas;
pub use self::replicas::{
    DelayedActuation, EMPTY_NODE_DELAY, NodePool, PhaseTime, ReplicaGroup, ReplicaSettings, ScalingLoop,
    ScheduledReplicas, StartMode, StartTimes,
};

use self::sessions::{ArrivalQueue, ArrivalSource, FollowUpObserver};
pub use self::sessions::{FollowUps, SessionStates};
use self::signals::SignalBoard;
use self::storage_groups::SharedStorage;
pub use self::timeline::{ArrivalList, DecisionEvent, PendingDecision, Timeline};
use crate::ids::{InstanceIndex, RequestId};
use crate::instance::{Instance, InstanceConfig, LoadSampling, NoProgress};
use crate::observer::{Interests, Observer, SimEvent};
use crate::outcome::{Counters, Decision, Outcome, Rejection, Status};
use crate::policy::{AdmissionDecision, Event, Reads, Reason, RoutingDecision};
use crate::request::Request;
use crate::units::Micros;

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
                // A replayed decision does not call the admission policy, so its state does not change.
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

    /// Makes the routing decision about the next request, and dispatches it.
    fn route(&mut self, now: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
        let (_, mut request) = self.admitted.pop_front().expect("a routing is due");
        if self.pairs.is_some() {
            // With prefill apart from decode a request may need an instance for each, and one that encodes.
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
            // A replayed decision does not call the routing policy, so its state does not change.
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
}

#[cfg(test)]
mod tests;
