//! What a specification says of the steady state of its sessions.
//!
//! Sessions that begin at a constant rate reach their full request rate only after a life of them: before, later rounds are still
//! to come. A shorter run sees a part of the load, whatever its number of requests.

use blis_sim::request::Name;
use blis_sim::units::Micros;

use super::client::ClientLoad;
use super::drawn::SenderStart;
use super::expand::{Pace, SenderPlan, expand};
use super::{ExpandError, GenerateOptions, Spec};

/// Sessions that are drawn to know their rounds and think times.
const DRAWN_SESSIONS: usize = 4000;

/// Sessions that begin at a constant rate for ever, and the single requests beside them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadySessions {
    /// Sessions that begin per second, single requests included: what the rate of the specification counts.
    pub starts_per_s: f64,
    /// Mean number of requests of a start: rounds of a session, 1 of a single request.
    pub rounds: f64,
    /// Think times of a session together, of all its rounds: the mean over sessions.
    pub thinking_mean_s: f64,
    /// The same: the 95th percentile.
    pub thinking_p95_s: f64,
    /// Whether rounds wait for the output of the round before.
    pub is_closed_loop: bool,
    /// Variance over mean of the starts in a long interval: 1 of Poisson arrivals.
    pub start_dispersion: f64,
}

impl SteadySessions {
    /// Requests per second once sessions end as often as they begin.
    #[must_use]
    pub fn requests_per_s(&self) -> f64 {
        self.starts_per_s * self.rounds
    }

    /// The time that a session lasts on average, if a request takes `latency_s` on average.
    #[must_use]
    pub fn mean_life_s(&self, latency_s: f64) -> f64 {
        self.thinking_mean_s + self.latencies() * latency_s
    }

    /// The time that 95 % of the sessions last at most: the warm-up, after which hardly a later round is still to come.
    #[must_use]
    pub fn long_life_s(&self, latency_s: f64) -> f64 {
        self.thinking_p95_s + self.latencies() * latency_s
    }

    /// For how long sessions must begin so that figures are those of the steady state: the warm-up, and then `lives` mean lives.
    #[must_use]
    pub fn needed_s(&self, lives: f64, latency_s: f64) -> f64 {
        self.long_life_s(latency_s) + lives * self.mean_life_s(latency_s)
    }

    /// Latencies of a session one after the other. In open loop only the last round adds to the think times.
    fn latencies(&self) -> f64 {
        if self.is_closed_loop { self.rounds } else { 1.0 }
    }
}

impl Spec {
    /// The steady state of its sessions; `None` if it has no sessions of several rounds, or no steady state: clients that send
    /// in windows, one single session, a number of users.
    ///
    /// # Errors
    /// As [`Self::requests`].
    pub fn steady_sessions(&self, options: &GenerateOptions) -> Result<Option<SteadySessions>, ExpandError> {
        let mut clients = self.clients.iter().chain(self.cohorts.iter().map(|cohort| &cohort.client));
        // Without sessions there is nothing to expand. A part with a number of requests ends after the last of them.
        if !clients.any(|client| client.multi_turn.is_some())
            || self.parts.iter().any(|part| part.num_requests.is_some())
        {
            return Ok(None);
        }
        // A number of requests is an end that any specification may have; the plans are those without one.
        let options = GenerateOptions { horizon: Micros::MAX, num_requests: Some(1), ..*options };
        let plans = expand(self, &options)?.plans;
        let Some(paces) = plans.iter().map(constant_pace).collect::<Option<Vec<StartPace>>>() else { return Ok(None) };
        let starts_per_s: f64 = paces.iter().map(|pace| pace.rate).sum();
        let start_dispersion = paces.iter().map(|pace| pace.rate * pace.dispersion).sum::<f64>() / starts_per_s;
        // Of many alike clients, as in a cohort, some stand for all.
        let skipped = plans.len().div_ceil(DRAWN_SESSIONS).max(1);
        let each = DRAWN_SESSIONS.div_ceil(plans.len().max(1));
        let mut drawn: Vec<DrawnSession> = Vec::new();
        for (plan, pace) in plans.iter().zip(&paces).step_by(skipped) {
            drawn.extend((0..each as u64).map(|number| DrawnSession::new(plan, pace.rate, number)));
        }
        if drawn.iter().all(|session| session.rounds < 2.0) {
            return Ok(None);
        }
        let weight: f64 = drawn.iter().map(|session| session.weight).sum();
        let rounds = drawn.iter().map(|session| session.weight * session.rounds).sum::<f64>() / weight;
        let (thinking_mean_s, thinking_p95_s) = thinking(drawn);
        let is_closed_loop = self.first_in_closed_loop().is_some();
        Ok(Some(SteadySessions {
            starts_per_s,
            rounds,
            thinking_mean_s,
            thinking_p95_s,
            is_closed_loop,
            start_dispersion,
        }))
    }
}

/// How a client begins sessions.
struct StartPace {
    /// Starts per second.
    rate: f64,
    /// Their variance over their mean.
    dispersion: f64,
}

