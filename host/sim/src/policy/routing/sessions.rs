//! The scorer `session-affinity`: the instance that served the session last (llm-d's `session-affinity-scorer`, which
//! reads the instance from a header of the request, or binds the session to it for a time).

use rustc_hash::FxHashMap;

use crate::ids::InstanceIndex;
use crate::policy::{ClusterView, RequestView};
use crate::request::Name;
use crate::units::Micros;

/// How long a session stays bound after its latest request, llm-d's default.
const BOUND_FOR: Micros = Micros(300_000_000);

/// The instance of every session that is bound.
#[derive(Clone, Debug, Default)]
pub(super) struct BoundSessions {
    /// With the time of its latest request.
    bound: FxHashMap<Name, (InstanceIndex, Micros)>,
    /// Number of entries at which those that have expired are removed.
    sweep_at: usize,
    /// Time of the latest decision.
    now: Micros,
}

impl BoundSessions {
    /// 1 for the instance to which the session is bound, 0 for all others; 0 for all without a session.
    pub fn score(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>, scores: &mut [f64]) {
        self.now = cluster.now;
        let bound = self.bound.get(&request.tags.session).filter(|(_, at)| is_bound(*at, cluster.now));
        let bound = bound.filter(|_| request.tags.session != Name::NONE).map(|&(instance, _)| instance);
        for (score, instance) in scores.iter_mut().zip(cluster.instances) {
            *score = f64::from(u8::from(bound == Some(instance.id)));
        }
    }

    /// Binds the session of `request`, scored last, to `instance`.
    pub fn dispatched(&mut self, request: &RequestView<'_>, instance: InstanceIndex) {
        if request.tags.session == Name::NONE {
            return;
        }
        let now = self.now;
        if self.bound.len() >= self.sweep_at {
            self.bound.retain(|_, (_, at)| is_bound(*at, now));
            self.sweep_at = (2 * self.bound.len()).max(1024);
        }
        self.bound.insert(request.tags.session, (instance, now));
    }
}

fn is_bound(at: Micros, now: Micros) -> bool {
    now.saturating_sub(at) <= BOUND_FOR
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::{TestService, request, view_of};
    use crate::request::Request;

    fn turn(id: u32, session: u32) -> Request {
        let mut turn = request(id, 1, &[]);
        turn.tags.session = Name(session);
        turn
    }

    #[test]
    fn a_session_stays_where_it_was_for_300_seconds() {
        let mut service = TestService::idle(3);
        let mut sessions = BoundSessions::default();
        let mut scores = |sessions: &mut BoundSessions, turn: &Request, now: u64| {
            service.now = Micros(now);
            let mut scores = vec![f64::NAN; 3];
            sessions.score(&view_of(turn), &service.view(), &mut scores);
            scores
        };
        assert_eq!(scores(&mut sessions, &turn(0, 7), 0), [0.0; 3], "a new session");
        sessions.dispatched(&view_of(&turn(0, 7)), InstanceIndex(1));
        assert_eq!(scores(&mut sessions, &turn(1, 7), 300_000_000), [0.0, 1.0, 0.0]);
        sessions.dispatched(&view_of(&turn(1, 7)), InstanceIndex(2));
        assert_eq!(scores(&mut sessions, &turn(2, 7), 600_000_000), [0.0, 0.0, 1.0], "each request binds it again");
        assert_eq!(scores(&mut sessions, &turn(3, 7), 600_000_001), [0.0; 3], "expired");
        assert_eq!(scores(&mut sessions, &turn(4, 8), 300_000_000), [0.0; 3], "another session");
        sessions.dispatched(&view_of(&turn(5, 0)), InstanceIndex(0));
        assert_eq!(scores(&mut sessions, &turn(6, 0), 300_000_000), [0.0; 3], "no session");
    }
}
