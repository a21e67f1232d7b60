//! Which policies run the service, with their parameters: plain data, chosen by flags and a bundle.
//!
//! ```text
//! flags ──────────────────┐
//! bundle (YAML) → Choices ┴→ PolicySettings → YAML again, for `--explain-config`
//! ```
//!
//! A flag wins over the bundle, the bundle over the default ([`PolicySettings::choose`]). Every
//! value says where it comes from ([`Sourced`]). What is given and could have no effect is an error.
//!
//! Built-in policies and plugins are used alike ([`PolicyUse`]): a name, and numbers by name. What is built in is
//! one table ([`BuiltIn`]); BLIS's flags and keys are other names for parameters in it.

mod build;
mod built_in;
mod bundle;
mod choices;
mod choose;
mod error;
mod explain;
mod outside;
pub(crate) mod parameter;
mod registry;
mod sourced;

use blis_sim::policy::DEFAULT_PROFILE;
pub use blis_sim::policy::ScorerKind;
pub use bundle::Bundle;
pub use choices::{Choices, Given};
pub use error::PolicyError;
pub use outside::{NoPlugins, Outside, PolicyUse, Unusable};
pub use registry::{Ambiguous, BuiltIn, built_in_names};
pub use sourced::{Source, Sourced};

use blis_diag::name_hint;
use blis_plugin::Kind;

/// The policies of a service, with nothing left open.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySettings {
    /// One of each kind, in the order of [`Kind::ALL`]; of latency only a plugin: the deployment has what is built in.
    uses: Vec<PolicyUse>,
    /// Urgency of classes that differ from the usual table, -100 to 100: bigger is more urgent,
    /// below 0 may be shed. In the order of the bundle.
    pub slo_priorities: Vec<(String, Sourced<i32>)>,
    /// Share of the service's batch slots that a tenant may have in flight, 0 to 1. In the order
    /// of the bundle; tenants that are not named have no limit.
    pub tenant_budgets: Vec<(String, Sourced<f64>)>,
    /// Coefficients that replace those of the built-in latency model, by name; empty if a plugin computes latency.
    /// The deployment checks them, because it decides which model it is.
    pub latency_parameters: Vec<(String, Sourced<f64>)>,
}

impl PolicySettings {
    /// The policy for `kind`; `None` if it is latency and no plugin computes it.
    #[must_use]
    pub fn used(&self, kind: Kind) -> Option<&PolicyUse> {
        self.uses.iter().find(|used| used.kind == kind)
    }

    /// The plugin used for `kind`; `None` if a built-in decides.
    #[must_use]
    pub fn plugin(&self, kind: Kind) -> Option<&PolicyUse> {
        self.used(kind).filter(|used| used.built_in.is_none())
    }

    /// All plugins.
    pub fn plugins(&self) -> impl Iterator<Item = &PolicyUse> {
        self.uses.iter().filter(|used| used.built_in.is_none())
    }

    /// What bundles and results call the policy for `kind`; empty for a latency model that is built in.
    #[must_use]
    pub fn name(&self, kind: Kind) -> &str {
        self.used(kind).map_or("", PolicyUse::name)
    }

    /// Puts the default of `kind` in place of what was chosen, because of `source`.
    pub fn reset(&mut self, kind: Kind, source: Source) {
        if let Some(used) = self.uses.iter_mut().find(|used| used.kind == kind) {
            *used = PolicyUse::built_in(BuiltIn::default_of(kind), source);
        }
    }
}

/// A scorer and its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scorer {
    /// What is scored.
    pub name: ScorerKind,
    /// Above 0, finite.
    pub weight: f64,
}

impl Scorer {
    /// What `weighted` adds up where nobody says otherwise.
    pub const USUAL: [Self; 3] = [Self::usual(0), Self::usual(1), Self::usual(2)];

    const fn usual(place: usize) -> Self {
        let (name, weight) = DEFAULT_PROFILE[place];
        Self { name, weight }
    }

    /// Checks a list of scorers.
    ///
    /// # Errors
    /// If the list is empty, a name stands twice, or a weight is out of range.
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

/// What is wrong with a list of scorers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScorerFault {
    /// Place of the culprit in the list, from 0.
    pub index: usize,
    /// Whether its weight is wrong, not its name.
    pub in_weight: bool,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub hint: String,
}

const TOO_LARGE: &str = "only their ratios matter: divide them all by the largest";

/// What to tell about `name`, which no scorer is called.
#[must_use]
pub fn scorer_hint(name: &str) -> String {
    name_hint(name, &ScorerKind::ALL.map(ScorerKind::name))
}

#[cfg(test)]
mod tests;
