//! Access to the folder `shared` beside the repository.

use std::io::Read;
use std::path::{Path, PathBuf};

/// `../shared/<path>` if it is there.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub fn shared(path: &str) -> Option<PathBuf> {
    let full = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared").join(path);
    if full.exists() {
        Some(full)
    } else {
        eprintln!("skipped: {} is not there", full.display());
        None
    }
}

/// The text of `path` or of `path.gz`.
pub fn read(path: &Path) -> String {
    let mut text = String::new();
    if path.exists() {
        text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    } else {
        let zipped = PathBuf::from(format!("{}.gz", path.display()));
        let file = std::fs::File::open(&zipped).unwrap_or_else(|e| panic!("{}: {e}", zipped.display()));
        flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).expect("gzip");
    }
    text
}
