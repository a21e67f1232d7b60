//! What is wrong with a row of data, said by a parser that knows neither file nor line.

use std::sync::Arc;

use crate::{Diagnostic, Location};

/// A [`Diagnostic`] without its location. The type keeps it from reaching a user before the reader has added
/// file and line ([`Self::at`]), and is small, because the parser of every field may return one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowError {
    /// Byte within the line, from 1, where it is known.
    pub column: Option<u64>,
    diagnostic: Box<Diagnostic>,
}

impl RowError {
    /// Something is wrong with the row.
    pub fn new(what: impl Into<String>) -> Self {
        Self { column: None, diagnostic: Box::new(Diagnostic::new(what)) }
    }

    /// What to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.diagnostic.hint = Some(hint.into());
        self
    }

    /// What to do about it, unless that was said.
    pub fn or_hint(mut self, hint: &str) -> Self {
        self.diagnostic.hint.get_or_insert_with(|| hint.to_owned());
        self
    }

    /// `offset`: bytes before the culprit in its line.
    pub fn column_after(mut self, offset: usize) -> Self {
        self.column = Some(offset as u64 + 1);
        self
    }

    /// What is wrong.
    pub fn what(&self) -> &str {
        &self.diagnostic.what
    }

    /// It is in `line` of `file`.
    pub fn at(self, file: &Arc<str>, line: u64) -> Diagnostic {
        let location = Location { column: self.column, ..Location::file(Arc::clone(file)).line(line) };
        self.diagnostic.at(location)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reader_adds_file_and_line() {
        let error = RowError::new("`x` is negative: -1").column_after(4).hint("counts start at 0");
        let diagnostic = error.clone().at(&"a.csv".into(), 7);
        assert_eq!(diagnostic.to_string(), "a.csv:7:5: `x` is negative: -1\nhint: counts start at 0");
        assert_eq!(error.or_hint("other").at(&"a.csv".into(), 7), diagnostic);
        assert_eq!(RowError::new("bad").at(&"a.csv".into(), 1).to_string(), "a.csv:1: bad");
    }
}
