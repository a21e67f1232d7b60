//! A compiled script, and its code for given values of its parameters.

use std::sync::Arc;

use blis_sim::cluster::Abort;
use blis_sim::rng::Stream;
use rhai::{AST, Scope};

use super::call::{self, ScriptConstants};
use super::engine::Kit;
use super::entries::ENTRIES;
use super::errors::ScriptSource;
use super::fast::FastFunction;
use super::scan::words;
use super::views::UsedFields;
use super::{folding, state};
use crate::limits::EXPANDED_TOKENS;
use crate::{Fault, FaultKind, PolicyDescription};

/// A compiled script, with the default values of its parameters.
pub(super) struct Script {
    pub source: ScriptSource,
    pub description: PolicyDescription,
    pub functions: Vec<ScriptFunction>,
    pub used_fields: UsedFields,
    pub constants: Vec<String>,
    pub kit: Arc<Kit>,
}

/// A function of the script that the host calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScriptFunction {
    pub name: &'static str,
    pub parameters: usize,
    /// The last line with code of this function.
    pub last_line: u64,
}

/// The code of a script for given values of its parameters.
#[derive(Clone)]
pub(super) struct SpecializedCode {
    pub ast: Arc<AST>,
    /// Names and values of parameters and constants.
    pub constants: ScriptConstants,
    /// Functions that calls need no script engine for, by name.
    pub fast: Arc<[(&'static str, FastFunction)]>,
}

impl SpecializedCode {
    /// The function `name`, if calls need no script engine.
    pub fn fast(&self, name: &str) -> Option<&FastFunction> {
        self.fast.iter().find(|(known, _)| *known == name).map(|(_, function)| function)
    }
}

impl Script {
    pub fn function(&self, name: &str) -> Option<&ScriptFunction> {
        self.functions.iter().find(|function| function.name == name)
    }

    /// Compiles the script with `values` for its parameters. Parameters and constants are inlined into the code, so
    /// that reading them costs nothing.
    pub fn compile(&self, values: &[f64]) -> Result<SpecializedCode, Fault> {
        let mut scope = Scope::new();
        for (parameter, &value) in self.description.parameters.iter().zip(values) {
            scope.push_constant(parameter.name.as_str(), value);
        }
        let known = scope.len();
        // Before the values are known, functions see the constants below by name only.
        for name in &self.constants {
            scope.push(name.as_str(), ());
        }
        let ast = self.compile_in(&scope)?;
        scope.rewind(known);
        let about = call::ScriptCallInput {
            request: call::NO_REQUEST,
            stream: Stream::new(0, &self.source.path),
            ties: None,
            changed: None,
            bytes: 0,
        };
        call::begin(&self.kit.limits, &ScriptConstants::default(), &Abort::default(), about);
        let run = call::finish(self.kit.engine.run_ast_with_scope(&mut scope, &ast));
        run.map_err(|error| self.source.runtime(&error, &self.kit, "the script"))?;
        let mut constants = Scope::new();
        for (name, constant, value) in scope.iter() {
            if constant {
                constants.push_constant_dynamic(name, value);
            }
        }
        self.check_size(&constants)?;
        let ast = if self.constants.is_empty() { ast } else { self.compile_in(&constants)? };
        let constants = constants.iter().map(|(name, _, value)| (name.to_owned(), value)).collect();
        folding::check(&self.source, &ast, &constants)?;
        let compiled = |entry: &'static super::entries::EntryFunction| {
            Some((entry.name, FastFunction::compile(&ast, entry.name, &entry.views, &self.kit.names)?))
        };
        let fast = ENTRIES.iter().filter_map(compiled).collect();
        Ok(SpecializedCode { ast: Arc::new(ast), constants, fast })
    }

    /// Refuses constants with large values that are used often: the compiler puts the value where a name is.
    fn check_size(&self, constants: &Scope<'_>) -> Result<(), Fault> {
        let mut size = 0_u64;
        for (name, _, value) in constants.iter() {
            let values = state::check(&value).map_or(1, |size| size.values);
            if values > 1 {
                size =
                    size.saturating_add(values * words(&self.source.text).filter(|word| *word == name).count() as u64);
            }
        }
        if size <= EXPANDED_TOKENS as u64 {
            return Ok(());
        }
        let text = format!(
            "its constants, written out wherever they are used, have {size} values; a script may have {EXPANDED_TOKENS}: keep \
             large tables in the state, or as columns"
        );
        Err(self.source.fault(FaultKind::OutOfMemory, None, &text))
    }

    /// Compiles the script with these variables and constants, of which constants are inlined.
    pub fn compile_in(&self, scope: &Scope<'_>) -> Result<AST, Fault> {
        let ast = self.kit.engine.compile_with_scope(scope, &*self.source.text);
        ast.map_err(|error| {
            let visible: Vec<_> = scope.iter().map(|(name, ..)| name.to_owned()).collect();
            let visible: Vec<_> = visible.iter().map(String::as_str).collect();
            self.source.syntax(&error, &self.kit, &visible)
        })
    }
}
