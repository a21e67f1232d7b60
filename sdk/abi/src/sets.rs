//! Kinds of policies and of events, with their names in the interfaces.

use core::fmt;
use core::ops::BitOr;

/// A kind of policy: the decision that it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Admits or rejects a request.
    Admission,
    /// Chooses the instance of a request.
    Routing,
    /// Leaves out instances before a routing policy chooses.
    RoutingFilter,
    /// Sets the priority of a request on its instance.
    Priority,
    /// Sets the order of a waiting queue.
    Scheduling,
    /// Chooses the preemption victim.
    Preemption,
    /// Predicts the duration of engine steps.
    Latency,
    /// Flow control: says how full the service is.
    Saturation,
    /// Flow control: says up to which saturation each band is served.
    Ceilings,
    /// Flow control: chooses the tenant that is served next within a band.
    Fairness,
    /// Flow control: sets the order of the requests of a tenant.
    Ordering,
    /// Flow control: chooses a request in flight that is ended to make room.
    Eviction,
    /// Autoscaling: says how many replicas each group has.
    Scaling,
    /// Autoscaling: chooses the replica that is removed.
    Drain,
    /// Autoscaling: chooses the node of a replica that starts.
    Placement,
    /// KV tiers: ranks chunks for eviction, and decides which are stored and loaded.
    KvCache,
    /// Prefill apart from decode: whether another instance prefills a request, and which.
    Disaggregation,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 17] = [
        Self::Admission,
        Self::Routing,
        Self::RoutingFilter,
        Self::Priority,
        Self::Scheduling,
        Self::Preemption,
        Self::Latency,
        Self::Saturation,
        Self::Ceilings,
        Self::Fairness,
        Self::Ordering,
        Self::Eviction,
        Self::Scaling,
        Self::Drain,
        Self::Placement,
        Self::KvCache,
        Self::Disaggregation,
    ];

    /// The name in flags, scripts and interfaces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admission => "admission",
            Self::Routing => "routing",
            Self::RoutingFilter => "routing-filter",
            Self::Priority => "priority",
            Self::Scheduling => "scheduling",
            Self::Preemption => "preemption",
            Self::Latency => "latency",
            Self::Saturation => "saturation",
            Self::Ceilings => "ceilings",
            Self::Fairness => "fairness",
            Self::Ordering => "ordering",
            Self::Eviction => "eviction",
            Self::Scaling => "scaling",
            Self::Drain => "drain",
            Self::Placement => "placement",
            Self::KvCache => "kv-cache",
            Self::Disaggregation => "disaggregation",
        }
    }

    /// The name for a policy of this kind in messages.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::Admission => "admission policy",
            Self::Routing => "routing policy",
            Self::RoutingFilter => "routing filter",
            Self::Priority => "priority policy",
            Self::Scheduling => "scheduler",
            Self::Preemption => "preemption policy",
            Self::Latency => "latency model",
            Self::Saturation => "saturation detector",
            Self::Ceilings => "usage-limit policy",
            Self::Fairness => "fairness policy",
            Self::Ordering => "dispatch order",
            Self::Eviction => "eviction policy",
            Self::Scaling => "scaling policy",
            Self::Drain => "drain policy",
            Self::Placement => "placement policy",
            Self::KvCache => "KV cache policy",
            Self::Disaggregation => "disaggregation policy",
        }
    }

    /// Whether it is a step of a policy of another kind, and no policy of its own.
    #[must_use]
    pub const fn is_step(self) -> bool {
        matches!(self, Self::RoutingFilter)
    }

    /// Whether it is a decision of flow control, the queue in front of routing.
    #[must_use]
    pub const fn is_flow_control(self) -> bool {
        matches!(self, Self::Saturation | Self::Ceilings | Self::Fairness | Self::Ordering | Self::Eviction)
    }

    /// Whether it is a decision about replicas that come and go.
    #[must_use]
    pub const fn is_of_replicas(self) -> bool {
        matches!(self, Self::Scaling | Self::Drain | Self::Placement)
    }

    /// Whether its decisions read the columns of the instances.
    #[must_use]
    pub const fn reads_instances(self) -> bool {
        matches!(self, Self::Admission | Self::Routing | Self::RoutingFilter | Self::Saturation)
    }

    /// The kind called `name`.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A set of kinds of [`crate::Event`]s. Events that no policy subscribes to are not computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventSet(u32);

impl EventSet {
    /// The empty set of events.
    pub const NONE: Self = Self(0);
    /// Events of the kind [`EventKind::Routed`].
    pub const ROUTED: Self = Self(1);
    /// Events of the kind [`EventKind::FirstToken`].
    pub const FIRST_TOKEN: Self = Self(2);
    /// Events of the kind [`EventKind::Completed`].
    pub const COMPLETED: Self = Self(4);
    /// Events of the kind [`EventKind::Ended`].
    pub const ENDED: Self = Self(8);
    /// Events of the kind [`EventKind::Rejected`].
    pub const REJECTED: Self = Self(16);
    /// Events of the kinds [`EventKind::BlockStored`] and [`EventKind::BlockEvicted`].
    pub const BLOCKS: Self = Self(32);

    /// The members with their names in the interfaces.
    pub const ALL: [(&'static str, Self); 6] = [
        ("routed", Self::ROUTED),
        ("first-token", Self::FIRST_TOKEN),
        ("completed", Self::COMPLETED),
        ("ended", Self::ENDED),
        ("rejected", Self::REJECTED),
        ("blocks", Self::BLOCKS),
    ];
}

impl EventSet {
    /// The events called `name`.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, events)| events)
    }

    /// The names of the members in the interfaces.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::ALL.into_iter().filter(move |(_, events)| self.contains(*events)).map(|(name, _)| name)
    }

    /// Whether all members of `other` are in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for EventSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The kind of an [`crate::Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EventKind {
    /// A request was routed to an instance.
    Routed = 0,
    /// The client received the first output token.
    FirstToken = 1,
    /// The request completed with all its output tokens.
    Completed = 2,
    /// The request timed out or was dropped.
    Ended = 3,
    /// An admission policy rejected the request.
    Rejected = 4,
    /// A block was stored in the prefix cache of an instance.
    BlockStored = 5,
    /// A block was evicted from the prefix cache of an instance.
    BlockEvicted = 6,
}

impl EventKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Routed,
        Self::FirstToken,
        Self::Completed,
        Self::Ended,
        Self::Rejected,
        Self::BlockStored,
        Self::BlockEvicted,
    ];
}
