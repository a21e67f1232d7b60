//! Strict YAML: values with their locations, ranges of numbers, and messages about mistakes.
//!
//! Values of policy bundles and workload specifications are read as text with its location and parsed afterwards. An
//! error can therefore show the line and say which values are valid, instead of YAML's type names.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::{Diagnostic, Location, name_hint, quoted};
pub use error::{Error, Fault, Shape};
use node::YamlNode;
pub use spanned::{Mark, Spanned, Word};
pub use value::{Entries, Value};

mod deserialize;
mod error;
mod node;
mod numbers;
mod spanned;
#[cfg(test)]
mod tests;
mod value;

/// A YAML file with its text.
#[derive(Clone, Debug)]
pub struct Document<'a> {
    pub file: Arc<str>,
    pub text: &'a str,
}

/// The valid values of a number, and their description in messages.
#[derive(Clone, Copy)]
pub struct NumberRange {
    pub fits: fn(f64) -> bool,
    pub text: &'static str,
}

pub const ANY: NumberRange = NumberRange { fits: |_| true, text: "a number" };
pub const ABOVE_0: NumberRange = NumberRange { fits: |number| number > 0.0, text: "a number above 0" };
pub const FROM_0: NumberRange = NumberRange { fits: |number| number >= 0.0, text: "a number from 0 on" };

impl Document<'_> {
    /// The document; `None` if the file is empty.
    pub fn read<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        let node = YamlNode::read(self.text)?;
        if node.is_null() { Ok(None) } else { node.to().map(Some) }
    }

    /// A finite number within `range`. `name` is the subject of the message.
    pub fn number(&self, name: impl Display, word: &Word, range: NumberRange) -> Result<f64, Diagnostic> {
        let number = real(&word.value).filter(|&number| number.is_finite() && (range.fits)(number));
        number.ok_or_else(|| self.out_of_range(name, word, range.text))
    }

    /// An integer within `range`; `1e6` and `2.0` are integers too.
    pub fn whole<T>(&self, name: impl Display, word: &Word, range: RangeInclusive<T>) -> Result<T, Diagnostic>
    where
        T: FromStr + PartialOrd + Display,
    {
        let exponential = || real(&word.value).filter(|n| n.fract() == 0.0 && n.abs() < 1e15).map(|n| format!("{n}"));
        let number = word.value.parse().ok().or_else(|| exponential()?.parse().ok());
        number.filter(|number| range.contains(number)).ok_or_else(|| {
            let text = format!("a whole number from {} to {}", range.start(), range.end());
            self.out_of_range(name, word, &text)
        })
    }

    /// Refuses a plain value that continues on the next line. YAML joins the lines with a blank, which is rarely meant:
    /// usually the next line lacks a `:` or has the wrong indentation.
    pub fn check_one_line(&self, name: impl Display, word: &Word) -> Result<(), Diagnostic> {
        let at = word.referenced;
        let [line, column, len] =
            [at.line().max(1) - 1, at.column().max(1) - 1, at.len()].map(|number| number as usize);
        let rest = self.text.split_inclusive('\n').skip(line).flat_map(str::chars);
        let source: String = rest.skip(column).take(len).collect();
        if source.starts_with(['"', '\'', '|', '>']) || !source.trim_end().contains('\n') {
            return Ok(());
        }
        let what = format!("{name} continues on the next line: YAML reads {}", quoted(word.value.as_bytes()));
        let hint = "write the value on one line; a key needs a `:` and the indentation of its neighbours";
        Err(self.wrong(word.referenced, what, hint))
    }

    pub fn out_of_range(&self, name: impl Display, word: &Word, range: &str) -> Diagnostic {
        let what = format!("{name} is {}", quoted(word.value.as_bytes()));
        self.wrong(word.referenced, what, format!("it must be {range}"))
    }

    pub fn wrong(&self, at: Mark, what: impl Into<String>, hint: impl Into<String>) -> Diagnostic {
        Diagnostic::in_text(self.location(at), self.text, what).hint(hint)
    }

    pub fn location(&self, at: Mark) -> Location {
        let len = at.len().max(1);
        Location::file(Arc::clone(&self.file)).characters(at.line().max(1), at.column().max(1), len)
    }
}

/// The whole of `text`; a file without values is a map without keys.
///
/// # Errors
/// What is wrong with it, and where.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    YamlNode::read(text)?.or_empty_map().to()
}

/// What is wrong with a file, and what to do.
pub fn explain(error: &Error) -> (String, String) {
    match error.fault() {
        Fault::UnknownKey { key, known } => (format!("unknown key {}", quoted(key.as_bytes())), name_hint(key, known)),
        Fault::UnknownName { name, known } => {
            let known: Vec<&str> = known.iter().map(|&name| if name.is_empty() { "\"\"" } else { name }).collect();
            (format!("unknown value {}", quoted(name.as_bytes())), name_hint(name, &known))
        }
        Fault::MissingKey(key) => (format!("`{key}` is missing"), format!("add `{key}: …`")),
        Fault::Shape(shape) => {
            let (what, hint) = shape.explain();
            (what.to_owned(), hint.to_owned())
        }
        Fault::Value { text, range } => {
            (format!("the value is {}", quoted(text.as_bytes())), format!("it must be {range}"))
        }
        Fault::NoValue => (error.to_string(), "give one".to_owned()),
        Fault::Yaml(serde_yaml::Error::DuplicateMappingKey { key: Some(key), .. }) => {
            (format!("{} is given twice", quoted(key.as_bytes())), "keep one of them".to_owned())
        }
        _ => (error.to_string(), "correct the YAML; a value with special characters needs quotes".to_owned()),
    }
}

/// A number in the notation of YAML 1.2. `parse` itself reads `+`, `.5` and `1e3`.
pub fn real(text: &str) -> Option<f64> {
    match text {
        ".nan" | ".NaN" | ".NAN" => Some(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Some(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Some(f64::NEG_INFINITY),
        _ => text.parse().ok(),
    }
}
