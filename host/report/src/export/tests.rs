//! Exports contain the events of the simulation.

use std::collections::BTreeMap;
use std::io::{self, Write};

use blis_sim::cluster::{Abort, Cluster, ClusterConfig, Policies};
use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::instance::{Fast, InstanceConfig, InstancePolicies, Plain, SchedulerOptions};
use blis_sim::latency::Blackbox;
use blis_sim::metrics::{Metrics, MetricsOptions};
use blis_sim::policy::{AlwaysAdmit, Classes, ConstantPriority, RoundRobin, Ties};
use blis_sim::request::{Content, Request, Span};
use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;
use serde_json::Value;

use super::*;
use blis_workload::TraceOptions;
use blis_workload::trace_v2::{GoodputTargets, read_header};

/// A small KV cache that causes preemptions; one request times out, one can never be served.
pub(super) fn journal(recording: bool) -> (Journal, Metrics, u64) {
    let latency = std::sync::Arc::new(Blackbox::new(&[232.0, 1.7, 33.4], &[52.7, 17.2, 5.9]).expect("valid"));
    let instance = |index| InstanceConfig {
        index,
        labels: blis_sim::policy::InstanceLabels::default(),
        max_num_seqs: 8,
        max_num_batched_tokens: 64,
        long_prefill_token_threshold: 0,
        max_model_len: None,
        block_size: 16,
        total_kv_blocks: 20,
        enable_prefix_caching: true,
        enable_chunked_prefill: true,
        async_scheduling: false,
        reserve_full_prompt: false,
        options: SchedulerOptions::default(),
        policies: InstancePolicies::default(),
        classes: std::sync::Arc::default(),
        offload: None,
        blis_tiers: None,
        kv_groups: None,
        adapters: None,
        semantics: Semantics::VLLM_0_33,
        latency: latency.clone(),
    };
    let config = ClusterConfig {
        admission_latency: Micros(10),
        routing_latency: Micros(20),
        snapshot_refresh_interval: Micros::ZERO,
        cache_signal_delay: Micros::ZERO,
        ties: Ties::LowestIndex,
        classes: Classes::default(),
        serves: Vec::new(),
        block_size: 16,
        semantics: Semantics::VLLM_0_33,
        horizon: Micros::MAX,
        abort: Abort::default(),
    };
    let policies = Policies {
        admission: Box::new(AlwaysAdmit),
        routing: Box::new(RoundRobin::default()),
        priority: Box::new(ConstantPriority),
    };
    let requests = (0..40_u32).map(|id| Request {
        content: Content::shared(&[Span { first: 100 * (id % 3), len: 2 }]),
        deadline: (id == 7).then_some(Micros(3_300)),
        ..Request::new(RequestId(id), Micros(u64::from(id) * 300), if id == 11 { 900 } else { 40 + id }, 10 + id)
    });
    let detail = if recording { JournalDetail::Tokens } else { JournalDetail::Requests };
    let mut sink = (
        Metrics::new(MetricsOptions { instances: 2, ..MetricsOptions::default() }),
        Journal::new(detail, Semantics::VLLM_0_33, Some(latency.clone())),
    );
    let run = |sink: &mut (Metrics, Journal)| {
        if recording {
            let cluster =
                Cluster::new(config.clone(), policies.clone(), (0..2).map(InstanceIndex).map(instance), |c| {
                    Fast::new(c).recording()
                });
            cluster.run(requests.clone(), sink)
        } else {
            Cluster::new(config.clone(), policies.clone(), (0..2).map(InstanceIndex).map(instance), Plain::new)
                .run(requests.clone(), sink)
        }
    };
    let steps = run(&mut sink).expect("it ends").iter().map(|counters| counters.steps).sum();
    (sink.1, sink.0, steps)
}

pub(super) fn about() -> ServiceInfo {
    ServiceInfo {
        model: "m".to_owned(),
        block_size: 16,
        total_kv_blocks: 20,
        tensor_parallel: 1,
        max_num_seqs: 8,
        max_model_len: None,
        seed: 1,
        slo_targets: BTreeMap::from([(
            "critical".to_owned(),
            GoodputTargets { ttft_ms: Some(200.5), ..Default::default() },
        )]),
    }
}

fn text(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).expect("memory");
    String::from_utf8(out).expect("text")
}

