//! Values of a call, and the memory of its columns.

use rhai::{FLOAT, INT};

use crate::script::column::Column;

/// A value. Columns that the call has computed are in [`Columns`].
///
/// Every variant holds one word of the same kind, so that values are passed in two registers: in memory, each would be
/// read in another width than it was written a moment before, which the processor waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum FastValue<'a> {
    Unit,
    Bool(BoolWord),
    Int(INT),
    Float(FloatWord),
    /// A column of an argument.
    View(&'a Column),
    /// The index of a column in [`Columns`].
    Own(usize),
}

/// A truth value as a word.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoolWord(u64);

impl BoolWord {
    pub fn get(self) -> bool {
        self.0 != 0
    }
}

/// The bits of a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct FloatWord(u64);

impl FloatWord {
    pub fn get(self) -> FLOAT {
        FLOAT::from_bits(self.0)
    }
}

impl FastValue<'_> {
    pub fn of_bool(value: bool) -> Self {
        Self::Bool(BoolWord(value.into()))
    }

    pub fn of_float(value: FLOAT) -> Self {
        Self::Float(FloatWord(value.to_bits()))
    }
}

/// The columns that a call has computed.
#[derive(Debug, Default)]
pub(super) struct Columns {
    all: Vec<Vec<f64>>,
    /// Variables and operations that still need the column.
    uses: Vec<u32>,
    unused: Vec<usize>,
    /// Numbers of the columns in use.
    held: usize,
}

/// Variables of a function that exist at the same time, at most.
pub(super) const MOST_VARIABLES: usize = 24;

/// Columns in use at the same time, at most: more than any function that is written by hand needs.
const MOST_COLUMNS: usize = 256;

impl Columns {
    /// Forgets the columns of the latest call.
    pub fn clear(&mut self) {
        self.unused.clear();
        self.unused.extend(0..self.all.len());
        self.uses.fill(0);
        self.held = 0;
    }

    /// The numbers of a column; `None` if `value` is none.
    pub fn of<'s>(&'s self, value: FastValue<'s>) -> Option<&'s [f64]> {
        match value {
            FastValue::View(column) => Some(column.values()),
            FastValue::Own(index) => self.all.get(index).map(Vec::as_slice),
            _ => None,
        }
    }

    /// A new column with the numbers that `fill` appends, which may look at the others. `None` if it fails, or if the columns
    /// would have more than `most` numbers.
    pub fn make<'a>(
        &mut self,
        most: usize,
        fill: impl FnOnce(&Self, &mut Vec<f64>) -> Option<()>,
    ) -> Option<FastValue<'a>> {
        let index = self.unused.pop().or_else(|| self.grow())?;
        let mut column = std::mem::take(&mut self.all[index]);
        column.clear();
        let filled = fill(self, &mut column);
        self.held += column.len();
        self.all[index] = column;
        self.uses[index] = 1;
        filled.filter(|()| self.held <= most).map(|()| FastValue::Own(index))
    }

    /// As [`Self::make`] with the numbers of `value`, changed in their own memory. `None` if something else uses them, or if
    /// they are no column of this call.
    pub fn change<'a>(
        &mut self,
        value: FastValue<'a>,
        most: usize,
        change: impl FnOnce(&Self, &mut [f64]) -> Option<()>,
    ) -> Option<Option<FastValue<'a>>> {
        let FastValue::Own(index) = value else { return None };
        if self.uses[index] != 1 {
            return None;
        }
        let mut column = std::mem::take(&mut self.all[index]);
        // Another column would exist beside it.
        let has_room = self.held + column.len() <= most;
        let changed = if has_room { change(self, &mut column) } else { None };
        self.all[index] = column;
        self.uses[index] = 2;
        Some(changed.map(|()| value))
    }

    fn grow(&mut self) -> Option<usize> {
        if self.all.len() == MOST_COLUMNS {
            return None;
        }
        self.all.push(Vec::new());
        self.uses.push(0);
        Some(self.all.len() - 1)
    }

    /// Counts one more use of `value`.
    pub fn share(&mut self, value: FastValue<'_>) {
        if let FastValue::Own(index) = value {
            self.uses[index] += 1;
        }
    }

    /// Ends a use of `value`.
    pub fn release(&mut self, value: FastValue<'_>) {
        let FastValue::Own(index) = value else { return };
        self.uses[index] -= 1;
        if self.uses[index] == 0 {
            self.held -= self.all[index].len();
            self.unused.push(index);
        }
    }
}
