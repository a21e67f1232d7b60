//! Compares the reports with recorded results of the published BLIS.
//!
//! The outcomes are rebuilt from the recorded requests, and the ITLs from the recorded steps (a request in decode gets
//! `step time + output token time`). The reports on them must equal the recorded ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::metrics::{Metrics, MetricsOptions, Report, SloTargets};
use blis_sim::observer::{Observer, SimEvent};
use blis_sim::outcome::{Counters, DropReason, Outcome, PrefixCacheCounters, Rejection, Status};
use blis_sim::request::{Name, Request, Tags};
use blis_sim::units::Micros;
use serde::Serialize;
use serde_json::Value;

use blis_workload::Names;

use super::{EmptyFigures, RequestLog, metrics_document, report_document, results_document};

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/cases/blis");

/// Cases with several instances and a gateway queue or other stages before them.
const OTHERS: [&str; 3] = ["c23", "c27", "c29"];

#[test]
fn aggregates_equal_the_recorded_ones() {
    for_each_case(|case| {
        let recorded = case.json("metrics.json");
        let document = to_value(&report_document(&case.report, &case.names, EmptyFigures::Zero));
        let published = recorded.as_object().expect("object").iter();
        for (name, expected) in published.filter(|(name, _)| !["cache_hit_rate", "requests"].contains(&name.as_str())) {
            assert_same(expected, &document[name], &format!("{}: {name}", case.name));
        }
    });
}

#[test]
fn instances_equal_the_recorded_ones() {
    let mut checked = 0;
    for_each_case(|case| {
        let document = to_value(&report_document(&case.report, &case.names, EmptyFigures::Zero));
        let recorded = case.recorded_instances();
        let ours = document["instances"].as_array().map_or(&[][..], Vec::as_slice);
        assert_eq!(ours.len(), recorded.len(), "{}", case.name);
        for (expected, instance) in recorded.iter().zip(ours) {
            for (field, expected) in expected.as_object().expect("object") {
                assert_same(expected, &instance[field], &format!("{}: {field}", case.name));
            }
            checked += 1;
        }
    });
    assert!(checked == 0 || checked > 50, "only {checked} instances");
}

#[test]
fn classes_and_tenants_equal_the_recorded_ones() {
    let mut checked = 0;
    for_each_case(|case| {
        let document = to_value(&report_document(&case.report, &case.names, EmptyFigures::Zero));
        let stdout = case.text("stdout.txt");
        let (mut section, mut class) = ("", "");
        for line in stdout.lines() {
            match line.trim().split_once(['=', ':']) {
                _ if line.starts_with("===") => section = line,
                Some((name, "")) if section.contains("Per-SLO") => class = name,
                Some((figure, rest)) if section.contains("Per-SLO") => {
                    let figure = figure.to_lowercase().replace("itl", "itl_mean");
                    let ours = &document["slo_classes"][class][&figure];
                    let what = format!("{}: {class} {figure}", case.name);
                    assert_rounded(&ours["mean_ms"], after(rest, "mean="), 0.01, &what);
                    assert_rounded(&ours["p99_ms"], after(rest, "p99="), 0.01, &what);
                    assert_eq!(ours["count"].as_f64(), Some(after(rest, "(n=")), "{what}");
                    checked += 1;
                }
                Some(("Jain Fairness Index", index)) => {
                    let index = index.trim().parse::<f64>().expect("index");
                    assert_rounded(&document["jain_fairness_index"], 1e3 * index, 0.1, &case.name);
                }
                Some((tenant, rest)) if section.contains("Per-Tenant") => {
                    let ours = &document["tenants"][tenant];
                    let ours = ["completed_requests", "total_output_tokens"].map(|field| ours[field].as_f64());
                    assert_eq!(ours, ["requests=", "tokens="].map(|key| Some(after(rest, key))), "{}", case.name);
                    checked += 1;
                }
                _ => {}
            }
        }
    });
    assert!(checked == 0 || checked > 70, "only {checked} figures");
}

