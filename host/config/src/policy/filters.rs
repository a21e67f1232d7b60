//! The filters of `weighted` routing as users write them: built-in ones, which are rows of the registry, or plugins.
//!
//! ```text
//! --routing-filters prefix-cache-affinity:affinity=0.7,saturation,mine.rhai
//! filters: [{name: prefix-cache-affinity, parameters: {affinity: 0.7}}, {name: saturation}, {name: mine.rhai}]
//! ```

use std::fmt::{self, Display};

use blis_sim::policy::RoutingFilter;

use super::BuiltIn;
use super::llm_d::plugins::{PluginType, Role};
use super::parameter::{self, ParameterInput, ParameterValues, number_of};
use super::registry::Build;
use blis_diag::quoted;
use blis_plugin::{Kind, PolicyParameter};

/// A filter with the values of its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum FilterSetting {
    BuiltIn(BuiltInFilter),
    /// A plugin, by the name or path as it was written, and values for its parameters.
    Plugin {
        name: String,
        given: Vec<(String, ParameterInput)>,
    },
}

/// A filter of this program with the values of its parameters.
#[derive(Clone, Debug)]
pub struct BuiltInFilter {
    row: &'static BuiltIn,
    /// In the order of the row.
    values: Vec<f64>,
}

impl FilterSetting {
    /// The filter `name` with its defaults: a built-in one, else a plugin, which may not exist.
    ///
    /// # Errors
    /// If it is a filter of llm-d that has another name here: what is wrong, and the hint.
    pub fn named(name: &str) -> Result<Self, (String, String)> {
        if let Some(filter) = BuiltInFilter::named(name) {
            return Ok(Self::BuiltIn(filter));
        }
        match PluginType::find(name).map(|plugin| plugin.role) {
            Some(Role::Filter(ours)) => {
                Err((format!("unknown filter {}", quoted(name.as_bytes())), format!("did you mean `{ours}`?")))
            }
            _ if name.is_empty() => Err(("a filter without a name".to_owned(), "name one".to_owned())),
            _ => Ok(Self::Plugin { name: name.to_owned(), given: Vec::new() }),
        }
    }

    /// Sets the parameter `name`.
    ///
    /// # Errors
    /// If a built-in filter has no such parameter or the value is out of its range: what is wrong, and the hint.
    pub fn set(&mut self, name: &str, value: ParameterInput) -> Result<(), (String, String)> {
        match self {
            Self::BuiltIn(filter) => filter.set(name, number_of(filter.name(), name, &value)?),
            Self::Plugin { given, .. } => {
                given.push((name.to_owned(), value));
                Ok(())
            }
        }
    }

    /// Its name in flags and bundles.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::BuiltIn(filter) => filter.name(),
            Self::Plugin { name, .. } => name,
        }
    }

    /// The filter, if it is one of this program.
    #[must_use]
    pub fn built_in(&self) -> Option<&BuiltInFilter> {
        match self {
            Self::BuiltIn(filter) => Some(filter),
            Self::Plugin { .. } => None,
        }
    }

    /// Checks a list of filters.
    ///
    /// # Errors
    /// If a filter occurs twice: its index, what is wrong, and the hint.
    pub fn check(list: &[Self]) -> Result<(), (usize, String, String)> {
        let again = |index: &usize| list[..*index].iter().any(|other| other.name() == list[*index].name());
        match (0..list.len()).find(again) {
            Some(index) => {
                let what = format!("filter {}, `{}`, is listed twice", index + 1, list[index].name());
                Err((index, what, "give it once".to_owned()))
            }
            None => Ok(()),
        }
    }

    /// Names and summaries of the built-in filters, for lists.
    pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
        BuiltIn::for_kind(Kind::RoutingFilter).map(|row| (row.name, row.about))
    }
}

impl BuiltInFilter {
    /// The filter `name` with its defaults.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let row = BuiltIn::find(Kind::RoutingFilter, name)?;
        Some(Self { row, values: row.parameters().iter().map(|parameter| parameter.default).collect() })
    }

    /// Its name in flags and bundles.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.row.name
    }

    /// Sets the parameter `name`.
    ///
    /// # Errors
    /// If there is no such parameter or the value is out of its range: what is wrong, and the hint.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), (String, String)> {
        let index = parameter::find_number(self.row.name, &self.row.parameters(), name, value)?;
        self.values[index] = value;
        Ok(())
    }

    /// Names, defaults and ranges of its parameters with their values.
    pub fn parameters(&self) -> impl Iterator<Item = (PolicyParameter, f64)> + '_ {
        self.row.parameters().into_iter().zip(self.values.iter().copied())
    }

    /// The filter for a simulation.
    #[must_use]
    pub fn build(&self) -> RoutingFilter {
        let values = self.parameters().map(|(parameter, value)| (parameter.name, value));
        match self.row.build {
            Build::Filter(build) => build(&ParameterValues(values.collect())),
            _ => unreachable!("rows of filters build filters"),
        }
    }
}

impl PartialEq for BuiltInFilter {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.values == other.values
    }
}

/// As in `--routing-filters`: the name, and the values that are not the defaults.
impl Display for FilterSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::BuiltIn(filter) => {
                let set = filter.parameters().filter(|(parameter, value)| parameter.default != *value);
                set.into_iter().try_for_each(|(parameter, value)| write!(f, ":{}={value}", parameter.name))
            }
            Self::Plugin { given, .. } => given.iter().try_for_each(|(name, value)| write!(f, ":{name}={value}")),
        }
    }
}
