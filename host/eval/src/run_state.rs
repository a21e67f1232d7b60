//! The state of a run: whether its figures are those of a steady service.

use blis_config::Deployment;
use blis_report::{Caveat, CaveatCode, LoadLog, LoadReport, LoadState, latency_in_words, three_digits};
use blis_sim::metrics::Report;
use blis_sim::request::Request;
use blis_sim::units::Micros;
use blis_stats::{MOST_LOST, RunEvidence, RunState, StateReason, StateReport, state_of};
use blis_workload::Workload;
use blis_workload::spec::SteadySessions;

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::load_warnings::{mean_latency_s, synchronised};
use crate::measure::{measure, with_deadlines};
use crate::targets::NamedWorkload;
use crate::{open, planning};

/// Queueing as a share of TTFT above which a closed loop may be saturated.
const MOST_QUEUEING: f64 = 0.5;
/// Users of the run that decides it, as a share.
const FEWER: f64 = 0.75;

/// Requests of an instance in the mean from which one with a tenth of them is no chance.
const ENOUGH_REQUESTS: u64 = 20;

/// What a run left behind, from which its state follows.
pub(crate) struct RunTraces<'a> {
    pub report: &'a Report,
    /// Arrivals and ends over time, and the load that they are.
    pub log: &'a LoadLog,
    pub load: Option<&'a LoadReport>,
    /// Whether no client waits for an output.
    pub is_open: bool,
    /// Sessions that begin at a rate.
    pub sessions: Option<&'a SteadySessions>,
}

/// The state of a run by the rules of [`blis_stats::state_of`], the growth of the number in flight by that of its load. A run that lost
/// requests to their deadlines, and a closed loop in which requests wait, are followed by short runs that tell why.
///
/// # Errors
/// If one of these runs fails.
pub(crate) fn state_of_run(
    config: &Experiment,
    deployment: &Deployment,
    run: &RunTraces<'_>,
) -> Result<StateReport, RunError> {
    let counts = &run.report.cluster.counts;
    let lost = counts.timed_out + counts.dropped() + counts.evicted;
    let mut evidence =
        RunEvidence { lost_share: lost as f64 / run.report.arrived.max(1) as f64, ..RunEvidence::default() };
    if evidence.lost_share > MOST_LOST && counts.timed_out > 0 {
        (evidence.deadline_s, evidence.alone_s) = alone(config, deployment)?.unzip();
    }
    let is_pool = !run.is_open && run.sessions.is_none();
    if is_pool && queueing_share(run.report).is_some_and(|share| share > MOST_QUEUEING) {
        evidence.queueing_share = queueing_share(run.report);
        let of_fewer = planning::throughput_of_fewer_users(config, deployment, FEWER)?;
        evidence.throughput_of_fewer = of_fewer.map(|rate| rate / run.report.cluster.responses_per_second());
    }
    let by_load = |state| StateReport { state, reason: StateReason::Nothing };
    let found = state_of(&evidence);
    Ok(match run.load.and_then(|load| load.state) {
        _ if found.state != RunState::Steady => found,
        Some(LoadState::Overloaded) => by_load(RunState::Overloaded),
        Some(LoadState::TooShort) => by_load(RunState::TooShort),
        Some(LoadState::Steady) | None => {
            let waits = !run.is_open || run.sessions.is_some_and(|sessions| sessions.is_closed_loop);
            let together = || synchronised(run.log, run.sessions, waits);
            starved(config, run.report).or_else(together).or_else(|| may_grow(run)).unwrap_or(found)
        }
    })
}

/// What limits the figures of a run in this state, where its load does not tell.
pub(crate) fn caveat_of(found: &StateReport) -> Option<Caveat> {
    let code = match found.state {
        RunState::Saturated => CaveatCode::Saturated,
        RunState::Starved => CaveatCode::Starved,
        RunState::Synchronised => CaveatCode::Synchronised,
        RunState::Deadline => CaveatCode::Deadline,
        RunState::Undecided => CaveatCode::Undecided,
        RunState::Steady | RunState::Overloaded | RunState::TooShort => return None,
    };
    Some(Caveat::new(code, in_words(found)))
}

