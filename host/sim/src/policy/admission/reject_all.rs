//! The admission policy `reject-all`.

use crate::policy::{AdmissionDecision, AdmissionPolicy, ClusterView, Reads, Reason, RequestView};

/// Rejects every request. It is a bad policy on purpose: evaluations must rank it last.
#[derive(Clone, Copy, Debug, Default)]
pub struct RejectAll;

impl AdmissionPolicy for RejectAll {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn admit(&mut self, _: &RequestView<'_>, _: &ClusterView<'_>) -> AdmissionDecision {
        AdmissionDecision::Reject(Reason::RejectAll)
    }

    fn fork(&self) -> Box<dyn AdmissionPolicy> {
        Box::new(*self)
    }
}
