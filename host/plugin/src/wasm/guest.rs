//! A plugin with a state, as a [`Guest`]: the part that does not depend on the way in which functions are called.

use std::fmt;
use std::sync::Arc;

use blis_sim::latency::Batch;
use blis_sim::policy::flow::{BandView, FlowView, InFlightView};
use blis_sim::policy::{AdmissionDecision, BatchView, ClusterView, Event, QueuedView, Reason, RequestView, Ties};
use blis_sim::units::Micros;
use wasmtime::Store;

use super::compiled::CompiledPlugin;
use super::fault::PluginPath;
use super::functions::{DecisionRows, Functions, InstanceInput};
use super::host::{WasmCallInput, WasmHost, WasmLog};
use crate::rows::canonical;
use crate::rows::{
    ChunkOfferRow, ChunkRow, DrainGroupRow, GroupRow, InstanceRows, NodeRow, PoolInstanceRow, PrefillChoiceRow,
    ReplicaRow, RoutedRequestRow, Rows, StartingReplicaRow, TierHitRow, ages_row, decision_row, event_row, number_of,
    queued_row, request_row, running_rows, step_row,
};
use crate::text::plain;
use crate::{
    AdmissionGuest, CeilingsGuest, DisaggregationGuest, DrainGuest, EvictionGuest, FairnessGuest, Fault, FaultKind,
    FilterGuest, Guest, GuestSetup, Kind, KvCacheGuest, LatencyConstants, LatencyGuest, OrderingGuest, PlacementGuest,
    PreemptionGuest, PriorityGuest, RoutingGuest, SaturationGuest, ScalingGuest, SchedulingGuest, StartedGuest,
};

/// An instance that was configured and accepts calls.
struct LiveInstance<F> {
    store: Store<WasmHost>,
    functions: F,
}

/// A guest: the code, the setup, and the instance unless it trapped.
pub(super) struct WasmGuest<F: Functions> {
    plugin: Arc<CompiledPlugin<F>>,
    setup: GuestSetup,
    live: Option<LiveInstance<F>>,
    rows: InstanceRows,
    used: u64,
    log: WasmLog,
}

impl<F: Functions> fmt::Debug for WasmGuest<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasmGuest").field("file", &self.plugin.file).field("kind", &self.setup.kind).finish()
    }
}

impl<F: Functions> WasmGuest<F> {
    pub(super) fn start(plugin: &Arc<CompiledPlugin<F>>, setup: &GuestSetup) -> Result<Self, Fault> {
        let mut guest = Self {
            plugin: Arc::clone(plugin),
            setup: setup.clone(),
            live: None,
            rows: InstanceRows::new(&plugin.description.columns),
            used: 0,
            log: WasmLog::default(),
        };
        guest.ready()?;
        Ok(guest)
    }

    fn file(&self) -> &PluginPath {
        &self.plugin.file
    }

    /// Creates and configures an instance if there is none.
    #[inline]
    fn ready(&mut self) -> Result<(), Fault> {
        if self.live.is_some() { Ok(()) } else { self.start_instance() }
    }

    #[cold]
    fn start_instance(&mut self) -> Result<(), Fault> {
        self.rows.forget();
        let GuestSetup { kind, names, stream, limits, .. } = &self.setup;
        let (mut store, instance) =
            self.plugin.instantiate(WasmHost::new(self.file(), *limits, names, *stream, self.log), limits)?;
        let functions =
            F::find(&self.plugin.file, &self.plugin.code, &mut store, &instance, *kind, &self.plugin.description)?;
        self.live = Some(LiveInstance { store, functions });
        self.configure()
    }

    fn configure(&mut self) -> Result<(), Fault> {
        let setup = self.setup.clone();
        let plugin = Arc::clone(&self.plugin);
        let values = setup.values(&plugin.description);
        let configured = self.call("configure", &WasmCallInput::default(), |functions, store| {
            functions.configure(store, &setup, &values)
        });
        let configured = configured.and_then(|result| self.accepted("configure", result));
        if configured.is_err() {
            self.live = None;
        }
        configured
    }

    /// Turns an error that the guest returned into a fault.
    fn accepted(&self, function: &str, result: Result<(), String>) -> Result<(), Fault> {
        result.map_err(|text| {
            let text = plain(&text, self.setup.limits.message_bytes);
            self.file().fault(FaultKind::Refused, format_args!("{function}: {text}"))
        })
    }

