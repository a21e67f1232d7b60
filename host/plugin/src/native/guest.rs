//! A guest of a native library: one state, and the calls to the functions of the library.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use blis_abi::table::{self, CHost, CText};
use blis_sim::latency::Batch;
use blis_sim::policy::flow::{BandView, FlowView, InFlightView};
use blis_sim::policy::kv_cache::KvCacheDecisions;
use blis_sim::policy::{AdmissionDecision, BatchView, ClusterView, Event, QueuedView, Reason, RequestView, Ties};
use blis_sim::units::Micros;

use super::host::{NativeCallInput, NativeHost, copied};
use super::library::Library;
use crate::rows::{
    AgesRow, BandRow, ChunkOfferRow, ChunkRow, DrainGroupRow, FlowRow, GroupRow, InFlightRow, InstanceRows, NONE_U32,
    NodeRow, PoolInstanceRow, PrefillChoiceRow, ReplicaRow, RequestRow, RoutedRequestRow, Row as _, Rows, RunningRow,
    StartingReplicaRow, TierHitRow, ages_row, band_row, decision_row, event_row, flow_rows, in_flight_row, number_of,
    queued_row, request_row, running_rows, step_row,
};
use crate::{
    AdmissionGuest, CeilingsGuest, DisaggregationGuest, DrainGuest, EvictionGuest, FairnessGuest, Fault, FaultKind,
    FilterGuest, Guest, GuestSetup, Kind, KvCacheGuest, LatencyConstants, LatencyGuest, OrderingGuest, ParameterValue,
    PlacementGuest, PreemptionGuest, PriorityGuest, RoutingGuest, SaturationGuest, ScalingGuest, SchedulingGuest,
    StartedGuest, ValueTable,
};

/// Stream index for `host->random` in a call that is about no request.
const NO_REQUEST: u64 = u64::MAX;

/// One state of `library`.
#[derive(Debug)]
pub(super) struct NativeGuest {
    library: Arc<Library>,
    host: NativeHost,
    setup: GuestSetup,
    state: NonNull<c_void>,
    rows: InstanceRows,
}

// SAFETY: the header requires that a state is used by one thread at a time, which may be any thread, and that states
// share nothing; the `NativeHost` belongs to this guest alone.
unsafe impl Send for NativeGuest {}

impl NativeGuest {
    pub fn start(library: Arc<Library>, setup: &GuestSetup) -> Result<Self, Fault> {
        let description = &library.description;
        if !description.kinds.contains(&setup.kind) {
            return Err(library.fault(FaultKind::MissingExport, &format!("it does not implement `{}`", setup.kind)));
        }
        let given = setup.parameters.len() + setup.others.len();
        let declared = description.parameters.len() + description.others.len();
        if given != declared {
            let what = format!("{given} values for its {declared} parameters");
            return Err(library.fault(FaultKind::Refused, &what));
        }
        let host = NativeHost::new(&library.file, setup);
        let state = create(&library, &host, setup)?;
        let rows = InstanceRows::new(&library.description.columns);
        Ok(Self { library, host, setup: setup.clone(), state, rows })
    }

    /// Distance from one instance to the next, bytes.
    fn stride(&self) -> usize {
        size_of::<f64>() * self.library.description.columns.len()
    }

    /// The function if the guest was started for `kind` and the library has it.
    fn function<F>(&self, kind: Kind, function: Option<F>) -> Result<F, Fault> {
        let function = function.filter(|_| self.setup.kind == kind);
        function.ok_or_else(|| self.library.fault(FaultKind::MissingExport, &format!("it does not implement `{kind}`")))
    }

    /// Calls `function`; `name` is its name in messages.
    fn call<T>(
        &self,
        function: &str,
        about: NativeCallInput<'_>,
        call: impl FnOnce(*const CHost, *mut c_void) -> T,
    ) -> Result<T, Fault> {
        let result = self.host.during(about, |host| call(host, self.state.as_ptr()));
        result.map_err(|reason| self.refused(function, &reason))
    }

    #[cold]
    fn refused(&self, function: &str, reason: &str) -> Fault {
        self.library.fault(FaultKind::Refused, &format!("{function} failed: {reason}"))
    }
}

