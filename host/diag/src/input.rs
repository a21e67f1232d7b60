//! Files that the host reads: the one module that opens them.
//!
//! The path comes from a command line, a configuration file, a suite or a folder of another author. It may lead to a device
//! without an end, a pipe without a writer, a circle of links, a sparse file of gigabytes, or a gzip stream that grows to them. Two rules
//! hold for every reader, because no other code of the host may open a file for reading (`clippy.toml`):
//!
//! * **Only what ends by itself is opened**: regular files, and pipes without a name, which a shell makes for `<(command)`. Folders,
//!   devices, sockets and named pipes are refused, by what the path leads to, before it is opened and once more by what was opened.
//!   Nothing waits for the writer of a pipe. Links are followed; a circle is the error of the operating system.
//! * **Every reader states the bytes that it takes**, and a longer file is refused by its length, before memory is reserved for it.
//!   Traces have no such bound, since they are read one record at a time ([`open`]): there the bounds are those of a record and of what
//!   lies between records ([`crate::LineReader`]).

use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufRead, BufReader, IsTerminal as _, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use flate2::bufread::MultiGzDecoder;

use crate::{ReadError, printable};

/// Why something is no input, in the [`io::Error`] of a reader; `unreadable` has the text for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputFault {
    /// It is none of the kinds of files that are read: `a device`.
    Kind(&'static str),
    /// It has more bytes than the reader takes.
    TooLong {
        at_most: u64,
        /// Whether these are the bytes after decompression.
        decompressed: bool,
    },
}

impl fmt::Display for InputFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Kind(kind) => write!(f, "it is {kind}, not a file"),
            Self::TooLong { at_most, decompressed: false } => write!(f, "it is longer than {}", size(at_most)),
            Self::TooLong { at_most, decompressed: true } => {
                write!(f, "it is longer than {} when decompressed", size(at_most))
            }
        }
    }
}

impl std::error::Error for InputFault {}

impl From<InputFault> for io::Error {
    fn from(fault: InputFault) -> Self {
        let kind = match fault {
            InputFault::Kind("a folder") => io::ErrorKind::IsADirectory,
            InputFault::Kind(_) => io::ErrorKind::InvalidInput,
            InputFault::TooLong { .. } => io::ErrorKind::FileTooLarge,
        };
        Self::new(kind, fault)
    }
}

/// The fault in `error`, if it is from here.
pub(crate) fn fault_of(error: &io::Error) -> Option<InputFault> {
    error.get_ref()?.downcast_ref::<InputFault>().copied()
}

/// A number of bytes as people write it: `16 MiB`.
fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|&(shift, _)| bytes > 0 && bytes.trailing_zeros() >= shift);
    unit.map_or_else(|| format!("{bytes} bytes"), |(shift, unit)| format!("{} {unit}", bytes >> shift))
}

/// Opens the regular file at `path` for reading.
///
/// # Errors
/// The error of the operating system; `IsADirectory` or `InvalidInput` if it is something else than a regular file.
pub fn open_file(path: &Path) -> io::Result<File> {
    opened(path, false)
}

/// Opens a regular file, or a pipe without a name.
///
/// # Errors
/// As [`open_file`].
pub fn open_input(path: &Path) -> io::Result<File> {
    opened(path, true)
}

/// The content of the file at `path`, which has at most `at_most` bytes.
///
/// # Errors
/// As [`open_file`]; `FileTooLarge` if it is longer.
pub fn read_bytes(path: &Path, at_most: u64) -> io::Result<Vec<u8>> {
    let (file, length) = checked(path, at_most)?;
    // A file of the kernel has length 0, and every file may grow meanwhile.
    bounded(file, length, InputFault::TooLong { at_most, decompressed: false }, at_most)
}

/// The file at `path`, for parsers that read it in parts: they see an error after `at_most` bytes.
///
/// # Errors
/// As [`read_bytes`].
pub fn open_bounded(path: &Path, at_most: u64) -> io::Result<impl Read> {
    let (file, _) = checked(path, at_most)?;
    Ok(BoundedInput { input: BufReader::with_capacity(BUFFER_BYTES, file), left: at_most, at_most })
}

