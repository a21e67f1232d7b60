//! The figures of a recording.

use std::collections::BTreeMap;
use std::fmt;

use blis_eval::error::RunError;
use blis_report::{Concludes, Conclusion, three_digits};
use blis_sim::metrics::Distribution;
use blis_sim::units::Micros;
use serde::Serialize;

use super::exchange::ExchangeEnd;
use super::record::{ObservedRequest, Recording};

/// Requests sent later than this after their planned time are late, µs.
const LATE_US: u64 = 10_000;
/// Share of late requests above which latencies are not to be trusted.
const MOST_LATE: f64 = 0.01;

/// What `blis observe` prints with `--output json`; docs/observe.md defines it. Latencies are those of requests that
/// completed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObserveReport {
    /// Requests that were to be sent.
    pub planned_requests: u64,
    /// Of these, those that were sent, or for which a connection was tried.
    pub sent_requests: u64,
    /// Requests by how they ended: completed, rejected, http-error, not-connected, tls-error, disconnected, truncated,
    /// malformed, timed-out, interrupted, or unsent if the user ended the run first. Unit: requests.
    pub ends: BTreeMap<&'static str, u64>,
    /// `planned_requests` less all of `ends`; 0 unless this program has a defect.
    pub unaccounted_requests: u64,
    /// Duration of the run.
    pub duration_s: f64,
    /// Completed requests per second. Unit: requests/s.
    pub completed_per_s: f64,
    /// Output tokens of completed requests per second. Unit: tokens/s.
    pub output_tokens_per_s: f64,
    /// Prompt tokens of completed requests, as the server counted them, else as planned.
    pub input_tokens: u64,
    /// Output tokens of completed requests, as the server counted them, else parts with text.
    pub output_tokens: u64,
    /// Completed requests with another number of tokens than planned. Unit: requests.
    pub other_lengths: u64,
    /// Connections that were opened for requests. Unit: connections.
    pub connections: u64,
    /// How late the load generator was.
    pub lateness: Lateness,
    /// From sending to the first part with text.
    pub ttft: LatencyFigures,
    /// Time per output token after the first, of requests with two or more.
    pub tpot: LatencyFigures,
    /// Between parts with text, with `--record-itl`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub itl: Option<LatencyFigures>,
    /// From sending to the last part with text.
    pub e2e: LatencyFigures,
    /// From the planned time to the last part with text: with `--max-in-flight` it includes the wait for a slot.
    pub e2e_from_plan: LatencyFigures,
}

impl Concludes for ObserveReport {
    fn conclusion(&self) -> Conclusion {
        let ends =
            self.ends.iter().filter(|(end, _)| **end != "completed").map(|(end, count)| format!("{count} {end}"));
        let others = ends.collect::<Vec<_>>();
        let others = if others.is_empty() { String::new() } else { format!("; {}", others.join(", ")) };
        let completed = self.ends.get("completed").copied().unwrap_or(0);
        Conclusion::measured(format!(
            "{completed} of {} requests completed, {} a second, {} sent{others}",
            self.planned_requests,
            three_digits(self.completed_per_s),
            self.sent_requests
        ))
    }
}

/// From the planned time of requests to the moment at which the load generator came to them, before a limit of
/// concurrency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lateness {
    /// Median of the values.
    pub p50_ms: f64,
    /// 99th percentile of the values.
    pub p99_ms: f64,
    /// Maximum of the values.
    pub max_ms: f64,
    /// Requests that were more than 10 ms late. Unit: share.
    pub late_share: f64,
}

/// A distribution of measured latencies; `null` without any.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LatencyFigures {
    /// Number of the values. Unit: values.
    pub count: u64,
    /// Mean of the values.
    pub mean_ms: Option<f64>,
    /// Median of the values.
    pub p50_ms: Option<f64>,
    /// 90th percentile of the values.
    pub p90_ms: Option<f64>,
    /// 99th percentile of the values.
    pub p99_ms: Option<f64>,
}

