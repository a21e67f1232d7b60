//! What a step computed, for observers that look at single steps.

use crate::units::Micros;

/// What one step did: the observable part of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepRecord {
    /// When it started.
    pub now: Micros,
    /// When it ends.
    pub end: Micros,
    /// Requests in the wait queue after planning.
    pub waiting: u32,
    /// Requests in the batch after planning.
    pub running: u32,
    /// (request, tokens computed, context before) in batch order; only those that compute.
    pub scheduled: Vec<(u32, u32, u32)>,
    /// Requests thrown out, in the order in which it happened.
    pub preempted: Vec<u32>,
    /// Requests that left the batch at the end, in batch order.
    pub finished: Vec<u32>,
    /// Free KV blocks after planning.
    pub free_blocks_planned: u32,
    /// Free KV blocks after the step.
    pub free_blocks: u32,
}
