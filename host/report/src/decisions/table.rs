//! Numbers and tables for people.

use std::fmt::{self, Display};

use blis_diag::TEXT_WIDTH;

use crate::in_columns;
pub(super) use blis_workload::counted as plural;

/// A table with a heading, two blanks between columns, one where that makes it fit 80 columns. The last column is text
/// and left-aligned; all others are numbers.
#[derive(Debug)]
pub(super) struct TextTable {
    indent: usize,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    pub fn new<'a>(indent: usize, headings: impl IntoIterator<Item = &'a str>) -> Self {
        Self { indent, rows: vec![headings.into_iter().map(str::to_owned).collect()] }
    }

    /// Adds a row, with as many cells as there are headings.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.rows[0].len());
        self.rows.push(cells);
    }
}

impl Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { indent, rows } = self;
        let last = rows[0].len() - 1;
        let text = in_columns(rows, TEXT_WIDTH - indent, |column| column == last);
        text.lines().try_for_each(|line| writeln!(f, "{:indent$}{line}", ""))
    }
}

/// A time in seconds, with microseconds.
pub(super) fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

/// A duration in ms, with microseconds.
pub(super) fn ms(us: u64) -> String {
    format!("{}.{:03}", us / 1000, us % 1000)
}

/// A difference of durations in ms, with its sign.
pub(super) fn ms_more(us: i64) -> String {
    format!("{}{}", if us < 0 { '-' } else { '+' }, ms(us.unsigned_abs()))
}

/// The text of a value, or a dash if there is none.
pub(super) fn or_dash<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

/// A score with at most four decimals.
pub(super) fn score(score: f64) -> String {
    let text = format!("{score:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_under_each_other() {
        let mut table = TextTable::new(2, ["request", "s", "what"]);
        table.row(vec!["7".into(), seconds(12_345_678), "entered".into()]);
        table.row(vec!["12345".into(), seconds(1), String::new()]);
        insta::assert_snapshot!(table.to_string(), @r"
          request          s  what
                7  12.345678  entered
            12345   0.000001
        ");
    }

    #[test]
    fn numbers_are_exact_and_short() {
        assert_eq!([ms(1_234_567), ms(5), ms_more(-1500), ms_more(0)], ["1234.567", "0.005", "-1.500", "+0.000"]);
        assert_eq!([score(0.5), score(-0.0), score(12.0), score(1.0 / 3.0)], ["0.5", "0", "12", "0.3333"]);
    }
}
