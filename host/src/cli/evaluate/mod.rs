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
