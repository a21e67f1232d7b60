//! The four public traces of `examples/real-traces.sh`: a part of each is simulated to its last request.

use std::path::Path;

use serde_json::Value;

use crate::macros::blis;
use crate::shared::shared;

/// Flags that name the workload, and how many of its requests are simulated.
const TRACES: [(&str, &str, u64); 4] = [
    ("azure-2023/AzureLLMInferenceTrace_conv.csv", "--workload-trace {} --max-requests 1500", 1500),
    ("azure-2023/AzureLLMInferenceTrace_code.csv", "--workload-trace {} --max-requests 1500", 1500),
    ("mooncake/synthetic_trace.jsonl", "--workload-trace {} --max-requests 600", 600),
    ("servegen-deepseek-r1", "--workload-spec {} --num-requests 600", 600),
];

#[test]
fn each_goes_through_to_its_last_request() {
    let Some(folder) = shared("data/traces") else { return };
    for (path, flags, requests) in TRACES {
        let flags = flags.replace("{}", &folder.join(path).display().to_string());
        let mut before = f64::INFINITY;
        for instances in [1, 4, 16] {
            let document = run(&format!("--num-instances {instances} --routing-policy weighted {flags}"));
            let count = |key: &str| document[key].as_u64().unwrap_or_else(|| panic!("{path}: {key}"));
            assert_eq!(count("completed_requests") + count("dropped_unservable"), requests, "{path} on {instances}");
            assert_eq!(document["conservation"]["holds"], true, "{path} on {instances}");
            assert_eq!(
                (count("still_queued"), count("still_running"), count("rejected_requests")),
                (0, 0, 0),
                "{path}"
            );
            let ttft = document["ttft_mean_ms"].as_f64().expect("a mean");
            assert!(ttft < before * 1.02, "{path}: more instances do not make people wait: {before} {ttft}");
            before = ttft;
        }
    }
}

/// The table that is committed has a row for each of them.
#[test]
fn the_table_has_every_trace() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let (table, script) = (text("examples/real-traces.md"), text("examples/real-traces.sh"));
    for (path, ..) in TRACES {
        let mut lines = script.lines().filter(|line| !line.starts_with('#'));
        let line = lines.find(|line| line.contains(path)).unwrap_or_else(|| panic!("{path} is not run"));
        let name = line.split_whitespace().next().expect("a name");
        for instances in [1, 4, 16] {
            let row = format!("| {name} | {instances} |");
            assert!(table.lines().any(|line| line.starts_with(&row)), "no row {row}");
        }
    }
    let header = script.lines().find(|line| line.contains("| trace | instances |")).expect("a header");
    let header = header.trim_start_matches("echo ").trim_matches('"');
    assert!(table.contains(header), "columns as the script prints them");
}

fn run(flags: &str) -> Value {
    let line = format!("run --model meta-llama/llama-3.1-8b-instruct --log off --output json {flags}");
    blis!(line).json()
}
