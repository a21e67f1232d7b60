//! Kinds of policies, columns and events, and their bits in the interfaces.

use core::fmt;
use core::ops::BitOr;

/// A kind of policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Admits or rejects a request.
    Admission,
    /// Chooses the instance of a request.
    Routing,
    /// Sets the priority of a request on its instance.
    Priority,
    /// The order of a waiting queue.
    Scheduling,
    /// Chooses the preemption victim.
    Preemption,
    /// How long steps take.
    Latency,
}

impl Kind {
    /// All of them, in the order of their bits.
    pub const ALL: [Self; 6] =
        [Self::Admission, Self::Routing, Self::Priority, Self::Scheduling, Self::Preemption, Self::Latency];

    /// As flags, scripts and interfaces write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admission => "admission",
            Self::Routing => "routing",
            Self::Priority => "priority",
            Self::Scheduling => "scheduling",
            Self::Preemption => "preemption",
            Self::Latency => "latency",
        }
    }

    /// As messages call a policy of this kind.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::Admission => "admission policy",
            Self::Routing => "routing policy",
            Self::Priority => "priority policy",
            Self::Scheduling => "scheduler",
            Self::Preemption => "preemption policy",
            Self::Latency => "latency model",
        }
    }

    /// Its bit in a set of kinds.
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// The kind of which `bits` is the bit.
    #[must_use]
    pub fn of(bits: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.bit() == bits)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A set of columns of [`crate::Instance`]. What a policy does not read costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads(u32);

impl Reads {
    /// No column.
    pub const NOTHING: Self = Self(0);
    /// All columns but the next two.
    pub const LOAD: Self = Self(1);
    /// [`crate::Instance::in_flight`] and [`crate::Request::tenant_in_flight`].
    pub const IN_FLIGHT: Self = Self(2);
    /// [`crate::Instance::cached_blocks`].
    pub const CACHED_BLOCKS: Self = Self(4);

    /// Its members, in the order of their bits, with the names that the interfaces give them.
    pub const ALL: [(&'static str, Self); 3] =
        [("load", Self::LOAD), ("in-flight", Self::IN_FLIGHT), ("cached-blocks", Self::CACHED_BLOCKS)];
}

/// A set of [`crate::Event`]s. What no policy wants costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events(u32);

impl Events {
    /// None.
    pub const NONE: Self = Self(0);
    /// [`EventKind::Routed`].
    pub const ROUTED: Self = Self(1);
    /// [`EventKind::FirstToken`].
    pub const FIRST_TOKEN: Self = Self(2);
    /// [`EventKind::Completed`].
    pub const COMPLETED: Self = Self(4);
    /// [`EventKind::Ended`].
    pub const ENDED: Self = Self(8);
    /// [`EventKind::Rejected`].
    pub const REJECTED: Self = Self(16);
    /// [`EventKind::BlockStored`] and [`EventKind::BlockEvicted`].
    pub const BLOCKS: Self = Self(32);

    /// Its members, in the order of their bits, with the names that the interfaces give them.
    pub const ALL: [(&'static str, Self); 6] = [
        ("routed", Self::ROUTED),
        ("first-token", Self::FIRST_TOKEN),
        ("completed", Self::COMPLETED),
        ("ended", Self::ENDED),
        ("rejected", Self::REJECTED),
        ("blocks", Self::BLOCKS),
    ];
}

/// What sets of bits have in common.
macro_rules! sets {
    ($($set:ident),*) => {$(
        impl $set {
            /// The set with these bits, of which some may be unknown here.
            #[must_use]
            pub const fn from_bits(bits: u32) -> Self {
                Self(bits)
            }

            /// Its bits.
            #[must_use]
            pub const fn bits(self) -> u32 {
                self.0
            }

            /// Whether it has all members of `other`.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl BitOr for $set {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }
    )*};
}

sets!(Reads, Events);

/// What an [`crate::Event`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EventKind {
    /// A request was routed to an instance.
    Routed = 0,
    /// Its first token reached the client.
    FirstToken = 1,
    /// It finished.
    Completed = 2,
    /// It ended otherwise: timed out, or dropped.
    Ended = 3,
    /// An admission policy rejected it.
    Rejected = 4,
    /// A block can be found in the prefix cache of an instance.
    BlockStored = 5,
    /// It no longer can.
    BlockEvicted = 6,
}

impl EventKind {
    /// All of them, in the order of their numbers.
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
