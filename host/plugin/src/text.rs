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

/// Whether `c` is neither a control character, a line end of Unicode nor a mark that changes the direction of text
/// (<https://www.unicode.org/reports/tr9/>, "explicit directional" characters).
fn is_plain(c: char) -> bool {
    let directional =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}');
    !(c.is_control() || directional || matches!(c, '\u{2028}' | '\u{2029}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_leaves_its_line() {
        assert_eq!(plain("a\x1b[31mb\r\n[ERROR] c\u{202e}d\u{2028}e", 100), "a [31mb  [ERROR] c d e");
        assert_eq!(plain("é\u{9b}2J ", 100), "é 2J");
        assert_eq!([plain("ééé", 3), plain("abc", 3)], ["é…", "abc"]);
    }
}
