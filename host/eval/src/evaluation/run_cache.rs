//! Runs that all candidates of a suite share, kept on the disk: those of the reference, the baseline and the reference policies.
//! They are most of what an evaluation simulates, and a search tool that starts a process for each candidate would simulate them
//! again each time.
//!
//! A file per run, named by a hash of all that it follows from: this build of the program, the suite with all files that it names, the
//! policy, scenario and seed. A file is written completely or not at all. The folder belongs to the user; one that others may write to
//! is not used, because they could change scores.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use blis_diag::read_bytes;
use blis_plugin::user_cache;
use sha2::{Digest as _, Sha256};

use super::options::host;
use crate::cascade::{RunKey, RunSummary};
use crate::suite::hex;

/// Longer files are no runs of ours.
const RUN_BYTES_MAX: u64 = 16 << 20;

/// Number of runs that are kept, 3 kilobytes each; epochs and suites of some weeks.
const MOST_RUNS: usize = 20_000;
/// Bytes that they may have together.
const MOST_BYTES: u64 = 128 << 20;

/// The runs of one suite in a folder.
#[derive(Clone, Debug)]
pub struct RunCache {
    folder: PathBuf,
    /// Hash of the suite and the files that it names.
    suite: String,
}

impl RunCache {
    /// The runs of the suite with the hash `suite` in `folder`, which need not exist.
    #[must_use]
    pub fn new(folder: &Path, suite: &str) -> Self {
        Self { folder: folder.to_owned(), suite: suite.to_owned() }
    }

    /// `None` if the run is not there or cannot be read; then it is simulated.
    pub(super) fn get(&self, policy: &str, at: RunKey) -> Option<RunSummary> {
        let file = self.file(policy, at);
        (file.is_file() && user_cache::is_private(&self.folder))
            .then(|| read_bytes(&file, RUN_BYTES_MAX).ok())?
            .and_then(|bytes| {
                serde_json::from_slice(&bytes)
                    .map_err(|error| tracing::warn!("{} is damaged: {error}", file.display()))
                    .ok()
            })
    }

    /// Keeps a run. If the folder cannot be written, the only loss is the time for simulating it again.
    pub(super) fn put(&self, policy: &str, at: RunKey, summary: &RunSummary) {
        static TURN: AtomicU64 = AtomicU64::new(0);
        let file = self.file(policy, at);
        let turn = TURN.fetch_add(1, Ordering::Relaxed);
        let draft = file.with_extension(format!("{}-{turn}.draft", std::process::id()));
        let written = user_cache::create(&self.folder).and_then(|()| {
            let bytes = serde_json::to_vec(summary)?;
            // It looks at all files, and an evaluation keeps a few dozen.
            if turn.is_multiple_of(64) {
                user_cache::make_room(&self.folder, 0, MOST_RUNS, MOST_BYTES)?;
            }
            fs::write(&draft, bytes)?;
            fs::rename(&draft, &file)
        });
        if let Err(error) = written {
            tracing::debug!("a run was not kept in {}: {error}", self.folder.display());
            let _ = fs::remove_file(&draft);
        }
    }

    fn file(&self, policy: &str, RunKey { scenario, seed }: RunKey) -> PathBuf {
        let key = format!("{}\n{}\n{scenario}\n{seed}\n{policy}", host(), self.suite);
        self.folder.join(format!("{}.json", hex(&Sha256::digest(key))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: RunKey = RunKey { scenario: 1, seed: 2 };

    fn summary(decisions: u64) -> RunSummary {
        RunSummary { decisions, imbalance: 0.1 + 0.2, ..RunSummary::default() }
    }

    #[test]
    fn a_run_comes_back_to_the_last_digit_under_its_own_key_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let runs = folder.path().join("runs");
        let cache = RunCache::new(&runs, "suite");
        assert_eq!(cache.get("weighted", AT), None);
        cache.put("weighted", AT, &summary(7));
        assert_eq!(cache.get("weighted", AT), Some(summary(7)));
        assert_eq!(cache.get("weighted", RunKey { scenario: 2, seed: 1 }), None);
        assert_eq!(cache.get("least-loaded", AT), None);
        assert_eq!(RunCache::new(&runs, "another").get("weighted", AT), None);
    }

    #[test]
    fn a_damaged_file_is_no_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = RunCache::new(&folder.path().join("runs"), "suite");
        cache.put("weighted", AT, &summary(7));
        let file = cache.file("weighted", AT);
        fs::write(&file, &fs::read(&file).expect("a run")[..20]).expect("written");
        assert_eq!(cache.get("weighted", AT), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_of_all_is_not_used() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let runs = folder.path().join("runs");
        let cache = RunCache::new(&runs, "suite");
        cache.put("weighted", AT, &summary(7));
        fs::set_permissions(&runs, fs::Permissions::from_mode(0o777)).expect("permissions");
        assert_eq!(cache.get("weighted", AT), None);
    }
}
