//! The simulation as other crates run it, compiled here, once for each engine.
//!
//! [`Cluster`] and [`Timeline`] are generic over engine and observer, and generic code is compiled in the crate that
//! chooses the types. These entries choose them here, so that the event loop is compiled with the profile of this
//! crate, and a crate above is not compiled with two copies of it. Observers are dynamic
//! ([`DynObserver`]), except for the metrics, which nearly every event reaches.

use std::fmt::Debug;
use std::sync::Arc;

use super::decisions::{ForcedDecision, RecordedDecisions};
use super::{ArrivalList, Cluster, FollowUps, Halt, PendingDecision, Timeline};
use crate::ids::{InstanceIndex, RequestId};
use crate::instance::{Fast, Instance, InstanceLoad, Plain};
use crate::metrics::Metrics;
use crate::observer::{DynObserver, Interests, Observer};
use crate::outcome::Counters;
use crate::policy::Reads;
use crate::policy::kv_cache::CacheTier;
use crate::request::{BlockKey, Name, Request};
use crate::units::Micros;

/// An engine whose simulations are compiled in this crate: [`Fast`] or [`Plain`].
pub trait Engine: Instance + Sized {
    /// Simulates `cluster` under `requests` (in order of time) and the further requests of `follow_ups`. Every event
    /// goes to `metrics`, and to `observer` if it is interested. Returns the counters of each instance, by index.
    ///
    /// # Errors
    /// As [`Cluster::run`].
    fn run(
        cluster: Cluster<Self>,
        requests: &mut dyn Iterator<Item = Request>,
        follow_ups: Option<&mut dyn FollowUps>,
        metrics: &mut Metrics,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Counters>, Halt>;

    /// A simulation of `cluster` that stops before each decision: see [`Timeline::new`].
    fn timeline(cluster: Cluster<Self>, arrivals: ArrivalList, reads: Reads) -> Box<dyn AnyTimeline>;
}

macro_rules! engine {
    ($engine:ty) => {
        impl Engine for $engine {
            fn run(
                cluster: Cluster<Self>,
                requests: &mut dyn Iterator<Item = Request>,
                follow_ups: Option<&mut dyn FollowUps>,
                metrics: &mut Metrics,
                observer: &mut dyn Observer,
            ) -> Result<Vec<Counters>, Halt> {
                cluster.run_sessions(requests, follow_ups, &mut (metrics, DynObserver::new(observer)))
            }

            fn timeline(cluster: Cluster<Self>, arrivals: ArrivalList, reads: Reads) -> Box<dyn AnyTimeline> {
                Box::new(Timeline::new(cluster, arrivals, reads))
            }
        }
    };
}

engine!(Fast);
engine!(Plain);

/// Whether a run with `metrics` and `observer` needs the records of steps, which the fast engine makes only if asked to.
#[must_use]
pub fn needs_steps(metrics: &Metrics, observer: &mut dyn Observer) -> bool {
    (metrics.interests() | observer.interests()).contains(Interests::STEPS)
}

/// A [`Timeline`] of any engine.
pub trait AnyTimeline: Debug + Send {
    /// See [`Timeline::next_decision`].
    ///
    /// # Errors
    /// As [`Cluster::run`].
    fn next_decision(&mut self, observer: &mut dyn Observer) -> Result<bool, Halt>;

    /// See [`Timeline::pending`].
    fn pending(&mut self) -> Option<PendingDecision<'_>>;

    /// See [`Timeline::force`].
    fn force(&mut self, id: RequestId, what: ForcedDecision);

    /// See [`Timeline::force_scaling`].
    fn force_scaling(&mut self, group: usize, replicas: u32);

    /// See [`Timeline::replay`].
    fn replay(&mut self, decisions: Arc<RecordedDecisions>);

    /// See [`Timeline::decide`].
    ///
    /// # Errors
    /// As [`Cluster::run`].
    fn decide(&mut self, observer: &mut dyn Observer) -> Result<(), Halt>;

    /// See [`Timeline::run_until`].
    ///
    /// # Errors
    /// As [`Cluster::run`].
    fn run_until(&mut self, end: Micros, observer: &mut dyn Observer) -> Result<(), Halt>;

    /// See [`Timeline::catch_up`].
    ///
    /// # Errors
    /// As [`Cluster::run`].
    fn catch_up(&mut self, now: Micros, observer: &mut dyn Observer) -> Result<(), Halt>;

    /// See [`Timeline::arrive`].
    fn arrive(&mut self, request: Request);

    /// See [`Timeline::next_event`].
    fn next_event(&mut self) -> Option<Micros>;

