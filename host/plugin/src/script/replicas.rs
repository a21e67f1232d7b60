//! The views of drain and placement that scripts get: a group and its replicas, a replica that starts and its nodes.

use std::sync::Arc;

use blis_sim::request::Name;
use rhai::{Dynamic, INT};

use super::column::Column;
use super::registry::Registry;
use super::values::{NameTexts, int, text};
use crate::fields::replicas::NamedRow;
use crate::rows::{DrainGroupRow, NodeRow, ReplicaRow, StartingReplicaRow};

/// What scripts call the views.
pub(super) const DRAIN_GROUP: &str = "group of replicas";
pub(super) const REPLICAS: &str = "list of replicas";
pub(super) const STARTING: &str = "starting replica";
pub(super) const NODES: &str = "list of nodes";

/// One row, `g` of `drain` and `r` of `placement`.
#[derive(Clone, Debug)]
pub(super) struct RowObject<R> {
    pub row: R,
    pub names: NameTexts,
}

/// Several rows, `r` of `drain` and `n` of `placement`.
#[derive(Clone, Debug)]
pub(super) struct RowsObject<R>(pub Arc<[R]>);

pub(super) fn register(to: &mut Registry) {
    row::<DrainGroupRow>(to, DRAIN_GROUP, |row| row.model);
    rows::<ReplicaRow>(to, REPLICAS);
    row::<StartingReplicaRow>(to, STARTING, |row| row.model);
    rows::<NodeRow>(to, NODES);
}

fn row<R>(to: &mut Registry, what: &'static str, model: fn(&R) -> u32)
where
    R: NamedRow + Clone + Send + Sync,
{
    to.engine.register_type_with_name::<RowObject<R>>(what);
    for number in R::NUMBERS {
        to.field(what, number.names, move |one: &RowObject<R>| {
            let value = (number.get)(&one.row);
            // Prices are the only numbers that are not whole.
            Ok(if number.names[0] == "price" { Dynamic::from_float(value) } else { int(value as u64) })
        });
    }
    to.field(what, &["model"], move |one: &RowObject<R>| Ok(text(&one.names, Name(model(&one.row)))));
}

fn rows<R: NamedRow + Clone + Send + Sync>(to: &mut Registry, what: &'static str) {
    to.engine.register_type_with_name::<RowsObject<R>>(what);
    for number in R::NUMBERS {
        let column = move |all: &RowsObject<R>| Ok(Dynamic::from(Column::new(all.0.iter().map(number.get))));
        to.field(what, number.names, column);
    }
    to.field(what, &["len", "n", "count"], |all: &RowsObject<R>| Ok(int(all.0.len() as u64)));
    to.field(what, &["indices"], |all: &RowsObject<R>| {
        Ok(Dynamic::from(Column::new((0..all.0.len()).map(|index| index as f64))))
    });
    to.add("len", |all: RowsObject<R>| all.0.len() as INT);
}
