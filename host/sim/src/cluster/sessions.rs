//! Clients that wait for an answer before they go on.
//!
//! Their next request does not stand in any list: it follows from the end of the one before. So while
//! any of them may come, an end must be known before anything later happens. Instances then move from
//! one possible end to the next, the earliest first, and no further.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Peekable;

use crate::observer::{Interests, Observer, SimEvent};
use crate::outcome::{Outcome, Status};
use crate::request::Request;
use crate::units::Micros;

/// What follows when requests end.
pub trait FollowUps {
    /// Told once of every request that ended before the end of the simulation, in the order of the events
    /// that end them: of requests that complete, that is when their last step starts.
    ///
    /// Returns the request that follows, if any. It arrives at [`Outcome::ended_at`] or later.
    fn next(&mut self, ended: &Outcome) -> Option<Request>;

    /// What became of the sessions that have begun.
    fn states(&self) -> SessionStates {
        SessionStates::default()
    }
}

/// What became of sessions in closed loop. Each is in one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStates {
    /// All their rounds were answered.
    pub completed: u64,
    /// A round was not answered: it timed out, was dropped or rejected.
    pub cancelled: u64,
    /// The next round would have come after the end of the simulation, or of the client's time.
    pub horizon_interrupted: u64,
    /// The number of requests was used up.
    pub budget_exhausted: u64,
    /// They waited for an answer when the simulation ended.
    pub active: u64,
}

impl SessionStates {
    /// All sessions.
    #[must_use]
    pub fn sessions(&self) -> u64 {
        let Self { completed, cancelled, horizon_interrupted, budget_exhausted, active } = *self;
        completed + cancelled + horizon_interrupted + budget_exhausted + active
    }
}

/// Where requests come from, in the order of time.
pub(super) trait Source {
    /// When the next one arrives, as far as known.
    fn next_at(&mut self) -> Option<Micros>;

    /// Takes it.
    fn take(&mut self) -> Option<Request>;

    /// Whether further ones may follow from ends.
    fn wait_for_ends(&self) -> bool {
        false
    }

    /// A request ended.
    fn ended(&mut self, outcome: &Outcome) {
        let _ = outcome;
    }
}

/// Those of a list, and those that follow.
pub(super) struct Arrivals<'a, I: Iterator<Item = Request>> {
    list: Peekable<I>,
    follow_ups: Option<&'a mut dyn FollowUps>,
    /// By time, then in the order in which they became known.
    following: BinaryHeap<Reverse<Next>>,
    known: u64,
}

struct Next {
    at: Micros,
    turn: u64,
    request: Request,
}

impl<'a, I: Iterator<Item = Request>> Arrivals<'a, I> {
    pub fn new(list: I, follow_ups: Option<&'a mut dyn FollowUps>) -> Self {
        Self { list: list.peekable(), follow_ups, following: BinaryHeap::new(), known: 0 }
    }
}

impl<I: Iterator<Item = Request>> Source for Arrivals<'_, I> {
    fn next_at(&mut self) -> Option<Micros> {
        let listed = self.list.peek().map(|request| request.arrival);
        let following = self.following.peek().map(|Reverse(next)| next.at);
        listed.into_iter().chain(following).min()
    }

    /// At equal times the listed one first.
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
        let Some(request) = self.follow_ups.as_mut().and_then(|follow_ups| follow_ups.next(outcome)) else { return };
        debug_assert!(request.arrival >= outcome.ended_at, "an answer is there before it is answered");
        self.known += 1;
        self.following.push(Reverse(Next { at: request.arrival, turn: self.known, request }));
    }
}

/// An observer that passes everything on, and lets the clients know what ended.
pub(super) struct Clients<'s, A, O> {
    pub arrivals: &'s mut A,
    observer: &'s mut O,
    /// The time of the present event in front of the instances.
    pub now: Micros,
}

impl<'s, A: Source, O: Observer> Clients<'s, A, O> {
    pub fn new(arrivals: &'s mut A, observer: &'s mut O) -> Self {
        Self { arrivals, observer, now: Micros::ZERO }
    }
}

impl<A: Source, O: Observer> Observer for Clients<'_, A, O> {
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

impl PartialEq for Next {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Next {}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Next {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.turn).cmp(&(other.at, other.turn))
    }
}
