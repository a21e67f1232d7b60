//! Where the files of a suite may lie: a suite of a stranger reads nothing else of this machine.

use std::path::{Component, Path, PathBuf};

/// The folder of a suite, and the folders outside it that the command line names (`--allow-path`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    pub folder: PathBuf,
    pub allowed: Vec<PathBuf>,
}

impl Surroundings {
    /// The file that a suite calls `path`, which may not exist.
    ///
    /// # Errors
    /// If it lies elsewhere, links followed.
    pub fn find(&self, path: &Path) -> Result<PathBuf, String> {
        let joined = self.folder.join(path);
        let climbs = path.is_absolute() || path.components().any(|part| part == Component::ParentDir);
        let real = joined.canonicalize().ok();
        let is_in = |folder: &Path| {
            let folder = folder.canonicalize().ok();
            real.as_ref().zip(folder).is_some_and(|(real, folder)| real.starts_with(folder))
        };
        let folder = if self.folder.as_os_str().is_empty() { Path::new(".") } else { &self.folder };
        // A file that does not exist has no links to follow.
        if self.allowed.iter().any(|folder| is_in(folder)) || !climbs && (real.is_none() || is_in(folder)) {
            return Ok(joined);
        }
        Err("must lie in the folder of the suite; others are allowed by the flag `--allow-path DIR` of the command line only".to_owned())
    }
}
