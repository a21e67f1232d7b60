//! As a traced vLLM writes it: OTLP in JSON, a document per line. Times of day count from the start of
//! the simulation.
//!
//! A request is a span `llm_request` with vLLM's attributes (latencies in seconds) and the events of its
//! journey: ARRIVED, HANDOFF_TO_CORE, QUEUED, SCHEDULED, FIRST_TOKEN, PREEMPTED, FINISHED, DEPARTED. An
//! engine step is an event `step.BATCH_SUMMARY` of a span `scheduler_steps`, one line per instance.

use std::io::{self, Write};

use blis_sim::outcome::Status;
use blis_sim::units::Micros;
use serde_json::{Value, json};

use super::About;
use super::journal::{Change, Journal, Journey, Step};
use crate::workload::{Names, session_text};

/// Requests in the order of arrival, then the steps of each instance.
pub(super) fn write(journal: &Journal, about: &About, names: &Names, out: &mut dyn Write) -> io::Result<()> {
    for journey in &journal.journeys {
        line(out, &request(journey, about, names))?;
    }
    let instances = journal.steps.iter().map(|step| step.instance + 1).max().unwrap_or(0);
    for instance in 0..instances {
        let steps: Vec<&Step> = journal.steps.iter().filter(|step| step.instance == instance).collect();
        line(out, &scheduler(instance, &steps, about))?;
    }
    Ok(())
}

fn line(out: &mut dyn Write, span: &Value) -> io::Result<()> {
    let document = json!({ "resourceSpans": [{
        "resource": { "attributes": [text("service.name", "blis")] },
        "scopeSpans": [{ "scope": { "name": "blis" }, "spans": [span] }],
    }] });
    serde_json::to_writer(&mut *out, &document)?;
    out.write_all(b"\n")
}

fn request(journey: &Journey, about: &About, names: &Names) -> Value {
    let request = &journey.request;
    let end = departed(journey).or(journey.outcome.map(|outcome| outcome.ended_at)).unwrap_or(request.arrival);
    let mut attributes = vec![
        text("gen_ai.request.id", &format!("request_{}", request.id)),
        text("gen_ai.request.model", model(journey, about, names)),
        int("gen_ai.usage.prompt_tokens", request.input_tokens.into()),
    ];
    attributes.extend(request.max_output_tokens.map(|most| int("gen_ai.request.max_tokens", most.into())));
    let session = session_text(names.texts(), request.tags.session);
    attributes.extend((!session.is_empty()).then(|| text("session.id", &session)));
    if let Some(outcome) = &journey.outcome {
        attributes.push(int("gen_ai.usage.completion_tokens", outcome.generated_tokens.into()));
        let queued =
            journey.queued.zip(journey.in_batch.first()).map(|(queued, change)| change.at.saturating_sub(queued));
        let prefill = journey.in_batch.first().zip(journey.tokens.first());
        let prefill = prefill.map(|(change, first)| first.saturating_sub(change.at));
        let decode = journey.tokens.first().zip(journey.tokens.last()).map(|(first, last)| *last - *first);
        let latencies = [
            ("time_to_first_token", outcome.ttft),
            ("e2e", outcome.e2e),
            ("time_in_queue", queued),
            ("time_in_model_prefill", prefill),
            ("time_in_model_decode", decode),
            ("time_in_model_inference", prefill.zip(decode).map(|(prefill, decode)| prefill + decode)),
        ];
        let known = latencies.into_iter().filter_map(|(name, time)| Some((name, time?)));
        attributes.extend(known.map(|(name, time)| double(&format!("gen_ai.latency.{name}"), time.as_secs_f64())));
    }
    json!({
        "traceId": format!("{:032x}", u128::from(request.id) + 1),
        "spanId": format!("{:016x}", u64::from(request.id) + 1),
        "name": "llm_request",
        "kind": 2,
        "startTimeUnixNano": ns(request.arrival),
        "endTimeUnixNano": ns(end),
        "attributes": attributes,
        "events": journey_events(journey),
    })
}

fn model<'a>(journey: &Journey, about: &'a About, names: &'a Names) -> &'a str {
    match names.text(journey.request.tags.model) {
        "" => &about.model,
        named => named,
    }
}

/// When the client had all of the answer.
fn departed(journey: &Journey) -> Option<Micros> {
    let outcome = journey.completed()?;
    Some(outcome.arrival + outcome.e2e?)
}

