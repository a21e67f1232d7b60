//! What can be wrong with the choice of policies.

use std::io;
use std::sync::Arc;

use thiserror::Error;

use blis_diag::Location;
use blis_diag::unreadable;
use blis_diag::yaml::Wrong;

/// Policies that cannot be used as described.
#[derive(Debug, Error)]
pub enum PolicyError {
    /// The bundle cannot be read.
    #[error("{}", unreadable(file, source))]
    Read {
        /// Path as given.
        file: Arc<str>,
        /// What the system said.
        source: io::Error,
    },
    /// A place in the bundle is wrong.
    #[error(transparent)]
    Wrong(#[from] Wrong),
    /// Something that has no place in a file.
    #[error("{what}\nhint: {hint}")]
    Contradiction {
        /// What is wrong.
        what: String,
        /// What to do about it.
        hint: String,
    },
}

impl PolicyError {
    /// Something is wrong at `spot` of a file that reads `text`.
    pub(super) fn at(spot: Location, text: &str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Wrong(Wrong::at(spot, text, what, hint))
    }

    /// Something is wrong between flags.
    pub(super) fn said(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Contradiction { what: what.into(), hint: hint.into() }
    }
}
