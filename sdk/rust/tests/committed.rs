//! The modules in `policies/` have the hashes in `policies/SOURCES.toml` and were built from the current sources.

#![allow(clippy::disallowed_methods, reason = "tests make the files that they read")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

#[derive(Deserialize)]
struct SourceList {
    module: Vec<CommittedModule>,
}

#[derive(Deserialize)]
struct CommittedModule {
    file: String,
    sources: Vec<String>,
    sources_sha256: String,
    wasm_sha256: String,
}

#[test]
fn modules_are_built_from_the_current_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("policies/SOURCES.toml")).expect("readable");
    let modules = toml::from_str::<SourceList>(&text).expect("as sdk/rebuild-guests.sh writes it").module;
    assert_eq!(modules.len(), 9);
    let differ = |module: &&CommittedModule| {
        let wasm = fs::read(root.join("policies").join(&module.file)).expect("readable");
        digest(&wasm) != module.wasm_sha256 || digest(lines(&root, &module.sources).as_bytes()) != module.sources_sha256
    };
    let stale: Vec<_> = modules.iter().filter(differ).map(|module| &module.file).collect();
    assert!(stale.is_empty(), "other sources or bytes than recorded: {stale:?}; run sdk/rebuild-guests.sh --write");
}

#[test]
fn modules_contain_no_local_path() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("is there");
    let here = root.to_str().expect("UTF-8");
    let wasm = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "wasm");
    let modules = fs::read_dir(root.join("policies"))
        .expect("readable")
        .map(|entry| entry.expect("readable").path())
        .filter(wasm);
    for module in modules {
        let text = String::from_utf8_lossy(&fs::read(&module).expect("readable")).into_owned();
        for folder in ["/home/", "/root/", "/usr/", "/tmp/", here] {
            assert!(!text.contains(folder), "{} names a folder below {folder}", module.display());
        }
    }
}

/// "<SHA-256>  <path>" of the source files in `folders`, sorted by path.
fn lines(root: &Path, folders: &[String]) -> String {
    let mut files = Vec::new();
    folders.iter().for_each(|folder| collect(root, Path::new(folder), &mut files));
    files.sort();
    files.iter().fold(String::new(), |mut lines, file| {
        let sha256 = digest(&fs::read(root.join(file)).expect("readable"));
        let _ = writeln!(lines, "{sha256}  {file}");
        lines
    })
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<String>) {
    for entry in fs::read_dir(root.join(folder)).expect("readable") {
        let entry = entry.expect("readable");
        let path = folder.join(entry.file_name());
        let text = path.to_str().expect("UTF-8").replace('\\', "/");
        if entry.file_type().expect("known").is_dir() {
            collect(root, &path, files);
        } else if text.ends_with(".c")
            || text.ends_with(".h")
            || text.ends_with("/Cargo.toml")
            || text.ends_with(".rs") && text.contains("/src/")
        {
            files.push(text);
        }
    }
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
