//! Registers functions and fields for scripts, and keeps their names: messages suggest similar ones, and a test
//! compares the documentation with them.

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rhai::{Dynamic, Engine, EvalAltResult, RhaiNativeFunc};

/// An error that a host function returns to the script engine.
pub(super) type ScriptError = Box<EvalAltResult>;

/// The names of all functions and fields.
#[derive(Debug, Default)]
pub(super) struct KnownNames {
    /// With the numbers of arguments that they take.
    pub functions: BTreeMap<&'static str, BTreeSet<usize>>,
    /// The names of fields by the name of the type that has them (`request`, `cluster` …).
    pub fields: BTreeMap<&'static str, BTreeSet<&'static str>>,
}

/// Reads a field of a value; `None` if the value is of another type.
pub(super) type Reader = Arc<dyn Fn(&Dynamic) -> Option<Result<Dynamic, ScriptError>> + Send + Sync>;

/// An engine under construction, with the names registered so far.
pub(super) struct Registry {
    pub engine: Engine,
    pub names: KnownNames,
    /// The functions that read fields, by the name of the field, with the type that has it.
    pub readers: BTreeMap<&'static str, Vec<(TypeId, Reader)>>,
}

impl Registry {
    /// Registers a function under `name` and keeps the name.
    pub fn add<A: 'static, const N: usize, const X: bool, R: Clone + Send + Sync + 'static, const F: bool>(
        &mut self,
        name: &'static str,
        function: impl RhaiNativeFunc<A, N, X, R, F> + Send + Sync + 'static,
    ) {
        self.engine.register_fn(name, function);
        self.names.functions.entry(name).or_default().insert(N);
    }

    /// Registers a field of `T`, which scripts call a `what`, under each of `names`.
    pub fn field<T: Clone + Send + Sync + 'static>(
        &mut self,
        what: &'static str,
        names: &[&'static str],
        get: impl Fn(&T) -> Result<Dynamic, ScriptError> + Copy + Send + Sync + 'static,
    ) {
        for name in names {
            self.engine.register_get(name, move |view: &mut T| get(view));
            let read: Reader = Arc::new(move |view| view.read_lock::<T>().map(|view| get(&view)));
            self.readers.entry(name).or_default().push((TypeId::of::<T>(), read));
            self.names.fields.entry(what).or_default().insert(name);
        }
    }
}
