//! BLIS as a library: everything behind the `blis` program.

pub mod config;
pub mod workload;