fn create(library: &Library, host: &NativeHost, setup: &GuestSetup) -> Result<NonNull<c_void>, Fault> {
    let info = |info: &blis_sim::policy::InstanceInfo| blis_abi::InstanceInfo {
        id: info.id.0,
        max_num_seqs: info.max_num_seqs,
        total_kv_blocks: info.total_kv_blocks,
        block_size: info.block_size,
    };
    let instances: Vec<_> = setup.instances.iter().map(info).collect();
    let model_fact = |(name, value): &(String, f64)| table::CModelFact { name: CText::of(name), value: *value };
    let model_facts: Vec<_> = setup.model_facts.iter().map(model_fact).collect();
    let values: Vec<_> = setup.values(&library.description).into_iter().map(lowered).collect();
    let raw = table::CSetup {
        kind: CText::of(setup.kind.name()),
        instances: instances.as_ptr(),
        instance_count: instances.len(),
        parameters: values.as_ptr(),
        model_facts: model_facts.as_ptr(),
        model_fact_count: model_facts.len(),
    };
    let create = library.functions.create;
    // SAFETY: the header gives the function this type; all pointers live until it returns.
    let state = host.during(NativeCallInput::item(NO_REQUEST), |host| unsafe { create(host, &raw const raw) });
    let state = state.map_err(|reason| library.fault(FaultKind::Refused, &format!("create: {reason}")))?;
    NonNull::new(state).ok_or_else(|| {
        library.fault(FaultKind::Refused, "create returned NULL without a reason; it should call host->fail")
    })
}

fn lowered(value: ParameterValue<'_>) -> table::CValue {
    let nothing = table::CValue::number(0.0);
    match value {
        ParameterValue::Number(number) => table::CValue::number(number),
        ParameterValue::Text(text) => table::CValue { kind: table::CValue::TEXT, text: CText::of(text), ..nothing },
        ParameterValue::Table(ValueTable { columns, numbers }) => table::CValue {
            kind: table::CValue::TABLE,
            columns: *columns,
            numbers: numbers.as_ptr(),
            count: numbers.len(),
            ..nothing
        },
    }
}

impl Drop for NativeGuest {
    fn drop(&mut self) {
        let destroy = self.library.functions.destroy;
        // SAFETY: `state` came from `create` of the same library and is not used afterwards.
        unsafe { destroy(self.state.as_ptr()) };
    }
}

/// SAFETY, for all calls from here on: a function has the type that the header gives it, `host` and `state` are those
/// of this guest, and every other pointer is to a value or a slice of the caller, of the given length, that lives until
/// the function returns.
impl AdmissionGuest for NativeGuest {
    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> Result<AdmissionDecision, Fault> {
        let admit = self.function(Kind::Admission, self.library.table.admit)?;
        let (row, ages) = (decision_row(request, cluster), ages_row(cluster.staleness));
        let stride = self.stride();
        let Rows { count, numbers, changed } = self.rows.of(Some(request), cluster);
        let rows = numbers.as_ptr().cast();
        let about = NativeCallInput { changed, ..NativeCallInput::request(request) };
        let mut reason = CText::EMPTY;
        let admitted = self.call("admit", about, |host, state| {
            // SAFETY: see above.
            unsafe { admit(host, state, &raw const row, &raw const ages, rows, count, stride, &raw mut reason) }
        });
        let admitted = admitted.inspect_err(|_| self.rows.forget())?;
        match admitted {
            1 => Ok(AdmissionDecision::Admit),
            0 => {
                // SAFETY: the header requires a text that stays valid until the next call.
                let reason = unsafe { copied(reason, self.setup.limits.message_bytes) };
                Ok(AdmissionDecision::Reject(Reason::Text(reason.into())))
            }
            other => {
                let what = format!("admit returned {other}; it must be 1 to admit or 0 to reject");
                Err(self.library.fault(FaultKind::OutOfRange, &what))
            }
        }
    }
}

