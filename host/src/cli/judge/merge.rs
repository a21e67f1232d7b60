//! `blis merge`: the verdicts of an evaluation that ran in parts.

use std::path::PathBuf;

use blis_eval::error::RunError;
use blis_eval::evaluation::evaluate::worse;
use blis_eval::evaluation::shard;
use blis_eval::result::EvaluationStatus;
use clap::Args;

use super::super::output::print;
use super::evaluate::ended;

#[derive(Debug, Args)]
pub(in crate::cli) struct MergeArgs {
    /// Folders with the parts that `blis evaluate --shard I/N --out DIR` wrote
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
}

/// `blis merge`.
pub(in crate::cli) fn merge(args: &MergeArgs) -> Result<(), RunError> {
    let mut worst = EvaluationStatus::Ok;
    for document in shard::merge(&args.dirs)? {
        let text = serde_json::to_string(&document).map_err(RunError::runtime)?;
        print(format_args!("{text}\n"))?;
        worst = worse(worst, document.status);
    }
    ended(worst, false)
}
