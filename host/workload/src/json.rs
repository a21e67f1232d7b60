//! JSON as serving tools write it: numbers as text, counts as `1e3`, Python's `NaN`.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufRead, Read};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::de::{self, DeserializeOwned, Visitor};
use serde::{Deserialize, Deserializer};

use super::error::TraceError;
use super::field;
use blis_diag::{LINE_BYTES_MAX, RowError, check_json_object, json_error};

/// Reads the JSON object on a line. Bare `NaN` and `Infinity`, which Python writes, count as missing; `scratch` holds
/// the line without them, if there are any.
pub(super) fn object<'a, T: Deserialize<'a>>(line: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<T, RowError> {
    check_json_object(line)?;
    let error = match serde_json::from_slice(line) {
        Ok(record) => return Ok(record),
        Err(error) => error,
    };
    let mut plain = NanFilter::default();
    scratch.clear();
    scratch.extend(line.iter().map(|&byte| plain.byte(byte)));
    if scratch == line {
        return Err(json_error(&error));
    }
    serde_json::from_slice(scratch).map_err(|error| json_error(&error))
}

/// The value of a mandatory field.
pub(super) fn need<T>(value: Option<T>, name: &str) -> Result<T, RowError> {
    value.ok_or_else(|| RowError::new(format!("`{name}` is missing")))
}

/// Bytes of JSON in which `NaN` and `Infinity` outside of strings become `""`, padded so that columns stay the same.
#[derive(Clone, Copy, Debug, Default)]
struct NanFilter {
    in_string: bool,
    escaped: bool,
    /// The rest of the word that is being replaced.
    rest: &'static [u8],
    second: bool,
}

impl NanFilter {
    fn byte(&mut self, byte: u8) -> u8 {
        if let Some((&expected, rest)) = self.rest.split_first() {
            if byte == expected {
                self.rest = rest;
                return if std::mem::take(&mut self.second) { b'"' } else { b' ' };
            }
            // It is another word: the text is not JSON in either case.
            self.rest = &[];
        }
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_string => self.escaped = true,
            b'"' => self.in_string = !self.in_string,
            b'N' | b'I' if !self.in_string => {
                self.rest = if byte == b'N' { b"aN" } else { b"nfinity" };
                self.second = true;
                return b'"';
            }
            _ => {}
        }
        byte
    }
}

/// The documents of a JSON file, which may span lines, read without keeping the text.
pub(super) struct Documents<R: BufRead, T> {
    documents: serde_json::StreamDeserializer<'static, serde_json::de::IoRead<JsonBytes<R>>, T>,
    file: Arc<str>,
    lines: Arc<AtomicU64>,
    kind: PhantomData<T>,
}

impl<R: BufRead, T: DeserializeOwned> Documents<R, T> {
    pub fn new(input: R, file: &Arc<str>) -> Self {
        let lines = Arc::new(AtomicU64::new(1));
        let plain = NanFilter::default();
        let source = JsonBytes { input, lines: Arc::clone(&lines), plain, started: false, since_token: 0 };
        let documents = serde_json::Deserializer::from_reader(source).into_iter();
        Self { documents, file: Arc::clone(file), lines, kind: PhantomData }
    }

    /// The next document; `None` at the end.
    pub fn next(&mut self) -> Result<Option<T>, TraceError> {
        let error = match self.documents.next().transpose() {
            Ok(document) => return Ok(document),
            Err(error) => error,
        };
        let file = Arc::clone(&self.file);
        if error.is_io() {
            let source = io::Error::from(error);
            if source.kind() == io::ErrorKind::FileTooLarge {
                let fault = RowError::new(format!("a value is longer than {} MiB", LINE_BYTES_MAX >> 20));
                return Err(fault.hint("is this the right file?").at(&file, self.line()).into());
            }
            return Err(TraceError::Io { file, source });
        }
        let line = if error.line() > 0 { error.line() as u64 } else { self.line() };
        Err(json_error(&error).at(&file, line).into())
    }

    /// The line in which the current document ends.
    pub fn line(&self) -> u64 {
        self.lines.load(Ordering::Relaxed)
    }
}

/// The bytes that [`Documents`] reads.
struct JsonBytes<R> {
    input: R,
    lines: Arc<AtomicU64>,
    plain: NanFilter,
    started: bool,
    /// Bytes since the last bracket, comma, colon or end of a string. The parser keeps a string or a number whole, and goes over
    /// spaces as long as there are some, so that without a limit an endless one fills the memory or takes forever.
    since_token: u64,
}

