//! What can be wrong with a trace, said so that the user can find it and mend it.
//!
//! Parsers of a single row know nothing of files: they return a [`Fault`], and the reader adds
//! file and line. A row can be skipped on request ([`Skipped`]); everything else ends the reading.

use std::io;
use std::sync::Arc;

use blis_sim::units::Micros;

use super::format::TraceFormat;
use blis_diag::{LineError, ReadError, unreadable};

/// Why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened or read, or its gzip stream is damaged.
    #[error("{}", unreadable(.file, .source))]
    Io {
        /// Path as given.
        file: Arc<str>,
        /// What the system said.
        source: io::Error,
    },
    /// A line is wrong.
    #[error(transparent)]
    Line(#[from] LineError),
    /// The format is none of those known.
    #[error(
        "{file}: unknown trace format; it starts with {start}\nhint: if it is one of {formats}, name it with `--trace-format`"
    )]
    UnknownFormat {
        /// Path as given.
        file: Arc<str>,
        /// First bytes of the file, quoted.
        start: String,
        /// The names that can be given.
        formats: String,
    },
    /// No such format name.
    #[error("unknown trace format `{name}`\nhint: {hint}")]
    UnknownFormatName {
        /// The name given.
        name: String,
        /// The nearest name, or all of them.
        hint: String,
    },
    /// There is no row to simulate.
    #[error("{file}: no requests{}\nhint: a trace needs at least one request after its header", left_out_text(.skipped, .notes))]
    Empty {
        /// Path as given.
        file: Arc<str>,
        /// Rows that were skipped as bad.
        skipped: Skipped,
        /// What else was left out.
        notes: Vec<String>,
    },
    /// Nothing arrives in the part of the trace that was asked for.
    #[error(
        "{file}: no request arrives from {} s{}; the last one arrives at {} s\nhint: change `--start` or `--duration`",
        .start.as_secs_f64(), until(*.end), .last.as_secs_f64()
    )]
    EmptyWindow {
        /// Path as given.
        file: Arc<str>,
        /// Start of the part, on the clock of the trace.
        start: Micros,
        /// Its end, where it has one.
        end: Option<Micros>,
        /// The last arrival of the trace.
        last: Micros,
    },
    /// A TraceV2 trace has two files, and one of them is not where it should be.
    #[error("{file}: this is the {half} of a TraceV2 trace, and `{missing}` is not there\nhint: give both files")]
    HalfMissing {
        /// Path as given.
        file: Arc<str>,
        /// `header` or `data`.
        half: &'static str,
        /// Where the other half was looked for.
        missing: String,
    },
    /// The rounds of a session do not count 0, 1, 2, …
    #[error(
        "{file}: round {round} of session `{session}` is {what} there\nhint: in closed loop the rounds of a session \
         count 0, 1, 2, …; with `--session-mode fixed` each arrives as recorded"
    )]
    Rounds {
        /// Path as given.
        file: Arc<str>,
        /// Its name in the trace.
        session: String,
        /// `not` or `twice`.
        what: &'static str,
        /// The first round of which that is so.
        round: u32,
    },
    /// Closed loop was asked for, and the format does not tell which turn waits for which answer.
    #[error(
        "{file}: a trace in the format {format} has no rounds that could wait for answers\nhint: closed loop is for \
         mooncake and trace-v2; with `--session-mode fixed` each request arrives as recorded"
    )]
    NoSessions {
        /// Path as given.
        file: Arc<str>,
        /// Its format.
        format: TraceFormat,
    },
    /// More than 32 bits can number.
    #[error("{file}: more than 4294967295 {what}\nhint: {hint}")]
    TooMany {
        /// Path as given.
        file: Arc<str>,
        /// `requests` or `shared KV blocks`.
        what: &'static str,
        /// How to make them fewer.
        hint: &'static str,
    },
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
    /// The same, where nothing told the format.
    pub(super) fn of_a_guess(self) -> Self {
        let guess =
            "no key in the first 4 KiB tells the format, so it was taken for mooncake; name it with `--trace-format`";
        match self {
            Self::Line(error) => {
                let hint = error.hint.map_or(guess.to_owned(), |hint| format!("{guess}; {hint}"));
                Self::Line(LineError { hint: Some(hint), ..error })
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
            // The row's own hint would be one too many.
            let first = first.to_string();
            let first = first.lines().next().unwrap_or_default();
            format!(" ({} bad rows were skipped, the first is {first})", skipped.count)
        }
        None => String::new(),
    }
}

/// Rows left out because they could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// How many.
    pub count: u64,
    /// The first few of them, at most [`Skipped::KEPT`].
    pub first: Vec<LineError>,
}

impl Skipped {
    /// How many errors are kept for the user to read.
    pub const KEPT: usize = 5;

    pub(super) fn add(&mut self, error: LineError) {
        self.count += 1;
        if self.first.len() < Self::KEPT {
            self.first.push(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use blis_diag::Fault;

    use super::*;

    #[test]
    fn messages_say_where_and_what_to_do() {
        let file: Arc<str> = "a.csv".into();
        let error = Fault::new("`x` is negative: -1").column_after(4).hint("counts start at 0").at(&file, 7);
        insta::assert_snapshot!(error, @r"
        a.csv:7:5: `x` is negative: -1
        hint: counts start at 0
        ");
        let mut skipped = Skipped::default();
        for line in 2..10 {
            skipped.add(Fault::new("bad").at(&file, line));
        }
        assert_eq!(skipped.first.len(), Skipped::KEPT);
        let error = TraceError::Empty { file, skipped, notes: Vec::new() };
        insta::assert_snapshot!(error, @r"
        a.csv: no requests (8 bad rows were skipped, the first is a.csv:2: bad)
        hint: a trace needs at least one request after its header
        ");
    }
}
