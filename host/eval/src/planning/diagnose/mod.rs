//! What binds a service, and which knob helps: the time of its requests divided among causes, and re-simulation with knobs turned.
//!
//! ```text
//! attribution (an observer of one run) ─► shares by cause ─┐
//! target (the figure that matters)     ─► effects of knobs ─┴► ranking: the cause that binds, confirmed or not
//! ```

mod attribution;
mod cause;
mod config;
mod document;
mod effect;
mod figure;
mod knob;
mod ranking;
mod runs;
mod scrape;
mod target;
mod text;
mod trials;

use blis_config::Deployment;
use blis_plugin::Kind;
use blis_report::LoadState;
use blis_sim::request::Request;
use blis_workload::Names;

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::open;
use crate::runs::{at_once, on_threads, run_all};
use crate::service;

pub use cause::Cause;
pub use config::DiagnoseConfig;
pub use document::{CauseShare, CheckedSlo, Diagnosis, KnobResult, TriedKnob};
pub use scrape::{MovedHistogram, ScrapeDiagnosis, diagnose_metrics};

use attribution::{AttributedRequest, Attribution, AttributionLog, CauseTimes, ServiceLimits};
use cause::CAUSES;
use figure::{LostValue, RunLatencies, TargetFigure};
use knob::KnobContext;
use runs::{ServiceRun, fixed_gpus, run_alone, run_service};
use target::{Alone, Infeasible, Target, decode_excess, find_hot_instances, median, shares};
use text::conclusion;
use trials::{KnobTrial, Tried, TriedService, prepare};

/// Diagnoses the service. The result does not depend on the number of threads.
///
/// # Errors
/// If a workload or a policy is invalid, or a run fails.
pub fn diagnose(config: &DiagnoseConfig) -> Result<Diagnosis, RunError> {
    let requests = [config.base.spec.num_requests.map(u64::from)];
    on_threads(at_once(config.threads, requests.into_iter()), || search(config))?
}

/// The service as it is.
struct ObservedService {
    deployment: Deployment,
    seeds: Vec<u64>,
    /// A run for each seed.
    runs: Vec<ServiceRun<Option<AttributionLog>>>,
    /// Those of the first seed.
    attributed: Vec<AttributedRequest>,
    requests: Vec<Request>,
    /// Requests that can never be served.
    dropped: u64,
    alone: Alone,
    gpus: f64,
}

fn search(config: &DiagnoseConfig) -> Result<Diagnosis, RunError> {
    let service = observe(config)?;
    let names = &service.runs[0].names;
    for slo in &config.slos {
        check_class(slo, names, &service.requests)?;
    }
    let before: Vec<RunLatencies> = service.runs.iter().map(|run| run.latencies.clone()).collect();
    let target = Target::choose(&config.slos, names, &before, &service.alone, &service.attributed);
    let tried = try_knobs(config, &service, &target, &before)?;
    Ok(document(config, &service, &target, &before, tried))
}

/// # Errors
/// If no request is of the class of `slo`.
fn check_class(slo: &super::slo::Slo, names: &Names, requests: &[Request]) -> Result<(), RunError> {
    let Some(class) = &slo.class else { return Ok(()) };
    let wanted = super::load::class_names(class, names);
    if requests.iter().any(|request| wanted.contains(&request.tags.slo_class)) {
        return Ok(());
    }
    Err(RunError::usage(format_args!("`{slo}`: no request is of the class `{class}`"))
        .hint("name a class of the workload, or leave it out"))
}

/// Runs the service under all seeds, the first one with an observer of its steps; and each of its requests alone.
fn observe(config: &DiagnoseConfig) -> Result<ObservedService, RunError> {
    let base = &config.base;
    let deployment = open::resolve(base)?;
    service::try_scripts(base)?;
    let count = if config.is_one_sample() { 1 } else { config.seeds };
    let seeds: Vec<u64> = (0..u64::from(count)).map(|n| base.seed.wrapping_add(n)).collect();
    let limits = service_limits(base, &deployment);
    let one = |_: &(), seed: u64| {
        let log = (seed == seeds[0]).then(|| AttributionLog::new(limits.clone()));
        run_service(&base.with_seed(seed), &deployment, 1.0, log)
    };
    let mut runs = run_all(&[()], &seeds, one)?.remove(0);
    let log = runs[0].observer.take();
    let found = log.map(AttributionLog::finish).unwrap_or_default();
    let Attribution { divided: mut attributed, requests, dropped } = found;
    if attributed.is_empty() && dropped > 0 {
        return Err(RunError::usage(
            "no request can be served: the prompts are longer than the model or the KV cache allows",
        )
        .hint("see `blis run` with the same flags; shorten the prompts, or change `--max-model-len` or the KV cache"));
    }
    if attributed.is_empty() {
        return Err(RunError::usage("no request counts: none arrives in the time that is simulated, after `--warmup`")
            .hint("simulate more requests, or shorten `--warmup`"));
    }
    let alone = Alone::new(run_alone(&base.with_seed(seeds[0]), &deployment, &runs[0].names, &requests)?);
    let cluster = &base.cluster;
    if cluster.disaggregation.is_none() && cluster.scaling.is_none() && cluster.groups.is_empty() {
        find_hot_instances(&mut attributed, &alone, cluster.num_instances as usize);
    }
    let gpus = gpus_of(base, &deployment, &runs)?;
    Ok(ObservedService { deployment, seeds, runs, attributed, requests, dropped, alone, gpus })
}

