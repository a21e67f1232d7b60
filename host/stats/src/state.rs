//! The state of a run: whether its figures are those of a steady service, and if not, what they are.
//!
//! One state for each run, the first of these with a rule that holds:
//!
//! | state | rule |
//! |---|---|
//! | deadline | more than 1 % lost, and the deadline is below the end-to-end latency of a request that is alone |
//! | overloaded | more than 1 % lost otherwise |
//! | too short | arrivals last less than twice the warm-up: nothing but a ramp is seen |
//! | overloaded | requests in the system grow by more than 1 % of the arrivals, to 1.5 times as many and 5 more, with a trend above 0.5 |
//! | saturated | three quarters of the users get more than 95 % of the throughput, and queueing is more than half of TTFT |
//! | too short | arrivals last less than [`WarmUp::needed_s`], or less than 20 mean end-to-end latencies |
//! | starved | an instance got less than a tenth of the mean number of requests |
//! | synchronised | variance/mean of arrivals per second is above 5 times that of the starts of sessions |
//! | undecided | growth between: more than 0.5 % with a trend above 0.2 |
//! | steady | otherwise |

use crate::growth::Growth;
use crate::warm_up::WarmUp;

/// Lost requests (timed out, dropped, evicted; not deliberately shed) that a steady service may have, as a share.
pub const MOST_LOST: f64 = 0.01;
/// Mean end-to-end latencies that arrivals last at least.
pub const FEWEST_LATENCIES: f64 = 20.0;

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
    /// Figures are those of a steady service.
    Steady,
    /// More requests arrive than the service can serve.
    Overloaded,
    /// A closed loop with more users than the service can serve faster.
    Saturated,
    /// An instance gets hardly any requests.
    Starved,
    /// Sessions send their requests together.
    Synchronised,
    /// The run ends before the service is steady, or soon after.
    TooShort,
    /// The deadline is below what one request takes alone.
    Deadline,
    /// Requests in the system may grow, or not.
    Undecided,
}

impl RunState {
    /// Its name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Overloaded => "overloaded",
            Self::Saturated => "saturated",
            Self::Starved => "starved",
            Self::Synchronised => "synchronised",
            Self::TooShort => "too_short",
            Self::Deadline => "deadline",
            Self::Undecided => "undecided",
        }
    }
}

/// What a state follows from, with the figures of a sentence about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StateReason {
    /// Nothing speaks against a steady service.
    Nothing,
    /// The growth of the number of requests in the system.
    Growing(Growth),
    /// A share of requests that were lost, 0 to 1.
    Lost(f64),
    /// A deadline, and the end-to-end latency of a request that is alone.
    DeadlineTooShort {
        /// The deadline, from the arrival of a request.
        deadline_s: f64,
        /// End-to-end latency of a request that is alone.
        alone_s: f64,
    },
    /// Arrivals last too short a time.
    Span {
        /// Time from the first arrival to the last.
        span_s: f64,
        /// The least time that would do.
        needed_s: f64,
    },
    /// The throughput of three quarters of the users, as a share of that of all.
    ThroughputOfFewer(f64),
    /// An instance that gets few requests.
    FewRequests {
        /// Its index among the instances of its role.
        instance: usize,
        /// Its requests, as a share of the mean over instances.
        share: f64,
    },
    /// Variance/mean of arrivals per second.
    Bursts {
        /// Of arrivals of requests.
        arrivals: f64,
        /// Of the starts of sessions; 1 (Poisson) if they vary less.
        starts: f64,
    },
}

/// What is known of a run. [`Default`]: nothing, which is steady.
#[derive(Clone, Debug, Default)]
pub struct RunEvidence {
    /// Growth of the number of requests in the system; `None` for a closed loop without sessions that arrive: it cannot grow.
    pub growth: Option<Growth>,
    /// Lost requests as a share of those after the warm-up, 0 to 1, without those that were shed on purpose.
    pub lost_share: f64,
    /// The shortest deadline of a request.
    pub deadline_s: Option<f64>,
    /// End-to-end latency of a request that is alone in the service.
    pub alone_s: Option<f64>,
    /// Time from the first to the last arrival.
    pub span_s: Option<f64>,
    /// The warm-up, from clocks that are known.
    pub warm_up: Option<WarmUp>,
    /// Mean end-to-end latency of requests that completed.
    pub mean_e2e_s: Option<f64>,
    /// Throughput of a run with three quarters of the users, as a share of that of this one.
    pub throughput_of_fewer: Option<f64>,
    /// Queueing as a share of TTFT, 0 to 1.
    pub queueing_share: Option<f64>,
    /// Requests of each instance that serves the same role.
    pub requests_by_instance: Vec<u64>,
    /// Variance/mean of arrivals per second ([`dispersion`](crate::dispersion)), of closed loops and sessions.
    pub arrival_dispersion: Option<f64>,
    /// The same of the starts of sessions, where there are any.
    pub start_dispersion: Option<f64>,
}

/// The state of a run and its reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateReport {
    /// The state that decides what may be concluded from the run.
    pub state: RunState,
    /// What it follows from.
    pub reason: StateReason,
}

/// The state of a run, by the table above. Facts that are missing decide nothing.
#[must_use]
pub fn state_of(run: &RunEvidence) -> StateReport {
    let rules = [lost, only_a_ramp, growing, saturated, too_short, starved, synchronised, may_grow];
    let found = rules.into_iter().find_map(|rule| rule(run));
    found.unwrap_or(StateReport { state: RunState::Steady, reason: StateReason::Nothing })
}

fn found(holds: bool, state: RunState, reason: StateReason) -> Option<StateReport> {
    holds.then_some(StateReport { state, reason })
}

