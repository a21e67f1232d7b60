//! OpenTelemetry spans of vLLM, as OTLP-JSON: documents with `resourceSpans`, usually one per line.
//!
//! A request is a span `llm_request`, or any span with an event `ARRIVED` (the journey events of instrumented vLLM;
//! prefixes as in `api.ARRIVED` are accepted). It arrives at that event, else at the start of the span. Its child
//! `llm_core`, the span of the engine, may come before or after it and is found by `parentSpanId`, else by the same
//! `gen_ai.request.id`; without a parent, and as a further child (several prompts in one call), it is a request of its
//! own. Lengths are `gen_ai.usage.*`, else the highest `prefill.total_tokens` and `decode.done_tokens` (or
//! `prefill_total_tokens`, …) of the events; the client's limit of output tokens is `gen_ai.request.max_tokens`. Spans
//! of other names are skipped.
//!
//! Latencies, where they are wanted: from ARRIVED to FIRST_RESPONSE_FROM_CORE (else FIRST_TOKEN) and to DEPARTED (else
//! FINISHED), else vLLM's own `gen_ai.latency.*` (s); the time in the queue from the first QUEUED to the first SCHEDULED.
//! Two events are compared by `ts.monotonic` (s; ns if it is an integer) if both have it, else by `timeUnixNano`.
//!
//! Requests that failed (an event `ABORTED`, an error status, a `finish.status` of failure, no output tokens) and those
//! that the engine had not finished are left out and counted.

use std::fmt;
use std::io::BufRead;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::de::{self, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::error::TraceError;
use super::json::{Documents, NANOSECOND, Number, need};
use super::names::Names;
use super::prefix::ROOT;
use super::recorded::RecordedTimes;
use super::row::{NamedMetadata, TraceRow};
use super::rows::{Intake, Origin, SharedContents, counted};
use super::{TraceOptions, Workload, field};
use blis_diag::RowError;

/// Reads OTLP-JSON with spans of vLLM.
///
/// # Errors
/// See [`TraceError`].
pub fn read(input: impl BufRead, file: &str, options: &TraceOptions) -> Result<Workload, TraceError> {
    let file: Arc<str> = file.into();
    let mut intake = Intake::new(&file, options);
    let mut documents: Documents<_, OtlpDocument> = Documents::new(input, &file);
    let mut requests = SpanRequests::default();
    while let Some(document) = documents.next()? {
        for resource in document.resource_spans {
            for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                requests.take(span.seen(documents.line()));
            }
        }
    }
    requests.join_children();
    let (mut failed, mut unfinished) = (0_u64, 0_u64);
    for seen in requests.seen {
        if !intake.wants_more() {
            break;
        }
        let id = intake.next_id()?;
        intake.measured_with(seen.model.as_deref());
        if seen.in_engine && !seen.finished && !seen.failed {
            unfinished += 1;
        } else if seen.has_failed() {
            failed += 1;
        } else {
            let times = if intake.wants_times() { seen.times().map(Some) } else { Ok(None) };
            match times.and_then(|times| Ok((seen.row(id)?, times))) {
                Ok((row, times)) => {
                    intake.add(row);
                    times.into_iter().for_each(|times| intake.record(id, times));
                }
                Err(fault) => intake.bad(fault.at(&file, seen.line))?,
            }
        }
    }
    for (left_out, what) in [(failed, "failed request"), (unfinished, "unfinished request")] {
        if left_out > 0 {
            intake.notes.push(format!("{} left out", counted(left_out, what)));
        }
    }
    if requests.others > 0 {
        intake.notes.push(format!("{} of other names skipped", counted(requests.others, "span")));
    }
    intake.finish(Origin::FirstArrival, SharedContents::default(), Names::default())
}

/// The spans read so far, grouped into requests.
#[derive(Default)]
struct SpanRequests {
    seen: Vec<SpanRequest>,
    by_span: FxHashMap<String, usize>,
    by_id: FxHashMap<String, usize>,
    /// Child spans, because their parents may come later.
    children: Vec<SpanRequest>,
    /// Number of spans with other names.
    others: u64,
}

impl SpanRequests {
    fn take(&mut self, seen: SpanRequest) {
        match seen.kind {
            SpanRole::Request => match seen.id.as_ref().and_then(|id| self.by_id.get(id).copied()) {
                Some(at) => {
                    self.by_span.extend(seen.span.clone().map(|span| (span, at)));
                    self.seen[at].join(seen);
                }
                None => self.add(seen),
            },
            SpanRole::Core => self.children.push(seen),
            SpanRole::Other if seen.id.is_some() => self.children.push(seen),
            SpanRole::Other => self.others += 1,
        }
    }

