//! Runs with plugins: how they are chosen, how results name them, and what happens
//! when they fail.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::macros::{Ended, Scratch, blis};

/// A folder of its own with `policies/` in it, gone with the test.
struct Folder(Scratch);

impl Folder {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(policies: &[(&str, &str)]) -> Self {
        let folder = Scratch::new();
        fs::create_dir_all(folder.join("policies")).expect("a folder");
        for (name, text) in policies {
            folder.write(&format!("policies/{name}"), text);
        }
        Self(folder)
    }

    fn run(&self, flags: &str) -> Ended {
        let service = "run --model meta-llama/llama-3.1-8b-instruct --workload chatbot --num-instances 4 --rate 80 \
                       --num-requests 400 --output json --log warn";
        self.blis(&format!("{service} {flags}"))
    }

    fn blis(&self, line: &str) -> Ended {
        blis!(in &self.0, line)
    }

    fn document(&self, flags: &str) -> Value {
        self.run(flags).json()
    }
}

const SHORT_QUEUE: &str =
    "// @param queue_weight 1 0 10\nfn route(r, s) {\n    -queue_weight * s.queue_depth - s.in_flight\n}\n";

#[test]
fn dropping_a_file_into_policies_is_enough() {
    let folder = Folder::with(&[("mine.rhai", SHORT_QUEUE)]);
    let document = folder.document("--routing-policy mine --policy-param routing.queue_weight=3");
    let used = &document["plugins"][0];
    assert_eq!([&used["kind"], &used["name"], &used["technology"]], ["routing", "mine", "script"]);
    assert_eq!((&used["sandboxed"], &used["parameters"]["queue_weight"]), (&Value::Bool(true), &Value::from(3.0)));
    assert_eq!(used["sha256"].as_str().map(str::len), Some(64));
    assert_eq!(used["faults"], Value::Array(Vec::new()));
    let by_path = folder.document("--routing-policy ./policies/mine.rhai --policy-param routing.queue_weight=3");
    assert_eq!(by_path["e2e_mean_ms"], document["e2e_mean_ms"]);
    let built_in = folder.document("--routing-policy least-loaded");
    assert!(built_in.get("plugins").is_none(), "nothing to say about built-in policies");
}

#[test]
fn policies_dir_comes_before_policies() {
    let folder = Folder::with(&[("mine.rhai", SHORT_QUEUE)]);
    fs::create_dir(folder.0.join("other")).expect("a folder");
    fs::write(folder.0.join("other/mine.rhai"), "fn route(r, s) { 0 }").expect("a file");
    let document = folder.document("--routing-policy mine --policy-dir other");
    assert!(document["plugins"][0]["file"].as_str().is_some_and(|file| file.contains("other")), "{document}");
}

#[test]
fn a_bundle_mixes_technologies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let bundle = root.join("policies/mixed.yaml");
    let folder = Folder::new(); // its plugins are carried by the program
    let document = folder.document(&format!("--policy-config {}", bundle.display()));
    let used: Vec<(&str, &str)> = document["plugins"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|used| (used["kind"].as_str().expect("a kind"), used["technology"].as_str().expect("one")))
        .collect();
    assert_eq!(used, [("admission", "script"), ("routing", "component"), ("scheduling", "script")]);
    assert_eq!(document["plugins"][1]["parameters"]["prefix_weight"], Value::from(3.0));
    let explained = folder.run(&format!("--policy-config {} --explain-config", bundle.display()));
    let page = explained.stdout;
    let policies = page.split_once("# From here to the end").expect("the policies").1;
    fs::write(folder.0.join("again.yaml"), policies.split_once('\n').expect("lines").1).expect("a file");
    let again = folder.document("--policy-config again.yaml");
    assert_eq!(again, document, "{policies}");
}

