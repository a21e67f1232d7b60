//! Warnings about figures that are not those of a steady state.

use blis_report::{Caveat, CaveatCode, LoadLog, LoadReport, LoadState};
use blis_sim::metrics::Report;
use blis_sim::units::Micros;
use blis_stats::{RunEvidence, RunState, StateReport, state_of};
use blis_workload::spec::SteadySessions;

use crate::experiment::Experiment;
use crate::workload_config::WorkloadConfig;

/// Fewer completed requests leave less than ten beyond the 99th percentile.
const MIN_FOR_P99: u64 = 1000;

/// Mean lives of sessions for which a run of them lasts after its warm-up.
pub(crate) const LIVES: f64 = 10.0;

/// The load of a run, with its state; no state if clients wait for outputs (`is_open`: they do not) and do not begin at a rate, either.
/// `sessions`: those of the workload, if they begin at a rate. While they still begin and none ends, the number in flight grows whatever
/// the service: that is no overload.
pub(crate) fn load_of_run(
    log: &LoadLog,
    slots: u64,
    is_open: bool,
    sessions: Option<&SteadySessions>,
    report: &Report,
) -> Option<LoadReport> {
    let load = log.report((is_open || sessions.is_some()).then_some(slots))?;
    let Some(sessions) = sessions else { return Some(load) };
    let latency_s = mean_latency_s(report);
    let is_ramp = load.arrivals_s < 2.0 * sessions.long_life_s(latency_s);
    let is_short = load.state == Some(LoadState::Steady) && load.arrivals_s < sessions.needed_s(LIVES, latency_s);
    Some(LoadReport { state: if is_ramp || is_short { Some(LoadState::TooShort) } else { load.state }, ..load })
}

pub(crate) fn mean_latency_s(report: &Report) -> f64 {
    let e2e = &report.cluster.e2e;
    if e2e.count > 0 { e2e.mean_ms / 1e3 } else { 0.0 }
}

/// Clients that wait for outputs (`waits`), and send their requests together: far more so than their sessions start. Bursts of an open loop are
/// those of its traffic.
pub(crate) fn synchronised(log: &LoadLog, sessions: Option<&SteadySessions>, waits: bool) -> Option<StateReport> {
    let evidence = RunEvidence {
        arrival_dispersion: log.dispersion().filter(|_| waits),
        start_dispersion: sessions.map(|sessions| sessions.start_dispersion),
        ..RunEvidence::default()
    };
    Some(state_of(&evidence)).filter(|found| found.state == RunState::Synchronised)
}

/// Why figures are not those of a steady state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoadWarning {
    code: CaveatCode,
    pub what: String,
    /// What to do about it.
    pub hint: String,
}

impl LoadWarning {
    fn too_short(what: String, hint: impl Into<String>) -> Self {
        Self { code: CaveatCode::TooShort, what, hint: hint.into() }
    }

    pub fn caveat(&self) -> Caveat {
        Caveat::new(self.code, self.what.clone())
    }
}

/// What is wrong with the figures of a run under this load, each with a hint. `sessions`: those of the workload, if they begin at a rate.
pub(crate) fn load_warnings(
    config: &Experiment,
    report: &Report,
    load: Option<&LoadReport>,
    sessions: Option<&SteadySessions>,
) -> Vec<LoadWarning> {
    let of_load = |load| {
        let of_sessions = sessions.and_then(|sessions| of_sessions(load, sessions, report));
        of_sessions.or_else(|| of_state(config, load))
    };
    let mut warnings: Vec<LoadWarning> = load.and_then(of_load).into_iter().collect();
    let completed = report.cluster.counts.completed;
    if report.arrived == 0 && config.warmup > Micros::ZERO {
        let what = format!(
            "every request arrives in the first {} s, which `--warmup` leaves out",
            config.warmup.as_secs_f64()
        );
        warnings.push(LoadWarning::too_short(what, "shorten it, or simulate more requests"));
    }
    if (1..MIN_FOR_P99).contains(&completed) {
        let beyond = completed as f64 / 100.0;
        let what = format!("too short: p99 from {completed} requests, of which {beyond:.0} lie beyond it");
        warnings.push(LoadWarning::too_short(what, longer(config, 10 * MIN_FOR_P99)));
    }
    warnings
}

/// A run of sessions that is shorter than their steady state needs.
fn of_sessions(load: &LoadReport, sessions: &SteadySessions, report: &Report) -> Option<LoadWarning> {
    if load.state != Some(LoadState::TooShort) {
        return None;
    }
    let latency_s = mean_latency_s(report);
    let (warmup_s, needed_s) = (sessions.long_life_s(latency_s), sessions.needed_s(LIVES, latency_s));
    let SteadySessions { starts_per_s, rounds, .. } = sessions;
    let what = format!(
        "too short: {starts_per_s:.3} sessions/s × {rounds:.2} rounds are {:.2} requests/s in steady state, {:.2} arrived in {:.0} s; it \
         needs {needed_s:.0} s, the first {warmup_s:.0} s as warm-up",
        sessions.requests_per_s(),
        load.offered_rps,
        load.arrivals_s,
    );
    let requests = sessions.requests_per_s() * needed_s;
    Some(LoadWarning::too_short(what, format!("`--num-requests {requests:.0} --warmup {warmup_s:.0}s`")))
}

fn of_state(config: &Experiment, load: &LoadReport) -> Option<LoadWarning> {
    let LoadReport { offered_rps, served_rps, in_flight_growth_rps: growth, arrivals_s, .. } = *load;
    match load.state? {
        LoadState::Steady => None,
        LoadState::Overloaded => {
            let grew = format!("the number in flight changes by {growth:+.2} a second");
            let what = format!(
                "overloaded: {offered_rps:.2} requests arrive and {served_rps:.2} are served a second; {grew}, so \
                 latencies depend on the length of the run"
            );
            let hint = "lower the rate, or add instances with `--num-instances`".to_owned();
            Some(LoadWarning { code: CaveatCode::Overloaded, what, hint })
        }
        LoadState::TooShort => {
            let what = format!(
                "too short: the number in flight still grew when the last request arrived, after {arrivals_s:.1} s; the \
                 service may be overloaded, or may only have filled"
            );
            Some(LoadWarning::too_short(what, longer(config, 10 * MIN_FOR_P99)))
        }
    }
}

/// How to simulate more requests.
fn longer(config: &Experiment, requests: u64) -> String {
    match config.workload {
        WorkloadConfig::Synthetic(_) | WorkloadConfig::Specified(_) => format!("`--num-requests {requests}`"),
        WorkloadConfig::Trace(_) | WorkloadConfig::Recorded { .. } => {
            "replay more of the trace, or a longer one; `--repeat` replays it several times".to_owned()
        }
    }
}
