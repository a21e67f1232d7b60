//! The replicas of an autoscaled service: figures for the JSON document, and lines of the summary.

use blis_sim::replica::{GroupReport, PoolReport, ReplicaReport, ReplicaState};
use blis_sim::units::Micros;
use serde::Serialize;

/// Replicas of an autoscaled service. A replica holds its GPUs in every state but scheduling.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplicasDocument {
    /// End of these figures: the last event, or the horizon.
    end_s: f64,
    /// Replicas that held GPUs, averaged over time. Unit: replicas.
    mean: f64,
    /// Most replicas that held GPUs at the same time. Unit: replicas.
    peak: u32,
    /// Time of all replicas by state.
    replica_s: ReplicaTimes,
    /// GPUs of a replica times the time in which they were held, from the start to `end_s`.
    gpu_hours: f64,
    /// Replicas that were started, without those at the start. Unit: replicas.
    started: u32,
    /// Replicas that were removed. Unit: replicas.
    removed: u32,
    /// Changes of the number of replicas. Unit: changes.
    scale_events: usize,
    /// Changes in the opposite direction of the one before, less than ten minutes after it. Unit: changes.
    flaps: usize,
    /// Numbers of replicas by state, at every change.
    timeline: Vec<ReplicaCounts>,
    /// Each group, with `--group`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<ReplicaGroupDocument>,
    /// Each node pool, with `--node-pool`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    node_pools: Vec<NodePoolDocument>,
}

/// The replicas of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct ReplicaGroupDocument {
    /// Model, GPU and parallelism, as [`GroupName`] has them.
    #[serde(flatten)]
    name: GroupName,
    /// Replicas that held GPUs, averaged over time. Unit: replicas.
    mean: f64,
    /// Most replicas that held GPUs at the same time. Unit: replicas.
    peak: u32,
    /// Time of all replicas by state.
    replica_s: ReplicaTimes,
    /// GPUs of a replica times the time in which they were held, from the start to `end_s`.
    gpu_hours: f64,
    /// Replicas that were started, without those at the start. Unit: replicas.
    started: u32,
    /// Replicas that were removed. Unit: replicas.
    removed: u32,
}

/// What distinguishes a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupName {
    /// What its replicas do; absent without roles. One of `prefill`, `decode`, `both`, `encode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Short name of the model.
    pub model: String,
    /// Name of the GPU.
    pub hardware: String,
    /// GPUs of a replica. Unit: GPUs.
    pub gpus_per_replica: u32,
}

/// The nodes of a pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct NodePoolDocument {
    /// Name, GPU and size, as [`PoolName`] has them.
    #[serde(flatten)]
    name: PoolName,
    /// Time of all nodes together, from the request of each to its removal.
    node_hours: f64,
    /// Most nodes at the same time. Unit: nodes.
    peak: u32,
    /// Nodes beyond the smallest number. Unit: nodes.
    requested: u32,
    /// Price of a node; `null` without one. Unit: $/h.
    usd_per_node_hour: Option<f64>,
}

/// What distinguishes a node pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolName {
    /// Name in the settings.
    pub name: String,
    /// Name of the GPU.
    pub hardware: String,
    /// GPUs of a node. Unit: GPUs.
    pub gpus_per_node: u32,
}

/// Replica-time in each state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct ReplicaTimes {
    /// Waiting for GPUs. Unit: s.
    scheduling: f64,
    /// Process, weights, compilation. Unit: s.
    loading: f64,
    /// Capture of CUDA graphs. Unit: s.
    warming: f64,
    /// Serving requests. Unit: s.
    active: f64,
    /// Finishing requests, without new ones. Unit: s.
    draining: f64,
}

/// Numbers of replicas by state, from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct ReplicaCounts {
    /// From this time on.
    at_s: f64,
    /// Waiting for GPUs. Unit: replicas.
    scheduling: u32,
    /// Process, weights, compilation. Unit: replicas.
    loading: u32,
    /// Capture of CUDA graphs. Unit: replicas.
    warming: u32,
    /// Serving requests. Unit: replicas.
    active: u32,
    /// Finishing requests, without new ones. Unit: replicas.
    draining: u32,
}

impl ReplicasDocument {
    /// The figures of `report`, summed over its groups, which have these `names`, as its node pools have `pools`.
    #[must_use]
    pub fn new(report: &ReplicaReport, names: &[GroupName], pools: &[PoolName]) -> Self {
        let groups = || report.groups.iter();
        let time_in = |state: ReplicaState| groups().map(|group| group.time_in[state.index()]).sum();
        let numbers = 0..report.groups.len();
        Self {
            end_s: report.end.as_secs_f64(),
            mean: numbers.clone().map(|group| report.mean(group)).sum(),
            peak: peak(report),
            replica_s: ReplicaTimes::new(time_in),
            gpu_hours: groups().map(GroupReport::gpu_hours).sum(),
            started: groups().map(|group| group.started).sum(),
            removed: groups().map(|group| group.removed).sum(),
            scale_events: report.changes.len(),
            flaps: numbers.map(|group| report.flaps(group)).sum(),
            timeline: report.timeline.iter().map(|(at, groups)| entry(*at, groups)).collect(),
            groups: if names.len() < 2 { Vec::new() } else { group_documents(report, names) },
            node_pools: report.pools.iter().zip(pools).map(|(pool, name)| NodePoolDocument::new(pool, name)).collect(),
        }
    }

