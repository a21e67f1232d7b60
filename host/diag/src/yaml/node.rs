//! A YAML document as a tree. It is the only type that the library reads: each further type would be compiled with a
//! copy of the library's deserialiser.

use std::fmt::{self, Display};

use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::{Location, NonFiniteFloatPolicy, Spanned};

use super::error::Error;
use super::spanned::Mark;

/// A value with its locations.
#[derive(Debug)]
pub struct YamlNode {
    pub(super) content: Content,
    /// Location of its use: the alias or merge key, if it comes from an anchor.
    referenced: Location,
    /// Location of its definition.
    defined: Location,
}

#[derive(Debug)]
pub(super) enum Content {
    Scalar {
        /// As written, without quotes and escapes.
        text: String,
        scalar: Scalar,
    },
    List(Vec<YamlNode>),
    /// In the order of the file.
    Map(Vec<(YamlNode, YamlNode)>),
}

/// A scalar with its type in YAML.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text,
}

impl YamlNode {
    /// The one document in `source`.
    ///
    /// # Errors
    /// If it is not YAML, has repeated keys, or is too large or too deeply nested.
    pub fn read(source: &str) -> Result<Self, Error> {
        let options = serde_yaml::options! {
            // The range of a number is checked by its reader.
            non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
            with_snippet: false,
        };
        let mut node: Self = serde_yaml::from_str_with_options(source, options)?;
        node.take_text(source);
        Ok(node)
    }

    /// As a `T`.
    pub fn to<T: DeserializeOwned>(&self) -> Result<T, Error> {
        T::deserialize(self).map_err(|error| error.or_at(self.at()))
    }

    /// Whether there is no value.
    pub fn is_null(&self) -> bool {
        matches!(self.content, Content::Scalar { scalar: Scalar::Null, .. })
    }

    /// A file without any value becomes a map without keys.
    pub(super) fn or_empty_map(self) -> Self {
        let empty = self.is_null() && self.defined.span().is_empty();
        if empty { Self { content: Content::Map(Vec::new()), ..self } } else { self }
    }

    pub(super) fn at(&self) -> Mark {
        self.referenced.into()
    }

    pub(super) fn defined_at(&self) -> Mark {
        self.defined.into()
    }

    /// Takes the text of numbers and the like from `source`: the library returns their values only.
    fn take_text(&mut self, source: &str) {
        match &mut self.content {
            Content::Scalar { scalar: Scalar::Text, .. } => {}
            Content::Scalar { text, scalar } => {
                *text = written(self.defined, source).map_or_else(|| scalar.to_string(), str::to_owned);
            }
            Content::List(items) => items.iter_mut().for_each(|item| item.take_text(source)),
            Content::Map(entries) => {
                for (key, value) in entries {
                    key.take_text(source);
                    value.take_text(source);
                }
            }
        }
    }
}

/// The text at `location`; `None` if it is not a plain scalar, as in `!!int "5"`.
fn written(location: Location, source: &str) -> Option<&str> {
    let (start, len) = (location.span().byte_offset()?, location.span().byte_len()?);
    let (start, len) = (usize::try_from(start).ok()?, usize::try_from(len).ok()?);
    let text = source.get(start..start.checked_add(len)?)?.trim();
    let plain = !text.is_empty() && !text.starts_with(['"', '\'', '|', '>']) && !text.contains('\n');
    plain.then_some(text)
}

impl Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("~"),
            Self::Bool(value) => value.fmt(f),
            Self::Unsigned(value) => value.fmt(f),
            Self::Signed(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Text => Ok(()),
        }
    }
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, defined } = Spanned::deserialize(deserializer)?;
        Ok(Self { content: value, referenced, defined })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyContent)
    }
}

struct AnyContent;

impl From<Scalar> for Content {
    fn from(scalar: Scalar) -> Self {
        Self::Scalar { text: String::new(), scalar }
    }
}

impl<'de> Visitor<'de> for AnyContent {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML")
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Scalar::Null.into())
    }

    fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
        Ok(Scalar::Bool(value).into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
        Ok(Scalar::Unsigned(value).into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
        Ok(Scalar::Signed(value).into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Content, E> {
        Ok(Scalar::Float(value).into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Content, E> {
        Ok(Content::Scalar { text: value.to_owned(), scalar: Scalar::Text })
    }

    fn visit_string<E>(self, text: String) -> Result<Content, E> {
        Ok(Content::Scalar { text, scalar: Scalar::Text })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Content, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Content::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Content, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Content::Map(entries))
    }
}
