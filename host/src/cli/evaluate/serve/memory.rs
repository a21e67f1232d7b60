//! The memory of a server that runs for days.

#![allow(unsafe_code)] // an option of the allocator

use libmimalloc_sys::{mi_option_set, mi_option_t, mi_option_use_numa_nodes};

/// `mi_option_purge_delay`, for which the bindings have no name: in `mimalloc.h` it stands before this one.
const PURGE_DELAY: mi_option_t = mi_option_use_numa_nodes - 1;

/// From now on freed memory is returned to the system at once. By default the allocator keeps it, for each thread, until a later
/// allocation of that thread finds it unused for some time: after candidates of hundreds of kilobytes a server kept 30 MB.
///
/// Processes started later inherit it.
pub(super) fn return_freed_at_once() {
    // SAFETY: options may be set at any time.
    unsafe { mi_option_set(PURGE_DELAY, 0) };
}
