//! Calls the functions of a component through wasmtime's component layer: for any component, from any compiler.

use blis_sim::policy::Events;
use blis_sim::policy::flow::{BandView, FlowView, InFlightView};
use wasmtime::component::{ComponentNamedList, Instance, InstancePre, Lift, Lower, TypedFunc};
use wasmtime::{Engine, Store};

use super::bindings::{
    AdmissionDecision, Ages, Band, ChunkOffer, ConstantsRecord, Description, DrainGroup, Event, Flow, Group, InFlight,
    InstanceInfo, KvChunk, KvHit, ModelFact, Node, PoolInstance, PrefillChoice, Queued, Replica, Request,
    RoutedRequest, Running, StartingReplica, Step, Value,
};
use super::describe::RawDescription;
use super::fault::PluginPath;
use super::functions::{DecisionRows, Functions, InstanceInput};
use super::host::WasmHost;
use super::inspect::{Exports, does_not_fit, not_exported};
use crate::rows::{
    ChunkOfferRow, ChunkRow, DrainGroupRow, EventRow, GroupRow, NodeRow, PoolInstanceRow, PrefillChoiceRow, QueuedRow,
    ReplicaRow, RequestRow, RoutedRequestRow, RunningRow, StartingReplicaRow, StepRow, TierHitRow, band_row, flow_rows,
    in_flight_row,
};
use crate::{Fault, GuestSetup, Kind, LatencyConstants, ParameterValue, PolicyDescription};