impl<R: BufRead> Read for JsonBytes<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut available = self.input.fill_buf()?;
        if !std::mem::replace(&mut self.started, true) && available.starts_with(b"\xef\xbb\xbf") {
            self.input.consume(3);
            available = self.input.fill_buf()?;
        }
        let length = available.len().min(buffer.len());
        for (to, &from) in buffer.iter_mut().zip(available) {
            let in_string = self.plain.in_string;
            *to = self.plain.byte(from);
            if from == b'\n' {
                self.lines.fetch_add(1, Ordering::Relaxed);
            }
            let ends_string = in_string && !self.plain.in_string;
            let is_token = !in_string && matches!(from, b',' | b':' | b'{' | b'}' | b'[' | b']');
            self.since_token = if ends_string || is_token { 0 } else { self.since_token + 1 };
        }
        self.input.consume(length);
        if self.since_token > LINE_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(length)
    }
}

/// A number, possibly written as text; integers are exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Whole(u64),
    /// A finite number that is no integer.
    Real(f64),
}

/// Units of time, in ns.
pub(super) const NANOSECOND: u64 = 1;
pub(super) const MICROSECOND: u64 = 1_000;
pub(super) const MILLISECOND: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000_000_000;

impl Number {
    /// The number as a count that fits 32 bits.
    pub fn count(self, name: &str) -> Result<u32, RowError> {
        match self {
            Self::Whole(value) => field::fits_u32(value, name),
            Self::Real(value) if value < 0.0 => Err(RowError::new(format!("`{name}` is negative: `{value}`"))),
            Self::Real(value) if value.fract() != 0.0 => {
                Err(RowError::new(format!("`{name}` is not a whole number: `{value}`")))
            }
            // The conversion of a float clamps at 2^64, which is far beyond the limit.
            Self::Real(value) => field::fits_u32(value as u64, name),
        }
    }

    /// The number as a prompt length, at least 1.
    pub fn prompt(self, name: &str) -> Result<u32, RowError> {
        field::prompt_tokens(self.count(name)?, name)
    }

    /// The number as a time in µs, if it counts units of so many ns. Integers are truncated to whole µs; floats, which
    /// are not exact, are rounded.
    pub fn micros(self, name: &str, unit: u64) -> Result<u64, RowError> {
        let us = match self {
            Self::Whole(value) => u64::try_from(u128::from(value) * u128::from(unit) / 1_000).ok(),
            Self::Real(value) if value < 0.0 => {
                return Err(RowError::new(format!("`{name}` is negative: `{value}`")));
            }
            Self::Real(value) => Some((value * (unit as f64 / 1e3)).round() as u64),
        };
        us.filter(|&us| us < i64::MAX as u64)
            .ok_or_else(|| RowError::new(format!("`{name}` is too large: `{:?}`", self.real())))
    }

    pub fn real(self) -> f64 {
        match self {
            Self::Whole(value) => value as f64,
            Self::Real(value) => value,
        }
    }

    fn of_text(text: &str) -> Option<Self> {
        let text = text.trim();
        let whole = text.parse().ok().map(Self::Whole);
        whole.or_else(|| text.parse().ok().filter(|value: &f64| value.is_finite()).map(Self::Real))
    }
}

/// Reads a type by a method of its deserializer, with what each kind of value means.
macro_rules! deserialize_by_kind {
    ($type:ty, $expected:literal, $deserialize:ident, { $($visit:ident($($value:ident: $of:ty)?) => $read:expr,)+ }) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Kinds;
                impl serde::de::Visitor<'_> for Kinds {
                    type Value = $type;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expected)
                    }
                    $(fn $visit<E: serde::de::Error>(self, $($value: $of)?) -> Result<$type, E> {
                        $read
                    })+
                }
                deserializer.$deserialize(Kinds)
            }
        }
    };
}

pub(super) use deserialize_by_kind;

deserialize_by_kind!(Number, "a number", deserialize_any, {
    visit_u64(value: u64) => Ok(Number::Whole(value)),
    visit_i64(value: i64) => Ok(u64::try_from(value).map_or(Number::Real(value as f64), Number::Whole)),
    visit_f64(value: f64) => Ok(Number::Real(value)),
    visit_str(text: &str) => {
        // An empty string replaces `NaN` here.
        let not_finite = || E::custom("not a finite number");
        let no_number = || E::invalid_value(de::Unexpected::Str(text), &"a number");
        Number::of_text(text).ok_or_else(|| if text.is_empty() { not_finite() } else { no_number() })
    },
});

/// A measured number, which may be missing: `null`, or Python's `NaN`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct MeasuredNumber(pub Option<f64>);

