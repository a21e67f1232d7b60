//! Replacements for functions of Rhai's own packages with which a hostile or careless script could crash or block the host
//! or exhaust its memory: sorting with an inconsistent comparison (the standard library panics), `map` and `replace`,
//! with results that can be many times larger than the limit before the limit is checked, `pad`, which never ends with an
//! empty text, and mathematics that differs between platforms.

use std::cmp::Ordering;

use rhai::{Array, Dynamic, EvalAltResult, FLOAT, FnPtr, INT, ImmutableString, Map, NativeCallContext, Position};

use super::call::{self, failure};
use super::column::{number, ordered, type_name};
use super::operators::exact;
use super::registry::{Registry, ScriptError};
use crate::limits::{COMPARISON_NUMBERS, ENTRIES, TEXT_BYTES};

pub(super) fn register(to: &mut Registry) {
    mathematics(to);
    sorting(to);
    searching(to);
    reading_texts(to);
    to.add("map", |context: NativeCallContext, array: Array, f: FnPtr| map(&context, array, &f));
    to.add("map", |_: Map, _: FnPtr| -> Result<Map, ScriptError> {
        Err(failure("an object map has no `map`: loop over its `keys()`".to_owned()))
    });
    to.add("zip", |context: NativeCallContext, a: Array, b: Array, f: FnPtr| zip(&context, a, b, &f));
    to.add("replace", |text: &mut ImmutableString, find: ImmutableString, by: ImmutableString| {
        replace(text, &find, &by)
    });
    to.add("replace", |text: &mut ImmutableString, find: ImmutableString, by: char| {
        replace(text, &find, by.encode_utf8(&mut [0; 4]))
    });
    to.add("replace", |text: &mut ImmutableString, find: char, by: ImmutableString| {
        replace(text, find.encode_utf8(&mut [0; 4]), &by)
    });
    to.add("replace", |text: &mut ImmutableString, find: char, by: char| {
        replace(text, find.encode_utf8(&mut [0; 4]), by.encode_utf8(&mut [0; 4]))
    });
    to.add("pad", |text: &mut ImmutableString, len: INT, by: ImmutableString| pad_text(text, len, &by));
    to.add("pad", |text: &mut ImmutableString, len: INT, by: char| pad_text(text, len, by.encode_utf8(&mut [0; 4])));
    to.add("pad", |context: NativeCallContext, array: &mut Array, len: INT, item: Dynamic| {
        pad_array(&context, array, len, &item)
    });
    to.add("sum", |array: Array| -> Result<Dynamic, ScriptError> {
        call::charge(array.len())?;
        let whole = array.iter().map(Dynamic::as_int).collect::<Result<Vec<_>, _>>().ok();
        if let Some(sum) = whole.and_then(|whole| whole.into_iter().try_fold(0, INT::checked_add)) {
            return Ok(Dynamic::from_int(sum));
        }
        Ok(Dynamic::from_float(super::column::numbers(&array)?.into_iter().sum()))
    });
    to.add("hash", |text: ImmutableString| charge_text(&text).map(|()| hash(text.as_bytes())));
    to.add("hash", |value: INT| hash(&value.to_le_bytes()));
    to.add("float", |x: INT| x as FLOAT);
    to.add("float", |x: FLOAT| x);
    // The language's own makes 0 of not-a-number, and the largest number of 2^63.
    to.engine.register_fn("to_int", |x: FLOAT| -> Result<INT, ScriptError> {
        const END: FLOAT = 9_223_372_036_854_775_808.0;
        if (-END..END).contains(&x) {
            return Ok(x as INT);
        }
        Err(failure(format!("`to_int` of {x:?}: whole numbers have 64 bits")))
    });
}

/// FNV-1a (<http://www.isthe.com/chongo/tech/comp/fnv/>), without its sign bit.
fn hash(bytes: &[u8]) -> INT {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let mut hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
    // For short texts the low bits alone are poorly distributed, and `%` uses only those.
    hash = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 1).cast_signed()
}

type FloatFunction = fn(f64) -> f64;

