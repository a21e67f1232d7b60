//! `blis decisions diff`: the first decision on which two runs differ, how often they differ, and the effect on the
//! requests.
//!
//! A few numbers of every request of the first trace are kept, and compared with the second trace while it is read.
//! Then both are read again up to the first difference, to show the signals of each policy there.

use std::fmt::{self, Display};
use std::path::Path;

use blis_sim::ids::RequestId;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::line::{BatchEntry, DecisionHeader, LineKind, TraceLine};
use super::read::TraceReader;
use super::seen::InstanceSignals;
use super::table::{TextTable, ms, ms_more, or_dash, plural, seconds};
use crate::conclusion::{Concludes, Conclusion, ConclusionKind, three_digits};
use blis_workload::TraceError;

/// What `blis decisions diff` prints with `--output json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// File and header of the first trace.
    a: TraceSide,
    /// File and header of the second trace.
    b: TraceSide,
    /// Requests that are in both. Unit: requests.
    requests: u64,
    /// Requests that only the first has. Unit: requests.
    only_in_a: u64,
    /// Requests that only the second has. Unit: requests.
    only_in_b: u64,
    /// Requests in both with another arrival or length.
    other_requests: u64,
    /// Differences by kind of decision.
    decisions: Vec<DecisionCount>,
    /// The first decision that differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<FirstDifference>,
    /// Latencies of the requests that have them in both.
    latencies: Vec<LatencyChange>,
    /// Requests with the largest increase of end-to-end latency from the first to the second.
    worst: Vec<RequestPair>,
}

impl Concludes for Diff {
    fn conclusion(&self) -> Conclusion {
        let differ: u64 = self.decisions.iter().map(|of| of.differ).sum();
        let both: u64 = self.decisions.iter().map(|of| of.both).sum();
        match &self.first {
            Some(first) => Conclusion::measured(format!(
                "{differ} of {both} decisions differ; the first: {} of request {} at {} s",
                first.kind.name(),
                first.request,
                three_digits(first.time_us as f64 / 1e6)
            )),
            None => Conclusion::new(
                ConclusionKind::Equal,
                format!("All {both} decisions about the same requests are equal"),
            ),
        }
    }
}

/// A decision trace: its file, and its header as docs/decisions.md has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct TraceSide {
    /// Path of the trace.
    file: String,
    #[serde(flatten)]
    header: DecisionHeader,
}

/// Decisions of one kind about requests that are in both traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct DecisionCount {
    /// Kind of decision. One of `admission`, `routing`, `scheduling`, `preemption`. JSON: `String`.
    #[serde(serialize_with = "kind_name")]
    kind: LineKind,
    /// Decisions that both runs made. Unit: decisions.
    both: u64,
    /// Those that differ: of scheduling, at another time, for whatever reason; of preemption, in only one of the runs,
    /// or another number of times. Unit: decisions.
    differ: u64,
}

fn kind_name<S: serde::Serializer>(kind: &LineKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

/// The first decision that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct FirstDifference {
    /// Number of the request. Unit: number.
    request: u32,
    /// Kind of decision. One of `admission`, `routing`, `scheduling`, `preemption`. JSON: `String`.
    #[serde(serialize_with = "kind_name")]
    kind: LineKind,
    /// Time of the earlier one of the two.
    time_us: u64,
    /// The decision of the first trace; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<DecisionWithSignals>,
    /// That of the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<DecisionWithSignals>,
}

/// A line of the trace as docs/decisions.md has it, with the signals of the policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct DecisionWithSignals {
    /// JSON: `Map<String, Value>`.
    #[serde(flatten)]
    line: TraceLine,
    /// Signals that the policy had; of a routing decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    observed: Option<InstanceSignals>,
}

/// A latency in both runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct LatencyChange {
    /// Name of the latency.
    what: &'static str,
    /// Requests that have it in both. Unit: requests.
    requests: u64,
    /// Mean in the first.
    mean_a_us: f64,
    /// Mean in the second.
    mean_b_us: f64,
    /// Requests for which it is shorter in the second. Unit: requests.
    shorter_in_b: u64,
    /// Requests for which it is longer in the second. Unit: requests.
    longer_in_b: u64,
}

