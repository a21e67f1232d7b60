//! The groups of replicas of an experiment.

use blis_config::Deployment;
use blis_plugin::Kind;
use blis_sim::cluster::{ReplicaGroup, ReplicaSettings, StartMode};
use blis_sim::instance::InstanceConfig;
use blis_sim::request::Name;
use blis_sim::scaling::{DrainPolicy, PlacementPolicy, ScalingPolicy};

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::scaling::limits;

/// A group of a service: its deployment, and what the simulator needs to make one of its instances.
pub(crate) struct ServiceGroup<'a> {
    pub deployment: &'a Deployment,
    /// The configuration of each instance, apart from the index.
    pub template: InstanceConfig,
    /// Names of its model.
    pub serves: Vec<Name>,
    /// Instances at the start.
    pub initial: u32,
}

/// What decides about replicas.
pub(crate) struct ReplicaPolicies {
    /// Sets the numbers of replicas; `None` without an autoscaler.
    pub scaling: Option<Box<dyn ScalingPolicy>>,
    pub drain: Box<dyn DrainPolicy>,
    pub placement: Box<dyn PlacementPolicy>,
}

/// The replicas of a service with these groups, the first of which is that of `--num-instances`; `None` for a single group with a
/// fixed number of instances.
///
/// # Errors
/// If a GPU has no price in the price list, or a placement policy has nothing to decide.
pub(crate) fn replicas(
    config: &Experiment,
    groups: Vec<ServiceGroup<'_>>,
    policies: ReplicaPolicies,
) -> Result<Option<ReplicaSettings>, RunError> {
    let (settings, further) = (config.cluster.scaling.as_ref(), &config.cluster.groups);
    if settings.is_none() && further.is_empty() {
        return Ok(None);
    }
    let own = |index: usize| index.checked_sub(1).map(|index| &further[index]);
    let group = |(index, group): (usize, ServiceGroup<'_>)| {
        Ok(ReplicaGroup {
            limits: limits(settings, own(index), group.initial),
            instance: group.template,
            serves: group.serves,
            initial: group.initial,
            gpus: group.deployment.gpus(),
            pools: Vec::new(),
            price: config.usd_per_gpu_hour(group.deployment)?,
            start: settings.map(|settings| settings.start).unwrap_or_default(),
            mode: settings.map_or(StartMode::Cold, |settings| settings.mode),
        })
    };
    let ReplicaPolicies { scaling, drain, placement } = policies;
    let replicas = ReplicaSettings {
        groups: groups.into_iter().enumerate().map(group).collect::<Result<_, RunError>>()?,
        pools: Vec::new(),
        scheduled: Vec::new(),
        scaling: settings.zip(scaling).map(|(settings, policy)| settings.control(policy)),
        drain,
        placement,
    };
    match config.cluster.policies.used(Kind::Placement) {
        Some(used) if replicas.pools.is_empty() => {
            let what = format!("the placement policy `{}` has no effect without node pools", used.name());
            Err(RunError::usage(what).hint("without node pools there is always a GPU: leave it out"))
        }
        _ => Ok(Some(replicas)),
    }
}
