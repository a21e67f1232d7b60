//! The functions of an instance, whichever way they are called.

use wasmtime::{Engine, Store};

use super::describe::Declared;
use super::fault::File;
use super::host::Host;
use crate::rows::{AgesRow, EventRow, InstanceRow, QueuedRow, RequestRow, RunningRow, StepRow};
use crate::{Constants, Fault, Kind, Setup};

/// The functions of an instance that a guest of one kind uses, and how they are called: `typed.rs` and
/// `direct.rs`. Only those of that kind are called.
pub(super) trait Functions: Sized + Send + 'static {
    /// What instances are made of.
    type Code: Send + Sync;
    /// An instance of it.
    type Instance;

    fn engine(code: &Self::Code) -> &Engine;

    /// A fresh instance. Runs what it says is to be run at the start.
    fn instantiate(code: &Self::Code, store: &mut Store<Host>) -> wasmtime::Result<Self::Instance>;

    /// What it says about itself.
    fn describe(
        file: &File,
        code: &Self::Code,
        store: &mut Store<Host>,
        instance: &Self::Instance,
    ) -> Result<wasmtime::Result<Declared>, Fault>;

    /// The functions that it must have to be used for `kind`; `told` what happens, if it is.
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
    /// The reason if it rejects.
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

/// What an admission or routing policy is shown.
pub(super) struct Scene<'a> {
    pub request: RequestRow,
    pub ages: AgesRow,
    pub instances: &'a [InstanceRow],
}
