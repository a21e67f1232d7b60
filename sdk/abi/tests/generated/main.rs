//! What follows from the tables of rows and decisions: the WIT package, the C headers, the functions of the C table, and the
//! exports of the Rust SDK. This test compares them with the files; with `BLIS_RECORD=1` it writes them.

#![allow(clippy::disallowed_methods, reason = "a generator reads and writes the files that it is about")]

mod c;
mod rust;
mod wit;

use std::fs;
use std::path::{Path, PathBuf};

use blis_abi::decisions::{Function, Kind, NumberShape, OutputShape};
use blis_abi::{Ages, Event, Request, Row as _, RowShape};

/// The latest version of the WIT package.
const VERSION: &str = "1.1.0";

/// Most numbers of parameters that are passed one by one in the canonical ABI.
const MOST_FLAT: usize = 16;

/// An input of a function, in the order of the table of decisions.
#[derive(Clone, Copy)]
enum TableInput {
    /// A row by value or address, with its name.
    Row(&'static str, RowShape),
    /// The ages of the instances' columns, the number of instances, and their rows.
    Cluster,
    /// The time of the decision.
    Now,
    Number(&'static str, NumberShape),
    Rows(&'static str, RowShape),
}

/// The inputs of `function`, with their names.
fn inputs(function: Function) -> Vec<TableInput> {
    let (row, mut names) = (function.row(), function.row().parameters.iter());
    let mut name = || *names.next().expect("a name for each of its own inputs");
    let shape = &row.inputs;
    let mut inputs = Vec::new();
    inputs.extend(shape.request.then_some(TableInput::Row("request", Request::SHAPE)));
    inputs.extend(shape.now.then_some(TableInput::Now));
    inputs.extend(shape.number.map(|number| TableInput::Number(name(), number)));
    inputs.extend(shape.row.map(|row| TableInput::Row(name(), row)));
    inputs.extend(shape.cluster.then_some(TableInput::Cluster));
    inputs.extend(shape.lists.iter().map(|&list| TableInput::Rows(name(), list)));
    assert!(names.next().is_none(), "{}: a name without an input", row.name);
    inputs
}

/// Whether a guest gets the inputs of `function` one by one; otherwise it gets the address of all.
fn is_flat(function: Function) -> bool {
    function.row().flat_inputs() <= MOST_FLAT
}

/// The rows that are inputs of policies, each once, in the order of the table.
fn input_rows() -> Vec<RowShape> {
    let mut rows = vec![Request::SHAPE, Ages::SHAPE];
    for function in Function::ALL {
        let shape = &function.row().inputs;
        for row in shape.row.iter().chain(shape.lists) {
            if rows.iter().all(|known| known.name != row.name) {
                rows.push(*row);
            }
        }
    }
    rows.push(Event::SHAPE);
    rows
}

/// The record that `function` returns, if it does, and how many of its first fields are yes or no.
fn record(function: Function) -> Option<(RowShape, usize)> {
    match function.row().output {
        OutputShape::Record { shape, flags, .. } => Some((shape, flags)),
        _ => None,
    }
}

/// `KvChunk` as `kv-chunk` or `kv_chunk`.
fn split(name: &str, by: char) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push(by);
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

/// `docs` without what only Rust understands, as sentences.
fn plain(docs: &str) -> String {
    let mut text = docs.split_whitespace().collect::<Vec<_>>().join(" ");
    while let Some(start) = text.find(" ([`") {
        let end = start + text[start..].find(')').expect("a link ends");
        text.replace_range(start..=end, "");
    }
    text.replace("[`", "`").replace("`]", "`")
}

/// `text` in lines of at most `width` characters, each after `first` or, from the second on, `next`.
fn wrapped(text: &str, first: &str, next: &str, width: usize) -> String {
    let (mut lines, mut line) = (Vec::new(), first.to_owned());
    let mut is_empty = true;
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, next.to_owned()));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines.push(line);
    lines.join("\n") + "\n"
}

/// A file, and the text that it should have.
struct Generated {
    path: PathBuf,
    text: String,
}

impl Generated {
    /// A file of Rust, generated as a whole; `text` without its first line.
    fn rust(path: &str, text: &str) -> Self {
        let first =
            "// @generated from the tables of sdk/abi: `BLIS_RECORD=1 cargo test -p blis-abi` writes it anew.\n";
        Self { path: sdk().join(path), text: format!("{first}\n{text}") }
    }

    /// The blocks of a file: each between a line that contains `begin NAME` and one that contains `end NAME`.
    fn blocks(path: &str, blocks: &[(&str, String)]) -> Self {
        let path = sdk().join(path);
        let mut text = fs::read_to_string(&path).expect("readable");
        for (name, block) in blocks {
            let begin = text.find(&format!("generated: begin {name}")).expect("the block begins");
            let begin = begin + text[begin..].find('\n').expect("a line") + 1;
            let end = begin + text[begin..].find(&format!("generated: end {name}")).expect("the block ends");
            let end = text[..end].rfind('\n').expect("a line") + 1;
            text.replace_range(begin..end, block);
        }
        Self { path, text }
    }
}

fn sdk() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn files_are_what_the_tables_say() {
    let wit = format!("wit/since-v{VERSION}/policy.wit");
    let files = [
        Generated::blocks(&wit, &[("records", wit::records()), ("kinds", wit::kinds())]),
        Generated::blocks("c/blis_policy.h", &[("rows", c::rows()), ("functions", c::functions())]),
        Generated::blocks("c/blis_policy_wasm.h", &[("exports", c::exports())]),
        Generated::rust("abi/src/functions.rs", &rust::functions()),
        Generated::rust("rust/src/policy/kinds.rs", &rust::traits()),
        Generated::rust("rust/src/export/native/exports.rs", &rust::native()),
        Generated::rust("rust/src/export/wasm/exports.rs", &rust::wasm()),
    ];
    let record = std::env::var_os("BLIS_RECORD").is_some();
    for Generated { path, text } in files {
        if record {
            fs::write(&path, &text).expect("written");
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(found == text, "{} differs: BLIS_RECORD=1 cargo test -p blis-abi", path.display());
    }
}

#[test]
fn kinds_are_in_the_order_in_which_they_were_added() {
    // The C table has the functions of 1.0 first, and then those of later kinds in the order of the table of decisions: a
    // kind that is added in the middle would move the others.
    assert_eq!(Kind::ALL[0], Kind::Admission);
    assert_eq!(c::slots()[..2], ["admit", "route"]);
}
