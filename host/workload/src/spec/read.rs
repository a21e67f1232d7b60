//! Reads the words of a YAML file with their locations, and reports mistakes in them.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::de::DeserializeOwned;

use super::error::SpecFileError;
use blis_diag::Location;
pub(super) use blis_diag::yaml::{ABOVE_0, ANY, FROM_0, Mark, NumberRange, Word, real};
use blis_diag::yaml::{Document, explain};
use blis_diag::{name_hint, quoted};

pub(super) struct SpecReader<'a>(Document<'a>);

impl<'a> SpecReader<'a> {
    /// The file `file` with the content `text`.
    pub fn new(file: &str, text: &'a str) -> Self {
        Self(Document { file: file.into(), text })
    }

    /// The name of the file, as the user wrote it.
    pub fn file(&self) -> &str {
        &self.0.file
    }

    /// The whole document; `None` if the file is empty.
    pub fn yaml<T: DeserializeOwned>(&self) -> Result<Option<T>, SpecFileError> {
        self.0.read().map_err(|error| {
            let (what, mut hint) = explain(&error);
            if [".csv", ".jsonl", ".gz"].iter().any(|ending| self.file().ends_with(ending)) {
                "`--workload-trace FILE` reads recorded requests".clone_into(&mut hint);
            }
            match error.location() {
                Some(at) => self.wrong(at, what, hint),
                None => SpecFileError::whole(self.file(), what, hint),
            }
        })
    }

    /// A number; `None` if it is not given.
    pub fn number(
        &self,
        subject: &str,
        key: &str,
        word: Option<&Word>,
        range: NumberRange,
    ) -> Result<Option<f64>, SpecFileError> {
        let Some(word) = word else { return Ok(None) };
        Ok(Some(self.0.number(format_args!("{subject}: `{key}`"), word, range)?))
    }

    /// An integer, `1e6` and `2.0` included; `None` if it is not given.
    pub fn whole<T>(
        &self,
        subject: &str,
        key: &str,
        word: Option<&Word>,
        range: RangeInclusive<T>,
    ) -> Result<Option<T>, SpecFileError>
    where
        T: FromStr + PartialOrd + Display,
    {
        let Some(word) = word else { return Ok(None) };
        Ok(Some(self.0.whole(format_args!("{subject}: `{key}`"), word, range)?))
    }

    /// `true` or `false`; `None` if it is not given.
    pub fn switch(&self, subject: &str, key: &str, word: Option<&Word>) -> Result<Option<bool>, SpecFileError> {
        let Some(word) = word else { return Ok(None) };
        match word.value.as_str() {
            "true" | "True" | "TRUE" => Ok(Some(true)),
            "false" | "False" | "FALSE" => Ok(Some(false)),
            _ => Err(self.out_of_range(subject, key, word, "`true` or `false`")),
        }
    }

    /// One of the `known` values; `None` if it is not given.
    pub fn one_of(
        &self,
        subject: &str,
        key: &str,
        word: &Word,
        known: &[&'static str],
    ) -> Result<&'static str, SpecFileError> {
        known.iter().find(|name| **name == word.value).copied().ok_or_else(|| {
            let what = format!("{subject}: `{key}` is {}", quoted(word.value.as_bytes()));
            let shown: Vec<&str> = known.iter().copied().filter(|name| !name.is_empty()).collect();
            self.wrong(word.referenced, what, name_hint(&word.value, &shown))
        })
    }

    /// The value of the mandatory key `key`.
    pub fn needs<T>(&self, subject: &str, key: &str, value: Option<T>, at: Mark) -> Result<T, SpecFileError> {
        value.ok_or_else(|| self.wrong(at, format!("{subject}: `{key}` is missing"), format!("add `{key}: …`")))
    }

    pub fn out_of_range(&self, subject: &str, key: &str, word: &Word, range: &str) -> SpecFileError {
        self.0.out_of_range(format_args!("{subject}: `{key}`"), word, range).into()
    }

    pub fn wrong(&self, at: Mark, what: impl Into<String>, hint: impl Into<String>) -> SpecFileError {
        self.0.wrong(at, what, hint).into()
    }

    pub fn location(&self, at: Mark) -> Location {
        self.0.location(at)
    }
}
