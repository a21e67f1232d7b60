//! What goes with the figures of every result: the conclusion first, the subject, caveats, settings, and the command.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::Path;
use std::sync::OnceLock;

use blis_eval::envelope::{Envelope, ResultSubject};
use blis_eval::error::RunError;
use blis_eval::identity;
use blis_eval::spec::ExperimentSpec;
use blis_report::{Caveat, Concludes, Conclusion, PageResult, write_page};
use serde::Serialize;

use super::output::{OutputForm, WithGrants, granted, print_json, print_text, wants_text_form};

/// Set once, before anything is printed.
static COMMAND: OnceLock<String> = OnceLock::new();

/// Flags with a value that change no figure: how fast results come, and their form.
const OF_FORM: [&str; 7] = ["--threads", "--output", "--color", "--log", "--report", "--csv", "--cache"];
/// The same without a value.
const OF_FORM_ALONE: [&str; 2] = ["--no-progress", "--verify"];

/// Keeps the command line for [`command`].
pub(super) fn keep_command(words: &[OsString]) {
    let _ = COMMAND.set(reproducing(words));
}

/// The command that makes the result again: without flags that change no figure.
pub(super) fn command() -> &'static str {
    COMMAND.get().map_or("blis", String::as_str)
}

fn reproducing(words: &[OsString]) -> String {
    let mut command = vec!["blis".to_owned()];
    let mut words = words.iter().skip(1).map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        let flag = word.split('=').next().unwrap_or_default();
        if OF_FORM.contains(&flag) {
            if flag.len() == word.len() {
                words.next();
            }
        } else if !OF_FORM_ALONE.contains(&flag) {
            command.push(quoted(&word));
        }
    }
    command.join(" ")
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=,:@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A result with what goes with it.
#[derive(Serialize)]
pub(super) struct Document<D: Serialize> {
    /// What follows from the figures.
    conclusion: Conclusion,
    #[serde(flatten)]
    document: D,
    /// What the result is the result of.
    run: WithGrants<DocumentOrigin>,
}

/// What the figures follow from.
#[derive(Serialize)]
pub(super) struct DocumentOrigin {
    /// Version of the program.
    version: &'static str,
    /// The command, without flags that change no figure.
    command: &'static str,
    /// What the result is about.
    subject: ResultSubject,
    /// What limits the conclusion.
    caveats: Vec<Caveat>,
    /// All settings that do not follow from others, defaults included, by the names of their flags, as `--config` reads
    /// them; of the first of several deployments; absent if nothing is simulated from settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<ExperimentSpec>,
    /// Defaults that were chosen, and simplifications.
    notes: Vec<String>,
    /// SHA-256 of the figures, the settings and the version: equal digests, equal results.
    digest: String,
}

impl<D: Serialize + Concludes> Document<D> {
    pub fn new(document: D, envelope: &Envelope) -> Self {
        let conclusion = document.conclusion();
        let caveats = document.caveats().into_iter().chain(envelope.caveats.iter().cloned()).collect();
        let origin = DocumentOrigin {
            version: env!("CARGO_PKG_VERSION"),
            command: command(),
            subject: envelope.subject.clone(),
            caveats,
            settings: envelope.settings.clone(),
            notes: envelope.notes.clone(),
            digest: digest_of(&document, envelope),
        };
        let run = WithGrants { document: origin, granted: granted() };
        Self { conclusion, document, run }
    }
}

fn digest_of<D: Serialize + Concludes>(document: &D, envelope: &Envelope) -> String {
    // Only maps with keys that are no text have no JSON form; there are none.
    let mut figures = serde_json::to_value(document).unwrap_or_default();
    if let Some(fields) = figures.as_object_mut() {
        document.volatile().iter().for_each(|field| drop(fields.remove(*field)));
    }
    identity::digest(&(figures, &envelope.settings, env!("CARGO_PKG_VERSION")))
}

/// Prints a result: as text its conclusion, then `text`.
pub(super) fn print_result<D: Serialize + Concludes>(
    form: OutputForm,
    document: &D,
    envelope: &Envelope,
    text: impl Display,
) -> Result<(), RunError> {
    if wants_text_form(form) {
        return print_text(format_args!("{}\n\n{text}", document.conclusion()));
    }
    print_json(&Document::new(document, envelope))
}

/// Writes the page of `--report`, if there is one.
pub(super) fn write_report<D: Serialize + Concludes>(
    path: Option<&Path>,
    title: &str,
    document: &D,
    envelope: &Envelope,
) -> Result<(), RunError> {
    let Some(path) = path else { return Ok(()) };
    write_page(path, title, &[PageResult::new(title, &Document::new(document, envelope), None)])
        .map_err(|error| RunError::file(&error))
}

/// The lines that begin a table as CSV.
pub(super) fn csv_header<D: Concludes>(document: &D, envelope: &Envelope) -> String {
    let caveats = document.caveats().into_iter().chain(envelope.caveats.iter().cloned());
    let lines = [
        document.conclusion().text,
        envelope.subject.text.clone(),
        format!("blis {}: {}", env!("CARGO_PKG_VERSION"), command()),
    ];
    let lines = lines.into_iter().chain(caveats.map(|caveat| caveat.text));
    lines.map(|line| format!("# {}\n", line.replace('\n', " "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_what_changes_figures() {
        let words = [
            "/usr/bin/blis",
            "size",
            "--threads",
            "4",
            "--slo",
            "ttft_p95=1 s",
            "--output=json",
            "--no-progress",
            "--rate",
            "3",
        ];
        let words = words.map(OsString::from);
        assert_eq!(reproducing(&words), "blis size --slo 'ttft_p95=1 s' --rate 3");
        assert_eq!([quoted("it's"), quoted("")], [r"'it'\''s'", "''"]);
    }
}
