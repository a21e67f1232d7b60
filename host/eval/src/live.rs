//! A service without requests that are known in advance: each is added when a client sends it.

use blis_config::Deployment;
use blis_plugin::Kind;
use blis_plugin::incidents::{Incident, Incidents};
use blis_sim::cluster::{AnyTimeline, ArrivalList, Engine, Halt};
use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::instance::{Fast, InstanceLoad, Plain};
use blis_sim::observer::Observer;
use blis_sim::policy::{Classes, Reads};
use blis_sim::request::{Name, Request};
use blis_sim::units::Micros;
use blis_workload::{Names, Workload};

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::measure::{halt_error, with_deadlines};
use crate::open;
use crate::service;
use crate::spec::SimulationName;

/// A service that is simulated as requests come.
pub struct LiveService {
    timeline: Box<dyn AnyTimeline>,
    incidents: Incidents,
}

/// What clients of a service may name, and what its server needs of it.
#[derive(Clone, Debug)]
pub struct ServiceOffer {
    /// Models and LoRA adapters by the names that requests use, in this order: for each, the numbers of its model and of its
    /// adapter ([`Name::NONE`]: the base model).
    pub models: Vec<(String, Name, Name)>,
    /// Every known name: models, adapters, SLO classes.
    pub names: Names,
    /// Tokens of a KV block.
    pub block_size: u32,
    /// Maximum tokens of prompt and output; `None` for unlimited.
    pub max_model_len: Option<u32>,
    /// Delay of every output token on its way to the client, beside the steps of the engine.
    pub output_token_time: Micros,
}

impl LiveService {
    /// The service of `config`, idle, at time 0. Its workload is not read.
    ///
    /// # Errors
    /// If the deployment cannot be resolved, or something of it needs the arrivals in advance.
    pub fn new(config: &Experiment) -> Result<(Self, ServiceOffer), RunError> {
        let perfect = config.cluster.scaling.as_ref().and_then(|scaling| scaling.built_in.as_ref());
        if perfect.is_some_and(|used| used.reads_arrivals()) {
            let what = "the autoscaler `perfect` needs arrivals that are known in advance";
            return Err(RunError::usage(what).hint("clients send what they like: use another autoscaler"));
        }
        let deployment = open::resolve(config)?;
        service::try_scripts(config)?;
        let offer = offer(config, &deployment)?;
        let (timeline, incidents) = match config.simulation() {
            SimulationName::Fast => {
                timeline(config, &deployment, &offer.names, |config| Fast::new(config).recording())?
            }
            SimulationName::Plain => timeline(config, &deployment, &offer.names, Plain::new)?,
        };
        Ok((Self { timeline, incidents }, offer))
    }

    /// `request` arrives, later than what was simulated and no earlier than the requests before it.
    pub fn arrive(&mut self, request: Request) {
        self.timeline.arrive(request);
    }

    /// Time of the next event; `None` if none follows without a further request.
    pub fn next_event(&mut self) -> Option<Micros> {
        self.timeline.next_event()
    }

    /// Simulates everything up to `now`, inclusive.
    ///
    /// # Errors
    /// If a policy fails, or the service can make no progress.
    pub fn run_until(&mut self, now: Micros, observer: &mut dyn Observer) -> Result<(), RunError> {
        let result = self.timeline.run_until(now, observer);
        self.checked(result)
    }

    /// Ends request `id` at `now`, up to which everything was simulated: its client has disconnected. `instance` is the one
    /// to which it was dispatched, if any.
    ///
    /// # Errors
    /// As [`Self::run_until`].
    pub fn cancel(
        &mut self,
        now: Micros,
        id: RequestId,
        instance: Option<InstanceIndex>,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let result = self.timeline.cancel(now, id, instance, observer);
        self.checked(result)
    }

    /// The load of each instance, by index.
    #[must_use]
    pub fn loads(&self) -> Vec<InstanceLoad> {
        self.timeline.loads().into_iter().map(|(load, _)| load).collect()
    }

    /// Failures of plugins that a built-in policy stood in for.
    #[must_use]
    pub fn incidents(&self) -> Vec<Incident> {
        self.incidents.all()
    }

    fn checked(&self, result: Result<(), Halt>) -> Result<(), RunError> {
        result.map_err(|halt| halt_error(halt, &self.incidents))
    }
}

/// The workload of `config` for a load generator: with the deadlines of its clients, and up to the horizon.
///
/// # Errors
/// As [`open::open`].
pub fn open_to_send(config: &Experiment) -> Result<Workload, RunError> {
    let workload = open::open(config)?;
    let horizon = config.horizon;
    let requests = with_deadlines(workload.requests, &config.workload);
    Ok(Workload { requests: Box::new(requests.take_while(move |request| request.arrival <= horizon)), ..workload })
}

fn timeline<I: Engine>(
    config: &Experiment,
    deployment: &Deployment,
    names: &Names,
    engine: impl Fn(blis_sim::instance::InstanceConfig) -> I + Clone + Send + Sync + 'static,
) -> Result<(Box<dyn AnyTimeline>, Incidents), RunError> {
    let (cluster, incidents) = service::cluster(config, deployment, names, engine)?;
    Ok((I::timeline(cluster, ArrivalList::new([].into()), Reads::NOTHING), incidents))
}

fn offer(config: &Experiment, deployment: &Deployment) -> Result<ServiceOffer, RunError> {
    let mut names = Names::default();
    let mut models = Vec::new();
    let groups = config.cluster.groups.iter().map(|group| group.model.as_ref().unwrap_or(&config.deployment.model));
    for model in std::iter::once(&config.deployment.model).chain(groups) {
        if !models.iter().any(|(known, _, _)| known == model) {
            models.push((model.clone(), names.intern(model), Name::NONE));
        }
    }
    let (_, first, _) = models[0];
    for adapter in deployment.adapters.iter().flat_map(|adapters| adapters.declared()) {
        let base = adapter.base_model.as_deref().map_or(first, |model| names.intern(model));
        models.push((adapter.id.clone(), base, names.intern_adapter(&adapter.id, base)));
    }
    for (class, _) in Classes::USUAL {
        names.intern(class);
    }
    let plugin = config.cluster.policies.plugin(Kind::Latency).is_some();
    Ok(ServiceOffer {
        models,
        names,
        block_size: config.block_size(),
        max_model_len: deployment.max_model_len,
        output_token_time: if plugin { Micros::ZERO } else { deployment.latency.output_token_time() },
    })
}
