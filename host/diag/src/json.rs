//! JSON Lines: one object per line.

use serde::Deserialize;

use crate::{RowError, quoted};

/// The object on a line. `text` is the line, or a rewritten form of it: columns of errors count in `text`.
pub fn json_object<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, RowError> {
    check_json_object(text)?;
    serde_json::from_slice(text).map_err(|error| json_error(&error))
}

/// Refuses a line that does not begin with an object: serde would read a list as a record, its items in the order of
/// the fields.
pub fn check_json_object(text: &[u8]) -> Result<(), RowError> {
    match text.trim_ascii_start().first() {
        Some(b'{') => Ok(()),
        _ => Err(RowError::new(format!("not a JSON object: {}", quoted(text)))),
    }
}

/// The message of serde_json with its column, but without its line.
pub fn json_error(error: &serde_json::Error) -> RowError {
    RowError::new(json_words(error)).column_after(error.column().saturating_sub(1))
}

/// The message of serde_json without line and column.
pub fn json_words(error: &serde_json::Error) -> String {
    let mut words = error.to_string();
    if let Some(end) = words.rfind(" at line ") {
        words.truncate(end);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_column_but_no_line() {
        #[derive(Debug, Deserialize)]
        struct NumberRow {
            #[expect(dead_code, reason = "only read")]
            n: u32,
        }
        let message =
            |text: &str| json_object::<NumberRow>(text.as_bytes()).expect_err(text).at(&"x".into(), 3).to_string();
        assert_eq!(message("[1]"), "x:3: not a JSON object: `[1]`");
        assert_eq!(message(r#"{"n": 1, "n": 2}"#), "x:3:12: duplicate field `n`");
    }
}
