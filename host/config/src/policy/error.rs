//! Errors in the selection of policies.

use std::io;

use blis_diag::{Diagnose, Diagnostic, Location, unreadable};
use thiserror::Error;

use super::SettingSource;

/// A policy setting that is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(transparent)]
pub struct PolicyError(#[from] Diagnostic);

impl PolicyError {
    /// The bundle file cannot be read.
    pub(super) fn unreadable(file: &str, error: &io::Error) -> Self {
        Self(unreadable(file, error))
    }

    /// A mistake at `location` of a file with the content `text`.
    pub(super) fn at(location: Location, text: &str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self(Diagnostic::in_text(location, text, what).hint(hint))
    }

    /// A mistake that has no location in a file.
    pub(super) fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self(Diagnostic::new(what).hint(hint))
    }
}

/// A contradiction between settings, without the text of the file.
pub(super) struct Contradiction {
    /// The setting that is to be changed.
    pub source: SettingSource,
    /// The mistake.
    pub what: String,
    /// How to correct it.
    pub hint: String,
}

impl Contradiction {
    /// Of a setting that comes from `source`.
    pub fn new(source: &SettingSource, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { source: source.clone(), what: what.into(), hint: hint.into() }
    }
}

impl Diagnose for PolicyError {
    fn diagnostic(&self) -> Diagnostic {
        self.0.clone()
    }
}
