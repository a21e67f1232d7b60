//! The admission policy `token-bucket`.

use super::positive;
use crate::policy::{AdmissionDecision, AdmissionPolicy, ClusterView, Reads, Reason, RequestView};
use crate::units::Micros;

/// Limits the rate of prompt tokens, with bursts up to a capacity.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// Maximum number of tokens in the bucket.
    capacity: f64,
    /// Refill rate, tokens per second.
    refill_rate: f64,
    /// Tokens in the bucket at `filled_at`.
    tokens: f64,
    filled_at: Micros,
}

impl TokenBucket {
    /// A full bucket of `capacity` tokens that is refilled with `refill_per_second` tokens per second.
    ///
    /// # Errors
    ///
    /// A message if one of the two is not a positive number.
    pub fn new(capacity: f64, refill_per_second: f64) -> Result<Self, String> {
        positive("the capacity of a token bucket", capacity)?;
        positive("the refill rate of a token bucket", refill_per_second)?;
        Ok(Self { capacity, refill_rate: refill_per_second, tokens: capacity, filled_at: Micros::ZERO })
    }
}

impl AdmissionPolicy for TokenBucket {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> AdmissionDecision {
        let elapsed_us = cluster.now.saturating_sub(self.filled_at).0 as f64;
        self.tokens = self.capacity.min(self.tokens + elapsed_us * self.refill_rate / 1e6);
        self.filled_at = cluster.now;
        let needed = f64::from(request.input_tokens);
        if self.tokens < needed {
            return AdmissionDecision::Reject(Reason::InsufficientTokens);
        }
        self.tokens -= needed;
        AdmissionDecision::Admit
    }

    fn fork(&self) -> Box<dyn AdmissionPolicy> {
        Box::new(*self)
    }
}