    fn add(&mut self, seen: SpanRequest) {
        self.by_span.extend(seen.span.clone().map(|span| (span, self.seen.len())));
        self.by_id.extend(seen.id.clone().map(|id| (id, self.seen.len())));
        self.seen.push(seen);
    }

    fn join_children(&mut self) {
        for mut child in std::mem::take(&mut self.children) {
            let same = child.id.as_ref().and_then(|id| self.by_id.get(id));
            let parent = same.or_else(|| child.parent.as_ref().and_then(|parent| self.by_span.get(parent)));
            match parent.copied() {
                Some(at) if child.kind == SpanRole::Core && self.seen[at].core_id.is_some() => {
                    let parent = &self.seen[at];
                    if parent.core_id == child.id {
                        self.seen[at].join(child);
                    } else {
                        child.arrived = parent.arrived.or(parent.start);
                        child.failed |= parent.failed;
                        child.model = child.model.or_else(|| parent.model.clone());
                        self.add(child);
                    }
                }
                Some(at) => {
                    if child.kind == SpanRole::Core {
                        self.by_id.extend(child.id.clone().map(|id| (id, at)));
                        self.seen[at].core_id = child.id.clone();
                    }
                    self.seen[at].join(child);
                }
                None if child.kind == SpanRole::Core => self.add(child),
                None => self.others += 1,
            }
        }
    }
}

#[derive(Deserialize)]
struct OtlpDocument {
    #[serde(rename = "resourceSpans")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Deserialize)]
struct ResourceSpans {
    #[serde(default, rename = "scopeSpans")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Deserialize)]
struct ScopeSpans {
    #[serde(default)]
    spans: Vec<OtlpSpan>,
}

#[derive(Deserialize)]
struct OtlpSpan {
    #[serde(default, rename = "traceId")]
    trace: String,
    #[serde(default, rename = "spanId")]
    id: String,
    #[serde(default, rename = "parentSpanId")]
    parent: Option<String>,
    #[serde(default)]
    name: String,
    /// Start of the span, ns since 1970.
    #[serde(default, rename = "startTimeUnixNano")]
    start: Option<Number>,
    #[serde(default)]
    attributes: Attributes,
    #[serde(default)]
    events: Vec<SpanEvent>,
    #[serde(default)]
    status: serde_json::Value,
}

#[derive(Deserialize)]
struct SpanEvent {
    #[serde(default)]
    name: String,
    #[serde(default, rename = "timeUnixNano")]
    time: Option<Number>,
    #[serde(default)]
    attributes: Attributes,
}

/// The attributes that are read.
#[derive(Clone, Default)]
struct Attributes {
    id: Option<String>,
    model: Option<String>,
    prompt: Option<Number>,
    completion: Option<Number>,
    max_tokens: Option<Number>,
    prefill: Option<Number>,
    decoded: Option<Number>,
    finish: Option<String>,
    /// Time of the machine's monotonic clock, ns.
    monotonic_ns: Option<f64>,
    latencies: SpanLatencies,
}

/// vLLM's `gen_ai.latency.*` of a request, s.
#[derive(Clone, Copy, Default)]
struct SpanLatencies {
    time_to_first_token: Option<f64>,
    e2e: Option<f64>,
    time_in_queue: Option<f64>,
}

/// The time of an event, on two clocks.
#[derive(Clone, Copy)]
struct EventTime {
    monotonic_ns: Option<f64>,
    unix: Option<Number>,
}

impl EventTime {
    /// The time from `self` to `later`, µs, by the monotonic clock if both have it.
    fn until_us(self, later: Self) -> Option<f64> {
        let monotonic = self.monotonic_ns.zip(later.monotonic_ns).map(|(from, to)| to - from);
        // Nanoseconds since 1970 exceed the precision of a float: integers are subtracted.
        let unix = || match (self.unix?, later.unix?) {
            (Number::Whole(from), Number::Whole(to)) => Some(i128::from(to).wrapping_sub(i128::from(from)) as f64),
            (from, to) => Some(to.real() - from.real()),
        };
        monotonic.or_else(unix).map(|ns| ns / 1e3)
    }