impl LatencyFigures {
    fn from_samples(samples: impl Iterator<Item = u64>) -> Self {
        let mut samples: Vec<Micros> = samples.map(Micros).collect();
        let Distribution { count, mean_ms, p50_ms, p90_ms, p99_ms, .. } = Distribution::from_samples(&mut samples);
        let some = |ms: f64| (count > 0).then_some(ms);
        Self { count, mean_ms: some(mean_ms), p50_ms: some(p50_ms), p90_ms: some(p90_ms), p99_ms: some(p99_ms) }
    }
}

impl Recording {
    /// The figures of the run.
    #[must_use]
    pub fn report(&self) -> ObserveReport {
        let mut ends: BTreeMap<&'static str, u64> = BTreeMap::new();
        for record in &self.records {
            *ends.entry(record.exchange.end.as_ref().map_or("unknown", |end| end.into_str())).or_default() += 1;
        }
        if self.unsent > 0 {
            ends.insert("unsent", self.unsent);
        }
        let planned = self.records.len() as u64 + self.unsent;
        let completed: Vec<&ObservedRequest> = self.records.iter().filter(|record| record.completed()).collect();
        let seconds = self.duration.as_secs_f64();
        let output_tokens = completed.iter().filter_map(|record| record.output_tokens()).map(u64::from).sum::<u64>();
        let input = |record: &&ObservedRequest| record.exchange.prompt_tokens.unwrap_or(record.request.input_tokens);
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let since = |from: Option<u64>, to: Option<u64>| Some(to?.saturating_sub(from?));
        ObserveReport {
            planned_requests: planned,
            sent_requests: self.records.len() as u64,
            unaccounted_requests: planned - ends.values().sum::<u64>().min(planned),
            ends,
            duration_s: seconds,
            completed_per_s: per_second(completed.len() as u64),
            output_tokens_per_s: per_second(output_tokens),
            input_tokens: completed.iter().map(|record| u64::from(input(record))).sum(),
            output_tokens,
            other_lengths: completed.iter().filter(|record| record.has_other_length()).count() as u64,
            connections: self.records.iter().filter(|record| record.exchange.connected_in_us.is_some()).count() as u64,
            lateness: Lateness::from_records(&self.records),
            ttft: LatencyFigures::from_samples(
                completed.iter().filter_map(|record| since(record.exchange.sent_us, record.exchange.first_us)),
            ),
            tpot: LatencyFigures::from_samples(completed.iter().filter_map(|record| record.tpot_us())),
            itl: self.settings.record_itl.then(|| {
                let parts = completed.iter().map(|record| &record.exchange.chunks_us);
                LatencyFigures::from_samples(parts.flat_map(|times| times.windows(2).map(|pair| pair[1] - pair[0])))
            }),
            e2e: LatencyFigures::from_samples(
                completed.iter().filter_map(|record| since(record.exchange.sent_us, record.exchange.last_us)),
            ),
            e2e_from_plan: LatencyFigures::from_samples(
                completed.iter().filter_map(|record| since(Some(record.planned.0), record.exchange.last_us)),
            ),
        }
    }

    /// The error of a run of which no request completed, so that there is nothing to measure; `None` if one did, none was to be sent, or
    /// the user ended it first.
    #[must_use]
    pub fn error(&self) -> Option<RunError> {
        if self.is_interrupted || self.records.is_empty() || self.records.iter().any(ObservedRequest::completed) {
            return None;
        }
        let what = format!("none of the {} requests completed{}", self.records.len(), self.first_failure());
        Some(RunError::runtime(what).hint(
            "is the model of `--model` served there, does the server need a key (BLIS_API_KEY), or is the load beyond what it admits? \
             The trace has the message of every request",
        ))
    }

    /// How the first request ended that did not complete.
    fn first_failure(&self) -> String {
        let mut ends = self.records.iter().filter_map(|record| record.exchange.end.as_ref());
        let first = ends.find(|end| !matches!(end, ExchangeEnd::Completed | ExchangeEnd::Interrupted));
        first.map_or_else(String::new, |end| format!("; the first: {end}"))
    }