/// The text of the file at `path`, which has at most `at_most` bytes of UTF-8.
///
/// # Errors
/// As [`read_bytes`]; `InvalidData` if it is not UTF-8.
pub fn read_text(path: &Path, at_most: u64) -> io::Result<String> {
    text(read_bytes(path, at_most)?)
}

/// Standard input to its end, at most `at_most` bytes.
///
/// # Errors
/// As [`read_bytes`].
pub fn read_stdin(at_most: u64) -> io::Result<Vec<u8>> {
    bounded(stdin()?, 0, InputFault::TooLong { at_most, decompressed: false }, at_most)
}

/// `bytes`, decompressed if they begin with the gzip magic number, to at most `at_most` bytes.
///
/// # Errors
/// Those of the decoder; `FileTooLarge` if there are more bytes.
pub fn decompressed(bytes: Vec<u8>, at_most: u64) -> io::Result<Vec<u8>> {
    if !is_gzip(&bytes) {
        return Ok(bytes);
    }
    // Twice: what grows beyond the bound is found without room for it.
    let decoder = || MultiGzDecoder::new(bytes.as_slice()).take(at_most.saturating_add(1));
    let length = io::copy(&mut decoder(), &mut io::sink())?;
    bounded(decoder(), length, InputFault::TooLong { at_most, decompressed: true }, at_most)
}

/// Opens a file, or a pipe without a name, and decompresses it if it begins with the gzip magic number: for readers that keep one
/// record at a time.
///
/// # Errors
/// As [`open_file`], with the name of the file.
pub fn open(path: &Path) -> Result<Box<dyn BufRead + Send>, ReadError> {
    let io_error = |source| ReadError::Io { file: display(path), source };
    decoded(open_input(path).map_err(io_error)?).map_err(io_error)
}

/// Opens a file as [`open`] does; `-` is standard input. What was read of it stays in memory, because several runs may read it.
///
/// # Errors
/// As [`open`].
pub fn open_or_stdin(path: &Path) -> Result<Box<dyn BufRead + Send>, ReadError> {
    if path != Path::new("-") {
        return open(path);
    }
    decoded(KeptStdin { chunk: 0, offset: 0 }).map_err(|source| ReadError::Io { file: display(path), source })
}

/// A path in the form in which messages show it.
pub fn display(path: &Path) -> Arc<str> {
    if path == Path::new("-") {
        return "standard input".into();
    }
    printable(&path.to_string_lossy()).into()
}

const BUFFER_BYTES: usize = 128 << 10;

/// A folder whose files strangers may name: a name leads to a file in the folder, and through no link, whatever happens to the folder's
/// files meanwhile.
#[cfg(unix)]
#[derive(Debug)]
pub struct OpenFolder {
    folder: std::os::fd::OwnedFd,
    /// The folder without links, and as the user named it, both absolute.
    paths: [std::path::PathBuf; 2],
}

