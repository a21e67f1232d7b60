//! Columns: a number for each instance (or each request of a batch), and arithmetic on whole columns. One operation of
//! the script does the work of a loop, at the speed of compiled code.
//!
//! Operations reuse the memory of a column that has no other reference. Their work is charged to the call
//! ([`call::charge`]), because the script interpreter counts each of them as one operation only.

use std::cmp::Ordering;
use std::sync::Arc;

use rhai::{Array, Dynamic, FLOAT, FnPtr, INT, NativeCallContext};

use super::call::{self, failure};
use super::operators::{COMPARISONS, exact};
use super::registry::{Registry, ScriptError};
use crate::meter;

/// One number for each instance or request.
#[derive(Clone, Debug)]
pub(super) struct Column(ColumnNumbers);

/// The numbers of a column. Their memory is counted apart: the engine does not look at them when it counts the entries of a
/// value ([`call::progress`]).
#[derive(Clone, Debug)]
struct ColumnNumbers(Arc<[f64]>);

impl ColumnNumbers {
    /// The numbers, to be changed, if there is no other reference.
    fn own(&mut self) -> Option<&mut [f64]> {
        Arc::get_mut(&mut self.0)
    }

    /// The numbers, to be changed. They are copied if there is another reference.
    fn make_own(&mut self) -> &mut [f64] {
        if self.own().is_none() {
            *self = self.iter().copied().collect();
        }
        Arc::make_mut(&mut self.0)
    }

    /// Memory of `len` numbers, with the count of references.
    fn bytes(len: usize) -> i64 {
        (size_of::<[usize; 2]>() + len * size_of::<f64>()) as i64
    }
}

impl FromIterator<f64> for ColumnNumbers {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let values: Arc<[f64]> = values.into_iter().collect();
        meter::count_numbers(Self::bytes(values.len()));
        Self(values)
    }
}

impl Drop for ColumnNumbers {
    fn drop(&mut self) {
        // There are no weak references. Cheaper than `own`, which locks.
        if Arc::strong_count(&self.0) == 1 {
            meter::count_numbers(-Self::bytes(self.0.len()));
        }
    }
}

impl std::ops::Deref for ColumnNumbers {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.0
    }
}

impl Column {
    /// A column of values from a view; the script is not charged.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Self {
        Self(values.into_iter().collect())
    }

    pub fn values(&self) -> &[f64] {
        &self.0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Overwrites `self`, and reuses its memory if there is no other reference.
    pub fn refill(&mut self, values: impl ExactSizeIterator<Item = f64>) {
        match self.0.own() {
            Some(own) if own.len() == values.len() => own.iter_mut().zip(values).for_each(|(own, new)| *own = new),
            _ => self.0 = values.collect(),
        }
    }

    /// The `len` numbers, all of which the caller overwrites; reuses their memory as [`Self::refill`] does.
    pub fn entries_to_fill(&mut self, len: usize) -> &mut [f64] {
        if self.0.own().is_none_or(|own| own.len() != len) {
            self.0 = std::iter::repeat_n(0.0, len).collect();
        }
        self.0.make_own()
    }

    /// The numbers, some of which the caller overwrites. They are copied if there is another reference.
    pub fn entries(&mut self) -> &mut [f64] {
        self.0.make_own()
    }

    fn map(mut self, f: impl Fn(f64) -> f64) -> Result<Self, ScriptError> {
        call::charge(self.len())?;
        if let Some(own) = self.0.own() {
            own.iter_mut().for_each(|x| *x = f(*x));
            return Ok(self);
        }
        Ok(Self(self.0.iter().map(|&x| f(x)).collect()))
    }

    fn zip(mut self, mut other: Self, f: impl Fn(f64, f64) -> f64) -> Result<Self, ScriptError> {
        same_length(&self, &other)?;
        call::charge(self.len())?;
        if let Some(own) = self.0.own() {
            own.iter_mut().zip(&*other.0).for_each(|(x, &y)| *x = f(*x, y));
            return Ok(self);
        }
        if let Some(own) = other.0.own() {
            own.iter_mut().zip(&*self.0).for_each(|(y, &x)| *y = f(x, *y));
            return Ok(other);
        }
        Ok(Self(self.0.iter().zip(&*other.0).map(|(&x, &y)| f(x, y)).collect()))
    }

    fn fold<T>(&self, what: &str, f: impl Fn(&[f64]) -> T) -> Result<T, ScriptError> {
        call::charge(self.len())?;
        if self.0.is_empty() {
            return Err(failure(format!("the {what} of an empty column")));
        }
        Ok(f(&self.0))
    }

    fn index(&self, index: INT) -> Result<usize, ScriptError> {
        let valid = usize::try_from(index).ok().filter(|&valid| valid < self.len());
        valid.ok_or_else(|| {
            failure(match self.len() {
                0 => format!("there is no index {index}: the column is empty"),
                n => format!("there is no index {index}: the column has the indices 0 to {}", n - 1),
            })
        })
    }
}