#[test]
fn tokens_and_steps_are_those_of_the_engine() {
    let (journal, _, steps) = journal(true);
    assert_eq!(journal.steps.len() as u64, steps);
    let mut preempted = 0;
    for journey in &journal.journeys {
        let outcome = journey.outcome.expect("every request ends");
        assert_eq!(journey.generated, outcome.generated_tokens, "{outcome:?}");
        assert_eq!(journey.tokens.len() as u32, outcome.generated_tokens, "{outcome:?}");
        assert_eq!(journey.tokens.first().copied(), journey.first_output, "{outcome:?}");
        preempted += journey.in_batch.iter().filter(|change| !change.entered).count();
        if let Some(first) = journey.completed().and_then(|outcome| outcome.ttft) {
            // Tokens reach the client 33 µs after their step.
            assert_eq!(journey.tokens[0] + Micros(33), outcome.arrival + first);
            assert_eq!(journey.gaps().sum::<Micros>(), outcome.itl_sum);
            assert_eq!(journey.last_step.map(|_| *journey.tokens.last().expect("completed")), Some(outcome.ended_at));
        }
    }
    assert!(preempted > 0);
    let failed: Vec<_> = journal.journeys.iter().filter_map(|j| Some((j.request.id.0, j.failure()?))).collect();
    assert_eq!(failed, [(7, "timeout"), (11, "dropped")]);
}

#[test]
fn vllm_bench_has_an_entry_for_every_request() {
    let (journal, ..) = journal(true);
    let document: Value = serde_json::from_str(&text(|out| vllm_bench::write(&journal, &about(), out))).expect("JSON");
    for name in ["input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors"] {
        assert_eq!(document[name].as_array().map(Vec::len), Some(40), "{name}");
    }
    assert_eq!((&document["completed"], &document["failed"]), (&38.into(), &2.into()));
    assert_eq!((&document["errors"][7], &document["output_lens"][11]), (&"timeout".into(), &0.into()));
    // As a reader computes it: E2E is TTFT plus all gaps (and the host's time at the end, here 0).
    let sum = |index: usize| {
        let gaps = document["itls"][index].as_array().expect("a list").iter().filter_map(Value::as_f64).sum::<f64>();
        document["ttfts"][index].as_f64().expect("seconds") + gaps
    };
    let outcome = journal.journeys[20].completed().expect("completed");
    assert!((sum(20) - outcome.e2e.expect("completed").as_secs_f64()).abs() < 1e-9);
    let mean = document["mean_ttft_ms"].as_f64().expect("ms");
    let ttfts = journal.journeys.iter().filter_map(|j| Some(j.completed()?.ttft?.0 as f64 / 1e3));
    assert!((mean - ttfts.sum::<f64>() / 38.0).abs() < 1e-9);
}

#[test]
fn aiperf_tells_each_request_in_a_line() {
    let (journal, ..) = journal(true);
    let lines = text(|out| aiperf::requests(&journal, &Names::default(), out));
    assert_eq!(lines.lines().count(), 40);
    insta::assert_snapshot!(lines.lines().nth(7).expect("a line"));
    let one: Value = serde_json::from_str(lines.lines().nth(20).expect("a line")).expect("JSON");
    assert_eq!(one["metrics"]["input_sequence_length"]["value"], 60);
    assert_eq!(one["metrics"]["inter_chunk_latency"]["value"].as_array().map(Vec::len), Some(29));
    let summary: Value = serde_json::from_str(&text(|out| aiperf::summary(&journal, &about(), out))).expect("JSON");
    assert_eq!((&summary["request_count"]["avg"], &summary["total_osl"]["unit"]), (&38.0.into(), &"tokens".into()));
    assert!(summary["time_to_first_token"]["p50"].as_f64() < summary["time_to_first_token"]["p99"].as_f64());
}

/// The fields that AIPerf's own models of these files (`MetricRecordMetadata`, `ErrorDetails`) require.
#[test]
fn aiperf_has_what_its_models_require() {
    let (mut journal, ..) = journal(true);
    let mut names = Names::default();
    let talks = [names.intern("a"), names.intern("b")];
    for (index, talk) in [(0, 0), (2, 1), (3, 0), (5, 1)] {
        journal.journeys[index].request.tags.session = talks[talk];
    }
    let lines = text(|out| aiperf::requests(&journal, &names, out));
    let all: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for line in &all {
        let metadata = &line["metadata"];
        for name in ["session_num", "request_start_ns", "request_end_ns"] {
            assert!(metadata[name].is_u64(), "{name}");
        }
        for name in ["worker_id", "record_processor_id", "benchmark_phase"] {
            assert!(metadata[name].is_string(), "{name}");
        }
        assert!(line["error"].is_null() || line["error"]["message"].is_string());
    }
    let numbers: Vec<_> = all.iter().take(7).map(|line| line["metadata"]["session_num"].as_u64()).collect();
    assert_eq!(numbers, [0, 1, 2, 0, 3, 2, 4].map(Some));
    let summary: Value = serde_json::from_str(&text(|out| aiperf::summary(&journal, &about(), out))).expect("JSON");
    let per_user = &summary["output_token_throughput_per_user"];
    assert!(per_user["avg"].as_f64() > Some(0.0) && per_user["unit"] == "tokens/sec/user", "{per_user}");
    let errors = summary["error_summary"].as_array().expect("a list");
    assert_eq!(errors.len(), 2);
    assert!(errors.iter().all(|error| error["error_details"]["message"].is_string() && error["count"] == 1));
}