/// A request in both runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct RequestPair {
    /// Number of the request. Unit: number.
    request: u32,
    /// The request in the first.
    a: ComparedRequest,
    /// The request in the second.
    b: ComparedRequest,
    /// End-to-end latency in the second minus that in the first.
    e2e_difference_us: i64,
}

/// A request in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct ComparedRequest {
    #[serde(skip)]
    admission: Option<(u64, bool)>,
    #[serde(skip)]
    routed_at: Option<u64>,
    /// Its instance; `null` if it was not routed. Unit: number.
    instance: Option<u32>,
    #[serde(skip)]
    entered_at: Option<u64>,
    #[serde(skip)]
    first_preempted_at: Option<u64>,
    /// Number of its preemptions. Unit: events.
    preemptions: u32,
    #[serde(skip)]
    arrival_us: Option<u64>,
    #[serde(skip)]
    tokens: (u32, u32),
    /// Time to first token.
    ttft_us: Option<u64>,
    /// End-to-end latency of the request.
    e2e_us: Option<u64>,
}

impl Diff {
    /// Maximum number of requests that are listed.
    const WORST: usize = 10;

    /// Compares the trace `a` with the trace `b`.
    ///
    /// # Errors
    /// If one of them cannot be read.
    pub fn read(a: &Path, b: &Path) -> Result<Self, TraceError> {
        let name = |path: &Path| path.display().to_string();
        Self::between([name(a), name(b)], || TraceReader::open(a), || TraceReader::open(b))
    }

    /// Compares traces with the names `files`, as [`Self::read`]; they are opened several times.
    ///
    /// # Errors
    /// If one of them cannot be read.
    pub fn between(
        [file_a, file_b]: [String; 2],
        open_a: impl Fn() -> Result<TraceReader, TraceError>,
        open_b: impl Fn() -> Result<TraceReader, TraceError>,
    ) -> Result<Self, TraceError> {
        let mut readers = [open_a()?, open_b()?];
        let headers = readers.each_ref().map(|reader| reader.header().clone());
        let [in_a, in_b] = &mut readers;
        let (in_a, in_b) = (records(in_a)?, records(in_b)?);
        let mut diff =
            Self::from_requests(&in_a, &in_b, headers.map(|header| TraceSide { file: String::new(), header }));
        (diff.a.file, diff.b.file) = (file_a, file_b);
        if let Some(first) = &mut diff.first {
            first.a = decision_at(&mut open_a()?, first)?;
            first.b = decision_at(&mut open_b()?, first)?;
        }
        Ok(diff)
    }

    fn from_requests(
        in_a: &FxHashMap<RequestId, ComparedRequest>,
        in_b: &FxHashMap<RequestId, ComparedRequest>,
        [a, b]: [TraceSide; 2],
    ) -> Self {
        let mut pairs: Vec<(RequestId, &ComparedRequest, &ComparedRequest)> =
            in_a.iter().filter_map(|(&request, a)| Some((request, a, in_b.get(&request)?))).collect();
        pairs.sort_unstable_by_key(|&(request, ..)| request);
        let differs = |a: &ComparedRequest, b: &ComparedRequest| (a.arrival_us, a.tokens) != (b.arrival_us, b.tokens);
        let first = pairs
            .iter()
            .filter_map(|&(request, a, b)| FirstDifference::find(request, a, b))
            .min_by_key(FirstDifference::order);
        Self {
            requests: pairs.len() as u64,
            only_in_a: (in_a.len() - pairs.len()) as u64,
            only_in_b: (in_b.len() - pairs.len()) as u64,
            other_requests: pairs.iter().filter(|(_, a, b)| differs(a, b)).count() as u64,
            decisions: counts(&pairs),
            first,
            latencies: vec![
                LatencyChange::new("TTFT", &pairs, |record| record.ttft_us),
                LatencyChange::new("E2E", &pairs, |record| record.e2e_us),
            ],
            worst: worst(&pairs),
            a,
            b,
        }
    }
}

