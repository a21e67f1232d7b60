//! The cluster of an experiment: instances, and the policies in front of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use blis_sim::cluster::{Abort, Cluster, ClusterConfig, FlowControl, Policies};
use blis_sim::ids::InstanceIndex;
use blis_sim::instance::{Instance, InstanceConfig, PreemptionChoice, SchedulingChoice};
use blis_sim::latency::LatencyModel;
use blis_sim::policy::kv_cache::KvCacheChoice;
use blis_sim::policy::{
    AdmissionPolicy, AlwaysAdmit, BatchingPolicy, BlockIds, Classes, ClientTargets, DisaggregationPolicy, FilterStep,
    InstanceInfo, InstanceLabels, InstanceRole, RoutingPolicy, ScorerStep, TenantBudgets, Ties, Weighted,
};
use blis_sim::request::Name;
use blis_sim::rng::Stream;
use blis_sim::scaling::{DrainPolicy, PlacementPolicy, ScalingPolicy};
use blis_sim::units::Micros;

use crate::bound::BoundedService;
use crate::error::RunError;
use crate::experiment::Experiment;
use crate::kv_cache;
use crate::lora;
use crate::open;
use crate::replicas::{ReplicaPolicies, ServiceGroup, replicas};
use crate::spec::{ParityName, TieBreakName};
use crate::targets::slo_targets;
use blis_config::Deployment;
use blis_config::policy::{BuiltIn, PipelineStep, PlannedFilter, PlannedScorer, PolicySettings, PolicyUse, ScalingUse};
use blis_plugin::adapt::{PluginLatency, PluginPolicy, PluginScaling};
use blis_plugin::check;
use blis_plugin::incidents::{Incidents, OnError};
use blis_plugin::{FaultKind, Guest, GuestSetup, Kind, Limits, Technology};
use blis_workload::{Names, Workload};

/// Makes one decision with each script of `config`, so that a misspelt name ends the experiment before it starts. Scripts
/// with a fallback are left to the run.
///
/// # Errors
/// The first fault of a script.
pub(crate) fn try_scripts(config: &Experiment) -> Result<(), RunError> {
    if config.on_plugin_error == OnError::Fallback {
        return Ok(());
    }
    let scripts = config.cluster.policies.plugins();
    for used in scripts.filter(|used| used.loaded.plugin.technology() == Technology::Script) {
        match check::try_once(&*used.loaded.plugin, used.kind, &Limits::default()) {
            // Other faults may follow from the made-up request.
            Err(fault) if fault.kind == FaultKind::UnknownName => return Err(RunError::refused(fault)),
            _ => {}
        }
    }
    Ok(())
}

