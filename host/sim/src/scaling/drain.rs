//! Which replica is removed when a group has too many.

use std::cmp::Reverse;
use std::fmt::Debug;

pub use blis_abi::{DrainGroup, Replica};

use blis_abi::Node;

use crate::policy::Reads;
use crate::replica::ReplicaState;

/// Chooses the replica that is removed. An active one drains: it finishes its requests and gets no others; one that starts
/// is gone at once.
pub trait DrainPolicy: Debug + Send {
    /// What it reads of [`Replica`]s beyond what instances know themselves: `in_flight`, `tokens`. Called once.
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    /// Whether it may remove a replica that does not serve yet; if not, it sees only active ones.
    fn removes_starting(&self) -> bool {
        true
    }

    /// The index of a replica of `replicas`: those of `group`, which has too many, without those that drain, in the order in which
    /// they were created; never empty. Called for each replica that is removed, after the one before has left.
    fn drain(&mut self, group: &DrainGroup, replicas: &[Replica]) -> usize;

    /// A copy of the policy with the same state.
    fn fork(&self) -> Box<dyn DrainPolicy>;
}

/// A node: the index of its pool, and its number there, from 0, which belongs to no other node, before or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId {
    /// Index of the pool.
    pub pool: usize,
    /// Number of the node.
    pub number: u32,
}

impl From<&Node> for NodeId {
    fn from(node: &Node) -> Self {
        Self { pool: node.pool as usize, number: node.node }
    }
}

/// The newest; those that wait for GPUs first, then those that start.
#[derive(Clone, Copy, Debug)]
pub struct Newest;

/// Those that wait for GPUs first, then those that start, then the one with the fewest requests waiting and running; the
/// newest of several.
#[derive(Clone, Copy, Debug)]
pub struct Emptiest;

/// The order of Kubernetes' ReplicaSet controller (`ActivePodsWithRanks` in `pkg/controller/controller_utils.go`, v1.34): those
/// that wait for GPUs first, then those that start; of the others one on the node with the most replicas of the group, then
/// the one that has been active for the shortest time. Kubernetes compares these times by their logarithms and draws lots
/// among equal ones (`LogarithmicScaleDown`), here they are compared as they are.
#[derive(Clone, Copy, Debug)]
pub struct Kubernetes;

/// Those that wait for GPUs first, then those that start, then one on the node with the fewest replicas of any group, so
/// that the node is empty soon and can be removed; the newest of several.
#[derive(Clone, Copy, Debug)]
pub struct EmptiestNode;

/// BLIS: the active one of the first name in the order of text, `instance_10` before `instance_2`, and those that were
/// added (`autoscale-…`) before those of the start.
#[derive(Clone, Copy, Debug)]
pub struct ByName {
    /// Number of replicas at the start.
    pub initial: u32,
}

/// The rank of a state: those that do no work yet are removed first.
fn stage(replica: &Replica) -> u8 {
    match ReplicaState::ALL[replica.state as usize] {
        ReplicaState::Scheduling => 0,
        ReplicaState::Loading | ReplicaState::Warming => 1,
        ReplicaState::Active | ReplicaState::Draining => 2,
    }
}

/// The index of the replica with the smallest rank within the first stage that has any; the newest of several.
fn first_by<R: Ord>(replicas: &[Replica], rank: impl Fn(&Replica) -> R) -> usize {
    let newest_first = replicas.iter().enumerate().rev();
    newest_first.min_by_key(|(_, replica)| (stage(replica), rank(replica))).map_or(0, |(index, _)| index)
}

impl DrainPolicy for Newest {
    fn drain(&mut self, _group: &DrainGroup, replicas: &[Replica]) -> usize {
        first_by(replicas, |_| ())
    }

    fn fork(&self) -> Box<dyn DrainPolicy> {
        Box::new(*self)
    }
}

