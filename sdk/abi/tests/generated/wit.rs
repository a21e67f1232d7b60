//! The WIT package: records and interfaces of kinds, and what components of each kind export.

use std::fmt::Write as _;

use blis_abi::RowShape;
use blis_abi::decisions::{Function, Kind, NumberShape, OutputShape};

use super::{TableInput, input_rows, inputs, plain, record, split, wrapped};

const WIDTH: usize = 110;

fn docs(text: &str, indent: &str) -> String {
    let comment = format!("{indent}/// ");
    wrapped(&plain(text).replace("µs", "microseconds"), &comment, &comment, WIDTH)
}

/// The records of `types`.
pub fn records() -> String {
    input_rows().iter().map(|row| declared(row, 0)).collect::<Vec<_>>().join("\n")
}

fn declared(row: &RowShape, flags: usize) -> String {
    let mut text = docs(row.docs, "  ");
    let _ = writeln!(text, "  record {} {{", split(row.name, '-'));
    for (index, field) in row.fields.iter().enumerate() {
        let ty = match field.ty {
            _ if index < flags => "bool",
            "i32" => "s32",
            "i64" => "s64",
            other => other,
        };
        let about = plain(field.docs);
        text += &docs(if index < flags { about.trim_end_matches(": 1 or 0.") } else { &about }, "    ");
        let _ = writeln!(text, "    {}: {ty},", field.name.replace('_', "-"));
    }
    text + "  }\n"
}

/// The interfaces of all kinds, `lifecycle`, and what components export.
pub fn kinds() -> String {
    let mut text = String::new();
    for kind in Kind::ALL {
        let mut about = kind.docs();
        for interface in interfaces(kind) {
            text += &interface_of(&interface, about);
            about = "Scores of a policy that chooses: they explain its decisions; a plugin that has them can be a scorer of a pipeline, \
                     which adds up the scores of several.";
        }
    }
    text += "/// Events for plugins that subscribe to them.\ninterface lifecycle {\n  use types.{event};\n  \
             /// Delivers an event, in simulated order and before any later decision.\n  observe: func(event: event);\n}\n\n";
    text += "/// The complete interface. A component may leave out any export but `plugin`.\nworld policy {\n  import host;\n  \
             export plugin;\n";
    let all = Kind::ALL.into_iter().flat_map(interfaces);
    all.for_each(|(name, _)| writeln!(text, "  export {name};").expect("a text"));
    text += "  export lifecycle;\n}\n\n";
    text + &Kind::ALL.map(components).concat()
}

/// The interfaces of `kind`, each with its functions.
fn interfaces(kind: Kind) -> Vec<(&'static str, Vec<Function>)> {
    let mut interfaces: Vec<(&str, Vec<Function>)> = Vec::new();
    for &function in kind.functions() {
        match interfaces.iter_mut().find(|(name, _)| *name == function.interface()) {
            Some((_, functions)) => functions.push(function),
            None => interfaces.push((function.interface(), vec![function])),
        }
    }
    interfaces
}

fn interface_of((name, functions): &(&str, Vec<Function>), about: &str) -> String {
    let mut used: Vec<String> = Vec::new();
    for input in functions.iter().flat_map(|&function| inputs(function)) {
        let name = match input {
            TableInput::Row(_, row) | TableInput::Rows(_, row) => split(row.name, '-'),
            TableInput::Cluster => "ages".to_owned(),
            TableInput::Now | TableInput::Number(..) => continue,
        };
        if !used.contains(&name) {
            used.push(name);
        }
    }
    let mut text = docs(about, "") + &format!("interface {name} {{\n");
    if !used.is_empty() {
        let _ = writeln!(text, "  use types.{{{}}};", used.join(", "));
    }
    for &function in functions {
        if function.row().output == OutputShape::Reason {
            text += "  variant decision {\n    admit,\n    /// The text is the reason.\n    reject(string),\n  }\n";
        }
        if let Some((row, flags)) = record(function) {
            text += &declared(&row, flags);
        }
        text += &docs(function.docs(), "  ");
        let _ = writeln!(text, "  {}: func({}) -> {};", function.row().wit, parameters(function), result(function));
    }
    text + "}\n\n"
}

fn parameters(function: Function) -> String {
    let parameter = |input| {
        let wit = |name: &str| name.replace('_', "-");
        match input {
            TableInput::Row(name, row) => format!("{}: {}", wit(name), split(row.name, '-')),
            TableInput::Rows(name, row) => format!("{}: list<{}>", wit(name), split(row.name, '-')),
            TableInput::Cluster => "ages: ages, count: u32, instances: list<f64>".to_owned(),
            TableInput::Now => "now-us: u64".to_owned(),
            TableInput::Number(name, number) => {
                let ty = match number {
                    NumberShape::U32 => "u32",
                    NumberShape::U64 => "u64",
                    NumberShape::F64 => "f64",
                };
                format!("{}: {ty}", wit(name))
            }
        }
    };
    inputs(function).into_iter().map(parameter).collect::<Vec<_>>().join(", ")
}

fn result(function: Function) -> String {
    match function.row().output {
        OutputShape::Reason => "decision",
        OutputShape::Index => "u32",
        OutputShape::Chosen => "option<u32>",
        OutputShape::Integer => "s64",
        OutputShape::Duration => "u64",
        OutputShape::Number(_) => "f64",
        OutputShape::Flag => "bool",
        OutputShape::Numbers(_) => "list<f64>",
        OutputShape::Record { shape, .. } => return split(shape.name, '-'),
    }
    .to_owned()
}

/// What components of `kind` export: without events, with scores, with events.
fn components(kind: Kind) -> String {
    let (name, what) = (kind.name(), kind.what());
    let target = if kind.is_decision() { format!("{name}-policy") } else { format!("{name}-model") };
    let article = if what.starts_with(['a', 'e', 'i', 'o']) { "An" } else { "A" };
    let mut text = String::new();
    let mut add = |more: &str, suffix: &str, body: &str| {
        text += &format!("/// {article} {what}{more}.\nworld {target}{suffix} {{\n{body}}}\n\n");
    };
    let interfaces = interfaces(kind);
    add("", "", &format!("  import host;\n  export plugin;\n  export {};\n", interfaces[0].0));
    for (scores, _) in &interfaces[1..] {
        add(
            " with scores that explain its decisions",
            "-with-scores",
            &format!("  include {target};\n  export {scores};\n"),
        );
    }
    add(" that subscribes to events", "-with-events", &format!("  include {target};\n  export lifecycle;\n"));
    text
}
