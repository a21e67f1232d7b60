//! What is published about flow control and the admission in front of it, on the workloads of `docs/flow-control.md`.

use std::fs;

use serde_json::Value;

use crate::macros::{Scratch, blis, root};

const FOUR: &str = "--model qwen/qwen3-14b --hardware H100 --total-kv-blocks 14201 --num-instances 4 --workload-spec";
const OVERLOAD: &str = "examples/flow-control/overload.yaml";
const CODE: &str = "--model qwen/qwen3-14b --hardware H100 --total-kv-blocks 14201 --num-instances 2 --timeout -1 \
                    --workload-spec examples/flow-control/code.yaml --flow-control";
const TENANTS: &str = "--model qwen/qwen3-14b --hardware H100 --workload-spec examples/flow-control/tenants.yaml \
                       --flow-control --saturation-detector concurrency --max-concurrency 32 --per-band-capacity 0 \
                       --request-ttl 0 --horizon 60s";

fn run(flags: &str) -> Value {
    let figures = blis!("run", flags, "--output json").json();
    assert_eq!(figures["conservation"]["holds"], true, "{flags}");
    figures
}

fn figure(figures: &Value, class: &str, what: &str, percentile: &str) -> f64 {
    figures["slo_classes"][class][what][percentile].as_f64().unwrap_or_else(|| panic!("{class} {what}: {figures}"))
}

/// The change from `before` to `after`, %.
fn change(before: f64, after: f64) -> f64 {
    100.0 * (after / before - 1.0)
}

/// Rejected requests, % of all.
fn shed(figures: &Value) -> f64 {
    let count = |name: &str| figures[name].as_f64().expect("a count");
    100.0 * count("rejected_requests") / figures["conservation"]["arrived"].as_f64().expect("a count")
}

/// llm-d's blog about its probabilistic admitter: critical TTFT p90 −80 % or more, E2E −25 to −65 %, 5 to 25 points more shed
/// than by the admission before it, and about no effect at light load.
#[test]
fn the_probabilistic_admitter_protects_critical_requests_in_overload() {
    let with = |workload: &str, admission: &str| run(&format!("{FOUR} {workload} --admission-policy {admission}"));
    let names = ["always-admit", "gaie-legacy", "probabilistic"];
    let [always, legacy, probabilistic] = names.map(|name| with(OVERLOAD, name));
    let ttft = |figures: &Value| figure(figures, "critical", "ttft", "p90_ms");
    let e2e = |figures: &Value| figure(figures, "critical", "e2e", "mean_ms");
    let (ttft, e2e) = (change(ttft(&always), ttft(&probabilistic)), change(e2e(&always), e2e(&probabilistic)));
    assert!(ttft <= -80.0, "TTFT p90 {ttft} %");
    assert!((-65.0..=-25.0).contains(&e2e), "E2E {e2e} %");
    let more = shed(&probabilistic) - shed(&legacy);
    assert!((5.0..=25.0).contains(&more), "{more} points more shed");
    assert_eq!(shed(&always), 0.0);
    let scratch = Scratch::new();
    let text = fs::read_to_string(root().join(OVERLOAD)).expect("the workload");
    assert!(text.contains("aggregate_rate: 65\n"));
    fs::write(scratch.join("light.yaml"), text.replace("aggregate_rate: 65\n", "aggregate_rate: 10\n"))
        .expect("written");
    let light = ["always-admit", "probabilistic"].map(|name| with(&scratch.path("light.yaml").to_string(), name));
    let effect =
        change(figure(&light[0], "critical", "ttft", "p90_ms"), figure(&light[1], "critical", "ttft", "p90_ms"));
    assert!(effect.abs() < 1.0 && shed(&light[1]) < 1.0, "{effect} % at light load");
}

/// llm-d's soft-reflective ceiling: critical TTFT p99 −80 % or more on code generation near saturation, others 0 to +60 %.
#[test]
fn the_soft_reflective_ceiling_keeps_room_for_critical_requests() {
    let [fixed, soft] = ["static", "soft-reflective"].map(|name| run(&format!("{CODE} --usage-limit-policy {name}")));
    let effect =
        |class, percentile| change(figure(&fixed, class, "ttft", percentile), figure(&soft, class, "ttft", percentile));
    assert!(effect("critical", "p99_ms") <= -80.0, "{} %", effect("critical", "p99_ms"));
    for class in ["standard", "batch"] {
        assert!((0.0..=60.0).contains(&effect(class, "mean_ms")), "{class}: {} %", effect(class, "mean_ms"));
    }
}

