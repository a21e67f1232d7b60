//! `blackbox`: a straight line through measurements, one line per (model, GPU, TP, vLLM version).
//!
//! Its only input is the number of tokens that a step computes. It is the only built-in model that ignores the context
//! lengths.

use super::arithmetic::exact;
use super::error::check_coefficients;
use super::{Batch, ContextEffect, LatencyError, LatencyModel, shortest_of_monotone};
use crate::units::Micros;

/// Step time β0 + β1·(prompt tokens) + β2·(decode tokens), µs.
///
/// Source: BLIS, February 2026 (80739c0a), `engine.md` §4.6.
#[derive(Clone, Debug, PartialEq)]
pub struct Blackbox {
    host: HostTimes,
    beta: [f64; 3],
}

impl Blackbox {
    /// α: µs per request, per prompt token, per output token. β: µs per step, per prompt token, per decode token.
    ///
    /// # Errors
    /// Unless there are three of each, finite and not negative.
    pub fn new(alpha: &[f64], beta: &[f64]) -> Result<Self, LatencyError> {
        let host = HostTimes::new("blackbox", alpha)?;
        let actual = beta.len();
        let beta = <[f64; 3]>::try_from(beta).map_err(|_| LatencyError::CoefficientCount {
            model: "blackbox",
            name: "beta",
            expected: "3",
            actual,
        })?;
        check_coefficients("beta", &beta)?;
        Ok(Self { host, beta })
    }
}

impl LatencyModel for Blackbox {
    fn step_time(&self, batch: &Batch) -> Micros {
        if batch.requests() == 0 {
            return Micros(1);
        }
        let [base, per_prefill_token, per_decode_token] = self.beta;
        let us =
            base + per_prefill_token * exact(batch.prefill_tokens) + per_decode_token * exact(batch.decode_requests);
        Micros::from_f64(us).max(Micros(1))
    }

    fn context_effect(&self) -> ContextEffect {
        ContextEffect::None
    }

    fn shortest_step(&self) -> Micros {
        shortest_of_monotone(self)
    }

    fn queueing_time(&self, input_tokens: u32) -> Micros {
        self.host.queueing_time(input_tokens)
    }

    fn output_token_time(&self) -> Micros {
        self.host.output_token_time()
    }
}

/// The α terms of `blackbox` and `roofline`: delays on the host around the engine.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HostTimes {
    alpha: [f64; 3],
}

impl HostTimes {
    pub(super) const NONE: Self = Self { alpha: [0.0; 3] };

    pub(super) fn new(model: &'static str, alpha: &[f64]) -> Result<Self, LatencyError> {
        let actual = alpha.len();
        let alpha = <[f64; 3]>::try_from(alpha).map_err(|_| LatencyError::CoefficientCount {
            model,
            name: "alpha",
            expected: "3",
            actual,
        })?;
        check_coefficients("alpha", &alpha)?;
        Ok(Self { alpha })
    }

    pub(super) fn queueing_time(&self, input_tokens: u32) -> Micros {
        Micros::from_f64(self.alpha[0] + self.alpha[1] * f64::from(input_tokens))
    }

    pub(super) fn output_token_time(&self) -> Micros {
        Micros::from_f64(self.alpha[2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::testing::{batch, random_batches};

    #[test]
    fn equals_its_formula() {
        let (b0, b1, b2) = (5752.705191348184, 17.25086436834028, 5.999143920128404);
        let model = Blackbox::new(&[0.0; 3], &[b0, b1, b2]).unwrap();
        for items in random_batches(100_000) {
            let (mut x, mut y) = (0.0, 0.0);
            for item in &items {
                *if item.is_prefill() { &mut x } else { &mut y } += f64::from(item.n);
            }
            assert_eq!(model.step_time(&batch(&items)).0, (b0 + b1 * x + b2 * y) as u64);
        }
    }

    #[test]
    fn alpha_acts_per_request_prompt_token_and_output_token() {
        let model = Blackbox::new(&[232.46, 1.75236, 3357.44], &[0.0; 3]).unwrap();
        assert_eq!(model.queueing_time(100), Micros(407));
        assert_eq!(model.output_token_time(), Micros(3357));
        assert_eq!(model.post_decode_time(), Micros::ZERO);
        assert_eq!(model.step_time(&Batch { decode_requests: 1, ..Batch::default() }), Micros(1), "at least 1 µs");
    }

    #[test]
    fn bad_coefficients_are_named() {
        let error = |alpha: &[f64], beta: &[f64]| Blackbox::new(alpha, beta).unwrap_err().to_string();
        insta::assert_snapshot!(error(&[0.0; 3], &[1.0; 4]), @r"
        blackbox takes 3 beta coefficients, not 4
        hint: set as many with `--beta-coeffs`
        ");
        insta::assert_snapshot!(error(&[0.0, f64::NAN, 0.0], &[1.0; 3]), @r"
        alpha[1] is NaN
        hint: coefficients are finite and not negative
        ");
        insta::assert_snapshot!(error(&[0.0; 3], &[1.0, 1.0, -2.0]), @r"
        beta[2] is -2
        hint: coefficients are finite and not negative
        ");
    }
}