    fn earlier(self, other: Self) -> Self {
        if self.until_us(other).is_some_and(|us| us < 0.0) { other } else { self }
    }
}

/// The events of a request that its latencies are computed from: the earliest of each name.
#[derive(Clone, Copy, Default)]
struct JourneyTimes {
    arrived: Option<EventTime>,
    queued: Option<EventTime>,
    scheduled: Option<EventTime>,
    first_response: Option<EventTime>,
    first_token: Option<EventTime>,
    departed: Option<EventTime>,
    finished: Option<EventTime>,
    preemptions: u32,
}

impl JourneyTimes {
    fn of(events: &[SpanEvent]) -> Self {
        let mut times = Self::default();
        for event in events {
            let at = EventTime { monotonic_ns: event.attributes.monotonic_ns, unix: event.time };
            let slot = match event.name.rsplit('.').next() {
                Some("ARRIVED") => &mut times.arrived,
                Some("QUEUED") => &mut times.queued,
                Some("SCHEDULED") => &mut times.scheduled,
                Some("FIRST_RESPONSE_FROM_CORE") => &mut times.first_response,
                Some("FIRST_TOKEN") => &mut times.first_token,
                Some("DEPARTED") => &mut times.departed,
                Some("FINISHED") => &mut times.finished,
                Some("PREEMPTED") => {
                    times.preemptions += 1;
                    continue;
                }
                _ => continue,
            };
            *slot = earliest(*slot, Some(at));
        }
        times
    }

    fn join(&mut self, other: Self) {
        self.arrived = earliest(self.arrived, other.arrived);
        self.queued = earliest(self.queued, other.queued);
        self.scheduled = earliest(self.scheduled, other.scheduled);
        self.first_response = earliest(self.first_response, other.first_response);
        self.first_token = earliest(self.first_token, other.first_token);
        self.departed = earliest(self.departed, other.departed);
        self.finished = earliest(self.finished, other.finished);
        self.preemptions += other.preemptions;
    }
}

fn earliest(a: Option<EventTime>, b: Option<EventTime>) -> Option<EventTime> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.earlier(b)),
        (a, b) => a.or(b),
    }
}

/// The role of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpanRole {
    Request,
    /// The engine's part of a request.
    Core,
    Other,
}

/// The properties of a request that its spans contain.
struct SpanRequest {
    kind: SpanRole,
    /// Line of its first span.
    line: u64,
    span: Option<String>,
    parent: Option<String>,
    id: Option<String>,
    /// `id` in the span of the engine, which may differ.
    core_id: Option<String>,
    model: Option<String>,
    arrived: Option<Number>,
    start: Option<Number>,
    prompt: Option<Number>,
    completion: Option<Number>,
    max_tokens: Option<Number>,
    /// Numbers of events by type.
    prefill: Option<Number>,
    decoded: Option<Number>,
    times: JourneyTimes,
    latencies: SpanLatencies,
    in_engine: bool,
    finished: bool,
    failed: bool,
}

impl OtlpSpan {
    fn seen(self, line: u64) -> SpanRequest {
        let own = self.attributes;
        let find = |wanted: &[&str]| {
            self.events.iter().find(|event| event.name.rsplit('.').next().is_some_and(|name| wanted.contains(&name)))
        };
        let has = |wanted: &[&str]| find(wanted).is_some();
        let arrived = find(&["ARRIVED"]).and_then(|event| event.time);
        let highest = |of: fn(&Attributes) -> Option<Number>| {
            self.events.iter().filter_map(|event| of(&event.attributes)).reduce(higher)
        };
        let finish = self.events.iter().filter_map(|event| event.attributes.finish.as_deref());
        let status = &self.status["code"];
        let kind = match self.name.as_str() {
            "llm_request" => SpanRole::Request,
            _ if arrived.is_some() => SpanRole::Request,
            "llm_core" => SpanRole::Core,
            _ => SpanRole::Other,
        };
        let span = |span: &str| (!span.is_empty()).then(|| format!("{} {span}", self.trace));
        SpanRequest {
            kind,
            line,
            span: span(&self.id),
            parent: self.parent.as_deref().and_then(span),
            core_id: own.id.clone().filter(|_| kind == SpanRole::Core),
            arrived,
            start: self.start,
            prefill: highest(|attributes| attributes.prefill),
            decoded: highest(|attributes| attributes.decoded),
            times: JourneyTimes::of(&self.events),
            latencies: own.latencies,
            in_engine: has(&["QUEUED", "SCHEDULED"]),
            finished: has(&["FINISHED", "DEPARTED"]),
            failed: has(&["ABORTED"])
                || *status == 2
                || *status == "STATUS_CODE_ERROR"
                || finish.chain(own.finish.as_deref()).any(is_failure),
            id: own.id.or_else(|| self.events.iter().find_map(|event| event.attributes.id.clone())),
            model: own.model,
            prompt: own.prompt,
            completion: own.completion,
            max_tokens: own.max_tokens,
        }
    }
}

/// Whether a request with this finish status did not complete: vLLM's words, and those of this program's first exports.
fn is_failure(finish: &str) -> bool {
    ["aborted", "abort", "error", "ignored", "timeout", "dropped", "rejected"].contains(&finish)
}

