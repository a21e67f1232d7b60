//! How many simulations have completed, in this process and its workers.

use std::sync::atomic::{AtomicU64, Ordering};

use super::process::report_progress;

/// The number of simulations of this process and its workers that have completed so far.
#[must_use]
pub fn finished_simulations() -> u64 {
    FINISHED.load(Ordering::Relaxed)
}

/// Number of completed simulations of this process and its workers, for progress.
static FINISHED: AtomicU64 = AtomicU64::new(0);

/// A worker has reported how many simulations have completed, those before its start included.
pub(super) fn simulations_of_worker(finished: u64) {
    FINISHED.fetch_max(finished, Ordering::Relaxed);
}

/// A simulation has completed.
pub(crate) fn simulation_completed() {
    report_progress(FINISHED.fetch_add(1, Ordering::Relaxed) + 1);
}