/// The numbers of every request in the trace.
fn records(reader: &mut TraceReader) -> Result<FxHashMap<RequestId, ComparedRequest>, TraceError> {
    let mut records: FxHashMap<RequestId, ComparedRequest> = FxHashMap::default();
    while let Some(line) = reader.next_line()? {
        let Some(request) = line.request() else { continue };
        let record = records.entry(request).or_default();
        match line {
            TraceLine::Signals(_)
            | TraceLine::Gateway(_)
            | TraceLine::Load(_)
            | TraceLine::AdapterEviction(_)
            | TraceLine::Prefill(_) => {}
            TraceLine::Admission(admission) => record.admission = Some((admission.time_us, admission.admitted)),
            TraceLine::Routing(routing) => {
                record.routed_at = Some(routing.time_us);
                record.instance = Some(routing.instance);
            }
            TraceLine::Scheduling(scheduling) => {
                if scheduling.decision == BatchEntry::Enters {
                    record.entered_at.get_or_insert(scheduling.time_us);
                }
            }
            TraceLine::Preemption(preemption) => {
                record.first_preempted_at.get_or_insert(preemption.time_us);
                record.preemptions += 1;
            }
            TraceLine::Outcome(outcome) => {
                record.arrival_us = Some(outcome.arrival_us);
                record.tokens = (outcome.input_tokens, outcome.output_tokens);
                record.ttft_us = outcome.ttft_us;
                record.e2e_us = outcome.e2e_us;
            }
        }
    }
    Ok(records)
}

fn counts(pairs: &[(RequestId, &ComparedRequest, &ComparedRequest)]) -> Vec<DecisionCount> {
    let count = |kind, made: fn(&ComparedRequest) -> bool, differs: fn(&ComparedRequest, &ComparedRequest) -> bool| {
        let both = pairs.iter().filter(|(_, a, b)| made(a) && made(b));
        DecisionCount {
            kind,
            both: both.clone().count() as u64,
            differ: pairs.iter().filter(|(_, a, b)| differs(a, b)).count() as u64,
        }
    };
    let differs = |a: &ComparedRequest, b: &ComparedRequest| {
        let decision = |record: &ComparedRequest| record.admission.map(|(_, admitted)| admitted);
        decision(a).zip(decision(b)).is_some_and(|(a, b)| a != b)
    };
    vec![
        count(LineKind::Admission, |record| record.admission.is_some(), differs),
        count(
            LineKind::Routing,
            |record| record.routed_at.is_some(),
            |a, b| a.routed_at.is_some() && b.routed_at.is_some() && a.instance != b.instance,
        ),
        count(
            LineKind::Scheduling,
            |record| record.entered_at.is_some(),
            |a, b| a.entered_at.is_some() && b.entered_at.is_some() && a.entered_at != b.entered_at,
        ),
        count(LineKind::Preemption, |record| record.preemptions > 0, |a, b| a.preemptions != b.preemptions),
    ]
}

fn worst(pairs: &[(RequestId, &ComparedRequest, &ComparedRequest)]) -> Vec<RequestPair> {
    let mut all: Vec<RequestPair> = pairs
        .iter()
        .filter_map(|&(request, &a, &b)| {
            let e2e_difference_us = b.e2e_us?.cast_signed().saturating_sub(a.e2e_us?.cast_signed());
            (e2e_difference_us > 0).then_some(RequestPair { request: request.0, a, b, e2e_difference_us })
        })
        .collect();
    all.sort_by_key(|pair| (-pair.e2e_difference_us, pair.request));
    all.truncate(Diff::WORST);
    all
}

