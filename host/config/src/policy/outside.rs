//! The policies in use: built in, or plugins that a lookup finds.

use std::fmt;
use std::sync::Arc;

use super::error::Contradiction;
use super::parameter::{self, ParameterInput, number_of};
use super::{BuiltIn, FilterSetting, SettingSource, Sourced};
use blis_plugin::{Kind, LoadedPlugin, OtherValue};

/// Finds the policies that are not built in.
pub trait PluginLookup {
    /// The plugin `name`, for use as `kind`.
    ///
    /// # Errors
    /// If there is no such plugin, or it cannot be used as `kind`.
    fn plugin(&self, kind: Kind, name: &str) -> Result<Arc<LoadedPlugin>, PluginLookupError>;
}

/// Why a plugin cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginLookupError {
    /// No plugin has that name.
    Unknown {
        /// Similar names of plugins and the folders that were searched; may be empty.
        hint: String,
    },
    /// The plugin was found, but cannot be loaded or used.
    Broken {
        what: String,
        /// What the user can do about it.
        hint: String,
    },
}

/// No policies but the built-in ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPlugins;

impl PluginLookup for NoPlugins {
    fn plugin(&self, _: Kind, _: &str) -> Result<Arc<LoadedPlugin>, PluginLookupError> {
        Err(PluginLookupError::Unknown { hint: String::new() })
    }
}

/// A policy with the values of its parameters.
#[derive(Clone)]
pub struct PolicyUse {
    /// The decision that it makes.
    pub kind: Kind,
    /// The flag or file that names the policy.
    pub source: SettingSource,
    pub loaded: Arc<LoadedPlugin>,
    /// Its row in the registry, if it is built in.
    pub built_in: Option<&'static BuiltIn>,
    /// The parameters with their values, in the order of the declaration; of `weighted`, scorers with a weight come
    /// first, in the order of the list.
    pub parameters: Vec<(String, Sourced<f64>)>,
    /// The parameters that are no numbers, with their values, in the order of the declaration.
    pub others: Vec<(String, Sourced<OtherValue>)>,
    /// Filters in front of the scorers, in their order; only `weighted` has any.
    pub filters: Vec<Sourced<FilterSetting>>,
    /// Its steps that are plugins: filters, scorers and the picker of `weighted`; of a plugin for routing that has a
    /// function `filter`, this filter.
    pub steps: Vec<PipelineStep>,
}

/// A plugin as a step of a routing pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineStep {
    pub role: StepRole,
    /// The name or path as it was written.
    pub name: String,
    pub used: PolicyUse,
}

/// What a step does in a routing pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum StepRole {
    Filter,
    Scorer,
    Picker,
}

impl StepRole {
    /// The name in messages and streams.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.into_str()
    }

    /// The kind of the plugin.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::Filter => Kind::RoutingFilter,
            Self::Scorer | Self::Picker => Kind::Routing,
        }
    }
}

/// Shows the policy, without the source that selects it.
impl fmt::Debug for PolicyUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.loaded.file)?;
        f.debug_map().entries(self.parameters.iter().map(|(name, value)| (name, value))).finish()?;
        self.others.iter().try_for_each(|(name, value)| write!(f, " {name}={}", value.value))?;
        self.filters.iter().try_for_each(|filter| write!(f, " after {}", filter.value))?;
        self.steps.iter().try_for_each(|step| write!(f, " {} {:?}", step.role.into_str(), step.used))
    }
}

impl PartialEq for PolicyUse {
    fn eq(&self, other: &Self) -> bool {
        let file = |used: &Self| (used.kind, used.loaded.file.clone(), used.loaded.sha256.clone());
        file(self) == file(other)
            && self.parameters == other.parameters
            && self.others == other.others
            && self.filters == other.filters
            && self.steps == other.steps
    }
}

impl PolicyUse {
    /// The policy with the defaults of all parameters.
    pub(super) fn new(kind: Kind, source: SettingSource, loaded: Arc<LoadedPlugin>) -> Self {
        let declared = &loaded.plugin.description().parameters;
        let parameters = declared.iter().map(|one| (one.name.clone(), Sourced::default_value(one.default))).collect();
        let others = loaded.plugin.description().others.iter();
        let others = others.map(|one| (one.name.clone(), Sourced::default_value(one.default.clone()))).collect();
        Self { kind, source, loaded, built_in: None, parameters, others, filters: Vec::new(), steps: Vec::new() }
    }

