//! Knows where the words of a YAML file stand, and what to say of them.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_yaml::{Error, Location, MessageFormatter as _, UserMessageFormatter};

use super::error::SpecFileError;
use super::raw::Word;
use crate::config::policy::Spot;
use crate::workload::{name_hint, quoted};

/// One file.
pub(super) struct Reader<'a> {
    pub file: Arc<str>,
    pub text: &'a str,
}

/// What a number may be.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub fits: fn(f64) -> bool,
    pub text: &'static str,
}

pub(super) const ABOVE_0: Range = Range { fits: |number| number > 0.0, text: "a number above 0" };
pub(super) const FROM_0: Range = Range { fits: |number| number >= 0.0, text: "a number from 0 on" };
pub(super) const ANY: Range = Range { fits: |_| true, text: "a number" };

impl Reader<'_> {
    /// The whole file; `None` if it is empty.
    pub fn yaml<T: DeserializeOwned>(&self) -> Result<Option<T>, SpecFileError> {
        serde_yaml::from_str(self.text).map_err(|error| self.yaml_error(&error))
    }

    /// A number; `None` if it is not given.
    pub fn number(
        &self,
        who: &str,
        key: &str,
        word: Option<&Word>,
        range: Range,
    ) -> Result<Option<f64>, SpecFileError> {
        let Some(word) = word else { return Ok(None) };
        match real(&word.value).filter(|&number| number.is_finite() && (range.fits)(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.out_of_range(who, key, word, range.text)),
        }
    }

    /// A whole number, `1e6` and `2.0` included; `None` if it is not given.
    pub fn whole<T>(
        &self,
        who: &str,
        key: &str,
        word: Option<&Word>,
        range: RangeInclusive<T>,
    ) -> Result<Option<T>, SpecFileError>
    where
        T: FromStr + PartialOrd + Display,
    {
        let Some(word) = word else { return Ok(None) };
        let exponential = || real(&word.value).filter(|n| n.fract() == 0.0 && n.abs() < 1e15).map(|n| format!("{n}"));
        let number = word.value.parse().ok().or_else(|| exponential()?.parse().ok());
        match number.filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let text = format!("a whole number from {} to {}", range.start(), range.end());
                Err(self.out_of_range(who, key, word, &text))
            }
        }
    }

    /// `true` or `false`; `None` if it is not given.
    pub fn switch(&self, who: &str, key: &str, word: Option<&Word>) -> Result<Option<bool>, SpecFileError> {
        let Some(word) = word else { return Ok(None) };
        match word.value.as_str() {
            "true" | "True" | "TRUE" => Ok(Some(true)),
            "false" | "False" | "FALSE" => Ok(Some(false)),
            _ => Err(self.out_of_range(who, key, word, "`true` or `false`")),
        }
    }

    /// One of `known`; `None` if it is not given.
    pub fn one_of(
        &self,
        who: &str,
        key: &str,
        word: &Word,
        known: &[&'static str],
    ) -> Result<&'static str, SpecFileError> {
        known.iter().find(|name| **name == word.value).copied().ok_or_else(|| {
            let what = format!("{who}: `{key}` is {}", quoted(word.value.as_bytes()));
            let shown: Vec<&str> = known.iter().copied().filter(|name| !name.is_empty()).collect();
            self.wrong(word.referenced, what, name_hint(&word.value, &shown))
        })
    }

    /// What stands at `key` must be there.
    pub fn needs<T>(&self, who: &str, key: &str, value: Option<T>, at: Location) -> Result<T, SpecFileError> {
        value.ok_or_else(|| self.wrong(at, format!("{who}: `{key}` is missing"), format!("add `{key}: …`")))
    }

    pub fn out_of_range(&self, who: &str, key: &str, word: &Word, range: &str) -> SpecFileError {
        let what = format!("{who}: `{key}` is {}", quoted(word.value.as_bytes()));
        self.wrong(word.referenced, what, format!("it must be {range}"))
    }

    pub fn wrong(&self, at: Location, what: impl Into<String>, hint: impl Into<String>) -> SpecFileError {
        SpecFileError::at(self.spot(at), self.text, what, hint)
    }

    pub fn spot(&self, at: Location) -> Spot {
        let len = at.span().len().max(1);
        Spot { file: Arc::clone(&self.file), line: at.line().max(1), column: at.column().max(1), len }
    }

    /// What the YAML reader says, in our words where it knows less than we do.
    fn yaml_error(&self, error: &Error) -> SpecFileError {
        let error = error.without_snippet();
        let (what, hint) = match error {
            Error::SerdeUnknownField { field, expected, .. } => {
                (format!("unknown key {}", quoted(field.as_bytes())), name_hint(field, expected))
            }
            Error::Unexpected { expected: "mapping start", .. } => {
                ("keys with their values belong here".to_owned(), "write `key: value`, a line each".to_owned())
            }
            Error::Unexpected { expected: "sequence start", .. } => {
                ("a list belongs here".to_owned(), "write `- `, then an item, a line each".to_owned())
            }
            Error::Unexpected { expected: "string scalar", .. } => {
                ("a name or a number belongs here".to_owned(), "write it alone, without brackets or keys".to_owned())
            }
            Error::NullIntoString { .. } => ("the value is missing".to_owned(), "give one".to_owned()),
            Error::DuplicateMappingKey { key: Some(key), .. } => {
                (format!("{} is given twice", quoted(key.as_bytes())), "keep one of them".to_owned())
            }
            other => {
                // Control characters of the file must not reach a terminal.
                let what = UserMessageFormatter.format_message(other).replace(char::is_control, " ");
                (what, "mend the YAML; a value with special characters needs quotes".to_owned())
            }
        };
        match error.location() {
            Some(at) => self.wrong(at, what, hint),
            None => SpecFileError::whole(&self.file, what, hint),
        }
    }
}

/// Numbers as YAML 1.2 writes them. `+`, `.5` and `1e3` are understood by `parse` itself, and so
/// are infinities, which no range admits.
pub(super) fn real(text: &str) -> Option<f64> {
    text.parse().ok()
}
