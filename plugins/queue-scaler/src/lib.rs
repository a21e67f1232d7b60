//! Built-in policies of autoscaling as a component: the autoscaler `queue` (requests in the gateway's queue, and running
//! requests, by the formula of Kubernetes' HorizontalPodAutoscaler), the drain policy `emptiest`, the placement policy `best-fit`.
//!
//! Runs with it have the results of the built-ins, byte for byte. `queue.rhai`, `emptiest.rhai` and `best-fit.rhai` in
//! `examples/built-ins` are the same as scripts.

use std::cmp::Reverse;

use blis_sdk::{
    Description, Drain, DrainGroup, Group, Node, Placement, Policy, Replica, Scaling, Setup, StartingReplica,
};
use serde::{Deserialize, Serialize};

/// The parameters, as of the built-in.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct QueueScaler {
    queued: f64,
    running: f64,
    tolerance: f64,
}

impl Policy for QueueScaler {
    type Signals = ();

    fn describe() -> Description {
        Description::new("rust-queue-scaler")
            .version(env!("CARGO_PKG_VERSION"))
            .about("The autoscaler queue, the drain policy emptiest and the placement policy best-fit.")
            .parameter("queued", 1.0, 0.001..=1e6, "Queued requests for one replica")
            .parameter("running", 16.0, 0.001..=1e6, "Running requests for one replica")
            .parameter(
                "tolerance",
                0.1,
                0.0..=10.0,
                "Share by which a signal may differ from its target without a change",
            )
    }

    fn new(setup: &Setup) -> Result<Self, String> {
        Ok(Self {
            queued: setup.parameter("queued"),
            running: setup.parameter("running"),
            tolerance: setup.parameter("tolerance"),
        })
    }
}

impl Scaling for QueueScaler {
    fn scale(&mut self, _: u64, groups: &[Group], _: &[Group], replicas: &mut Vec<f64>) {
        replicas.extend(groups.iter().map(|group| {
            let by_queued = self.desired(group.queued, self.queued, group.replicas);
            by_queued.max(self.desired(group.batch_size, self.running, group.replicas))
        }));
    }
}

/// State of a replica that serves.
const ACTIVE: u32 = 3;

impl Drain for QueueScaler {
    fn drain(&mut self, _: &DrainGroup, replicas: &[Replica]) -> usize {
        // Those that wait for GPUs, then those that start, then by requests; the newest of several.
        let rank = |replica: &Replica| {
            let stage = if replica.state == ACTIVE { 2 } else { replica.state.min(1) };
            (stage, u64::from(replica.queue_depth) + u64::from(replica.batch_size))
        };
        let all = replicas.iter().enumerate();
        all.min_by_key(|&(index, replica)| (rank(replica), Reverse(index))).map_or(0, |(index, _)| index)
    }
}

impl Placement for QueueScaler {
    fn placement(&mut self, replica: &StartingReplica, nodes: &[Node]) -> Option<usize> {
        let ready = nodes.iter().enumerate().filter(|(_, node)| node.ready_us <= replica.now_us);
        ready.min_by_key(|(_, node)| node.free_gpus).map(|(index, _)| index)
    }
}

impl QueueScaler {
    /// The replicas for `total` requests of which one replica has `target`: `current` ones if that is within the tolerance.
    /// Numbers cross to the HorizontalPodAutoscaler as thousandths.
    fn desired(self, total: u32, target: f64, current: u32) -> f64 {
        let (total, target) = (f64::from(total) * 1000.0, (target * 1000.0).round());
        let ratio = total / (target * f64::from(current));
        if current > 0 && 1.0 - self.tolerance <= ratio && ratio <= 1.0 + self.tolerance {
            f64::from(current)
        } else {
            (total / target).ceil()
        }
    }
}

blis_sdk::export_policy!(QueueScaler: Scaling, Drain, Placement);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_number_counts() {
        let mut policy = QueueScaler { queued: 1.0, running: 16.0, tolerance: 0.1 };
        let group = |queued, batch_size| Group { queued, batch_size, replicas: 2, ..Group::default() };
        let groups = [group(0, 48), group(7, 48), group(0, 0), group(0, 35), group(0, 36)];
        let mut replicas = Vec::new();
        policy.scale(0, &groups, &[], &mut replicas);
        assert_eq!(replicas, [3.0, 7.0, 0.0, 2.0, 3.0], "35 of 32 are within a tenth, 36 are not");
    }

    #[test]
    fn the_emptiest_goes_and_the_fullest_node_takes() {
        let mut policy = QueueScaler { queued: 1.0, running: 16.0, tolerance: 0.1 };
        let replica = |state, batch_size| Replica { state, batch_size, ..Replica::default() };
        let group = DrainGroup::default();
        assert_eq!(policy.drain(&group, &[replica(3, 4), replica(3, 2), replica(3, 2), replica(3, 9)]), 2);
        assert_eq!(policy.drain(&group, &[replica(3, 0), replica(2, 0), replica(1, 0), replica(3, 0)]), 2);
        let node = |free_gpus, ready_us| Node { free_gpus, ready_us, ..Node::default() };
        let starting = StartingReplica { now_us: 10, ..StartingReplica::default() };
        assert_eq!(policy.placement(&starting, &[node(8, 0), node(2, 11), node(4, 10), node(4, 0)]), Some(2));
        assert_eq!(policy.placement(&starting, &[node(8, 11)]), None);
    }
}
