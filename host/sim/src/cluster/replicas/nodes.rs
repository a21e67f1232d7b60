//! Nodes with GPUs: where replicas are placed, and when nodes come and go.
//!
//! A replica takes the first node with enough free GPUs, in the order of pools and nodes (first fit). One that needs more
//! GPUs than a node has takes whole nodes, all at the same time (a gang). A replica that finds no room waits, and nodes are
//! requested for it, as by the cluster autoscaler of Kubernetes; a node that was empty for ten minutes is removed.

use crate::replica::PoolReport;
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
pub(super) type Placement = Vec<(usize, u32, u32)>;

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

#[derive(Clone, Copy, Debug)]
struct PoolNode {
    number: u32,
    free: u32,
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

    /// Allocates so many `gpus` for a replica at `now` in one of the pools `allowed`, the first that has room.
    pub fn allocate(&mut self, now: Micros, gpus: u32, allowed: &[usize]) -> Option<Placement> {
        let (pool, nodes) = allowed.iter().find_map(|&pool| Some((pool, self.pools[pool].room(gpus, now)?)))?;
        let per_node = gpus.min(self.pools[pool].settings.gpus);
        let mut left = gpus;
        let take = |number| {
            let taken = per_node.min(left);
            left -= taken;
            let node = self.pools[pool].node(number);
            node.empty_since = None;
            // A gang has its nodes for itself.
            let held = if gpus > per_node { node.free } else { taken };
            node.free -= held;
            (pool, number, held)
        };
        Some(nodes.into_iter().map(take).collect())
    }

    /// As [`Self::allocate`] before the start, when nodes need not be provisioned.
    pub fn allocate_initial(&mut self, gpus: u32, allowed: &[usize]) -> Option<Placement> {
        if let Some(placement) = self.allocate(Micros::ZERO, gpus, allowed) {
            return Some(placement);
        }
        let (pool, missing) = self.missing(gpus, allowed)?;
        self.pools[pool].add(missing, Micros::ZERO);
        self.count(Micros::ZERO);
        self.allocate(Micros::ZERO, gpus, allowed)
    }

    /// A replica no longer holds its GPUs.
    pub fn release(&mut self, now: Micros, placement: &Placement) {
        for &(pool, number, gpus) in placement {
            let all = self.pools[pool].settings.gpus;
            let node = self.pools[pool].node(number);
            node.free += gpus;
            node.empty_since = (node.free == all).then_some(now);
        }
    }

    /// Requests nodes for the replicas that wait, given by their GPUs and pools, unless they fit those that come. Returns
    /// whether a node can be used at once.
    pub fn request(&mut self, now: Micros, waiting: &[(u32, &[usize])]) -> bool {
        let mut coming = self.clone();
        let mut at_once = false;
        for &(gpus, allowed) in waiting {
            if coming.allocate(Micros::MAX, gpus, allowed).is_some() {
                continue;
            }
            let Some((pool, missing)) = coming.missing(gpus, allowed) else { continue };
            let ready = now.saturating_add(self.pools[pool].settings.provisioning);
            at_once |= ready == now;
            self.pools[pool].add(missing, ready);
            coming.pools[pool].add(missing, ready);
            coming.allocate(Micros::MAX, gpus, allowed);
        }
        self.count(now);
        at_once
    }

    /// The first pool that may have enough nodes for a replica with so many `gpus`, and how many are missing.
    fn missing(&self, gpus: u32, allowed: &[usize]) -> Option<(usize, u32)> {
        allowed.iter().find_map(|&pool| Some((pool, self.pools[pool].missing(gpus)?)))
    }

    /// Time after `now` at which a node becomes ready or is removed next; [`Micros::MAX`] if there is none.
    pub fn next_event(&self, now: Micros) -> Micros {
        let nodes = self.pools.iter().flat_map(|pool| pool.nodes.iter().map(|node| pool.next_event(node, now)));
        nodes.min().unwrap_or(Micros::MAX)
    }

