//! Values of any form, and maps with any keys.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, EnumAccess, MapAccess, VariantAccess, Visitor};

use super::spanned::{Spanned, Word};

/// A value of any form, of which scalars are read as they are written.
#[derive(Clone, Debug)]
pub enum Value {
    Nothing,
    Word(String),
    List(Vec<Spanned<Value>>),
    Map(Entries<Spanned<Value>>),
}

/// Name of the enum as which [`Value`] is read: its variant is the number of the form, the content is the value.
pub(super) const VALUE: &str = "\0value";

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FormThenValue;

        impl<'de> Visitor<'de> for FormThenValue {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value of a YAML file")
            }

            fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<Value, A::Error> {
                let (form, value) = access.variant::<u8>()?;
                match form {
                    0 => value.unit_variant().map(|()| Value::Nothing),
                    1 => value.newtype_variant().map(Value::Word),
                    2 => value.newtype_variant().map(Value::List),
                    _ => value.newtype_variant().map(Value::Map),
                }
            }
        }

        deserializer.deserialize_enum(VALUE, &[], FormThenValue)
    }
}

/// A map that keeps its entries in the order of the file.
#[derive(Clone, Debug)]
pub struct Entries<T>(pub Vec<(Word, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for InOrder<T> {
            type Value = Entries<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from names to values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(InOrder(PhantomData))
    }
}