    /// The policy with these values of its parameters.
    ///
    /// # Errors
    /// If a parameter does not exist or cannot have its value: what is wrong, and the hint.
    pub fn with(
        kind: Kind,
        loaded: &LoadedPlugin,
        given: &[(String, ParameterInput)],
    ) -> Result<Self, (String, String)> {
        let mut used = Self::new(kind, SettingSource::Default, Arc::new(loaded.clone()));
        let flag = |value: &ParameterInput| Sourced::flag("--policy-param", value.clone());
        given.iter().try_for_each(|(name, value)| used.set_one(name, &flag(value)))?;
        Ok(used)
    }

    /// A built-in policy with its defaults.
    pub(super) fn built_in(row: &'static BuiltIn, source: SettingSource) -> Self {
        Self { built_in: Some(row), ..Self::new(row.kind, source, Arc::new(row.load())) }
    }

    /// The name in bundles and results.
    #[must_use]
    pub fn name(&self) -> &str {
        match self.built_in {
            Some(row) => row.blis_name(),
            None => &self.loaded.name,
        }
    }

    /// The step `role` called `name`, if it is a plugin.
    #[must_use]
    pub fn step(&self, role: StepRole, name: &str) -> Option<&PipelineStep> {
        self.steps.iter().find(|step| step.role == role && step.name == name)
    }

    /// Sets parameters by name; the last value of a name counts. Parameters of a step have its name in front, as in
    /// `mine.rhai.cache`.
    ///
    /// # Errors
    /// If a parameter does not exist or its value is out of range.
    pub(super) fn set(&mut self, given: &[(String, Sourced<ParameterInput>)]) -> Result<(), Contradiction> {
        for (name, value) in given {
            self.set_one(name, value).map_err(|(what, hint)| Contradiction::new(&value.source, what, hint))?;
        }
        Ok(())
    }

    fn set_one(&mut self, name: &str, value: &Sourced<ParameterInput>) -> Result<(), (String, String)> {
        if self.set_in_steps(name, value)? {
            return Ok(());
        }
        let description = self.loaded.plugin.description();
        if let Some(parameter) = description.others.iter().find(|parameter| parameter.name == name) {
            let other = value.value.other(&self.loaded.name, parameter)?;
            put(&mut self.others, name, value.clone().map(|_| other));
            return Ok(());
        }
        // Whether it exists comes before whether the value is a number.
        let known = description.parameters.iter().find(|parameter| parameter.name == name);
        let number = match known {
            Some(_) => number_of(&self.loaded.name, name, &value.value)?,
            None => value.value.number().unwrap_or_default(),
        };
        parameter::find(&self.loaded.name, description, name, number).map_err(|(what, hint)| {
            match self.steps.first() {
                Some(step) if known.is_none() => {
                    (what, format!("those of a step have its name in front: `{}.…`", step.name))
                }
                _ => (what, hint),
            }
        })?;
        let built_in = self.built_in.and_then(|row| row.parameter(name));
        let number = built_in.map_or(number, |parameter| parameter.written(number));
        put(&mut self.parameters, name, value.clone().map(|_| number));
        Ok(())
    }

    /// Sets a parameter of all steps that `name` begins with: those of plugins, and built-in filters. Returns whether
    /// there is one.
    fn set_in_steps(&mut self, name: &str, value: &Sourced<ParameterInput>) -> Result<bool, (String, String)> {
        let of = |step: &str| name.strip_prefix(step).and_then(|rest| rest.strip_prefix('.'));
        let mut found = false;
        for step in &mut self.steps {
            let Some(parameter) = of(&step.name).or_else(|| of(&step.used.loaded.name)) else { continue };
            // A file that is both filter and scorer declares its parameters once.
            step.used.set_one(parameter, value)?;
            found = true;
        }
        for filter in &mut self.filters {
            let Some(parameter) = of(filter.value.name()) else { continue };
            if let FilterSetting::BuiltIn(built_in) = &mut filter.value {
                built_in.set(parameter, number_of(built_in.name(), parameter, &value.value)?)?;
                found = true;
            }
        }
        Ok(found)
    }
}

/// Replaces the value of the parameter `name`, if it exists.
pub(super) fn put<T>(parameters: &mut [(String, Sourced<T>)], name: &str, value: Sourced<T>) {
    if let Some((_, slot)) = parameters.iter_mut().find(|(known, _)| known == name) {
        *slot = value;
    }
}