/// The spans of a line, with their scopes.
fn spans(line: &str) -> Vec<(String, Value)> {
    let document: Value = serde_json::from_str(line).expect("JSON");
    let scopes = document["resourceSpans"][0]["scopeSpans"].as_array().expect("scopes");
    let word = |value: &Value| value.as_str().expect("text").to_owned();
    scopes.iter().map(|scope| (word(&scope["scope"]["name"]), scope["spans"][0].clone())).collect()
}

/// Names and attributes of the events, as a reader gets them.
fn events(span: &Value) -> Vec<(String, serde_json::Map<String, Value>)> {
    let plain = |attribute: &Value| {
        let (kind, value) = attribute["value"].as_object().and_then(|value| value.iter().next()).expect("a value");
        let value = match kind.as_str() {
            "intValue" => value.as_str().expect("text").parse::<u64>().expect("a number").into(),
            _ => value.clone(),
        };
        (attribute["key"].as_str().expect("text").to_owned(), value)
    };
    let of = |event: &Value| {
        let attributes = event["attributes"].as_array().expect("attributes").iter().map(plain).collect();
        (event["name"].as_str().expect("text").to_owned(), attributes)
    };
    span["events"].as_array().expect("events").iter().map(of).collect()
}

fn names(span: &Value) -> Vec<String> {
    events(span).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn otel_tells_the_journey_and_every_step() {
    let (journal, _, steps) = journal(true);
    let lines = text(|out| otel::write(&journal, &about(), &Names::default(), out));
    assert_eq!(lines.lines().count(), 42);
    let all: Vec<_> = lines.lines().map(spans).collect();
    let [(scope, api), (engine, core)] = all[0].as_slice() else { panic!("two spans") };
    assert_eq!((scope.as_str(), &api["name"], &api["kind"]), ("vllm.api", &"llm_request".into(), &2.into()));
    assert_eq!((engine.as_str(), &core["name"], &core["kind"]), ("vllm.scheduler", &"llm_core".into(), &1.into()));
    assert_eq!((&core["parentSpanId"], &core["traceId"]), (&api["spanId"], &api["traceId"]));
    assert_ne!(core["spanId"], api["spanId"]);
    assert_eq!(names(api), ["api.ARRIVED", "api.HANDOFF_TO_CORE", "api.FIRST_RESPONSE_FROM_CORE", "api.DEPARTED"]);
    assert_eq!(names(core), ["journey.QUEUED", "journey.SCHEDULED", "journey.FIRST_TOKEN", "journey.FINISHED"]);
    insta::assert_snapshot!("otel_event", serde_json::to_string_pretty(&core["events"][1]).expect("JSON"));
    // Readers take 0 as a missing time.
    assert_eq!(api["startTimeUnixNano"], "1000000000");
    // This request timed out; the next can never be served.
    assert_eq!(names(&all[7][0].1).last().map(String::as_str), Some("api.ABORTED"));
    assert_eq!(names(&all[11][0].1), ["api.ARRIVED", "api.HANDOFF_TO_CORE", "api.ABORTED"]);
    assert_eq!(names(&all[11][1].1), ["journey.QUEUED", "journey.FINISHED"]);
    assert_eq!(all[11][0].1["status"]["code"], 2);
    assert!(all[40..].iter().all(|spans| spans[0].0 == "vllm.scheduler.step"));
    let events_of = |line: usize| names(&all[line][0].1).len() as u64;
    assert_eq!(events_of(40) + events_of(41), steps);
    insta::assert_snapshot!(serde_json::to_string_pretty(&all[41][0].1["events"][0]).expect("JSON"));
}

/// The conditions that tools which learn from traced servers check first.
#[test]
fn otel_journeys_have_every_attribute_and_are_in_order() {
    let (journal, ..) = journal(true);
    let lines = text(|out| otel::write(&journal, &about(), &Names::default(), out));
    let (mut resumed, mut statuses) = (0, std::collections::BTreeSet::new());
    for (line, journey) in lines.lines().zip(&journal.journeys) {
        let [(_, api), (_, core)] = <[_; 2]>::try_from(spans(line)).expect("two spans");
        let of_api: Vec<f64> = events(&api).iter().map(|(_, a)| a["event.ts.monotonic"].as_f64().expect("s")).collect();
        assert!(of_api.is_sorted() && of_api[0] > 0.0, "{of_api:?}");
        let (mut last, mut preempted) = ((0.0, 0, 0), 0);
        for (name, a) in events(&core) {
            let number = |key: &str| a[key].as_u64().unwrap_or_else(|| panic!("{key} of {name}"));
            assert_eq!(name, format!("journey.{}", a["event.type"].as_str().expect("text")));
            let here =
                (a["ts.monotonic"].as_f64().expect("s"), number("scheduler.step"), number("prefill.done_tokens"));
            assert!(last.0 <= here.0 && last.1 <= here.1 && last.2 <= here.2, "{last:?} {name} {here:?}");
            assert_eq!(number("prefill.total_tokens"), u64::from(journey.request.input_tokens));
            assert!(number("decode.done_tokens") <= number("decode.max_tokens"));
            preempted += u64::from(name == "journey.PREEMPTED");
            assert_eq!(number("num_preemptions"), preempted);
            assert_eq!(a["phase"] == "WAITING", name == "journey.QUEUED");
            if name == "journey.SCHEDULED" {
                assert_eq!(a["schedule.kind"], if preempted > 0 { "RESUME" } else { "FIRST" });
                resumed += u64::from(preempted > 0);
            }
            if name == "journey.FIRST_TOKEN" {
                assert_eq!((&a["phase"], number("decode.done_tokens")), (&"DECODE".into(), 1));
            }
            statuses.extend(a.get("finish.status").map(ToString::to_string));
            last = here;
        }
        assert_eq!(names(&core).last().map(String::as_str), Some("journey.FINISHED"));
    }
    assert!(resumed > 0);
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), ["\"aborted\"", "\"ignored\"", "\"length\""]);
}

