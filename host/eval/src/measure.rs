//! One simulation of an experiment, measured.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use blis_config::Deployment;
use blis_config::policy::Sourced;
use blis_plugin::incidents::{Incident, Incidents};
use blis_plugin::{Kind, Technology};
use blis_sim::cluster::{Cluster, FollowUps, Halt, SessionStates};
use blis_sim::instance::{Fast, Instance, Plain, Scheduler};
use blis_sim::metrics::{Metrics, MetricsOptions, Report, SloTargets};
use blis_sim::observer::{DynObserver, Interests, Observer};
use blis_sim::outcome::{Counters, Outcome};
use blis_sim::request::{Name, Request};
use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;
use blis_workload::Names;
use blis_workload::trace_v2::GoodputTargets;

use crate::error::Failure;
use crate::experiment::{self, Experiment};
use crate::figures::Needs;
use crate::fitness::{FitnessWeights, NoSample};
use crate::service;
use crate::spec::EngineName;
use crate::spec::parse::EVERY_CLASS;
use crate::workload_config::{WorkloadConfig, plural};

/// A simulation that went through.
pub struct Measured<S> {
    pub report: Report,
    /// With what it noticed.
    pub observer: S,
    /// What went wrong in plugins.
    pub incidents: Vec<Incident>,
    /// Decisions of plugins, and the fuel or operations they took; on a leash only.
    pub used: (u64, u64),
}

/// Simulates `requests`.
pub fn measure<S: Observer>(
    config: &Experiment,
    deployment: &Deployment,
    (names, targets): (&Names, &BTreeMap<String, GoodputTargets>),
    (requests, follow_ups): (impl Iterator<Item = Request>, Option<Box<dyn FollowUps + Send>>),
    observer: S,
) -> Result<Measured<S>, Failure> {
    let _span = tracing::debug_span!("experiment", seed = config.seed).entered();
    let mut observer = observer;
    let mut metrics = Metrics::new(metrics_options(config, names, targets));
    let arrived = Cell::new(0);
    let arrives = |request: &Request| arrived.set(arrived.get() + u64::from(request.arrival <= config.horizon));
    let mut requests = with_deadlines(requests, &config.workload).inspect(arrives);
    let mut clients = follow_ups.map(|inner| Clients { inner, semantics: config.engine.semantics, arrives });
    let arrivals = (&mut requests as _, clients.as_mut().map(|clients| clients as &mut dyn FollowUps));
    let observers = (&mut metrics, &mut observer as &mut dyn Observer);
    let Ran { counters, incidents, used } = simulate(config, deployment, names, arrivals, observers)?;
    metrics.offered(arrived.get());
    let mut report = metrics.report(&counters, config.horizon);
    if let Some(sessions) = &mut report.sessions {
        sessions.states = clients.map(|clients| clients.states());
    }
    if !report.conserved() {
        let (arrived, ended) = (report.arrived, report.cluster.counts.arrived());
        return Err(Failure::runtime(format_args!("{arrived} requests arrived, but {ended} are accounted for"))
            .hint("this is a mistake in the program: please report it with the command"));
    }
    Ok(Measured { report, observer, incidents, used })
}

/// Clients that wait for their answers, seen from the service.
struct Clients<F> {
    inner: Box<dyn FollowUps + Send>,
    semantics: Semantics,
    /// Told of each request that follows.
    arrives: F,
}

impl<F: Fn(&Request)> FollowUps for Clients<F> {
    /// A client has its answer when it has all of it. For BLIS that is when the engine is done with it,
    /// and what stays of it in the conversation lacks the last token.
    fn next(&mut self, ended: &Outcome) -> Option<Request> {
        let ended = if self.semantics == Semantics::BLIS {
            Outcome { generated_tokens: ended.generated_tokens.saturating_sub(1), ..*ended }
        } else {
            let answered = ended.e2e.map_or(ended.ended_at, |e2e| ended.arrival.saturating_add(e2e));
            ended.ended_at(answered.max(ended.ended_at))
        };
        self.inner.next(&ended).inspect(&self.arrives)
    }

