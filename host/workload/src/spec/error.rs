//! Errors in workload specifications.

use std::io;

use blis_diag::{Diagnose, Diagnostic, Location, unreadable};
use thiserror::Error;

/// A specification that cannot be used as written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(transparent)]
pub struct SpecFileError(#[from] Diagnostic);

impl SpecFileError {
    /// `file` cannot be read.
    pub(super) fn unreadable(file: &str, error: &io::Error) -> Self {
        Self(unreadable(file, error))
    }

    /// A mistake at `location` of a file with the content `text`.
    pub(super) fn at(location: Location, text: &str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self(Diagnostic::in_text(location, text, what).hint(hint))
    }

    /// A mistake in `file` as a whole.
    pub(super) fn whole(file: &str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self(Diagnostic::new(what).at(Location::file(file)).hint(hint))
    }
}

impl Diagnose for SpecFileError {
    fn diagnostic(&self) -> Diagnostic {
        self.0.clone()
    }
}

/// A valid specification that results in no usable workload.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{}", self.diagnostic())]
pub enum ExpandError {
    /// It has no end.
    Endless,
    /// More requests than 32 bits can number.
    TooMany {
        /// Rate times duration: the expected number of requests.
        requests: f64,
    },
    /// Too many requests in a window that is to be filled: their inter-arrival times are drawn twice.
    FullWindow {
        /// Rate times duration: the expected number of requests.
        requests: f64,
    },
    /// Too many requests in the first windows of all clients together, for the same reason.
    FullWindows {
        /// Sum of rates times durations: the expected number of requests.
        requests: f64,
    },
    /// More prefix blocks than 32 bits can number.
    TooManyBlocks,
    /// No client sends any request.
    Empty,
}

impl Diagnose for ExpandError {
    fn diagnostic(&self) -> Diagnostic {
        let about = |requests: &f64, what: &str| Diagnostic::new(format!("about {requests:.0} requests{what}"));
        match self {
            Self::Endless => Diagnostic::new("the workload has no end")
                .hint("set `num_requests` or `horizon` in the specification, or --num-requests or --horizon"),
            Self::TooMany { requests } => {
                about(requests, ", more than 4294967295").hint("lower the rate, the horizon or the windows")
            }
            Self::FullWindow { requests } => {
                about(requests, " in one window with a rate of its own, more than 100000000")
                    .hint("lower the rate, or cut the window in pieces")
            }
            Self::FullWindows { requests } => {
                let what = " in the first windows of all clients, which have rates of their own: more than 100000000";
                about(requests, what).hint("lower the rates, or cut the windows in pieces")
            }
            Self::TooManyBlocks => Diagnostic::new("the prefixes of all groups have more than 4294967295 KV blocks")
                .hint("make them fewer or shorter"),
            Self::Empty => Diagnostic::new("no client ever sends a request")
                .hint("the windows lie after the horizon, or the rates are 0"),
        }
    }
}
