//! The reports against the recorded answers of the published BLIS.
//!
//! The outcomes are rebuilt from the recorded requests, the inter-token latencies from the
//! recorded steps (a request that decodes gets `step time + output token time`); what the reports
//! make of them must be what was recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use blis_sim::metrics::{Aggregate, Metrics};
use blis_sim::outcome::{Counters, DropReason, Outcome, Sink, Status};
use blis_sim::request::{Request, Tags};
use blis_sim::units::Micros;
use serde::Serialize;
use serde_json::Value;

use crate::workload::Names;

use super::{RequestLog, aggregate_document, metrics_document, results_document};

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/cases/blis");

#[test]
fn aggregates_equal_the_recorded_ones() {
    for_each_case(|case| {
        let recorded = case.json("metrics.json");
        let document = to_value(&aggregate_document(&case.aggregate));
        let published = recorded.as_object().expect("object").iter();
        for (name, expected) in published.filter(|(name, _)| !["cache_hit_rate", "requests"].contains(&name.as_str())) {
            assert_same(expected, &document[name], &format!("{}: {name}", case.name));
        }
    });
}

#[test]
fn metrics_files_equal_the_recorded_ones() {
    for_each_case(|case| {
        let recorded = case.json("metrics.json");
        let document = to_value(&metrics_document(&case.aggregate, &case.log, &case.names));
        assert_same(&recorded["cache_hit_rate"], &document["cache_hit_rate"], &case.name);
        let ours = document["requests"].as_array().expect("requests");
        let theirs = case.requests();
        assert_eq!(ours.len(), theirs.len(), "{}", case.name);
        for request in &theirs {
            let id = &request["requestID"];
            let mine = ours.iter().find(|mine| mine["requestID"] == *id).expect("every recorded request");
            for (field, expected) in request.as_object().expect("object") {
                assert_same(expected, &mine[field], &format!("{}: {id} {field}", case.name));
            }
        }
    });
}

#[test]
fn results_equal_the_recorded_ones() {
    for_each_case(|case| {
        let recorded = case.json("results.json");
        let document = to_value(&results_document(&case.log, &case.names));
        let (theirs, ours) = (recorded.as_array().expect("array"), document.as_array().expect("array"));
        assert_eq!(ours.len(), theirs.len(), "{}", case.name);
        for (expected, result) in theirs.iter().zip(ours) {
            let keys = |value: &Value| value.as_object().expect("object").keys().cloned().collect::<Vec<_>>();
            assert_eq!(keys(expected), keys(result), "{}", case.name);
            for (field, expected) in expected.as_object().expect("object") {
                assert_same(expected, &result[field], &format!("{}: {field}", case.name));
            }
        }
    });
}

/// A recorded case of one instance and what our sinks made of it.
struct Case {
    name: String,
    folder: PathBuf,
    aggregate: Aggregate,
    log: RequestLog,
    names: Names,
}

fn for_each_case(check: impl Fn(&Case)) {
    let Ok(manifest) = fs::read_to_string(Path::new(CASES).join("manifest.json")) else {
        eprintln!("skipped: no recorded cases in {CASES}");
        return;
    };
    let manifest: Value = serde_json::from_str(&manifest).expect("manifest");
    let cases = manifest["cases"].as_array().expect("cases");
    let single = cases.iter().filter(|case| case["name"].as_str().is_some_and(|name| !name.starts_with('c')));
    let mut checked = 0;
    for entry in single {
        check(&Case::new(entry));
        checked += 1;
    }
    assert!(checked > 20, "only {checked} cases");
}

