//! Names of requests, for output only: the simulator never sees a string.
//!
//! One 32-bit symbol per request and label, and nothing at all for labels that no request has.

use rustc_hash::FxHashMap;

/// Names by [`blis_sim::request::Request::id`]. Empty, and free, where a workload has none.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    /// Ascending request numbers; `None` where row `n` is request `n`.
    ids: Option<Box<[u32]>>,
    rows: usize,
    columns: [Option<Box<[u32]>>; Label::ALL.len()],
    round_index: Option<Box<[u32]>>,
    /// By symbol; symbol 0 is the empty name.
    names: Box<[Box<str>]>,
}

/// Which name of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// Service class, as `critical` or `batch`.
    SloClass,
    /// Who pays.
    TenantId,
    /// The conversation it belongs to.
    SessionId,
    /// The model asked for.
    Model,
    /// The load generator's client.
    ClientId,
}

impl Label {
    /// All labels, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::SloClass, Self::TenantId, Self::SessionId, Self::Model, Self::ClientId];
}

impl Labels {
    /// No request has a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.round_index.is_none() && self.columns.iter().all(Option::is_none)
    }

    /// The name of request `id`; `None` if it has none.
    #[must_use]
    pub fn get(&self, id: u32, label: Label) -> Option<&str> {
        self.symbol(id, label).map(|symbol| self.name(symbol))
    }

    /// The number of that name: equal names have equal numbers, dense from 1.
    #[must_use]
    pub fn symbol(&self, id: u32, label: Label) -> Option<u32> {
        let column = self.columns[label as usize].as_deref()?;
        Some(column[self.row(id)?]).filter(|&symbol| symbol != 0)
    }

    /// The name with number `symbol`; empty for 0 and for numbers never handed out.
    #[must_use]
    pub fn name(&self, symbol: u32) -> &str {
        self.names.get(symbol as usize).map_or("", |name| name)
    }

    /// Round of the request in its session, from 0.
    #[must_use]
    pub fn round_index(&self, id: u32) -> u32 {
        match (&self.round_index, self.row(id)) {
            (Some(column), Some(row)) => column[row],
            _ => 0,
        }
    }

    fn row(&self, id: u32) -> Option<usize> {
        match &self.ids {
            Some(ids) => ids.binary_search(&id).ok(),
            None => Some(id as usize).filter(|&row| row < self.rows),
        }
    }
}

/// Collects [`Labels`] row by row.
#[derive(Default)]
pub(super) struct LabelsBuilder {
    rows: Vec<LabelRow>,
    symbols: FxHashMap<Box<str>, u32>,
    names: Vec<Box<str>>,
}

/// The symbols of one request; what is not named stays 0.
#[derive(Clone, Copy, Default)]
pub(super) struct LabelRow {
    pub id: u32,
    pub round_index: u32,
    pub symbols: [u32; Label::ALL.len()],
}

impl LabelRow {
    pub fn set(&mut self, label: Label, symbol: u32) {
        self.symbols[label as usize] = symbol;
    }
}

impl LabelsBuilder {
    /// The number of `name`; 0 if it is empty.
    pub fn intern(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        if let Some(&symbol) = self.symbols.get(name) {
            return symbol;
        }
        if self.names.is_empty() {
            self.names.push("".into());
        }
        // At most 6 names per request and 2^32 requests; memory ends before the numbers do.
        let symbol = u32::try_from(self.names.len()).unwrap_or(0);
        self.names.push(name.into());
        self.symbols.insert(name.into(), symbol);
        symbol
    }

    pub fn push(&mut self, row: LabelRow) {
        self.rows.push(row);
    }

    /// The finished columns. Request numbers must be unique.
    pub fn finish(mut self) -> Labels {
        self.rows.sort_by_key(|row| row.id);
        let dense = self.rows.iter().enumerate().all(|(row, labels)| labels.id as usize == row);
        let column = |value: &dyn Fn(&LabelRow) -> u32| -> Option<Box<[u32]>> {
            let used = self.rows.iter().any(|row| value(row) != 0);
            used.then(|| self.rows.iter().map(value).collect())
        };
        Labels {
            ids: (!dense).then(|| self.rows.iter().map(|row| row.id).collect()),
            rows: self.rows.len(),
            columns: Label::ALL.map(|label| column(&|row| row.symbols[label as usize])),
            round_index: column(&|row| row.round_index),
            names: self.names.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_request_number() {
        let mut builder = LabelsBuilder::default();
        for (id, class, round) in [(30, "batch", 0), (7, "", 2), (12, "batch", 1)] {
            let mut row = LabelRow { id, round_index: round, ..LabelRow::default() };
            row.set(Label::SloClass, builder.intern(class));
            builder.push(row);
        }
        let labels = builder.finish();
        assert_eq!(labels.get(30, Label::SloClass), Some("batch"));
        assert_eq!(labels.get(7, Label::SloClass), None);
        assert_eq!(labels.symbol(12, Label::SloClass), labels.symbol(30, Label::SloClass));
        assert_eq!([7, 12, 30, 31].map(|id| labels.round_index(id)), [2, 1, 0, 0]);
        assert_eq!(labels.get(30, Label::Model), None);
        assert!(!labels.is_empty());
    }

    #[test]
    fn what_nobody_names_costs_nothing() {
        let mut builder = LabelsBuilder::default();
        builder.push(LabelRow::default());
        let labels = builder.finish();
        assert!(labels.is_empty() && labels.ids.is_none());
        assert_eq!(labels.get(0, Label::Model), None);
    }
}
