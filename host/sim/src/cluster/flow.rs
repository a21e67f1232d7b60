//! The gateway's queue in the loop of the cluster: requests enter it, leave it unserved, and are dispatched.

use super::candidates::CandidateSet;
use super::gateway::{Cycle, Enqueued, Leaves};
use super::signals::SignalObserver;
use super::{Cluster, Halt, to_policies};
use crate::ids::{InstanceIndex, RequestId};
use crate::instance::{Instance, NoProgress};
use crate::observer::{Interests, Observer, SimEvent};
use crate::outcome::{Decision, GatewayChoice, GatewayDecision, Outcome, Rejection, Status};
use crate::policy::Events;
use crate::request::Request;
use crate::units::Micros;

impl<I: Instance> Cluster<I> {
    /// A request that was admitted at `now` goes to routing, or to the gateway's queue.
    pub(super) fn admitted(
        &mut self,
        now: Micros,
        request: Box<Request>,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        // What happened before is delivered to the policies of the queue before they decide.
        if self.gateway.as_ref().is_some_and(|gateway| gateway.events() != Events::NONE) {
            self.refresh_signals(now, observer)?;
        }
        let Some(gateway) = &mut self.gateway else {
            self.admitted.push_back((now.saturating_add(self.config.routing_latency), request));
            // Without flow control a request goes from admission straight to routing.
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
    pub(super) fn leave(&mut self, now: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
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
    pub(super) fn refuse(&mut self, now: Micros, request: &Request, status: Status, observer: &mut impl Observer) {
        self.lifecycle.decided(
            now,
            &self.config.view(request),
            None,
            to_policies(&mut self.policies, &mut self.gateway, &mut self.pairs),
        );
        observer.record(&SimEvent::Outcome(&Outcome::new(request, status).ended_at(now)));
    }

    /// A tick of the gateway's queue is due.
    pub(super) fn tick(&mut self, now: Micros, observer: &mut impl Observer) -> Result<(), Halt> {
        self.dispatch_cycle(now, observer)?;
        let Some(gateway) = &mut self.gateway else { return Ok(()) };
        let moves = self.pairs.as_ref().is_some_and(|pairs| pairs.next_event() < Micros::MAX);
        let is_idle = || !moves && self.instances.iter().all(|instance| instance.next_event().is_none());
        let is_fixed = || self.replicas.as_ref().is_none_or(|replicas| !replicas.may_change());
        if gateway.ticked(now) && self.arrived.is_empty() && self.admitted.is_empty() && is_idle() && is_fixed() {
            // An idle service that cannot change has dispatched nothing for long: the ticks would never end.
            return Err(Halt::NothingDispatched { waiting: gateway.len() });
        }
        self.skip_ticks();
        Ok(())
    }

    /// Skips the ticks of the gateway's queue before the next change of a signal.
    pub(super) fn skip_ticks(&mut self) {
        let Some(gateway) = &mut self.gateway else { return };
        // Ends and events at a moment are seen by ticks after it, and the events of instances that no decision makes catch
        // up are seen at the next refresh.
        let next_event = self.next_events.first_time();
        let moves = self.pairs.as_ref().map_or(Micros::MAX, |pairs| pairs.next_event());
        let steady = next_event.min(self.board.steady_until()).min(self.lifecycle.next_event()).min(moves);
        gateway.skip_ticks(steady);
    }

    /// Dispatches one request of the gateway's queue, if the service has room.
    pub(super) fn dispatch_cycle(&mut self, now: Micros, observer: &mut impl Observer) -> Result<(), NoProgress> {
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
    pub(super) fn evict(
        &mut self,
        now: Micros,
        id: RequestId,
        instance: InstanceIndex,
        observer: &mut impl Observer,
    ) -> Result<(), NoProgress> {
        if self.pairs.is_some() && self.end_encoding(now, id, Status::Evicted, observer) {
            self.gateway.iter_mut().for_each(|gateway| gateway.evicted());
            // A request of which the media are encoded is not yet on an instance that could evict it.
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
}

/// Reports a decision of the gateway, if `observer` is interested.
fn record<'a>(observer: &mut impl Observer, decision: impl FnOnce() -> GatewayDecision<'a>) {
    if observer.interests().contains(Interests::DECISIONS) {
        observer.record(&SimEvent::Decision(&Decision::Gateway(decision())));
    }
}
