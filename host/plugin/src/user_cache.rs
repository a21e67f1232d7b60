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

/// The secret of the user called `name`: `bytes` random bytes that are made once, in a file that no other user can read.
///
/// # Errors
/// If there is no home, or the file cannot be read or written, or others may read it.
#[cfg(unix)]
pub fn secret(name: &str, bytes: usize) -> io::Result<Vec<u8>> {
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
    let folder = folder().ok_or(io::ErrorKind::NotFound)?;
    create(&folder)?;
    let path = folder.join(name);
    let read = || -> io::Result<Vec<u8>> {
        let mut file = blis_diag::open_file(&path)?;
        let known = file.metadata()?;
        if !known.is_file() || known.mode() & 0o077 != 0 || known.len() != bytes as u64 {
            return Err(io::Error::other("others may read the secret, or it is not whole"));
        }
        let mut secret = vec![0; bytes];
        file.read_exact(&mut secret)?;
        Ok(secret)
    };
    match read() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    let mut secret = vec![0; bytes];
    let drawn = rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())?;
    if drawn != bytes {
        return Err(io::Error::other("the system has not enough random bytes"));
    }
    // Another process may make one at the same time: the first one stays, and both read that.
    let draft = folder.join(format!("{name}-{}-{:?}.draft", std::process::id(), std::thread::current().id()));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let made = file.write_all(&secret).and_then(|()| file.sync_all()).and_then(|()| fs::hard_link(&draft, &path));
    let _ = fs::remove_file(&draft);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => read(),
    }
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

/// Removes the oldest files, down to half of what is allowed, if there are `most_files` of them, or with `more` bytes more than
/// `most_bytes`.
///
/// # Errors
/// If the folder cannot be read.
pub fn make_room(folder: &Path, more: u64, most_files: usize, most_bytes: u64) -> io::Result<()> {
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