impl RoutingGuest for NativeGuest {
    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> Result<usize, Fault> {
        let route = self.function(Kind::Routing, self.library.table.route)?;
        let (row, ages) = (decision_row(request, cluster), ages_row(cluster.staleness));
        let stride = self.stride();
        let Rows { count, numbers, changed } = self.rows.of(Some(request), cluster);
        let rows = numbers.as_ptr().cast();
        let about = NativeCallInput { ties: Some(ties), changed, ..NativeCallInput::request(request) };
        if let (true, Some(explain)) = (self.setup.explain, self.library.table.scores) {
            // A score that the library does not write stays NaN, which the caller detects.
            scores.resize(count, f64::NAN);
            let out = scores.as_mut_ptr();
            let explained = self.call("scores", about, |host, state| {
                // SAFETY: see above.
                unsafe { explain(host, state, &raw const row, &raw const ages, rows, count, stride, out) };
            });
            explained.inspect_err(|_| self.rows.forget())?;
        }
        let target = self.call("route", about, |host, state| {
            // SAFETY: see above.
            unsafe { route(host, state, &raw const row, &raw const ages, rows, count, stride) }
        });
        Ok(target.inspect_err(|_| self.rows.forget())? as usize)
    }

    fn scores(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        let compute = self.function(Kind::Routing, self.library.table.scores)?;
        self.numbers("scores", (request, cluster, ties), scores, |host, state, input, out| {
            // SAFETY: see above.
            unsafe { compute(host, state, input.request, input.ages, input.rows, input.count, input.stride, out) };
        })
    }
}

impl FilterGuest for NativeGuest {
    fn filter(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        kept: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        let compute = self.function(Kind::RoutingFilter, self.library.table.filter)?;
        self.numbers("filter", (request, cluster, ties), kept, |host, state, input, out| {
            // SAFETY: see above.
            unsafe { compute(host, state, input.request, input.ages, input.rows, input.count, input.stride, out) };
        })
    }
}

/// The arguments of a function that writes a number for each instance.
struct ColumnInput {
    request: *const RequestRow,
    ages: *const AgesRow,
    rows: *const c_void,
    count: usize,
    stride: usize,
}

impl NativeGuest {
    /// Replaces `numbers` by those that the function called `name` writes, which `compute` calls.
    fn numbers(
        &mut self,
        name: &'static str,
        (request, cluster, ties): (&RequestView<'_>, &ClusterView<'_>, &Ties),
        numbers: &mut Vec<f64>,
        compute: impl FnOnce(*const CHost, *mut c_void, &ColumnInput, *mut f64),
    ) -> Result<(), Fault> {
        let (row, ages) = (decision_row(request, cluster), ages_row(cluster.staleness));
        let stride = self.stride();
        let Rows { count, numbers: rows, changed } = self.rows.of(Some(request), cluster);
        let input =
            ColumnInput { request: &raw const row, ages: &raw const ages, rows: rows.as_ptr().cast(), count, stride };
        let about = NativeCallInput { ties: Some(ties), changed, ..NativeCallInput::request(request) };
        numbers.clear();
        // A number that the library does not write stays NaN, which the caller detects.
        numbers.resize(count, f64::NAN);
        let out = numbers.as_mut_ptr();
        let done = self.call(name, about, |host, state| compute(host, state, &input, out));
        done.inspect_err(|_| self.rows.forget())
    }
}

impl PriorityGuest for NativeGuest {
    fn priority(&mut self, request: &RequestView<'_>, now: Micros) -> Result<i64, Fault> {
        let priority = self.function(Kind::Priority, self.library.table.priority)?;
        let row = request_row(request, now, 0);
        self.call("priority", NativeCallInput::request(request), |host, state| {
            // SAFETY: see above.
            unsafe { priority(host, state, &raw const row) }
        })
    }
}

impl SchedulingGuest for NativeGuest {
    fn rank(&mut self, queued: &QueuedView<'_>) -> Result<f64, Fault> {
        let rank = self.function(Kind::Scheduling, self.library.table.rank)?;
        let (row, position) = (request_row(&queued.request, queued.now, 0), queued_row(queued));
        self.call("rank", NativeCallInput::request(&queued.request), |host, state| {
            // SAFETY: see above.
            unsafe { rank(host, state, &raw const row, &raw const position) }
        })
    }
}

