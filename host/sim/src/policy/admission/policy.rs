//! What an admission policy is.

use std::fmt::Debug;

use crate::policy::{ClusterView, Event, Events, Reads, Reason, RequestView};

/// Decides whether a request is admitted to the service.
pub trait AdmissionPolicy: Debug + Send {
    /// The signals that it reads. Called once.
    fn reads(&self) -> Reads;

    /// Decides whether `request` is admitted.
    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> AdmissionDecision;

    /// The events that it receives. Called once.
    fn events(&self) -> Events {
        Events::NONE
    }

    /// Receives an event of [`Self::events`].
    fn observe(&mut self, event: &Event) {
        let _ = event;
    }

    /// A copy of the policy with the same state.
    fn fork(&self) -> Box<dyn AdmissionPolicy>;
}

/// The result of an admission policy.
#[derive(Clone, Debug, PartialEq)]
pub enum AdmissionDecision {
    /// The request continues to routing.
    Admit,
    /// The request is rejected, with the reason.
    Reject(Reason),
}
