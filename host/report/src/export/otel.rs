//! The export in the form of a vLLM with journey and step tracing: OTLP in JSON, one document per line.
//!
//! A request has two linked spans. `llm_request` (scope `vllm.api`) has vLLM's attributes (latencies in seconds) and
//! the events of the server: `api.ARRIVED`, `gateway.QUEUED` and `gateway.DISPATCHED` if it waited there (ours),
//! `api.HANDOFF_TO_CORE`, `api.FIRST_RESPONSE_FROM_CORE`, `api.DEPARTED` or
//! `api.ABORTED`. Its child `llm_core` (scope `vllm.scheduler`), which exists once the request has joined a waiting
//! queue, has those of the engine: `journey.QUEUED`, `journey.SCHEDULED`, `journey.FIRST_TOKEN`, `journey.PREEMPTED`,
//! `journey.FINISHED`. An engine step is an event `step.BATCH_SUMMARY` of a span `scheduler_steps` (scope
//! `vllm.scheduler.step`), one line per instance.

use std::io::{self, Write};

use blis_sim::ids::InstanceIndex;
use blis_sim::outcome::{Outcome, Status};
use blis_sim::units::Micros;
use serde_json::{Value, json};

use super::journal::{Journal, Journey, StepSums};
use super::service::ServiceInfo;
use blis_sim::request::session_text;
use blis_workload::Names;

/// Time of all clocks at the start of the simulation: readers take a time of 0 as missing.
const START: Micros = Micros(1_000_000);

/// Writes the requests in the order of arrival, then the steps of each instance.
pub(super) fn write(journal: &Journal, about: &ServiceInfo, names: &Names, out: &mut dyn Write) -> io::Result<()> {
    let instances = journal.steps.iter().map(|step| step.instance.index() + 1).max().unwrap_or(0);
    let mut by_instance: Vec<Vec<&StepSums>> = vec![Vec::new(); instances];
    for step in &journal.steps {
        by_instance[step.instance.index()].push(step);
    }
    for journey in &journal.journeys {
        let instance = journey.outcome.and_then(|outcome| outcome.instance);
        let steps = instance.and_then(|instance| by_instance.get(instance.index())).map_or(&[][..], Vec::as_slice);
        let spans = RequestSpans { journey, about, names, steps };
        let core = spans.core().map(|span| ("vllm.scheduler", span));
        line(out, [("vllm.api", spans.request())].into_iter().chain(core))?;
    }
    for (instance, steps) in (0..).map(InstanceIndex).zip(&by_instance) {
        line(out, [("vllm.scheduler.step", scheduler(instance, steps, about))].into_iter())?;
    }
    Ok(())
}

/// Writes spans with their scopes as one line.
fn line(out: &mut dyn Write, spans: impl Iterator<Item = (&'static str, Value)>) -> io::Result<()> {
    let scopes = spans.map(|(scope, span)| json!({ "scope": { "name": scope }, "spans": [span] }));
    let document = json!({ "resourceSpans": [{
        "resource": { "attributes": [text("service.name", "blis")] },
        "scopeSpans": scopes.collect::<Vec<_>>(),
    }] });
    serde_json::to_writer(&mut *out, &document)?;
    out.write_all(b"\n")
}

/// The spans of one request.
struct RequestSpans<'a> {
    journey: &'a Journey,
    about: &'a ServiceInfo,
    names: &'a Names,
    /// Steps of the instance that served it.
    steps: &'a [&'a StepSums],
}

