//! The policies of the service and their parameters: plain data, selected by flags and a bundle.
//!
//! ```text
//! flags ──────────────────┐
//! bundle (YAML) → Choices ┴→ PolicySettings → YAML again, for `--explain-config`
//! ```
//!
//! A flag wins over the bundle, the bundle over the default ([`PolicySettings::choose`]). Every value carries its
//! source ([`Sourced`]). A setting that could have no effect is an error.
//!
//! Built-in policies and plugins are used alike ([`PolicyUse`]): by name, with parameters. The built-in ones are rows of
//! one table ([`BuiltIn`]); BLIS's flags and keys are aliases of its parameters. The steps of a routing pipeline are
//! policies as well ([`PipelineStep`]).

mod build;
mod built_in;
mod built_in_disaggregation;
mod bundle;
mod choices;
mod choose;
mod error;
mod explain;
mod filters;
mod lists;
pub mod llm_d;
mod outside;
pub(crate) mod parameter;
mod registry;
mod scaling;
mod scorers;
mod sourced;

pub use blis_sim::policy::ScorerKind;
pub use build::{PlannedFilter, PlannedScorer, RoutingPlan, TierPolicy};
pub use bundle::Bundle;
use bundle::read_text;
pub use choices::{Choices, FlowPolicy, ParameterSetting, PoolChoice, ScalingChoice};
pub use error::PolicyError;
pub use filters::{BuiltInFilter, FilterSetting};
pub use outside::{NoPlugins, PipelineStep, PluginLookup, PluginLookupError, PolicyUse, StepRole};
pub use parameter::ParameterInput;
pub use registry::{Ambiguous, BuiltIn, PREFIX_CAPACITY, built_in_names};
pub use scaling::{ScalingRow, ScalingUse};
pub use scorers::{ScorerFault, ScorerName, WeightedScorer, llm_d_hint, scorer_hint};
pub use sourced::{SettingSource, Sourced};

use blis_plugin::Kind;

/// The policies of a service, all resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySettings {
    /// One policy of each kind, in the order of [`Kind::ALL`]; of flow control only plugins, those of a bundle and those
    /// with parameters, because flags have the others ([`FlowPolicy`]); of scaling and of latency only a plugin, because
    /// built-in autoscalers are [`ScalingUse`] and built-in models belong to the deployment; of KV tiers, drain and placement only
    /// one that was chosen, because a fixed number of instances has none.
    uses: Vec<PolicyUse>,
    /// Priorities of classes that differ from the default table, -100 to 100: a higher one is served first, classes
    /// below 0 are sheddable. In the order of the bundle.
    pub slo_priorities: Vec<(String, Sourced<i32>)>,
    /// Share of the service's batch slots that a tenant may have in flight, 0 to 1. In the order of the bundle; other
    /// tenants have no limit.
    pub tenant_budgets: Vec<(String, Sourced<f64>)>,
    /// Coefficients that replace those of the built-in latency model, by name; empty if a plugin computes latency.
    /// The deployment checks them, because it decides which model it is.
    pub latency_parameters: Vec<(String, Sourced<f64>)>,
}

impl PolicySettings {
    /// The policy for `kind`; `None` for latency without a plugin.
    #[must_use]
    pub fn used(&self, kind: Kind) -> Option<&PolicyUse> {
        self.uses.iter().find(|used| used.kind == kind)
    }

    /// The plugin for `kind`; `None` if a built-in policy decides.
    #[must_use]
    pub fn plugin(&self, kind: Kind) -> Option<&PolicyUse> {
        self.used(kind).filter(|used| used.built_in.is_none())
    }

    /// All plugins, the steps of a routing pipeline included.
    pub fn plugins(&self) -> impl Iterator<Item = &PolicyUse> {
        self.uses.iter().flat_map(|used| {
            let itself = Some(used).filter(|used| used.built_in.is_none());
            itself.into_iter().chain(used.steps.iter().map(|step| &step.used))
        })
    }

    /// The name of the policy for `kind` in bundles and results; empty for a built-in latency model.
    #[must_use]
    pub fn name(&self, kind: Kind) -> &str {
        self.used(kind).map_or("", PolicyUse::name)
    }

    /// These policies with that of `other` for `kind`.
    #[must_use]
    pub fn with_policy_of(mut self, other: &Self, kind: Kind) -> Self {
        if let Some(theirs) = other.used(kind)
            && let Some(used) = self.uses.iter_mut().find(|used| used.kind == kind)
        {
            *used = theirs.clone();
        }
        self
    }

    /// Resets the policy for `kind` to the default, because of `source`.
    pub fn reset(&mut self, kind: Kind, source: SettingSource) {
        if let Some(used) = self.uses.iter_mut().find(|used| used.kind == kind) {
            *used = PolicyUse::built_in(BuiltIn::default_of(kind), source);
        }
    }
}

#[cfg(test)]
mod tests;
