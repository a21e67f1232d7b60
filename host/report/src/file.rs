//! Writes a result file completely or not at all: readers never see half a document, and a crash does not destroy the
//! results of an earlier run.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, IntoInnerError, Write};
use std::path::{Path, PathBuf};

use blis_diag::{Diagnose, Diagnostic};
use serde::Serialize;
use thiserror::Error;

/// A result file that cannot be written.
#[derive(Debug, Error)]
pub enum FileError {
    /// The path is a folder.
    #[error("cannot write `{}`: it is a folder", .0.display())]
    IsFolder(PathBuf),
    /// The folder for the file does not exist.
    #[error("cannot write `{}`: there is no folder `{}`", .path.display(), .folder.display())]
    NoFolder { path: PathBuf, folder: PathBuf },
    /// No file can be created in the folder, as a check before the run found.
    #[error("cannot write `{}`: its folder takes no file: {source}", .path.display())]
    Refused { path: PathBuf, source: io::Error },
    #[error("cannot write `{}`: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl Diagnose for FileError {
    fn diagnostic(&self) -> Diagnostic {
        Diagnostic::new(self.to_string()).hint(self.hint())
    }
}

impl FileError {
    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::IsFolder(path) => format!("name a file in it, such as `{}`", path.join("metrics.json").display()),
            Self::NoFolder { folder, .. } => format!("create it first: mkdir -p {}", folder.display()),
            Self::Refused { .. } => "check its permissions, or name a file in another folder".to_owned(),
            Self::Io { .. } => "check the permissions and the free space of its folder".to_owned(),
        }
    }
}

/// Checks before a run whether a file can be written at `path`, so that a simulation of minutes does not end without
/// results. Creates an empty file beside it and removes it again.
///
/// # Errors
/// If the path is a folder, or lies in one that does not exist or is not writable.
pub fn check_target(path: &Path) -> Result<(), FileError> {
    check_folder(path)?;
    if is_special(path) {
        return Ok(());
    }
    let probe = temporary_beside(&target_of(path));
    let made = File::create_new(&probe).and_then(|_| fs::remove_file(&probe));
    made.map_err(|source| FileError::Refused { path: path.to_owned(), source })
}

fn check_folder(path: &Path) -> Result<(), FileError> {
    if path.is_dir() {
        return Err(FileError::IsFolder(path.to_owned()));
    }
    let folder = folder_of(path);
    if folder.is_dir() { Ok(()) } else { Err(FileError::NoFolder { path: path.to_owned(), folder }) }
}

/// Whether the path is a pipe or a device, which is written to directly.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file())
}

