//! Plugins that scale: the autoscaler `queue` and its re-implementations as a script (`examples/built-ins/queue.rhai`) and as
//! a component (`plugins/queue-scaler`) give the same results, byte for byte; and mistakes are refused.

use std::fs;

use serde_json::Value;

use crate::macros::{Scratch, blis};

/// A load that rises and falls, so that replicas are added and removed.
const WORKLOAD: &str = r#"
version: "2"
clients:
  - id: wave
    rate_fraction: 1
    arrival: { process: poisson }
    input_distribution: { type: gaussian, params: { mean: 300, std_dev: 150, min: 20, max: 900 } }
    output_distribution: { type: exponential, params: { mean: 200 } }
    lifecycle:
      windows:
        - { start_us: 0, end_us: 60000000, rate: 1 }
        - { start_us: 60000000, end_us: 150000000, rate: 12 }
        - { start_us: 150000000, end_us: 400000000, rate: 1 }
"#;

const SERVICE: &str = "run --model llama-3.1-8b-instruct --tp 1 --max-num-seqs 8 --output json \
                       --max-replicas 6 --startup-time 20s --flow-control --saturation-detector concurrency \
                       --max-concurrency 8";
/// The rules of `queue`, which a plugin has only if they are set.
const RULES: &str = "--scale-up window=0,100%/15s --scale-down window=60s,100%/15s";
const SCRIPT: &str = "examples/built-ins/queue.rhai";
const COMPONENT: &str = "rust-queue-scaler";
const VALUES: &str = "--policy-param scaling.queued=2 --policy-param scaling.running=5";

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("workload.yaml", WORKLOAD);
    scratch
}

