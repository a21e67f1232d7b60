//! A measured trace beside its simulation, request by request.
//!
//! Every request of the trace is simulated at its recorded time. Requests with a measured latency that complete in the
//! simulation are pairs; all figures are of pairs. Errors are simulated less measured, so that they are positive where the
//! simulation is slower.

mod figures;
mod report;

use std::collections::BTreeMap;

use blis_sim::ids::RequestId;
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::Outcome;
use blis_sim::request::{Name, Request};
use blis_sim::units::Micros;
use blis_workload::{RecordedTimes, Workload};
use rustc_hash::FxHashMap;

pub use figures::{ErrorInterval, LatencyErrors, StatisticErrors};
pub use report::{Calibration, ClientConstants, FittedConstants, PairCounts, WorstRequest};

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::measure::measure;
use crate::open;
use crate::service;
use crate::targets::NamedWorkload;

/// How a trace is compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct CalibrationOptions {
    /// Time between client and server, there and back, ms ≥ 0: added to simulated latencies.
    pub rtt_ms: f64,
    /// Fit the constants of the client to the first half of the pairs and show the errors of the second half with them.
    pub fit: bool,
}

/// The measured and the simulated latencies of one request, µs.
#[derive(Clone, Debug, PartialEq)]
struct LatencyPair {
    id: RequestId,
    arrival: Micros,
    session: Name,
    input_tokens: u32,
    output_tokens: u32,
    measured: RecordedTimes,
    simulated: RecordedTimes,
    preemptions: u32,
}

impl LatencyPair {
    /// Time per output token after the first, µs: measured and simulated.
    fn tpot_us(&self) -> Option<(f64, f64)> {
        let gaps = f64::from(self.output_tokens.checked_sub(1).filter(|&gaps| gaps > 0)?);
        let each = |times: &RecordedTimes| (times.e2e_us - times.ttft_us) / gaps;
        Some((each(&self.measured), each(&self.simulated)))
    }

    /// The pair with `rtt_us` added to both simulated latencies, and `per_token_us` to each simulated token after the first.
    fn with_client(&self, rtt_us: f64, per_token_us: f64) -> Self {
        let gaps = f64::from(self.output_tokens.saturating_sub(1));
        let ttft_us = self.simulated.ttft_us + rtt_us;
        let e2e_us = (self.simulated.e2e_us + rtt_us + per_token_us * gaps).max(ttft_us);
        Self { simulated: RecordedTimes { ttft_us, e2e_us, ..self.simulated }, ..self.clone() }
    }
}

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

/// The pairs, in the order of arrival, and the numbers of other requests.
struct MatchedPairs {
    pairs: Vec<LatencyPair>,
    counts: PairCounts,
}

impl MatchedPairs {
    fn new(
        ends: BTreeMap<RequestId, Outcome>,
        recorded: &FxHashMap<RequestId, RecordedTimes>,
        warmup: Micros,
        before_queue: impl Fn(u32) -> Micros,
    ) -> Self {
        let mut counts = PairCounts { requests: ends.len() as u64, ..PairCounts::default() };
        let mut pairs = Vec::new();
        for (id, outcome) in ends {
            let Some(&measured) = recorded.get(&id) else {
                counts.not_measured += 1;
                continue;
            };
            let Some(simulated) = simulated_times(&outcome, before_queue(outcome.input_tokens)) else {
                counts.not_simulated += 1;
                continue;
            };
            if outcome.arrival < warmup {
                counts.warm_up += 1;
                continue;
            }
            pairs.push(LatencyPair {
                id,
                arrival: outcome.arrival,
                session: outcome.tags.session,
                input_tokens: outcome.input_tokens,
                output_tokens: outcome.generated_tokens,
                measured,
                simulated,
                preemptions: outcome.preemptions,
            });
        }
        counts.pairs = pairs.len() as u64;
        pairs.sort_by_key(|pair| (pair.arrival, pair.id));
        Self { pairs, counts }
    }
}

/// The latencies of a request as its client sees them: to the first and to the last token. It was `before_queue` on its way to
/// the waiting queue.
fn simulated_times(outcome: &Outcome, before_queue: Micros) -> Option<RecordedTimes> {
    let ttft = outcome.ttft.filter(|_| outcome.completed())?;
    let last = ttft.saturating_add(outcome.itl_sum);
    let times = RecordedTimes::new(ttft.0 as f64, last.0 as f64)?;
    let queue_us = outcome.scheduling_delay.map(|delay| delay.saturating_sub(before_queue).0 as f64);
    Some(RecordedTimes { queue_us, preemptions: Some(outcome.preemptions), ..times })
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