/// An idle cluster for a workload with the names `names`, and the record of plugin failures. `engine` makes the
/// instances.
pub(crate) fn cluster<I: Instance>(
    config: &Experiment,
    deployment: &Deployment,
    names: &Names,
    engine: impl Fn(InstanceConfig) -> I + Clone + Send + Sync + 'static,
) -> Result<(Cluster<I>, Incidents), RunError> {
    let settings = &config.cluster;
    let abort = Abort::default();
    let incidents = Incidents::new(config.on_plugin_error, abort.clone());
    let incidents = match &config.budget {
        Some(budget) => {
            budget.attach(&abort);
            incidents.metered(budget.limit())
        }
        None => incidents,
    };
    let asked = slo_targets(config, names, &BTreeMap::new()).into_iter();
    let asked = asked.map(|(class, targets)| (class, ClientTargets { ttft: targets.ttft, itl: targets.itl }));
    let classes = Arc::new(classes(&settings.policies, names).with_targets(asked));
    let further = config.further_deployments()?;
    let models = settings.groups.iter().map(|group| group.model.as_ref().unwrap_or(&config.deployment.model));
    let initial = settings.groups.iter().map(|group| group.instances);
    // The deployment of each group, the model as it is written, and the instances at the start.
    let pools = match &settings.disaggregation {
        Some(roles) => roles.deployments(&config.deployment)?,
        None => Vec::new(),
    };
    let of_pools = settings.disaggregation.iter().flat_map(|roles| &roles.pools).zip(&pools);
    let groups: Vec<(&Deployment, &String, u32)> = if settings.disaggregation.is_some() {
        of_pools.map(|(pool, deployment)| (deployment, &config.deployment.model, pool.instances)).collect()
    } else {
        std::iter::once((deployment, &config.deployment.model, settings.num_instances))
            .chain(
                further
                    .iter()
                    .zip(models)
                    .zip(initial)
                    .map(|((deployment, model), initial)| (deployment, model, initial)),
            )
            .collect()
    };
    let adapters = groups.iter().map(|(deployment, model, _)| lora::settings(deployment, model, names));
    let adapters: Vec<_> = adapters.collect::<Result<_, _>>()?;
    let roles = settings.disaggregation.iter().flat_map(|roles| &roles.pools).map(|pool| pool.role);
    let roles = roles.chain(std::iter::repeat(InstanceRole::default()));
    let labels = groups.iter().zip(roles).enumerate().map(|(group, ((deployment, ..), role))| {
        let price = config.usd_per_gpu_hour(deployment)?.map_or(0.0, |price| price * f64::from(deployment.gpus()));
        Ok(InstanceLabels { group: group as u32, role, price })
    });
    let labels: Vec<InstanceLabels> = labels.collect::<Result<_, RunError>>()?;
    let of_all =
        groups.iter().zip(&adapters).zip(&labels).flat_map(|((&(deployment, _, initial), adapters), &labels)| {
            (0..initial).map(move |_| (deployment, adapters, labels))
        });
    let mut instances: Vec<InstanceConfig> = of_all
        .enumerate()
        .map(|(index, (deployment, adapters, labels))| InstanceConfig {
            labels,
            adapters: adapters.clone(),
            ..config.instance(InstanceIndex::at(index), deployment, &classes)
        })
        .collect();
    let plugins = PluginStarter {
        config,
        incidents: &incidents,
        abort: &abort,
        instances: instances.iter().map(InstanceInfo::from).collect(),
        names: names.texts().into(),
        facts: deployment.model_facts.as_slice().into(),
    };
    plugins.attach(&mut instances)?;
    let policies = policies(&plugins, &classes, names)?;
    let groups =
        groups.into_iter().zip(adapters).zip(labels).map(|(((deployment, model, initial), adapters), labels)| {
            let template = config.instance(InstanceIndex(0), deployment, &classes);
            let mut template = InstanceConfig { labels, adapters, ..template };
            if settings.scaling.is_some() {
                plugins.attach(std::slice::from_mut(&mut template))?;
            }
            let serves = serves(&[model, &deployment.model], names);
            Ok(ServiceGroup { deployment, template, serves, initial })
        });
    let groups: Vec<ServiceGroup<'_>> = groups.collect::<Result<_, RunError>>()?;
    let front = ClusterConfig {
        admission_latency: settings.admission_latency,
        routing_latency: settings.routing_latency,
        snapshot_refresh_interval: settings.snapshot_refresh_interval,
        cache_signal_delay: settings.cache_signal_delay,
        ties: match settings.tie_break {
            TieBreakName::Random => Ties::Random(Stream::new(config.seed, "router")),
            TieBreakName::LowestIndex => Ties::LowestIndex,
        },
        classes: Classes::clone(&classes),
        serves: groups.iter().flat_map(|group| group.serves.iter().copied()).collect(),
        block_size: config.block_size(),
        semantics: config.engine.semantics,
        horizon: config.horizon,
        abort: abort.clone(),
    };
    let mut cluster = Cluster::new(front, policies, instances, engine.clone());
    if let Some(flow) = &settings.flow_control {
        let mut control = plugins.flow_control(flow.build(names, &settings.policies)?)?;
        if let Some(roles) = &settings.disaggregation {
            roles.by_role(&mut control);
        }
        cluster = cluster.with_flow_control(control);
    }
    if let Some(replicas) = replicas(config, groups, plugins.of_replicas()?)? {
        cluster = cluster.with_replicas(replicas, engine).map_err(RunError::usage)?;
    }
    if let Some(roles) = &settings.disaggregation {
        let deployments: Vec<&Deployment> = pools.iter().collect();
        let sent_blocks = settings.policies.sent_blocks();
        let mut built =
            roles.build(&deployments, config.seed, settings.tie_break, sent_blocks, || plugins.routing())?;
        if let Some(decider) = plugins.disaggregation()? {
            built.decider = decider;
        }
        cluster = cluster.with_disaggregation(built);
    }
    Ok((cluster, incidents))
}

