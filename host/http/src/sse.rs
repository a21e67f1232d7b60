//! A reader of server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>, section 9.2.6): the
//! data of each event, whatever the parts in which the bytes come.

use std::fmt;

/// The bytes that came, up to the last complete line.
#[derive(Debug, Default)]
pub struct EventReader {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was a carriage return: a line feed after it ends no further line.
    after_return: bool,
}

/// Why a stream is no stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventError {
    /// A line or an event is longer than [`EventReader::LONGEST`].
    TooLong,
    /// An event is no UTF-8.
    NotText,
}

impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "an event of more than {} bytes", EventReader::LONGEST),
            Self::NotText => f.write_str("an event that is no UTF-8"),
        }
    }
}

impl EventReader {
    /// Maximum length of the data of an event, bytes.
    pub const LONGEST: usize = 1 << 20;

    /// Reads further bytes. Calls `each` with the data of every event that they complete.
    ///
    /// # Errors
    /// [`EventError`]; the stream cannot be read any further.
    pub fn read(&mut self, bytes: &[u8], mut each: impl FnMut(&str)) -> Result<(), EventError> {
        for part in bytes.split_inclusive(|&byte| byte == b'\n' || byte == b'\r') {
            let (content, end) = match part {
                [content @ .., end @ (b'\n' | b'\r')] => (content, Some(*end)),
                content => (content, None),
            };
            let after_return = std::mem::replace(&mut self.after_return, end == Some(b'\r'));
            if after_return && content.is_empty() && end == Some(b'\n') {
                continue;
            }
            if self.line.len() + content.len() > Self::LONGEST {
                return Err(EventError::TooLong);
            }
            self.line.extend_from_slice(content);
            if end.is_some() {
                self.end_line(&mut each)?;
            }
        }
        Ok(())
    }

    /// Whether bytes came that belong to no complete event.
    #[must_use]
    pub fn is_within_event(&self) -> bool {
        self.has_data || !self.line.is_empty()
    }

    fn end_line(&mut self, each: &mut impl FnMut(&str)) -> Result<(), EventError> {
        let line = std::mem::take(&mut self.line);
        let result = self.take_line(&line, each);
        self.line = line;
        self.line.clear();
        result
    }

    /// A line without its end: a field, a comment, or nothing, which ends an event.
    fn take_line(&mut self, line: &[u8], each: &mut impl FnMut(&str)) -> Result<(), EventError> {
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                let text = std::str::from_utf8(&self.data).map_err(|_| EventError::NotText)?;
                each(text);
            }
            self.data.clear();
            return Ok(());
        }
        let Some(value) = line.strip_prefix(b"data") else { return Ok(()) };
        let value = match value {
            [] => value,
            [b':', b' ', value @ ..] | [b':', value @ ..] => value,
            _ => return Ok(()), // a longer name
        };
        if self.data.len() + value.len() >= Self::LONGEST {
            return Err(EventError::TooLong);
        }
        if self.has_data {
            self.data.push(b'\n');
        }
        self.has_data = true;
        self.data.extend_from_slice(value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events(parts: &[&[u8]]) -> Result<Vec<String>, EventError> {
        let (mut reader, mut events) = (EventReader::default(), Vec::new());
        for part in parts {
            reader.read(part, |event| events.push(event.to_owned()))?;
        }
        Ok(events)
    }

    #[test]
    fn every_end_of_line_ends_a_line() {
        for stream in ["data: a\n\ndata:b\n\n", "data: a\r\n\r\ndata:b\r\n\r\n", "data: a\r\rdata:b\r\r"] {
            assert_eq!(events(&[stream.as_bytes()]).unwrap(), ["a", "b"], "{stream:?}");
        }
    }

    #[test]
    fn only_data_counts() {
        let stream = ": ping\nevent: x\nid: 7\ndata: one\ndata\ndata:  two\ndatabase: no\n\nretry: 5\n\n";
        assert_eq!(events(&[stream.as_bytes()]).unwrap(), ["one\n\n two"]);
        let mut reader = EventReader::default();
        reader.read(b"data: half", |_| panic!("not complete")).unwrap();
        assert!(reader.is_within_event());
    }

    #[test]
    fn what_is_no_stream_of_events_is_refused() {
        let long = vec![b'x'; 10 << 20];
        assert_eq!(events(&[&long]), Err(EventError::TooLong));
        let line = format!("data: {}\n", "x".repeat(1 << 19));
        assert_eq!(events(&[line.as_bytes(), line.as_bytes(), line.as_bytes()]), Err(EventError::TooLong));
        assert_eq!(events(&[b"data: \xff\n\n"]), Err(EventError::NotText));
    }

    proptest! {
        /// The parts in which a stream comes change nothing.
        #[test]
        fn a_stream_may_be_split_anywhere(
            stream in "(data: ?|[a-d:]{0,3}|\n|\r|\r\n|é){0,40}",
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let bytes = stream.as_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let parts: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(events(&parts), events(&[bytes]));
        }
    }
}
