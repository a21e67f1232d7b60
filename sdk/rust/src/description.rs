//! The description that a policy returns, and the setup that it gets.

use std::ops::RangeInclusive;

pub use blis_abi::{ColumnSet, EventSet, Kind};

use crate::rows::InstanceInfo;

/// The description of a policy. Its kinds are those that [`crate::export_policy!`] names.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) about: String,
    pub(crate) reads: ColumnSet,
    pub(crate) events: EventSet,
    pub(crate) scores: bool,
    pub(crate) every_step: bool,
    pub(crate) parameters: Vec<Parameter>,
}

/// A numeric parameter that users may set.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    pub(crate) name: String,
    pub(crate) default: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) about: String,
}

impl Description {
    /// The description of a policy called `name`, which reads no columns, subscribes to no events and has no
    /// parameters.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: String::new(),
            about: String::new(),
            reads: ColumnSet::NOTHING,
            events: EventSet::NONE,
            scores: false,
            every_step: false,
            parameters: Vec::new(),
        }
    }

    /// Sets the version of the policy, as `env!("CARGO_PKG_VERSION")`.
    #[must_use]
    pub fn version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self
    }

    /// Sets the one-line description.
    #[must_use]
    pub fn about(mut self, about: &str) -> Self {
        about.clone_into(&mut self.about);
        self
    }

    /// Sets the columns that the host keeps up to date for the policy.
    #[must_use]
    pub fn reads(mut self, reads: ColumnSet) -> Self {
        self.reads = reads;
        self
    }

    /// Sets the events that the policy subscribes to ([`crate::Lifecycle`]).
    #[must_use]
    pub fn events(mut self, events: EventSet) -> Self {
        self.events = events;
        self
    }

    /// Declares that the policy implements [`crate::Routing::scores`].
    #[must_use]
    pub fn scores(mut self) -> Self {
        self.scores = true;
        self
    }

    /// Latency only: a step of decoding requests may get longer or shorter as their context grows, so the simulator
    /// must call the policy for every single step. Without it, more context must never make a step shorter.
    #[must_use]
    pub fn every_step(mut self) -> Self {
        self.every_step = true;
        self
    }

    /// Declares a numeric parameter within `range`. [`Setup::parameter`] returns its value.
    #[must_use]
    pub fn parameter(mut self, name: &str, default: f64, range: RangeInclusive<f64>, about: &str) -> Self {
        let (min, max) = range.into_inner();
        self.parameters.push(Parameter { name: name.to_owned(), default, min, max, about: about.to_owned() });
        self
    }
}

/// The configuration that a policy gets once, before its first decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The kind for which the policy is used. A policy of two kinds has two states that share nothing.
    pub kind: Kind,
    /// The instances of the service; for scheduling, preemption and latency the one that the policy serves.
    pub instances: Vec<InstanceInfo>,
    pub(crate) parameters: Vec<(String, f64)>,
    pub(crate) model_facts: Vec<(String, f64)>,
}

impl Setup {
    /// For tests: `kind`, the default parameters of `description`, one instance, no metadata.
    #[must_use]
    pub fn of(kind: Kind, description: &Description) -> Self {
        let info = InstanceInfo { id: 0, max_num_seqs: 256, total_kv_blocks: 10_000, block_size: 16 };
        let parameters = description.parameters.iter().map(|p| (p.name.clone(), p.default)).collect();
        Self { kind, instances: vec![info], parameters, model_facts: Vec::new() }
    }

    /// For tests: the same setup with parameter `name` set to `value`.
    ///
    /// # Panics
    /// If `describe()` declares no parameter of that name.
    #[must_use]
    pub fn with(mut self, name: &str, value: f64) -> Self {
        let parameter = self.parameters.iter_mut().find(|(declared, _)| declared == name);
        parameter.unwrap_or_else(|| panic!("describe() declares no parameter `{name}`")).1 = value;
        self
    }

    /// For tests: the same setup with the metadata value `name` set to `value`.
    #[must_use]
    pub fn with_model_fact(mut self, name: &str, value: f64) -> Self {
        self.model_facts.push((name.to_owned(), value));
        self
    }

    /// The value of a parameter, within the declared range.
    ///
    /// # Panics
    /// If `describe()` declares no parameter of that name.
    #[must_use]
    pub fn parameter(&self, name: &str) -> f64 {
        let parameter = self.parameters.iter().find(|(declared, _)| declared == name);
        parameter.unwrap_or_else(|| panic!("describe() declares no parameter `{name}`")).1
    }

    /// The metadata value `name` of model and hardware, as `num_layers`, if it is known.
    #[must_use]
    pub fn model_fact(&self, name: &str) -> Option<f64> {
        self.model_facts.iter().find(|(known, _)| known == name).map(|&(_, value)| value)
    }

    /// All metadata of model and hardware, as names with values.
    pub fn model_facts(&self) -> impl Iterator<Item = (&str, f64)> {
        self.model_facts.iter().map(|(name, value)| (name.as_str(), *value))
    }
}