    /// The lines of the summary: their names and texts.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let ReplicaTimes { scheduling, .. } = self.replica_s;
        let held = format!(
            "{:.2} mean, {} peak, {:.3} GPU-hours; {} started, {} removed",
            self.mean, self.peak, self.gpu_hours, self.started, self.removed
        );
        let waited = if scheduling > 0.0 { format!(", {scheduling:.1} s waiting for GPUs") } else { String::new() };
        let (events, flaps) = (self.scale_events, self.flaps);
        let (event, flap) = (if events == 1 { "" } else { "s" }, if flaps == 1 { "" } else { "s" });
        let scaling = format!("{events} change{event}, {flaps} flap{flap} within 10 min{waited}");
        let pools = self.node_pools.iter().map(|pool| ("Nodes", pool.line()));
        [("Replicas", held), ("Scaling", scaling)].into_iter().chain(pools).collect()
    }
}

impl NodePoolDocument {
    fn new(report: &PoolReport, name: &PoolName) -> Self {
        Self {
            name: name.clone(),
            node_hours: report.node_hours(),
            peak: report.peak,
            requested: report.requested,
            usd_per_node_hour: report.node_price,
        }
    }

    fn line(&self) -> String {
        let Self { name: PoolName { name, hardware, gpus_per_node }, node_hours, peak, requested, .. } = self;
        format!(
            "{name}: {peak} peak of {gpus_per_node} × {hardware} each, {node_hours:.3} node-hours; {requested} requested"
        )
    }
}

impl ReplicaTimes {
    fn new(time_in: impl Fn(ReplicaState) -> Micros) -> Self {
        let seconds = |state| time_in(state).as_secs_f64();
        Self {
            scheduling: seconds(ReplicaState::Scheduling),
            loading: seconds(ReplicaState::Loading),
            warming: seconds(ReplicaState::Warming),
            active: seconds(ReplicaState::Active),
            draining: seconds(ReplicaState::Draining),
        }
    }
}

fn group_documents(report: &ReplicaReport, names: &[GroupName]) -> Vec<ReplicaGroupDocument> {
    let groups = report.groups.iter().zip(names).enumerate();
    let document = |(index, (group, name)): (usize, (&GroupReport, &GroupName))| ReplicaGroupDocument {
        name: name.clone(),
        mean: report.mean(index),
        peak: group.peak,
        replica_s: ReplicaTimes::new(|state| group.time_in[state.index()]),
        gpu_hours: group.gpu_hours(),
        started: group.started,
        removed: group.removed,
    };
    groups.map(document).collect()
}

/// Most replicas of all groups together that held GPUs at the same time.
fn peak(report: &ReplicaReport) -> u32 {
    let held = |counts: &[u32; 5]| -> u32 {
        let states = ReplicaState::ALL.into_iter().filter(|state| state.holds_gpus());
        states.map(|state| counts[state.index()]).sum()
    };
    let all = report.timeline.iter().map(|(_, groups)| groups.iter().map(held).sum());
    all.max().unwrap_or(0)
}

fn entry(at: Micros, groups: &[[u32; 5]]) -> ReplicaCounts {
    let count = |state: ReplicaState| groups.iter().map(|counts| counts[state.index()]).sum();
    ReplicaCounts {
        at_s: at.as_secs_f64(),
        scheduling: count(ReplicaState::Scheduling),
        loading: count(ReplicaState::Loading),
        warming: count(ReplicaState::Warming),
        active: count(ReplicaState::Active),
        draining: count(ReplicaState::Draining),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_sim::replica::ReplicaChange;

    #[test]
    fn figures_are_sums_over_groups() {
        let hours = |h: u64| Micros(h * 3_600_000_000);
        let group = |gpus, time_in| GroupReport { time_in, peak: 2, started: 1, removed: 1, gpus, gpu_price: None };
        let changes = [(1, 1, 2), (2, 2, 1)].map(|(at, from, to)| ReplicaChange { at: Micros(at), group: 0, from, to });
        let report = ReplicaReport {
            end: hours(10),
            groups: vec![
                group(2, [hours(1), hours(2), hours(0), hours(10), hours(3)]),
                group(4, [hours(0), hours(0), hours(0), hours(5), hours(0)]),
            ],
            timeline: vec![
                (Micros::ZERO, vec![[0, 0, 0, 1, 0], [0, 0, 0, 1, 0]]),
                (hours(5), vec![[1, 2, 0, 1, 0], [0, 0, 0, 0, 0]]),
            ],
            changes: changes.to_vec(),
            pools: vec![PoolReport { node_time: hours(12), peak: 2, requested: 1, node_price: Some(20.0) }],
        };
        let name = |hardware: &str, gpus_per_replica| GroupName {
            role: None,
            model: "m".to_owned(),
            hardware: hardware.to_owned(),
            gpus_per_replica,
        };
        let pool = PoolName { name: "a".to_owned(), hardware: "H100".to_owned(), gpus_per_node: 8 };
        let document = ReplicasDocument::new(&report, &[name("A100-SXM", 2), name("H100", 4)], &[pool]);
        assert_eq!((document.mean, document.peak, document.gpu_hours), (2.0, 3, 50.0));
        assert_eq!((document.started, document.removed, document.scale_events, document.flaps), (2, 2, 2, 1));
        assert_eq!(document.replica_s.active, 15.0 * 3600.0);
        let second = &document.groups[1];
        assert_eq!((second.name.hardware.as_str(), second.mean, second.gpu_hours), ("H100", 0.5, 20.0));
        let last = document.timeline[1];
        assert_eq!((last.at_s, last.scheduling, last.loading, last.active), (18_000.0, 1, 2, 1));
        assert_eq!(
            document.lines().into_iter().map(|(_, text)| text).collect::<Vec<_>>(),
            [
                "2.00 mean, 3 peak, 50.000 GPU-hours; 2 started, 2 removed",
                "2 changes, 1 flap within 10 min, 3600.0 s waiting for GPUs",
                "a: 2 peak of 8 × H100 each, 12.000 node-hours; 1 requested",
            ]
        );
    }
}
