//! A request that was routed goes to its instance; and decisions that are recorded instead of made.

use super::Cluster;
use super::decisions::RecordedDecision;
use super::signals::WatchedEvents;
use crate::ids::InstanceIndex;
use crate::instance::{Instance, NoProgress};
use crate::limits;
use crate::observer::Observer;
use crate::request::Request;
use crate::units::Micros;

impl<I: Instance> Cluster<I> {
    /// The recorded decision about `request`, unless a decision about it is forced, or its instance is no longer active.
    #[inline]
    pub(super) fn recorded(&self, request: &Request) -> Option<RecordedDecision> {
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
            // In this branch of the simulation the replica drains or does not serve yet: the policies decide.
            return None;
        }
        self.forced.is_none_or(|(id, _)| id != request.id).then_some(*decision)
    }

    pub(super) fn dispatch(
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
    pub(super) fn count_dispatch(&mut self, now: Micros, request: &Request, instance: InstanceIndex) {
        self.board.dispatched(instance, request.tags.tenant);
        if let Some(gateway) = &mut self.gateway {
            gateway.routed(now, request, self.config.classes.priority(request.tags.slo_class), instance);
        }
    }

    /// `request` arrives on `instance`.
    #[inline(always)]
    pub(super) fn hand_over(
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
}
