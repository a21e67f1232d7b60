//! docs/kinds.md: every kind of decision with its functions, inputs and outputs, made from the table of decisions, the table of rows, the
//! built-in policies and the settings: `BLIS_RECORD=1 cargo test --workspace --test tests -- kinds_page` writes it.

use std::fmt::Write as _;

use blis_abi::decisions::{Area, Missing, NumberOf, NumberShape, OutputShape};
use blis_abi::{Column, Field, NumberUnit, Request, Row as _, RowShape};
use blis_config::policy::{BuiltIn, ScalingRow};
use blis_eval::spec::{KEYS, SettingKey};
use blis_plugin::{Function, Kind};

use crate::reference::check;

const INTRODUCTION: &str = "\
# Kinds of decisions

Every kind with its functions, what they get and what they return, made from the tables in `sdk/abi`: `BLIS_RECORD=1 cargo test --workspace
--test tests -- kinds_page` writes this page anew. [policies.md](policies.md) has the rules of the built-in policies, [plugins.md](plugins.md) how to run
one of your own. Parameters have the names of scripts. A fixture is a case of `blis plugin test`.
";

#[test]
fn page_of_kinds_is_what_the_tables_say() {
    let mut page = INTRODUCTION.to_owned();
    let mut rows = vec![Request::SHAPE];
    for (area, heading) in AREAS {
        write!(page, "\n## {heading}\n").expect("a text");
        for kind in Kind::ALL.into_iter().filter(|kind| kind.area() == area) {
            page += &section(kind, &mut rows);
        }
    }
    page += "\n## Columns of instances\n\nA row for each instance, of the columns that a policy reads. *Age* is how fresh they are, *source* what a real endpoint \
             picker computes them from.\n\n| name | unit | age | meaning | source |\n|---|---|---|---|---|\n";
    for column in Column::ALL {
        let (name, unit, age) = (column.field(), column.unit(), column.group().name());
        writeln!(page, "| `{name}` | {unit} | {age} | {} | {} |", column.about(), column.source()).expect("a text");
    }
    for row in rows {
        page += &fields(&row);
    }
    check("docs/kinds.md", &page);
}

const AREAS: [(Area, &str); 6] = [
    (Area::Front, "In front of the instances"),
    (Area::Engine, "On an instance"),
    (Area::FlowControl, "In the queue of the gateway: `--flow-control`"),
    (Area::Replicas, "Replicas that come and go: `--autoscaler`"),
    (Area::KvTiers, "KV below the GPU, and adapters"),
    (Area::Roles, "Prefill apart from decode"),
];

fn section(kind: Kind, rows: &mut Vec<RowShape>) -> String {
    let mut text = format!("\n### `{kind}`\n\n{}", plain(kind.docs()));
    // A setting that lists policies has the plural of their kind.
    let chooses = |key: &&SettingKey| key.chooses == Some(kind) || key.name == format!("{kind}s");
    let flags: Vec<String> = KEYS.iter().filter(chooses).map(|key| format!("`--{}`", key.name)).collect();
    if !flags.is_empty() {
        write!(text, " Chosen by {}.", flags.join(", ")).expect("a text");
    }
    let mut built_in: Vec<String> = BuiltIn::for_kind(kind).map(|row| format!("`{}`", row.name)).collect();
    if kind == Kind::Scaling {
        // They are built with settings of the control loop, from a table of their own.
        built_in.extend(ScalingRow::all().iter().map(|row| format!("`{}`", row.name)));
    }
    if !built_in.is_empty() {
        write!(text, " Built in: {}.", built_in.join(", ")).expect("a text");
    }
    text += "\n\n";
    for &function in kind.functions() {
        text += &entry(function, rows);
    }
    text
}

