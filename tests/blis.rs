//! The recorded runs of the published BLIS, flag for flag, through the program: every figure of
//! every file it writes, with both engines.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::macros::{Scratch, ended, program};
use crate::shared::{read, shared};

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn recorded_runs_are_reproduced() {
    let (Some(cases), Some(next)) = (shared("cases/blis"), shared("cases/blis-next")) else { return };
    let mut folders: Vec<PathBuf> = [cases, next]
        .iter()
        .flat_map(|folder| fs::read_dir(folder).expect("cases").map(|entry| entry.expect("entry").path()))
        .collect();
    folders.sort();
    let mut checked = 0;
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if folder.is_dir() {
            for engine in ["fast", "plain"] {
                check(&folder, &format!("{name} {engine}"), engine);
            }
            checked += 1;
        }
    }
    assert!(checked >= 54, "only {checked} cases");
}

#[test]
fn adapters_are_those_of_blis() {
    let Some(next) = shared("cases/blis-next") else { return };
    for engine in ["fast", "plain"] {
        check(&next.join("c35-lora-affinity"), &format!("c35-lora-affinity {engine}"), engine);
    }
}

#[test]
fn disaggregation_is_that_of_blis() {
    let (Some(cases), Some(next)) = (shared("cases/blis"), shared("cases/blis-next")) else { return };
    for folder in [cases.join("c27-pd-always"), cases.join("c29-pd-contention"), next.join("c28-pd-prefix-threshold")] {
        for engine in ["fast", "plain"] {
            check(&folder, &format!("{} {engine}", folder.display()), engine);
        }
    }
}

fn check(case: &Path, what: &str, engine: &str) {
    let scratch = Scratch::new();
    let flags = read(&case.join("cmd.txt"));
    let mut command = program!();
    command.args(flags.split_whitespace().skip_while(|&word| word != "replay").map(|word| match word {
        "trace.yaml" | "policy.yaml" | "lora.yaml" => case.join(word),
        "trace.csv" if !case.join(word).exists() => case.join("trace.csv.gz"),
        "trace.csv" => case.join(word),
        "metrics.json" | "results.json" => scratch.join(word),
        _ => PathBuf::from(word),
    }));
    command.args(["--parity", "blis", "--simulation", engine]);
    let decides = flags.contains("--trace-level");
    if decides {
        command.arg("--trace-path").arg(scratch.join("decisions.jsonl"));
    }
    if flags.contains("BLIS_TIE_FIRST") {
        command.args(["--tie-break", "lowest-index"]);
    }
    let printed = ended(&mut command).json();
    let [metrics, results] = ["metrics.json", "results.json"].map(|name| {
        let mut ours: Value = serde_json::from_str(&read(&scratch.join(name))).expect("our JSON");
        let mut theirs: Value = serde_json::from_str(&read(&case.join(name))).expect("their JSON");
        if flags.contains("--session-mode") {
            match_later_rounds(&mut ours, &mut theirs);
        }
        assert_contains(&ours, &theirs, &format!("{what} {name}"));
        ours
    });
    assert!(printed["requests"].is_null() && metrics["requests"].is_array() && results.is_array(), "{what}");
    assert_eq!(printed["e2e_p50_ms"], metrics["e2e_p50_ms"], "{what}");
    check_instances(&printed, &read(&case.join("stdout.txt")), what);
    check_tiers((&printed, &metrics), &read(&case.join("stdout.txt")), what);
    check_pairs(&printed["pd_metrics"], &read(&case.join("stdout.txt")), what);
    if decides {
        check_decisions(&read(&scratch.join("decisions.jsonl")), &read(&case.join("decisions.json")), what);
        check_summary(&printed["decisions"], &read(&case.join("stdout.txt")), what);
    }
}

/// Later rounds of sessions keep the number they have in the trace. BLIS calls them
/// `session_<session>_round_<round>_<counter>`, and leaves them out of its results.
fn match_later_rounds(ours: &mut Value, theirs: &mut Value) {
    if let (Some(ours), Some(theirs)) = (ours.as_array_mut(), theirs.as_array()) {
        ours.retain(|ours| theirs.iter().any(|theirs| theirs["request_id"] == ours["request_id"]));
    }
    let round = |request: &Value| (request["session_id"].clone(), request["round_index"].clone());
    let ours = ours["requests"].as_array().cloned().unwrap_or_default();
    for request in theirs.get_mut("requests").and_then(Value::as_array_mut).into_iter().flatten() {
        let same = ours.iter().find(|ours| round(ours) == round(request));
        request["requestID"] = same.expect("that round of that session")["requestID"].clone();
    }
}

