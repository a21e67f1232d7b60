//! OpenTelemetry spans of vLLM, as OTLP-JSON: documents with `resourceSpans`, usually one a line.
//!
//! A request is a span `llm_request`, or any span with an event `ARRIVED` (the journey events of
//! instrumented vLLM; a prefix as in `journey.ARRIVED` is let pass). It arrives at that event, else at
//! the start of the span. Spans with the same `gen_ai.request.id` are one request. Lengths are
//! `gen_ai.usage.*`, else the highest `prefill_total_tokens` and `decode_done_tokens` of its events; the
//! client's budget is `gen_ai.request.max_tokens`. Spans of other names are passed over.

use std::fmt;
use std::io::BufRead;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::de::{self, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::error::{Fault, TraceError};
use super::json::{Documents, NANOSECOND, Number, need};
use super::names::Names;
use super::prefix::ROOT;
use super::rows::{Intake, Origin, Row, Said, Shared, counted};
use super::{TraceOptions, Workload, field};

/// Reads OTLP-JSON with spans of vLLM.
///
/// # Errors
/// Whatever [`TraceError`] lists.
pub fn read(input: impl BufRead, file: &str, options: &TraceOptions) -> Result<Workload, TraceError> {
    let file: Arc<str> = file.into();
    let mut intake = Intake::new(&file, options);
    let mut documents: Documents<_, Document> = Documents::new(input, &file);
    let mut requests: Vec<(u64, Seen)> = Vec::new();
    let mut by_id: FxHashMap<String, usize> = FxHashMap::default();
    let mut others = 0_u64;
    while let Some(document) = documents.next()? {
        let scopes = document.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        for span in scopes.flat_map(|scope| scope.spans) {
            let seen = span.seen();
            let known = seen.id.as_ref().and_then(|id| by_id.get(id).copied());
            match known {
                Some(at) => requests[at].1.join(seen),
                None if span.name == "llm_request" || seen.arrived.is_some() => {
                    by_id.extend(seen.id.clone().map(|id| (id, requests.len())));
                    requests.push((documents.line(), seen));
                }
                None => others += 1,
            }
        }
    }
    for (line, seen) in requests {
        if !intake.wants_more() {
            break;
        }
        let id = intake.next_id()?;
        intake.measured_with(seen.model.as_deref());
        match seen.row(id) {
            Ok(row) => intake.add(row),
            Err(fault) => intake.bad(fault.at(&file, line))?,
        }
    }
    if others > 0 {
        intake.notes.push(format!("{} of other names passed over", counted(others, "span")));
    }
    intake.finish(Origin::FirstArrival, Shared::default(), Names::default())
}

#[derive(Deserialize)]
struct Document {
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
    spans: Vec<Span>,
}

#[derive(Deserialize)]
struct Span {
    #[serde(default)]
    name: String,
    /// ns since 1970.
    #[serde(default, rename = "startTimeUnixNano")]
    start: Option<Number>,
    #[serde(default)]
    attributes: Attributes,
    #[serde(default)]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    name: String,
    #[serde(default, rename = "timeUnixNano")]
    time: Option<Number>,
    #[serde(default)]
    attributes: Attributes,
}

/// What is read of all attributes.
#[derive(Clone, Default)]
struct Attributes {
    id: Option<String>,
    model: Option<String>,
    prompt: Option<Number>,
    completion: Option<Number>,
    max_tokens: Option<Number>,
    prefill: Option<Number>,
    decoded: Option<Number>,
}

/// What spans say of a request.
struct Seen {
    id: Option<String>,
    model: Option<String>,
    arrived: Option<Number>,
    start: Option<Number>,
    prompt: Option<Number>,
    completion: Option<Number>,
    max_tokens: Option<Number>,
}

impl Span {
    fn seen(&self) -> Seen {
        let own = self.attributes.clone();
        let arrived = self.events.iter().find(|event| event.name.rsplit('.').next() == Some("ARRIVED"));
        let highest = |of: fn(&Attributes) -> Option<Number>| {
            self.events.iter().filter_map(|event| of(&event.attributes)).max_by(|a, b| a.real().total_cmp(&b.real()))
        };
        Seen {
            id: own.id.or_else(|| self.events.iter().find_map(|event| event.attributes.id.clone())),
            model: own.model,
            arrived: arrived.and_then(|event| event.time),
            start: self.start,
            prompt: own.prompt.or_else(|| highest(|attributes| attributes.prefill)),
            completion: own.completion.or_else(|| highest(|attributes| attributes.decoded)),
            max_tokens: own.max_tokens,
        }
    }
}

impl Seen {
    /// Another span of the same request.
    fn join(&mut self, other: Self) {
        let earlier = |a: Option<Number>, b: Option<Number>| match (a, b) {
            (Some(a), Some(b)) => Some(if b.real() < a.real() { b } else { a }),
            (a, b) => a.or(b),
        };
        self.model = self.model.take().or(other.model);
        self.arrived = earlier(self.arrived, other.arrived);
        self.start = earlier(self.start, other.start);
        self.prompt = self.prompt.or(other.prompt);
        self.completion = self.completion.or(other.completion);
        self.max_tokens = self.max_tokens.or(other.max_tokens);
    }

    fn row(&self, id: u32) -> Result<Row<Said>, Fault> {
        let arrival = need(self.arrived.or(self.start), "startTimeUnixNano")?;
        let arrival = arrival.micros("startTimeUnixNano", NANOSECOND)?;
        let input = need(self.prompt, "gen_ai.usage.prompt_tokens")?.count("gen_ai.usage.prompt_tokens")?;
        let input = field::prompt_tokens(input, "gen_ai.usage.prompt_tokens")?;
        let output = need(self.completion, "gen_ai.usage.completion_tokens")?;
        let output = output.count("gen_ai.usage.completion_tokens")?;
        let max_output_tokens = self.max_tokens.map(|tokens| tokens.count("gen_ai.request.max_tokens")).transpose()?;
        let terms = Said { max_output_tokens, ..Said::default() };
        Ok(Row { arrival, id, input, output, prefix: ROOT, terms })
    }
}

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
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
        deserializer.deserialize_seq(Pairs)
    }
}

#[derive(Deserialize)]
struct Attribute {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: Option<Value>,
}

/// The kinds of values that matter. Whole numbers are written as strings.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Value {
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
    fn take(&mut self, key: &str, value: Value) -> Result<(), String> {
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
            ("gen_ai.usage.prompt_tokens" | "gen_ai.usage.input_tokens", _) => &mut self.prompt,
            ("gen_ai.usage.completion_tokens" | "gen_ai.usage.output_tokens", _) => &mut self.completion,
            ("gen_ai.request.max_tokens", _) => &mut self.max_tokens,
            (_, "prefill_total_tokens" | "prefill_done_tokens") => &mut self.prefill,
            (_, "decode_done_tokens") => &mut self.decoded,
            _ => return Ok(()),
        };
        let Some(number) = number else { return Err(format!("`{key}` is no number")) };
        // Of total and done, total is the larger one.
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
        assert_eq!(workload.notes[..2], ["recorded with `m`", "1 span of other names passed over"]);
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
