//! A built-in policy as a plugin, so that it can be checked, measured and tuned like one. Simulations use the policy
//! itself (`build.rs`).

use std::fmt::Debug;
use std::sync::Arc;

use blis_sim::ids::RequestId;
use blis_sim::instance::{Preemption, Scheduler};
use blis_sim::latency::{Batch, ContextEffect, LatencyModel};
use blis_sim::policy::flow::{CeilingsPolicy, EvictionPolicy, FairnessPolicy, OrderingPolicy, SaturationPolicy};
use blis_sim::policy::kv_cache::KvCachePolicy;
use blis_sim::policy::{
    AdmissionPolicy, BatchView, Classes, DisaggregationPolicy, Event, Events, PreemptionPolicy as _, PriorityPolicy,
    QueuedView, Reads, RoutingFilter, RoutingPolicy, SchedulingPolicy as _, Ties,
};
use blis_sim::rng::Stream;
use blis_sim::scaling::{DrainPolicy, PlacementPolicy};
use blis_sim::units::Micros;

use super::built_in_disaggregation::disaggregated;
use super::parameter::ParameterValues;
use super::registry::{Build, BuiltIn, VERSION};
use crate::latency_parameters::ALPHAS;
use crate::{Deployment, DeploymentArgs, LatencyKind, resolve};
use blis_plugin::find::sha256;
use blis_plugin::rows::{QueuedRow, RunningRow, StepRow};
use blis_plugin::{
    Fault, FaultKind, Function, Guest, GuestSetup, Inputs, Kind, LoadedPlugin, Output, Plugin, PolicyDescription,
    Technology,
};

/// A row of the registry with its plugin description.
#[derive(Debug)]
struct BuiltInPlugin {
    row: &'static BuiltIn,
    description: PolicyDescription,
}

/// The model of the deployment on which built-in latency models are described, checked and measured.
const MODEL: &str = "meta-llama/llama-3.1-8b-instruct";

/// Resolves that deployment. `coefficients` are those of the latency model, α before β; empty if it has none.
fn deployment(kind: LatencyKind, coefficients: &[f64]) -> Result<Deployment, String> {
    let (alpha, beta) = coefficients.split_at(ALPHAS.min(coefficients.len()));
    let list = |values: &[f64]| (!coefficients.is_empty()).then(|| values.to_vec());
    let args = DeploymentArgs {
        latency_model: Some(kind),
        alpha_coeffs: list(alpha),
        beta_coeffs: list(beta),
        ..DeploymentArgs::new(MODEL)
    };
    resolve(&args).map_err(|error| error.to_string())
}

impl BuiltInPlugin {
    fn new(row: &'static BuiltIn) -> Self {
        let parameters = row.parameters();
        let defaults = ParameterValues(parameters.iter().map(|one| (one.name.clone(), one.default)).collect());
        // A policy with invalid defaults reads no signals; a test builds all of them.
        let nothing = (Reads::NOTHING, Events::NONE);
        let (reads, events) = match row.build {
            Build::Admission(build) => build(&defaults, Stream::new(0, "admission"))
                .map_or(nothing, |policy| (policy.reads(), policy.events())),
            Build::Routing(build) => build(&defaults).map_or(nothing, |policy| (policy.reads(), policy.events())),
            Build::Filter(build) => (build(&defaults).reads(), Events::NONE),
            Build::Saturation(build) => (build(&defaults).reads(), Events::NONE),
            _ => nothing,
        };
        let every_step = match row.build {
            Build::Latency(kind) => {
                let coefficients: Vec<f64> = parameters.iter().map(|parameter| parameter.default).collect();
                deployment(kind, &coefficients)
                    .is_ok_and(|deployment| deployment.latency.context_effect() == ContextEffect::Any)
            }
            _ => false,
        };
        let description = PolicyDescription {
            name: row.name.to_owned(),
            version: VERSION.to_owned(),
            about: row.about.to_owned(),
            kinds: vec![row.kind],
            columns: Vec::new(),
            reads,
            events,
            scores: row.scores,
            every_step,
            parameters,
            others: Vec::new(),
        };
        Self { row, description }
    }
}