/// A function: what it is for, what it gets, what it returns, what holds without it, and its keys in fixtures.
fn entry(function: Function, rows: &mut Vec<RowShape>) -> String {
    let row = function.row();
    let shape = &row.inputs;
    let signature = match row.script {
        Some(names) => format!("`{}({})`", row.name, names.join(", ")),
        None => format!("`{}`, not in scripts", row.name),
    };
    let mut linked = |shape: &RowShape| {
        if rows.iter().all(|known| known.name != shape.name) {
            rows.push(*shape);
        }
        format!("[{}](#{})", shape.what, anchor(shape))
    };
    let mut inputs = Vec::new();
    inputs.extend(shape.request.then(|| format!("a [request](#{})", anchor(&Request::SHAPE))));
    inputs.extend(shape.now.then(|| "the time".to_owned()));
    inputs.extend(shape.number.map(|number| match number {
        NumberShape::U32 => "a whole number".to_owned(),
        NumberShape::U64 => "a time".to_owned(),
        NumberShape::F64 => "a share".to_owned(),
    }));
    inputs.extend(shape.row.as_ref().map(|row| format!("a row: {}", linked(row))));
    inputs.extend(shape.cluster.then(|| "the [instances](#columns-of-instances)".to_owned()));
    inputs.extend(shape.lists.iter().map(|list| format!("a list: {}", linked(list))));
    if inputs.is_empty() {
        inputs.push("nothing".to_owned());
    }
    let returned = match &row.output {
        OutputShape::Reason => "`true`, or `false` or a text that says why not".to_owned(),
        OutputShape::Index => "an index, or a number for each of which the highest wins".to_owned(),
        OutputShape::Chosen => "an index, or none".to_owned(),
        OutputShape::Integer => "a whole number".to_owned(),
        OutputShape::Duration => "a time, µs".to_owned(),
        OutputShape::Number(least) if least.is_finite() => format!("a number, at least {least}"),
        OutputShape::Number(_) => "a number".to_owned(),
        OutputShape::Flag => "yes or no".to_owned(),
        OutputShape::Numbers(NumberOf::Value) => "a number for each".to_owned(),
        OutputShape::Numbers(NumberOf::Flag) => "for each 0 for no, any other number for yes".to_owned(),
        OutputShape::Numbers(NumberOf::Replicas) => "a number of replicas for each, below 0 for none".to_owned(),
        OutputShape::Record { shape, .. } => format!("a map with any fields of {}", linked(shape)),
    };
    let mut text = format!("* {signature}: {} Gets {}; returns {returned}.", plain(function.docs()), inputs.join(", "));
    match row.missing {
        Missing::Never | Missing::WithoutScores => {}
        Missing::Decides(number) => {
            write!(text, " May be missing in C and in scripts: {number} holds.").expect("a text");
        }
        Missing::InScripts(number) => {
            write!(text, " May be missing in scripts: {number} holds.").expect("a text");
        }
    }
    if !row.expect.is_empty() {
        let quoted = |keys: &[&str]| keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
        let own = if row.keys.is_empty() { String::new() } else { format!("{}, ", quoted(row.keys)) };
        write!(text, " Fixture: {own}expects {}.", quoted(row.expect)).expect("a text");
    }
    text + "\n"
}

/// The table of the fields of a row.
fn fields(shape: &RowShape) -> String {
    let mut text = format!(
        "\n## {}\n\n{}\n\n| in scripts | elsewhere | type | meaning |\n|---|---|---|---|\n",
        title(shape),
        plain(shape.docs)
    );
    for field in shape.fields {
        let is_hidden = field.meaning.unit == NumberUnit::Hidden;
        let names: Vec<String> = field.names().filter(|_| !is_hidden).map(|name| format!("`{name}`")).collect();
        writeln!(text, "| {} | `{}` | {} | {} |", names.join(", "), field.name, number_type(field), plain(field.docs))
            .expect("a text");
    }
    text
}

fn title(shape: &RowShape) -> String {
    let mut letters = shape.what.chars();
    let first = letters.next().map_or(String::new(), |letter| letter.to_uppercase().collect());
    format!("Row: {}{}", first, letters.as_str())
}

fn anchor(shape: &RowShape) -> String {
    title(shape).to_lowercase().replace(": ", "-").replace(' ', "-")
}

/// The type of a number, and what is special about it.
fn number_type(field: &Field) -> String {
    let mut text = field.ty.to_owned();
    if field.meaning.unit == NumberUnit::Name {
        text += ", a text in scripts";
    }
    if field.meaning.optional {
        text += ", may be missing";
    }
    // That of the type needs no word.
    if let Some(most) = field.meaning.most.filter(|&most| most < i64::from(u32::MAX) - 1) {
        write!(text, ", at most {most}").expect("a text");
    }
    text
}

/// `docs` as sentences, without links of Rust.
fn plain(docs: &str) -> String {
    let mut text = docs.split_whitespace().collect::<Vec<_>>().join(" ");
    while let Some(start) = text.find(" ([`") {
        let end = start + text[start..].find(')').expect("a link ends");
        text.replace_range(start..=end, "");
    }
    text.replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}