fn lost(run: &RunEvidence) -> Option<StateReport> {
    if run.lost_share <= MOST_LOST {
        return None;
    }
    let too_short = run.deadline_s.zip(run.alone_s).filter(|(deadline_s, alone_s)| deadline_s < alone_s);
    Some(match too_short {
        Some((deadline_s, alone_s)) => {
            StateReport { state: RunState::Deadline, reason: StateReason::DeadlineTooShort { deadline_s, alone_s } }
        }
        None => StateReport { state: RunState::Overloaded, reason: StateReason::Lost(run.lost_share) },
    })
}

fn only_a_ramp(run: &RunEvidence) -> Option<StateReport> {
    let (span_s, warm_up) = run.span_s.zip(run.warm_up)?;
    let reason = StateReason::Span { span_s, needed_s: warm_up.needed_s };
    found(span_s < 2.0 * warm_up.warm_up_s, RunState::TooShort, reason)
}

fn growing(run: &RunEvidence) -> Option<StateReport> {
    let growth = run.growth?;
    let grows = growth.share > 0.01 && growth.late > 1.5 * growth.early + 5.0 && growth.trend > 0.5;
    found(grows, RunState::Overloaded, StateReason::Growing(growth))
}

fn saturated(run: &RunEvidence) -> Option<StateReport> {
    let (share, queueing) = run.throughput_of_fewer.zip(run.queueing_share)?;
    found(share > 0.95 && queueing > 0.5, RunState::Saturated, StateReason::ThroughputOfFewer(share))
}

fn too_short(run: &RunEvidence) -> Option<StateReport> {
    let span_s = run.span_s?;
    let by_clocks = run.warm_up.map_or(0.0, |warm_up| warm_up.needed_s);
    let by_latency = FEWEST_LATENCIES * run.mean_e2e_s.unwrap_or(0.0);
    let needed_s = by_clocks.max(by_latency);
    found(span_s < needed_s, RunState::TooShort, StateReason::Span { span_s, needed_s })
}

fn starved(run: &RunEvidence) -> Option<StateReport> {
    let instances = &run.requests_by_instance;
    let mean = instances.iter().sum::<u64>() as f64 / instances.len() as f64;
    let (instance, &least) = instances.iter().enumerate().min_by_key(|&(_, requests)| *requests)?;
    let share = least as f64 / mean;
    found(share < 0.1, RunState::Starved, StateReason::FewRequests { instance, share })
}

fn synchronised(run: &RunEvidence) -> Option<StateReport> {
    let arrivals = run.arrival_dispersion?;
    let starts = run.start_dispersion.unwrap_or(1.0).max(1.0);
    found(arrivals > 5.0 * starts, RunState::Synchronised, StateReason::Bursts { arrivals, starts })
}

fn may_grow(run: &RunEvidence) -> Option<StateReport> {
    let growth = run.growth?;
    found(growth.share >= 0.005 && growth.trend >= 0.2, RunState::Undecided, StateReason::Growing(growth))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::warm_up::{SlowClock, SlowPart};

    fn growth(share: f64, trend: f64) -> Option<Growth> {
        Some(Growth { share, trend, early: 10.0, late: 40.0 })
    }

    fn name(run: &RunEvidence) -> &'static str {
        state_of(run).state.name()
    }

    #[test]
    fn each_state_has_its_rule() {
        let sessions = SlowClock { part: SlowPart::Sessions, time_s: 100.0 };
        let warm_up = WarmUp::of(&[sessions], None).ok();
        let run = RunEvidence::default;
        assert_eq!(name(&run()), "steady");
        assert_eq!(name(&RunEvidence { growth: growth(0.02, 0.9), ..run() }), "overloaded");
        assert_eq!(name(&RunEvidence { growth: growth(0.007, 0.9), ..run() }), "undecided");
        assert_eq!(name(&RunEvidence { growth: growth(0.02, 0.1), ..run() }), "steady");
        assert_eq!(name(&RunEvidence { lost_share: 0.02, deadline_s: Some(0.5), ..run() }), "overloaded");
        let deadline = RunEvidence { lost_share: 0.02, deadline_s: Some(0.5), alone_s: Some(0.84), ..run() };
        assert_eq!(name(&deadline), "deadline");
        assert_eq!(name(&RunEvidence { span_s: Some(1000.0), warm_up, ..run() }), "too_short");
        assert_eq!(name(&RunEvidence { span_s: Some(1200.0), warm_up, ..run() }), "steady");
        assert_eq!(name(&RunEvidence { span_s: Some(50.0), mean_e2e_s: Some(3.0), ..run() }), "too_short");
        let full = RunEvidence { throughput_of_fewer: Some(0.97), queueing_share: Some(0.8), ..run() };
        assert_eq!(name(&full), "saturated");
        assert_eq!(name(&RunEvidence { requests_by_instance: vec![100, 0, 90], ..run() }), "starved");
        assert_eq!(name(&RunEvidence { arrival_dispersion: Some(53.8), ..run() }), "synchronised");
        let bursty = RunEvidence { arrival_dispersion: Some(53.8), start_dispersion: Some(20.0), ..run() };
        assert_eq!(name(&bursty), "steady");
    }

    /// A ramp grows because sessions begin; later growth is an overload, also in a run that is too short for figures.
    #[test]
    fn growth_counts_once_the_ramp_is_over() {
        let sessions = SlowClock { part: SlowPart::Sessions, time_s: 100.0 };
        let warm_up = WarmUp::of(&[sessions], None).ok();
        let run =
            |span_s| RunEvidence { growth: growth(0.02, 0.9), span_s: Some(span_s), warm_up, ..RunEvidence::default() };
        assert_eq!((name(&run(150.0)), name(&run(500.0))), ("too_short", "overloaded"));
    }
}
