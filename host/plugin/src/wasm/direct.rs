//! Calls the functions of a component's core module without wasmtime's component layer.
//!
//! That layer looks up the function, its options and its memory anew in every call, which is more than half of the cost
//! of a call. A component that consists of one core module behind the names of our interface (`standard.rs`) does not
//! need it: this module writes its parameters into memory and reads its results from there by the same rules (the
//! canonical ABI), with the same checks and limits. All other components are called through `typed.rs`.

use std::mem::offset_of;

use blis_abi::canonical::{self, OrderParameters, RankParameters, ValueRecord};
use blis_sim::policy::Events;
use blis_sim::policy::flow::{BandView, FlowView, InFlightView};
use wasmtime::{
    AsContextMut as _, Caller, Engine, Instance, InstancePre, Linker, Module, Store, StoreContextMut, TypedFunc,
    WasmParams, WasmResults,
};

use super::describe::RawDescription;
use super::fault::PluginPath;
use super::functions::{DecisionRows, Functions, InstanceInput};
use super::host::{self, WasmHost};
use super::inspect::{self, Exports};
use super::memory::{GuestMemory, INPUT, InputMemory, write};
use super::results::{GuestList, MemoryResult, ResultReader, offset};
use super::standard;
use crate::limits::{DESCRIPTION_BYTES, RESULT_BYTES};
use crate::rows::{
    ChunkOfferRow, ChunkRow, DrainGroupRow, EventRow, GroupRow, NodeRow, PoolInstanceRow, PrefillChoiceRow, QueuedRow,
    ReplicaRow, RequestRow, RoutedRequestRow, Row, RunningRow, StartingReplicaRow, StepRow, TierHitRow, band_row,
    flow_rows, in_flight_row,
};
use crate::{Fault, FaultKind, GuestSetup, Kind, LatencyConstants, ParameterValue, PolicyDescription, ValueTable};

#[cfg(target_endian = "big")]
compile_error!("guests are little-endian: rows would have to be turned round, number by number");

/// The structs that contain lists or texts in a guest's memory.
type GuestDecision = canonical::DecisionParameters<GuestList>;
type GuestModelFact = canonical::ModelFact<GuestList>;
type GuestChanged = canonical::ChangedIndices<GuestList>;

/// A compiled core module with its host functions linked.
pub(super) struct LinkedModule {
    pre: InstancePre<WasmHost>,
    exports: Exports,
}

impl LinkedModule {
    /// Links `module` with the known `exports`. An error means that the module is not a standard one as `standard.rs`
    /// defines it.
    pub(super) fn link(module: &Module, exports: Exports) -> wasmtime::Result<Self> {
        let mut linker = Linker::new(module.engine());
        for import in module.imports() {
            define(&mut linker, import.module(), import.name())?;
        }
        Ok(Self { pre: linker.instantiate_pre(module)?, exports })
    }
}

/// Links the function `name` of the interface `host`.
fn define(linker: &mut Linker<WasmHost>, module: &str, name: &str) -> wasmtime::Result<()> {
    match name {
        "log" => linker.func_wrap(module, name, |mut caller: Caller<'_, WasmHost>, level: u32, at: u32, len: u32| {
            host::log(caller.as_context_mut(), level, |store| {
                let memory = memory_of(store)?.memory;
                let mut left = RESULT_BYTES;
                ResultReader::new(memory.data(store), &mut left).text(at, len)
            })
        }),
        "random" => {
            linker.func_wrap(module, name, |mut caller: Caller<'_, WasmHost>| host::random(caller.as_context_mut()))
        }
        "pick" => linker
            .func_wrap(module, name, |mut caller: Caller<'_, WasmHost>, n: u32| host::pick(caller.as_context_mut(), n)),
        "prompt-blocks" => linker.func_wrap(module, name, |mut caller: Caller<'_, WasmHost>, result: u32| {
            let mut store = caller.as_context_mut();
            let blocks: Vec<u8> = host::prompt_blocks(&mut store)?.into_iter().flat_map(u32::to_le_bytes).collect();
            let memory = memory_of(&store)?;
            let (at, len) = memory.put(&mut store, 4, &blocks)?;
            put_pair(memory.memory.data_mut(&mut store), result, at, len / 4)
        }),
        "text" => linker.func_wrap(module, name, |mut caller: Caller<'_, WasmHost>, name: u32, result: u32| {
            let mut store = caller.as_context_mut();
            let text = host::text(&mut store, name)?;
            let memory = memory_of(&store)?;
            let (at, len) = memory.put(&mut store, 1, text.as_bytes())?;
            put_pair(memory.memory.data_mut(&mut store), result, at, len)
        }),
        "changed" => linker.func_wrap(module, name, |mut caller: Caller<'_, WasmHost>, result: u32| {
            let mut store = caller.as_context_mut();
            let changed = host::changed(&mut store)?;
            let memory = memory_of(&store)?;
            let Some(indices) = changed else { return put_case(memory.memory.data_mut(&mut store), result, 0) };
            let indices: Vec<u8> = indices.into_iter().flat_map(u32::to_le_bytes).collect();
            let (at, len) = memory.put(&mut store, 4, &indices)?;
            let memory = memory.memory.data_mut(&mut store);
            put_case(memory, result, 1)?;
            put_pair(memory, result + offset!(GuestChanged, indices), at, len / 4)
        }),
        _ => wasmtime::bail!("there is no host.{name}"),
    }?;
    Ok(())
}

