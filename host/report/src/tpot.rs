//! Time per output token.

use blis_sim::metrics::Distribution;
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::Outcome;
use blis_sim::units::Micros;

/// Collects the time per output token of each completed request with two tokens or more, as vLLM's benchmark defines it:
/// (E2E − TTFT) / (output tokens − 1), rounded to µs. A long output counts as much as a short one, while the inter-token
/// latencies of a run are pooled over tokens. 8 bytes per request.
#[derive(Clone, Debug, Default)]
pub struct TpotLog {
    warmup: Micros,
    samples: Vec<Micros>,
}

impl TpotLog {
    /// Requests that arrive before `warmup` do not count.
    #[must_use]
    pub fn new(warmup: Micros) -> Self {
        Self { warmup, samples: Vec::new() }
    }

    /// The distribution over requests. O(n).
    #[must_use]
    pub fn distribution(mut self) -> Distribution {
        Distribution::from_samples(&mut self.samples)
    }

    fn add(&mut self, outcome: &Outcome) {
        if outcome.arrival < self.warmup {
            return;
        }
        self.samples.extend(time_per_output_token(outcome));
    }
}

/// (E2E − TTFT) / (output tokens − 1) of a completed request, rounded to µs; `None` with fewer than two tokens.
#[must_use]
pub fn time_per_output_token(outcome: &Outcome) -> Option<Micros> {
    let (ttft, e2e) = (outcome.ttft?, outcome.e2e?);
    let gaps = u64::from(outcome.generated_tokens.checked_sub(1).filter(|&gaps| gaps > 0)?);
    Some(Micros((e2e.0.saturating_sub(ttft.0) + gaps / 2) / gaps))
}

impl Observer for TpotLog {
    #[inline]
    fn interests(&self) -> Interests {
        Interests::OUTCOMES
    }

    #[inline]
    fn record(&mut self, event: &SimEvent<'_>) {
        if let SimEvent::Outcome(outcome) = event {
            self.add(outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_sim::ids::RequestId;
    use blis_sim::outcome::Status;
    use blis_sim::request::Request;

    #[test]
    fn a_request_counts_once_and_only_with_two_tokens() {
        let mut log = TpotLog::default();
        for (tokens, e2e) in [(1, 400), (2, 700), (11, 10_300)] {
            let outcome = Outcome::new(&Request::new(RequestId(tokens), Micros(0), 5, tokens), Status::Completed);
            let (ttft, e2e) = (Some(Micros(300)), Some(Micros(e2e)));
            log.add(&Outcome { ttft, e2e, generated_tokens: tokens, ..outcome });
        }
        let distribution = log.distribution();
        assert_eq!((distribution.count, distribution.mean_ms, distribution.max_ms), (2, 0.7, 1.0));
    }
}