impl BuiltIn {
    /// The policy in the form of a plugin that was found.
    #[must_use]
    pub fn load(&'static self) -> LoadedPlugin {
        let plugin = BuiltInPlugin::new(self);
        LoadedPlugin {
            name: self.name.to_owned(),
            file: self.full_name(),
            sha256: sha256(self.identity().as_bytes()),
            bytes: 0,
            plugin: Arc::new(plugin),
        }
    }
}

impl Plugin for BuiltInPlugin {
    fn description(&self) -> &PolicyDescription {
        &self.description
    }

    fn technology(&self) -> Technology {
        Technology::BuiltIn
    }

    fn start(&self, setup: &GuestSetup) -> Result<Box<dyn Guest>, Fault> {
        let refused = |what: String| Fault::new(FaultKind::Refused, format!("{}: {what}", self.row.name));
        let names = self.description.parameters.iter().map(|parameter| parameter.name.clone());
        let values = ParameterValues(names.zip(setup.parameters.iter().copied()).collect());
        let kind = self.row.kind;
        Ok(match self.row.build {
            Build::Admission(build) => guest(kind, build(&values, setup.stream).map_err(refused)?),
            Build::Routing(build) => guest(kind, build(&values).map_err(refused)?),
            Build::Filter(build) => guest(kind, build(&values)),
            Build::Priority(build) => guest(kind, build(&Classes::new(setup.names.iter().map(AsRef::as_ref), &[]))),
            Build::Scheduling(scheduler) => guest(kind, scheduler),
            Build::Preemption(preemption) => guest(kind, preemption),
            Build::Latency(of) => guest(kind, deployment(of, &setup.parameters).map_err(refused)?.latency),
            Build::Saturation(build) => guest(kind, build(&values)),
            Build::Ceilings(build) => guest(kind, build(&values)),
            Build::Fairness(build) => guest(kind, build(&values, Vec::new())),
            Build::Ordering(build) => guest(kind, build(Vec::new())),
            Build::Eviction(build) => guest(kind, build()),
            Build::Drain(build) => guest(kind, build()),
            Build::Placement(build) => guest(kind, build()),
            Build::ChunkEviction(_, Some(build)) => guest(kind, build()),
            Build::ChunkEviction(_, None) => {
                let hint = "use it as `--kv-cache-policy`; `lru`, `lfu` and `slru` can be called";
                return Err(refused("it is part of the tier, and ranks no chunks".to_owned()).hint(hint));
            }
            Build::KvCache(build) => guest(kind, build(&values)),
            Build::Disaggregation(build) => guest(kind, build(&values)),
            Build::Function(decide) => guest(kind, BuiltInFunction { decide, values: Arc::new(values) }),
        })
    }
}

/// A built-in policy with the interface of a plugin.
#[derive(Debug)]
struct BuiltInGuest<P> {
    kind: Kind,
    policy: P,
}

/// What built-in policies of all kinds have in common.
trait BuiltInPolicy: Debug + Send + 'static {
    /// Makes the decision of `function`, one of its kind.
    fn decide(&mut self, function: Function, inputs: &Inputs<'_>, numbers: &mut Vec<f64>) -> Option<Output>;

    fn copy(&self) -> Self;

    fn observe(&mut self, _: &Event) {}

    /// Whether it decides what `function`, which may be missing, decides.
    fn has(&self, _: Function) -> bool {
        true
    }
}

/// `policy` as a guest of `kind`.
fn guest(kind: Kind, policy: impl BuiltInPolicy) -> Box<dyn Guest> {
    Box::new(BuiltInGuest { kind, policy })
}

fn not_saved() -> Fault {
    Fault::new(FaultKind::Refused, "a built-in policy can be copied, not saved")
}

