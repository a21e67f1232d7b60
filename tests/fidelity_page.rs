//! The tables of docs/fidelity.md are what the commands above them print with `--output markdown`.
//!
//! A table belongs to the last command of its section. A command that needs data beside the repository is left out, with a message, where
//! they are absent; the fit without each model is left out, too. `BLIS_RECORD=1 cargo test --workspace --test tests fidelity_page --
//! --ignored` writes the tables anew.

use std::fs;

use crate::macros::{blis, root};
use crate::shared::shared;
use crate::shell::Shell;

const PAGE: &str = "docs/fidelity.md";
/// What the paths of data start with that are not shipped.
const PRIVATE: &str = "../shared/";

/// Requests of LLMServingSim, which lie in the repository: seconds.
#[test]
fn tables_of_requests_that_are_shipped_can_be_repeated() {
    let checked = check(|command| !command.contains(PRIVATE) && !command.contains("--kernels"));
    assert!(checked >= 3, "only {checked} tables of shipped requests");
}

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn all_tables_but_those_of_models_left_out_can_be_repeated() {
    // Leaving out each model takes minutes of an optimised build.
    let checked = check(|command| !command.contains("--leave-one-model-out"));
    assert!(checked >= 4, "only {checked} tables");
}

/// Compares, or writes, the tables of those commands; returns how many.
fn check(wanted: fn(&str) -> bool) -> usize {
    let text = fs::read_to_string(root().join(PAGE)).expect("the page");
    let (mut page, mut checked) = (text.clone(), 0);
    for Tables { command, tables } in commands(&text).into_iter().filter(|found| wanted(&found.command)) {
        if command.is_empty() || tables.is_empty() || command.contains(PRIVATE) && shared("data/fidelity").is_none() {
            continue;
        }
        let printed = printed(&command);
        for (number, table) in tables.iter().enumerate() {
            let same_header = |other: &&String| other.lines().next() == table.lines().next();
            let before = tables[..number].iter().filter(same_header).count();
            let Some(renewed) = tables_of(&printed).into_iter().filter(|other| same_header(&other)).nth(before) else {
                panic!("{PAGE}: no table of `blis {command} --output markdown` begins so:\n{table}\n{printed}")
            };
            if std::env::var_os("BLIS_RECORD").is_some() {
                page = page.replacen(table.as_str(), &renewed, 1);
            } else {
                assert_eq!(*table, renewed, "{PAGE}: blis {command} --output markdown");
            }
            checked += 1;
        }
    }
    if page != text {
        fs::write(root().join(PAGE), page).expect("the page");
    }
    checked
}

/// What a command prints. Those that need only the repository run in a folder of their own, as they may write files.
fn printed(command: &str) -> String {
    let line = format!("{command} --output markdown");
    let ended = if command.contains(PRIVATE) { blis!(&line) } else { Shell::new().run(&format!("blis {line}")) };
    ended.done().stdout
}

/// A command of the page, without the name of the program, and the tables up to the next command or heading.
struct Tables {
    command: String,
    tables: Vec<String>,
}

fn commands(page: &str) -> Vec<Tables> {
    let mut found: Vec<Tables> = Vec::new();
    let (mut in_block, mut section) = (false, String::new());
    for line in page.lines() {
        if line.starts_with("```") {
            in_block = line == "```sh";
        } else if in_block {
            if let Some(command) = line.strip_prefix("blis ") {
                add_tables(&mut found, &section);
                section.clear();
                let command = command.split(" #").next().unwrap_or_default().trim().to_owned();
                found.push(Tables { command, tables: Vec::new() });
            }
        } else if line.starts_with('#') {
            add_tables(&mut found, &section);
            section.clear();
            // Tables of a section without a command are descriptions.
            found.push(Tables { command: String::new(), tables: Vec::new() });
        } else {
            section.push_str(line);
            section.push('\n');
        }
    }
    add_tables(&mut found, &section);
    found
}

fn add_tables(found: &mut [Tables], section: &str) {
    if let Some(last) = found.last_mut() {
        last.tables = tables_of(section);
    }
}

/// The tables of a text, each with its lines.
fn tables_of(text: &str) -> Vec<String> {
    let mut tables = vec![String::new()];
    for line in text.lines() {
        match (line.starts_with('|'), tables.last_mut()) {
            (true, Some(table)) => {
                table.push_str(line);
                table.push('\n');
            }
            _ => tables.push(String::new()),
        }
    }
    tables.retain(|table| !table.is_empty());
    tables
}
