//! Which policies run the service, with their parameters: plain data, chosen by flags and a bundle.
//!
//! ```text
//! flags ──────────────────┐
//! bundle (YAML) → Choices ┴→ PolicySettings → YAML again, for `--explain-config`
//! ```
//!
//! A flag wins over the bundle, the bundle over the default ([`PolicySettings::choose`]). Every
//! value says where it comes from ([`Sourced`]). What is given and could have no effect is an error.

mod bundle;
mod choose;
mod error;
mod explain;
mod names;
mod outside;
mod sourced;

use blis_sim::policy::DEFAULT_PROFILE;
pub use blis_sim::policy::ScorerKind;
pub use bundle::Bundle;
pub use choose::Choices;
pub use error::PolicyError;
pub use names::{AdmissionName, Named, PreemptionName, PriorityName, RoutingName, SchedulerName, built_in_names};
pub use outside::{NoPlugins, Outside, PluginUse, Unusable, Word};
pub use sourced::{Source, Sourced};

use blis_plugin::Kind;

/// The policies of a service, with nothing left open.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySettings {
    /// Who may enter.
    pub admission: Sourced<AdmissionSettings>,
    /// Urgency of classes that differ from the usual table, -100 to 100: bigger is more urgent,
    /// below 0 may be shed. In the order of the bundle.
    pub slo_priorities: Vec<(String, Sourced<i32>)>,
    /// Share of the service's batch slots that a tenant may have in flight, 0 to 1. In the order
    /// of the bundle; tenants that are not named have no limit.
    pub tenant_budgets: Vec<(String, Sourced<f64>)>,
    /// Which instance serves a request.
    pub routing: Sourced<RoutingSettings>,
    /// How urgent it is there.
    pub priority: Sourced<PriorityName>,
    /// Order of the wait queue.
    pub scheduler: Sourced<SchedulerName>,
    /// Who leaves the batch when KV blocks run out.
    pub preemption: Sourced<PreemptionName>,
    /// Plugins that take the place of what the fields above say, at most one per kind.
    pub plugins: Vec<PluginUse>,
}

impl PolicySettings {
    /// The plugin used for `kind`; `None` if a built-in decides.
    #[must_use]
    pub fn plugin(&self, kind: Kind) -> Option<&PluginUse> {
        self.plugins.iter().find(|used| used.kind == kind)
    }
}

/// An admission policy and its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum AdmissionSettings {
    /// Admits everything.
    AlwaysAdmit,
    /// Admits a prompt if the bucket holds as many tokens.
    TokenBucket {
        /// Most tokens in the bucket, above 0. It starts full.
        capacity: Sourced<f64>,
        /// Tokens per second that flow in, above 0.
        refill_rate: Sourced<f64>,
    },
    /// Rejects everything.
    RejectAll,
    /// Beyond a load, admits only urgent classes.
    TierShed {
        /// Largest effective load of any instance up to which everything is admitted, requests.
        threshold: Sourced<u64>,
        /// Least urgency that is admitted beyond it.
        min_priority: Sourced<i32>,
    },
    /// Rejects sheddable classes while the service is saturated.
    GaieLegacy {
        /// Wait queue that means saturation, requests, above 0.
        queue_depth: Sourced<f64>,
        /// Used share of KV blocks that means saturation, above 0, at most 1.
        kv_utilization: Sourced<f64>,
    },
}

/// A routing policy and its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum RoutingSettings {
    /// One after the other.
    RoundRobin,
    /// The smallest effective load.
    LeastLoaded,
    /// The largest sum of scores.
    Weighted(Weights),
    /// The same prompt to the same instance.
    PrefixAffinity,
    /// The largest effective load.
    AlwaysBusiest,
}

/// What the policy `weighted` adds up. Weights are relative: only their ratios matter.
#[derive(Clone, Debug, PartialEq)]
pub enum Weights {
    /// Scorers by name, none twice.
    Scorers(Vec<Sourced<Scorer>>),
    /// The two terms of BLIS before it had scorers; not both 0.
    CacheAndLoad {
        /// Of the share of free KV blocks, relative to the instance with most, ≥ 0.
        cache: Sourced<f64>,
        /// Of 1 / (1 + load), ≥ 0.
        load: Sourced<f64>,
    },
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

impl AdmissionSettings {
    /// Its policy.
    #[must_use]
    pub fn name(&self) -> AdmissionName {
        match self {
            Self::AlwaysAdmit => AdmissionName::AlwaysAdmit,
            Self::TokenBucket { .. } => AdmissionName::TokenBucket,
            Self::RejectAll => AdmissionName::RejectAll,
            Self::TierShed { .. } => AdmissionName::TierShed,
            Self::GaieLegacy { .. } => AdmissionName::GaieLegacy,
        }
    }
}

impl RoutingSettings {
    /// Its policy.
    #[must_use]
    pub fn name(&self) -> RoutingName {
        match self {
            Self::RoundRobin => RoutingName::RoundRobin,
            Self::LeastLoaded => RoutingName::LeastLoaded,
            Self::Weighted(_) => RoutingName::Weighted,
            Self::PrefixAffinity => RoutingName::PrefixAffinity,
            Self::AlwaysBusiest => RoutingName::AlwaysBusiest,
        }
    }
}

#[cfg(test)]
mod tests;