/// The arrival times of all requests of the workload, in order.
fn arrivals(config: &Experiment) -> Result<Vec<Micros>, RunError> {
    let Workload { requests, follow_ups, .. } = open::open(config)?;
    if follow_ups.is_some() {
        let what = "the autoscaler `perfect` needs arrivals that are known in advance";
        return Err(RunError::usage(what).hint("in closed loop they depend on the service: use another autoscaler"));
    }
    Ok(requests.map(|request| request.arrival).take_while(|&at| at <= config.horizon).collect())
}

/// The service of `config`, as far as bounds depend on it, and the record of plugin failures.
pub(crate) fn bounded(
    config: &Experiment,
    deployment: &Deployment,
    names: &Names,
) -> Result<(BoundedService, Incidents), RunError> {
    let settings = &config.cluster;
    let abort = Abort::default();
    let incidents = Incidents::new(config.on_plugin_error, abort.clone());
    let mut instance = config.instance(InstanceIndex(0), deployment, &Arc::new(classes(&settings.policies, names)));
    let plugins = PluginStarter {
        config,
        incidents: &incidents,
        abort: &abort,
        instances: Arc::new([InstanceInfo::from(&instance)]),
        names: names.texts().into(),
        facts: deployment.model_facts.as_slice().into(),
    };
    plugins.attach_latency(std::slice::from_mut(&mut instance))?;
    let service = BoundedService {
        instance,
        instances: settings.num_instances,
        admission_latency: settings.admission_latency,
        routing_latency: settings.routing_latency,
    };
    Ok((service, incidents))
}

/// Starts the plugins of a simulation.
struct PluginStarter<'a> {
    config: &'a Experiment,
    incidents: &'a Incidents,
    abort: &'a Abort,
    instances: Arc<[InstanceInfo]>,
    names: Arc<[Box<str>]>,
    facts: Arc<[(String, f64)]>,
}

