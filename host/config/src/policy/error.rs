//! What can be wrong with the choice of policies.

use std::io;

use blis_diag::{Diagnose, Diagnostic, Location, unreadable};
use thiserror::Error;

/// Policies that cannot be used as described.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(transparent)]
pub struct PolicyError(#[from] Diagnostic);

impl PolicyError {
    /// The bundle cannot be read.
    pub(super) fn unreadable(file: &str, error: &io::Error) -> Self {
        Self(unreadable(file, error))
    }

    /// Something is wrong at `location` of a file that reads `text`.
    pub(super) fn at(location: Location, text: &str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self(Diagnostic::in_text(location, text, what).hint(hint))
    }

    /// Something is wrong that has no location in a file.
    pub(super) fn said(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self(Diagnostic::new(what).hint(hint))
    }
}

impl Diagnose for PolicyError {
    fn diagnostic(&self) -> Diagnostic {
        self.0.clone()
    }
}
