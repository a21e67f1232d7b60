//! A whole simulation on a constant step time, without configuration files.

use std::fs;
use std::sync::Arc;

use blis_sim::ids::RequestId;
use blis_sim::latency::{Batch, LatencyModel};

use super::*;
use crate::experiment::OutputFiles;
use crate::measure::with_deadlines;
use crate::spec::{ExperimentSpec, SettingKey, ValueForm};
use blis_config::{KvBlocksSource, LatencyKind};

mod sessions;

/// Latency model with 10 ms per step.
#[derive(Debug)]
struct TenMillis;

impl LatencyModel for TenMillis {
    fn step_time(&self, _batch: &Batch) -> Micros {
        Micros(10_000)
    }
}

/// The experiment of these settings, written as flags.
fn config(flags: &str) -> Experiment {
    let mut spec = ExperimentSpec::default();
    spec.set_named("model", "test").expect("legal");
    let mut words = flags.split_whitespace();
    while let Some(word) = words.next() {
        let name = word.trim_start_matches("--");
        let key = SettingKey::find(name).unwrap_or_else(|hint| panic!("{name}: {hint}"));
        let value = if key.form == ValueForm::Switch { "true" } else { words.next().expect("a value") };
        spec.set_named(name, value).expect("legal");
    }
    Experiment::new(spec, OutputFiles::default()).expect("valid")
}

fn deployment(total_kv_blocks: u32, max_model_len: Option<u32>) -> Deployment {
    Deployment {
        validation: None,
        precision: blis_config::Precision::default(),
        model: "test".into(),
        hardware: "H100".into(),
        tensor_parallel_size: 2,
        latency: Arc::new(TenMillis),
        energy: None,
        pipeline_parallel_size: 1,
        data_parallel_size: 1,
        latency_kind: LatencyKind::Roofline,
        alpha: Vec::new(),
        beta: Vec::new(),
        batch_limits: blis_config::engine::BatchLimits::BLIS,
        batch_limits_source: "BLIS",
        engine_processes: 1,
        gpu_memory_utilization: 0.9,
        memory: None,
        memory_warnings: Vec::new(),
        total_kv_blocks,
        kv_blocks_source: KvBlocksSource::Flag,
        block_size: 16,
        kv_layout: None,
        max_model_len,
        offload: None,
        blis_tiers: None,
        adapters: None,
        weight_bytes: None,
        kv_token_bytes: None,
        model_facts: Vec::new(),
        notes: vec!["a note on the deployment".into()],
        warnings: Vec::new(),
    }
}

fn request(id: u32, input_tokens: u32, deadline: Option<u64>) -> Request {
    let arrival = Micros(u64::from(id) * 1_000);
    Request { deadline: deadline.map(Micros), priority: 1, ..Request::new(RequestId(id), arrival, input_tokens, 3) }
}

fn workload(requests: Vec<Request>) -> Workload {
    Workload {
        count: Some(requests.len() as u64),
        requests: Box::new(requests.into_iter()),
        follow_ups: None,
        names: Names::default(),
        slo_targets: BTreeMap::new(),
        aside: BTreeSet::new(),
        recorded: Vec::new(),
        skipped: Skipped::default(),
        notes: vec!["a note on the workload".into()],
    }
}

/// The warnings, without those about the length of the run.
fn of_settings(finished: &RunResult) -> Vec<&str> {
    let warnings = finished.warnings.iter().map(|(what, _)| what.as_str());
    warnings.filter(|what| !what.starts_with("too short: ")).collect()
}

#[test]
fn figures_and_setting() {
    let requests = (0..10).map(|id| request(id, 100, None)).collect();
    let finished =
        simulate(&config(""), &deployment(1_000, None), workload(requests), &()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(finished.report.cluster.counts.completed, 10);
    assert_eq!(finished.report.cluster.counts.output_tokens, 30);
    assert_eq!((finished.report.cluster.itl.count, finished.report.cluster.itl.mean_ms), (20, 10.0));
    assert_eq!(finished.setting.hardware, "2 × H100 (TP 2)");
    assert_eq!(finished.setting.notes, ["a note on the deployment", "a note on the workload"]);
    assert_eq!(of_settings(&finished), [] as [&str; 0]);
}

#[test]
fn every_surprise_has_a_warning_with_a_hint() {
    let requests = vec![
        request(0, 100, Some(5_000)),
        request(1, 5_000, None),
        request(2, 170, None),
        request(3, 100, Some(7_000)),
    ];
    let mut workload = workload(requests);
    let location = blis_diag::Location::file("trace.csv").characters(7, 3, 1);
    let bad = blis_diag::Diagnostic::new("`x` is no number").at(location).hint("correct it");
    workload.skipped = Skipped { count: 1, first: vec![bad] };
    // 10 blocks of 16 tokens; the requests with a deadline time out in their first step.
    let finished = simulate(&config(""), &deployment(10, Some(4_096)), workload, &()).unwrap_or_else(|e| panic!("{e}"));
    insta::assert_debug_snapshot!(finished.warnings);
}

#[test]
fn a_deadline_that_is_set_is_no_surprise() {
    let timed_out = vec![request(0, 100, Some(5_000)), request(1, 100, None)];
    let config = config("--timeout 0.005");
    let finished =
        simulate(&config, &deployment(1_000, None), workload(timed_out), &()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(of_settings(&finished), [] as [&str; 0]);
}

#[test]
fn a_trace_takes_the_deadline_of_the_command_line() {
    let with = |flags: &str| {
        let config = config(&format!("--workload-trace t.csv {flags}"));
        let requests = vec![request(1, 1, None), request(2, 1, Some(9))].into_iter();
        with_deadlines(requests, &config.workload).map(|request| request.deadline).collect::<Vec<_>>()
    };
    assert_eq!(with("--timeout 1.5"), [Some(Micros(1_501_000)), Some(Micros(9))]);
    assert_eq!(with("--timeout -1"), [None, Some(Micros(9))]);
    assert_eq!(with(""), [None, Some(Micros(9))]);
}

#[test]
fn the_metrics_file_has_every_request() {
    let path = std::env::temp_dir().join(format!("blis-run-{}.json", std::process::id()));
    let mut config = config("");
    config.files.metrics_path = Some(path.clone());
    let requests = (0..3).map(|id| request(id, 100, None)).collect();
    let finished =
        simulate(&config, &deployment(1_000, None), workload(requests), &()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(finished.files, Ok(()));
    let document: serde_json::Value = serde_json::from_slice(&fs::read(&path).expect("written")).expect("JSON");
    fs::remove_file(&path).expect("ours");
    assert_eq!(document["completed_requests"], 3);
    assert_eq!(document["requests"].as_array().map(Vec::len), Some(3));
    assert!(document["cache_hit_rate"].is_number());
}

#[test]
fn a_file_that_cannot_be_written_does_not_cost_the_results() {
    let mut config = config("");
    config.files.metrics_path = Some("/no/such/folder/metrics.json".into());
    let requests = vec![request(0, 100, None)];
    let finished =
        simulate(&config, &deployment(1_000, None), workload(requests), &()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(finished.report.cluster.counts.completed, 1);
    let message = finished.files.expect_err("no such folder").to_string();
    assert!(message.starts_with("error: cannot write `/no/such/folder/metrics.json`"), "{message}");
}
