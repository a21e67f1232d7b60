//! Writing to standard output and standard error, and the colour of both.

use std::io::{self, IsTerminal, Write as _};
use std::process::ExitCode;
use std::sync::OnceLock;

use blis_diag::{harmless, wrapped, wrapped_message};
use blis_eval::error::{RunError, RunErrorKind};
use blis_eval::spec::Permission;
use clap::parser::ValueSource;
use clap::{ArgMatches, ValueEnum};
use serde::Serialize;
use tracing::level_filters::LevelFilter;

/// `--color`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb
    Auto,
    /// Also in pipes and files
    Always,
    /// Plain text
    Never,
}

/// The heading of flags of output in help.
pub(super) const OUTPUT: &str = "Output";

/// Set once, before anything is printed.
static COLOR: OnceLock<ColorChoice> = OnceLock::new();

/// What the command line grants, set likewise.
static GRANTED: OnceLock<Vec<&'static str>> = OnceLock::new();

/// Sets what all further documents say is granted.
pub(super) fn grant(matches: &ArgMatches) {
    let mut granted = Vec::new();
    let mut of = Some(matches);
    while let Some(matches) = of {
        let given = matches.ids().filter(|id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine));
        granted.extend(given.filter_map(|id| Permission::of_flag(&id.as_str().replace('_', "-"))));
        of = matches.subcommand().map(|(_, below)| below);
    }
    granted.sort_unstable();
    granted.dedup();
    let _ = GRANTED.set(granted.into_iter().map(Permission::name).collect());
}

/// The names of the permissions that the command line grants.
pub(super) fn granted() -> &'static [&'static str] {
    GRANTED.get().map_or(&[], Vec::as_slice)
}

/// A part of a document with what was granted beside it.
#[derive(Serialize)]
pub(super) struct WithGrants<D: Serialize> {
    #[serde(flatten)]
    pub document: D,
    /// What flags of the command line granted beyond simulating what it names, as native-code and write-files; no file
    /// can.
    pub granted: &'static [&'static str],
}

/// What flags of the command line granted, of facts.
type Grants = WithGrants<()>;

/// A document of facts that is no list, with what was granted.
#[derive(Serialize)]
struct FactsDocument<D: Serialize> {
    #[serde(flatten)]
    document: D,
    /// What flags granted.
    run: Grants,
}

/// Sets the colour of all further output.
pub(super) fn choose_color(choice: ColorChoice) {
    // Only tests set it a second time in the same process.
    let _ = COLOR.set(choice);
}

