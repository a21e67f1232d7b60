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
//! Built-in policies and plugins are used alike ([`PolicyUse`]): by name, with numeric parameters. The built-in ones
//! are rows of one table ([`BuiltIn`]); BLIS's flags and keys are aliases of its parameters.

mod build;
mod built_in;
mod bundle;
mod choices;
mod choose;
mod error;
mod explain;
mod filters;
pub mod llm_d;
mod outside;
pub(crate) mod parameter;
mod registry;
mod sourced;

use blis_sim::policy::DEFAULT_PROFILE;
pub use blis_sim::policy::ScorerKind;
pub use bundle::Bundle;
use bundle::read_text;
pub use choices::{Choices, ParameterSetting};
pub use error::PolicyError;
pub use filters::FilterSetting;
pub use outside::{NoPlugins, PluginLookup, PluginLookupError, PolicyUse};
pub use parameter::find as parameter_index;
pub use registry::{Ambiguous, BuiltIn, built_in_names};
pub use sourced::{SettingSource, Sourced};

use blis_diag::name_hint;
use blis_plugin::Kind;
use llm_d::plugins::{PluginType, Role};

/// The policies of a service, all resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySettings {
    /// One policy of each kind, in the order of [`Kind::ALL`]; of latency only a plugin, because built-in models belong
    /// to the deployment.
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

    pub fn plugins(&self) -> impl Iterator<Item = &PolicyUse> {
        self.uses.iter().filter(|used| used.built_in.is_none())
    }

    /// The name of the policy for `kind` in bundles and results; empty for a built-in latency model.
    #[must_use]
    pub fn name(&self, kind: Kind) -> &str {
        self.used(kind).map_or("", PolicyUse::name)
    }

    /// Resets the policy for `kind` to the default, because of `source`.
    pub fn reset(&mut self, kind: Kind, source: SettingSource) {
        if let Some(used) = self.uses.iter_mut().find(|used| used.kind == kind) {
            *used = PolicyUse::built_in(BuiltIn::default_of(kind), source);
        }
    }
}

/// A scorer and its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightedScorer {
    pub name: ScorerKind,
    /// A finite number above 0; only the ratios of weights matter.
    pub weight: f64,
}

impl WeightedScorer {
    /// The scorers of `weighted` without any setting.
    pub const DEFAULT: [Self; 3] = [Self::default_at(0), Self::default_at(1), Self::default_at(2)];

    const fn default_at(index: usize) -> Self {
        let (name, weight) = DEFAULT_PROFILE[index];
        Self { name, weight }
    }

    /// Checks a list of scorers.
    ///
    /// # Errors
    /// If the list is empty, a scorer occurs twice, or a weight is out of range.
    pub fn check(scorers: &[Self]) -> Result<(), ScorerFault> {
        let fault = |index, in_weight, what, hint: &str| ScorerFault { index, in_weight, what, hint: hint.into() };
        if scorers.is_empty() {
            return Err(fault(0, false, "there is no scorer".into(), "name at least one, or leave out the list"));
        }
        for (index, Self { name, weight }) in scorers.iter().enumerate() {
            let (number, text) = (index + 1, name.name());
            if !(weight.is_finite() && *weight > 0.0) {
                let what = format!("scorer {number}, `{text}`: the weight is {weight}");
                return Err(fault(index, true, what, "a weight is a number above 0"));
            }
            if let Some(first) = scorers[..index].iter().position(|other| other.name == *name) {
                let what = format!("scorer {number}, `{text}`: scorer {} is the same", first + 1);
                return Err(fault(index, false, what, "give it once, with the sum of the weights"));
            }
        }
        let sum: f64 = scorers.iter().map(|scorer| scorer.weight).sum();
        if sum.is_finite() { Ok(()) } else { Err(fault(0, true, "the weights add up to infinity".into(), TOO_LARGE)) }
    }
}

/// An error in a list of scorers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScorerFault {
    /// Index of the wrong scorer in the list, from 0.
    pub index: usize,
    /// Whether its weight is wrong, instead of its name.
    pub in_weight: bool,
    pub what: String,
    /// What the user can do about it.
    pub hint: String,
}

const TOO_LARGE: &str = "only their ratios matter: divide them all by the largest";

/// The hint for an unknown scorer `name`.
#[must_use]
pub fn scorer_hint(name: &str) -> String {
    let known = ScorerKind::ALL.map(ScorerKind::name);
    let short = name.strip_suffix("-scorer").unwrap_or(name);
    match scorer_of_llm_d(name).or_else(|| known.into_iter().find(|known| known.starts_with(short))) {
        Some(scorer) if !short.is_empty() => format!("did you mean `{scorer}`?"),
        _ => name_hint(name, &known),
    }
}

/// The hint for an unknown routing policy that is a plugin of llm-d's scheduler: its scorers are those of `weighted`.
#[must_use]
pub fn llm_d_hint(name: &str) -> Option<String> {
    if name == "max-score-picker" {
        return Some("`weighted` picks the instance with the highest score".to_owned());
    }
    let scorer = scorer_of_llm_d(name)?;
    Some(format!("it is a scorer of `weighted`: `--routing-policy weighted --routing-scorers {scorer}:1`"))
}

/// The scorer that llm-d's endpoint picker calls `name`.
fn scorer_of_llm_d(name: &str) -> Option<&'static str> {
    match PluginType::find(name)?.role {
        Role::Scorer(kind) => Some(kind.name()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
