//! A component with a state, as a [`Guest`].

use std::fmt;
use std::sync::Arc;

use blis_sim::latency::Batch;
use blis_sim::policy::{BatchView, ClusterView, Event, QueuedView, Reason, RequestView, Ties, Verdict};
use blis_sim::units::Micros;
use wasmtime::Store;
use wasmtime::component::{ComponentNamedList, Instance, Lift, Lower, TypedFunc};

use super::bindings::{Kinds, WireConstants, WireFact, WireInstance, WireVerdict};
use super::fault::excerpt;
use super::host::{About, Host, Log};
use super::{Compiled, File};
use crate::plugin::rows::{
    AgesRow, EventRow, InstanceRow, InstanceRows, QueuedRow, RequestRow, RunningRow, StepRow, running_rows,
};
use crate::plugin::{Constants, Fault, FaultKind, Guest, Kind, Setup};

type Decision<A> = TypedFunc<(RequestRow, AgesRow, &'static [InstanceRow]), (A,)>;
type Configure = TypedFunc<(Kinds, &'static [f64], Vec<WireInstance>, Vec<WireFact<'static>>), (Result<(), String>,)>;

/// The functions of an instance that belong to one kind of policy.
#[derive(Clone, Copy)]
pub(super) enum Role {
    Admission { admit: Decision<WireVerdict> },
    Routing { route: Decision<u32>, scores: Decision<Vec<f64>> },
    Priority { priority: TypedFunc<(RequestRow,), (i64,)> },
    Scheduling { rank: TypedFunc<(RequestRow, QueuedRow), (f64,)> },
    Preemption { victim: TypedFunc<(u64, u32, &'static [RunningRow]), (u32,)> },
    Latency(Latency),
}

#[derive(Clone, Copy)]
pub(super) struct Latency {
    constants: TypedFunc<(), (WireConstants,)>,
    queueing_time: TypedFunc<(u32,), (u64,)>,
    step_time: TypedFunc<(StepRow,), (u64,)>,
}

/// All functions of an instance that a guest uses.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    role: Role,
    configure: Configure,
    save: TypedFunc<(), (Vec<u8>,)>,
    restore: TypedFunc<(&'static [u8],), (Result<(), String>,)>,
    notice: Option<TypedFunc<(EventRow,), ()>>,
}

impl Functions {
    /// Those that `plugin` must have to be used for `kind`.
    pub(super) fn find(
        plugin: &Compiled,
        store: &mut Store<Host>,
        instance: &Instance,
        kind: Kind,
        told: bool,
    ) -> Result<Self, Fault> {
        let mut find = Find { plugin, store, instance };
        let of = kind.name();
        let role = match kind {
            Kind::Admission => Role::Admission { admit: find.function(of, "admit")? },
            Kind::Routing => Role::Routing { route: find.function(of, "route")?, scores: find.function(of, "scores")? },
            Kind::Priority => Role::Priority { priority: find.function(of, "priority")? },
            Kind::Scheduling => Role::Scheduling { rank: find.function(of, "rank")? },
            Kind::Preemption => Role::Preemption { victim: find.function(of, "victim")? },
            Kind::Latency => Role::Latency(Latency {
                constants: find.function(of, "constants")?,
                queueing_time: find.function(of, "queueing-time")?,
                step_time: find.function(of, "step-time")?,
            }),
        };
        Ok(Self {
            role,
            configure: find.function("plugin", "configure")?,
            save: find.function("plugin", "save")?,
            restore: find.function("plugin", "restore")?,
            notice: if told { Some(find.function("lifecycle", "notice")?) } else { None },
        })
    }
}

/// Looks up exports by name.
pub(super) struct Find<'a> {
    pub plugin: &'a Compiled,
    pub store: &'a mut Store<Host>,
    pub instance: &'a Instance,
}

impl Find<'_> {
    pub(super) fn function<P, R>(&mut self, interface: &str, name: &str) -> Result<TypedFunc<P, R>, Fault>
    where
        P: ComponentNamedList + Lower,
        R: ComponentNamedList + Lift,
    {
        let file = &self.plugin.file;
        let missing = |what: String| file.fault(FaultKind::MissingExport, what);
        let full_name = self.plugin.exports.full_name(interface).ok_or_else(|| {
            missing(format!("does not export blis:policy/{interface}, which what it says about itself calls for"))
        })?;
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

/// An instance, ready for questions.
struct Live {
    store: Store<Host>,
    functions: Functions,
}

/// A guest: what an instance is made from, and the instance unless it trapped.
pub(super) struct WasmGuest {
    plugin: Arc<Compiled>,
    setup: Setup,
    live: Option<Live>,
    rows: InstanceRows,
    used: u64,
    log: Log,
}

impl fmt::Debug for WasmGuest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasmGuest").field("file", &self.plugin.file).field("kind", &self.setup.kind).finish()
    }
}

impl WasmGuest {
    pub(super) fn start(plugin: &Arc<Compiled>, setup: &Setup) -> Result<Self, Fault> {
        let mut guest = Self {
            plugin: Arc::clone(plugin),
            setup: setup.clone(),
            live: None,
            rows: InstanceRows::default(),
            used: 0,
            log: Log::default(),
        };
        guest.ready()?;
        Ok(guest)
    }

    fn file(&self) -> &File {
        &self.plugin.file
    }

    /// Makes an instance if there is none.
    fn ready(&mut self) -> Result<(), Fault> {
        if self.live.is_some() {
            return Ok(());
        }
        let Setup { kind, names, stream, limits, .. } = &self.setup;
        let told = self.plugin.is_told();
        let (mut store, instance) =
            self.plugin.instantiate(Host::new(self.file(), *limits, names, *stream, self.log), limits)?;
        let functions = Functions::find(&self.plugin, &mut store, &instance, *kind, told)?;
        self.live = Some(Live { store, functions });
        self.configure()
    }

    fn configure(&mut self) -> Result<(), Fault> {
        let setup = self.setup.clone();
        let instances = setup.instances.iter().map(|info| WireInstance {
            id: info.id,
            max_num_seqs: info.max_num_seqs,
            total_kv_blocks: info.total_kv_blocks,
            block_size: info.block_size,
        });
        let facts = setup.facts.iter().map(|(name, value)| WireFact { name, value: *value });
        let params = (setup.kind.into(), setup.parameters.as_slice(), instances.collect(), facts.collect());
        let configured = self.ask("configure", &About::default(), |functions| Some(functions.configure), params);
        let configured = configured.and_then(|(answer,)| self.agreed("configure", answer));
        if configured.is_err() {
            self.live = None;
        }
        configured
    }

    /// An error that the guest answered with.
    fn agreed(&self, function: &str, answer: Result<(), String>) -> Result<(), Fault> {
        answer.map_err(|text| {
            let text = excerpt(&text, self.setup.limits.message_bytes);
            self.file().fault(FaultKind::Refused, format_args!("{function}: {text}"))
        })
    }

    /// Calls the function that `select` takes. Nothing here allocates unless something fails.
    #[inline]
    fn ask<P, R>(
        &mut self,
        name: &str,
        about: &About<'_>,
        select: impl FnOnce(&Functions) -> Option<TypedFunc<P, R>>,
        params: P,
    ) -> Result<R, Fault>
    where
        P: ComponentNamedList + Lower,
        R: ComponentNamedList + Lift,
    {
        let live = self.live.as_mut().expect("made ready before");
        let Some(function) = select(&live.functions) else { return Err(Fault::missing(self.setup.kind)) };
        let Live { store, .. } = live;
        store.data_mut().begin(about, self.plugin.wants_blocks);
        let fuel = self.setup.limits.fuel_per_call;
        let answer = store.set_fuel(fuel).and_then(|()| function.call(&mut *store, params));
        self.used = fuel - store.get_fuel().unwrap_or(fuel).min(fuel);
        answer.map_err(|error| self.failed(name, &error))
    }

    /// An instance that trapped cannot go on: the next call makes another.
    #[cold]
    fn failed(&mut self, function: &str, error: &wasmtime::Error) -> Fault {
        let live = self.live.take();
        let host = live.as_ref().map(|live| live.store.data());
        self.log = host.map_or(self.log, Host::log);
        self.file().failed(function, error, host.map_or("", Host::said), &self.setup.limits)
    }

    /// Asks an admission or routing policy.
    #[inline]
    fn decide<R>(
        &mut self,
        name: &str,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: Option<&Ties>,
        select: impl FnOnce(&Role) -> Option<Decision<R>>,
    ) -> Result<R, Fault>
    where
        (R,): ComponentNamedList + Lift,
    {
        self.ready()?;
        let mut rows = std::mem::take(&mut self.rows);
        let params = (RequestRow::at(request, cluster), cluster.ages.into(), rows.of(cluster));
        let about = About { id: request.id, request: Some(request), ties };
        let answer = self.ask(name, &about, |functions| select(&functions.role).map(shorter), params);
        self.rows = rows;
        answer.map(|(answer,)| answer)
    }

    fn latency<P, R>(
        &mut self,
        name: &str,
        select: impl FnOnce(&Latency) -> TypedFunc<P, (R,)>,
        params: P,
    ) -> Result<R, Fault>
    where
        P: ComponentNamedList + Lower,
        (R,): ComponentNamedList + Lift,
    {
        self.ready()?;
        let select = |functions: &Functions| match &functions.role {
            Role::Latency(latency) => Some(select(latency)),
            _ => None,
        };
        self.ask(name, &About::default(), select, params).map(|(answer,)| answer)
    }
}

/// The same function for rows that live as long as a call.
fn shorter<'a, A>(decision: Decision<A>) -> TypedFunc<(RequestRow, AgesRow, &'a [InstanceRow]), (A,)> {
    decision
}

