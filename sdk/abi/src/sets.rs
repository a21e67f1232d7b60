//! Kinds of events, with their names in the interfaces.

use core::ops::BitOr;

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