impl FirstDifference {
    fn find(request: RequestId, a: &ComparedRequest, b: &ComparedRequest) -> Option<Self> {
        let earlier = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        let first =
            |kind, time_us: Option<u64>| Some(Self { request: request.0, kind, time_us: time_us?, a: None, b: None });
        let times = |of: fn(&ComparedRequest) -> Option<u64>| (of(a), of(b));
        let (admission_a, admission_b) = (a.admission?, b.admission?);
        if admission_a.1 != admission_b.1 {
            return first(LineKind::Admission, Some(admission_a.0.min(admission_b.0)));
        }
        if a.instance != b.instance {
            return first(LineKind::Routing, earlier(a.routed_at, b.routed_at));
        }
        let (entered_a, entered_b) = times(|record| record.entered_at);
        if entered_a != entered_b {
            return first(LineKind::Scheduling, earlier(entered_a, entered_b));
        }
        let (left_a, left_b) = times(|record| record.first_preempted_at);
        if left_a != left_b { first(LineKind::Preemption, earlier(left_a, left_b)) } else { None }
    }

    /// Decisions at the same time are ordered by their kinds.
    fn order(&self) -> (u64, LineKind, u32) {
        (self.time_us, self.kind, self.request)
    }
}

/// The decision of `reader` at the difference `first`.
fn decision_at(reader: &mut TraceReader, first: &FirstDifference) -> Result<Option<DecisionWithSignals>, TraceError> {
    while let Some(line) = reader.next_line()? {
        let waits = matches!(&line, TraceLine::Scheduling(scheduling) if scheduling.decision == BatchEntry::Waits);
        if line.request() != Some(RequestId(first.request)) || line.kind() != first.kind || waits {
            continue;
        }
        let observed = match &line {
            TraceLine::Admission(admission) => Some(InstanceSignals::new(&admission.seen(), reader.signals())),
            TraceLine::Routing(routing) => Some(InstanceSignals::routing(routing, reader.signals())),
            _ => None,
        };
        return Ok(Some(DecisionWithSignals { line, observed: observed.filter(|observed| !observed.is_empty()) }));
    }
    Ok(None)
}

impl LatencyChange {
    fn new(
        what: &'static str,
        pairs: &[(RequestId, &ComparedRequest, &ComparedRequest)],
        of: fn(&ComparedRequest) -> Option<u64>,
    ) -> Self {
        let both: Vec<(u64, u64)> = pairs.iter().filter_map(|(_, a, b)| of(a).zip(of(b))).collect();
        let mean = |sum: u128| if both.is_empty() { 0.0 } else { sum as f64 / both.len() as f64 };
        Self {
            what,
            requests: both.len() as u64,
            mean_a_us: mean(both.iter().map(|&(a, _)| u128::from(a)).sum()),
            mean_b_us: mean(both.iter().map(|&(_, b)| u128::from(b)).sum()),
            shorter_in_b: both.iter().filter(|(a, b)| b < a).count() as u64,
            longer_in_b: both.iter().filter(|(a, b)| b > a).count() as u64,
        }
    }
}

impl Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_sides(f)?;
        self.fmt_first(f)?;
        if self.decisions.iter().all(|count| count.differ == 0) && self.first.is_none() {
            return Ok(());
        }
        let mut table = TextTable::new(0, ["decisions", "in both", "differ", ""]);
        for DecisionCount { kind, both, differ } in &self.decisions {
            table.row(vec![kind.name().to_owned(), both.to_string(), differ.to_string(), String::new()]);
        }
        writeln!(f, "\n{table}")?;
        let headings = ["mean latency, ms", "requests", "A", "B", "B - A", "less in B", "more in B", ""];
        let mut table = TextTable::new(0, headings);
        for latency in &self.latencies {
            let LatencyChange { what, requests, mean_a_us: a, mean_b_us: b, shorter_in_b, longer_in_b } = latency;
            let numbers = [requests, shorter_in_b, longer_in_b].map(u64::to_string);
            let [requests, shorter, longer] = numbers;
            let means = [format!("{:.3}", a / 1e3), format!("{:.3}", b / 1e3), format!("{:+.3}", (b - a) / 1e3)];
            let [a, b, more] = means;
            table.row(vec![(*what).to_owned(), requests, a, b, more, shorter, longer, String::new()]);
        }
        write!(f, "{table}")?;
        self.fmt_worst(f)
    }
}

