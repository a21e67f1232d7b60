//! The groups of a service with instances that come and go: what a replica is, and how many there are.

use super::nodes::{GpuDemand, HeldGpus, NodePool, Nodes};
use super::start::{PhaseTime, StartMode, StartTimes};
use crate::instance::InstanceConfig;
use crate::numbers::count;
use crate::request::Name;
use crate::rng::Stream;
use crate::scaling::{
    Behaviour, DrainGroup, DrainPolicy, NodeId, PlacementPolicy, ReplicaLimits, ScalingPolicy, StartingReplica,
};
use crate::units::Micros;

/// The groups of replicas of a service, and what changes their number.
#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    /// The groups. Requests for a model go to the replicas of all groups that serve it.
    pub groups: Vec<ReplicaGroup>,
    /// The nodes; empty if there are always enough GPUs.
    pub pools: Vec<NodePool>,
    /// Changes at fixed times, in order of time.
    pub scheduled: Vec<ScheduledReplicas>,
    /// The policy that sets the numbers of replicas; `None` for none.
    pub scaling: Option<ScalingLoop>,
    /// Which replica of a group is removed.
    pub drain: Box<dyn DrainPolicy>,
    /// On which node a replica starts; not read without node pools.
    pub placement: Box<dyn PlacementPolicy>,
    /// The random numbers of starts, by replica.
    pub starts: Stream,
}

/// Replicas with the same configuration.
#[derive(Clone, Debug)]
pub struct ReplicaGroup {
    /// The configuration of each replica, apart from the index.
    pub instance: InstanceConfig,
    /// Names of the model that it serves, as of `ClusterConfig::serves`. A request
    /// that names no model may go to any group.
    pub serves: Vec<Name>,
    /// Replicas that are active from the start on.
    pub initial: u32,
    /// Fewest and most replicas.
    pub limits: ReplicaLimits,
    /// GPUs of a replica, ≥ 1.
    pub gpus: u32,
    /// Indices of the node pools in which a replica may be, the preferred one first; not read without pools.
    pub pools: Vec<usize>,
    /// Price of a GPU, dollars per hour; `None` without a price list.
    pub price: Option<f64>,
    /// How long a replica takes to start.
    pub start: StartTimes,
    /// What is ready before a replica starts.
    pub mode: StartMode,
}

/// The number of replicas of a group from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledReplicas {
    /// Time of the change.
    pub at: Micros,
    /// Index of the group.
    pub group: usize,
    /// Number of replicas, without those that drain; clamped to the limits of the group.
    pub replicas: u32,
}

/// A policy that sets the number of replicas, and how often it is called.
#[derive(Clone, Debug)]
pub struct ScalingLoop {
    /// The policy.
    pub policy: Box<dyn ScalingPolicy>,
    /// Interval between two calls of the policy, > 0; the first is after one interval (HPA: 15 s).
    pub sync: Micros,
    /// Interval at which metrics are scraped, on multiples of it, > 0 (Prometheus: 15 s).
    pub scrape: Micros,
    /// The stabilization windows and rates; `None` for those of the policy.
    pub behaviour: Option<Behaviour>,
    /// How decisions are applied in BLIS; `None` for Kubernetes: by the windows and rates, and at once.
    pub actuation: Option<DelayedActuation>,
}

/// BLIS's way from a decision to its effect: the policy is called from time 0 on, and what it adds or removes takes effect
/// after a delay, without windows, rates and limits.
#[derive(Clone, Copy, Debug)]
pub struct DelayedActuation {
    /// Its mean and standard deviation.
    pub delay: PhaseTime,
    /// The random numbers of delays, by call of the policy.
    pub delays: Stream,
}

/// The nodes at the start.
pub(super) struct InitialNodes {
    pub nodes: Nodes,
    /// Where the initial replicas are, in the order of groups; empty without node pools.
    pub placements: Vec<HeldGpus>,
    pub policy: Box<dyn PlacementPolicy>,
}

impl InitialNodes {
    /// Adds a replica of `group`; `false` if there is no room for it.
    fn add(&mut self, index: usize, group: &ReplicaGroup) -> bool {
        let demand = group.demand(index);
        self.nodes.add_initial(&demand);
        let nodes = self.nodes.with_room(&demand);
        let replica = group.starting(index, Micros::ZERO, Micros::ZERO, count(self.placements.len()));
        let Some(first) = nodes.first() else { return false };
        // An initial replica does not wait.
        let chosen = self.policy.choose_node(&replica, &nodes).map_or(first, |index| &nodes[index]);
        self.placements.push(self.nodes.take(Micros::ZERO, &demand, NodeId::from(chosen)));
        true
    }
}

