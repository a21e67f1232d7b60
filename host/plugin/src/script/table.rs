//! Tables: numbers by whole numbers, such as what a policy keeps about each request in flight. An object map has fewer
//! entries, because the script interpreter counts all of them at every change.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::iter::Peekable;
use std::sync::Arc;

use rhai::{Dynamic, INT};

use super::call::{self, failure};
use super::column::{Column, number, spread, type_name};
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

    /// The number of `key`.
    pub fn entry(&self, key: INT) -> Option<f64> {
        self.0.get(&key).copied()
    }

    /// Whether a change copies all entries.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Sets the number of `key`, or removes it; the script is not charged.
    pub fn replace(&mut self, key: INT, value: Option<f64>) {
        meter::numbers(|| {
            let entries = Arc::make_mut(&mut self.0);
            match (value, entries.get_mut(&key)) {
                (Some(value), Some(entry)) => *entry = value,
                (Some(value), None) => _ = entries.insert(key, value),
                (None, _) => _ = entries.remove(&key),
            }
        });
    }

    fn get(&self, key: INT) -> Dynamic {
        self.entry(key).map_or(Dynamic::UNIT, Dynamic::from_float)
    }

    fn set(&mut self, key: INT, value: f64) -> Result<(), ScriptError> {
        if !self.0.contains_key(&key) {
            call::room_in_table(self.len(), call::longest())?;
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

    /// The column of what `of` returns for the entry of each of `keys`.
    fn at(&self, keys: &Column, of: impl Fn(Option<f64>) -> f64) -> Result<Column, ScriptError> {
        call::charge(keys.len().saturating_mul(CHARGED_FOR_KEY))?;
        let mut values = Vec::with_capacity(keys.len());
        self.find_all(keys.values(), |found| values.push(of(found)))?;
        Ok(Column::new(values))
    }

    /// Calls `found` with the number of each of `keys`, in their order; the script is not charged.
    ///
    /// # Errors
    /// If a key is not a whole number.
    pub fn find_all(&self, keys: &[f64], mut found: impl FnMut(Option<f64>)) -> Result<(), ScriptError> {
        let mut entries = KeySearch::new(&self.0);
        keys.iter().try_for_each(|&key| whole(key).map(|key| found(entries.find(key))))
    }

    /// Sets the entry of each of `keys` to the number beside it.
    fn set_at(&mut self, keys: &Column, values: &Column) -> Result<(), ScriptError> {
        if keys.len() != values.len() {
            return Err(failure(format!("{} keys and {} numbers: each key gets one", keys.len(), values.len())));
        }
        call::charge(keys.len().saturating_mul(CHARGED_FOR_KEY))?;
        if keys.len() == 0 {
            return Ok(());
        }
        let copied = if self.is_shared() { self.len() } else { 0 };
        call::charge(copied.saturating_mul(CHARGED_FOR_KEY))?;
        self.set_all(keys.values(), values.values().iter().copied(), call::longest(), |_, _| {})
    }

    /// Sets the entry of each of `keys` to the number beside it, after a call of `before` with the key and what it had; the
    /// script is not charged. The table has no more than `longest` entries.
    ///
    /// # Errors
    /// If a key is not a whole number, or there is no room. Then nothing has changed, whatever `before` has received.
    pub fn set_all(
        &mut self,
        keys: &[f64],
        values: impl Iterator<Item = f64>,
        longest: usize,
        mut before: impl FnMut(INT, Option<f64>),
    ) -> Result<(), ScriptError> {
        let mut entries = KeySearch::new(&self.0);
        let (mut missing, mut ascending, mut last) = (0, true, INT::MIN);
        for &key in keys {
            let key = whole(key)?;
            let found = entries.find(key);
            before(key, found);
            missing += usize::from(found.is_none());
            ascending &= key > last;
            last = key;
        }
        if missing > 0 {
            call::room_in_table(self.len() + missing - 1, longest)?;
        }
        let Some(&first) = keys.first() else { return Ok(()) };
        meter::numbers(|| {
            let entries = Arc::make_mut(&mut self.0);
            let mut new = keys.iter().map(|&key| key as INT).zip(values);
            if missing > 0 || !ascending {
                return entries.extend(new);
            }
            let mut next = new.next();
            for (&key, value) in entries.range_mut(first as INT..=last) {
                if let Some((_, changed)) = next.filter(|&(of, _)| of == key) {
                    *value = changed;
                    next = new.next();
                }
            }
        });
        Ok(())
    }

    /// The column of what `of` returns for every entry.
    fn column(&self, of: impl Fn((INT, f64)) -> f64) -> Result<Column, ScriptError> {
        call::charge(self.len())?;
        Ok(Column::new(self.entries().map(of)))
    }
}

/// Looks for one key after the other. Ascending keys, as those of tenants or instances, lie one behind the other.
struct KeySearch<'a> {
    entries: &'a BTreeMap<INT, f64>,
    /// The entries from the key on that was looked for last.
    rest: Peekable<Range<'a, INT, f64>>,
    last: INT,
}

impl<'a> KeySearch<'a> {
    /// Entries that are skipped before a search.
    const SKIPPED: usize = 4;

    fn new(entries: &'a BTreeMap<INT, f64>) -> Self {
        Self { entries, rest: entries.range(..).peekable(), last: INT::MIN }
    }

    fn find(&mut self, key: INT) -> Option<f64> {
        let skips = if key < self.last { 0 } else { Self::SKIPPED };
        self.last = key;
        for _ in 0..skips {
            match self.rest.peek() {
                Some(&(&found, _)) if found < key => self.rest.next(),
                Some(&(&found, &value)) => return (found == key).then_some(value),
                None => return None,
            };
        }
        self.rest = self.entries.range(key..).peekable();
        self.rest.peek().filter(|&&(&found, _)| found == key).map(|&(_, &value)| value)
    }
}

/// Column elements that a key counts as: it costs about as much as eight.
pub(super) const CHARGED_FOR_KEY: usize = 8;

fn whole(key: f64) -> Result<INT, ScriptError> {
    let is_whole = key as INT as f64 == key && key.abs() < 1e15;
    is_whole.then_some(key as INT).ok_or_else(|| failure(format!("a key of a table is a whole number, not {key}")))
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
    to.add("get", |table: &mut Table, keys: Column, missing: Dynamic| -> Result<Column, ScriptError> {
        let missing = value(&missing)?;
        table.at(&keys, |found| found.unwrap_or(missing))
    });
    to.add("set", |table: &mut Table, keys: Column, new: Dynamic| table.set_at(&keys, &spread(&new, keys.len())?));
    to.add("contains", |table: &mut Table, keys: Column| table.at(&keys, |found| f64::from(u8::from(found.is_some()))));
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
