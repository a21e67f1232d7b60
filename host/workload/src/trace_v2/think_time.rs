//! How recorded sessions are replayed in closed loop: how long clients think, and how long they wait.

use blis_sim::rng::Generator;
use blis_sim::units::Micros;
use rand_distr::{Distribution as _, StandardNormal};

/// How to replay sessions in closed loop.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedLoop {
    /// From an answer to the next prompt; `None` for what the trace says: its column `think_time_us`,
    /// if any later round has more than 0 there, else the time between the recorded arrivals.
    pub think_time: Option<ThinkTime>,
    /// Seed of what is drawn.
    pub seed: u64,
    /// How long clients wait for the answers of later rounds that bring no deadline; `None` for ever.
    pub timeout: Option<Micros>,
}

/// From an answer to the next prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThinkTime {
    /// The same time after every round.
    Constant(Micros),
    /// exp(mu + sigma Z) seconds, but no less than `min` and no more than `max`.
    LogNormal {
        /// Mean of the logarithm.
        mu: f64,
        /// Standard deviation of the logarithm, ≥ 0.
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
