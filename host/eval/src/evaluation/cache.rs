//! The result cache: evaluation results by the inputs that they follow from. Each result is a file, which is written
//! completely or not at all, so that many processes can share a folder and none of them can damage it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use blis_diag::read_bytes;
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

    /// `None` if the result is not there or cannot be read; then it is computed again.
    pub fn get(&self, key: &str) -> Option<EvaluationResult> {
        serde_json::from_slice(&read_bytes(&self.path(key), BYTES_MAX).ok()?).ok()
    }

    /// Stores a result. If the folder cannot be written, the only loss is the time for computing it again.
    pub fn put(&self, key: &str, document: &EvaluationResult) {
        static TURN: AtomicU64 = AtomicU64::new(0);
        let path = self.path(key);
        let turn = TURN.fetch_add(1, Ordering::Relaxed);
        let draft = path.with_extension(format!("tmp-{}-{turn}", std::process::id()));
        let kept = EvaluationResult { id: None, ..document.clone() };
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
            fs::write(&draft, serde_json::to_vec(&kept).unwrap_or_default())?;
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
