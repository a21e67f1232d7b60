//! `blis diagnose` through the program: what binds services that are built to be bound by one thing, and which knob proves it.

use serde_json::Value;

use crate::macros::{Ended, Scratch, blis};

const MODEL: &str = "--model qwen/qwen3-14b";

/// The expected cause and the flags, two services or more for each row of the table of causes.
const SERVICES: &[(&str, &str)] = &[
    (
        "kv_blocks",
        "--total-kv-blocks 1500 --prompt-tokens 3000 --prompt-tokens-stdev 500 --output-tokens 100 --output-tokens-stdev 30 --rate 4 \
         --num-requests 300",
    ),
    (
        "kv_blocks",
        "--total-kv-blocks 2000 --prompt-tokens 1000 --output-tokens 200 --rate 8 --num-requests 300 --slo ttft_p95=1s",
    ),
    ("batch_slots", "--max-num-seqs 16 --rate 3 --num-requests 300"),
    (
        "batch_slots",
        "--max-num-seqs 32 --rate 10 --prompt-tokens 500 --output-tokens 200 --num-requests 400 --slo ttft_p95=500ms",
    ),
    (
        "token_budget",
        "--max-num-batched-tokens 512 --prompt-tokens 2000 --output-tokens 100 --rate 7 --num-requests 400 --slo ttft_p95=500ms",
    ),
    (
        "own_prefill",
        "--prompt-tokens 12000 --prompt-tokens-max 20000 --prompt-tokens-stdev 2000 --output-tokens 10 --output-tokens-stdev 2 \
         --rate 0.2 --num-requests 150",
    ),
    (
        "own_prefill",
        "--prompt-tokens 4000 --prompt-tokens-stdev 500 --output-tokens 5 --output-tokens-stdev 2 --rate 2 --num-requests 300 \
         --slo ttft_p95=250ms",
    ),
    (
        "interference",
        "--prompt-tokens 6000 --prompt-tokens-stdev 1000 --prompt-tokens-max 9000 --output-tokens 300 --rate 2.5 --num-requests 300 \
         --slo tpot_p90=30ms",
    ),
    ("interference", "--workload summarization --rate 3 --num-requests 300 --slo tpot_p90=25ms"),
    ("decode", "--prompt-tokens 100 --output-tokens 1500 --rate 2 --num-requests 200"),
    ("decode", "--prompt-tokens 200 --output-tokens 800 --rate 12 --num-requests 500 --slo tpot_p90=20ms"),
    (
        "preemption",
        "--total-kv-blocks 1500 --prompt-tokens 100 --output-tokens 1500 --output-tokens-stdev 300 --concurrency 60 --num-requests 200",
    ),
    (
        "preemption",
        "--total-kv-blocks 1200 --prompt-tokens 50 --prompt-tokens-stdev 10 --output-tokens 3000 --output-tokens-stdev 300 --rate 1 \
         --num-requests 120",
    ),
    (
        "cold_cache",
        "--num-instances 4 --routing-policy round-robin --workload interactive-chat --rate 2 --num-requests 400 --slo ttft_p95=400ms",
    ),
    (
        "cold_cache",
        "--no-enable-prefix-caching --prefix-tokens 6000 --prompt-tokens 200 --output-tokens 20 --rate 2 --num-requests 300",
    ),
    ("hot_instance", "--num-instances 4 --routing-policy always-busiest --rate 20 --num-requests 400"),
    (
        "hot_instance",
        "--num-instances 4 --routing-policy weighted --routing-scorers prefix-affinity:1 --prefix-tokens 2000 --prompt-tokens 500 \
         --output-tokens 200 --rate 20 --num-requests 500",
    ),
    (
        "gateway_queue",
        "--num-instances 2 --flow-control --saturation-detector concurrency --max-concurrency 8 --rate 6 --num-requests 300",
    ),
    (
        "transfer",
        "--prefill-instances 1 --decode-instances 1 --pd-decider always --pd-transfer-bandwidth 0.3 --prompt-tokens 3000 \
         --output-tokens 50 --rate 1 --num-requests 200",
    ),
    ("adapter_load", "--enable-lora --max-loras 1 --workload-spec examples/adapters.yaml --num-requests 400"),
    (
        "cold_start",
        "--autoscaler queue --min-replicas 1 --max-replicas 6 --rate 20 --num-requests 1500 --max-num-seqs 64",
    ),
    ("infeasible", "--timeout 2 --rate 0.5 --num-requests 100"),
    ("infeasible", "--rate 0.5 --num-requests 100 --slo tpot_p90=5ms"),
];

fn diagnosed(flags: &str) -> Ended {
    blis!(format!("diagnose {MODEL} {flags} --seeds 3 --no-progress --output json"))
}

#[test]
fn the_binding_resource_is_named_and_confirmed_by_the_first_knob() {
    for (cause, flags) in SERVICES {
        let found = diagnosed(flags).json();
        assert_eq!(
            (&found["cause"], &found["confirmed"]),
            (&Value::from(*cause), &Value::from(true)),
            "{flags}: {found:#}"
        );
        let first = &found["knobs"][0];
        assert!(
            first["relieves"].as_array().is_some_and(|causes| causes.contains(&found["cause"])),
            "{flags}: {first:#}"
        );
        check_document(&found, flags);
    }
}

