//! Reports of GuideLLM (`guidellm run --output kind=json`, before 0.6 `guidellm benchmark run --output-path FILE.json`): one JSON
//! object with a list `benchmarks`, of which each has its requests.
//!
//! A request arrives at `request_start_time` (s since 1970; `start_time` before version 0.4); lengths are `prompt_tokens` and
//! `output_tokens`. The session is `info.conversation_id`, the round `info.turn_index`. Latencies, where they are wanted:
//! `time_to_first_token_ms` and `request_latency` (s). Requests that failed or did not end are left out and counted. Of a report
//! with a sample of the requests a note says how many are missing: the load of the others is not simulated.

use std::io::BufRead;
use std::sync::Arc;

use blis_sim::ids::RequestId;
use blis_sim::request::Tags;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::error::TraceError;
use super::json::{Documents, MeasuredNumber, Number, SECOND, need};
use super::names::Names;
use super::prefix::ROOT;
use super::recorded::RecordedTimes;
use super::row::{NamedMetadata, TraceRow};
use super::rows::{Intake, Origin, SharedContents, counted};
use super::{TraceOptions, Workload};
use blis_diag::RowError;

/// Reads a report of GuideLLM.
///
/// # Errors
/// See [`TraceError`].
pub fn read(input: impl BufRead, file: &str, options: &TraceOptions) -> Result<Workload, TraceError> {
    let file: Arc<str> = file.into();
    let mut intake = Intake::new(&file, options);
    let mut documents: Documents<_, GuidellmReport> = Documents::new(input, &file);
    let mut names = Names::default();
    let (mut benchmarks, mut left_out) = (0_u64, LeftOut::default());
    while let Some(report) = if intake.wants_more() { documents.next()? } else { None } {
        let located = |fault: RowError| fault.at(&file, documents.line());
        for benchmark in need(report.benchmarks, "benchmarks").map_err(located)? {
            let requests = need(benchmark.requests.as_ref(), "requests").map_err(located)?;
            left_out.count(requests, benchmark.scheduler_metrics.as_ref());
            for (index, request) in requests.successful.iter().flatten().enumerate() {
                if !intake.wants_more() {
                    break;
                }
                let id = intake.next_id()?;
                let read = intake.times(|| times(request)).and_then(|times| Ok((row(request, id, &mut names)?, times)));
                let which = || format!("successful request {index} of benchmark {benchmarks}");
                if let Some((row, times)) = intake.valid(read, |fault| located(fault.within(&which())))? {
                    intake.add_measured(row, times);
                }
            }
            benchmarks += 1;
        }
    }
    if benchmarks > 1 {
        intake.notes.push(format!("{benchmarks} consecutive benchmarks"));
    }
    left_out.note(&mut intake);
    intake.finish(Origin::FirstArrival, SharedContents::default(), names)
}

/// Numbers of requests that are not replayed.
#[derive(Default)]
struct LeftOut {
    failed: u64,
    unfinished: u64,
    /// Completed, but not in the report.
    unlisted: u64,
}

impl LeftOut {
    fn count(&mut self, requests: &GuidellmRequests, metrics: Option<&SchedulerMetrics>) {
        fn len<T>(list: Option<&Vec<T>>) -> u64 {
            list.map_or(0, |list| list.len() as u64)
        }
        self.failed += len(requests.errored.as_ref());
        self.unfinished += len(requests.incomplete.as_ref());
        let made = metrics.and_then(|metrics| metrics.requests_made.as_ref()).map_or(0, |made| made.successful);
        self.unlisted += made.saturating_sub(len(requests.successful.as_ref()));
    }

    fn note(&self, intake: &mut Intake<'_, NamedMetadata>) {
        intake.note_left_out(self.failed, "failed request");
        intake.note_left_out(self.unfinished, "unfinished request");
        if self.unlisted > 0 {
            let missing = counted(self.unlisted, "completed request");
            intake.notes.push(format!("the report is a sample: without {missing}, and without their load"));
        }
    }
}

#[derive(Deserialize)]
#[serde(expecting = "an object with the list `benchmarks`")]
struct GuidellmReport {
    benchmarks: Option<Vec<GuidellmBenchmark>>,
}

