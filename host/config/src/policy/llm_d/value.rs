//! Values of any shape: parameters of plugins, and sections that only few keys of are read.

use std::fmt;

use blis_diag::yaml::{Entries, Spanned, Word};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

#[derive(Debug)]
pub(super) enum AnyYaml {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Spanned<AnyYaml>>),
    Map(Vec<(Word, Spanned<AnyYaml>)>),
}

impl AnyYaml {
    /// What it is, for messages.
    pub fn describe(&self) -> String {
        match self {
            Self::Null => "empty".to_owned(),
            Self::Bool(value) => format!("`{value}`"),
            Self::Number(value) => format!("{value}"),
            Self::Text(text) => blis_diag::quoted(text.as_bytes()),
            Self::List(items) => format!("a list of {}", items.len()),
            Self::Map(entries) => format!("a map of {}", entries.len()),
        }
    }

    /// The text of `key`, if the value is a map that has it.
    pub fn key(&self, key: &str) -> Option<&Spanned<Self>> {
        match self {
            Self::Map(entries) => entries.iter().find(|(name, _)| name.value == key).map(|(_, value)| value),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for AnyYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyYamlVisitor)
    }
}

struct AnyYamlVisitor;

impl<'de> Visitor<'de> for AnyYamlVisitor {
    type Value = AnyYaml;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<AnyYaml, E> {
        Ok(AnyYaml::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<AnyYaml, E> {
        Ok(AnyYaml::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<AnyYaml, E> {
        Ok(AnyYaml::Number(value as f64))
    }

    fn visit_i64<E>(self, value: i64) -> Result<AnyYaml, E> {
        Ok(AnyYaml::Number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<AnyYaml, E> {
        Ok(AnyYaml::Number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<AnyYaml, E> {
        Ok(AnyYaml::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<AnyYaml, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(AnyYaml::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AnyYaml, A::Error> {
        let Entries(entries) = Entries::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        Ok(AnyYaml::Map(entries))
    }
}
