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
mod function;

use rhai::{AST, Dynamic};

pub(super) use self::function::{ArgumentsOfCall, FastFunction, FastMemory, FastOutput, FastResult, HostArguments};
use super::registry::KnownNames;
use crate::Limits;

impl FastFunction {
    /// The function `name` of `ast` with arguments that are views; `None` if something in it is not known here.
    pub fn compile(ast: &AST, name: &str, views: &[Option<&'static str>], known: &KnownNames) -> Option<Self> {
        let (body, tables) = compile::function(ast, name, views, known)?;
        Some(Self { body, tables })
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
