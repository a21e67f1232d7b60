//! The coefficients that are fitted, and what is known of them before any measurement.

use blis_sim::latency::{PhysicsAlpha, PhysicsBeta};

/// Names of the coefficients: α, then β.
pub const NAMES: [&str; 13] = [
    PhysicsAlpha::NAMES[0],
    PhysicsAlpha::NAMES[1],
    PhysicsAlpha::NAMES[2],
    PhysicsBeta::NAMES[0],
    PhysicsBeta::NAMES[1],
    PhysicsBeta::NAMES[2],
    PhysicsBeta::NAMES[3],
    PhysicsBeta::NAMES[4],
    PhysicsBeta::NAMES[5],
    PhysicsBeta::NAMES[6],
    PhysicsBeta::NAMES[7],
    PhysicsBeta::NAMES[8],
    PhysicsBeta::NAMES[9],
];

/// Values of the coefficients: α, then β, in the order of [`NAMES`].
pub type CoefficientValues = [f64; NAMES.len()];

/// Prior distribution of the coefficients, before any measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prior {
    /// Median of each coefficient.
    pub values: CoefficientValues,
    /// Standard deviation of its logarithm; 0 fixes the coefficient.
    pub spread: CoefficientValues,
    /// Expected standard deviation of the logarithm of a window's mean end-to-end latency.
    pub e2e_spread: f64,
}

impl Prior {
    /// Prior of the general coefficients: kernels are as measured, the others are free within reason.
    pub const GENERAL: Self = Self {
        values: [3000.0, 0.0, 2000.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 12.0, 15.0, 1.0, 200.0],
        spread: [0.7, 0.0, 0.7, 0.05, 0.05, 0.05, 0.3, 0.3, 0.2, 0.7, 1.0, 1.5, 1.0],
        e2e_spread: 0.02,
    };

    /// Prior of the coefficients of one deployment, given the general ones: only the fit of the curves to its shapes
    /// differs.
    #[must_use]
    pub fn around(values: CoefficientValues) -> Self {
        Self { values, spread: [0.5, 0.0, 0.5, 0.05, 0.05, 0.05, 0.3, 0.3, 0.1, 0.5, 0.5, 1.5, 1.0], e2e_spread: 0.01 }
    }
}

/// Indices of the two coefficients that shift all latencies.
pub(super) const ARRIVAL: usize = 0;
pub(super) const FIRST_TOKEN: usize = 2;
