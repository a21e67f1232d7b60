//! The result of a calibration, as a document and as text.

use blis_report::{Caveat, CaveatCode, Concludes, Conclusion, ConclusionKind, percentile};
use std::fmt;

use blis_workload::Names;
use serde::Serialize;

use super::figures::{LatencyErrors, PairedValues, StatisticErrors};
use super::pairs::{LatencyPair, MatchedPairs, PairCounts};

/// Requests with the largest errors that are shown.
const WORST: usize = 10;

/// What `blis calibrate` prints with `--output json`; docs/observe.md defines it. Errors are simulated less measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// Numbers of requests, compared or not.
    pub requests: PairCounts,
    /// Constants of the client that were added to simulated latencies.
    pub client: ClientConstants,
    /// From sending to the first token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft: Option<LatencyErrors>,
    /// Time per output token after the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpot: Option<LatencyErrors>,
    /// From sending to the last token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e2e: Option<LatencyErrors>,
    /// In the waiting queue of the engine, if that was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<LatencyErrors>,
    /// From the first to the last token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decode: Option<LatencyErrors>,
    /// Constants of the client fitted to the first half of the requests, with `--fit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fitted: Option<FittedConstants>,
    /// The ten requests with the largest absolute errors of the end-to-end latency.
    pub worst: Vec<WorstRequest>,
    /// What the trace does not record.
    pub not_recorded: Vec<String>,
    /// Notes about the trace.
    pub notes: Vec<String>,
    /// What makes the figures doubtful: (what, what to do).
    #[serde(skip)]
    pub warnings: Vec<(String, String)>,
}

impl Concludes for Calibration {
    fn conclusion(&self) -> Conclusion {
        let Some((name, errors)) =
            [("E2E", &self.e2e), ("TTFT", &self.ttft)].into_iter().find_map(|(name, of)| Some((name, of.as_ref()?)))
        else {
            return Conclusion::new(ConclusionKind::UNDECIDED, "Undecided: no request was measured and simulated");
        };
        let percent = |errors: &StatisticErrors| {
            errors.error_percent.map_or("unknown".to_owned(), |error| format!("{error:+.1} %"))
        };
        let text = format!(
            "{name} {} in the mean, {} at p99, over {} requests (simulated beside measured)",
            percent(&errors.mean),
            percent(&errors.p99),
            errors.count
        );
        Conclusion::measured(text)
    }

    fn caveats(&self) -> Vec<Caveat> {
        self.warnings.iter().map(|(what, _)| Caveat::new(CaveatCode::Warning, what.clone())).collect()
    }
}

/// How a trace is compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct CalibrationOptions {
    /// Time between client and server, there and back, ms ≥ 0: added to simulated latencies.
    pub rtt_ms: f64,
    /// Fit the constants of the client to the first half of the pairs and show the errors of the second half with them.
    pub fit: bool,
}

/// Time that the simulation does not have: between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ClientConstants {
    /// Added to TTFT and end-to-end latency.
    pub rtt_ms: f64,
    /// Added for every output token after the first.
    pub per_token_ms: f64,
}

/// Constants of the client fitted to the first half of the requests, and the errors of the second half with them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FittedConstants {
    /// Medians of measured less simulated latencies, at least 0; they include those of `client`.
    pub constants: ClientConstants,
    /// Errors of the second half.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft: Option<LatencyErrors>,
    /// Errors of the second half.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e2e: Option<LatencyErrors>,
}

/// A request with a large error.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorstRequest {
    /// Its number in the trace, as `request_7`.
    pub request: String,
    /// Name of its session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// When it was sent.
    pub sent_s: f64,
    /// Length of its prompt.
    pub input_tokens: u32,
    /// Length of its output.
    pub output_tokens: u32,
    /// Its measured end-to-end latency.
    pub measured_ms: f64,
    /// Its simulated end-to-end latency.
    pub simulated_ms: f64,
    /// Simulated less measured, before the first token.
    pub ttft_error_ms: f64,
    /// Simulated less measured, after the first token.
    pub decode_error_ms: f64,
    /// Where the difference arises.
    pub reason: String,
}

