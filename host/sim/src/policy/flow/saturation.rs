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

/// Requests in flight over the number that the instances take (llm-d's `concurrency-detector`).
#[derive(Clone, Copy, Debug)]
pub struct Concurrency {
    /// Requests in flight with which an instance is full, > 0.
    pub max_concurrency: f64,
}

impl SaturationPolicy for Concurrency {
    fn reads(&self) -> Reads {
        Reads { in_flight: true, ..Reads::NOTHING }
    }

    fn saturation(&mut self, cluster: &ClusterView<'_>) -> f64 {
        if cluster.is_empty() {
            return 1.0;
        }
        let in_flight: u64 = cluster.signals.in_flight.iter().map(|&count| u64::from(count)).sum();
        in_flight as f64 / (cluster.len() as f64 * self.max_concurrency)
    }

    fn steady_until(&self, _cluster: &ClusterView<'_>) -> Micros {
        Micros::MAX
    }

    fn fork(&self) -> Box<dyn SaturationPolicy> {
        Box::new(*self)
    }
}