impl Case {
    fn new(entry: &Value) -> Self {
        let name = entry["name"].as_str().expect("name").to_owned();
        let folder = Path::new(CASES).join(&name);
        let mut case =
            Self { name, folder, aggregate: Aggregate::default(), log: RequestLog::new(), names: Names::default() };
        let alpha = entry["effective"]["alpha"].as_str().expect("alpha").trim_matches(['[', ']']);
        let output_token_us: f64 = alpha.split(' ').nth(2).expect("third").parse().expect("number");
        let mut sinks = (Metrics::new(), RequestLog::new());
        case.replay(output_token_us as u64, &mut sinks);
        case.aggregate = sinks.0.aggregate(&case.counters(), Micros::MAX);
        case.log = sinks.1;
        case
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).expect("JSON")
    }

    fn text(&self, name: &str) -> String {
        let (plain, packed) = (self.folder.join(name), self.folder.join(format!("{name}.gz")));
        if let Ok(text) = fs::read_to_string(plain) {
            return text;
        }
        let mut text = String::new();
        flate2::read::GzDecoder::new(File::open(packed).expect(name)).read_to_string(&mut text).expect(name);
        text
    }

    fn requests(&self) -> Vec<Value> {
        self.json("metrics.json")["requests"].as_array().expect("requests").clone()
    }

    /// What no request carries is taken over: it is not ours to compute.
    fn counters(&self) -> Counters {
        const LOOKUPS: u64 = 1 << 40;
        let recorded = self.json("metrics.json");
        let cache_hits = (recorded["cache_hit_rate"].as_f64().expect("rate") * LOOKUPS as f64) as u64;
        Counters {
            clock: micros(&recorded["vllm_estimated_duration_s"], 1e6),
            preemptions: recorded["preemption_count"].as_u64().expect("count"),
            kv_allocation_failures: recorded["kv_allocation_failures"].as_u64().unwrap_or(0),
            cache_hits,
            cache_misses: LOOKUPS - cache_hits,
            input_tokens: recorded["total_input_tokens"].as_u64().expect("count"),
            ..Counters::default()
        }
    }

    fn replay(&mut self, output_token_us: u64, sink: &mut impl Sink) {
        let recorded = self.json("metrics.json");
        let count = |name: &str| recorded[name].as_u64().expect("count") as usize;
        let steps = Steps::read(&self.text("steps.csv"), output_token_us);
        // The records do not say how a request ended that did not complete: only how many did so.
        let mut unfinished = [
            (Status::TimedOut, count("timed_out_requests")),
            (Status::Running, count("still_running")),
            (Status::Queued, count("still_queued")),
        ]
        .into_iter()
        .flat_map(|(status, count)| std::iter::repeat_n(status, count));
        for request in self.requests() {
            let id = number(&request);
            let e2e = present(&request["e2e_ms"]);
            let status = if e2e.is_some() { Status::Completed } else { unfinished.next().unwrap_or(Status::Arriving) };
            let gaps = steps.gaps.get(&id).map_or(&[][..], Vec::as_slice);
            gaps.iter().for_each(|&gap| sink.itl(0, gap, 1));
            if e2e.is_none() {
                gaps.iter().for_each(|&gap| sink.retract_itl(0, gap, 1));
            }
            let slo_class = self.names.intern(request["slo_class"].as_str().unwrap_or_default());
            let admitted = steps.admitted.contains(&id);
            let tokens = |name: &str| request[name].as_u64().expect("tokens") as u32;
            sink.outcome(&Outcome {
                arrival: micros(&request["arrived_at"], 1e6),
                input_tokens: tokens("num_prefill_tokens"),
                output_tokens: tokens("num_decode_tokens"),
                generated_tokens: tokens("num_decode_tokens"),
                ttft: present(&request["ttft_ms"]),
                e2e,
                itl_sum: gaps.iter().copied().sum(),
                itl_count: gaps.len() as u32,
                itl_mean_us: request["itl_ms"].as_f64().expect("mean") * 1e3,
                instance: Some(0),
                tags: Tags { slo_class, ..Tags::default() },
                scheduling_delay: admitted.then(|| micros(&request["scheduling_delay_ms"], 1e3)),
                ..blank(id, status)
            });
        }
        for _ in 0..count("dropped_unservable") {
            sink.outcome(&blank(u32::MAX, Status::Dropped(DropReason::PromptTooLong)));
        }
    }
}

/// What the recorded steps say about requests.
#[derive(Default)]
struct Steps {
    admitted: BTreeSet<u32>,
    gaps: BTreeMap<u32, Vec<Micros>>,
}

impl Steps {
    /// Items are `id:progress before:new tokens:prompt`.
    fn read(text: &str, output_token_us: u64) -> Self {
        let mut steps = Self::default();
        let mut progress: BTreeMap<u32, u64> = BTreeMap::new();
        for line in text.lines().skip(1) {
            let columns: Vec<&str> = line.splitn(9, ',').collect();
            let gap = Micros(columns[3].parse::<u64>().expect("duration") + output_token_us);
            for item in columns[8].split(';').filter(|item| !item.is_empty()) {
                let mut fields =
                    item.trim_start_matches("request_").split(':').map(|n| n.parse::<u64>().expect("number"));
                let mut next = || fields.next().expect("field");
                let (id, before, new, input) = (next() as u32, next(), next(), next());
                steps.admitted.insert(id);
                let gaps = steps.gaps.entry(id).or_default();
                if progress.insert(id, before).is_some_and(|last| before < last) {
                    gaps.clear(); // preempted: starts again
                }
                if before >= input && new > 0 {
                    gaps.push(gap);
                }
            }
        }
        steps
    }
}

fn blank(id: u32, status: Status) -> Outcome {
    Outcome::new(&Request::new(id, Micros::ZERO, 0, 0), status)
}

fn number(request: &Value) -> u32 {
    let id = request["requestID"].as_str().and_then(|id| id.strip_prefix("request_"));
    id.and_then(|id| id.parse().ok()).expect("request_<n>")
}

fn micros(value: &Value, per_unit: f64) -> Micros {
    Micros((value.as_f64().expect("number") * per_unit).round() as u64)
}

fn present(ms: &Value) -> Option<Micros> {
    Some(micros(ms, 1e3)).filter(|&duration| duration != Micros::ZERO)
}

fn to_value(document: &impl Serialize) -> Value {
    serde_json::to_value(document).expect("JSON")
}

/// Equal; numbers to 1e-9 of their size.
fn assert_same(expected: &Value, actual: &Value, what: &str) {
    match (expected.as_f64(), actual.as_f64()) {
        (Some(x), Some(y)) => assert!((x - y).abs() <= 1e-9 * x.abs(), "{what}: recorded {x}, ours {y}"),
        _ => assert_eq!(expected, actual, "{what}"),
    }
}