impl PluginStarter<'_> {
    /// The plugin policy of `kind` of the front end, if a plugin is used for it.
    fn policy(&self, kind: Kind) -> Result<Option<Box<PluginPolicy>>, RunError> {
        self.policy_of(kind, Arc::clone(&self.instances), None)
    }

    /// The plugin policy of a cluster of `instances`, or of the instance `instance` alone.
    fn policy_of(
        &self,
        kind: Kind,
        instances: Arc<[InstanceInfo]>,
        instance: Option<InstanceIndex>,
    ) -> Result<Option<Box<PluginPolicy>>, RunError> {
        let is_asked = |used: &&PolicyUse| used.built_in.is_none_or(BuiltIn::is_function);
        let Some(used) = self.config.cluster.policies.used(kind).filter(is_asked) else { return Ok(None) };
        let owner = instance.map(|index| format!(":{index}")).unwrap_or_default();
        self.plugin_policy(used, instances, &owner).map(Some)
    }

    /// The policy of the plugin `used` in a cluster of `instances`; `owner` distinguishes its stream of random numbers from
    /// those of other guests of the same plugin.
    fn plugin_policy(
        &self,
        used: &PolicyUse,
        instances: Arc<[InstanceInfo]>,
        owner: &str,
    ) -> Result<Box<PluginPolicy>, RunError> {
        let guest = self.start(used, instances, owner)?;
        let (name, description) = (&used.loaded.name, used.loaded.plugin.description());
        let block_ids = BlockIds::hidden(Stream::new(self.config.seed, "block ids"));
        Ok(Box::new(PluginPolicy::new(name, description, guest, block_ids, self.incidents)))
    }

    /// The policy of a step of a routing pipeline.
    fn step(&self, step: &PipelineStep) -> Result<Box<PluginPolicy>, RunError> {
        self.plugin_policy(&step.used, Arc::clone(&self.instances), &format!(":{}", step.role.name()))
    }

    /// The routing policy: built in, a plugin, or a pipeline of both.
    fn routing(&self) -> Result<Box<dyn RoutingPolicy>, RunError> {
        let settings = &self.config.cluster.policies;
        let Some(plan) = settings.routing_plan() else {
            return Ok(match self.policy(Kind::Routing)? {
                Some(plugin) => plugin,
                None => settings.routing().map_err(RunError::usage)?,
            });
        };
        let filter = |filter: PlannedFilter<'_>| -> Result<FilterStep, RunError> {
            Ok(match filter {
                PlannedFilter::BuiltIn(filter) => FilterStep::BuiltIn(filter),
                PlannedFilter::Plugin(step) => FilterStep::Step(self.step(step)?),
            })
        };
        let scorer = |(scorer, weight): (PlannedScorer<'_>, f64)| -> Result<(ScorerStep, f64), RunError> {
            let scorer = match scorer {
                PlannedScorer::BuiltIn(kind) => ScorerStep::BuiltIn(kind),
                PlannedScorer::Plugin(step) => ScorerStep::Step(self.step(step)?),
            };
            Ok((scorer, weight))
        };
        let filters = plan.filters.into_iter().map(filter).collect::<Result<_, _>>()?;
        let scorers = plan.scorers.into_iter().map(scorer).collect::<Result<_, _>>()?;
        let picker = match plan.picker {
            Some(used) => {
                let picker = self.plugin_policy(used, Arc::clone(&self.instances), "")?;
                Some(picker as Box<dyn RoutingPolicy>)
            }
            None => None,
        };
        let pipeline = Weighted::pipeline(filters, scorers, picker).map_err(RunError::usage)?;
        Ok(Box::new(pipeline.with_sent_blocks(plan.sent_blocks)))
    }

    /// The policy of prefill apart from decode that was chosen by its name, if one was.
    fn disaggregation(&self) -> Result<Option<Box<dyn DisaggregationPolicy>>, RunError> {
        Ok(match self.policy(Kind::Disaggregation)? {
            Some(plugin) => Some(plugin),
            None => self.config.cluster.policies.disaggregation(),
        })
    }

    /// `control` with the plugins instead of the built-in policies that they replace.
    fn flow_control(&self, mut control: FlowControl) -> Result<FlowControl, RunError> {
        if let Some(plugin) = self.policy(Kind::Saturation)? {
            control.saturation = plugin;
        }
        if let Some(plugin) = self.policy(Kind::Ceilings)? {
            control.ceilings = plugin;
        }
        if let Some(plugin) = self.policy(Kind::Fairness)? {
            control.fairness = plugin;
        }
        if let Some(plugin) = self.policy(Kind::Ordering)? {
            control.ordering = plugin;
        }
        if let Some(plugin) = self.policy(Kind::Eviction)? {
            control.eviction = Some(plugin);
        }
        Ok(control)
    }

    /// The policies that decide about replicas: plugins, or those that are built in.
    fn of_replicas(&self) -> Result<ReplicaPolicies, RunError> {
        let settings = &self.config.cluster;
        let scaling = settings.scaling.as_ref().map(|scaling| self.scaling(scaling.built_in.as_ref())).transpose()?;
        let drain: Box<dyn DrainPolicy> = match self.policy(Kind::Drain)? {
            Some(plugin) => plugin,
            None => settings.policies.drain().map_err(RunError::runtime)?,
        };
        let placement: Box<dyn PlacementPolicy> = match self.policy(Kind::Placement)? {
            Some(plugin) => plugin,
            None => settings.policies.placement().map_err(RunError::runtime)?,
        };
        Ok(ReplicaPolicies { scaling, drain, placement })
    }

    /// The policy that decides the number of replicas: the plugin, or the one that is built in.
    fn scaling(&self, built_in: Option<&ScalingUse>) -> Result<Box<dyn ScalingPolicy>, RunError> {
        if let Some(used) = self.config.cluster.policies.plugin(Kind::Scaling) {
            let guest = self.start(used, Arc::clone(&self.instances), "")?;
            let (name, description) = (&used.loaded.name, used.loaded.plugin.description());
            return Ok(Box::new(PluginScaling::new(name, description, guest, self.incidents)));
        }
        let used = built_in.ok_or_else(|| RunError::runtime("there is no autoscaler"))?;
        let arrivals = if used.reads_arrivals() { arrivals(self.config)? } else { Vec::new() };
        Ok(used.build(|| arrivals))
    }

    /// Attaches to each instance its own plugins, and to all of them the same latency model.
    fn attach(&self, instances: &mut [InstanceConfig]) -> Result<(), RunError> {
        self.attach_latency(instances)?;
        for instance in instances {
            let own: Arc<[InstanceInfo]> = Arc::new([InstanceInfo::from(&*instance)]);
            if let Some(policy) = self.policy_of(Kind::Scheduling, Arc::clone(&own), Some(instance.index))? {
                instance.policies.scheduler = SchedulingChoice::Custom(policy);
            }
            if let Some(policy) = self.policy_of(Kind::Preemption, Arc::clone(&own), Some(instance.index))? {
                instance.policies.preemption = PreemptionChoice::Custom(policy);
            }
            kv_cache::attach_built_in(instance, &self.config.cluster.policies);
            if let Some(policy) = self.policy_of(Kind::KvCache, Arc::clone(&own), Some(instance.index))? {
                instance.policies.kv_cache = KvCacheChoice::Custom(policy);
            }
            if let Some(policy) = self.policy_of(Kind::Batching, own, Some(instance.index))? {
                let policy: Box<dyn BatchingPolicy> = policy;
                instance.policies.batching = policy.into();
            }
        }
        Ok(())
    }

    /// Attaches the plugin for the latency model, if there is one, to all `instances`.
    fn attach_latency(&self, instances: &mut [InstanceConfig]) -> Result<(), RunError> {
        let policies = &self.config.cluster.policies;
        if let Some(used) = policies.plugin(Kind::Latency) {
            let guest = self.start(used, Arc::clone(&self.instances), "")?;
            let (name, description) = (&used.loaded.name, used.loaded.plugin.description());
            let fallback = instances.first().map(|instance| Arc::clone(&instance.latency));
            let Some(fallback) = fallback else { return Ok(()) };
            let model: Arc<dyn LatencyModel> = Arc::new(
                PluginLatency::new(name, description, guest, fallback, self.incidents).map_err(RunError::refused)?,
            );
            instances.iter_mut().for_each(|instance| instance.latency = Arc::clone(&model));
        }
        Ok(())
    }

    /// Starts one guest; `owner` as of [`Self::plugin_policy`].
    fn start(&self, used: &PolicyUse, instances: Arc<[InstanceInfo]>, owner: &str) -> Result<Box<dyn Guest>, RunError> {
        let setup = GuestSetup {
            kind: used.kind,
            parameters: used.parameters.iter().map(|(_, value)| value.value).collect(),
            others: used.others.iter().map(|(_, value)| value.value.clone()).collect(),
            instances,
            names: Arc::clone(&self.names),
            model_facts: Arc::clone(&self.facts),
            stream: Stream::new(self.config.seed, &format!("plugin:{}:{}{owner}", used.loaded.name, used.kind)),
            explain: self.config.evaluation.reads_scores(),
            limits: self.config.catalog.limits(),
            abort: self.abort.clone(),
        };
        used.loaded.plugin.start(&setup).map_err(RunError::from)
    }
}

