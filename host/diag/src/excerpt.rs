//! A line of a file with carets under the mistake, for messages.

use std::fmt::{self, Display};

use crate::Location;

/// Number of characters of a line that are shown; of a longer line, those around the mistake.
const SHOWN: usize = 100;

/// A part of a line of `text`, which has `len` characters from `column` on. Lines and columns count from 1, columns in
/// characters. Prints nothing if there is no such line.
#[derive(Clone, Copy, Debug)]
pub struct Excerpt<'a> {
    pub text: &'a str,
    pub line: u64,
    pub column: u64,
    pub len: u64,
}

impl<'a> Excerpt<'a> {
    /// The text at `location` of a file with the content `text`; `None` if line or column are not known.
    pub fn at(text: &'a str, location: &Location) -> Option<Self> {
        Some(Self { text, line: location.line?, column: location.column?, len: location.len })
    }
}

/// Begins with a line feed, and ends without one.
impl Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = |number: u64| usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
        let Some(line) = self.text.split('\n').nth(index(self.line)) else { return Ok(()) };
        let characters: Vec<char> = line.trim_end_matches('\r').chars().collect();
        let column = index(self.column).min(characters.len());
        let left = if characters.len() > SHOWN { column.saturating_sub(SHOWN / 2) } else { 0 };
        let right = characters.len().min(left + SHOWN);
        let carets = usize::try_from(self.len).unwrap_or(usize::MAX).min(right - column.min(right)).max(1);
        let (before, after) = (if left > 0 { "…" } else { "" }, if right < characters.len() { "…" } else { "" });
        let shown: String = characters[left..right].iter().map(|&c| printable(c)).collect();
        let number = self.line.to_string();
        let (width, indent) = (number.len(), before.chars().count() + column - left);
        write!(f, "\n  {number} | {before}{shown}{after}")?;
        write!(f, "\n  {:width$} | {:indent$}{}", "", "", "^".repeat(carets))
    }
}

/// A tab would shift the caret, and control characters of a file must not reach a terminal.
fn printable(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excerpt(text: &str, line: u64, column: u64, len: u64) -> String {
        Excerpt { text, line, column, len }.to_string()
    }

    #[test]
    fn carets_stand_under_the_culprit() {
        let text = "routing:\n\tpolicy: wieghted # é\r\n";
        insta::assert_snapshot!(excerpt(text, 2, 10, 8), @r"

          2 |  policy: wieghted # é
            |          ^^^^^^^^
        ");
        assert!(excerpt(text, 2, 21, 3).ends_with("|                     ^"), "no caret beyond the end");
        assert_eq!(excerpt("a\u{7}b", 1, 2, 0), "\n  1 | a\u{fffd}b\n    |  ^");
        assert_eq!(excerpt(text, 9, 1, 1), "");
    }

    #[test]
    fn long_lines_are_cut_around_it() {
        let text = format!("{}culprit{}", "x".repeat(500), "y".repeat(500));
        let shown = excerpt(&text, 1, 501, 7);
        let [_, line, carets] = shown.lines().collect::<Vec<_>>()[..] else { panic!("{shown}") };
        let at = carets.chars().position(|c| c == '^').expect("a caret");
        assert_eq!(line.chars().skip(at).take(7).collect::<String>(), "culprit");
        assert!(line.chars().count() < 115 && carets.ends_with(" ^^^^^^^"), "{shown}");
    }

    #[test]
    fn any_location_can_be_shown() {
        for (line, column, len) in [(0, 0, 0), (1, u64::MAX, u64::MAX), (u64::MAX, 1, 1), (1, 1, u64::MAX)] {
            for text in ["", "a", "é\n"] {
                let _ = excerpt(text, line, column, len);
            }
        }
    }
}
