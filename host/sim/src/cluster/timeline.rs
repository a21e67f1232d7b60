//! A simulation that stops before each decision, can be copied there, and continues with the same or another decision.
//!
//! Everything later follows from the present state and from the arrivals to come. A copy of those two is therefore a
//! branch, equal to the original except for the intervention: a decision is forced to another result
//! ([`Timeline::force`]), or a waiting request is served first ([`Timeline::serve_next`]). The policies are part of the
//! copy and continue to decide. A policy is also called for a forced decision, so that its state changes as always; a
//! routing policy then receives the actual target ([`RoutingPolicy::dispatched`](crate::policy::RoutingPolicy::dispatched)).
//!
//! Arrivals are a list here. Closed-loop clients wait for the ends of requests, so their arrivals depend on the
//! decisions; with the arrival times of a recorded run they become a list, too.

use std::collections::VecDeque;
use std::sync::Arc;

use super::decisions::{ForcedDecision, RecordedDecisions};
use super::front_event::FrontEvent;
use super::sessions::{ArrivalSource, FollowUpObserver};
use super::{Cluster, Halt};
use crate::ids::{InstanceIndex, RequestId};
use crate::instance::Instance;
use crate::numbers::count;
use crate::observer::{DynObserver, Observer};
use crate::outcome::Counters;
use crate::policy::Reads;
use crate::policy::kv_cache::CacheTier;
use crate::request::{BlockKey, Name, Request};
use crate::units::Micros;

/// A simulation that can be stopped and copied.
#[derive(Clone, Debug)]
pub struct Timeline<I> {
    pub(super) cluster: Cluster<I>,
    pub(super) arrivals: ArrivalList,
}

/// Requests in the order of their arrival, shared by all copies, and those that were added later.
#[derive(Clone, Debug)]
pub struct ArrivalList {
    all: Arc<[Request]>,
    next: usize,
    added: VecDeque<Request>,
}

impl ArrivalList {
    /// The list of all requests.
    #[must_use]
    pub fn new(all: Arc<[Request]>) -> Self {
        Self { all, next: 0, added: VecDeque::new() }
    }

    /// Adds a request that arrives after all others.
    pub(super) fn add(&mut self, request: Request) {
        self.added.push_back(request);
    }

    /// Removes request `id`, if it was added and has not arrived.
    pub(super) fn remove(&mut self, id: RequestId) -> Option<Request> {
        let index = self.added.iter().position(|request| request.id == id)?;
        self.added.remove(index)
    }
}

impl ArrivalSource for ArrivalList {
    fn next_at(&mut self) -> Option<Micros> {
        self.all.get(self.next).or_else(|| self.added.front()).map(|request| request.arrival)
    }

    fn take(&mut self) -> Option<Request> {
        // Requests that were added later arrive after all those of the list.
        let Some(request) = self.all.get(self.next) else { return self.added.pop_front() };
        self.next += 1;
        Some(request.clone())
    }
}

/// The next decision of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingDecision<'a> {
    /// Time of the decision.
    pub at: Micros,
    /// What is decided.
    pub event: DecisionEvent<'a>,
}

