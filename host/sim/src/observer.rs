//! Events of a simulation for its observers: one type of event, one method that receives it.
//!
//! ```text
//! arrival ─► decision: admission, routing ─► decision: scheduling, preemption ─► step ─► first token,
//!                                                                                   inter-token latency ─► outcome
//! ```
//!
//! An observer declares beforehand which events it is interested in. Other events need not be reported, and some of
//! them (steps, decisions inside instances) are not even computed. The interests are known at compile time, so an event
//! without an interested observer costs nothing. An observer never calls back into the simulation.

use std::ops::BitOr;

use crate::ids::InstanceIndex;
use crate::instance::{InstanceLoad, StepRecord};
use crate::outcome::{AdapterEvent, Decision, EncodeTimes, FirstToken, Outcome, StageTimes};
use crate::policy::Reads;
use crate::replica::{ReplicaChange, ReplicaEvent, ReplicaReport};
use crate::request::Request;
use crate::units::Micros;

/// One event of a simulation.
#[derive(Clone, Copy, Debug)]
pub enum SimEvent<'a> {
    /// A request arrived at the service. Reported in the order of arrival.
    Arrival(&'a Request),
    /// A policy decided: [`Interests::DECISIONS`] or [`Interests::SCHEDULING`].
    Decision(&'a Decision<'a>),
    /// A step was planned, and its content is known. Reported only by instances that keep a record of every step
    /// ([`Fast::recording`](crate::instance::Fast::recording); the plain engine always does).
    Step {
        /// Index of the instance that executes it.
        instance: InstanceIndex,
        /// The requests and tokens of the step, with its start and end.
        step: &'a StepRecord,
    },
    /// A request generates its first token: reported when the step that generates it begins. Reported again for a
    /// preempted request that starts anew (BLIS).
    FirstToken(&'a FirstToken),
    /// Time passed between one token of a request and its next.
    InterTokenLatency {
        /// Index of the instance that generated the tokens.
        instance: InstanceIndex,
        /// The inter-token latency of each token.
        gap: Micros,
        /// How many tokens had this latency.
        count: u64,
    },
    /// Inter-token latencies reported before belong to requests that did not complete. The published figure pools
    /// completed requests only.
    InterTokenLatencyRetracted {
        /// Index of the instance that generated the tokens.
        instance: InstanceIndex,
        /// The inter-token latency of each token.
        gap: Micros,
        /// How many of them to subtract.
        count: u64,
    },
    /// A request leaves the gateway's queue for routing. Reported with flow control only.
    Dispatched {
        /// The request.
        request: &'a Request,
        /// Time that it spent in the queue.
        waited: Micros,
    },
    /// A scaling policy was called: the number of replicas of a group before, and from now on, within windows, rates and limits;
    /// equal if nothing changes. Reported for each group.
    Scaling(&'a ReplicaChange),
    /// A replica changed its state, after the start of the simulation. Reported with scaling only.
    Replica(&'a ReplicaEvent),
    /// The figures of all replicas, at the end of the simulation. Reported with scaling only.
    Replicas(&'a ReplicaReport),
    /// A LoRA adapter was loaded or evicted.
    Adapter(&'a AdapterEvent),
    /// The load of an instance at a sampled moment, before the events of that moment. Reported in order of time for each
    /// instance, and left out at moments between whose predecessor and itself the instance had no event
    /// ([`Cluster::with_load_samples`](crate::cluster::Cluster::with_load_samples)).
    Load {
        /// Index of the instance.
        instance: InstanceIndex,
        /// The moment.
        at: Micros,
        /// Its load then.
        load: &'a InstanceLoad,
    },
    /// An instance has ended its part of a request that is prefilled and decoded on different instances.
    StageEnded(&'a Outcome),
    /// The times of the stages of a request that was encoded first. Reported when its embeddings are where its prompt is computed, or
    /// just before its end.
    Encoded(&'a EncodeTimes),
    /// The times of the stages of a request that was prefilled on another instance. Reported just before its
    /// [`SimEvent::Outcome`].
    Disaggregated(&'a StageTimes),
    /// A request ended. Reported once for each request, in the order in which they end.
    Outcome(&'a Outcome),
}

/// A receiver of the events of a simulation.
pub trait Observer {
    /// The events that it receives. The set must not change during a simulation.
    fn interests(&self) -> Interests;

    /// Receives an event. It may be an event outside of its interests that is reported for another observer.
    fn record(&mut self, event: &SimEvent<'_>);
}

/// A set: the events that an observer receives, and the signals that it reads in a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interests(u16);

impl Interests {
    /// The empty set: no events and no signals.
    pub const NONE: Self = Self(0);
    /// Every [`SimEvent::Arrival`], in the order of time.
    pub const ARRIVALS: Self = Self(1 << 0);
    /// [`SimEvent::Decision`] in front of the instances: [`Decision::Admission`], [`Decision::Gateway`],
    /// [`Decision::Routing`] and [`Decision::Disaggregation`].
    pub const DECISIONS: Self = Self(1 << 1);
    /// [`SimEvent::Decision`] inside instances: [`Decision::Scheduling`], [`Decision::Preemption`],
    /// [`Decision::Load`] and [`Decision::AdapterEviction`].
    pub const SCHEDULING: Self = Self(1 << 2);
    /// Every [`SimEvent::Step`]. Prevents the fast engine from executing runs of equal steps at once.
    pub const STEPS: Self = Self(1 << 3);
    /// Every [`SimEvent::FirstToken`], in BLIS semantics again after a preemption.
    pub const FIRST_TOKENS: Self = Self(1 << 4);
    /// [`SimEvent::InterTokenLatency`] and [`SimEvent::InterTokenLatencyRetracted`].
    pub const INTER_TOKEN_LATENCIES: Self = Self(1 << 5);
    /// Every [`SimEvent::Outcome`], one for each request, and every [`SimEvent::Scaling`], [`SimEvent::Replica`],
    /// [`SimEvent::Replicas`], [`SimEvent::Adapter`], [`SimEvent::StageEnded`], [`SimEvent::Encoded`] and
    /// [`SimEvent::Disaggregated`].
    pub const OUTCOMES: Self = Self(1 << 6);
    /// [`Reads::load`]: kept up to date for decisions, even if no policy reads it.
    pub const LOAD: Self = Self(1 << 7);
    /// [`Reads::in_flight`]: kept up to date for decisions, even if no policy reads it.
    pub const IN_FLIGHT: Self = Self(1 << 8);
    /// [`Reads::cached_blocks`]: kept up to date for decisions, even if no policy reads it.
    pub const CACHED_BLOCKS: Self = Self(1 << 9);
    /// Every [`SimEvent::Dispatched`].
    pub const GATEWAY: Self = Self(1 << 10);
    /// [`Reads::tokens`]: kept up to date for decisions, even if no policy reads it.
    pub const TOKENS: Self = Self(1 << 11);
    /// [`Reads::latencies`]: kept up to date for decisions, even if no policy reads it.
    pub const LATENCIES: Self = Self(1 << 12);
    /// [`Reads::waiting_tokens`]: kept up to date for decisions, even if no policy reads it.
    pub const WAITING_TOKENS: Self = Self(1 << 13);
    /// [`Reads::adapters`]: kept up to date for decisions, even if no policy reads it.
    pub const ADAPTERS: Self = Self(1 << 14);
    /// Every [`SimEvent::Load`].
    pub const LOAD_SAMPLES: Self = Self(1 << 15);

    /// The union of both sets.
    #[inline]
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether `other` is a subset of this set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The interest to which an event belongs.
    #[inline(always)]
    fn in_event(event: &SimEvent<'_>) -> Self {
        match event {
            SimEvent::Arrival(_) => Self::ARRIVALS,
            SimEvent::Decision(
                Decision::Admission { .. }
                | Decision::Gateway(_)
                | Decision::Routing { .. }
                | Decision::Disaggregation(_),
            ) => Self::DECISIONS,
            SimEvent::Decision(
                Decision::Scheduling(_) | Decision::Preemption(_) | Decision::Load(_) | Decision::AdapterEviction(_),
            ) => Self::SCHEDULING,
            SimEvent::Step { .. } => Self::STEPS,
            SimEvent::FirstToken(_) => Self::FIRST_TOKENS,
            SimEvent::InterTokenLatency { .. } | SimEvent::InterTokenLatencyRetracted { .. } => {
                Self::INTER_TOKEN_LATENCIES
            }
            SimEvent::Dispatched { .. } => Self::GATEWAY,
            SimEvent::Load { .. } => Self::LOAD_SAMPLES,
            SimEvent::Outcome(_)
            | SimEvent::Scaling(_)
            | SimEvent::Replica(_)
            | SimEvent::Replicas(_)
            | SimEvent::StageEnded(_)
            | SimEvent::Encoded(_)
            | SimEvent::Disaggregated(_)
            | SimEvent::Adapter(_) => Self::OUTCOMES,
        }
    }

    /// The signals in the set.
    #[must_use]
    pub const fn reads(self) -> Reads {
        Reads {
            load: self.contains(Self::LOAD),
            in_flight: self.contains(Self::IN_FLIGHT),
            cached_blocks: self.contains(Self::CACHED_BLOCKS),
            tokens: self.contains(Self::TOKENS),
            latencies: self.contains(Self::LATENCIES),
            waiting_tokens: self.contains(Self::WAITING_TOKENS),
            cpu_cached_blocks: false,
            adapters: self.contains(Self::ADAPTERS),
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
            | one(reads.tokens, Self::TOKENS)
            | one(reads.latencies, Self::LATENCIES)
            | one(reads.waiting_tokens, Self::WAITING_TOKENS)
            | one(reads.adapters, Self::ADAPTERS)
    }
}

/// The empty observer, which costs nothing.
impl Observer for () {
    #[inline(always)]
    fn interests(&self) -> Interests {
        Interests::NONE
    }

    #[inline(always)]
    fn record(&mut self, _event: &SimEvent<'_>) {}
}

/// An observer that is chosen at run time, so that simulations with different observers share one compiled loop: the
/// loop is the largest part of the compile time of the program. Only events of interest are passed on.
pub struct DynObserver<'a> {
    observer: &'a mut dyn Observer,
    interests: Interests,
}

impl<'a> DynObserver<'a> {
    /// Passes the events of interest on to `observer`.
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

/// A pair of observers, each of which receives all events of either.
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

/// A borrowed observer, which the caller uses again afterwards.
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

/// An optional observer; `None` receives nothing.
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