impl Diff {
    fn fmt_sides(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, side) in [("A", &self.a), ("B", &self.b)] {
            writeln!(f, "{name}: {}", side.file)?;
        }
        let (a, b) = (&self.a.header, &self.b.header);
        if a.config_sha256 == b.config_sha256 {
            writeln!(f, "the same configuration")?;
        }
        let (p, q) = (&a.policies, &b.policies);
        let differing = [
            ("model", &a.model, &b.model),
            ("hardware", &a.hardware, &b.hardware),
            ("workload", &a.workload, &b.workload),
            ("admission", &p.admission, &q.admission),
            ("routing", &p.routing, &q.routing),
            ("priority", &p.priority, &q.priority),
            ("scheduling", &p.scheduling, &q.scheduling),
            ("preemption", &p.preemption, &q.preemption),
        ];
        for (what, a, b) in differing.into_iter().filter(|(_, a, b)| a != b) {
            writeln!(f, "{what}: A {a}, B {b}")?;
        }
        if a.seed != b.seed {
            writeln!(f, "seed: A {}, B {}", a.seed, b.seed)?;
        }
        if a.instances != b.instances {
            writeln!(f, "the instances differ")?;
        }
        write!(f, "{} in both", plural(self.requests, "request"))?;
        if self.only_in_a + self.only_in_b > 0 {
            write!(f, ", {} only in A, {} only in B", self.only_in_a, self.only_in_b)?;
        }
        if self.other_requests > 0 {
            write!(f, "; {} of them arrive at other times or have other lengths", self.other_requests)?;
        }
        writeln!(f)
    }

    fn fmt_first(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(FirstDifference { request, kind, time_us, a, b }) = &self.first else {
            return writeln!(f, "\nno decision differs");
        };
        writeln!(f, "\nThe first difference: {} of request {request} at {} s", kind.name(), seconds(*time_us))?;
        for (name, decision) in [("A", a), ("B", b)] {
            let Some(DecisionWithSignals { line, observed }) = decision else {
                writeln!(f, "  {name}  never")?;
                continue;
            };
            let time = line.time_us().map_or_else(String::new, seconds);
            match line {
                TraceLine::Routing(routing) => {
                    let reason = if routing.reason.is_empty() { "no reason given" } else { &routing.reason };
                    writeln!(f, "  {name}  {time} s: to instance {}: {reason}", routing.instance)?;
                }
                TraceLine::Admission(admission) => writeln!(f, "  {name}  {time} s: {admission}")?,
                TraceLine::Scheduling(scheduling) => writeln!(f, "  {name}  {time} s: {scheduling}")?,
                TraceLine::Preemption(preemption) => writeln!(f, "  {name}  {time} s: {preemption}")?,
                TraceLine::Prefill(prefill) => writeln!(f, "  {name}  {time} s: {prefill}")?,
                TraceLine::Gateway(_)
                | TraceLine::Load(_)
                | TraceLine::AdapterEviction(_)
                | TraceLine::Outcome(_)
                | TraceLine::Signals(_) => {}
            }
            if let Some(observed) = observed {
                let ages = observed.ages();
                writeln!(f, "      signals{}", if ages.is_empty() { String::new() } else { format!(" ({ages})") })?;
                write!(f, "{observed}")?;
            }
        }
        Ok(())
    }

    fn fmt_worst(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.worst.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nRequests that lose most from A to B, by E2E, ms\n")?;
        let headings = ["request", "instance A", "B", "TTFT A", "B", "E2E A", "B", "B - A", ""];
        let mut table = TextTable::new(0, headings);
        for RequestPair { request, a, b, e2e_difference_us } in &self.worst {
            let instance = |record: &ComparedRequest| or_dash(record.instance, |instance| instance.to_string());
            table.row(vec![
                request.to_string(),
                instance(a),
                instance(b),
                or_dash(a.ttft_us, ms),
                or_dash(b.ttft_us, ms),
                or_dash(a.e2e_us, ms),
                or_dash(b.e2e_us, ms),
                ms_more(*e2e_difference_us),
                String::new(),
            ]);
        }
        write!(f, "{table}")
    }
}
