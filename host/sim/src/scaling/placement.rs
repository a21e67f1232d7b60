//! On which node a replica starts.

use std::cmp::Reverse;
use std::fmt::Debug;

use super::drain::{NodeId, ReplicaGroupView};
use crate::units::Micros;

/// Chooses the node of a replica that starts.
pub trait PlacementPolicy: Debug + Send {
    /// The index of a node of the view, of which at least one is ready, or `None`: the replica waits. It also waits if the
    /// node is not ready. Those that wait are placed anew, in the order in which they were created, whenever a replica starts
    /// or ends, and whenever a node comes or goes; nodes are requested for those for which no node has room, present or coming.
    fn choose_node(&mut self, view: &PlacementView<'_>) -> Option<usize>;

    /// A copy of the policy with the same state.
    fn fork(&self) -> Box<dyn PlacementPolicy>;
}

/// What a policy sees when a replica needs GPUs.
#[derive(Clone, Copy, Debug)]
pub struct PlacementView<'a> {
    /// Time of the decision.
    pub now: Micros,
    /// The group of the replica.
    pub group: ReplicaGroupView,
    /// Number of the replica, from 0, in the order in which all replicas were created.
    pub replica: u32,
    /// Time at which it was created: how long it has waited follows from it.
    pub created_at: Micros,
    /// The nodes of its pools that have enough free GPUs, in the order of its pools and of their nodes. A replica that needs more
    /// GPUs than a node has takes the chosen node and the first others of the pool that have room, all as a whole.
    pub nodes: &'a [NodeView],
}

/// A node that has room for a replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeView {
    /// The node.
    pub id: NodeId,
    /// GPUs of the node.
    pub gpus: u32,
    /// Of these, the free ones.
    pub free: u32,
    /// Replicas of any group on it.
    pub replicas: u32,
    /// Of these, the replicas of the group.
    pub group_replicas: u32,
    /// Price of the node, dollars per hour; `None` without a price list.
    pub price: Option<f64>,
    /// Time from which the replica can start there: `now` or before for a node that is ready, later for one that is still
    /// provisioned. Of several nodes the time of the last.
    pub ready_at: Micros,
}

/// The first node that is ready, in the order of pools and nodes.
#[derive(Clone, Copy, Debug)]
pub struct FirstFit;

/// The node with the fewest free GPUs, so that large replicas find room (bin packing); the first of several.
#[derive(Clone, Copy, Debug)]
pub struct BestFit;

/// The node with the fewest replicas of the group, then with the most free GPUs, so that the loss of a node takes few of
/// them; the first of several.
#[derive(Clone, Copy, Debug)]
pub struct Spread;

/// The index of the node with the smallest rank among those that are ready; the first of several.
fn first_by<R: Ord>(view: &PlacementView<'_>, rank: impl Fn(&NodeView) -> R) -> Option<usize> {
    let ready = view.nodes.iter().enumerate().filter(|(_, node)| node.ready_at <= view.now);
    ready.min_by_key(|(_, node)| rank(node)).map(|(index, _)| index)
}

impl PlacementPolicy for FirstFit {
    fn choose_node(&mut self, view: &PlacementView<'_>) -> Option<usize> {
        first_by(view, |_| ())
    }

    fn fork(&self) -> Box<dyn PlacementPolicy> {
        Box::new(*self)
    }
}

impl PlacementPolicy for BestFit {
    fn choose_node(&mut self, view: &PlacementView<'_>) -> Option<usize> {
        first_by(view, |node| node.free)
    }

    fn fork(&self) -> Box<dyn PlacementPolicy> {
        Box::new(*self)
    }
}

impl PlacementPolicy for Spread {
    fn choose_node(&mut self, view: &PlacementView<'_>) -> Option<usize> {
        first_by(view, |node| (node.group_replicas, Reverse(node.free)))
    }

    fn fork(&self) -> Box<dyn PlacementPolicy> {
        Box::new(*self)
    }
}

impl Clone for Box<dyn PlacementPolicy> {
    fn clone(&self) -> Self {
        self.fork()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Name;
    use crate::scaling::ReplicaLimits;

    /// The number of the node that the policy chooses of nodes with so many free GPUs, replicas of the group, and times.
    fn placed(policy: &mut dyn PlacementPolicy, nodes: &[(u32, u32, u64)]) -> Option<usize> {
        let node = |(number, &(free, group_replicas, ready_at)): (usize, &(u32, u32, u64))| NodeView {
            id: NodeId { pool: 0, number: number as u32 },
            gpus: 8,
            free,
            replicas: group_replicas,
            group_replicas,
            price: None,
            ready_at: Micros(ready_at),
        };
        let nodes: Vec<NodeView> = nodes.iter().enumerate().map(node).collect();
        let group = ReplicaGroupView {
            index: 0,
            model: Name::NONE,
            gpus: 2,
            price: None,
            limits: ReplicaLimits { min: 0, max: 8 },
            replicas: 1,
        };
        let view = PlacementView { now: Micros(100), group, replica: 0, created_at: Micros(50), nodes: &nodes };
        policy.choose_node(&view)
    }

    #[test]
    fn each_policy_has_its_node() {
        let nodes = [(8, 0, 101), (5, 1, 100), (2, 1, 0), (7, 1, 0), (2, 0, 0), (6, 0, 0)];
        assert_eq!(placed(&mut FirstFit, &nodes), Some(1), "the first is not ready");
        assert_eq!(placed(&mut BestFit, &nodes), Some(2));
        assert_eq!(placed(&mut Spread, &nodes), Some(5));
        for policy in [&mut FirstFit as &mut dyn PlacementPolicy, &mut BestFit, &mut Spread] {
            assert_eq!(placed(policy, &nodes[..1]), None, "it waits for its node");
            assert_eq!(placed(policy, &[]), None);
        }
    }
}