    /// Calls the function called `name` by `call`. Allocates nothing unless the call fails.
    #[inline]
    fn call<A>(
        &mut self,
        name: &str,
        about: &WasmCallInput<'_>,
        call: impl FnOnce(&F, &mut Store<WasmHost>) -> wasmtime::Result<A>,
    ) -> Result<A, Fault> {
        let LiveInstance { store, functions } = self.live.as_mut().expect("made ready before");
        store.data_mut().begin(about, self.plugin.host_inputs);
        let fuel = self.setup.limits.fuel_per_call;
        let result = store.set_fuel(fuel).and_then(|()| call(functions, store));
        self.used = fuel - store.get_fuel().unwrap_or(fuel).min(fuel);
        result.map_err(|error| self.failed(name, &error))
    }

    /// Refuses calls of another kind than the guest was started for.
    #[inline]
    fn of(&mut self, kind: Kind) -> Result<(), Fault> {
        if self.setup.kind != kind {
            return Err(Fault::missing(kind));
        }
        self.ready()
    }

    /// An instance cannot continue after a trap: the next call creates a new one.
    #[cold]
    fn failed(&mut self, function: &str, error: &wasmtime::Error) -> Fault {
        let live = self.live.take();
        let host = live.as_ref().map(|live| live.store.data());
        self.log = host.map_or(self.log, WasmHost::log);
        self.file().failed(function, error, host.map_or("", WasmHost::last_error), &self.setup.limits)
    }

    /// Prepares a call of an admission or routing function: its input, and the data of host functions.
    #[inline]
    fn decide<A>(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: Option<&Ties>,
        call: impl FnOnce(&mut Self, &DecisionRows<'_>, &WasmCallInput<'_>) -> Result<A, Fault>,
    ) -> Result<A, Fault> {
        let mut rows = std::mem::take(&mut self.rows);
        let Rows { count, numbers: instances, changed } = rows.of(Some(request), cluster);
        let (request_row, ages) = (decision_row(request, cluster), ages_row(cluster.staleness));
        let input = DecisionRows { request: request_row, ages, count, instances, changed };
        let about = WasmCallInput { id: request.id, request: Some(request), ties, changed };
        let result = call(self, &input, &about);
        if result.is_err() {
            rows.forget();
        }
        self.rows = rows;
        result
    }

    fn latency<A>(
        &mut self,
        name: &str,
        call: impl FnOnce(&F, &mut Store<WasmHost>) -> wasmtime::Result<A>,
    ) -> Result<A, Fault> {
        self.of(Kind::Latency)?;
        self.call(name, &WasmCallInput::default(), call)
    }
}

impl<F: Functions> AdmissionGuest for WasmGuest<F> {
    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> Result<AdmissionDecision, Fault> {
        self.of(Kind::Admission)?;
        let decision = self.decide(request, cluster, None, |guest, input, about| {
            guest.call("admit", about, |functions, store| functions.admit(store, input))
        })?;
        Ok(match decision {
            None => AdmissionDecision::Admit,
            Some(text) => AdmissionDecision::Reject(Reason::Text(plain(&text, self.setup.limits.message_bytes).into())),
        })
    }
}

impl<F: Functions> RoutingGuest for WasmGuest<F> {
    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> Result<usize, Fault> {
        self.of(Kind::Routing)?;
        let target = self.decide(request, cluster, Some(ties), |guest, input, about| {
            let mut used = 0;
            if guest.setup.explain && guest.plugin.description.scores {
                guest.call("scores", about, |functions, store| functions.scores(store, input, scores))?;
                used = guest.used;
            }
            let target = guest.call("route", about, |functions, store| functions.route(store, input))?;
            guest.used += used;
            Ok(target)
        })?;
        Ok(target as usize)
    }

    fn scores(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        self.of(Kind::Routing)?;
        if !self.plugin.description.scores {
            return Err(super::inspect::not_exported(self.file(), "routing-scores"));
        }
        self.decide(request, cluster, Some(ties), |guest, input, about| {
            guest.call("scores", about, |functions, store| functions.scores(store, input, scores))
        })
    }
}

impl<F: Functions> FilterGuest for WasmGuest<F> {
    fn filter(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        kept: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        self.of(Kind::RoutingFilter)?;
        self.decide(request, cluster, Some(ties), |guest, input, about| {
            guest.call("filter", about, |functions, store| functions.filter(store, input, kept))
        })
    }
}

impl<F: Functions> PriorityGuest for WasmGuest<F> {
    fn priority(&mut self, request: &RequestView<'_>, now: Micros) -> Result<i64, Fault> {
        self.of(Kind::Priority)?;
        let about = WasmCallInput { id: request.id, request: Some(request), ..WasmCallInput::default() };
        let row = request_row(request, now, 0);
        self.call("priority", &about, |functions, store| functions.priority(store, &row))
    }
}

