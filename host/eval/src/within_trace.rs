//! Intervals of differences within one trace.
//!
//! A trace has the same requests under every seed: runs that differ in the choice among ties only say nothing about other traffic. What does is
//! the trace itself, request by request: the differences of latencies of the same request under two policies, in order of arrival, which depend on
//! each other ([`blis_stats`]). Figures that are none of single requests have no interval on one trace.

use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::{Outcome, Status};
use blis_sim::units::Micros;
use blis_stats::{
    BetterSide, ComparisonRule, MeanEstimate, MeanInterval, PairedRun, compare_paired, quantile_difference, with_lost,
};

use crate::figures::Figure;
use crate::paired::{CONFIDENCE, ConfidenceInterval};

/// The latencies of all requests of a run.
#[derive(Debug, Default)]
pub(crate) struct RequestLatencies {
    warmup: Micros,
    latencies: Vec<(u32, RequestLatency)>,
}

#[derive(Clone, Copy, Debug)]
struct RequestLatency {
    /// For a request that timed out the time until then; `None` if it was lost otherwise.
    ttft_ms: Option<f64>,
    /// As the TTFT.
    e2e_ms: Option<f64>,
}

/// One of the latencies of a request, ms.
type LatencyOf = fn(&RequestLatency) -> Option<f64>;

impl RequestLatencies {
    pub fn new(warmup: Micros) -> Self {
        Self { warmup, latencies: Vec::new() }
    }

    fn add(&mut self, outcome: &Outcome) {
        if outcome.arrival < self.warmup {
            return;
        }
        let timed_out = (outcome.status == Status::TimedOut).then(|| outcome.ended_at.saturating_sub(outcome.arrival));
        let ms = |time: Option<Micros>| time.filter(|_| outcome.completed()).or(timed_out).map(Micros::as_millis_f64);
        let latency = RequestLatency { ttft_ms: ms(outcome.ttft), e2e_ms: ms(outcome.e2e) };
        self.latencies.push((outcome.id.0, latency));
    }

    /// In order of arrival, which is that of their numbers.
    pub fn sorted(mut self) -> Self {
        self.latencies.sort_by_key(|(id, _)| *id);
        self
    }

    /// `latency` of all requests; lost ones count as the largest of the run.
    fn series(&self, latency: LatencyOf) -> Vec<f64> {
        let values: Vec<Option<f64>> = self.latencies.iter().map(|(_, one)| latency(one)).collect();
        with_lost(&values, None)
    }
}

impl Observer for RequestLatencies {
    fn interests(&self) -> Interests {
        Interests::OUTCOMES
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        if let SimEvent::Outcome(outcome) = event {
            self.add(outcome);
        }
    }
}

/// What the requests of a trace say of the difference of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WithinTrace {
    /// The limits of the difference, as distances from it: one below 0, one above.
    Limits(ConfidenceInterval),
    /// About so many times as many requests would say something.
    TooShort { times: f64 },
}

