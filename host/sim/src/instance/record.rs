//! The record of a step, for observers of single steps.

use crate::ids::RequestId;
use crate::outcome::PrefixCacheCounters;
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
    /// Pages held after planning, per KV group; empty where all layers cache every token.
    pub held_pages: Vec<u32>,
    /// Free KV blocks after the step.
    pub free_blocks: u32,
}

/// The load that an instance reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstanceLoad {
    /// Requests in the waiting queue, without those between arrival and queue.
    pub queue_depth: u32,
    /// Requests in the running batch, including those that keep their slot for one more plan (asynchronous scheduling).
    pub batch_size: u32,
    /// KV blocks held by requests.
    pub used_kv_blocks: u32,
    /// All usable KV blocks.
    pub total_kv_blocks: u32,
    /// Number of preemptions since the start.
    pub preemptions: u64,
    /// What requests found in the prefix cache since the start.
    pub prefix_cache: PrefixCacheCounters,
}
