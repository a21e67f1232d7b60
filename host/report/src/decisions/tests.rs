//! A small trace written by hand, read in every way. Integration tests use traces of real runs.

use std::io::Cursor;

use blis_sim::ids::{InstanceIndex, RequestId};
use serde_json::{Value, json};

use super::*;

const INSTANCES: u32 = 2;

fn header() -> DecisionHeader {
    let named = |name: &str| name.to_owned();
    DecisionHeader {
        format: FORMAT.to_owned(),
        version: VERSION,
        program: named("blis 0.1.0"),
        config_sha256: "0".repeat(64),
        seed: 42,
        model: named("m"),
        hardware: named("H100"),
        workload: named("by hand"),
        policies: PolicyNames {
            admission: named("always-admit"),
            routing: named("weighted"),
            priority: named("class"),
            scheduling: named("fcfs"),
            preemption: named("fcfs"),
        },
        admission_latency_us: 0,
        routing_latency_us: 0,
        snapshot_refresh_interval_us: 50_000,
        cache_signal_delay_us: 50_000,
        counterfactual_k: 0,
        instances: vec![InstanceGroup {
            first: 0,
            count: INSTANCES,
            max_num_seqs: 2,
            max_num_batched_tokens: 100,
            total_kv_blocks: 10,
            block_size: 16,
        }],
    }
}

/// A trace of a header, `lines`, and an end.
fn trace(lines: &[Value]) -> String {
    let mut text = serde_json::to_value(header()).expect("JSON");
    text["kind"] = "header".into();
    let end = json!({"kind": "end", "lines": lines.len() + 1});
    [&[text][..], lines, &[end]].concat().iter().map(|line| format!("{line}\n")).collect()
}

fn reader(text: &str) -> Result<TraceReader, blis_workload::TraceError> {
    TraceReader::new(Box::new(Cursor::new(text.as_bytes().to_vec())), &"t".into())
}

/// The error of the trace with `lines`.
fn fault(lines: &[Value]) -> String {
    let mut reader = reader(&trace(lines)).expect("a header");
    loop {
        match reader.next_line() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("no error: {lines:?}"),
            Err(error) => return error.to_string().lines().next().expect("a line").to_owned(),
        }
    }
}

fn signals(reading: u64, time_us: u64, queue: [u32; 2]) -> Value {
    json!({"kind": "signals", "reading": reading, "time_us": time_us, "queue_depth": queue, "batch_size": [1, 0],
           "free_kv_blocks": [3, 10], "cache_hit_rate": [0.5, 0.0], "preemption_count": [0, 0]})
}

fn routing(request: u32, time_us: u64, instance: u32, scores: [f64; 2]) -> Value {
    json!({"kind": "routing", "request": request, "time_us": time_us, "instance": instance, "reason": "weighted",
           "reading": 1, "reading_age_us": time_us, "in_flight": [2, 0], "scores": scores})
}

fn admission(request: u32, time_us: u64) -> Value {
    json!({"kind": "admission", "request": request, "time_us": time_us, "admitted": true, "input_tokens": 40})
}

fn enters(request: u32, time_us: u64, instance: u32, waited_us: u64) -> Value {
    json!({"kind": "scheduling", "request": request, "time_us": time_us, "instance": instance, "decision": "enters",
           "num_tokens": 40, "cached_blocks": 0, "waited_us": waited_us, "waiting": 1, "running": 0, "free_kv_blocks": 10,
           "token_budget": 100})
}

fn outcome(request: u32, instance: u32, ttft_us: u64, e2e_us: u64) -> Value {
    json!({"kind": "outcome", "request": request, "time_us": e2e_us, "status": "completed", "instance": instance,
           "arrival_us": 0, "input_tokens": 40, "output_tokens": 5, "generated_tokens": 5, "ttft_us": ttft_us,
           "e2e_us": e2e_us, "scheduling_delay_us": 5})
}

