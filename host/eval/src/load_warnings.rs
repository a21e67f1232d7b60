//! Warnings about figures that are not those of a steady state.

use blis_report::{LoadReport, LoadState};
use blis_sim::metrics::Report;
use blis_sim::units::Micros;

use crate::experiment::Experiment;
use crate::workload_config::WorkloadConfig;

/// Fewer completed requests leave less than ten beyond the 99th percentile.
const MIN_FOR_P99: u64 = 1000;

/// What is wrong with the figures of a run under this load, each with a hint.
pub fn load_warnings(config: &Experiment, report: &Report, load: Option<&LoadReport>) -> Vec<(String, String)> {
    let mut warnings: Vec<(String, String)> = load.and_then(|load| of_state(config, load)).into_iter().collect();
    let completed = report.cluster.counts.completed;
    if report.arrived == 0 && config.warmup > Micros::ZERO {
        let what = format!(
            "every request arrives in the first {} s, which `--warmup` leaves out",
            config.warmup.as_secs_f64()
        );
        warnings.push((what, "shorten it, or simulate more requests".to_owned()));
    }
    if (1..MIN_FOR_P99).contains(&completed) {
        let beyond = completed as f64 / 100.0;
        let what = format!("too short: p99 from {completed} requests, of which {beyond:.0} lie beyond it");
        warnings.push((what, longer(config, 10 * MIN_FOR_P99)));
    }
    warnings
}

fn of_state(config: &Experiment, load: &LoadReport) -> Option<(String, String)> {
    let LoadReport { offered_rps, served_rps, in_flight_growth_rps: growth, arrivals_s, .. } = *load;
    match load.state? {
        LoadState::Steady => None,
        LoadState::Overloaded => {
            let grew = format!("the number in flight changes by {growth:+.2} a second");
            let what = format!(
                "overloaded: {offered_rps:.2} requests arrive and {served_rps:.2} are served a second; {grew}, so \
                 latencies depend on the length of the run"
            );
            Some((what, "lower the rate, or add instances with `--num-instances`".to_owned()))
        }
        LoadState::TooShort => {
            let what = format!(
                "too short: the number in flight still grew when the last request arrived, after {arrivals_s:.1} s; the \
                 service may be overloaded, or may only have filled"
            );
            Some((what, longer(config, 10 * MIN_FOR_P99)))
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
