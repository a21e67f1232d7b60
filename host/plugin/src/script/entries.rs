//! The functions of a script that the host calls, and their arguments.

use std::sync::LazyLock;

use blis_abi::decisions::{InputShape, Missing};

use super::rows::{LINK, list_name};
use crate::{Function, Kind};

/// A function that the host calls.
#[derive(Debug)]
pub(super) struct EntryFunction {
    pub name: &'static str,
    /// The kind of a script that has it; `None` if it takes more than that.
    pub kind: Option<Kind>,
    pub parameters: &'static [&'static str],
    /// What scripts call each argument; `None` for those that are no views.
    pub views: Vec<Option<&'static str>>,
}

/// Functions that the host calls: those of the table of decisions that make a kind, the others, and two that decide nothing.
pub(super) static ENTRIES: LazyLock<Vec<EntryFunction>> = LazyLock::new(|| {
    let is_never_missing = |function: &Function| function.row().missing == Missing::Never;
    // Where a kind has a function that must be there, the others alone are none of it.
    let makes_kind =
        |function: Function| is_never_missing(&function) || !function.kind().functions().iter().any(is_never_missing);
    let of_table = |wanted: bool| {
        let of_kind = move |&function: &Function| makes_kind(function) == wanted;
        Function::ALL.into_iter().filter(of_kind).filter_map(move |function| {
            let kind = wanted.then_some(function.kind());
            let (name, parameters) = (function.name(), function.row().script?);
            let views = views(&function.row().inputs, parameters.len());
            Some(EntryFunction { name, kind, parameters, views })
        })
    };
    let other = |name, parameters, view| EntryFunction { name, kind: None, parameters, views: vec![view] };
    let others = [other("observe", &["e"], Some("event")), other("init", &["info"], None)];
    of_table(true).chain(of_table(false)).chain(others).collect()
});

/// Whether the host calls a function of this name.
pub(super) fn is_entry(name: &str) -> bool {
    ENTRIES.iter().any(|entry| entry.name == name)
}

/// What scripts call each of the `count` arguments that they get for `inputs`; `None` for a number.
fn views(inputs: &InputShape, count: usize) -> Vec<Option<&'static str>> {
    let InputShape { request, number, row, cluster, lists, .. } = inputs;
    let mut views: Vec<Option<&str>> = request.then_some(Some("request")).into_iter().collect();
    views.extend(cluster.then_some(Some("cluster")));
    let rows = lists.iter().enumerate().map(|(index, shape)| Some(list_name(shape, index)));
    let rows: Vec<_> = row.iter().map(|row| Some(row.what)).chain(rows).collect();
    // A number for which there is no argument is a field of the first row, or of the batch.
    if number.is_some() && views.len() + rows.len() < count {
        views.push(None);
    }
    views.extend(rows);
    // The transfers are a part of the request, and groups have their history.
    views.resize(count, Some(LINK));
    views
}