/// The state with what it follows from, as a sentence begins.
pub(crate) fn in_words(found: &StateReport) -> String {
    let percent = |share: f64| three_digits(100.0 * share);
    let why = match found.reason {
        StateReason::Nothing => return capitalized(found.state),
        StateReason::Growing(growth) => {
            format!("the number in flight grows by {} % of the arrivals", percent(growth.share))
        }
        StateReason::Lost(share) => {
            format!("{} % of the requests are lost (timed out, dropped or evicted)", percent(share))
        }
        StateReason::DeadlineTooShort { deadline_s, alone_s } => {
            let [deadline, alone] = [deadline_s, alone_s].map(|seconds| latency_in_words(1e3 * seconds));
            format!("{deadline} are less than the {alone} that one request takes alone")
        }
        StateReason::Span { span_s, needed_s } => {
            format!("requests arrive for {} s of {} s that it needs", three_digits(span_s), three_digits(needed_s))
        }
        StateReason::ThroughputOfFewer(share) => {
            format!("three quarters of the users get {} % of the throughput", percent(share))
        }
        StateReason::FewRequests { instance, share } if share > 0.0 => {
            format!("instance {instance} got {} % of the mean requests", percent(share))
        }
        StateReason::FewRequests { instance, .. } => format!("instance {instance} got no request"),
        StateReason::Bursts { arrivals, starts } => format!(
            "clients send together, variance/mean {} of arrivals per second, {} of starts",
            three_digits(arrivals),
            three_digits(starts)
        ),
    };
    format!("{}: {why}", capitalized(found.state))
}

fn capitalized(state: RunState) -> String {
    let name = state.name().replace('_', " ");
    let (first, rest) = name.split_at(1);
    format!("{}{rest}", first.to_uppercase())
}

/// The queueing of requests before their first admission to a batch, as a share of their TTFT; `None` if it is not known.
fn queueing_share(report: &Report) -> Option<f64> {
    let (delay, ttft) = (&report.cluster.scheduling_delay, &report.cluster.ttft);
    (delay.count > 0 && ttft.mean_ms > 0.0).then(|| delay.mean_ms / ttft.mean_ms)
}

/// Requests that each are alone in the service: the medians of their deadlines and of the end-to-end latencies that they have without one,
/// s. `None` if no request has a deadline.
fn alone(config: &Experiment, deployment: &Deployment) -> Result<Option<(f64, f64)>, RunError> {
    /// Requests that are tried.
    const TRIED: usize = 5;
    let config = Experiment { horizon: Micros::MAX, warmup: Micros::ZERO, ..config.clone() };
    let Workload { requests, names, slo_targets, .. } = open::open_until(&config)?.0;
    let with_deadline = with_deadlines(requests, &config.workload).filter(|request| request.deadline.is_some());
    let (mut deadlines, mut latencies) = (Vec::new(), Vec::new());
    for request in with_deadline.take(TRIED) {
        let deadline = request.deadline.map_or(Micros::MAX, |deadline| deadline.saturating_sub(request.arrival));
        // A time beyond any run: without one the client would get that of the settings.
        let request = Request { deadline: Some(Micros::MAX), ..request };
        let named = NamedWorkload { names: &names, slo_targets: &slo_targets };
        let run = measure(&config, deployment, named, std::iter::once(request), None, ())?;
        if run.report.cluster.e2e.count > 0 {
            deadlines.push(deadline.as_secs_f64());
            latencies.push(run.report.cluster.e2e.mean_ms / 1e3);
        }
    }
    Ok(median(&mut deadlines).zip(median(&mut latencies)))
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// A number in flight that may grow, although not so clearly that [`LoadLog`] calls it an overload.
fn may_grow(run: &RunTraces<'_>) -> Option<StateReport> {
    if !run.is_open && run.sessions.is_none() {
        return None;
    }
    let warmup_s = run.sessions.map_or(0.0, |sessions| sessions.long_life_s(mean_latency_s(run.report)));
    let growth = run.log.growth(Micros::from_secs_f64(warmup_s));
    // Of few requests in flight one more is a large share, and three more are no trend.
    let growth = growth.filter(|growth| growth.late > 1.25 * growth.early + 5.0)?;
    let found = state_of(&RunEvidence { growth: Some(growth), ..RunEvidence::default() });
    (found.state != RunState::Steady).then_some(StateReport { state: RunState::Undecided, ..found })
}

/// An instance that gets hardly any of the requests of its role.
fn starved(config: &Experiment, report: &Report) -> Option<StateReport> {
    let cluster = &config.cluster;
    // Replicas that come and go serve for different times, and groups may serve different models.
    if cluster.scaling.is_some() || !cluster.groups.is_empty() || report.replicas.is_some() {
        return None;
    }
    let pools: Vec<usize> = match &cluster.disaggregation {
        Some(roles) => roles.pools.iter().map(|pool| pool.instances as usize).collect(),
        None => vec![report.instances.len()],
    };
    let mut first = 0;
    for size in pools {
        let requests: Vec<u64> =
            report.instances.iter().skip(first).take(size).map(|instance| instance.counts.arrived()).collect();
        let is_enough = requests.iter().sum::<u64>() >= ENOUGH_REQUESTS * requests.len() as u64;
        let evidence = RunEvidence { requests_by_instance: requests, ..RunEvidence::default() };
        let found = state_of(&evidence);
        if let (true, StateReason::FewRequests { instance, share }) = (is_enough, found.reason) {
            return Some(StateReport {
                reason: StateReason::FewRequests { instance: first + instance, share },
                ..found
            });
        }
        first += size;
    }
    None
}