impl RequestSpans<'_> {
    /// The span of the server.
    fn request(&self) -> Value {
        let request = &self.journey.request;
        let events = self.api_events();
        let end = events.iter().map(|&(at, _)| at).max().unwrap_or(request.arrival);
        let end = self.ended().map_or(end, |outcome| end.max(outcome.ended_at));
        let status = self.journey.failure().filter(|_| self.ended().is_some());
        json!({
            "traceId": self.trace_id(),
            "spanId": self.span_id(1),
            "name": "llm_request",
            "kind": 2,
            "startTimeUnixNano": ns(request.arrival),
            "endTimeUnixNano": ns(end),
            "attributes": self.attributes(),
            "events": events.into_iter().map(|(_, event)| event).collect::<Vec<_>>(),
            "status": status.map_or(json!({}), |word| json!({ "code": 2, "message": word })),
        })
    }

    fn attributes(&self) -> Vec<Value> {
        let request = &self.journey.request;
        let model = match self.names.text(request.tags.model) {
            "" => &self.about.model,
            named => named,
        };
        let mut attributes = vec![
            text("gen_ai.request.id", &format!("request_{}", request.id.0)),
            text("gen_ai.request.model", model),
            text("gen_ai.response.model", model),
            int("gen_ai.usage.prompt_tokens", request.input_tokens.into()),
        ];
        attributes.extend(request.max_output_tokens.map(|most| int("gen_ai.request.max_tokens", most.into())));
        let session = session_text(self.names.texts(), request.tags.session);
        attributes.extend((!session.is_empty()).then(|| text("session.id", &session)));
        if let Some(outcome) = &self.journey.outcome {
            attributes.push(int("gen_ai.usage.completion_tokens", outcome.generated_tokens.into()));
            attributes.extend(self.latencies(outcome));
        }
        attributes
    }

    fn latencies(&self, outcome: &Outcome) -> impl Iterator<Item = Value> + use<> {
        let Journey { in_gateway, queued, in_batch, tokens, .. } = self.journey;
        let queued = queued.zip(in_batch.first()).map(|(queued, change)| change.at.saturating_sub(queued));
        let prefill = in_batch.first().zip(tokens.first()).map(|(change, first)| first.saturating_sub(change.at));
        let decode = tokens.first().zip(tokens.last()).map(|(first, last)| *last - *first);
        let latencies = [
            ("gen_ai.latency.time_to_first_token", outcome.ttft),
            ("gen_ai.latency.e2e", outcome.e2e),
            ("gen_ai.latency.time_in_gateway", in_gateway.map(|(joined, left)| left - joined)),
            ("gen_ai.latency.time_in_queue", queued),
            ("gen_ai.latency.time_in_model_prefill", prefill),
            ("gen_ai.latency.time_in_model_decode", decode),
            ("gen_ai.latency.time_in_model_inference", prefill.zip(decode).map(|(prefill, decode)| prefill + decode)),
        ];
        latencies.into_iter().filter_map(|(name, time)| Some(double(name, time?.as_secs_f64())))
    }

    /// The events of the server, in the order of time.
    fn api_events(&self) -> Vec<(Micros, Value)> {
        let journey = self.journey;
        let event = |name: &str, at: Micros, more: Vec<Value>| {
            let mut attributes = vec![double("event.ts.monotonic", seconds(at))];
            attributes.extend(more);
            (at, json!({ "name": name, "timeUnixNano": ns(at), "attributes": attributes }))
        };
        let ended = self.ended().map(|outcome| outcome.ended_at);
        let failed = journey.failure().zip(ended);
        // The host's time may delay a token until after the client has left.
        let first = journey.first_token().filter(|&at| failed.is_none_or(|(_, ended)| at <= ended));
        let departed = journey.completed().and_then(|outcome| Some(outcome.arrival + outcome.e2e?));
        let mut events = vec![event("api.ARRIVED", journey.request.arrival, Vec::new())];
        if let Some((joined, left)) = journey.in_gateway {
            events.push(event("gateway.QUEUED", joined, Vec::new()));
            events.push(event("gateway.DISPATCHED", left, Vec::new()));
        }
        events.extend(journey.handed_over.map(|at| event("api.HANDOFF_TO_CORE", at, Vec::new())));
        events.extend(first.map(|at| event("api.FIRST_RESPONSE_FROM_CORE", at, Vec::new())));
        events.extend(departed.map(|at| event("api.DEPARTED", at, Vec::new())));
        events.extend(failed.map(|(word, at)| {
            let reason = if word == "timeout" { "client_disconnect" } else { word };
            // A rejected or dropped request ends when that was decided.
            let at = journey.handed_over.map_or(at, |handed| handed.max(at));
            event("api.ABORTED", at, vec![text("error", word), text("reason", reason)])
        }));
        events
    }

    /// The span of the engine, if the request reached it.
    fn core(&self) -> Option<Value> {
        let Journey { request, queued, in_batch, outcome, .. } = self.journey;
        let since = queued.or(in_batch.first().map(|change| change.at))?;
        let gone = outcome.is_some_and(|outcome| match outcome.status {
            Status::Arriving | Status::InGateway => true,
            _ => self.ended().is_some_and(|outcome| outcome.ended_at < since),
        });
        let events = self.core_events();
        let until = events.iter().map(|event| event.at).max().unwrap_or(since);
        (!gone).then(|| {
            json!({
                "traceId": self.trace_id(),
                "spanId": self.span_id(2),
                "parentSpanId": self.span_id(1),
                "name": "llm_core",
                "kind": 1,
                "startTimeUnixNano": ns(since),
                "endTimeUnixNano": ns(until),
                // The engine appends the number of the prompt and a suffix of its own.
                "attributes": [text("gen_ai.request.id", &format!("request_{0}-0-{0:08x}", request.id.0))],
                "events": events.iter().map(|event| event.json(self)).collect::<Vec<_>>(),
                "status": {},
            })
        })
    }

    fn core_events(&self) -> Vec<CoreEvent> {
        let journey = self.journey;
        let prompt = journey.request.input_tokens;
        let preempted = |until: u64| journey.in_batch.iter().filter(|c| !c.entered && c.step <= until).count() as u64;
        let event = |name, at, step, prefilled, generated| {
            let phase = if generated == 0 { "PREFILL" } else { "DECODE" };
            CoreEvent { name, at, step, phase, prefilled, generated, preemptions: preempted(step), more: None }
        };
        let mut events = Vec::with_capacity(journey.in_batch.len() + 3);
        events.extend(journey.queued.map(|at| {
            let step = self.steps_before(at);
            CoreEvent { phase: "WAITING", preemptions: 0, ..event("QUEUED", at, step, 0, 0) }
        }));
        for change in &journey.in_batch {
            let name = if change.entered { "SCHEDULED" } else { "PREEMPTED" };
            let mut entry = event(name, change.at, change.step, change.prefilled, change.generated);
            let kind = if entry.preemptions == 0 { "FIRST" } else { "RESUME" };
            entry.more = change.entered.then(|| text("schedule.kind", kind));
            events.push(entry);
        }
        let first = journey.first_output.zip(journey.first_step);
        let first = first.filter(|&(at, _)| self.ended().is_none_or(|outcome| at <= outcome.ended_at));
        events.extend(first.map(|(at, step)| event("FIRST_TOKEN", at, step, prompt, 1)));
        events.extend(self.ended().map(|outcome| {
            let step = journey.last_step.unwrap_or_else(|| self.steps_before(outcome.ended_at));
            let finished = event("FINISHED", outcome.ended_at, step, journey.prefilled, outcome.generated_tokens);
            CoreEvent { more: Some(text("finish.status", self.finish_status(outcome))), ..finished }
        }));
        // The end of a step and the beginning of the next may have the same time.
        events.sort_by_key(|event| (event.at, event.step));
        events
    }

    /// vLLM's name for the way in which it ended.
    fn finish_status(&self, outcome: &Outcome) -> &'static str {
        match outcome.status {
            Status::TimedOut => "aborted",
            Status::Dropped(_) | Status::Rejected(_) => "ignored",
            Status::Completed if outcome.generated_tokens < self.max_tokens() => "stopped",
            _ => "length",
        }
    }

    /// The limit of output tokens: without a limit by the client, the rest of the model's context, as in vLLM.
    fn max_tokens(&self) -> u32 {
        let request = &self.journey.request;
        let left = || self.about.max_model_len.map(|most| most.saturating_sub(request.input_tokens));
        request.max_output_tokens.or_else(left).unwrap_or(request.output_tokens)
    }

    /// The outcome, if the request has ended.
    fn ended(&self) -> Option<&Outcome> {
        self.journey.outcome.as_ref().filter(|outcome| {
            !matches!(outcome.status, Status::Queued | Status::Running | Status::Arriving | Status::InGateway)
        })
    }

    /// Number of the last step that began before `at`.
    fn steps_before(&self, at: Micros) -> u64 {
        let begun = self.steps.partition_point(|step| step.start < at);
        begun.checked_sub(1).map_or(0, |last| self.steps[last].number)
    }

    fn trace_id(&self) -> String {
        format!("{:032x}", u128::from(self.journey.request.id.0) + 1)
    }

    /// Id of its first or second span.
    fn span_id(&self, which: u64) -> String {
        format!("{:016x}", 2 * u64::from(self.journey.request.id.0) + which)
    }
}

