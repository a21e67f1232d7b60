//! BLIS as a library: everything behind the `blis` program.

pub mod cli;
pub mod config;
pub mod evaluate;
mod excerpt;
pub mod fit;
pub mod plugin;
pub mod report;
mod unreadable;
pub mod workload;
