//! Registers what scripts may use, and remembers the names: messages propose near ones, and a test
//! holds the documentation to them.

use std::collections::{BTreeMap, BTreeSet};

use rhai::{Dynamic, Engine, EvalAltResult, RhaiNativeFunc};

/// What goes wrong in a function of the host.
pub(super) type Failure = Box<EvalAltResult>;

/// Names of what there is.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub functions: BTreeSet<&'static str>,
    /// Fields by the name of what has them (`request`, `cluster` …).
    pub fields: BTreeMap<&'static str, BTreeSet<&'static str>>,
}

/// An engine in the making.
pub(super) struct Registry {
    pub engine: Engine,
    pub names: Names,
}

impl Registry {
    /// A function.
    pub fn add<A: 'static, const N: usize, const X: bool, R: Clone + Send + Sync + 'static, const F: bool>(
        &mut self,
        name: &'static str,
        function: impl RhaiNativeFunc<A, N, X, R, F> + Send + Sync + 'static,
    ) {
        self.engine.register_fn(name, function);
        self.names.functions.insert(name);
    }

    /// A field of `T`, which scripts know as a `what`, under each of `names`.
    pub fn field<T: Clone + Send + Sync + 'static>(
        &mut self,
        what: &'static str,
        names: &[&'static str],
        get: impl Fn(&T) -> Result<Dynamic, Failure> + Copy + Send + Sync + 'static,
    ) {
        for name in names {
            self.engine.register_get(name, move |view: &mut T| get(view));
            self.names.fields.entry(what).or_default().insert(name);
        }
    }
}
