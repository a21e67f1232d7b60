//! Functions of scripts without loops, as an expression tree of their own: the script engine takes some 150 ns for each
//! operation, however short the column.
//!
//! The script engine defines what a script does. A function is [compiled](FastFunction::compile) if all in it is known
//! here: arithmetic, conditions, what the host offers for columns, tables of the state. Whatever then differs from the
//! expected in a call (a text where a number was, an overflow, a limit, an error) leaves the state as it was, and the engine
//! makes the call instead. Both count the same operations. Tests compare their results, state and operations.

mod columns;
mod compile;
mod evaluate;

use std::any::Any;

use rhai::{AST, Dynamic, FuncArgs, Variant};

use self::columns::Columns;
use self::compile::Statements;
use super::registry::KnownNames;
use crate::Limits;

/// The arguments of a function that the host calls; `()` where there is none.
pub(super) type ArgumentsOfCall<'a> = [&'a dyn Any; 4];

/// Arguments with which the host calls a function of a script.
pub(super) trait HostArguments: FuncArgs {
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
#[derive(Debug)]
pub(super) struct FastFunction {
    body: Statements,
    /// Names of the tables of the state.
    tables: Vec<String>,
}

/// Memory that calls use again.
#[derive(Debug, Default)]
pub(super) struct FastMemory {
    columns: Columns,
    /// Entries of tables before this call changed them: the number of the table, the key, the number.
    overwritten: Vec<(usize, i64, Option<f64>)>,
}

/// What a call returns.
#[derive(Debug)]
pub(super) enum FastResult<'a> {
    Value(Dynamic),
    /// The numbers of a column.
    Column(&'a [f64]),
}

/// The result of a call.
#[derive(Debug)]
pub(super) struct FastOutput<'a> {
    pub output: FastResult<'a>,
    /// Operations, as the script engine counts them.
    pub operations: u64,
    /// Column elements that the call processed.
    pub numbers: u64,
}

impl FastFunction {
    /// The function `name` of `ast` with arguments that are views; `None` if something in it is not known here.
    pub fn compile(ast: &AST, name: &str, views: &[Option<&'static str>], known: &KnownNames) -> Option<Self> {
        compile::function(ast, name, views, known)
    }

    /// Whether calls can change the state.
    pub fn uses_state(&self) -> bool {
        !self.tables.is_empty()
    }

    /// Calls the function with `state` as `this`. `None` if the script engine has to make this call; the state is then
    /// unchanged.
    pub fn call<'a>(
        &'a self,
        arguments: ArgumentsOfCall<'a>,
        state: &mut Dynamic,
        limits: &Limits,
        memory: &'a mut FastMemory,
    ) -> Option<FastOutput<'a>> {
        evaluate::call(self, arguments, state, limits, memory)
    }
}
