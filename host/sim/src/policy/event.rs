//! What happens to requests and prefix caches, for policies that want to be told.
//!
//! Events are delivered in the order in which they happened (by time, then by instance), before any
//! decision at a later time. Completions are known when the answer is complete; blocks when the
//! cache signal is read anew, all of one reading in the order of instances and blocks.

use crate::request::{BlockKey, Tags};
use crate::units::Micros;

/// Which events a policy wants. What nobody wants costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// [`EventKind::Routed`].
    pub routed: bool,
    /// [`EventKind::FirstToken`].
    pub first_token: bool,
    /// [`EventKind::Completed`].
    pub completed: bool,
    /// [`EventKind::Ended`].
    pub ended: bool,
    /// [`EventKind::Rejected`].
    pub rejected: bool,
    /// [`EventKind::BlockStored`] and [`EventKind::BlockEvicted`].
    pub blocks: bool,
}

impl Events {
    /// None of them.
    pub const NONE: Self =
        Self { routed: false, first_token: false, completed: false, ended: false, rejected: false, blocks: false };

    /// What either of two policies wants.
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

    /// Whether events of `kind` are among them.
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

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// A request was handed to an instance.
    Routed,
    /// Its first token reached the client.
    FirstToken,
    /// Its answer is complete.
    Completed,
    /// It ended without: the client gave up, or the instance refused it.
    Ended,
    /// The service refused it.
    Rejected,
    /// A block can be found in an instance's prefix cache.
    BlockStored,
    /// It no longer can.
    BlockEvicted,
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Micros,
    /// What.
    pub kind: EventKind,
    /// The request's number in the workload; of blocks: 0.
    pub request: u32,
    /// The instance; `None` if it reached none.
    pub instance: Option<u32>,
    /// Prompt length, tokens; of blocks: 0.
    pub input_tokens: u32,
    /// Tokens generated so far; of blocks: 0.
    pub generated_tokens: u32,
    /// Time to first token, if there was one by now.
    pub ttft: Option<Micros>,
    /// End-to-end latency, if it completed.
    pub e2e: Option<Micros>,
    /// Names of the request.
    pub tags: Tags,
    /// The block, as [`super::RequestView::shared_blocks`] names it; of requests: 0.
    pub block: BlockKey,
}
