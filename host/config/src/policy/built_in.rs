//! A built-in policy as a plugin, so that it can be checked, measured and tuned like one. Simulations use the policy
//! itself (`build.rs`).

use std::fmt::Debug;
use std::sync::Arc;

use blis_sim::instance::{Preemption, Scheduler};
use blis_sim::latency::{Batch, ContextEffect, LatencyModel};
use blis_sim::policy::flow::{
    BandView, CeilingsPolicy, EvictionPolicy, FairnessPolicy, FlowView, InFlightView, OrderingPolicy, SaturationPolicy,
};
use blis_sim::policy::{
    AdmissionDecision, AdmissionPolicy, BatchView, Classes, ClusterView, Event, Events, PreemptionPolicy,
    PriorityPolicy, QueuedView, Reads, RequestView, RoutingFilter, RoutingPolicy, SchedulingPolicy, Ties,
};
use blis_sim::rng::Stream;
use blis_sim::units::Micros;

use super::parameter::ParameterValues;
use super::registry::{Build, BuiltIn, VERSION};
use crate::latency_parameters::ALPHAS;
use crate::{Deployment, DeploymentArgs, LatencyKind, resolve};
use blis_plugin::find::sha256;
use blis_plugin::{
    AdmissionGuest, CeilingsGuest, EvictionGuest, FairnessGuest, Fault, FaultKind, FilterGuest, Guest, GuestSetup,
    LatencyConstants, LatencyGuest, LoadedPlugin, OrderingGuest, Plugin, PolicyDescription, PreemptionGuest,
    PriorityGuest, RoutingGuest, SaturationGuest, SchedulingGuest, StartedGuest, Technology,
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

    fn start(&self, setup: &GuestSetup) -> Result<StartedGuest, Fault> {
        let refused = |what: String| Fault::new(FaultKind::Refused, format!("{}: {what}", self.row.name));
        let names = self.description.parameters.iter().map(|parameter| parameter.name.clone());
        let values = ParameterValues(names.zip(setup.parameters.iter().copied()).collect());
        Ok(match self.row.build {
            Build::Admission(build) => build(&values, setup.stream).map_err(refused)?.start(),
            Build::Routing(build) => build(&values).map_err(refused)?.start(),
            Build::Filter(build) => build(&values).start(),
            Build::Priority(build) => build(&Classes::new(setup.names.iter().map(AsRef::as_ref), &[])).start(),
            Build::Scheduling(scheduler) => scheduler.start(),
            Build::Preemption(preemption) => preemption.start(),
            Build::Latency(kind) => deployment(kind, &setup.parameters).map_err(refused)?.latency.start(),
            Build::Saturation(build) => build(&values).start(),
            Build::Ceilings(build) => build(&values).start(),
            Build::Fairness(build) => build(&values, Vec::new()).start(),
            Build::Ordering(build) => build(Vec::new()).start(),
            Build::Eviction(build) => build().start(),
            Build::Drain(build) => build().start(),
            Build::Placement(build) => build().start(),
            Build::ChunkEviction(_, Some(build)) => build().start(),
            Build::ChunkEviction(_, None) => {
                let hint = "use it as `--kv-cache-policy`; `lru`, `lfu` and `slru` can be called";
                return Err(refused("it is part of the tier, and ranks no chunks".to_owned()).hint(hint));
            }
            Build::KvCache(build) => build(&values).start(),
            Build::Disaggregation(build) => build(&values).start(),
        })
    }
}

/// A built-in policy with the interface of a plugin.
#[derive(Debug)]
pub(super) struct BuiltInGuest<P>(pub P);

/// The operations that built-in policies of all kinds share.
pub(super) trait BuiltInPolicy: Debug + Send {
    /// Wraps the policy as a guest of its kind.
    fn start(self) -> StartedGuest;

    fn copy(&self) -> Self;

    fn observe(&mut self, _: &Event) {}
}

impl BuiltInPolicy for Box<dyn AdmissionPolicy> {
    fn start(self) -> StartedGuest {
        StartedGuest::Admission(Box::new(BuiltInGuest(self)))
    }

    fn copy(&self) -> Self {
        self.fork()
    }

    fn observe(&mut self, event: &Event) {
        self.as_mut().observe(event);
    }
}

impl BuiltInPolicy for Box<dyn RoutingPolicy> {
    fn start(self) -> StartedGuest {
        StartedGuest::Routing(Box::new(BuiltInGuest(self)))
    }

    fn copy(&self) -> Self {
        self.fork()
    }

    fn observe(&mut self, event: &Event) {
        self.as_mut().observe(event);
    }
}

impl BuiltInPolicy for RoutingFilter {
    fn start(self) -> StartedGuest {
        StartedGuest::RoutingFilter(Box::new(BuiltInGuest(self)))
    }

    fn copy(&self) -> Self {
        *self
    }
}

impl BuiltInPolicy for Box<dyn PriorityPolicy> {
    fn start(self) -> StartedGuest {
        StartedGuest::Priority(Box::new(BuiltInGuest(self)))
    }

    fn copy(&self) -> Self {
        self.fork()
    }

    fn observe(&mut self, event: &Event) {
        self.as_mut().observe(event);
    }
}

impl BuiltInPolicy for Scheduler {
    fn start(self) -> StartedGuest {
        StartedGuest::Scheduling(Box::new(BuiltInGuest(self)))
    }

    fn copy(&self) -> Self {
        *self
    }
}

impl BuiltInPolicy for Preemption {
    fn start(self) -> StartedGuest {
        StartedGuest::Preemption(Box::new(BuiltInGuest(self)))
    }

