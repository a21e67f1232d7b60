//! Locations in files.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::printable;

/// A position in a file, or the file as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// Path of the file as the user wrote it, with control characters escaped; of an embedded file, its path in the repository.
    #[serde(with = "text")]
    pub file: Arc<str>,
    /// Line, from 1, if it is known.
    pub line: Option<u64>,
    /// Column, from 1, if it is known: characters in text, bytes in lines of data.
    pub column: Option<u64>,
    /// Length of the marked text, characters.
    pub len: u64,
}

impl Location {
    /// The file as a whole.
    pub fn file(file: impl Into<Arc<str>>) -> Self {
        let mut file: Arc<str> = file.into();
        if let Cow::Owned(shown) = printable(&file) {
            file = shown.into();
        }
        Self { file, line: None, column: None, len: 1 }
    }

    /// A line of the file.
    #[must_use]
    pub fn line(self, line: u64) -> Self {
        Self { line: Some(line), ..self }
    }

    /// `len` characters of a line, from `column` on.
    #[must_use]
    pub fn characters(self, line: u64, column: u64, len: u64) -> Self {
        Self { line: Some(line), column: Some(column), len, ..self }
    }

    /// The first character of a file, where no better location is known.
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

/// A shared text as plain text.
mod text {
    use std::sync::Arc;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(text: &Arc<str>, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(from).map(Arc::from)
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
