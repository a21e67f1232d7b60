//! The state of the instances at the time of a decision.

use blis_sim::ids::InstanceIndex;
use serde::Serialize;

/// State of the instances, an entry for each; with replicas that come and go, of those that the decision was about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InstanceStates {
    /// Requests in the waiting queue. Unit: requests.
    pub queue_depth: Vec<u32>,
    /// Requests in the running batch. Unit: requests.
    pub batch_size: Vec<u32>,
    /// Requests on the way to the queue. Unit: requests.
    pub arriving: Vec<u32>,
    /// KV blocks that are free.
    pub free_kv_blocks: Vec<u32>,
    /// Leading blocks of the prompt in the prefix cache.
    pub cached_blocks: Vec<u32>,
}

impl InstanceStates {
    /// The columns of these `instances`, in their order.
    pub(super) fn only(&self, instances: &[InstanceIndex]) -> Self {
        let column = |all: &[u32]| instances.iter().filter_map(|instance| all.get(instance.index()).copied()).collect();
        Self {
            queue_depth: column(&self.queue_depth),
            batch_size: column(&self.batch_size),
            arriving: column(&self.arriving),
            free_kv_blocks: column(&self.free_kv_blocks),
            cached_blocks: column(&self.cached_blocks),
        }
    }

    /// Requests on each instance: waiting, running and arriving.
    pub(super) fn outstanding(&self) -> Vec<u32> {
        let columns = self.queue_depth.iter().zip(&self.batch_size).zip(&self.arriving);
        columns.map(|((queue, batch), arriving)| queue + batch + arriving).collect()
    }
}
