//! A simulation that stops before any decision, can be copied there, and goes on otherwise.
//!
//! Whatever happens later follows from what is live now and from the arrivals to come. So a copy of
//! those two is a second world, equal to the first but for what is done to it: a decision is forced to
//! have another outcome ([`Timeline::force`]), or a waiting request is served first
//! ([`Timeline::serve_next`]). The policies are part of the copy and go on deciding; a decision that is
//! forced is asked for all the same, so that their state moves on as ever, and they are told what
//! became of it ([`RoutingPolicy::sent`](crate::policy::RoutingPolicy::sent)).
//!
//! Arrivals are a list here. Clients in closed loop wait for answers, so that their requests depend on
//! what is decided; held to the times at which they really came, they are a list, too.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::sessions::{Clients, Source};
use super::{Cluster, Event, Halt};
use crate::instance::Instance;
use crate::observer::{DynObserver, Observer};
use crate::outcome::Counters;
use crate::policy::Reads;
use crate::request::{BlockKey, Request};
use crate::units::Micros;

/// A simulation on its way.
#[derive(Clone, Debug)]
pub struct Timeline<I> {
    cluster: Cluster<I>,
    arrivals: Listed,
}

/// Requests in the order of their arrival, shared by all copies.
#[derive(Clone, Debug)]
pub struct Listed {
    all: Arc<[Request]>,
    next: usize,
}

impl Listed {
    /// All of them.
    #[must_use]
    pub fn new(all: Arc<[Request]>) -> Self {
        Self { all, next: 0 }
    }
}

impl Source for Listed {
    fn next_at(&mut self) -> Option<Micros> {
        self.all.get(self.next).map(|request| request.arrival)
    }

    fn take(&mut self) -> Option<Request> {
        let request = self.all.get(self.next)?;
        self.next += 1;
        Some(request.clone())
    }
}

/// What a decision is to be, whatever the policy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Of admission: let in or rejected.
    Admit(bool),
    /// Of routing: place of the instance in the columns.
    Route(u32),
}

/// Decisions that are no longer the policies': by request, what was decided about it.
pub type Settled = FxHashMap<u32, Fate>;

/// How far a request came in front of the instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Admission rejected it.
    Rejected,
    /// Admission let it in; no policy was asked where it goes.
    Admitted,
    /// It went to the instance at this place in the columns.
    Routed(u32),
}

/// The decision that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending<'a> {
    /// When.
    pub at: Micros,
    /// About whom.
    pub request: &'a Request,
    /// Whether it is that of admission; else that of routing.
    pub is_admission: bool,
}

impl<I: Instance> Timeline<I> {
    /// `cluster`, which is idle, under `arrivals`. An observer of its decisions will want `reads`.
    pub fn new(mut cluster: Cluster<I>, arrivals: Listed, reads: Reads) -> Self {
        cluster.start(reads, false);
        Self { cluster, arrivals }
    }

    /// Goes on to the next decision up to the horizon; `false` if there is none.
    ///
    /// # Errors
    /// As [`Cluster::run`].
    pub fn next_decision(&mut self, observer: &mut dyn Observer) -> Result<bool, Halt> {
        loop {
            let horizon = self.cluster.config.horizon;
            match self.cluster.next(&mut self.arrivals).filter(|&(at, _)| at <= horizon) {
                None => return Ok(false),
                Some((at, Event::Arrival)) => {
                    let observer = &mut DynObserver::new(observer);
                    self.cluster.happen(at, Event::Arrival, &mut Clients::new(&mut self.arrivals, observer))?;
                }
                Some((_, Event::Admission | Event::Routing)) => return Ok(true),
            }
        }
    }

    /// The decision at which [`Self::next_decision`] has stopped.
    pub fn pending(&mut self) -> Option<Pending<'_>> {
        let (at, event) = self.cluster.next(&mut self.arrivals)?;
        let (request, is_admission) = match event {
            Event::Arrival => return None,
            Event::Admission => (self.cluster.arrived.front()?, true),
            Event::Routing => (self.cluster.admitted.front()?, false),
        };
        Some(Pending { at, request, is_admission })
    }

    /// The next decision of that kind about request `id` has this outcome.
    pub fn force(&mut self, id: u32, what: Force) {
        self.cluster.forced = Some((id, what));
    }

    /// From now on these decisions are as they are, but for one that is forced. The policies are not asked
    /// about them, and learn nothing of them.
    pub fn settle(&mut self, decisions: Arc<Settled>) {
        self.cluster.settled = Some(decisions);
    }

    /// What comes next in front of the instances happens: the pending decision is made.
    ///
    /// # Errors
    /// As [`Cluster::run`].
    pub fn decide(&mut self, observer: &mut dyn Observer) -> Result<(), Halt> {
        let Some((at, event)) = self.cluster.next(&mut self.arrivals) else { return Ok(()) };
        let observer = &mut DynObserver::new(observer);
        self.cluster.happen(at, event, &mut Clients::new(&mut self.arrivals, observer))
    }

    /// Everything until `end` happens, there inclusive, but no later than the horizon.
    ///
    /// # Errors
    /// As [`Cluster::run`].
    pub fn run_until(&mut self, end: Micros, observer: &mut dyn Observer) -> Result<(), Halt> {
        let end = end.min(self.cluster.config.horizon);
        self.cluster.work(end, &mut Clients::new(&mut self.arrivals, &mut DynObserver::new(observer)))?;
        self.catch_up(end.saturating_add(Micros(1)), observer)
    }

    /// Every instance does what it does before `now`; nothing in front of them happens.
    ///
    /// # Errors
    /// As [`Cluster::run`].
    pub fn catch_up(&mut self, now: Micros, observer: &mut dyn Observer) -> Result<(), Halt> {
        let passed_on = &mut DynObserver::new(observer);
        (0..self.cluster.instances.len()).try_for_each(|instance| self.cluster.catch_up(instance, now, passed_on))?;
        self.cluster.config.abort.check()
    }

    /// Whether anything may still happen before the horizon.
    pub fn is_over(&mut self) -> bool {
        let horizon = self.cluster.config.horizon;
        let front = self.cluster.next(&mut self.arrivals).map(|(at, _)| at);
        let instances = self.cluster.instances.iter().filter_map(Instance::next_event);
        instances.chain(front).all(|at| at > horizon)
    }

    /// Ends it at `end`, or at the horizon if that is before: reports what is left, and the counters.
    ///
    /// # Errors
    /// As [`Cluster::run`].
    pub fn finish(mut self, end: Micros, observer: &mut dyn Observer) -> Result<Vec<Counters>, Halt> {
        self.run_until(end, observer)?;
        self.cluster.config.horizon = self.cluster.config.horizon.min(end);
        self.cluster.finish(&mut DynObserver::new(observer))
    }

    /// The instances as they are, having done what [`Self::catch_up`] says.
    #[must_use]
    pub fn instances(&self) -> &[I] {
        &self.cluster.instances
    }

    /// The waiting request `id` goes to the head of its instance's queue, against the scheduling policy.
    /// `false` if it does not wait.
    pub fn serve_next(&mut self, instance: usize, id: u32) -> bool {
        let served = self.cluster.instances[instance].serve_next(id);
        if served {
            self.cluster.board.touched(instance);
            self.cluster.watch(instance);
        }
        served
    }

    /// For each instance, how many leading blocks of `keys` its cache has.
    #[must_use]
    pub fn cached(&self, keys: &[BlockKey]) -> Vec<u32> {
        let found = |instance: &I| keys.iter().take_while(|&&key| instance.finds(key)).count() as u32;
        self.cluster.instances.iter().map(found).collect()
    }
}
