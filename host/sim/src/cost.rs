//! What a stretch of time cost those who waited in it.
//!
//! The sum over requests of the time they spend in the service within a window: the integral of the
//! number of requests present (by Little's law, what mean latency comes from). It needs no request to
//! end within the window, so that two worlds can be compared before everything has run out; and it
//! includes what a decision does to others. Who never gets an answer (rejected, dropped, timed out)
//! counts as waiting until the window closes: else turning everybody away would be free.

use crate::observer::{Interests, Observer, SimEvent};
use crate::outcome::{Outcome, Status};
use crate::units::Micros;

/// The cost of a window, and what became of one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    from: Micros,
    to: Micros,
    id: u32,
    /// Time present within the window, Σ over requests.
    pub present: Micros,
    /// The part of it until their first tokens.
    pub awaiting_first_token: Micros,
    /// Requests that were there within the window and never got, or will never get, an answer.
    pub unanswered: u32,
    /// What became of the one request, once known.
    pub own: Option<Outcome>,
}

impl Cost {
    /// Of the time between `from` and `to`, and of request `id`.
    #[must_use]
    pub fn new(from: Micros, to: Micros, id: u32) -> Self {
        Self { from, to, id, present: Micros::ZERO, awaiting_first_token: Micros::ZERO, unanswered: 0, own: None }
    }

    /// The part of [`Self::present`] that is the one request's own.
    #[must_use]
    pub fn own_present(&self) -> Micros {
        self.own.as_ref().map_or(Micros::ZERO, |own| self.within(own.arrival, answered(own)))
    }

    /// A request ended.
    fn add(&mut self, outcome: &Outcome) {
        let answered = answered(outcome);
        let first_token = outcome.ttft.map(|ttft| outcome.arrival.saturating_add(ttft)).or(answered);
        let present = self.within(outcome.arrival, answered);
        self.present = self.present.saturating_add(present);
        self.awaiting_first_token = self.awaiting_first_token.saturating_add(self.within(outcome.arrival, first_token));
        let lost = matches!(outcome.status, Status::TimedOut | Status::Dropped(_) | Status::Rejected(_));
        self.unanswered += u32::from(lost && present > Micros::ZERO);
        if outcome.id == self.id {
            self.own = Some(*outcome);
        }
    }

    /// How much of the time between `arrival` and `end` lies in the window.
    fn within(&self, arrival: Micros, end: Option<Micros>) -> Micros {
        end.map_or(self.to, |end| end.min(self.to)).saturating_sub(arrival.max(self.from))
    }
}

/// When a request had all of its answer.
fn answered(outcome: &Outcome) -> Option<Micros> {
    outcome.e2e.map(|e2e| outcome.arrival.saturating_add(e2e))
}

impl Observer for Cost {
    fn interests(&self) -> Interests {
        Interests::OUTCOMES
    }

    #[inline]
    fn record(&mut self, event: &SimEvent<'_>) {
        if let SimEvent::Outcome(outcome) = event {
            self.add(outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Rejection;
    use crate::request::Request;

    fn ended(id: u32, arrival: u64, ttft: Option<u64>, e2e: Option<u64>, status: Status) -> Outcome {
        let request = Request::new(id, Micros(arrival), 10, 10);
        Outcome { ttft: ttft.map(Micros), e2e: e2e.map(Micros), ..Outcome::new(&request, status) }
    }

    #[test]
    fn only_what_lies_in_the_window_counts() {
        let mut cost = Cost::new(Micros(100), Micros(200), 2);
        for outcome in [
            ended(0, 10, Some(20), Some(80), Status::Completed),   // over before
            ended(1, 50, Some(70), Some(100), Status::Completed),  // first token at 120, done at 150
            ended(2, 110, Some(20), Some(500), Status::Completed), // first token at 130, done long after
            ended(3, 180, None, None, Status::Queued),
            ended(4, 190, None, None, Status::Rejected(Rejection::Admission)), // counts until 200
            ended(5, 250, Some(1), Some(2), Status::Completed),                // comes later
            ended(6, 300, None, None, Status::Rejected(Rejection::Admission)),
        ] {
            cost.add(&outcome);
        }
        assert_eq!(cost.present, Micros(50 + 90 + 20 + 10));
        assert_eq!(cost.awaiting_first_token, Micros(20 + 20 + 20 + 10));
        assert_eq!((cost.unanswered, cost.own_present()), (1, Micros(90)));
        assert_eq!(cost.own.and_then(|own| own.e2e), Some(Micros(500)));
    }
}
