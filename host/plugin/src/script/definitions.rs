//! A definition file of Rhai's language server: what an editor completes in a policy.

use std::fmt::Write as _;

use super::engine::kit;
use super::entries::ENTRIES;
use crate::Limits;

/// Names of arguments; their types are not known.
const ARGUMENTS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// The functions that scripts may call, and the fields of what the host passes to them, as a definition file
/// (`sdk/rhai/policy.d.rhai`).
#[must_use]
pub fn definitions() -> String {
    let kit = kit(&Limits::default());
    let mut text =
        "module static;\n\n/// Functions of the host; those of the language itself are known to the editor.\n"
            .to_owned();
    let callable = |name: &str| name.starts_with(|c: char| c.is_alphabetic() || c == '_');
    for (name, counts) in kit.names.functions.iter().filter(|(name, _)| callable(name)) {
        for &count in counts {
            let arguments = ARGUMENTS.iter().take(count).map(|name| format!("{name}: ?")).collect::<Vec<_>>();
            // Writing to a text does not fail.
            let _ = writeln!(text, "fn {name}({}) -> ?;", arguments.join(", "));
        }
    }
    for (what, fields) in &kit.names.fields {
        let _ = writeln!(text, "\n/// Fields of a {what}.");
        for field in fields {
            let _ = writeln!(text, "fn get {field}(of: {}) -> ?;", what.replace(' ', "_"));
        }
    }
    text += "\n/// Functions that the host calls, if a script has them:\n";
    for entry in ENTRIES.iter() {
        let _ = writeln!(text, "/// * `{}`", entry.name);
    }
    text
}