impl<P: BuiltInPolicy> Guest for BuiltInGuest<P> {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn call(&mut self, function: Function, inputs: Inputs<'_>, numbers: &mut Vec<f64>) -> Result<Output, Fault> {
        let decided = self.policy.decide(function, &inputs, numbers).filter(|_| function.kind() == self.kind);
        decided.ok_or_else(|| {
            let what = format!("a built-in policy of `{}` has no function `{}`", self.kind, function.name());
            Fault::new(FaultKind::MissingExport, what)
        })
    }

    fn has(&self, function: Function) -> bool {
        self.policy.has(function)
    }

    fn observe(&mut self, event: &Event) -> Result<(), Fault> {
        self.policy.observe(event);
        Ok(())
    }

    fn save(&mut self) -> Result<Vec<u8>, Fault> {
        Err(not_saved())
    }

    fn restore(&mut self, _: &[u8]) -> Result<(), Fault> {
        Err(not_saved())
    }

    fn fork(&mut self) -> Result<Box<dyn Guest>, Fault> {
        Ok(guest(self.kind, self.policy.copy()))
    }
}

/// Policies that may hear of events, by their decisions.
macro_rules! policies {
    ($($policy:ident |$own:ident, $function:ident, $inputs:ident, $numbers:ident| $output:expr;)*) => {$(
        impl BuiltInPolicy for Box<dyn $policy> {
            fn decide(&mut self, $function: Function, $inputs: &Inputs<'_>, $numbers: &mut Vec<f64>) -> Option<Output> {
                let $own = self;
                Some($output)
            }

            fn copy(&self) -> Self {
                self.fork()
            }

            fn observe(&mut self, event: &Event) {
                self.as_mut().observe(event);
            }
        }
    )*};
}

/// The others, by their decisions and how they are copied.
macro_rules! without_events {
    ($($policy:ty: |$own:ident, $function:ident, $inputs:ident, $numbers:ident| $output:expr, $copy:expr;)*) => {$(
        impl BuiltInPolicy for $policy {
            fn decide(&mut self, $function: Function, $inputs: &Inputs<'_>, $numbers: &mut Vec<f64>) -> Option<Output> {
                let $own = self;
                Some($output)
            }

            fn copy(&self) -> Self {
                ($copy)(self)
            }
        }
    )*};
}

policies! {
    AdmissionPolicy |policy, _function, inputs, _numbers| {
        Output::Decision(policy.admit(inputs.request?, inputs.cluster?))
    };
    // It reports the request as sent to its own target: no other policy decides here.
    RoutingPolicy |policy, function, inputs, scores| {
        let (request, cluster) = (inputs.request?, inputs.cluster?);
        let target = policy.route(request, cluster, inputs.ties?, scores).target;
        if let Some(instance) = cluster.instances.get(target) {
            policy.dispatched(request, instance.id);
        }
        if function == Function::Route { Output::Index(target) } else { Output::Numbers }
    };
    PriorityPolicy |policy, _function, inputs, _numbers| {
        Output::Integer(policy.priority(inputs.request?, inputs.now))
    };
    SaturationPolicy |policy, _function, inputs, _numbers| Output::Number(policy.saturation(inputs.cluster?));
    CeilingsPolicy |policy, _function, inputs, ceilings| {
        policy.ceilings(inputs.now, f64::from_bits(inputs.number), inputs.rows.first()?.typed(), ceilings);
        Output::Numbers
    };
    FairnessPolicy |policy, _function, inputs, _numbers| {
        let [band, flows] = inputs.rows else { return None };
        let saturation = f64::from_bits(inputs.number);
        Output::Index(policy.pick(inputs.now, saturation, band.typed()[0], flows.typed()))
    };
    OrderingPolicy |policy, _function, inputs, _numbers| {
        Output::Number(policy.rank(inputs.request?, inputs.now, Micros(inputs.number)))
    };
    EvictionPolicy |policy, _function, inputs, _numbers| {
        let [demand, in_flight] = inputs.rows else { return None };
        Output::Chosen(policy.victim(inputs.now, demand.typed()[0], in_flight.typed()))
    };
}