impl PreemptionGuest for NativeGuest {
    fn victim(&mut self, batch: &BatchView) -> Result<usize, Fault> {
        let victim = self.function(Kind::Preemption, self.library.table.victim)?;
        let rows = running_rows(batch);
        let requester = u32::try_from(batch.requester).unwrap_or(NONE_U32);
        let item = batch.id.get(batch.requester).map_or(NO_REQUEST, |&id| id.0.into());
        let about = NativeCallInput { ties: Some(&batch.ties()), ..NativeCallInput::item(item) };
        let index = self.call("victim", about, |host, state| {
            // SAFETY: see above.
            unsafe {
                victim(host, state, batch.now.0, requester, rows.as_ptr().cast(), rows.len(), size_of::<RunningRow>())
            }
        })?;
        Ok(index as usize)
    }
}

impl LatencyGuest for NativeGuest {
    fn step_time(&mut self, batch: &Batch) -> Result<u64, Fault> {
        let step_time = self.function(Kind::Latency, self.library.table.step_time)?;
        let row = step_row(batch);
        self.call("step_time", NativeCallInput::item(NO_REQUEST), |host, state| {
            // SAFETY: see above.
            unsafe { step_time(host, state, &raw const row) }
        })
    }

    fn queueing_time(&mut self, input_tokens: u32) -> Result<u64, Fault> {
        let queueing_time = self.function(Kind::Latency, self.library.table.queueing_time)?;
        self.call("queueing_time", NativeCallInput::item(NO_REQUEST), |host, state| {
            // SAFETY: see above.
            unsafe { queueing_time(host, state, input_tokens) }
        })
    }

    fn constants(&mut self) -> Result<LatencyConstants, Fault> {
        let constants = self.function(Kind::Latency, self.library.table.constants)?;
        let mut result = LatencyConstants::ZERO;
        self.call("constants", NativeCallInput::item(NO_REQUEST), |host, state| {
            // SAFETY: see above.
            unsafe { constants(host, state, &raw mut result) };
        })?;
        Ok(result)
    }
}

impl SaturationGuest for NativeGuest {
    fn saturation(&mut self, cluster: &ClusterView<'_>) -> Result<f64, Fault> {
        let saturation = self.function(Kind::Saturation, self.library.table.saturation)?;
        let (now_us, ages, stride) = (cluster.now.0, ages_row(cluster.staleness), self.stride());
        let Rows { count, numbers, changed } = self.rows.of(None, cluster);
        let rows = numbers.as_ptr().cast();
        let about = NativeCallInput { changed, ..of_no_request(cluster.now) };
        let output = self.call("saturation", about, |host, state| {
            // SAFETY: see above.
            unsafe { saturation(host, state, now_us, &raw const ages, rows, count, stride) }
        });
        output.inspect_err(|_| self.rows.forget())
    }
}

/// The input of a decision at `now` that is about no request. Built-in policies take the first of equally good choices.
fn of_no_request(now: Micros) -> NativeCallInput<'static> {
    NativeCallInput { ties: Some(&Ties::LowestIndex), ..NativeCallInput::item(number_of(now).0.into()) }
}

impl CeilingsGuest for NativeGuest {
    fn ceilings(
        &mut self,
        now: Micros,
        saturation: f64,
        bands: &[BandView],
        ceilings: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        let compute = self.function(Kind::Ceilings, self.library.table.ceilings)?;
        let rows: Vec<BandRow> = bands.iter().map(band_row).collect();
        // A ceiling that the library does not write stays NaN, which the caller detects.
        ceilings.resize(rows.len(), f64::NAN);
        let (start, stride, out) = (rows.as_ptr().cast(), size_of::<BandRow>(), ceilings.as_mut_ptr());
        self.call("ceilings", of_no_request(now), |host, state| {
            // SAFETY: see above.
            unsafe { compute(host, state, now.0, saturation, start, rows.len(), stride, out) };
        })
    }
}

impl FairnessGuest for NativeGuest {
    fn fair_pick(&mut self, now: Micros, saturation: f64, band: BandView, flows: &[FlowView]) -> Result<usize, Fault> {
        let fair_pick = self.function(Kind::Fairness, self.library.table.fair_pick)?;
        let (band, rows): (BandRow, &[FlowRow]) = (band_row(&band), flow_rows(flows));
        let (start, stride) = (rows.as_ptr().cast(), size_of::<FlowRow>());
        let index = self.call("fair_pick", of_no_request(now), |host, state| {
            // SAFETY: see above.
            unsafe { fair_pick(host, state, now.0, saturation, &raw const band, start, rows.len(), stride) }
        })?;
        Ok(index as usize)
    }
}

