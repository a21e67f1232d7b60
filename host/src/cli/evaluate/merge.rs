//! `blis evaluate merge`: the evaluation results of an evaluation that ran in parts.

use std::path::PathBuf;

use blis_eval::error::RunError;
use blis_eval::evaluation::evaluate::worse;
use blis_eval::evaluation::shard;
use blis_eval::result::EvaluationStatus;
use clap::Args;

use super::super::output::print;
use super::candidates::ended;

#[derive(Debug, Args)]
pub(in crate::cli) struct MergeArgs {
    /// Folders written by `blis evaluate --shard I/N --out DIR`
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
}

pub(super) fn merge(args: &MergeArgs) -> Result<(), RunError> {
    let mut worst = EvaluationStatus::Ok;
    for document in shard::merge(&args.dirs)? {
        let text = serde_json::to_string(&document).map_err(RunError::runtime)?;
        print(format_args!("{text}\n"))?;
        worst = worse(worst, document.status);
    }
    ended(worst, false)
}