without_events! {
    RoutingFilter: |policy, _function, inputs, kept| {
        let cluster = inputs.cluster?;
        let mut keeps = vec![true; cluster.len()];
        policy.apply(inputs.request?, cluster, &mut keeps);
        kept.extend(keeps.into_iter().map(|keeps| f64::from(u8::from(keeps))));
        Output::Numbers
    }, |policy: &Self| *policy;
    Scheduler: |policy, _function, inputs, _numbers| {
        let &QueuedRow { priority, turn, generated_tokens, preemptions } = inputs.rows.first()?.typed().first()?;
        let request = *inputs.request?;
        let queued = QueuedView { now: inputs.now, request, priority, generated_tokens, preemptions, turn };
        Output::Number(policy.rank(&queued).number() as f64)
    }, |policy: &Self| *policy;
    Preemption: |policy, _function, inputs, _numbers| {
        let last_of_ties = inputs.ties == Some(&Ties::HighestIndex);
        Output::Index(policy.victim(&running_batch(inputs.rows.first()?.typed(), last_of_ties)))
    }, |policy: &Self| *policy;
    Arc<dyn LatencyModel>: |model, function, inputs, _numbers| match function {
        Function::StepTime => Output::Duration(model.step_time(&batch(inputs.rows.first()?.typed().first()?)).0),
        Function::QueueingTime => Output::Duration(model.queueing_time(inputs.number as u32).0),
        _ => {
            let times = [
                model.shortest_step(),
                model.output_token_time(),
                model.post_decode_time(),
                model.scheduling_time(),
                model.preemption_time(),
            ];
            Output::Record(times.iter().map(|us| us.0).collect())
        }
    }, Self::clone;
    Box<dyn DrainPolicy>: |policy, _function, inputs, _numbers| {
        let [group, replicas] = inputs.rows else { return None };
        Output::Index(policy.drain(&group.typed()[0], replicas.typed()))
    }, |policy: &Self| policy.fork();
    Box<dyn PlacementPolicy>: |policy, _function, inputs, _numbers| {
        let [replica, nodes] = inputs.rows else { return None };
        Output::Chosen(policy.choose_node(&replica.typed()[0], nodes.typed()))
    }, |policy: &Self| policy.fork();
    Box<dyn DisaggregationPolicy>: |policy, _function, inputs, _numbers| {
        let [request, decode, prefill] = inputs.rows else { return None };
        let request = &request.typed()[0];
        Output::Record(disaggregated(policy.as_mut(), request, decode.typed(), prefill.typed()))
    }, |policy: &Self| policy.fork();
}

/// A policy that is a function of its inputs, with its parameters.
#[derive(Clone, Debug)]
struct BuiltInFunction {
    decide: fn(&ParameterValues, &Inputs<'_>) -> Option<Output>,
    values: Arc<ParameterValues>,
}

impl BuiltInPolicy for BuiltInFunction {
    fn decide(&mut self, _: Function, inputs: &Inputs<'_>, _: &mut Vec<f64>) -> Option<Output> {
        (self.decide)(&self.values, inputs)
    }

    fn copy(&self) -> Self {
        self.clone()
    }
}

impl BuiltInPolicy for Box<dyn KvCachePolicy> {
    fn decide(&mut self, function: Function, inputs: &Inputs<'_>, numbers: &mut Vec<f64>) -> Option<Output> {
        Some(match (function, inputs.rows) {
            (Function::Keep, [chunks]) => {
                self.keep(inputs.now, chunks.typed(), numbers);
                Output::Numbers
            }
            (Function::Store, [offer, chunks]) => {
                let mut stored = Vec::with_capacity(chunks.len());
                self.as_mut().store(&offer.typed()[0], chunks.typed(), &mut stored);
                numbers.extend(stored.into_iter().map(|stored| f64::from(u8::from(stored))));
                Output::Numbers
            }
            (_, [hit]) => Output::Flag(self.as_mut().load(&hit.typed()[0])),
            _ => return None,
        })
    }

