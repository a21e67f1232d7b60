//! Generates the requests of all senders in the order of arrival, one at a time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use blis_sim::cluster::SessionStates;
use blis_sim::request::{Name, Request};
use blis_sim::units::Micros;
use rustc_hash::FxHashMap;

pub use super::drawn::DrawnRequest;
use super::expand::{Expanded, Pace};
use super::numbers::{Budgets, RequestNumbers};
use super::options::GenerateOptions;
use super::session::{RequestEnd, Session, SessionState};
use super::source::{RequestSource, SourceItem};
use super::specification::Part;
use crate::Names;
use crate::closed_loop::SessionSource;

/// The requests of a specification. Memory depends on the number of open sessions, not on the number of requests.
#[derive(Clone, Debug)]
pub struct Requests {
    sources: Vec<RequestSource>,
    /// Next arrival and index of each source that has one; of equal times, the first source comes first.
    queue: BinaryHeap<Reverse<(Micros, usize)>>,
    numbers: RequestNumbers,
    /// Sessions in closed loop with a request in flight.
    waiting: FxHashMap<Name, WaitingSession>,
    /// Numbers of sessions that have ended, by state.
    over: SessionStates,
}

/// A session in closed loop with a request in flight.
#[derive(Clone, Debug)]
enum WaitingSession {
    /// Its rounds follow each other.
    Session(Session),
    /// The conversation of a user: its rounds are sent by the load.
    User { source: usize, user: usize },
}

impl Requests {
    /// The requests of `expanded`, and their names.
    pub(super) fn new(expanded: Expanded, parts: &[Part], options: &GenerateOptions) -> (Self, Names) {
        let Expanded { plans, mut names, first_key } = expanded;
        let left = Budgets::new(options.num_requests, parts.iter().map(|part| part.num_requests));
        let numbers = RequestNumbers::new(options, left, first_key, names.first_session());
        let sources: Vec<RequestSource> = plans.into_iter().map(RequestSource::new).collect();
        let first = sources.iter().enumerate().filter_map(|(index, source)| Some(Reverse((source.peek()?, index))));
        let queue = first.collect();
        (Self { sources, queue, numbers, waiting: FxHashMap::default(), over: SessionStates::default() }, names)
    }

    /// The number of requests, if it is known: if only that number ends the workload.
    #[must_use]
    pub fn known_count(&self) -> Option<u64> {
        let steady = |source: &RequestSource| {
            let plan = &source.plan;
            let for_ever = plan.segments.last().is_some_and(|last| last.end == Micros::MAX);
            for_ever
                && !plan.is_single_session()
                && matches!(plan.segments.last().map(|last| last.pace), Some(Pace::Steady(_)))
        };
        let endless = self.numbers.horizon == Micros::MAX && self.sources.iter().any(steady);
        self.numbers.left.of_all_alone().filter(|_| endless)
    }

    /// The request that follows the end of a request of `session`, if there is one. It may arrive before others that
    /// were already issued, but never before `ended.at`.
    pub fn ended(&mut self, session: Name, ended: RequestEnd) -> Option<Request> {
        match self.waiting.get_mut(&session)? {
            WaitingSession::Session(waiting) => {
                let next = waiting.next_round(ended, &mut self.numbers);
                let state = waiting.state();
                if state == SessionState::Active {
                    return next;
                }
                *state.count(&mut self.over) += 1;
                let successor = waiting.successor(ended.at, &mut self.numbers);
                self.waiting.remove(&session);
                let (successor, drawn) = successor?;
                self.waiting.insert(successor.name(), WaitingSession::Session(successor));
                Some(drawn.request)
            }
            &mut WaitingSession::User { source, user } => {
                let next = self.sources[source].ended(user, ended, &mut self.numbers);
                if next.is_none() {
                    self.waiting.remove(&session);
                }
                next
            }
        }
    }

    /// Number of sessions in closed loop with a request in flight.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

impl SessionSource for Requests {
    fn start(&mut self) -> Option<Request> {
        self.next().map(|drawn| drawn.request)
    }

    fn ended(&mut self, session: Name, ended: RequestEnd) -> Option<Request> {
        Self::ended(self, session, ended)
    }

    fn states(&self) -> SessionStates {
        let mut states = SessionStates { active: self.waiting.len() as u64, ..self.over };
        for source in &self.sources {
            let state = if source.peek().is_some() { SessionState::Active } else { SessionState::Completed };
            *state.count(&mut states) += source.idle();
        }
        states
    }
}

impl Iterator for Requests {
    type Item = DrawnRequest;

    fn next(&mut self) -> Option<DrawnRequest> {
        let (id, index, given) = loop {
            let mut first = self.queue.peek_mut()?;
            let Reverse((at, index)) = *first;
            if self.numbers.left.left(0) == Some(0) || at >= self.numbers.horizon {
                return None;
            }
            let plan = &self.sources[index].plan;
            if at >= plan.end || self.numbers.left.left(plan.part) == Some(0) {
                PeekMut::pop(first); // its part has ended
                continue;
            }
            let id = self.numbers.next_id?;
            let source = &mut self.sources[index];
            let given = source.next(&mut self.numbers)?;
            match source.peek() {
                Some(next) => *first = Reverse((next, index)),
                None => {
                    PeekMut::pop(first);
                }
            }
            if !matches!(given, SourceItem::Waits) {
                break (id, index, given);
            }
        };
        self.numbers.next_id = id.next();
        self.numbers.left.spend(self.sources[index].plan.part);
        let mut drawn = match given {
            SourceItem::Request(drawn) => drawn,
            SourceItem::Session(session, drawn) => {
                self.waiting.insert(session.name(), WaitingSession::Session(session));
                drawn
            }
            SourceItem::Round(user, drawn) => {
                self.waiting.insert(drawn.request.tags.session, WaitingSession::User { source: index, user });
                drawn
            }
            SourceItem::Waits => return None,
        };
        drawn.request.id = id;
        drawn.sender = index;
        Some(drawn)
    }
}