/// Mathematical functions with equal bits on every platform, which the standard library does not guarantee.
fn mathematics(to: &mut Registry) {
    let functions: [(&str, FloatFunction); 9] = [
        ("tan", libm::tan),
        ("sinh", libm::sinh),
        ("cosh", libm::cosh),
        ("asin", libm::asin),
        ("acos", libm::acos),
        ("atan", libm::atan),
        ("asinh", libm::asinh),
        ("acosh", libm::acosh),
        ("atanh", libm::atanh),
    ];
    for (name, f) in functions {
        to.add(name, f);
        to.add(name, move |x: INT| f(x as f64));
    }
    to.add("atan", libm::atan2);
    to.add("hypot", libm::hypot);
    to.add("log", |_: FLOAT| -> Result<FLOAT, ScriptError> { Err(which_logarithm()) });
    to.add("log", |_: INT| -> Result<FLOAT, ScriptError> { Err(which_logarithm()) });
    to.add("log", |x: FLOAT, base: FLOAT| libm::log(x) / libm::log(base));
    to.add("log", |x: FLOAT, base: INT| libm::log(x) / libm::log(base as f64));
    to.add("log", |x: INT, base: FLOAT| libm::log(x as f64) / libm::log(base));
    to.add("log", |x: INT, base: INT| libm::log(x as f64) / libm::log(base as f64));
}

fn which_logarithm() -> ScriptError {
    failure("`log` of one argument writes a text to the log of the run; logarithms are ln(x), log10(x), log2(x)".into())
}

fn sorting(to: &mut Registry) {
    for name in ["sort", "sort_by"] {
        to.add(name, |context: NativeCallContext, array: &mut Array, order: FnPtr| -> Result<(), ScriptError> {
            *array = sorted(std::mem::take(array), &mut |a, b| compare_by(&context, &order, a, b))?;
            Ok(())
        });
    }
    for name in ["order", "order_by"] {
        to.add(name, |context: NativeCallContext, array: Array, order: FnPtr| -> Result<Array, ScriptError> {
            sorted(array, &mut |a, b| compare_by(&context, &order, a, b))
        });
    }
    to.add("sort", |array: &mut Array| -> Result<(), ScriptError> {
        *array = sorted(std::mem::take(array), &mut natural)?;
        Ok(())
    });
    to.add("sort_desc", |array: &mut Array| -> Result<(), ScriptError> {
        *array = sorted(std::mem::take(array), &mut |a, b| natural(b, a))?;
        Ok(())
    });
    to.add("order", |array: Array| sorted(array, &mut natural));
    to.add("order_desc", |array: Array| sorted(array, &mut |a, b| natural(b, a)));
}

/// Comparisons of whole arrays, object maps and texts, and what searches in them: charged by what they look at. Numbers are
/// compared exactly, as by the operators.
fn searching(to: &mut Registry) {
    to.engine.register_fn("==", |a: &mut Array, b: Array| equal_arrays(a, &b));
    to.engine.register_fn("!=", |a: &mut Array, b: Array| equal_arrays(a, &b).map(|equal| !equal));
    to.engine.register_fn("==", |a: &mut Map, b: Map| equal_maps(a, &b));
    to.engine.register_fn("!=", |a: &mut Map, b: Map| equal_maps(a, &b).map(|equal| !equal));
    to.add("contains", |array: &mut Array, value: Dynamic| Ok::<_, ScriptError>(position(array, &value, 0)?.is_some()));
    to.add("index_of", |array: &mut Array, value: Dynamic| Ok::<_, ScriptError>(index(position(array, &value, 0)?)));
    to.add("index_of", |array: &mut Array, value: Dynamic, start: INT| {
        Ok::<_, ScriptError>(index(position(array, &value, from_end(start, array.len()))?))
    });
    to.add("dedup", |array: &mut Array| -> Result<(), ScriptError> {
        let mut kept = Array::with_capacity(array.len());
        for item in std::mem::take(array) {
            let is_repeated = kept.last().map(|last| equal(last, &item)).transpose()?.unwrap_or(false);
            if !is_repeated {
                kept.push(item);
            }
        }
        *array = kept;
        Ok(())
    });
    to.add("len", |text: &str| charge_text(text).map(|()| text.chars().count() as INT));
    to.add("contains", |text: &str, find: &str| charge_text(text).map(|()| text.contains(find)));
    to.add("contains", |text: &str, find: char| charge_text(text).map(|()| text.contains(find)));
    to.add("index_of", |text: &str, find: &str| find_text(text, 0, |rest| rest.find(find)));
    to.add("index_of", |text: &str, find: char| find_text(text, 0, |rest| rest.find(find)));
    to.add("index_of", |text: &str, find: &str, start: INT| find_text(text, start, |rest| rest.find(find)));
    to.add("index_of", |text: &str, find: char, start: INT| find_text(text, start, |rest| rest.find(find)));
}