/// An event of a request in the engine.
struct CoreEvent {
    name: &'static str,
    at: Micros,
    step: u64,
    phase: &'static str,
    prefilled: u32,
    generated: u32,
    preemptions: u64,
    /// Attributes that only some events have.
    more: Option<Value>,
}

impl CoreEvent {
    fn json(&self, spans: &RequestSpans<'_>) -> Value {
        let mut attributes = vec![
            text("event.type", self.name),
            double("ts.monotonic", seconds(self.at)),
            int("ts.monotonic_ns", nanos(self.at)),
            int("scheduler.step", self.step),
            text("phase", self.phase),
            int("prefill.done_tokens", self.prefilled.into()),
            int("prefill.total_tokens", spans.journey.request.input_tokens.into()),
            int("decode.done_tokens", self.generated.into()),
            int("decode.max_tokens", spans.max_tokens().into()),
            int("num_preemptions", self.preemptions),
        ];
        attributes.extend(self.more.clone());
        json!({ "name": format!("journey.{}", self.name), "timeUnixNano": ns(self.at), "attributes": attributes })
    }
}

fn scheduler(instance: InstanceIndex, steps: &[&StepSums], about: &ServiceInfo) -> Value {
    let (first, last) = (steps.first().map_or(Micros::ZERO, |s| s.start), steps.last().map_or(Micros::ZERO, |s| s.end));
    json!({
        "traceId": format!("{:032x}", (1_u128 << 64) + u128::from(instance.0)),
        "spanId": format!("{:016x}", (1_u64 << 40) + u64::from(instance.0)),
        "name": "scheduler_steps",
        "kind": 1,
        "startTimeUnixNano": ns(first),
        "endTimeUnixNano": ns(last),
        "attributes": [int("instance", instance.0.into())],
        "events": steps.iter().map(|step| batch_summary(step, about)).collect::<Vec<_>>(),
    })
}

fn batch_summary(step: &StepSums, about: &ServiceInfo) -> Value {
    let used = about.total_kv_blocks.saturating_sub(step.free_blocks);
    json!({
        "name": "step.BATCH_SUMMARY",
        "timeUnixNano": ns(step.start),
        "attributes": [
            int("step.id", step.number),
            int("step.ts_start_ns", nanos(step.start)),
            int("step.ts_end_ns", nanos(step.end)),
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

/// A time as text, because OTLP's JSON writes 64-bit numbers as text.
fn ns(at: Micros) -> String {
    nanos(at).to_string()
}

fn nanos(at: Micros) -> u64 {
    at.saturating_add(START).0.saturating_mul(1_000)
}

fn seconds(at: Micros) -> f64 {
    at.saturating_add(START).as_secs_f64()
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