/// Priorities of the classes that requests name.
pub(crate) fn classes(settings: &PolicySettings, names: &Names) -> Classes {
    let overrides: Vec<(String, i32)> =
        settings.slo_priorities.iter().map(|(class, priority)| (class.clone(), priority.value)).collect();
    Classes::new(names.texts().iter().map(AsRef::as_ref), &overrides)
}

/// Names of the served model. As for `--model`, only the part after the last `/` counts, in upper or lower case.
fn serves(model: &[&str], names: &Names) -> Vec<Name> {
    let short = |text: &str| text.rsplit('/').next().unwrap_or(text).to_lowercase();
    let model: Vec<String> = model.iter().map(|text| short(text)).collect();
    let texts = names.texts().iter().enumerate().skip(1);
    // The index of a name fits in its number.
    texts.filter(|(_, text)| model.contains(&short(text))).map(|(number, _)| Name(number as u32)).collect()
}

fn policies(plugins: &PluginStarter<'_>, classes: &Classes, names: &Names) -> Result<Policies, RunError> {
    let settings = &plugins.config.cluster.policies;
    let flow_control = plugins.config.cluster.flow_control.as_ref();
    let admission: Box<dyn AdmissionPolicy> = match plugins.policy(Kind::Admission)? {
        // In BLIS, flow control replaces the admission policy.
        _ if flow_control.is_some_and(|flow| flow.parity == ParityName::Blis) => Box::new(AlwaysAdmit),
        Some(plugin) => plugin,
        None => settings.admission(plugins.config.seed).map_err(RunError::usage)?,
    };
    Ok(Policies {
        admission: with_budgets(admission, settings, names).map_err(RunError::usage)?,
        routing: plugins.routing()?,
        priority: match plugins.policy(Kind::Priority)? {
            Some(plugin) => plugin,
            None => settings.priority(classes).map_err(RunError::usage)?,
        },
    })
}

/// Budgets of tenants without requests are left out.
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
