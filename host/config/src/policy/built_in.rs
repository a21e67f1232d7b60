//! A built-in policy as a plugin, so that it is checked, measured and tuned as one. Simulations do without: they
//! are given the policy itself (`build.rs`).

use std::sync::Arc;

use blis_sim::instance::{Preemption, Scheduler};
use blis_sim::latency::{Batch, ContextEffect, LatencyModel};
use blis_sim::policy::{
    AdmissionPolicy, BatchView, Classes, ClusterView, Event, Events, PreemptionPolicy, PriorityPolicy, QueuedView,
    Reads, RequestView, RoutingPolicy, SchedulingPolicy, Ties, Verdict,
};
use blis_sim::units::Micros;

use super::registry::{Build, BuiltIn, VERSION, Values};
use crate::{Deployment, DeploymentArgs, LatencyKind, resolve};
use blis_plugin::find::sha256;
use blis_plugin::{Constants, Description, Fault, FaultKind, Guest, Kind, Loaded, Plugin, Setup, Technology};

/// A row of the registry, described.
#[derive(Debug)]
struct BuiltInPlugin {
    row: &'static BuiltIn,
    description: Description,
}

/// The deployment on which built-in latency models are described, checked and measured.
const MODEL: &str = "meta-llama/llama-3.1-8b-instruct";

fn deployment(kind: LatencyKind) -> Result<Deployment, String> {
    let args = DeploymentArgs { latency_model: Some(kind), ..DeploymentArgs::new(MODEL) };
    resolve(&args).map_err(|error| error.to_string())
}

impl BuiltInPlugin {
    fn new(row: &'static BuiltIn) -> Self {
        let parameters = row.parameters();
        let defaults = Values(parameters.iter().map(|one| (one.name.clone(), one.default)).collect());
        // A policy whose defaults make no sense reads nothing; a test builds them all.
        let reads = match row.build {
            Build::Admission(build) => build(&defaults).map_or(Reads::NOTHING, |policy| policy.reads()),
            Build::Routing(build) => build(&defaults).map_or(Reads::NOTHING, |policy| policy.reads()),
            _ => Reads::NOTHING,
        };
        let every_step = match row.build {
            Build::Latency(kind) => {
                deployment(kind).is_ok_and(|deployment| deployment.latency.context_effect() == ContextEffect::Any)
            }
            _ => false,
        };
        let description = Description {
            name: row.name.to_owned(),
            version: VERSION.to_owned(),
            about: row.about.to_owned(),
            kinds: vec![row.kind],
            reads,
            events: Events::NONE,
            scores: row.scores,
            every_step,
            parameters,
        };
        Self { row, description }
    }
}

impl BuiltIn {
    /// As a plugin that was found.
    #[must_use]
    pub fn load(&'static self) -> Loaded {
        let plugin = BuiltInPlugin::new(self);
        Loaded {
            name: self.name.to_owned(),
            file: self.full_name(),
            sha256: sha256(self.identity().as_bytes()),
            bytes: 0,
            plugin: Arc::new(plugin),
        }
    }
}

impl Plugin for BuiltInPlugin {
    fn description(&self) -> &Description {
        &self.description
    }

