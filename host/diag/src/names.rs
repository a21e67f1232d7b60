//! Names in messages: the user's text, quoted safely, and the known name that it probably means.

use std::borrow::Cow;

/// The first 40 characters of the user's text, in backquotes, with control characters escaped.
pub fn quoted(bytes: &[u8]) -> String {
    const SHOWN: usize = 40;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * SHOWN)]);
    let mut shown = String::new();
    for c in text.chars().take(SHOWN) {
        match c {
            '"' | '\'' | '\\' => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

/// The name of a file as messages show it: characters that move the cursor of a terminal, begin a line or change the direction
/// of text are escaped, as in `\u{1b}`.
pub fn printable(name: &str) -> Cow<'_, str> {
    let harms = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
    };
    if !name.contains(harms) {
        return Cow::Borrowed(name);
    }
    let mut shown = String::new();
    for c in name.chars() {
        if harms(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// A text of several lines as messages show it: as [`printable`], but its line ends and tabs stay. Messages hold names and texts of
/// candidates, files and peers, and a terminal obeys what is in them.
pub fn harmless(text: &str) -> Cow<'_, str> {
    if text.split(['\n', '\t']).all(|part| matches!(printable(part), Cow::Borrowed(_))) {
        return Cow::Borrowed(text);
    }
    let shown = text.split_inclusive(['\n', '\t']).map(|part| match part.strip_suffix(['\n', '\t']) {
        Some(inner) => format!("{}{}", printable(inner), &part[inner.len()..]),
        None => printable(part).into_owned(),
    });
    Cow::Owned(shown.collect())
}

/// A hint for an unknown name: "did you mean" the nearest known one, or the list of all if none is near.
pub fn name_hint(unknown: &str, known: &[&str]) -> String {
    match nearest(unknown, known) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("known are {}", known.join(", ")),
    }
}

/// The known name with the smallest edit distance to `unknown`, if that is small enough for a typing error: safe to be
/// suggested alone.
pub fn nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let far = (unknown.chars().count() / 3).max(2);
    let distance = |name: &str| strsim::osa_distance(&unknown.to_lowercase(), &name.to_lowercase());
    known.iter().map(|&name| (distance(name), name)).filter(|&(d, _)| d <= far).min().map(|(_, name)| name)
}

/// The known name that is most similar to `unknown` (as `deepep_low_latency` is to `deepep`), if any is similar enough.
/// This is a guess, for messages that list the other names too.
pub fn most_alike<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    const ALIKE: f64 = 0.75;
    let likeness = |name: &str| strsim::jaro_winkler(&unknown.to_lowercase(), &name.to_lowercase());
    let alike = known.iter().map(|&name| (likeness(name), name)).filter(|&(likeness, _)| likeness > ALIKE);
    alike.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_file_stays_on_its_line() {
        assert_eq!(printable("a\u{1b}[2Jb\nc\u{202e}é.rhai"), "a\\u{1b}[2Jb\\nc\\u{202e}é.rhai");
        assert_eq!(printable("a b.rhai"), "a b.rhai");
    }

    #[test]
    fn quotes_are_short_and_printable() {
        assert_eq!(quoted(b"a\x07\xff"), "`a\\u{7}\u{fffd}`");
        assert_eq!(quoted(br#"{"a": 1}"#), r#"`{"a": 1}`"#);
        assert_eq!(quoted(&[b'a'; 100]).chars().count(), 43);
    }

    #[test]
    fn only_near_names_are_suggested() {
        let known = ["chatbot", "multidoc"];
        assert_eq!(nearest("chatbt", &known), Some("chatbot"));
        assert_eq!(nearest("Multidoc", &known), Some("multidoc"));
        assert_eq!(nearest("zzz", &known), None);
    }

    #[test]
    fn what_looks_alike_is_a_guess() {
        let known = ["naive", "deepep_high_throughput", "deepep_low_latency"];
        assert_eq!((nearest("deepep", &known), most_alike("deepep", &known)), (None, Some("deepep_low_latency")));
        assert_eq!(most_alike("navie", &known), Some("naive"));
        assert_eq!(most_alike("zzz", &known), None);
    }
}