    /// What makes the figures doubtful: (what, what to do).
    #[must_use]
    pub fn warnings(&self) -> Vec<(String, String)> {
        let report = self.report();
        let mut warnings = Vec::new();
        if report.lateness.late_share > MOST_LATE {
            let percent = 100.0 * report.lateness.late_share;
            warnings.push((
                format!("{percent:.1} % of the requests were sent more than 10 ms late: latencies are those of a lighter load"),
                "give the load generator a core of its own, or lower the rate (coordinated omission)".to_owned(),
            ));
        }
        let failed = self.records.iter().filter(|record| !record.completed()).count();
        if failed > 0 && !self.is_interrupted && failed < self.records.len() {
            warnings.push((
                format!("{failed} of {} requests did not complete{}", self.records.len(), self.first_failure()),
                "latencies are those of the others; the trace has the message of every request".to_owned(),
            ));
        }
        if report.other_lengths > 0 {
            let count = report.other_lengths;
            warnings.push((
                format!("{count} completed requests have other numbers of tokens than planned"),
                "`--prompts ids` has exact prompts; outputs are exact where the server knows `ignore_eos`".to_owned(),
            ));
        }
        if self.is_interrupted {
            warnings.push((
                format!("the run was interrupted, and {} requests were not sent", self.unsent),
                "the trace has the requests that were sent".to_owned(),
            ));
        }
        warnings
    }
}

impl ObservedRequest {
    fn has_other_length(&self) -> bool {
        let Self { request, exchange, .. } = self;
        let other_output = self.output_tokens().is_some_and(|tokens| tokens != request.output_tokens.max(1));
        other_output || exchange.prompt_tokens.is_some_and(|tokens| tokens != request.input_tokens)
    }

    /// Time per output token after the first, µs.
    fn tpot_us(&self) -> Option<u64> {
        let (first, last) = self.exchange.first_us.zip(self.exchange.last_us)?;
        let tokens = self.output_tokens().filter(|&tokens| tokens > 1)?;
        Some((last.saturating_sub(first) as f64 / f64::from(tokens - 1)).round() as u64)
    }
}

impl Lateness {
    fn from_records(records: &[ObservedRequest]) -> Self {
        let mut late: Vec<Micros> = records.iter().map(|record| record.due.saturating_sub(record.planned)).collect();
        let count = late.iter().filter(|late| late.0 > LATE_US).count();
        let late_share = count as f64 / late.len().max(1) as f64;
        let Distribution { p50_ms, p99_ms, max_ms, .. } = Distribution::from_samples(&mut late);
        Self { p50_ms, p99_ms, max_ms, late_share }
    }
}

impl fmt::Display for ObserveReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends: Vec<String> = self.ends.iter().map(|(end, count)| format!("{count} {end}")).collect();
        writeln!(f, "requests    {} planned, {} sent: {}", self.planned_requests, self.sent_requests, ends.join(", "))?;
        writeln!(
            f,
            "throughput  {:.2} requests/s, {:.1} output tokens/s over {:.1} s",
            self.completed_per_s, self.output_tokens_per_s, self.duration_s
        )?;
        writeln!(f, "tokens      {} in, {} out", self.input_tokens, self.output_tokens)?;
        let Lateness { p50_ms, p99_ms, max_ms, .. } = self.lateness;
        writeln!(f, "lateness    p50 {p50_ms:.2} ms, p99 {p99_ms:.2} ms, max {max_ms:.2} ms")?;
        let rows = [
            ("TTFT", Some(&self.ttft)),
            ("TPOT", Some(&self.tpot)),
            ("ITL", self.itl.as_ref()),
            ("E2E", Some(&self.e2e)),
        ];
        writeln!(f, "\nms          {:>10} {:>10} {:>10} {:>10}", "mean", "p50", "p90", "p99")?;
        for (name, latencies) in rows {
            let Some(latencies) = latencies else { continue };
            let cell = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}"));
            let LatencyFigures { mean_ms, p50_ms, p90_ms, p99_ms, .. } = *latencies;
            let [mean, p50, p90, p99] = [mean_ms, p50_ms, p90_ms, p99_ms].map(cell);
            writeln!(f, "{name:<11} {mean:>10} {p50:>10} {p90:>10} {p99:>10}")?;
        }
        Ok(())
    }
}
