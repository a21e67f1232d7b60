//! The export in the form of `vllm bench serve --save-result --save-detailed`: figures in ms, details in seconds.

use std::io::{self, Write};

use blis_sim::units::Micros;
use serde::Serializer as _;
use serde_json::{Value, json};

use super::journal::Journal;
use super::service::ServiceInfo;
use super::statistics::Statistics;

/// Writes one object. A simulation has no time of day: `date` is left out, and `start_times` count from its start.
pub(super) fn write(journal: &Journal, about: &ServiceInfo, out: &mut dyn Write) -> io::Result<()> {
    let journeys = &journal.journeys;
    let completed_journeys = || journeys.iter().filter_map(|journey| Some((journey, journey.completed()?)));
    let ends = completed_journeys().filter_map(|(_, outcome)| Some(outcome.arrival + outcome.e2e?));
    let first = journeys.first().map_or(Micros::ZERO, |journey| journey.request.arrival);
    let duration = ends.max().unwrap_or(first).saturating_sub(first).as_secs_f64();
    let input: u64 = completed_journeys().map(|(_, outcome)| u64::from(outcome.input_tokens)).sum();
    let output: u64 = completed_journeys().map(|(_, outcome)| u64::from(outcome.generated_tokens)).sum();
    let per_second = |count: f64| if duration > 0.0 { count / duration } else { 0.0 };
    let completed = completed_journeys().count();
    // In vLLM's order: figures first, then the long lists.
    let mut document: Vec<(String, Value)> = Vec::new();
    let mut put = |name: &str, value: Value| document.push((name.to_owned(), value));
    put("backend", json!("blis"));
    put("endpoint_type", json!("simulation"));
    put("label", Value::Null);
    put("model_id", json!(about.model));
    put("tokenizer_id", json!(about.model));
    put("num_prompts", json!(journeys.len()));
    put("duration", json!(duration));
    put("completed", json!(completed));
    put("failed", json!(journeys.len() - completed));
    put("total_input_tokens", json!(input));
    put("total_output_tokens", json!(output));
    put("request_throughput", json!(per_second(completed as f64)));
    put("request_goodput", Value::Null);
    put("output_throughput", json!(per_second(output as f64)));
    put("total_token_throughput", json!(per_second((input + output) as f64)));
    let ms = |time: Micros| time.0 as f64 / 1e3;
    let after_first = |outcome: &blis_sim::outcome::Outcome| {
        let gaps = outcome.generated_tokens.checked_sub(1).filter(|&gaps| gaps > 0)?;
        Some((outcome.e2e? - outcome.ttft?).0 as f64 / 1e3 / f64::from(gaps))
    };
    let latencies = [
        ("ttft", Statistics::from_values(completed_journeys().filter_map(|(_, outcome)| outcome.ttft.map(ms)))),
        ("tpot", Statistics::from_values(completed_journeys().filter_map(|(_, outcome)| after_first(outcome)))),
        ("itl", Statistics::from_values(completed_journeys().flat_map(|(journey, _)| journey.gaps()).map(ms))),
        ("e2el", Statistics::from_values(completed_journeys().filter_map(|(_, outcome)| outcome.e2e.map(ms)))),
    ];
    for (name, statistics) in &latencies {
        put(&format!("mean_{name}_ms"), json!(statistics.mean()));
        put(&format!("median_{name}_ms"), json!(statistics.percentile(50.0)));
        put(&format!("std_{name}_ms"), json!(statistics.std()));
        for percent in [90, 95, 99] {
            put(&format!("p{percent}_{name}_ms"), json!(statistics.percentile(f64::from(percent))));
        }
    }
    let seconds = |time: Option<Micros>| time.unwrap_or(Micros::ZERO).as_secs_f64();
    let each = |of: &dyn Fn(&super::journal::Journey) -> Value| journeys.iter().map(of).collect::<Value>();
    put("input_lens", each(&|journey| json!(journey.request.input_tokens)));
    put("output_lens", each(&|journey| json!(journey.completed().map_or(0, |outcome| outcome.generated_tokens))));
    put("ttfts", each(&|journey| json!(seconds(journey.completed().and_then(|outcome| outcome.ttft)))));
    put(
        "itls",
        each(&|journey| {
            let is_completed = journey.completed().is_some();
            journey.gaps().filter(|_| is_completed).map(|gap| json!(gap.as_secs_f64())).collect()
        }),
    );
    put("start_times", each(&|journey| json!(journey.request.arrival.as_secs_f64())));
    put("generated_texts", each(&|_| json!("")));
    put("errors", each(&|journey| json!(journey.failure().unwrap_or_default())));
    serde_json::Serializer::new(&mut *out).collect_map(document)?;
    out.write_all(b"\n")
}
