//! Lines of cells, with their columns aligned.

use unicode_width::UnicodeWidthStr as _;

/// The lines with their cells under each other: numbers at the right of their column, texts (`is_text`, by column) at the
/// left; two blanks between columns, one if that makes the lines fit `most` columns of a terminal.
#[must_use]
pub fn in_columns(lines: &[impl AsRef<[String]>], most: usize, is_text: impl Fn(usize) -> bool) -> String {
    let columns = lines.first().map_or(0, |line| line.as_ref().len());
    let cells = |column: usize| lines.iter().filter_map(move |line| line.as_ref().get(column));
    let width = |column: usize| cells(column).map(|cell| cell.width()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let gap = if widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1) <= most { "  " } else { " " };
    let mut text = String::new();
    for line in lines {
        let cells = line.as_ref().iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            let pad = " ".repeat(width - cell.width());
            if is_text(column) { format!("{cell}{pad}") } else { format!("{pad}{cell}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join(gap).trim_end());
        text.push('\n');
    }
    text
}
