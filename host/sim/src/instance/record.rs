//! The record of a step, for observers of single steps.

use crate::ids::RequestId;
use crate::units::Micros;

/// What one step computed: the observable part of its plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepRecord {
    /// Start of the step.
    pub now: Micros,
    /// End of the step.
    pub end: Micros,
    /// Requests in the waiting queue after planning.
    pub waiting: u32,
    /// Requests in the batch after planning.
    pub running: u32,
    /// (request, tokens computed, context before) in batch order; only requests that compute.
    pub scheduled: Vec<(RequestId, u32, u32)>,
    /// Preempted requests, in the order of preemption.
    pub preempted: Vec<RequestId>,
    /// Requests that finished at the end of the step, in batch order.
    pub finished: Vec<RequestId>,
    /// Free KV blocks after planning.
    pub free_blocks_planned: u32,
    /// Free KV blocks after the step.
    pub free_blocks: u32,
}