#[test]
fn unusable_plugins_are_refused_before_the_run() {
    let policies = [
        ("mine.rhai", SHORT_QUEUE),
        ("broken.rhai", "fn route(r, s) {\n    s.queue_dept\n"),
        ("twice.rhai", SHORT_QUEUE),
        ("twice.wasm", "not wasm"),
        ("empty.wasm", ""),
        ("library.so", "not a library"),
        ("bundle.yaml", "routing:\n  policy: mine\n  parameters: {queue_wieght: 2}\n"),
        ("range.yaml", "routing: {policy: mine, parameters: {queue_weight: 11}}\n"),
        ("unknown.yaml", "routing:\n  policy: mein\n"),
        ("loose.yaml", "routing: {policy: weighted, parameters: {a: 1}}\n"),
    ];
    let folder = Folder::with(&policies);
    let mut page = String::new();
    for flags in [
        "--routing-policy mein",
        "--admission-policy mine",
        "--routing-policy broken",
        "--routing-policy twice",
        "--routing-policy empty",
        "--routing-policy library",
        "--routing-policy library --allow-native",
        "--routing-policy mine --policy-param routing.queue_weight=11",
        "--routing-policy mine --policy-param routing.queue_wieght=1",
        "--routing-policy mine --policy-param rooting.queue_weight=1",
        "--routing-policy mine --policy-param routing.queue_weight=many",
        "--routing-policy mine --policy-param queue_weight",
        "--routing-policy weighted --policy-param routing.queue_weight=1",
        "--policy-config policies/bundle.yaml",
        "--policy-config policies/range.yaml",
        "--policy-config policies/unknown.yaml",
        "--policy-config policies/loose.yaml",
        "--latency-model rooflin",
        "--routing-policy mine --policy-dir nowhere",
    ] {
        let output = folder.run(flags);
        assert_eq!(output.code, Some(2), "{flags}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{flags}");
        let message = output.stderr.replace(&folder.0.display().to_string(), "DIR");
        page += &format!("$ {flags}\n{message}\n");
    }
    insta::assert_snapshot!(page);
}

const FAILS_LATE: &str =
    "fn route(r, s) {\n    if r.id == 100 { throw \"I have seen enough\"; }\n    -s.in_flight\n}\n";

#[test]
fn a_failing_policy_ends_the_run_or_is_counted() {
    let folder = Folder::with(&[("late.rhai", FAILS_LATE)]);
    let output = folder.run("--routing-policy late --metrics-path m.json");
    assert_eq!(output.code, Some(1));
    assert_eq!(output.stdout, "", "half a run is no result");
    assert!(!folder.0.join("m.json").exists());
    let message = output.stderr;
    for part in
        ["the routing policy `late` failed at", "late.rhai:2:", "I have seen enough", "--on-plugin-error fallback"]
    {
        assert!(message.contains(part), "{part}: {message}");
    }
    let document = folder.document("--routing-policy late --on-plugin-error fallback");
    let fault = &document["plugins"][0]["faults"][0];
    assert_eq!((&fault["kind"], &fault["count"]), (&Value::from("trap"), &Value::from(1)));
    assert_eq!(document["completed_requests"], Value::from(400));
}

#[test]
fn every_kind_falls_back() {
    let never = "fn route(r, s) { throw \"no\" }\nfn admit(r, s) { 0.0 / 0.0 }\nfn priority(r) { sqrt(-1.0) }\n\
                 fn rank(r, q) { sqrt(-1.0) }\nfn victim(b) { 99999 }\nfn step_time(b) { -1 }\n";
    let folder = Folder::with(&[("never.rhai", never)]);
    let flags = "--routing-policy never --admission-policy never --priority-policy never --scheduler never \
                 --preemption-policy never --latency-model never --total-kv-blocks 600 --on-plugin-error fallback";
    let document = folder.document(flags);
    assert_eq!(document["completed_requests"], Value::from(400), "{document}");
    let used = document["plugins"].as_array().expect("a list");
    assert_eq!(used.len(), 6);
    for used in used {
        let faults = used["faults"].as_array().expect("a list");
        let count: u64 = faults.iter().filter_map(|fault| fault["count"].as_u64()).sum();
        assert!(count > 0 || used["kind"] == "preemption", "{used}");
    }
    for kind in ["routing-policy", "admission-policy", "priority-policy", "scheduler", "latency-model"] {
        let output = folder.run(&format!("--{kind} never"));
        assert_eq!(output.code, Some(1), "{kind}: {}", output.stderr);
    }
}

#[test]
fn plugins_can_be_compared() {
    let folder = Folder::with(&[("mine.rhai", SHORT_QUEUE)]);
    let line = "compare round-robin mine rust-least-loaded --model meta-llama/llama-3.1-8b-instruct --workload chatbot \
                --num-instances 4 --rate 80 --num-requests 200 --seeds 2 --output json --threads";
    let [one, two] = ["1", "2"].map(|threads| {
        let output = folder.blis(&format!("{line} {threads}"));
        assert!(output.code == Some(0), "{}", output.stderr);
        output.stdout
    });
    assert_eq!(one, two, "whatever the number of threads");
    let document: Value = serde_json::from_str(&one).expect("JSON");
    assert_eq!(document["metrics"]["mean_e2e"]["values"].as_array().map(Vec::len), Some(3));
}
