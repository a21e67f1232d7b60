//! `blis evaluate`, `search`, `tune` and `serve`: flags of the evaluation of candidates, and what they print.

mod candidates;
mod held_out;
mod init;
mod live;
mod merge;
mod record;
mod search;
mod serve;
mod shinka;
mod summary;
mod tune;

use blis_eval::error::RunError;
use blis_eval::suite::{Suite, SuiteGrants};

use super::command::{EvaluateCommand, EvaluateSubcommand};

pub(super) use candidates::{EvaluateArgs, seconds};
pub(super) use held_out::HeldOutArgs;
pub(super) use init::InitArgs;
pub(super) use merge::MergeArgs;
pub(super) use search::{SearchArgs, search};
pub(super) use serve::{ServeArgs, serve};
pub(super) use shinka::ShinkaArgs;
pub(super) use tune::{TuneArgs, tune};

/// `blis evaluate`, with or without a command.
pub(super) fn dispatch(command: &EvaluateCommand) -> Result<(), RunError> {
    match &command.command {
        None => match &command.args.record {
            Some(name) => record::check(&command.args, name),
            None => candidates::evaluate_candidates(&command.args),
        },
        Some(EvaluateSubcommand::HeldOut(args)) => held_out::held_out(args),
        Some(EvaluateSubcommand::Merge(args)) => merge::merge(args),
        Some(EvaluateSubcommand::Shinka(args)) => shinka::shinka(args),
        Some(EvaluateSubcommand::Init(args)) => init::init(args),
    }
}

/// What the command line grants a suite and its candidates.
#[derive(Debug, Default, clap::Args)]
pub(super) struct GrantFlags {
    /// Allow components as large as those with an interpreter inside (Python, JavaScript): compiling one may take a minute
    #[arg(long)]
    allow_large_components: bool,
    /// Folder outside its own whose files the suite may name; may be given several times
    #[arg(long = "allow-path", value_name = "DIR")]
    allow_path: Vec<std::path::PathBuf>,
}

impl GrantFlags {
    /// The suite called `name`, with what is granted.
    ///
    /// # Errors
    /// If there is none, or it is invalid.
    pub(super) fn open(&self, name: &str) -> Result<Suite, RunError> {
        Ok(Suite::open(name).map_err(RunError::refused)?.granted(&self.granted()))
    }

    fn granted(&self) -> SuiteGrants {
        SuiteGrants { large_components: self.allow_large_components, paths: self.allow_path.clone() }
    }
}