impl Calibration {
    pub(super) fn new(
        MatchedPairs { pairs, counts }: MatchedPairs,
        names: &Names,
        options: CalibrationOptions,
        seed: u64,
        not_recorded: Vec<String>,
        notes: Vec<String>,
        warnings: Vec<(String, String)>,
    ) -> Self {
        let client = ClientConstants { rtt_ms: options.rtt_ms, per_token_ms: 0.0 };
        let fitted = options.fit.then(|| FittedConstants::fit(&pairs, seed)).flatten();
        let pairs: Vec<LatencyPair> = pairs.iter().map(|pair| pair.with_client(options.rtt_ms * 1e3, 0.0)).collect();
        let of = |latency: fn(&LatencyPair) -> Option<(f64, f64)>| PairedValues::new(&pairs, latency).errors(seed);
        Self {
            requests: counts,
            client,
            ttft: of(ttft_us),
            tpot: of(LatencyPair::tpot_us),
            e2e: of(e2e_us),
            queue: of(|pair| Some((pair.measured.queue_us?, pair.simulated.queue_us?))),
            decode: of(|pair| Some((decode_us(pair).0, decode_us(pair).1))),
            fitted,
            worst: worst(&pairs, names),
            not_recorded,
            notes,
            warnings,
        }
    }
}

fn ttft_us(pair: &LatencyPair) -> Option<(f64, f64)> {
    Some((pair.measured.ttft_us, pair.simulated.ttft_us))
}

fn e2e_us(pair: &LatencyPair) -> Option<(f64, f64)> {
    Some((pair.measured.e2e_us, pair.simulated.e2e_us))
}

fn decode_us(pair: &LatencyPair) -> (f64, f64) {
    (pair.measured.e2e_us - pair.measured.ttft_us, pair.simulated.e2e_us - pair.simulated.ttft_us)
}

impl FittedConstants {
    /// Fits the constants; `None` with fewer than two pairs.
    fn fit(pairs: &[LatencyPair], seed: u64) -> Option<Self> {
        let (first, second) = pairs.split_at(pairs.len() / 2);
        if first.is_empty() {
            return None;
        }
        let median = |values: Vec<f64>| {
            let mut values = values;
            values.sort_by(f64::total_cmp);
            percentile(&values, 50.0).max(0.0)
        };
        let rtt_us = median(first.iter().map(|pair| pair.measured.ttft_us - pair.simulated.ttft_us).collect());
        let gaps = first.iter().filter_map(LatencyPair::tpot_us).map(|(measured, simulated)| measured - simulated);
        let per_token_us = median(gaps.collect());
        let second: Vec<LatencyPair> = second.iter().map(|pair| pair.with_client(rtt_us, per_token_us)).collect();
        let of = |latency: fn(&LatencyPair) -> Option<(f64, f64)>| PairedValues::new(&second, latency).errors(seed);
        let constants = ClientConstants { rtt_ms: rtt_us / 1e3, per_token_ms: per_token_us / 1e3 };
        Some(Self { constants, ttft: of(ttft_us), e2e: of(e2e_us) })
    }
}

fn worst(pairs: &[LatencyPair], names: &Names) -> Vec<WorstRequest> {
    let error = |pair: &LatencyPair| (pair.simulated.e2e_us - pair.measured.e2e_us).abs();
    let mut order: Vec<&LatencyPair> = pairs.iter().filter(|pair| error(pair) > 0.0).collect();
    order.sort_by(|one, other| error(other).total_cmp(&error(one)).then(one.id.cmp(&other.id)));
    let session = |pair: &LatencyPair| {
        let text = blis_sim::request::session_text(names.texts(), pair.session).into_owned();
        (!text.is_empty()).then_some(text)
    };
    order
        .into_iter()
        .take(WORST)
        .map(|pair| WorstRequest {
            request: format!("request_{}", pair.id),
            session: session(pair),
            sent_s: pair.arrival.as_secs_f64(),
            input_tokens: pair.input_tokens,
            output_tokens: pair.output_tokens,
            measured_ms: pair.measured.e2e_us / 1e3,
            simulated_ms: pair.simulated.e2e_us / 1e3,
            ttft_error_ms: (pair.simulated.ttft_us - pair.measured.ttft_us) / 1e3,
            decode_error_ms: (decode_us(pair).1 - decode_us(pair).0) / 1e3,
            reason: reason(pair),
        })
        .collect()
}