    /// See [`Timeline::cancel`].
    ///
    /// # Errors
    /// As [`Cluster::run`].
    fn cancel(
        &mut self,
        now: Micros,
        id: RequestId,
        instance: Option<InstanceIndex>,
        observer: &mut dyn Observer,
    ) -> Result<(), Halt>;

    /// See [`Timeline::is_over`].
    fn is_over(&mut self) -> bool;

    /// See [`Timeline::finish`].
    ///
    /// # Errors
    /// As [`Cluster::run`].
    fn finish(self: Box<Self>, end: Micros, observer: &mut dyn Observer) -> Result<Vec<Counters>, Halt>;

    /// See [`Timeline::serve_next`].
    fn serve_next(&mut self, instance: InstanceIndex, id: RequestId) -> bool;

    /// See [`Timeline::force_load`].
    fn force_load(&mut self, id: RequestId, loads: bool);

    /// See [`Timeline::force_eviction`].
    fn force_eviction(&mut self, id: RequestId, tier: CacheTier, adapter: Name);

    /// See [`Timeline::request`].
    fn request(&self, id: RequestId) -> Option<&Request>;

    /// See [`Timeline::flow`].
    fn flow(&self, priority: i32, tenant: Name) -> Vec<&Request>;

    /// See [`Timeline::cached`].
    fn cached(&self, keys: &[BlockKey]) -> Vec<u32>;

    /// The waiting queue of each instance: [`Request::id`] of each request.
    fn queues(&self) -> Vec<Vec<RequestId>>;

    /// The load of each instance, and the number of requests that have arrived there and took part in no event yet.
    fn loads(&self) -> Vec<(InstanceLoad, usize)>;

    /// A copy that continues as this one does.
    fn fork(&self) -> Box<dyn AnyTimeline>;
}

impl Clone for Box<dyn AnyTimeline> {
    fn clone(&self) -> Self {
        self.fork()
    }
}

impl<I: Instance + Clone + Debug + Send + 'static> AnyTimeline for Timeline<I> {
    fn next_decision(&mut self, observer: &mut dyn Observer) -> Result<bool, Halt> {
        self.next_decision(observer)
    }

    fn pending(&mut self) -> Option<PendingDecision<'_>> {
        self.pending()
    }

    fn force(&mut self, id: RequestId, what: ForcedDecision) {
        self.force(id, what);
    }

    fn force_scaling(&mut self, group: usize, replicas: u32) {
        self.force_scaling(group, replicas);
    }

    fn replay(&mut self, decisions: Arc<RecordedDecisions>) {
        self.replay(decisions);
    }

    fn decide(&mut self, observer: &mut dyn Observer) -> Result<(), Halt> {
        self.decide(observer)
    }

    fn run_until(&mut self, end: Micros, observer: &mut dyn Observer) -> Result<(), Halt> {
        self.run_until(end, observer)
    }

    fn catch_up(&mut self, now: Micros, observer: &mut dyn Observer) -> Result<(), Halt> {
        self.catch_up(now, observer)
    }

    fn arrive(&mut self, request: Request) {
        self.arrive(request);
    }

    fn next_event(&mut self) -> Option<Micros> {
        self.next_event()
    }

    fn cancel(
        &mut self,
        now: Micros,
        id: RequestId,
        instance: Option<InstanceIndex>,
        observer: &mut dyn Observer,
    ) -> Result<(), Halt> {
        self.cancel(now, id, instance, observer)
    }

    fn is_over(&mut self) -> bool {
        self.is_over()
    }

    fn finish(self: Box<Self>, end: Micros, observer: &mut dyn Observer) -> Result<Vec<Counters>, Halt> {
        Self::finish(*self, end, observer)
    }

    fn serve_next(&mut self, instance: InstanceIndex, id: RequestId) -> bool {
        self.serve_next(instance, id)
    }

    fn force_load(&mut self, id: RequestId, loads: bool) {
        self.force_load(id, loads);
    }

    fn force_eviction(&mut self, id: RequestId, tier: CacheTier, adapter: Name) {
        self.force_eviction(id, tier, adapter);
    }

    fn request(&self, id: RequestId) -> Option<&Request> {
        self.request(id)
    }

    fn flow(&self, priority: i32, tenant: Name) -> Vec<&Request> {
        self.flow(priority, tenant)
    }

    fn cached(&self, keys: &[BlockKey]) -> Vec<u32> {
        self.cached(keys)
    }

    fn queues(&self) -> Vec<Vec<RequestId>> {
        self.instances().iter().map(Instance::queue).collect()
    }

    fn loads(&self) -> Vec<(InstanceLoad, usize)> {
        self.instances().iter().map(|instance| (instance.load(), instance.pending_arrivals())).collect()
    }

    fn fork(&self) -> Box<dyn AnyTimeline> {
        Box::new(self.clone())
    }
}
