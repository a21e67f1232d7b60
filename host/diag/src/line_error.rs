//! An error in one line of a file: row parsers return a [`Fault`], and the reader adds file and line.

use std::fmt;
use std::sync::Arc;

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct LineError {
    /// Path as given.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u64,
    /// Byte within the line, from 1, where it is known.
    pub column: Option<u64>,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.file, self.line)?;
        if let Some(column) = self.column {
            write!(f, "{column}:")?;
        }
        write!(f, " {}", self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// What is wrong with a row, before file and line are known.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    pub column: Option<u64>,
    pub what: String,
    pub hint: Option<String>,
}

impl Fault {
    pub fn new(what: impl Into<String>) -> Self {
        Self { column: None, what: what.into(), hint: None }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What to do, unless that was said.
    pub fn or_hint(mut self, hint: &str) -> Self {
        self.hint.get_or_insert_with(|| hint.to_owned());
        self
    }

    /// `offset`: bytes before the culprit in its line.
    pub fn column_after(mut self, offset: usize) -> Self {
        self.column = Some(offset as u64 + 1);
        self
    }

    pub fn at(self, file: &Arc<str>, line: u64) -> LineError {
        LineError { file: Arc::clone(file), line, column: self.column, what: self.what, hint: self.hint }
    }
}

/// serde_json's words, with its column but without its line.
pub fn json_fault(error: &serde_json::Error) -> Fault {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    Fault::new(what).column_after(error.column().saturating_sub(1))
}
