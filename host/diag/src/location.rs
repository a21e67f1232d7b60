//! Where in a file something stands.

use std::fmt::{self, Display};
use std::sync::Arc;

/// A position in a file, or the file as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Path as given. That of an embedded file is the one it has in the repository.
    pub file: Arc<str>,
    /// Line, from 1, where it is known.
    pub line: Option<u64>,
    /// Character in the line (byte, in lines of data), from 1, where it is known.
    pub column: Option<u64>,
    /// Characters that belong to it.
    pub len: u64,
}

impl Location {
    /// The file as a whole.
    pub fn file(file: impl Into<Arc<str>>) -> Self {
        Self { file: file.into(), line: None, column: None, len: 1 }
    }

    /// A line of it.
    #[must_use]
    pub fn line(self, line: u64) -> Self {
        Self { line: Some(line), ..self }
    }

    /// `len` characters from `column` of a line on.
    #[must_use]
    pub fn characters(self, line: u64, column: u64, len: u64) -> Self {
        Self { line: Some(line), column: Some(column), len, ..self }
    }

    /// The first character, of what has no better location.
    pub fn start(file: impl Into<Arc<str>>) -> Self {
        Self::file(file).characters(1, 1, 1)
    }
}

impl Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        let Some(line) = self.line else { return Ok(()) };
        write!(f, ":{line}")?;
        self.column.map_or(Ok(()), |column| write!(f, ":{column}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_what_is_known() {
        let file = Location::file("a.csv");
        assert_eq!(file.to_string(), "a.csv");
        assert_eq!(file.clone().line(7).to_string(), "a.csv:7");
        assert_eq!(file.characters(7, 3, 2).to_string(), "a.csv:7:3");
    }
}
