//! The events in front of the instances, and their order.

use crate::units::Micros;

/// The events in front of the instances, in the order of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrontEvent {
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

/// `next`, or an event of higher rank if that comes before it.
#[inline]
pub(super) fn earlier(next: (Micros, FrontEvent), at: Micros, event: FrontEvent) -> (Micros, FrontEvent) {
    if at < next.0 { (at, event) } else { next }
}