/// BLIS prints a block for each instance, if there are several, and one for all.
fn check_instances(printed: &Value, stdout: &str, what: &str) {
    let blocks = stdout.split("=== Simulation Metrics ===").skip(1);
    let blocks: Vec<Value> = blocks
        .map(|block| {
            let mut documents = serde_json::Deserializer::from_str(block).into_iter();
            documents.next().expect("a document").expect("their JSON")
        })
        .collect();
    let (all, each) = blocks.split_last().expect("a block for all");
    assert_contains(printed, all, &format!("{what} stdout"));
    let none = Vec::new();
    let ours = printed["instances"].as_array().unwrap_or(&none);
    assert_eq!(ours.len(), each.len(), "{what}: instances");
    for (ours, theirs) in ours.iter().zip(each) {
        assert_contains(ours, theirs, &format!("{what} {}", theirs["instance_id"]));
    }
}

/// The rates of the KV cache, which BLIS prints with four digits.
fn check_tiers((printed, metrics): (&Value, &Value), stdout: &str, what: &str) {
    for (label, ours) in
        [("Cache Hit Rate", &metrics["cache_hit_rate"]), ("KV Thrashing Rate", &printed["kv_thrashing_rate"])]
    {
        let line = stdout.lines().find_map(|line| line.strip_prefix(label)?.strip_prefix(": "));
        if let Some(theirs) = line.filter(|line| *line != "0.0000") {
            assert_eq!(format!("{:.4}", ours.as_f64().unwrap_or(f64::NAN)), theirs, "{what}: {label}");
        }
    }
}

/// The lines under `=== PD Metrics ===`, as they are printed.
fn check_pairs(ours: &Value, stdout: &str, what: &str) {
    let Some((_, section)) = stdout.split_once("=== PD Metrics ===\n") else {
        assert!(ours.is_null(), "{what}: it has no pools");
        return;
    };
    let number = |field: &str| ours[field].as_f64().unwrap_or(f64::NAN);
    let us = |field: &str| {
        let figure = |name: &str| 1e3 * ours[field][name].as_f64().unwrap_or(f64::NAN);
        let [mean, p50, p95, p99] = ["mean_ms", "p50_ms", "p95_ms", "p99_ms"].map(figure);
        format!("mean={mean:.1} p50={p50:.1} p95={p95:.1} p99={p99:.1}")
    };
    for line in section.lines().take_while(|line| !line.starts_with("===")) {
        let (label, theirs) = line.split_once(": ").expect("a label");
        let ours = match label {
            "Disaggregated Requests" => number("disaggregated_requests").to_string(),
            "Dropped at Decode KV" => number("dropped_at_decode_kv").to_string(),
            "Prefill Throughput" => format!("{:.4} sub-req/s", number("prefill_throughput_per_sec")),
            "Decode Throughput" => format!("{:.4} sub-req/s", number("decode_throughput_per_sec")),
            "Load Imbalance Ratio" => format!("{:.4}", number("load_imbalance_ratio")),
            "Parent TTFT (us)" => us("ttft"),
            "KV Transfer Duration (us)" => us("transfer"),
            "Peak Concurrent Transfers" => number("peak_concurrent_transfers").to_string(),
            "Mean Transfer Queue Depth" => format!("{:.4}", number("mean_transfer_queue_depth")),
            other => panic!("{what}: {other}"),
        };
        assert_eq!(ours, theirs, "{what}: {label}");
    }
}

/// Every decision: when, what, why, with which scores, and what the policy saw.
fn check_decisions(ours: &str, theirs: &str, what: &str) {
    let theirs: Value = serde_json::from_str(theirs).expect("their JSON");
    let ours: Vec<Value> = ours.lines().map(|line| serde_json::from_str(line).expect("our JSON")).collect();
    let list = |name: &str| theirs[name].as_array().cloned().unwrap_or_default();
    let total = ours[0]["instances"][0]["total_kv_blocks"].as_f64().expect("the header says so");
    let reading = |number: &Value| {
        ours.iter().find(|line| line["kind"] == "signals" && line["reading"] == *number).unwrap_or(&Value::Null)
    };
    // In BLIS a request that finds the queue full is admitted with that as the reason.
    let refused: BTreeMap<Option<u64>, &str> = ours
        .iter()
        .filter(|line| line["kind"] == "gateway" && line["decision"] == "refused")
        .map(|line| (line["request"].as_u64(), line["reason"].as_str().expect("it has a reason")))
        .collect();
    for (kind, theirs) in [("admission", list("Admissions")), ("routing", list("Routings"))] {
        let ours: Vec<&Value> = ours.iter().filter(|ours| ours["kind"] == kind).collect();
        assert_eq!(ours.len(), theirs.len(), "{what}: {kind} decisions");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let what = format!("{what} {kind} of {}", theirs["RequestID"]);
            assert_eq!(format!("request_{}", ours["request"]), theirs["RequestID"].as_str().expect("a name"), "{what}");
            assert_eq!(ours["time_us"], theirs["Clock"], "{what}");
            let queued = refused.get(&ours["request"].as_u64()).copied();
            let reason = ours["reason"].as_str().or(queued).unwrap_or_default();
            let recorded = theirs["Reason"].as_str().filter(|&reason| reason != "flow-control-enqueued");
            assert_eq!(reason, recorded.unwrap_or_default(), "{what}");
            if kind == "admission" {
                assert_eq!(ours["admitted"], theirs["Admitted"], "{what}");
            } else {
                check_routing(ours, (reading(&ours["reading"]), total), theirs, &what);
            }
        }
    }
}

