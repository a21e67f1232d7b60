//! Serialisation of a script's state. A state is also copied this way: a copy made from bytes shares nothing with the
//! original.

use rhai::{Array, Dynamic, Map};

use super::column::Column;
use super::table::Table;
use crate::FaultKind;
use crate::limits::STATE_DEPTH;
use crate::rows::canonical;

/// Serialises `state` to at most `longest` bytes.
///
/// # Errors
/// If a value cannot be saved; the text names the value and its path in the state.
pub(super) fn save(state: &Dynamic, longest: usize) -> Result<Vec<u8>, (FaultKind, String)> {
    let mut writer = Writer { bytes: Vec::new(), longest, path: vec!["this".to_owned()] };
    writer.value(state)?;
    Ok(writer.bytes)
}

/// Deserialises the bytes of [`save`].
///
/// # Errors
/// If [`save`] cannot have written these bytes.
pub(super) fn restore(bytes: &[u8]) -> Result<Dynamic, String> {
    let mut reader = StateReader { bytes, depth: 0 };
    let value = reader.value().ok_or("it is damaged, or not a state of a script")?;
    if reader.bytes.is_empty() && value.is_map() { Ok(value) } else { Err("it is not a state of a script".to_owned()) }
}

/// How much there is in a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StateSize {
    /// Values, those inside of arrays and object maps counted.
    pub values: u64,
    /// Memory of arrays and object maps, about, and of what is inside of them, but for columns and tables: see
    /// [`super::call::ScriptCallInput::bytes`].
    pub bytes: u64,
}

impl std::ops::Add for StateSize {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { values: self.values + other.values, bytes: self.bytes.saturating_add(other.bytes) }
    }
}

/// Bytes of a text with a count of references.
const TEXT_BYTES: usize = 40;
/// Bytes of a node of an object map. A node has five to eleven entries, but for the first.
const NODE_BYTES: usize = 456;

/// How much there is in `state`.
///
/// # Errors
/// If a value cannot be saved: its path in the state, as steps, and what it is.
pub(super) fn check(state: &Dynamic) -> Result<StateSize, (Vec<String>, String)> {
    fn inside(
        sum: StateSize,
        value: &Dynamic,
        depth: usize,
        step: impl FnOnce() -> String,
    ) -> Result<StateSize, (Vec<String>, String)> {
        let size = values(value, depth + 1).map_err(|(mut path, text)| {
            path.push(step());
            (path, text)
        });
        Ok(sum + size?)
    }
    fn values(value: &Dynamic, depth: usize) -> Result<StateSize, (Vec<String>, String)> {
        if depth > STATE_DEPTH {
            return Err((Vec::new(), format!("is nested deeper than {STATE_DEPTH} levels")));
        }
        let own = StateSize { values: 1, bytes: own_bytes(value) as u64 };
        if let Ok(array) = value.as_array_ref() {
            let mut items = array.iter().enumerate();
            items.try_fold(own, |sum, (i, item)| inside(sum, item, depth, || format!("[{i}]")))
        } else if let Ok(map) = value.as_map_ref() {
            map.iter().try_fold(own, |sum, (key, item)| inside(sum, item, depth, || format!(".{key}")))
        } else {
            unsaveable(value).map_or(Ok(own), |what| Err((Vec::new(), format!("is {what}, {CANNOT_BE_SAVED}"))))
        }
    }
    values(state, 1).map_err(|(mut path, text)| {
        path.reverse();
        (path, text)
    })
}

/// Bytes of `value` as [`StateSize`] counts them, without those inside of its entries.
pub(super) fn own_bytes(value: &Dynamic) -> usize {
    if let Ok(array) = value.as_array_ref() {
        array.len() * size_of::<Dynamic>()
    } else if let Ok(map) = value.as_map_ref() {
        map.len().div_ceil(5) * NODE_BYTES
    } else if value.is_string() {
        TEXT_BYTES
    } else {
        0
    }
}

const CANNOT_BE_SAVED: &str = "which cannot be saved or copied: keep numbers, texts, arrays, maps, columns and tables";

/// What `value`, which has no values inside, is if it cannot be saved.
fn unsaveable(value: &Dynamic) -> Option<&'static str> {
    if value.is_fnptr() {
        return Some("a function");
    }
    let is_known = value.is_unit() || value.is_bool() || value.is_int() || value.is_float() || value.is_char();
    let is_known = is_known || value.is_string() || value.is::<Column>() || value.is::<Table>();
    (!is_known).then_some("a view of the host")
}