    fn copy(&self) -> Self {
        self.fork()
    }

    fn has(&self, function: Function) -> bool {
        let decides = self.decides();
        match function {
            Function::Store => decides.store,
            Function::Load => decides.load,
            _ => true,
        }
    }
}

/// A running batch, with what the built-in policies read of it.
fn running_batch(rows: &[RunningRow], last_of_ties: bool) -> BatchView {
    BatchView {
        last_of_ties,
        id: rows.iter().map(|row| RequestId(row.id)).collect(),
        priority: rows.iter().map(|row| row.priority).collect(),
        arrival: rows.iter().map(|row| Micros(row.arrival_us)).collect(),
        ..BatchView::default()
    }
}

/// The sums of a step, without common prefixes and sampling parameters, which a row does not have.
fn batch(row: &StepRow) -> Batch {
    let StepRow {
        prefill_requests,
        prefill_tokens,
        prefill_tokens_squared,
        prefill_tokens_by_input,
        prefill_tokens_by_context,
        prefill_context,
        decode_requests,
        decode_context,
    } = *row;
    Batch {
        prefill_requests,
        prefill_tokens,
        prefill_tokens_squared,
        prefill_tokens_by_input,
        prefill_tokens_by_context,
        prefill_context,
        decode_requests,
        decode_context,
        ..Batch::default()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use blis_plugin::inputs::GuestCall;
    use blis_plugin::{Limits, check, script};
    use blis_sim::policy::Ties;

    use super::*;

    /// The outputs of `plugin` for generated inputs and those at the limits of their ranges.
    fn outputs(plugin: &dyn Plugin, kind: Kind) -> Vec<String> {
        let mut guest = plugin.start(&check::setup(plugin, kind, 4, &Limits::default())).expect("it starts");
        let usual = (0..300).map(|item| GuestCall::plausible(kind, 1 + item as usize % 9, item));
        let calls = usual.chain(GuestCall::extreme(kind, 4).into_iter().map(|(_, call)| call));
        calls.map(|call| format!("{:?}", call.run(&mut *guest, &Ties::LowestIndex))).collect()
    }

    #[test]
    fn scripts_of_the_built_ins_decide_alike() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/built-ins");
        let all = [
            (Kind::KvCache, "lru"),
            (Kind::KvCache, "lfu"),
            (Kind::KvCache, "slru"),
            (Kind::Drain, "emptiest"),
            (Kind::Placement, "best-fit"),
            (Kind::Disaggregation, "always"),
            (Kind::Disaggregation, "prefix-threshold"),
            (Kind::Disaggregation, "edpp"),
        ];
        for (kind, name) in all {
            let row = BuiltIn::find(kind, name).expect("it is built in");
            let built_in = outputs(&*row.load().plugin, kind);
            let file = folder.join(format!("{name}.rhai"));
            let loaded = script::load_file(&file, &Limits::default()).expect("compiles");
            assert_eq!(outputs(&*loaded, kind), built_in, "{name}");
            let default = BuiltIn::default_of(kind);
            if default.name != name {
                assert_ne!(outputs(&*default.load().plugin, kind), built_in, "the inputs tell {name} apart");
            }
        }
    }

    #[test]
    fn arc_is_no_plugin() {
        let row = BuiltIn::find(Kind::KvCache, "arc").expect("it is built in");
        let plugin = row.load().plugin;
        let refused = plugin.start(&check::setup(&*plugin, Kind::KvCache, 4, &Limits::default()));
        let fault = refused.map(|_| ()).expect_err("it ranks nothing").to_string();
        assert!(fault.contains("part of the tier"), "{fault}");
    }
}