impl<F: Functions> SchedulingGuest for WasmGuest<F> {
    fn rank(&mut self, queued: &QueuedView<'_>) -> Result<f64, Fault> {
        self.of(Kind::Scheduling)?;
        let about = WasmCallInput { id: queued.request.id, request: Some(&queued.request), ..WasmCallInput::default() };
        let (request, position) = (request_row(&queued.request, queued.now, 0), queued_row(queued));
        self.call("rank", &about, |functions, store| functions.rank(store, &request, &position))
    }
}

impl<F: Functions> PreemptionGuest for WasmGuest<F> {
    fn victim(&mut self, batch: &BatchView) -> Result<usize, Fault> {
        self.of(Kind::Preemption)?;
        let rows = running_rows(batch);
        let requester = u32::try_from(batch.requester).unwrap_or(u32::MAX);
        let id = batch.id.get(batch.requester).copied().unwrap_or_default();
        let about = WasmCallInput { id, ties: Some(&batch.ties()), ..WasmCallInput::default() };
        let victim =
            self.call("victim", &about, |functions, store| functions.victim(store, batch.now.0, requester, &rows))?;
        Ok(victim as usize)
    }
}

impl<F: Functions> LatencyGuest for WasmGuest<F> {
    fn step_time(&mut self, batch: &Batch) -> Result<u64, Fault> {
        let row = step_row(batch);
        self.latency("step-time", |functions, store| functions.step_time(store, &row))
    }

    fn queueing_time(&mut self, input_tokens: u32) -> Result<u64, Fault> {
        self.latency("queueing-time", |functions, store| functions.queueing_time(store, input_tokens))
    }

    fn constants(&mut self) -> Result<LatencyConstants, Fault> {
        self.latency("constants", F::constants)
    }
}

impl<F: Functions> SaturationGuest for WasmGuest<F> {
    fn saturation(&mut self, cluster: &ClusterView<'_>) -> Result<f64, Fault> {
        self.of(Kind::Saturation)?;
        let mut rows = std::mem::take(&mut self.rows);
        let Rows { count, numbers: instances, changed } = rows.of(None, cluster);
        let ages = ages_row(cluster.staleness);
        let input = InstanceInput { now_us: cluster.now.0, ages, count, instances, changed };
        let about = WasmCallInput { changed, ..of_no_request(cluster.now) };
        let result = self.call("saturation", &about, |functions, store| functions.saturation(store, &input));
        if result.is_err() {
            rows.forget();
        }
        self.rows = rows;
        result
    }
}

/// The input of a decision at `now` that is about no request. Built-in policies take the first of equally good choices.
fn of_no_request(now: Micros) -> WasmCallInput<'static> {
    WasmCallInput { id: number_of(now), ties: Some(&Ties::LowestIndex), ..WasmCallInput::default() }
}

impl<F: Functions> CeilingsGuest for WasmGuest<F> {
    fn ceilings(
        &mut self,
        now: Micros,
        saturation: f64,
        bands: &[BandView],
        ceilings: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        self.of(Kind::Ceilings)?;
        self.call("ceilings", &of_no_request(now), |functions, store| {
            functions.ceilings(store, now.0, canonical(saturation), bands, ceilings)
        })
    }
}

impl<F: Functions> FairnessGuest for WasmGuest<F> {
    fn fair_pick(&mut self, now: Micros, saturation: f64, band: BandView, flows: &[FlowView]) -> Result<usize, Fault> {
        self.of(Kind::Fairness)?;
        let index = self.call("fair-pick", &of_no_request(now), |functions, store| {
            functions.fair_pick(store, now.0, canonical(saturation), &band, flows)
        });
        index.map(|index| index as usize)
    }
}

impl<F: Functions> OrderingGuest for WasmGuest<F> {
    fn order(&mut self, request: &RequestView<'_>, now: Micros, expires: Micros) -> Result<f64, Fault> {
        self.of(Kind::Ordering)?;
        let about = WasmCallInput { id: request.id, request: Some(request), ..WasmCallInput::default() };
        let row = request_row(request, now, 0);
        self.call("order", &about, |functions, store| functions.order(store, &row, expires.0))
    }
}

impl<F: Functions> EvictionGuest for WasmGuest<F> {
    fn evict(&mut self, now: Micros, demand: BandView, in_flight: &[InFlightView]) -> Result<Option<usize>, Fault> {
        self.of(Kind::Eviction)?;
        let victim = self
            .call("evict", &of_no_request(now), |functions, store| functions.evict(store, now.0, &demand, in_flight))?;
        Ok(victim.map(|index| index as usize))
    }
}