deserialize_by_kind!(MeasuredNumber, "a number or null", deserialize_any, {
    visit_u64(value: u64) => Ok(MeasuredNumber(Some(value as f64))),
    visit_i64(value: i64) => Ok(MeasuredNumber(Some(value as f64))),
    visit_f64(value: f64) => Ok(MeasuredNumber(Some(value))),
    // An empty string replaces `NaN` here.
    visit_str(text: &str) => Ok(MeasuredNumber(Number::of_text(text).map(Number::real))),
    visit_unit() => Ok(MeasuredNumber(None)),
});

/// A name that may be written as a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Label<'a>(pub Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Label<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LabelVisitor;
        impl<'de> Visitor<'de> for LabelVisitor {
            type Value = Label<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name or a whole number")
            }
            fn visit_borrowed_str<E: de::Error>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(Label(name.into()))
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
                Ok(Label(name.to_owned().into()))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
                Ok(Label(number.to_string().into()))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                Ok(Label(number.to_string().into()))
            }
        }
        deserializer.deserialize_any(LabelVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Deserialize, Debug, PartialEq)]
    struct NumberRecord<'a> {
        n: Option<Number>,
        #[serde(borrow, default)]
        name: Option<Label<'a>>,
    }

    fn number(text: &str) -> Result<Option<Number>, String> {
        let mut scratch = Vec::new();
        object::<NumberRecord<'_>>(format!("{{\"x\": 1, \"n\": {text}}}").as_bytes(), &mut scratch)
            .map(|record| record.n)
            .map_err(|fault| format!("{}: {}", fault.column.unwrap_or(0), fault.what()))
    }

    #[test]
    fn numbers_may_be_written_in_many_ways() {
        assert_eq!(number("18446744073709551615"), Ok(Some(Number::Whole(u64::MAX))));
        assert_eq!(number("\" 12 \""), Ok(Some(Number::Whole(12))));
        assert_eq!(number("\"1.5e2\""), Ok(Some(Number::Real(150.0))));
        assert_eq!(number("-1"), Ok(Some(Number::Real(-1.0))));
        assert_eq!(number("null"), Ok(None));
        assert_eq!(Number::Real(1e3).count("n"), Ok(1000));
        assert_eq!(Number::Whole(1_700_000_000_123_456_789).micros("n", NANOSECOND), Ok(1_700_000_000_123_456));
        assert_eq!(Number::Real(0.5).micros("n", MILLISECOND), Ok(500));
        assert!(Number::Whole(u64::MAX).micros("n", SECOND).is_err() && Number::Real(1e300).micros("n", 1).is_err());
        insta::assert_snapshot!(number("NaN").unwrap_err(), @"16: not a finite number");
        insta::assert_snapshot!(number("[NaN]").unwrap_err(), @"15: invalid type: sequence, expected a number");
        insta::assert_snapshot!(number("\"many\"").unwrap_err(), @r#"20: invalid value: string "many", expected a number"#);
        insta::assert_snapshot!(number("1e999").unwrap_err(), @"19: number out of range");
        insta::assert_snapshot!(number("1, \"n\": 2").unwrap_err(), @"20: duplicate field `n`");
    }

    #[test]
    fn what_python_writes_for_no_number_is_passed_over() {
        let line = br#"{"a": [NaN, Infinity, "NaN \" Infinity", {"b": NaN}], "n": 7, "name": "NaN"}"#;
        let mut scratch = Vec::new();
        let record: NumberRecord<'_> = object(line, &mut scratch).unwrap();
        assert_eq!((record.n, record.name), (Some(Number::Whole(7)), Some(Label("NaN".into()))));
    }

    #[test]
    fn documents_may_be_spread_over_lines_and_share_one() {
        let text = "\u{feff}[1]\n\n[2,\n3][NaN\n]";
        let mut documents: Documents<_, Vec<serde_json::Value>> = Documents::new(text.as_bytes(), &"x".into());
        assert_eq!((documents.next().unwrap().unwrap().len(), documents.line()), (1, 1));
        assert_eq!((documents.next().unwrap().unwrap().len(), documents.line()), (2, 4));
        assert_eq!((documents.next().unwrap().unwrap().len(), documents.line()), (1, 5));
        assert!(documents.next().unwrap().is_none());
        let mut documents: Documents<_, Vec<u8>> = Documents::new(b"[1,\n2,x]".as_slice(), &"x".into());
        assert_eq!(documents.next().unwrap_err().to_string(), "x:2:3: expected value");
    }

    proptest! {
        #[test]
        fn json_without_nan_is_left_alone(text in "\\PC{0,20}", n: f64) {
            let line = serde_json::json!({ "text": text, "n": n }).to_string();
            let mut plain = NanFilter::default();
            let after: Vec<u8> = line.bytes().map(|byte| plain.byte(byte)).collect();
            prop_assert_eq!(after, line.into_bytes());
        }
    }
}
