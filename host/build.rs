//! Rebuilds the crate when a file is added to an embedded folder; changed files are tracked by the compiler. And tells
//! one build from another (`BLIS_BUILD`): answers that were kept are those of the build that gave them.

use std::hash::Hasher as _;
use std::path::{Path, PathBuf};

fn main() {
    for folder in ["../hardware", "../model_configs", "../policies", "../sdk", "src", "sim/src"] {
        println!("cargo::rerun-if-changed={folder}");
    }
    let mut files = Vec::new();
    for root in ["src", "sim/src", "../hardware", "../model_configs", "../Cargo.lock"] {
        collect(Path::new(root), &mut files);
    }
    files.sort();
    // Not a secret and not kept for long: any hash that is the same on every machine will do.
    #[allow(deprecated, reason = "SipHash with fixed keys, whatever becomes of the default hasher")]
    let mut hasher = std::hash::SipHasher::new();
    for file in &files {
        hasher.write(file.to_string_lossy().as_bytes());
        hasher.write(&std::fs::read(file).unwrap_or_default());
    }
    println!("cargo::rustc-env=BLIS_BUILD={:016x}", hasher.finish());
}

/// All files at or under `path`.
fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().for_each(|entry| collect(&entry.path(), files)),
        Err(_) => files.push(path.to_owned()),
    }
}