fn service_limits(base: &Experiment, deployment: &Deployment) -> ServiceLimits {
    let limits = deployment.instance_limits();
    let active = base.spec.max_num_active_seqs.unwrap_or(u32::MAX);
    ServiceLimits {
        latency: deployment.latency.clone(),
        block_size: base.block_size(),
        max_num_seqs: limits.max_num_seqs.min(active),
        max_num_batched_tokens: limits.max_num_batched_tokens,
        plans_ahead: base.engine.async_scheduling && deployment.latency.plans_ahead(),
        has_adapters: deployment.adapters.is_some(),
        warmup: base.warmup,
    }
}

/// GPUs of a service; with an autoscaler those held on average.
fn gpus_of<O>(config: &Experiment, deployment: &Deployment, runs: &[ServiceRun<O>]) -> Result<f64, RunError> {
    if config.cluster.scaling.is_some() {
        let held: Vec<f64> = runs.iter().filter_map(|run| run.gpus).collect();
        return Ok(held.iter().sum::<f64>() / held.len().max(1) as f64);
    }
    fixed_gpus(config, deployment)
}

/// Turns every knob, and measures the figure under the same requests.
fn try_knobs(
    config: &DiagnoseConfig,
    service: &ObservedService,
    target: &Target,
    before: &[RunLatencies],
) -> Result<Vec<Tried>, RunError> {
    let first = &service.runs[0];
    let classes = service::classes(&config.base.cluster.policies, &first.names);
    let context = KnobContext {
        spec: &config.spec,
        base: &config.base,
        deployment: &service.deployment,
        is_closed: first.is_closed,
        has_batch_classes: service.requests.iter().any(|request| classes.priority(request.tags.slo_class) < 0),
        deadline: match target.infeasible {
            Some(Infeasible::Deadline { wanted, .. }) => Some(wanted),
            Some(Infeasible::Slo) | None => None,
        },
    };
    let trials = prepare(&context);
    // No load meets a limit below the time alone: what counts is that time.
    let is_alone = target.infeasible == Some(Infeasible::Slo);
    let seeds = if is_alone { &service.seeds[..1] } else { &service.seeds[..] };
    let one = |trial: &KnobTrial, seed: u64| -> Result<Result<ServiceRun<()>, String>, RunError> {
        let Ok(changed) = &trial.service else { return Ok(Err(String::new())) };
        let changed_run = changed.experiment.with_seed(seed);
        let run = if is_alone {
            run_alone(&changed_run, &changed.deployment, &first.names, &service.requests).map(|latencies| ServiceRun {
                latencies,
                state: None,
                gpus: None,
                observer: (),
                names: Names::default(),
                is_closed: false,
            })
        } else {
            run_service(&changed_run, &changed.deployment, trial.stretch, ())
        };
        // A service that cannot run is no fault of the one that is diagnosed.
        Ok(run.map_err(|error| error.diagnostic().headline().to_string()))
    };
    let runs = run_all(&trials, seeds, one)?;
    let alone = [service.alone.latencies.clone()];
    let reference = if is_alone { &alone[..] } else { before };
    trials.into_iter().zip(runs).map(|(trial, runs)| measured(trial, runs, &target.figure, reference)).collect()
}

fn measured(
    trial: KnobTrial,
    runs: Vec<Result<ServiceRun<()>, String>>,
    figure: &TargetFigure,
    reference: &[RunLatencies],
) -> Result<Tried, RunError> {
    let KnobTrial { knob, settings, serves_less, service, .. } = trial;
    let changed = match service {
        Ok(changed) => changed,
        Err(reason) => return Ok(Tried { knob, settings, serves_less, outcome: Err(reason) }),
    };
    let runs = match runs.into_iter().collect::<Result<Vec<_>, String>>() {
        Ok(runs) => runs,
        Err(reason) => return Ok(Tried { knob, settings, serves_less, outcome: Err(reason) }),
    };
    let gpus = gpus_of(&changed.experiment, &changed.deployment, &runs)?;
    let after: Vec<RunLatencies> = runs.into_iter().map(|run| run.latencies).collect();
    let least = reference.iter().map(|run| figure.largest(run)).fold(0.0, f64::max);
    let figure_ms = median(after.iter().filter_map(|run| figure.value(run, LostValue::AtLeast(least))));
    let outcome = match effect::Effect::between(figure, reference, &after) {
        Some(effect) => Ok(TriedService { effect, gpus, figure_ms }),
        None => Err("no request has the figure".to_owned()),
    };
    Ok(Tried { knob, settings, serves_less, outcome })
}

