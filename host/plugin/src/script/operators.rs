//! Operators on numbers, with the results of IEEE 754 and of the columns, on every machine.
//!
//! Rhai's own comparisons take numbers as equal that differ in their last digit, and no number as less than infinity; its
//! power is the platform's. These replace both, so the engine must look for functions before it uses its own
//! operators ([`rhai::Engine::set_fast_operators`]).

use std::cmp::Ordering;

use rhai::{FLOAT, INT};

use super::registry::Registry;

pub(super) fn register(to: &mut Registry) {
    comparisons(to);
    powers(to);
}

/// `<` and the like of two numbers, at least one of them with a fraction. Whole numbers are converted, as in columns.
fn comparisons(to: &mut Registry) {
    type Test = fn(Option<Ordering>) -> bool;
    let tests: [(&str, Test); 6] = [
        ("<", |order| order == Some(Ordering::Less)),
        ("<=", |order| matches!(order, Some(Ordering::Less | Ordering::Equal))),
        (">", |order| order == Some(Ordering::Greater)),
        (">=", |order| matches!(order, Some(Ordering::Greater | Ordering::Equal))),
        ("==", |order| order == Some(Ordering::Equal)),
        ("!=", |order| order != Some(Ordering::Equal)),
    ];
    for (operator, holds) in tests {
        to.engine.register_fn(operator, move |a: FLOAT, b: FLOAT| holds(a.partial_cmp(&b)));
        to.engine.register_fn(operator, move |a: FLOAT, b: INT| holds(a.partial_cmp(&(b as FLOAT))));
        to.engine.register_fn(operator, move |a: INT, b: FLOAT| holds((a as FLOAT).partial_cmp(&b)));
    }
}

/// `**` with a fraction in it; that of whole numbers is exact, or an error.
fn powers(to: &mut Registry) {
    to.engine.register_fn("**", |a: FLOAT, b: FLOAT| libm::pow(a, b));
    to.engine.register_fn("**", |a: FLOAT, b: INT| libm::pow(a, b as FLOAT));
    to.engine.register_fn("**", |a: INT, b: FLOAT| libm::pow(a as FLOAT, b));
    to.engine.register_fn("**=", |a: &mut FLOAT, b: FLOAT| *a = libm::pow(*a, b));
    to.engine.register_fn("**=", |a: &mut FLOAT, b: INT| *a = libm::pow(*a, b as FLOAT));
}
