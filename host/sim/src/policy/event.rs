//! Events of requests and prefix caches, for policies that subscribe to them.
//!
//! Events are delivered in the order in which they happened (by time, then by instance), before any decision at a later
//! time. A completion is delivered when the output is complete. Changes of cached blocks are delivered when the cache
//! signal is refreshed: all of one refresh together, in the order of instances and blocks.

use crate::ids::{InstanceIndex, RequestId};
use crate::request::{BlockKey, Tags};
use crate::units::Micros;

/// The kinds of events that a policy receives. A kind that no policy receives costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Whether it receives [`EventKind::Routed`].
    pub routed: bool,
    /// Whether it receives [`EventKind::FirstToken`].
    pub first_token: bool,
    /// Whether it receives [`EventKind::Completed`].
    pub completed: bool,
    /// Whether it receives [`EventKind::Ended`].
    pub ended: bool,
    /// Whether it receives [`EventKind::Rejected`].
    pub rejected: bool,
    /// Whether it receives [`EventKind::BlockStored`] and [`EventKind::BlockEvicted`].
    pub blocks: bool,
}

impl Events {
    /// The empty set: the policy receives no events.
    pub const NONE: Self =
        Self { routed: false, first_token: false, completed: false, ended: false, rejected: false, blocks: false };

    /// The union of the kinds of two policies.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            routed: self.routed || other.routed,
            first_token: self.first_token || other.first_token,
            completed: self.completed || other.completed,
            ended: self.ended || other.ended,
            rejected: self.rejected || other.rejected,
            blocks: self.blocks || other.blocks,
        }
    }

    /// Whether events of `kind` are in the set.
    #[must_use]
    pub fn include(self, kind: EventKind) -> bool {
        match kind {
            EventKind::Routed => self.routed,
            EventKind::FirstToken => self.first_token,
            EventKind::Completed => self.completed,
            EventKind::Ended => self.ended,
            EventKind::Rejected => self.rejected,
            EventKind::BlockStored | EventKind::BlockEvicted => self.blocks,
        }
    }
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// A request was dispatched to an instance.
    Routed,
    /// The first token of a request reached the client.
    FirstToken,
    /// The output of a request is complete.
    Completed,
    /// A request ended without completing: its client timed out, the instance dropped it, or the gateway evicted it.
    Ended,
    /// The service rejected a request.
    Rejected,
    /// A block was stored in an instance's prefix cache and can be found there.
    BlockStored,
    /// A block was evicted from an instance's prefix cache.
    BlockEvicted,
}

/// An event that a policy receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time of the event.
    pub at: Micros,
    /// The kind, which decides the meaning of the other fields.
    pub kind: EventKind,
    /// The request; 0 for block events.
    pub request: RequestId,
    /// The instance; `None` if the request reached none.
    pub instance: Option<InstanceIndex>,
    /// Prompt length, tokens; 0 for block events.
    pub input_tokens: u32,
    /// Tokens generated so far; 0 for block events.
    pub generated_tokens: u32,
    /// Time to first token, if there was a first token by now.
    pub ttft: Option<Micros>,
    /// End-to-end latency, if the request completed.
    pub e2e: Option<Micros>,
    /// Metadata of the request.
    pub tags: Tags,
    /// Id of the block, as in [`super::RequestView::shared_blocks`]; 0 for request events.
    pub block: BlockKey,
}

impl Event {
    /// The mean inter-token latency of a request that completed, µs; `None` if it generated one token at most.
    #[must_use]
    pub fn mean_itl(&self) -> Option<f64> {
        let after_first = self.e2e?.saturating_sub(self.ttft?).0 as f64;
        (self.generated_tokens > 1).then(|| after_first / f64::from(self.generated_tokens - 1))
    }
}
