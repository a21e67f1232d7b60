//! Where in a file something stands.

use std::fmt::{self, Display};
use std::sync::Arc;

/// A position in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Path as given.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u64,
    /// Character in the line, from 1.
    pub column: u64,
    /// Characters that belong to it.
    pub len: u64,
}

impl Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}