#[derive(Deserialize)]
struct GuidellmBenchmark {
    requests: Option<GuidellmRequests>,
    scheduler_metrics: Option<SchedulerMetrics>,
}

#[derive(Deserialize)]
struct SchedulerMetrics {
    requests_made: Option<RequestsMade>,
}

#[derive(Deserialize)]
struct RequestsMade {
    #[serde(default)]
    successful: u64,
}

#[derive(Deserialize)]
struct GuidellmRequests {
    successful: Option<Vec<GuidellmRequest>>,
    errored: Option<Vec<IgnoredAny>>,
    incomplete: Option<Vec<IgnoredAny>>,
}

#[derive(Deserialize)]
struct GuidellmRequest {
    /// Time of sending, s since 1970.
    #[serde(alias = "start_time")]
    request_start_time: Option<Number>,
    prompt_tokens: Option<Number>,
    output_tokens: Option<Number>,
    #[serde(default)]
    time_to_first_token_ms: MeasuredNumber,
    /// From sending to the end of the response, s.
    #[serde(default)]
    request_latency: MeasuredNumber,
    info: Option<GuidellmInfo>,
}

#[derive(Deserialize)]
struct GuidellmInfo {
    conversation_id: Option<String>,
    turn_index: Option<Number>,
}

/// The latencies of a request.
fn times(request: &GuidellmRequest) -> Result<RecordedTimes, RowError> {
    let ttft = need(request.time_to_first_token_ms.0, "time_to_first_token_ms")
        .map_err(|fault| fault.hint("only streamed requests have it"))?;
    let e2e = need(request.request_latency.0, "request_latency")?;
    let (ttft, e2e) = (ttft * 1e3, e2e * 1e6);
    RecordedTimes::new(ttft, e2e).ok_or_else(|| {
        RowError::new(format!("`time_to_first_token_ms` is {ttft} µs, `request_latency` {e2e} µs: not in order"))
    })
}

