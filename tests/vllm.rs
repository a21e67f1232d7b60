//! The plans of the real schedulers of vLLM 0.15.1 and 0.33.0, step by step, against both engines.

use std::path::Path;

use blis_config::engine::EngineProfile;
use blis_eval::steps::{EngineKind, RecordedScenario, SchedulerSteps, steps};
use serde_json::{Value, json};

use crate::shared::{read, shared};

/// What is compared of a step: sets are sorted, and ids of physical blocks are left out.
fn compared(row: &Value) -> Value {
    let scheduled = row["scheduled"].as_array().into_iter().flatten();
    let scheduled: Vec<Value> =
        scheduled.map(|one| json!([one["id"], one["tokens"], one["computed_before"]])).collect();
    let set = |key: &str| {
        let mut names: Vec<&str> = row[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        names.sort_unstable();
        json!(names)
    };
    json!({
        "step": row["step"],
        "scheduled": scheduled,
        "preempted": set("preempted"),
        "finished": set("finished"),
        "free": [row["free_blocks_after_schedule"], row["free_blocks_after_update"]],
    })
}

/// The first difference between a recording and what an engine did.
fn difference(recorded: &Value, done: &SchedulerSteps) -> Option<String> {
    let ours = serde_json::to_value(done).expect("JSON");
    let rows = |value: &Value| value["steps"].as_array().into_iter().flatten().map(compared).collect::<Vec<_>>();
    let (want, got) = (rows(recorded), rows(&ours));
    if let Some((want, got)) = want.iter().zip(&got).find(|(want, got)| want != got) {
        return Some(format!("\n  ours     {got}\n  recorded {want}"));
    }
    if want.len() != got.len() {
        return Some(format!("{} steps, recorded {}", got.len(), want.len()));
    }
    let totals = recorded["per_request"].as_object().into_iter().flatten();
    let mut totals = totals.map(|(name, want)| {
        let got = done.per_request.get(name).copied().unwrap_or_default();
        let cached = want["cached_tokens"].as_u64().unwrap_or(0); // absent if it never ran
        (name, json!([got.cached_tokens, got.output_tokens]), json!([cached, want["output_tokens"]]))
    });
    totals
        .find(|(_, got, want)| got != want)
        .map(|(name, got, want)| format!("{name}: (cached, output) {got}, recorded {want}"))
}

/// Compares every scenario in `folder` with both engines under `profile`.
fn compare_all(folder: &Path, profile: EngineProfile) {
    let mut files: Vec<_> = std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    files.sort();
    let mut wrong = Vec::new();
    for file in &files {
        let text = read(file);
        let recorded: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let scenario = RecordedScenario::read(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let scenario = scenario.with_engine(profile);
        for engine in [EngineKind::Plain, EngineKind::Fast] {
            let done = steps(&scenario, engine).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            let found = difference(&recorded, &done);
            wrong.extend(found.map(|what| format!("{}, {engine:?}: {what}", recorded["name"])));
        }
    }
    assert!(!files.is_empty(), "no scenario found");
    assert!(wrong.is_empty(), "{} of {} differ\n{}", wrong.len(), 2 * files.len(), wrong.join("\n"));
}

#[test]
fn every_plan_of_vllm_0_15_is_ours() {
    let Some(folder) = shared("cases/vllm/0.15.1") else { return };
    compare_all(&folder, EngineProfile::Vllm015);
}

#[test]
fn every_plan_of_vllm_0_33_is_ours() {
    let Some(folder) = shared("cases/vllm/0.33.0") else { return };
    compare_all(&folder, EngineProfile::Vllm033);
}

/// Plans recorded with `tools/vllm-oracle` for this repository: options of 0.33 that the shared scenarios leave off, and
/// random requests.
#[test]
fn every_plan_recorded_here_is_ours() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vllm-plans");
    compare_all(&folder.join("0.15.1"), EngineProfile::Vllm015);
    compare_all(&folder.join("0.33.0"), EngineProfile::Vllm033);
}
