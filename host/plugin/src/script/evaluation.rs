//! Calls of a script's functions that keep what the engine has looked up.
//!
//! The engine finds the function for every operator, field and name by the types of its arguments, in up to ten tables; it
//! remembers the result for the rest of a call. [`rhai::Engine::call_fn`] begins each call without memory, which is most of the
//! cost of short ones. Here the memory belongs to the guest: its functions never change.

use std::sync::Arc;

use rhai::{Caches, Dynamic, EvalAltResult, EvalContext, FnArgsVec, FuncArgs, GlobalRuntimeState, Scope};

#[cfg(test)]
use super::call;
use super::code::SpecializedCode;
use super::engine::Kit;
use super::evaluator::Evaluator;
use super::program::Program;
use super::registry::ScriptError;
use super::value::ScriptValue;

/// The state of both evaluators between the calls of one guest.
pub(super) struct ScriptEvaluation {
    global: GlobalRuntimeState,
    caches: Caches,
    program: Arc<Program>,
    /// Memory for the stack of our evaluator.
    stack: Vec<ScriptValue>,
}

impl ScriptEvaluation {
    /// The state for the functions of `code`.
    pub fn new(kit: &Kit, code: &SpecializedCode) -> Self {
        let mut global = kit.engine.new_global_runtime_state();
        global.lib.push(code.ast.shared_lib().clone());
        Self { global, caches: Caches::new(), program: Arc::clone(&code.program), stack: Vec::new() }
    }

    /// Calls `function` with `this` bound to the state of the guest. Operations are counted from 0.
    pub fn call(
        &mut self,
        kit: &Kit,
        function: &str,
        this: &mut Dynamic,
        arguments: impl FuncArgs,
    ) -> Result<Dynamic, ScriptError> {
        self.global.num_operations = Default::default();
        let mut values = FnArgsVec::new();
        arguments.parse(&mut values);
        if let Some(index) = self.program.entry(function) {
            #[cfg(test)]
            let rhai = call::aside(|| self.by_rhai_of(kit, function, this, &values));
            let stack = std::mem::take(&mut self.stack);
            let evaluator = Evaluator::new(&self.program, kit, &mut self.global, &mut self.caches, stack);
            let (output, stack) = evaluator.run(index, this, values);
            self.stack = stack;
            #[cfg(test)]
            super::tests::agreement::check(&rhai, &super::tests::agreement::CallEffect::of(&output, this));
            return output;
        }
        self.by_rhai(kit, function, this, &mut values)
    }

    fn by_rhai(
        &mut self,
        kit: &Kit,
        function: &str,
        this: &mut Dynamic,
        values: &mut [Dynamic],
    ) -> Result<Dynamic, ScriptError> {
        let mut arguments: FnArgsVec<&mut Dynamic> = std::iter::once(this).chain(values.iter_mut()).collect();
        let mut scope = Scope::new();
        self.global.level = 0;
        let mut context = EvalContext::new(&kit.engine, &mut self.global, &mut self.caches, &mut scope, None);
        context.call_fn_raw(function, true, true, &mut arguments).map_err(|error| match *error {
            EvalAltResult::ErrorInFunctionCall(name, _, inner, _) if name == function => inner,
            _ => error,
        })
    }

    /// What Rhai would do in this call.
    #[cfg(test)]
    fn by_rhai_of(
        &self,
        kit: &Kit,
        function: &str,
        this: &Dynamic,
        values: &[Dynamic],
    ) -> super::tests::agreement::CallEffect {
        let mut global = kit.engine.new_global_runtime_state();
        global.lib.extend(self.global.lib.iter().cloned());
        let (caches, program) = (Caches::new(), Arc::clone(&self.program));
        let mut rhai = Self { global, caches, program, stack: Vec::new() };
        let (mut this, mut values) = (this.clone(), values.to_vec());
        let output = rhai.by_rhai(kit, function, &mut this, &mut values);
        super::tests::agreement::CallEffect::of(&output, &this)
    }
}
