//! The policies in use: built in, or plugins that a lookup finds.

use std::fmt;
use std::sync::Arc;

use super::{BuiltIn, FilterSetting, SettingSource, Sourced, parameter};
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
}

/// Shows the policy, without the source that selects it.
impl fmt::Debug for PolicyUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.loaded.file)?;
        f.debug_map().entries(self.parameters.iter().map(|(name, value)| (name, value))).finish()?;
        self.others.iter().try_for_each(|(name, value)| write!(f, " {name}={}", value.value))?;
        self.filters.iter().try_for_each(|filter| write!(f, " after {}", filter.value))
    }
}

impl PartialEq for PolicyUse {
    fn eq(&self, other: &Self) -> bool {
        let file = |used: &Self| (used.kind, used.loaded.file.clone(), used.loaded.sha256.clone());
        file(self) == file(other)
            && self.parameters == other.parameters
            && self.others == other.others
            && self.filters == other.filters
    }
}

impl PolicyUse {
    /// The policy with the defaults of all parameters.
    pub(super) fn new(kind: Kind, source: SettingSource, loaded: Arc<LoadedPlugin>) -> Self {
        let declared = &loaded.plugin.description().parameters;
        let parameters = declared.iter().map(|one| (one.name.clone(), Sourced::default_value(one.default))).collect();
        let others = loaded.plugin.description().others.iter();
        let others = others.map(|one| (one.name.clone(), Sourced::default_value(one.default.clone()))).collect();
        Self { kind, source, loaded, built_in: None, parameters, others, filters: Vec::new() }
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

    /// Sets parameters by name; the last value of a name counts.
    ///
    /// # Errors
    /// If a parameter does not exist or its value is out of range: the source of the value, the mistake, and the hint.
    pub(super) fn set(&mut self, given: &[(String, Sourced<f64>)]) -> Result<(), (SettingSource, String, String)> {
        let declared = &self.loaded.plugin.description().parameters;
        for (name, value) in given {
            parameter::find(&self.loaded.name, declared, name, value.value)
                .map_err(|(what, hint)| (value.source.clone(), what, hint))?;
            let parameter = self.built_in.and_then(|row| row.parameter(name));
            let value = value.clone().map(|value| parameter.map_or(value, |parameter| parameter.written(value)));
            put(&mut self.parameters, name, value);
        }
        Ok(())
    }
}

/// Replaces the value of the parameter `name`, if it exists.
pub(super) fn put(parameters: &mut [(String, Sourced<f64>)], name: &str, value: Sourced<f64>) {
    if let Some((_, slot)) = parameters.iter_mut().find(|(known, _)| known == name) {
        *slot = value;
    }
}
