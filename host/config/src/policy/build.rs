//! The built-in policies that the settings select, ready for a simulation.

use blis_sim::instance::{Preemption, Scheduler};
use blis_sim::offload::ChunkEviction;
use blis_sim::policy::flow::{CeilingsPolicy, EvictionPolicy, FairnessPolicy, OrderingPolicy, SaturationPolicy};
use blis_sim::policy::kv_cache::KvCachePolicy;
use blis_sim::policy::{
    AdmissionPolicy, Classes, DisaggregationPolicy, PriorityPolicy, RoutingFilter, RoutingPolicy, SENT_BLOCKS,
};
use blis_sim::rng::Stream;
use blis_sim::scaling::{DrainPolicy, PlacementPolicy};
use blis_sim::units::Micros;

use super::parameter::ParameterValues;
use super::registry::{Build, BuiltIn, WEIGHTED, sent_blocks, weighted_sum};
use super::{FlowPolicy, PipelineStep, PolicySettings, PolicyUse, ScorerKind, StepRole};
use blis_plugin::{Kind, PolicyParameter};

/// The steps of a routing pipeline; those that are plugins are to be started.
#[derive(Clone, Debug)]
pub struct RoutingPlan<'a> {
    /// In their order.
    pub filters: Vec<PlannedFilter<'a>>,
    /// In the order in which they are added, with their weights.
    pub scorers: Vec<(PlannedScorer<'a>, f64)>,
    /// A plugin that chooses instead of the largest sum.
    pub picker: Option<&'a PolicyUse>,
    /// KV blocks sent to each instance that the scorer `prefix-affinity` remembers.
    pub sent_blocks: u32,
}

/// A filter of a pipeline.
#[derive(Clone, Debug)]
pub enum PlannedFilter<'a> {
    BuiltIn(RoutingFilter),
    Plugin(&'a PipelineStep),
}

/// A scorer of a pipeline.
#[derive(Clone, Debug)]
pub enum PlannedScorer<'a> {
    BuiltIn(ScorerKind),
    Plugin(&'a PipelineStep),
}

/// A built-in policy of KV tiers.
#[derive(Debug)]
pub enum TierPolicy {
    /// Of the tier itself, as vLLM has it.
    Own(ChunkEviction),
    /// One that ranks chunks.
    Ranking(Box<dyn KvCachePolicy>),
}

impl PolicyUse {
    /// The values of the parameters, in the order of the settings.
    pub(super) fn values(&self) -> ParameterValues {
        ParameterValues(self.parameters.iter().map(|(name, value)| (name.clone(), value.value)).collect())
    }
}

impl PolicySettings {
    /// The built-in policy for `kind` with its values; the default if a plugin decides.
    fn built_in(&self, kind: Kind) -> (&'static BuiltIn, ParameterValues) {
        let used = self.used(kind).and_then(|used| Some((used.built_in?, used.values())));
        used.unwrap_or_else(|| {
            let row = BuiltIn::default_of(kind);
            (row, ParameterValues(row.parameters().into_iter().map(|one| (one.name, one.default)).collect()))
        })
    }

    /// The built-in admission policy, without the budgets of tenants. `seed`: of the run, for its own draws.
    ///
    /// # Errors
    /// If a value is invalid: which one.
    pub fn admission(&self, seed: u64) -> Result<Box<dyn AdmissionPolicy>, String> {
        match self.built_in(Kind::Admission) {
            (BuiltIn { build: Build::Admission(build), .. }, values) => build(&values, Stream::new(seed, "admission")),
            (row, _) => Err(wrong_kind(row)),
        }
    }

    /// The built-in routing policy, which selects the instance for a request; for a pipeline with plugins see
    /// [`Self::routing_plan`].
    ///
    /// # Errors
    /// If a value is invalid: which one.
    pub fn routing(&self) -> Result<Box<dyn RoutingPolicy>, String> {
        let filters: Vec<_> = self.used(Kind::Routing).into_iter().flat_map(|used| &used.filters).collect();
        match self.built_in(Kind::Routing) {
            (row, values) if row.name == WEIGHTED && !filters.is_empty() => {
                let filters = filters.into_iter().filter_map(|filter| Some(filter.built_in()?.build())).collect();
                Ok(Box::new(weighted_sum(&values)?.with_filters(filters)))
            }
            (BuiltIn { build: Build::Routing(build), .. }, values) => build(&values),
            (row, _) => Err(wrong_kind(row)),
        }
    }

