//! `blis steps`: a recorded scenario of vLLM's scheduler, step by step. Hidden: outside checks of the scheduler use it.

use std::path::PathBuf;

use blis_diag::{decompressed, read_bytes, unreadable};
use blis_eval::error::RunError;
use blis_eval::steps::{EngineKind, RecordedScenario, steps};
use clap::{Args, ValueEnum};

use super::output::print_document;

/// Scenarios are at most this large, compressed or not.
const MOST_BYTES: u64 = 256 << 20;

#[derive(Debug, Args)]
pub(super) struct StepsArgs {
    /// Scenario in the form of cases/vllm or cases/vllm-groups: JSON, gzip-compressed or not
    #[arg(value_name = "CASE")]
    case: PathBuf,
    /// Engine that plans the steps
    #[arg(long, value_enum, value_name = "NAME", default_value_t = SimulationChoice::Fast)]
    simulation: SimulationChoice,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SimulationChoice {
    /// The engine of simulations; with KV groups the reference
    Fast,
    /// The reference
    Plain,
}

/// Prints what the scheduler does.
pub(super) fn run(args: &StepsArgs) -> Result<(), RunError> {
    let shown = args.case.display().to_string();
    let bytes = read_bytes(&args.case, MOST_BYTES).and_then(|bytes| decompressed(bytes, MOST_BYTES));
    let bytes = bytes.map_err(|error| RunError::refused(unreadable(&shown, &error)))?;
    let refused = |what: &dyn std::fmt::Display| {
        RunError::usage(format_args!("`{shown}`: {what}")).hint("scenarios have `config` and `requests`")
    };
    let text = String::from_utf8(bytes).map_err(|error| refused(&error))?;
    let case = RecordedScenario::read(&text).map_err(|error| refused(&error))?;
    let engine = match args.simulation {
        SimulationChoice::Fast => EngineKind::Fast,
        SimulationChoice::Plain => EngineKind::Plain,
    };
    print_document(&steps(&case, engine).map_err(|error| refused(&error))?)
}
