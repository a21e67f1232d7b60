//! The `blis` program. The event loop is three hops from here: [`blis::cli::main`], then
//! `blis_eval::run` (one simulation, from configuration to reports), then
//! [`blis_sim::cluster::Cluster::run`].

use std::process::ExitCode;

use blis_plugin::meter::MeteredAllocator;
use mimalloc::MiMalloc;

/// With many instances the live state is larger than the processor's caches and than what its page
/// table cache covers with small pages; this allocator gets huge ones where the system has them. Scripts are limited by
/// what it counts.
#[global_allocator]
static ALLOCATOR: MeteredAllocator<MiMalloc> = MeteredAllocator(MiMalloc);

fn main() -> ExitCode {
    blis::cli::main()
}