fn memory_of(store: &StoreContextMut<'_, WasmHost>) -> wasmtime::Result<GuestMemory> {
    let memory = store.data().memory.clone();
    memory.ok_or_else(|| wasmtime::format_err!("its memory does not exist yet: its start function called the host"))
}

/// Writes the address and length of a list to the result area that the guest passed.
fn put_pair(memory: &mut [u8], result: u32, at: u32, len: u32) -> wasmtime::Result<()> {
    if !result.is_multiple_of(4) {
        wasmtime::bail!("pointer not aligned");
    }
    let bytes = (u64::from(len) << 32 | u64::from(at)).to_le_bytes();
    match memory.get_mut(result as usize..).and_then(|memory| memory.first_chunk_mut()) {
        Some(pair) => *pair = bytes,
        None => wasmtime::bail!("pointer out of bounds of memory"),
    }
    Ok(())
}

/// Writes the case of a [`GuestChanged`]. The list follows separately.
fn put_case(memory: &mut [u8], result: u32, case: u8) -> wasmtime::Result<()> {
    if !result.is_multiple_of(4) {
        wasmtime::bail!("pointer not aligned");
    }
    match memory.get_mut(result as usize..).and_then(|memory| memory.get_mut(..size_of::<GuestChanged>())) {
        Some(option) => option[0] = case,
        None => wasmtime::bail!("pointer out of bounds of memory"),
    }
    Ok(())
}

/// The functions that belong to one kind of policy. Pointers are `u32`, as in wasmtime.
enum DirectRole {
    Admission { admit: MemoryResult<u32> },
    Routing { route: TypedFunc<u32, u32>, scores: Option<MemoryResult<u32>> },
    RoutingFilter { filter: MemoryResult<u32> },
    Priority { priority: TypedFunc<u32, i64> },
    Scheduling { rank: TypedFunc<u32, f64> },
    Preemption { victim: TypedFunc<(u64, u32, u32, u32), u32> },
    Latency(DirectLatency),
    Saturation { saturation: TypedFunc<InstanceNumbers, f64> },
    Ceilings { ceilings: MemoryResult<(u64, f64, u32, u32)> },
    Fairness { fair_pick: TypedFunc<FairnessNumbers, u32> },
    Ordering { order: TypedFunc<u32, f64> },
    Eviction { evict: MemoryResult<(u64, u64, i32, u32, u32, u32)> },
    Scaling { scale: MemoryResult<ScalingNumbers> },
    Drain { drain: TypedFunc<DrainNumbers, u32> },
    Placement { placement: MemoryResult<PlacementNumbers> },
    KvCache { keep: MemoryResult<KeepNumbers>, store: MemoryResult<OfferNumbers>, load: TypedFunc<HitNumbers, u32> },
    Disaggregation { disaggregate: MemoryResult<RoutedNumbers> },
}

/// Time, saturation, the three numbers of the band, and pointer and length of its flows.
type FairnessNumbers = (u64, f64, u64, i32, u32, u32, u32);
/// Time, and pointer and length of the groups and of their history.
type ScalingNumbers = (u64, u32, u32, u32, u32);
/// The numbers of the group, and pointer and length of its replicas.
type DrainNumbers = (u64, f64, u32, u32, u32, u32, u32, u32, u32, u32);
/// Time, and pointer and length of the chunks.
type KeepNumbers = (u64, u32, u32);
/// The numbers of the tier, and pointer and length of the chunks.
type OfferNumbers = (u64, u64, f64, u32, u32, u32, u32);
/// The numbers of the hit.
type HitNumbers = (u64, u64, u64, f64, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32);
/// The numbers of the request, and pointer and length of the instances that decode and of those that prefill.
type RoutedNumbers = (u64, f64, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32);
/// The numbers of the replica, and pointer and length of the nodes.
type PlacementNumbers = (u64, u64, u32, u32, u32, u32, u32, u32);
/// Time, ages, number of instances, and pointer and length of their numbers.
type InstanceNumbers = (u64, u64, u64, u64, u64, u32, u32, u32);

