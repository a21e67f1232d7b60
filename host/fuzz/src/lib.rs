//! Properties that every reader must have, whatever the input bytes.

mod files;
mod plugins;
mod specs;
mod traces;

pub use files::OneFile;
pub use plugins::call_a_few_times;
pub use specs::{check_spec, simulate_a_step};
pub use traces::{check, follow, read, reread};
