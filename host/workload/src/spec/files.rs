//! The files that a specification refers to.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum length of a file: a longer one is probably the wrong file.
const BYTES_MAX: u64 = 64 << 20;

/// Access to the files of a specification.
pub trait Files {
    /// The text of the file at `path`.
    ///
    /// # Errors
    /// The error of the operating system; or if the file is not text, or too long.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// The names of the files in the folder at `path`, sorted.
    ///
    /// # Errors
    /// The error of the operating system.
    fn names(&self, path: &Path) -> io::Result<Vec<String>>;
}

/// Files relative to a folder: that of the specification.
#[derive(Clone, Debug)]
pub struct Beside(pub PathBuf);

impl Files for Beside {
    fn read(&self, path: &Path) -> io::Result<String> {
        blis_diag::read_text(&self.0.join(path), BYTES_MAX)
    }

    fn names(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.0.join(path))? {
            names.extend(entry?.file_name().into_string());
        }
        names.sort();
        Ok(names)
    }
}

/// No files at all: a specification that names one is refused.
#[derive(Clone, Copy, Debug)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _path: &Path) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn names(&self, _path: &Path) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::NotFound.into())
    }
}