/// The document of a run with the autoscaler that `flags` name, without what names the plugins.
fn run(scratch: &Scratch, flags: &str) -> String {
    let workload = scratch.path("workload.yaml");
    let document = blis!(format!("{SERVICE} --workload-spec {workload} {RULES} {flags}")).done().stdout;
    let mut document: Value = serde_json::from_str(&document).expect("JSON");
    document.as_object_mut().expect("an object").remove("plugins");
    document.to_string()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn the_autoscaler_queue_as_a_plugin_gives_the_same_bytes() {
    let scratch = scratch();
    for more in [
        "--seed 1",
        "--seed 2 --scaling-interval 5s --scrape-interval 7s",
        "--seed 3 --min-replicas 0 --num-instances 1",
    ] {
        let with = |name: &str| run(&scratch, &format!("{more} --autoscaler {name} {VALUES}"));
        let built_in = with("queue");
        assert!(built_in == with(SCRIPT), "as a script, {more}");
        assert!(built_in == with(COMPONENT), "as a component, {more}");
        assert!(built_in != run(&scratch, &format!("{more} --autoscaler static")), "it has an effect");
    }
}

#[test]
fn the_drain_policy_emptiest_as_a_plugin_gives_the_same_bytes() {
    let scratch = scratch();
    let with = |seed: u32, name: &str| {
        run(&scratch, &format!("--seed {seed} --scaling-interval 5s --autoscaler queue --drain-policy {name}"))
    };
    let mut matters = false;
    for seed in 1..4 {
        let built_in = with(seed, "emptiest");
        assert!(built_in == with(seed, "examples/built-ins/emptiest.rhai"), "as a script, seed {seed}");
        assert!(built_in == with(seed, COMPONENT), "as a component, seed {seed}");
        matters |= built_in != with(seed, "newest");
    }
    assert!(matters, "another replica goes in one of the runs");
}

/// A bundle names a drain policy with its parameters, as flags do; without an autoscaler it has no effect.
#[test]
fn a_bundle_names_the_drain_policy() {
    let scratch = scratch();
    let source = "// @param queue_weight 1 0 100 weight of waiting requests\n\
                  fn drain(g, r) { -queue_weight * r.queue_depth - r.batch_size - r.state * 1e9 }";
    scratch.write("mine.rhai", source);
    let bundle = format!("drain: {{ policy: {}, parameters: {{ queue_weight: 7 }} }}\n", scratch.path("mine.rhai"));
    scratch.write("bundle.yaml", &bundle);
    let by_bundle = format!("--policy-config {}", scratch.path("bundle.yaml"));
    let by_flags = format!("--drain-policy {} --policy-param drain.queue_weight=7", scratch.path("mine.rhai"));
    let run = |flags: &str| run(&scratch, &format!("--autoscaler queue {flags}"));
    assert_eq!(run(&by_bundle), run(&by_flags));
    let fixed = blis!(format!("run --model llama-3.1-8b-instruct --num-requests 5 {by_bundle}")).refused();
    assert!(fixed.contains("has no effect without `--autoscaler`"), "{fixed}");
}

/// A target beyond the limits is within them, and is reached no faster than the rates allow: 100 % in 15 s.
#[test]
fn targets_are_within_the_limits_and_rates_of_the_service() {
    let scratch = scratch();
    scratch.write("most.rhai", "fn scale(g) { 1000000 }");
    let document = json(&run(&scratch, &format!("--autoscaler {}", scratch.path("most.rhai"))));
    let replicas = &document["replicas"];
    assert_eq!(replicas["peak"], 6, "{replicas}");
    assert_eq!(replicas["scale_events"], 3, "1, 2, 4 and 6: {replicas}");
}

/// A script sees the groups of decisions before, and only what has happened.
#[test]
fn the_host_keeps_histories() {
    let scratch = scratch();
    let source = "fn scale(g) {\n    \
                      if g.history > 0 && g.before(1).now >= g.now { throw \"not before\"; }\n    \
                      if g.history > 20 || g.scraped[0] > g.now { throw `${g.history} decisions`; }\n    \
                      if g.ready[0] + g.loading[0] + g.pending[0] > 6 { throw \"more than the limit\"; }\n    \
                      if sum(g.before(20).completed) > g.now { throw \"more than can be\"; }\n    \
                      ceil((g.queued + g.batch_size + g.before(1).queued) / 8)\n\
                  }\n";
    scratch.write("history.rhai", source);
    let document = json(&run(&scratch, &format!("--autoscaler {}", scratch.path("history.rhai"))));
    assert!(document["replicas"]["peak"].as_u64().is_some_and(|peak| peak > 1), "{}", document["replicas"]);
}

#[test]
fn mistakes_are_refused() {
    let scratch = scratch();
    let says = |flags: &str, text: &str| {
        let message = blis!(format!("run --model llama-3.1-8b-instruct --num-requests 5 {flags}")).refused();
        assert!(message.contains(text) && message.contains("hint: "), "{flags}: {message}");
    };
    says("--autoscaler queu", "queue");
    says("--autoscaler rust-least-loaded", "is no scaling policy");
    says(&format!("--autoscaler {COMPONENT} --policy-param scaling.runing=1"), "running");
    says(&format!("--autoscaler {SCRIPT} --policy-param scaling.queued=0"), "queued");
    says("--policy-param scaling.queued=1", "needs `--autoscaler`");
    says("--drain-policy newest", "needs `--autoscaler`");
    says("--autoscaler queue --drain-policy newst", "newest");
    says("--autoscaler queue --drain-policy rust-least-loaded", "is no drain policy");
    says("--autoscaler queue --placement-policy spread", "has no effect without node pools");
    scratch.write("bad.rhai", "fn scale(g) { g.waiting }");
    says(&format!("--autoscaler {}", scratch.path("bad.rhai")), "no field `waiting`");
}

/// A bad output ends the run, or is counted where `queue` decides instead.
#[test]
fn a_failing_plugin_is_reported() {
    let scratch = scratch();
    let (file, workload) = (scratch.path("bad.rhai"), scratch.path("workload.yaml"));
    fs::write(&file, "fn scale(g) { g.queued + 0.5 }").expect("written");
    let flags = format!("{SERVICE} --workload-spec {workload} {RULES} --autoscaler {file}");
    let ended = blis!(flags.clone());
    assert!(ended.stderr.contains("a whole number of replicas"), "{}", ended.stderr);
    let document = json(&blis!(format!("{flags} --on-plugin-error fallback")).done().stdout);
    let plugins = document["plugins"].as_array().expect("a list");
    assert!(plugins.iter().any(|plugin| plugin["kind"] == "scaling"), "{plugins:?}");
    let usual = json(&run(&scratch, "--autoscaler queue"));
    assert_eq!(document["replicas"], usual["replicas"]);
}

/// What a page of `--explain-config` says gives the same run.
#[test]
fn an_explained_plugin_runs_again() {
    let scratch = scratch();
    let flags = format!(
        "{SERVICE} --workload-spec {} {RULES} --autoscaler {COMPONENT} {VALUES}",
        scratch.path("workload.yaml")
    );
    let page = blis!(format!("{flags} --explain-config")).done().stdout;
    scratch.write("page.yaml", &page);
    let again = blis!(format!("run --output json --config {}", scratch.path("page.yaml"))).done().stdout;
    assert_eq!(again, blis!(flags).done().stdout, "{page}");
}