/// `--color`, whatever else the command line holds: messages about broken command lines follow it, too.
pub(super) fn color_of(words: &[std::ffi::OsString]) -> ColorChoice {
    let texts: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let joined = texts.iter().filter_map(|text| text.strip_prefix("--color="));
    let separate = texts.windows(2).filter(|pair| pair[0] == "--color").map(|pair| pair[1]);
    let choice = joined.chain(separate).last().and_then(|text| ColorChoice::from_str(text, false).ok());
    choice.unwrap_or(ColorChoice::Auto)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputForm {
    /// Text on a terminal, JSON elsewhere
    Auto,
    /// A summary to read
    Text,
    /// One JSON object
    Json,
}

/// The forms of results that are tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TableForm {
    /// Text on a terminal, JSON elsewhere
    Auto,
    /// A summary to read
    Text,
    /// One JSON object
    Json,
    /// Tables for a page, as in docs/fidelity.md
    Markdown,
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
    /// Values that the program chose
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

/// Whether to print text: `auto` is text on a terminal, JSON elsewhere.
pub(super) fn wants_text_form(form: OutputForm) -> bool {
    match form {
        OutputForm::Auto => io::stdout().is_terminal(),
        OutputForm::Text => true,
        OutputForm::Json => false,
    }
}

/// Prints a result in one of its forms.
pub(super) fn print_table(
    form: TableForm,
    document: &impl Serialize,
    text: impl FnOnce() -> String,
    markdown: impl FnOnce() -> String,
) -> Result<(), RunError> {
    match form {
        TableForm::Markdown => print(markdown()),
        TableForm::Json => print_document(document),
        TableForm::Auto if !wants_text_form(OutputForm::Auto) => print_document(document),
        TableForm::Auto | TableForm::Text => print_text(text()),
    }
}

/// Prints facts as JSON, with what was granted if it is no list.
pub(super) fn print_document(document: &impl Serialize) -> Result<(), RunError> {
    // Only a document that is written says whether it is a list.
    let is_list = || serde_json::to_string(document).is_ok_and(|text| text.starts_with('['));
    if granted().is_empty() || is_list() {
        return print_json(document);
    }
    print_json(&FactsDocument { document, run: WithGrants { document: (), granted: granted() } })
}

pub(super) fn print_json(document: &impl Serialize) -> Result<(), RunError> {
    let mut text = Vec::new();
    document.serialize(&mut serde_json::Serializer::pretty(&mut text)).map_err(RunError::runtime)?;
    text.push(b'\n');
    io::stdout().write_all(&text).map_err(|error| RunError::output(&error))
}

/// Text for people, at most 80 columns wide where its words allow it, and harmless to a terminal: what a candidate calls itself
/// is in it.
pub(super) fn print_text(text: impl std::fmt::Display) -> Result<(), RunError> {
    print(wrapped(&harmless_but_colour(&text.to_string())))
}

/// `text` as a terminal may have it: of what a terminal obeys, only the colours of this program stay.
fn harmless_but_colour(text: &str) -> String {
    // What the summary and the profile of a workload use.
    const COLOURS: [&str; 6] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[1;33m", "\x1b[1;31m", "\x1b[36m"];
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        let (before, from) = rest.split_at(at);
        shown += &harmless(before);
        let colour = COLOURS.into_iter().find(|colour| from.starts_with(colour));
        let (escape, after) = from.split_at(colour.map_or(1, str::len));
        match colour {
            Some(colour) => shown += colour,
            None => shown += &harmless(escape),
        }
        rest = after;
    }
    shown += &harmless(rest);
    shown
}

pub(super) fn print_lines(lines: &[String]) -> Result<(), RunError> {
    print_text(lines.iter().map(|line| format!("{line}\n")).collect::<String>())
}

/// Scripts, YAML, help: as it is.
pub(super) fn print(text: impl std::fmt::Display) -> Result<(), RunError> {
    let mut out = io::stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush()).map_err(|error| RunError::output(&error))
}

/// A failure, on standard error: `error:` and `hint:` in colour where that is wanted.
pub(super) fn print_error(failure: &impl std::fmt::Display) {
    const RED: &str = "\x1b[1;31m";
    const CYAN: &str = "\x1b[36m";
    const PLAIN: &str = "\x1b[0m";
    let mut text = harmless(&failure.to_string()).into_owned();
    if colour_wanted(&io::stderr()) {
        let lines = text.lines().map(|line| match line.split_once(": ") {
            Some(("error", rest)) => format!("{RED}error:{PLAIN} {rest}"),
            Some(("hint", rest)) => format!("{CYAN}hint:{PLAIN} {rest}"),
            _ => line.to_owned(),
        });
        text = lines.collect::<Vec<_>>().join("\n");
    }
    print_message(&text);
}

/// A note about the input, on standard error.
pub(super) fn print_note(note: &impl std::fmt::Display) {
    print_message(&harmless(&format!("note: {note}")));
}

/// A line, or several, on standard error: at most 80 columns wide on a terminal.
fn print_message(text: &str) {
    // Nothing is left to do if even this fails.
    let _ = MessageWriter.write_all(format!("{text}\n").as_bytes());
}

/// Standard error, which wraps whole messages if it is a terminal.
struct MessageWriter;

impl io::Write for MessageWriter {
    /// `message` is a whole one: the log writes each at once, as does [`print_message`].
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        let text = str::from_utf8(message).ok().filter(|_| io::stderr().is_terminal());
        let written = match text {
            Some(text) => io::stderr().write_all(wrapped_message(text).as_bytes()),
            None => io::stderr().write_all(message),
        };
        written.map(|()| message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

pub(super) fn start_log(level: LevelFilter) {
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| MessageWriter)
        .with_ansi(colour_wanted(&io::stderr()))
        .with_target(false)
        .without_time();
    // Fails only if there is a log already, which then serves as well.
    let _ = log.try_init();
}

/// Whether `stream` gets colour. <https://no-color.org>: any value but the empty one turns it off.
pub(super) fn colour_wanted(stream: &impl IsTerminal) -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    match COLOR.get().copied().unwrap_or(ColorChoice::Auto) {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            let dumb = set("TERM").is_some_and(|terminal| terminal == "dumb");
            stream.is_terminal() && set("NO_COLOR").is_none() && !dumb
        }
    }
}

/// Ends this process where no caller can: from a thread that watches the others.
#[expect(clippy::disallowed_methods, reason = "the thread that would return is busy")]
pub(super) fn end_at_once(code: u8) -> ! {
    std::process::exit(code.into())
}

/// The exit code after `failure`: 2 for an invalid command line or file, 1 for a failed run, 0 if the reader has closed
/// the output, and that of a result that has one.
pub(super) fn exit_code(failure: &RunError) -> ExitCode {
    match failure.kind() {
        RunErrorKind::Usage => ExitCode::from(2),
        RunErrorKind::Runtime => ExitCode::FAILURE,
        RunErrorKind::BrokenPipe => ExitCode::SUCCESS,
        RunErrorKind::Status(code) => ExitCode::from(code),
    }
}
