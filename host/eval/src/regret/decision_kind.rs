//! The kinds of decisions of which branches are run.

use blis_plugin::Kind;
use serde::Serialize;

/// The policy that makes a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::VariantArray)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    /// Whether a request is admitted.
    Admission,
    /// To which instance a request is routed.
    Routing,
    /// Which request is scheduled next: the alternative is the second one in the longest waiting queue.
    Scheduling,
    /// Which flow of a band flow control dispatches from: the alternatives are the heads of the other flows.
    Fairness,
    /// Which request of that flow is dispatched: the alternatives are the other requests of the flow.
    Ordering,
    /// Which request in flight flow control ends: the alternatives are the others that may be evicted, and none.
    Eviction,
    /// How many replicas a group has: the alternatives are one more and one fewer.
    Scaling,
    /// Whether a request loads what the CPU tier has for it: the alternative is the other.
    Load,
    /// Which LoRA adapter makes room for that of a request: the alternatives are the others that could.
    AdapterEviction,
    /// Where a request is prefilled: the alternatives are the other instances that prefill, and the one that decodes it.
    Disaggregation,
}

impl DecisionKind {
    /// The name in texts: that of the kind of the policy, or of the decision if such a policy makes several.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::AdapterEviction => "adapter eviction",
            other => other.of_policy().name(),
        }
    }

    /// The kind of the policy that makes it.
    #[must_use]
    pub const fn of_policy(self) -> Kind {
        match self {
            Self::Admission => Kind::Admission,
            Self::Routing => Kind::Routing,
            Self::Scheduling => Kind::Scheduling,
            Self::Fairness => Kind::Fairness,
            Self::Ordering => Kind::Ordering,
            Self::Eviction => Kind::Eviction,
            Self::Scaling => Kind::Scaling,
            Self::Load | Self::AdapterEviction => Kind::KvCache,
            Self::Disaggregation => Kind::Disaggregation,
        }
    }
}
