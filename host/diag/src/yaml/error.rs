//! Why a YAML file was not read.

use std::fmt::{self, Display};

use serde::de;
use serde_yaml::{MessageFormatter as _, UserMessageFormatter};

use super::spanned::Mark;
use crate::quoted;

/// A mistake in a file, with its location.
#[derive(Debug)]
pub struct Error(Box<(Fault, Option<Mark>)>);

/// The kinds of mistakes in a file.
#[derive(Debug)]
pub enum Fault {
    /// The file is not YAML, has a repeated key, or is too large.
    Yaml(serde_yaml::Error),
    UnknownKey {
        key: String,
        known: &'static [&'static str],
    },
    /// A word that is none of those possible here.
    UnknownName {
        name: String,
        known: &'static [&'static str],
    },
    MissingKey(&'static str),
    /// A value of another shape is expected here.
    Shape(Shape),
    /// A key without its value.
    NoValue,
    /// A scalar outside `range`.
    Value {
        text: String,
        range: String,
    },
    /// Anything else; in words for the user.
    Other(String),
}

/// The shapes of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Map,
    List,
    Word,
}

impl Error {
    pub(super) fn new(fault: Fault) -> Self {
        Self(Box::new((fault, None)))
    }

    /// The value `text` is outside `range`.
    pub(super) fn value(text: &str, range: impl Display) -> Self {
        Self::new(Fault::Value { text: text.to_owned(), range: range.to_string() })
    }

    /// Locates it, unless that was done.
    pub(super) fn or_at(mut self, mark: Mark) -> Self {
        self.0.1.get_or_insert(mark);
        self
    }

    /// The mistake.
    pub fn fault(&self) -> &Fault {
        &self.0.0
    }

    /// Where, if known.
    pub fn location(&self) -> Option<Mark> {
        self.0.1
    }
}

impl Shape {
    /// The mistake if the shape is missing, and a hint.
    pub(super) fn explain(self) -> (&'static str, &'static str) {
        match self {
            Self::Map => ("keys with values are expected here", "write `key: value`, one per line"),
            Self::List => ("a list is expected here", "write `- ` and an item, one per line"),
            Self::Word => ("a name or a number is expected here", "write it alone, without brackets or keys"),
        }
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault() {
            // Control characters of the file must not reach a terminal.
            Fault::Yaml(error) => {
                f.write_str(&UserMessageFormatter.format_message(error).replace(char::is_control, " "))
            }
            Fault::UnknownKey { key, known } => {
                write!(f, "unknown field {}, expected one of {}", quoted(key.as_bytes()), known.join(", "))
            }
            Fault::UnknownName { name, known } => {
                write!(f, "unknown variant {}, expected one of {}", quoted(name.as_bytes()), known.join(", "))
            }
            Fault::MissingKey(key) => write!(f, "missing field `{key}`"),
            Fault::Shape(shape) => f.write_str(shape.explain().0),
            Fault::NoValue => f.write_str("the value is missing"),
            Fault::Value { text, range } => write!(f, "the value is {}, not {range}", quoted(text.as_bytes())),
            Fault::Other(what) => f.write_str(&what.replace(char::is_control, " ")),
        }
    }
}

impl std::error::Error for Error {}

impl From<serde_yaml::Error> for Error {
    fn from(error: serde_yaml::Error) -> Self {
        let location = error.location().map(Mark::from);
        Self(Box::new((Fault::Yaml(error), location)))
    }
}

impl de::Error for Error {
    fn custom<T: Display>(what: T) -> Self {
        Self::new(Fault::Other(what.to_string()))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(Fault::UnknownKey { key: field.to_owned(), known: expected })
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(Fault::UnknownName { name: variant.to_owned(), known: expected })
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(Fault::MissingKey(field))
    }
}