/// The interval of `figure`, B − A, within a trace; `None` if the figure is none of single requests, or the runs have other requests.
pub(crate) fn within_trace(figure: Figure, a: &RequestLatencies, b: &RequestLatencies) -> Option<WithinTrace> {
    let (latency, quantile): (LatencyOf, Option<f64>) = match figure {
        Figure::MeanTtft => (|one| one.ttft_ms, None),
        Figure::P50Ttft => (|one| one.ttft_ms, Some(0.5)),
        Figure::P90Ttft => (|one| one.ttft_ms, Some(0.9)),
        Figure::P95Ttft => (|one| one.ttft_ms, Some(0.95)),
        Figure::P99Ttft => (|one| one.ttft_ms, Some(0.99)),
        Figure::MeanE2e => (|one| one.e2e_ms, None),
        Figure::P50E2e => (|one| one.e2e_ms, Some(0.5)),
        Figure::P90E2e => (|one| one.e2e_ms, Some(0.9)),
        Figure::P95E2e => (|one| one.e2e_ms, Some(0.95)),
        Figure::P99E2e => (|one| one.e2e_ms, Some(0.99)),
        _ => return None,
    };
    let same = a.latencies.len() == b.latencies.len() && a.latencies.iter().zip(&b.latencies).all(|(a, b)| a.0 == b.0);
    if !same || a.latencies.is_empty() {
        return None;
    }
    let (a, b) = (a.series(latency), b.series(latency));
    let Some(q) = quantile else {
        let pair = [PairedRun { a: &a, b: &b }];
        let difference = compare_paired(&pair, &ComparisonRule::standard(BetterSide::Less)).ok()?.difference;
        let too_short = || WithinTrace::TooShort { times: difference.times_more.unwrap_or(1.0) };
        return Some(difference.interval.map_or_else(too_short, WithinTrace::limits));
    };
    Some(match quantile_difference(&[&a], &[&b], q, CONFIDENCE).ok()? {
        MeanEstimate::Known(interval) => WithinTrace::limits(interval),
        MeanEstimate::TooShort(short) => WithinTrace::TooShort { times: short.factor },
    })
}

impl WithinTrace {
    fn limits(interval: MeanInterval) -> Self {
        let MeanInterval { estimate, low, high, .. } = interval;
        Self::Limits(ConfidenceInterval { low: low - estimate, high: high - estimate })
    }

    /// The limits, if there are any.
    pub fn known(self) -> Option<ConfidenceInterval> {
        match self {
            Self::Limits(limits) => Some(limits),
            Self::TooShort { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use blis_sim::ids::RequestId;
    use blis_sim::request::Request;
    use blis_sim::rng::Stream;
    use rand::RngExt as _;

    use super::*;

    /// Latencies of requests that take `factor` times a random time from 50 to 150 ms.
    fn run(requests: u32, factor: f64) -> RequestLatencies {
        let (mut log, drawn) = (RequestLatencies::new(Micros::ZERO), Stream::new(1, "latencies"));
        // Requests end in another order than they arrive.
        for id in (0..requests).rev() {
            let ms = factor * drawn.at(u64::from(id)).random_range(50.0..150.0);
            let time = Some(Micros::from_secs_f64(ms / 1e3));
            let request = Request::new(RequestId(id), Micros(u64::from(id)), 10, 1);
            log.add(&Outcome { ttft: time, e2e: time, ..Outcome::new(&request, Status::Completed) });
        }
        log.sorted()
    }

    #[test]
    fn a_difference_of_a_tenth_is_seen_in_nine_thousand_requests_and_not_in_four_hundred() {
        let long = within_trace(Figure::MeanTtft, &run(9000, 1.0), &run(9000, 0.9)).and_then(WithinTrace::known);
        let ConfidenceInterval { low, high } = long.expect("9000 requests are enough");
        assert!(low > -2.0 && high < 2.0, "the difference is 10 ms: {low} {high}");
        let short = within_trace(Figure::MeanTtft, &run(400, 1.0), &run(400, 0.9));
        assert!(matches!(short, Some(WithinTrace::TooShort { times }) if times >= 5.0), "{short:?}");
        let percentile = within_trace(Figure::P99E2e, &run(9000, 1.0), &run(9000, 0.9));
        assert!(matches!(percentile, Some(WithinTrace::TooShort { .. })), "p99 needs 20 000 requests: {percentile:?}");
    }

    #[test]
    fn a_policy_beside_itself_does_not_differ() {
        let same = within_trace(Figure::MeanE2e, &run(5000, 1.0), &run(5000, 1.0));
        assert_eq!(same, Some(WithinTrace::Limits(ConfidenceInterval { low: 0.0, high: 0.0 })));
        assert_eq!(within_trace(Figure::Throughput, &run(5000, 1.0), &run(5000, 1.0)), None);
        assert_eq!(within_trace(Figure::MeanE2e, &run(5000, 1.0), &run(4000, 1.0)), None, "other requests");
    }
}
