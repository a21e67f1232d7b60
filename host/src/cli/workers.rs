//! Settings of the processes in which candidates run.

use std::io::{self, Write as _};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::thread;

use blis_eval::worker::WorkerSettings;
use blis_plugin::user_cache;

/// Default of `--worker-memory-gib`, and the limit of commands without that flag.
pub(super) const DEFAULT_MEMORY_GIB: NonZeroU32 = NonZeroU32::new(8).unwrap();

/// Settings of a worker with `threads` threads, one per core if `None`.
pub(super) fn worker_settings(threads: Option<NonZeroUsize>, memory_gib: NonZeroU32) -> WorkerSettings {
    let cores = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    WorkerSettings {
        memory_bytes: u64::from(memory_gib.get()) << 30,
        threads: threads.unwrap_or_else(cores).get(),
        message: |line| {
            // If it cannot be written, nothing can report that.
            let _ = io::stderr().write_all(line);
        },
    }
}

/// Settings of a worker of a command without a flag for memory.
pub(super) fn default_worker_settings(threads: Option<NonZeroUsize>) -> WorkerSettings {
    worker_settings(threads, DEFAULT_MEMORY_GIB)
}

/// The folder of the runs that all candidates of a suite share; `None` without a home.
pub(super) fn run_cache() -> Option<PathBuf> {
    user_cache::folder().map(|folder| folder.join("runs"))
}
