//! The result cache: evaluation results by the inputs that they follow from. Each result is a file, which is written
//! completely or not at all, so that many processes can share a folder and none of them can damage it.
//!
//! A file is a seal, a line, and the result as JSON. The seal is an HMAC-SHA-256 over the key and the result, with a secret of the
//! user that is made once and kept in the user's own cache folder (`~/.cache/blis/seal`, which no other user can read). What was edited, cut,
//! damaged or put under another key has no valid seal: it is reported, and computed again. A program that runs with the user's
//! rights can read the secret and seal anything: against it this protects nothing. Where there is no folder for the secret, the seal is made
//! with an empty one, and protects against damage only.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use blis_diag::read_bytes;
use blis_plugin::user_cache;
use sha2::{Digest as _, Sha256};

use super::candidate::CandidatePolicy;
use super::context::EvaluationSuite;
use super::options::{EvaluationOptions, host};
use crate::result::EvaluationResult;
use crate::suite::hex;

/// Longer files are no evaluation results of ours.
const BYTES_MAX: u64 = 64 << 20;

/// A folder of evaluation results.
#[derive(Clone, Debug)]
pub struct ResultCache(PathBuf);

impl ResultCache {
    pub fn new(dir: &Path) -> Self {
        Self(dir.to_owned())
    }

    /// `None` if the result is not there, or is not as it was written; then it is computed again.
    pub fn get(&self, key: &str) -> Option<EvaluationResult> {
        let path = self.path(key);
        // Results are some kilobytes. What is larger was not written here.
        let content = match read_bytes(&path, BYTES_MAX) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            content => content.unwrap_or_default(),
        };
        let found = content.iter().position(|&byte| byte == b'\n').and_then(|end| {
            let (found, result) = (&content[..end], &content[end + 1..]);
            if seal(key, result).as_bytes() == found { serde_json::from_slice(result).ok() } else { None }
        });
        if found.is_none() {
            tracing::warn!("{} is not as it was written, and is computed again", path.display());
        }
        found
    }

    /// Stores a result. If the folder cannot be written, the only loss is the time for computing it again.
    pub fn put(&self, key: &str, document: &EvaluationResult) {
        static TURN: AtomicU64 = AtomicU64::new(0);
        let path = self.path(key);
        let turn = TURN.fetch_add(1, Ordering::Relaxed);
        let draft = path.with_extension(format!("tmp-{}-{turn}", std::process::id()));
        let kept = EvaluationResult { id: None, ..document.clone() };
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
            let result = serde_json::to_vec(&kept)?;
            fs::write(&draft, [seal(key, &result).as_bytes(), b"\n", &result].concat())?;
            fs::rename(&draft, &path)
        });
        if let Err(error) = written {
            tracing::warn!("the cache `{}` cannot be written: {error}", self.0.display());
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.0.join(&key[..2]).join(format!("{key}.json"))
    }
}

/// Bytes of the secret.
const SECRET_BYTES: usize = 32;
/// Bytes of a block of SHA-256.
const BLOCK_BYTES: usize = 64;

/// The seal of `result` under `key`: HMAC-SHA-256 (RFC 2104), hexadecimal.
fn seal(key: &str, result: &[u8]) -> String {
    static SECRET: OnceLock<Vec<u8>> = OnceLock::new();
    let secret = SECRET.get_or_init(|| user_cache::secret("seal", SECRET_BYTES).unwrap_or_default());
    hmac(secret, &[key.as_bytes(), b"\n", result])
}

/// HMAC-SHA-256 of `parts` under a `secret` of at most one block.
fn hmac(secret: &[u8], parts: &[&[u8]]) -> String {
    let padded = |pad: u8| {
        let mut block = [pad; BLOCK_BYTES];
        block.iter_mut().zip(secret).for_each(|(byte, secret)| *byte ^= secret);
        Sha256::new().chain_update(block)
    };
    let inner = parts.iter().fold(padded(0x36), |digest, part| digest.chain_update(part)).finalize();
    hex(&padded(0x5c).chain_update(inner).finalize())
}

/// Hash of all inputs that an evaluation result follows from.
pub fn key(
    prepared: &EvaluationSuite,
    candidate: &CandidatePolicy,
    incumbent: Option<&CandidatePolicy>,
    options: &EvaluationOptions,
) -> String {
    let EvaluationOptions {
        until,
        epoch,
        train_seeds,
        wall: _,
        feedback_bytes,
        patterns,
        decisions,
        parallel: _,
        only,
        parameters,
        native: _,
    } = options;
    let incumbent = incumbent.map_or("", |incumbent| &incumbent.sha256);
    let technology = candidate.technology.name();
    let text = format!(
        "{}:{technology}:{}:{incumbent}:{until}:{epoch}:{train_seeds:?}:{feedback_bytes}:{patterns}:{decisions}:{only:?}:{parameters:?}:{}",
        candidate.sha256,
        prepared.hash(),
        host()
    );
    hex(&Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::EvaluationStatus;
    use crate::result_figures::Traits;

    /// RFC 4231, test case 2.
    #[test]
    fn the_seal_is_an_hmac() {
        let known = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hmac(b"Jefe", &[b"what do ya want ", b"for nothing?"]), known);
    }

    fn result(score: f64) -> EvaluationResult {
        let mut result = EvaluationResult::invalid(EvaluationStatus::Ok, "no error".to_owned(), Traits::default());
        result.combined_score = score;
        result
    }

    #[test]
    fn what_was_edited_cut_or_swapped_is_no_result() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = ResultCache::new(folder.path());
        let (one, two) = ("aa11", "bb22");
        cache.put(one, &result(1.5));
        cache.put(two, &result(2.5));
        let scores = || [one, two].map(|key| cache.get(key).map(|found| found.combined_score));
        assert_eq!(scores(), [Some(1.5), Some(2.5)]);
        let whole = fs::read(cache.path(one)).expect("written");
        // Each byte by itself, seal and line included; every length; nothing; more.
        for at in 0..whole.len() {
            let mut edited = whole.clone();
            edited[at] ^= 1;
            fs::write(cache.path(one), &edited).expect("written");
            assert!(cache.get(one).is_none(), "byte {at}");
            fs::write(cache.path(one), &whole[..at]).expect("written");
            assert!(cache.get(one).is_none(), "{at} bytes");
        }
        fs::write(cache.path(one), [&whole[..], b" "].concat()).expect("written");
        assert!(cache.get(one).is_none());
        // An intact result of another key.
        fs::copy(cache.path(two), cache.path(one)).expect("copied");
        assert_eq!(scores(), [None, Some(2.5)]);
        // As earlier versions wrote it.
        let end = whole.iter().position(|&byte| byte == b'\n').expect("a line");
        fs::write(cache.path(one), &whole[end + 1..]).expect("written");
        assert_eq!(scores(), [None, Some(2.5)]);
        cache.put(one, &result(1.5));
        assert_eq!(scores(), [Some(1.5), Some(2.5)], "it is written again");
    }
}
