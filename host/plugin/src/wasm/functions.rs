//! The functions of an instance, independent of the way in which they are called.

use wasmtime::{Engine, Store};

use super::describe::Declared;
use super::fault::File;
use super::host::Host;
use crate::rows::{AgesRow, EventRow, InstanceRow, QueuedRow, RequestRow, RunningRow, StepRow};
use crate::{Constants, Fault, Kind, Setup};

/// The functions of an instance that a guest of one kind uses; `typed.rs` and `direct.rs` implement the calls. Only
/// functions of that kind are called.
pub(super) trait Functions: Sized + Send + 'static {
    /// The code from which instances are created.
    type Code: Send + Sync;
    type Instance;

    fn engine(code: &Self::Code) -> &Engine;

    /// Creates an instance and runs its start function.
    fn instantiate(code: &Self::Code, store: &mut Store<Host>) -> wasmtime::Result<Self::Instance>;

    /// Calls `describe` and returns the raw description.
    fn describe(
        file: &File,
        code: &Self::Code,
        store: &mut Store<Host>,
        instance: &Self::Instance,
    ) -> Result<wasmtime::Result<Declared>, Fault>;

    /// Looks up the functions required for `kind`, and `observe` if the guest subscribes to events.
    fn find(
        file: &File,
        code: &Self::Code,
        store: &mut Store<Host>,
        instance: &Self::Instance,
        kind: Kind,
        told: bool,
    ) -> Result<Self, Fault>;

    fn configure(&self, store: &mut Store<Host>, setup: &Setup) -> wasmtime::Result<Result<(), String>>;
    fn save(&self, store: &mut Store<Host>) -> wasmtime::Result<Vec<u8>>;
    fn restore(&self, store: &mut Store<Host>, state: &[u8]) -> wasmtime::Result<Result<(), String>>;
    fn notice(&self, store: &mut Store<Host>, event: &EventRow) -> wasmtime::Result<()>;
    /// Calls `admit`; returns the reason of a rejection.
    fn admit(&self, store: &mut Store<Host>, scene: &Scene<'_>) -> wasmtime::Result<Option<String>>;
    fn route(&self, store: &mut Store<Host>, scene: &Scene<'_>) -> wasmtime::Result<u32>;
    fn scores(&self, store: &mut Store<Host>, scene: &Scene<'_>) -> wasmtime::Result<Vec<f64>>;
    fn priority(&self, store: &mut Store<Host>, request: &RequestRow) -> wasmtime::Result<i64>;
    fn rank(&self, store: &mut Store<Host>, request: &RequestRow, queued: &QueuedRow) -> wasmtime::Result<f64>;
    fn victim(&self, store: &mut Store<Host>, now_us: u64, wanting: u32, batch: &[RunningRow])
    -> wasmtime::Result<u32>;
    fn constants(&self, store: &mut Store<Host>) -> wasmtime::Result<Constants>;
    fn queueing_time(&self, store: &mut Store<Host>, input_tokens: u32) -> wasmtime::Result<u64>;
    fn step_time(&self, store: &mut Store<Host>, step: &StepRow) -> wasmtime::Result<u64>;
}

/// The input of an admission or routing decision.
pub(super) struct Scene<'a> {
    pub request: RequestRow,
    pub ages: AgesRow,
    pub instances: &'a [InstanceRow],
}
