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
    /// As [`Self::check`].
    pub fn find(&self, path: &Path) -> Result<PathBuf, String> {
        let joined = self.folder.join(path);
        self.check(&joined).map(|()| joined)
    }

    /// Whether a suite may read `path`, which is found from the working folder and may not exist.
    ///
    /// # Errors
    /// If it lies elsewhere, links followed; the error is the same whether it exists there or not.
    pub fn check(&self, path: &Path) -> Result<(), String> {
        let folder = if self.folder.as_os_str().is_empty() { Path::new(".") } else { &self.folder };
        let is_in = |real: &Path, folder: &Path| folder.canonicalize().is_ok_and(|folder| real.starts_with(folder));
        let may = match path.canonicalize() {
            Ok(real) => is_in(&real, folder) || self.allowed.iter().any(|allowed| is_in(&real, allowed)),
            // What does not exist has no links to follow.
            Err(_) => [&self.folder].into_iter().chain(&self.allowed).any(|folder| {
                let inner = path.strip_prefix(folder);
                inner.is_ok_and(|inner| {
                    inner.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
                })
            }),
        };
        match may {
            true => Ok(()),
            false => Err("must lie in the folder of the suite; others are allowed by the flag `--allow-path DIR` of the command line only".to_owned()),
        }
    }
}
