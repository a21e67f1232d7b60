//! Who may use a server: programs that know its token.
//!
//! A port of this machine can be reached by every user of it. What starts work, or shows what others have sent, therefore needs a token,
//! which only those can read who can read the output of the server or its file.

use std::fmt;
use std::fs::Metadata;
use std::path::Path;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use blis_diag::{Diagnostic, open_file, read_text, unreadable};
use serde_json::json;

/// Bytes of a file with a token.
const FILE_BYTES: u64 = 4096;
/// Characters of a token, at least: 64 bits as hexadecimal digits.
const LEAST_CHARACTERS: usize = 16;
/// Random bytes of a generated token.
const RANDOM_BYTES: usize = 16;

/// A secret that requests name as `Authorization: Bearer …`; those of a page in a browser as `?token=…`. No message shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessToken(String);

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken(…)")
    }
}

impl AccessToken {
    /// A token that cannot be guessed.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; RANDOM_BYTES];
        let mut rest = &mut bytes[..];
        while !rest.is_empty() {
            let count = rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty())?;
            rest = &mut rest[count..];
        }
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The token in the file at `path`, its only line.
    ///
    /// # Errors
    /// If it cannot be read, other users can read it, or it holds no token.
    pub fn read(path: &Path) -> Result<Self, Diagnostic> {
        let file = path.display().to_string();
        let known = open_file(path).and_then(|opened| opened.metadata()).map_err(|error| unreadable(&file, &error))?;
        if is_readable_by_others(&known) {
            return Err(Diagnostic::new(format!("other users can read the token in `{file}`"))
                .hint(format!("`chmod 600 {file}`")));
        }
        let text = read_text(path, FILE_BYTES).map_err(|error| unreadable(&file, &error))?;
        let token = text.trim();
        let is_one_word = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte));
        if token.len() < LEAST_CHARACTERS || !is_one_word {
            return Err(Diagnostic::new(format!(
                "`{file}` holds no token: letters, digits and `-._~+/=`, at least {LEAST_CHARACTERS}"
            ))
            .hint("`openssl rand -hex 16` writes one"));
        }
        Ok(Self(token.to_owned()))
    }

    /// The secret itself, for the user who has started the server.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Whether `given` is this token. The time tells nothing about it but the length.
    fn is(&self, given: &str) -> bool {
        given.len() == self.0.len()
            && given.bytes().zip(self.0.bytes()).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
    }
}

#[cfg(unix)]
fn is_readable_by_others(known: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    known.mode() & 0o077 != 0
}

#[cfg(not(unix))]
fn is_readable_by_others(_known: &Metadata) -> bool {
    false
}

/// Refuses requests without the token, if the server has one, before their bodies are read.
pub async fn with_token(State(token): State<Option<AccessToken>>, request: Request, next: Next) -> Response {
    let Some(token) = token else { return next.run(request).await };
    let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer =
        header.and_then(|value| value.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let in_query = request.uri().query().into_iter().flat_map(|query| query.split('&'));
    let in_query = in_query.filter_map(|pair| pair.strip_prefix("token=")).next();
    if bearer.map(|(_, given)| given.trim()).or(in_query).is_some_and(|given| token.is(given)) {
        return next.run(request).await;
    }
    let message = "this needs the token that the server has printed, or that of its `--token-file`: `Authorization: Bearer TOKEN`";
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::WWW_AUTHENTICATE, "Bearer"),
        // The body is not read.
        (header::CONNECTION, "close"),
    ];
    (StatusCode::UNAUTHORIZED, headers, json!({"error": message}).to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_are_not_shown() {
        let (one, other) = (AccessToken::random().unwrap(), AccessToken::random().unwrap());
        assert!(one != other && one.secret().len() == 32 && format!("{one:?}") == "AccessToken(…)");
        assert!(one.is(one.secret()) && !one.is(other.secret()) && !one.is("") && !one.is(&one.secret()[..31]));
    }

    #[cfg(unix)]
    #[test]
    fn files_of_tokens_are_private_and_hold_one() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::temp_dir().join(format!("blis-token-{}", std::process::id()));
        let read = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            AccessToken::read(&path).map(|token| token.0).map_err(|error| error.what)
        };
        assert_eq!(read("0123456789abcdef\n", 0o600), Ok("0123456789abcdef".to_owned()));
        assert!(read("0123456789abcdef\n", 0o644).unwrap_err().contains("other users"));
        for wrong in ["", "short", "two words of sixteen", "0123456789abcde\u{e9}"] {
            assert!(read(wrong, 0o600).unwrap_err().contains("holds no token"), "{wrong}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