/// The pace at which a client begins sessions for ever; `None` if it is another kind of load.
fn constant_pace(plan: &SenderPlan) -> Option<StartPace> {
    let [segment] = &*plan.segments else { return None };
    let Pace::Steady(intervals) = segment.pace else { return None };
    let for_ever = segment.start == Micros::ZERO && segment.end == Micros::MAX;
    let is_rate = matches!(plan.client.load, ClientLoad::Share(_)) && !plan.is_single_session();
    let pace = StartPace { rate: 1e6 / intervals.mean_us.max(1.0), dispersion: intervals.squared_cv };
    (for_ever && is_rate && plan.prompts.is_none()).then_some(pace)
}

struct DrawnSession {
    /// The rate of its client.
    weight: f64,
    rounds: f64,
    thinking_s: f64,
}

impl DrawnSession {
    fn new(plan: &SenderPlan, weight: f64, number: u64) -> Self {
        let rounds = if plan.client.multi_turn.is_some() { plan.rounds(number) } else { Some(1) };
        let start = SenderStart { at: Micros::ZERO, number, segment: 0, session: Name::NONE, rounds };
        let rounds = rounds.unwrap_or(1).max(1);
        let thinking = (0..rounds - 1).map(|round| plan.think_time(&start, round).as_secs_f64());
        Self { weight, rounds: f64::from(rounds), thinking_s: thinking.sum() }
    }
}

/// Mean and 95th percentile of the think times of sessions, single requests left out.
fn thinking(mut drawn: Vec<DrawnSession>) -> (f64, f64) {
    drawn.retain(|session| session.rounds > 1.0);
    drawn.sort_by(|a, b| a.thinking_s.total_cmp(&b.thinking_s));
    let weight: f64 = drawn.iter().map(|session| session.weight).sum();
    let mut below = 0.0;
    let reaches = |session: &&DrawnSession| {
        below += session.weight;
        below >= 0.95 * weight
    };
    let p95 = drawn.iter().find(reaches).or(drawn.last()).map_or(0.0, |session| session.thinking_s);
    (drawn.iter().map(|session| session.weight * session.thinking_s).sum::<f64>() / weight, p95)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::spec::NoFiles;

    fn steady(clients: &str) -> Option<SteadySessions> {
        let text = format!("version: \"2\"\naggregate_rate: 5\nclients:\n{clients}");
        let spec = Spec::parse("w.yaml", &text, &NoFiles).expect("valid");
        let options = GenerateOptions {
            seed: 1,
            block_size: NonZeroU32::new(16).expect("not 0"),
            horizon: Micros::MAX,
            num_requests: None,
            timeout: None,
            as_in_blis: false,
        };
        spec.steady_sessions(&options).expect("valid")
    }

    fn client(share: f64, rest: &str) -> String {
        let lengths = "input_distribution: {type: constant, params: {value: 500}}, \
                       output_distribution: {type: constant, params: {value: 200}}";
        format!("- {{id: c{share}, rate_fraction: {share}, arrival: {{process: poisson}}, {lengths}{rest}}}\n")
    }

    const SIX_ROUNDS: &str = ", reasoning: {multi_turn: {max_rounds: 6, think_time_us: 30000000}}";

    /// `../shared/reference/statistics.md`, §5.1: "5 sessions/s × 6 rounds = 30 requests/s".
    #[test]
    fn five_sessions_a_second_of_six_rounds_are_thirty_requests() {
        let sessions = steady(&client(1.0, &format!("{SIX_ROUNDS}, closed_loop: false"))).expect("sessions");
        assert!((sessions.requests_per_s() - 30.0).abs() < 1e-9, "{sessions:?}");
        assert!((sessions.start_dispersion - 1.0).abs() < 1e-9, "Poisson: {sessions:?}");
        assert!(
            (sessions.mean_life_s(4.0) - 154.0).abs() < 1e-9,
            "thinking between six rounds, and one latency: {sessions:?}"
        );
        let closed = steady(&client(1.0, SIX_ROUNDS)).expect("sessions");
        assert!((closed.long_life_s(4.0) - 174.0).abs() < 1e-9, "{closed:?}");
    }

    #[test]
    fn single_requests_beside_sessions_count_once() {
        let mixed = steady(&(client(0.5, SIX_ROUNDS) + &client(0.5001, ""))).expect("sessions");
        assert!((mixed.requests_per_s() - 17.5).abs() < 0.01, "{mixed:?}");
        assert!((mixed.thinking_p95_s - 150.0).abs() < 1e-9, "of sessions alone: {mixed:?}");
    }

    #[test]
    fn without_sessions_or_a_constant_rate_there_is_none() {
        assert_eq!(steady(&client(1.0, "")), None);
        let windows = ", lifecycle: {windows: [{start_us: 0, end_us: 60000000}]}";
        assert_eq!(steady(&client(1.0, &format!("{SIX_ROUNDS}{windows}"))), None);
    }
}
