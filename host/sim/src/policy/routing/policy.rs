//! What a routing policy is, and a step of one.

use std::fmt::Debug;

use super::step_memory::StepMemory;
use crate::ids::InstanceIndex;
use crate::policy::{ClusterView, Event, Events, Reads, Reason, RequestView, Ties};

/// Chooses the instance that serves a request.
pub trait RoutingPolicy: Debug + Send {
    /// The signals that it reads. Called once.
    fn reads(&self) -> Reads;

    /// Chooses among the instances of `cluster`, of which there is at least one. A policy that computes a score for
    /// every instance pushes the scores onto `scores` (empty at the call) in the order of the columns; higher is
    /// better.
    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> RoutingDecision;

    /// `request`, the request of the last call of [`Self::route`], is dispatched to `instance`: the choice of the
    /// policy, unless a counterfactual forces another. A policy that remembers its decisions records them here.
    fn dispatched(&mut self, request: &RequestView<'_>, instance: InstanceIndex) {
        let _ = (request, instance);
    }

    /// The replica `instance` is gone. Its index is never used again.
    fn removed(&mut self, instance: InstanceIndex) {
        let _ = instance;
    }

    /// The events that it receives. Called once.
    fn events(&self) -> Events {
        Events::NONE
    }

    /// Receives an event of [`Self::events`].
    fn observe(&mut self, event: &Event) {
        let _ = event;
    }

    /// A copy of the policy with the same state.
    fn fork(&self) -> Box<dyn RoutingPolicy>;
}

/// The result of a routing policy.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutingDecision {
    /// Index of the chosen instance in the columns of the view.
    pub target: usize,
    /// Why the instance was chosen, for the decision trace.
    pub reason: Reason,
}

/// A step of a routing pipeline ([`Weighted`](super::Weighted)) from outside of this crate: a scorer or a filter. It computes a number for
/// every instance: as a scorer its score, of which values below 0 count as 0 and above 1 as 1; as a filter 0 if it leaves
/// the instance out, anything else if it keeps it.
pub trait RoutingStep: Debug + Send {
    /// The signals that it reads. Called once.
    fn reads(&self) -> Reads;

    /// Replaces `numbers` by one for each instance, in the order of the columns; none is NaN. `memory` is that of the
    /// pipeline, for what its steps need alike.
    ///
    /// # Errors
    /// [`StepFailed`] if there is no result. The step has recorded why.
    fn compute(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        memory: &mut StepMemory,
        numbers: &mut Vec<f64>,
    ) -> Result<(), StepFailed>;

    /// The events that it receives. Called once.
    fn events(&self) -> Events {
        Events::NONE
    }

    /// Receives an event of [`Self::events`].
    fn observe(&mut self, event: &Event) {
        let _ = event;
    }

    /// A copy of the step with the same state.
    fn fork(&self) -> Box<dyn RoutingStep>;
}

impl Clone for Box<dyn RoutingStep> {
    fn clone(&self) -> Self {
        self.fork()
    }
}

/// A [`RoutingStep`] has no result: the least loaded instance is chosen instead, the first of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepFailed;