/// Approximate memory use of `state`, bytes.
pub(super) fn size(state: &Dynamic) -> usize {
    fn add(value: &Dynamic, depth: usize) -> usize {
        let inside = if depth == STATE_DEPTH {
            0
        } else if let Ok(text) = value.as_immutable_string_ref() {
            text.len()
        } else if let Ok(array) = value.as_array_ref() {
            array.iter().map(|item| add(item, depth + 1)).sum()
        } else if let Ok(map) = value.as_map_ref() {
            map.iter().map(|(key, item)| 32 + key.len() + add(item, depth + 1)).sum()
        } else if let Some(column) = value.read_lock::<Column>() {
            64 + 8 * column.len()
        } else if let Some(table) = value.read_lock::<Table>() {
            64 + 32 * table.len()
        } else {
            0
        };
        size_of::<Dynamic>() + inside
    }
    add(state, 0)
}

struct Writer {
    bytes: Vec<u8>,
    longest: usize,
    path: Vec<String>,
}

/// The bits of a number as they are saved: the same for every NaN.
fn bits(number: f64) -> u64 {
    canonical(number).to_bits()
}

impl Writer {
    fn value(&mut self, value: &Dynamic) -> Result<(), (FaultKind, String)> {
        if self.path.len() > STATE_DEPTH {
            let text = format!("{} … is nested deeper than {STATE_DEPTH} levels", self.path[..4].concat());
            return Err((FaultKind::Refused, text));
        }
        if value.is_unit() {
            self.put(b'u', &[])
        } else if let Ok(value) = value.as_bool() {
            self.put(b'b', &[u8::from(value)])
        } else if let Ok(value) = value.as_int() {
            self.put(b'i', &value.to_le_bytes())
        } else if let Ok(value) = value.as_float() {
            self.put(b'f', &bits(value).to_le_bytes())
        } else if let Ok(value) = value.as_char() {
            self.put(b'c', &u32::from(value).to_le_bytes())
        } else if let Ok(value) = value.as_immutable_string_ref() {
            self.put(b's', &[])?;
            self.text(&value)
        } else if let Ok(array) = value.as_array_ref() {
            self.put(b'a', &(array.len() as u64).to_le_bytes())?;
            array.iter().enumerate().try_for_each(|(i, item)| self.inside(format!("[{i}]"), item))
        } else if let Ok(map) = value.as_map_ref() {
            self.put(b'm', &(map.len() as u64).to_le_bytes())?;
            map.iter().try_for_each(|(key, item)| {
                self.text(key)?;
                self.inside(format!(".{key}"), item)
            })
        } else if let Some(column) = value.read_lock::<Column>() {
            self.put(b'v', &(column.len() as u64).to_le_bytes())?;
            column.values().iter().try_for_each(|&x| self.put_bytes(&bits(x).to_le_bytes()))
        } else if let Some(table) = value.read_lock::<Table>() {
            self.put(b't', &(table.len() as u64).to_le_bytes())?;
            table.entries().try_for_each(|(key, x)| {
                self.put_bytes(&key.to_le_bytes())?;
                self.put_bytes(&bits(x).to_le_bytes())
            })
        } else {
            let what = unsaveable(value).unwrap_or("a value of the host");
            Err((FaultKind::Refused, format!("{} is {what}, {CANNOT_BE_SAVED}", self.path.concat())))
        }
    }

    fn inside(&mut self, step: String, value: &Dynamic) -> Result<(), (FaultKind, String)> {
        self.path.push(step);
        self.value(value)?;
        self.path.pop();
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), (FaultKind, String)> {
        self.put_bytes(&(text.len() as u64).to_le_bytes())?;
        self.put_bytes(text.as_bytes())
    }

    fn put(&mut self, tag: u8, bytes: &[u8]) -> Result<(), (FaultKind, String)> {
        self.put_bytes(&[tag])?;
        self.put_bytes(bytes)
    }

