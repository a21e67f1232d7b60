//! The recorded runs of the published BLIS, flag for flag, through the program: every figure of
//! every file it writes, with both engines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::shared::{read, shared};

/// Flags of recorded runs for what is not simulated yet: further tiers of the KV cache, adapters.
pub const NOT_SIMULATED: [&str; 3] = ["--kv-cpu-blocks", "--kv-offload-config", "--lora-config"];

#[test]
fn recorded_runs_of_one_instance_are_reproduced() {
    let Some(cases) = shared("cases/blis") else { return };
    let mut folders: Vec<PathBuf> =
        fs::read_dir(cases).expect("cases").map(|entry| entry.expect("entry").path()).collect();
    folders.sort();
    let mut checked = 0;
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if folder.is_dir() && name.starts_with(['s', 'm']) {
            let flags = read(&folder.join("cmd.txt"));
            if let Some(flag) = NOT_SIMULATED.iter().find(|&&flag| flags.contains(flag)) {
                eprintln!("skipped: {name} needs {flag}");
                continue;
            }
            for engine in ["fast", "plain"] {
                check(&folder, &format!("{name} {engine}"), engine);
            }
            checked += 1;
        }
    }
    assert!(checked > 20, "only {checked} cases");
}

fn check(case: &Path, what: &str, engine: &str) {
    let scratch = std::env::temp_dir().join(format!("blis-recorded-{}", std::process::id()));
    fs::create_dir_all(&scratch).expect("scratch");
    let flags = read(&case.join("cmd.txt"));
    let arguments = flags.split_whitespace().skip(1).map(|word| match word {
        "trace.yaml" => case.join(word),
        "trace.csv" if !case.join(word).exists() => case.join("trace.csv.gz"),
        "trace.csv" => case.join(word),
        "metrics.json" | "results.json" => scratch.join(word),
        _ => PathBuf::from(word),
    });
    let output = Command::new(env!("CARGO_BIN_EXE_blis"))
        .args(arguments)
        .args(["--parity", "blis", "--engine", engine])
        .output()
        .expect("blis starts");
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    let [metrics, results] = ["metrics.json", "results.json"].map(|name| {
        let ours: Value = serde_json::from_str(&read(&scratch.join(name))).expect("our JSON");
        let theirs: Value = serde_json::from_str(&read(&case.join(name))).expect("their JSON");
        assert_contains(&ours, &theirs, &format!("{what} {name}"));
        ours
    });
    let printed: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert!(printed["requests"].is_null() && metrics["requests"].is_array() && results.is_array(), "{what}");
    assert_eq!(printed["e2e_p50_ms"], metrics["e2e_p50_ms"], "{what}");
    fs::remove_dir_all(&scratch).expect("scratch");
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
