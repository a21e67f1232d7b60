//! The functions of an instance, independent of the way in which they are called.

use wasmtime::{Engine, Store};

use super::describe::RawDescription;
use super::fault::PluginPath;
use super::host::WasmHost;
use super::inspect::{Exports, not_exported};
use crate::rows::{AgesRow, EventRow, RequestRow, Rows};
use crate::{Fault, Function, GuestSetup, Kind, Output, ParameterValue, PolicyDescription};
use blis_abi::AnyRows;

/// Linked code, from which instances are created, and what it exports.
pub struct LinkedCode<P> {
    pub pre: P,
    pub exports: Exports,
}

impl<P> LinkedCode<P> {
    /// What `instance`, which was made of it, exports.
    pub fn exports<'a, I>(
        &'a self,
        file: &'a PluginPath,
        store: &'a mut Store<WasmHost>,
        instance: &'a I,
    ) -> InstanceExports<'a, I> {
        InstanceExports { file, exports: &self.exports, store, instance }
    }
}

/// The exports of an instance, which are looked up by name.
pub struct InstanceExports<'a, I> {
    pub file: &'a PluginPath,
    exports: &'a Exports,
    pub store: &'a mut Store<WasmHost>,
    pub instance: &'a I,
}

impl<'a, I> InstanceExports<'a, I> {
    /// The full name of `interface`, which must be exported.
    pub fn full_name(&self, interface: &str) -> Result<&'a str, Fault> {
        self.exports.full_name(interface).ok_or_else(|| not_exported(self.file, interface))
    }
}

/// The functions of an instance that a guest of one kind uses; `typed.rs` and `direct.rs` implement the calls. Only
/// functions of that kind are called.
pub trait Functions: Sized + Send + 'static {
    /// The code from which instances are created.
    type Pre: Send + Sync;
    type Instance;

    fn engine(pre: &Self::Pre) -> &Engine;

    /// Creates an instance and runs its start function.
    fn instantiate(pre: &Self::Pre, store: &mut Store<WasmHost>) -> wasmtime::Result<Self::Instance>;

    /// Calls `describe` and returns the raw description.
    fn describe(exports: &mut InstanceExports<'_, Self::Instance>) -> Result<wasmtime::Result<RawDescription>, Fault>;

    /// Looks up the functions required for `kind`, and of those that a guest may leave out the ones that `description`
    /// promises.
    fn find(
        exports: &mut InstanceExports<'_, Self::Instance>,
        kind: Kind,
        description: &PolicyDescription,
    ) -> Result<Self, Fault>;

    /// Calls `configure`; `values` are those of all parameters.
    fn configure(
        &self,
        store: &mut Store<WasmHost>,
        setup: &GuestSetup,
        values: &[ParameterValue<'_>],
    ) -> wasmtime::Result<Result<(), String>>;
    fn save(&self, store: &mut Store<WasmHost>) -> wasmtime::Result<Vec<u8>>;
    fn restore(&self, store: &mut Store<WasmHost>, state: &[u8]) -> wasmtime::Result<Result<(), String>>;
    fn observe(&self, store: &mut Store<WasmHost>, event: &EventRow) -> wasmtime::Result<()>;

    /// Calls `function`, and appends the numbers that it returns to `numbers`.
    fn call(
        &self,
        store: &mut Store<WasmHost>,
        function: Function,
        inputs: &WasmInputs<'_>,
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<Output>;
}

/// The inputs of a call as rows. Which of them a function gets is in its [`blis_abi::decisions::InputShape`].
#[derive(Clone, Copy)]
pub(super) struct WasmInputs<'a> {
    pub request: RequestRow,
    pub now_us: u64,
    pub number: u64,
    /// The row, and then the lists.
    pub rows: &'a [AnyRows<'a>],
    pub ages: AgesRow,
    pub instances: Rows<'a, 'a>,
}

impl WasmInputs<'_> {
    /// The row of `function`, and its lists.
    #[inline]
    pub fn row_and_lists(&self, function: Function) -> (Option<&AnyRows<'_>>, &[AnyRows<'_>]) {
        match (function.row().inputs.row, self.rows.split_first()) {
            (Some(_), Some((row, lists))) => (Some(row), lists),
            _ => (None, self.rows),
        }
    }
}
