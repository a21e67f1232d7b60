//! Results as text or as a document.

use blis_eval::error::RunError;

use super::super::output::{OutputForm, print_document, print_text, wants_text_form};

/// Prints `text` or `document`, by the form of the output.
pub(super) fn print_either(
    form: OutputForm,
    text: impl FnOnce() -> String,
    document: &serde_json::Value,
) -> Result<(), RunError> {
    if wants_text_form(form) { print_text(text()) } else { print_document(document) }
}

/// Rows under headings, columns aligned, two blanks between them.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    use unicode_width::UnicodeWidthStr as _;
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width());
        cells.chain(head.get(column).map(|name| name.width())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells.zip(&widths).map(|(cell, &width)| format!("{cell}{}", " ".repeat(width - cell.width())));
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    let mut text = line(&mut head.iter().copied());
    rows.iter().for_each(|row| text += &line(&mut row.iter().map(String::as_str)));
    text
}