impl DrainPolicy for Emptiest {
    fn drain(&mut self, _group: &DrainGroup, replicas: &[Replica]) -> usize {
        first_by(replicas, |replica| u64::from(replica.queue_depth) + u64::from(replica.batch_size))
    }

    fn fork(&self) -> Box<dyn DrainPolicy> {
        Box::new(*self)
    }
}

impl DrainPolicy for Kubernetes {
    fn drain(&mut self, _group: &DrainGroup, replicas: &[Replica]) -> usize {
        first_by(replicas, |replica| (Reverse(replica.group_on_node), Reverse(replica.active_since())))
    }

    fn fork(&self) -> Box<dyn DrainPolicy> {
        Box::new(*self)
    }
}

impl DrainPolicy for EmptiestNode {
    fn drain(&mut self, _group: &DrainGroup, replicas: &[Replica]) -> usize {
        first_by(replicas, |replica| replica.on_node)
    }

    fn fork(&self) -> Box<dyn DrainPolicy> {
        Box::new(*self)
    }
}

impl DrainPolicy for ByName {
    fn removes_starting(&self) -> bool {
        false
    }

    fn drain(&mut self, _group: &DrainGroup, replicas: &[Replica]) -> usize {
        first_by(replicas, |replica| match replica.id.checked_sub(self.initial) {
            Some(added) => (false, format!("{added:06}")),
            None => (true, replica.id.to_string()),
        })
    }

    fn fork(&self) -> Box<dyn DrainPolicy> {
        Box::new(*self)
    }
}

impl Clone for Box<dyn DrainPolicy> {
    fn clone(&self) -> Self {
        self.fork()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five active replicas: requests, replicas on the node (of any group, of its own), and seconds since they are active.
    fn service(rows: &[(u32, u32, u32, u64)]) -> Vec<Replica> {
        let row = |(index, &(requests, on_node, group_on_node, since)): (usize, &(u32, u32, u32, u64))| Replica {
            created_us: index as u64,
            active_since_us: since,
            id: index as u32,
            state: ReplicaState::Active.number(),
            instance: index as u32,
            queue_depth: requests / 2,
            batch_size: requests - requests / 2,
            on_node,
            group_on_node,
            ..Replica::default()
        };
        rows.iter().enumerate().map(row).collect()
    }

    fn drained(policy: &mut dyn DrainPolicy, replicas: &[Replica]) -> usize {
        policy.drain(&DrainGroup::default(), replicas)
    }

    #[test]
    fn each_policy_has_its_order() {
        let replicas = service(&[(4, 1, 1, 9), (2, 3, 2, 5), (7, 3, 1, 8), (2, 3, 2, 7), (9, 2, 1, 6)]);
        assert_eq!(drained(&mut Newest, &replicas), 4);
        assert_eq!(drained(&mut Emptiest, &replicas), 3, "the newest of those with two requests");
        assert_eq!(drained(&mut Kubernetes, &replicas), 3, "of the two that share a node, active for 7 and not for 5");
        assert_eq!(drained(&mut EmptiestNode, &replicas), 0);
    }

    #[test]
    fn those_that_do_no_work_come_first() {
        let mut replicas = service(&[(0, 1, 1, 9), (9, 3, 3, 5), (7, 3, 3, 8), (2, 3, 3, 7)]);
        let all: [fn(&[Replica]) -> usize; 4] = [
            |replicas| drained(&mut Newest, replicas),
            |replicas| drained(&mut Emptiest, replicas),
            |replicas| drained(&mut Kubernetes, replicas),
            |replicas| drained(&mut EmptiestNode, replicas),
        ];
        (replicas[1].state, replicas[1].active_since_us) = (ReplicaState::Warming.number(), u64::MAX);
        assert_eq!(all.map(|drained| drained(&replicas)), [1; 4], "it starts, whatever the others do");
        (replicas[2].state, replicas[2].active_since_us) = (ReplicaState::Scheduling.number(), u64::MAX);
        assert_eq!(all.map(|drained| drained(&replicas)), [2; 4], "it has no GPU");
    }
}
