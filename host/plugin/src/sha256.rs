//! SHA-256, the identity of a file.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The SHA-256 of `content`, in hexadecimal.
#[must_use]
pub fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
