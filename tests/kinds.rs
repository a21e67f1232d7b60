//! The kinds of decisions are in one table (`sdk/abi/src/decisions.rs`): no other file lists them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use blis_plugin::Kind;

use crate::macros::root;

/// A list names so many kinds at least, more than half of them: fewer are a choice among them.
const MANY: usize = Kind::ALL.len() / 2 + 2;
/// Lines without a kind that end a list.
const GAP: usize = 3;
/// The table itself.
const TABLE: &str = "sdk/abi/src/decisions.rs";

/// The kinds that a line names: `Kind::Routing`, `"routing"`, `routing:` or `.routing`.
fn named(line: &str) -> Vec<Kind> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let mut kinds = Vec::new();
    for kind in Kind::ALL {
        let field = kind.name().replace('-', "_");
        let variant = format!("Kind::{kind:?}");
        let written = [(variant.as_str(), ""), (kind.name(), "\""), (field.as_str(), ":"), (field.as_str(), ".")];
        let is_named = written.iter().any(|(word, mark)| {
            line.match_indices(word).any(|(at, _)| {
                let (before, after) = (&line[..at], &line[at + word.len()..]);
                let whole = !before.ends_with(is_word) && !after.starts_with(is_word);
                whole
                    && match *mark {
                        "\"" => before.ends_with('"') && after.starts_with('"'),
                        ":" => after.starts_with(": "),
                        "." => before.ends_with('.'),
                        _ => true,
                    }
            })
        });
        kinds.extend(is_named.then_some(kind));
    }
    kinds
}

/// The first lines of the lists of kinds in `source`, tests left out.
fn lists(source: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let (mut first, mut last, mut seen) = (0, 0, BTreeSet::new());
    for (number, line) in source.lines().enumerate().map(|(index, line)| (index + 1, line)) {
        if line.starts_with("#[cfg(test)]") {
            break;
        }
        let kinds = if line.trim_start().starts_with("//") { Vec::new() } else { named(line) };
        if kinds.is_empty() {
            continue;
        }
        if seen.is_empty() || number - last > GAP {
            (first, seen) = (number, BTreeSet::new());
        }
        last = number;
        seen.extend(kinds);
        if seen.len() >= MANY && found.last() != Some(&first) {
            found.push(first);
        }
    }
    found
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !matches!(name, "tests" | "target") {
            sources(&path, files);
        } else if path.extension().is_some_and(|end| end == "rs") && name != "tests.rs" {
            files.push(path);
        }
    }
}

#[test]
fn no_file_but_the_table_lists_the_kinds() {
    let mut files = Vec::new();
    for folder in ["host", "sdk", "plugins"] {
        sources(&root().join(folder), &mut files);
    }
    assert!(files.len() > 500, "{} files", files.len());
    let mut found = Vec::new();
    for file in files {
        let name = file.strip_prefix(root()).expect("in the tree").display().to_string();
        let source = fs::read_to_string(&file).expect("a source");
        if name != TABLE {
            found.extend(lists(&source).into_iter().map(|line| format!("{name}:{line}")));
        }
    }
    assert_eq!(found, [""; 0], "read the kinds from {TABLE}");
}

/// The generated ones: each says so.
const GENERATED: [&str; 3] = ["docs/flags.md", "docs/json.md", "docs/kinds.md"];

/// Whether a line of a script or of a document names most kinds.
fn is_list(line: &str) -> bool {
    let words: BTreeSet<&str> = line.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_').collect();
    Kind::ALL.into_iter().filter(|kind| words.contains(kind.name())).count() >= MANY
}

/// `sdk/test-languages.sh` had a list of its own, without the latest kind.
#[test]
fn no_script_or_document_lists_the_kinds() {
    let mut files = Vec::new();
    for folder in [".ci", "docs", "sdk", "examples"] {
        all_files(&root().join(folder), &mut files);
    }
    let mut found = Vec::new();
    for file in files {
        let name = file.strip_prefix(root()).expect("in the tree").display().to_string();
        // Schemas and sources in Rust have tests of their own; what is no text is compiled.
        let Ok(text) = fs::read_to_string(&file) else { continue };
        if !GENERATED.contains(&name.as_str()) && !name.ends_with(".json") && !name.ends_with(".rs") {
            let lines = text.lines().enumerate().filter(|(_, line)| is_list(line));
            found.extend(lines.map(|(index, _)| format!("{name}:{}", index + 1)));
        }
    }
    assert_eq!(found, [""; 0], "generate them, or ask the program for them");
}

fn all_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !matches!(name, "target" | "node_modules" | "__pycache__") {
            all_files(&path, files);
        } else if path.is_file() {
            files.push(path);
        }
    }
}

#[test]
fn a_list_of_kinds_is_found() {
    assert!(is_list(&Kind::ALL.map(Kind::name).join(" ")));
    let variants: String = Kind::ALL.iter().map(|kind| format!("    Kind::{kind:?} => 1,\n")).collect();
    let names: String = Kind::ALL.iter().map(|kind| format!("    \"{kind}\",\n")).collect();
    let fields: String = Kind::ALL.iter().map(|kind| format!("    {}: 1,\n", kind.name().replace('-', "_"))).collect();
    for list in [variants, names, fields] {
        assert_eq!(lists(&format!("fn of() {{\n{list}}}\n")), [2], "{list}");
        assert_eq!(lists(&format!("#[cfg(test)]\nmod tests {{\n{list}}}\n")), [0_usize; 0], "tests may");
    }
    assert_eq!(lists("let two = [Kind::Routing, Kind::Admission];\n"), [0_usize; 0]);
}
