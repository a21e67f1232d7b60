//! What must hold of everything that is read, whatever its bytes.

mod files;
mod plugins;
mod specs;
mod traces;

pub use files::OneFile;
pub use plugins::ask_a_little;
pub use specs::{check_spec, simulate_a_step};
pub use traces::{check, follow, read, reread};
