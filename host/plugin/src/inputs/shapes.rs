//! Inputs of functions that get rows, by what the table of rows says of their fields.

use std::sync::Arc;

use blis_abi::decisions::NumberShape;
use blis_abi::{Field, NumberUnit, Primitive, RowShape};
use blis_sim::units::Micros;
use rand::{Rng, RngExt as _};

use super::call_inputs::{AnyOwnedRows, CallInputs, OwnedRows};
use super::point::{NAMES, generator};
use crate::Function;
use crate::rows::HISTORY;

/// Time between two decisions of a scaling policy, µs.
const SCALING_US: u64 = 15_000_000;

/// Inputs number `item` of `function`, with `n` rows in each list.
pub(super) fn plausible(function: Function, n: usize, item: u64) -> CallInputs {
    let mut rng = generator(function.name(), item);
    let level = generator("level", item).random_range(0.0..1.5);
    let now = Micros(1_000_000_000 + 250_000 * item);
    inputs(function, n, item.min(HISTORY as u64), now, level, &mut |context, field| word(context, field, &mut rng))
}

/// Inputs with values at the limits of their ranges, by name.
pub(super) fn extreme(function: Function, n: usize) -> Vec<(&'static str, CallInputs)> {
    let latest = Micros(i64::MAX.cast_unsigned());
    let most = HISTORY as u64;
    let smallest = inputs(function, n, 0, Micros::ZERO, 0.0, &mut |_, field| Some(least(field)));
    let largest = inputs(function, n, most, latest, 1e300, &mut |context, field| match field.name {
        "chosen" => Some(context.rows as u64 - 1),
        _ => Some(largest(field)),
    });
    let mut all = vec![("everything as small as it can be", smallest), ("everything as large as it can be", largest)];
    if !function.row().inputs.lists.is_empty() {
        let now = Micros(1_000_000_000);
        let equal = inputs(function, n, most, now, 0.5, &mut |context, field| {
            word(RowContext { index: 0, ..context }, field, &mut generator(field.name, 7))
        });
        all.push(("all rows equal", equal));
    }
    all
}

/// The row for which a number is made.
#[derive(Clone, Copy)]
struct RowContext {
    /// Its index in its list.
    index: usize,
    /// Number of rows in each list.
    rows: usize,
    /// Time of the decision that it belongs to.
    now: Micros,
    /// Length of the prompt that the decision is about, tokens.
    prompt_tokens: u64,
}

/// The inputs of `function` at `now`: its number, the saturation or an index, by `level`; rows with numbers that `word` makes. A
/// history has `before` decisions.
fn inputs(
    function: Function,
    n: usize,
    before: u64,
    now: Micros,
    level: f64,
    word: &mut dyn FnMut(RowContext, &Field) -> Option<u64>,
) -> CallInputs {
    let shape = &function.row().inputs;
    let mut prompt_tokens = 0;
    let mut rows = |shape: &'static RowShape, count: usize, before: u64| {
        let mut rows = AnyOwnedRows::new(shape, count);
        for (index, field) in (0..count).flat_map(|index| shape.fields.iter().map(move |field| (index, field))) {
            let ago = before.saturating_sub((index / n) as u64);
            let now = now.saturating_sub(Micros(SCALING_US * ago));
            if let Some(word) = word(RowContext { index, rows: n, now, prompt_tokens }, field) {
                prompt_tokens = if field.name == "input_tokens" { word } else { prompt_tokens };
                rows.set(index, field, if field.name == "now_us" { now.0 } else { word });
            }
        }
        Arc::new(rows) as Arc<dyn OwnedRows>
    };
    let mut all: Vec<_> = shape.row.iter().map(|row| rows(row, 1, 0)).collect();
    for (index, list) in shape.lists.iter().enumerate() {
        let is_history = function == Function::Scale && index > 0;
        all.push(if is_history { rows(list, n * before as usize, before) } else { rows(list, n, 0) });
    }
    let number = match shape.number {
        Some(NumberShape::F64) => level.to_bits(),
        // The index of a request of the batch.
        Some(NumberShape::U32) => ((level * n as f64) as u64).min(n as u64 - 1),
        _ => 0,
    };
    CallInputs { number, ..CallInputs::at(now, all) }
}

/// A number as a service could have it; `None` if it is missing.
fn word(context: RowContext, field: &Field, rng: &mut impl Rng) -> Option<u64> {
    let meaning = &field.meaning;
    let most = meaning.most.unwrap_or(i64::MAX);
    // Of a number from -1 on, that says that there is none.
    if (meaning.optional || meaning.least == -1.0) && rng.random_bool(0.25) {
        return (!meaning.optional).then(|| least(field));
    }
    Some(match (field.name, meaning.unit, field.number) {
        // Each flow is that of another tenant.
        ("tenant", ..) => (NAMES.len() + context.index) as u64,
        ("tenant_order", ..) => context.index as u64,
        ("uncached_tokens", ..) => rng.random_range(0..=context.prompt_tokens),
        ("chosen", ..) => rng.random_range(0..context.rows.max(1)) as u64,
        (_, NumberUnit::Name | NumberUnit::NameNumber, _) => rng.random_range(0..NAMES.len()) as u64,
        (_, _, Primitive::F64) => {
            let share = f64::from(rng.random_range(0..=1000)) / 1000.0;
            let scale = if meaning.most == Some(1) { 1.0 } else { f64::from(1 << rng.random_range(0..16_u32)) };
            (share * scale).max(meaning.least).to_bits()
        }
        (_, NumberUnit::Micros, _) => rng.random_range(0..=context.now.0),
        (_, _, Primitive::I32 | Primitive::I64) => rng.random_range(-5..=most.min(4)).cast_unsigned(),
        // Small numbers are as frequent as large ones.
        _ => {
            let number = (1 << rng.random_range(0..16_u32)).min(most.cast_unsigned()) - rng.random_range(0..=1);
            number.max(meaning.least as u64)
        }
    })
}

/// The smallest number of `field`.
fn least(field: &Field) -> u64 {
    let least = field.meaning.least;
    match field.number {
        Primitive::F64 => least.max(-1e300).to_bits(),
        Primitive::I32 => least.max(i32::MIN.into()) as i64 as u64,
        _ => (least as i64).cast_unsigned(),
    }
}

/// The largest number of `field`; no name.
fn largest(field: &Field) -> u64 {
    let optional = i64::from(field.meaning.optional);
    let most = |largest: i64| field.meaning.most.unwrap_or(largest).cast_unsigned();
    match (field.meaning.unit, field.number) {
        (NumberUnit::Name | NumberUnit::NameNumber, _) => 0,
        (_, Primitive::F64) => field.meaning.most.map_or(1e300, |most| most as f64).to_bits(),
        (_, Primitive::U32) => most(i64::from(u32::MAX) - optional),
        (_, Primitive::I32) => most(i32::MAX.into()),
        _ => most(i64::MAX),
    }
}
