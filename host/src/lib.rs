//! BLIS as a library: everything behind the `blis` program.

pub mod cli;
pub mod config;
pub mod decisions;
pub mod evaluate;
mod excerpt;
pub mod fit;
pub mod plugin;
pub mod report;
mod strict_yaml;
mod unreadable;
pub mod workload;
