//! Traces out: a run that is replayed has the same results, and what other tools read is there.

use std::fs;

use serde_json::Value;

use crate::macros::{Scratch, blis};

/// Growing conversations in closed loop, a shared system prompt, bursts,
/// deadlines that pass.
const SPEC: &str = r#"
version: "2"
seed: 11
aggregate_rate: 40
num_requests: 500
clients:
  - id: chat
    tenant_id: a
    slo_class: critical
    rate_fraction: 0.6
    arrival: {process: poisson}
    input_distribution: {type: gaussian, params: {mean: 200, std_dev: 80, min: 10, max: 900}}
    output_distribution: {type: exponential, params: {mean: 60}}
    prefix_group: sys
    prefix_length: 300
    reasoning:
      reason_ratio_distribution: {type: constant, params: {value: 0}}
      multi_turn: {max_rounds: 4, think_time_us: 500000, context_growth: accumulate}
  - id: batch
    tenant_id: b
    slo_class: batch
    rate_fraction: 0.4
    arrival: {process: gamma, cv: 2.5}
    timeout: 900000
    input_distribution: {type: lognormal, params: {mu: 5.5, sigma: 0.8, max: 4000}}
    output_distribution: {type: gaussian, params: {mean: 150, std_dev: 40, min: 1, max: 400}}
"#;

struct Folder(Scratch);

impl Folder {
    fn new() -> Self {
        let folder = Scratch::new();
        fs::create_dir_all(folder.join("aiperf")).expect("temporary folder");
        folder.write("spec.yaml", SPEC);
        Self(folder)
    }

    /// Runs `blis` with that line, `{}` for the folder.
    fn blis(&self, line: &str) -> (Option<i32>, String) {
        let ended = blis!(line.replace("{}", &self.0.display().to_string()));
        (ended.code, ended.stderr)
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.0.join(name)).expect("written")).expect("JSON")
    }
}

/// Too little KV for the load, so that requests are preempted.
const SERVICE: &str = "--model llama-3.1-8b-instruct --num-instances 3 --total-kv-blocks 500 --seed 11";

#[test]
fn a_run_that_is_replayed_has_the_same_results() {
    for (routing, more) in [("weighted", ""), ("least-loaded", "--parity blis")] {
        let folder = Folder::new();
        let service = format!("{SERVICE} --routing-policy {routing} {more}");
        let run = format!(
            "run {service} --workload-spec {{}}/spec.yaml --metrics-path {{}}/run.json --trace-output {{}}/out.1"
        );
        assert_eq!(folder.blis(&run), (Some(0), String::new()));
        // The header has the seed of the run.
        let service = service.replace(" --seed 11", "");
        let replay = format!(
            "replay {service} --horizon 1000000000 --trace-header {{}}/out.1.yaml --trace-data {{}}/out.1.csv --metrics-path {{}}/replay.json"
        );
        let (code, message) = folder.blis(&replay);
        assert_eq!(code, Some(0), "{message}");
        let by_id = |name: &str| {
            let mut requests = folder.json(name)["requests"].as_array().expect("requests").clone();
            requests.sort_by_key(|request| request["requestID"].as_str().map(str::to_owned));
            requests
        };
        let (run, replay) = (by_id("run.json"), by_id("replay.json"));
        assert_eq!(run.len(), 500);
        for (run, replay) in run.iter().zip(&replay) {
            assert_eq!(run, replay);
        }
        assert_eq!(run.len(), replay.len());
        let metrics = folder.json("run.json");
        assert!(metrics["preemption_count"].as_u64() > Some(0), "the scenario is hard enough");
        assert!(metrics["timed_out_requests"].as_u64() > Some(0), "deadlines pass");
    }
}

#[test]
fn other_tools_find_what_they_read() {
    let folder = Folder::new();
    let run = format!(
        "run {SERVICE} --workload-spec {{}}/spec.yaml --metrics-path {{}}/run.json \
         --export vllm-bench={{}}/bench.json --export aiperf={{}}/aiperf --export otel={{}}/spans.jsonl"
    );
    assert_eq!(folder.blis(&run), (Some(0), String::new()));
    let (metrics, bench) = (folder.json("run.json"), folder.json("bench.json"));
    assert_eq!(bench["completed"], metrics["completed_requests"]);
    assert_eq!(bench["total_output_tokens"], metrics["total_output_tokens"]);
    let near = |ours: &Value, theirs: &Value| {
        let (ours, theirs) = (ours.as_f64().expect("a number"), theirs.as_f64().expect("a number"));
        assert!((ours - theirs).abs() < 1e-6 * theirs, "{ours} {theirs}");
    };
    for (theirs, ours) in [("mean_e2el_ms", "e2e_mean_ms"), ("p99_e2el_ms", "e2e_p99_ms")] {
        near(&bench[theirs], &metrics[ours]);
    }
    near(&folder.json("aiperf/profile_export_aiperf.json")["request_latency"]["avg"], &metrics["e2e_mean_ms"]);
    let lines = |name: &str| fs::read_to_string(folder.0.join(name)).expect("written").lines().count();
    let requests = metrics["requests"].as_array().map_or(0, Vec::len);
    assert_eq!(lines("aiperf/profile_export.jsonl"), requests);
    assert_eq!(lines("spans.jsonl"), requests + 3, "and the steps of each instance");
    for file in ["bench.json", "aiperf/profile_export.jsonl", "spans.jsonl"] {
        assert_eq!(
            folder.blis(&format!("workload inspect {{}}/{file} --output json")).0,
            Some(0),
            "we read {file} too"
        );
    }
}

