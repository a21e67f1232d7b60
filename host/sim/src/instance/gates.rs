//! What a waiting request has to pass before it enters the batch: one gate for each feature, of the same form in both engines.

use crate::adapters::AdapterGate;
use crate::outcome::WaitReason;

/// What a feature means for a waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// Nothing: it may enter the batch.
    Open,
    /// It has left the queue: its load or its read has begun.
    Left,
    /// It waits, and those behind it are looked at.
    Skip(WaitReason),
    /// It waits, and so do all behind it.
    Stop(WaitReason),
}

impl Gate {
    /// The next gate, if this one is open.
    #[inline(always)]
    pub fn then(self, next: impl FnOnce() -> Self) -> Self {
        if self == Self::Open { next() } else { self }
    }
}

impl From<AdapterGate> for Gate {
    fn from(gate: AdapterGate) -> Self {
        match gate {
            AdapterGate::Open => Self::Open,
            AdapterGate::Skip => Self::Skip(WaitReason::AdapterSlot),
            AdapterGate::Block => Self::Stop(WaitReason::AdapterSlot),
        }
    }
}
