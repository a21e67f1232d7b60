//! Lines of a text, read one at a time into one reused buffer.

use std::io::{self, BufRead, Read as _};
use std::sync::Arc;

use crate::{Diagnose, Diagnostic, RowError, unreadable};

/// Maximum length of a line, and of blank lines in a row, bytes. A prompt of several million token ids fits; and a process that keeps a
/// line, and the copy of it that it is about to enlarge, stays below 200 MB.
pub const LINE_BYTES_MAX: u64 = 32 << 20;

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
        let mut blank = 0;
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
            blank += self.line.len() as u64;
            if blank > LINE_BYTES_MAX {
                let error = RowError::new(format!("more than {} MiB of blank lines", LINE_BYTES_MAX >> 20));
                return Err(self.locate(error.hint("is this the right file?")).into());
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
    use std::io::BufReader;

    use super::*;

    fn lines(input: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut lines = LineReader::new(input, &"x".into());
        let mut all = Vec::new();
        while lines.advance().unwrap() {
            all.push((lines.number, lines.text().to_vec()));
        }
        all
    }

    #[test]
    fn ends_of_lines_and_blank_lines_do_not_matter() {
        let expected = vec![(1, b"a".to_vec()), (3, b"b\rc".to_vec()), (4, b" d".to_vec())];
        assert_eq!(lines(b"\xef\xbb\xbfa\r\n \r\nb\rc\n d"), expected);
    }

    #[test]
    fn endless_lines_are_refused() {
        let error = |byte| LineReader::new(BufReader::new(io::repeat(byte)), &"x".into()).advance().unwrap_err();
        let long = error(b'x').to_string();
        assert!(long.starts_with("x:1: the line is longer than 32 MiB"), "{long}");
        let blank = error(b'\n').to_string();
        assert!(blank.starts_with("x:33554433: more than 32 MiB of blank lines"), "{blank}");
    }
}
