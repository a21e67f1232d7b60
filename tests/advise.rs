//! `blis advise` through the program: what it recommends holds, what cannot hold is no recommendation, and its files are what they say.

use std::fs;

use serde_json::Value;

use crate::macros::{Scratch, blis};

/// Requests that are cheap to simulate, and two axes.
const SMALL: &str = "--model llama-3.1-8b-instruct --latency-model blackbox --alpha-coeffs 0,0,0 --beta-coeffs 8000,10,100 \
     --output-tokens 20 --output-tokens-stdev 5 --rate 150 --tp 1 --vary max-num-seqs=16,64 \
     --vary routing-policy=round-robin,token-aware";

fn advise(words: &str) -> Value {
    blis!(format!("advise {words} --output json")).json()
}

#[test]
fn the_choice_is_the_size_of_its_design() {
    let found = advise(&format!("{SMALL} --slo ttft_p90=60ms,tpot_p90=25ms --max-gpus 8"));
    let choice = &found["deployments"][0];
    let settings = choice["settings"].as_array().expect("settings").iter();
    let flags = settings.map(|of| format!("--{} {}", of["name"].as_str().unwrap(), of["value"].as_str().unwrap()));
    let flags: Vec<String> = flags.filter(|flag| !SMALL.contains(flag)).collect();
    let (base, _) = SMALL.split_once(" --vary").expect("axes");
    let size = format!("size {base} {} --slo ttft_p90=60ms,tpot_p90=25ms --output json", flags.join(" "));
    let sized = blis!(&size).json();
    assert_eq!(choice["replicas"], sized["replicas"], "{size}");
    assert_eq!(choice["check"]["result"], "holds");
    assert_ne!(choice["fewer"]["result"], "holds", "{choice}");
    assert_eq!(found["conclusion"]["text"].as_str().expect("a sentence").find("Cheapest: "), Some(0));
    let costs: Vec<u64> =
        found["deployments"].as_array().unwrap().iter().map(|of| of["gpus"].as_u64().unwrap()).collect();
    assert!(costs.is_sorted() && costs.len() <= 7, "{costs:?}");
}

#[test]
fn what_cannot_hold_is_no_recommendation() {
    let found = advise(&format!("{SMALL} --slo ttft_p90=60ms,tpot_p90=25ms --max-gpus 1"));
    assert_eq!(found["deployments"].as_array().map(Vec::len), Some(0));
    let text = found["conclusion"]["text"].as_str().expect("a sentence");
    assert!(text.starts_with("Nothing within 1 GPU holds: 1 × H100 TP 1") && text.contains("overloaded"), "{text}");
}

#[test]
fn threads_change_no_byte() {
    let line = format!("advise {SMALL} --slo ttft_p90=60ms --output json");
    let of = |threads: u32| blis!(&line, format!("--threads {threads}")).done().stdout;
    assert_eq!(of(1), of(2));
}

#[test]
fn files_of_the_choice_simulate_and_deploy_it() {
    let folder = Scratch::new();
    let out = folder.path("advice");
    let table = folder.path("advice.csv");
    let line = format!("advise {SMALL} --slo ttft_p90=60ms --output text");
    let text = blis!(line, "--out", &out, "--csv", &table).done().stdout;
    assert!(text.starts_with("Cheapest: ") && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let read = |name: &str| fs::read_to_string(format!("{out}/{name}")).expect(name);
    assert!(read("vllm.sh").contains("exec vllm serve llama-3.1-8b-instruct --tensor-parallel-size 1"));
    assert!(read("llm-d-values.yaml").contains("modelCommand: vllmServe"));
    assert!(read("README.md").contains("## Caveats"));
    let replicas = advise(&format!("{SMALL} --slo ttft_p90=60ms"))["deployments"][0]["replicas"].clone();
    assert!(read("llm-d-values.yaml").contains(&format!("replicas: {replicas}")));
    let simulated = blis!(format!("run --config {out}/blis.yaml --num-requests 200 --explain-config")).done().stdout;
    assert!(simulated.contains(&format!("num-instances: {replicas}")), "{simulated}");
    let csv = fs::read_to_string(&table).expect("a table");
    let lines: Vec<&str> = csv.lines().filter(|line| !line.starts_with("# ")).collect();
    assert!(lines[0].starts_with("rank,deployment,replicas,") && lines.len() > 1, "{csv}");
}

#[test]
fn mistakes_are_explained() {
    let base = "advise --model qwen/qwen3-14b --rate 5";
    for (flags, part) in [
        ("--slo ttft_p95=1s --budget 40", "`--budget` needs prices of GPUs"),
        ("--slo ttft_p95=1s --budget much", "must be dollars per hour above 0"),
        ("--slo ttft_p95=1s --max-gpus 0", "--max-gpus"),
        ("--slo ttft_p95=1s --max-gpus 8 --budget 3", "cannot be used with"),
        ("--slo ttft_p95=1s --allow fp9", "there is no format `fp9`"),
        ("--slo ttft_p95=1s --risk 150%", "must be a share"),
        ("--slo ttft_p95=1s --hardware H100,H1000", "H1000"),
        ("--slo ttft_p95=1s --vary tp=1 --vary tp=2", "varied twice"),
        ("--slo ttft_p95=1s --autoscaler queue", "--autoscaler"),
        ("", "--slo"),
    ] {
        let ended = blis!(format!("{base} {flags}"));
        assert!(ended.code == Some(2) && ended.stderr.contains(part), "{flags}: {}", ended.stderr);
    }
    let large = blis!("advise --model llama-3.1-405b --hardware L4 --rate 5 --slo ttft_p95=1s --tp 1");
    assert!(large.stderr.contains("does not fit the memory"), "{}", large.stderr);
}
