//! Fields of rows from named values, by the table of rows ([`blis_abi::Field`]).

use blis_abi::{Field, NumberUnit, Primitive, Row, RowShape};
use blis_sim::ids::RequestId;
use blis_sim::policy::flow::flow_of;
use blis_sim::request::Request;
use blis_sim::units::Micros;

use super::value::{FieldError, FieldValue, LATEST_US, NameTable, real, whole, word};
use crate::rows::{FlowRow, InFlightRow};

/// Sets the field of `row` called `name`, unless `value` is nothing.
pub(crate) fn set<R: Row>(
    row: &mut R,
    name: &str,
    value: &FieldValue,
    names: &mut NameTable,
) -> Result<(), FieldError> {
    if let Some((field, word)) = word_for(&R::SHAPE, name, value, names)? {
        row.set(field, word);
    }
    Ok(())
}

/// The field of a row of this shape called `name`, and `value` as its word; `None` if the value is nothing.
pub(crate) fn word_for(
    shape: &RowShape,
    name: &str,
    value: &FieldValue,
    names: &mut NameTable,
) -> Result<Option<(&'static Field, u64)>, FieldError> {
    let shown = || shape.fields.iter().filter(|field| field.meaning.unit != NumberUnit::Hidden);
    let Some(field) = shown().find(|field| field.names().any(|known| known == name)) else {
        let known: Vec<&str> = shown().filter_map(|field| field.names().next()).collect();
        return Err(FieldError::unknown(&with_article(shape.what), name, &known));
    };
    if *value == FieldValue::Nothing {
        return Ok(None);
    }
    word_of(field, name, value, names).map(|word| Some((field, word)))
}

/// The number of `field` as a word: of floating-point numbers the bits.
fn word_of(field: &Field, name: &str, value: &FieldValue, names: &mut NameTable) -> Result<u64, FieldError> {
    let meaning = &field.meaning;
    if matches!(meaning.unit, NumberUnit::Name | NumberUnit::NameNumber) {
        return Ok(names.name(word(name, value)?).0.into());
    }
    let signed = |least: i64, most: i64| {
        whole(name, value, least.max(meaning.least as i64)..=meaning.most.unwrap_or(most)).map(i64::cast_unsigned)
    };
    match field.number {
        Primitive::F64 => real(name, value, meaning.least).map(f64::to_bits),
        Primitive::I32 => signed(i64::from(i32::MIN) + i64::from(meaning.optional), i32::MAX.into()),
        Primitive::U32 => signed(0, i64::from(u32::MAX) - i64::from(meaning.optional)),
        Primitive::U64 => signed(0, LATEST_US.cast_signed()),
        Primitive::I64 | Primitive::None => signed(i64::MIN, i64::MAX),
    }
}

fn with_article(what: &str) -> String {
    let article = if what.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {what}")
}

/// The row of a decision at `now` where nothing is set.
pub(crate) fn usual<R: Row + Default>(now: Micros) -> R {
    let mut row = R::default();
    for field in R::FIELDS.iter().filter(|field| matches!(field.name, "now_us" | "scraped_us")) {
        row.set(field, now.0);
    }
    row
}

/// The flow at `index` of a list: one request of one token, enqueued after those of the flows before.
pub(crate) fn flow(index: usize, now: Micros) -> FlowRow {
    let head = Request::new(RequestId(index as u32), Micros::ZERO, 1, 1);
    let (index, served_as_of_us) = (index as u32, now.0);
    FlowRow { tenant_order: index, head_turn: index.into(), served_as_of_us, ..flow_of(&head) }
}

/// The request in flight at `index` of a list: of one token and priority -1, dispatched at 0.
pub(crate) fn in_flight(index: usize) -> InFlightRow {
    InFlightRow { id: index as u32, priority: -1, input_tokens: 1, ..InFlightRow::default() }
}
