//! What a simulation tells those who watch it: one type of event, one method that takes it.
//!
//! ```text
//! arrival ─► decision: admission, routing ─► decision: scheduling, preemption ─► step ─► first token,
//!                                                                                   inter-token latency ─► outcome
//! ```
//!
//! An observer says beforehand what it is interested in; the rest need not be told, and some of it (steps, decisions
//! inside instances) is not even computed. It is known when the simulation is compiled, so that an event for
//! which nobody has a use costs nothing. An observer never calls back.

use std::ops::BitOr;

use crate::instance::StepRecord;
use crate::outcome::{Decision, FirstToken, Outcome};
use crate::policy::Reads;
use crate::request::Request;
use crate::units::Micros;

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub enum SimEvent<'a> {
    /// A request arrived at the service. Told in the order in which they do.
    Arrival(&'a Request),
    /// A policy decided: [`Interests::DECISIONS`] or [`Interests::SCHEDULING`].
    Decision(&'a Decision<'a>),
    /// A step was planned, and what it does is known. Only of instances that keep a record of every step
    /// ([`Fast::recording`](crate::instance::Fast::recording); the plain engine always does).
    Step {
        /// Number of the instance.
        instance: u32,
        /// What it does.
        step: &'a StepRecord,
    },
    /// A request got its first token: told when the step that gives it begins. For a request thrown
    /// out of the batch that starts anew (BLIS), told again.
    FirstToken(&'a FirstToken),
    /// Time passed between one token of a request and the next.
    InterTokenLatency {
        /// Number of the instance.
        instance: u32,
        /// How much.
        gap: Micros,
        /// So many times.
        count: u64,
    },
    /// Inter-token latencies told before belong to requests that did not complete: the published figure
    /// pools completed requests only.
    InterTokenLatencyRetracted {
        /// Number of the instance.
        instance: u32,
        /// How long each was.
        gap: Micros,
        /// So many of them.
        count: u64,
    },
    /// A request ended. Told once per request, in the order in which they end.
    Outcome(&'a Outcome),
}

/// Who watches a simulation.
pub trait Observer {
    /// What it wants to be told. The same throughout a simulation.
    fn interests(&self) -> Interests;

    /// Takes an event. It may be one of no interest to this observer, which others want to be told.
    fn record(&mut self, event: &SimEvent<'_>);
}

/// What an observer wants to be told, and which signals of a decision it looks at: a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interests(u16);

impl Interests {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// [`SimEvent::Arrival`].
    pub const ARRIVALS: Self = Self(1 << 0);
    /// [`SimEvent::Decision`] in front of the instances: [`Decision::Admission`] and [`Decision::Routing`].
    pub const DECISIONS: Self = Self(1 << 1);
    /// [`SimEvent::Decision`] inside instances: [`Decision::Scheduling`] and [`Decision::Preemption`].
    pub const SCHEDULING: Self = Self(1 << 2);
    /// [`SimEvent::Step`]. Costs the runs of equal steps.
    pub const STEPS: Self = Self(1 << 3);
    /// [`SimEvent::FirstToken`].
    pub const FIRST_TOKENS: Self = Self(1 << 4);
    /// [`SimEvent::InterTokenLatency`] and [`SimEvent::InterTokenLatencyRetracted`].
    pub const INTER_TOKEN_LATENCIES: Self = Self(1 << 5);
    /// [`SimEvent::Outcome`].
    pub const OUTCOMES: Self = Self(1 << 6);
    /// [`Reads::load`]: kept up to date for decisions, whatever the policies read.
    pub const LOAD: Self = Self(1 << 7);
    /// [`Reads::in_flight`], likewise.
    pub const IN_FLIGHT: Self = Self(1 << 8);
    /// [`Reads::cached_blocks`], likewise.
    pub const CACHED_BLOCKS: Self = Self(1 << 9);

    /// Everything in either.
    #[inline]
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is in it.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The interest that an event serves.
    #[inline(always)]
    fn in_event(event: &SimEvent<'_>) -> Self {
        match event {
            SimEvent::Arrival(_) => Self::ARRIVALS,
            SimEvent::Decision(Decision::Admission { .. } | Decision::Routing { .. }) => Self::DECISIONS,
            SimEvent::Decision(Decision::Scheduling(_) | Decision::Preemption(_)) => Self::SCHEDULING,
            SimEvent::Step { .. } => Self::STEPS,
            SimEvent::FirstToken(_) => Self::FIRST_TOKENS,
            SimEvent::InterTokenLatency { .. } | SimEvent::InterTokenLatencyRetracted { .. } => {
                Self::INTER_TOKEN_LATENCIES
            }
            SimEvent::Outcome(_) => Self::OUTCOMES,
        }
    }

    /// The signals among them.
    #[must_use]
    pub const fn reads(self) -> Reads {
        Reads {
            load: self.contains(Self::LOAD),
            in_flight: self.contains(Self::IN_FLIGHT),
            cached_blocks: self.contains(Self::CACHED_BLOCKS),
        }
    }
}

impl BitOr for Interests {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl From<Reads> for Interests {
    fn from(reads: Reads) -> Self {
        let one = |read: bool, interest: Self| if read { interest } else { Self::NONE };
        one(reads.load, Self::LOAD)
            | one(reads.in_flight, Self::IN_FLIGHT)
            | one(reads.cached_blocks, Self::CACHED_BLOCKS)
    }
}

/// Nobody watches.
impl Observer for () {
    #[inline(always)]
    fn interests(&self) -> Interests {
        Interests::NONE
    }

    #[inline(always)]
    fn record(&mut self, _event: &SimEvent<'_>) {}
}

/// An observer that is chosen at run time: simulations with different observers share one compiled loop, whose size is
/// what building this program costs most. Only events of interest are passed on.
pub struct DynObserver<'a> {
    observer: &'a mut dyn Observer,
    interests: Interests,
}

impl<'a> DynObserver<'a> {
    /// Passes on to `observer` what is of interest to it.
    pub fn new(observer: &'a mut dyn Observer) -> Self {
        Self { interests: observer.interests(), observer }
    }
}

impl Observer for DynObserver<'_> {
    #[inline(always)]
    fn interests(&self) -> Interests {
        self.interests
    }

    #[inline(always)]
    fn record(&mut self, event: &SimEvent<'_>) {
        if self.interests.contains(Interests::in_event(event)) {
            self.observer.record(event);
        }
    }
}

/// Both are told everything.
impl<A: Observer, B: Observer> Observer for (A, B) {
    #[inline(always)]
    fn interests(&self) -> Interests {
        self.0.interests() | self.1.interests()
    }

    #[inline(always)]
    fn record(&mut self, event: &SimEvent<'_>) {
        self.0.record(event);
        self.1.record(event);
    }
}

/// One that is used again afterwards.
impl<O: Observer> Observer for &mut O {
    #[inline(always)]
    fn interests(&self) -> Interests {
        (**self).interests()
    }

    #[inline(always)]
    fn record(&mut self, event: &SimEvent<'_>) {
        (**self).record(event);
    }
}

/// One that may be switched off.
impl<O: Observer> Observer for Option<O> {
    #[inline(always)]
    fn interests(&self) -> Interests {
        self.as_ref().map_or(Interests::NONE, Observer::interests)
    }

    #[inline(always)]
    fn record(&mut self, event: &SimEvent<'_>) {
        if let Some(observer) = self {
            observer.record(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interests_are_a_set() {
        let both = Interests::STEPS | Interests::LOAD;
        assert!(both.contains(Interests::STEPS) && both.contains(Interests::NONE));
        assert!(!both.contains(Interests::STEPS | Interests::OUTCOMES));
        assert_eq!(both.reads(), Reads { load: true, ..Reads::NOTHING });
        for reads in [Reads::NOTHING, Reads { in_flight: true, cached_blocks: true, ..Reads::NOTHING }] {
            assert_eq!(Interests::from(reads).reads(), reads);
        }
    }
}
