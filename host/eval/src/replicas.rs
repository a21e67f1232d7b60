//! The groups of replicas of an experiment.

use blis_config::Deployment;
use blis_plugin::Kind;
use blis_sim::cluster::{ReplicaGroup, ReplicaSettings, StartMode};
use blis_sim::instance::InstanceConfig;
use blis_sim::request::Name;
use blis_sim::rng::Stream;
use blis_sim::scaling::{ByName, DrainPolicy, PlacementPolicy, ScalingPolicy};
use blis_sim::semantics::Semantics;

use crate::disaggregation::DisaggregationSettings;
use crate::error::RunError;
use crate::experiment::Experiment;
use crate::nodes::pools;
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
/// fixed number of instances, or groups with roles and fixed numbers, and without node pools.
///
/// # Errors
/// If a GPU has no price in the price list, a replica no room in the node pools, or a placement policy nothing to decide.
pub(crate) fn replicas(
    config: &Experiment,
    groups: Vec<ServiceGroup<'_>>,
    policies: ReplicaPolicies,
) -> Result<Option<ReplicaSettings>, RunError> {
    let settings = config.cluster.scaling.as_ref();
    let deployments: Vec<&Deployment> = groups.iter().map(|group| group.deployment).collect();
    let (pools, mut allowed) = pools(&config.spec, &deployments)?;
    let roles = config.cluster.disaggregation.as_ref();
    if settings.is_none() && pools.is_empty() && (roles.is_some() || config.cluster.groups.is_empty()) {
        return Ok(None);
    }
    let own = |index: usize| match roles {
        Some(roles) => roles.pools[index].group.as_ref(),
        None => index.checked_sub(1).map(|index| &config.cluster.groups[index]),
    };
    let group = |(index, group): (usize, ServiceGroup<'_>)| {
        let start = own(index)
            .and_then(|group| group.startup_time)
            .or(settings.map(|settings| settings.start))
            .unwrap_or_default();
        Ok(ReplicaGroup {
            limits: match roles {
                Some(roles) => DisaggregationSettings::limits(&roles.pools[index], settings),
                None => limits(settings, own(index), group.initial),
            },
            instance: group.template,
            serves: group.serves,
            initial: group.initial,
            gpus: group.deployment.gpus(),
            pools: std::mem::take(&mut allowed[index]),
            price: config.usd_per_gpu_hour(group.deployment)?,
            start: start.times(group.deployment)?,
            mode: own(index)
                .and_then(|group| group.start_mode)
                .or(settings.map(|settings| settings.mode))
                .unwrap_or(StartMode::Cold),
        })
    };
    let ReplicaPolicies { scaling, drain, placement } = policies;
    let initial = groups.iter().map(|group| group.initial).sum();
    let replicas = ReplicaSettings {
        groups: groups.into_iter().enumerate().map(group).collect::<Result<_, RunError>>()?,
        pools,
        scheduled: Vec::new(),
        starts: Stream::new(config.seed, "replica starts"),
        scaling: settings.zip(scaling).map(|(settings, policy)| settings.control(policy, config.seed)),
        drain: if config.engine.semantics == Semantics::BLIS { Box::new(ByName { initial }) } else { drain },
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
