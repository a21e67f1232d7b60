//! AIPerf's `profile_export.jsonl`: one request per line, with metadata and metrics.
//!
//! A request arrives at `metadata.request_start_ns` (ns since 1970); lengths are the metrics `input_sequence_length`
//! and `output_sequence_length`. The session is `conversation_id` (or `x_correlation_id`), the round `turn_index`.
//! Latencies, where they are wanted: `time_to_first_token` and `request_latency`, in their `unit` (ms if it is missing).
//! Requests with an `error`, cancelled ones and those of the benchmark phase `warmup` are left out and counted.

use std::borrow::Cow;
use std::io::BufRead;
use std::sync::Arc;

use blis_sim::ids::RequestId;
use blis_sim::request::Tags;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::error::TraceError;
use super::json::{self, Label, MeasuredNumber, NANOSECOND, Number, need};
use super::names::Names;
use super::prefix::ROOT;
use super::recorded::RecordedTimes;
use super::row::{NamedMetadata, TraceRow};
use super::rows::{Intake, Origin, SharedContents};
use super::{TraceOptions, Workload};
use blis_diag::LineReader;
use blis_diag::RowError;

/// Reads a `profile_export.jsonl` of AIPerf.
///
/// # Errors
/// See [`TraceError`].
pub fn read(input: impl BufRead, file: &str, options: &TraceOptions) -> Result<Workload, TraceError> {
    let file: Arc<str> = file.into();
    let mut intake = Intake::new(&file, options);
    let mut lines = LineReader::new(input, &file);
    let (mut names, mut scratch) = (Names::default(), Vec::new());
    let (mut failed, mut cancelled, mut warmup) = (0_u64, 0_u64, 0_u64);
    while intake.wants_more() && lines.advance()? {
        let id = intake.next_id()?;
        let record: Result<AiperfRecord<'_>, _> = json::object(lines.text(), &mut scratch);
        let Some(record) = intake.valid(record, |fault| lines.locate(fault))? else { continue };
        let metadata = record.metadata.as_ref();
        if record.error.is_some() {
            failed += 1;
        } else if metadata.is_some_and(|metadata| metadata.was_cancelled == Some(true)) {
            cancelled += 1;
        } else if metadata.is_some_and(|metadata| metadata.benchmark_phase.as_deref() == Some("warmup")) {
            warmup += 1;
        } else {
            let read = intake.times(|| times(&record)).and_then(|times| Ok((row(&record, id, &mut names)?, times)));
            if let Some((row, times)) = intake.valid(read, |fault| lines.locate(fault))? {
                intake.add_measured(row, times);
            }
        }
    }
    intake.note_left_out(failed, "failed request");
    intake.note_left_out(cancelled, "cancelled request");
    intake.note_left_out(warmup, "warm-up request");
    intake.finish(Origin::FirstArrival, SharedContents::default(), names)
}

#[derive(Deserialize)]
struct AiperfRecord<'a> {
    #[serde(borrow)]
    metadata: Option<Metadata<'a>>,
    #[serde(borrow, default)]
    metrics: Option<AiperfMetrics<'a>>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    /// Time of arrival, ns since 1970.
    request_start_ns: Option<Number>,
    #[serde(borrow, default)]
    conversation_id: Option<Label<'a>>,
    #[serde(borrow, default)]
    x_correlation_id: Option<Label<'a>>,
    turn_index: Option<Number>,
    #[serde(borrow, default)]
    benchmark_phase: Option<Cow<'a, str>>,
    was_cancelled: Option<bool>,
}

#[derive(Deserialize)]
struct AiperfMetrics<'a> {
    input_sequence_length: Option<AiperfMetric>,
    /// Output tokens, including those of reasoning.
    output_sequence_length: Option<AiperfMetric>,
    output_token_count: Option<AiperfMetric>,
    #[serde(borrow)]
    time_to_first_token: Option<AiperfTime<'a>>,
    /// From the start of the request to its last token.
    #[serde(borrow)]
    request_latency: Option<AiperfTime<'a>>,
}

#[derive(Deserialize)]
struct AiperfMetric {
    value: Number,
}

#[derive(Deserialize)]
struct AiperfTime<'a> {
    #[serde(default)]
    value: MeasuredNumber,
    #[serde(borrow, default)]
    unit: Option<Cow<'a, str>>,
}

impl AiperfTime<'_> {
    /// The time in µs.
    fn us(&self, name: &str) -> Result<f64, RowError> {
        let value = need(self.value.0, name)?;
        Ok(value
            * match self.unit.as_deref() {
                None | Some("ms") => 1e3,
                Some("s" | "sec") => 1e6,
                Some("us" | "µs") => 1.0,
                Some("ns") => 1e-3,
                Some(unit) => {
                    return Err(
                        RowError::new(format!("`{name}` is in the unknown unit `{unit}`")).hint("known: s, ms, us, ns")
                    );
                }
            })
    }
}

