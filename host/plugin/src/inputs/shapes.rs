//! Inputs of functions that get rows only, by what the table of rows says of their fields.

use std::sync::Arc;

use blis_abi::{Field, NumberUnit, Primitive, RowShape};
use blis_sim::units::Micros;
use rand::{Rng, RngExt as _};

use super::call_inputs::{AnyOwnedRows, CallInputs, OwnedRows, largest_word};
use super::point::generator;
use crate::Function;

/// Inputs number `item` of `function`, with `n` rows in each list.
pub(super) fn plausible(function: Function, n: usize, item: u64) -> CallInputs {
    let mut rng = generator(function.name(), item);
    inputs(function, n, item, &mut |field| word(field, &mut rng))
}

/// Inputs with values at the limits of their ranges, by name.
pub(super) fn extreme(function: Function, n: usize) -> Vec<(&'static str, CallInputs)> {
    let least = |field: &Field| match field.number {
        Primitive::F64 => field.meaning.least.max(-1e300).to_bits(),
        _ => (field.meaning.least.max(i64::MIN as f64) as i64).cast_unsigned(),
    };
    vec![
        ("everything as small as it can be", inputs(function, n, 0, &mut |field| least(field))),
        ("everything as large as it can be", inputs(function, n, 0, &mut |field| largest_word(field))),
    ]
}

/// The row and the lists of `function`, with numbers that `word` makes.
fn inputs(function: Function, n: usize, item: u64, word: &mut dyn FnMut(&Field) -> u64) -> CallInputs {
    let shape = &function.row().inputs;
    let mut rows = |shape: &'static RowShape, count: usize| {
        let mut rows = AnyOwnedRows::new(shape, count);
        for (index, field) in (0..count).flat_map(|index| shape.fields.iter().map(move |field| (index, field))) {
            rows.set(index, field, word(field));
        }
        Arc::new(rows) as Arc<dyn OwnedRows>
    };
    let row = shape.row.as_ref().map(|row| rows(row, 1));
    let all = row.into_iter().chain(shape.lists.iter().map(|list| rows(list, n))).collect();
    CallInputs::at(Micros(1_000_000_000 + 250_000 * item), all)
}

/// A number as a service could have it.
fn word(field: &Field, rng: &mut impl Rng) -> u64 {
    let most = field.meaning.most.map_or(u64::MAX, |most| u64::try_from(most).unwrap_or(0));
    match (field.meaning.unit, field.number) {
        (NumberUnit::Name | NumberUnit::NameNumber, _) => 0,
        (_, Primitive::F64) => (f64::from(rng.random_range(0..=1000)) / 1000.0).max(field.meaning.least).to_bits(),
        (NumberUnit::Micros, _) => rng.random_range(0..=1_000_000_000.min(most)),
        // Small numbers are as frequent as large ones.
        _ => (1 << rng.random_range(0..16_u32)).min(most) - rng.random_range(0..=1),
    }
}
