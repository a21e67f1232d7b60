//! The user's cache: folders that only the user can write to, with a limit of what they hold.

use std::fs::{self, DirBuilder};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The folder of this program in the user's cache folder on this platform (`~/.cache/blis`); `None` without a home.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = if cfg!(windows) {
        folder("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        Some(folder("HOME")?.join("Library/Caches"))
    } else {
        folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))
    };
    cache.map(|cache| cache.join("blis"))
}

/// Creates `folder` and those above it, for the current user only.
///
/// # Errors
/// If it cannot be created, or other users may write to it.
pub fn create(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    if is_private(folder) { Ok(()) } else { Err(io::Error::other("other users may write to that folder")) }
}

/// Whether `folder` belongs to the current user and no other user may write to it.
#[cfg(unix)]
#[must_use]
pub fn is_private(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(folder)
        .is_ok_and(|known| known.mode() & 0o022 == 0 && known.uid() == rustix::process::geteuid().as_raw())
}

/// On other platforms the user's cache folder is private by default.
#[cfg(not(unix))]
#[must_use]
pub fn is_private(folder: &Path) -> bool {
    folder.is_dir()
}

/// Removes the oldest files, down to half of what is allowed, if there are `most` of them, or with `more` bytes more than it allows.
///
/// # Errors
/// If the folder cannot be read.
pub fn make_room(folder: &Path, more: u64, (most_files, most_bytes): (usize, u64)) -> io::Result<()> {
    let mut files: Vec<(SystemTime, PathBuf, u64)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let known = entry.metadata()?;
        files.push((known.modified()?, entry.path(), known.len()));
    }
    let mut bytes = files.iter().map(|(.., bytes)| bytes).sum::<u64>() + more;
    let mut count = files.len();
    if count < most_files && bytes <= most_bytes {
        return Ok(());
    }
    files.sort();
    for (_, file, size) in files {
        if count <= most_files / 2 && bytes <= most_bytes / 2 {
            break;
        }
        // Another process may have removed it first.
        let _ = fs::remove_file(file);
        (count, bytes) = (count - 1, bytes - size);
    }
    Ok(())
}
