//! YAML for people: one value per line, followed by its source in a comment.

use std::fmt::{self, Display, Write as _};

use textwrap::core::display_width;

use crate::wrap::{TEXT_WIDTH, broken};

/// A YAML document that is being written.
#[derive(Debug, Default)]
pub struct YamlPage {
    text: String,
    indent: usize,
    without_sources: bool,
}

impl YamlPage {
    /// A page of values alone, for programs.
    #[must_use]
    pub fn without_sources() -> Self {
        Self { without_sources: true, ..Self::default() }
    }

    /// A comment on a line of its own.
    pub fn comment(&mut self, comment: impl Display) {
        let indent = " ".repeat(self.indent);
        let comment = format!("{indent}# {}", one_line(&comment.to_string()));
        self.text.push_str(&broken(&comment, &format!("{indent}#   ")));
        self.text.push('\n');
    }

    /// `key: value  # source`. `key` and `value` must be valid YAML: see [`text`].
    pub fn entry(&mut self, key: &str, value: impl Display, source: &impl Display) {
        self.commented(&format!("{key}: {value}"), source);
    }

    /// A list item: `- value  # source`.
    pub fn item(&mut self, value: impl Display, source: &impl Display) {
        self.commented(&format!("- {value}"), source);
    }

    /// The source stands behind the value or, where the line would be too long, on lines of its own below it.
    fn commented(&mut self, what: &str, source: &impl Display) {
        if self.without_sources {
            return self.line(format_args!("{what}"));
        }
        let source = one_line(&source.to_string());
        if self.indent + display_width(what) + "  # ".len() + display_width(&source) <= TEXT_WIDTH {
            return self.line(format_args!("{what}  # {source}"));
        }
        self.line(format_args!("{what}"));
        self.indent += 2;
        self.comment(source);
        self.indent -= 2;
    }

    /// A key with an indented section below it.
    pub fn section(&mut self, key: &str, content: impl FnOnce(&mut Self)) {
        self.line(format_args!("{key}:"));
        self.indent += 2;
        content(self);
        self.indent -= 2;
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        let indent = self.indent;
        writeln!(self.text, "{:indent$}{line}", "").expect("a String takes everything");
    }
}

impl Display for YamlPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `words` as a YAML scalar, quoted if YAML would read a plain scalar as something else.
#[must_use]
pub fn text(words: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let starts_well = words.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let means_something = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"]
        .iter()
        .any(|word| word.eq_ignore_ascii_case(words));
    if starts_well && words.chars().all(plain) && !means_something {
        return words.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in words.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            // The shortest escape: a YAML key has at most 1024 characters, with its quotes and escapes.
            c if is_special(c) && u32::from(c) < 0x100 => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if is_special(c) => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// A line end in the text would end the comment.
fn one_line(comment: &str) -> String {
    comment.replace(is_special, "\u{fffd}")
}

/// Line ends and characters that YAML forbids unescaped.
fn is_special(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_words_need_no_quotes() {
        assert_eq!(["a-b.c/d_1", "/tmp/x"].map(text), ["a-b.c/d_1", "/tmp/x"]);
        let quoted = ["", "1", "No", "a b", "a:", "\"", "\\", "\n", "é", ".nan", "-"].map(text);
        let expected = [
            "\"\"",
            "\"1\"",
            "\"No\"",
            "\"a b\"",
            "\"a:\"",
            "\"\\\"\"",
            "\"\\\\\"",
            "\"\\x0a\"",
            "\"é\"",
            "\".nan\"",
            "\"-\"",
        ];
        assert_eq!(quoted, expected);
    }

    /// Names of classes and tenants at their maximum length, of the character with the longest escape.
    #[test]
    fn the_longest_names_can_be_keys() {
        let name = "\u{2028}".repeat(128);
        let mut page = YamlPage::default();
        page.entry(&text(&name), 1, &"here");
        let read: std::collections::BTreeMap<String, u32> = serde_yaml::from_str(&page.to_string()).expect("a key");
        assert_eq!(read.into_iter().collect::<Vec<_>>(), [(name, 1)]);
    }

    proptest! {
        #[test]
        fn any_words_come_back(words in any::<String>(), source in any::<String>()) {
            let mut page = YamlPage::default();
            page.comment(&source);
            page.entry("key", text(&words), &source);
            let read: std::collections::BTreeMap<String, String> =
                serde_yaml::from_str(&page.to_string()).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(read.into_iter().collect::<Vec<_>>(), [("key".to_owned(), words)]);
        }
    }
}