/// Functions of Rhai that look at a whole text and make no copy of it, charged by its length.
fn reading_texts(to: &mut Registry) {
    to.add("trim", |text: &mut ImmutableString| -> Result<(), ScriptError> {
        charge_text(text)?;
        let trimmed = text.trim();
        if trimmed.len() < text.len() {
            *text = trimmed.into();
        }
        Ok(())
    });
    to.add("get", |text: &str, index: INT| -> Result<Dynamic, ScriptError> {
        charge_text(text)?;
        let distance = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
        let found = if index < 0 { text.chars().nth_back(distance - 1) } else { text.chars().nth(distance) };
        Ok(found.map_or(Dynamic::UNIT, Dynamic::from_char))
    });
    to.add("parse_int", |text: &str| parse_int(text, 10));
    to.add("parse_int", parse_int);
    to.add("parse_float", |text: &str| -> Result<FLOAT, ScriptError> {
        charge_text(text)?;
        text.trim().parse().map_err(|error| failure(format!("`parse_float` of {:?}: {error}", beginning(text))))
    });
}

fn parse_int(text: &str, radix: INT) -> Result<INT, ScriptError> {
    charge_text(text)?;
    let Some(valid) = u32::try_from(radix).ok().filter(|radix| (2..=36).contains(radix)) else {
        return Err(failure(format!("`parse_int` takes a radix from 2 to 36, not {radix}")));
    };
    INT::from_str_radix(text.trim(), valid)
        .map_err(|error| failure(format!("`parse_int` of {:?}: {error}", beginning(text))))
}