fn higher(a: Number, b: Number) -> Number {
    if b.real() > a.real() { b } else { a }
}

/// One of two values, either of which may be missing.
fn either(a: Option<Number>, b: Option<Number>, choose: fn(Number, Number) -> Number) -> Option<Number> {
    match (a, b) {
        (Some(a), Some(b)) => Some(choose(a, b)),
        (a, b) => a.or(b),
    }
}

impl SpanRequest {
    /// Adds another span of the same request.
    fn join(&mut self, other: Self) {
        let lower: fn(Number, Number) -> Number = |a, b| if b.real() < a.real() { b } else { a };
        self.model = self.model.take().or(other.model);
        self.arrived = either(self.arrived, other.arrived, lower);
        self.start = either(self.start, other.start, lower);
        self.prompt = self.prompt.or(other.prompt);
        self.completion = self.completion.or(other.completion);
        self.max_tokens = self.max_tokens.or(other.max_tokens);
        self.prefill = either(self.prefill, other.prefill, higher);
        self.decoded = either(self.decoded, other.decoded, higher);
        self.times.join(other.times);
        let (own, more) = (self.latencies, other.latencies);
        self.latencies = SpanLatencies {
            time_to_first_token: own.time_to_first_token.or(more.time_to_first_token),
            e2e: own.e2e.or(more.e2e),
            time_in_queue: own.time_in_queue.or(more.time_in_queue),
        };
        self.in_engine |= other.in_engine;
        self.finished |= other.finished;
        self.failed |= other.failed;
    }

    fn has_failed(&self) -> bool {
        self.failed || self.completion().is_some_and(|tokens| tokens.real() == 0.0)
    }

    fn completion(&self) -> Option<Number> {
        self.completion.or(self.decoded)
    }

    /// The latencies of a request that completed.
    fn times(&self) -> Result<RecordedTimes, RowError> {
        let JourneyTimes { queued, scheduled, first_response, first_token, departed, finished, .. } = self.times;
        let start = self.start.map(|start| EventTime { monotonic_ns: None, unix: Some(start) });
        let arrived = self.times.arrived.or(start);
        let since = |at: Option<EventTime>| arrived.zip(at).and_then(|(from, to)| from.until_us(to));
        let seconds = |time: Option<f64>| time.map(|seconds| seconds * 1e6);
        let ttft = since(first_response.or(first_token)).or(seconds(self.latencies.time_to_first_token));
        let e2e = since(departed.or(finished)).or(seconds(self.latencies.e2e));
        let (Some(ttft), Some(e2e)) = (ttft, e2e) else {
            return Err(RowError::new("the request has no times of its first and last token").hint(
                "they are the events FIRST_TOKEN and FINISHED of a span, or the attributes \
                 `gen_ai.latency.time_to_first_token` and `gen_ai.latency.e2e`",
            ));
        };
        let times = RecordedTimes::new(ttft, e2e)
            .ok_or_else(|| RowError::new(format!("first token after {ttft} µs, last after {e2e} µs: not in order")))?;
        let waited = queued.zip(scheduled).and_then(|(from, to)| from.until_us(to));
        let queue_us = waited.or(seconds(self.latencies.time_in_queue)).filter(|us| *us >= 0.0);
        Ok(RecordedTimes { queue_us, preemptions: scheduled.map(|_| self.times.preemptions), ..times })
    }

    fn row(&self, id: u32) -> Result<TraceRow<NamedMetadata>, RowError> {
        let arrival = need(self.arrived.or(self.start), "startTimeUnixNano")?;
        let arrival = arrival.micros("startTimeUnixNano", NANOSECOND)?;
        let input = need(self.prompt.or(self.prefill), "gen_ai.usage.prompt_tokens")?;
        let input = field::prompt_tokens(input.count("gen_ai.usage.prompt_tokens")?, "gen_ai.usage.prompt_tokens")?;
        let output = need(self.completion(), "gen_ai.usage.completion_tokens")?;
        let output = output.count("gen_ai.usage.completion_tokens")?;
        let max_output_tokens = self.max_tokens.map(|tokens| tokens.count("gen_ai.request.max_tokens")).transpose()?;
        let terms = NamedMetadata { max_output_tokens, ..NamedMetadata::default() };
        Ok(TraceRow { arrival, id, input, output, prefix: ROOT, terms })
    }
}

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AttributeVisitor;
        impl<'de> Visitor<'de> for AttributeVisitor {
            type Value = Attributes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of attributes")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut pairs: A) -> Result<Attributes, A::Error> {
                let mut all = Attributes::default();
                while let Some(Attribute { key, value }) = pairs.next_element()? {
                    all.take(&key, value.unwrap_or_default()).map_err(de::Error::custom)?;
                }
                Ok(all)
            }
        }
        deserializer.deserialize_seq(AttributeVisitor)
    }
}