/// Three requests; 2 waits for 0 and 1, is preempted for 1, and returns.
fn small() -> Vec<Value> {
    let out = json!({"kind": "preemption", "request": 2, "time_us": 700, "instance": 0, "wanting": 1, "needed_kv_blocks": 1,
                     "free_kv_blocks": 0, "waiting": 0, "running": 2, "computed_tokens": 41, "generated_tokens": 1});
    let stays = json!({"kind": "scheduling", "request": 2, "time_us": 300, "instance": 0, "decision": "waits",
                       "obstacle": "kv-blocks", "needed_kv_blocks": 3, "waited_us": 100, "waiting": 1, "running": 2,
                       "free_kv_blocks": 1, "token_budget": 98});
    vec![
        signals(1, 0, [0, 0]),
        admission(0, 100),
        routing(0, 100, 0, [0.9, 0.5]),
        admission(1, 150),
        routing(1, 150, 0, [0.25, 0.75]),
        admission(2, 200),
        routing(2, 200, 0, [0.75, 0.25]),
        // Recorded late: of another instance, and from before it joined the queue.
        enters(9, 250, 1, 0),
        enters(0, 100, 0, 0),
        enters(1, 200, 0, 50),
        stays,
        enters(2, 500, 0, 300),
        out,
        enters(2, 900, 0, 200),
        outcome(0, 0, 50, 600),
        outcome(1, 0, 80, 1000),
        outcome(2, 0, 400, 2000),
    ]
}

#[test]
fn a_request_has_a_story() {
    let text = trace(&small());
    let story = |request| RequestHistory::from_reader(&mut reader(&text).expect("a header"), request).expect("a trace");
    insta::assert_snapshot!(story(RequestId(2)).expect("it is there").to_string());
    assert_eq!(story(RequestId(77)), None);
    let made_room = serde_json::to_value(story(RequestId(1))).expect("JSON");
    let kinds: Vec<_> = made_room["events"].as_array().expect("a list").iter().map(|event| &event["kind"]).collect();
    assert_eq!(kinds, ["admission", "routing", "scheduling", "preemption", "outcome"], "2 was preempted for it");
    assert_eq!(made_room["events"][1]["observed"]["instances"][1]["score"], 0.75);
}

#[test]
fn scores_make_regret_and_margin() {
    let text = trace(&small());
    let top = |by| {
        let top = Top::from_reader(&mut reader(&text).expect("a header"), by, 2).expect("a trace");
        let top = serde_json::to_value(top).expect("JSON");
        let of = |entry: &Value| (entry["request"].as_u64(), entry["value"].as_f64());
        top["decisions"].as_array().expect("a list").iter().map(of).collect::<Vec<_>>()
    };
    let pairs = |pairs: [(u64, f64); 2]| pairs.map(|(request, value)| (Some(request), Some(value))).to_vec();
    assert_eq!(top(TopBy::ScoreRegret), pairs([(1, 0.5), (0, 0.0)]), "the first of equal ones");
    assert_eq!(top(TopBy::Margin), pairs([(2, 0.5), (0, 0.4)]));
    assert_eq!(top(TopBy::Ttft), pairs([(2, 400.0), (1, 80.0)]));
    assert_eq!(top(TopBy::E2e), pairs([(2, 2000.0), (1, 1000.0)]));
    assert_eq!(top(TopBy::Wait), pairs([(0, 5.0), (1, 5.0)]));
}

#[test]
fn the_first_difference_is_the_earliest() {
    let [a, mut b] = [small(), small()];
    let diff = |a: &[Value], b: &[Value]| {
        let diff = Diff::between(["a".into(), "b".into()], || reader(&trace(a)), || reader(&trace(b)));
        serde_json::to_value(diff.expect("traces")).expect("JSON")
    };
    assert_eq!(diff(&a, &b)["first"], Value::Null);
    b[9]["time_us"] = 210.into();
    let later = diff(&a, &b);
    let first = &later["first"];
    let expected = (&"scheduling".into(), &1.into(), &200.into());
    assert_eq!((&first["kind"], &first["request"], &first["time_us"]), expected);
    b[6]["instance"] = 1.into();
    b[16]["e2e_us"] = 2500.into();
    let both = diff(&a, &b);
    assert_eq!((&both["first"]["kind"], &both["first"]["time_us"]), (&"routing".into(), &200.into()), "decided before");
    assert_eq!(both["first"]["b"]["observed"]["instances"][0]["in_flight"], 2);
    let counts: Vec<_> =
        both["decisions"].as_array().expect("a list").iter().map(|count| count["differ"].clone()).collect();
    assert_eq!(counts, [0, 1, 1, 0]);
    assert_eq!(
        both["worst"],
        json!([{"request": 2, "e2e_difference_us": 500,
        "a": {"instance": 0, "preemptions": 1, "ttft_us": 400, "e2e_us": 2000},
        "b": {"instance": 1, "preemptions": 1, "ttft_us": 400, "e2e_us": 2500}}])
    );
    assert_eq!(both["latencies"][1]["longer_in_b"], 1);
}

