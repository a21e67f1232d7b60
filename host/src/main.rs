//! The `blis` program. The event loop is three hops from here: [`blis::cli::main`], then
//! `cli/run.rs` (one simulation, from configuration to reports), then
//! [`blis_sim::cluster::Cluster::run`].

use std::process::ExitCode;

fn main() -> ExitCode {
    blis::cli::main()
}