/// Which stage has the larger part of the error, and what is known of it.
fn reason(pair: &LatencyPair) -> String {
    let ms = |us: f64| format!("{:.1} ms", us / 1e3);
    let (before, after) = (pair.simulated.ttft_us - pair.measured.ttft_us, decode_us(pair).1 - decode_us(pair).0);
    let mut text = if before.abs() >= after.abs() {
        let simulated = pair.simulated.queue_us.map(|us| format!("{} in the simulation", ms(us)));
        let measured = pair.measured.queue_us.map(|us| format!("{} measured", ms(us)));
        let queue: Vec<String> = [measured, simulated].into_iter().flatten().collect();
        format!("before the first token; in the queue: {}", queue.join(", "))
    } else {
        match pair.tpot_us() {
            Some((measured, simulated)) => {
                format!("after the first token: {} per token measured, {} simulated", ms(measured), ms(simulated))
            }
            None => "after the first token, of which there is one".to_owned(),
        }
    };
    if pair.preemptions > 0 {
        text.push_str(&format!("; preempted {} times in the simulation", pair.preemptions));
    }
    match pair.measured.preemptions {
        Some(count) if count > 0 => text.push_str(&format!("; preempted {count} times when measured")),
        _ => {}
    }
    text
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PairCounts { requests, pairs, not_measured, not_simulated, warm_up } = self.requests;
        writeln!(f, "Compared          {pairs} of {requests} requests")?;
        for (count, what) in [
            (not_measured, "without a measured latency"),
            (not_simulated, "not completed in the simulation"),
            (warm_up, "in the warm-up"),
        ] {
            if count > 0 {
                writeln!(f, "                  {count} {what}")?;
            }
        }
        writeln!(f, "\nms                measured  simulated     error      95 % interval")?;
        let rows = [
            ("TTFT", &self.ttft),
            ("TPOT", &self.tpot),
            ("E2E", &self.e2e),
            ("queue", &self.queue),
            ("decode", &self.decode),
        ];
        rows.into_iter().try_for_each(|(name, errors)| write_errors(f, name, errors.as_ref()))?;
        if let Some(FittedConstants { constants, ttft, e2e }) = &self.fitted {
            let ClientConstants { rtt_ms, per_token_ms } = constants;
            writeln!(f, "\nFitted to the first half: {rtt_ms:.3} ms per request, {per_token_ms:.3} ms per token.")?;
            writeln!(f, "The second half with them:")?;
            write_errors(f, "TTFT", ttft.as_ref())?;
            write_errors(f, "E2E", e2e.as_ref())?;
        }
        if !self.worst.is_empty() {
            writeln!(f, "\nLargest errors of the end-to-end latency")?;
        }
        for one in &self.worst {
            let WorstRequest { request, input_tokens, output_tokens, measured_ms, simulated_ms, reason, .. } = one;
            writeln!(
                f,
                "  {request} ({input_tokens} in, {output_tokens} out): {measured_ms:.1} ms measured, {simulated_ms:.1} ms simulated"
            )?;
            writeln!(f, "      {reason}")?;
        }
        if !self.not_recorded.is_empty() {
            writeln!(f, "\nThe trace does not record")?;
        }
        self.not_recorded.iter().try_for_each(|what| writeln!(f, "  {what}"))
    }
}

/// The errors of a latency: a line for each statistic, and one for all requests.
fn write_errors(f: &mut fmt::Formatter<'_>, name: &str, errors: Option<&LatencyErrors>) -> fmt::Result {
    let Some(errors) = errors else { return Ok(()) };
    let LatencyErrors { mean, p50, p90, p99, mape_percent, pearson_r, ks_distance, .. } = errors;
    for (name, statistic, error) in [(name, "mean", mean), ("", "p50", p50), ("", "p90", p90), ("", "p99", p99)] {
        let StatisticErrors { measured_ms, simulated_ms, error_percent, interval_percent } = error;
        let percent = error_percent.map_or("-".to_owned(), |percent| format!("{percent:+.2} %"));
        let interval =
            interval_percent.map_or(String::new(), |bounds| format!("{:+.2} to {:+.2}", bounds.low, bounds.high));
        writeln!(f, "{name:<8} {statistic:<5} {measured_ms:>11.2} {simulated_ms:>10.2} {percent:>9}   {interval:>16}")?;
    }
    let percent = mape_percent.map_or("-".to_owned(), |percent| format!("{percent:.2} %"));
    let r = pearson_r.map_or("-".to_owned(), |r| format!("{r:.3}"));
    writeln!(f, "         by request: MAPE {percent}, r {r}, KS {ks_distance:.3}")
}
