//! Small runs and their recorded results, in `tests/cases`: both engines reproduce them exactly.
//!
//! A case is a folder with `cmd.txt`, the words of a command (`{}` is the folder), what the command reads, and
//! `results.json`: what it prints, and every request. The plain engine, which is the truth, wrote that file:
//!
//! ```sh
//! BLIS_RECORD=1 cargo test -p blis --test tests cases
//! ```
//!
//! writes them anew. Read the difference before you commit it: it is a change of what BLIS computes.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::macros::{Scratch, blis, root};

const CASES: [&str; 20] = [
    "admission",
    "autoscaler-hot",
    "autoscaler-queue",
    "autoscaler-slo-aware",
    "autoscaler-token-aware",
    "autoscaler-wva",
    "autoscaler-zero",
    "chunked-prefill",
    "cluster",
    "deadlines",
    "fcfs",
    "groups",
    "groups-autoscaler",
    "node-gangs",
    "node-pools",
    "parity-blis",
    "preemption",
    "prefix-caching",
    "sessions",
    "shortest-first",
];

#[test]
fn both_engines_reproduce_the_recorded_results() {
    let recording = std::env::var_os("BLIS_RECORD").is_some();
    for name in CASES {
        let file = folder(name).join("results.json");
        if recording {
            fs::write(&file, text(&document(name, "plain"))).expect("the case is ours");
        }
        let recorded = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for engine in ["plain", "fast"] {
            let ours = text(&document(name, engine));
            for (line, (ours, recorded)) in ours.lines().zip(recorded.lines()).enumerate() {
                assert_eq!(ours, recorded, "{}:{}, engine {engine}", file.display(), line + 1);
            }
            assert_eq!(ours.len(), recorded.len(), "{}, engine {engine}", file.display());
        }
    }
}

/// What they are named for happens, so that they keep showing something.
#[test]
fn each_case_shows_what_it_is_there_for() {
    let recorded = |name: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(folder(name).join("results.json")).expect("recorded")).expect("JSON")
    };
    let count = |name: &str, figure: &str| {
        let document = recorded(name);
        document["figures"][figure].as_f64().unwrap_or_else(|| panic!("no {figure} in {name}"))
    };
    let some = |name: &str, key: &str| {
        let requests = recorded(name)["requests"].as_array().expect("requests").clone();
        requests.iter().filter(|request| request[key].as_f64().is_some_and(|number| number > 0.0)).count()
    };
    assert!(some("fcfs", "scheduling_delay_ms") > 10, "requests wait");
    assert!(count("preemption", "preemption_count") > 5.0);
    assert!(count("shortest-first", "preemption_count") > 0.0);
    assert!(some("prefix-caching", "num_cached_tokens") > 10);
    assert!(some("cluster", "num_cached_tokens") > 10);
    assert!(count("admission", "rejected_admission") > 5.0 && count("admission", "completed_requests") > 5.0);
    assert!(count("deadlines", "timed_out_requests") > 5.0 && count("deadlines", "completed_requests") > 5.0);
    assert!(count("sessions", "completed_requests") > 20.0 && !recorded("sessions")["figures"]["sessions"].is_null());
    assert!(count("chunked-prefill", "completed_requests") == 40.0);
    assert!(count("parity-blis", "preemption_count") > 0.0);
    let replicas = |name: &str, figure: &str| recorded(name)["figures"]["replicas"][figure].as_f64().expect("a figure");
    for name in CASES.into_iter().filter(|name| name.contains("autoscaler")) {
        assert!(replicas(name, "started") > 0.0, "{name}");
    }
    for name in ["autoscaler-hot", "autoscaler-queue", "autoscaler-token-aware", "autoscaler-zero"] {
        assert!(replicas(name, "removed") > 0.0, "{name}");
    }
    assert!(replicas("autoscaler-zero", "mean") < 2.0, "none for a while");
    for name in ["groups", "groups-autoscaler"] {
        let groups = recorded(name)["figures"]["replicas"]["groups"].as_array().map(Vec::len);
        assert_eq!(groups, Some(2), "{name}");
    }
    for name in ["node-gangs", "node-pools"] {
        let pools = recorded(name)["figures"]["replicas"]["node_pools"].as_array().expect("pools").clone();
        assert!(pools.len() == 2 && pools.iter().all(|pool| pool["requested"].as_u64() > Some(0)), "{name}: {pools:?}");
        assert!(replicas(name, "removed") > 0.0, "{name}");
    }
    let mut placed: Vec<String> = recorded("cluster")["requests"]
        .as_array()
        .expect("requests")
        .iter()
        .map(|request| request["handled_by"].to_string())
        .collect();
    placed.sort();
    placed.dedup();
    assert_eq!(placed.len(), 4, "every instance has some");
}

#[test]
fn every_case_is_run() {
    let entries = fs::read_dir(root().join("tests/cases")).expect("cases");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, CASES);
}

fn folder(name: &str) -> PathBuf {
    root().join("tests/cases").join(name)
}

/// The figures and the requests of a case.
fn document(name: &str, engine: &str) -> Value {
    let scratch = Scratch::new();
    let file = folder(name).join("cmd.txt");
    let line = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let line = line.replace("{}", &folder(name).display().to_string());
    let mut figures =
        blis!(line, "--output json --simulation", engine, "--metrics-path", scratch.path("m.json")).json();
    // Its words follow from the figures.
    figures.as_object_mut().expect("an object").remove("conclusion");
    let metrics: Value = serde_json::from_str(&scratch.read("m.json")).expect("JSON");
    json!({"figures": figures, "requests": metrics["requests"]})
}

/// A line for each figure and each request, so that a difference can be read.
fn text(document: &Value) -> String {
    let figures = document["figures"].as_object().expect("figures").iter();
    let figures: Vec<String> = figures.map(|(name, value)| format!("{}: {value}", json!(name))).collect();
    let requests: Vec<String> =
        document["requests"].as_array().expect("requests").iter().map(ToString::to_string).collect();
    format!("{{\"figures\": {{\n{}\n}},\n\"requests\": [\n{}\n]}}\n", figures.join(",\n"), requests.join(",\n"))
}
