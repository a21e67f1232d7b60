//! Values of named fields, and what they may be.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use blis_diag::{name_hint, quoted, yaml};
use blis_sim::request::Name;
use blis_sim::units::Micros;

/// Times have 63 bits in scripts.
pub(super) const LATEST_US: u64 = i64::MAX.cast_unsigned();

/// The value of a field, as text: numbers are parsed by the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FieldValue {
    /// As if the field were not set.
    Nothing,
    Word(String),
    List(Vec<String>),
}

/// Why a field cannot be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldError {
    pub what: String,
    pub hint: String,
    /// Whether the name is wrong, not the value.
    pub of_name: bool,
}

/// The names of a fixture: their texts by number, the empty one first.
#[derive(Clone, Debug)]
pub(crate) struct NameTable(Vec<Box<str>>);

impl Default for NameTable {
    fn default() -> Self {
        Self(vec!["".into()])
    }
}

impl NameTable {
    pub(super) fn name(&mut self, text: &str) -> Name {
        let known = self.0.iter().position(|known| **known == *text);
        Name(known.unwrap_or_else(|| {
            self.0.push(text.into());
            self.0.len() - 1
        }) as u32)
    }

    pub fn texts(&self) -> &[Box<str>] {
        &self.0
    }
}

/// The text of a value that is no list.
pub(crate) fn word<'a>(name: &str, value: &'a FieldValue) -> Result<&'a str, FieldError> {
    match value {
        FieldValue::Word(text) => Ok(text),
        FieldValue::Nothing => Err(wrong(format!("`{name}` has no value"), "give one, or remove the field")),
        FieldValue::List(_) => Err(wrong(format!("`{name}` is a list"), "it must be a single value")),
    }
}

/// A whole number within `range`; `1e6` and `2.0` are whole numbers too.
pub(crate) fn whole<T>(name: &str, value: &FieldValue, range: RangeInclusive<T>) -> Result<T, FieldError>
where
    T: FromStr + PartialOrd + Display,
{
    whole_of(name, word(name, value)?, range)
}

fn whole_of<T>(name: &str, text: &str, range: RangeInclusive<T>) -> Result<T, FieldError>
where
    T: FromStr + PartialOrd + Display,
{
    let exponential = || yaml::real(text).filter(|n| n.fract() == 0.0 && n.abs() < 1e15).map(|n| format!("{n}"));
    let number = text.parse().ok().or_else(|| exponential()?.parse().ok()).filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let hint = format!("it must be a whole number from {} to {}", range.start(), range.end());
        wrong(format!("`{name}` is {}", quoted(text.as_bytes())), hint)
    })
}

pub(super) fn list(name: &str, value: &FieldValue, range: RangeInclusive<u32>) -> Result<Vec<u32>, FieldError> {
    let FieldValue::List(items) = value else {
        return Err(wrong(format!("`{name}` is no list"), "write `[1, 2, 3]`"));
    };
    items.iter().map(|item| whole_of(name, item, range.clone())).collect()
}

pub(super) fn time(name: &str, value: &FieldValue) -> Result<Micros, FieldError> {
    whole(name, value, 0..=LATEST_US).map(Micros)
}

pub(super) fn share(name: &str, value: &FieldValue) -> Result<f64, FieldError> {
    let text = word(name, value)?;
    yaml::real(text)
        .filter(|number| (0.0..=1.0).contains(number))
        .ok_or_else(|| wrong(format!("`{name}` is {}", quoted(text.as_bytes())), "it must be a number from 0 to 1"))
}

/// A number that is at least `least`.
pub(crate) fn real(name: &str, value: &FieldValue, least: f64) -> Result<f64, FieldError> {
    let text = word(name, value)?;
    let number = yaml::real(text).filter(|number| number.is_finite() && *number >= least);
    number.ok_or_else(|| {
        wrong(format!("`{name}` is {}", quoted(text.as_bytes())), format!("it must be a number from {least} on"))
    })
}

pub(super) fn wrong(what: impl Into<String>, hint: impl Into<String>) -> FieldError {
    FieldError { what: what.into(), hint: hint.into(), of_name: false }
}

impl FieldError {
    /// `what` has no field `name`.
    pub fn unknown(what: &str, name: &str, known: &[&str]) -> Self {
        let text = format!("{what} has no field {}", quoted(name.as_bytes()));
        Self { of_name: true, ..wrong(text, name_hint(name, known)) }
    }
}
