//! Arrival processes: the inter-arrival times of a client.

use std::ops::RangeInclusive;

use blis_sim::rng::Generator;
use blis_sim::units::Micros;
use rand_distr::{Distribution as _, Exp1, Gamma, OpenClosed01};

/// Distribution of the inter-arrival times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Arrival {
    /// Constant inter-arrival times.
    Constant,
    /// A Poisson process: exponential inter-arrival times, as of many independent clients.
    #[default]
    Poisson,
    /// Gamma-distributed inter-arrival times; bursty for a coefficient of variation above 1.
    Gamma(IntervalShape),
    /// Weibull-distributed inter-arrival times.
    Weibull(IntervalShape),
}

/// Shape of the distribution of the inter-arrival times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IntervalShape {
    /// Coefficient of variation, above 0. The rate determines the mean.
    Cv(f64),
    /// The parameters of the distribution, both above 0. They replace the rate, except where a number of requests has
    /// to fill a window.
    Own {
        /// Shape k of the distribution.
        shape: f64,
        /// Scale of the distribution, θ or λ, µs.
        scale_us: f64,
    },
}

impl Arrival {
    /// Coefficients of variation to which a Weibull distribution can be fitted.
    pub const WEIBULL_CV: RangeInclusive<f64> = 0.01..=10.4;
    /// Valid coefficients of variation of a Gamma distribution. Beyond them, almost all inter-arrival times are 0.
    pub const GAMMA_CV: RangeInclusive<f64> = 0.001..=100.0;
}

/// Draws inter-arrival times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Intervals {
    /// Mean of the drawn times, µs.
    pub mean_us: f64,
    /// Square of their coefficient of variation: variance over mean of the arrivals in long intervals.
    pub squared_cv: f64,
    kind: IntervalDistribution,
}

#[derive(Clone, Copy, Debug)]
enum IntervalDistribution {
    Constant,
    Exponential,
    Gamma(Gamma<f64>),
    Weibull { scale_us: f64, inverse_shape: f64 },
}

impl Intervals {
    /// Inter-arrival times for `rate` requests per second.
    pub fn new(arrival: Arrival, rate: f64) -> Self {
        // Requests per µs first, then its inverse, so that it is truncated as in BLIS: 10/s is 99 999 µs.
        let mean_us = 1.0 / (rate / 1e6).max(1e-15);
        match arrival {
            Arrival::Constant => Self { mean_us, squared_cv: 0.0, kind: IntervalDistribution::Constant },
            Arrival::Poisson => Self { mean_us, squared_cv: 1.0, kind: IntervalDistribution::Exponential },
            Arrival::Gamma(IntervalShape::Cv(cv)) => Self::gamma(1.0 / (cv * cv), cv * cv * mean_us),
            Arrival::Gamma(IntervalShape::Own { shape, scale_us }) => Self::gamma(shape, scale_us),
            Arrival::Weibull(IntervalShape::Cv(cv)) => {
                let shape = weibull_shape(cv);
                Self::weibull(shape, mean_us / libm::tgamma(1.0 + 1.0 / shape))
            }
            Arrival::Weibull(IntervalShape::Own { shape, scale_us }) => Self::weibull(shape, scale_us),
        }
    }

    fn gamma(shape: f64, scale_us: f64) -> Self {
        let mean_us = shape * scale_us;
        // Both are above 0 and finite, as checked before.
        let kind = Gamma::new(shape, scale_us).map_or(IntervalDistribution::Constant, IntervalDistribution::Gamma);
        Self { mean_us, squared_cv: 1.0 / shape, kind }
    }

    fn weibull(shape: f64, scale_us: f64) -> Self {
        let inverse_shape = 1.0 / shape;
        let mean_us = scale_us * libm::tgamma(1.0 + inverse_shape);
        let log_ratio = libm::lgamma(1.0 + 2.0 * inverse_shape) - 2.0 * libm::lgamma(1.0 + inverse_shape);
        let kind = IntervalDistribution::Weibull { scale_us, inverse_shape };
        Self { mean_us, squared_cv: libm::expm1(log_ratio), kind }
    }

    /// An inter-arrival time, µs, not rounded.
    pub fn draw(&self, random: &mut Generator) -> f64 {
        match self.kind {
            IntervalDistribution::Constant => self.mean_us,
            IntervalDistribution::Exponential => {
                let scaled: f64 = Exp1.sample(random);
                scaled * self.mean_us
            }
            IntervalDistribution::Gamma(gamma) => gamma.sample(random),
            IntervalDistribution::Weibull { scale_us, inverse_shape } => {
                let uniform: f64 = OpenClosed01.sample(random);
                scale_us * libm::pow(-libm::log(uniform), inverse_shape)
            }
        }
    }

    /// The inter-arrival time, if it is constant.
    pub fn constant(&self) -> Option<Micros> {
        matches!(self.kind, IntervalDistribution::Constant).then(|| whole(self.mean_us))
    }
}

/// An inter-arrival time in whole µs: truncated, and at least 1 so that time advances.
pub(super) fn whole(us: f64) -> Micros {
    Micros::from_f64(us).max(Micros(1))
}

/// The shape k of the Weibull distribution with the coefficient of variation `cv`: CV(k)² = Γ(1 + 2/k) / Γ(1 + 1/k)² −
/// 1, which decreases with k. By bisection.
fn weibull_shape(cv: f64) -> f64 {
    let squared = |shape: f64| {
        let log_ratio = libm::lgamma(1.0 + 2.0 / shape) - 2.0 * libm::lgamma(1.0 + 1.0 / shape);
        libm::expm1(log_ratio)
    };
    let (mut low, mut high) = (0.1, 200.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if squared(middle) > cv * cv { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}