#[test]
fn otel_comes_back_without_the_failed() {
    let (journal, ..) = journal(true);
    let lines = text(|out| otel::write(&journal, &about(), &Names::default(), out));
    let read = |text: &str| blis_workload::otel::read(text.as_bytes(), "o", &Default::default()).expect("ours");
    let workload = read(&lines);
    assert_eq!(workload.notes[1..], ["2 failed requests left out", "2 spans of other names skipped"]);
    let seen: Vec<_> = workload.requests.map(|r| (r.arrival, r.input_tokens, r.output_tokens)).collect();
    let asked = journal.journeys.iter().filter(|journey| journey.completed().is_some());
    let asked: Vec<_> = asked.map(|j| (j.request.arrival, j.request.input_tokens, j.request.output_tokens)).collect();
    assert_eq!(seen, asked);
    let mut turned: Vec<&str> = lines.lines().collect();
    turned.reverse();
    assert_eq!(read(&turned.join("\n")).requests.count(), asked.len());
}

#[test]
fn exports_are_named_and_nonsense_is_refused() {
    let export: Export = "trace-v2=runs/out.1".parse().expect("valid");
    assert_eq!(export.files(), ["runs/out.1.yaml", "runs/out.1.csv"].map(PathBuf::from));
    let export: Export = "aiperf=folder".parse().expect("valid");
    assert_eq!(export.files()[1], PathBuf::from("folder/profile_export_aiperf.json"));
    let refused = ["trace-v2", "trace_v2=x", "otel="].map(|text| text.parse::<Export>().expect_err("nonsense"));
    insta::assert_snapshot!(refused.join("\n"));
}

#[test]
fn an_exported_trace_keeps_budgets_targets_and_deadlines_that_had_passed() {
    let (mut journal, ..) = journal(false);
    let request = &mut journal.journeys[1].request;
    request.max_output_tokens = Some(4000);
    request.arrival = Micros(5_000);
    request.deadline = Some(Micros(2_000));
    let header = text(|out| trace_v2::header(&about(), out));
    let read = read_header(header.as_bytes(), "t.yaml").expect("a header");
    assert_eq!(read.goodput_slo_targets, about().slo_targets);
    let data = text(|out| trace_v2::data(&journal, &about(), &Names::default(), out));
    let options = TraceOptions::default();
    let mut workload = blis_workload::trace_v2::read(data.as_bytes(), "t.csv", &read, &options).expect("a trace");
    let back = workload.requests.find(|back| back.id == journal.journeys[1].request.id).expect("is there");
    assert_eq!((back.max_output_tokens, back.deadline), (Some(4000), Some(Micros(5_000))));
}