type DecisionFunction<A> = TypedFunc<(Request, Ages, u32, &'static [f64]), (A,)>;
type CeilingsFunction = TypedFunc<(u64, f64, &'static [Band]), (Vec<f64>,)>;
type EvictionFunction = TypedFunc<(u64, Band, &'static [InFlight]), (Option<u32>,)>;
type ScalingFunction = TypedFunc<(u64, &'static [Group], &'static [Group]), (Vec<f64>,)>;
type DrainFunction = TypedFunc<(DrainGroup, &'static [Replica]), (u32,)>;
type PlacementFunction = TypedFunc<(StartingReplica, &'static [Node]), (Option<u32>,)>;
type KeepFunction = TypedFunc<(u64, &'static [KvChunk]), (Vec<f64>,)>;
type StoreFunction = TypedFunc<(ChunkOffer, &'static [KvChunk]), (Vec<f64>,)>;
type DisaggregateFunction =
    TypedFunc<(RoutedRequest, &'static [PoolInstance], &'static [PoolInstance]), (PrefillChoice,)>;
type Configure = TypedFunc<(&'static str, Vec<Value>, Vec<InstanceInfo>, Vec<ModelFact>), (Result<(), String>,)>;

/// The functions that belong to one kind of policy.
#[derive(Clone, Copy)]
enum TypedRole {
    Admission { admit: DecisionFunction<AdmissionDecision> },
    Routing { route: DecisionFunction<u32>, scores: Option<DecisionFunction<Vec<f64>>> },
    RoutingFilter { filter: DecisionFunction<Vec<f64>> },
    Priority { priority: TypedFunc<(Request,), (i64,)> },
    Scheduling { rank: TypedFunc<(Request, Queued), (f64,)> },
    Preemption { victim: TypedFunc<(u64, u32, &'static [Running]), (u32,)> },
    Latency(TypedLatency),
    Saturation { saturation: TypedFunc<(u64, Ages, u32, &'static [f64]), (f64,)> },
    Ceilings { ceilings: CeilingsFunction },
    Fairness { fair_pick: TypedFunc<(u64, f64, Band, &'static [Flow]), (u32,)> },
    Ordering { order: TypedFunc<(Request, u64), (f64,)> },
    Eviction { evict: EvictionFunction },
    Scaling { scale: ScalingFunction },
    Drain { drain: DrainFunction },
    Placement { placement: PlacementFunction },
    KvCache { keep: KeepFunction, store: StoreFunction, load: TypedFunc<(KvHit,), (bool,)> },
    Disaggregation { disaggregate: DisaggregateFunction },
}

#[derive(Clone, Copy)]
struct TypedLatency {
    constants: TypedFunc<(), (ConstantsRecord,)>,
    queueing_time: TypedFunc<(u32,), (u64,)>,
    step_time: TypedFunc<(Step,), (u64,)>,
}

/// All functions of an instance that a guest uses.
pub(super) struct Typed {
    role: TypedRole,
    configure: Configure,
    save: TypedFunc<(), (Vec<u8>,)>,
    restore: TypedFunc<(&'static [u8],), (Result<(), String>,)>,
    observe: Option<TypedFunc<(Event,), ()>>,
}

/// A compiled component with its host functions linked.
pub(super) struct LinkedComponent {
    pub pre: InstancePre<WasmHost>,
    pub exports: Exports,
}

/// The function of a kind, or an error for another kind: [`Functions`] are called for their own kind only.
macro_rules! role {
    ($self:ident, $pattern:pat => $function:expr) => {
        match $self.role {
            $pattern => $function,
            _ => wasmtime::bail!("it was started for another kind"),
        }
    };
}

impl Functions for Typed {
    type Code = LinkedComponent;
    type Instance = Instance;

    fn engine(code: &LinkedComponent) -> &Engine {
        code.pre.engine()
    }

    fn instantiate(code: &LinkedComponent, store: &mut Store<WasmHost>) -> wasmtime::Result<Instance> {
        code.pre.instantiate(store)
    }

    fn describe(
        file: &PluginPath,
        code: &LinkedComponent,
        store: &mut Store<WasmHost>,
        instance: &Instance,
    ) -> Result<wasmtime::Result<RawDescription>, Fault> {
        let mut find = ComponentExports { file, exports: &code.exports, store, instance };
        let describe = find.function::<(), (Description,)>("plugin", "describe")?;
        Ok(describe.call(store, ()).map(|(description,)| description.into()))
    }

    fn find(
        file: &PluginPath,
        code: &LinkedComponent,
        store: &mut Store<WasmHost>,
        instance: &Instance,
        kind: Kind,
        description: &PolicyDescription,
    ) -> Result<Self, Fault> {
        let mut find = ComponentExports { file, exports: &code.exports, store, instance };
        let of = kind.name();
        let role = match kind {
            Kind::Admission => TypedRole::Admission { admit: find.function(of, "admit")? },
            Kind::Routing => TypedRole::Routing {
                route: find.function(of, "route")?,
                scores: if description.scores { Some(find.function("routing-scores", "scores")?) } else { None },
            },
            Kind::RoutingFilter => TypedRole::RoutingFilter { filter: find.function(of, "filter")? },
            Kind::Priority => TypedRole::Priority { priority: find.function(of, "priority")? },
            Kind::Scheduling => TypedRole::Scheduling { rank: find.function(of, "rank")? },
            Kind::Preemption => TypedRole::Preemption { victim: find.function(of, "victim")? },
            Kind::Latency => TypedRole::Latency(TypedLatency {
                constants: find.function(of, "constants")?,
                queueing_time: find.function(of, "queueing-time")?,
                step_time: find.function(of, "step-time")?,
            }),
            Kind::Saturation => TypedRole::Saturation { saturation: find.function(of, "saturation")? },
            Kind::Ceilings => TypedRole::Ceilings { ceilings: find.function(of, "ceilings")? },
            Kind::Fairness => TypedRole::Fairness { fair_pick: find.function(of, "fair-pick")? },
            Kind::Ordering => TypedRole::Ordering { order: find.function(of, "order")? },
            Kind::Eviction => TypedRole::Eviction { evict: find.function(of, "evict")? },
            Kind::Scaling => TypedRole::Scaling { scale: find.function(of, "scale")? },
            Kind::Drain => TypedRole::Drain { drain: find.function(of, "drain")? },
            Kind::Placement => TypedRole::Placement { placement: find.function(of, "placement")? },
            Kind::KvCache => TypedRole::KvCache {
                keep: find.function(of, "keep")?,
                store: find.function(of, "store-chunks")?,
                load: find.function(of, "load")?,
            },
            Kind::Disaggregation => TypedRole::Disaggregation { disaggregate: find.function(of, "disaggregate")? },
        };
        Ok(Self {
            role,
            configure: find.function("plugin", "configure")?,
            save: find.function("plugin", "save")?,
            restore: find.function("plugin", "restore")?,
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
        let instances = setup.instances.iter().map(|info| InstanceInfo {
            id: info.id.0,
            max_num_seqs: info.max_num_seqs,
            total_kv_blocks: info.total_kv_blocks,
            block_size: info.block_size,
        });
        let model_facts = setup.model_facts.iter().map(|(name, value)| ModelFact { name: name.clone(), value: *value });
        let values = values.iter().map(|&value| value.into()).collect();
        let params = (setup.kind.name(), values, instances.collect(), model_facts.collect());
        one(called(self.configure, store, params))
    }

    fn save(&self, store: &mut Store<WasmHost>) -> wasmtime::Result<Vec<u8>> {
        one(called(self.save, store, ()))
    }

    fn restore(&self, store: &mut Store<WasmHost>, state: &[u8]) -> wasmtime::Result<Result<(), String>> {
        one(called(self.restore, store, (state,)))
    }

    fn observe(&self, store: &mut Store<WasmHost>, event: &EventRow) -> wasmtime::Result<()> {
        self.observe.map_or(Ok(()), |observe| called(observe, store, (event.into(),)))
    }

    fn admit(&self, store: &mut Store<WasmHost>, input: &DecisionRows<'_>) -> wasmtime::Result<Option<String>> {
        let admit = role!(self, TypedRole::Admission { admit } => admit);
        Ok(match decided(admit, store, input)? {
            AdmissionDecision::Admit => None,
            AdmissionDecision::Reject(reason) => Some(reason),
        })
    }

    fn route(&self, store: &mut Store<WasmHost>, input: &DecisionRows<'_>) -> wasmtime::Result<u32> {
        let route = role!(self, TypedRole::Routing { route, .. } => route);
        decided(route, store, input)
    }

    fn scores(
        &self,
        store: &mut Store<WasmHost>,
        input: &DecisionRows<'_>,
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<()> {
        let Some(scores) = role!(self, TypedRole::Routing { scores, .. } => scores) else {
            wasmtime::bail!("it computes no scores");
        };
        numbers.append(&mut decided(scores, store, input)?);
        Ok(())
    }

    fn filter(
        &self,
        store: &mut Store<WasmHost>,
        input: &DecisionRows<'_>,
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<()> {
        let filter = role!(self, TypedRole::RoutingFilter { filter } => filter);
        numbers.append(&mut decided(filter, store, input)?);
        Ok(())
    }

    fn priority(&self, store: &mut Store<WasmHost>, request: &RequestRow) -> wasmtime::Result<i64> {
        one(called(role!(self, TypedRole::Priority { priority } => priority), store, (request.into(),)))
    }

    fn rank(&self, store: &mut Store<WasmHost>, request: &RequestRow, queued: &QueuedRow) -> wasmtime::Result<f64> {
        one(called(role!(self, TypedRole::Scheduling { rank } => rank), store, (request.into(), queued.into())))
    }

    fn victim(
        &self,
        store: &mut Store<WasmHost>,
        now_us: u64,
        requester: u32,
        batch: &[RunningRow],
    ) -> wasmtime::Result<u32> {
        let batch: Vec<Running> = batch.iter().map(Running::from).collect();
        one(called(
            role!(self, TypedRole::Preemption { victim } => victim),
            store,
            (now_us, requester, batch.as_slice()),
        ))
    }

    fn constants(&self, store: &mut Store<WasmHost>) -> wasmtime::Result<LatencyConstants> {
        one(called(role!(self, TypedRole::Latency(latency) => latency.constants), store, ()))
            .map(LatencyConstants::from)
    }

    fn queueing_time(&self, store: &mut Store<WasmHost>, input_tokens: u32) -> wasmtime::Result<u64> {
        one(called(role!(self, TypedRole::Latency(latency) => latency.queueing_time), store, (input_tokens,)))
    }

    fn step_time(&self, store: &mut Store<WasmHost>, step: &StepRow) -> wasmtime::Result<u64> {
        one(called(role!(self, TypedRole::Latency(latency) => latency.step_time), store, (step.into(),)))
    }

    fn saturation(&self, store: &mut Store<WasmHost>, input: &InstanceInput<'_>) -> wasmtime::Result<f64> {
        let saturation = role!(self, TypedRole::Saturation { saturation } => saturation);
        let count = u32::try_from(input.count).unwrap_or(u32::MAX);
        one(called(saturation, store, (input.now_us, (&input.ages).into(), count, input.instances)))
    }

    fn ceilings(
        &self,
        store: &mut Store<WasmHost>,
        now_us: u64,
        saturation: f64,
        bands: &[BandView],
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<()> {
        let bands: Vec<Band> = bands.iter().map(|band| (&band_row(band)).into()).collect();
        let ceilings = role!(self, TypedRole::Ceilings { ceilings } => ceilings);
        numbers.append(&mut one(called(ceilings, store, (now_us, saturation, bands.as_slice())))?);
        Ok(())
    }

    fn fair_pick(
        &self,
        store: &mut Store<WasmHost>,
        now_us: u64,
        saturation: f64,
        band: &BandView,
        flows: &[FlowView],
    ) -> wasmtime::Result<u32> {
        let flows: Vec<Flow> = flow_rows(flows).iter().map(Into::into).collect();
        let fair_pick = role!(self, TypedRole::Fairness { fair_pick } => fair_pick);
        one(called(fair_pick, store, (now_us, saturation, (&band_row(band)).into(), flows.as_slice())))
    }

    fn order(&self, store: &mut Store<WasmHost>, request: &RequestRow, expires_us: u64) -> wasmtime::Result<f64> {
        one(called(role!(self, TypedRole::Ordering { order } => order), store, (request.into(), expires_us)))
    }

    fn evict(
        &self,
        store: &mut Store<WasmHost>,
        now_us: u64,
        demand: &BandView,
        in_flight: &[InFlightView],
    ) -> wasmtime::Result<Option<u32>> {
        let in_flight: Vec<InFlight> = in_flight.iter().map(|request| (&in_flight_row(request)).into()).collect();
        let evict = role!(self, TypedRole::Eviction { evict } => evict);
        one(called(evict, store, (now_us, (&band_row(demand)).into(), in_flight.as_slice())))
    }

    fn scale(
        &self,
        store: &mut Store<WasmHost>,
        now_us: u64,
        groups: &[GroupRow],
        history: &[GroupRow],
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<()> {
        let [groups, history] = [groups, history].map(|rows| rows.iter().map(Group::from).collect::<Vec<_>>());
        let scale = role!(self, TypedRole::Scaling { scale } => scale);
        numbers.append(&mut one(called(scale, store, (now_us, groups.as_slice(), history.as_slice())))?);
        Ok(())
    }

    fn drain(
        &self,
        store: &mut Store<WasmHost>,
        group: &DrainGroupRow,
        replicas: &[ReplicaRow],
    ) -> wasmtime::Result<u32> {
        let replicas: Vec<Replica> = replicas.iter().map(Replica::from).collect();
        let drain = role!(self, TypedRole::Drain { drain } => drain);
        one(called(drain, store, (group.into(), replicas.as_slice())))
    }

    fn keep(
        &self,
        store: &mut Store<WasmHost>,
        now_us: u64,
        chunks: &[ChunkRow],
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<()> {
        let chunks: Vec<KvChunk> = chunks.iter().map(KvChunk::from).collect();
        let keep = role!(self, TypedRole::KvCache { keep, .. } => keep);
        numbers.append(&mut one(called(keep, store, (now_us, chunks.as_slice())))?);
        Ok(())
    }

    fn store_chunks(
        &self,
        store: &mut Store<WasmHost>,
        offer: &ChunkOfferRow,
        chunks: &[ChunkRow],
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<()> {
        let chunks: Vec<KvChunk> = chunks.iter().map(KvChunk::from).collect();
        let of = role!(self, TypedRole::KvCache { store, .. } => store);
        numbers.append(&mut one(called(of, store, (offer.into(), chunks.as_slice())))?);
        Ok(())
    }

    fn load(&self, store: &mut Store<WasmHost>, hit: &TierHitRow) -> wasmtime::Result<bool> {
        let load = role!(self, TypedRole::KvCache { load, .. } => load);
        one(called(load, store, (hit.into(),)))
    }

    fn disaggregate(
        &self,
        store: &mut Store<WasmHost>,
        request: &RoutedRequestRow,
        decode: &[PoolInstanceRow],
        prefill: &[PoolInstanceRow],
    ) -> wasmtime::Result<PrefillChoiceRow> {
        let [decode, prefill] = [decode, prefill].map(|rows| rows.iter().map(PoolInstance::from).collect::<Vec<_>>());
        let disaggregate = role!(self, TypedRole::Disaggregation { disaggregate } => disaggregate);
        let PrefillChoice { remote, decode, prefill } =
            one(called(disaggregate, store, (request.into(), decode.as_slice(), prefill.as_slice())))?;
        Ok(PrefillChoiceRow { remote: u32::from(remote), decode, prefill })
    }

    fn placement(
        &self,
        store: &mut Store<WasmHost>,
        replica: &StartingReplicaRow,
        nodes: &[NodeRow],
    ) -> wasmtime::Result<Option<u32>> {
        let nodes: Vec<Node> = nodes.iter().map(Node::from).collect();
        let placement = role!(self, TypedRole::Placement { placement } => placement);
        one(called(placement, store, (replica.into(), nodes.as_slice())))
    }
}

/// Calls `function`. Parameters are passed by value, so that references in them live as long as the call.
#[inline]
fn called<P, R>(function: TypedFunc<P, R>, store: &mut Store<WasmHost>, params: P) -> wasmtime::Result<R>
where
    P: ComponentNamedList + Lower,
    R: ComponentNamedList + Lift,
{
    function.call(store, params)
}

/// Calls an admission or routing function.
fn decided<A: Lift + 'static>(
    function: DecisionFunction<A>,
    store: &mut Store<WasmHost>,
    input: &DecisionRows<'_>,
) -> wasmtime::Result<A> {
    let count = u32::try_from(input.count).unwrap_or(u32::MAX);
    one(called(function, store, ((&input.request).into(), (&input.ages).into(), count, input.instances)))
}

fn one<A>(result: wasmtime::Result<(A,)>) -> wasmtime::Result<A> {
    result.map(|(output,)| output)
}

/// Looks up exports by name.
struct ComponentExports<'a> {
    file: &'a PluginPath,
    exports: &'a Exports,
    store: &'a mut Store<WasmHost>,
    instance: &'a Instance,
}

impl ComponentExports<'_> {
    fn function<P, R>(&mut self, interface: &str, name: &str) -> Result<TypedFunc<P, R>, Fault>
    where
        P: ComponentNamedList + Lower,
        R: ComponentNamedList + Lift,
    {
        let full_name = self.exports.full_name(interface).ok_or_else(|| not_exported(self.file, interface))?;
        let missing = |what: String| does_not_fit(self.file, full_name, &what);
        let index = self
            .instance
            .get_export_index(&mut *self.store, None, full_name)
            .and_then(|index| self.instance.get_export_index(&mut *self.store, Some(&index), name))
            .ok_or_else(|| missing(format!("{full_name} lacks the function {name}")))?;
        self.instance
            .get_typed_func(&mut *self.store, index)
            .map_err(|error| missing(format!("{full_name}: {name} is not the function that it should be: {error:#}")))
    }
}