/// Two tenants with demands of 10 to 1 under saturation.
#[test]
fn virtual_token_counters_serve_unequal_demands_equally() {
    let served = |fairness: &str| {
        let figures = run(&format!("{TENANTS} --fairness-policy {fairness}"));
        let tokens = |tenant: &str| figures["tenants"][tenant]["total_output_tokens"].as_f64().expect("a count");
        (tokens("large"), tokens("small"))
    };
    let (large, small) = served("virtual-token-counter");
    assert!((large / small - 1.0).abs() < 0.1, "{large} and {small}");
    let (large, small) = served("global-strict");
    assert!(large > 5.0 * small, "{large} and {small}");
}

/// The section `gateway` of a bundle says the same as the flags; a flag wins, and mistakes are shown where they stand.
#[test]
fn a_bundle_has_flow_control() {
    const RUN: &str = "--model qwen/qwen3-14b --num-instances 2 --rate 30 --num-requests 100 --output json";
    let scratch = Scratch::new();
    let with = |gateway: &str, flags: &str| {
        let path = scratch.join("bundle.yaml");
        fs::write(&path, format!("routing:\n  policy: least-loaded\ngateway:\n{gateway}")).expect("written");
        blis!("run", RUN, flags, "--policy-config", path)
    };
    let flags = |flags: &str| blis!("run", RUN, "--routing-policy least-loaded", flags).json();
    let four = "  saturation_detector: concurrency\n  max_concurrency: 4\n  request_ttl: 2s\n";
    let same = "--flow-control --saturation-detector concurrency --request-ttl 2s --max-concurrency";
    let bundled = with(four, "").json();
    assert_eq!(bundled, flags(&format!("{same} 4")));
    assert!(bundled["gateway_wait"]["mean_ms"].as_f64() > Some(1.0), "{bundled}");
    assert_eq!(with(four, "--max-concurrency 9").json(), flags(&format!("{same} 9")), "the flag wins");
    let message = with("  saturation_detector: concurency\n", "").refused();
    assert!(message.contains("bundle.yaml:4:") && message.contains("concurrency"), "{message}");
    let message = with("  max_concurency: 4\n", "").refused();
    assert!(message.contains("bundle.yaml:4:") && message.contains("max-concurrency"), "{message}");
}

/// Time in the gateway is a stage of its own: of the run, of each request, and of its spans.
#[test]
fn time_in_the_gateway_is_a_stage() {
    let scratch = Scratch::new();
    let (metrics, spans) = (scratch.path("metrics.json"), scratch.path("spans.jsonl"));
    let flags = "run --model qwen/qwen3-14b --rate 30 --num-requests 60 --output json --flow-control \
                 --saturation-detector concurrency --max-concurrency 4";
    let run = blis!(flags, "--metrics-path", metrics, format!("--export=otel={spans}")).json();
    let text = |path: &str| fs::read_to_string(path).expect("written");
    let requests: Value = serde_json::from_str(&text(&metrics)).expect("JSON");
    let waited: Vec<f64> = requests["requests"]
        .as_array()
        .expect("requests")
        .iter()
        .map(|request| request["gateway_queue_delay_ms"].as_f64().unwrap_or(0.0))
        .collect();
    let mean = waited.iter().sum::<f64>() / waited.len() as f64;
    assert!(mean > 10.0 && (run["gateway_wait"]["mean_ms"].as_f64().expect("a mean") / mean - 1.0).abs() < 1e-9);
    let spans = text(&spans);
    let count = |what: &str| spans.matches(&format!("\"{what}\"")).count();
    let delayed = waited.iter().filter(|&&ms| ms > 0.0).count();
    for what in ["gen_ai.latency.time_in_gateway", "gateway.QUEUED", "gateway.DISPATCHED"] {
        assert_eq!(count(what), delayed, "{what}");
    }
}

/// Candidates of flow control in the built-in suites: what is fair scores more than the default, what sheds all that may be shed
/// less than the reference, and what rejects all requests fails a gate.
#[test]
fn suites_rank_candidates_of_flow_control() {
    let scratch = Scratch::new();
    let score = |suite: &str, candidate: &str| {
        let result = blis!(format!("evaluate {candidate} --suite {suite} --stage smoke --output json")).json();
        (result["status"].clone(), result["metrics"]["smoke_score"].as_f64().expect("a score"))
    };
    let built_ins = ["virtual-token-counter", "global-strict"];
    let [counter, strict] = built_ins.map(|name| score("tenants", &format!("examples/built-ins/{name}.rhai")).1);
    assert!(counter > 1.5 * strict, "unequal demand: counter {counter}, strict {strict}");
    scratch.write("none.rhai", "fn admit(r, s) { false }");
    scratch.write("no-batch.rhai", "fn admit(r, s) { r.class_priority >= 0 }");
    let [none, no_batch] = ["none", "no-batch"].map(|name| score("gateway", &scratch.path(&format!("{name}.rhai"))));
    assert!(none.0 == "gate_failed" && none.1 < 0.001, "{none:?}");
    assert!(no_batch.0 == "ok" && no_batch.1 < 1.0, "what is shed costs its value: {no_batch:?}");
}
