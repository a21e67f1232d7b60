//! What the specification of sessions says of their steady state.
//!
//! Sessions arrive at a rate λ_s, send R rounds each, and live for L seconds: the sum of the end-to-end latencies and thinking times of their
//! rounds. At a time t after the start only the rounds k with k·(Z + E) < t exist: a run that is shorter than a life sees a fraction of the load.

use crate::error::{StatisticsError, check_range};

/// Sessions that arrive at a constant rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionLoad {
    /// New sessions per second, above 0.
    pub sessions_per_s: f64,
    /// Mean number of rounds of a session, at least 1.
    pub rounds: f64,
    /// Mean time from the arrival of a request to that of the next one of its session: latency and thinking, ≥ 0.
    pub round_s: f64,
}

impl SessionLoad {
    /// # Errors
    /// If a number is out of range.
    pub fn new(sessions_per_s: f64, rounds: f64, round_s: f64) -> Result<Self, StatisticsError> {
        let arrive = sessions_per_s.is_finite() && sessions_per_s > 0.0;
        check_range("the rate of sessions", sessions_per_s, arrive, "above 0 per second")?;
        check_range("the number of rounds", rounds, rounds.is_finite() && rounds >= 1.0, "1 or more")?;
        check_range("the time of a round", round_s, round_s.is_finite() && round_s >= 0.0, "0 s or more")?;
        Ok(Self { sessions_per_s, rounds, round_s })
    }

    /// Requests per second in steady state: λ = λ_s·E\[R\].
    #[must_use]
    pub fn steady_rate_rps(&self) -> f64 {
        self.sessions_per_s * self.rounds
    }

    /// Mean life of a session, L.
    #[must_use]
    pub fn life_s(&self) -> f64 {
        self.rounds * self.round_s
    }

    /// Sessions that are alive in steady state: λ_s·L.
    #[must_use]
    pub fn alive(&self) -> f64 {
        self.sessions_per_s * self.life_s()
    }

    /// Requests per second at `time_s` after the first session: λ_s·(1 + ⌊t/(Z + E)⌋), at most the steady rate.
    #[must_use]
    pub fn rate_at_rps(&self, time_s: f64) -> f64 {
        let begun = if self.round_s > 0.0 { 1.0 + (time_s.max(0.0) / self.round_s).floor() } else { self.rounds };
        self.sessions_per_s * begun.min(self.rounds)
    }

    /// Requests of a run of `needed_s` seconds, the warm-up included, such as [`WarmUp::needed_s`](crate::WarmUp).
    #[must_use]
    pub fn requests_in(&self, needed_s: f64) -> f64 {
        (self.steady_rate_rps() * needed_s).ceil()
    }
}

/// Variance over mean of the number of `times_s` in each whole second from the first to the last: 1 for Poisson arrivals, far above it where
/// sessions have synchronised. `None` for fewer than 20 seconds, or times that are not finite.
#[must_use]
pub fn dispersion(times_s: &[f64]) -> Option<f64> {
    const FEWEST_SECONDS: usize = 20;
    /// A day; beyond it seconds become longer.
    const MOST_SECONDS: f64 = 86_400.0;
    if times_s.iter().any(|time| !time.is_finite()) {
        return None;
    }
    let first = times_s.iter().copied().fold(f64::INFINITY, f64::min);
    let last = times_s.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let width = ((last - first) / MOST_SECONDS).max(1.0);
    let seconds = ((last - first) / width).floor().max(0.0) as usize;
    if seconds < FEWEST_SECONDS {
        return None;
    }
    let mut counts = vec![0.0; seconds];
    for time in times_s {
        if let Some(count) = counts.get_mut(((time - first) / width) as usize) {
            *count += 1.0;
        }
    }
    Some(crate::moments::sample_variance(&counts) / crate::moments::mean(&counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `../shared/reference/statistics.md`, §5.1: "5 sessions/s × 6 rounds = 30 requests/s".
    #[test]
    fn five_sessions_a_second_of_six_rounds_are_thirty_requests() {
        let load = SessionLoad::new(5.0, 6.0, 31.0).expect("valid");
        assert_eq!((load.steady_rate_rps(), load.life_s(), load.alive()), (30.0, 186.0, 930.0));
        assert_eq!((load.rate_at_rps(0.0), load.rate_at_rps(100.0), load.rate_at_rps(1e6)), (5.0, 20.0, 30.0));
        assert_eq!(load.requests_in(2200.0), 66_000.0);
        assert!(SessionLoad::new(0.0, 6.0, 1.0).is_err() && SessionLoad::new(1.0, 0.5, 1.0).is_err());
        assert!(SessionLoad::new(1.0, 6.0, f64::INFINITY).is_err());
    }

    #[test]
    fn dispersion_is_small_for_a_constant_rate_and_large_for_bursts() {
        let even: Vec<f64> = (0..1000).map(|i| f64::from(i) * 0.1).collect();
        assert!(dispersion(&even).expect("long enough") < 0.1);
        let bursts: Vec<f64> = (0..1000).map(|i| f64::from(i / 100) * 10.0).collect();
        assert!(dispersion(&bursts).expect("long enough") > 50.0);
        assert_eq!((dispersion(&even[..50]), dispersion(&[]), dispersion(&[0.0, f64::NAN])), (None, None, None));
    }
}