#[cfg(unix)]
impl OpenFolder {
    /// Opens the folder at `path`.
    ///
    /// # Errors
    /// The error of the operating system, if it cannot be opened or is no folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        use rustix::fs::{CWD, Mode, OFlags, openat};
        let paths = [std::fs::canonicalize(path)?, std::path::absolute(path)?];
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self { folder: openat(CWD, &paths[0], flags, Mode::empty())?, paths })
    }

    /// The folder, absolute and without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.paths[0]
    }

    /// The name in this folder of the file at `path`, by its text alone; `None` if it lies elsewhere.
    #[must_use]
    pub fn name_of<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        use std::path::Component;
        let name = self.paths.iter().find_map(|folder| path.strip_prefix(folder).ok())?;
        let is_within = name.components().all(|part| matches!(part, Component::Normal(_)));
        (is_within && name.components().next().is_some()).then_some(name)
    }

    /// The content of the regular file `name`, a result of [`Self::name_of`], which has at most `at_most` bytes.
    ///
    /// # Errors
    /// As [`read_bytes`]; the error of the operating system for a link, too.
    pub fn read_bytes(&self, name: &Path, at_most: u64) -> io::Result<Vec<u8>> {
        use rustix::fs::{Mode, OFlags, openat};
        // A part at a time, and no part may be a link: `openat2` would do it in one call, but not every kernel and container has it.
        let mut folder = self.folder.try_clone()?;
        let mut parts = name.components().peekable();
        while let Some(part) = parts.next() {
            let std::path::Component::Normal(part) = part else { return Err(io::ErrorKind::InvalidInput.into()) };
            let kind = if parts.peek().is_some() { OFlags::DIRECTORY } else { OFlags::NONBLOCK | OFlags::NOCTTY };
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | kind;
            folder = openat(&folder, part, flags, Mode::empty())?;
        }
        let file = File::from(folder);
        let found = file.metadata()?;
        if let Some(fault) = fault_of_kind(&found, false) {
            return Err(fault.into());
        }
        let fault = InputFault::TooLong { at_most, decompressed: false };
        if found.len() > at_most { Err(fault.into()) } else { bounded(file, found.len(), fault, at_most) }
    }
}

/// An input that fails after `at_most` bytes.
struct BoundedInput<R> {
    input: R,
    left: u64,
    at_most: u64,
}

impl<R: Read> Read for BoundedInput<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        let Some(left) = self.left.checked_sub(count as u64) else {
            return Err(InputFault::TooLong { at_most: self.at_most, decompressed: false }.into());
        };
        self.left = left;
        Ok(count)
    }
}

/// The file at `path` and its length, if that is not above `at_most`.
fn checked(path: &Path, at_most: u64) -> io::Result<(File, u64)> {
    let file = open_input(path)?;
    let length = file.metadata()?.len();
    if length > at_most { Err(InputFault::TooLong { at_most, decompressed: false }.into()) } else { Ok((file, length)) }
}

fn is_gzip(start: &[u8]) -> bool {
    start.starts_with(&[0x1f, 0x8b])
}

/// `input`, decompressed if it begins with the gzip magic number.
fn decoded(input: impl Read + Send + 'static) -> io::Result<Box<dyn BufRead + Send>> {
    let mut input = BufReader::with_capacity(BUFFER_BYTES, input);
    if is_gzip(input.fill_buf()?) {
        Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(input))))
    } else {
        Ok(Box::new(input))
    }
}

/// All of `input`, of which `expected` bytes are known to be there; `fault` if there are more than `at_most`.
fn bounded(input: impl Read, expected: u64, fault: InputFault, at_most: u64) -> io::Result<Vec<u8>> {
    if expected > at_most {
        return Err(fault.into());
    }
    // One byte more than expected: then the end is seen without a larger buffer.
    let mut bytes = Vec::with_capacity(usize::try_from(expected + 1).unwrap_or(0));
    input.take(at_most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > at_most { Err(fault.into()) } else { Ok(bytes) }
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    // With the words of the standard library, which `unreadable` knows.
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8"))
}

/// What is wrong with the kind of `found`; `None` for a regular file, and for a pipe if `pipes` are allowed.
fn fault_of_kind(found: &Metadata, pipes: bool) -> Option<InputFault> {
    if found.is_file() {
        return None;
    }
    if found.is_dir() {
        return Some(InputFault::Kind("a folder"));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt as _;
        let kind = found.file_type();
        if kind.is_fifo() {
            return (!pipes).then_some(InputFault::Kind("a pipe"));
        }
        if kind.is_socket() {
            return Some(InputFault::Kind("a socket"));
        }
    }
    let _ = pipes;
    Some(InputFault::Kind("a device"))
}

fn opened(path: &Path, pipes: bool) -> io::Result<File> {
    // Opening a device may act on it, so what is known to be one is not opened.
    if let Some(fault) = fault_of_kind(&std::fs::metadata(path)?, pipes) {
        return Err(fault.into());
    }
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        // A named pipe that was a file a moment ago does not block either.
        let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
        options.custom_flags(flags.bits().cast_signed());
    }
    let file = options.open(path)?;
    let found = file.metadata()?;
    if let Some(fault) = fault_of_kind(&found, pipes) {
        return Err(fault.into());
    }
    #[cfg(unix)]
    if !found.is_file() {
        if has_name(&file, path) {
            return Err(InputFault::Kind("a named pipe").into());
        }
        rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::empty())?;
    }
    Ok(file)
}

