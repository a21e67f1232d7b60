//! Priority inversions: requests that entered the batch before earlier requests of at least the same priority.

use crate::outcome::{Outcome, Status};
use crate::units::Micros;

/// Times at which the requests of one instance entered its batch. 24 bytes each.
#[derive(Clone, Debug, Default)]
pub(super) struct BatchAdmissions(Vec<BatchAdmission>);

#[derive(Clone, Copy, Debug)]
struct BatchAdmission {
    arrival: Micros,
    /// Admission to the batch; [`Micros::MAX`] for a request that is still queued at the end.
    at: Micros,
    /// Priority of its class, [`crate::policy::Classes::priority`].
    priority: i32,
    /// Whether its last admission is not its first: the time of its waiting in between is not known.
    preempted: bool,
}

impl BatchAdmissions {
    /// Adds a request. Requests that ended without ever entering the batch are left out: they may not have waited.
    pub fn add(&mut self, outcome: &Outcome, priority: i32) {
        let at = match (outcome.scheduling_delay, outcome.status) {
            (Some(delay), _) => outcome.arrival.saturating_add(delay),
            (None, Status::Queued) => Micros::MAX,
            (None, _) => return,
        };
        self.0.push(BatchAdmission { arrival: outcome.arrival, at, priority, preempted: outcome.preemptions > 0 });
    }

    /// Number of requests that entered the batch before another one that had arrived earlier and had at least the same
    /// priority. O(n log n + n·priorities); reorders.
    pub fn inversions(&mut self) -> u64 {
        let mut priorities: Vec<i32> = self.0.iter().map(|admission| admission.priority).collect();
        priorities.sort_unstable();
        priorities.dedup();
        let level = |priority| priorities.partition_point(|&other| other < priority);
        self.0.sort_unstable_by_key(|admission| admission.arrival);
        // By priority: the last admission among those that arrived earlier.
        let mut last = vec![Micros::ZERO; priorities.len()];
        let mut inversions = 0;
        for together in self.0.chunk_by(|one, other| one.arrival == other.arrival) {
            let overtakes = |one: &&BatchAdmission| last[level(one.priority)..].iter().any(|&other| other > one.at);
            inversions += together.iter().filter(overtakes).count() as u64;
            for one in together.iter().filter(|one| !one.preempted) {
                let last = &mut last[level(one.priority)];
                *last = one.at.max(*last);
            }
        }
        inversions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RequestId;
    use crate::request::Request;
    use proptest::prelude::*;

    /// (arrival, delay until admission, priority)
    fn admissions(requests: &[(u64, Option<u64>, i32)]) -> BatchAdmissions {
        let mut admissions = BatchAdmissions::default();
        for &(arrival, delay, priority) in requests {
            let status = if delay.is_some() { Status::Completed } else { Status::Queued };
            let outcome = Outcome::new(&Request::new(RequestId(0), Micros(arrival), 1, 1), status);
            admissions.add(&Outcome { scheduling_delay: delay.map(Micros), ..outcome }, priority);
        }
        admissions
    }

    #[test]
    fn overtaking_lower_priority_is_no_inversion() {
        // Arrived at 0 and 1; admitted at 9 and 2.
        assert_eq!(admissions(&[(0, Some(9), 3), (1, Some(1), 4)]).inversions(), 0);
        assert_eq!(admissions(&[(0, Some(9), 3), (1, Some(1), 3)]).inversions(), 1);
        assert_eq!(admissions(&[(0, Some(9), 4), (1, Some(1), 3)]).inversions(), 1);
        assert_eq!(admissions(&[(0, Some(2), 4), (1, Some(1), 3)]).inversions(), 0, "the same step");
        assert_eq!(admissions(&[(1, Some(9), 4), (1, Some(1), 3)]).inversions(), 0, "arrived together");
        assert_eq!(admissions(&[(0, None, 3), (1, Some(1), 3), (2, Some(1), 3)]).inversions(), 2, "never admitted");
    }

    #[test]
    fn requests_that_may_not_have_waited_are_not_overtaken() {
        let mut admissions = admissions(&[(5, Some(1), 0)]);
        let request = Request::new(RequestId(0), Micros(0), 1, 1);
        admissions.add(&Outcome::new(&request, Status::TimedOut), 0);
        admissions.add(&Outcome::new(&request, Status::Arriving), 0);
        let preempted =
            Outcome { preemptions: 1, scheduling_delay: Some(Micros(50)), ..Outcome::new(&request, Status::Completed) };
        admissions.add(&preempted, 0);
        assert_eq!(admissions.inversions(), 0);
    }

    proptest! {
        #[test]
        fn every_pair_was_compared(
            requests in prop::collection::vec((0..30u64, prop::option::weighted(0.9, 0..30u64), -2..3i32), 0..40),
        ) {
            let end = |&(arrival, delay, _): &(u64, Option<u64>, i32)| delay.map_or(u64::MAX, |delay| arrival + delay);
            let overtakes = |one: &&(u64, Option<u64>, i32)| {
                requests.iter().any(|other| other.0 < one.0 && other.2 >= one.2 && end(other) > end(one))
            };
            let naive = requests.iter().filter(overtakes).count() as u64;
            prop_assert_eq!(admissions(&requests).inversions(), naive);
        }
    }
}
