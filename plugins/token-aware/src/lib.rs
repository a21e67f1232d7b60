//! llm-d's token-aware routing ("sticky until saturated"), the built-in `token-aware`, written as a plugin with two parts:
//!
//! * *filter*: the instances that have the prompt in their cache, while their wait for other prompts is short;
//! * *scores*: few uncached prompt tokens in flight, the request included.
//!
//! As a policy (`--routing-policy rust-token-aware`) the host asks the filter first, and then `route` about the instances
//! that are left. In a pipeline (`--routing-filters rust-token-aware --routing-scorers rust-token-aware:1`) each part
//! may stand beside others. Every floating-point operation is that of the built-in, so both route every request to the
//! same instance.

use blis_sdk::{Cluster, Description, Filter, Policy, Request, Routing, Setup, argmax};
use serde::{Deserialize, Serialize};

blis_sdk::signals! {
    /// Prompt tokens: those of this request in the cache of the instance, and uncached ones of others in flight there.
    pub struct TokenSignals { cached_tokens_gpu, in_flight_tokens }
}

/// Uncached prompt tokens in flight at which an instance scores 0.
const MOST_TOKENS: f64 = 4_194_304.0;

/// The parameters of the filter; the scores have none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenAware {
    affinity: f64,
    peak_prefill: f64,
    max_penalty_ms: f64,
}

impl Policy for TokenAware {
    type Signals = TokenSignals;

    fn describe() -> Description {
        Description::new("rust-token-aware")
            .version(env!("CARGO_PKG_VERSION"))
            .about("Cached prefix while the wait is short, then the fewest prompt tokens, as `token-aware` does.")
            .scores()
            .parameter("affinity", 0.8, 0.0..=1.0, "cached share of the prompt from which an instance has the prefix")
            .parameter(
                "peak_prefill",
                15_928.0,
                1.0..=1_000_000.0,
                "prefill throughput of an idle instance, tokens per second",
            )
            .parameter(
                "max_penalty_ms",
                18_000.0,
                0.0..=10_000_000.0,
                "longest additional wait for a cached prefix, ms; 0 for any",
            )
    }

    fn new(setup: &Setup) -> Result<Self, String> {
        Ok(Self {
            affinity: setup.parameter("affinity"),
            peak_prefill: setup.parameter("peak_prefill"),
            max_penalty_ms: setup.parameter("max_penalty_ms"),
        })
    }
}

impl Routing for TokenAware {
    fn route(&mut self, request: &Request, cluster: &Cluster<'_, TokenSignals>) -> usize {
        let mut scores = Vec::with_capacity(cluster.instances.len());
        self.scores(request, cluster, &mut scores);
        argmax(scores)
    }

    fn scores(&self, request: &Request, cluster: &Cluster<'_, TokenSignals>, scores: &mut Vec<f64>) {
        let prompt = f64::from(request.input_tokens);
        scores.extend(cluster.instances.iter().map(|instance| {
            let ahead = instance.in_flight_tokens + (prompt - instance.cached_tokens_gpu);
            1.0 - (ahead / MOST_TOKENS).min(1.0)
        }));
    }
}

impl Filter for TokenAware {
    fn filter(&mut self, request: &Request, cluster: &Cluster<'_, TokenSignals>, kept: &mut Vec<f64>) {
        let prompt = f64::from(request.input_tokens);
        let is_sticky = |instance: &TokenSignals| instance.cached_tokens_gpu >= self.affinity * prompt;
        // Wait for the prefills in flight, ms.
        let wait = |instance: &TokenSignals| instance.in_flight_tokens / self.peak_prefill * 1000.0;
        let shortest = |sticky: bool| {
            let instances = cluster.instances.iter().filter(|instance| is_sticky(instance) == sticky);
            instances.map(wait).reduce(f64::min)
        };
        let sticks = match (shortest(true), shortest(false)) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(here), Some(elsewhere)) => self.max_penalty_ms == 0.0 || here - elsewhere <= self.max_penalty_ms,
        };
        kept.extend(cluster.instances.iter().map(|instance| f64::from(u8::from(!sticks || is_sticky(instance)))));
    }
}

blis_sdk::export_policy!(TokenAware: Routing, Filter);

#[cfg(test)]
mod tests {
    use blis_sdk::Ages;
    use blis_sdk::testing::{Host, with};

    use super::*;

    const POLICY: TokenAware = TokenAware { affinity: 0.8, peak_prefill: 1000.0, max_penalty_ms: 2000.0 };

    /// Instances with these tokens of a prompt of 1000 in their cache, and these tokens in flight.
    fn with_cluster<T>(instances: &[(f64, f64)], look: impl FnOnce(&Request, &Cluster<'_, TokenSignals>) -> T) -> T {
        let tokens =
            |&(cached_tokens_gpu, in_flight_tokens): &(f64, f64)| TokenSignals { cached_tokens_gpu, in_flight_tokens };
        let instances: Vec<TokenSignals> = instances.iter().map(tokens).collect();
        let request = Request { input_tokens: 1000, ..Request::default() };
        look(&request, &Cluster { ages: Ages::default(), instances: &instances })
    }

    fn kept(instances: &[(f64, f64)]) -> Vec<f64> {
        with_cluster(instances, |request, cluster| {
            let mut kept = Vec::new();
            POLICY.clone().filter(request, cluster, &mut kept);
            kept
        })
    }

    #[test]
    fn requests_stick_until_the_wait_is_too_long() {
        assert_eq!(kept(&[(800.0, 0.0), (799.0, 0.0), (1000.0, 5000.0)]), [1.0, 0.0, 1.0]);
        assert_eq!(kept(&[(0.0, 0.0), (799.0, 0.0)]), [1.0, 1.0], "none is sticky");
        assert_eq!(kept(&[(900.0, 2000.0), (0.0, 0.0)]), [1.0, 0.0], "2000 ms more");
        assert_eq!(kept(&[(900.0, 2001.0), (0.0, 0.0)]), [1.0, 1.0], "2001 ms more");
    }

    #[test]
    fn the_fewest_prompt_tokens_win() {
        let route = |request: &Request, cluster: &Cluster<'_, TokenSignals>| POLICY.clone().route(request, cluster);
        let instances = [(0.0, 0.0), (900.0, 899.0), (900.0, 901.0)];
        let (index, _) = with(Host::default(), || with_cluster(&instances, route));
        assert_eq!(index, 1, "999 tokens ahead: the prompt's own 100, and 899");
    }
}