#[test]
fn lines_are_filtered() {
    let list = |filter| {
        let mut listing = Listing::new(reader(&trace(&small())).expect("a header"), filter);
        let mut lines = Vec::new();
        while let Some(line) = listing.next_text(true).expect("a trace") {
            lines.push(serde_json::from_str::<Value>(&line).expect("JSON"));
        }
        lines
    };
    assert_eq!(list(LineFilter::default()), small()[1..], "signals only if asked for");
    let on_1 = list(LineFilter { instance: Some(InstanceIndex(1)), ..LineFilter::default() });
    assert_eq!(on_1, [enters(9, 250, 1, 0)]);
    let at_200 = list(LineFilter {
        from_us: Some(200),
        to_us: Some(201),
        kinds: vec![LineKind::Routing],
        ..LineFilter::default()
    });
    assert_eq!(at_200, [routing(2, 200, 0, [0.75, 0.25])]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let ok = signals(1, 0, [0, 0]);
    let with = |mut line: Value, field: &str, value: Value| {
        line[field] = value;
        line
    };
    let without = |mut line: Value, field: &str| {
        line.as_object_mut().expect("an object").remove(field);
        line
    };
    let cases = [
        vec![without(ok.clone(), "cache_hit_rate")],
        vec![signals(2, 0, [0, 0])],
        vec![with(ok.clone(), "queue_depth", json!([1]))],
        vec![routing(0, 5, 0, [1.0, 1.0])],
        vec![ok.clone(), routing(0, 5, 2, [1.0, 1.0])],
        vec![ok.clone(), with(routing(0, 5, 1, [1.0, 1.0]), "scores", json!([1.0]))],
        vec![ok.clone(), with(routing(0, 5, 1, [1.0, 1.0]), "in_flight", json!([1, 2, 3]))],
        vec![with(admission(0, 5), "kind", json!("decision"))],
        vec![with(admission(0, 5), "kind", json!(7))],
        vec![with(admission(0, 5), "mood", json!("good"))],
        vec![without(admission(0, 5), "input_tokens")],
        vec![with(admission(0, 5), "request", json!(-1))],
        vec![with(outcome(0, 0, 1, 2), "status", json!("happy"))],
        vec![json!([1, 2])],
        vec![json!({"kind": "header"})],
        vec![json!({"kind": "end", "lines": 1}), admission(0, 5)],
        vec![json!({"kind": "end", "lines": 5})],
    ];
    insta::assert_snapshot!(cases.map(|lines| fault(&lines)).join("\n"));
}

#[test]
fn fields_may_have_any_order() {
    // Keys of the test's values are sorted: `kind` is in the middle.
    let lines = small();
    assert!(!trace(&lines).lines().nth(3).expect("a line").starts_with("{\"kind\""));
    let mut reader = reader(&trace(&lines)).expect("a header");
    let mut count = 0;
    while let Some(line) = reader.next_line().expect("a trace") {
        assert_eq!(serde_json::to_value(&line).expect("JSON")["kind"], lines[count]["kind"]);
        count += 1;
    }
    assert_eq!(count, lines.len());
    assert!(reader.next_line().expect("still").is_none());
}

/// A trace with `kv-transfer` or `dropped-no-decode-blocks` could not be read: the writer had names that the reader lacked.
#[test]
fn names_that_are_written_are_names_that_are_read() {
    fn check<T>()
    where
        T: Copy + PartialEq + std::fmt::Debug + serde::de::DeserializeOwned + strum::VariantArray + Into<&'static str>,
    {
        for &variant in T::VARIANTS {
            let name: &str = variant.into();
            assert_eq!(serde_json::from_value::<T>(json!(name)).ok(), Some(variant), "{name}");
        }
    }
    check::<line::BatchObstacle>();
    check::<line::OutcomeStatus>();
    check::<gateway::QueueDecision>();
}
