//! Results as text or as a document.

use blis_eval::error::RunError;
use blis_report::in_columns;
use serde::Serialize;

use super::super::output::{OutputForm, print_document, print_text, wants_text_form};

/// Prints `text` or `document`, by the form of the output.
pub(super) fn print_either(
    form: OutputForm,
    text: impl FnOnce() -> String,
    document: &impl Serialize,
) -> Result<(), RunError> {
    if wants_text_form(form) { print_text(text()) } else { print_document(document) }
}

/// Rows under headings, columns aligned, two blanks between them.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head = head.iter().map(|&name| name.to_owned()).collect();
    in_columns(&[&[head], rows].concat(), usize::MAX, |_| true)
}
