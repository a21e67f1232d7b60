//! Bytes of a trace: a file, gzipped or not, read line by line into one reused buffer.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use csv::ByteRecord;
use flate2::bufread::MultiGzDecoder;

use super::error::{Fault, LineError, TraceError};

/// No row of a trace is longer (a prompt of several million token ids fits).
pub const LINE_BYTES_MAX: u64 = 64 << 20;

const BUFFER_BYTES: usize = 128 << 10;

/// Opens `path`; what starts with the gzip magic number is unpacked on the way.
///
/// # Errors
/// What the system says about the file.
pub fn open(path: &Path) -> Result<Box<dyn BufRead + Send>, TraceError> {
    let io_error = |source| TraceError::Io { file: display(path), source };
    let mut file = BufReader::with_capacity(BUFFER_BYTES, File::open(path).map_err(io_error)?);
    let gzipped = file.fill_buf().map_err(io_error)?.starts_with(&[0x1f, 0x8b]);
    if gzipped {
        Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(file))))
    } else {
        Ok(Box::new(file))
    }
}

/// A path as messages show it.
pub(super) fn display(path: &Path) -> Arc<str> {
    path.display().to_string().into()
}

/// The lines of an input, one at a time. `\r\n` ends a line too; a byte order mark is dropped.
pub(crate) struct Lines<R> {
    input: R,
    file: Arc<str>,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub fn new(input: R, file: &Arc<str>) -> Self {
        Self { input, file: Arc::clone(file), line: Vec::new(), number: 0 }
    }

    /// Goes to the next line that is not blank; false at the end.
    pub fn advance(&mut self) -> Result<bool, TraceError> {
        loop {
            self.line.clear();
            let mut limited = (&mut self.input).take(LINE_BYTES_MAX + 1);
            let read = limited.read_until(b'\n', &mut self.line);
            let read = read.map_err(|source: io::Error| TraceError::Io { file: Arc::clone(&self.file), source })?;
            if read == 0 {
                return Ok(false);
            }
            self.number += 1;
            if self.line.len() as u64 > LINE_BYTES_MAX {
                let fault = Fault::new(format!("the line is longer than {} MiB", LINE_BYTES_MAX >> 20));
                return Err(self.locate(fault.hint("is this the right file?")).into());
            }
            if !self.text().trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    /// The present line, without its end.
    pub fn text(&self) -> &[u8] {
        let mut line = self.line.as_slice();
        if self.number == 1 {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        line = line.strip_suffix(b"\n").unwrap_or(line);
        line.strip_suffix(b"\r").unwrap_or(line)
    }

    /// `fault` happened in the present line.
    pub fn locate(&self, fault: Fault) -> LineError {
        fault.at(&self.file, self.number)
    }
}

/// The records of a CSV, one at a time; a quoted field may hold commas and ends of lines.
pub(super) struct Records<R> {
    reader: csv::Reader<Limited<R>>,
    file: Arc<str>,
    pub record: ByteRecord,
}

/// An input that ends with an error where one record takes too much of it: an open quotation mark may
/// make one of all the rest, which may be more than there is memory for.
struct Limited<R> {
    input: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let read = self.input.read(buffer)?;
        self.left = self.left.saturating_sub(read as u64);
        Ok(read)
    }
}

impl<R: BufRead> Records<R> {
    pub fn new(input: R, file: &Arc<str>) -> Self {
        let input = Limited { input, left: LINE_BYTES_MAX };
        let reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(input);
        Self { reader, file: Arc::clone(file), record: ByteRecord::new() }
    }

    /// Goes to the next record; false at the end.
    pub fn advance(&mut self) -> Result<bool, TraceError> {
        self.reader.get_mut().left = LINE_BYTES_MAX;
        let start = self.reader.position().line();
        self.reader.read_byte_record(&mut self.record).map_err(|error| {
            let source = match error.into_kind() {
                csv::ErrorKind::Io(source) => source,
                // Records are raw bytes of any length: only reading itself can fail.
                other => io::Error::other(format!("{other:?}")),
            };
            if source.kind() == io::ErrorKind::FileTooLarge && self.reader.get_ref().left == 0 {
                let fault = Fault::new(format!("the record is longer than {} MiB", LINE_BYTES_MAX >> 20));
                return fault
                    .hint("is a quotation mark missing, or is this the wrong file?")
                    .at(&self.file, start)
                    .into();
            }
            TraceError::Io { file: Arc::clone(&self.file), source }
        })
    }

    /// `fault` happened in the present record.
    pub fn locate(&self, fault: Fault) -> LineError {
        fault.at(&self.file, self.record.position().map_or(0, csv::Position::line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    fn lines(input: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut lines = Lines::new(input, &"x".into());
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
    fn an_endless_line_is_refused() {
        let mut lines = Lines::new(BufReader::new(io::repeat(b'x')), &"x".into());
        let error = lines.advance().unwrap_err();
        assert!(error.to_string().starts_with("x:1: the line is longer than 64 MiB"), "{error}");
    }

    #[test]
    fn an_endless_record_is_refused() {
        let endless = b"a,b\n1,2\n\"".chain(BufReader::new(io::repeat(b'\n')));
        let mut records = Records::new(endless, &"x".into());
        assert!(records.advance().unwrap() && records.advance().unwrap());
        let error = records.advance().unwrap_err();
        assert!(error.to_string().starts_with("x:3: the record is longer than 64 MiB"), "{error}");
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
