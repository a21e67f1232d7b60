//! How full the service is.

use super::SaturationPolicy;
use crate::policy::{ClusterView, Reads};
use crate::units::Micros;

/// Never full: everything is dispatched at once (BLIS's default).
#[derive(Clone, Copy, Debug, Default)]
pub struct NeverSaturated;

impl SaturationPolicy for NeverSaturated {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn saturation(&mut self, _cluster: &ClusterView<'_>) -> f64 {
        0.0
    }

    fn steady_until(&self, _cluster: &ClusterView<'_>) -> Micros {
        Micros::MAX
    }

    fn fork(&self) -> Box<dyn SaturationPolicy> {
        Box::new(*self)
    }
}

/// The mean over the instances of the larger of two shares: waiting requests of `queue_depth`, and the used KV blocks of
/// `kv_utilization` (llm-d's `utilization-detector`).
#[derive(Clone, Copy, Debug)]
pub struct Utilization {
    /// Waiting requests with which an instance is full, > 0.
    pub queue_depth: f64,
    /// Share of used KV blocks with which an instance is full, above 0 and at most 1.
    pub kv_utilization: f64,
    /// Age of the signals from which on all instances count as full; `None` for never (BLIS).
    pub staleness: Option<Micros>,
}

impl SaturationPolicy for Utilization {
    fn reads(&self) -> Reads {
        Reads { load: true, ..Reads::NOTHING }
    }

    fn saturation(&mut self, cluster: &ClusterView<'_>) -> f64 {
        if cluster.is_empty() || self.staleness.is_some_and(|oldest| cluster.staleness.load > oldest) {
            return 1.0;
        }
        let signals = cluster.signals;
        let instances = signals.queue_depth.iter().zip(&signals.kv_utilization);
        let full = instances.map(|(&q, &kv)| (f64::from(q) / self.queue_depth).max(kv / self.kv_utilization));
        full.sum::<f64>() / cluster.len() as f64
    }

    fn steady_until(&self, cluster: &ClusterView<'_>) -> Micros {
        match self.staleness {
            Some(oldest) if cluster.staleness.load <= oldest => {
                cluster.now.saturating_sub(cluster.staleness.load).saturating_add(oldest)
            }
            _ => Micros::MAX,
        }
    }

    fn fork(&self) -> Box<dyn SaturationPolicy> {
        Box::new(*self)
    }
}

/// What is in flight over what the instances take (llm-d's `concurrency-detector`).
#[derive(Clone, Copy, Debug)]
pub struct Concurrency {
    /// What counts.
    pub mode: ConcurrencyMode,
    /// Requests in flight with which an instance is full, > 0.
    pub max_concurrency: f64,
    /// Tokens in flight with which an instance is full, > 0: prompt tokens that were not cached, of requests that were
    /// dispatched and have no token yet ([`Signals::in_flight_tokens`](crate::policy::Signals::in_flight_tokens)).
    pub max_tokens: f64,
}

/// What counts as in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConcurrencyMode {
    /// Requests: the sum over the instances over the sum of what they take.
    Requests,
    /// Tokens, in the same way.
    Tokens,
    /// Both: the mean over the instances of the larger of the two shares.
    Hybrid,
}

impl SaturationPolicy for Concurrency {
    fn reads(&self) -> Reads {
        Reads {
            in_flight: self.mode != ConcurrencyMode::Tokens,
            tokens: self.mode != ConcurrencyMode::Requests,
            ..Reads::NOTHING
        }
    }

    fn saturation(&mut self, cluster: &ClusterView<'_>) -> f64 {
        if cluster.is_empty() {
            return 1.0;
        }
        let (instances, signals) = (cluster.len() as f64, cluster.signals);
        match self.mode {
            ConcurrencyMode::Requests => {
                let requests: u64 = signals.in_flight.iter().map(|&count| u64::from(count)).sum();
                requests as f64 / (instances * self.max_concurrency)
            }
            ConcurrencyMode::Tokens => {
                signals.in_flight_tokens.iter().sum::<u64>() as f64 / (instances * self.max_tokens)
            }
            ConcurrencyMode::Hybrid => {
                let both = signals.in_flight.iter().zip(&signals.in_flight_tokens);
                let shares = both.map(|(&requests, &tokens)| {
                    (f64::from(requests) / self.max_concurrency).max(tokens as f64 / self.max_tokens)
                });
                shares.sum::<f64>() / instances
            }
        }
    }

    fn steady_until(&self, _cluster: &ClusterView<'_>) -> Micros {
        Micros::MAX
    }

    fn fork(&self) -> Box<dyn SaturationPolicy> {
        Box::new(*self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::TestService;

    #[test]
    fn requests_tokens_or_the_larger_share_of_each_instance_count() {
        let service = TestService::idle(2).with(|signals| {
            signals.in_flight = vec![4, 2];
            signals.in_flight_tokens = vec![100, 700];
        });
        let saturation = |mode| {
            let mut detector = Concurrency { mode, max_concurrency: 8.0, max_tokens: 1000.0 };
            assert_eq!(detector.saturation(&TestService::idle(0).view()), 1.0, "no instance");
            detector.saturation(&service.view())
        };
        assert_eq!(saturation(ConcurrencyMode::Requests), 6.0 / 16.0);
        assert_eq!(saturation(ConcurrencyMode::Tokens), 800.0 / 2000.0);
        assert_eq!(saturation(ConcurrencyMode::Hybrid), (0.5 + 0.7) / 2.0);
    }

    #[test]
    fn signals_are_stale_after_the_threshold() {
        let mut service = TestService::idle(1);
        service.now = Micros(1_000_000);
        let mut detector = Utilization { queue_depth: 5.0, kv_utilization: 0.8, staleness: Some(Micros(200)) };
        let view = service.view();
        let read_at = view.now - view.staleness.load;
        assert_eq!(detector.steady_until(&view), read_at + Micros(200));
        let stale = ClusterView {
            now: read_at + Micros(201),
            staleness: crate::policy::Staleness { load: Micros(201), ..view.staleness },
            ..view
        };
        assert_eq!((detector.saturation(&stale), detector.steady_until(&stale)), (1.0, Micros::MAX));
    }
}
