//! The map in CONTRIBUTING.md is that of the tree, and files that the documents name are there.

use std::collections::BTreeSet;
use std::fs;

use crate::macros::root;

/// Folders whose folders are all on the map.
const MAPPED: [&str; 3] = ["", "host/", "sdk/"];
/// Where descriptions begin.
const COLUMN: usize = 22;

/// Paths on the map, folders with a slash at the end.
fn map() -> BTreeSet<String> {
    let page = fs::read_to_string(root().join("CONTRIBUTING.md")).expect("CONTRIBUTING.md");
    let block = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the map");
    let mut above: Vec<(usize, String)> = Vec::new();
    let mut paths = BTreeSet::new();
    for line in block.lines() {
        let indent = line.len() - line.trim_start().len();
        if indent >= COLUMN - 2 {
            continue; // a description goes on
        }
        above.retain(|(depth, _)| *depth < indent);
        let folder = above.last().map_or(String::new(), |(_, folder)| folder.clone());
        let names = line.trim_start().split("  ").next().unwrap_or_default();
        for name in names.split(' ') {
            paths.insert(format!("{folder}{name}"));
            if name.ends_with('/') {
                above.push((indent, format!("{folder}{name}")));
            }
        }
    }
    paths
}

#[test]
fn everything_on_the_map_is_there() {
    let map = map();
    assert!(map.len() > 30, "{map:?}");
    for path in map {
        let found = root().join(&path);
        assert_eq!(found.is_dir(), path.ends_with('/'), "CONTRIBUTING.md: {path}");
        assert!(found.exists(), "CONTRIBUTING.md: {path}");
    }
}

#[test]
fn every_folder_is_on_the_map() {
    let map = map();
    for folder in MAPPED {
        for entry in fs::read_dir(root().join(folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_hidden = name.starts_with('.') || name == "target";
            if entry.path().is_dir() && !is_hidden {
                let path = format!("{folder}{name}/");
                assert!(map.contains(&path), "{path} is not on the map in CONTRIBUTING.md");
            }
        }
    }
}

/// Paths between backticks that begin with a folder of the repository.
#[test]
fn files_that_documents_name_are_there() {
    let documents = fs::read_dir(root().join("docs")).expect("docs").map(|entry| entry.expect("an entry").path());
    let documents = documents.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let pages = ["README.md", "CONTRIBUTING.md", "host/fuzz/README.md"].map(|page| root().join(page));
    let mut named = 0;
    for page in documents.chain(pages) {
        let text = fs::read_to_string(&page).expect("a document");
        for word in text.split('`').skip(1).step_by(2) {
            let folder = word.split_once('/').map_or("", |(folder, _)| folder);
            let is_path = word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
            if is_path && ["host", "sdk", "tests", "plugins", "policies", "examples", "docs"].contains(&folder) {
                assert!(root().join(word).exists(), "{}: `{word}`", page.display());
                named += 1;
            }
        }
    }
    assert!(named > 20, "only {named}");
}

/// The loop that the map leads to.
#[test]
fn the_event_loop_is_where_the_map_says() {
    let page = fs::read_to_string(root().join("CONTRIBUTING.md")).expect("CONTRIBUTING.md");
    for (file, function) in [
        ("host/src/cli/mod.rs", "simulate"),
        ("host/eval/src/run.rs", "run"),
        ("host/eval/src/measure.rs", "measure"),
        ("host/sim/src/cluster/mod.rs", "run_sessions"),
        ("host/sim/src/cluster/mod.rs", "execute_until"),
        ("host/sim/src/instance/plain.rs", "step"),
    ] {
        assert!(page.contains(file) && page.contains(function), "CONTRIBUTING.md: `{function}` in {file}");
        let text = fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let is_there = [format!("fn {function}("), format!("fn {function}<")].iter().any(|start| text.contains(start));
        assert!(is_there, "{file} has no `{function}`");
    }
}
