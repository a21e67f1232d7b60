//! `blis import llm-d` and `blis export llm-d`: llm-d's published configurations, and mistakes in others.

use std::path::{Path, PathBuf};

use crate::macros::{Scratch, blis, root};
use crate::shared::shared;

/// The published configurations, with the plugins and sections that have no counterpart.
const PUBLISHED: [(&str, &[&str]); 15] = [
    ("default-config", &[]),
    ("dp-epp-config", &["`data-parallel-profile-handler`"]),
    ("epp-burst-prefix-cache-config", &["`burst-prefix-cache-producer`"]),
    ("epp-config", &[]),
    ("epp-estimate-prefix-cache-config", &[]),
    ("epp-precise-prefix-cache-config", &[]),
    ("optimized-baseline", &[]),
    ("pd-epp-config", &[]),
    ("pd-topology-epp-config", &["`topology-extractor`", "`topology-affinity-filter`", "`topology-affinity-scorer`"]),
    ("precise-prefix", &[]),
    ("probabilistic-admitter-epp-config", &[]),
    ("sim-e-p-d-epp-config", &[]),
    ("sim-epp-no-hit-lru", &[]),
    ("sim-program-aware-config", &[]),
    ("soft-reflective-ceiling-epp-config", &[]),
];

/// The routing sections of some of them, worked out by hand.
const ROUTING: [(&str, &str); 6] = [
    ("default-config", "queue-depth 1, kv-utilization 1, prefix-affinity 1, lora-affinity 1"),
    ("optimized-baseline", "queue-depth 2, kv-utilization 2, prefix-affinity 3, no-hit-lru 2"),
    ("precise-prefix", "active-requests 4, kv-utilization 2, precise-prefix-cache-share 2, no-hit-lru 2"),
    ("pd-epp-config", "prefix-affinity 2, queue-depth 1, prefix-affinity 2, queue-depth 1"),
    ("sim-e-p-d-epp-config", "queue-depth 1, queue-depth 1, random 1"),
    ("probabilistic-admitter-epp-config", "random 1"),
];

fn import(file: &Path, bundle: &Path) -> Vec<String> {
    let ended = blis!("import llm-d", file, "--out", bundle).done();
    ended.stderr.lines().map(str::to_owned).collect()
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn published_configurations_run_and_come_back() {
    let Some(folder) = shared("cases/llm-d") else { return };
    let scratch = Scratch::new();
    let path = |name: &str| PathBuf::from(scratch.path(name));
    for (name, left_out) in PUBLISHED {
        let (bundle, config, again) = (path("bundle.yaml"), path("config.yaml"), path("again.yaml"));
        let file = folder.join(format!("{name}.yaml"));
        let notes = import(&file, &bundle);
        let missing: Vec<&String> =
            notes.iter().filter(|note| note.contains(" has no counterpart: it would ")).collect();
        assert_eq!(missing.len(), left_out.len(), "{name}: {missing:#?}");
        for what in left_out {
            assert!(missing.iter().any(|note| note.contains(what)), "{name}: {what}: {missing:#?}");
        }
        blis!("export llm-d", bundle, "--out", config).done();
        let remarks = import(&config, &again);
        assert!(remarks.iter().all(|remark| !remark.contains("no counterpart")), "{name}: {remarks:#?}");
        assert_eq!(text(&bundle), text(&again), "{name}");
        let run = "run --model qwen/qwen3-14b --rate 20 --num-requests 40 --output json --policy-config";
        let instances = match name {
            "pd-epp-config" | "pd-topology-epp-config" => "--prefill-instances 1 --decode-instances 2",
            "sim-e-p-d-epp-config" => "--encode-instances 1 --prefill-instances 1 --decode-instances 2",
            _ => "--num-instances 3",
        };
        let document = blis!(run, bundle, instances).json();
        assert_eq!(document["completed_requests"], 40, "{name}");
        let strict = blis!("import llm-d", file, "--strict");
        assert_eq!(strict.code, Some(if left_out.is_empty() { 0 } else { 2 }), "{name}: {}", strict.stderr);
    }
    for (name, expected) in ROUTING {
        let bundle = path("bundle.yaml");
        import(&folder.join(format!("{name}.yaml")), &bundle);
        let scorers = text(&bundle)
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- {name: ").map(str::to_owned))
            .collect::<Vec<_>>();
        let scorers = scorers.join(" ").replace(", weight:", "").replace("} ", ", ").replace('}', "");
        assert_eq!(scorers, expected, "{name}");
    }
}

#[test]
fn the_example_decides_as_token_aware() {
    let scratch = Scratch::new();
    let bundle = PathBuf::from(scratch.path("bundle.yaml"));
    import(&root().join("examples/router/epp.yaml"), &bundle);
    let run =
        "run --model qwen/qwen3-14b --num-instances 3 --workload chatbot --rate 20 --num-requests 200 --output json";
    let imported = blis!(run, "--policy-config", bundle).json();
    let built_in = blis!(run, "--routing-policy token-aware --admission-policy gaie-legacy").json();
    assert_eq!(imported, built_in);
}

/// The imported bundle decides as the flags that say the same.
#[test]
fn a_bundle_of_profiles_by_role_decides_as_the_flags_do() {
    let Some(folder) = shared("cases/llm-d") else { return };
    let scratch = Scratch::new();
    let bundle = PathBuf::from(scratch.path("bundle.yaml"));
    import(&folder.join("pd-epp-config.yaml"), &bundle);
    let run = "run --model qwen/qwen3-14b --workload chatbot --rate 30 --num-requests 300 --output json \
               --prefill-instances 2 --decode-instances 2";
    let imported = blis!(run, "--policy-config", bundle).json();
    let flags = "--admission-policy gaie-legacy --routing-policy weighted --routing-scorers prefix-affinity:2,queue-depth:1 \
                 --policy-param routing.prefix-capacity=31250 --pd-decider prefix-threshold \
                 --prefill-routing-scorers prefix-affinity:2,queue-depth:1";
    let by_flags = blis!(run, flags).json();
    assert_eq!(imported, by_flags);
    let elsewhere = imported["pd_metrics"].as_object().expect("requests are prefilled elsewhere");
    assert!(!elsewhere.is_empty(), "{elsewhere:?}");
    let without = blis!("run --model qwen/qwen3-14b --num-instances 3 --policy-config", bundle).refused();
    assert!(without.contains("needs instances that prefill apart from others"), "{without}");
}

#[test]
fn what_llm_d_cannot_express_is_refused() {
    let message = blis!("export llm-d policies/mixed.yaml").refused();
    assert!(message.starts_with("error: policies/mixed.yaml:"), "{message}");
    assert!(message.contains("`shed-late` is not built in"), "{message}");
    let message = blis!("import llm-d policies/chat-prefix.yaml").refused();
    assert!(message.starts_with("error: policies/chat-prefix.yaml:8:1: unknown key `routing`"), "{message}");
    let message = blis!("import llm-d nothing.yaml").refused();
    assert!(message.contains("`nothing.yaml`"), "{message}");
    let message = blis!("import llm-d examples/router/epp.yaml --out examples/router/epp.yaml").refused();
    assert!(message.contains("is the input"), "{message}");
}
