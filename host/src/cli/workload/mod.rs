//! `blis workload`: workloads without a simulation.

mod compose;
mod traces;

use blis_eval::error::RunError;
use clap::{Args, Subcommand};

use traces::InspectArgs;

pub(super) use compose::{ComposeArgs, compose};
pub(super) use traces::{ConvertArgs, convert};

#[derive(Debug, Args)]
pub(super) struct WorkloadArgs {
    #[command(subcommand)]
    command: WorkloadCommand,
}

#[derive(Debug, Subcommand)]
enum WorkloadCommand {
    /// Show rate, burstiness, lengths and shared prefixes of a workload
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Inspect(InspectArgs),
    /// Write a request trace in another format, and report what is lost
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Convert(ConvertArgs),
    /// Write one workload specification that sends what several send together
    #[command(args_override_self = true)]
    Compose(ComposeArgs),
}

pub(super) fn dispatch(args: WorkloadArgs) -> Result<(), RunError> {
    match args.command {
        WorkloadCommand::Inspect(args) => traces::inspect(&args),
        WorkloadCommand::Convert(args) => convert(&args),
        WorkloadCommand::Compose(args) => compose(&args),
    }
}