fn row(request: &GuidellmRequest, id: RequestId, names: &mut Names) -> Result<TraceRow<NamedMetadata>, RowError> {
    let arrival = need(request.request_start_time, "request_start_time")?.micros("request_start_time", SECOND)?;
    let input = need(request.prompt_tokens, "prompt_tokens")?.prompt("prompt_tokens")?;
    let output = need(request.output_tokens, "output_tokens")?.count("output_tokens")?;
    let info = request.info.as_ref();
    let round_index = info.and_then(|info| info.turn_index).map_or(Ok(0), |turn| turn.count("turn_index"))?;
    let session = names.intern(info.and_then(|info| info.conversation_id.as_deref()).unwrap_or(""));
    let tags = Tags { session, round_index, ..Tags::default() };
    Ok(TraceRow { arrival, id, input, output, prefix: ROOT, terms: NamedMetadata { tags, max_output_tokens: None } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trace(text: &str) -> Result<Workload, TraceError> {
        read(text.as_bytes(), "g.json", &TraceOptions::default())
    }

    /// Of guidellm 0.8.1, without what is not read.
    const REPORT: &str = r#"{"metadata": {"version": 2, "guidellm_version": "0.8.1"}, "benchmarks": [{"type_": "generative_benchmark",
        "scheduler_metrics": {"requests_made": {"successful": 2, "errored": 1, "incomplete": 1, "total": 4}}, "requests": {
        "successful": [
        {"request_args": "{\"prompt\": \"NaN\"}", "info": {"conversation_id": "c", "turn_index": 1, "error": null},
        "request_start_time": 1795712630.5856946, "request_latency": 0.23773550987243652, "prompt_tokens": 71, "output_tokens": 20,
        "time_to_first_token_ms": 21.569013595581055},
        {"info": {"conversation_id": "c", "turn_index": 0}, "request_start_time": 1795712630.0856946, "request_latency": 0.25,
        "prompt_tokens": 70, "output_tokens": 19, "time_to_first_token_ms": 20}],
        "errored": [{"prompt_tokens": null}], "incomplete": [{}], "total": null}}]}"#;

    #[test]
    fn what_was_measured_is_replayed() {
        let workload = trace(REPORT).unwrap();
        let notes = [
            "1 failed request left out",
            "1 unfinished request left out",
            "the rows are not in order of arrival; they were sorted",
        ];
        assert_eq!(workload.notes, notes);
        let names = workload.names;
        let seen: Vec<_> = workload
            .requests
            .map(|r| {
                let session = names.text(r.tags.session).to_owned();
                (r.arrival.0, r.input_tokens, r.output_tokens, session, r.tags.round_index)
            })
            .collect();
        assert_eq!(seen, [(0, 70, 19, "c".to_owned(), 0), (500_000, 71, 20, "c".to_owned(), 1)]);
    }

    #[test]
    fn reports_before_version_0_4_and_of_several_benchmarks_are_read() {
        let old = r#"{"benchmarks": [{"requests": {"successful": [{"start_time": 10.5, "prompt_tokens": 3, "output_tokens": 4}],
            "incomplete": null}}, {"requests": {"successful": [{"start_time": 12, "prompt_tokens": 5, "output_tokens": 6}]}}]}"#;
        let workload = trace(old).unwrap();
        assert_eq!(workload.notes, ["2 consecutive benchmarks"]);
        let seen: Vec<_> = workload.requests.map(|r| (r.arrival.0, r.input_tokens, r.output_tokens)).collect();
        assert_eq!(seen, [(0, 3, 4), (1_500_000, 5, 6)]);
    }

    #[test]
    fn a_sample_of_the_requests_is_noted() {
        let workload = trace(&REPORT.replace("\"successful\": 2", "\"successful\": 40")).unwrap();
        let note = "the report is a sample: without 38 completed requests, and without their load";
        assert!(workload.notes.iter().any(|seen| seen == note), "{:?}", workload.notes);
    }

    #[test]
    fn latencies_are_those_of_the_requests() {
        let options = TraceOptions { recorded_times: true, ..TraceOptions::default() };
        let read = |text: &str| read(text.as_bytes(), "g.json", &options);
        let recorded = read(REPORT).unwrap().recorded;
        assert_eq!(recorded.len(), 2);
        assert_eq!(recorded[1], (RequestId(1), RecordedTimes::new(20_000.0, 250_000.0).unwrap()));
        insta::assert_snapshot!(read(&REPORT.replace("\"time_to_first_token_ms\": 20}", "\"time_to_first_token_ms\": null}")).unwrap_err(), @r"
        g.json:9: successful request 1 of benchmark 0: `time_to_first_token_ms` is missing
        hint: only streamed requests have it
        ");
        insta::assert_snapshot!(read(&REPORT.replace("0.25", "0.01")).unwrap_err(), @"g.json:9: successful request 1 of benchmark 0: `time_to_first_token_ms` is 20000 µs, `request_latency` 10000 µs: not in order");
    }

    #[test]
    fn errors_say_where() {
        let error = |from: &str, to: &str| trace(&REPORT.replace(from, to)).unwrap_err().to_string();
        insta::assert_snapshot!(error("\"benchmarks\"", "\"benches\""), @"g.json:9: `benchmarks` is missing");
        insta::assert_snapshot!(error("\"requests\": {", "\"rows\": {"), @"g.json:9: `requests` is missing");
        insta::assert_snapshot!(error("\"prompt_tokens\": 70", "\"prompt_tokens\": 0"), @"g.json:9: successful request 1 of benchmark 0: `prompt_tokens` is 0: a prompt has at least one token");
        insta::assert_snapshot!(error("\"prompt_tokens\": 70", "\"prompt_tokens\": -7"), @"g.json:9: successful request 1 of benchmark 0: `prompt_tokens` is negative: `-7`");
        insta::assert_snapshot!(error("\"prompt_tokens\": 70", "\"prompt_tokens\": {}"), @"g.json:8:27: invalid type: map, expected a number");
        insta::assert_snapshot!(trace("[]").unwrap_err(), @"g.json:1:2: invalid length 0, expected an object with the list `benchmarks`");
        insta::assert_snapshot!(trace(&REPORT[..300]).unwrap_err(), @"g.json:4:45: EOF while parsing a string");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, at: usize, byte: u8) {
            let _ = read(bytes.as_slice(), "x", &TraceOptions::default());
            let mut report = REPORT.as_bytes().to_vec();
            report[at % REPORT.len()] = byte;
            let _ = read(report.as_slice(), "x", &TraceOptions::default());
        }
    }
}