#[test]
fn anomalies_equal_the_recorded_ones() {
    let mut checked = 0;
    for_each_case(|case| {
        let document = to_value(&report_document(&case.report, &case.names, EmptyFigures::Zero));
        for line in case.text("stdout.txt").lines() {
            let Some((name, count)) = line.trim().split_once(": ") else { continue };
            let field = |name: &str| document[name].as_u64().expect("count");
            let shed = |class: &str| document["shed_by_class"][class].as_u64().unwrap_or(0);
            let ours = match name {
                "Rejected Requests (Admission)" => field("rejected_admission"),
                "Rejected Requests (Routing)" => field("rejected_routing"),
                "Dropped Unservable" => field("dropped_unservable"),
                "Timed Out Requests" => field("timed_out_requests"),
                "Length-Capped Requests" => field("length_capped_requests"),
                // Here alone, BLIS counts requests without a class as `standard`.
                "Shed (standard)" => shed("standard") + shed("default"),
                _ => match name.strip_prefix("Shed (").and_then(|name| name.strip_suffix(')')) {
                    Some(class) => shed(class),
                    None => continue,
                },
            };
            assert_eq!(ours.to_string(), count, "{}: {line}", case.name);
            checked += 1;
        }
        assert_eq!(document["conservation"]["holds"], true, "{}", case.name);
    });
    assert!(checked == 0 || checked > 30, "only {checked} counts");
}

