//! Values with their locations.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, EnumAccess, VariantAccess, Visitor};

/// A location in the text. Lines and columns count from 1, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    line: u64,
    column: u64,
    len: u64,
}

/// A value with its locations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spanned<T> {
    pub value: T,
    /// Location of its use: the alias or merge key, if it comes from an anchor.
    pub referenced: Mark,
}

/// A word of the text, or a key, with its location.
pub type Word = Spanned<String>;

/// Name of the enum as which [`Spanned`] is read: its variant is a [`Mark`], the content is the value.
pub(super) const SPANNED: &str = "\0spanned";

impl Mark {
    pub fn line(self) -> u64 {
        self.line
    }

    pub fn column(self) -> u64 {
        self.column
    }

    /// Characters; of a list or a map, those of its first token.
    pub fn len(self) -> u64 {
        self.len
    }

    /// Whether it is the location between two characters: that of a missing value.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    pub(super) fn parts(self) -> [u64; 3] {
        [self.line, self.column, self.len]
    }
}

impl From<serde_yaml::Location> for Mark {
    fn from(at: serde_yaml::Location) -> Self {
        Self { line: at.line(), column: at.column(), len: at.span().len() }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spanned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MarkThenValue<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for MarkThenValue<T> {
            type Value = Spanned<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value of a YAML file")
            }

            fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<Spanned<T>, A::Error> {
                let ([line, column, len], value) = access.variant::<[u64; 3]>()?;
                Ok(Spanned { value: value.newtype_variant()?, referenced: Mark { line, column, len } })
            }
        }

        deserializer.deserialize_enum(SPANNED, &[], MarkThenValue(PhantomData))
    }
}
