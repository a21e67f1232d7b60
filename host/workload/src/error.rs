//! Errors in traces, with everything that the user needs to correct them.
//!
//! Parsers of a single row do not have the file: they return a [`RowError`](blis_diag::RowError), and the reader adds
//! file and line. A bad row can be skipped on request ([`Skipped`]); every other error ends the reading.

use std::io;
use std::sync::Arc;

use blis_sim::units::Micros;

use super::format::TraceFormat;
use blis_diag::{Diagnose, Diagnostic, Location, ReadError, unreadable};

/// Why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.diagnostic())]
pub enum TraceError {
    /// The file cannot be opened or read, or its gzip stream is damaged.
    Io {
        /// Path of the file, as the user wrote it.
        file: Arc<str>,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A line is invalid.
    Line(Diagnostic),
    /// The format is not one of those known.
    UnknownFormat {
        /// Path of the file, as the user wrote it.
        file: Arc<str>,
        /// First bytes of the file, quoted.
        start: String,
        /// The names of all formats.
        formats: String,
    },
    /// There is no row to simulate.
    Empty {
        /// Path of the file, as the user wrote it.
        file: Arc<str>,
        /// Rows that were skipped because they are invalid.
        skipped: Skipped,
        /// Notes about other rows that were left out.
        notes: Vec<String>,
    },
    /// Nothing arrives in the selected part of the trace.
    EmptyWindow {
        /// Path of the file, as the user wrote it.
        file: Arc<str>,
        /// Start of the part, on the clock of the trace.
        start: Micros,
        /// End of the part, if it has one.
        end: Option<Micros>,
        /// The last arrival of the trace.
        last: Micros,
    },
    /// A TraceV2 trace has two files, and one of them is missing.
    HalfMissing {
        /// Path of the file, as the user wrote it.
        file: Arc<str>,
        /// The half of the pair: `header` or `data`.
        half: &'static str,
        /// Path at which the other half was expected.
        missing: String,
    },
    /// The rounds of a session are not numbered 0, 1, 2, …
    Rounds {
        /// Path of the file, as the user wrote it.
        file: Arc<str>,
        /// Name of the session in the trace.
        session: String,
        /// How often it is given: `not` or `twice`.
        what: &'static str,
        /// The first missing or repeated round.
        round: u32,
    },
    /// Closed loop was requested, but the format does not contain which round follows which.
    NoSessions {
        /// Path of the file, as the user wrote it.
        file: Arc<str>,
        format: TraceFormat,
    },
    /// The file has lengths without arrivals, and no rate was given.
    NoArrivals {
        /// Path of the file, as the user wrote it.
        file: Arc<str>,
        format: TraceFormat,
    },
    /// A rate was given, but the file has arrivals.
    HasArrivals {
        /// Path of the file, as the user wrote it.
        file: Arc<str>,
        /// What has them: the format or a column.
        format: String,
    },
    /// More than 32 bits can number.
    TooMany {
        /// Path of the file, as the user wrote it.
        file: Arc<str>,
        /// The objects that are too many: `requests` or `shared KV blocks`.
        what: &'static str,
        /// How to reduce their number.
        hint: &'static str,
    },
}

impl Diagnose for TraceError {
    fn diagnostic(&self) -> Diagnostic {
        let of = |file: &Arc<str>, what: String| Diagnostic::new(what).at(Location::file(Arc::clone(file)));
        match self {
            Self::Io { file, source } => unreadable(file, source),
            Self::Line(line) => line.clone(),
            Self::UnknownFormat { file, start, formats } => {
                let unknown = of(file, format!("unknown trace format; it starts with {start}"));
                if file.ends_with(".yaml") || file.ends_with(".yml") {
                    return unknown.hint("`--workload-spec FILE` reads workload specifications");
                }
                unknown.hint(format!("if it is one of {formats}, name it with `--trace-format`"))
            }
            Self::Empty { file, skipped, notes } => of(file, format!("no requests{}", left_out_text(skipped, notes)))
                .hint("a trace needs at least one request after its header"),
            Self::EmptyWindow { file, start, end, last } => {
                let (start, until, last) = (start.as_secs_f64(), until(*end), last.as_secs_f64());
                of(file, format!("no request arrives from {start} s{until}; the last one arrives at {last} s"))
                    .hint("change `--start` or `--duration`")
            }
            Self::HalfMissing { file, half, missing } => {
                of(file, format!("this is the {half} of a TraceV2 trace, and `{missing}` is not there"))
                    .hint("give both files")
            }
            Self::Rounds { file, session, what, round } => {
                of(file, format!("round {round} of session `{session}` is {what} there")).hint(
                    "in closed loop the rounds of a session count 0, 1, 2, …; with `--session-mode fixed` each \
                     arrives as recorded",
                )
            }
            Self::NoSessions { file, format } => {
                of(file, format!("a trace in the format {format} has no rounds that could follow the end of others"))
                    .hint(
                        "closed loop is for mooncake and trace-v2; with `--session-mode fixed` each request arrives as \
                     recorded",
                    )
            }
            Self::NoArrivals { file, format } => of(file, format!("no arrivals in this file (format {format})"))
                .hint("set a rate with `--rate R`, requests per second; `--arrival-process` is poisson by default"),
            Self::HasArrivals { file, format } => {
                of(file, format!("`--rate` is set, but the file has arrivals ({format})"))
                    .hint("leave `--rate` out; `--time-scale 2` halves the rate of a trace")
            }
            Self::TooMany { file, what, hint } => of(file, format!("more than 4294967295 {what}")).hint(*hint),
        }
    }
}

impl From<Diagnostic> for TraceError {
    fn from(line: Diagnostic) -> Self {
        Self::Line(line)
    }
}

impl From<ReadError> for TraceError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io { file, source } => Self::Io { file, source },
            ReadError::Line(line) => Self::Line(line),
        }
    }
}

