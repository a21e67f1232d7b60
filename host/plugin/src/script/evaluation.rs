//! Calls of a script's functions that keep what the engine has looked up.
//!
//! The engine finds the function for every operator, field and name by the types of its arguments, in up to ten tables; it
//! remembers the result for the rest of a call. [`rhai::Engine::call_fn`] begins each call without memory, which is most of the
//! cost of short ones. Here the memory belongs to the guest: its functions never change.

use rhai::{AST, Caches, Dynamic, Engine, EvalAltResult, EvalContext, FnArgsVec, FuncArgs, GlobalRuntimeState, Scope};

use super::registry::ScriptError;

/// Levels of calls that the engine counts for a call by the host, in addition to that of the function itself.
pub(super) const HOST_CALL_LEVELS: usize = 2;

/// The state of the engine between the calls of one guest.
#[derive(Clone)]
pub(super) struct ScriptEvaluation {
    global: GlobalRuntimeState,
    caches: Caches,
}

impl ScriptEvaluation {
    /// The state for the functions of `ast`.
    pub fn new(engine: &Engine, ast: &AST) -> Self {
        let mut global = engine.new_global_runtime_state();
        global.lib.push(ast.shared_lib().clone());
        Self { global, caches: Caches::new() }
    }

    /// Calls `function` with `this` bound to the state of the guest. Operations are counted from 0.
    pub fn call(
        &mut self,
        engine: &Engine,
        function: &str,
        this: &mut Dynamic,
        arguments: impl FuncArgs,
    ) -> Result<Dynamic, ScriptError> {
        self.global.num_operations = Default::default();
        let mut values = FnArgsVec::new();
        arguments.parse(&mut values);
        let mut arguments: FnArgsVec<&mut Dynamic> = std::iter::once(this).chain(values.iter_mut()).collect();
        let mut scope = Scope::new();
        let mut context = EvalContext::new(engine, &mut self.global, &mut self.caches, &mut scope, None);
        context.call_fn_raw(function, true, true, &mut arguments).map_err(|error| match *error {
            EvalAltResult::ErrorInFunctionCall(name, _, inner, _) if name == function => inner,
            _ => error,
        })
    }
}
