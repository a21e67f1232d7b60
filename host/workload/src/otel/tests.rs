use super::*;
use crate::recorded::RecordedTimes;
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

const USED: [(&str, &str); 2] =
    [("gen_ai.usage.prompt_tokens", r#""intValue": "100""#), ("gen_ai.usage.completion_tokens", r#""intValue": "7""#)];

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
        .map(|r| (r.id.0, r.arrival.0, r.input_tokens, r.output_tokens, r.max_output_tokens))
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
    let core =
        span("llm_core", 2_000, &[id], &[event("QUEUED", 10_000, ""), event("FINISHED", 90_000, counters)].join(","));
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
    let events = [event("ARRIVED", arrived), event("HANDOFF_TO_CORE", arrived + 9), event(end, arrived + 2_000_000)];
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
    assert_eq!(times(&journey).unwrap(), [(RequestId(0), all)]);
    // Without it, the time of day: integers of 19 digits, to the microsecond.
    let events = [("ARRIVED", DAY + 1_000), ("FIRST_RESPONSE_FROM_CORE", DAY + 4_000), ("DEPARTED", DAY + 8_000)];
    let events = events.map(|(name, at)| event(name, at, r#""stringValue": "none""#));
    let unix = document(&[span("llm_request", 5, &USED, &events.join(","))]);
    assert_eq!(times(&unix).unwrap(), [(RequestId(0), RecordedTimes::new(3.0, 7.0).unwrap())]);
    let stock = [
        ("gen_ai.latency.time_to_first_token", r#""doubleValue": 0.25"#),
        ("gen_ai.latency.e2e", r#""doubleValue": 1.5"#),
        ("gen_ai.latency.time_in_queue", r#""doubleValue": 0.125"#),
    ];
    let stock = document(&[span("llm_request", 5, &[&USED[..], &stock[..]].concat(), "")]);
    let expected = RecordedTimes { queue_us: Some(125_000.0), ..RecordedTimes::new(250_000.0, 1_500_000.0).unwrap() };
    assert_eq!(times(&stock).unwrap(), [(RequestId(0), expected)]);
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
    let error = |from: &str, to: &str| trace(&format!("{good}\n{}\n", good.replace(from, to))).unwrap_err().to_string();
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
