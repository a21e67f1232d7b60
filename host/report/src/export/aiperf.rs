//! The export in AIPerf's formats: `profile_export.jsonl`, one line per request, and the summary beside it.
//!
//! Times of day count from the start of the simulation.

use std::io::{self, Write};

use blis_sim::outcome::Outcome;
use blis_sim::request::Name;
use blis_sim::units::Micros;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

use super::journal::{Journal, Journey};
use super::service::ServiceInfo;
use super::statistics::Statistics;
use blis_sim::request::session_text;
use blis_workload::Names;

/// Writes one line per request, in the order of arrival.
pub(super) fn requests(journal: &Journal, names: &Names, out: &mut dyn Write) -> io::Result<()> {
    let mut sessions = Conversations::default();
    for journey in &journal.journeys {
        let session = sessions.number(journey.request.tags.session);
        serde_json::to_writer(&mut *out, &line(session, journey, names))?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Numbers of conversations, in the order of their first requests. A request without a session is a conversation of its
/// own.
#[derive(Default)]
struct Conversations {
    numbers: FxHashMap<Name, u64>,
    next: u64,
}

impl Conversations {
    fn number(&mut self, session: Name) -> u64 {
        let next = self.next;
        let number = if session == Name::NONE { next } else { *self.numbers.entry(session).or_insert(next) };
        self.next += u64::from(number == next);
        number
    }
}

fn line(session: u64, journey: &Journey, names: &Names) -> Value {
    let request = &journey.request;
    let ns = |time: Micros| time.0 * 1_000;
    let completed = journey.completed();
    let end = completed.and_then(|outcome| outcome.e2e).map(|e2e| request.arrival + e2e);
    let end = end.or(journey.outcome.map(|outcome| outcome.ended_at)).unwrap_or(request.arrival);
    let mut metrics = Map::new();
    let input = if journey.failure().is_some() { "error_isl" } else { "input_sequence_length" };
    metrics.insert(input.into(), measured(request.input_tokens, "tokens"));
    if let Some(outcome) = completed {
        metrics.extend(latencies(outcome, journey).map(|(name, value)| (name.to_owned(), value)));
    }
    let conversation = session_text(names.texts(), request.tags.session);
    let conversation = (!conversation.is_empty()).then_some(conversation.as_ref());
    json!({
        "metadata": {
            "session_num": session,
            "x_request_id": format!("request_{}", request.id),
            "x_correlation_id": conversation,
            "conversation_id": conversation,
            "turn_index": request.tags.round_index,
            "request_start_ns": ns(request.arrival),
            "request_ack_ns": ns(journey.handed_over.unwrap_or(request.arrival)),
            "request_end_ns": ns(end),
            // One worker sends all requests, and one record processor keeps the records.
            "worker_id": "worker_0",
            "record_processor_id": "record_processor_0",
            "benchmark_phase": "profiling",
            "was_cancelled": journey.failure() == Some("timeout"),
            "cancellation_time_ns": (journey.failure() == Some("timeout")).then_some(ns(end)),
        },
        "metrics": metrics,
        "error": journey.failure().map(error_details),
    })
}

fn error_details(word: &'static str) -> Value {
    let message = match word {
        "timeout" => "the client's deadline passed before the output was complete",
        "dropped" => "it can never be served: too long for the model or for the KV cache",
        "rejected" => "the service refused it on arrival",
        _ => "the simulation ended before the output was complete",
    };
    json!({ "code": Value::Null, "type": word, "message": message })
}

fn latencies<'a>(outcome: &Outcome, journey: &'a Journey) -> impl Iterator<Item = (&'static str, Value)> + use<'a> {
    let ms = |time: Micros| time.0 as f64 / 1e3;
    let mean = (outcome.itl_count > 0).then_some(outcome.itl_mean_us / 1e3);
    let gaps: Vec<f64> = journey.gaps().map(ms).collect();
    [
        ("output_sequence_length", Some(measured(outcome.generated_tokens, "tokens"))),
        ("output_token_count", Some(measured(outcome.generated_tokens, "tokens"))),
        ("time_to_first_token", outcome.ttft.map(|ttft| measured(ms(ttft), "ms"))),
        ("request_latency", outcome.e2e.map(|e2e| measured(ms(e2e), "ms"))),
        ("inter_token_latency", mean.map(|mean| measured(mean, "ms"))),
        ("inter_chunk_latency", (!gaps.is_empty()).then(|| measured(gaps, "ms"))),
        ("output_token_throughput_per_user", per_user(outcome).map(|rate| measured(rate, "tokens/sec/user"))),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
}

/// Output tokens per second for one client, from the first token on.
fn per_user(outcome: &Outcome) -> Option<f64> {
    (outcome.itl_count > 0 && outcome.itl_mean_us > 0.0).then(|| 1e6 / outcome.itl_mean_us)
}

fn measured(value: impl Into<Value>, unit: &str) -> Value {
    json!({ "value": value.into(), "unit": unit })
}

/// Writes every figure with its distribution.
pub(super) fn summary(journal: &Journal, about: &ServiceInfo, out: &mut dyn Write) -> io::Result<()> {
    let completed_journeys = || journal.journeys.iter().filter_map(|journey| Some((journey, journey.completed()?)));
    let first = journal.journeys.first().map_or(Micros::ZERO, |journey| journey.request.arrival);
    let last =
        completed_journeys().filter_map(|(_, outcome)| Some(outcome.arrival + outcome.e2e?)).max().unwrap_or(first);
    let duration = last.saturating_sub(first).as_secs_f64();
    let per_second = |count: f64| if duration > 0.0 { count / duration } else { 0.0 };
    let ms = |time: Micros| time.0 as f64 / 1e3;
    let of = |value: &dyn Fn(&Outcome) -> Option<f64>| {
        Statistics::from_values(completed_journeys().filter_map(|(_, o)| value(o)))
    };
    let count = completed_journeys().count();
    let (input, output) = (of(&|o| Some(o.input_tokens.into())), of(&|o| Some(o.generated_tokens.into())));
    let total = |statistics: &Statistics| statistics.mean() * statistics.count() as f64;
    let failed = journal.journeys.len() - count;
    let single = |value: f64, unit: &str| json!({ "unit": unit, "avg": value });
    let document = json!({
        "request_throughput": single(per_second(count as f64), "requests/sec"),
        "request_count": single(count as f64, "requests"),
        "request_latency": distribution(&of(&|o| o.e2e.map(ms)), "ms"),
        "time_to_first_token": distribution(&of(&|o| o.ttft.map(ms)), "ms"),
        "inter_token_latency": distribution(&of(&|o| (o.itl_count > 0).then_some(o.itl_mean_us / 1e3)), "ms"),
        "output_token_throughput": single(per_second(total(&output)), "tokens/sec"),
        "output_token_throughput_per_user": distribution(&of(&per_user), "tokens/sec/user"),
        "input_sequence_length": distribution(&input, "tokens"),
        "output_sequence_length": distribution(&output, "tokens"),
        "total_isl": single(total(&input), "tokens"),
        "total_osl": single(total(&output), "tokens"),
        "benchmark_duration": single(duration, "sec"),
        "error_request_count": single(failed as f64, "requests"),
        "input_config": { "endpoint": { "model_names": [about.model] } },
        "was_cancelled": false,
        "error_summary": errors(journal),
        "start_time": Value::Null,
        "end_time": Value::Null,
    });
    serde_json::to_writer_pretty(&mut *out, &document)?;
    out.write_all(b"\n")
}

fn distribution(statistics: &Statistics, unit: &str) -> Value {
    let mut figures = Map::from_iter([("unit".to_owned(), json!(unit)), ("avg".to_owned(), json!(statistics.mean()))]);
    for percent in [1, 5, 10, 25, 50, 75, 90, 95, 99] {
        figures.insert(format!("p{percent}"), json!(statistics.percentile(f64::from(percent))));
    }
    figures.insert("min".to_owned(), json!(statistics.percentile(0.0)));
    figures.insert("max".to_owned(), json!(statistics.percentile(100.0)));
    figures.insert("std".to_owned(), json!(statistics.std()));
    Value::Object(figures)
}

fn errors(journal: &Journal) -> Value {
    let mut counts = std::collections::BTreeMap::new();
    for word in journal.journeys.iter().filter_map(Journey::failure) {
        *counts.entry(word).or_insert(0_u64) += 1;
    }
    counts.into_iter().map(|(word, count)| json!({ "error_details": error_details(word), "count": count })).collect()
}