#[derive(Deserialize)]
struct Attribute {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: Option<AttributeValue>,
}

/// The types of values that are read. Integers are written as text.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AttributeValue {
    #[serde(rename = "intValue")]
    int: Option<Number>,
    #[serde(rename = "doubleValue")]
    double: Option<Number>,
    #[serde(rename = "stringValue")]
    string: Option<String>,
    #[serde(rename = "arrayValue")]
    _array: Option<IgnoredAny>,
}

impl Attributes {
    fn take(&mut self, key: &str, value: AttributeValue) -> Result<(), String> {
        let number = value.int.or(value.double);
        let slot = match (key, key.rsplit('.').next().unwrap_or_default()) {
            ("gen_ai.request.id", _) | (_, "request_id") => {
                self.id = value.string;
                return Ok(());
            }
            ("gen_ai.request.model" | "gen_ai.response.model", _) => {
                self.model = value.string;
                return Ok(());
            }
            ("finish.status" | "journey.finish.status", _) | (_, "finish_status") => {
                self.finish = value.string;
                return Ok(());
            }
            ("gen_ai.usage.prompt_tokens" | "gen_ai.usage.input_tokens", _) => &mut self.prompt,
            ("gen_ai.usage.completion_tokens" | "gen_ai.usage.output_tokens", _) => &mut self.completion,
            ("gen_ai.request.max_tokens", _) => &mut self.max_tokens,
            ("prefill.total_tokens" | "prefill.done_tokens", _)
            | (_, "prefill_total_tokens" | "prefill_done_tokens") => &mut self.prefill,
            ("decode.done_tokens", _) | (_, "decode_done_tokens") => &mut self.decoded,
            (_, "monotonic" | "monotonic_ns") => {
                // Both names are in use for one clock: seconds as a float, nanoseconds as an integer.
                let ns = value.int.map(Number::real).or(value.double.map(|seconds| seconds.real() * 1e9));
                self.monotonic_ns = ns.or(self.monotonic_ns);
                return Ok(());
            }
            ("gen_ai.latency.time_to_first_token", _) => {
                self.latencies.time_to_first_token = number.map(Number::real);
                return Ok(());
            }
            ("gen_ai.latency.e2e", _) => {
                self.latencies.e2e = number.map(Number::real);
                return Ok(());
            }
            ("gen_ai.latency.time_in_queue", _) => {
                self.latencies.time_in_queue = number.map(Number::real);
                return Ok(());
            }
            _ => return Ok(()),
        };
        let Some(number) = number else { return Err(format!("`{key}` is no number")) };
        // Of the total and done counts, the total is the larger one.
        let larger = slot.is_none_or(|before| before.real() < number.real());
        if larger {
            *slot = Some(number);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trace(text: &str) -> Result<Workload, TraceError> {
        read(text.as_bytes(), "o.jsonl", &TraceOptions::default())
    }

    fn span(name: &str, start: u64, attributes: &[(&str, &str)], events: &str) -> String {
        let pair = |(key, value): &(&str, &str)| format!(r#"{{"key": "{key}", "value": {{{value}}}}}"#);
        let attributes: Vec<String> = attributes.iter().map(pair).collect();
        format!(
            r#"{{"name": "{name}", "kind": 2, "startTimeUnixNano": "{start}", "attributes": [{}], "events": [{events}]}}"#,
            attributes.join(", ")
        )
    }

    fn document(spans: &[String]) -> String {
        format!(
            r#"{{"resourceSpans": [{{"resource": {{"attributes": []}}, "scopeSpans": [{{"spans": [{}]}}]}}]}}"#,
            spans.join(", ")
        )
    }

    const USED: [(&str, &str); 2] = [
        ("gen_ai.usage.prompt_tokens", r#""intValue": "100""#),
        ("gen_ai.usage.completion_tokens", r#""intValue": "7""#),
    ];

    #[test]
    fn spans_of_vllm_become_requests() {
        let more = [
            ("gen_ai.request.max_tokens", r#""intValue": 64"#),
            ("gen_ai.request.model", r#""stringValue": "m""#),
            ("gen_ai.latency.e2e", r#""doubleValue": 1.5"#),
            ("stop", r#""arrayValue": {"values": [{"stringValue": "x"}]}"#),
        ];
        let text = [
            document(&[span("llm_request", 1_700_000_000_000_005_000, &USED, "")]),
            document(&[
                span("tokenize", 5, &[], ""),
                span(
                    "llm_request",
                    1_700_000_000_000_000_000,
                    &[USED, [more[0], more[1]], [more[2], more[3]]].concat(),
                    "",
                ),
            ]),
        ];
        let workload = trace(&text.join("\n")).unwrap();
        assert_eq!(workload.notes[..2], ["recorded with `m`", "1 span of other names skipped"]);
        let seen: Vec<_> = workload
            .requests
            .map(|r| (r.id, r.arrival.0, r.input_tokens, r.output_tokens, r.max_output_tokens))
            .collect();
        assert_eq!(seen, [(1, 0, 100, 7, Some(64)), (0, 5, 100, 7, None)]);
    }

    #[test]
    fn journeys_arrive_at_their_event() {
        let id = ("gen_ai.request.id", r#""stringValue": "cmpl-1""#);
        let event = |name: &str, time: u64, counters: &str| {
            format!(
                r#"{{"name": "{name}", "timeUnixNano": "{time}", "attributes": [{{"key": "ts.monotonic", "value": {{"intValue": "5"}}}}{counters}]}}"#
            )
        };
        let counters = r#", {"key": "journey.prefill_total_tokens", "value": {"intValue": "300"}}, {"key": "journey.decode_done_tokens", "value": {"intValue": "21"}}"#;
        let api = span("llm_request", 1_000, &[id], &event("journey.ARRIVED", 9_000, ""));
        let core = span(
            "llm_core",
            2_000,
            &[id],
            &[event("QUEUED", 10_000, ""), event("FINISHED", 90_000, counters)].join(","),
        );
        let other = span("llm_request", 12_000, &USED, "");
        let workload = trace(&document(&[api, core, other])).unwrap();
        let seen: Vec<_> = workload.requests.map(|r| (r.arrival.0, r.input_tokens, r.output_tokens)).collect();
        assert_eq!(seen, [(0, 300, 21), (3, 100, 7)]);
    }

    /// The form of a vLLM with journey tracing: one line per scope, the engine's id with a suffix.
    fn fork(name: &str, scope: &str, ids: (&str, &str, &str), attributes: &str, events: &str) -> String {
        let (trace, span, parent) = ids;
        let parent = if parent.is_empty() { String::new() } else { format!(r#""parentSpanId": "{parent}", "#) };
        format!(
            r#"{{"resourceSpans": [{{"resource": {{"attributes": [{{"key": "service.name", "value": {{"stringValue": "vllm"}}}}]}}, "scopeSpans": [{{"scope": {{"name": "{scope}"}}, "spans": [{{"traceId": "{trace}", "spanId": "{span}", {parent}"flags": 256, "name": "{name}", "kind": 2, "startTimeUnixNano": "1771427000000000000", "endTimeUnixNano": "1771427003000000000", "attributes": [{attributes}], "events": [{events}], "status": {{}}}}]}}]}}]}}"#
        )
    }

    fn api(span: &str, arrived: u64, end: &str) -> String {
        let attributes = r#"{"key": "gen_ai.request.id", "value": {"stringValue": "cmpl-SPAN"}}, {"key": "http.route", "value": {"stringValue": "/v1/completions"}}, {"key": "gen_ai.response.model", "value": {"stringValue": "m"}}, {"key": "gen_ai.usage.prompt_tokens", "value": {"intValue": "100"}}, {"key": "gen_ai.request.temperature", "value": {"doubleValue": 1.0}}, {"key": "gen_ai.request.max_tokens", "value": {"intValue": "64"}}, {"key": "gen_ai.request.n", "value": {"intValue": "1"}}"#;
        let event = |name: &str, at: u64| {
            format!(
                r#"{{"timeUnixNano": "{at}", "name": "api.{name}", "attributes": [{{"key": "event.ts.monotonic", "value": {{"doubleValue": 5.25}}}}]}}"#
            )
        };
        let events =
            [event("ARRIVED", arrived), event("HANDOFF_TO_CORE", arrived + 9), event(end, arrived + 2_000_000)];
        fork("llm_request", "vllm.api", ("t1", span, ""), &attributes.replace("SPAN", span), &events.join(", "))
    }

    fn core(request: &str, parent: &str, prompt: u32, output: u32, finish: &str) -> String {
        let attributes = format!(r#"{{"key": "gen_ai.request.id", "value": {{"stringValue": "{request}"}}}}"#);
        let event = |name: &str, prefilled: u32, decoded: u32, more: &str| {
            format!(
                r#"{{"timeUnixNano": "1771427000000004000", "name": "journey.{name}", "attributes": [{{"key": "event.type", "value": {{"stringValue": "{name}"}}}}, {{"key": "ts.monotonic", "value": {{"doubleValue": 5.5}}}}, {{"key": "scheduler.step", "value": {{"intValue": "7"}}}}, {{"key": "phase", "value": {{"stringValue": "DECODE"}}}}, {{"key": "prefill.done_tokens", "value": {{"intValue": "{prefilled}"}}}}, {{"key": "prefill.total_tokens", "value": {{"intValue": "{prompt}"}}}}, {{"key": "decode.done_tokens", "value": {{"intValue": "{decoded}"}}}}, {{"key": "decode.max_tokens", "value": {{"intValue": "64"}}}}, {{"key": "num_preemptions", "value": {{"intValue": "0"}}}}{more}]}}"#
            )
        };
        let more = |key: &str, word: &str| format!(r#", {{"key": "{key}", "value": {{"stringValue": "{word}"}}}}"#);
        let mut events = vec![event("QUEUED", 0, 0, ""), event("SCHEDULED", 0, 0, &more("schedule.kind", "FIRST"))];
        if !finish.is_empty() {
            events.push(event("FINISHED", prompt, output, &more("finish.status", finish)));
        }
        let span = format!("of-{request}");
        fork("llm_core", "vllm.scheduler", ("t1", &span, parent), &attributes, &events.join(", "))
    }

    /// Arrival, input tokens, output tokens, limit of output tokens.
    type SpanLengths = (u64, u32, u32, Option<u32>);

    fn read_in(lines: &[String]) -> (Vec<String>, Vec<SpanLengths>) {
        let workload = trace(&lines.join("\n")).unwrap();
        let seen = workload.requests.map(|r| (r.arrival.0, r.input_tokens, r.output_tokens, r.max_output_tokens));
        (workload.notes, seen.collect())
    }

    const DAY: u64 = 1_771_427_000_000_000_000;

    #[test]
    fn the_two_spans_of_a_request_are_one_in_either_order() {
        let steps =
            fork("scheduler_steps", "vllm.scheduler.step", ("t9", "s9", ""), "", r#"{"name": "step.BATCH_SUMMARY"}"#);
        let lines = [
            api("a", DAY + 1_000, "DEPARTED"),
            core("cmpl-a-0-9f3c", "a", 100, 21, "length"),
            api("b", DAY + 9_000, "DEPARTED"),
            core("cmpl-b-0-9f3d", "b", 100, 5, "stopped"),
            steps,
        ];
        for order in [[0, 1, 2, 3, 4], [1, 0, 4, 3, 2], [3, 1, 2, 0, 4], [4, 2, 0, 3, 1]] {
            let (notes, seen) = read_in(&order.map(|at| lines[at].clone()));
            assert_eq!(seen, [(0, 100, 21, Some(64)), (8, 100, 5, Some(64))], "{order:?}");
            assert_eq!(notes[..2], ["recorded with `m`", "1 span of other names skipped"]);
        }
    }

    #[test]
    fn spans_of_the_engine_alone_are_requests_and_so_are_further_prompts_of_a_call() {
        let alone = core("r1", "", 30, 3, "length");
        assert_eq!(read_in(&[alone]).1, [(0, 30, 3, None)]);
        let several = [
            core("cmpl-a-1-ffff", "a", 40, 4, "length"),
            api("a", DAY + 1_000, "DEPARTED"),
            core("cmpl-a-0-ffff", "a", 100, 21, "length"),
            core("cmpl-a-0-ffff", "a", 100, 22, "length"),
        ];
        let mut seen = read_in(&several).1;
        seen.sort_unstable();
        assert_eq!(seen, [(0, 100, 4, Some(64)), (0, 100, 22, None)]);
    }

    #[test]
    fn journeys_have_latencies() {
        let options = TraceOptions { recorded_times: true, ..TraceOptions::default() };
        let times = |text: &str| read(text.as_bytes(), "o.jsonl", &options).map(|workload| workload.recorded);
        let event = |name: &str, unix: u64, clock: &str| {
            format!(
                r#"{{"name": "{name}", "timeUnixNano": "{unix}", "attributes": [{{"key": "ts.monotonic", "value": {{{clock}}}}}]}}"#
            )
        };
        let seconds = |name: &str, at: f64| event(name, 7, &format!(r#""doubleValue": {at}"#));
        // The clock of the machine counts where all events have it: 0.5 s to the first token, 2 s in all, 0.25 s queued.
        let events = [
            seconds("api.ARRIVED", 100.0),
            seconds("journey.QUEUED", 100.125),
            seconds("journey.SCHEDULED", 100.375),
            seconds("journey.PREEMPTED", 100.625),
            seconds("journey.SCHEDULED", 100.75),
            seconds("journey.FIRST_TOKEN", 100.5),
            event("journey.FINISHED", 9, r#""intValue": "102000000000""#),
        ];
        let journey = document(&[span("llm_request", 5, &USED, &events.join(","))]);
        let all =
            RecordedTimes { queue_us: Some(250_000.0), preemptions: Some(1), ..RecordedTimes::new(5e5, 2e6).unwrap() };
        assert_eq!(times(&journey).unwrap(), [(0, all)]);
        // Without it, the time of day: integers of 19 digits, to the microsecond.
        let events = [("ARRIVED", DAY + 1_000), ("FIRST_RESPONSE_FROM_CORE", DAY + 4_000), ("DEPARTED", DAY + 8_000)];
        let events = events.map(|(name, at)| event(name, at, r#""stringValue": "none""#));
        let unix = document(&[span("llm_request", 5, &USED, &events.join(","))]);
        assert_eq!(times(&unix).unwrap(), [(0, RecordedTimes::new(3.0, 7.0).unwrap())]);
        let stock = [
            ("gen_ai.latency.time_to_first_token", r#""doubleValue": 0.25"#),
            ("gen_ai.latency.e2e", r#""doubleValue": 1.5"#),
            ("gen_ai.latency.time_in_queue", r#""doubleValue": 0.125"#),
        ];
        let stock = document(&[span("llm_request", 5, &[&USED[..], &stock[..]].concat(), "")]);
        let expected =
            RecordedTimes { queue_us: Some(125_000.0), ..RecordedTimes::new(250_000.0, 1_500_000.0).unwrap() };
        assert_eq!(times(&stock).unwrap(), [(0, expected)]);
        insta::assert_snapshot!(times(&document(&[span("llm_request", 5, &USED, "")])).unwrap_err(), @r"
        o.jsonl:1: the request has no times of its first and last token
        hint: they are the events FIRST_TOKEN and FINISHED of a span, or the attributes `gen_ai.latency.time_to_first_token` and `gen_ai.latency.e2e`
        ");
    }

    #[test]
    fn failed_requests_are_no_requests_with_short_outputs() {
        let lines = [
            api("a", DAY, "DEPARTED"),
            core("cmpl-a-0-1", "a", 100, 21, "length"),
            api("b", DAY + 1_000, "ABORTED"),
            core("cmpl-b-0-1", "b", 100, 2, "length"),
            core("c", "", 100, 2, "aborted"),
            core("d", "", 100, 0, "length"),
            core("e", "", 100, 0, ""),
            document(&[span("llm_request", DAY + 5_000, &USED, "")])
                .replace("\"kind\"", "\"status\": {\"code\": 2}, \"kind\""),
            document(&[span(
                "llm_request",
                DAY + 5_000,
                &USED,
                r#"{"name": "FINISHED", "attributes": [{"key": "finish_status", "value": {"stringValue": "timeout"}}]}"#,
            )]),
        ];
        let (notes, seen) = read_in(&lines);
        assert_eq!(seen, [(0, 100, 21, Some(64))]);
        assert_eq!(notes, ["recorded with `m`", "5 failed requests left out", "1 unfinished request left out"]);
    }

    #[test]
    fn errors_say_where() {
        let good = document(&[span("llm_request", 5, &USED, "")]);
        let error =
            |from: &str, to: &str| trace(&format!("{good}\n{}\n", good.replace(from, to))).unwrap_err().to_string();
        insta::assert_snapshot!(error("\"100\"", "\"many\""), @r#"o.jsonl:2:220: invalid value: string "many", expected a number"#);
        insta::assert_snapshot!(error("\"100\"", "\"0\""), @"o.jsonl:2: `gen_ai.usage.prompt_tokens` is 0: a prompt has at least one token");
        insta::assert_snapshot!(error("prompt_tokens", "other_tokens"), @"o.jsonl:2: `gen_ai.usage.prompt_tokens` is missing");
        insta::assert_snapshot!(error("resourceSpans", "spans"), @"o.jsonl:2:306: missing field `resourceSpans`");
        insta::assert_snapshot!(error("intValue", "boolValue"), @"o.jsonl:2:225: `gen_ai.usage.prompt_tokens` is no number");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, at: usize, byte: u8) {
            let _ = read(bytes.as_slice(), "x", &TraceOptions::default());
            let mut text = document(&[span("llm_request", 5, &USED, "")]).into_bytes();
            let at = at % text.len();
            text[at] = byte;
            let _ = read(text.as_slice(), "x", &TraceOptions::default());
        }
    }
}
