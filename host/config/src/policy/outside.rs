//! The policies in use: built in, or plugins that a lookup finds.

use std::fmt;
use std::sync::Arc;

use super::{BuiltIn, Source, Sourced, parameter};
use blis_plugin::{Kind, Loaded};

/// Knows the policies that are not built in.
pub trait Outside {
    /// The plugin called `name`, to be used for `kind`.
    ///
    /// If there is no such plugin, or it cannot be used as `kind`.
    /// If there is none, or it cannot be used for that.
    fn plugin(&self, kind: Kind, name: &str) -> Result<Arc<Loaded>, Unusable>;
}

/// Why a policy cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Nothing has that name.
    Unknown {
        /// Names close to it among plugins, and where was looked; may be empty.
        hint: String,
    },
    /// It was found, but.
    Broken {
        what: String,
        /// What to do about it.
        hint: String,
    },
}

/// No policies but the built-in ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPlugins;

impl Outside for NoPlugins {
    fn plugin(&self, _: Kind, _: &str) -> Result<Arc<Loaded>, Unusable> {
        Err(Unusable::Unknown { hint: String::new() })
    }
}

/// A policy and its parameters.
#[derive(Clone)]
pub struct PolicyUse {
    /// What it is used for.
    pub kind: Kind,
    /// The flag or file that names the policy.
    pub source: Source,
    pub loaded: Arc<Loaded>,
    /// Its row, if it is built in.
    pub built_in: Option<&'static BuiltIn>,
    /// Its parameters with their values, in its order; scorers with a weight come first, as they were listed.
    pub parameters: Vec<(String, Sourced<f64>)>,
}

/// What it is, not what says so.
impl fmt::Debug for PolicyUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.loaded.file)?;
        f.debug_map().entries(self.parameters.iter().map(|(name, value)| (name, value))).finish()
    }
}

impl PartialEq for PolicyUse {
    fn eq(&self, other: &Self) -> bool {
        let file = |used: &Self| (used.kind, used.loaded.file.clone(), used.loaded.sha256.clone());
        file(self) == file(other) && self.parameters == other.parameters
    }
}

impl PolicyUse {
    /// With the defaults of all parameters.
    pub(super) fn new(kind: Kind, source: Source, loaded: Arc<Loaded>) -> Self {
        let declared = &loaded.plugin.description().parameters;
        let parameters = declared.iter().map(|one| (one.name.clone(), Sourced::default_value(one.default))).collect();
        Self { kind, source, loaded, built_in: None, parameters }
    }

    /// A built-in policy with its defaults.
    pub(super) fn built_in(row: &'static BuiltIn, source: Source) -> Self {
        Self { built_in: Some(row), ..Self::new(row.kind, source, Arc::new(row.load())) }
    }

    /// As bundles and results call it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self.built_in {
            Some(row) => row.blis_name(),
            None => &self.loaded.name,
        }
    }

    /// Sets parameters by name, the last value of a name counting.
    ///
    /// # Errors
    /// The source of the first value that is not one of a parameter of the policy, what is wrong, and what to do.
    pub(super) fn set(&mut self, given: &[(String, Sourced<f64>)]) -> Result<(), (Source, String, String)> {
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

/// The value of the parameter `name`, which is there.
pub(super) fn put(parameters: &mut [(String, Sourced<f64>)], name: &str, value: Sourced<f64>) {
    if let Some((_, place)) = parameters.iter_mut().find(|(known, _)| known == name) {
        *place = value;
    }
}
