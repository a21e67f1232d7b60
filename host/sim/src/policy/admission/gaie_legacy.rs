//! The admission policy `gaie-legacy`.

use super::positive;
use crate::policy::{AdmissionDecision, AdmissionPolicy, ClusterView, Reads, Reason, RequestView};

/// The rule of the Gateway API inference extension (GAIE) before flow control: classes that may be shed are rejected
/// while the service is saturated.
#[derive(Clone, Copy, Debug)]
pub struct GaieLegacy {
    queue_depth: f64,
    kv_utilization: f64,
}

impl GaieLegacy {
    /// An instance is saturated with `queue_depth` requests waiting, or with the share `kv_utilization` of its KV
    /// blocks used.
    ///
    /// # Errors
    ///
    /// A message if one of the two is out of range: `queue_depth` > 0, 0 < `kv_utilization` ≤ 1.
    pub fn new(queue_depth: f64, kv_utilization: f64) -> Result<Self, String> {
        positive("the queue depth of gaie-legacy", queue_depth)?;
        if !(kv_utilization > 0.0 && kv_utilization <= 1.0) {
            return Err(format!(
                "the KV utilization of gaie-legacy is a share of the KV blocks, above 0 and at most 1: not {kv_utilization}"
            ));
        }
        Ok(Self { queue_depth, kv_utilization })
    }

    /// Mean saturation over the instances, where 1 means saturated; 1 without instances.
    fn saturation(self, cluster: &ClusterView<'_>) -> f64 {
        if cluster.is_empty() {
            return 1.0;
        }
        let signals = cluster.signals;
        let instances = signals.queue_depth.iter().zip(&signals.kv_utilization);
        let full = instances.map(|(&q, &kv)| (f64::from(q) / self.queue_depth).max(kv / self.kv_utilization));
        full.sum::<f64>() / cluster.len() as f64
    }
}

impl AdmissionPolicy for GaieLegacy {
    fn reads(&self) -> Reads {
        Reads { load: true, ..Reads::NOTHING }
    }

    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> AdmissionDecision {
        if request.class_priority >= 0 {
            return AdmissionDecision::Admit;
        }
        let saturation = self.saturation(cluster);
        if saturation < 1.0 {
            return AdmissionDecision::Admit;
        }
        AdmissionDecision::Reject(Reason::GaieSaturated { class: request.tags.slo_class, saturation })
    }

    fn fork(&self) -> Box<dyn AdmissionPolicy> {
        Box::new(*self)
    }
}
