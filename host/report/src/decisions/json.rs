//! Writes lines of JSON field by field into one buffer, at a cost close to that of copying the bytes.

use std::io::{self, Write};

/// The text before a value: `,"name":`.
macro_rules! key {
    ($name:literal) => {
        concat!(",\"", $name, "\":")
    };
}
pub(super) use key;

/// Lines in a buffer that is written in chunks.
#[derive(Debug)]
pub(super) struct JsonLines<W> {
    out: W,
    buffer: Vec<u8>,
    /// Number of lines that were begun.
    count: u64,
    /// The first error of the output; nothing is written after it.
    failed: Option<io::Error>,
}

/// Number of bytes that are written at once; small enough for the processor's caches.
const CHUNK: usize = 32 << 10;

impl<W: Write> JsonLines<W> {
    pub fn new(out: W) -> Self {
        Self { out, buffer: Vec::with_capacity(2 * CHUNK), count: 0, failed: None }
    }

    /// Number of lines begun so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Begins a line with `start`, which opens an object and contains its first field.
    #[inline]
    pub fn begin(&mut self, start: &str) {
        self.count += 1;
        self.raw(start);
    }

    #[inline]
    pub fn end(&mut self) {
        self.raw("}\n");
        if self.buffer.len() >= CHUNK {
            self.write();
        }
    }

    /// Adds text that is valid JSON.
    #[inline]
    pub fn raw(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
    }

    #[inline]
    pub fn int(&mut self, key: &'static str, value: impl itoa::Integer) {
        self.raw(key);
        self.raw(itoa::Buffer::new().format(value));
    }

    /// Adds a number; nothing if it is 0.
    #[inline]
    pub fn int_unless_0(&mut self, key: &'static str, value: impl itoa::Integer + Default + PartialEq) {
        if value != Default::default() {
            self.int(key, value);
        }
    }

    /// Adds a text that needs no escapes.
    pub fn name(&mut self, key: &'static str, name: &'static str) {
        self.raw(key);
        self.raw("\"");
        self.raw(name);
        self.raw("\"");
    }

    pub fn bool(&mut self, key: &'static str, value: bool) {
        self.raw(key);
        self.raw(if value { "true" } else { "false" });
    }

    pub fn float(&mut self, key: &'static str, value: f64) {
        self.raw(key);
        self.bare_float(value);
    }

    fn bare_float(&mut self, value: f64) {
        if value.is_finite() {
            self.raw(zmij::Buffer::new().format_finite(value));
        } else {
            self.raw("null");
        }
    }

    pub fn ints<I: itoa::Integer + Copy>(&mut self, key: &'static str, values: &[I]) {
        self.raw(key);
        self.raw("[");
        let mut digits = itoa::Buffer::new();
        for (i, &value) in values.iter().enumerate() {
            if i > 0 {
                self.buffer.push(b',');
            }
            self.buffer.extend_from_slice(digits.format(value).as_bytes());
        }
        self.raw("]");
    }

    pub fn floats(&mut self, key: &'static str, values: &[f64]) {
        self.raw(key);
        self.raw("[");
        for (i, &value) in values.iter().enumerate() {
            if i > 0 {
                self.raw(",");
            }
            self.bare_float(value);
        }
        self.raw("]");
    }

    /// A field with text, escaped as JSON needs it.
    pub fn text(&mut self, key: &'static str, text: &str) {
        self.raw(key);
        let plain = text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
        if plain {
            self.raw("\"");
            self.raw(text);
            self.raw("\"");
        } else {
            serde_json::to_writer(&mut self.buffer, text).expect("text is JSON");
        }
    }

    /// Adds a field with text, escaped; nothing if the text is empty.
    pub fn text_unless_empty(&mut self, key: &'static str, text: &str) {
        if !text.is_empty() {
            self.text(key, text);
        }
    }

    fn write(&mut self) {
        if self.failed.is_none() {
            self.failed = self.out.write_all(&self.buffer).err();
        }
        self.buffer.clear();
    }

    /// Writes the rest of the buffer.
    pub fn finish(mut self) -> io::Result<W> {
        self.write();
        match self.failed {
            Some(error) => Err(error),
            None => self.out.flush().map(|()| self.out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn line(write: impl FnOnce(&mut JsonLines<Vec<u8>>)) -> Value {
        let mut lines = JsonLines::new(Vec::new());
        lines.begin("{\"kind\":\"test\"");
        write(&mut lines);
        lines.end();
        let bytes = lines.finish().expect("memory");
        assert_eq!(bytes.last(), Some(&b'\n'));
        serde_json::from_slice(&bytes).expect("JSON")
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(text: String, int: i64, ints: Vec<u32>, float: f64, floats: Vec<f64>) {
            let read = line(|lines| {
                lines.text(key!("text"), &text);
                lines.int(key!("int"), int);
                lines.ints(key!("ints"), &ints);
                lines.float(key!("float"), float);
                lines.floats(key!("floats"), &floats);
            });
            prop_assert_eq!(&read["text"], &Value::from(text));
            prop_assert_eq!(&read["int"], &Value::from(int));
            prop_assert_eq!(&read["ints"], &Value::from(ints));
            prop_assert_eq!(read["float"].as_f64(), Some(float).filter(|float| float.is_finite()));
            let back: Vec<_> = read["floats"].as_array().expect("a list").iter().map(Value::as_f64).collect();
            let floats: Vec<_> = floats.into_iter().map(|float| Some(float).filter(|float| float.is_finite())).collect();
            prop_assert_eq!(back, floats);
        }
    }

    #[test]
    fn what_goes_without_saying_is_left_out() {
        let read = line(|lines| {
            lines.int_unless_0(key!("zero"), 0);
            lines.int_unless_0(key!("one"), 1);
            lines.text_unless_empty(key!("empty"), "");
        });
        assert_eq!(read, serde_json::json!({"kind": "test", "one": 1}));
    }

    /// Accepts some bytes, then fails.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_reported_at_the_end() {
        let mut lines = JsonLines::new(Full(100_000));
        for i in 0..100_000 {
            lines.begin("{\"kind\":\"test\"");
            lines.int(key!("i"), i);
            lines.end();
        }
        assert_eq!(lines.count(), 100_000);
        assert_eq!(lines.finish().map(|_| ()).expect_err("full").kind(), io::ErrorKind::StorageFull);
    }
}