impl IntoIterator for Column {
    type Item = f64;
    type IntoIter = std::vec::IntoIter<f64>;

    fn into_iter(self) -> Self::IntoIter {
        Vec::from(&*self.0).into_iter()
    }
}

fn same_length(a: &Column, b: &Column) -> Result<(), ScriptError> {
    if a.len() == b.len() {
        return Ok(());
    }
    Err(failure(format!(
        "one column has {} entries and the other {}; only columns over the same things go together",
        a.len(),
        b.len()
    )))
}

/// The value of a number (integer or float) or a truth value (0 or 1).
pub(super) fn number(value: &Dynamic) -> Option<f64> {
    value
        .as_float()
        .or_else(|_| value.as_int().map(|i| i as f64))
        .or_else(|_| value.as_bool().map(|b| f64::from(u8::from(b))))
        .ok()
}

/// The elements of an array as numbers.
pub(super) fn numbers(array: &[Dynamic]) -> Result<Vec<f64>, ScriptError> {
    let one = |(i, value): (usize, &Dynamic)| {
        number(value).ok_or_else(|| failure(format!("entry {i} of the array is not a number but {}", type_name(value))))
    };
    array.iter().enumerate().map(one).collect()
}

pub(super) fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

/// As Rust's `max`, but NaN is propagated.
pub(super) fn larger(a: f64, b: f64) -> f64 {
    if a > b || a.is_nan() { a } else { b }
}

pub(super) fn smaller(a: f64, b: f64) -> f64 {
    if a < b || a.is_nan() { a } else { b }
}

/// The smallest and the largest number.
pub(super) fn extremes(values: &[f64]) -> (f64, f64) {
    let start = (f64::INFINITY, f64::NEG_INFINITY);
    // Without not-a-number each step is one instruction; of zeros of both signs the last counts, as in `smaller` and `larger`.
    if values.iter().fold(false, |found, x| found | x.is_nan()) {
        return values.iter().fold(start, |(least, most), &x| (smaller(least, x), larger(most, x)));
    }
    values.iter().fold(start, |(least, most), &x| (if least < x { least } else { x }, if most > x { most } else { x }))
}

/// The first index with a value that is `better(value, best so far)` than all others; `None` if there is none or a value is
/// not-a-number, which is neither larger nor smaller than the others.
pub(super) fn first_best(values: &[f64], better: impl Fn(f64, f64) -> bool) -> Option<usize> {
    if values.iter().any(|x| x.is_nan()) {
        return None;
    }
    (0..values.len()).reduce(|best, i| if better(values[i], values[best]) { i } else { best })
}

/// As [`first_best`], with an error if there is no such index.
fn index_of_best(column: &Column, what: &str, better: fn(f64, f64) -> bool) -> Result<INT, ScriptError> {
    if let Some(index) = column.0.iter().position(|x| x.is_nan()) {
        return Err(failure(format!("the {what} of a column that is not-a-number (NaN) at index {index}")));
    }
    column.fold(what, |values| first_best(values, better).unwrap_or(0) as INT)
}

/// The range of a column, for numbers from 0 to 1 as in the built-in scorers; 1 for all if they are equal.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeastAndMost {
    least: f64,
    most: f64,
}

impl LeastAndMost {
    pub fn of(values: &[f64]) -> Self {
        let (least, most) = extremes(values);
        Self { least, most }
    }

    /// 1 for the smallest, 0 for the largest.
    pub fn fewest_best(self, x: f64) -> f64 {
        let Self { least, most } = self;
        if least == most { 1.0 } else { (most - x) / (most - least) }
    }