impl OrderingGuest for NativeGuest {
    fn order(&mut self, request: &RequestView<'_>, now: Micros, expires: Micros) -> Result<f64, Fault> {
        let order = self.function(Kind::Ordering, self.library.table.order)?;
        let row = request_row(request, now, 0);
        self.call("order", NativeCallInput::request(request), |host, state| {
            // SAFETY: see above.
            unsafe { order(host, state, &raw const row, expires.0) }
        })
    }
}

impl EvictionGuest for NativeGuest {
    fn evict(&mut self, now: Micros, demand: BandView, in_flight: &[InFlightView]) -> Result<Option<usize>, Fault> {
        let evict = self.function(Kind::Eviction, self.library.table.evict)?;
        let (demand, rows): (BandRow, Vec<InFlightRow>) =
            (band_row(&demand), in_flight.iter().map(in_flight_row).collect());
        let (start, stride) = (rows.as_ptr().cast(), size_of::<InFlightRow>());
        let index = self.call("evict", of_no_request(now), |host, state| {
            // SAFETY: see above.
            unsafe { evict(host, state, now.0, &raw const demand, start, rows.len(), stride) }
        })?;
        Ok((index != NONE_U32).then_some(index as usize))
    }
}

impl ScalingGuest for NativeGuest {
    fn scale(
        &mut self,
        now: Micros,
        groups: &[GroupRow],
        history: &[GroupRow],
        targets: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        let scale = self.function(Kind::Scaling, self.library.table.scale)?;
        // A target that the library does not write stays NaN, which the caller detects.
        targets.resize(groups.len(), f64::NAN);
        let [start, before] = [groups, history].map(|rows| rows.as_ptr().cast());
        let (stride, out) = (size_of::<GroupRow>(), targets.as_mut_ptr());
        self.call("scale", of_no_request(now), |host, state| {
            // SAFETY: see above.
            unsafe { scale(host, state, now.0, start, groups.len(), before, history.len(), stride, out) };
        })
    }
}

impl DrainGuest for NativeGuest {
    fn drain(&mut self, group: &DrainGroupRow, replicas: &[ReplicaRow]) -> Result<usize, Fault> {
        let drain = self.function(Kind::Drain, self.library.table.drain)?;
        let (start, stride) = (replicas.as_ptr().cast(), size_of::<ReplicaRow>());
        let index = self.call("drain", of_no_request(Micros(group.now_us)), |host, state| {
            // SAFETY: see above.
            unsafe { drain(host, state, &raw const *group, start, replicas.len(), stride) }
        })?;
        Ok(index as usize)
    }
}

impl PlacementGuest for NativeGuest {
    fn placement(&mut self, replica: &StartingReplicaRow, nodes: &[NodeRow]) -> Result<Option<usize>, Fault> {
        let placement = self.function(Kind::Placement, self.library.table.placement)?;
        let (start, stride) = (nodes.as_ptr().cast(), size_of::<NodeRow>());
        let index = self.call("placement", of_no_request(Micros(replica.now_us)), |host, state| {
            // SAFETY: see above.
            unsafe { placement(host, state, &raw const *replica, start, nodes.len(), stride) }
        })?;
        Ok((index != NONE_U32).then_some(index as usize))
    }
}

impl KvCacheGuest for NativeGuest {
    fn decides(&self) -> KvCacheDecisions {
        let table = &self.library.table;
        KvCacheDecisions { store: table.store.is_some(), load: table.load.is_some() }
    }

    fn keep(&mut self, now: Micros, chunks: &[ChunkRow], ranks: &mut Vec<f64>) -> Result<(), Fault> {
        let keep = self.function(Kind::KvCache, self.library.table.keep)?;
        // A rank that the library does not write stays NaN, which the caller detects.
        ranks.resize(chunks.len(), f64::NAN);
        let (start, stride, out) = (chunks.as_ptr().cast(), size_of::<ChunkRow>(), ranks.as_mut_ptr());
        self.call("keep", of_no_request(now), |host, state| {
            // SAFETY: see above.
            unsafe { keep(host, state, now.0, start, chunks.len(), stride, out) };
        })
    }

