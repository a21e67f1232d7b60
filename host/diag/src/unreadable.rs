//! Messages for files that cannot be read: the same text for every kind of file.

use std::io::{self, ErrorKind};

use crate::Diagnostic;
use crate::input::{InputFault, fault_of};

/// The diagnostic of an input `error` of `file`.
pub fn unreadable(file: &str, error: &io::Error) -> Diagnostic {
    match fault_of(error) {
        Some(InputFault::Kind("a folder")) | None => {}
        Some(fault) => {
            let text = fault.to_string();
            let hint = match fault {
                InputFault::Kind(_) => "name a regular file; a shell makes one of a command: `<(command)`",
                InputFault::TooLong { .. } => "is this the right file?",
            };
            return Diagnostic::new(format!("`{file}` {}", text.strip_prefix("it ").unwrap_or(&text))).hint(hint);
        }
    }
    let (what, hint) = match error.kind() {
        ErrorKind::NotFound => (format!("`{file}` does not exist"), "check the path and the current folder"),
        ErrorKind::IsADirectory => (format!("`{file}` is a folder"), "name a file in it"),
        ErrorKind::PermissionDenied => (format!("`{file}` may not be read"), "check its permissions"),
        ErrorKind::InvalidData if error.to_string().contains("UTF-8") => {
            (format!("`{file}` is not text (UTF-8)"), "is this the right file?")
        }
        // flate2 has these three kinds for a gzip stream that is damaged or cut off.
        ErrorKind::UnexpectedEof | ErrorKind::InvalidInput | ErrorKind::InvalidData => (
            format!("cannot decompress `{file}`: {error}"),
            "it is damaged or cut off; fetch it again (`gzip -t` checks it)",
        ),
        _ => (format!("cannot read `{file}`: {error}"), "check that it is a readable file"),
    };
    Diagnostic::new(what).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_remedy() {
        let message = |kind: ErrorKind| unreadable("a.csv", &kind.into()).to_string();
        assert_eq!(message(ErrorKind::NotFound), "`a.csv` does not exist\nhint: check the path and the current folder");
        assert_eq!(message(ErrorKind::IsADirectory), "`a.csv` is a folder\nhint: name a file in it");
        assert!(message(ErrorKind::PermissionDenied).starts_with("`a.csv` may not be read\nhint: "));
        assert!(message(ErrorKind::UnexpectedEof).starts_with("cannot decompress `a.csv`: "));
        assert!(message(ErrorKind::Other).starts_with("cannot read `a.csv`: "));
        let binary = String::from_utf8(vec![0xff]).map_err(|_| io::Error::new(ErrorKind::InvalidData, "not UTF-8"));
        let message = unreadable("a.csv", &binary.expect_err("binary"));
        assert_eq!(
            (message.what.as_str(), message.hint.as_deref()),
            ("`a.csv` is not text (UTF-8)", Some("is this the right file?"))
        );
    }
}