struct DirectLatency {
    constants: MemoryResult<()>,
    queueing_time: TypedFunc<u32, u64>,
    step_time: TypedFunc<<StepRow as Row>::Numbers, u64>,
}

/// Pointer and length of each argument of `configure`: the kind and three lists.
type ConfigureNumbers = (u32, u32, u32, u32, u32, u32, u32, u32);

/// All functions of an instance that a guest uses.
pub(super) struct Direct {
    memory: GuestMemory,
    /// Where inputs are written, if the module offers it.
    input: Option<InputMemory>,
    role: DirectRole,
    configure: MemoryResult<ConfigureNumbers>,
    save: MemoryResult<()>,
    restore: MemoryResult<(u32, u32)>,
    observe: Option<TypedFunc<<EventRow as Row>::Numbers, ()>>,
}

macro_rules! role {
    ($self:ident, $pattern:pat => $function:expr) => {
        match &$self.role {
            $pattern => $function,
            _ => wasmtime::bail!("it was started for another kind"),
        }
    };
}

impl Functions for Direct {
    type Code = LinkedModule;
    type Instance = Instance;

    fn engine(code: &LinkedModule) -> &Engine {
        code.pre.module().engine()
    }

    fn instantiate(code: &LinkedModule, store: &mut Store<WasmHost>) -> wasmtime::Result<Instance> {
        let instance = code.pre.instantiate(&mut *store)?;
        let memory = instance.get_memory(&mut *store, "memory");
        let memory = memory.ok_or_else(|| wasmtime::format_err!("does not export memory"))?;
        let realloc = instance.get_typed_func(&mut *store, "cabi_realloc")?;
        store.data_mut().memory = Some(GuestMemory { memory, realloc });
        if instance.get_func(&mut *store, standard::INITIALIZE).is_some() {
            instance.get_typed_func::<(), ()>(&mut *store, standard::INITIALIZE)?.call(&mut *store, ())?;
        }
        Ok(instance)
    }

    fn describe(
        file: &PluginPath,
        code: &LinkedModule,
        store: &mut Store<WasmHost>,
        instance: &Instance,
    ) -> Result<wasmtime::Result<RawDescription>, Fault> {
        let mut find = CoreExports { file, exports: &code.exports, store, instance };
        let describe = find.memory_result::<()>("plugin", "describe")?;
        let memory = find.memory()?;
        Ok(describe.call(&memory, store, (), DESCRIPTION_BYTES, |reader, at| reader.description(at)))
    }

    fn find(
        file: &PluginPath,
        code: &LinkedModule,
        store: &mut Store<WasmHost>,
        instance: &Instance,
        kind: Kind,
        description: &PolicyDescription,
    ) -> Result<Self, Fault> {
        let mut find = CoreExports { file, exports: &code.exports, store, instance };
        let of = kind.name();
        let role = match kind {
            Kind::Admission => DirectRole::Admission { admit: find.memory_result(of, "admit")? },
            Kind::Routing => DirectRole::Routing {
                route: find.function(of, "route")?,
                scores: if description.scores { Some(find.memory_result("routing-scores", "scores")?) } else { None },
            },
            Kind::RoutingFilter => DirectRole::RoutingFilter { filter: find.memory_result(of, "filter")? },
            Kind::Priority => DirectRole::Priority { priority: find.function(of, "priority")? },
            Kind::Scheduling => DirectRole::Scheduling { rank: find.function(of, "rank")? },
            Kind::Preemption => DirectRole::Preemption { victim: find.function(of, "victim")? },
            Kind::Latency => DirectRole::Latency(DirectLatency {
                constants: find.memory_result(of, "constants")?,
                queueing_time: find.function(of, "queueing-time")?,
                step_time: find.function(of, "step-time")?,
            }),
            Kind::Saturation => DirectRole::Saturation { saturation: find.function(of, "saturation")? },
            Kind::Ceilings => DirectRole::Ceilings { ceilings: find.memory_result(of, "ceilings")? },
            Kind::Fairness => DirectRole::Fairness { fair_pick: find.function(of, "fair-pick")? },
            Kind::Ordering => DirectRole::Ordering { order: find.function(of, "order")? },
            Kind::Eviction => DirectRole::Eviction { evict: find.memory_result(of, "evict")? },
            Kind::Scaling => DirectRole::Scaling { scale: find.memory_result(of, "scale")? },
            Kind::Drain => DirectRole::Drain { drain: find.function(of, "drain")? },
            Kind::Placement => DirectRole::Placement { placement: find.memory_result(of, "placement")? },
            Kind::KvCache => DirectRole::KvCache {
                keep: find.memory_result(of, "keep")?,
                store: find.memory_result(of, "store-chunks")?,
                load: find.function(of, "load")?,
            },
            Kind::Disaggregation => {
                DirectRole::Disaggregation { disaggregate: find.memory_result(of, "disaggregate")? }
            }
        };
        Ok(Self {
            memory: find.memory()?,
            input: find.input()?,
            role,
            configure: find.memory_result("plugin", "configure")?,
            save: find.memory_result("plugin", "save")?,
            restore: find.memory_result("plugin", "restore")?,
            observe: if description.events != Events::NONE {
                Some(find.function("lifecycle", "observe")?)
            } else {
                None
            },
        })
    }