    fn states(&self) -> SessionStates {
        self.inner.states()
    }
}

/// A cluster that has done its work.
struct Ran {
    /// Of each instance.
    counters: Vec<Counters>,
    /// What went wrong in plugins without ending the run.
    incidents: Vec<Incident>,
    /// Decisions of plugins, and what they used for them.
    used: (u64, u64),
}

/// Requests as they arrive, and the clients whose further requests follow from the ends of earlier ones.
type Arrivals<'a> = (&'a mut dyn Iterator<Item = Request>, Option<&'a mut dyn FollowUps>);

/// Runs the service to its end. The one place in which the simulation with metrics is compiled, once for each engine.
fn simulate(
    config: &Experiment,
    deployment: &Deployment,
    names: &Names,
    arrivals: Arrivals<'_>,
    (metrics, observer): (&mut Metrics, &mut dyn Observer),
) -> Result<Ran, Failure> {
    let observers = &mut (metrics, DynObserver::new(observer));
    match config.engine.engine {
        EngineName::Fast => {
            let records = observers.interests().contains(Interests::STEPS);
            let engine = |config| if records { Fast::new(config).recording() } else { Fast::new(config) };
            run_to_end(service::cluster(config, deployment, names, engine)?, arrivals, observers)
        }
        EngineName::Plain => {
            run_to_end(service::cluster(config, deployment, names, Plain::new)?, arrivals, observers)
        }
    }
}

