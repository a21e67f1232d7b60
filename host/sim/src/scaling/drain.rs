//! Which replica is removed when a group has too many.

use std::cmp::Reverse;
use std::fmt::Debug;

use crate::policy::Reads;
use crate::replica::ReplicaState;
use crate::request::Name;
use crate::scaling::{ReplicaLimits, ReplicaView};
use crate::units::Micros;

/// Chooses the replica that is removed. An active one drains: it finishes its requests and gets no others; one that starts
/// is gone at once.
pub trait DrainPolicy: Debug + Send {
    /// What it reads of [`DrainCandidate::load`] beyond what instances know themselves: `in_flight`, `tokens`. Called once.
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    /// Whether it may remove a replica that does not serve yet; if not, the view has only active ones.
    fn removes_starting(&self) -> bool {
        true
    }

    /// The index of a replica of the view, which has at least one. Called for each replica that is removed, after the one
    /// before has left the view.
    fn drain(&mut self, view: &DrainView<'_>) -> usize;

    /// A copy of the policy with the same state.
    fn fork(&self) -> Box<dyn DrainPolicy>;
}

/// What a policy sees when a replica is removed.
#[derive(Clone, Copy, Debug)]
pub struct DrainView<'a> {
    /// Time of the removal.
    pub now: Micros,
    /// The group that has too many replicas.
    pub group: ReplicaGroupView,
    /// Its replicas, without those that drain, in the order in which they were created; never empty.
    pub replicas: &'a [DrainCandidate],
}

/// The group of a decision about one of its replicas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplicaGroupView {
    /// Its index, in the order of declaration.
    pub index: usize,
    /// The model that it serves.
    pub model: Name,
    /// GPUs of a replica.
    pub gpus: u32,
    /// Price of a GPU, dollars per hour; `None` without a price list.
    pub price: Option<f64>,
    /// Fewest and most replicas.
    pub limits: ReplicaLimits,
    /// Number of replicas that it is to have, without those that drain.
    pub replicas: u32,
}

/// A replica that may be removed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DrainCandidate {
    /// Number of the replica, from 0, in the order in which all replicas were created.
    pub replica: u32,
    /// Its state: any but [`ReplicaState::Draining`].
    pub state: ReplicaState,
    /// Time at which it was created.
    pub created_at: Micros,
    /// Time at which it became active; `None` while it starts.
    pub active_since: Option<Micros>,
    /// Its instance and the load of that; `None` unless it is active.
    pub load: Option<ReplicaView>,
    /// Its node, the first of several; `None` while it waits for GPUs, and without node pools.
    pub node: Option<NodeId>,
    /// Replicas of any group on its node, itself included, without those that drain; of several nodes the largest number; 0
    /// without a node.
    pub on_node: u32,
    /// Of these, the replicas of its group.
    pub group_on_node: u32,
}

/// A node: the index of its pool, and its number there, from 0, which belongs to no other node, before or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId {
    /// Index of the pool.
    pub pool: usize,
    /// Number of the node.
    pub number: u32,
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
fn stage(candidate: &DrainCandidate) -> u8 {
    match candidate.state {
        ReplicaState::Scheduling => 0,
        ReplicaState::Loading | ReplicaState::Warming => 1,
        ReplicaState::Active | ReplicaState::Draining => 2,
    }
}

/// The index of the candidate with the smallest rank within the first stage that has any; the newest of several.
fn first_by<R: Ord>(view: &DrainView<'_>, rank: impl Fn(&DrainCandidate) -> R) -> usize {
    let newest_first = view.replicas.iter().enumerate().rev();
    newest_first.min_by_key(|(_, candidate)| (stage(candidate), rank(candidate))).map_or(0, |(index, _)| index)
}

impl DrainPolicy for Newest {
    fn drain(&mut self, view: &DrainView<'_>) -> usize {
        first_by(view, |_| ())
    }

    fn fork(&self) -> Box<dyn DrainPolicy> {
        Box::new(*self)
    }
}

impl DrainPolicy for Emptiest {
    fn drain(&mut self, view: &DrainView<'_>) -> usize {
        first_by(view, |candidate| {
            candidate.load.map_or(0, |load| u64::from(load.queue_depth) + u64::from(load.batch_size))
        })
    }

    fn fork(&self) -> Box<dyn DrainPolicy> {
        Box::new(*self)
    }
}

impl DrainPolicy for Kubernetes {
    fn drain(&mut self, view: &DrainView<'_>) -> usize {
        first_by(view, |candidate| (Reverse(candidate.group_on_node), Reverse(candidate.active_since)))
    }

    fn fork(&self) -> Box<dyn DrainPolicy> {
        Box::new(*self)
    }
}

impl DrainPolicy for EmptiestNode {
    fn drain(&mut self, view: &DrainView<'_>) -> usize {
        first_by(view, |candidate| candidate.on_node)
    }

    fn fork(&self) -> Box<dyn DrainPolicy> {
        Box::new(*self)
    }
}

impl DrainPolicy for ByName {
    fn removes_starting(&self) -> bool {
        false
    }

    fn drain(&mut self, view: &DrainView<'_>) -> usize {
        first_by(view, |candidate| match candidate.replica.checked_sub(self.initial) {
            Some(added) => (false, format!("{added:06}")),
            None => (true, candidate.replica.to_string()),
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
    use crate::ids::InstanceIndex;

    /// Five active replicas: requests, replicas on the node (of any group, of its own), and seconds since they are active.
    fn service(rows: &[(u32, u32, u32, u64)]) -> Vec<DrainCandidate> {
        let row =
            |(index, &(requests, on_node, group_on_node, since)): (usize, &(u32, u32, u32, u64))| DrainCandidate {
                replica: index as u32,
                state: ReplicaState::Active,
                created_at: Micros(index as u64),
                active_since: Some(Micros(since)),
                load: Some(ReplicaView {
                    instance: InstanceIndex(index as u32),
                    queue_depth: requests / 2,
                    batch_size: requests - requests / 2,
                    ..ReplicaView::default()
                }),
                node: (on_node > 0).then_some(NodeId { pool: 0, number: 0 }),
                on_node,
                group_on_node,
            };
        rows.iter().enumerate().map(row).collect()
    }

    fn drained(policy: &mut dyn DrainPolicy, replicas: &[DrainCandidate]) -> usize {
        let group = ReplicaGroupView {
            index: 0,
            model: Name::NONE,
            gpus: 1,
            price: None,
            limits: ReplicaLimits { min: 0, max: 8 },
            replicas: 1,
        };
        policy.drain(&DrainView { now: Micros(100), group, replicas })
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
        let all: [fn(&[DrainCandidate]) -> usize; 4] = [
            |replicas| drained(&mut Newest, replicas),
            |replicas| drained(&mut Emptiest, replicas),
            |replicas| drained(&mut Kubernetes, replicas),
            |replicas| drained(&mut EmptiestNode, replicas),
        ];
        (replicas[1].state, replicas[1].active_since) = (ReplicaState::Warming, None);
        assert_eq!(all.map(|drained| drained(&replicas)), [1; 4], "it starts, whatever the others do");
        (replicas[2].state, replicas[2].active_since) = (ReplicaState::Scheduling, None);
        assert_eq!(all.map(|drained| drained(&replicas)), [2; 4], "it has no GPU");
    }
}