impl Guest for WasmGuest {
    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> Result<Verdict, Fault> {
        let verdict = self.decide("admit", request, cluster, None, |role| match role {
            Role::Admission { admit } => Some(*admit),
            _ => None,
        })?;
        Ok(match verdict {
            WireVerdict::Admit => Verdict::Admit,
            WireVerdict::Reject(text) => {
                Verdict::Reject(Reason::Text(excerpt(&text, self.setup.limits.message_bytes).into()))
            }
        })
    }

    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> Result<usize, Fault> {
        let mut used = 0;
        if self.setup.explain && self.plugin.description.scores {
            let answer = self.decide("scores", request, cluster, Some(ties), |role| match role {
                Role::Routing { scores, .. } => Some(*scores),
                _ => None,
            })?;
            scores.extend(answer);
            used = self.used;
        }
        let target = self.decide("route", request, cluster, Some(ties), |role| match role {
            Role::Routing { route, .. } => Some(*route),
            _ => None,
        })?;
        self.used += used;
        Ok(target as usize)
    }

    fn priority(&mut self, request: &RequestView<'_>, now: Micros) -> Result<i64, Fault> {
        self.ready()?;
        let about = About { id: request.id, request: Some(request), ties: None };
        let select = |functions: &Functions| match functions.role {
            Role::Priority { priority } => Some(priority),
            _ => None,
        };
        let (priority,) = self.ask("priority", &about, select, (RequestRow::new(request, now, 0),))?;
        Ok(priority)
    }

