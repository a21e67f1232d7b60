//! A function of a script as an expression tree, and what its calls take and return.

use std::any::Any;

use rhai::{Dynamic, FuncArgs, Variant};

use super::columns::Columns;
use super::compile::Statements;

/// The arguments of a function that the host calls; `()` where there is none.
pub(in crate::script) type ArgumentsOfCall<'a> = [&'a dyn Any; 4];

/// Arguments with which the host calls a function of a script.
pub(in crate::script) trait HostArguments: FuncArgs {
    /// The arguments, to be looked at.
    fn views(&self) -> ArgumentsOfCall<'_>;
}

impl HostArguments for () {
    fn views(&self) -> ArgumentsOfCall<'_> {
        [&(), &(), &(), &()]
    }
}

impl<A: Variant + Clone> HostArguments for (A,) {
    fn views(&self) -> ArgumentsOfCall<'_> {
        [&self.0, &(), &(), &()]
    }
}

impl<A: Variant + Clone, B: Variant + Clone> HostArguments for (A, B) {
    fn views(&self) -> ArgumentsOfCall<'_> {
        [&self.0, &self.1, &(), &()]
    }
}

impl<A, B, C, D> HostArguments for (A, B, C, D)
where
    A: Variant + Clone,
    B: Variant + Clone,
    C: Variant + Clone,
    D: Variant + Clone,
{
    fn views(&self) -> ArgumentsOfCall<'_> {
        [&self.0, &self.1, &self.2, &self.3]
    }
}

/// A function of a script as an expression tree.
pub(in crate::script) struct FastFunction {
    pub(super) body: Statements,
    /// Names of the tables of the state.
    pub tables: Vec<String>,
}

/// Memory that calls use again.
#[derive(Debug, Default)]
pub(in crate::script) struct FastMemory {
    pub(super) columns: Columns,
    /// Entries of tables before this call changed them: the number of the table, the key, the number.
    pub overwritten: Vec<(usize, i64, Option<f64>)>,
}

/// What a call returns.
#[derive(Debug)]
pub(in crate::script) enum FastResult<'a> {
    Value(Dynamic),
    /// The numbers of a column.
    Column(&'a [f64]),
}

/// The result of a call.
#[derive(Debug)]
pub(in crate::script) struct FastOutput<'a> {
    pub output: FastResult<'a>,
    /// Operations, as the script engine counts them.
    pub operations: u64,
    /// Column elements that the call processed.
    pub numbers: u64,
}
