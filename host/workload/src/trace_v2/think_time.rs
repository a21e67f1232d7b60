//! Options for the replay of recorded sessions in closed loop: think times and timeouts.

use blis_sim::rng::Generator;
use blis_sim::units::Micros;
use rand_distr::{Distribution as _, StandardNormal};

/// Options for the replay of sessions in closed loop.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedLoop {
    /// Think time after every round; `None` for that of the trace: its column `think_time_us` if any later round has
    /// more than 0 there, else the time between the recorded arrivals.
    pub think_time: Option<ThinkTime>,
    /// Seed of the think times.
    pub seed: u64,
    /// Timeout of later rounds that have no deadline; `None` for no deadline.
    pub timeout: Option<Micros>,
}

/// Time from the end of a round to the next prompt of its session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThinkTime {
    /// The same time after every round.
    Constant(Micros),
    /// exp(mu + sigma Z) seconds, clamped to `min` and `max`.
    LogNormal {
        /// Mean of the logarithm.
        mu: f64,
        /// Standard deviation of the logarithm, at least 0.
        sigma: f64,
        /// Smallest think time.
        min: Micros,
        /// Largest think time.
        max: Micros,
    },
}

impl ThinkTime {
    pub(super) fn draw(self, mut random: Generator) -> Micros {
        match self {
            Self::Constant(time) => time,
            Self::LogNormal { mu, sigma, min, max } => {
                let normal: f64 = StandardNormal.sample(&mut random);
                Micros::from_secs_f64(libm::exp(mu + sigma * normal)).clamp(min, max)
            }
        }
    }
}