/// What holds of every diagnosis.
fn check_document(found: &Value, flags: &str) {
    let shares =
        found["causes"].as_array().expect("causes").iter().map(|cause| cause["share"].as_f64().expect("a share"));
    let sum: f64 = shares.clone().sum();
    assert!((sum - 1.0).abs() < 1e-9 && shares.into_iter().all(|share| share >= 0.0), "{flags}: {sum}");
    let conclusion = found["conclusion"]["text"].as_str().expect("a sentence");
    assert!(conclusion.chars().count() <= 160, "{flags}: {conclusion}");
    for knob in found["knobs"].as_array().expect("knobs") {
        let is_refused = knob["result"] == "refused";
        assert_eq!(knob["refused"].is_string(), is_refused, "{flags}: {knob:#}");
        assert_eq!(knob["change_percent"].is_number(), !is_refused, "{flags}: {knob:#}");
    }
}

#[test]
fn a_service_within_its_slos_is_bound_by_nothing() {
    let found = diagnosed("--rate 1 --num-requests 100 --slo ttft_p95=5s,e2e_p95=60s").json();
    assert_eq!(found["meets_slos"], true);
    assert!(found["conclusion"]["text"].as_str().is_some_and(|text| text.starts_with("Nothing binds: ")), "{found:#}");
}

#[test]
fn knobs_that_the_deployment_refuses_have_their_reason() {
    let found = diagnosed("--rate 1 --num-requests 50 --total-kv-blocks 3000 --tp 8").json();
    let knobs = found["knobs"].as_array().expect("knobs");
    let refused = |name: &str| knobs.iter().find(|knob| knob["knob"] == name).map(|knob| knob["refused"].clone());
    let memory = refused("gpu-memory-utilization").expect("it is listed");
    assert_eq!(memory, "`--total-kv-blocks` sets the size of the KV cache");
    assert!(refused("tp-x2").is_some_and(|reason| reason.is_string()), "{found:#}");
}

#[test]
fn mistakes_are_refused() {
    let cases = [
        ("--slo ttft_p95=1s,ttft_p95=2s", "`ttft_p95` has two limits"),
        ("--slo gold.ttft_p95=1s", "no request is of the class `gold`"),
        ("--routing-policy round-robin,weighted --num-instances 2", "several policies"),
        ("--slo ttft_p95", "must be a figure and a time"),
        ("--seeds 0", "seeds"),
    ];
    for (flags, part) in cases {
        let message = blis!(format!("diagnose {MODEL} --num-requests 20 {flags}")).refused();
        assert!(message.contains(part), "{flags}: {message}");
    }
}

#[test]
fn the_result_does_not_depend_on_threads_and_has_all_forms() {
    let scratch = Scratch::new();
    let flags = "--rate 4 --num-requests 100 --num-instances 2";
    let one = diagnosed(&format!("{flags} --threads 1"));
    assert_eq!(one.done().stdout, diagnosed(&format!("{flags} --threads 3")).done().stdout);
    let (csv, page) = (scratch.path("knobs.csv"), scratch.path("page.html"));
    let text =
        blis!(format!("diagnose {MODEL} {flags} --seeds 2 --no-progress --output text --csv {csv} --report {page}"))
            .done()
            .stdout;
    assert!(text.contains("decode steps") && text.contains("TP ×2"), "{text}");
    assert!(scratch.read("knobs.csv").contains("\nknob,result,change_percent,"));
    assert!(scratch.read("page.html").contains("Diagnosis"));
}

#[test]
fn two_scrapes_of_a_server_say_what_binds_it() {
    let scratch = Scratch::new();
    let scrape = |requests: u32, usage: f64| {
        let of = |name: &str, value: f64| format!("vllm:{name}{{engine=\"0\"}} {value}\n");
        let requests = f64::from(requests);
        [
            of("e2e_request_latency_seconds_sum", 20.0 * requests),
            of("e2e_request_latency_seconds_count", requests),
            of("request_queue_time_seconds_sum", 12.0 * requests),
            of("request_prefill_time_seconds_sum", requests),
            of("request_decode_time_seconds_sum", 7.0 * requests),
            of("kv_cache_usage_perc", usage),
        ]
        .concat()
    };
    scratch.write("before.txt", scrape(1000, 0.5));
    scratch.write("after.txt", scrape(1400, 0.97));
    let (before, after) = (scratch.path("before.txt"), scratch.path("after.txt"));
    let found = blis!(format!("diagnose --metrics {before} {after} --output json")).json();
    assert_eq!((&found["cause"], &found["requests"]), (&Value::from("kv_blocks"), &Value::from(400.0)));
    let swapped = blis!(format!("diagnose --metrics {after} {before}")).refused();
    assert!(swapped.contains("is smaller in"), "{swapped}");
    let both = blis!(format!("diagnose --metrics {before} {after} {MODEL}")).refused();
    assert!(both.contains("`--model` has no effect with `--metrics`"), "{both}");
    scratch.write("page.txt", "<html>\n");
    let page = blis!(format!("diagnose --metrics {before} {}", scratch.path("page.txt"))).refused();
    assert!(page.contains("page.txt:1: is no sample"), "{page}");
}
