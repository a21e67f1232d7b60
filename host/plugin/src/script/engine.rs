//! The script engine: the functions available to scripts, and their limits. One engine serves all scripts with the same
//! limits, on all threads.

use std::sync::{Arc, Mutex, PoisonError};

use rhai::packages::{
    ArithmeticPackage, BasicArrayPackage, BasicIteratorPackage, BasicMapPackage, BasicMathPackage, BasicStringPackage,
    LogicPackage, MoreStringPackage, Package as _,
};
use rhai::{Engine, INT, LexError, Token};

use super::evaluation::HOST_CALL_LEVELS;
use super::registry::{KnownNames, Registry};
use super::{call, column, operators, sandbox, table, texts, views};
use crate::Limits;
use crate::limits::{ENTRIES, FUNCTIONS, NESTED_EXPRESSIONS, TEXT_BYTES, VARIABLES};

/// Functions of Rhai's own packages that scripts may use.
pub(super) const LANGUAGE_FUNCTIONS: [&str; 62] = [
    "all",
    "append",
    "call",
    "chop",
    "clear",
    "contains",
    "dedup",
    "drain",
    "ends_with",
    "extract",
    "filter",
    "find",
    "find_map",
    "for_each",
    "get",
    "index_of",
    "insert",
    "int",
    "is_empty",
    "is_even",
    "is_infinite",
    "is_odd",
    "is_zero",
    "keys",
    "len",
    "make_lower",
    "make_upper",
    "max",
    "min",
    "mixin",
    "parse_float",
    "parse_int",
    "pop",
    "push",
    "range",
    "reduce",
    "reduce_rev",
    "remove",
    "retain",
    "reverse",
    "set",
    "shift",
    "some",
    "splice",
    "split",
    "starts_with",
    "sub_string",
    "to_chars",
    "to_float",
    "to_int",
    "to_lower",
    "to_string",
    "to_upper",
    "trim",
    "truncate",
    "type_of",
    "values",
    "fill_with",
    "crop",
    "fraction",
    "E",
    "PI",
];

/// An engine, and the names of its functions and fields.
pub(super) struct Kit {
    pub engine: Engine,
    pub names: KnownNames,
    pub limits: Limits,
}

/// The shared engine for `limits`.
pub(super) fn kit(limits: &Limits) -> Arc<Kit> {
    static KITS: Mutex<Vec<Arc<Kit>>> = Mutex::new(Vec::new());
    let mut kits = KITS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kit) = kits.iter().find(|kit| kit.limits == *limits) {
        return Arc::clone(kit);
    }
    let kit = Arc::new(Kit::new(limits, |_| {}));
    kits.push(Arc::clone(&kit));
    kit
}

impl Kit {
    /// A new engine, with the functions that `more` registers.
    pub fn new(limits: &Limits, more: impl FnOnce(&mut Registry)) -> Self {
        let mut registry = Registry { engine: Engine::new_raw(), names: KnownNames::default() };
        confine(&mut registry.engine, limits);
        packages(&mut registry.engine);
        operators::register(&mut registry);
        column::register(&mut registry);
        sandbox::register(&mut registry);
        table::register(&mut registry);
        texts::register(&mut registry);
        call::register(&mut registry);
        views::register(&mut registry);
        more(&mut registry);
        Self { engine: registry.engine, names: registry.names, limits: *limits }
    }

    /// The names of all functions.
    pub fn functions(&self) -> impl Iterator<Item = &&'static str> {
        self.names.functions.keys().chain(&LANGUAGE_FUNCTIONS)
    }
}

fn confine(engine: &mut Engine, limits: &Limits) {
    engine.set_strict_variables(true);
    engine.set_max_operations(limits.operations_per_call.max(1));
    engine.set_max_call_levels(limits.call_depth + HOST_CALL_LEVELS);
    engine.set_max_string_size(limits.collection_size.clamp(1, TEXT_BYTES));
    engine.set_max_array_size(limits.collection_size.clamp(1, ENTRIES));
    engine.set_max_map_size(limits.collection_size.clamp(1, ENTRIES));
    engine.set_max_variables(VARIABLES);
    engine.set_max_functions(FUNCTIONS);
    engine.set_max_expr_depths(NESTED_EXPRESSIONS, NESTED_EXPRESSIONS);
    // Interning would take a lock that all threads share.
    engine.set_max_strings_interned(0);
    // Operators of ours come first: see `operators`.
    engine.set_fast_operators(false);
    engine.on_progress(call::progress);
    resolve_constants(engine);
    refuse_long_numbers(engine);
    for word in ["eval", "print", "debug", "Fn", "curry"] {
        engine.disable_symbol(word);
    }
}

/// Resolves constants that are not inlined: tables, and names that a script tries to assign to.
#[expect(deprecated, reason = "it is how the engine marks what may change in a later version")]
fn resolve_constants(engine: &mut Engine) {
    // Local variables of a function have a number other than 0.
    engine.on_var(|name, number, _| Ok(if number == 0 { call::constant(name) } else { None }));
}

/// Refuses whole numbers that do not fit 64 bits: the language makes a number with a fraction of them.
#[expect(deprecated, reason = "it is how the engine marks what may change in a later version")]
fn refuse_long_numbers(engine: &mut Engine) {
    engine.on_parse_token(|token, _, _| match &token {
        Token::FloatConstant(number) if !number.1.contains(['.', 'e', 'E']) => {
            Token::LexError(Box::new(LexError::Runtime(too_long_number(&number.1))))
        }
        _ => token,
    });
}

/// The message about a whole number that does not fit 64 bits.
pub(super) fn too_long_number(written: &str) -> String {
    format!("`{written}` is more than whole numbers hold, up to {}: write one with a fraction, as in `1e19`", INT::MAX)
}

/// The core package is left out, because it has functions to sleep and to exit.
fn packages(engine: &mut Engine) {
    ArithmeticPackage::new().register_into_engine(engine);
    LogicPackage::new().register_into_engine(engine);
    BasicMathPackage::new().register_into_engine(engine);
    BasicArrayPackage::new().register_into_engine(engine);
    BasicIteratorPackage::new().register_into_engine(engine);
    BasicMapPackage::new().register_into_engine(engine);
    BasicStringPackage::new().register_into_engine(engine);
    MoreStringPackage::new().register_into_engine(engine);
}