fn journey_events(journey: &Journey) -> Vec<Value> {
    let request = &journey.request;
    let prompt = request.input_tokens;
    let progress = |prefilled: u32, generated: u32| {
        vec![
            int("prefill_done_tokens", prefilled.into()),
            int("prefill_total_tokens", prompt.into()),
            int("decode_done_tokens", generated.into()),
            int("decode_max_tokens", request.max_output_tokens.unwrap_or(request.output_tokens).into()),
        ]
    };
    let event = |name: &str, at: Micros, step: Option<u64>, phase: &str, counters: Vec<Value>| {
        let mut attributes = vec![int("ts.monotonic", at.0 * 1_000), text("phase", phase)];
        attributes.extend(step.map(|step| int("scheduler.step", step)));
        attributes.extend(counters);
        (at, json!({ "name": name, "timeUnixNano": ns(at), "attributes": attributes }))
    };
    let phase = |generated: u32| if generated == 0 { "prefill" } else { "decode" };
    let mut events = vec![event("ARRIVED", request.arrival, None, "api", Vec::new())];
    events.extend(journey.handed_over.map(|at| event("HANDOFF_TO_CORE", at, None, "api", Vec::new())));
    events.extend(journey.queued.map(|at| event("QUEUED", at, None, "prefill", progress(0, 0))));
    for &Change { at, step, entered, computed, generated } in &journey.in_batch {
        let name = if entered { "SCHEDULED" } else { "PREEMPTED" };
        events.push(event(name, at, Some(step), phase(generated), progress(computed.min(prompt), generated)));
    }
    if let Some(first) = journey.first_token() {
        events.push(event("FIRST_TOKEN", first, None, "decode", progress(prompt, 1)));
    }
    if let Some(outcome) = &journey.outcome {
        let ended = matches!(
            outcome.status,
            Status::Completed | Status::LengthCapped | Status::TimedOut | Status::Dropped(_) | Status::Rejected(_)
        );
        let generated = outcome.generated_tokens;
        if ended {
            let mut counters = progress(if generated > 0 { prompt } else { 0 }, generated);
            counters.push(text("finish_status", journey.failure().unwrap_or("length")));
            events.push(event("FINISHED", outcome.ended_at, journey.last_step, phase(generated), counters));
        }
        events.extend(departed(journey).map(|at| event("DEPARTED", at, None, "api", Vec::new())));
    }
    events.sort_by_key(|&(at, _)| at);
    events.into_iter().map(|(_, event)| event).collect()
}

fn scheduler(instance: u32, steps: &[&Step], about: &About) -> Value {
    let (first, last) = (steps.first().map_or(Micros::ZERO, |s| s.start), steps.last().map_or(Micros::ZERO, |s| s.end));
    json!({
        "traceId": format!("{:032x}", (1_u128 << 64) + u128::from(instance)),
        "spanId": format!("{:016x}", (1_u64 << 40) + u64::from(instance)),
        "name": "scheduler_steps",
        "kind": 1,
        "startTimeUnixNano": ns(first),
        "endTimeUnixNano": ns(last),
        "attributes": [int("instance", instance.into())],
        "events": steps.iter().map(|step| batch_summary(step, about)).collect::<Vec<_>>(),
    })
}

fn batch_summary(step: &Step, about: &About) -> Value {
    let used = about.total_kv_blocks.saturating_sub(step.free_blocks);
    json!({
        "name": "step.BATCH_SUMMARY",
        "timeUnixNano": ns(step.start),
        "attributes": [
            int("step.id", step.number),
            int("step.ts_start_ns", step.start.0 * 1_000),
            int("step.ts_end_ns", step.end.0 * 1_000),
            int("step.duration_us", (step.end - step.start).0),
            int("queue.running_depth", step.running.into()),
            int("queue.waiting_depth", step.waiting.into()),
            int("batch.num_prefill_reqs", step.prefill_requests.into()),
            int("batch.num_decode_reqs", step.decode_requests.into()),
            int("batch.scheduled_tokens", u64::from(step.prefill_tokens) + u64::from(step.decode_requests)),
            int("batch.prefill_tokens", step.prefill_tokens.into()),
            int("batch.decode_tokens", step.decode_requests.into()),
            int("batch.num_finished", step.finished.into()),
            int("batch.num_preempted", step.preempted.into()),
            double("kv.usage_gpu_ratio", f64::from(used) / f64::from(about.total_kv_blocks.max(1))),
            int("kv.blocks_total_gpu", about.total_kv_blocks.into()),
            int("kv.blocks_free_gpu", step.free_blocks.into()),
        ],
    })
}

/// 64-bit numbers are text in OTLP's JSON.
fn ns(at: Micros) -> String {
    (u128::from(at.0) * 1_000).to_string()
}

fn int(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

fn double(key: &str, value: f64) -> Value {
    json!({ "key": key, "value": { "doubleValue": value } })
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}