/// The viewer's JSON is as its schema says, with a step for every step of the run, and a begin and an end for every stage.
#[test]
fn a_trace_for_perfetto_is_valid() {
    let folder = Folder::new();
    let run = format!(
        "run {SERVICE} --workload-spec {{}}/spec.yaml --metrics-path {{}}/run.json --export perfetto={{}}/trace.json \
         --export perfetto={{}}/trace.pftrace --export perfetto={{}}/trace.pftrace.gz"
    );
    assert_eq!(folder.blis(&run), (Some(0), String::new()));
    let (trace, metrics) = (folder.json("trace.json"), folder.json("run.json"));
    let schema = serde_json::from_str(include_str!("trace-event.schema.json")).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let mistakes: Vec<_> = validator.iter_errors(&trace).take(3).map(|mistake| mistake.to_string()).collect();
    assert!(mistakes.is_empty(), "{mistakes:?}");
    let events = trace["traceEvents"].as_array().expect("a list");
    let count = |wanted: &dyn Fn(&Value) -> bool| events.iter().filter(|event| wanted(event)).count() as u64;
    let steps = count(&|event| event["name"].as_str().is_some_and(|name| name.ends_with(" step")));
    assert_eq!(Some(steps), metrics["steps"].as_u64());
    assert_eq!(count(&|event| event["ph"] == "b"), count(&|event| event["ph"] == "e"));
    let preempted = count(&|event| event["ph"] == "b" && event["name"] == "preempted");
    assert!(preempted > 0 && Some(preempted) <= metrics["preemption_count"].as_u64(), "{preempted}");
    let bytes = |name: &str| fs::metadata(folder.0.join(name)).expect("written").len();
    assert!(bytes("trace.pftrace") * 3 < bytes("trace.json") && bytes("trace.pftrace.gz") * 2 < bytes("trace.pftrace"));
}

/// A request that is prefilled on one instance and decoded on another has a part on each, which are as long as its stages in the
/// result, and an arrow between them.
#[test]
fn parts_of_a_request_in_a_trace_for_perfetto() {
    let folder = Folder::new();
    let run = format!(
        "run {SERVICE} --prefill-instances 1 --decode-instances 2 --pd-decider always --num-requests 20 --rate 5 --prompt-tokens 600 \
         --output-tokens 9 --metrics-path {{}}/run.json --export perfetto={{}}/trace.json"
    );
    assert_eq!(folder.blis(&run).0, Some(0));
    let (trace, metrics) = (folder.json("trace.json"), folder.json("run.json"));
    let events = trace["traceEvents"].as_array().expect("a list");
    let at = |phase: &str, process: u64, name: &str, request: u64| {
        let local = format!("{request:#x}");
        let mut found = events.iter().filter(|event| {
            let is_its = event["id2"]["local"] == *local || (event["cat"] == "transfer" && event["id"] == request);
            event["ph"] == phase && event["pid"] == process && event["name"] == name && is_its
        });
        let one = found.next().unwrap_or_else(|| panic!("{phase} of {name} of {request} in {process}"));
        assert!(found.next().is_none(), "{phase} of {name} of {request} in {process}");
        one["ts"].as_f64().expect("a time") / 1e3
    };
    let requests = metrics["requests"].as_array().expect("a list");
    assert_eq!(requests.len(), 20);
    for (request, number) in requests.iter().zip(0..) {
        let process = |key: &str| {
            let name = request[key].as_str().expect("an instance");
            name.trim_start_matches("instance_").parse::<u64>().expect("a number") + 2
        };
        let (prefill, decode) = (process("prefilled_by"), process("handled_by"));
        assert_ne!(prefill, decode);
        for (process, stage, figure) in [
            (prefill, "queue", "p_queue_ms"),
            (prefill, "prefill", "p_prefill_ms"),
            (decode, "KV wait", "d_wait_ms"),
            (decode, "KV transfer", "transfer_ms"),
        ] {
            let time = at("e", process, stage, number) - at("b", process, stage, number);
            assert!((time - request[figure].as_f64().expect("a time")).abs() < 1e-6, "{stage} of {number}: {time}");
        }
        let hold = at("b", decode, "KV wait", number) - at("e", prefill, "prefill", number);
        assert!((hold - request["hold_ms"].as_f64().expect("a time")).abs() < 1e-6, "{hold}");
        let (leaves, enters) =
            (at("s", prefill, "to its decode instance", number), at("f", decode, "to its decode instance", number));
        assert!(leaves < enters && at("e", decode, "KV transfer", number) <= enters, "{leaves} to {enters}");
    }
}

/// A file that cannot be written is reported before anything is simulated, and no file is left behind.
#[test]
fn exports_that_cannot_be_written() {
    let folder = Folder::new();
    let message = |flags: &str| {
        let (code, message) = folder.blis(&format!("run --model llama-3.1-8b-instruct {flags}"));
        assert_eq!(code, Some(2), "{message}");
        message.replace(&folder.0.display().to_string(), "{}")
    };
    let all = [
        "--export otel={}/no/where.jsonl",
        "--export vllm-bench={}/x.json --metrics-path {}/x.json",
        "--export aiperf={}/none",
        "--export csv={}/x",
        "--trace-output {}/t --export trace-v2={}/t",
    ];
    insta::assert_snapshot!(all.map(message).join("\n"));
    let left: Vec<_> =
        fs::read_dir(&folder.0).expect("folder").map(|entry| entry.expect("entry").file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(folder.0.join("spec.yaml").exists());
}