    fn put_bytes(&mut self, bytes: &[u8]) -> Result<(), (FaultKind, String)> {
        if self.bytes.len() + bytes.len() > self.longest {
            return Err((FaultKind::OutOfMemory, format!("it takes more than {} bytes", self.longest)));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

struct StateReader<'a> {
    bytes: &'a [u8],
    depth: usize,
}

impl<'a> StateReader<'a> {
    fn value(&mut self) -> Option<Dynamic> {
        self.depth += 1;
        if self.depth > STATE_DEPTH {
            return None;
        }
        let [tag] = self.fixed::<1>()?;
        let value = match tag {
            b'u' => Dynamic::UNIT,
            b'b' => Dynamic::from_bool(self.fixed::<1>()? != [0]),
            b'i' => Dynamic::from_int(i64::from_le_bytes(self.fixed()?)),
            b'f' => Dynamic::from_float(self.float()?),
            b'c' => Dynamic::from_char(char::from_u32(u32::from_le_bytes(self.fixed()?))?),
            b's' => self.text()?.into(),
            b'a' => {
                let len = self.len()?;
                Dynamic::from_array((0..len).map(|_| self.value()).collect::<Option<Array>>()?)
            }
            b'm' => {
                let len = self.len()?;
                let entry = |_| Some((self.text()?.into(), self.value()?));
                Dynamic::from_map((0..len).map(entry).collect::<Option<Map>>()?)
            }
            b'v' => {
                let len = self.len()?;
                let values = (0..len).map(|_| self.float()).collect::<Option<Vec<_>>>()?;
                Dynamic::from(Column::new(values))
            }
            b't' => {
                let len = self.len()?;
                let entry = |_| Some((i64::from_le_bytes(self.fixed()?), self.float()?));
                Dynamic::from(Table::new((0..len).map(entry).collect::<Option<Vec<_>>>()?))
            }
            _ => return None,
        };
        self.depth -= 1;
        Some(value)
    }

    /// Reads a length, which must not exceed the remaining bytes.
    fn len(&mut self) -> Option<usize> {
        let len = usize::try_from(u64::from_le_bytes(self.fixed()?)).ok()?;
        (len <= self.bytes.len()).then_some(len)
    }

    fn text(&mut self) -> Option<&'a str> {
        let len = self.len()?;
        let (text, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        std::str::from_utf8(text).ok()
    }

    fn float(&mut self) -> Option<f64> {
        Some(f64::from_bits(u64::from_le_bytes(self.fixed()?)))
    }

    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(*bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values() -> impl Strategy<Value = Dynamic> {
        let leaf = prop_oneof![
            Just(Dynamic::UNIT),
            any::<bool>().prop_map(Dynamic::from_bool),
            any::<i64>().prop_map(Dynamic::from_int),
            any::<f64>().prop_map(Dynamic::from_float),
            any::<char>().prop_map(Dynamic::from_char),
            ".{0,8}".prop_map(Dynamic::from),
            prop::collection::vec(any::<f64>(), 0..4).prop_map(|values| Dynamic::from(Column::new(values))),
            prop::collection::vec(any::<(i64, f64)>(), 0..4).prop_map(|entries| Dynamic::from(Table::new(entries))),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Dynamic::from_array),
                prop::collection::btree_map("[a-zé]{0,3}", inner, 0..4).prop_map(|map| Dynamic::from_map(
                    map.into_iter().map(|(key, value)| (key.into(), value)).collect()
                )),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_state_comes_back_as_it_was(values in prop::collection::vec(values(), 0..4)) {
            let map: Map = values.into_iter().enumerate().map(|(i, value)| (i.to_string().into(), value)).collect();
            let saved = save(&Dynamic::from_map(map), 1 << 20).unwrap();
            let again = save(&restore(&saved).unwrap(), 1 << 20).unwrap();
            prop_assert_eq!(saved, again);
        }

        #[test]
        fn any_bytes_are_refused_or_restored(bytes: Vec<u8>, tags in "[ubifcsamvt]{0,20}") {
            let _ = restore(&bytes);
            let _ = restore(tags.as_bytes());
        }
    }

    #[test]
    fn what_cannot_be_saved_is_named() {
        let mut inner = Map::new();
        inner.insert("f".into(), Dynamic::from(rhai::FnPtr::new("route").unwrap()));
        let mut map = Map::new();
        map.insert("hooks".into(), Dynamic::from_array(vec![Dynamic::UNIT, Dynamic::from_map(inner)]));
        let error = save(&Dynamic::from_map(map), 1000).unwrap_err();
        assert_eq!(error.0, FaultKind::Refused);
        insta::assert_snapshot!(error.1, @r"this.hooks[1].f is a function, which cannot be saved or copied: keep numbers, texts, arrays, maps, columns and tables");
        let long = Dynamic::from_array(vec![Dynamic::from_int(1); 100]);
        assert_eq!(save(&long, 99).unwrap_err(), (FaultKind::OutOfMemory, "it takes more than 99 bytes".to_owned()));
        let mut deep = Dynamic::UNIT;
        for _ in 0..1000 {
            deep = Dynamic::from_array(vec![deep]);
        }
        assert!(save(&deep, 1 << 20).unwrap_err().1.contains("nested deeper than 64"));
        assert!(restore(&save(&Dynamic::from_int(1), 100).unwrap()).is_err(), "not a map");
    }
}
