//! BLIS as a library: everything behind the `blis` program.

pub mod cli;
pub mod config;
mod excerpt;
pub mod evaluate;
pub mod report;
mod unreadable;
pub mod workload;
