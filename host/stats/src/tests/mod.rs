//! Processes with known means, and what the procedures say of them.

mod processes;
mod coverage;