fn document(
    config: &DiagnoseConfig,
    service: &ObservedService,
    target: &Target,
    before: &[RunLatencies],
    tried: Vec<Tried>,
) -> Diagnosis {
    let requests = target.requests(&service.attributed);
    let (shares, time_us) = shares(target, &requests);
    let causes = ranking::weighted(&shares, decode_excess(target, &requests, &service.alone));
    let expected = if target.infeasible.is_some() { Cause::Infeasible } else { causes[0].cause };
    let (knobs, best) = trials::in_order(tried, service.gpus, expected, target.figure == TargetFigure::Lost);
    let (cause, confirmed) = match target.infeasible {
        Some(_) => (expected, best.is_some_and(|best| expected.is_relieved_by(best))),
        None => ranking::binding(&causes, best),
    };
    let is_share = target.figure == TargetFigure::Lost;
    let lost = LostValue::AtLeast(0.0);
    let figure_ms = median(before.iter().filter_map(|run| target.figure.value(run, lost)));
    let lost_shares = before.iter().map(RunLatencies::lost);
    let sum = |of: fn(&AttributedRequest) -> u64| service.attributed.iter().map(of).sum();
    let overloaded = service.runs.iter().filter(|run| run.state == Some(LoadState::Overloaded)).count();
    let mut diagnosis = Diagnosis {
        sentence: String::new(),
        cause,
        confirmed,
        meets_slos: target.meets_slos,
        overloaded: 2 * overloaded > service.runs.len(),
        figure: target.figure.name(),
        figure_ms: figure_ms.filter(|_| !is_share),
        lost_share: lost_shares.sum::<f64>() / before.len().max(1) as f64,
        limit_ms: target.limit.map(|limit| limit.as_millis_f64()),
        alone_ms: target.figure.value(&service.alone.latencies, lost).filter(|_| !is_share),
        slo: target.slo.clone(),
        requests: requests.len() as u64,
        time_s: time_us / 1e6,
        causes: cause_shares(&shares, time_us, requests.len()),
        preemptions: sum(|request| u64::from(request.preemptions)),
        recomputed_tokens: sum(|request| request.recomputed_tokens),
        cold_tokens: sum(|request| request.cold_tokens),
        gpus: service.gpus,
        knobs,
        seeds: service.seeds.clone(),
        confidence: crate::paired::CONFIDENCE,
        notes: notes(config, service, target),
    };
    diagnosis.sentence = conclusion(&diagnosis, &target.figure, target.infeasible);
    diagnosis
}

fn cause_shares(shares: &CauseTimes, time_us: f64, requests: usize) -> Vec<CauseShare> {
    let mut causes: Vec<CauseShare> = CAUSES
        .iter()
        .zip(shares)
        .map(|(row, &share)| CauseShare {
            cause: row.cause,
            text: row.text,
            share,
            mean_ms: share * time_us / 1e3 / requests.max(1) as f64,
        })
        .collect();
    causes.sort_by(|a, b| b.share.total_cmp(&a.share));
    causes
}

fn notes(config: &DiagnoseConfig, service: &ObservedService, target: &Target) -> Vec<String> {
    let mut notes = Vec::new();
    if config.is_one_sample() {
        notes.push("a trace is one sample of its traffic: intervals are those of its requests".to_owned());
    } else if service.seeds.len() < 2 {
        notes.push("one seed has no spread: intervals are those of its requests, if there are enough".to_owned());
    }
    if service.dropped > 0 {
        let of = service.requests.len();
        notes.push(format!(
            "{} of {of} requests can never be served, and are in no figure: see `blis run`",
            service.dropped
        ));
    }
    if target.infeasible == Some(Infeasible::Slo) {
        notes.push("effects are on the figure of requests that are alone: no load meets this limit".to_owned());
    }
    if service.runs.iter().any(|run| run.state == Some(LoadState::TooShort)) {
        notes.push("too short: the requests in flight still grew at the end; simulate more requests".to_owned());
    }
    if config.base.cluster.policies.plugin(Kind::Latency).is_some() {
        notes.push("a plugin computes step times: the prefill part of steps is that of the built-in model".to_owned());
    }
    notes
}
