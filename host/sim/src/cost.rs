//! The cost of a time window: how long requests were present in it.
//!
//! The cost is the sum over requests of the time that they spend in the service within the window, which is the
//! integral of the number of requests present (by Little's law, the quantity behind mean latency). No request needs to
//! end within the window, so two branches of a counterfactual can be compared before all requests have completed; and
//! the sum includes the effect of a decision on other requests. A request that never completes (rejected, dropped,
//! evicted, timed out) counts as present until the window closes: otherwise rejecting every request would cost nothing.

use crate::ids::RequestId;
use crate::observer::{Interests, Observer, SimEvent};
use crate::outcome::{Outcome, Status};
use crate::units::Micros;

/// The cost of a window, and the outcome of one selected request.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    from: Micros,
    to: Micros,
    id: RequestId,
    /// Time present within the window, summed over requests.
    pub present: Micros,
    /// The part of [`Self::present`] before the first tokens of the requests.
    pub awaiting_first_token: Micros,
    /// Requests that were present within the window and did not complete, or never will.
    pub incomplete: u32,
    /// The outcome of the selected request, once it has ended.
    pub own: Option<Outcome>,
}

impl Cost {
    /// The cost of the time between `from` and `to`, with request `id` selected.
    #[must_use]
    pub fn new(from: Micros, to: Micros, id: RequestId) -> Self {
        Self { from, to, id, present: Micros::ZERO, awaiting_first_token: Micros::ZERO, incomplete: 0, own: None }
    }

    /// The part of [`Self::present`] that belongs to the selected request.
    #[must_use]
    pub fn own_present(&self) -> Micros {
        self.own.as_ref().map_or(Micros::ZERO, |own| self.within(own.arrival, completed_at(own)))
    }

    /// Adds the outcome of a request that ended.
    fn add(&mut self, outcome: &Outcome) {
        let completed_at = completed_at(outcome);
        let first_token = outcome.ttft.map(|ttft| outcome.arrival.saturating_add(ttft)).or(completed_at);
        let present = self.within(outcome.arrival, completed_at);
        self.present = self.present.saturating_add(present);
        self.awaiting_first_token = self.awaiting_first_token.saturating_add(self.within(outcome.arrival, first_token));
        let lost =
            matches!(outcome.status, Status::TimedOut | Status::Evicted | Status::Dropped(_) | Status::Rejected(_));
        self.incomplete += u32::from(lost && present > Micros::ZERO);
        if outcome.id == self.id {
            self.own = Some(*outcome);
        }
    }

    /// The part of the time between `arrival` and `end` that lies in the window.
    fn within(&self, arrival: Micros, end: Option<Micros>) -> Micros {
        end.map_or(self.to, |end| end.min(self.to)).saturating_sub(arrival.max(self.from))
    }
}

/// Time at which the output of a request was complete; `None` if it never was.
fn completed_at(outcome: &Outcome) -> Option<Micros> {
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
        let request = Request::new(RequestId(id), Micros(arrival), 10, 10);
        Outcome { ttft: ttft.map(Micros), e2e: e2e.map(Micros), ..Outcome::new(&request, status) }
    }

    #[test]
    fn only_what_lies_in_the_window_counts() {
        let mut cost = Cost::new(Micros(100), Micros(200), RequestId(2));
        for outcome in [
            ended(0, 10, Some(20), Some(80), Status::Completed), // completed before the window
            ended(1, 50, Some(70), Some(100), Status::Completed), // first token at 120, completed at 150
            ended(2, 110, Some(20), Some(500), Status::Completed), // first token at 130, completed long after
            ended(3, 180, None, None, Status::Queued),
            ended(4, 190, None, None, Status::Rejected(Rejection::Admission)), // counts until 200
            ended(5, 250, Some(1), Some(2), Status::Completed),                // arrives later
            ended(6, 300, None, None, Status::Rejected(Rejection::Admission)),
        ] {
            cost.add(&outcome);
        }
        assert_eq!(cost.present, Micros(50 + 90 + 20 + 10));
        assert_eq!(cost.awaiting_first_token, Micros(20 + 20 + 20 + 10));
        assert_eq!((cost.incomplete, cost.own_present()), (1, Micros(90)));
        assert_eq!(cost.own.and_then(|own| own.e2e), Some(Micros(500)));
    }
}
