//! `blis evaluate` and the commands around it: flags of [`blis_eval::evaluation`], and what they print.

mod evaluate;
mod init;
mod merge;
mod report;
mod serve;
mod shinka;
mod tune;

pub(super) use evaluate::{EvaluateArgs, dispatch};
pub(super) use init::{InitArgs, init};
pub(super) use merge::{MergeArgs, merge};
pub(super) use report::{ReportArgs, report};
pub(super) use serve::{ServeArgs, serve};
pub(super) use shinka::{ShinkaArgs, shinka};
pub(super) use tune::{TuneArgs, tune};