#[test]
fn metrics_files_equal_the_recorded_ones() {
    for_each_case(|case| {
        let recorded = case.json("metrics.json");
        let document = to_value(&metrics_document(&case.report, &case.log, &case.names, EmptyFigures::Zero));
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
fn sessions_equal_the_recorded_ones() {
    let mut checked = 0;
    for_each_case(|case| {
        let document = to_value(&report_document(&case.report, &case.names, EmptyFigures::Zero));
        let stdout = case.text("stdout.txt");
        let (_, section) = stdout.split_once("=== Session Metrics ===").unwrap_or_default();
        assert_eq!(document["sessions"].is_null(), section.is_empty(), "{}", case.name);
        for line in section.lines().take_while(|line| !line.starts_with("===")) {
            let Some((figure, rest)) = line.trim().split_once(':') else { continue };
            let ours = match figure {
                "Sessions" => {
                    assert_eq!(document["sessions"]["count"].to_string(), rest.trim(), "{}", case.name);
                    continue;
                }
                "TTFT cold (round 0)" => &document["sessions"]["ttft_first_round"],
                "TTFT warm (round≥1)" => &document["sessions"]["ttft_later_rounds"],
                "Session duration" => &document["sessions"]["duration"],
                _ => panic!("{}: {line}", case.name),
            };
            for (field, key) in [("mean_ms", "mean="), ("p50_ms", "p50="), ("p95_ms", "p95="), ("p99_ms", "p99=")] {
                // The figure has two digits; `assert_rounded` takes thousandths.
                assert_rounded(&ours[field], 1e3 * after(rest, key), 10.0, &format!("{}: {figure} {field}", case.name));
            }
            assert_eq!(ours["count"].as_f64(), Some(after(rest, "(n=")), "{}: {figure}", case.name);
            checked += 1;
        }
    });
    assert!(checked == 0 || checked >= 3, "only {checked} figures");
}

#[test]
fn results_equal_the_recorded_ones() {
    for_each_case(|case| {
        let recorded = case.json("results.json");
        let document = to_value(&results_document(&case.log, &case.names));
        let (theirs, ours) = (recorded.as_array().expect("array"), document.as_array().expect("array"));
        // BLIS leaves out later rounds of sessions, because their ids are not numbers.
        let later = |request: &&Value| request["round_index"].as_u64() > Some(0);
        let later: Vec<RequestId> = case.requests().iter().filter(later).map(number).collect();
        let ours: Vec<&Value> =
            ours.iter().filter(|ours| !later.iter().any(|&id| ours["request_id"] == id.0)).collect();
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

/// A recorded case and the results of our observers on it.
struct Case {
    name: String,
    folder: PathBuf,
    report: Report,
    log: RequestLog,
    names: Names,
}

fn for_each_case(mut check: impl FnMut(&Case)) {
    let Ok(manifest) = fs::read_to_string(Path::new(CASES).join("manifest.json")) else {
        eprintln!("skipped: no recorded cases in {CASES}");
        return;
    };
    let manifest: Value = serde_json::from_str(&manifest).expect("manifest");
    let cases = manifest["cases"].as_array().expect("cases");
    let name = |case: &Value| case["name"].as_str().expect("name").to_owned();
    let mut checked = 0;
    for entry in cases.iter().filter(|case| !OTHERS.contains(&&name(case)[..3])) {
        check(&Case::new(entry));
        checked += 1;
    }
    assert!(checked > 40, "only {checked} cases");
}

impl Case {
    fn new(entry: &Value) -> Self {
        let name = entry["name"].as_str().expect("name").to_owned();
        let folder = Path::new(CASES).join(&name);
        let mut case =
            Self { name, folder, report: Report::default(), log: RequestLog::new(), names: Names::default() };
        let alpha = entry["effective"]["alpha"].as_str().expect("alpha").trim_matches(['[', ']']);
        let output_token_us: f64 = alpha.split(' ').nth(2).expect("third").parse().expect("number");
        let counters = case.counters();
        let options = MetricsOptions {
            instances: counters.len() as u32,
            per_class: true,
            per_tenant: true,
            targets: case.targets(),
            ..MetricsOptions::default()
        };
        let mut sinks = (Metrics::new(options), RequestLog::new());
        case.replay(output_token_us as u64, &mut sinks);
        case.report = sinks.0.report(&counters, Micros::MAX);
        case.log = sinks.1;
        case
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).expect("JSON")
    }

    fn text(&self, name: &str) -> String {
        let text = self.as_recorded(name);
        if text.contains("_round_") { self.numbered(&text) } else { text }
    }

    fn as_recorded(&self, name: &str) -> String {
        let (plain, compressed) = (self.folder.join(name), self.folder.join(format!("{name}.gz")));
        if let Ok(text) = fs::read_to_string(plain) {
            return text;
        }
        let mut text = String::new();
        flate2::read::GzDecoder::new(File::open(compressed).expect(name)).read_to_string(&mut text).expect(name);
        text
    }

    /// Later rounds of sessions are called `session_<session>_round_<round>_<counter>` here, as in the trace.
    fn numbered(&self, text: &str) -> String {
        let trace = self.as_recorded("trace.csv");
        let mut rows = csv::Reader::from_reader(trace.as_bytes());
        let rows = rows.deserialize::<BTreeMap<String, String>>().map(|row| row.expect("row"));
        let names: BTreeMap<String, String> = rows
            .map(|row| {
                (format!("session_{}_round_{}", row["session_id"], row["round_index"]), row["request_id"].clone())
            })
            .collect();
        let (mut numbered, mut rest) = (String::new(), text);
        while let Some(start) = rest.find("session_") {
            let word = |c: char| c.is_alphanumeric() || c == '_';
            let end = rest[start..].find(|c| !word(c)).map_or(rest.len(), |length| start + length);
            let name = rest[start..end].rsplit_once('_').and_then(|(name, _)| names.get(name));
            numbered.push_str(&rest[..start]);
            numbered.push_str(&name.map_or(rest[start..end].to_owned(), |number| format!("request_{number}")));
            rest = &rest[end..];
        }
        numbered + rest
    }

    fn requests(&self) -> Vec<Value> {
        self.json("metrics.json")["requests"].as_array().expect("requests").clone()
    }

    /// The documents of the instances; standard output has one for each if there are several.
    fn recorded_instances(&self) -> Vec<Value> {
        let stdout = self.text("stdout.txt");
        let blocks = stdout.split("=== Simulation Metrics ===\n").skip(1);
        let document =
            |block| serde_json::Deserializer::from_str(block).into_iter().next().expect("one").expect("JSON");
        blocks.map(document).filter(|document: &Value| document["instance_id"] != "cluster").collect()
    }

    /// Counters that no request carries are copied from the record. The cache hit rate is recorded for all instances
    /// together only.
    fn counters(&self) -> Vec<Counters> {
        const LOOKUPS: u64 = 1 << 40;
        let all = self.json("metrics.json");
        let hits = (all["cache_hit_rate"].as_f64().expect("rate") * LOOKUPS as f64) as u64;
        let counters = |recorded: &Value| Counters {
            clock: micros(&recorded["vllm_estimated_duration_s"], 1e6),
            preemptions: recorded["preemption_count"].as_u64().expect("count"),
            kv_allocation_failures: recorded["kv_allocation_failures"].as_u64().unwrap_or(0),
            prefix_cache: PrefixCacheCounters::of_blocks(hits, LOOKUPS - hits),
            input_tokens: recorded["total_input_tokens"].as_u64().expect("count"),
            ..Counters::default()
        };
        let instances = self.recorded_instances();
        if instances.is_empty() { vec![counters(&all)] } else { instances.iter().map(counters).collect() }
    }

    /// The targets of options like `--slo-ttft critical=60ms,batch=2s`.
    fn targets(&mut self) -> Vec<(Name, SloTargets)> {
        let command = self.text("cmd.txt");
        let mut targets: BTreeMap<&str, SloTargets> = BTreeMap::new();
        let words: Vec<&str> = command.split_whitespace().collect();
        for pair in words.windows(2) {
            let Some(dimension) = pair[0].strip_prefix("--slo-") else { continue };
            for target in pair[1].split(',') {
                let (class, duration) = target.split_once('=').expect("class=duration");
                let targets = targets.entry(class).or_default();
                let target = match dimension {
                    "ttft" => &mut targets.ttft,
                    "itl" => &mut targets.itl,
                    "e2e" => &mut targets.e2e,
                    _ => continue,
                };
                let (number, unit) = match duration.strip_suffix("ms") {
                    Some(number) => (number, 1_000),
                    None => (duration.strip_suffix('s').expect("ms or s"), 1_000_000),
                };
                *target = Some(Micros(number.parse::<u64>().expect("number") * unit));
            }
        }
        targets.into_iter().map(|(class, targets)| (self.names.intern(class), targets)).collect()
    }

    fn tags(&mut self, request: &Value) -> Tags {
        let mut name = |field: &str| self.names.intern(request[field].as_str().unwrap_or_default());
        let [slo_class, tenant, session] = ["slo_class", "tenant_id", "session_id"].map(&mut name);
        // The trace has this column as text.
        let round_index = request["round_index"].as_u64().unwrap_or(0) as u32;
        Tags { slo_class, tenant, session, round_index, ..Tags::default() }
    }

    fn replay(&mut self, output_token_us: u64, observer: &mut impl Observer) {
        let recorded = self.json("metrics.json");
        let count = |name: &str| recorded[name].as_u64().expect("count") as usize;
        let steps = Steps::read(&self.text("steps.csv"), output_token_us);
        // The records contain how many requests did not complete for which reason, not which ones.
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
            let handled_by = request["handled_by"].as_str().and_then(|name| name.strip_prefix("instance_"));
            let instance = handled_by.map_or(0, |number| number.parse().expect("instance_<n>"));
            let instance = InstanceIndex(instance);
            for &gap in gaps {
                observer.record(&SimEvent::InterTokenLatency { instance, gap, count: 1 });
                if e2e.is_none() {
                    observer.record(&SimEvent::InterTokenLatencyRetracted { instance, gap, count: 1 });
                }
            }
            let admitted = steps.admitted.contains(&id);
            let tokens = |name: &str| request[name].as_u64().expect("tokens") as u32;
            observer.record(&SimEvent::Outcome(&Outcome {
                arrival: micros(&request["arrived_at"], 1e6),
                input_tokens: tokens("num_prefill_tokens"),
                output_tokens: tokens("num_decode_tokens"),
                generated_tokens: tokens("num_decode_tokens"),
                ttft: present(&request["ttft_ms"]),
                e2e,
                itl_sum: gaps.iter().copied().sum(),
                itl_count: gaps.len() as u32,
                itl_mean_us: request["itl_ms"].as_f64().expect("mean") * 1e3,
                instance: Some(instance),
                tags: self.tags(&request),
                scheduling_delay: admitted.then(|| micros(&request["scheduling_delay_ms"], 1e3)),
                ..blank(id, status)
            }));
        }
        for _ in 0..count("dropped_unservable") {
            observer
                .record(&SimEvent::Outcome(&blank(RequestId(u32::MAX), Status::Dropped(DropReason::PromptTooLong))));
        }
        if self.name.starts_with('c') {
            self.reject_the_rest(observer);
        }
    }

    /// In a cluster without drops, a request of the trace without a record was rejected.
    fn reject_the_rest(&mut self, observer: &mut impl Observer) {
        let known: BTreeSet<RequestId> = self.requests().iter().map(number).collect();
        let trace = self.text("trace.csv");
        let mut rows = csv::Reader::from_reader(trace.as_bytes());
        for row in rows.deserialize::<BTreeMap<String, String>>().map(|row| row.expect("row")) {
            let id = RequestId(row["request_id"].parse().expect("number"));
            if !known.contains(&id) {
                let tags = self.tags(&to_value(&row));
                let rejected = Outcome { tags, ..blank(id, Status::Rejected(Rejection::Admission)) };
                observer.record(&SimEvent::Outcome(&rejected));
            }
        }
    }
}

/// Figures of requests that the recorded steps contain.
#[derive(Default)]
struct Steps {
    admitted: BTreeSet<RequestId>,
    gaps: BTreeMap<RequestId, Vec<Micros>>,
}

impl Steps {
    /// Parses items of the form `id:progress before:new tokens:prompt`.
    fn read(text: &str, output_token_us: u64) -> Self {
        let mut steps = Self::default();
        let mut progress: BTreeMap<RequestId, u64> = BTreeMap::new();
        for line in text.lines().skip(1) {
            let columns: Vec<&str> = line.splitn(9, ',').collect();
            let gap = Micros(columns[3].parse::<u64>().expect("duration") + output_token_us);
            for item in columns[8].split(';').filter(|item| !item.is_empty()) {
                let mut fields =
                    item.trim_start_matches("request_").split(':').map(|n| n.parse::<u64>().expect("number"));
                let mut next = || fields.next().expect("field");
                let (id, before, new, input) = (RequestId(next() as u32), next(), next(), next());
                steps.admitted.insert(id);
                let gaps = steps.gaps.entry(id).or_default();
                if progress.insert(id, before).is_some_and(|last| before < last) {
                    gaps.clear(); // preempted: starts from the beginning
                }
                if before >= input && new > 0 {
                    gaps.push(gap);
                }
            }
        }
        steps
    }
}

fn blank(id: RequestId, status: Status) -> Outcome {
    Outcome::new(&Request::new(id, Micros::ZERO, 0, 0), status)
}

fn number(request: &Value) -> RequestId {
    let id = request["requestID"].as_str().and_then(|id| id.strip_prefix("request_"));
    RequestId(id.and_then(|id| id.parse().ok()).expect("request_<n>"))
}

fn micros(value: &Value, per_unit: f64) -> Micros {
    Micros((value.as_f64().expect("number") * per_unit).round() as u64)
}

fn present(ms: &Value) -> Option<Micros> {
    Some(micros(ms, 1e3)).filter(|&duration| duration != Micros::ZERO)
}

/// The number that follows `key`.
fn after(text: &str, key: &str) -> f64 {
    let (_, rest) = text.split_once(key).expect(key);
    let end = rest.find([' ', ',', ')']).unwrap_or(rest.len());
    rest[..end].parse().expect("number")
}

/// Asserts that `us`, in thousandths of the unit of `ours`, was rounded to multiples of `step`.
fn assert_rounded(ours: &Value, us: f64, step: f64, what: &str) {
    let ours = 1e3 * ours.as_f64().expect("number");
    assert!((ours - us).abs() <= 0.500_001 * step, "{what}: recorded {us}, ours {ours}");
}

fn to_value(document: &impl Serialize) -> Value {
    serde_json::to_value(document).expect("JSON")
}

/// Asserts equality; of numbers to a relative 1e-9.
fn assert_same(expected: &Value, actual: &Value, what: &str) {
    if let (Some(x), Some(y)) = (expected.as_f64(), actual.as_f64()) {
        assert!((x - y).abs() <= 1e-9 * x.abs(), "{what}: recorded {x}, ours {y}");
    } else if let (Some(expected), Some(actual)) = (expected.as_object(), actual.as_object()) {
        assert!(expected.keys().eq(actual.keys()), "{what}: recorded {expected:?}, ours {actual:?}");
        for (field, expected) in expected {
            assert_same(expected, &actual[field], &format!("{what}: {field}"));
        }
    } else {
        assert_eq!(expected, actual, "{what}");
    }
}
