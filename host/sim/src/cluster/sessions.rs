//! Closed-loop clients, which wait for the end of a request before they send the next.
//!
//! Their requests are in no list: each follows from the end of the one before. As long as such requests may follow, an
//! end must be known before any later event is executed. Instances then advance from one possible end to the next, the
//! earliest first, and no further.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Peekable;

use crate::observer::{Interests, Observer, SimEvent};
use crate::outcome::{Outcome, Status};
use crate::request::Request;
use crate::units::Micros;

/// The source of requests that follow from the ends of others.
pub trait FollowUps {
    /// Called once for every request that ended before the end of the simulation, in the order of the events that end
    /// them; for a completed request that event is the start of its last step.
    ///
    /// Returns the request that follows, if any. It arrives at [`Outcome::ended_at`] or later.
    fn next(&mut self, ended: &Outcome) -> Option<Request>;

    /// The states of the sessions that have begun.
    fn states(&self) -> SessionStates {
        SessionStates::default()
    }
}

/// Numbers of closed-loop sessions by state. Each session is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStates {
    /// Sessions of which every round completed.
    pub completed: u64,
    /// Sessions with a round that timed out, was dropped or rejected.
    pub cancelled: u64,
    /// Sessions with a next round after the end of the simulation, or of the client's active time.
    pub horizon_interrupted: u64,
    /// Sessions that ended because the number of requests was used up.
    pub budget_exhausted: u64,
    /// Sessions that had a request in the service when the simulation ended.
    pub active: u64,
}

impl SessionStates {
    /// Number of sessions in any state.
    #[must_use]
    pub fn sessions(&self) -> u64 {
        let Self { completed, cancelled, horizon_interrupted, budget_exhausted, active } = *self;
        completed + cancelled + horizon_interrupted + budget_exhausted + active
    }
}

/// A source of requests in the order of time.
pub(super) trait ArrivalSource {
    /// Arrival of the next request, as far as it is known.
    fn next_at(&mut self) -> Option<Micros>;

    /// Removes and returns the next request.
    fn take(&mut self) -> Option<Request>;

    /// Whether further requests may follow from the ends of others.
    fn wait_for_ends(&self) -> bool {
        false
    }

    /// Receives the outcome of a request that ended.
    fn ended(&mut self, outcome: &Outcome) {
        let _ = outcome;
    }
}

/// Requests from a list, merged with those that follow from ends.
pub(super) struct ArrivalQueue<'a, I: Iterator<Item = Request>> {
    list: Peekable<I>,
    follow_ups: Option<&'a mut dyn FollowUps>,
    /// Ordered by time, then as they became known.
    following: BinaryHeap<Reverse<FollowUp>>,
    known: u64,
}

struct FollowUp {
    at: Micros,
    turn: u64,
    request: Request,
}

impl<'a, I: Iterator<Item = Request>> ArrivalQueue<'a, I> {
    pub fn new(list: I, follow_ups: Option<&'a mut dyn FollowUps>) -> Self {
        Self { list: list.peekable(), follow_ups, following: BinaryHeap::new(), known: 0 }
    }
}

impl<I: Iterator<Item = Request>> ArrivalSource for ArrivalQueue<'_, I> {
    fn next_at(&mut self) -> Option<Micros> {
        let listed = self.list.peek().map(|request| request.arrival);
        match (listed, self.following.peek()) {
            (Some(listed), Some(Reverse(next))) => Some(listed.min(next.at)),
            (None, Some(Reverse(next))) => Some(next.at),
            (listed, None) => listed,
        }
    }

    /// At equal times the request of the list is first.
    fn take(&mut self) -> Option<Request> {
        let listed = self.list.peek().map(|request| request.arrival);
        match (listed, self.following.peek()) {
            (Some(listed), Some(Reverse(next))) if next.at < listed => {}
            (None, Some(_)) => {}
            _ => return self.list.next(),
        }
        self.following.pop().map(|Reverse(next)| next.request)
    }

    fn wait_for_ends(&self) -> bool {
        self.follow_ups.is_some()
    }

    fn ended(&mut self, outcome: &Outcome) {
        // Nothing follows a request outside of sessions, the last round of a session, or one that failed.
        let Some(request) = self.follow_ups.as_mut().and_then(|follow_ups| follow_ups.next(outcome)) else { return };
        debug_assert!(request.arrival >= outcome.ended_at, "a follow-up arrives before the end of its predecessor");
        self.known += 1;
        self.following.push(Reverse(FollowUp { at: request.arrival, turn: self.known, request }));
    }
}

/// An observer that passes every event on, and passes outcomes to the closed-loop clients.
pub(super) struct FollowUpObserver<'s, A, O> {
    pub arrivals: &'s mut A,
    observer: &'s mut O,
    /// The time of the present event in front of the instances.
    pub now: Micros,
}

impl<'s, A: ArrivalSource, O: Observer> FollowUpObserver<'s, A, O> {
    pub fn new(arrivals: &'s mut A, observer: &'s mut O) -> Self {
        Self { arrivals, observer, now: Micros::ZERO }
    }
}

impl<A: ArrivalSource, O: Observer> Observer for FollowUpObserver<'_, A, O> {
    #[inline(always)]
    fn interests(&self) -> Interests {
        self.observer.interests() | Interests::OUTCOMES
    }

    #[inline(always)]
    fn record(&mut self, event: &SimEvent<'_>) {
        if let SimEvent::Outcome(outcome) = event {
            match outcome.status {
                Status::Rejected(_) => self.arrivals.ended(&outcome.ended_at(self.now)),
                _ => self.arrivals.ended(outcome),
            }
        }
        self.observer.record(event);
    }
}

impl PartialEq for FollowUp {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for FollowUp {}

impl PartialOrd for FollowUp {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FollowUp {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.turn).cmp(&(other.at, other.turn))
    }
}
