//! Messages on a pipe or socket between two processes of this program: kind, length, content.

use std::io::{self, Read, Write};

use serde::Serialize;

/// Bytes before the content: the kind, and the length as a little-endian number.
const HEAD_BYTES: usize = 9;
/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 16;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Number of simulations that have completed.
    Progress(u64),
    /// Further facts, as JSON.
    Note(Vec<u8>),
    /// The result, as JSON. The last frame.
    Done(Vec<u8>),
}

impl Frame {
    pub(crate) fn note(value: &impl Serialize) -> Self {
        // Only maps with keys that are no text have no JSON form; we have none.
        Self::Note(serde_json::to_vec(value).unwrap_or_default())
    }

    pub(crate) fn done(value: &impl Serialize) -> Self {
        Self::Done(serde_json::to_vec(value).unwrap_or_default())
    }

    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let number;
        let (kind, content): (u8, &[u8]) = match self {
            Self::Progress(simulations) => {
                number = simulations.to_le_bytes();
                (0, &number)
            }
            Self::Note(content) => (1, content),
            Self::Done(content) => (2, content),
        };
        let mut bytes = Vec::with_capacity(HEAD_BYTES + content.len());
        bytes.push(kind);
        bytes.extend((content.len() as u64).to_le_bytes());
        bytes.extend(content);
        out.write_all(&bytes)
    }
}

/// Bytes that were read, until they make whole frames.
#[derive(Debug, Default)]
pub(crate) struct FrameBuffer(Vec<u8>);

impl FrameBuffer {
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next whole frame.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let (head, content) = self.0.split_at_checked(HEAD_BYTES)?;
        let length = usize::try_from(u64::from_le_bytes(head[1..].try_into().ok()?)).ok()?;
        let content = content.get(..length)?;
        let frame = match head[0] {
            0 => Frame::Progress(content.try_into().map_or(0, u64::from_le_bytes)),
            1 => Frame::Note(content.to_vec()),
            _ => Frame::Done(content.to_vec()),
        };
        self.0.drain(..HEAD_BYTES + length);
        Some(frame)
    }
}

/// Reads once what is there, and appends it to `bytes`. Returns whether the other end is still open.
pub(crate) fn read_some(from: &mut impl Read, mut keep: impl FnMut(&[u8])) -> bool {
    let mut bytes = [0; READ_BYTES];
    match from.read(&mut bytes) {
        Ok(0) => false,
        Ok(count) => {
            keep(&bytes[..count]);
            true
        }
        Err(error) => matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame() -> impl Strategy<Value = Frame> {
        let content = || prop::collection::vec(any::<u8>(), 0..40);
        prop_oneof![
            any::<u64>().prop_map(Frame::Progress),
            content().prop_map(Frame::Note),
            content().prop_map(Frame::Done)
        ]
    }

    proptest! {
        /// However the bytes are cut into pieces.
        #[test]
        fn frames_arrive_as_they_were_written(frames in prop::collection::vec(frame(), 0..6), piece in 1..30_usize) {
            let mut bytes = Vec::new();
            for frame in &frames {
                frame.write(&mut bytes).expect("memory");
            }
            let (mut buffer, mut read) = (FrameBuffer::default(), Vec::new());
            for piece in bytes.chunks(piece) {
                buffer.extend(piece);
                while let Some(frame) = buffer.next() {
                    read.push(frame);
                }
            }
            prop_assert_eq!(read, frames);
        }
    }
}