    /// Removes the nodes that have been empty for long enough.
    pub fn remove_empty(&mut self, now: Micros) {
        for pool in &mut self.pools {
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
        let counts: Vec<u32> = self.pools.iter().map(|pool| pool.nodes.len() as u32).collect();
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
    /// The nodes, ready at `now`, that have room for a replica with so many `gpus`.
    fn room(&self, gpus: u32, now: Micros) -> Option<Vec<u32>> {
        let needed = gpus.div_ceil(self.settings.gpus) as usize;
        let fitting: Vec<u32> = self.fitting(gpus, now).take(needed).collect();
        (fitting.len() == needed).then_some(fitting)
    }

    /// The nodes, ready at `now`, with enough free GPUs for a part of such a replica: all of them if it needs several.
    fn fitting(&self, gpus: u32, now: Micros) -> impl Iterator<Item = u32> {
        let needed = gpus.min(self.settings.gpus);
        self.nodes.iter().filter(move |node| node.ready <= now && node.free >= needed).map(|node| node.number)
    }

    /// Number of nodes that are missing for a replica with so many `gpus`; `None` if there may not be as many.
    fn missing(&self, gpus: u32) -> Option<u32> {
        let missing = gpus.div_ceil(self.settings.gpus) - self.fitting(gpus, Micros::MAX).count() as u32;
        (self.nodes.len() as u32 + missing <= self.settings.max).then_some(missing)
    }

    fn add(&mut self, nodes: u32, ready: Micros) {
        let node = PoolNode { number: 0, free: self.settings.gpus, ready, empty_since: Some(ready) };
        self.nodes.extend((0..nodes).map(|i| PoolNode { number: self.created + i, ..node }));
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

    #[test]
    fn replicas_take_the_first_node_with_room() {
        let mut nodes = Nodes::new(vec![pool(4, 2, 2), pool(8, 1, 1)]);
        assert_eq!(nodes.allocate(Micros(0), 3, &[0, 1]), Some(vec![(0, 0, 3)]));
        assert_eq!(nodes.allocate(Micros(0), 2, &[0, 1]), Some(vec![(0, 1, 2)]));
        let first = nodes.allocate(Micros(0), 1, &[0, 1]);
        assert_eq!(first, Some(vec![(0, 0, 1)]));
        assert_eq!(nodes.allocate(Micros(0), 3, &[0, 1]), Some(vec![(1, 0, 3)]), "the first pool has no room");
        assert_eq!(nodes.allocate(Micros(0), 3, &[0]), None, "and no other is allowed");
        nodes.release(Micros(5), &first.expect("it was placed"));
        assert_eq!(nodes.allocate(Micros(5), 1, &[0, 1]), Some(vec![(0, 0, 1)]));
    }

    #[test]
    fn a_gang_takes_whole_nodes_at_once() {
        let mut nodes = Nodes::new(vec![pool(8, 2, 4)]);
        let small = nodes.allocate(Micros(0), 1, &[0]).expect("there is room");
        assert_eq!(nodes.allocate(Micros(0), 16, &[0]), None, "one node is not empty");
        assert!(!nodes.request(Micros(10), &[(16, &[0])]));
        assert_eq!(nodes.next_event(Micros(10)), Micros(110), "one more is requested");
        assert_eq!(nodes.allocate(Micros(109), 16, &[0]), None);
        assert_eq!(
            nodes.allocate(Micros(110), 12, &[0]),
            Some(vec![(0, 1, 8), (0, 2, 8)]),
            "what is left of a node stays free"
        );
        nodes.release(Micros(200), &small);
        assert_eq!(nodes.allocate(Micros(200), 16, &[0]), None);
        assert!(!nodes.request(Micros(200), &[(16, &[0]), (16, &[0])]));
        assert_eq!(nodes.allocate(Micros(300), 16, &[0]), Some(vec![(0, 0, 8), (0, 3, 8)]), "a fourth, and no fifth");
        assert_eq!(nodes.finish(Micros(300))[0].requested, 2);
    }

    /// Regression: a replica waited for ever for a node that came at once.
    #[test]
    fn a_node_without_provisioning_can_be_used_at_once() {
        let mut nodes = Nodes::new(vec![NodePool { provisioning: Micros::ZERO, ..pool(2, 0, 1) }]);
        assert_eq!(nodes.allocate(Micros(7), 2, &[0]), None);
        assert!(nodes.request(Micros(7), &[(2, &[0])]));
        assert_eq!(nodes.allocate(Micros(7), 2, &[0]), Some(vec![(0, 0, 2)]));
    }

    #[test]
    fn nodes_are_requested_once_and_removed_when_they_were_empty_for_long() {
        let mut nodes = Nodes::new(vec![pool(2, 1, 3)]);
        let first = nodes.allocate(Micros(0), 2, &[0]).expect("there is room");
        for at in [0, 50] {
            assert!(!nodes.request(Micros(at), &[(1, &[0]), (1, &[0]), (2, &[0]), (1, &[0])]));
        }
        assert_eq!(nodes.next_event(Micros(50)), Micros(100), "two nodes, and no fourth");
        let second = nodes.allocate(Micros(100), 2, &[0]).expect("it is ready");
        nodes.release(Micros(300), &second);
        assert_eq!(nodes.next_event(Micros(300)), Micros(700), "the other one has been empty since it was ready");
        nodes.remove_empty(Micros(700));
        assert_eq!(nodes.next_event(Micros(700)), Micros(900));
        nodes.remove_empty(Micros(900));
        nodes.release(Micros(1000), &first);
        assert_eq!(nodes.next_event(Micros(1000)), Micros::MAX, "the last one stays");
        let report = nodes.finish(Micros(1000));
        let node_time = Micros(1000 + 700 + 900);
        assert_eq!(report, [PoolReport { node_time, peak: 3, requested: 2, node_price: None }]);
        assert_eq!(nodes.finish(Micros(800))[0].node_time, Micros(800 + 700 + 800));
    }
}
