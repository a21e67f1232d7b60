//! The simulations of a diagnosis: the service as it is, each request alone, and the service with a knob turned.

use std::collections::BTreeMap;

use blis_config::Deployment;
use blis_report::{LoadLog, LoadState};
use blis_sim::ids::RequestId;
use blis_sim::metrics::Report;
use blis_sim::observer::Observer;
use blis_sim::request::Request;
use blis_sim::units::Micros;
use blis_workload::{Names, Workload};

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::load_warnings::load_of_run;
use crate::measure::{Measurement, measure};
use crate::open;
use crate::run;
use crate::targets::NamedWorkload;
use crate::workload_config::WorkloadConfig;

use super::figure::{LatencySamples, RunLatencies};

/// Requests that are simulated alone at most.
const MOST_ALONE: usize = 2000;
/// Time between two requests that are alone.
const APART: Micros = Micros(7_200_000_000);

/// A run of a service.
pub(super) struct ServiceRun<O> {
    pub latencies: RunLatencies,
    pub state: Option<LoadState>,
    /// GPUs held on average.
    pub gpus: Option<f64>,
    pub observer: O,
    pub names: Names,
    /// Whether requests follow from the outputs of others.
    pub is_closed: bool,
}

/// Runs `config` under the requests of its workload, with the times of arrival times `stretch`.
pub(super) fn run_service<O: Observer>(
    config: &Experiment,
    deployment: &Deployment,
    stretch: f64,
    observer: O,
) -> Result<ServiceRun<O>, RunError> {
    let sessions = open::steady_sessions(config)?;
    let (workload, horizon) = open::open_until(config)?;
    let config = Experiment { horizon, ..config.clone() };
    let Workload { requests, follow_ups, names, slo_targets, .. } = workload;
    let is_closed = follow_ups.is_some();
    let requests = requests.map(|request| stretched(request, stretch));
    let named = NamedWorkload { names: &names, slo_targets: &slo_targets };
    let latencies = LatencySamples { warmup: config.warmup, samples: Vec::new() };
    let observers = (observer, (LoadLog::default(), latencies));
    let Measurement { report, observer, .. } = measure(&config, deployment, named, requests, follow_ups, observers)?;
    let (observer, (load, latencies)) = observer;
    let slots = run::slots(&config, deployment);
    let load = load_of_run(&load, slots, !is_closed, sessions.as_ref(), &report);
    Ok(ServiceRun {
        latencies: RunLatencies::new(latencies.samples, report.cluster.itl),
        state: load.and_then(|load| load.state),
        gpus: mean_gpus(&report),
        observer,
        names,
        is_closed,
    })
}

/// The GPUs that a run held on average.
fn mean_gpus(report: &Report) -> Option<f64> {
    let span = report.replicas.as_ref().map_or(report.cluster.duration, |replicas| replicas.end);
    let hours = span.as_secs_f64() / 3600.0;
    report.gpu_hours().filter(|_| hours > 0.0).map(|gpu_hours| gpu_hours / hours)
}

/// `request` with its times of arrival and deadline later by the factor `stretch`; its deadline is as far from its arrival as before.
fn stretched(mut request: Request, stretch: f64) -> Request {
    if stretch != 1.0 {
        let time_left = request.deadline.map(|deadline| deadline.saturating_sub(request.arrival));
        request.arrival = Micros::from_f64(request.arrival.0 as f64 * stretch);
        request.deadline = time_left.map(|time_left| request.arrival.saturating_add(time_left));
    }
    request
}

/// Runs `config` under `requests`, the first two thousand, one after the other: each is alone, and finds in the caches what those before left, of
/// equal instances in one with the cache of all. The samples have the numbers of the requests.
pub(super) fn run_alone(
    config: &Experiment,
    deployment: &Deployment,
    names: &Names,
    requests: &[Request],
) -> Result<RunLatencies, RunError> {
    let mut config = Experiment { warmup: Micros::ZERO, horizon: Micros::MAX, energy: false, ..config.clone() };
    let cluster = &mut config.cluster;
    cluster.scaling = None;
    let mut deployment = deployment.clone();
    if cluster.disaggregation.is_none() && cluster.groups.is_empty() {
        let instances = cluster.num_instances.max(1);
        cluster.num_instances = 1;
        deployment.total_kv_blocks = deployment.total_kv_blocks.saturating_mul(instances);
    }
    if let WorkloadConfig::Trace(trace) = &mut config.workload {
        trace.timeout = None;
    }
    let first = &requests[..requests.len().min(MOST_ALONE)];
    let alone = first.iter().zip(0_u32..).map(|(request, number)| {
        let arrival = Micros(APART.0.saturating_mul(u64::from(number)));
        Request { id: RequestId(number), arrival, deadline: None, remote_until: Micros::ZERO, ..request.clone() }
    });
    let named = NamedWorkload { names, slo_targets: &BTreeMap::new() };
    let samples = LatencySamples::default();
    let Measurement { report, observer, .. } = measure(&config, &deployment, named, alone, None, samples)?;
    let mut samples = observer.samples;
    for sample in &mut samples {
        if let Some(request) = first.get(sample.id as usize) {
            (sample.id, sample.arrival) = (request.id.0, request.arrival);
        }
    }
    Ok(RunLatencies::new(samples, report.cluster.itl))
}

/// GPUs of all instances, unless an autoscaler changes their number.
pub(super) fn fixed_gpus(config: &Experiment, deployment: &Deployment) -> Result<f64, RunError> {
    if let Some(roles) = &config.cluster.disaggregation {
        let deployments = roles.deployments(&config.deployment)?;
        let gpus =
            roles.pools.iter().zip(&deployments).map(|(pool, of)| u64::from(pool.instances) * u64::from(of.gpus()));
        return Ok(gpus.sum::<u64>() as f64);
    }
    let further = config.further_deployments()?;
    let groups = config.cluster.groups.iter().zip(&further);
    let groups: u64 = groups.map(|(group, of)| u64::from(group.instances) * u64::from(of.gpus())).sum();
    Ok((u64::from(config.cluster.num_instances) * u64::from(deployment.gpus()) + groups) as f64)
}
