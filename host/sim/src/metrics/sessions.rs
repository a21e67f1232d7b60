//! Figures of sessions: TTFT of the first round and of later rounds, which may find their context in the cache, and
//! durations.

use rustc_hash::FxHashMap;

use super::distribution::{Distribution, Samples};
use crate::cluster::SessionStates;
use crate::outcome::Outcome;
use crate::request::Name;
use crate::units::Micros;

/// The figures of requests that name a session.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SessionReport {
    /// Number of sessions of which a request arrived.
    pub sessions: u64,
    /// TTFT of first rounds (round 0), of every request that has one.
    pub ttft_first_round: Distribution,
    /// TTFT of all later rounds, of every request that has one.
    pub ttft_later_rounds: Distribution,
    /// Time from the first arrival of a session to the completion of its last request; sessions without a completed
    /// request are not included.
    pub duration: Distribution,
    /// Number of sessions by state; `None` unless they are in closed loop.
    pub states: Option<SessionStates>,
}

/// Collects [`SessionReport`]: 24 bytes per session, 4 per request.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionCollector {
    first_round: Samples,
    later_rounds: Samples,
    times: FxHashMap<Name, SessionTimes>,
}

#[derive(Clone, Copy, Debug)]
struct SessionTimes {
    first_arrival: Micros,
    last_completion: Option<Micros>,
}

impl SessionCollector {
    /// Adds a request; requests without a session are ignored.
    pub fn add(&mut self, outcome: &Outcome) {
        let Outcome { tags, arrival, .. } = *outcome;
        if tags.session == Name::NONE {
            return;
        }
        let rounds = if tags.round_index == 0 { &mut self.first_round } else { &mut self.later_rounds };
        rounds.extend(outcome.ttft);
        let completed = outcome.e2e.map(|e2e| arrival.saturating_add(e2e));
        let times =
            self.times.entry(tags.session).or_insert(SessionTimes { first_arrival: arrival, last_completion: None });
        times.first_arrival = times.first_arrival.min(arrival);
        times.last_completion = times.last_completion.max(completed);
    }

    /// The figures; `None` if there are no sessions.
    pub fn report(&mut self) -> Option<SessionReport> {
        let durations = self.times.values().filter_map(|times| Some(times.last_completion? - times.first_arrival));
        let mut durations: Vec<Micros> = durations.collect();
        (!self.times.is_empty()).then(|| SessionReport {
            sessions: self.times.len() as u64,
            ttft_first_round: self.first_round.distribution(),
            ttft_later_rounds: self.later_rounds.distribution(),
            duration: Distribution::from_samples(&mut durations),
            states: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RequestId;
    use crate::outcome::Status;
    use crate::request::{Request, Tags};

    /// A request of a session: (session, round), arrival, TTFT and E2E in ms, where there are any.
    fn outcome((session, round_index): (u32, u32), arrival: u64, ttft: Option<u64>, e2e: Option<u64>) -> Outcome {
        let ms = |ms: u64| Micros(ms * 1_000);
        let request = Request {
            tags: Tags { session: Name(session), round_index, ..Tags::default() },
            ..Request::new(RequestId(0), ms(arrival), 1, 1)
        };
        let status = if e2e.is_some() { Status::Completed } else { Status::TimedOut };
        Outcome { ttft: ttft.map(ms), e2e: e2e.map(ms), ..Outcome::new(&request, status) }
    }

    #[test]
    fn rounds_are_distinguished_and_sessions_last_until_their_last_completion() {
        let mut sessions = SessionCollector::default();
        sessions.add(&outcome((0, 0), 0, Some(999), Some(999)));
        assert_eq!(sessions.report(), None);
        // In any order: a later round may end before an earlier one where sessions are replayed as recorded.
        sessions.add(&outcome((7, 1), 50, Some(5), Some(20)));
        sessions.add(&outcome((7, 0), 10, Some(30), Some(100)));
        sessions.add(&outcome((8, 0), 20, Some(40), Some(60)));
        sessions.add(&outcome((8, 1), 200, Some(7), None));
        sessions.add(&outcome((9, 0), 5, None, None));
        let report = sessions.report().expect("sessions");
        let figures = |d: Distribution| (d.count, d.mean_ms, d.max_ms);
        assert_eq!(report.sessions, 3);
        assert_eq!(figures(report.ttft_first_round), (2, 35.0, 40.0));
        assert_eq!(figures(report.ttft_later_rounds), (2, 6.0, 7.0));
        assert_eq!(
            figures(report.duration),
            (2, 80.0, 100.0),
            "10 to 110 and 20 to 80; the third completed no request"
        );
    }
}
