//! The parser of flags that take one of a closed set of names.

use std::ffi::OsStr;
use std::marker::PhantomData;

use blis_eval::spec::NamedChoice;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Command};

use super::args::possible;

/// Parses the values of a closed set.
#[derive(Clone, Debug)]
pub(super) struct OneOf<T>(PhantomData<T>);

impl<T> OneOf<T> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: NamedChoice> TypedValueParser for OneOf<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        let names =
            PossibleValuesParser::new(T::VARIANTS.iter().map(|choice| possible((choice.name(), choice.about()))));
        let text = names.parse_ref(command, arg, value)?;
        T::find(&text).ok_or_else(|| clap::Error::new(clap::error::ErrorKind::InvalidValue).with_cmd(command))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(T::VARIANTS.iter().map(|choice| possible((choice.name(), choice.about())))))
    }
}
