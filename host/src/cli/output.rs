//! Standard output, standard error, and what they look like: the only printing.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use blis_eval::error::{RunError, RunErrorKind};
use clap::ValueEnum;
use serde::Serialize;
use tracing::level_filters::LevelFilter;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputForm {
    /// Text on a terminal, JSON elsewhere
    Auto,
    /// A summary to read
    Text,
    /// One JSON object
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogLevel {
    /// Nothing
    Off,
    /// What went wrong
    #[value(alias = "fatal", alias = "panic")]
    Error,
    /// What may be a mistake
    #[value(alias = "warning")]
    Warn,
    /// What was chosen where you left the choice
    Info,
    /// What helps to find a bug
    Debug,
    /// Everything
    Trace,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Off => Self::OFF,
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

/// Text on a terminal, JSON elsewhere, unless told otherwise.
pub(super) fn wants_text_form(form: OutputForm) -> bool {
    match form {
        OutputForm::Auto => io::stdout().is_terminal(),
        OutputForm::Text => true,
        OutputForm::Json => false,
    }
}

pub(super) fn print_document(document: &impl Serialize) -> Result<(), RunError> {
    let mut text = Vec::new();
    document.serialize(&mut serde_json::Serializer::pretty(&mut text)).map_err(RunError::runtime)?;
    text.push(b'\n');
    io::stdout().write_all(&text).map_err(|error| RunError::output(&error))
}

pub(super) fn print_lines(lines: &[String]) -> Result<(), RunError> {
    print(lines.iter().map(|line| format!("{line}\n")).collect::<String>())
}

pub(super) fn print(text: impl std::fmt::Display) -> Result<(), RunError> {
    let mut out = io::stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush()).map_err(|error| RunError::output(&error))
}

pub(super) fn start_log(level: LevelFilter) {
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal() && colour_wanted())
        .with_target(false)
        .without_time();
    // Fails only if there is a log already, which then serves as well.
    let _ = log.try_init();
}

/// <https://no-color.org>: any value but the empty one turns colour off.
pub(super) fn colour_wanted() -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    set("NO_COLOR").is_none() && set("TERM").is_none_or(|terminal| terminal != "dumb")
}

/// How the program ends after `failure`: 2 for what was asked, 1 for what went wrong, 0 for a reader that left.
pub(super) fn exit_code(failure: &RunError) -> ExitCode {
    match failure.kind() {
        RunErrorKind::Usage => ExitCode::from(2),
        RunErrorKind::Runtime => ExitCode::FAILURE,
        RunErrorKind::BrokenPipe => ExitCode::SUCCESS,
    }
}
