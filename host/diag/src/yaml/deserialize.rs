//! From a [`YamlNode`] to any type. Small, as it is compiled once per type that is read.

use std::slice;

use serde::de::value::SeqDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::error::{Error, Fault, Shape};
use super::node::{Content, Scalar, YamlNode};
use super::numbers::{float, whole};
use super::spanned::{Mark, SPANNED};
use super::value::VALUE;

/// `deserialize_u8` and its like, which differ in their range.
macro_rules! whole_numbers {
    ($($number:ident $deserialize:ident $visit:ident)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.whole($number::MIN.into(), $number::MAX.into())? as $number)
        }
    )*};
}

impl<'de> Deserializer<'de> for &'de YamlNode {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.content {
            Content::Scalar { text, scalar } => match *scalar {
                Scalar::Null => visitor.visit_unit(),
                Scalar::Bool(value) => visitor.visit_bool(value),
                Scalar::Unsigned(value) => visitor.visit_u64(value),
                Scalar::Signed(value) => visitor.visit_i64(value),
                Scalar::Float(_) => visitor.visit_f64(self.float()?),
                Scalar::Text => visitor.visit_str(text),
            },
            Content::List(items) => visit_list(items, visitor),
            Content::Map(entries) => visit_map(entries, self.at(), visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.content {
            Content::Scalar { scalar: Scalar::Bool(value), .. } => visitor.visit_bool(*value),
            _ => Err(Error::value(self.word()?, "`true` or `false`")),
        }
    }

    whole_numbers! {
        i8 deserialize_i8 visit_i8
        i16 deserialize_i16 visit_i16
        i32 deserialize_i32 visit_i32
        i64 deserialize_i64 visit_i64
        u8 deserialize_u8 visit_u8
        u16 deserialize_u16 visit_u16
        u32 deserialize_u32 visit_u32
        u64 deserialize_u64 visit_u64
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_f64(self.float()?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.word()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.content {
            Content::List(items) => visit_list(items, visitor),
            _ => Err(Error::new(Fault::Shape(Shape::List))),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.content {
            Content::Map(entries) => visit_map(entries, self.at(), visitor),
            _ => Err(Error::new(Fault::Shape(Shape::Map))),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name == SPANNED {
            return visitor.visit_enum(AtMark(self));
        }
        if name == VALUE {
            return visitor.visit_enum(InForm(self));
        }
        match &self.content {
            Content::Scalar { .. } => visitor.visit_enum(Variant { name: self, content: None }),
            Content::Map(entries) if let [(name, content)] = entries.as_slice() => {
                visitor.visit_enum(Variant { name, content: Some(content) })
            }
            _ => Err(Error::new(Fault::Shape(Shape::Word))),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! { i128 u128 char bytes byte_buf unit unit_struct }
}

impl YamlNode {
    /// The text of a scalar.
    fn word(&self) -> Result<&str, Error> {
        match &self.content {
            Content::Scalar { scalar: Scalar::Null, .. } => Err(Error::new(Fault::NoValue)),
            Content::Scalar { text, .. } => Ok(text),
            _ => Err(Error::new(Fault::Shape(Shape::Word))),
        }
    }

    fn float(&self) -> Result<f64, Error> {
        let text = self.word()?;
        float(text).ok_or_else(|| Error::value(text, "a number"))
    }

    fn whole(&self, least: i128, most: i128) -> Result<i128, Error> {
        let text = self.word()?;
        let number = whole(text).filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| Error::value(text, format_args!("a whole number from {least} to {most}")))
    }
}

fn visit_list<'de, V: Visitor<'de>>(items: &'de [YamlNode], visitor: V) -> Result<V::Value, Error> {
    let mut list = NodeList(items.iter());
    let value = visitor.visit_seq(&mut list)?;
    match list.0.next() {
        None => Ok(value),
        Some(item) => Err(Error::custom("the list ends before this item").or_at(item.at())),
    }
}

fn visit_map<'de, V: Visitor<'de>>(
    entries: &'de [(YamlNode, YamlNode)],
    at: Mark,
    visitor: V,
) -> Result<V::Value, Error> {
    let mut map = Map { entries: entries.iter(), value: None, last_key: at };
    // An error of the map as a whole, such as a missing key, is located at its last key.
    visitor.visit_map(&mut map).map_err(|error| error.or_at(map.last_key))
}

struct NodeList<'de>(slice::Iter<'de, YamlNode>);

impl<'de> SeqAccess<'de> for NodeList<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(item) = self.0.next() else { return Ok(None) };
        seed.deserialize(item).map(Some).map_err(|error| error.or_at(item.at()))
    }
}

struct Map<'de> {
    entries: slice::Iter<'de, (YamlNode, YamlNode)>,
    value: Option<&'de YamlNode>,
    last_key: Mark,
}

impl<'de> MapAccess<'de> for Map<'de> {
    type Error = Error;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some((key, value)) = self.entries.next() else { return Ok(None) };
        (self.value, self.last_key) = (Some(value), key.at());
        // An unknown key is shown as it is written, not where its map is referenced.
        seed.deserialize(key).map(Some).map_err(|error| error.or_at(key.defined_at()))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let value = self.value.take().ok_or_else(|| Error::new(Fault::NoValue))?;
        seed.deserialize(value).map_err(|error| error.or_at(value.at()))
    }
}

/// A value behind its [`Mark`].
struct AtMark<'de>(&'de YamlNode);

impl<'de> EnumAccess<'de> for AtMark<'de> {
    type Error = Error;
    type Variant = Variant<'de>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Variant<'de>), Error> {
        let mark = seed.deserialize(SeqDeserializer::<_, Error>::new(self.0.at().parts().into_iter()))?;
        Ok((mark, Variant { name: self.0, content: Some(self.0) }))
    }
}

/// A value behind the number of its form, as [`super::value::Value`] has them.
struct InForm<'de>(&'de YamlNode);

impl<'de> EnumAccess<'de> for InForm<'de> {
    type Error = Error;
    type Variant = Variant<'de>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Variant<'de>), Error> {
        let form: u8 = match &self.0.content {
            Content::Scalar { scalar: Scalar::Null, .. } => 0,
            Content::Scalar { .. } => 1,
            Content::List(_) => 2,
            Content::Map(_) => 3,
        };
        let form = seed.deserialize(IntoDeserializer::<Error>::into_deserializer(form))?;
        Ok((form, Variant { name: self.0, content: Some(self.0) }))
    }
}

/// A variant of an enum: `name`, or `name: content`.
struct Variant<'de> {
    name: &'de YamlNode,
    content: Option<&'de YamlNode>,
}

impl<'de> Variant<'de> {
    fn content(&self) -> Result<&'de YamlNode, Error> {
        self.content.ok_or_else(|| Error::new(Fault::NoValue).or_at(self.name.at()))
    }
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Error> {
        let name = seed.deserialize(self.name).map_err(|error| error.or_at(self.name.at()))?;
        Ok((name, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.content {
            Some(content) if !content.is_null() => Err(Error::new(Fault::Shape(Shape::Word)).or_at(content.at())),
            _ => Ok(()),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        let content = self.content()?;
        seed.deserialize(content).map_err(|error| error.or_at(content.at()))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.content()?.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        self.content()?.deserialize_map(visitor)
    }
}
