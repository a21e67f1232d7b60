//! One simulation of an experiment, with its metrics.

use std::cell::Cell;
use std::collections::BTreeMap;

use blis_config::Deployment;
use blis_plugin::incidents::{Incident, Incidents};
use blis_plugin::{Kind, Technology};
use blis_sim::cluster::{Cluster, Engine, FollowUps, Halt, SessionStates, needs_steps};
use blis_sim::energy::EnergyLog;
use blis_sim::instance::{Fast, Plain, SampledMoments, Scheduler};
use blis_sim::metrics::{InstanceCost, Metrics, MetricsOptions, Report};
use blis_sim::observer::{Interests, Observer};
use blis_sim::outcome::{Counters, Outcome};
use blis_sim::request::Request;
use blis_sim::semantics::Semantics;
use blis_workload::Names;
use blis_workload::trace_v2::GoodputTargets;

use crate::charges::{ClassRules, EndLog};
use crate::error::RunError;
use crate::experiment::Experiment;
use crate::figures::Needs;
use crate::fitness::{FitnessScale, FitnessWeights, NoSample};
use crate::over_time;
use crate::service;
use crate::spec::SimulationName;
use crate::targets::{NamedWorkload, slo_targets};
use crate::worker;
use crate::workload_config::{WorkloadConfig, plural};

/// The results of a completed simulation.
pub struct Measurement<S> {
    pub report: Report,
    /// The observer with its records.
    pub observer: S,
    /// Failures of plugins that did not end the run.
    pub incidents: Vec<Incident>,
    /// Number of decisions of plugins, and the fuel or operations that they used; counted only under a run budget.
    pub plugin_use: (u64, u64),
}

/// Simulates `requests`, and the `follow_ups` of a closed loop, on the cluster of `config`.
pub fn measure<S: Observer>(
    config: &Experiment,
    deployment: &Deployment,
    NamedWorkload { names, slo_targets }: NamedWorkload<'_>,
    requests: impl Iterator<Item = Request>,
    follow_ups: Option<Box<dyn FollowUps + Send>>,
    observer: S,
) -> Result<Measurement<S>, RunError> {
    let _span = tracing::debug_span!("experiment", seed = config.seed).entered();
    let mut observer = observer;
    let options = metrics_options(config, names, slo_targets);
    let mut metrics = Metrics::new(MetricsOptions { adapters: deployment.adapters.is_some(), ..options });
    let arrived = Cell::new(0);
    let arrives = |request: &Request| arrived.set(arrived.get() + u64::from(request.arrival <= config.horizon));
    let mut requests = with_deadlines(requests, &config.workload).inspect(arrives);
    let mut clients = follow_ups.map(|inner| ClosedLoopClients { inner, semantics: config.engine.semantics, arrives });
    let follow_ups = clients.as_mut().map(|clients| clients as &mut dyn FollowUps);
    let arrivals = ArrivalSource { requests: &mut requests, follow_ups };
    let (run, energy) = match energy_log(config, deployment)? {
        None => (simulate(config, deployment, names, arrivals, &mut metrics, &mut observer)?, None),
        Some(log) => {
            let mut both = (log, observer);
            let run = simulate(config, deployment, names, arrivals, &mut metrics, &mut both)?;
            observer = both.1;
            (run, Some(both.0.used()))
        }
    };
    let ClusterRun { counters, incidents, plugin_use } = run;
    metrics.offered(arrived.get());
    let mut report = metrics.report(&counters, config.horizon);
    report.energy = energy;
    // Of instances that differ, GPU-hours are in no figure.
    let is_uniform = config.cluster.disaggregation.as_ref().is_none_or(|roles| roles.is_uniform());
    let gpus = if is_uniform { deployment.gpus() } else { 0 };
    report.cost = InstanceCost { gpus, gpu_price: config.usd_per_gpu_hour(deployment)? };
    if let Some(sessions) = &mut report.sessions {
        sessions.states = clients.map(|clients| clients.states());
    }
    if !report.conserved() {
        let (arrived, ended) = (report.arrived, report.cluster.counts.arrived());
        return Err(RunError::runtime(format_args!("{arrived} requests arrived, but {ended} are accounted for"))
            .hint("this is a defect of the program: please report it with the command"));
    }
    worker::simulation_completed();
    Ok(Measurement { report, observer, incidents, plugin_use })
}

