//! Policies that are not built in: whoever looks them up, and what was found.

use std::sync::Arc;

use super::{Source, Sourced};
use blis_plugin::{Kind, Loaded};

/// Knows the policies that are not built in.
pub trait Outside {
    /// The plugin called `name`, to be used for `kind`.
    ///
    /// # Errors
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
        /// What is wrong.
        what: String,
        /// What to do about it.
        hint: String,
    },
}

/// There are none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPlugins;

impl Outside for NoPlugins {
    fn plugin(&self, _: Kind, _: &str) -> Result<Arc<Loaded>, Unusable> {
        Err(Unusable::Unknown { hint: String::new() })
    }
}

/// A name that may be that of a built-in policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word<N> {
    /// It is.
    BuiltIn(N),
    /// It is not: perhaps there is such a plugin.
    Outside(String),
}

/// A plugin that takes the place of a built-in policy.
#[derive(Clone, Debug)]
pub struct PluginUse {
    /// What it is used for.
    pub kind: Kind,
    /// The plugin.
    pub loaded: Arc<Loaded>,
    /// The value of each of its parameters, in its order.
    pub parameters: Vec<Sourced<f64>>,
}

impl PartialEq for PluginUse {
    fn eq(&self, other: &Self) -> bool {
        let file = |used: &Self| (used.kind, used.loaded.file.clone(), used.loaded.sha256.clone());
        file(self) == file(other) && self.parameters == other.parameters
    }
}

impl PluginUse {
    /// `given` are values by name, the last one of a name counting.
    ///
    /// # Errors
    /// The place of the first value that is not one of a parameter of the plugin, what is wrong, and
    /// what to do.
    pub(super) fn new(
        kind: Kind,
        loaded: Arc<Loaded>,
        given: &[(String, Sourced<f64>)],
    ) -> Result<Self, (Source, String, String)> {
        let declared = &loaded.plugin.description().parameters;
        let mut parameters: Vec<_> =
            declared.iter().map(|parameter| Sourced::default_value(parameter.default)).collect();
        for (name, value) in given {
            let fault = |what, hint| (value.source.clone(), what, hint);
            let Some(place) = declared.iter().position(|parameter| parameter.name == *name) else {
                let known: Vec<&str> = declared.iter().map(|parameter| parameter.name.as_str()).collect();
                let quoted = blis_diag::quoted(name.as_bytes());
                let hint = match known.is_empty() {
                    true => "it has no parameters".to_owned(),
                    false => blis_diag::name_hint(name, &known),
                };
                return Err(fault(format!("`{}` has no parameter {quoted}", loaded.name), hint));
            };
            let (min, max) = (declared[place].min, declared[place].max);
            if !(min..=max).contains(&value.value) {
                let what = format!("parameter `{name}` of `{}` is {}", loaded.name, value.value);
                return Err(fault(what, format!("it must be a number from {min} to {max}")));
            }
            parameters[place] = value.clone();
        }
        Ok(Self { kind, loaded, parameters })
    }
}
