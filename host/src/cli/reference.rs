//! The reference of all commands and flags, a Markdown page made of the same tree as the help: `docs/flags.md`.

use std::collections::BTreeSet;

use clap::builder::StyledStr;
use clap::{Arg, Command};

use super::help;

const INTRODUCTION: &str = "\
# Commands and flags

Every command with its flags, made from the tree that parses them: `BLIS_RECORD=1 cargo test --workspace --test tests
reference` writes this page anew. Every command also has `--help` (`-h`: the usual flags only) and `--color WHEN` (`auto`,
`always`, `never`). Durations take a unit; a bare number has the unit that the flag names ([metrics.md](metrics.md#durations-on-the-command-line)).
";

/// The page.
#[must_use]
pub fn flags_page() -> String {
    let mut root = help::command();
    root.build();
    let mut page = Page { text: INTRODUCTION.to_owned(), run: BTreeSet::new() };
    for command in below(&root) {
        page.add(command, &format!("blis {}", command.get_name()));
    }
    page.text
}

/// The commands of `command` that the help shows.
fn below(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set())
}

struct Page {
    text: String,
    /// The rows of `blis run`, which other commands only name.
    run: BTreeSet<String>,
}

impl Page {
    /// The section of `command`, then those of the commands below it.
    fn add(&mut self, command: &Command, path: &str) {
        let about = command.get_about().map(plain).unwrap_or_default();
        let usage = command.clone().render_usage().to_string();
        let usage: Vec<&str> = usage.trim_start_matches("Usage:").lines().map(str::trim).collect();
        let usage = usage.join("\n");
        self.text.push_str(&format!("\n## {path}\n\n{}.\n\n```text\n{usage}\n```\n", markdown(&about)));
        let mut same = Vec::new();
        for heading in headings(command) {
            let args = flags(command).filter(|arg| arg.get_help_heading() == heading);
            let rows: Vec<(String, &Arg)> = args.map(|arg| (row(arg), arg)).collect();
            let (known, own): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(row, _)| self.run.contains(row));
            same.extend(known.into_iter().map(|(_, arg)| format!("`{}`", name(arg))));
            if own.is_empty() {
                continue;
            }
            if let Some(heading) = heading {
                self.text.push_str(&format!("\n**{heading}**\n"));
            }
            self.text.push_str("\n| flag | value | default | meaning |\n|---|---|---|---|\n");
            own.iter().for_each(|(row, _)| self.text.push_str(row));
            if path == "blis run" {
                self.run.extend(own.into_iter().map(|(row, _)| row));
            }
        }
        if !same.is_empty() {
            self.text.push_str(&format!("\nAs [blis run](#blis-run): {}.\n", same.join(", ")));
        }
        for command in below(command) {
            self.add(command, &format!("{path} {}", command.get_name()));
        }
    }
}

/// The headings of the flags of `command`, in the order of the help.
fn headings(command: &Command) -> Vec<Option<&str>> {
    let mut headings: Vec<Option<&str>> = Vec::new();
    for heading in flags(command).map(Arg::get_help_heading) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    headings
}

/// The flags and operands that belong to `command` alone.
fn flags(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| {
        let is_everywhere = arg.is_global_set() || ["help", "version"].contains(&arg.get_id().as_str());
        !is_everywhere && !arg.is_hide_set()
    })
}

/// A line of the table: a flag, its value, its default, its meaning.
fn row(arg: &Arg) -> String {
    let mut flag = format!("`{}`", name(arg));
    for alias in arg.get_visible_aliases().unwrap_or_default() {
        flag.push_str(&format!(", `--{alias}`"));
    }
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(plain).unwrap_or_default();
    let (meaning, default) = match help.split_once(" [default: ").map(|(before, rest)| (before, rest.split_once(']'))) {
        Some((before, Some((default, after)))) => (format!("{before}{after}"), default.to_owned()),
        _ => (help, defaults(arg)),
    };
    let default = if default.is_empty() || default.contains(' ') { markdown(&default) } else { format!("`{default}`") };
    let cells = [flag, value(arg), default, markdown(&meaning)].map(|cell| cell.replace('|', "\\|"));
    format!("| {} |\n", cells.join(" | "))
}

/// The flag with its dashes, or the name of an operand.
fn name(arg: &Arg) -> String {
    let names = || arg.get_value_names().map(|names| names.join(" ")).unwrap_or_default();
    arg.get_long().map_or_else(|| format!("<{}>", names()), |long| format!("--{long}"))
}

/// The names of the value, and what it may be.
fn value(arg: &Arg) -> String {
    if !arg.get_action().takes_values() {
        return String::new();
    }
    let shown = arg.get_possible_values();
    let choices: Vec<String> =
        shown.iter().filter(|choice| !choice.is_hide_set()).map(|choice| format!("`{}`", choice.get_name())).collect();
    let names: Vec<String> = arg.get_value_names().unwrap_or_default().iter().map(|name| format!("`{name}`")).collect();
    if choices.is_empty() { names.join(" ") } else { choices.join(", ") }
}

fn defaults(arg: &Arg) -> String {
    let is_shown = arg.get_action().takes_values() && !arg.is_hide_default_value_set();
    let values = arg.get_default_values().iter().filter(|_| is_shown).map(|value| value.to_string_lossy());
    values.collect::<Vec<_>>().join(",")
}

fn plain(text: &StyledStr) -> String {
    text.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A text of the help as Markdown: none of its signs mean anything there.
fn markdown(text: &str) -> String {
    text.split('`')
        .enumerate()
        .map(|(part, text)| if part % 2 == 0 { escaped(text) } else { text.to_owned() })
        .collect::<Vec<_>>()
        .join("`")
}

fn escaped(text: &str) -> String {
    let escape = |c: char| if "*<>[]_".contains(c) { format!("\\{c}") } else { c.to_string() };
    text.chars().map(escape).collect()
}
