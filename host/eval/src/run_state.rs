//! The state of a run: whether its figures are those of a steady service.

use blis_report::{LoadReport, LoadState};
use blis_sim::metrics::Report;
use blis_stats::{RunEvidence, RunState, StateReason, StateReport, state_of};

use crate::experiment::Experiment;

/// Requests of an instance in the mean from which one with a tenth of them is no chance.
const ENOUGH_REQUESTS: u64 = 20;

/// The state of a run by the rules of [`blis_stats::state_of`], the growth of the number in flight by that of `load`.
pub(crate) fn state_of_run(config: &Experiment, report: &Report, load: Option<&LoadReport>) -> StateReport {
    let counts = &report.cluster.counts;
    let lost = counts.timed_out + counts.dropped() + counts.evicted;
    let evidence = RunEvidence { lost_share: lost as f64 / report.arrived.max(1) as f64, ..RunEvidence::default() };
    let by_load = |state| StateReport { state, reason: StateReason::Nothing };
    let found = state_of(&evidence);
    match load.and_then(|load| load.state) {
        _ if found.state != RunState::Steady => found,
        Some(LoadState::Overloaded) => by_load(RunState::Overloaded),
        Some(LoadState::TooShort) => by_load(RunState::TooShort),
        Some(LoadState::Steady) | None => starved(config, report).unwrap_or(found),
    }
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
