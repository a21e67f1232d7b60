//! What a function of a script may read, for programs that write scripts.

use super::engine::kit;
use super::entries::ENTRIES;
use crate::{Kind, Limits};

/// A field of an argument of a function that the host calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptInput {
    /// Name of the argument, as `s`.
    pub argument: &'static str,
    /// Name of the field, as `queue_depth`. Of several names of one value each is an input.
    pub field: &'static str,
    /// Whether it is a column: a number for each row. Others are numbers, texts, or arrays of texts.
    pub is_column: bool,
}

/// The names of the arguments of `function`, and all fields of those that are views; `None` if the host calls no such
/// function, or it decides nothing of `kind`.
#[must_use]
pub fn inputs(kind: Kind, function: &str) -> Option<(&'static [&'static str], Vec<ScriptInput>)> {
    let entry = ENTRIES.iter().find(|entry| entry.name == function && entry.kind == Some(kind))?;
    let kit = kit(&Limits::default());
    let mut all = Vec::new();
    for (argument, view) in entry.parameters.iter().zip(&entry.views) {
        let Some(view) = view else { continue };
        let fields = kit.names.fields.get(view).into_iter().flatten();
        all.extend(fields.map(|&field| {
            let is_column = kit.names.columns.contains_key(&(*view, field));
            ScriptInput { argument, field, is_column }
        }));
    }
    Some((entry.parameters, all))
}
