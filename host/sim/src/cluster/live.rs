//! A simulation of requests that are not known in advance: a caller adds each when it comes, and may cancel it.
//!
//! The caller has a clock of its own. It executes all events up to the present with
//! [`Timeline::run_until`], adds a request that arrives later than that, and sleeps until [`Timeline::next_event`].

use super::{Cluster, Halt, Timeline};
use crate::ids::{InstanceIndex, RequestId};
use crate::instance::Instance;
use crate::observer::{DynObserver, Observer, SimEvent};
use crate::outcome::{Outcome, Status};
use crate::request::Request;
use crate::units::Micros;

impl<I: Instance> Timeline<I> {
    /// `request` arrives, later than every event that was executed and no earlier than the requests before it.
    pub fn arrive(&mut self, request: Request) {
        self.arrivals.add(request);
    }

    /// Time of the next event up to the horizon; `None` if none follows without a further request.
    pub fn next_event(&mut self) -> Option<Micros> {
        let front = self.cluster.next(&mut self.arrivals).map(|(at, _)| at);
        let instances = self.cluster.instances.iter().filter_map(Instance::next_event);
        let horizon = self.cluster.config.horizon;
        instances.chain(front).min().filter(|&at| at <= horizon)
    }

    /// The client of request `id` disconnects at `now`, up to which all events were executed. The request ends as
    /// [`Status::Evicted`] on its instance, which is `instance` if it was dispatched to one, and as [`Status::TimedOut`] in
    /// front of the instances. Nothing happens if it has ended already.
    ///
    /// # Errors
    /// As [`Cluster::run`].
    pub fn cancel(
        &mut self,
        now: Micros,
        id: RequestId,
        instance: Option<InstanceIndex>,
        observer: &mut dyn Observer,
    ) -> Result<(), Halt> {
        let observer = &mut DynObserver::new(observer);
        if let Some(request) = self.arrivals.remove(id) {
            let outcome = Outcome::new(&request, Status::TimedOut).ended_at(now.max(request.arrival));
            observer.record(&SimEvent::Outcome(&outcome));
            // The client disconnects before its request reaches the service: no policy learns of it.
            return Ok(());
        }
        match instance {
            Some(instance) => self.cluster.evict(now, id, instance, observer)?,
            None => self.cluster.cancel_in_front(now, id, observer),
        }
        Ok(())
    }
}

impl<I: Instance> Cluster<I> {
    /// Ends request `id` if it waits for admission, in the gateway's queue or for routing.
    fn cancel_in_front(&mut self, now: Micros, id: RequestId, observer: &mut impl Observer) {
        if let Some(request) = self.take_in_front(now, id) {
            self.refuse(now, &request, Status::TimedOut, observer);
        }
    }

    fn take_in_front(&mut self, now: Micros, id: RequestId) -> Option<Box<Request>> {
        if let Some(index) = self.arrived.iter().position(|request| request.id == id) {
            // A request that waits for admission is not counted by the gateway yet.
            return self.arrived.remove(index);
        }
        if let Some(index) = self.admitted.iter().position(|(_, request)| request.id == id) {
            let (_, request) = self.admitted.remove(index)?;
            self.gateway.iter_mut().for_each(|gateway| gateway.refused(&request));
            // From its dispatch on the gateway has counted the request as in flight: that is taken back.
            return Some(request);
        }
        self.gateway.as_mut()?.cancel(now, id)
    }
}