    /// The steps of a routing pipeline in their order, if any of them is a plugin.
    #[must_use]
    pub fn routing_plan(&self) -> Option<RoutingPlan<'_>> {
        let used = self.used(Kind::Routing).filter(|used| !used.steps.is_empty())?;
        if used.built_in.is_none() {
            // A plugin that filters first, then chooses.
            let filters = used.steps.iter().map(PlannedFilter::Plugin).collect();
            return Some(RoutingPlan { filters, scorers: Vec::new(), picker: Some(used), sent_blocks: SENT_BLOCKS });
        }
        let filter = |filter: &'_ super::FilterSetting| match filter.built_in() {
            Some(built_in) => Some(PlannedFilter::BuiltIn(built_in.build())),
            None => used.step(StepRole::Filter, filter.name()).map(PlannedFilter::Plugin),
        };
        let scorer = |(name, weight): &'_ (String, super::Sourced<f64>)| {
            let scorer = match ScorerKind::find(name) {
                Some(kind) => PlannedScorer::BuiltIn(kind),
                None => PlannedScorer::Plugin(used.step(StepRole::Scorer, name)?),
            };
            Some((scorer, weight.value))
        };
        let picker = used.steps.iter().find(|step| step.role == StepRole::Picker);
        Some(RoutingPlan {
            filters: used.filters.iter().filter_map(|one| filter(&one.value)).collect(),
            scorers: used.parameters.iter().filter(|(_, weight)| **weight > 0.0).filter_map(scorer).collect(),
            picker: picker.map(|step| &step.used),
            sent_blocks: sent_blocks(&used.values()),
        })
    }

    /// KV blocks of each instance that the scorer `prefix-affinity` remembers, of `weighted` as it is set.
    #[must_use]
    pub fn sent_blocks(&self) -> u32 {
        let weighted = self.used(Kind::Routing).filter(|used| used.built_in.is_some_and(|row| row.name == WEIGHTED));
        weighted.map_or(SENT_BLOCKS, |used| sent_blocks(&used.values()))
    }

    /// The built-in priority policy for requests of `classes`.
    ///
    /// # Errors
    /// None, as long as the rows of the registry are consistent.
    pub fn priority(&self, classes: &Classes) -> Result<Box<dyn PriorityPolicy>, String> {
        match self.built_in(Kind::Priority) {
            (BuiltIn { build: Build::Priority(build), .. }, _) => Ok(build(classes)),
            (row, _) => Err(wrong_kind(row)),
        }
    }

    /// The built-in policy for `kind`, a decision of flow control, and its values: the one with parameters, that of a bundle,
    /// or that of the `flags`. If a plugin decides, it stands in for it.
    fn flow_control(&self, kind: Kind, flags: &FlowPolicy) -> (&'static BuiltIn, ParameterValues) {
        if let Some(row) = self.used(kind).and_then(|used| used.built_in) {
            return (row, self.used(kind).map_or(ParameterValues(Vec::new()), PolicyUse::values));
        }
        let row = BuiltIn::find(kind, &flags.name).unwrap_or(BuiltIn::default_of(kind));
        let value = |one: PolicyParameter| {
            let given = flags.values.iter().find(|(name, _)| *name == one.name);
            (one.name, given.map_or(one.default, |(_, value)| value.value))
        };
        (row, ParameterValues(row.parameters().into_iter().map(value).collect()))
    }

    /// The built-in saturation detector.
    ///
    /// # Errors
    /// None, as long as the rows of the registry are consistent; of all kinds of flow control.
    pub fn saturation(&self, flags: &FlowPolicy) -> Result<Box<dyn SaturationPolicy>, String> {
        match self.flow_control(Kind::Saturation, flags) {
            (BuiltIn { build: Build::Saturation(build), .. }, values) => Ok(build(&values)),
            (row, _) => Err(wrong_kind(row)),
        }
    }

    /// The built-in usage-limit policy.
    ///
    /// # Errors
    /// As of [`Self::saturation`].
    pub fn ceilings(&self, flags: &FlowPolicy) -> Result<Box<dyn CeilingsPolicy>, String> {
        match self.flow_control(Kind::Ceilings, flags) {
            (BuiltIn { build: Build::Ceilings(build), .. }, values) => Ok(build(&values)),
            (row, _) => Err(wrong_kind(row)),
        }
    }

    /// The built-in fairness policy, with the weights of tenants by the index of the tenant's name.
    ///
    /// # Errors
    /// As of [`Self::saturation`].
    pub fn fairness(&self, flags: &FlowPolicy, weights: Vec<f64>) -> Result<Box<dyn FairnessPolicy>, String> {
        match self.flow_control(Kind::Fairness, flags) {
            (BuiltIn { build: Build::Fairness(build), .. }, values) => Ok(build(&values, weights)),
            (row, _) => Err(wrong_kind(row)),
        }
    }

    /// The built-in dispatch order, with the targets of TTFT by the index of the class's name.
    ///
    /// # Errors
    /// As of [`Self::saturation`].
    pub fn ordering(
        &self,
        flags: &FlowPolicy,
        targets: Vec<Option<Micros>>,
    ) -> Result<Box<dyn OrderingPolicy>, String> {
        match self.flow_control(Kind::Ordering, flags) {
            (BuiltIn { build: Build::Ordering(build), .. }, _) => Ok(build(targets)),
            (row, _) => Err(wrong_kind(row)),
        }
    }

    /// The built-in eviction policy.
    ///
    /// # Errors
    /// As of [`Self::saturation`].
    pub fn eviction(&self, flags: &FlowPolicy) -> Result<Box<dyn EvictionPolicy>, String> {
        match self.flow_control(Kind::Eviction, flags) {
            (BuiltIn { build: Build::Eviction(build), .. }, _) => Ok(build()),
            (row, _) => Err(wrong_kind(row)),
        }
    }

    /// The built-in drain policy.
    ///
    /// # Errors
    /// As of [`Self::saturation`].
    pub fn drain(&self) -> Result<Box<dyn DrainPolicy>, String> {
        match self.built_in(Kind::Drain) {
            (BuiltIn { build: Build::Drain(build), .. }, _) => Ok(build()),
            (row, _) => Err(wrong_kind(row)),
        }
    }

    /// The built-in placement policy.
    ///
    /// # Errors
    /// As of [`Self::saturation`].
    pub fn placement(&self) -> Result<Box<dyn PlacementPolicy>, String> {
        match self.built_in(Kind::Placement) {
            (BuiltIn { build: Build::Placement(build), .. }, _) => Ok(build()),
            (row, _) => Err(wrong_kind(row)),
        }
    }

    /// The built-in policy of KV tiers, if one was chosen: vLLM's own, or one that ranks.
    #[must_use]
    pub fn kv_cache(&self) -> Option<TierPolicy> {
        let used = self.used(Kind::KvCache)?;
        match used.built_in?.build {
            Build::ChunkEviction(eviction, _) => Some(TierPolicy::Own(eviction)),
            Build::KvCache(build) => Some(TierPolicy::Ranking(build(&used.values()))),
            _ => None,
        }
    }

    /// The built-in policy of prefill apart from decode, if one was chosen by its name.
    #[must_use]
    pub fn disaggregation(&self) -> Option<Box<dyn DisaggregationPolicy>> {
        let used = self.used(Kind::Disaggregation)?;
        match used.built_in?.build {
            Build::Disaggregation(build) => Some(build(&used.values())),
            _ => None,
        }
    }

    /// The order of the waiting queues.
    #[must_use]
    pub fn scheduler(&self) -> Scheduler {
        match self.built_in(Kind::Scheduling).0.build {
            Build::Scheduling(scheduler) => scheduler,
            _ => Scheduler::default(),
        }
    }

    /// The choice of the preemption victim when KV blocks run out.
    #[must_use]
    pub fn preemption(&self) -> Preemption {
        match self.built_in(Kind::Preemption).0.build {
            Build::Preemption(preemption) => preemption,
            _ => Preemption::default(),
        }
    }
}

fn wrong_kind(row: &BuiltIn) -> String {
    format!("`{}` is registered as a {} but builds another kind; please report it", row.name, row.kind.what())
}
