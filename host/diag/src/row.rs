//! Errors in a row of data, from parsers that do not have the file and line number.

use std::sync::Arc;

use crate::{Diagnostic, Location};

/// A [`Diagnostic`] without location. Because it is another type, it cannot reach a user before the reader has added
/// file and line ([`Self::at`]). It is small, because the parser of every field may return one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowError {
    /// Byte within the line, from 1, if it is known.
    pub column: Option<u64>,
    diagnostic: Box<Diagnostic>,
}

impl RowError {
    /// A mistake in the row.
    pub fn new(what: impl Into<String>) -> Self {
        Self { column: None, diagnostic: Box::new(Diagnostic::new(what)) }
    }

    /// Sets the hint: what the user can do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.diagnostic.hint = Some(hint.into());
        self
    }

    /// Sets the hint, unless there is one.
    pub fn or_hint(mut self, hint: &str) -> Self {
        self.diagnostic.hint.get_or_insert_with(|| hint.to_owned());
        self
    }

    /// Sets the column: `offset` bytes of the line are before the mistake.
    pub fn column_after(mut self, offset: usize) -> Self {
        self.column = Some(offset as u64 + 1);
        self
    }

    /// Says which part of the row is meant, before what is wrong with it.
    pub fn within(mut self, part: &str) -> Self {
        self.diagnostic.what = format!("{part}: {}", self.diagnostic.what);
        self
    }

    pub fn what(&self) -> &str {
        &self.diagnostic.what
    }

    /// The diagnostic of this error in `line` of `file`.
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
        assert_eq!(error.clone().within("request 3").what(), "request 3: `x` is negative: -1");
        assert_eq!(error.or_hint("other").at(&"a.csv".into(), 7), diagnostic);
        assert_eq!(RowError::new("bad").at(&"a.csv".into(), 1).to_string(), "a.csv:1: bad");
    }
}