/// A log of the energy of steps, if it is requested.
///
/// # Errors
/// If the energy of the deployment is unknown.
fn energy_log(config: &Experiment, deployment: &Deployment) -> Result<Option<EnergyLog>, RunError> {
    if !config.energy {
        return Ok(None);
    }
    let Some(steps) = deployment.energy.clone() else {
        let (model, gpu) = (&deployment.model, &deployment.hardware);
        let what = format!("`--energy` needs the configuration of {model} and the power limit of {gpu}");
        return Err(RunError::usage(what).hint(
            "add `max_power_w` to the GPU's file (`--hardware-config`), and the model's \
             config.json (`--model-config-folder`)",
        ));
    };
    Ok(Some(EnergyLog::new(steps, config.warmup)))
}

/// The clients of a closed loop, which send their next request after the output of the last one.
struct ClosedLoopClients<F> {
    inner: Box<dyn FollowUps + Send>,
    semantics: Semantics,
    /// Called for each request that follows.
    arrives: F,
}

impl<F: Fn(&Request)> FollowUps for ClosedLoopClients<F> {
    /// A client has its output when the last token has arrived. In BLIS that is the moment at which the engine
    /// finishes the request, and the conversation keeps all output tokens but the last.
    fn next(&mut self, ended: &Outcome) -> Option<Request> {
        let ended = if self.semantics == Semantics::BLIS {
            Outcome { generated_tokens: ended.generated_tokens.saturating_sub(1), ..*ended }
        } else {
            let received = ended.e2e.map_or(ended.ended_at, |e2e| ended.arrival.saturating_add(e2e));
            ended.ended_at(received.max(ended.ended_at))
        };
        self.inner.next(&ended).inspect(&self.arrives)
    }

    fn states(&self) -> SessionStates {
        self.inner.states()
    }
}

/// The counters of a completed simulation.
struct ClusterRun {
    /// Counters of each instance, by index.
    counters: Vec<Counters>,
    /// Failures of plugins that did not end the run.
    incidents: Vec<Incident>,
    /// Number of decisions of plugins, and the fuel or operations that they used.
    plugin_use: (u64, u64),
}

/// Requests as they arrive, and the clients whose further requests follow from the ends of earlier ones.
struct ArrivalSource<'a> {
    requests: &'a mut dyn Iterator<Item = Request>,
    /// `None` if no request follows from another.
    follow_ups: Option<&'a mut dyn FollowUps>,
}

/// Runs the service to its end.
fn simulate(
    config: &Experiment,
    deployment: &Deployment,
    names: &Names,
    arrivals: ArrivalSource<'_>,
    metrics: &mut Metrics,
    observer: &mut dyn Observer,
) -> Result<ClusterRun, RunError> {
    let wanted = observer.interests().contains(Interests::LOAD_SAMPLES);
    let moments = over_time::log(config).filter(|_| wanted).map(|log| log.moments());
    match config.simulation() {
        SimulationName::Fast => {
            let records = needs_steps(metrics, observer);
            let engine = move |config| if records { Fast::new(config).recording() } else { Fast::new(config) };
            let (cluster, incidents) = service::cluster(config, deployment, names, engine)?;
            run_cluster(cluster, &incidents, moments, arrivals, metrics, observer)
        }
        SimulationName::Plain => {
            let (cluster, incidents) = service::cluster(config, deployment, names, Plain::new)?;
            run_cluster(cluster, &incidents, moments, arrivals, metrics, observer)
        }
    }
}

fn run_cluster<I: Engine>(
    mut cluster: Cluster<I>,
    incidents: &Incidents,
    moments: Option<SampledMoments>,
    ArrivalSource { requests, follow_ups }: ArrivalSource<'_>,
    metrics: &mut Metrics,
    observer: &mut dyn Observer,
) -> Result<ClusterRun, RunError> {
    if let Some(moments) = moments {
        cluster = cluster.with_load_samples(moments);
    }
    let counters =
        I::run(cluster, requests, follow_ups, metrics, observer).map_err(|halt| halt_error(halt, incidents))?;
    let plugin_use = incidents.meter().map_or((0, 0), |meter| (meter.decisions(), meter.used()));
    Ok(ClusterRun { counters, incidents: incidents.all(), plugin_use })
}

/// The error of a simulation that ended early.
pub(crate) fn halt_error(halt: Halt, incidents: &Incidents) -> RunError {
    match (halt, incidents.first()) {
        (Halt::Aborted, Some(Incident { plugin, kind, at, fault, .. })) => {
            let what = fault.diagnostic.without_hint();
            let hint = fault.diagnostic.hint.as_ref().map_or(String::new(), |hint| format!("{hint}; "));
            let seconds = at.as_secs_f64();
            let failure =
                RunError::runtime(format_args!("the {} `{plugin}` failed at {seconds} s: {what}", kind.what()));
            let failure = failure.with_fault(fault.clone());
            failure.hint(format_args!("{hint}`--on-plugin-error fallback` continues with a built-in policy"))
        }
        (halt, _) => halt.into(),
    }
}

