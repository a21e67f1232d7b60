//! What replicas cost: their states, the time in each of them, and the changes of their number.

use crate::ids::InstanceIndex;
use crate::units::Micros;

/// The states of a replica, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplicaState {
    /// It waits for GPUs.
    Scheduling,
    /// It has its GPUs; process, weights and compilation are not ready.
    Loading,
    /// It warms up.
    Warming,
    /// It serves requests.
    Active,
    /// It finishes its requests and gets no others.
    Draining,
}

impl ReplicaState {
    /// All states, in their order.
    pub const ALL: [Self; 5] = [Self::Scheduling, Self::Loading, Self::Warming, Self::Active, Self::Draining];

    /// Index in [`Self::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its number in [`blis_abi::Replica::state`]; a replica that drains is no longer shown.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Whether a replica in this state holds GPUs.
    #[must_use]
    pub const fn holds_gpus(self) -> bool {
        !matches!(self, Self::Scheduling)
    }
}

/// A replica changed its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaEvent {
    /// Time of the change.
    pub at: Micros,
    /// Number of the replica, from 0, in the order in which they were created.
    pub replica: u32,
    /// Index of its group.
    pub group: usize,
    /// Its instance, once it is or was active.
    pub instance: Option<InstanceIndex>,
    /// Its new state; `None` if it is gone.
    pub state: Option<ReplicaState>,
}

/// Two changes in opposite directions within this time are a flap.
pub const FLAP_WINDOW: Micros = Micros(600_000_000);

/// The replicas of a simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplicaReport {
    /// End of the figures: the horizon, or the last event if that is earlier.
    pub end: Micros,
    /// The figures of each group.
    pub groups: Vec<GroupReport>,
    /// For each group the number of replicas in each state ([`ReplicaState::ALL`]) from a time on, in order of time.
    pub timeline: Vec<(Micros, Vec<[u32; 5]>)>,
    /// Changes of the number of replicas, in order of time.
    pub changes: Vec<ReplicaChange>,
    /// The figures of each node pool; empty if GPUs are not limited.
    pub pools: Vec<PoolReport>,
}

/// The replicas of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupReport {
    /// Replica-time in each state ([`ReplicaState::ALL`]). Times GPUs per replica, all but the first are the GPU-time.
    pub time_in: [Micros; 5],
    /// Most replicas that held GPUs at the same time.
    pub peak: u32,
    /// Replicas that were started, without the initial ones.
    pub started: u32,
    /// Replicas that were removed.
    pub removed: u32,
    /// GPUs of a replica.
    pub gpus: u32,
    /// Price of a GPU, dollars per hour; `None` without a price list.
    pub gpu_price: Option<f64>,
}

/// The nodes of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoolReport {
    /// Time of all nodes together, from the request of each to its removal.
    pub node_time: Micros,
    /// Most nodes at the same time.
    pub peak: u32,
    /// Nodes beyond the smallest number that were requested, or there from the start for the initial replicas.
    pub requested: u32,
    /// Price of a node, dollars per hour; `None` without one.
    pub node_price: Option<f64>,
}

impl PoolReport {
    /// Time of all nodes together, hours.
    #[must_use]
    pub fn node_hours(&self) -> f64 {
        self.node_time.as_secs_f64() / 3600.0
    }
}

/// A change of the number of replicas of a group, without those that drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaChange {
    /// Time of the change.
    pub at: Micros,
    /// Index of the group.
    pub group: usize,
    /// Number before.
    pub from: u32,
    /// Number after.
    pub to: u32,
}

impl GroupReport {
    /// Time during which GPUs were held, summed over GPUs, hours.
    #[must_use]
    pub fn gpu_hours(&self) -> f64 {
        self.provisioned().as_secs_f64() * f64::from(self.gpus) / 3600.0
    }

    /// Time during which replicas held their GPUs, summed over replicas.
    #[must_use]
    pub fn provisioned(&self) -> Micros {
        let held = ReplicaState::ALL.into_iter().filter(|state| state.holds_gpus());
        held.map(|state| self.time_in[state.index()]).sum()
    }
}

impl ReplicaReport {
    /// Price of all groups, dollars: of the nodes if each pool has a price, for as long as they were there, else of the
    /// GPUs for as long as they were held. `None` without prices.
    #[must_use]
    pub fn dollars(&self) -> Option<f64> {
        match self.priced_node_hours() {
            Some(_) => self.pools.iter().map(|pool| Some(pool.node_hours() * pool.node_price?)).sum(),
            None => self.groups.iter().map(|group| Some(group.gpu_hours() * group.gpu_price?)).sum(),
        }
    }

    /// Time of all nodes, hours; `None` unless there are pools and all of them have a price.
    #[must_use]
    pub fn priced_node_hours(&self) -> Option<f64> {
        let priced = !self.pools.is_empty() && self.pools.iter().all(|pool| pool.node_price.is_some());
        priced.then(|| self.pools.iter().map(PoolReport::node_hours).sum())
    }

