//! Processes with known means, and what the procedures say of them.

mod coverage;
mod explore;
pub mod processes;
