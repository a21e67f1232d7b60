//! The service that a configuration describes: instances, and the policies in front of them.

use std::sync::Arc;

use blis_sim::cluster::{Abort, Cluster, ClusterConfig, Policies};
use blis_sim::instance::{Instance, InstanceConfig};
use blis_sim::policy::{
    AdmissionPolicy, AlwaysAdmit, AlwaysBusiest, CacheAndLoad, ClassPriority, Classes, ConstantPriority, GaieLegacy,
    InvertedSlo, LeastLoaded, PrefixAffinity, PriorityPolicy, RejectAll, RoundRobin, RoutingPolicy, SloBased,
    TenantBudgets, TierShed, Ties, TokenBucket, Weighted,
};
use blis_sim::request::Name;
use blis_sim::rng::Stream;

use super::args::TieBreakName;
use super::config::RunConfig;
use super::error::Failure;
use crate::config::Deployment;
use crate::config::policy::{AdmissionSettings, PolicySettings, PriorityName, RoutingSettings, Weights};
use crate::workload::Names;

/// An idle service for the workload whose names are `names`; `engine` makes its instances.
pub(super) fn cluster<I: Instance>(
    config: &RunConfig,
    deployment: &Deployment,
    names: &Names,
    engine: impl Fn(InstanceConfig) -> I,
) -> Result<Cluster<I>, Failure> {
    let settings = &config.cluster;
    let classes = classes(&settings.policies, names);
    let policies = policies(&settings.policies, &classes, names).map_err(Failure::usage)?;
    let front = ClusterConfig {
        admission_latency: settings.admission_latency,
        routing_latency: settings.routing_latency,
        snapshot_refresh_interval: settings.snapshot_refresh_interval,
        cache_signal_delay: settings.cache_signal_delay,
        ties: match settings.tie_break {
            TieBreakName::Random => Ties::Random(Stream::new(config.seed, "router")),
            TieBreakName::LowestIndex => Ties::LowestIndex,
        },
        classes: classes.clone(),
        serves: serves(&[&config.deployment.model, &deployment.model], names),
        block_size: config.engine.block_size,
        semantics: config.engine.semantics,
        horizon: config.horizon,
        abort: Abort::default(),
    };
    let classes = Arc::new(classes);
    let instances = (0..settings.num_instances).map(|index| config.engine.instance(index, deployment, &classes));
    Ok(Cluster::new(front, policies, instances, engine))
}

/// Urgency of the classes that requests name.
pub(super) fn classes(settings: &PolicySettings, names: &Names) -> Classes {
    let overrides: Vec<(String, i32)> =
        settings.slo_priorities.iter().map(|(class, urgency)| (class.clone(), urgency.value)).collect();
    Classes::new(names.texts().iter().map(AsRef::as_ref), &overrides)
}

/// Names that mean the served model. As for `--model`, what follows the last `/` counts, upper or
/// lower case.
fn serves(model: &[&str], names: &Names) -> Vec<Name> {
    let short = |text: &str| text.rsplit('/').next().unwrap_or(text).to_lowercase();
    let model: Vec<String> = model.iter().map(|text| short(text)).collect();
    let texts = names.texts().iter().enumerate().skip(1);
    // There are no more names than numbers.
    texts.filter(|(_, text)| model.contains(&short(text))).map(|(number, _)| Name(number as u32)).collect()
}

fn policies(settings: &PolicySettings, classes: &Classes, names: &Names) -> Result<Policies, String> {
    Ok(Policies {
        admission: with_budgets(admission(&settings.admission)?, settings, names)?,
        routing: routing(&settings.routing)?,
        priority: priority(settings.priority.value, classes),
    })
}

fn admission(settings: &AdmissionSettings) -> Result<Box<dyn AdmissionPolicy>, String> {
    Ok(match settings {
        AdmissionSettings::AlwaysAdmit => Box::new(AlwaysAdmit),
        AdmissionSettings::RejectAll => Box::new(RejectAll),
        AdmissionSettings::TokenBucket { capacity, refill_rate } => {
            Box::new(TokenBucket::new(capacity.value, refill_rate.value)?)
        }
        AdmissionSettings::TierShed { threshold, min_priority } => {
            Box::new(TierShed::new(threshold.value, min_priority.value))
        }
        AdmissionSettings::GaieLegacy { queue_depth, kv_utilization } => {
            Box::new(GaieLegacy::new(queue_depth.value, kv_utilization.value)?)
        }
    })
}

/// Tenants that send nothing need no budget.
fn with_budgets(
    inner: Box<dyn AdmissionPolicy>,
    settings: &PolicySettings,
    names: &Names,
) -> Result<Box<dyn AdmissionPolicy>, String> {
    if settings.tenant_budgets.is_empty() {
        return Ok(inner);
    }
    let known = settings.tenant_budgets.iter().filter_map(|(tenant, share)| Some((names.find(tenant)?, share.value)));
    Ok(Box::new(TenantBudgets::new(known, inner)?))
}

fn routing(settings: &RoutingSettings) -> Result<Box<dyn RoutingPolicy>, String> {
    Ok(match settings {
        RoutingSettings::RoundRobin => Box::new(RoundRobin::default()),
        RoutingSettings::LeastLoaded => Box::new(LeastLoaded::default()),
        RoutingSettings::Weighted(Weights::Scorers(scorers)) => {
            Box::new(Weighted::new(scorers.iter().map(|scorer| (scorer.name, scorer.weight)).collect())?)
        }
        RoutingSettings::Weighted(Weights::CacheAndLoad { cache, load }) => {
            Box::new(CacheAndLoad::new(cache.value, load.value)?)
        }
        RoutingSettings::PrefixAffinity => Box::new(PrefixAffinity::default()),
        RoutingSettings::AlwaysBusiest => Box::new(AlwaysBusiest),
    })
}

fn priority(name: PriorityName, classes: &Classes) -> Box<dyn PriorityPolicy> {
    match name {
        PriorityName::Class => Box::new(ClassPriority::new(classes)),
        PriorityName::Constant => Box::new(ConstantPriority),
        PriorityName::SloBased => Box::new(SloBased),
        PriorityName::InvertedSlo => Box::new(InvertedSlo),
    }
}
