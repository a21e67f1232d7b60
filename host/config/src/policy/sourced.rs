//! Values with their sources.

use blis_diag::Location;
use std::borrow::Cow;
use std::fmt::{self, Debug, Display};
use std::ops::Deref;

/// A value with its source. It behaves like the value: two are equal if their values are, and `Debug` shows the value
/// alone.
#[derive(Clone)]
pub struct Sourced<T> {
    pub value: T,
    /// The flag, file or default that sets the value.
    pub source: SettingSource,
}

/// The flag, file or default that sets a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingSource {
    /// The default: nothing else is set.
    Default,
    /// A flag, with its dashes.
    Flag(Cow<'static, str>),
    /// A location in a file.
    File(Location),
    /// Another source, described in words.
    Other(Cow<'static, str>),
}

impl SettingSource {
    /// The location in a file, if a file says so.
    pub(crate) fn location(&self) -> Option<&Location> {
        match self {
            Self::File(location) => Some(location),
            _ => None,
        }
    }
}

impl<T> Sourced<T> {
    /// `value` as a default.
    pub fn default_value(value: T) -> Self {
        Self { value, source: SettingSource::Default }
    }

    /// `value`, set by the flag `name`.
    pub fn flag(name: &'static str, value: T) -> Self {
        Self { value, source: SettingSource::Flag(Cow::Borrowed(name)) }
    }

    /// Another value with the same source.
    pub fn map<U>(self, other: impl FnOnce(T) -> U) -> Sourced<U> {
        Sourced { value: other(self.value), source: self.source }
    }
}

impl<T> Deref for Sourced<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: PartialEq> PartialEq for Sourced<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Debug> Debug for Sourced<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Flag(name) => write!(f, "flag {name}"),
            Self::File(location) => Display::fmt(location, f),
            Self::Other(text) => f.write_str(text),
        }
    }
}
