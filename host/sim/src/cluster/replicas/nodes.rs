//! Nodes with GPUs: which have room for a replica, and when nodes come and go.
//!
//! A replica takes a node with enough free GPUs, which the placement policy chooses. One that needs more GPUs than a node
//! has takes whole nodes, all at the same time (a gang). A replica that finds no room waits, and nodes are requested for
//! it, as by the cluster autoscaler of Kubernetes, which counts with the first node that has room; a node that was empty for
//! ten minutes is removed.

use crate::numbers::count;
use crate::replica::PoolReport;
use crate::scaling::{Node, NodeId};
use crate::units::Micros;

/// Nodes of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodePool {
    /// GPUs of a node, ≥ 1.
    pub gpus: u32,
    /// Nodes that are always there.
    pub min: u32,
    /// Most nodes, ≥ `min`.
    pub max: u32,
    /// Time from the request of a node until it can be used.
    pub provisioning: Micros,
    /// Time without replicas after which a node is removed ([`EMPTY_NODE_DELAY`]).
    pub empty_delay: Micros,
    /// Price of a node, dollars per hour; `None` without a price list.
    pub price: Option<f64>,
}

/// Default of the cluster autoscaler of Kubernetes (`--scale-down-unneeded-time`): 10 minutes.
pub const EMPTY_NODE_DELAY: Micros = Micros(600_000_000);

/// The GPUs of a replica: (pool, number of the node, GPUs).
pub(super) type HeldGpus = Vec<(usize, u32, u32)>;

/// What a replica needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct GpuDemand<'a> {
    /// Index of its group.
    pub group: usize,
    /// Number of GPUs.
    pub gpus: u32,
    /// The pools in which it may be, the preferred one first.
    pub pools: &'a [usize],
}

/// The nodes during a simulation.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    pools: Vec<Pool>,
    /// Number of nodes by pool from a time on, those that are provisioned included.
    timeline: Vec<(Micros, Vec<u32>)>,
}

#[derive(Clone, Debug)]
struct Pool {
    settings: NodePool,
    nodes: Vec<PoolNode>,
    /// Number of nodes so far.
    created: u32,
    peak: u32,
}

#[derive(Clone, Debug)]
struct PoolNode {
    number: u32,
    free: u32,
    /// The groups of the replicas on it.
    groups: Vec<usize>,
    /// Time at which it can be used.
    ready: Micros,
    /// Since when it has no replica; its time of removal follows from it.
    empty_since: Option<Micros>,
}

impl Nodes {
    /// Pools with their smallest number of nodes.
    pub fn new(pools: Vec<NodePool>) -> Self {
        let empty = |settings| Pool { settings, nodes: Vec::new(), created: 0, peak: 0 };
        let mut nodes = Self { pools: pools.into_iter().map(empty).collect(), timeline: Vec::new() };
        for pool in &mut nodes.pools {
            pool.add(pool.settings.min, Micros::ZERO);
        }
        nodes.count(Micros::ZERO);
        nodes
    }

    /// Whether GPUs are limited at all.
    pub fn are_limited(&self) -> bool {
        !self.pools.is_empty()
    }

    /// The nodes that have room for a replica, in the order of its pools and of their nodes.
    pub fn with_room(&self, demand: &GpuDemand<'_>) -> Vec<Node> {
        demand.pools.iter().flat_map(|&pool| self.pools[pool].with_room(pool, demand)).collect()
    }

    /// Allocates the GPUs of a replica at `now`, on `chosen`, which is ready, and if that does not suffice on the first other
    /// nodes of its pool that have room.
    pub fn take(&mut self, now: Micros, demand: &GpuDemand<'_>, chosen: NodeId) -> HeldGpus {
        let pool = &mut self.pools[chosen.pool];
        let per_node = demand.gpus.min(pool.settings.gpus);
        let others = pool.fitting(demand.gpus).filter(|node| node.ready <= now && node.number != chosen.number);
        let others = others.take(demand.gpus.div_ceil(pool.settings.gpus) as usize - 1).map(|node| node.number);
        let nodes: Vec<u32> = std::iter::once(chosen.number).chain(others).collect();
        let mut left = demand.gpus;
        let take = |number| {
            let taken = per_node.min(left);
            left -= taken;
            let node = pool.node(number);
            node.empty_since = None;
            node.groups.push(demand.group);
            // A gang has its nodes for itself.
            let held = if demand.gpus > per_node { node.free } else { taken };
            node.free -= held;
            (chosen.pool, number, held)
        };
        nodes.into_iter().map(take).collect()
    }