    fn technology(&self) -> Technology {
        Technology::BuiltIn
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Guest>, Fault> {
        let refused = |what: String| Fault::new(FaultKind::Refused, format!("{}: {what}", self.row.name));
        let names = self.description.parameters.iter().map(|parameter| parameter.name.clone());
        let values = Values(names.zip(setup.parameters.iter().copied()).collect());
        let state = match self.row.build {
            Build::Admission(build) => State::Admission(build(&values).map_err(refused)?),
            Build::Routing(build) => State::Routing(build(&values).map_err(refused)?),
            Build::Priority(build) => State::Priority(build(&Classes::new(setup.names.iter().map(AsRef::as_ref), &[]))),
            Build::Scheduling(scheduler) => State::Scheduling(scheduler),
            Build::Preemption(preemption) => State::Preemption(preemption),
            Build::Latency(kind) => State::Latency(deployment(kind).map_err(refused)?.latency),
        };
        Ok(Box::new(BuiltInGuest(state)))
    }
}

/// A built-in policy that answers as a plugin does.
#[derive(Debug)]
struct BuiltInGuest(State);

#[derive(Debug)]
enum State {
    Admission(Box<dyn AdmissionPolicy>),
    Routing(Box<dyn RoutingPolicy>),
    Priority(Box<dyn PriorityPolicy>),
    Scheduling(Scheduler),
    Preemption(Preemption),
    Latency(Arc<dyn LatencyModel>),
}

fn missing(kind: Kind) -> Fault {
    Fault::new(FaultKind::MissingExport, format!("the policy has nothing for `{kind}`"))
}

fn not_saved() -> Fault {
    Fault::new(FaultKind::Refused, "a built-in policy is copied, not saved")
}

impl BuiltInGuest {
    fn latency(&self) -> Result<&dyn LatencyModel, Fault> {
        let State::Latency(model) = &self.0 else { return Err(missing(Kind::Latency)) };
        Ok(model.as_ref())
    }
}

impl Guest for BuiltInGuest {
    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> Result<Verdict, Fault> {
        let State::Admission(policy) = &mut self.0 else { return Err(missing(Kind::Admission)) };
        Ok(policy.admit(request, cluster))
    }

    /// The request goes where the policy sends it: nothing else decides here.
    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> Result<usize, Fault> {
        let State::Routing(policy) = &mut self.0 else { return Err(missing(Kind::Routing)) };
        let target = policy.route(request, cluster, ties, scores).target;
        if let Some(instance) = cluster.instances.get(target) {
            policy.sent(request, instance.id);
        }
        Ok(target)
    }

    fn priority(&mut self, request: &RequestView<'_>, now: Micros) -> Result<i64, Fault> {
        let State::Priority(policy) = &mut self.0 else { return Err(missing(Kind::Priority)) };
        Ok(policy.priority(request, now))
    }

    fn rank(&mut self, queued: &QueuedView<'_>) -> Result<f64, Fault> {
        let State::Scheduling(policy) = &mut self.0 else { return Err(missing(Kind::Scheduling)) };
        Ok(policy.rank(queued).number() as f64)
    }

    fn victim(&mut self, batch: &BatchView) -> Result<usize, Fault> {
        let State::Preemption(policy) = &mut self.0 else { return Err(missing(Kind::Preemption)) };
        Ok(policy.victim(batch))
    }

    fn step_time(&mut self, batch: &Batch) -> Result<u64, Fault> {
        Ok(self.latency()?.step_time(batch).0)
    }

    fn queueing_time(&mut self, input_tokens: u32) -> Result<u64, Fault> {
        Ok(self.latency()?.queueing_time(input_tokens).0)
    }

    fn constants(&mut self) -> Result<Constants, Fault> {
        let model = self.latency()?;
        Ok(Constants {
            shortest_step: model.shortest_step().0,
            output_token: model.output_token_time().0,
            post_decode: model.post_decode_time().0,
            scheduling: model.scheduling_time().0,
            preemption: model.preemption_time().0,
        })
    }

    fn notice(&mut self, event: &Event) -> Result<(), Fault> {
        match &mut self.0 {
            State::Admission(policy) => policy.notice(event),
            State::Routing(policy) => policy.notice(event),
            State::Priority(policy) => policy.notice(event),
            State::Scheduling(_) | State::Preemption(_) | State::Latency(_) => {}
        }
        Ok(())
    }

    fn save(&mut self) -> Result<Vec<u8>, Fault> {
        Err(not_saved())
    }

    fn restore(&mut self, _: &[u8]) -> Result<(), Fault> {
        Err(not_saved())
    }

    fn fork(&mut self) -> Result<Box<dyn Guest>, Fault> {
        Ok(Box::new(Self(match &self.0 {
            State::Admission(policy) => State::Admission(policy.fork()),
            State::Routing(policy) => State::Routing(policy.fork()),
            State::Priority(policy) => State::Priority(policy.fork()),
            State::Scheduling(scheduler) => State::Scheduling(*scheduler),
            State::Preemption(preemption) => State::Preemption(*preemption),
            State::Latency(model) => State::Latency(Arc::clone(model)),
        })))
    }
}
