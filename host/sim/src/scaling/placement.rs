//! On which node a replica starts.

use std::cmp::Reverse;
use std::fmt::Debug;

pub use blis_abi::{Node, StartingReplica};

/// Chooses the node of a replica that starts.
pub trait PlacementPolicy: Debug + Send {
    /// The index of a node of `nodes`, of which at least one is ready, or `None`: `replica` waits. It also waits if the
    /// node is not ready. Those that wait are placed anew, in the order in which they were created, whenever a replica starts
    /// or ends, and whenever a node comes or goes; nodes are requested for those for which no node has room, present or coming.
    ///
    /// `nodes` are those of the replica's pools that have enough free GPUs, in the order of its pools and of their nodes. A replica
    /// that needs more GPUs than a node has takes the chosen node and the first others of the pool that have room, all as a whole.
    fn choose_node(&mut self, replica: &StartingReplica, nodes: &[Node]) -> Option<usize>;

    /// A copy of the policy with the same state.
    fn fork(&self) -> Box<dyn PlacementPolicy>;
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
fn first_by<R: Ord>(replica: &StartingReplica, nodes: &[Node], rank: impl Fn(&Node) -> R) -> Option<usize> {
    let ready = nodes.iter().enumerate().filter(|(_, node)| node.ready_us <= replica.now_us);
    ready.min_by_key(|(_, node)| rank(node)).map(|(index, _)| index)
}

impl PlacementPolicy for FirstFit {
    fn choose_node(&mut self, replica: &StartingReplica, nodes: &[Node]) -> Option<usize> {
        first_by(replica, nodes, |_| ())
    }

    fn fork(&self) -> Box<dyn PlacementPolicy> {
        Box::new(*self)
    }
}

impl PlacementPolicy for BestFit {
    fn choose_node(&mut self, replica: &StartingReplica, nodes: &[Node]) -> Option<usize> {
        first_by(replica, nodes, |node| node.free_gpus)
    }

    fn fork(&self) -> Box<dyn PlacementPolicy> {
        Box::new(*self)
    }
}

impl PlacementPolicy for Spread {
    fn choose_node(&mut self, replica: &StartingReplica, nodes: &[Node]) -> Option<usize> {
        first_by(replica, nodes, |node| (node.group_replicas, Reverse(node.free_gpus)))
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

    /// The number of the node that the policy chooses of nodes with so many free GPUs, replicas of the group, and times.
    fn placed(policy: &mut dyn PlacementPolicy, nodes: &[(u32, u32, u64)]) -> Option<usize> {
        let node = |(number, &(free_gpus, group_replicas, ready_us)): (usize, &(u32, u32, u64))| Node {
            ready_us,
            node: number as u32,
            gpus: 8,
            free_gpus,
            replicas: group_replicas,
            group_replicas,
            ..Node::default()
        };
        let nodes: Vec<Node> = nodes.iter().enumerate().map(node).collect();
        policy.choose_node(
            &StartingReplica { now_us: 100, created_us: 50, gpus: 2, ..StartingReplica::default() },
            &nodes,
        )
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