/// The latencies of a request that succeeded.
fn times(record: &AiperfRecord<'_>) -> Result<RecordedTimes, RowError> {
    let metrics = need(record.metrics.as_ref(), "metrics")?;
    let ttft = need(metrics.time_to_first_token.as_ref(), "time_to_first_token")
        .map_err(|fault| fault.hint("only streamed requests have it: profile with `--streaming`"))?;
    let e2e = need(metrics.request_latency.as_ref(), "request_latency")?;
    let (ttft, e2e) = (ttft.us("time_to_first_token")?, e2e.us("request_latency")?);
    RecordedTimes::new(ttft, e2e).ok_or_else(|| {
        RowError::new(format!("`time_to_first_token` is {ttft} µs, `request_latency` {e2e} µs: not in order"))
    })
}

fn row(record: &AiperfRecord<'_>, id: RequestId, names: &mut Names) -> Result<TraceRow<NamedMetadata>, RowError> {
    let metadata = need(record.metadata.as_ref(), "metadata")?;
    let metrics = need(record.metrics.as_ref(), "metrics")?;
    let arrival = need(metadata.request_start_ns, "request_start_ns")?.micros("request_start_ns", NANOSECOND)?;
    let input = need(metrics.input_sequence_length.as_ref(), "input_sequence_length")?;
    let input = input.value.prompt("input_sequence_length")?;
    let output = metrics.output_sequence_length.as_ref().or(metrics.output_token_count.as_ref());
    let output = need(output, "output_sequence_length")?.value.count("output_sequence_length")?;
    let round_index = metadata.turn_index.map_or(Ok(0), |turn| turn.count("turn_index"))?;
    let session = metadata.conversation_id.as_ref().or(metadata.x_correlation_id.as_ref());
    let session = names.intern(session.map_or("", |Label(name)| name));
    let tags = Tags { session, round_index, ..Tags::default() };
    Ok(TraceRow { arrival, id, input, output, prefix: ROOT, terms: NamedMetadata { tags, max_output_tokens: None } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trace(text: &str) -> Result<Workload, TraceError> {
        read(text.as_bytes(), "a.jsonl", &TraceOptions::default())
    }

    const LINE: &str = r#"{"metadata": {"session_num": 0, "conversation_id": "c1", "turn_index": 1, "request_start_ns": 1700000000000002500, "benchmark_phase": "profiling", "was_cancelled": false}, "metrics": {"input_sequence_length": {"value": 550, "unit": "tokens"}, "output_sequence_length": {"value": 20.0, "unit": "tokens"}, "inter_token_latency": {"value": NaN, "unit": "ms"}}, "error": null}"#;

    #[test]
    fn what_was_measured_is_replayed() {
        let lines = [
            LINE.to_owned(),
            LINE.replace("2500,", "9500,"),
            LINE.replace("profiling", "warmup"),
            LINE.replace("false", "true"),
            LINE.replace("\"error\": null", "\"error\": {\"code\": 500}"),
        ];
        let workload = trace(&lines.join("\n")).unwrap();
        assert_eq!(
            workload.notes,
            ["1 failed request left out", "1 cancelled request left out", "1 warm-up request left out"]
        );
        let names = workload.names;
        let seen: Vec<_> = workload
            .requests
            .map(|r| {
                (
                    r.arrival.0,
                    r.input_tokens,
                    r.output_tokens,
                    names.text(r.tags.session).to_owned(),
                    r.tags.round_index,
                )
            })
            .collect();
        assert_eq!(seen, [(0, 550, 20, "c1".to_owned(), 1), (7, 550, 20, "c1".to_owned(), 1)]);
    }

    #[test]
    fn latencies_are_read_in_their_unit() {
        let options = TraceOptions { recorded_times: true, ..TraceOptions::default() };
        let read = |text: &str| read(text.as_bytes(), "a.jsonl", &options);
        let times = r#""metrics": {"time_to_first_token": {"value": 31.5, "unit": "ms"}, "request_latency": {"value": 1.25, "unit": "s"}, "#;
        let line = LINE.replace("\"metrics\": {", times);
        let recorded = read(&line).unwrap().recorded;
        assert_eq!(recorded, [(RequestId(0), RecordedTimes::new(31_500.0, 1_250_000.0).unwrap())]);
        insta::assert_snapshot!(read(LINE).unwrap_err(), @r"
        a.jsonl:1: `time_to_first_token` is missing
        hint: only streamed requests have it: profile with `--streaming`
        ");
        insta::assert_snapshot!(read(&line.replace("\"s\"", "\"h\"")).unwrap_err(), @r"
        a.jsonl:1: `request_latency` is in the unknown unit `h`
        hint: known: s, ms, us, ns
        ");
        insta::assert_snapshot!(read(&line.replace("1.25", "0.01")).unwrap_err(), @"a.jsonl:1: `time_to_first_token` is 31500 µs, `request_latency` 10000 µs: not in order");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, at: usize, byte: u8) {
            let _ = read(bytes.as_slice(), "x", &TraceOptions::default());
            let mut line = LINE.as_bytes().to_vec();
            line[at % LINE.len()] = byte;
            let _ = read(line.as_slice(), "x", &TraceOptions::default());
        }
    }
}
