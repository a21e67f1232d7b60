//! The admission policy `probabilistic`.

use rand::RngExt as _;

use super::positive;
use crate::policy::flow::{SaturationPolicy as _, Utilization};
use crate::policy::{AdmissionDecision, AdmissionPolicy, ClusterView, Reads, Reason, RequestView};
use crate::rng::Stream;

/// Classes that may be shed are rejected with a probability that grows with the saturation, long before the service is full
/// (llm-d's `probabilistic-admitter`, found by evolution with BLIS): p = min(k · S^n, 1), with S as in
/// [`GaieLegacy`](super::GaieLegacy).
#[derive(Clone, Copy, Debug)]
pub struct Probabilistic {
    factor: f64,
    power: f64,
    saturation: Utilization,
    stream: Stream,
}

impl Probabilistic {
    /// p = `factor` · S^`power`; an instance is full with `queue_depth` requests waiting, or with the share
    /// `kv_utilization` of its KV blocks used. `stream`: of the draws, one for each request.
    ///
    /// # Errors
    /// A message if one of them is out of range: all > 0, `kv_utilization` ≤ 1.
    pub fn new(factor: f64, power: f64, queue_depth: f64, kv_utilization: f64, stream: Stream) -> Result<Self, String> {
        positive("the factor of probabilistic", factor)?;
        positive("the power of probabilistic", power)?;
        positive("the queue depth of probabilistic", queue_depth)?;
        positive("the KV utilization of probabilistic", kv_utilization)?;
        let saturation = Utilization { queue_depth, kv_utilization, staleness: None };
        Ok(Self { factor, power, saturation, stream })
    }
}

impl AdmissionPolicy for Probabilistic {
    fn reads(&self) -> Reads {
        self.saturation.reads()
    }

    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> AdmissionDecision {
        // Without instances there is nothing that could be full.
        if request.class_priority >= 0 || cluster.is_empty() {
            return AdmissionDecision::Admit;
        }
        let saturation = self.saturation.saturation(cluster);
        let rejected = self.factor * libm::pow(saturation, self.power);
        let draw: f64 = self.stream.at(u64::from(request.id.0)).random();
        if draw >= rejected {
            return AdmissionDecision::Admit;
        }
        AdmissionDecision::Reject(Reason::Probabilistic {
            class: request.tags.slo_class,
            probability: rejected.min(1.0),
        })
    }

    fn fork(&self) -> Box<dyn AdmissionPolicy> {
        Box::new(*self)
    }
}
