//! Pairs of measured and simulated latencies.

use std::collections::BTreeMap;

use blis_sim::ids::RequestId;
use blis_sim::outcome::Outcome;
use blis_sim::request::Name;
use blis_sim::units::Micros;
use blis_workload::RecordedTimes;
use rustc_hash::FxHashMap;
use serde::Serialize;

/// The pairs, in the order of arrival, and the numbers of other requests.
pub(super) struct MatchedPairs {
    pub pairs: Vec<LatencyPair>,
    pub counts: PairCounts,
}

impl MatchedPairs {
    pub fn new(
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

/// The measured and the simulated latencies of one request, µs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LatencyPair {
    pub id: RequestId,
    pub arrival: Micros,
    pub session: Name,
    pub input_tokens: u32,
    pub output_tokens: u32,
    pub measured: RecordedTimes,
    pub simulated: RecordedTimes,
    pub preemptions: u32,
}

impl LatencyPair {
    /// Time per output token after the first, µs: measured and simulated.
    pub fn tpot_us(&self) -> Option<(f64, f64)> {
        let gaps = f64::from(self.output_tokens.checked_sub(1).filter(|&gaps| gaps > 0)?);
        let each = |times: &RecordedTimes| (times.e2e_us - times.ttft_us) / gaps;
        Some((each(&self.measured), each(&self.simulated)))
    }

    /// The pair with `rtt_us` added to both simulated latencies, and `per_token_us` to each simulated token after the first.
    pub fn with_client(&self, rtt_us: f64, per_token_us: f64) -> Self {
        let gaps = f64::from(self.output_tokens.saturating_sub(1));
        let ttft_us = self.simulated.ttft_us + rtt_us;
        let e2e_us = (self.simulated.e2e_us + rtt_us + per_token_us * gaps).max(ttft_us);
        Self { simulated: RecordedTimes { ttft_us, e2e_us, ..self.simulated }, ..self.clone() }
    }
}

/// Numbers of requests of a calibration; `requests` is the sum of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PairCounts {
    /// Requests of the trace. Unit: requests.
    pub requests: u64,
    /// With a measured and a simulated latency. Unit: requests.
    pub pairs: u64,
    /// Without a measured latency: they failed, or it was not recorded. Unit: requests.
    pub not_measured: u64,
    /// Measured, but not completed in the simulation. Unit: requests.
    pub not_simulated: u64,
    /// Pairs that arrived before `--warmup`. Unit: requests.
    pub warm_up: u64,
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