/// Whether a pipe has a name in a folder, so that its writer may never come.
#[cfg(target_os = "linux")]
fn has_name(pipe: &File, _path: &Path) -> bool {
    const PIPEFS: rustix::fs::FsWord = 0x5049_5045;
    !rustix::fs::fstatfs(pipe).is_ok_and(|known| known.f_type == PIPEFS)
}

/// Whether a pipe has a name in a folder, so that its writer may never come.
#[cfg(all(unix, not(target_os = "linux")))]
fn has_name(_pipe: &File, path: &Path) -> bool {
    !(path.starts_with("/dev/fd") || path == Path::new("/dev/stdin"))
}

/// Standard input, unless it is a device other than a terminal: what the user types has an end.
fn stdin() -> io::Result<io::StdinLock<'static>> {
    let input = io::stdin();
    #[cfg(unix)]
    if !input.is_terminal() {
        use std::os::fd::AsFd as _;
        use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
        let found = File::from(input.as_fd().try_clone_to_owned()?).metadata()?;
        let kind = found.file_type();
        // `/dev/null` stands for no input.
        let is_null = std::fs::metadata("/dev/null").is_ok_and(|null| null.rdev() == found.rdev());
        if kind.is_block_device() || kind.is_char_device() && !is_null {
            return Err(InputFault::Kind("a device").into());
        }
        if kind.is_dir() {
            return Err(InputFault::Kind("a folder").into());
        }
    }
    let _ = input.is_terminal();
    Ok(input.lock())
}

/// Standard input, of which every reader sees all bytes from the first on.
struct KeptStdin {
    chunk: usize,
    offset: usize,
}

