//! Registers functions and fields for scripts, and keeps their names: messages suggest similar ones, and a test
//! compares the documentation with them.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rhai::{Dynamic, Engine, EvalAltResult, RhaiNativeFunc};

/// An error that a host function returns to the script engine.
pub(super) type ScriptError = Box<EvalAltResult>;

/// Reads a field that is no column from a view; `None` if the view is another one, or the field cannot be read.
pub(super) type NumberGetter = Arc<dyn Fn(&dyn Any) -> Option<Dynamic> + Send + Sync>;

/// Reads a field that is a column from a view; `None` if the view is another one or has not built it.
pub(super) type ColumnGetter = Arc<dyn Fn(&dyn Any) -> Option<&dyn Any> + Send + Sync>;

/// The names of all functions and fields.
#[derive(Default)]
pub(super) struct KnownNames {
    /// With the numbers of arguments that they take.
    pub functions: BTreeMap<&'static str, BTreeSet<usize>>,
    /// The names of fields by the name of the type that has them (`request`, `cluster` …).
    pub fields: BTreeMap<&'static str, BTreeSet<&'static str>>,
    /// Fields by type and name that are columns.
    pub columns: BTreeMap<(&'static str, &'static str), ColumnGetter>,
    /// Those that are not.
    pub numbers: BTreeMap<(&'static str, &'static str), NumberGetter>,
}

/// An engine under construction, with the names registered so far.
pub(super) struct Registry {
    pub engine: Engine,
    pub names: KnownNames,
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
            self.names.fields.entry(what).or_default().insert(name);
            let number = move |view: &dyn Any| get(view.downcast_ref::<T>()?).ok();
            self.names.numbers.insert((what, name), Arc::new(number));
        }
    }
}
