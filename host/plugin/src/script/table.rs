//! Tables: numbers by whole numbers, such as what a policy keeps about each request in flight. An object map has fewer
//! entries, because the script interpreter counts all of them at every change.

use std::collections::BTreeMap;
use std::sync::Arc;

use rhai::{Dynamic, INT};

use super::call::{self, failure};
use super::column::{Column, number, type_name};
use super::registry::{Registry, ScriptError};
use crate::meter;

/// Numbers by whole numbers, in the order of these. Their memory is counted apart, as that of columns.
#[derive(Clone, Debug, Default)]
pub(super) struct Table(Arc<BTreeMap<INT, f64>>);

impl Drop for Table {
    fn drop(&mut self) {
        if let Some(own) = Arc::get_mut(&mut self.0) {
            meter::numbers(|| own.clear());
        }
    }
}

impl Table {
    /// A table from saved entries; the script is not charged.
    pub fn new(entries: impl IntoIterator<Item = (INT, f64)>) -> Self {
        let mut entries = entries.into_iter();
        Self(Arc::new(meter::numbers(|| entries.by_ref().collect())))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Keys with their numbers, in the order of the keys.
    pub fn entries(&self) -> impl Iterator<Item = (INT, f64)> {
        self.0.iter().map(|(&key, &value)| (key, value))
    }

    /// Changes the entries. They are copied if there is another reference.
    fn change<T>(&mut self, change: impl FnOnce(&mut BTreeMap<INT, f64>) -> T) -> Result<T, ScriptError> {
        let copied = if Arc::get_mut(&mut self.0).is_some() { 0 } else { self.len() };
        call::charge(copied.saturating_mul(8))?;
        Ok(meter::numbers(|| change(Arc::make_mut(&mut self.0))))
    }

    fn get(&self, key: INT) -> Dynamic {
        self.0.get(&key).map_or(Dynamic::UNIT, |&value| Dynamic::from_float(value))
    }

    fn set(&mut self, key: INT, value: f64) -> Result<(), ScriptError> {
        if !self.0.contains_key(&key) {
            call::room_in_table(self.len())?;
        }
        self.change(|entries| entries.insert(key, value))?;
        Ok(())
    }

    fn remove(&mut self, key: INT) -> Result<Dynamic, ScriptError> {
        if !self.0.contains_key(&key) {
            return Ok(Dynamic::UNIT);
        }
        Ok(self.change(|entries| entries.remove(&key))?.map_or(Dynamic::UNIT, Dynamic::from_float))
    }

    /// The column of what `of` returns for every entry.
    fn column(&self, of: impl Fn((INT, f64)) -> f64) -> Result<Column, ScriptError> {
        call::charge(self.len())?;
        Ok(Column::new(self.entries().map(of)))
    }
}

fn value(value: &Dynamic) -> Result<f64, ScriptError> {
    number(value).ok_or_else(|| failure(format!("a table holds numbers, not {}", type_name(value))))
}

pub(super) fn register(to: &mut Registry) {
    to.engine.register_type_with_name::<Table>("table");
    to.add("table", Table::default);
    to.add("len", |table: &mut Table| table.len() as INT);
    to.engine.register_get("len", |table: &mut Table| table.len() as INT);
    to.engine.register_indexer_get(|table: &mut Table, key: INT| table.get(key));
    to.engine.register_indexer_set(|table: &mut Table, key: INT, new: Dynamic| table.set(key, value(&new)?));
    to.add("add", |table: &mut Table, key: INT, more: Dynamic| -> Result<f64, ScriptError> {
        let sum = table.0.get(&key).copied().unwrap_or(0.0) + value(&more)?;
        table.set(key, sum)?;
        Ok(sum)
    });
    to.add("remove", |table: &mut Table, key: INT| table.remove(key));
    to.add("contains", |table: &mut Table, key: INT| table.0.contains_key(&key));
    to.add("clear", |table: &mut Table| -> Result<(), ScriptError> {
        call::charge(table.len())?;
        *table = Table::default();
        Ok(())
    });
    to.add("keys", |table: &mut Table| table.column(|(key, _)| key as f64));
    to.add("values", |table: &mut Table| table.column(|(_, value)| value));
    to.add("sum", |table: &mut Table| -> Result<f64, ScriptError> {
        call::charge(table.len())?;
        Ok(table.0.values().fold(0.0, |sum, value| sum + value))
    });
}
