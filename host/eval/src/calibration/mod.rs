//! A measured trace beside its simulation, request by request.
//!
//! Every request of the trace is simulated at its recorded time. Requests with a measured latency that complete in the
//! simulation are pairs; all figures are of pairs. Errors are simulated less measured, so that they are positive where the
//! simulation is slower.

mod figures;
mod pairs;
mod report;

use std::collections::BTreeMap;

use blis_sim::ids::RequestId;
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::Outcome;
use blis_sim::request::Request;
use blis_workload::{RecordedTimes, Workload};
use rustc_hash::FxHashMap;

pub use figures::{ErrorInterval, LatencyErrors, StatisticErrors};
use pairs::MatchedPairs;
pub use pairs::PairCounts;
pub use report::{Calibration, CalibrationOptions, ClientConstants, FittedConstants, WorstRequest};

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::measure::measure;
use crate::open;
use crate::service;
use crate::targets::NamedWorkload;

/// Simulates the trace of `config` and compares it with what was measured.
///
/// # Errors
/// If the trace has no measured latencies, or as [`run`](crate::run::run).
pub fn calibrate(config: &Experiment, options: CalibrationOptions) -> Result<Calibration, RunError> {
    let deployment = open::resolve(config)?;
    service::try_scripts(config)?;
    let workload = open::open_measured(config)?;
    let Workload { requests, follow_ups, names, slo_targets, recorded, notes, skipped, .. } = workload;
    if recorded.is_empty() {
        return Err(RunError::usage("the trace has no measured latencies").hint(
            "record one with `blis observe`, or read results of vllm bench, AIPerf, guidellm or OpenTelemetry with latencies",
        ));
    }
    let recorded: FxHashMap<RequestId, RecordedTimes> = recorded.into_iter().collect();
    let named = NamedWorkload { names: &names, slo_targets: &slo_targets };
    let measured = measure(config, &deployment, named, requests, follow_ups, SimulatedEnds::default())?;
    let SimulatedEnds { ends, shares_blocks } = measured.observer;
    let pairs = MatchedPairs::new(ends, &recorded, config.warmup, |tokens| deployment.latency.queueing_time(tokens));
    let mut unknown: Vec<String> = Vec::new();
    if recorded.values().all(|times| times.queue_us.is_none()) {
        unknown
            .push("the time in the waiting queue: it is part of TTFT, and its error is not known by itself".to_owned());
    }
    if recorded.values().all(|times| times.preemptions.is_none()) {
        unknown.push("preemptions".to_owned());
    }
    if !shares_blocks {
        unknown.push("which prompts have equal blocks: the simulation found nothing in the prefix cache".to_owned());
    }
    if skipped.count > 0 {
        unknown.push(format!("{} lines that could not be read", skipped.count));
    }
    let incidents = crate::measure::plugin_warnings(config, &measured.incidents);
    Ok(Calibration::new(pairs, &names, options, config.seed, unknown, notes, incidents))
}

/// An observer: the outcome of every request.
#[derive(Default)]
struct SimulatedEnds {
    ends: BTreeMap<RequestId, Outcome>,
    /// Whether requests name blocks that others may have, too.
    shares_blocks: bool,
}

impl SimulatedEnds {
    fn arrived(&mut self, request: &Request) {
        self.shares_blocks |= !request.content.spans().is_empty();
    }
}

impl Observer for SimulatedEnds {
    fn interests(&self) -> Interests {
        Interests::ARRIVALS | Interests::OUTCOMES
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        match event {
            SimEvent::Arrival(request) => self.arrived(request),
            SimEvent::Outcome(outcome) => drop(self.ends.insert(outcome.id, **outcome)),
            _ => {}
        }
    }
}
