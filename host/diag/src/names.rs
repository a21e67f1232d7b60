//! Text of the user in messages: quoted safely, and the known name it may have meant.

/// The start of what the user wrote, quoted and safe to print.
pub fn quoted(bytes: &[u8]) -> String {
    const SHOWN: usize = 40;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * SHOWN)]);
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

/// "did you mean" for an unknown name, or the list of names if none is near.
pub fn name_hint(unknown: &str, known: &[&str]) -> String {
    match nearest(unknown, known) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("known are {}", known.join(", ")),
    }
}

/// The known name nearest to `unknown`, if it is near enough to be a slip of the pen: sure enough to be told alone.
pub fn nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let far = (unknown.chars().count() / 3).max(2);
    let distance = |name: &str| strsim::osa_distance(&unknown.to_lowercase(), &name.to_lowercase());
    known.iter().map(|&name| (distance(name), name)).filter(|&(d, _)| d <= far).min().map(|(_, name)| name)
}

/// The known name that looks most like `unknown`, as `deepep_low_latency` does for `deepep`, if one looks at all like it:
/// a guess, for where more is told than it.
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
    fn quotes_are_short_and_printable() {
        assert_eq!(quoted(b"a\x07\xff"), "`a\\u{7}\u{fffd}`");
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