/// What is decided next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionEvent<'a> {
    /// The admission of this request. With flow control a dispatch cycle follows.
    Admission(&'a Request),
    /// The routing of this request.
    Routing(&'a Request),
    /// A dispatch cycle of flow control, at a tick.
    Tick,
    /// A call of the scaling policy.
    Scaling,
}

impl<I: Instance> Timeline<I> {
    /// A simulation of `cluster`, which is idle, under `arrivals`. `reads` are the signals that an observer of its
    /// decisions will read.
    pub fn new(mut cluster: Cluster<I>, arrivals: ArrivalList, reads: Reads) -> Self {
        cluster.start(reads, false);
        Self { cluster, arrivals }
    }

    /// Continues to the next decision up to the horizon. Returns `false` if there is none.
    ///
    /// # Errors
    /// As [`Cluster::run`].
    pub fn next_decision(&mut self, observer: &mut dyn Observer) -> Result<bool, Halt> {
        loop {
            let horizon = self.cluster.config.horizon;
            if self.cluster.pairs.is_some() {
                let next =
                    self.cluster.next(&mut self.arrivals).map_or(horizon.saturating_add(Micros(1)), |(at, _)| at);
                if self.cluster.next_end_before(next, &mut DynObserver::new(observer))? {
                    continue; // it may cause an earlier event
                }
            }
            match self.cluster.next(&mut self.arrivals).filter(|&(at, _)| at <= horizon) {
                None => return Ok(false),
                // Of scaling events only a call of the policy is a decision: scrapes and due changes are executed.
                Some((at, FrontEvent::Scaling)) if self.cluster.is_sync(at) => return Ok(true),
                Some((
                    at,
                    event @ (FrontEvent::Arrival
                    | FrontEvent::Pair
                    | FrontEvent::Leave
                    | FrontEvent::Replicas
                    | FrontEvent::Scaling),
                )) => {
                    let observer = &mut DynObserver::new(observer);
                    let observer = &mut FollowUpObserver::new(&mut self.arrivals, observer);
                    self.cluster.execute(at, event, observer)?;
                }
                // Here the caller may copy the simulation, or force another result of the decision.
                Some((_, FrontEvent::Admission | FrontEvent::Routing | FrontEvent::Tick)) => return Ok(true),
            }
        }
    }

    /// The decision before which [`Self::next_decision`] has stopped.
    pub fn pending(&mut self) -> Option<PendingDecision<'_>> {
        let (at, event) = self.cluster.next(&mut self.arrivals)?;
        let event = match event {
            FrontEvent::Scaling if self.cluster.is_sync(at) => DecisionEvent::Scaling,
            FrontEvent::Arrival | FrontEvent::Pair | FrontEvent::Leave | FrontEvent::Replicas | FrontEvent::Scaling => {
                // These events follow from earlier decisions: no policy decides, so no result can be forced.
                return None;
            }
            FrontEvent::Admission => DecisionEvent::Admission(self.cluster.arrived.front()?),
            FrontEvent::Routing => DecisionEvent::Routing(&self.cluster.admitted.front()?.1),
            FrontEvent::Tick => DecisionEvent::Tick,
        };
        Some(PendingDecision { at, event })
    }

    /// Forces the next decision of that kind about request `id`: the request that flow control would dispatch or evict.
    pub fn force(&mut self, id: RequestId, what: ForcedDecision) {
        match what {
            ForcedDecision::Admit(_) | ForcedDecision::Route(_) | ForcedDecision::Prefill(_) => {
                self.cluster.forced = Some((id, what));
            }
            ForcedDecision::Dispatch(_) | ForcedDecision::Evict(_) => {
                self.cluster.gateway.iter_mut().for_each(|gateway| gateway.force(id, what));
            }
        }
    }

    /// At the next call of the scaling policy `group` gets `replicas` replicas, within its limits, whatever the policy and its
    /// rules say. Later calls decide as always.
    pub fn force_scaling(&mut self, group: usize, replicas: u32) {
        self.cluster.replicas.iter_mut().for_each(|live| live.force(group, replicas));
    }

    /// From now on replays these decisions, except for a forced one. The policies are not called for them, and their
    /// state does not change. Flow control goes on deciding: after another dispatch other requests wait.
    pub fn replay(&mut self, decisions: Arc<RecordedDecisions>) {
        self.cluster.recorded = Some(decisions);
    }

    /// Executes the next event in front of the instances: the pending decision.
    ///
    /// # Errors
    /// As [`Cluster::run`].
    pub fn decide(&mut self, observer: &mut dyn Observer) -> Result<(), Halt> {
        let Some((at, event)) = self.cluster.next(&mut self.arrivals) else { return Ok(()) };
        let observer = &mut DynObserver::new(observer);
        self.cluster.execute(at, event, &mut FollowUpObserver::new(&mut self.arrivals, observer))
    }

    /// Executes all events until `end`, inclusive, but not beyond the horizon.
    ///
    /// # Errors
    /// As [`Cluster::run`].
    pub fn run_until(&mut self, end: Micros, observer: &mut dyn Observer) -> Result<(), Halt> {
        let end = end.min(self.cluster.config.horizon);
        let dynamic = &mut DynObserver::new(observer);
        self.cluster.execute_until(end, &mut FollowUpObserver::new(&mut self.arrivals, dynamic))?;
        self.catch_up(end.saturating_add(Micros(1)), observer)
    }

    /// Executes all events of the instances before `now`, and none in front of the instances.
    ///
    /// # Errors
    /// As [`Cluster::run`].
    pub fn catch_up(&mut self, now: Micros, observer: &mut dyn Observer) -> Result<(), Halt> {
        let passed_on = &mut DynObserver::new(observer);
        for behind in (0..self.cluster.instances.len()).map(InstanceIndex::at) {
            self.cluster.catch_up(behind, now, passed_on)?;
        }
        self.cluster.config.abort.check()
    }

    /// Whether no event is left before the horizon.
    pub fn is_over(&mut self) -> bool {
        let horizon = self.cluster.config.horizon;
        let front = self.cluster.next(&mut self.arrivals).map(|(at, _)| at);
        let instances = self.cluster.instances.iter().filter_map(Instance::next_event);
        instances.chain(front).all(|at| at > horizon)
    }

    /// Ends the simulation at `end`, or at the horizon if that is earlier. Reports the requests that are left, and
    /// returns the counters.
    ///
    /// # Errors
    /// As [`Cluster::run`].
    pub fn finish(mut self, end: Micros, observer: &mut dyn Observer) -> Result<Vec<Counters>, Halt> {
        self.run_until(end, observer)?;
        self.cluster.config.horizon = self.cluster.config.horizon.min(end);
        self.cluster.finish(&mut DynObserver::new(observer))
    }

    /// The instances in their present state; see [`Self::catch_up`].
    #[must_use]
    pub fn instances(&self) -> &[I] {
        &self.cluster.instances
    }

    /// Moves the waiting request `id` to the head of its instance's queue, against the scheduling policy. Returns
    /// `false` if it does not wait.
    pub fn serve_next(&mut self, instance: InstanceIndex, id: RequestId) -> bool {
        let served = self.cluster.instances[instance.index()].serve_next(id);
        if served {
            self.cluster.board.mark_dirty(instance);
            self.cluster.watch(instance);
        }
        served
    }

    /// Wherever request `id` is served next, it loads what the CPU tier has for it, or computes it, whatever the policy says.
    /// Its later loads are decided as always.
    pub fn force_load(&mut self, id: RequestId, loads: bool) {
        self.cluster.instances.iter_mut().for_each(|instance| instance.force_load(id, loads));
    }

    /// Wherever request `id` is served, `adapter` makes room when it next needs some in `tier` for its LoRA adapter, whatever the
    /// policy says, if it can then. Its later evictions are decided as always.
    pub fn force_eviction(&mut self, id: RequestId, tier: CacheTier, adapter: Name) {
        self.cluster.instances.iter_mut().for_each(|instance| instance.force_eviction(id, tier, adapter));
    }

    /// The request `id`, which may be still to come.
    #[must_use]
    pub fn request(&self, id: RequestId) -> Option<&Request> {
        self.arrivals.all.iter().find(|request| request.id == id)
    }

    /// The requests that wait in flow control, of `tenant` in the band of `priority`, in their order.
    #[must_use]
    pub fn flow(&self, priority: i32, tenant: Name) -> Vec<&Request> {
        self.cluster.gateway.iter().flat_map(|gateway| gateway.flow(priority, tenant)).collect()
    }

    /// For each instance, the number of leading blocks of `keys` in its prefix cache.
    #[must_use]
    pub fn cached(&self, keys: &[BlockKey]) -> Vec<u32> {
        let found = |instance: &I| count(keys.iter().take_while(|&&key| instance.finds(key)).count());
        self.cluster.instances.iter().map(found).collect()
    }
}