/// `seen`: the columns that were read anew now and then, and the KV blocks of an instance.
fn check_routing(ours: &Value, (seen, total): (&Value, f64), theirs: &Value, what: &str) {
    assert_eq!(format!("instance_{}", ours["instance"]), theirs["ChosenInstance"].as_str().expect("a name"), "{what}");
    // With pools, the rows are the instances that decode: the last ones, in the recorded runs.
    let known = theirs["Scores"].as_object().map_or(0, serde_json::Map::len);
    let all = |id: &str| id.strip_prefix("instance_").and_then(|id| id.parse::<usize>().ok()).expect("instance_<n>");
    let first = match ours["scores"].as_array() {
        Some(rows) if rows.len() == known => {
            theirs["Scores"].as_object().into_iter().flatten().map(|(id, _)| all(id)).min().unwrap_or(0)
        }
        _ => 0,
    };
    let index = |id: &str| all(id) - first;
    for (id, score) in theirs["Scores"].as_object().into_iter().flatten() {
        assert_contains(&ours["scores"][index(id)], score, &format!("{what}, score of {id}"));
    }
    assert_eq!(ours["scores"].is_array(), theirs["Scores"].is_object(), "{what}: scores");
    for candidate in theirs["Candidates"].as_array().into_iter().flatten() {
        let id = candidate["InstanceID"].as_str().expect("id");
        let free = seen["free_kv_blocks"][index(id)].as_f64();
        // Before the first reading all is 0 there.
        let unread = free == Some(0.0) && candidate["KVUtilization"].as_f64() == Some(0.0);
        let used = free.map(|free| if unread { 0.0 } else { (total - free) / total });
        for (column, value, field) in [
            ("queue_depth", seen["queue_depth"][index(id)].clone(), "QueueDepth"),
            ("batch_size", seen["batch_size"][index(id)].clone(), "BatchSize"),
            ("in_flight", ours["in_flight"][index(id)].clone(), "InFlightRequests"),
            ("kv_utilization", used.into(), "KVUtilization"),
            ("free_kv_blocks", seen["free_kv_blocks"][index(id)].clone(), "FreeKVBlocks"),
        ] {
            assert_contains(&value, &candidate[field], &format!("{what}, {column} of {id}"));
        }
    }
}

/// The lines under `=== Trace Summary ===`.
fn check_summary(ours: &Value, stdout: &str, what: &str) {
    let summary = stdout.split("=== Trace Summary ===").nth(1).expect("a summary");
    let value = |label: &str| {
        let line = summary.lines().find_map(|line| line.trim().strip_prefix(label)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("{what}: no {label}")).parse::<f64>().expect("number")
    };
    for (label, field) in [
        ("Total Decisions", "total_decisions"),
        ("Admitted", "admitted"),
        ("Rejected", "rejected"),
        ("Unique Targets", "unique_targets"),
        ("Mean Regret", "mean_regret"),
        ("Max Regret", "max_regret"),
    ] {
        let ours = ours[field].as_f64().unwrap_or(f64::NAN);
        // Printed with six digits.
        assert!((ours - value(label)).abs() <= 0.5e-6, "{what}, {label}: {ours}, recorded {}", value(label));
    }
}

/// Everything in `theirs` is in `ours`, numbers to 1e-9 of their size; `ours` may say more, but
/// about no further request.
fn assert_contains(ours: &Value, theirs: &Value, what: &str) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            for (name, expected) in theirs {
                assert_contains(ours.get(name).unwrap_or(&Value::Null), expected, &format!("{what}.{name}"));
            }
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            assert_eq!(ours.len(), theirs.len(), "{what}");
            let (ours, theirs) = (by_id(ours), by_id(theirs));
            for (ours, theirs) in ours.iter().zip(theirs) {
                assert_contains(ours, theirs, &format!("{what}[{}]", theirs["requestID"]));
            }
        }
        (Value::Number(ours), Value::Number(theirs)) => {
            let (ours, theirs) = (ours.as_f64().unwrap_or(f64::NAN), theirs.as_f64().unwrap_or(f64::NAN));
            assert!((ours - theirs).abs() <= 1e-9 * theirs.abs(), "{what}: {ours}, recorded {theirs}");
        }
        _ => assert_eq!(ours, theirs, "{what}"),
    }
}

/// Requests that arrive together have no order among themselves.
fn by_id(requests: &[Value]) -> Vec<&Value> {
    let mut requests: Vec<&Value> = requests.iter().collect();
    requests.sort_by_key(|request| request["requestID"].as_str());
    requests
}
