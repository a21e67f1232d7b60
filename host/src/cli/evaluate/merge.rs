//! `blis evaluate merge`: the evaluation results of an evaluation that ran in parts.

use std::path::PathBuf;

use blis_eval::error::Failure;
use blis_eval::judge::evaluate::worse;
use blis_eval::judge::shard;
use blis_eval::verdict::Status;
use clap::Args;

use super::super::output::print;
use super::evaluate::ended;

#[derive(Debug, Args)]
pub(in crate::cli) struct MergeArgs {
    /// Folders written by `blis evaluate --shard I/N --out DIR`
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
}

pub(super) fn merge(args: &MergeArgs) -> Result<(), Failure> {
    let mut worst = Status::Ok;
    for document in shard::merge(&args.dirs)? {
        let text = serde_json::to_string(&document).map_err(Failure::runtime)?;
        print(format_args!("{text}\n"))?;
        worst = worse(worst, document.status);
    }
    ended(worst, false)
}