impl ReplicaGroup {
    /// What policies see at `now` of the group with this index, which is to have so many replicas.
    pub(super) fn shown(&self, index: usize, now: Micros, replicas: u32) -> DrainGroup {
        DrainGroup {
            now_us: now.0,
            price: self.price.unwrap_or(0.0),
            group: count(index),
            model: self.serves.first().copied().unwrap_or_default().0,
            gpus: self.gpus,
            min_replicas: self.limits.min,
            max_replicas: self.limits.max,
            replicas,
        }
    }

    /// What policies see at `now` of replica number `id` of the group with this index, which was created at `created`.
    pub(super) fn starting(&self, index: usize, now: Micros, created: Micros, id: u32) -> StartingReplica {
        let DrainGroup { group, model, gpus, .. } = self.shown(index, now, 0);
        StartingReplica { now_us: now.0, created_us: created.0, id, group, model, gpus }
    }

    /// What a replica of the group with this index needs.
    pub(super) fn demand(&self, group: usize) -> GpuDemand<'_> {
        GpuDemand { group, gpus: self.gpus, pools: &self.pools }
    }

    /// Whether a request for `model` may go to its replicas.
    pub(super) fn serves(&self, model: Name) -> bool {
        model == Name::NONE || self.serves.contains(&model)
    }
}

impl ReplicaSettings {
    /// The nodes with the initial replicas, where these are, in the order of groups, and the policy that placed them.
    ///
    /// # Errors
    /// A message if a setting is out of range, or the nodes have no room for the initial replicas.
    pub(super) fn initial_nodes(&self) -> Result<InitialNodes, String> {
        self.check_ranges()?;
        let mut initial = InitialNodes {
            nodes: Nodes::new(self.pools.clone()),
            placements: Vec::new(),
            policy: self.placement.clone(),
        };
        for (index, group) in self.groups.iter().enumerate() {
            for replica in 0..group.initial {
                let placed = self.pools.is_empty() || initial.add(index, group);
                if !placed {
                    return Err(format!(
                        "the nodes have room for {replica} of the {} initial replicas of group {index}",
                        group.initial
                    ));
                }
            }
        }
        Ok(initial)
    }

    /// Checks that a service can have these replicas.
    ///
    /// # Errors
    /// A message that names the group or pool, and the setting, that is out of range.
    pub fn check(&self) -> Result<(), String> {
        self.initial_nodes().map(|_| ())
    }

    fn check_ranges(&self) -> Result<(), String> {
        for (index, NodePool { gpus, min, max, .. }) in self.pools.iter().enumerate() {
            if *gpus == 0 || *max == 0 || min > max {
                return Err(format!(
                    "node pool {index} has {min} to {max} nodes with {gpus} GPUs: at least one GPU, and no fewer than 1 and \
                     {min} nodes at most"
                ));
            }
        }
        // The service hashes prompts in blocks of one size.
        let sizes = self.groups.iter().map(|group| group.instance.block_size);
        if let Some((index, (one, other))) = sizes.clone().zip(sizes.skip(1)).enumerate().find(|(_, (a, b))| a != b) {
            return Err(format!(
                "KV blocks of group {index} have {one} tokens and those of group {} {other}: one size",
                index + 1
            ));
        }
        for (index, group) in self.groups.iter().enumerate() {
            let ReplicaGroup { limits: ReplicaLimits { min, max }, initial, gpus, pools, .. } = group;
            if *max == 0 || !(min..=max).contains(&initial) {
                return Err(format!(
                    "group {index} has {initial} replicas at the start and {min} to {max} later: the first is between the others"
                ));
            }
            if *gpus == 0 {
                return Err(format!("a replica of group {index} has no GPU: at least 1"));
            }
            if let Some(pool) = pools.iter().find(|&&pool| pool >= self.pools.len() && !self.pools.is_empty()) {
                return Err(format!("group {index} uses node pool {pool}, but there are {}", self.pools.len()));
            }
        }
        if !self.scheduled.is_sorted_by_key(|change| change.at) {
            return Err("changes of the number of replicas are in order of time".to_owned());
        }
        if let Some(change) = self.scheduled.iter().find(|change| change.group >= self.groups.len()) {
            return Err(format!("a change is of group {}, but there are {}", change.group, self.groups.len()));
        }
        match &self.scaling {
            Some(scaling) if scaling.sync == Micros::ZERO || scaling.scrape == Micros::ZERO => {
                Err("the sync and scrape intervals of scaling are above 0".to_owned())
            }
            _ => Ok(()),
        }
    }
}
