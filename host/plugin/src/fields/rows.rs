//! Fields of rows from named values, by the table of rows ([`blis_abi::Field`]).

use blis_abi::{Field, Layout as _, NumberUnit, Primitive, Row, RowShape};
use blis_sim::units::Micros;

use super::value::{FieldError, FieldValue, LATEST_US, NameTable, real, whole, word};
use crate::rows::{FlowRow, InFlightRow, RunningRow};

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

/// The row at `index` of a list, or the one row of a decision, at `now`, where nothing is set.
pub(crate) fn usual<R: Row + Default>(index: usize, now: Micros) -> R {
    let mut row = R::default();
    for field in R::FIELDS {
        let word = match (R::NAME, field.name) {
            (_, "now_us" | "scraped_us" | "served_as_of_us") => now.0,
            // Those of a list are enqueued and admitted one after the other, with one token each.
            (FlowRow::NAME, "tenant_order" | "head_turn" | "head_id") => index as u64,
            (InFlightRow::NAME | RunningRow::NAME, "id") => index as u64,
            (FlowRow::NAME, "head_input_tokens") | (InFlightRow::NAME | RunningRow::NAME, "input_tokens") => 1,
            (InFlightRow::NAME, "priority") => (-1_i64).cast_unsigned(),
            _ => continue,
        };
        row.set(field, word);
    }
    row
}
