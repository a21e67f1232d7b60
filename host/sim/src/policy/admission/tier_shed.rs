//! The admission policy `tier-shed`.

use crate::policy::{AdmissionDecision, AdmissionPolicy, ClusterView, Reads, Reason, RequestView};

/// Admits only classes of high priority while any instance is loaded.
#[derive(Clone, Copy, Debug)]
pub struct TierShed {
    threshold: u64,
    min_priority: i32,
}

impl TierShed {
    /// While the load of any instance ([`ClusterView::effective_load`]) is above `threshold`, only classes of priority
    /// `min_priority` or higher are admitted.
    #[must_use]
    pub fn new(threshold: u64, min_priority: i32) -> Self {
        Self { threshold, min_priority }
    }
}

impl AdmissionPolicy for TierShed {
    fn reads(&self) -> Reads {
        Reads { load: true, in_flight: true, ..Reads::NOTHING }
    }

    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> AdmissionDecision {
        if request.class_priority >= self.min_priority {
            return AdmissionDecision::Admit;
        }
        let load = (0..cluster.len()).map(|i| cluster.effective_load(i)).max().unwrap_or(0);
        if load <= self.threshold {
            return AdmissionDecision::Admit;
        }
        let (class, priority, min) = (request.tags.slo_class, request.class_priority, self.min_priority);
        AdmissionDecision::Reject(Reason::TierShed { class, priority, min, load })
    }

    fn fork(&self) -> Box<dyn AdmissionPolicy> {
        Box::new(*self)
    }
}
