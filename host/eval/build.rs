//! Sets `BLIS_BUILD`, a hash of the sources and data that a result depends on: cached results are used only by the
//! build that computed them. It also rebuilds the crate when a file is added to a folder that it embeds.

#![allow(clippy::disallowed_methods, reason = "it reads the sources")]

use std::hash::Hasher as _;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=../../examples/discoveries");
    let roots = ["diag", "sim", "workload", "plugin", "config", "report", "eval"];
    let sources = roots.map(|name| format!("../{name}/src"));
    let others =
        ["../../hardware", "../../model_configs", "../../policies", "../../examples/suites", "../../Cargo.lock"];
    let mut files = Vec::new();
    for root in sources.iter().map(String::as_str).chain(others) {
        println!("cargo::rerun-if-changed={root}");
        collect(Path::new(root), &mut files);
    }
    files.sort();
    // The hash needs no cryptographic strength, but must be the same on every machine.
    #[allow(deprecated, reason = "SipHash with fixed keys, independent of changes of the default hasher")]
    let mut hasher = std::hash::SipHasher::new();
    for file in &files {
        hasher.write(file.to_string_lossy().as_bytes());
        hasher.write(&std::fs::read(file).unwrap_or_default());
    }
    println!("cargo::rustc-env=BLIS_BUILD={:016x}", hasher.finish());
}

/// Appends all files at or under `path` to `files`, but hidden ones, as those that tools leave behind.
fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.') && name != "..") {
        return;
    }
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().for_each(|entry| collect(&entry.path(), files)),
        Err(_) => files.push(path.to_owned()),
    }
}
