//! The functions of an instance, independent of the way in which they are called.

use wasmtime::{Engine, Store};

use super::describe::RawDescription;
use super::fault::PluginPath;
use super::host::WasmHost;
use crate::rows::{AgesRow, EventRow, RequestRow, Rows};
use crate::{Fault, Function, GuestSetup, Kind, Output, ParameterValue, PolicyDescription};
use blis_abi::AnyRows;

/// The functions of an instance that a guest of one kind uses; `typed.rs` and `direct.rs` implement the calls. Only
/// functions of that kind are called.
pub trait Functions: Sized + Send + 'static {
    /// The code from which instances are created.
    type Code: Send + Sync;
    type Instance;

    fn engine(code: &Self::Code) -> &Engine;

    /// Creates an instance and runs its start function.
    fn instantiate(code: &Self::Code, store: &mut Store<WasmHost>) -> wasmtime::Result<Self::Instance>;

    /// Calls `describe` and returns the raw description.
    fn describe(
        file: &PluginPath,
        code: &Self::Code,
        store: &mut Store<WasmHost>,
        instance: &Self::Instance,
    ) -> Result<wasmtime::Result<RawDescription>, Fault>;

    /// Looks up the functions required for `kind`, and of those that a guest may leave out the ones that `description`
    /// promises.
    fn find(
        file: &PluginPath,
        code: &Self::Code,
        store: &mut Store<WasmHost>,
        instance: &Self::Instance,
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