/// The file that a link points to: a link is kept, and its target replaced.
fn target_of(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Writes `document` to `path` as JSON, indented by two spaces. A regular file is replaced in one step; anything else
/// (a pipe, `/dev/stdout`) is written to directly.
///
/// # Errors
/// If the file cannot be written: the error contains `path`, and no temporary file remains.
pub fn write_json(path: &Path, document: &impl Serialize) -> Result<(), FileError> {
    write_whole(path, |out| {
        serde_json::to_writer_pretty(&mut *out, document)?;
        out.write_all(b"\n")
    })
}

/// Writes `text` to `path`, in the way of [`write_json`].
///
/// # Errors
/// If the file cannot be written: the error contains `path`, and no temporary file remains.
pub fn write_text(path: &Path, text: &str) -> Result<(), FileError> {
    write_whole(path, |out| out.write_all(text.as_bytes()))
}

/// Writes `content` to `path`. A regular file is replaced in one step; anything else (a pipe, `/dev/stdout`) is written
/// to directly.
///
/// # Errors
/// If the file cannot be written: the error contains `path`, and no temporary file remains.
pub fn write_whole(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), FileError> {
    commit(path, draft(path, content)?)
}

/// Writes two files that belong together, `first` to `one` and `second` to `two`, in the way of [`write_whole`]: neither appears
/// before both are complete.
///
/// # Errors
/// If one of them cannot be written: the error contains its path, and older files at both are kept, unless only the last step fails, which
/// gives the second one its name.
pub fn write_pair(
    one: &Path,
    first: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    two: &Path,
    second: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), FileError> {
    let drafts = (draft(one, first)?, draft(two, second)?);
    commit(one, drafts.0)?;
    commit(two, drafts.1)
}

fn draft(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<DraftFile, FileError> {
    check_folder(path)?;
    let write = || {
        let mut out = BufWriter::with_capacity(1 << 16, DraftFile::create(path)?);
        content(&mut out)?;
        out.into_inner().map_err(IntoInnerError::into_error)
    };
    write().map_err(|source| FileError::Io { path: path.to_owned(), source })
}

fn commit(path: &Path, draft: DraftFile) -> Result<(), FileError> {
    draft.commit().map_err(|source| FileError::Io { path: path.to_owned(), source })
}

/// A file that appears at its path when it is complete, and replaces an older one. Until then it has no name, so that
/// nothing remains of it whatever ends the program; on file systems without files of that kind, it has a temporary name,
/// which remains if a signal ends the program. A pipe or a device is written to directly.
#[derive(Debug)]
pub struct DraftFile {
    file: File,
    /// `None`: a pipe or a device.
    target: Option<PathBuf>,
    /// Its temporary name, if it has one.
    temporary: Option<PathBuf>,
}

impl DraftFile {
    /// An empty file for `path`.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn create(path: &Path) -> io::Result<Self> {
        if is_special(path) {
            let file = File::options().write(true).open(path)?;
            return Ok(Self { file, target: None, temporary: None });
        }
        let target = target_of(path);
        if let Some(file) = unnamed::create(&folder_of(&target))? {
            return Ok(Self { file, target: Some(target), temporary: None });
        }
        let temporary = temporary_beside(&target);
        let file = File::create_new(&temporary)?;
        Ok(Self { file, target: Some(target), temporary: Some(temporary) })
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// The error of the operating system; then no file remains, and an older one at the path is kept.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.flush()?;
        let Some(target) = &self.target else { return Ok(()) };
        let temporary = match &self.temporary {
            Some(temporary) => temporary,
            None if unnamed::link(&self.file, target)? => return Ok(()),
            // There is an older file: only a rename replaces it in one step.
            None => {
                let temporary = temporary_beside(target);
                if !unnamed::link(&self.file, &temporary)? {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                self.temporary.insert(temporary)
            }
        };
        fs::rename(temporary, target)?;
        self.temporary = None;
        Ok(())
    }
}

impl Write for DraftFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for DraftFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // The first error is reported, not one of the clean-up.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Files without a name, which only Linux has (`O_TMPFILE`).
#[cfg(target_os = "linux")]
mod unnamed {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd as _;
    use std::path::Path;

    use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
    use rustix::io::Errno;

    /// A file in `folder`; `None` if its file system or the kernel has no such files.
    pub(super) fn create(folder: &Path) -> io::Result<Option<File>> {
        match open(folder, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::from_raw_mode(0o666)) {
            Ok(file) => Ok(Some(file.into())),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives `file` the name `path`; `false` if there is a file of that name.
    pub(super) fn link(file: &File, path: &Path) -> io::Result<bool> {
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        match linkat(CWD, own, CWD, path, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod unnamed {
    use std::fs::File;
    use std::io;
    use std::path::Path;

    pub(super) fn create(_folder: &Path) -> io::Result<Option<File>> {
        Ok(None)
    }

    pub(super) fn link(_file: &File, _path: &Path) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The temporary file is in the same folder, because a rename does not cross file systems.
fn temporary_beside(target: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    folder_of(target).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::ser::SerializeSeq as _;

    /// An empty folder that is deleted at the end of the test.
    struct TargetFolder(PathBuf);

    impl TargetFolder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("blis-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).expect("temporary folder");
            Self(path)
        }

        fn names(&self) -> Vec<OsString> {
            fs::read_dir(&self.0).expect("folder").map(|entry| entry.expect("entry").file_name()).collect()
        }
    }

    impl Drop for TargetFolder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Fails in the middle of its serialisation.
    struct Broken;

    impl Serialize for Broken {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut list = serializer.serialize_seq(None)?;
            list.serialize_element(&1)?;
            Err(serde::ser::Error::custom("broken"))
        }
    }

    #[test]
    fn replaces_the_file_and_leaves_nothing_else() {
        let folder = TargetFolder::new("replace");
        let path = folder.0.join("out.json");
        write_json(&path, &[1]).expect("first");
        write_json(&path, &[1, 2]).expect("second");
        assert_eq!(fs::read_to_string(&path).expect("file"), "[\n  1,\n  2\n]\n");
        assert_eq!(folder.names(), ["out.json"]);
    }

    #[test]
    fn a_failure_keeps_the_old_file() {
        let folder = TargetFolder::new("keep");
        let path = folder.0.join("out.json");
        write_json(&path, &[1]).expect("first");
        let error = write_json(&path, &Broken).expect_err("must fail").to_string();
        assert!(error.starts_with("cannot write `") && error.contains("out.json"), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("file"), "[\n  1\n]\n");
        assert_eq!(folder.names(), ["out.json"]);
    }

    /// Regression: an interrupted export left a new header beside old requests.
    #[test]
    fn a_failure_keeps_both_old_files() {
        let folder = TargetFolder::new("pair");
        let [one, two] = ["one.txt", "two.txt"].map(|name| folder.0.join(name));
        let write = |text: &'static str, second: io::Result<()>| {
            write_pair(
                &one,
                move |out| out.write_all(text.as_bytes()),
                &two,
                move |out| {
                    out.write_all(text.as_bytes())?;
                    second
                },
            )
        };
        let texts = || [&one, &two].map(|path| fs::read_to_string(path).expect("a file"));
        write("old", Ok(())).expect("written");
        let error = write("new", Err(io::ErrorKind::Other.into())).expect_err("must fail").to_string();
        assert!(error.contains("two.txt"), "{error}");
        assert_eq!((texts(), folder.names().len()), (["old", "old"].map(str::to_owned), 2));
        write("new", Ok(())).expect("written");
        assert_eq!((texts(), folder.names().len()), (["new", "new"].map(str::to_owned), 2));
    }

    #[test]
    fn a_draft_has_no_name() {
        let folder = TargetFolder::new("draft");
        let path = folder.0.join("out.txt");
        let write = || {
            let mut draft = DraftFile::create(&path).expect("draft");
            draft.write_all(b"some").expect("written");
            draft
        };
        drop(write());
        assert!(folder.names().is_empty());
        let draft = write();
        assert!(cfg!(not(target_os = "linux")) || folder.names().is_empty(), "{:?}", folder.names());
        draft.commit().expect("committed");
        write().commit().expect("replaced");
        assert_eq!((fs::read_to_string(&path).expect("file").as_str(), folder.names().len()), ("some", 1));
    }

    #[test]
    fn says_where_it_cannot_write() {
        let folder = TargetFolder::new("where");
        let inside = folder.0.join("missing/out.json");
        let error = check_target(&inside).expect_err("no such folder");
        assert!(error.to_string().contains("there is no folder `"), "{error}");
        assert!(error.hint().starts_with("create it first: mkdir -p "), "{}", error.hint());
        assert!(matches!(check_target(&folder.0), Err(FileError::IsFolder(_))));
        assert!(check_target(Path::new("metrics.json")).is_ok(), "the current folder exists");
    }

    #[cfg(unix)]
    #[test]
    fn a_device_is_written_to_and_a_link_stays() {
        write_json(Path::new("/dev/null"), &[1]).expect("device");
        let folder = TargetFolder::new("link");
        let (target, link) = (folder.0.join("target.json"), folder.0.join("link.json"));
        fs::write(&target, "old").expect("target");
        std::os::unix::fs::symlink(&target, &link).expect("link");
        write_json(&link, &[1]).expect("through the link");
        assert!(fs::symlink_metadata(&link).expect("link").is_symlink());
        assert_eq!(fs::read_to_string(&target).expect("target"), "[\n  1\n]\n");
    }
}
