//! Length distributions, in tokens.

use std::sync::Arc;

use blis_sim::rng::Generator;
use rand_distr::{Distribution as _, Exp1, OpenClosed01, StandardNormal};

use crate::max_tokens::{EXPONENTIAL_LONG, NORMAL_LONG, OutputScale};

/// Maximum length of an input or output that is drawn: far beyond any model's context, and small enough that the tokens
/// of a long conversation do not overflow. Heavy-tailed distributions reach it.
pub const LONGEST: u32 = 1 << 28;

/// A distribution over integers of at least 1 token.
#[derive(Clone, Debug, PartialEq)]
pub enum Lengths {
    /// A normal distribution, clamped, then rounded.
    Gaussian {
        /// Mean before clamping, tokens.
        mean: f64,
        /// Standard deviation before clamping, tokens, at least 0.
        std_dev: f64,
        bounds: Bounds,
    },
    /// An exponential distribution, rounded, then clamped.
    Exponential {
        /// Mean before clamping, tokens.
        mean: f64,
        bounds: Bounds,
    },
    /// exp(mu + sigma Z), rounded, then clamped.
    LogNormal {
        /// Mean of the logarithm.
        mu: f64,
        /// Standard deviation of the logarithm, at least 0.
        sigma: f64,
        bounds: Bounds,
    },
    /// A mixture of a Pareto and a lognormal distribution, rounded.
    ParetoLogNormal {
        /// Exponent of the Pareto tail, above 0.
        alpha: f64,
        /// Smallest value of the Pareto distribution, above 0.
        xm: f64,
        /// Mean of the logarithm.
        mu: f64,
        /// Standard deviation of the logarithm, at least 0.
        sigma: f64,
        /// Probability of the Pareto distribution, 0 to 1.
        mix_weight: f64,
    },
    /// Any integer within the bounds, with equal probabilities.
    Uniform(Bounds),
    Constant(u32),
    /// Frequencies of lengths as measured.
    Empirical(Arc<Empirical>),
}

/// Smallest and largest length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Smallest length, tokens, at least 1.
    pub min: u32,
    /// Largest length, tokens, from `min` to [`LONGEST`].
    pub max: u32,
}

impl Bounds {
    /// The widest bounds: every length is allowed.
    pub const NONE: Self = Self { min: 1, max: LONGEST };

    /// The nearest integer within the bounds; halves are rounded away from zero.
    fn round(self, tokens: f64) -> u32 {
        if tokens.is_finite() {
            tokens.round().clamp(f64::from(self.min), f64::from(self.max)) as u32
        } else if tokens == f64::INFINITY {
            self.max
        } else {
            self.min
        }
    }
}

impl Lengths {
    /// [`Lengths::Gaussian`] with bounds that are in order.
    #[must_use]
    pub fn gaussian(mean: f64, std_dev: f64, min: u32, max: u32) -> Self {
        let min = min.clamp(1, LONGEST);
        Self::Gaussian { mean, std_dev, bounds: Bounds { min, max: max.clamp(min, LONGEST) } }
    }

    /// An exponential distribution with the widest bounds.
    #[must_use]
    pub fn exponential(mean: f64) -> Self {
        Self::Exponential { mean, bounds: Bounds::NONE }
    }

    /// The lognormal distribution with this mean and standard deviation before clamping: mean m and deviation s give σ²
    /// = ln(1 + s²/m²) and μ = ln m − σ²/2.
    #[must_use]
    pub fn lognormal_of(mean: f64, std_dev: f64, bounds: Bounds) -> Self {
        let variance = libm::log1p((std_dev / mean) * (std_dev / mean));
        Self::LogNormal { mu: libm::log(mean) - variance / 2.0, sigma: libm::sqrt(variance), bounds }
    }