impl Read for KeptStdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // In chunks, as they are asked for: a reader that refuses the first line has kept no more than that, and no chunk is copied
        // when more follow.
        static CHUNKS: Mutex<Vec<Arc<[u8]>>> = Mutex::new(Vec::new());
        let mut chunks = CHUNKS.lock().unwrap_or_else(PoisonError::into_inner);
        if chunks.get(self.chunk).is_some_and(|chunk| chunk.len() == self.offset) {
            (self.chunk, self.offset) = (self.chunk + 1, 0);
        }
        if self.chunk == chunks.len() {
            let mut next = Vec::new();
            stdin()?.take(1 << 20).read_to_end(&mut next)?;
            if next.is_empty() {
                return Ok(0);
            }
            chunks.push(next.into());
        }
        let rest = &chunks[self.chunk][self.offset..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.offset += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::unreadable;

    struct OwnFolder(std::path::PathBuf);

    impl OwnFolder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("blis-input-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn write(&self, name: &str, content: &[u8]) -> std::path::PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, content).unwrap();
            path
        }
    }

    impl Drop for OwnFolder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn the_bound_is_exact_and_in_the_message() {
        let folder = OwnFolder::new("bound");
        let path = folder.write("four", b"four");
        assert_eq!(read_text(&path, 4).unwrap(), "four");
        let error = read_bytes(&path, 3).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (io::ErrorKind::FileTooLarge, "it is longer than 3 bytes")
        );
        assert_eq!(unreadable("f", &error).to_string(), "`f` is longer than 3 bytes\nhint: is this the right file?");
        let sparse = folder.write("sparse", b"");
        OpenOptions::new().write(true).open(&sparse).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read_text(&sparse, 1 << 20).unwrap_err().to_string(), "it is longer than 1 MiB");
        let binary = folder.write("binary", &[0xff]);
        assert_eq!(
            unreadable("f", &read_text(&binary, 9).unwrap_err()).to_string(),
            "`f` is not text (UTF-8)\nhint: is this the right file?"
        );
    }

    #[test]
    fn decompressed_bytes_are_bounded() {
        assert_eq!(decompressed(b"plain".to_vec(), 1).unwrap(), b"plain");
        assert_eq!(decompressed(gzip(b"text"), 4).unwrap(), b"text");
        let bomb = gzip(&vec![0; 4 << 20]);
        let error = decompressed(bomb, 1 << 20).unwrap_err();
        assert_eq!(error.to_string(), "it is longer than 1 MiB when decompressed");
    }

    #[test]
    fn gzip_members_are_decompressed_one_after_another() {
        let folder = OwnFolder::new("members");
        let path = folder.write("two.gz", &[gzip(b"a\n"), gzip(b"b\n")].concat());
        let mut text = String::new();
        open(&path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "a\nb\n");
    }

    /// Regression: a candidate that was a pipe without a writer blocked the program in `open`.
    #[cfg(unix)]
    #[test]
    fn only_files_are_opened() {
        let folder = OwnFolder::new("kinds");
        let (pipe, circle, socket) = (folder.0.join("pipe"), folder.0.join("circle"), folder.0.join("socket"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::os::unix::fs::symlink(&circle, &circle).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let message = |path: &Path| read_bytes(path, 1 << 20).unwrap_err().to_string();
        for device in ["/dev/null", "/dev/zero", "/dev/full"] {
            assert_eq!(message(Path::new(device)), "it is a device, not a file");
        }
        assert_eq!(message(&folder.0), "it is a folder, not a file");
        assert_eq!(message(&pipe), "it is a named pipe, not a file");
        assert_eq!(message(&socket), "it is a socket, not a file");
        assert!(message(&circle).contains("symbolic links"), "{}", message(&circle));
        assert_eq!(open_file(&pipe).unwrap_err().to_string(), "it is a pipe, not a file");
        assert!(open_file(&folder.write("file", b"")).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn names_lead_out_of_no_folder() {
        use std::os::unix::fs::symlink;
        let root = OwnFolder::new("beneath");
        root.write("secret", b"secret");
        std::fs::create_dir_all(root.0.join("open/sub")).unwrap();
        root.write("open/sub/file", b"text");
        symlink("../secret", root.0.join("open/link")).unwrap();
        symlink("..", root.0.join("open/up")).unwrap();
        symlink("open", root.0.join("named")).unwrap();
        let folder = OpenFolder::open(&root.0.join("named")).unwrap();
        let read = |path: &str| {
            let path = root.0.join(path);
            folder.name_of(&path).map(|name| folder.read_bytes(name, 4).map_err(|error| error.kind()))
        };
        assert_eq!(read("open/sub/file"), Some(Ok(b"text".to_vec())));
        assert_eq!(read("named/sub/file"), Some(Ok(b"text".to_vec())));
        for elsewhere in ["secret", "open", "open/../secret", "open/sub/../../secret", "opener/file"] {
            assert_eq!(read(elsewhere), None, "{elsewhere}");
        }
        for link in ["open/link", "open/up/secret", "open/sub", "open/sub/file/x"] {
            assert!(matches!(read(link), Some(Err(_))), "{link}: {:?}", read(link));
        }
        assert_eq!(folder.read_bytes(Path::new("sub/file"), 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    /// What a shell makes of `<(command)`.
    #[cfg(target_os = "linux")]
    #[test]
    fn pipes_of_shells_are_read() {
        use std::os::fd::AsRawFd as _;
        let (reader, mut writer) = io::pipe().unwrap();
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        writer.write_all(b"abc").unwrap();
        drop(writer);
        assert_eq!(read_text(Path::new(&path), 3).unwrap(), "abc");
        assert_eq!(open_file(Path::new(&path)).unwrap_err().to_string(), "it is a pipe, not a file");
    }
}