    /// Mean number of replicas of `group` that held GPUs; 0 for a simulation without duration.
    #[must_use]
    pub fn mean(&self, group: usize) -> f64 {
        if self.end == Micros::ZERO {
            return 0.0;
        }
        self.groups[group].provisioned().0 as f64 / self.end.0 as f64
    }

    /// Changes of the number of replicas of `group`.
    pub fn changes_of(&self, group: usize) -> impl Iterator<Item = &ReplicaChange> {
        self.changes.iter().filter(move |change| change.group == group)
    }

    /// Number of changes of `group` in the opposite direction of the one before, less than [`FLAP_WINDOW`] after it.
    #[must_use]
    pub fn flaps(&self, group: usize) -> usize {
        let pairs = self.changes_of(group).zip(self.changes_of(group).skip(1));
        pairs
            .filter(|(one, next)| (one.to > one.from) != (next.to > next.from) && next.at - one.at < FLAP_WINDOW)
            .count()
    }

    /// Ends the figures at `end`.
    pub(crate) fn finish(&mut self, end: Micros) {
        self.end = end;
        self.timeline.retain(|&(at, _)| at <= end);
        let next = self.timeline.iter().map(|&(at, _)| at).skip(1).chain([end]);
        for ((at, counts), next) in self.timeline.iter().zip(next) {
            for (group, counts) in self.groups.iter_mut().zip(counts) {
                for (time, &count) in group.time_in.iter_mut().zip(counts) {
                    *time += Micros((next - *at).0.saturating_mul(count.into()));
                }
            }
        }
    }

    /// Records the numbers of replicas from `now` on.
    pub(crate) fn counts(&mut self, now: Micros, counts: &[[u32; 5]]) {
        for (group, counts) in self.groups.iter_mut().zip(counts) {
            let held = ReplicaState::ALL.into_iter().filter(|state| state.holds_gpus());
            group.peak = group.peak.max(held.map(|state| counts[state.index()]).sum());
        }
        match self.timeline.last_mut() {
            Some((at, last)) if *at == now => last.copy_from_slice(counts),
            Some((_, last)) if last == counts => {}
            _ => self.timeline.push((now, counts.to_vec())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(seconds: u64, from: u32, to: u32) -> ReplicaChange {
        ReplicaChange { at: Micros(seconds * 1_000_000), group: 0, from, to }
    }

    #[test]
    fn a_flap_is_a_change_back_within_ten_minutes() {
        let changes =
            vec![change(0, 1, 3), change(599, 3, 2), change(700, 2, 1), change(1300, 1, 2), change(1301, 2, 1)];
        let report = ReplicaReport { groups: vec![GroupReport::default()], changes, ..ReplicaReport::default() };
        assert_eq!(report.flaps(0), 2, "down after 599 s, and down after 1 s; up after 600 s is none");
        assert_eq!(report.changes_of(1).count(), 0);
    }

    #[test]
    fn nodes_with_prices_cost_as_long_as_they_are_there() {
        let hours = |hours: u64| Micros(hours * 3_600_000_000);
        let time_in = [hours(9), hours(1), hours(0), hours(2), hours(0)];
        let group = GroupReport { time_in, gpus: 2, gpu_price: Some(1.5), ..GroupReport::default() };
        let pool = |node_price| PoolReport { node_time: hours(4), node_price, ..PoolReport::default() };
        let dollars = |pools| ReplicaReport { groups: vec![group], pools, ..ReplicaReport::default() }.dollars();
        assert_eq!(dollars(Vec::new()), Some(9.0), "three hours of two GPUs");
        assert_eq!(dollars(vec![pool(Some(20.0)), pool(Some(10.0))]), Some(120.0), "the GPUs are in the price");
        assert_eq!(dollars(vec![pool(None)]), Some(9.0));
        let free = GroupReport { gpu_price: None, ..group };
        assert_eq!(ReplicaReport { groups: vec![free], ..ReplicaReport::default() }.dollars(), None);
    }

    #[test]
    fn the_mean_is_of_replicas_with_gpus() {
        let time_in = [Micros(500), Micros(10), Micros(20), Micros(100), Micros(70)];
        let groups = vec![GroupReport { time_in, ..GroupReport::default() }];
        let mut report = ReplicaReport { end: Micros(100), groups, ..ReplicaReport::default() };
        assert_eq!((report.groups[0].provisioned(), report.mean(0)), (Micros(200), 2.0));
        report.counts(Micros(1), &[[1, 0, 0, 2, 1]]);
        report.counts(Micros(1), &[[0, 1, 0, 2, 1]]);
        report.counts(Micros(5), &[[0, 1, 0, 2, 1]]);
        assert_eq!(report.timeline, [(Micros(1), vec![[0, 1, 0, 2, 1]])], "the same time, then the same numbers");
        assert_eq!(report.groups[0].peak, 4);
        assert_eq!(ReplicaReport { end: Micros::ZERO, ..report }.mean(0), 0.0);
    }
}