/// Refuses weights of figures that cannot have a sample, before anything is simulated.
pub(crate) fn check_weights(
    weights: &FitnessWeights,
    config: &Experiment,
    names: &Names,
    recorded: &BTreeMap<String, GoodputTargets>,
) -> Result<(), RunError> {
    let has = |needs| match needs {
        Needs::Nothing => true,
        Needs::SloTargets => !(config.cluster.slo_targets.is_empty() && recorded.is_empty()),
        Needs::Tenants => !names.texts().is_empty(),
        Needs::Prices => config.has_prices(),
        Needs::Energy => config.energy,
    };
    weights.check(has, |class| names.find(class).is_some()).map_err(RunError::refused)
}

/// A log of how every request ends, if figures are scored.
pub(crate) fn end_log(
    config: &Experiment,
    names: &Names,
    recorded: &BTreeMap<String, GoodputTargets>,
) -> Option<EndLog> {
    let scored = config.evaluation.fitness.as_ref().is_some_and(|weights| weights.scale() == FitnessScale::Ratio);
    scored.then(|| EndLog::new(&metrics_options(config, names, recorded)))
}

/// The rules of the classes of a run: each request is worth the same, and classes of a priority below 0 may be shed.
pub(crate) fn class_rules(config: &Experiment, names: &Names) -> ClassRules {
    ClassRules::by_priority(&service::classes(&config.cluster.policies, names), names)
}

/// Metrics per class and tenant are collected if requests name any. Priority inversions cannot occur under FCFS.
pub(crate) fn metrics_options(
    config: &Experiment,
    names: &Names,
    recorded: &BTreeMap<String, GoodputTargets>,
) -> MetricsOptions {
    let named = !names.texts().is_empty();
    MetricsOptions {
        instances: config.cluster.instances(),
        classes: service::classes(&config.cluster.policies, names),
        default_class: names.find("default"),
        per_class: named,
        per_tenant: named,
        inversions: config.engine.scheduler != Scheduler::Fcfs
            || config.cluster.policies.plugin(Kind::Scheduling).is_some(),
        // Evaluations of candidates, which have a budget, read none of them.
        instance_latencies: config.budget.is_none(),
        offload: config.deployment.offload.is_some(),
        disaggregation: config.cluster.disaggregation.is_some(),
        adapters: false,
        targets: slo_targets(config, names, recorded),
        warmup: config.warmup,
    }
}

/// Adds the deadline of `--timeout` to requests of a trace that have none. Generated requests have theirs.
pub(crate) fn with_deadlines<I: Iterator<Item = Request>>(
    requests: I,
    workload: &WorkloadConfig,
) -> impl Iterator<Item = Request> + use<I> {
    let timeout = match workload {
        WorkloadConfig::Trace(trace) => trace.timeout,
        WorkloadConfig::Synthetic(_) | WorkloadConfig::Specified(_) | WorkloadConfig::Recorded { .. } => None,
    };
    requests.map(move |mut request| {
        request.deadline = request.deadline.or(timeout.map(|timeout| request.arrival.saturating_add(timeout)));
        request
    })
}

/// BLIS scores a latency without samples as the best one.
pub(crate) fn no_sample(semantics: Semantics) -> NoSample {
    if semantics == Semantics::BLIS { NoSample::BestAsInBlis } else { NoSample::Worst }
}

/// Warnings about plugins that failed and were replaced, and about plugins without a sandbox.
pub(crate) fn plugin_warnings(config: &Experiment, incidents: &[Incident]) -> Vec<(String, String)> {
    let failed = incidents.iter().map(|Incident { plugin, kind, at, fault, count }| {
        let times = plural(*count, "time");
        let what = format!("the {} `{plugin}` failed {times}, first at {} s: ", kind.what(), at.as_secs_f64());
        let what = format!("{what}{}", fault.diagnostic.without_hint());
        (what, "a built-in policy decided instead; `--on-plugin-error fail` ends the run instead".to_owned())
    });
    let native = config.cluster.policies.plugins();
    let native = native.filter(|used| used.loaded.plugin.technology() == Technology::Native).map(|used| {
        let what = format!("the {} `{}` ran unsandboxed", used.kind.what(), used.loaded.name);
        (what, "a native library runs with your rights, and can change the simulation itself".to_owned())
    });
    native.chain(failed).collect()
}
