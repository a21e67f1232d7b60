//! A policy by its name or path, and where it is searched.

use std::path::PathBuf;

use blis_config::policy::{Ambiguous, BuiltIn};
use blis_diag::printable;
use blis_eval::error::RunError;
use blis_plugin::find::{Finder, PluginFile};
use blis_plugin::{Fault, LoadedPlugin, Technology};
use clap::Args;

/// A policy by its name or path: built in, or a file.
pub(super) enum Named {
    BuiltIn(&'static BuiltIn),
    Plugin(PluginFile),
}

impl Named {
    /// Name, file and technology.
    pub fn identity(&self) -> (String, String, Technology) {
        match self {
            Self::BuiltIn(row) => (row.name.to_owned(), row.full_name(), Technology::BuiltIn),
            Self::Plugin(found) => {
                let file = blis_diag::display(&found.location.path()).to_string();
                (printable(&found.name).into_owned(), file, found.technology)
            }
        }
    }

    pub fn load(self, finder: &Finder) -> Result<LoadedPlugin, Fault> {
        match self {
            Self::BuiltIn(row) => Ok(row.load()),
            Self::Plugin(found) => finder.load(&found),
        }
    }
}

/// The policy called `name`. Built-in policies come first, as when a run looks up a name.
pub(super) fn find_any(finder: &Finder, name: &str) -> Result<Named, RunError> {
    let built_in = BuiltIn::named(name).map_err(|Ambiguous { what, hint }| RunError::usage(what).hint(hint))?;
    built_in.map_or_else(|| find(finder, name).map(Named::Plugin), |row| Ok(Named::BuiltIn(row)))
}

/// The plugin called `name`, by name or path.
pub(super) fn find(finder: &Finder, name: &str) -> Result<PluginFile, RunError> {
    let found = finder.find(name).map_err(usage_error)?;
    let known: Vec<&str> = BuiltIn::all().iter().map(|row| row.name).collect();
    found.ok_or_else(|| {
        RunError::usage(format_args!("unknown plugin: `{}`", printable(name))).hint(finder.hint(name, &known))
    })
}

pub(super) fn load(finder: &Finder, found: &PluginFile) -> Result<LoadedPlugin, RunError> {
    finder.load(found).map_err(usage_error)
}

/// The usage error for a plugin that cannot be used, with the message and hint of `fault`.
pub(super) fn usage_error(fault: Fault) -> RunError {
    RunError::usage(fault.diagnostic)
}

/// The search path of plugins.
#[derive(Debug, Args)]
pub(super) struct PluginSearchArgs {
    /// Folder with plugins, searched before policies/; may be given several times
    #[arg(long, value_name = "FOLDER")]
    policy_dir: Vec<PathBuf>,
    /// Allow native libraries: they run unsandboxed, with your rights
    #[arg(long)]
    allow_native: bool,
    /// Allow components as large as those with an interpreter inside (Python, JavaScript): compiling one may take a minute
    #[arg(long)]
    pub allow_large_components: bool,
}

impl PluginSearchArgs {
    pub fn finder(&self) -> Finder {
        let mut finder = Finder { allow_native: self.allow_native, ..Finder::new(self.policy_dir.clone()) };
        finder.limits.large_components = self.allow_large_components;
        finder
    }
}