    fn rank(&mut self, queued: &QueuedView<'_>) -> Result<f64, Fault> {
        self.ready()?;
        let about = About { id: queued.request.id, request: Some(&queued.request), ties: None };
        let params = (RequestRow::new(&queued.request, queued.now, 0), QueuedRow::from(queued));
        let select = |functions: &Functions| match functions.role {
            Role::Scheduling { rank } => Some(rank),
            _ => None,
        };
        let (rank,) = self.ask("rank", &about, select, params)?;
        Ok(rank)
    }

    fn victim(&mut self, batch: &BatchView) -> Result<usize, Fault> {
        self.ready()?;
        let rows = running_rows(batch);
        let wanting = u32::try_from(batch.wanting).unwrap_or(u32::MAX);
        let about = About { id: batch.id.get(batch.wanting).copied().unwrap_or(0), request: None, ties: None };
        let select = |functions: &Functions| match functions.role {
            Role::Preemption { victim } => Some(victim),
            _ => None,
        };
        let (victim,) = self.ask("victim", &about, select, (batch.now.0, wanting, rows.as_slice()))?;
        Ok(victim as usize)
    }

    fn step_time(&mut self, batch: &Batch) -> Result<u64, Fault> {
        self.latency("step-time", |latency| latency.step_time, (StepRow::from(batch),))
    }

    fn queueing_time(&mut self, input_tokens: u32) -> Result<u64, Fault> {
        self.latency("queueing-time", |latency| latency.queueing_time, (input_tokens,))
    }

    fn constants(&mut self) -> Result<Constants, Fault> {
        self.latency("constants", |latency| latency.constants, ()).map(Constants::from)
    }

    fn notice(&mut self, event: &Event) -> Result<(), Fault> {
        self.ready()?;
        let about = About { id: event.request, request: None, ties: None };
        self.ask("notice", &about, |functions| functions.notice, (EventRow::from(event),))
    }

    fn save(&mut self) -> Result<Vec<u8>, Fault> {
        self.ready()?;
        let (state,) = self.ask("save", &About::default(), |functions| Some(functions.save), ())?;
        let allowed = self.setup.limits.state_bytes;
        if state.len() > allowed {
            let what = format!("save: the state has {} bytes; it may have {allowed}", state.len());
            return Err(self.file().fault(FaultKind::OutOfMemory, what));
        }
        Ok(state)
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), Fault> {
        self.ready()?;
        let (answer,) = self.ask("restore", &About::default(), |functions| Some(functions.restore), (state,))?;
        self.agreed("restore", answer).inspect_err(|_| self.live = None)
    }

    fn fork(&mut self) -> Result<Box<dyn Guest>, Fault> {
        let state = self.save()?;
        let mut copy = Self::start(&self.plugin, &self.setup)?;
        copy.restore(&state)?;
        Ok(Box::new(copy))
    }

    fn used(&self) -> Option<u64> {
        Some(self.used)
    }
}

impl Drop for WasmGuest {
    fn drop(&mut self) {
        let log = self.live.as_ref().map_or(self.log, |live| live.store.data().log());
        if log.dropped > 0 {
            tracing::warn!("{}: {} further lines of its log are left out", self.plugin.file, log.dropped);
        }
    }
}
