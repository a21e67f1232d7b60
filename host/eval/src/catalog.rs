//! The policies of an experiment that are not built in: plugins, found by name and compiled once.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::spec::ExperimentSpec;
use blis_config::policy::{PluginLookup, PluginLookupError, ScalingRow, built_in_names, llm_d_hint};
use blis_plugin::find::Finder;
use blis_plugin::{Fault, Kind, Limits, LoadedPlugin};

/// The folders in which plugins are searched, and the plugins that are loaded.
pub struct Catalog {
    finder: Finder,
    loaded: Mutex<BTreeMap<String, Arc<LoadedPlugin>>>,
}

impl Catalog {
    /// Searches the folders that `spec` names and the default ones. Plugins are loaded when they are first used.
    #[must_use]
    pub fn new(spec: &ExperimentSpec) -> Self {
        let allow_native = spec.allow_native();
        let mut finder = Finder { allow_native, ..Finder::new(spec.policy_dir.clone().unwrap_or_default()) };
        finder.limits.large_components = spec.allow_large_components();
        finder.beside = spec.beside.clone();
        Self { finder, loaded: Mutex::default() }
    }

    /// The same catalog with one more plugin, which was compiled elsewhere, and with its limits.
    pub fn with(&self, loaded: &Arc<LoadedPlugin>, limits: Limits) -> Self {
        let known = lock(&self.loaded).clone();
        let all = known.into_iter().chain([(loaded.name.clone(), Arc::clone(loaded))]).collect();
        Self { finder: Finder { limits, ..self.finder.clone() }, loaded: Mutex::new(all) }
    }

    pub fn dirs(&self) -> &[PathBuf] {
        &self.finder.dirs
    }

    pub fn limits(&self) -> Limits {
        self.finder.limits
    }

    /// Finds and compiles the plugin `name`, or returns the one that is loaded; `None` if there is no such plugin.
    fn load(&self, name: &str) -> Result<Option<Arc<LoadedPlugin>>, Fault> {
        let mut loaded = lock(&self.loaded);
        if let Some(known) = loaded.get(name) {
            return Ok(Some(Arc::clone(known)));
        }
        let Some(found) = self.finder.find(name)? else { return Ok(None) };
        let fresh = Arc::new(self.finder.load(&found)?);
        loaded.insert(name.to_owned(), Arc::clone(&fresh));
        Ok(Some(fresh))
    }
}

/// Shows the folders only: the settings show the plugins.
impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Catalog").field(&self.finder).finish()
    }
}

/// The names of the policies of `kind` that are built in.
fn names_of(kind: Kind) -> Vec<&'static str> {
    match kind {
        Kind::Scaling => ScalingRow::all().iter().map(|row| row.name).collect(),
        _ => built_in_names(kind),
    }
}

impl PluginLookup for Catalog {
    fn plugin(&self, kind: Kind, name: &str) -> Result<Arc<LoadedPlugin>, PluginLookupError> {
        let broken = |fault: Fault| {
            let diagnostic = fault.diagnostic.or_hint("`blis plugin check` checks all of it");
            let what = diagnostic.without_hint().to_string();
            PluginLookupError::Broken { what, hint: diagnostic.hint.unwrap_or_default() }
        };
        let loaded = self.load(name).map_err(broken)?;
        let Some(loaded) = loaded else {
            let hint = llm_d_hint(name).filter(|_| kind == Kind::Routing);
            let hint = hint.unwrap_or_else(|| self.finder.hint(name, &names_of(kind)));
            return Err(PluginLookupError::Unknown { hint });
        };
        let kinds = &loaded.plugin.description().kinds;
        if !kinds.contains(&kind) {
            let known: Vec<&str> = kinds.iter().map(|kind| kind.what()).collect();
            let what = format!("`{name}` ({}) is no {}", loaded.file, kind.what());
            return Err(PluginLookupError::Broken { what, hint: format!("it is a {}", known.join(" and a ")) });
        }
        Ok(loaded)
    }
}