    /// 1 for the largest, 0 for the smallest.
    pub fn most_best(self, x: f64) -> f64 {
        let Self { least, most } = self;
        if least == most { 1.0 } else { (x - least) / (most - least) }
    }
}

fn fewest_best(column: Column) -> Result<Column, ScriptError> {
    let scale = LeastAndMost::of(&column.0);
    column.map(|x| scale.fewest_best(x))
}

fn most_best(column: Column) -> Result<Column, ScriptError> {
    let scale = LeastAndMost::of(&column.0);
    column.map(|x| scale.most_best(x))
}

/// The order for sorting: not-a-number comes last, whatever its sign, which differs between processors.
pub(super) fn ordered(a: &f64, b: &f64) -> Ordering {
    a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Ranks from 0 for the smallest; equal values share the rank of the first of them.
fn rank_of(column: &Column) -> Result<Column, ScriptError> {
    call::charge(column.len().saturating_mul(16))?;
    let mut sorted = column.0.to_vec();
    sorted.sort_unstable_by(ordered);
    Ok(Column(column.0.iter().map(|x| sorted.partition_point(|y| ordered(y, x).is_lt()) as f64).collect()))
}

fn quantile(column: &Column, share: f64) -> Result<f64, ScriptError> {
    if !(0.0..=1.0).contains(&share) {
        return Err(failure(format!("a quantile takes a share from 0 to 1, not {share}")));
    }
    call::charge(column.len().saturating_mul(16))?;
    column.fold("quantile", |values| {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(ordered);
        let position = share * (sorted.len() - 1) as f64;
        let (low, part) = (position.floor() as usize, position.fract());
        if part == 0.0 { sorted[low] } else { sorted[low] + part * (sorted[low + 1] - sorted[low]) }
    })
}

/// Their sum; 0 of none. (The sum of the standard library is -0 of none.)
pub(super) fn total(values: impl Iterator<Item = f64>) -> f64 {
    values.reduce(|sum, x| sum + x).unwrap_or(0.0)
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / values.len() as f64
}

fn softmax(column: Column) -> Result<Column, ScriptError> {
    let (_, most) = extremes(&column.0);
    let raised = column.map(|x| libm::exp(x - most))?;
    share(raised)
}

fn share(column: Column) -> Result<Column, ScriptError> {
    let sum: f64 = column.0.iter().sum();
    column.map(|x| x / sum)
}

fn select(mask: &Column, a: &Column, b: &Column) -> Result<Column, ScriptError> {
    same_length(mask, a)?;
    same_length(mask, b)?;
    call::charge(mask.len())?;
    let choice = mask.0.iter().zip(&*a.0).zip(&*b.0).map(|((&m, &a), &b)| if m != 0.0 { a } else { b });
    Ok(Column(choice.collect()))
}

fn filled(len: INT, value: f64) -> Result<Column, ScriptError> {
    Ok(Column(std::iter::repeat_n(value, call::length(len)?).collect()))
}

pub(super) fn register(to: &mut Registry) {
    to.engine.register_type_with_name::<Column>("column");
    to.engine.register_iterator::<Column>();
    operators(to);
    elementwise(to);
    reductions(to);
    scalings(to);
    making(to);
    access(to);
}

fn operators(to: &mut Registry) {
    binary(to, "+", |a, b| a + b);
    binary(to, "-", |a, b| a - b);
    binary(to, "*", |a, b| a * b);
    binary(to, "/", |a, b| a / b);
    binary(to, "%", |a, b| a % b);
    binary(to, "**", libm::pow);
    binary(to, "<", |a, b| truth(a < b));
    binary(to, "<=", |a, b| truth(a <= b));
    binary(to, ">", |a, b| truth(a > b));
    binary(to, ">=", |a, b| truth(a >= b));
    binary(to, "==", |a, b| truth(a == b));
    binary(to, "!=", |a, b| truth(a != b));
    for (name, holds) in COMPARISONS {
        large(to, name, holds);
    }
    for name in ["&", "|"] {
        let f = move |a: f64, b: f64| truth(if name == "&" { a != 0.0 && b != 0.0 } else { a != 0.0 || b != 0.0 });
        to.add(name, move |a: Column, b: Column| a.zip(b, f));
        to.add(name, move |a: Column, b: bool| a.map(|a| f(a, truth(b))));
        to.add(name, move |a: bool, b: Column| b.map(|b| f(truth(a), b)));
    }
    to.add("-", |a: Column| a.map(|a| -a));
    to.add("+", |a: Column| a);
    to.add("!", |a: Column| a.map(|a| truth(a == 0.0)));
}

/// Registers `f` for two columns of equal length, and for a column and a number.
fn binary(to: &mut Registry, name: &'static str, f: impl Fn(f64, f64) -> f64 + Copy + Send + Sync + 'static) {
    to.add(name, move |a: Column, b: Column| a.zip(b, f));
    to.add(name, move |a: Column, b: FLOAT| a.map(|a| f(a, b)));
    to.add(name, move |a: FLOAT, b: Column| b.map(|b| f(a, b)));
    to.add(name, move |a: Column, b: INT| a.map(|a| f(a, b as f64)));
    to.add(name, move |a: INT, b: Column| b.map(|b| f(a as f64, b)));
}

/// Registers the comparison of a column with a whole number that may have more digits than an entry.
fn large(to: &mut Registry, name: &'static str, holds: fn(Option<Ordering>) -> bool) {
    let fits = |b: INT| b.unsigned_abs() <= 1 << 53;
    let test = move |order: Option<Ordering>| truth(holds(order));
    to.add(name, move |a: Column, b: INT| {
        if fits(b) {
            let b = b as f64;
            return a.map(|a| test(a.partial_cmp(&b)));
        }
        a.map(|a| test(exact(b, a).map(Ordering::reverse)))
    });
    to.add(name, move |a: INT, b: Column| {
        if fits(a) {
            let a = a as f64;
            return b.map(|b| test(a.partial_cmp(&b)));
        }
        b.map(|b| test(exact(a, b)))
    });
}

/// As [`binary`], and for two numbers of which at least one has a fraction.
fn both(to: &mut Registry, name: &'static str, f: impl Fn(f64, f64) -> f64 + Copy + Send + Sync + 'static) {
    binary(to, name, f);
    to.add(name, f);
    to.add(name, move |a: FLOAT, b: INT| f(a, b as f64));
    to.add(name, move |a: INT, b: FLOAT| f(a as f64, b));
}

/// Registers `f` for a column, and for a number.
fn unary(to: &mut Registry, names: &[&'static str], f: impl Fn(f64) -> f64 + Copy + Send + Sync + 'static) {
    for name in names {
        to.add(name, move |a: Column| a.map(f));
        to.add(name, move |a: FLOAT| f(a));
        to.add(name, move |a: INT| f(a as f64));
    }
}

fn elementwise(to: &mut Registry) {
    to.add("abs", |a: Column| a.map(f64::abs));
    to.add("sign", |a: Column| {
        a.map(|a| {
            if a > 0.0 {
                1.0
            } else if a < 0.0 {
                -1.0
            } else {
                a
            }
        })
    });
    unary(to, &["sqrt"], libm::sqrt);
    unary(to, &["exp"], libm::exp);
    unary(to, &["ln"], libm::log);
    unary(to, &["log2"], libm::log2);
    unary(to, &["log10"], libm::log10);
    unary(to, &["log1p"], libm::log1p);
    unary(to, &["sin"], libm::sin);
    unary(to, &["cos"], libm::cos);
    unary(to, &["tanh"], libm::tanh);
    unary(to, &["sigmoid"], |x| 1.0 / (1.0 + libm::exp(-x)));
    unary(to, &["floor"], f64::floor);
    unary(to, &["ceil", "ceiling"], f64::ceil);
    unary(to, &["round"], f64::round);
    both(to, "max", larger);
    both(to, "min", smaller);
    both(to, "pow", libm::pow);
    to.add("pow", |a: INT, b: INT| libm::pow(a as f64, b as f64));
    for name in ["clamp", "clip"] {
        to.add(name, |a: Column, low: Dynamic, high: Dynamic| -> Result<Column, ScriptError> {
            let (low, high) = bounds(&low, &high)?;
            a.map(|x| smaller(larger(x, low), high))
        });
        to.add(name, |x: Dynamic, low: Dynamic, high: Dynamic| -> Result<Dynamic, ScriptError> {
            let (least, most) = bounds(&low, &high)?;
            if let (Ok(x), Ok(low), Ok(high)) = (x.as_int(), low.as_int(), high.as_int()) {
                return Ok(Dynamic::from_int(x.clamp(low, high)));
            }
            let x = number(&x).ok_or_else(|| failure("`clamp` takes a number or a column".to_owned()))?;
            Ok(Dynamic::from_float(smaller(larger(x, least), most)))
        });
    }
    for name in ["select", "where", "if_else"] {
        to.add(name, |mask: Column, a: Dynamic, b: Dynamic| -> Result<Column, ScriptError> {
            let a = spread(&a, mask.len())?;
            select(&mask, &a, &spread(&b, mask.len())?)
        });
    }
    to.add("is_nan", |a: Column| a.map(|a| truth(a.is_nan())));
    to.add("is_finite", |a: Column| a.map(|a| truth(a.is_finite())));
    to.add("map", |context: NativeCallContext, a: Column, f: FnPtr| -> Result<Column, ScriptError> {
        call::charge(a.len())?;
        let one = |&x: &f64| -> Result<f64, ScriptError> {
            let y = f.call_within_context::<Dynamic>(&context, (x,))?;
            number(&y).ok_or_else(|| failure(format!("the function given to `map` returned {}", type_name(&y))))
        };
        let mut mapped: ColumnNumbers = a.0.iter().map(|_| 0.0).collect();
        for (to, &x) in mapped.make_own().iter_mut().zip(&*a.0) {
            *to = one(&x)?;
        }
        Ok(Column(mapped))
    });
}

fn bounds(low: &Dynamic, high: &Dynamic) -> Result<(f64, f64), ScriptError> {
    // Whole numbers may differ and still be the same number of 53 bits.
    let is_reversed = matches!((low.as_int(), high.as_int()), (Ok(low), Ok(high)) if low > high);
    match (number(low), number(high)) {
        (Some(low), Some(high)) if low <= high && !is_reversed => Ok((low, high)),
        _ => Err(failure(format!("`clamp` needs two numbers, the smaller first: not {low} and {high}"))),
    }
}

/// A column unchanged, or a number repeated to a column of length `len`.
pub(super) fn spread(value: &Dynamic, len: usize) -> Result<Column, ScriptError> {
    if let Some(column) = value.read_lock::<Column>() {
        return Ok(column.clone());
    }
    match number(value) {
        Some(number) => Ok(Column(std::iter::repeat_n(number, len).collect())),
        None => Err(failure(format!("this takes columns or numbers, not {}", type_name(value)))),
    }
}

fn reductions(to: &mut Registry) {
    to.add("sum", |a: Column| -> Result<f64, ScriptError> {
        call::charge(a.len())?;
        Ok(total(a.0.iter().copied()))
    });
    for name in ["mean", "avg", "average"] {
        to.add(name, |a: Column| a.fold("mean", mean));
    }
    to.add("max", |a: Column| a.fold("maximum", |values| extremes(values).1));
    to.add("min", |a: Column| a.fold("minimum", |values| extremes(values).0));
    to.add("variance", |a: Column| a.fold("variance", variance));
    for name in ["std", "stddev"] {
        to.add(name, |a: Column| a.fold("standard deviation", |values| variance(values).sqrt()));
    }
    to.add("median", |a: Column| quantile(&a, 0.5));
    to.add("quantile", |a: Column, share: FLOAT| quantile(&a, share));
    to.add("quantile", |a: Column, share: INT| quantile(&a, share as f64));
    for name in ["argmax", "arg_max"] {
        to.add(name, |a: Column| index_of_best(&a, "largest", |x, best| x > best));
    }
    for name in ["argmin", "arg_min"] {
        to.add(name, |a: Column| index_of_best(&a, "smallest", |x, best| x < best));
    }
    to.add("any", |a: Column| call::charge(a.len()).map(|()| a.0.iter().any(|&x| x != 0.0)));
    to.add("all", |a: Column| call::charge(a.len()).map(|()| a.0.iter().all(|&x| x != 0.0)));
    to.add("count", |a: Column| call::charge(a.len()).map(|()| a.0.iter().filter(|&&x| x != 0.0).count() as INT));
    to.add("contains", |a: Column, x: FLOAT| call::charge(a.len()).map(|()| a.0.contains(&x)));
    to.add("contains", |a: Column, x: INT| {
        call::charge(a.len()).map(|()| a.0.iter().any(|&entry| exact(x, entry) == Some(Ordering::Equal)))
    });
    to.add("dot", |a: Column, b: Column| -> Result<f64, ScriptError> {
        same_length(&a, &b)?;
        call::charge(a.len())?;
        Ok(total(a.0.iter().zip(&*b.0).map(|(a, b)| a * b)))
    });
}

fn scalings(to: &mut Registry) {
    for name in ["fewest_best", "lowest_best", "least_best", "min_best"] {
        to.add(name, fewest_best);
    }
    for name in ["most_best", "highest_best", "max_best", "normalize", "normalise"] {
        to.add(name, most_best);
    }
    for name in ["rank_of", "ranks"] {
        to.add(name, |a: Column| rank_of(&a));
    }
    to.add("share", share);
    to.add("softmax", softmax);
}

fn making(to: &mut Registry) {
    to.add("zeros", |len: INT| filled(len, 0.0));
    to.add("ones", |len: INT| filled(len, 1.0));
    to.add("column", |len: INT, value: FLOAT| filled(len, value));
    to.add("column", |len: INT, value: INT| filled(len, value as f64));
    to.add("column", |array: Array| -> Result<Column, ScriptError> {
        call::charge(array.len())?;
        Ok(Column::new(numbers(&array)?))
    });
    to.add("indices", |len: INT| -> Result<Column, ScriptError> {
        Ok(Column((0..call::length(len)?).map(|i| i as f64).collect()))
    });
    to.add("one_hot", |len: INT, index: INT| -> Result<Column, ScriptError> {
        let mut column = filled(len, 0.0)?;
        let index = column.index(index)?;
        column.0.make_own()[index] = 1.0;
        Ok(column)
    });
    to.add("to_array", |a: Column| -> Result<Array, ScriptError> {
        call::charge(a.len())?;
        Ok(a.0.iter().map(|&x| Dynamic::from_float(x)).collect())
    });
}

fn access(to: &mut Registry) {
    to.add("len", |a: Column| a.len() as INT);
    to.engine.register_get("len", |a: &mut Column| a.len() as INT);
    to.engine.register_indexer_get(|a: &mut Column, index: INT| a.index(index).map(|index| a.0[index]));
    to.engine.register_indexer_get(|a: &mut Column, index: FLOAT| a.index(whole(index)?).map(|index| a.0[index]));
    to.engine.register_indexer_set(|a: &mut Column, index: INT, value: Dynamic| set(a, index, &value));
    to.engine.register_indexer_set(|a: &mut Column, index: FLOAT, value: Dynamic| set(a, whole(index)?, &value));
}

fn whole(index: f64) -> Result<INT, ScriptError> {
    if index.fract() == 0.0 && index.abs() < 1e15 {
        return Ok(index as INT);
    }
    Err(failure(format!("an index is a whole number, not {index}")))
}

fn set(column: &mut Column, index: INT, value: &Dynamic) -> Result<(), ScriptError> {
    let index = column.index(index)?;
    let value = number(value).ok_or_else(|| failure(format!("a column holds numbers, not {}", type_name(value))))?;
    if column.0.own().is_none() {
        call::charge(column.len())?;
    }
    column.0.make_own()[index] = value;
    Ok(())
}

/// The type name of `value` in messages to script authors.
pub(super) fn type_name(value: &Dynamic) -> &'static str {
    if value.is_unit() {
        "nothing"
    } else if value.is::<INT>() {
        "a whole number"
    } else if value.is_float() {
        "a number"
    } else if value.is_bool() {
        "a truth value"
    } else if value.is_string() {
        "a text"
    } else if value.is_array() {
        "an array"
    } else if value.is_map() {
        "an object map"
    } else if value.is_fnptr() {
        "a function"
    } else if value.is::<Column>() {
        "a column"
    } else {
        "something of the host"
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn extremes_are_those_of_the_functions_of_two(
            values in prop::collection::vec(prop_oneof![Just(f64::NAN), Just(0.0), Just(-0.0), Just(f64::INFINITY), -2.0..2.0], 0..9),
        ) {
            let (least, most) = extremes(&values);
            let bits = |of: fn(f64, f64) -> f64, start| values.iter().copied().fold(start, of).to_bits();
            prop_assert_eq!(least.to_bits(), bits(smaller, f64::INFINITY));
            prop_assert_eq!(most.to_bits(), bits(larger, f64::NEG_INFINITY));
        }
    }
}
