//! `blis compare` and fitness through the program: paired seeds, the same bytes on any number of
//! threads, and no score for rejecting requests.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::macros::{Scratch, blis, root};

const LOAD: &str = "--latency-model trained-physics --model meta-llama/llama-3.1-8b-instruct --num-instances 4 --workload chatbot --rate 90 \
                    --arrival-process poisson --num-requests 400";

fn document(words: &str) -> Value {
    blis!(words).json()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn threads_and_repetition_change_no_byte() {
    let compare = |more: &str| {
        let command =
            format!("compare round-robin weighted least-loaded {LOAD} --seeds 6 --fitness-weights p99_ttft:1 {more}");
        blis!(&command).stdout
    };
    let one = compare("--threads 1 --output json");
    assert_eq!(one, compare("--threads 2 --output json"));
    assert_eq!(one, compare("--output json"));
    let text = compare("--threads 1 --output text");
    assert_eq!(text, compare("--threads 3 --output text"));
    assert!(text.contains("±95%"));
}

#[test]
fn the_runs_of_a_comparison_are_those_of_run() {
    let compared = document(&format!("compare least-loaded always-busiest {LOAD} --seeds 3 --seed 7"));
    assert_eq!(compared["seeds"], serde_json::json!([7, 8, 9]));
    for (index, policy) in ["least-loaded", "always-busiest"].into_iter().enumerate() {
        for (turn, seed) in [7, 8, 9].into_iter().enumerate() {
            let run = document(&format!("run {LOAD} --seed {seed} --routing-policy {policy}"));
            for (figure, field) in
                [("p99_ttft", "ttft_p99_ms"), ("mean_e2e", "e2e_mean_ms"), ("throughput", "responses_per_sec")]
            {
                let value = &compared["metrics"][figure]["values"][index][turn];
                assert_eq!(number(value), number(&run[field]), "{policy} {seed} {figure}");
            }
        }
    }
    let worse = &compared["metrics"]["mean_e2e"]["differences"][0];
    assert_eq!(worse["result"], "worse", "{worse}");
}

/// In a closed loop, requests follow from outputs: they differ between policies, but do not depend on the number of
/// threads.
#[test]
fn closed_loops_give_the_same_result_on_any_number_of_threads() {
    let load = "--model llama-3.1-8b-instruct --num-instances 3 --max-num-seqs 4 --snapshot-refresh-interval 0";
    let users = "--concurrency 24 --think-time-ms 40 --num-requests 200 --prompt-tokens 700 --output-tokens-max 999";
    let spec = "--workload-spec examples/closed-loop/chat.yaml --num-requests 300";
    for workload in [users, spec] {
        let compare = |threads: u32| {
            let words = format!("compare round-robin least-loaded {load} {workload} --seeds 3 --threads {threads}");
            blis!(words).done().stdout
        };
        let one = compare(1);
        assert_eq!(one, compare(2));
        let compared: Value = serde_json::from_str(&one).expect("JSON");
        let ttft = |index: usize| &compared["metrics"]["mean_ttft"]["values"][index];
        assert_ne!(ttft(0), ttft(1), "{workload}");
    }
}

#[test]
fn scorers_and_bundles_can_be_compared() {
    let folder = Scratch::new();
    let bundle = folder.write("shed.yaml", "admission: {policy: reject-all}\nrouting: {policy: least-loaded}\n");
    let command = format!("compare queue-depth:2,load-balance:1 {} {LOAD} --seeds 2", bundle.display());
    let compared = document(&command);
    let share = |index: usize| number(&compared["metrics"]["rejected_share"]["values"][index][0]);
    assert_eq!((share(0), share(1)), (0.0, 1.0));
    assert!(compared["metrics"]["p99_ttft"]["values"][1][0].is_null(), "no request completed");
}

/// Rejecting all requests, or half of them, loses to admitting them, with any weights.
#[test]
fn rejecting_requests_does_not_pay() {
    let score = |weights: &str, policy: &str| {
        let run = document(&format!("run {LOAD} --routing-policy least-loaded --fitness-weights {weights} {policy}"));
        (
            number(&run["fitness"]["score"]),
            number(&run["conservation"]["completed"]) / number(&run["conservation"]["arrived"]),
        )
    };
    // A bucket that admits about half of the requests.
    let half = "--admission-policy token-bucket --token-bucket-capacity 3000 --token-bucket-refill-rate 11000";
    for weights in ["p99_ttft:1", "mean_e2e:1,p99_e2e:1", "throughput:1", "tokens_per_sec:1,mean_ttft:3", "mean_itl:1"]
    {
        let (admitting, all) = score(weights, "");
        let (rejecting, none) = score(weights, "--admission-policy reject-all");
        let (shedding, some) = score(weights, half);
        assert_eq!((all, none), (1.0, 0.0));
        assert!((0.3..0.7).contains(&some), "about half: {some}");
        assert!(admitting > 0.45, "{weights}: {admitting}");
        assert!(shedding < admitting && rejecting < shedding, "{weights}: {admitting} {shedding} {rejecting}");
        assert_eq!(rejecting, 0.0);
    }
}

#[test]
fn the_formula_of_blis_is_available() {
    let run = document(&format!(
        "run {LOAD} --fitness-scale blis --fitness-weights throughput:0.4,p99_ttft:0.3,mean_e2e:0.3"
    ));
    let expected: BTreeMap<&str, f64> = BTreeMap::from([
        ("throughput", number(&run["responses_per_sec"]) / (number(&run["responses_per_sec"]) + 100.0)),
        ("p99_ttft", 1.0 / (1.0 + number(&run["ttft_p99_ms"]))),
        ("mean_e2e", 1.0 / (1.0 + number(&run["e2e_mean_ms"]))),
    ]);
    let mut score = 0.0;
    for (key, weight) in [("throughput", 0.4), ("p99_ttft", 0.3), ("mean_e2e", 0.3)] {
        let component = number(&run["fitness"]["components"][key]["value"]);
        assert!((component - expected[key]).abs() < 1e-12, "{key}: {component}");
        score += weight * component;
    }
    assert!((number(&run["fitness"]["score"]) - score).abs() < 1e-12);
    // No request completed: BLIS scores that as the best latency; this program does so with `--parity blis` only.
    let rejecting = |more: &str| {
        let words = format!(
            "run {LOAD} --admission-policy reject-all --fitness-scale blis --fitness-weights p99_ttft:1 {more}"
        );
        number(&document(&words)["fitness"]["score"])
    };
    assert_eq!((rejecting(""), rejecting("--parity blis")), (0.0, 1.0));
}

#[test]
fn nonsense_is_refused_before_anything_runs() {
    let error = |words: &str| blis!(words).refused();
    insta::assert_snapshot!(error(&format!("compare round-robin {LOAD}")));
    insta::assert_snapshot!(error(&format!("compare round-robin round-robin {LOAD}")));
    insta::assert_snapshot!(error(&format!("compare round-robin least-laoded {LOAD}")));
    insta::assert_snapshot!(error(&format!("compare round-robin queue-deep:1 {LOAD}")));
    insta::assert_snapshot!(error(&format!("compare round-robin weighted {LOAD} --routing-policy weighted")));
    insta::assert_snapshot!(error(&format!("compare round-robin weighted {LOAD} --seeds 0")));
    insta::assert_snapshot!(error(&format!("compare round-robin weighted {LOAD} --fitness-weights goodput:1")));
    insta::assert_snapshot!(error(&format!("run {LOAD} --fitness-weights p99_ttft:1,jain:1")));
    // The decision log is not created either.
    let folder = Scratch::new();
    let log = folder.join("decisions.jsonl");
    let recorded = format!("run {LOAD} --trace-level decisions --trace-path {}", log.display());
    error(&format!("{recorded} --fitness-weights p99_ttft:1,jain:1"));
    error(&format!("{recorded} --fitness-weights p99_ttft:1 --baseline round-robbin"));
    assert!(!log.exists());
}

/// Whole deployments under the same requests: as two runs, and as two configuration files.
#[test]
fn deployments_are_compared_under_the_same_requests() {
    let folder = Scratch::new();
    let load = "--rate 6 --num-requests 60 --output-tokens 40 --seeds 3 --output json";
    let model = "--model llama-3.1-8b-instruct --hardware H100";
    let varied = blis!(format!("compare {model} {load} --vary tp=1,2")).json();
    assert_eq!(varied["policies"], serde_json::json!(["tp=1", "tp=2"]));
    let values = |found: &Value, policy: usize| found["metrics"]["mean_e2e"]["values"][policy].clone();
    for (policy, tp) in [(0, 1), (1, 2)] {
        let of_seed = |seed: u64| {
            let one = blis!(format!(
                "run {model} --rate 6 --num-requests 60 --output-tokens 40 --tp {tp} --seed {seed} --output json"
            ));
            one.json()["e2e_mean_ms"].clone()
        };
        assert_eq!(values(&varied, policy), Value::from([42, 43, 44].map(of_seed).to_vec()), "{varied}");
    }
    assert_eq!(varied["metrics"]["mean_e2e"]["differences"][0]["result"], "better");
    let file = |name: &str, tp: u32| {
        let text = format!("model: llama-3.1-8b-instruct\nhardware: H100\ntp: {tp}\n");
        folder.write(name, &text).display().to_string()
    };
    let files = blis!(format!("compare {} {} {load}", file("one.yaml", 1), file("two.yaml", 2))).json();
    assert_eq!([0, 1].map(|policy| values(&files, policy)), [0, 1].map(|policy| values(&varied, policy)));
    // Blocks of another size: a trace is read again.
    let trace = "--workload-trace examples/cluster-routing/assistants.jsonl --max-requests 50 --seeds 1 --output json";
    let blocks = blis!(format!("compare {model} {trace} --vary block-size-in-tokens=16,64")).json();
    let own = |size: u32| {
        let words = "--workload-trace examples/cluster-routing/assistants.jsonl --max-requests 50 --output json";
        blis!(format!("run {model} {words} --block-size-in-tokens {size}")).json()["e2e_mean_ms"].clone()
    };
    assert_eq!([0, 1].map(|policy| values(&blocks, policy)[0].clone()), [own(16), own(64)]);
}

#[test]
fn deployments_that_cannot_be_compared_are_refused() {
    let folder = Scratch::new();
    let file = folder.write("one.yaml", "model: llama-3.1-8b-instruct\n").display().to_string();
    let model = "--model llama-3.1-8b-instruct";
    for (words, part) in [
        (format!("{model} --vary tp=1"), "at least two deployments"),
        (format!("{model} --vary rate=1,2"), "`rate=2` changes the workload"),
        (format!("{model} --vary slo-ttft=1s,2s"), "`slo-ttft=2s` changes the SLO targets"),
        (format!("{model} --vary warmup=1,2"), "changes the time that is simulated"),
        (format!("{file} {file}"), "is named twice"),
        (format!("{file} round-robin"), "cannot be compared with each other"),
        (format!("round-robin {model} --vary tp=1,2"), "cannot be used with"),
        ("round-robin least-loaded".to_owned(), "`--model <NAME>` is missing"),
        (model.to_owned(), "POLICY"),
    ] {
        let ended = blis!(format!("compare {words} --output text"));
        assert!(ended.code == Some(2) && ended.stderr.contains(part), "{words}: {}", ended.stderr);
    }
}

/// Regression: while sessions begin and none ends, the number in flight grows, and a comparison took that for an overload.
#[test]
fn sessions_that_still_begin_are_too_short_and_no_overload() {
    let folder = Scratch::new();
    let spec = "version: '2'\naggregate_rate: 5\nclients:\n  - id: all\n    rate_fraction: 1\n    arrival: { process: poisson }\n    \
                closed_loop: false\n    input_distribution: { type: constant, params: { value: 500 } }\n    output_distribution: \
                { type: constant, params: { value: 200 } }\n    reasoning: { multi_turn: { max_rounds: 6, think_time_us: 30000000 } }\n";
    let spec = folder.write("sessions.yaml", spec);
    let words = "--model llama-3.1-8b-instruct --num-instances 4 --num-requests 1000 --seeds 2 --output json";
    let found = blis!(format!("compare round-robin least-loaded {words} --workload-spec {}", spec.display())).json();
    let warnings = found["warnings"].to_string();
    assert!(warnings.contains("too short under") && !warnings.contains("overloaded"), "{warnings}");
}

/// Its script and its command; the claim is about requests that it was not written for.
#[test]
fn the_router_of_the_readme_is_better_on_other_requests_too() {
    const SERVICE: &str = "--model meta-llama/llama-3.1-8b-instruct --num-instances 4 --output json";
    let readme = std::fs::read_to_string(root().join("README.md")).expect("it is there");
    let script = readme.split("```rhai\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a script");
    let scratch = Scratch::new();
    scratch.write("my-router.rhai", script.as_bytes());
    let router = scratch.path("my-router.rhai");
    for load in ["assistants.yaml --seed 1000", "more-assistants.yaml", "more-assistants.yaml --seed 2000"] {
        let flags = format!("{SERVICE} --workload-spec examples/cluster-routing/{load}");
        let found = blis!("compare weighted", router, flags).json();
        assert_eq!(found["conclusion"]["kind"], "better", "{load}: {}", found["conclusion"]);
    }
    // Windows of a trace of the same process are one sample each: better as well, or too short to tell.
    let trace = scratch.path("trace");
    let draw =
        format!("--workload-spec examples/cluster-routing/assistants.yaml --num-requests 1500 --trace-output {trace}");
    blis!("run", SERVICE, draw).done();
    for start in ["0s", "15s", "30s", "45s", "60s"] {
        let window = format!("{SERVICE} --workload-trace {trace}.csv --start {start} --duration 15s");
        let kind = blis!("compare weighted", router, window).json()["conclusion"]["kind"].clone();
        assert!(["better", "undecided"].contains(&kind.as_str().expect("a kind")), "{start}: {kind}");
    }
}