fn run_to_end<I: Instance>(
    (cluster, incidents): (Cluster<I>, Incidents),
    (requests, follow_ups): Arrivals<'_>,
    observers: &mut (&mut Metrics, DynObserver<'_>),
) -> Result<Ran, Failure> {
    let counters = cluster.run_sessions(requests, follow_ups, observers).map_err(|halt| halted(halt, &incidents))?;
    let used = incidents.meter().map_or((0, 0), |meter| (meter.calls(), meter.used()));
    Ok(Ran { counters, incidents: incidents.all(), used })
}

/// Why a simulation ended early.
pub(crate) fn halted(halt: Halt, incidents: &Incidents) -> Failure {
    match (halt, incidents.first()) {
        (Halt::Aborted, Some(Incident { plugin, kind, at, fault, .. })) => {
            let what = fault.diagnostic.without_hint();
            let hint = fault.diagnostic.hint.as_ref().map_or(String::new(), |hint| format!("{hint}; "));
            let seconds = at.as_secs_f64();
            let failure =
                Failure::runtime(format_args!("the {} `{plugin}` failed at {seconds} s: {what}", kind.what()));
            let failure = failure.because(fault.clone());
            failure.hint(format_args!("{hint}`--on-plugin-error fallback` goes on with a built-in in its place"))
        }
        (halt, _) => halt.into(),
    }
}

/// Before anything runs: a figure that can have no sample must not decide.
pub(crate) fn check_weights(
    weights: &FitnessWeights,
    config: &Experiment,
    names: &Names,
    recorded: &BTreeMap<String, GoodputTargets>,
) -> Result<(), Failure> {
    let has = |needs| match needs {
        Needs::Nothing => true,
        Needs::SloTargets => !(config.cluster.slo_targets.is_empty() && recorded.is_empty()),
        Needs::Tenants => !names.texts().is_empty(),
    };
    weights.check(has).map_err(Failure::refused)
}

/// Classes and tenants where requests name any; under fcfs nobody overtakes.
pub(crate) fn metrics_options(
    config: &Experiment,
    names: &Names,
    recorded: &BTreeMap<String, GoodputTargets>,
) -> MetricsOptions {
    let named = !names.texts().is_empty();
    MetricsOptions {
        instances: config.cluster.num_instances,
        classes: service::classes(&config.cluster.policies, names),
        default_class: names.find("default"),
        per_class: named,
        per_tenant: named,
        inversions: config.engine.scheduler != Scheduler::Fcfs
            || config.cluster.policies.plugin(Kind::Scheduling).is_some(),
        targets: slo_targets(config, names, recorded),
    }
}

/// Those of flags before those of the trace, latency by latency, for the classes that occur.
pub(crate) fn slo_targets(
    config: &Experiment,
    names: &Names,
    recorded: &BTreeMap<String, GoodputTargets>,
) -> Vec<(Name, SloTargets)> {
    let given = &config.cluster.slo_targets;
    let every = given.get(EVERY_CLASS);
    // A name may be that of a class, a tenant or a model: targets of what is no class are never looked up.
    let named = names.texts().iter().filter(|text| every.is_some() && !text.is_empty()).map(|text| &**text);
    let default = every.map(|_| "default");
    let classes = given.keys().chain(recorded.keys()).map(String::as_str).filter(|class| *class != EVERY_CLASS);
    let classes: BTreeSet<&str> = classes.chain(named).chain(default).collect();
    let targets = classes.into_iter().filter_map(|class| {
        let name = if class == "default" { Name::NONE } else { names.find(class)? };
        let (flags, trace) = (given.get(class), recorded.get(class));
        let ms = |ms: Option<f64>| ms.map(|ms| Micros::from_f64(ms * 1e3));
        let flag = |of: fn(&experiment::SloTargets) -> Option<&Sourced<Micros>>| {
            let target = flags.and_then(of).or(every.and_then(of));
            target.map(|target| target.value)
        };
        let targets = SloTargets {
            ttft: flag(|targets| targets.ttft.as_ref()).or(ms(trace.and_then(|targets| targets.ttft_ms))),
            itl: flag(|targets| targets.itl.as_ref()).or(ms(trace.and_then(|targets| targets.itl_ms))),
            e2e: flag(|targets| targets.e2e.as_ref()).or(ms(trace.and_then(|targets| targets.e2e_ms))),
        };
        Some((name, targets))
    });
    targets.collect()
}

/// Requests of a trace that bring no deadline get the one of `--timeout`. Generated ones have theirs.
pub(crate) fn with_deadlines(
    requests: impl Iterator<Item = Request>,
    workload: &WorkloadConfig,
) -> impl Iterator<Item = Request> {
    let timeout = match workload {
        WorkloadConfig::Trace(trace) => trace.timeout,
        WorkloadConfig::Synthetic(_) | WorkloadConfig::Specified(_) | WorkloadConfig::Recorded { .. } => None,
    };
    requests.map(move |mut request| {
        request.deadline = request.deadline.or(timeout.map(|timeout| request.arrival.saturating_add(timeout)));
        request
    })
}

/// BLIS takes a latency nobody had for the best there is.
pub(crate) fn no_sample(semantics: Semantics) -> NoSample {
    if semantics == Semantics::BLIS { NoSample::BestAsInBlis } else { NoSample::Worst }
}

/// Where plugins were helped out, and what runs unsandboxed.
pub(crate) fn plugin_warnings(config: &Experiment, incidents: &[Incident]) -> Vec<(String, String)> {
    let failed = incidents.iter().map(|Incident { plugin, kind, at, fault, count }| {
        let times = plural(*count, "time");
        let what = format!("the {} `{plugin}` failed {times}, first at {} s: ", kind.what(), at.as_secs_f64());
        let what = format!("{what}{}", fault.diagnostic.without_hint());
        (what, "a built-in decided in its place; `--on-plugin-error fail` ends the run instead".to_owned())
    });
    let native = config.cluster.policies.plugins();
    let native = native.filter(|used| used.loaded.plugin.technology() == Technology::Native).map(|used| {
        let what = format!("the {} `{}` ran unsandboxed", used.kind.what(), used.loaded.name);
        (what, "a native library can do whatever you can; its results are only as good as its author".to_owned())
    });
    native.chain(failed).collect()
}
