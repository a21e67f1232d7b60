//! What the command line grants a suite: each command that reads one has these flags.

use std::path::PathBuf;

use clap::Args;

use blis_eval::error::RunError;
use blis_eval::suite::{Suite, SuiteGrants};

/// What the command line grants a suite and its candidates.
#[derive(Debug, Default, Args)]
pub(super) struct GrantFlags {
    /// Allow components as large as those with an interpreter inside (Python, JavaScript): compiling one may take a minute
    #[arg(long)]
    allow_large_components: bool,
    /// Folder outside its own in which the suite may name files; may be given several times
    #[arg(long = "allow-path", value_name = "DIR")]
    allow_path: Vec<PathBuf>,
}

impl GrantFlags {
    /// The suite called `name`, with what is granted.
    ///
    /// # Errors
    /// If there is none, or it is invalid.
    pub(super) fn open(&self, name: &str) -> Result<Suite, RunError> {
        Ok(Suite::open(name).map_err(RunError::refused)?.granted(&self.granted()))
    }

    pub(super) fn granted(&self) -> SuiteGrants {
        SuiteGrants { large_components: self.allow_large_components, paths: self.allow_path.clone() }
    }
}
