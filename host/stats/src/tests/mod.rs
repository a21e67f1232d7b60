//! Processes with known means, and what the procedures conclude of them.

mod comparisons;
mod coverage;
mod model_error;
mod odd_input;
pub mod processes;
mod reference;

use std::path::Path;

/// A file of `../shared/cases/statistics`; `None`, with a message, if it is not there.
#[expect(clippy::disallowed_methods, reason = "a file of ours")]
fn shared(name: &str) -> Option<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases/statistics").join(name);
    let bytes = std::fs::read(&path).ok();
    if bytes.is_none() {
        println!("skipped: {} is not there", path.display());
    }
    bytes
}
