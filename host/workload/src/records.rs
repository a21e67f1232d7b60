//! The records of a CSV trace, one at a time, in one reused buffer.

use std::io::{self, BufRead, Read};
use std::sync::Arc;

use blis_diag::{Diagnostic, LINE_BYTES_MAX, RowError};
use csv::ByteRecord;

use super::error::TraceError;

/// The records of a CSV, one at a time; a quoted field may contain commas and line ends.
pub(super) struct Records<R> {
    reader: csv::Reader<Limited<R>>,
    file: Arc<str>,
    pub record: ByteRecord,
}

/// An input that fails if one record takes too much of it: an unclosed quotation mark could turn the rest of the file
/// into one record that does not fit into memory.
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

    /// Reads the next record; false at the end.
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
                let fault = RowError::new(format!("the record is longer than {} MiB", LINE_BYTES_MAX >> 20));
                return fault
                    .hint("is a quotation mark missing, or is this the wrong file?")
                    .at(&self.file, start)
                    .into();
            }
            TraceError::Io { file: Arc::clone(&self.file), source }
        })
    }

    /// The diagnostic of a `fault` in the current record.
    pub fn locate(&self, fault: RowError) -> Diagnostic {
        fault.at(&self.file, self.record.position().map_or(0, csv::Position::line))
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn an_endless_record_is_refused() {
        let endless = b"a,b\n1,2\n\"".chain(BufReader::new(io::repeat(b'\n')));
        let mut records = Records::new(endless, &"x".into());
        assert!(records.advance().unwrap() && records.advance().unwrap());
        let error = records.advance().unwrap_err();
        assert!(error.to_string().starts_with("x:3: the record is longer than 32 MiB"), "{error}");
    }
}
