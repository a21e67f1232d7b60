//! Policies of the CPU tier as plugins: scripts of the built-in ones give the same results, loads are recorded and have a regret,
//! routers see what the tiers have, and mistakes are refused.

use serde_json::Value;

use crate::macros::{Scratch, blis};

/// Eight groups of prompts with a long shared prefix, of which the tier has room for five.
const WORKLOAD: &str = r#"
version: "2"
seed: 7
num_requests: 160
cohorts:
  - id: group
    population: 8
    concurrency: 1
    timeout: 0
    prefix_group: shared
    prefix_length: 2000
    prefix_sharing: per_member
    input_distribution: {type: gaussian, params: {mean: 200, std_dev: 100, min: 16, max: 400}}
    output_distribution: {type: constant, params: {value: 40}}
"#;

const SERVICE: &str = "run --model llama-3.1-8b-instruct --hardware H100 --tp 1 --num-instances 1 --max-num-seqs 4 \
                       --max-model-len 4096 --kv-offloading-size 1.4 --output json";

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("workload.yaml", WORKLOAD);
    scratch
}

/// The document of a run with `flags` on GPUs with room for four prompts, without what names the plugins.
fn run(scratch: &Scratch, flags: &str) -> String {
    run_with_blocks(scratch, 600, flags)
}

