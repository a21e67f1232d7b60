//! Texts of plugins, made harmless before they are shown.

/// At most `bytes` of `text`, on one line, without characters that could move the cursor of a terminal, reorder what it
/// shows, or begin another line of a log.
pub(crate) fn plain(text: &str, bytes: usize) -> String {
    let cut = &text[..text.floor_char_boundary(bytes)];
    let mut plain: String = cut.chars().map(|c| if is_plain(c) { c } else { ' ' }).collect();
    plain.truncate(plain.trim_end().len());
    if cut.len() < text.len() {
        plain.push('…');
    }
    plain
}

/// Whether `c` is neither a control character, a line end of Unicode nor a character that changes the direction of text
/// (<https://www.unicode.org/reports/tr9/>, "explicit directional" characters) or is invisible.
fn is_plain(c: char) -> bool {
    !(c.is_control() || is_invisible(c) || matches!(c, '\u{2028}' | '\u{2029}'))
}

/// Whether `c` is not shown, or changes the order of what is shown.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{feff}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_leaves_its_line() {
        assert_eq!(plain("a\x1b[31mb\r\n[ERROR] c\u{202e}d\u{2028}e", 100), "a [31mb  [ERROR] c d e");
        assert_eq!(plain("é\u{9b}2J ", 100), "é 2J");
        assert_eq!(plain("a\u{200b}b\u{feff}c\u{ad}d\u{2066}e\u{200f}f", 100), "a b c d e f");
        assert_eq!([plain("ééé", 3), plain("abc", 3)], ["é…", "abc"]);
    }
}
