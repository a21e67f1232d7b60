//! The functions of an instance, independent of the way in which they are called.

use blis_sim::policy::flow::{BandView, FlowView, InFlightView};
use wasmtime::{Engine, Store};

use super::describe::RawDescription;
use super::fault::PluginPath;
use super::host::WasmHost;
use crate::rows::{
    AgesRow, ChunkOfferRow, ChunkRow, DrainGroupRow, EventRow, GroupRow, NodeRow, PoolInstanceRow, PrefillChoiceRow,
    QueuedRow, ReplicaRow, RequestRow, RoutedRequestRow, RunningRow, StartingReplicaRow, StepRow, TierHitRow,
};
use crate::{Fault, GuestSetup, Kind, LatencyConstants, ParameterValue, PolicyDescription};

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
    /// Calls `admit`; returns the reason of a rejection.
    fn admit(&self, store: &mut Store<WasmHost>, input: &DecisionRows<'_>) -> wasmtime::Result<Option<String>>;
    fn route(&self, store: &mut Store<WasmHost>, input: &DecisionRows<'_>) -> wasmtime::Result<u32>;
    /// Calls `scores`, and appends what it returns to `numbers`; so do `filter`, `ceilings` and `scale`.
    fn scores(
        &self,
        store: &mut Store<WasmHost>,
        input: &DecisionRows<'_>,
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<()>;
    fn filter(
        &self,
        store: &mut Store<WasmHost>,
        input: &DecisionRows<'_>,
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<()>;
    fn priority(&self, store: &mut Store<WasmHost>, request: &RequestRow) -> wasmtime::Result<i64>;
    fn rank(&self, store: &mut Store<WasmHost>, request: &RequestRow, queued: &QueuedRow) -> wasmtime::Result<f64>;
    fn victim(
        &self,
        store: &mut Store<WasmHost>,
        now_us: u64,
        requester: u32,
        batch: &[RunningRow],
    ) -> wasmtime::Result<u32>;
    fn constants(&self, store: &mut Store<WasmHost>) -> wasmtime::Result<LatencyConstants>;
    fn queueing_time(&self, store: &mut Store<WasmHost>, input_tokens: u32) -> wasmtime::Result<u64>;
    fn step_time(&self, store: &mut Store<WasmHost>, step: &StepRow) -> wasmtime::Result<u64>;
    fn saturation(&self, store: &mut Store<WasmHost>, input: &InstanceInput<'_>) -> wasmtime::Result<f64>;
    fn ceilings(
        &self,
        store: &mut Store<WasmHost>,
        now_us: u64,
        saturation: f64,
        bands: &[BandView],
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<()>;
    fn fair_pick(
        &self,
        store: &mut Store<WasmHost>,
        now_us: u64,
        saturation: f64,
        band: &BandView,
        flows: &[FlowView],
    ) -> wasmtime::Result<u32>;
    fn order(&self, store: &mut Store<WasmHost>, request: &RequestRow, expires_us: u64) -> wasmtime::Result<f64>;
    /// Calls `evict`; returns the index of the victim, if there is one.
    fn evict(
        &self,
        store: &mut Store<WasmHost>,
        now_us: u64,
        demand: &BandView,
        in_flight: &[InFlightView],
    ) -> wasmtime::Result<Option<u32>>;
    fn scale(
        &self,
        store: &mut Store<WasmHost>,
        now_us: u64,
        groups: &[GroupRow],
        history: &[GroupRow],
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<()>;
    fn drain(
        &self,
        store: &mut Store<WasmHost>,
        group: &DrainGroupRow,
        replicas: &[ReplicaRow],
    ) -> wasmtime::Result<u32>;
    /// Calls `keep`; the ranks are appended to `numbers`.
    fn keep(
        &self,
        store: &mut Store<WasmHost>,
        now_us: u64,
        chunks: &[ChunkRow],
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<()>;
    /// Calls `store`; its numbers are appended to `numbers`.
    fn store_chunks(
        &self,
        store: &mut Store<WasmHost>,
        offer: &ChunkOfferRow,
        chunks: &[ChunkRow],
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<()>;
    fn load(&self, store: &mut Store<WasmHost>, hit: &TierHitRow) -> wasmtime::Result<bool>;
    fn disaggregate(
        &self,
        store: &mut Store<WasmHost>,
        request: &RoutedRequestRow,
        decode: &[PoolInstanceRow],
        prefill: &[PoolInstanceRow],
    ) -> wasmtime::Result<PrefillChoiceRow>;
    /// Calls `placement`; returns the index of the node, if there is one.
    fn placement(
        &self,
        store: &mut Store<WasmHost>,
        replica: &StartingReplicaRow,
        nodes: &[NodeRow],
    ) -> wasmtime::Result<Option<u32>>;
}

/// The input of a decision about the instances that is about no request.
pub(super) struct InstanceInput<'a> {
    pub now_us: u64,
    pub ages: AgesRow,
    /// Number of instances.
    pub count: usize,
    /// As of [`DecisionRows`].
    pub instances: &'a [f64],
    pub changed: Option<&'a [u32]>,
}

/// The input of an admission or routing decision, or of a filter.
pub(super) struct DecisionRows<'a> {
    pub request: RequestRow,
    pub ages: AgesRow,
    /// Number of instances.
    pub count: usize,
    /// A row of the columns that the guest reads for each instance, row by row.
    pub instances: &'a [f64],
    /// Indices of the rows that differ from those of the call before; `None` if all may.
    pub changed: Option<&'a [u32]>,
}