impl<F: Functions> DrainGuest for WasmGuest<F> {
    fn drain(&mut self, group: &DrainGroupRow, replicas: &[ReplicaRow]) -> Result<usize, Fault> {
        self.of(Kind::Drain)?;
        let about = of_no_request(Micros(group.now_us));
        self.call("drain", &about, |functions, store| functions.drain(store, group, replicas))
            .map(|index| index as usize)
    }
}

impl<F: Functions> PlacementGuest for WasmGuest<F> {
    fn placement(&mut self, replica: &StartingReplicaRow, nodes: &[NodeRow]) -> Result<Option<usize>, Fault> {
        self.of(Kind::Placement)?;
        let about = of_no_request(Micros(replica.now_us));
        let node = self.call("placement", &about, |functions, store| functions.placement(store, replica, nodes))?;
        Ok(node.map(|index| index as usize))
    }
}

impl<F: Functions> KvCacheGuest for WasmGuest<F> {
    fn keep(&mut self, now: Micros, chunks: &[ChunkRow], ranks: &mut Vec<f64>) -> Result<(), Fault> {
        self.of(Kind::KvCache)?;
        self.call("keep", &of_no_request(now), |functions, store| functions.keep(store, now.0, chunks, ranks))
    }

    fn store(&mut self, offer: &ChunkOfferRow, chunks: &[ChunkRow], stored: &mut Vec<f64>) -> Result<(), Fault> {
        self.of(Kind::KvCache)?;
        let about = of_no_request(Micros(offer.now_us));
        self.call("store", &about, |functions, store| functions.store_chunks(store, offer, chunks, stored))
    }

    fn load(&mut self, hit: &TierHitRow) -> Result<bool, Fault> {
        self.of(Kind::KvCache)?;
        self.call("load", &of_no_request(Micros(hit.now_us)), |functions, store| functions.load(store, hit))
    }
}

impl<F: Functions> DisaggregationGuest for WasmGuest<F> {
    fn disaggregate(
        &mut self,
        request: &RoutedRequestRow,
        decode: &[PoolInstanceRow],
        prefill: &[PoolInstanceRow],
    ) -> Result<PrefillChoiceRow, Fault> {
        self.of(Kind::Disaggregation)?;
        let about = of_no_request(Micros(request.now_us));
        self.call("disaggregate", &about, |functions, store| functions.disaggregate(store, request, decode, prefill))
    }
}

impl<F: Functions> ScalingGuest for WasmGuest<F> {
    fn scale(
        &mut self,
        now: Micros,
        groups: &[GroupRow],
        history: &[GroupRow],
        targets: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        self.of(Kind::Scaling)?;
        self.call("scale", &of_no_request(now), |functions, store| {
            functions.scale(store, now.0, groups, history, targets)
        })
    }
}

impl<F: Functions> Guest for WasmGuest<F> {
    fn observe(&mut self, event: &Event) -> Result<(), Fault> {
        self.ready()?;
        let about = WasmCallInput { id: event.request, ..WasmCallInput::default() };
        let row = event_row(event);
        self.call("observe", &about, |functions, store| functions.observe(store, &row))
    }

    fn save(&mut self) -> Result<Vec<u8>, Fault> {
        self.ready()?;
        let state = self.call("save", &WasmCallInput::default(), F::save)?;
        let allowed = self.setup.limits.state_bytes;
        if state.len() > allowed {
            let what = format!("save: the state has {} bytes; it may have {allowed}", state.len());
            return Err(self.file().fault(FaultKind::OutOfMemory, what));
        }
        Ok(state)
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), Fault> {
        self.rows.forget();
        self.ready()?;
        let result =
            self.call("restore", &WasmCallInput::default(), |functions, store| functions.restore(store, state))?;
        self.accepted("restore", result).inspect_err(|_| self.live = None)
    }

    fn fork(&mut self) -> Result<StartedGuest, Fault> {
        let state = self.save()?;
        let mut copy = Self::start(&self.plugin, &self.setup)?;
        let started = copy.used;
        copy.restore(&state)?;
        copy.used += started;
        Ok(StartedGuest::of(self.setup.kind, copy))
    }

    fn used(&self) -> Option<u64> {
        Some(self.used)
    }
}

impl<F: Functions> Drop for WasmGuest<F> {
    fn drop(&mut self) {
        let log = self.live.as_ref().map_or(self.log, |live| live.store.data().log());
        if log.dropped > 0 {
            tracing::warn!("{}: {} further lines of its log are left out", self.plugin.file, log.dropped);
        }
    }
}
