//! The admission policy `always-admit`.

use crate::policy::{AdmissionDecision, AdmissionPolicy, ClusterView, Reads, RequestView};

/// Admits every request at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysAdmit;

impl AdmissionPolicy for AlwaysAdmit {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn admit(&mut self, _: &RequestView<'_>, _: &ClusterView<'_>) -> AdmissionDecision {
        AdmissionDecision::Admit
    }

    fn fork(&self) -> Box<dyn AdmissionPolicy> {
        Box::new(*self)
    }
}