    fn configure(
        &self,
        store: &mut Store<WasmHost>,
        setup: &GuestSetup,
        values: &[ParameterValue<'_>],
    ) -> wasmtime::Result<Result<(), String>> {
        let Self { memory, .. } = self;
        let mut context = store.as_context_mut();
        let (kind, kind_len) = memory.put(&mut context, 1, setup.kind.name().as_bytes())?;
        let mut records = Vec::with_capacity(values.len() * size_of::<ValueRecord>());
        let values_at = memory.room(&mut context, 8, values.len() * size_of::<ValueRecord>())?;
        for &value in values {
            let ValueRecord { case, unused, payload } = lowered(memory, &mut context, value)?;
            records.push(case);
            records.extend(unused);
            records.extend(payload.into_iter().flat_map(u32::to_le_bytes));
        }
        write(memory.memory.data_mut(&mut context), values_at, &records)?;
        let fields = setup.instances.iter().flat_map(|i| [i.id.0, i.max_num_seqs, i.total_kv_blocks, i.block_size]);
        let instances: Vec<u8> = fields.flat_map(u32::to_le_bytes).collect();
        let (instances, _) = memory.put(&mut context, 4, &instances)?;
        let size = size_of::<GuestModelFact>() * setup.model_facts.len();
        let model_facts_at = memory.room(&mut context, 8, size)?;
        let mut model_facts = Vec::with_capacity(size);
        for (name, value) in &*setup.model_facts {
            let (at, len) = memory.put(&mut context, 1, name.as_bytes())?;
            model_facts.extend([at.to_le_bytes(), len.to_le_bytes()].concat());
            model_facts.extend(value.to_le_bytes());
        }
        write(memory.memory.data_mut(&mut context), model_facts_at, &model_facts)?;
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let lists = (
            kind,
            kind_len,
            count(values_at),
            count(values.len()),
            instances,
            count(setup.instances.len()),
            count(model_facts_at),
            count(setup.model_facts.len()),
        );
        let refused = self.configure.call(memory, store, lists, RESULT_BYTES, |reader, at| reader.refusal(at))?;
        Ok(refused.map_or(Ok(()), Err))
    }

    fn save(&self, store: &mut Store<WasmHost>) -> wasmtime::Result<Vec<u8>> {
        self.save.call(&self.memory, store, (), RESULT_BYTES, |reader, at| Ok(reader.list_at(at, 1, 1)?.to_vec()))
    }

    fn restore(&self, store: &mut Store<WasmHost>, state: &[u8]) -> wasmtime::Result<Result<(), String>> {
        let state = self.memory.put(&mut store.as_context_mut(), 1, state)?;
        let refused = self.restore.call(&self.memory, store, state, RESULT_BYTES, |reader, at| reader.refusal(at))?;
        Ok(refused.map_or(Ok(()), Err))
    }

    fn observe(&self, store: &mut Store<WasmHost>, event: &EventRow) -> wasmtime::Result<()> {
        let Some(observe) = &self.observe else { return Ok(()) };
        observe.call(store, event.numbers())
    }

    fn admit(&self, store: &mut Store<WasmHost>, input: &DecisionRows<'_>) -> wasmtime::Result<Option<String>> {
        let admit = role!(self, DirectRole::Admission { admit } => admit);
        let at = self.put_input(store, input)?;
        admit.call(&self.memory, store, at, RESULT_BYTES, |reader, at| reader.refusal(at))
    }

    #[inline]
    fn route(&self, store: &mut Store<WasmHost>, input: &DecisionRows<'_>) -> wasmtime::Result<u32> {
        let route = role!(self, DirectRole::Routing { route, .. } => route);
        let at = self.put_input(store, input)?;
        route.call(store, at)
    }

    fn scores(
        &self,
        store: &mut Store<WasmHost>,
        input: &DecisionRows<'_>,
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<()> {
        let Some(scores) = role!(self, DirectRole::Routing { scores, .. } => scores) else {
            wasmtime::bail!("it computes no scores");
        };
        let at = self.put_input(store, input)?;
        scores.call(&self.memory, store, at, RESULT_BYTES, |reader, at| reader.numbers_at(at, numbers))
    }

    fn filter(
        &self,
        store: &mut Store<WasmHost>,
        input: &DecisionRows<'_>,
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<()> {
        let filter = role!(self, DirectRole::RoutingFilter { filter } => filter);
        let at = self.put_input(store, input)?;
        filter.call(&self.memory, store, at, RESULT_BYTES, |reader, at| reader.numbers_at(at, numbers))
    }

    fn priority(&self, store: &mut Store<WasmHost>, request: &RequestRow) -> wasmtime::Result<i64> {
        let priority = role!(self, DirectRole::Priority { priority } => priority);
        let at = self.room(store, size_of::<RequestRow>())?;
        write(self.memory.memory.data_mut(&mut *store), at, RequestRow::bytes(std::slice::from_ref(request)))?;
        priority.call(store, at as u32)
    }

    fn rank(&self, store: &mut Store<WasmHost>, request: &RequestRow, queued: &QueuedRow) -> wasmtime::Result<f64> {
        let rank = role!(self, DirectRole::Scheduling { rank } => rank);
        let (request, queued) =
            (RequestRow::bytes(std::slice::from_ref(request)), QueuedRow::bytes(std::slice::from_ref(queued)));
        let at = self.room(store, size_of::<RankParameters>())?;
        let memory = self.memory.memory.data_mut(&mut *store);
        write(memory, at + offset_of!(RankParameters, request), request)?;
        write(memory, at + offset_of!(RankParameters, queued), queued)?;
        rank.call(store, at as u32)
    }

    fn victim(
        &self,
        store: &mut Store<WasmHost>,
        now_us: u64,
        requester: u32,
        batch: &[RunningRow],
    ) -> wasmtime::Result<u32> {
        let victim = role!(self, DirectRole::Preemption { victim } => victim);
        let at = self.put_slice(store, batch)?;
        victim.call(store, (now_us, requester, at, batch.len() as u32))
    }

    fn constants(&self, store: &mut Store<WasmHost>) -> wasmtime::Result<LatencyConstants> {
        let latency = role!(self, DirectRole::Latency(latency) => latency);
        latency.constants.call(&self.memory, store, (), RESULT_BYTES, |reader, at| {
            reader.record(at, 8, size_of::<LatencyConstants>())?;
            Ok(LatencyConstants {
                shortest_step_us: reader.u64(at + offset!(LatencyConstants, shortest_step_us))?,
                output_token_us: reader.u64(at + offset!(LatencyConstants, output_token_us))?,
                post_decode_us: reader.u64(at + offset!(LatencyConstants, post_decode_us))?,
                scheduling_us: reader.u64(at + offset!(LatencyConstants, scheduling_us))?,
                preemption_us: reader.u64(at + offset!(LatencyConstants, preemption_us))?,
            })
        })
    }

    fn queueing_time(&self, store: &mut Store<WasmHost>, input_tokens: u32) -> wasmtime::Result<u64> {
        role!(self, DirectRole::Latency(latency) => latency).queueing_time.call(store, input_tokens)
    }

    fn step_time(&self, store: &mut Store<WasmHost>, step: &StepRow) -> wasmtime::Result<u64> {
        let latency = role!(self, DirectRole::Latency(latency) => latency);
        latency.step_time.call(store, step.numbers())
    }

    #[inline]
    fn saturation(&self, store: &mut Store<WasmHost>, input: &InstanceInput<'_>) -> wasmtime::Result<f64> {
        let saturation = role!(self, DirectRole::Saturation { saturation } => saturation);
        let room = self.room_of_instances(store, 0, input.instances.len())?;
        room.write(self.memory.memory.data_mut(&mut *store), input.count, input.instances, input.changed)?;
        let (periodic, cache, gateway, pipeline) = input.ages.numbers();
        let [count, len] = [input.count, input.instances.len()].map(|number| number as u32);
        saturation.call(store, (input.now_us, periodic, cache, gateway, pipeline, count, room.numbers_at as u32, len))
    }

    fn ceilings(
        &self,
        store: &mut Store<WasmHost>,
        now_us: u64,
        saturation: f64,
        bands: &[BandView],
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<()> {
        let ceilings = role!(self, DirectRole::Ceilings { ceilings } => ceilings);
        let at = self.put_rows(store, bands.iter().map(band_row))?;
        let params = (now_us, saturation, at, bands.len() as u32);
        ceilings.call(&self.memory, store, params, RESULT_BYTES, |reader, at| reader.numbers_at(at, numbers))
    }

    fn fair_pick(
        &self,
        store: &mut Store<WasmHost>,
        now_us: u64,
        saturation: f64,
        band: &BandView,
        flows: &[FlowView],
    ) -> wasmtime::Result<u32> {
        let fair_pick = role!(self, DirectRole::Fairness { fair_pick } => fair_pick);
        let at = self.put_slice(store, flow_rows(flows))?;
        let (oldest_wait_us, priority, queued) = band_row(band).numbers();
        fair_pick.call(store, (now_us, saturation, oldest_wait_us, priority, queued, at, flows.len() as u32))
    }

    fn order(&self, store: &mut Store<WasmHost>, request: &RequestRow, expires_us: u64) -> wasmtime::Result<f64> {
        let order = role!(self, DirectRole::Ordering { order } => order);
        let at = self.room(store, size_of::<OrderParameters>())?;
        let memory = self.memory.memory.data_mut(&mut *store);
        write(memory, at + offset_of!(OrderParameters, request), RequestRow::bytes(std::slice::from_ref(request)))?;
        write(memory, at + offset_of!(OrderParameters, expires_us), &expires_us.to_le_bytes())?;
        order.call(store, at as u32)
    }

    fn evict(
        &self,
        store: &mut Store<WasmHost>,
        now_us: u64,
        demand: &BandView,
        in_flight: &[InFlightView],
    ) -> wasmtime::Result<Option<u32>> {
        let evict = role!(self, DirectRole::Eviction { evict } => evict);
        let at = self.put_rows(store, in_flight.iter().map(in_flight_row))?;
        let (oldest_wait_us, priority, queued) = band_row(demand).numbers();
        let params = (now_us, oldest_wait_us, priority, queued, at, in_flight.len() as u32);
        evict.call(&self.memory, store, params, RESULT_BYTES, |reader, at| reader.chosen(at))
    }

    fn scale(
        &self,
        store: &mut Store<WasmHost>,
        now_us: u64,
        groups: &[GroupRow],
        history: &[GroupRow],
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<()> {
        let scale = role!(self, DirectRole::Scaling { scale } => scale);
        // Both lists are rows of the one memory for inputs.
        let rows: Vec<GroupRow> = groups.iter().chain(history).copied().collect();
        let [count, earlier] = [groups.len(), history.len()].map(|number| number as u32);
        let at = self.put_rows(store, rows.into_iter())?;
        let history_at = at + count * size_of::<GroupRow>() as u32;
        let params = (now_us, at, count, history_at, earlier);
        scale.call(&self.memory, store, params, RESULT_BYTES, |reader, at| reader.numbers_at(at, numbers))
    }

    fn drain(
        &self,
        store: &mut Store<WasmHost>,
        group: &DrainGroupRow,
        replicas: &[ReplicaRow],
    ) -> wasmtime::Result<u32> {
        let drain = role!(self, DirectRole::Drain { drain } => drain);
        let at = self.put_slice(store, replicas)?;
        let (now_us, price, number, model, gpus, min, max, wanted) = group.numbers();
        drain.call(store, (now_us, price, number, model, gpus, min, max, wanted, at, replicas.len() as u32))
    }

    fn keep(
        &self,
        store: &mut Store<WasmHost>,
        now_us: u64,
        chunks: &[ChunkRow],
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<()> {
        let keep = role!(self, DirectRole::KvCache { keep, .. } => keep);
        let at = self.put_rows(store, chunks.iter().copied())?;
        let params = (now_us, at, chunks.len() as u32);
        keep.call(&self.memory, store, params, RESULT_BYTES, |reader, at| reader.numbers_at(at, numbers))
    }

    fn store_chunks(
        &self,
        store: &mut Store<WasmHost>,
        offer: &ChunkOfferRow,
        chunks: &[ChunkRow],
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<()> {
        let of = role!(self, DirectRole::KvCache { store, .. } => store);
        let at = self.put_rows(store, chunks.iter().copied())?;
        let (now_us, queued_bytes, fill, tier, capacity) = offer.numbers();
        let params = (now_us, queued_bytes, fill, tier, capacity, at, chunks.len() as u32);
        of.call(&self.memory, store, params, RESULT_BYTES, |reader, at| reader.numbers_at(at, numbers))
    }

    fn load(&self, store: &mut Store<WasmHost>, hit: &TierHitRow) -> wasmtime::Result<bool> {
        let load = role!(self, DirectRole::KvCache { load, .. } => load);
        Ok(load.call(store, hit.numbers())? != 0)
    }

    fn disaggregate(
        &self,
        store: &mut Store<WasmHost>,
        request: &RoutedRequestRow,
        decode: &[PoolInstanceRow],
        prefill: &[PoolInstanceRow],
    ) -> wasmtime::Result<PrefillChoiceRow> {
        let disaggregate = role!(self, DirectRole::Disaggregation { disaggregate } => disaggregate);
        // Both lists are rows of the one memory for inputs.
        let rows: Vec<PoolInstanceRow> = decode.iter().chain(prefill).copied().collect();
        let [decodes, prefills] = [decode.len(), prefill.len()].map(|number| number as u32);
        let at = self.put_rows(store, rows.into_iter())?;
        let prefill_at = at + decodes * size_of::<PoolInstanceRow>() as u32;
        let (now, us, id, input, chosen, transfers, tokens, class, tenant, session, group, round) = request.numbers();
        let params = (
            now, us, id, input, chosen, transfers, tokens, class, tenant, session, group, round, at, decodes,
            prefill_at, prefills,
        );
        disaggregate.call(&self.memory, store, params, RESULT_BYTES, |reader, at| reader.prefill_choice(at))
    }

    fn placement(
        &self,
        store: &mut Store<WasmHost>,
        replica: &StartingReplicaRow,
        nodes: &[NodeRow],
    ) -> wasmtime::Result<Option<u32>> {
        let placement = role!(self, DirectRole::Placement { placement } => placement);
        let at = self.put_slice(store, nodes)?;
        let (now_us, created_us, id, group, model, gpus) = replica.numbers();
        let params = (now_us, created_us, id, group, model, gpus, at, nodes.len() as u32);
        placement.call(&self.memory, store, params, RESULT_BYTES, |reader, at| reader.chosen(at))
    }
}

impl Direct {
    /// Writes request, ages, and the number and rows of the instances into the guest's memory: 30 numbers exceed the 16
    /// that the canonical ABI passes as arguments.
    #[inline]
    fn put_input(&self, store: &mut Store<WasmHost>, input: &DecisionRows<'_>) -> wasmtime::Result<u32> {
        let request = RequestRow::bytes(std::slice::from_ref(&input.request));
        let ages = Row::bytes(std::slice::from_ref(&input.ages));
        let &DecisionRows { count, instances, changed, .. } = input;
        let room = self.room_of_instances(store, size_of::<GuestDecision>(), instances.len())?;
        let memory = self.memory.memory.data_mut(&mut *store);
        room.write(memory, count, instances, changed)?;
        let InstanceRoom { at, numbers_at, .. } = room;
        write(memory, at + offset_of!(GuestDecision, request), request)?;
        write(memory, at + offset_of!(GuestDecision, ages), ages)?;
        let [count, start, len] = [count, numbers_at, instances.len()].map(|number| number as u32);
        let mut end = [0; 12];
        for (bytes, number) in end.as_chunks_mut().0.iter_mut().zip([count, start, len]) {
            *bytes = number.to_le_bytes();
        }
        write(memory, at + offset_of!(GuestDecision, count), &end)?;
        Ok(at as u32)
    }

    /// The address of `size` bytes for the input of the next call.
    #[inline]
    fn room(&self, store: &mut Store<WasmHost>, size: usize) -> wasmtime::Result<usize> {
        match &self.input {
            Some(input) => input.room(store, size),
            None => self.memory.room(store, 8, size),
        }
    }

    /// Writes `rows`, one after the other.
    #[inline]
    fn put_rows<R: Row>(
        &self,
        store: &mut Store<WasmHost>,
        rows: impl ExactSizeIterator<Item = R>,
    ) -> wasmtime::Result<u32> {
        self.put(store, rows.len() * size_of::<R>(), |room| {
            for (room, row) in room.chunks_exact_mut(size_of::<R>()).zip(rows) {
                room.copy_from_slice(R::bytes(std::slice::from_ref(&row)));
            }
        })
    }

    /// As [`Self::put_rows`], where the rows exist.
    #[inline]
    fn put_slice<R: Row>(&self, store: &mut Store<WasmHost>, rows: &[R]) -> wasmtime::Result<u32> {
        self.put(store, size_of_val(rows), |room| room.copy_from_slice(R::bytes(rows)))
    }

    #[inline]
    fn put(&self, store: &mut Store<WasmHost>, size: usize, write: impl FnOnce(&mut [u8])) -> wasmtime::Result<u32> {
        let at = self.room(store, size)?;
        let memory = self.memory.memory.data_mut(store);
        let Some(room) = memory.get_mut(at..).and_then(|memory| memory.get_mut(..size)) else {
            wasmtime::bail!("realloc return: beyond end of memory");
        };
        write(room);
        Ok(at as u32)
    }

    /// Room for `head` bytes of other parameters and for `numbers` of the instances.
    #[inline]
    fn room_of_instances(
        &self,
        store: &mut Store<WasmHost>,
        head: usize,
        numbers: usize,
    ) -> wasmtime::Result<InstanceRoom> {
        let size = numbers * size_of::<f64>();
        let Some(input) = &self.input else {
            let at = if head == 0 { 0 } else { self.memory.room(&mut *store, 8, head)? };
            return Ok(InstanceRoom { at, numbers_at: self.memory.room(store, 8, size)?, keeps_rows: false });
        };
        let at = input.room(store, head + size)?;
        Ok(InstanceRoom { at, numbers_at: at + head, keeps_rows: input.keeps_rows() })
    }
}

/// Where the parameters of a decision about the instances are written.
struct InstanceRoom {
    /// Address of the other parameters.
    at: usize,
    numbers_at: usize,
    /// Whether the rows of the call before are still there.
    keeps_rows: bool,
}

impl InstanceRoom {
    /// Writes the numbers of `count` instances, of those that the call before has left only the `changed` rows.
    #[inline]
    fn write(
        &self,
        memory: &mut [u8],
        count: usize,
        instances: &[f64],
        changed: Option<&[u32]>,
    ) -> wasmtime::Result<()> {
        let numbers = bytes_of(instances);
        let Some(changed) = changed.filter(|_| self.keeps_rows) else { return write(memory, self.numbers_at, numbers) };
        let width = numbers.len() / count.max(1);
        for start in changed.iter().map(|&index| index as usize * width) {
            let Some(row) = numbers.get(start..start + width) else { continue };
            write(memory, self.numbers_at + start, row)?;
        }
        Ok(())
    }
}

/// The bytes of numbers as a little-endian guest has them.
#[inline]
#[allow(unsafe_code)]
fn bytes_of(numbers: &[f64]) -> &[u8] {
    // SAFETY: all bytes of a number are initialised; u8 has no alignment.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// The record of `value`, with what it points to in the guest's memory.
fn lowered(
    memory: &GuestMemory,
    context: &mut StoreContextMut<'_, WasmHost>,
    value: ParameterValue<'_>,
) -> wasmtime::Result<ValueRecord> {
    Ok(match value {
        ParameterValue::Number(number) => ValueRecord::number(number),
        ParameterValue::Text(text) => {
            let (at, len) = memory.put(context, 1, text.as_bytes())?;
            ValueRecord::new(ValueRecord::TEXT, [at, len, 0, 0])
        }
        ParameterValue::Table(ValueTable { columns, numbers }) => {
            let (at, _) = memory.put(context, 8, bytes_of(numbers))?;
            ValueRecord::new(ValueRecord::TABLE, [*columns, at, numbers.len() as u32, 0])
        }
    })
}

/// Looks up exports by name.
struct CoreExports<'a> {
    file: &'a PluginPath,
    exports: &'a Exports,
    store: &'a mut Store<WasmHost>,
    instance: &'a Instance,
}

impl CoreExports<'_> {
    fn memory(&self) -> Result<GuestMemory, Fault> {
        let memory = self.store.data().memory.clone();
        memory.ok_or_else(|| self.file.fault(FaultKind::MissingExport, "does not export memory"))
    }

    /// The memory for inputs, if the module exports the function that returns it.
    fn input(&mut self) -> Result<Option<InputMemory>, Fault> {
        let Some(reserve) = self.instance.get_func(&mut *self.store, INPUT) else { return Ok(None) };
        let reserve = reserve.typed(&*self.store);
        let reserve = reserve.map_err(|error| {
            self.file.fault(FaultKind::MissingExport, format_args!("{INPUT} is not the function of the SDK: {error:#}"))
        })?;
        Ok(Some(InputMemory::new(reserve)))
    }

    fn name(&self, interface: &str, function: &str) -> Result<String, Fault> {
        let full_name = self.exports.full_name(interface).ok_or_else(|| inspect::not_exported(self.file, interface))?;
        Ok(format!("{full_name}#{function}"))
    }

    fn function<P: WasmParams, R: WasmResults>(
        &mut self,
        interface: &str,
        name: &str,
    ) -> Result<TypedFunc<P, R>, Fault> {
        let name = self.name(interface, name)?;
        self.instance.get_typed_func(&mut *self.store, &name).map_err(|error| {
            inspect::does_not_fit(
                self.file,
                self.exports.full_name(interface).unwrap_or_default(),
                &format!("{name}: {error:#}"),
            )
        })
    }

    fn memory_result<P: WasmParams>(&mut self, interface: &str, name: &str) -> Result<MemoryResult<P>, Fault> {
        let function = self.function(interface, name)?;
        let after = format!("{}{}", standard::POST_RETURN, self.name(interface, name)?);
        let after =
            match self.instance.get_func(&mut *self.store, &after) {
                None => None,
                Some(after) => Some(after.typed(&*self.store).map_err(|error| {
                    self.file.fault(FaultKind::MissingExport, format_args!("after {name}: {error:#}"))
                })?),
            };
        Ok(MemoryResult { function, after })
    }
}
