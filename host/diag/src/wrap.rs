//! Text within the width of a terminal.

use textwrap::core::display_width;
use textwrap::{Options, WordSplitter};

/// Columns of a line of text output.
pub const TEXT_WIDTH: usize = 80;

/// `text` with its lines of more than [`TEXT_WIDTH`] columns broken at blanks.
///
/// The rest of a line begins under its last column: two or more blanks separate columns. Words longer than a line
/// (paths, names) stay whole. Escape sequences of colours take no column.
#[must_use]
pub fn wrapped(text: &str) -> String {
    let mut wrapped = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        if display_width(line) <= TEXT_WIDTH || !line.trim().contains(' ') {
            wrapped.push_str(line);
        } else {
            wrapped.push_str(&broken(line, &" ".repeat(last_column(line))));
        }
        wrapped.push_str(end);
    }
    wrapped
}

/// `text` for standard error, wrapped likewise, except for the lines of an [`Excerpt`](crate::Excerpt): carets stand
/// under the mistake only on whole lines.
#[must_use]
pub fn wrapped_message(text: &str) -> String {
    let line = |line: &str| if is_excerpt(line) { line.to_owned() } else { wrapped(line) };
    text.split_inclusive('\n').map(line).collect()
}

/// Whether a line is `  NUMBER | TEXT` or `    | ^^^^`.
fn is_excerpt(line: &str) -> bool {
    let without_number = line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("  ") && (without_number.starts_with("| ") || without_number.starts_with(" | "))
}

/// `line` broken at blanks, all but the first part behind `indent`.
pub(crate) fn broken(line: &str, indent: &str) -> String {
    let options = Options::new(TEXT_WIDTH)
        .subsequent_indent(indent)
        .break_words(false)
        .word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(line, options)
}

/// Where the last column of `line` begins that leaves room for text; without columns, two blanks behind its beginning.
fn last_column(line: &str) -> usize {
    const ROOM: usize = 32;
    let text = line.trim_start();
    let begin = line.len() - text.len();
    let behind_gap = |(at, _)| {
        let column = text[at..].trim_start_matches(' ');
        display_width(&line[..line.len() - column.len()])
    };
    let columns = text.match_indices("  ").map(behind_gap);
    columns.filter(|&column| column + ROOM <= TEXT_WIDTH).last().unwrap_or(begin + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen";

    #[test]
    fn the_rest_stands_under_the_last_column() {
        insta::assert_snapshot!(wrapped(&format!("\x1b[1mRequests\x1b[0m    {WORDS}\n  12  3  {WORDS} sixteen\n{WORDS}\n")), @r"
        [1mRequests[0m    one two three four five six seven eight nine ten eleven twelve
                    thirteen fourteen fifteen
          12  3  one two three four five six seven eight nine ten eleven twelve thirteen
                 fourteen fifteen sixteen
        one two three four five six seven eight nine ten eleven twelve thirteen fourteen
          fifteen
        ");
    }

    #[test]
    fn excerpts_stay_whole() {
        let excerpt = format!("  12 | {WORDS} and more\n     | {}{}\n", " ".repeat(90), "^".repeat(4));
        insta::assert_snapshot!(wrapped_message(&format!("error: a.rhai:12:91: {WORDS}\n{excerpt}hint: {WORDS}\n")), @r"
        error: a.rhai:12:91: one two three four five six seven eight nine ten eleven
          twelve thirteen fourteen fifteen
          12 | one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen and more
             |                                                                                           ^^^^
        hint: one two three four five six seven eight nine ten eleven twelve thirteen
          fourteen fifteen
        ");
    }

    #[test]
    fn short_lines_long_words_and_ends_stay() {
        let word = "/a-b".repeat(40);
        for text in ["", "\n", "a", "a  b\n\n", &word, &format!("{word}\nb"), &format!("  {word}")] {
            assert_eq!(wrapped(text), text);
        }
        assert_eq!(wrapped(&format!("see {word}")), format!("see\n  {word}"));
    }

    #[test]
    fn colours_take_no_columns() {
        let line = format!("\x1b[1;31m{}\x1b[0m", "x ".repeat(39));
        assert_eq!(wrapped(&line), line);
    }
}
