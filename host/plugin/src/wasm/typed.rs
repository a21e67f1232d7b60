//! Calls the functions of a component through wasmtime's component layer: for any component, from any compiler.

use wasmtime::component::{ComponentNamedList, Instance, InstancePre, Lift, Lower, TypedFunc};
use wasmtime::{Engine, Store};

use super::bindings::{
    Ages, Description, Event, Fact, Instance as InstanceRecord, InstanceInfo, Kinds, Queued, Request, Running, Step,
    Terms, Verdict,
};
use super::describe::Declared;
use super::fault::File;
use super::functions::{Functions, Scene};
use super::host::Host;
use super::inspect::{Exports, not_exported};
use crate::rows::{EventRow, QueuedRow, RequestRow, RunningRow, StepRow};
use crate::{Constants, Fault, FaultKind, Kind, Setup};

type Decision<A> = TypedFunc<(Request, Ages, &'static [InstanceRecord]), (A,)>;
type Configure = TypedFunc<(Kinds, &'static [f64], Vec<InstanceInfo>, Vec<Fact>), (Result<(), String>,)>;

/// The functions that belong to one kind of policy.
#[derive(Clone, Copy)]
enum Role {
    Admission { admit: Decision<Verdict> },
    Routing { route: Decision<u32>, scores: Decision<Vec<f64>> },
    Priority { priority: TypedFunc<(Request,), (i64,)> },
    Scheduling { rank: TypedFunc<(Request, Queued), (f64,)> },
    Preemption { victim: TypedFunc<(u64, u32, &'static [Running]), (u32,)> },
    Latency(Latency),
}

#[derive(Clone, Copy)]
struct Latency {
    constants: TypedFunc<(), (Terms,)>,
    queueing_time: TypedFunc<(u32,), (u64,)>,
    step_time: TypedFunc<(Step,), (u64,)>,
}

/// All functions of an instance that a guest uses.
pub(super) struct Typed {
    role: Role,
    configure: Configure,
    save: TypedFunc<(), (Vec<u8>,)>,
    restore: TypedFunc<(&'static [u8],), (Result<(), String>,)>,
    notice: Option<TypedFunc<(Event,), ()>>,
}

/// A compiled component with its host functions linked.
pub(super) struct Component {
    pub pre: InstancePre<Host>,
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
    type Code = Component;
    type Instance = Instance;

    fn engine(code: &Component) -> &Engine {
        code.pre.engine()
    }

    fn instantiate(code: &Component, store: &mut Store<Host>) -> wasmtime::Result<Instance> {
        code.pre.instantiate(store)
    }

    fn describe(
        file: &File,
        code: &Component,
        store: &mut Store<Host>,
        instance: &Instance,
    ) -> Result<wasmtime::Result<Declared>, Fault> {
        let mut find = Find { file, exports: &code.exports, store, instance };
        let describe = find.function::<(), (Description,)>("plugin", "describe")?;
        Ok(describe.call(store, ()).map(|(description,)| description.into()))
    }

    fn find(
        file: &File,
        code: &Component,
        store: &mut Store<Host>,
        instance: &Instance,
        kind: Kind,
        told: bool,
    ) -> Result<Self, Fault> {
        let mut find = Find { file, exports: &code.exports, store, instance };
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

    fn configure(&self, store: &mut Store<Host>, setup: &Setup) -> wasmtime::Result<Result<(), String>> {
        let instances = setup.instances.iter().map(|info| InstanceInfo {
            id: info.id,
            max_num_seqs: info.max_num_seqs,
            total_kv_blocks: info.total_kv_blocks,
            block_size: info.block_size,
        });
        let facts = setup.facts.iter().map(|(name, value)| Fact { name: name.clone(), value: *value });
        let params = (setup.kind.into(), setup.parameters.as_slice(), instances.collect(), facts.collect());
        one(called(self.configure, store, params))
    }

    fn save(&self, store: &mut Store<Host>) -> wasmtime::Result<Vec<u8>> {
        one(called(self.save, store, ()))
    }

    fn restore(&self, store: &mut Store<Host>, state: &[u8]) -> wasmtime::Result<Result<(), String>> {
        one(called(self.restore, store, (state,)))
    }

    fn notice(&self, store: &mut Store<Host>, event: &EventRow) -> wasmtime::Result<()> {
        self.notice.map_or(Ok(()), |notice| called(notice, store, (event.into(),)))
    }

    fn admit(&self, store: &mut Store<Host>, scene: &Scene<'_>) -> wasmtime::Result<Option<String>> {
        let admit = role!(self, Role::Admission { admit } => admit);
        Ok(match decided(admit, store, scene)? {
            Verdict::Admit => None,
            Verdict::Reject(reason) => Some(reason),
        })
    }

    fn route(&self, store: &mut Store<Host>, scene: &Scene<'_>) -> wasmtime::Result<u32> {
        let route = role!(self, Role::Routing { route, .. } => route);
        decided(route, store, scene)
    }

    fn scores(&self, store: &mut Store<Host>, scene: &Scene<'_>) -> wasmtime::Result<Vec<f64>> {
        let scores = role!(self, Role::Routing { scores, .. } => scores);
        decided(scores, store, scene)
    }

    fn priority(&self, store: &mut Store<Host>, request: &RequestRow) -> wasmtime::Result<i64> {
        one(called(role!(self, Role::Priority { priority } => priority), store, (request.into(),)))
    }

    fn rank(&self, store: &mut Store<Host>, request: &RequestRow, queued: &QueuedRow) -> wasmtime::Result<f64> {
        one(called(role!(self, Role::Scheduling { rank } => rank), store, (request.into(), queued.into())))
    }

    fn victim(
        &self,
        store: &mut Store<Host>,
        now_us: u64,
        wanting: u32,
        batch: &[RunningRow],
    ) -> wasmtime::Result<u32> {
        let batch: Vec<Running> = batch.iter().map(Running::from).collect();
        one(called(role!(self, Role::Preemption { victim } => victim), store, (now_us, wanting, batch.as_slice())))
    }

    fn constants(&self, store: &mut Store<Host>) -> wasmtime::Result<Constants> {
        one(called(role!(self, Role::Latency(latency) => latency.constants), store, ())).map(Constants::from)
    }

    fn queueing_time(&self, store: &mut Store<Host>, input_tokens: u32) -> wasmtime::Result<u64> {
        one(called(role!(self, Role::Latency(latency) => latency.queueing_time), store, (input_tokens,)))
    }

    fn step_time(&self, store: &mut Store<Host>, step: &StepRow) -> wasmtime::Result<u64> {
        one(called(role!(self, Role::Latency(latency) => latency.step_time), store, (step.into(),)))
    }
}

/// Calls `function`. Parameters are passed by value, so that references in them live as long as the call.
#[inline]
fn called<P, R>(function: TypedFunc<P, R>, store: &mut Store<Host>, params: P) -> wasmtime::Result<R>
where
    P: ComponentNamedList + Lower,
    R: ComponentNamedList + Lift,
{
    function.call(store, params)
}

/// Calls an admission or routing function.
fn decided<A: Lift + 'static>(
    function: Decision<A>,
    store: &mut Store<Host>,
    scene: &Scene<'_>,
) -> wasmtime::Result<A> {
    let instances: Vec<InstanceRecord> = scene.instances.iter().map(InstanceRecord::from).collect();
    one(called(function, store, ((&scene.request).into(), (&scene.ages).into(), instances.as_slice())))
}

fn one<A>(answer: wasmtime::Result<(A,)>) -> wasmtime::Result<A> {
    answer.map(|(answer,)| answer)
}

/// Looks up exports by name.
struct Find<'a> {
    file: &'a File,
    exports: &'a Exports,
    store: &'a mut Store<Host>,
    instance: &'a Instance,
}

impl Find<'_> {
    fn function<P, R>(&mut self, interface: &str, name: &str) -> Result<TypedFunc<P, R>, Fault>
    where
        P: ComponentNamedList + Lower,
        R: ComponentNamedList + Lift,
    {
        let missing = |what: String| self.file.fault(FaultKind::MissingExport, what);
        let full_name = self.exports.full_name(interface).ok_or_else(|| not_exported(self.file, interface))?;
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
