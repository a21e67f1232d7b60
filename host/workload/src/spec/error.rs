//! What can be wrong with a workload specification.

use std::io;
use std::sync::Arc;

use thiserror::Error;

use blis_diag::Location;
use blis_diag::unreadable;
use blis_diag::yaml::Wrong;

/// A specification that cannot be used as written.
#[derive(Debug, Error)]
pub enum SpecFileError {
    /// A file cannot be read.
    #[error("{}", unreadable(file, source))]
    Read {
        /// Path as given.
        file: Arc<str>,
        /// What the system said.
        source: io::Error,
    },
    /// A place in a file is wrong.
    #[error(transparent)]
    Wrong(#[from] Wrong),
    /// Something that has no one place.
    #[error("{file}: {what}\nhint: {hint}")]
    Whole {
        /// Path as given.
        file: Arc<str>,
        /// What is wrong.
        what: String,
        /// What to do about it.
        hint: String,
    },
}

impl SpecFileError {
    /// Something is wrong at `spot` of a file that reads `text`.
    pub(super) fn at(spot: Location, text: &str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Wrong(Wrong::at(spot, text, what, hint))
    }

    /// Something is wrong with `file` as a whole.
    pub(super) fn whole(file: &str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Whole { file: file.into(), what: what.into(), hint: hint.into() }
    }
}

/// A specification that makes sense, but no workload.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ExpandError {
    /// It would never end.
    #[error(
        "the workload has no end\nhint: set `num_requests` or `horizon` in the specification, or --num-requests or --horizon"
    )]
    Endless,
    /// More requests than can be numbered.
    #[error("about {requests:.0} requests, more than 4294967295\nhint: lower the rate, the horizon or the windows")]
    TooMany {
        /// Rate times time.
        requests: f64,
    },
    /// Too many requests in a window that is to be filled: their intervals are drawn twice.
    #[error(
        "about {requests:.0} requests in one window with a rate of its own, more than 100000000\nhint: lower the rate, or cut the window in pieces"
    )]
    FullWindow {
        /// Rate times time.
        requests: f64,
    },
    /// The same in the first windows of all clients together.
    #[error(
        "about {requests:.0} requests in the first windows of all clients, which have rates of their own: more than 100000000\nhint: lower the rates, or cut the windows in pieces"
    )]
    FullWindows {
        /// Rates times times.
        requests: f64,
    },
    /// More prefixes than can be numbered.
    #[error("the prefixes of all groups have more than 4294967295 KV blocks\nhint: make them fewer or shorter")]
    TooManyBlocks,
    /// No client sends anything.
    #[error("no client ever sends a request\nhint: the windows lie behind the horizon, or the rates are 0")]
    Empty,
}
