//! The views that `disaggregate` gets: the request, the instances that decode and those that prefill, and the transfers.

use std::sync::Arc;

use blis_sim::request::Name;
use rhai::{Dynamic, INT};

use super::column::Column;
use super::registry::Registry;
use super::values::{NameTexts, int, text};
use crate::fields::replicas::NamedRow;
use crate::rows::{PoolInstanceRow, RoutedRequestRow};

/// What scripts call the views.
pub(super) const ROUTED: &str = "routed request";
pub(super) const DECODES: &str = "list of instances that decode";
pub(super) const PREFILLS: &str = "list of instances that prefill";
pub(super) const LINK: &str = "transfers";

/// The request `r`.
#[derive(Clone, Debug)]
pub(super) struct RoutedObject {
    pub row: RoutedRequestRow,
    pub names: NameTexts,
}

/// The instances `d`, with the index of the chosen one.
#[derive(Clone, Debug)]
pub(super) struct DecodesObject {
    pub rows: Arc<[PoolInstanceRow]>,
    pub chosen: u32,
}

/// The instances `p`.
#[derive(Clone, Debug)]
pub(super) struct PrefillsObject {
    pub rows: Arc<[PoolInstanceRow]>,
}

/// The transfers `link`.
#[derive(Clone, Debug)]
pub(super) struct LinkObject(pub RoutedRequestRow);

/// The number of a name in a request.
type RoutedName = fn(&RoutedRequestRow) -> u32;

/// The names of the request, by field.
const NAMES: [(&str, RoutedName); 4] = [
    ("slo_class", |row| row.slo_class),
    ("tenant", |row| row.tenant),
    ("session", |row| row.session),
    ("prefix_group", |row| row.prefix_group),
];

pub(super) fn register(to: &mut Registry) {
    to.engine.register_type_with_name::<RoutedObject>(ROUTED);
    for number in RoutedRequestRow::NUMBERS {
        let name = number.names[0];
        match NAMES.iter().find(|(known, _)| *known == name) {
            Some(&(_, get)) => {
                to.field(ROUTED, number.names, move |one: &RoutedObject| Ok(text(&one.names, Name(get(&one.row)))));
            }
            None if name.starts_with("transfer") => {}
            None => to.field(ROUTED, number.names, |one: &RoutedObject| Ok(int((number.get)(&one.row) as u64))),
        }
    }
    instances(to, DECODES, |all: &DecodesObject| &all.rows);
    to.field(DECODES, &["chosen"], |all: &DecodesObject| Ok(int(all.chosen)));
    instances(to, PREFILLS, |all: &PrefillsObject| &all.rows);
    to.engine.register_type_with_name::<LinkObject>(LINK);
    to.field(LINK, &["us_per_token"], |one: &LinkObject| Ok(Dynamic::from_float(one.0.transfer_us_per_token)));
    to.field(LINK, &["transfers"], |one: &LinkObject| Ok(int(one.0.transfers)));
    to.field(LINK, &["tokens"], |one: &LinkObject| Ok(int(one.0.transfer_tokens)));
}

/// Columns of instances, their number and their indices.
fn instances<T>(to: &mut Registry, what: &'static str, rows: fn(&T) -> &Arc<[PoolInstanceRow]>)
where
    T: Clone + Send + Sync + 'static,
{
    to.engine.register_type_with_name::<T>(what);
    for number in PoolInstanceRow::NUMBERS {
        to.field(what, number.names, move |all: &T| Ok(Dynamic::from(Column::new(rows(all).iter().map(number.get)))));
    }
    to.field(what, &["len", "n", "count"], move |all: &T| Ok(int(rows(all).len() as u64)));
    to.field(what, &["indices"], move |all: &T| {
        Ok(Dynamic::from(Column::new((0..rows(all).len()).map(|index| index as f64))))
    });
    to.add("len", move |all: T| rows(&all).len() as INT);
}
