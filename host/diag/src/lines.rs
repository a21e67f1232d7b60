//! Lines of a text file, plain or gzip-compressed, read one at a time into one reused buffer.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use flate2::bufread::MultiGzDecoder;

use crate::{Diagnose, Diagnostic, RowError, printable, unreadable};

/// Maximum length of a line, bytes. A prompt of several million token ids fits.
pub const LINE_BYTES_MAX: u64 = 64 << 20;

/// Why the rest of a file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.diagnostic())]
pub enum ReadError {
    /// The file cannot be opened or read, or its gzip stream is damaged.
    Io {
        /// Path of the file, as the user wrote it.
        file: Arc<str>,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A line that is too long, or has invalid content.
    Line(Diagnostic),
}

impl Diagnose for ReadError {
    fn diagnostic(&self) -> Diagnostic {
        match self {
            Self::Io { file, source } => unreadable(file, source),
            Self::Line(line) => line.clone(),
        }
    }
}

impl From<Diagnostic> for ReadError {
    fn from(line: Diagnostic) -> Self {
        Self::Line(line)
    }
}

const BUFFER_BYTES: usize = 128 << 10;

/// Opens the file at `path` for reading, if it is a regular file: opening a pipe waits for its writer, which may never come.
///
/// # Errors
/// The error of the operating system; `InvalidInput` if it is something else than a file.
pub fn open_file(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path)?.is_file() {
        return File::open(path);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file, but a folder, a pipe or a device"))
}

/// Opens a file and decompresses it if it begins with the gzip magic number.
///
/// # Errors
/// The error of the operating system, if the file cannot be opened or read.
pub fn open(path: &Path) -> Result<Box<dyn BufRead + Send>, ReadError> {
    let io_error = |source| ReadError::Io { file: display(path), source };
    decompressed(File::open(path).map_err(io_error)?).map_err(io_error)
}

/// Opens a file as [`open`] does; `-` is standard input, which is kept in memory from the first time on, because
/// several runs may read it.
///
/// # Errors
/// The error of the operating system, if it cannot be opened or read.
pub fn open_or_stdin(path: &Path) -> Result<Box<dyn BufRead + Send>, ReadError> {
    static STDIN: Mutex<Option<Arc<[u8]>>> = Mutex::new(None);
    if path != Path::new("-") {
        return open(path);
    }
    let io_error = |source| ReadError::Io { file: display(path), source };
    let mut kept = STDIN.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes = match &*kept {
        Some(bytes) => Arc::clone(bytes),
        None => {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes).map_err(io_error)?;
            Arc::clone(kept.insert(bytes.into()))
        }
    };
    decompressed(Cursor::new(bytes)).map_err(io_error)
}

/// `input`, decompressed if it begins with the gzip magic number.
fn decompressed(input: impl Read + Send + 'static) -> io::Result<Box<dyn BufRead + Send>> {
    let mut input = BufReader::with_capacity(BUFFER_BYTES, input);
    if input.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
        Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(input))))
    } else {
        Ok(Box::new(input))
    }
}

/// A path in the form in which messages show it.
pub fn display(path: &Path) -> Arc<str> {
    if path == Path::new("-") {
        return "standard input".into();
    }
    printable(&path.to_string_lossy()).into()
}

/// The lines of an input, one at a time. `\r
/// ` also ends a line; a byte order mark is skipped.
pub struct LineReader<R> {
    input: R,
    file: Arc<str>,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> LineReader<R> {
    pub fn new(input: R, file: &Arc<str>) -> Self {
        Self { input, file: Arc::clone(file), line: Vec::new(), number: 0 }
    }

    /// Reads the next line that is not blank; false at the end of the input.
    pub fn advance(&mut self) -> Result<bool, ReadError> {
        loop {
            self.line.clear();
            let mut limited = (&mut self.input).take(LINE_BYTES_MAX + 1);
            let read = limited.read_until(b'\n', &mut self.line);
            let read = read.map_err(|source: io::Error| ReadError::Io { file: Arc::clone(&self.file), source })?;
            if read == 0 {
                return Ok(false);
            }
            self.number += 1;
            if self.line.len() as u64 > LINE_BYTES_MAX {
                let error = RowError::new(format!("the line is longer than {} MiB", LINE_BYTES_MAX >> 20));
                return Err(self.locate(error.hint("is this the right file?")).into());
            }
            if !self.text().trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    /// The current line, without its line end.
    pub fn text(&self) -> &[u8] {
        let mut line = self.line.as_slice();
        if self.number == 1 {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        line = line.strip_suffix(b"\n").unwrap_or(line);
        line.strip_suffix(b"\r").unwrap_or(line)
    }

    /// Whether the current line has its line end; without it, the input may be cut off in it.
    pub fn is_whole(&self) -> bool {
        self.line.ends_with(b"\n")
    }

    /// The diagnostic of an `error` in the current line.
    pub fn locate(&self, error: RowError) -> Diagnostic {
        error.at(&self.file, self.number)
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::{Read as _, Write as _};

    use super::*;

    fn lines(input: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut lines = LineReader::new(input, &"x".into());
        let mut all = Vec::new();
        while lines.advance().unwrap() {
            all.push((lines.number, lines.text().to_vec()));
        }
        all
    }

    /// Regression: a candidate that was a pipe without a writer blocked the program in `open`.
    #[cfg(unix)]
    #[test]
    fn only_files_are_opened() {
        for path in ["/dev/null", "/"] {
            let error = open_file(Path::new(path)).expect_err(path);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}: {error}");
        }
        assert!(open_file(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml").as_path()).is_ok());
    }

    #[test]
    fn ends_of_lines_and_blank_lines_do_not_matter() {
        let expected = vec![(1, b"a".to_vec()), (3, b"b\rc".to_vec()), (4, b" d".to_vec())];
        assert_eq!(lines(b"\xef\xbb\xbfa\r\n \r\nb\rc\n d"), expected);
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut lines = LineReader::new(BufReader::new(io::repeat(b'x')), &"x".into());
        let error = lines.advance().unwrap_err();
        assert!(error.to_string().starts_with("x:1: the line is longer than 64 MiB"), "{error}");
    }

    #[test]
    fn gzip_members_are_unpacked_one_after_another() {
        let member = |text: &str| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        let path = std::env::temp_dir().join(format!("blis-input-{}.gz", std::process::id()));
        std::fs::write(&path, [member("a\n"), member("b\n")].concat()).unwrap();
        let mut text = String::new();
        open(&path).unwrap().read_to_string(&mut text).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text, "a\nb\n");
    }
}