impl TraceError {
    /// The same error with a hint that the format was only guessed.
    pub(super) fn of_a_guess(self) -> Self {
        let guess =
            "no key in the first 4 KiB identifies the format, so mooncake was assumed; give it with `--trace-format`";
        match self {
            Self::Line(error) => {
                let hint = error.hint.map_or(guess.to_owned(), |hint| format!("{guess}; {hint}"));
                Self::Line(Diagnostic { hint: Some(hint), ..error })
            }
            Self::Empty { file, skipped, mut notes } => {
                notes.push(guess.to_owned());
                Self::Empty { file, skipped, notes }
            }
            other => other,
        }
    }
}

fn until(end: Option<Micros>) -> String {
    end.map_or(" on".to_owned(), |end| format!(" to {} s", end.as_secs_f64()))
}

fn left_out_text(skipped: &Skipped, notes: &[String]) -> String {
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
    format!("{notes}{}", skipped_text(skipped))
}

fn skipped_text(skipped: &Skipped) -> String {
    match skipped.first.first() {
        Some(first) => {
            // The row's own hint would be a second one.
            format!(" ({} bad rows were skipped, the first is {})", skipped.count, first.headline())
        }
        None => String::new(),
    }
}

/// Rows that were left out because they are invalid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Number of lines that were skipped.
    pub count: u64,
    /// The first errors, at most [`Skipped::KEPT`].
    pub first: Vec<Diagnostic>,
}

impl Skipped {
    /// Number of errors that are kept for the user.
    pub const KEPT: usize = 5;

    pub(super) fn add(&mut self, error: Diagnostic) {
        self.count += 1;
        if self.first.len() < Self::KEPT {
            self.first.push(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use blis_diag::RowError;

    use super::*;

    #[test]
    fn messages_say_where_and_what_to_do() {
        let file: Arc<str> = "a.csv".into();
        let error = RowError::new("`x` is negative: -1").column_after(4).hint("counts start at 0").at(&file, 7);
        insta::assert_snapshot!(error, @r"
        a.csv:7:5: `x` is negative: -1
        hint: counts start at 0
        ");
        let mut skipped = Skipped::default();
        for line in 2..10 {
            skipped.add(RowError::new("bad").at(&file, line));
        }
        assert_eq!(skipped.first.len(), Skipped::KEPT);
        let error = TraceError::Empty { file, skipped, notes: Vec::new() };
        insta::assert_snapshot!(error, @r"
        a.csv: no requests (8 bad rows were skipped, the first is a.csv:2: bad)
        hint: a trace needs at least one request after its header
        ");
    }
}
