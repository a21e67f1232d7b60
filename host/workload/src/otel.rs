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

use blis_sim::ids::RequestId;
use rustc_hash::FxHashMap;
use serde::de::{self, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::error::TraceError;
use super::json::{Documents, NANOSECOND, Number, need};
use super::names::Names;
use super::prefix::ROOT;
use super::row::{NamedMetadata, TraceRow};
use super::rows::{Intake, Origin, SharedContents, counted};
use super::{TraceOptions, Workload, field};
use blis_diag::RowError;

mod times;

use times::{EventTime, JourneyTimes, SpanLatencies};

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
            let times = intake.times(|| seen.times.latencies(seen.start, seen.latencies));
            let read = times.and_then(|times| Ok((seen.row(id)?, times)));
            if let Some((row, times)) = intake.valid(read, |fault| fault.at(&file, seen.line))? {
                intake.add_measured(row, times);
            }
        }
    }
    intake.note_left_out(failed, "failed request");
    intake.note_left_out(unfinished, "unfinished request");
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
        let mut times = JourneyTimes::default();
        for event in &self.events {
            times.take(&event.name, EventTime { monotonic_ns: event.attributes.monotonic_ns, unix: event.time });
        }
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
            times,
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
        self.latencies.join(other.latencies);
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

    fn row(&self, id: RequestId) -> Result<TraceRow<NamedMetadata>, RowError> {
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
            _ => {
                self.latencies.take(key, number.map(Number::real));
                return Ok(());
            }
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
mod tests;
