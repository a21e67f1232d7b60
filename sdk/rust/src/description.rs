//! The description that a policy returns, and the setup that it gets.

use std::ops::RangeInclusive;

pub use blis_abi::{EventSet, Kind};

use crate::rows::InstanceInfo;

/// The description of a policy. Its kinds are those that [`crate::export_policy!`] names.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) about: String,
    pub(crate) events: EventSet,
    pub(crate) scores: bool,
    pub(crate) every_step: bool,
    pub(crate) parameters: Vec<Parameter>,
}

/// A parameter that users may set.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    pub(crate) name: String,
    pub(crate) about: String,
    /// Other values have the same type, and tables as many columns.
    pub(crate) default: GivenValue,
    /// Limits of a number, or of every number of a table.
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum GivenValue {
    /// A number.
    Number(f64),
    /// Any text.
    Text(String),
    /// Rows of numbers.
    Table(NumberTable),
}

/// Numbers in rows of equal length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NumberTable {
    /// Numbers in a row.
    pub columns: usize,
    /// All numbers, row by row.
    pub numbers: Vec<f64>,
}

impl NumberTable {
    /// The rows, from the first on.
    pub fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.numbers.chunks_exact(self.columns.max(1))
    }
}

impl Description {
    /// The description of a policy called `name`, which subscribes to no events and has no parameters.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: String::new(),
            about: String::new(),
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
    pub fn parameter(self, name: &str, default: f64, range: RangeInclusive<f64>, about: &str) -> Self {
        self.with(name, GivenValue::Number(default), range, about)
    }

    /// Declares a parameter that is a text. [`Setup::text`] returns its value.
    #[must_use]
    pub fn text_parameter(self, name: &str, default: &str, about: &str) -> Self {
        self.with(name, GivenValue::Text(default.to_owned()), 0.0..=0.0, about)
    }

    /// Declares a parameter that is a table of numbers within `range`. [`Setup::table`] returns its value, which has as
    /// many columns as `default`.
    #[must_use]
    pub fn table_parameter(self, name: &str, default: NumberTable, range: RangeInclusive<f64>, about: &str) -> Self {
        self.with(name, GivenValue::Table(default), range, about)
    }

    fn with(mut self, name: &str, default: GivenValue, range: RangeInclusive<f64>, about: &str) -> Self {
        let (min, max) = range.into_inner();
        self.parameters.push(Parameter { name: name.to_owned(), about: about.to_owned(), default, min, max });
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
    pub(crate) parameters: Vec<(String, GivenValue)>,
    pub(crate) model_facts: Vec<(String, f64)>,
}

impl Setup {
    /// For tests: `kind`, the default parameters of `description`, one instance, no metadata.
    #[must_use]
    pub fn of(kind: Kind, description: &Description) -> Self {
        let info = InstanceInfo { id: 0, max_num_seqs: 256, total_kv_blocks: 10_000, block_size: 16 };
        let parameters = description.parameters.iter().map(|p| (p.name.clone(), p.default.clone())).collect();
        Self { kind, instances: vec![info], parameters, model_facts: Vec::new() }
    }

    /// For tests: the same setup with the numeric parameter `name` set to `value`.
    ///
    /// # Panics
    /// If `describe()` declares no parameter of that name.
    #[must_use]
    pub fn with(self, name: &str, value: f64) -> Self {
        self.with_value(name, GivenValue::Number(value))
    }

    /// For tests: the same setup with parameter `name` set to `value`.
    ///
    /// # Panics
    /// If `describe()` declares no parameter of that name.
    #[must_use]
    pub fn with_value(mut self, name: &str, value: GivenValue) -> Self {
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

    /// The value of a numeric parameter, within the declared range.
    ///
    /// # Panics
    /// If `describe()` declares no numeric parameter of that name.
    #[must_use]
    pub fn parameter(&self, name: &str) -> f64 {
        match self.value(name) {
            GivenValue::Number(number) => *number,
            other => panic!("parameter `{name}` is no number: {other:?}"),
        }
    }

    /// The value of a parameter that is a text.
    ///
    /// # Panics
    /// If `describe()` declares no such parameter.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        match self.value(name) {
            GivenValue::Text(text) => text,
            other => panic!("parameter `{name}` is no text: {other:?}"),
        }
    }

    /// The value of a parameter that is a table.
    ///
    /// # Panics
    /// If `describe()` declares no such parameter.
    #[must_use]
    pub fn table(&self, name: &str) -> &NumberTable {
        match self.value(name) {
            GivenValue::Table(table) => table,
            other => panic!("parameter `{name}` is no table: {other:?}"),
        }
    }

    fn value(&self, name: &str) -> &GivenValue {
        let parameter = self.parameters.iter().find(|(declared, _)| declared == name);
        &parameter.unwrap_or_else(|| panic!("describe() declares no parameter `{name}`")).1
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
