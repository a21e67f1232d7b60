//! The built-in policies that the settings select, ready for a simulation.

use blis_sim::instance::{Preemption, Scheduler};
use blis_sim::policy::{AdmissionPolicy, Classes, PriorityPolicy, RoutingPolicy};
use blis_sim::rng::Stream;

use super::parameter::ParameterValues;
use super::registry::{Build, BuiltIn, WEIGHTED, weighted_sum};
use super::{PolicySettings, PolicyUse};
use blis_plugin::Kind;

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

    /// The built-in routing policy, which selects the instance for a request.
    ///
    /// # Errors
    /// If a value is invalid: which one.
    pub fn routing(&self) -> Result<Box<dyn RoutingPolicy>, String> {
        let filters: Vec<_> = self.used(Kind::Routing).into_iter().flat_map(|used| &used.filters).collect();
        match self.built_in(Kind::Routing) {
            (row, values) if row.name == WEIGHTED && !filters.is_empty() => {
                let filters = filters.into_iter().map(|filter| filter.build()).collect();
                Ok(Box::new(weighted_sum(&values)?.with_filters(filters)))
            }
            (BuiltIn { build: Build::Routing(build), .. }, values) => build(&values),
            (row, _) => Err(wrong_kind(row)),
        }
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