    fn store(&mut self, offer: &ChunkOfferRow, chunks: &[ChunkRow], stored: &mut Vec<f64>) -> Result<(), Fault> {
        let Some(store) = self.library.table.store else {
            stored.resize(chunks.len(), 1.0);
            return Ok(());
        };
        let store = self.function(Kind::KvCache, Some(store))?;
        stored.resize(chunks.len(), f64::NAN);
        let (start, stride, out) = (chunks.as_ptr().cast(), size_of::<ChunkRow>(), stored.as_mut_ptr());
        self.call("store", of_no_request(Micros(offer.now_us)), |host, state| {
            // SAFETY: see above.
            unsafe { store(host, state, &raw const *offer, start, chunks.len(), stride, out) };
        })
    }

    fn load(&mut self, hit: &TierHitRow) -> Result<bool, Fault> {
        let Some(load) = self.library.table.load else { return Ok(true) };
        let load = self.function(Kind::KvCache, Some(load))?;
        let loads = self.call("load", of_no_request(Micros(hit.now_us)), |host, state| {
            // SAFETY: see above.
            unsafe { load(host, state, &raw const *hit) }
        })?;
        Ok(loads != 0)
    }
}

impl DisaggregationGuest for NativeGuest {
    fn disaggregate(
        &mut self,
        request: &RoutedRequestRow,
        decode: &[PoolInstanceRow],
        prefill: &[PoolInstanceRow],
    ) -> Result<PrefillChoiceRow, Fault> {
        let disaggregate = self.function(Kind::Disaggregation, self.library.table.disaggregate)?;
        let [decode_start, prefill_start] = [decode, prefill].map(|rows| rows.as_ptr().cast());
        let stride = size_of::<PoolInstanceRow>();
        let mut choice = PrefillChoiceRow::new(false);
        let about = NativeCallInput::item(request.request.into());
        let out = &raw mut choice;
        self.call("disaggregate", about, |host, state| {
            let row = &raw const *request;
            let (decodes, prefills) = (decode.len(), prefill.len());
            // SAFETY: see above.
            unsafe { disaggregate(host, state, row, decode_start, decodes, prefill_start, prefills, stride, out) };
        })?;
        Ok(choice)
    }
}

impl Guest for NativeGuest {
    fn observe(&mut self, event: &Event) -> Result<(), Fault> {
        let Some(observe) = self.library.table.observe else { return Ok(()) };
        let row = event_row(event);
        self.call("observe", NativeCallInput::item(event.request.0.into()), |host, state| {
            // SAFETY: see above.
            unsafe { observe(host, state, &raw const row) };
        })
    }

    fn save(&mut self) -> Result<Vec<u8>, Fault> {
        let (save, most) = (self.library.functions.save, self.setup.limits.state_bytes);
        let mut state = vec![0; 256.min(most)];
        // One call returns the size of the state, a second one is needed if the state exceeds the first buffer.
        for _ in 0..2 {
            let (buffer, capacity) = (state.as_mut_ptr(), state.len());
            let needed = self.call("save", NativeCallInput::item(NO_REQUEST), |host, own| {
                // SAFETY: see above.
                unsafe { save(host, own, buffer, capacity) }
            })?;
            if needed > most {
                let what = format!("save needs {needed} bytes; a state may have {most}: keep less in it");
                return Err(self.library.fault(FaultKind::OutOfMemory, &what));
            }
            state.resize(needed, 0);
            if needed <= capacity {
                return Ok(state);
            }
        }
        Err(self
            .library
            .fault(FaultKind::OutOfRange, "save needed more bytes at its second call; it must change nothing"))
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), Fault> {
        self.rows.forget();
        let restore = self.library.functions.restore;
        let done = self.call("restore", NativeCallInput::item(NO_REQUEST), |host, own| {
            // SAFETY: see above.
            unsafe { restore(host, own, state.as_ptr(), state.len()) }
        })?;
        if done == 0 {
            return Err(self.library.fault(FaultKind::Refused, "restore refused this state"));
        }
        Ok(())
    }

    fn fork(&mut self) -> Result<StartedGuest, Fault> {
        let state = self.save()?;
        let mut copy = Self::start(Arc::clone(&self.library), &self.setup)?;
        copy.restore(&state)?;
        Ok(StartedGuest::of(self.setup.kind, copy))
    }
}