    /// Allocates the GPUs of a replica at `now` on the first node that is ready.
    fn take_first(&mut self, now: Micros, demand: &GpuDemand<'_>) -> bool {
        let first = self.with_room(demand).into_iter().find(|node| node.ready_us <= now.0);
        first.map(|node| self.take(now, demand, NodeId::from(&node))).is_some()
    }

    /// Adds the nodes that are missing for a replica before the start, when they need not be provisioned.
    pub fn add_initial(&mut self, demand: &GpuDemand<'_>) {
        if self.with_room(demand).is_empty()
            && let Some((pool, missing)) = self.missing(demand)
        {
            self.pools[pool].add(missing, Micros::ZERO);
            self.count(Micros::ZERO);
        }
    }

    /// A replica of `group` no longer holds its GPUs.
    pub fn release(&mut self, now: Micros, group: usize, placement: &HeldGpus) {
        for &(pool, number, gpus) in placement {
            let all = self.pools[pool].settings.gpus;
            let node = self.pools[pool].node(number);
            node.free += gpus;
            node.groups.iter().position(|&other| other == group).map(|index| node.groups.remove(index));
            node.empty_since = (node.free == all).then_some(now);
        }
    }

    /// Requests nodes for the replicas that wait, unless they fit those that are there or come. Returns whether a node can be
    /// used at once.
    pub fn request(&mut self, now: Micros, waiting: &[GpuDemand<'_>]) -> bool {
        let mut coming = self.clone();
        let mut at_once = false;
        for demand in waiting {
            if coming.take_first(Micros::MAX, demand) {
                // The replica fits a node that is there or comes: no further one is provisioned for it.
                continue;
            }
            // No pool of the replica may grow far enough: it waits until others release their GPUs.
            let Some((pool, missing)) = coming.missing(demand) else { continue };
            let ready = now.saturating_add(self.pools[pool].settings.provisioning);
            at_once |= ready == now;
            self.pools[pool].add(missing, ready);
            coming.pools[pool].add(missing, ready);
            coming.take_first(Micros::MAX, demand);
        }
        self.count(now);
        at_once
    }

    /// The first pool that may have enough nodes for a replica, and how many are missing.
    fn missing(&self, demand: &GpuDemand<'_>) -> Option<(usize, u32)> {
        demand.pools.iter().find_map(|&pool| Some((pool, self.pools[pool].missing(demand.gpus)?)))
    }

    /// Time after `now` at which a node becomes ready or is removed next; [`Micros::MAX`] if there is none.
    pub fn next_event(&self, now: Micros) -> Micros {
        let nodes = self.pools.iter().flat_map(|pool| pool.nodes.iter().map(|node| pool.next_event(node, now)));
        nodes.min().unwrap_or(Micros::MAX)
    }

    /// Removes the nodes that have been empty for long enough. A pool in which a replica is `waiting` keeps all: otherwise nodes that
    /// become ready one after the other may never be enough for a gang.
    pub fn remove_empty(&mut self, now: Micros, waiting: &[GpuDemand<'_>]) {
        for (index, pool) in self.pools.iter_mut().enumerate() {
            let may_fit = |demand: &GpuDemand<'_>| demand.gpus.div_ceil(pool.settings.gpus) <= pool.settings.max;
            if waiting.iter().any(|demand| demand.pools.contains(&index) && may_fit(demand)) {
                continue;
            }
            while pool.nodes.len() > pool.settings.min as usize
                && let Some(last) = pool.nodes.iter().rposition(|node| pool.settings.removed_at(node) <= now)
            {
                pool.nodes.remove(last);
            }
        }
        self.count(now);
    }

    /// The figures of each pool up to `end`.
    pub fn finish(&self, end: Micros) -> Vec<PoolReport> {
        let of_pool = |(index, pool): (usize, &Pool)| {
            let times = self.timeline.iter().map(|(at, _)| (*at).min(end));
            let next = times.clone().skip(1).chain([end]);
            let held = times.zip(next).zip(&self.timeline);
            let node_time =
                held.map(|((at, next), (_, counts))| Micros((next - at).0 * u64::from(counts[index]))).sum();
            PoolReport {
                node_time,
                peak: pool.peak,
                requested: pool.created - pool.settings.min,
                node_price: pool.settings.price,
            }
        };
        self.pools.iter().enumerate().map(of_pool).collect()
    }

    fn count(&mut self, now: Micros) {
        let counts: Vec<u32> = self.pools.iter().map(|pool| count(pool.nodes.len())).collect();
        for (pool, &count) in self.pools.iter_mut().zip(&counts) {
            pool.peak = pool.peak.max(count);
        }
        match self.timeline.last_mut() {
            Some((at, last)) if *at == now => *last = counts,
            Some((_, last)) if *last == counts => {}
            _ => self.timeline.push((now, counts)),
        }
    }
}

impl Pool {
    /// As [`Nodes::with_room`]; `index` is its own.
    fn with_room(&self, index: usize, demand: &GpuDemand<'_>) -> Vec<Node> {
        let needed = demand.gpus.div_ceil(self.settings.gpus) as usize;
        let mut times: Vec<Micros> = self.fitting(demand.gpus).map(|node| node.ready).collect();
        times.sort_unstable();
        // A gang starts when its last node is ready.
        let Some(&all_ready) = times.get(needed - 1) else { return Vec::new() };
        let view = |node: &PoolNode| {
            let (replicas, group_replicas) = node.replicas(demand.group);
            Node {
                ready_us: node.ready.max(all_ready).0,
                price: self.settings.price.unwrap_or(0.0),
                pool: count(index),
                node: node.number,
                gpus: self.settings.gpus,
                free_gpus: node.free,
                replicas,
                group_replicas,
            }
        };
        self.fitting(demand.gpus).map(view).collect()
    }

    /// The nodes with enough free GPUs for a replica with so many `gpus`, or for a part of it: all of them if it needs
    /// several nodes.
    fn fitting(&self, gpus: u32) -> impl Iterator<Item = &PoolNode> {
        let needed = gpus.min(self.settings.gpus);
        self.nodes.iter().filter(move |node| node.free >= needed)
    }

    /// Number of nodes that are missing for a replica with so many `gpus`; `None` if there may not be as many.
    fn missing(&self, gpus: u32) -> Option<u32> {
        let missing = gpus.div_ceil(self.settings.gpus) - count(self.fitting(gpus).count());
        (count(self.nodes.len()) + missing <= self.settings.max).then_some(missing)
    }

    fn add(&mut self, nodes: u32, ready: Micros) {
        let free = self.settings.gpus;
        let node = |number| PoolNode { number, free, groups: Vec::new(), ready, empty_since: Some(ready) };
        self.nodes.extend((self.created..self.created + nodes).map(node));
        self.created += nodes;
    }

    fn node(&mut self, number: u32) -> &mut PoolNode {
        let found = self.nodes.iter_mut().find(|node| node.number == number);
        found.expect("a node with replicas is not removed")
    }

    /// As [`Nodes::next_event`], of one node.
    fn next_event(&self, node: &PoolNode, now: Micros) -> Micros {
        let removed =
            if self.nodes.len() > self.settings.min as usize { self.settings.removed_at(node) } else { Micros::MAX };
        let events = [node.ready, removed].into_iter().filter(|&at| at > now);
        events.min().unwrap_or(Micros::MAX)
    }
}

impl PoolNode {
    /// Number of replicas on it, and of those of `group`.
    fn replicas(&self, group: usize) -> (u32, u32) {
        let own = self.groups.iter().filter(|&&other| other == group);
        (count(self.groups.len()), count(own.count()))
    }
}

impl NodePool {
    fn removed_at(&self, node: &PoolNode) -> Micros {
        node.empty_since.map_or(Micros::MAX, |since| since.saturating_add(self.empty_delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(gpus: u32, min: u32, max: u32) -> NodePool {
        NodePool { gpus, min, max, provisioning: Micros(100), empty_delay: Micros(600), price: None }
    }

    fn demand(gpus: u32, pools: &[usize]) -> GpuDemand<'_> {
        GpuDemand { group: 0, gpus, pools }
    }

    /// The GPUs of a replica that takes the first node which is ready at `now`.
    fn take_ready(nodes: &mut Nodes, now: u64, gpus: u32, pools: &[usize]) -> Option<HeldGpus> {
        let demand = demand(gpus, pools);
        let first = nodes.with_room(&demand).into_iter().find(|node| node.ready_us <= now)?;
        Some(nodes.take(Micros(now), &demand, NodeId::from(&first)))
    }

    #[test]
    fn nodes_with_room_are_in_the_order_of_pools() {
        let mut nodes = Nodes::new(vec![pool(4, 2, 2), pool(8, 1, 1)]);
        assert_eq!(take_ready(&mut nodes, 0, 3, &[0, 1]), Some(vec![(0, 0, 3)]));
        assert_eq!(take_ready(&mut nodes, 0, 2, &[0, 1]), Some(vec![(0, 1, 2)]));
        let first = take_ready(&mut nodes, 0, 1, &[0, 1]);
        assert_eq!(first, Some(vec![(0, 0, 1)]));
        assert_eq!(take_ready(&mut nodes, 0, 3, &[0, 1]), Some(vec![(1, 0, 3)]), "the first pool has no room");
        assert_eq!(take_ready(&mut nodes, 0, 3, &[0]), None, "and no other is allowed");
        nodes.release(Micros(5), 0, &first.expect("it was placed"));
        let room: Vec<_> =
            nodes.with_room(&demand(1, &[1, 0])).iter().map(|node| (node.pool, node.free_gpus)).collect();
        assert_eq!(room, [(1, 5), (0, 1), (0, 2)], "the preferred pool first");
        assert_eq!(take_ready(&mut nodes, 5, 1, &[0, 1]), Some(vec![(0, 0, 1)]));
    }

    #[test]
    fn nodes_count_their_replicas() {
        let mut nodes = Nodes::new(vec![pool(8, 2, 2)]);
        let one = GpuDemand { group: 1, ..demand(2, &[0]) };
        let second = NodeId { pool: 0, number: 1 };
        let placement = nodes.take(Micros(0), &one, second);
        nodes.take(Micros(0), &demand(4, &[0]), second);
        let counts = |nodes: &Nodes, demand| {
            let rows = nodes.with_room(&demand).into_iter();
            rows.map(|node| (node.node, node.replicas, node.group_replicas)).collect::<Vec<_>>()
        };
        assert_eq!(counts(&nodes, one), [(0, 0, 0), (1, 2, 1)]);
        nodes.release(Micros(5), 1, &placement);
        assert_eq!(counts(&nodes, demand(1, &[0])), [(0, 0, 0), (1, 1, 1)]);
        assert_eq!(counts(&nodes, demand(8, &[0])), [(0, 0, 0)], "the other one has no room");
    }

    #[test]
    fn a_gang_takes_whole_nodes_at_once() {
        let mut nodes = Nodes::new(vec![pool(8, 2, 4)]);
        let small = take_ready(&mut nodes, 0, 1, &[0]).expect("there is room");
        assert_eq!(take_ready(&mut nodes, 0, 16, &[0]), None, "one node is not empty");
        assert!(!nodes.request(Micros(10), &[demand(16, &[0])]));
        assert_eq!(nodes.next_event(Micros(10)), Micros(110), "one more is requested");
        let times: Vec<_> = nodes.with_room(&demand(16, &[0])).iter().map(|node| Micros(node.ready_us)).collect();
        assert_eq!(times, [Micros(110); 2], "with the other one, which is ready");
        assert_eq!(take_ready(&mut nodes, 109, 16, &[0]), None);
        let last = NodeId { pool: 0, number: 2 };
        let chosen = nodes.clone().take(Micros(110), &demand(16, &[0]), last);
        assert_eq!(chosen, vec![(0, 2, 8), (0, 1, 8)], "the chosen one, and the first other");
        assert_eq!(
            take_ready(&mut nodes, 110, 12, &[0]),
            Some(vec![(0, 1, 8), (0, 2, 8)]),
            "what is left of a node stays free"
        );
        nodes.release(Micros(200), 0, &small);
        assert_eq!(take_ready(&mut nodes, 200, 16, &[0]), None);
        assert!(!nodes.request(Micros(200), &[demand(16, &[0]), demand(16, &[0])]));
        assert_eq!(take_ready(&mut nodes, 300, 16, &[0]), Some(vec![(0, 0, 8), (0, 3, 8)]), "a fourth, and no fifth");
        assert_eq!(nodes.finish(Micros(300))[0].requested, 2);
    }

    /// Regression: a replica waited for ever for a node that came at once.
    #[test]
    fn a_node_without_provisioning_can_be_used_at_once() {
        let mut nodes = Nodes::new(vec![NodePool { provisioning: Micros::ZERO, ..pool(2, 0, 1) }]);
        assert_eq!(take_ready(&mut nodes, 7, 2, &[0]), None);
        assert!(nodes.request(Micros(7), &[demand(2, &[0])]));
        assert_eq!(take_ready(&mut nodes, 7, 2, &[0]), Some(vec![(0, 0, 2)]));
    }

    /// Regression: a replica of two nodes waited for ever, because the first one was removed before the second one was ready.
    #[test]
    fn empty_nodes_stay_while_a_replica_waits_for_more() {
        let mut nodes = Nodes::new(vec![pool(2, 0, 3)]);
        let gang = demand(4, &[0]);
        nodes.request(Micros::ZERO, &[demand(2, &[0])]);
        nodes.request(Micros(90), &[gang]);
        nodes.remove_empty(Micros(100_000), &[gang]);
        assert_eq!(take_ready(&mut nodes, 100_000, 4, &[0]).map(|held| held.len()), Some(2));
    }

    #[test]
    fn nodes_are_requested_once_and_removed_when_they_were_empty_for_long() {
        let mut nodes = Nodes::new(vec![pool(2, 1, 3)]);
        let first = take_ready(&mut nodes, 0, 2, &[0]).expect("there is room");
        for at in [0, 50] {
            assert!(!nodes.request(Micros(at), &[demand(1, &[0]), demand(1, &[0]), demand(2, &[0]), demand(1, &[0])]));
        }
        assert_eq!(nodes.next_event(Micros(50)), Micros(100), "two nodes, and no fourth");
        let second = take_ready(&mut nodes, 100, 2, &[0]).expect("it is ready");
        nodes.release(Micros(300), 0, &second);
        assert_eq!(nodes.next_event(Micros(300)), Micros(700), "the other one has been empty since it was ready");
        nodes.remove_empty(Micros(700), &[]);
        assert_eq!(nodes.next_event(Micros(700)), Micros(900));
        nodes.remove_empty(Micros(900), &[]);
        nodes.release(Micros(1000), 0, &first);
        assert_eq!(nodes.next_event(Micros(1000)), Micros::MAX, "the last one stays");
        let report = nodes.finish(Micros(1000));
        let node_time = Micros(1000 + 700 + 900);
        assert_eq!(report, [PoolReport { node_time, peak: 3, requested: 2, node_price: None }]);
        assert_eq!(nodes.finish(Micros(800))[0].node_time, Micros(800 + 700 + 800));
    }
}
