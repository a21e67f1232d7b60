//! Work with one plugin, in a worker with limits.

use std::num::NonZeroUsize;
use std::time::Duration;

use blis_diag::printable;
use blis_eval::error::RunError;
use blis_eval::worker::{self, TimeLimit};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::super::bound::BoundArgs;
use super::super::workers::default_worker_settings;

/// Runs `work` on the plugin `name` in a worker, within the bound of the command, and within `usual` if that has no wall limit.
pub(super) fn bounded<T: Serialize + DeserializeOwned>(
    args: &BoundArgs,
    usual: Duration,
    name: &str,
    work: impl FnOnce() -> T,
) -> Result<T, RunError> {
    let bound = args.start();
    let usual = if args.wall_s.is_some() { Duration::MAX } else { usual };
    let limit = bound.left(TimeLimit::Total(usual))?;
    let worker = worker::start(&default_worker_settings(Some(NonZeroUsize::MIN)), limit, work)?;
    worker.wait().map_err(|failure| {
        let about = format!("`{}`", printable(name));
        bound.ended(&failure).unwrap_or_else(|| failure.error(&about))
    })
}

/// Time that work with one plugin may take, unless `--wall-s` is given: that is for all of them.
pub(super) const PLUGIN_WALL: Duration = Duration::from_secs(60);
