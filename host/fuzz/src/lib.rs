//! Properties that every reader must have, whatever the input bytes.

mod files;
mod modules;
mod plugins;
mod scripts;
mod specs;
mod traces;

pub use files::OneFile;
pub use modules::{Reached, generated_module};
pub use plugins::call_a_few_times;
pub use scripts::{functions, write_script, written_script};
pub use specs::{check_spec, simulate_a_step};
pub use traces::{check, follow, read, reread};
