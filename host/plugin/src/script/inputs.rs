//! What a function of a script may read, for programs that write scripts.

use super::ENTRIES;
use super::arguments::ARGUMENTS;
use super::engine::kit;
use super::kv_cache::CHUNKS;
use super::pools::{DECODES, PREFILLS};
use super::replicas::{NODES, REPLICAS};
use super::scaling::GROUPS;
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

/// Views with columns that are made when they are read.
const MADE_COLUMNS: [&str; 6] = [CHUNKS, NODES, REPLICAS, GROUPS, DECODES, PREFILLS];
/// Their fields that are no columns of numbers.
const NO_COLUMNS: [&str; 8] = ["now", "now_us", "len", "n", "count", "history", "model", "chosen"];

/// The names of the arguments of `function`, and all fields of those that are views; `None` if the host calls no such
/// function, or it decides nothing of `kind`.
#[must_use]
pub fn inputs(kind: Kind, function: &str) -> Option<(&'static [&'static str], Vec<ScriptInput>)> {
    let names = ENTRIES.iter().find(|entry| entry.name == function && entry.kind == Some(kind))?.parameters;
    let (_, views) = ARGUMENTS.iter().find(|(known, _)| *known == function)?;
    let kit = kit(&Limits::default());
    let mut all = Vec::new();
    for (argument, view) in names.iter().zip(*views) {
        let Some(view) = view else { continue };
        let fields = kit.names.fields.get(view).into_iter().flatten();
        all.extend(fields.map(|&field| {
            let is_made = MADE_COLUMNS.contains(view) && !NO_COLUMNS.contains(&field);
            let is_column = is_made || kit.names.columns.contains_key(&(*view, field));
            ScriptInput { argument, field, is_column }
        }));
    }
    Some((names, all))
}