    /// A typical length and one that few exceed.
    pub(crate) fn scale(&self) -> OutputScale {
        let within = |bounds: &Bounds, typical: f64, long: f64| OutputScale {
            typical: f64::from(bounds.round(typical)),
            long: bounds.round(long),
        };
        let log_normal =
            |mu: f64, sigma: f64| (libm::exp(mu + sigma * sigma / 2.0), libm::exp(mu + sigma * NORMAL_LONG));
        match self {
            Self::Gaussian { mean, std_dev, bounds } => within(bounds, *mean, mean + std_dev * NORMAL_LONG),
            Self::Exponential { mean, bounds } => within(bounds, *mean, mean * EXPONENTIAL_LONG),
            Self::LogNormal { mu, sigma, bounds } => {
                let (typical, long) = log_normal(*mu, *sigma);
                within(bounds, typical, long)
            }
            Self::ParetoLogNormal { alpha, xm, mu, sigma, mix_weight } => {
                let (typical, long) = log_normal(*mu, *sigma);
                // The tail of the mixture is that of its Pareto part, where it has one: P(X > x) = w (xm / x)^alpha.
                let tail = if *mix_weight > 0.0 { xm * libm::pow(1000.0 * mix_weight, 1.0 / alpha) } else { 0.0 };
                within(&Bounds::NONE, typical, long.max(tail))
            }
            Self::Uniform(bounds) => {
                within(bounds, f64::midpoint(bounds.min.into(), bounds.max.into()), bounds.max.into())
            }
            Self::Constant(tokens) => OutputScale { typical: f64::from(*tokens), long: *tokens },
            Self::Empirical(counted) => counted.scale,
        }
    }

    #[must_use]
    pub fn draw(&self, random: &mut Generator) -> u32 {
        let mut normal = || -> f64 { StandardNormal.sample(random) };
        match self {
            Self::Gaussian { mean, std_dev, bounds } => bounds.round(mean + std_dev * normal()),
            Self::LogNormal { mu, sigma, bounds } => bounds.round(libm::exp(mu + sigma * normal())),
            Self::Exponential { mean, bounds } => {
                let scaled: f64 = Exp1.sample(random);
                bounds.round(mean * scaled)
            }
            Self::ParetoLogNormal { alpha, xm, mu, sigma, mix_weight } => {
                let [which, uniform]: [f64; 2] = [OpenClosed01.sample(random), OpenClosed01.sample(random)];
                let pareto = which <= *mix_weight;
                let normal: f64 = StandardNormal.sample(random);
                let tokens = if pareto { xm / libm::pow(uniform, 1.0 / alpha) } else { libm::exp(mu + sigma * normal) };
                Bounds::NONE.round(tokens)
            }
            Self::Uniform(bounds) => {
                let uniform: f64 = OpenClosed01.sample(random);
                let span = f64::from(bounds.max - bounds.min) + 1.0;
                bounds.max - (((1.0 - uniform) * span) as u32).min(bounds.max - bounds.min)
            }
            Self::Constant(tokens) => *tokens,
            Self::Empirical(counted) => counted.draw(random),
        }
    }
}

/// A distribution given by its probabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct Empirical {
    /// Lengths in ascending order.
    tokens: Vec<u32>,
    /// Sum of the probabilities up to and including each length; the last is 1.
    cumulated: Vec<f64>,
    scale: OutputScale,
}

impl Empirical {
    /// From lengths and their weights, in any order: weights ≤ 0 are left out, the others are normalised. `None` if
    /// none is left, or their sum is infinite.
    #[must_use]
    pub fn new(weights: impl IntoIterator<Item = (u32, f64)>) -> Option<Self> {
        let mut weights: Vec<(u32, f64)> = weights.into_iter().filter(|&(_, weight)| weight > 0.0).collect();
        weights.sort_by_key(|&(tokens, _)| tokens);
        let total: f64 = weights.iter().map(|&(_, weight)| weight).sum();
        if weights.is_empty() || !total.is_finite() {
            return None;
        }
        let mut sum = 0.0;
        let mut cumulated: Vec<f64> = weights
            .iter()
            .map(|&(_, weight)| {
                sum += weight;
                sum / total
            })
            .collect();
        *cumulated.last_mut()? = 1.0;
        let typical = weights.iter().map(|&(tokens, weight)| f64::from(tokens.clamp(1, LONGEST)) * weight).sum::<f64>();
        let tokens: Vec<u32> = weights.into_iter().map(|(tokens, _)| tokens.clamp(1, LONGEST)).collect();
        let scale = OutputScale { typical: typical / total, long: *tokens.last()? };
        Some(Self { tokens, cumulated, scale })
    }

    /// Lengths and their probabilities.
    pub fn probabilities(&self) -> impl Iterator<Item = (u32, f64)> + '_ {
        let before = std::iter::once(0.0).chain(self.cumulated.iter().copied());
        self.tokens.iter().zip(self.cumulated.iter().zip(before)).map(|(&tokens, (to, from))| (tokens, to - from))
    }

    fn draw(&self, random: &mut Generator) -> u32 {
        let uniform: f64 = OpenClosed01.sample(random);
        let index = self.cumulated.partition_point(|&sum| sum < uniform);
        self.tokens[index.min(self.tokens.len() - 1)]
    }
}