    fn copy(&self) -> Self {
        *self
    }
}

impl BuiltInPolicy for Arc<dyn LatencyModel> {
    fn start(self) -> StartedGuest {
        StartedGuest::Latency(Box::new(BuiltInGuest(self)))
    }

    fn copy(&self) -> Self {
        Self::clone(self)
    }
}

macro_rules! flow_control {
    ($($kind:ident $policy:ident)*) => {$(
        impl BuiltInPolicy for Box<dyn $policy> {
            fn start(self) -> StartedGuest {
                StartedGuest::$kind(Box::new(BuiltInGuest(self)))
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

flow_control! {
    Saturation SaturationPolicy
    Ceilings CeilingsPolicy
    Fairness FairnessPolicy
    Ordering OrderingPolicy
    Eviction EvictionPolicy
}

fn not_saved() -> Fault {
    Fault::new(FaultKind::Refused, "a built-in policy can be copied, not saved")
}

impl<P: BuiltInPolicy> Guest for BuiltInGuest<P> {
    fn observe(&mut self, event: &Event) -> Result<(), Fault> {
        self.0.observe(event);
        Ok(())
    }

    fn save(&mut self) -> Result<Vec<u8>, Fault> {
        Err(not_saved())
    }

    fn restore(&mut self, _: &[u8]) -> Result<(), Fault> {
        Err(not_saved())
    }

    fn fork(&mut self) -> Result<StartedGuest, Fault> {
        Ok(self.0.copy().start())
    }
}

impl AdmissionGuest for BuiltInGuest<Box<dyn AdmissionPolicy>> {
    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> Result<AdmissionDecision, Fault> {
        Ok(self.0.admit(request, cluster))
    }
}

impl RoutingGuest for BuiltInGuest<Box<dyn RoutingPolicy>> {
    /// Routes the request and reports it as sent to the policy's own target: no other policy decides here.
    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> Result<usize, Fault> {
        let target = self.0.route(request, cluster, ties, scores).target;
        if let Some(instance) = cluster.instances.get(target) {
            self.0.dispatched(request, instance.id);
        }
        Ok(target)
    }

    fn scores(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        RoutingGuest::route(self, request, cluster, ties, scores).map(|_| ())
    }
}

impl FilterGuest for BuiltInGuest<RoutingFilter> {
    fn filter(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        _: &Ties,
        kept: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        let mut keeps = vec![true; cluster.len()];
        self.0.apply(request, cluster, &mut keeps);
        kept.extend(keeps.into_iter().map(|keeps| f64::from(u8::from(keeps))));
        Ok(())
    }
}

impl PriorityGuest for BuiltInGuest<Box<dyn PriorityPolicy>> {
    fn priority(&mut self, request: &RequestView<'_>, now: Micros) -> Result<i64, Fault> {
        Ok(self.0.priority(request, now))
    }
}

impl SchedulingGuest for BuiltInGuest<Scheduler> {
    fn rank(&mut self, queued: &QueuedView<'_>) -> Result<f64, Fault> {
        Ok(self.0.rank(queued).number() as f64)
    }
}

impl PreemptionGuest for BuiltInGuest<Preemption> {
    fn victim(&mut self, batch: &BatchView) -> Result<usize, Fault> {
        Ok(self.0.victim(batch))
    }
}

impl LatencyGuest for BuiltInGuest<Arc<dyn LatencyModel>> {
    fn step_time(&mut self, batch: &Batch) -> Result<u64, Fault> {
        Ok(self.0.step_time(batch).0)
    }

    fn queueing_time(&mut self, input_tokens: u32) -> Result<u64, Fault> {
        Ok(self.0.queueing_time(input_tokens).0)
    }

    fn constants(&mut self) -> Result<LatencyConstants, Fault> {
        Ok(LatencyConstants {
            shortest_step_us: self.0.shortest_step().0,
            output_token_us: self.0.output_token_time().0,
            post_decode_us: self.0.post_decode_time().0,
            scheduling_us: self.0.scheduling_time().0,
            preemption_us: self.0.preemption_time().0,
        })
    }
}

impl SaturationGuest for BuiltInGuest<Box<dyn SaturationPolicy>> {
    fn saturation(&mut self, cluster: &ClusterView<'_>) -> Result<f64, Fault> {
        Ok(self.0.saturation(cluster))
    }
}

impl CeilingsGuest for BuiltInGuest<Box<dyn CeilingsPolicy>> {
    fn ceilings(
        &mut self,
        now: Micros,
        saturation: f64,
        bands: &[BandView],
        ceilings: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        self.0.ceilings(now, saturation, bands, ceilings);
        Ok(())
    }
}

impl FairnessGuest for BuiltInGuest<Box<dyn FairnessPolicy>> {
    fn fair_pick(&mut self, now: Micros, saturation: f64, band: BandView, flows: &[FlowView]) -> Result<usize, Fault> {
        Ok(self.0.pick(now, saturation, band, flows))
    }
}

impl OrderingGuest for BuiltInGuest<Box<dyn OrderingPolicy>> {
    fn order(&mut self, request: &RequestView<'_>, now: Micros, expires: Micros) -> Result<f64, Fault> {
        Ok(self.0.rank(request, now, expires))
    }
}

impl EvictionGuest for BuiltInGuest<Box<dyn EvictionPolicy>> {
    fn evict(&mut self, now: Micros, demand: BandView, in_flight: &[InFlightView]) -> Result<Option<usize>, Fault> {
        Ok(self.0.victim(now, demand, in_flight))
    }
}