fn run_with_blocks(scratch: &Scratch, blocks: u32, flags: &str) -> String {
    let workload = scratch.path("workload.yaml");
    let line = format!("{SERVICE} --total-kv-blocks {blocks} --workload-spec {workload} {flags}");
    let document = blis!(line).done().stdout;
    match document.split_once(",\n  \"plugins\": [\n") {
        Some((before, _)) => format!("{before}\n}}\n"),
        None => document,
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn scripts_of_the_built_in_policies_give_the_same_bytes() {
    let scratch = scratch();
    let mut seen = Vec::new();
    for name in ["lru", "lfu", "slru"] {
        let built_in = run(&scratch, &format!("--kv-cache-policy {name}"));
        let script = run(&scratch, &format!("--kv-cache-policy examples/built-ins/{name}.rhai"));
        assert_eq!(built_in, script, "{name}");
        assert!(json(&built_in)["cpu_tier"]["evicted_chunks"].as_u64().expect("a number") > 100);
        seen.push(json(&built_in)["cpu_tier"].clone());
    }
    assert!(seen[0] != seen[1], "they decide otherwise: {seen:?}");
    assert_eq!(run(&scratch, "--kv-cache-policy lru"), run(&scratch, "--kv-offloading-eviction-policy lru"));
}

#[test]
fn a_policy_decides_what_is_stored_and_loaded() {
    let scratch = scratch();
    scratch.write("none.rhai", "fn store(t, c) { c.tokens < 0 }");
    scratch.write("never.rhai", "fn load(h) { false }");
    scratch.write("always.rhai", "fn load(h) { h.tokens > 0 }");
    let tier =
        |name: &str| json(&run(&scratch, &format!("--kv-cache-policy {}", scratch.path(name))))["cpu_tier"].clone();
    let none = tier("none.rhai");
    assert_eq!((&none["cpu_hit_tokens"], &none["stored_bytes"]), (&0.into(), &0.into()), "{none}");
    assert!(none["skipped_chunks"].as_u64().expect("a number") > 1000);
    let never = tier("never.rhai");
    assert!(never["cpu_hit_tokens"] == 0 && never["stored_bytes"].as_u64().expect("a number") > 0, "{never}");
    assert_eq!(tier("always.rhai"), json(&run(&scratch, ""))["cpu_tier"]);
}

#[test]
fn loads_are_decisions_with_a_regret() {
    let scratch = scratch();
    scratch.write("some.rhai", "fn load(h) { h.request % 2 == 0 }");
    let policy = format!("--kv-cache-policy {}", scratch.path("some.rhai"));
    let trace = scratch.path("trace.jsonl");
    run(&scratch, &format!("{policy} --trace-level decisions --trace-path {trace}"));
    let lines = std::fs::read_to_string(&trace).expect("written");
    let loads: Vec<Value> = lines.lines().filter(|line| line.contains("\"kind\":\"load\"")).map(json).collect();
    assert!(loads.len() > 20, "{}", loads.len());
    for load in &loads {
        assert_eq!(load["loads"], load["request"].as_u64().expect("a number") % 2 == 0, "{load}");
    }
    let listed = blis!(format!("decisions show {trace} --kind load --output text")).done().stdout;
    assert!(listed.contains("computes") && listed.contains("loads"), "{listed}");
    let line = format!("{SERVICE} --total-kv-blocks 600 --workload-spec {}", scratch.path("workload.yaml"));
    let regret = blis!(format!("{line} {policy} --regret outcome --regret-samples 16")).json()["regret"].clone();
    assert!(regret["kinds"]["load"]["uniform"]["evaluated"].as_u64().is_some_and(|count| count > 0), "{regret}");
}

/// Two instances with room for two prompts on the GPU; the prompt of a group goes where its prefix is in host memory.
#[test]
fn a_router_sees_what_the_tiers_have() {
    let scratch = scratch();
    scratch.write("tier.rhai", "fn route(r, s) { s.cached_tokens_cpu - s.in_flight }");
    scratch.write("gpu.rhai", "fn route(r, s) { s.cached_tokens_gpu - s.in_flight }");
    let hits = |name: &str| {
        let flags = format!("--num-instances 2 --routing-policy {}", scratch.path(name));
        let tier = json(&run_with_blocks(&scratch, 300, &flags))["cpu_tier"].clone();
        tier["cpu_hit_tokens"].as_u64().expect("a number")
    };
    assert!(hits("tier.rhai") > hits("gpu.rhai"), "{} {}", hits("tier.rhai"), hits("gpu.rhai"));
}

/// Candidates in the suites of the kind: the policies of this repository score more than the reference and the default.
#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn suites_rank_policies_of_kv_tiers() {
    let score = |suite: &str, candidate: &str| {
        let result = blis!(format!("evaluate {candidate} --suite {suite} --stage smoke --output json")).json();
        assert_eq!(result["status"], "ok", "{result}");
        result["metrics"]["smoke_score"].as_f64().expect("a score")
    };
    for (suite, policy, least) in [("kv-eviction", "expected-reuse", 1.5), ("kv-offload", "load-or-compute", 1.2)] {
        let best = score(suite, &format!("policies/{policy}.rhai"));
        let default = score(suite, "examples/built-ins/lru.rhai");
        assert!(best > least && best > least * default, "{suite}: {policy} {best}, lru {default}");
    }
}

/// Five adapters in turn with two slots, one of them three times as often as the others.
#[test]
fn a_policy_decides_which_adapter_makes_room() {
    let scratch = Scratch::new();
    let client = |name: &str, share: u32| {
        format!(
            "  - {{id: {name}, adapter: {name}, rate_fraction: {share}, arrival: {{process: poisson}}, input_distribution: \
             {{type: constant, params: {{value: 64}}}}, output_distribution: {{type: constant, params: {{value: 8}}}}}}\n"
        )
    };
    let clients: String = [("often", 3), ("a", 1), ("b", 1), ("c", 1), ("d", 1)].map(|(a, b)| client(a, b)).concat();
    scratch
        .write("adapters.yaml", format!("version: \"2\"\naggregate_rate: 4\nnum_requests: 200\nclients:\n{clients}"));
    scratch.write("equal.rhai", "fn keep(c) { 0.0 }");
    scratch.write("often.rhai", "fn keep(c) { if c.tier[0] < 2 { throw \"no chunk\" }; c.uses }");
    let run = |policy: &str| {
        let flags = "run --model llama-3.1-8b-instruct --hardware H100 --tp 1 --enable-lora --max-loras 2 --max-cpu-loras 3 \
                     --output json --workload-spec";
        let mut document = blis!(format!("{flags} {} {policy}", scratch.path("adapters.yaml"))).json();
        document.as_object_mut().expect("an object").remove("plugins");
        document
    };
    let loads = |document: &Value| document["adapters"].to_string();
    let default = run("");
    let path = |name: &str| format!("--kv-cache-policy {}", scratch.path(name));
    assert_eq!(run("--kv-cache-policy lru"), default);
    assert_eq!(run(&path("equal.rhai")), default, "of equal ranks the least recently used makes room");
    assert_eq!(run(&path("often.rhai")), run("--kv-cache-policy lfu"));
    assert_ne!(loads(&run("--kv-cache-policy lfu")), loads(&default));
    let trace = scratch.path("trace.jsonl");
    let traced = run(&format!("--kv-cache-policy lfu --trace-level decisions --trace-path {trace}"));
    assert_eq!(loads(&traced), loads(&run("--kv-cache-policy lfu")), "recording changes nothing");
    let lines = std::fs::read_to_string(&trace).expect("written");
    let is_eviction = |line: &&str| line.contains("\"kind\":\"adapter_eviction\"");
    let evictions: Vec<Value> = lines.lines().filter(is_eviction).map(json).collect();
    assert!(evictions.len() > 20, "{}", evictions.len());
    for eviction in &evictions {
        let candidates = eviction["candidates"].as_array().expect("a list");
        let ranks = candidates.iter().map(|one| one["rank"].as_f64().expect("a rank"));
        let least = ranks.fold(f64::INFINITY, f64::min);
        let first = candidates.iter().find(|one| one["rank"].as_f64() == Some(least)).expect("it is there");
        assert!(candidates.len() > 1 && first["adapter"] == eviction["evicted"], "{eviction}");
    }
    let listed = blis!(format!("decisions show {trace} --kind adapter_eviction --output text")).done().stdout;
    assert!(listed.contains("takes the slot of"), "{listed}");
    let regret = run("--kv-cache-policy lfu --regret outcome --regret-samples 40")["regret"].clone();
    let section = &regret["kinds"]["adapter_eviction"];
    assert_eq!(section["uniform"]["evaluated"], 10, "a quarter of the samples: {section}");
    assert!(section["decisions"].as_u64().is_some_and(|count| count > 20), "{section}");
    assert_eq!(run("--regret outcome --regret-samples 40")["regret"]["kinds"]["adapter_eviction"], Value::Null);
    let refused = |flags: &str| blis!(format!("run --model llama-3.1-8b-instruct {flags}")).with_code(2).stderr;
    let arc = refused("--enable-lora --kv-cache-policy arc");
    assert!(arc.contains("`arc` has no effect") && arc.contains("ranks no adapters"), "{arc}");
    let none = refused("--kv-cache-policy lfu");
    assert!(none.contains("`--enable-lora`"), "{none}");
}

#[test]
fn a_bundle_names_the_policy() {
    let scratch = scratch();
    scratch.write("bundle.yaml", "kv-cache: {policy: slru, parameters: {protected-uses: 3}}\n");
    let by_bundle = run(&scratch, &format!("--policy-config {}", scratch.path("bundle.yaml")));
    let by_flags = run(&scratch, "--kv-cache-policy slru --policy-param kv-cache.protected-uses=3");
    assert_eq!(json(&by_bundle)["cpu_tier"], json(&by_flags)["cpu_tier"]);
    let without = blis!(format!("run --model llama-3.1-8b-instruct --policy-config {}", scratch.path("bundle.yaml")));
    assert!(without.with_code(2).stderr.contains("has no effect without `--kv-offloading-size`"));
}

#[test]
fn a_script_becomes_a_class_of_vllm() {
    let class = blis!("export vllm-cache-policy examples/built-ins/slru.rhai --set protected_uses=3").done().stdout;
    assert!(
        class.contains("class SlruCachePolicy(CachePolicy):") && class.contains("float(chunk.uses >= 3.0)"),
        "{class}"
    );
    let scratch = Scratch::new();
    scratch.write("mine.rhai", "fn keep(c) {\n    c.uses + c.tenant\n}\n");
    let message = blis!(format!("export vllm-cache-policy {}", scratch.path("mine.rhai"))).with_code(2).stderr;
    assert!(message.contains("mine.rhai:2:16") && message.contains("does not know `tenant`"), "{message}");
}