/// The part of a text that a message quotes.
fn beginning(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Bytes of a text that cost as much as one element of a column.
const BYTES_PER_NUMBER: usize = 8;

fn charge_text(text: &str) -> Result<(), ScriptError> {
    call::charge(text.len() / BYTES_PER_NUMBER)
}

/// The number of characters before what `find` finds in `text` from the character `start` on, or -1.
fn find_text(text: &str, start: INT, find: impl Fn(&str) -> Option<usize>) -> Result<INT, ScriptError> {
    charge_text(text)?;
    let start = if start == 0 { 0 } else { from_end(start, text.chars().count()) };
    let Some((at, _)) = text.char_indices().nth(start) else { return Ok(-1) };
    Ok(find(&text[at..]).map_or(-1, |found| text[..at + found].chars().count() as INT))
}

/// An index as scripts write it: a negative one counts from the end.
fn from_end(index: INT, len: usize) -> usize {
    let distance = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
    if index < 0 { len.saturating_sub(distance) } else { distance.min(len) }
}

fn index(position: Option<usize>) -> INT {
    position.map_or(-1, |position| position as INT)
}

fn position(array: &Array, value: &Dynamic, start: usize) -> Result<Option<usize>, ScriptError> {
    for (index, item) in array.iter().enumerate().skip(start) {
        if equal(item, value)? {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

fn equal_arrays(a: &Array, b: &Array) -> Result<bool, ScriptError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (a, b) in a.iter().zip(b) {
        if !equal(a, b)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_maps(a: &Map, b: &Map) -> Result<bool, ScriptError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    // Maps are sorted by key.
    for ((name, a), (other, b)) in a.iter().zip(b) {
        if name != other || !equal(a, b)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether two values are equal; values of different types are not, except numbers.
fn equal(a: &Dynamic, b: &Dynamic) -> Result<bool, ScriptError> {
    call::charge(0)?;
    if let (Ok(a), Ok(b)) = (a.as_int(), b.as_int()) {
        return Ok(a == b);
    }
    if let Some(order) = order_of_numbers(a, b) {
        return Ok(order == Some(Ordering::Equal));
    }
    if let (Ok(a), Ok(b)) = (a.as_immutable_string_ref(), b.as_immutable_string_ref()) {
        charge_text(&a)?;
        return Ok(*a == *b);
    }
    if let (Some(a), Some(b)) = (a.read_lock::<Array>(), b.read_lock::<Array>()) {
        return equal_arrays(&a, &b);
    }
    if let (Some(a), Some(b)) = (a.read_lock::<Map>(), b.read_lock::<Map>()) {
        return equal_maps(&a, &b);
    }
    if a.type_id() != b.type_id() {
        return Ok(false);
    }
    match (a.as_bool(), b.as_bool(), a.as_char(), b.as_char()) {
        (Ok(a), Ok(b), ..) => Ok(a == b),
        (.., Ok(a), Ok(b)) => Ok(a == b),
        _ if a.is_unit() => Ok(true),
        _ => Err(failure(format!("{} and {} cannot be compared", type_name(a), type_name(b)))),
    }
}

fn natural(a: &Dynamic, b: &Dynamic) -> Result<Ordering, ScriptError> {
    if let (Ok(a), Ok(b)) = (a.as_int(), b.as_int()) {
        return Ok(a.cmp(&b));
    }
    if let (Ok(a), Ok(b)) = (a.as_immutable_string_ref(), b.as_immutable_string_ref()) {
        return Ok((**a).cmp(&**b));
    }
    match (order_of_numbers(a, b), number(a), number(b)) {
        (Some(Some(order)), ..) => Ok(order),
        (_, Some(a), Some(b)) => Ok(ordered(&a, &b)),
        _ => Err(failure(format!("{} and {} cannot be sorted", type_name(a), type_name(b)))),
    }
}

/// The order of two numbers or truth values, without rounding them: `Some(None)` if one is not-a-number, `None` if one is
/// no number.
fn order_of_numbers(a: &Dynamic, b: &Dynamic) -> Option<Option<Ordering>> {
    match (a.as_int(), b.as_int(), a.as_float(), b.as_float()) {
        (Ok(a), Ok(b), ..) => Some(Some(a.cmp(&b))),
        (Ok(a), .., Ok(b)) => Some(exact(a, b)),
        (_, Ok(b), Ok(a), _) => Some(exact(b, a).map(Ordering::reverse)),
        _ => Some(number(a)?.partial_cmp(&number(b)?)),
    }
}

/// Compares by `order`, which returns a number below 0 (or `true`) if `a` comes first.
fn compare_by(context: &NativeCallContext, order: &FnPtr, a: &Dynamic, b: &Dynamic) -> Result<Ordering, ScriptError> {
    call::charge(COMPARISON_NUMBERS)?;
    let result = order.call_within_context::<Dynamic>(context, (a.clone(), b.clone()))?;
    if let Ok(first) = result.as_bool() {
        return Ok(if first { Ordering::Less } else { Ordering::Greater });
    }
    let result = number(&result).ok_or_else(|| {
        failure(
            "a comparison for sorting must return a number (below 0 if the first comes first) or a truth value"
                .to_owned(),
        )
    })?;
    Ok(result.partial_cmp(&0.0).unwrap_or(Ordering::Equal))
}

/// A stable merge sort: it ends with some order for any `compare`, and stops at its first error.
fn sorted(
    mut items: Array,
    compare: &mut impl FnMut(&Dynamic, &Dynamic) -> Result<Ordering, ScriptError>,
) -> Result<Array, ScriptError> {
    call::charge(items.len())?;
    if items.len() < 2 {
        return Ok(items);
    }
    let right = items.split_off(items.len() / 2);
    let (left, right) = (sorted(items, compare)?, sorted(right, compare)?);
    let mut merged = Array::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let next = if compare(a, b)? == Ordering::Greater { &mut right } else { &mut left };
        merged.extend(next.next());
    }
    merged.extend(left);
    merged.extend(right);
    Ok(merged)
}

/// Applies `f`, which takes an item, or an item and its index.
fn map(context: &NativeCallContext<'_>, array: Array, f: &FnPtr) -> Result<Array, ScriptError> {
    call::charge(array.len())?;
    let mut with_index = false;
    let mut out = Growing::new(context, array.len());
    for (index, item) in array.into_iter().enumerate() {
        if index == 0 {
            match f.call_within_context(context, (item.clone(),)) {
                Err(error) if matches!(*error, EvalAltResult::ErrorFunctionNotFound(..)) => with_index = true,
                result => {
                    out.push(result?)?;
                    continue;
                }
            }
        }
        out.push(if with_index {
            f.call_within_context(context, (item, index as INT))?
        } else {
            f.call_within_context(context, (item,))?
        })?;
    }
    Ok(out.array)
}

fn zip(context: &NativeCallContext<'_>, a: Array, b: Array, f: &FnPtr) -> Result<Array, ScriptError> {
    call::charge(a.len())?;
    let mut out = Growing::new(context, a.len());
    for (a, b) in a.into_iter().zip(b) {
        out.push(f.call_within_context(context, (a, b))?)?;
    }
    Ok(out.array)
}

/// An array with a size check while it grows.
struct Growing<'a> {
    context: &'a NativeCallContext<'a>,
    array: Array,
    large: usize,
}

impl<'a> Growing<'a> {
    fn new(context: &'a NativeCallContext<'a>, len: usize) -> Self {
        Self { context, array: Array::with_capacity(len), large: 0 }
    }

    fn push(&mut self, item: Dynamic) -> Result<(), ScriptError> {
        let large = item.is_array() || item.is_map() || item.is_string();
        self.array.push(item);
        self.large += usize::from(large);
        // Sixteen items of any size are within bounds, so a check at every sixteenth item is enough.
        if large && self.large.is_multiple_of(16) {
            let so_far = Dynamic::from_array(std::mem::take(&mut self.array));
            self.context.engine().ensure_data_size_within_limits(&so_far)?;
            self.array = so_far.into_array().unwrap_or_default();
        }
        Ok(())
    }
}

/// Appends `by` until `text` has `len` characters; the last copy may be incomplete.
fn pad_text(text: &mut ImmutableString, len: INT, by: &str) -> Result<(), ScriptError> {
    let missing = usize::try_from(len).unwrap_or(0).saturating_sub(text.chars().count());
    if missing == 0 {
        return Ok(());
    }
    if by.is_empty() {
        return Err(failure("`pad` needs characters to append".to_owned()));
    }
    // A character has at least one byte.
    if missing > TEXT_BYTES {
        return Err(EvalAltResult::ErrorDataTooLarge("Length of string".to_owned(), Position::NONE).into());
    }
    call::charge(missing)?;
    text.make_mut().extend(by.chars().cycle().take(missing));
    Ok(())
}

/// Appends copies of `item` until `array` has `len` entries.
fn pad_array(context: &NativeCallContext<'_>, array: &mut Array, len: INT, item: &Dynamic) -> Result<(), ScriptError> {
    let missing = usize::try_from(len).unwrap_or(0).saturating_sub(array.len());
    if missing > ENTRIES {
        return Err(EvalAltResult::ErrorDataTooLarge("Size of array".to_owned(), Position::NONE).into());
    }
    call::charge(missing)?;
    let mut grown = Growing::new(context, missing);
    for _ in 0..missing {
        grown.push(item.clone())?;
    }
    array.append(&mut grown.array);
    Ok(())
}

fn replace(text: &mut ImmutableString, find: &str, by: &str) -> Result<(), ScriptError> {
    let found = if by.len() > find.len() { text.matches(find).count() } else { 0 };
    let longer = found.saturating_mul(by.len().saturating_sub(find.len()));
    if text.len().saturating_add(longer) > TEXT_BYTES {
        return Err(EvalAltResult::ErrorDataTooLarge("Length of string".to_owned(), Position::NONE).into());
    }
    call::charge(text.len() + longer)?;
    *text = text.replace(find, by).into();
    Ok(())
}
