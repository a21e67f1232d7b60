//! Decisions that are forced, or replayed as they were recorded.

use rustc_hash::FxHashMap;

use super::front_event::FrontEvent;
use crate::ids::{InstanceIndex, RequestId};
use crate::request::Request;

/// A decision that is forced, whatever the policy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForcedDecision {
    /// The admission decision: admit (`true`) or reject.
    Admit(bool),
    /// The routing decision: the instance.
    Route(InstanceIndex),
    /// The decision where a request is prefilled: on this instance, or on the one that decodes it.
    Prefill(Option<InstanceIndex>),
    /// A dispatch by flow control: this request instead, if it waits in the same band.
    Dispatch(RequestId),
    /// An eviction by flow control: this request instead, if it may be evicted; or none, and the next eviction is as late as
    /// after one.
    Evict(Option<RequestId>),
}

/// The recorded decision about each request, to be replayed instead of calling policies.
pub type RecordedDecisions = FxHashMap<RequestId, RecordedDecision>;

/// The last decision about a request in front of the instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedDecision {
    /// The admission policy rejected the request.
    Rejected,
    /// The admission policy admitted the request; it was not routed.
    Admitted,
    /// The request was dispatched to this instance.
    Routed(InstanceIndex),
    /// The request was prefilled and decoded on different instances.
    Split {
        /// The instance that decodes it.
        decode: InstanceIndex,
        /// The instance that prefills it.
        prefill: InstanceIndex,
    },
    /// The request was encoded on an instance of its own first.
    Encoded {
        /// The instance that encodes it.
        encode: InstanceIndex,
        /// The instance that prefills it; `None`: the one that decodes it.
        prefill: Option<InstanceIndex>,
        /// The instance that decodes it.
        decode: InstanceIndex,
    },
}

/// Removes and returns the forced decision, if it is about `request` and of this kind.
pub(super) fn forced(
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
