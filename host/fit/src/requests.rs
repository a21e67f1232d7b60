//! The requests of one run, in any format that has their latencies.
//!
//! ```text
//! arrival_us,…,ttft_us,e2e_us        durations   our own table
//! {… "queued_ts": … }                timestamps  vLLM's `RequestStateStats`, JSON lines
//! {… "requests": [{"arrived_at" …    results     the file of BLIS's `--metrics-path`
//! vllm-bench, aiperf, guidellm, otel, trace-v2   the readers of `blis run`, which return the latencies too
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead as _;
use std::num::NonZeroU32;
use std::path::Path;

use blis_diag::{Diagnose as _, Diagnostic, display};
use blis_sim::ids::RequestId;
use blis_sim::request::Content;
use blis_workload::{TraceFormat, TraceOptions, open_trace};
use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::runs::{FitError, MeasuredRequest, RunSplit, read, rows};

/// The requests of a file.
#[derive(Debug)]
pub(super) struct RequestFile {
    /// In the order of arrival, which counts from the first.
    pub requests: Vec<MeasuredRequest>,
    /// SHA-256 of the file, hexadecimal.
    pub sha256: String,
    /// Whether it says which prompts have KV blocks in common.
    pub prefixes_known: bool,
    /// Notes of its reader.
    pub notes: Vec<String>,
}

/// The formats of requests with latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestFormat {
    Durations,
    Timestamps,
    Results,
    Trace(TraceFormat),
}

impl RequestFormat {
    /// The format of a text, by its first line and the keys in it.
    fn detect(path: &Path, text: &[u8]) -> Result<Self, FitError> {
        const START_BYTES: usize = 4096;
        let start = &text[..text.len().min(START_BYTES)];
        let first = start.split(|&byte| byte == b'\n').find(|line| !line.trim_ascii().is_empty()).unwrap_or_default();
        let names = |name: &[u8]| first.split(|&byte| byte == b',').any(|field| field.trim_ascii() == name);
        let has = |text: &[u8], key: &str| text.windows(key.len()).any(|window| window == key.as_bytes());
        let json = first.trim_ascii_start().starts_with(b"{");
        if json && ["queued_ts", "scheduled_ts", "input_toks"].iter().any(|key| has(first, key)) {
            return Ok(Self::Timestamps);
        }
        if json && has(text, "\"arrived_at\"") && has(text, "\"num_prefill_tokens\"") {
            return Ok(Self::Results);
        }
        if names(b"arrival_us") {
            return Ok(Self::Durations);
        }
        let known = "docs/fidelity.md lists the formats of measured requests";
        match TraceFormat::detect(&display(path), start) {
            Ok(
                format @ (TraceFormat::VllmBench
                | TraceFormat::AiPerf
                | TraceFormat::Guidellm
                | TraceFormat::Otel
                | TraceFormat::TraceV2),
            ) => Ok(Self::Trace(format)),
            Ok(TraceFormat::SglangBench) => {
                let what = "a result of SGLang's `bench_serving` has no arrival times of requests";
                Err(FitError::file(path, None, Diagnostic::new(what).hint(known)))
            }
            Ok(TraceFormat::Mooncake) if json && !has(start, "\"timestamp\"") => {
                let what = "the JSON has no key of a known format of measured requests";
                Err(FitError::file(path, Some(1), Diagnostic::new(what).hint(known)))
            }
            Ok(format) => {
                let what = format!("the trace (format {format}) has no measured latencies");
                Err(FitError::file(path, None, Diagnostic::new(what).hint(known)))
            }
            Err(_) => {
                let what = "this is no file of measured requests";
                let hint = format!(
                    "{known}; a table has the columns arrival_us, input_tokens, output_tokens, ttft_us, e2e_us"
                );
                Err(FitError::file(path, Some(1), Diagnostic::new(what).hint(hint)))
            }
        }
    }
}

/// The requests of the file at `path`, for KV blocks of `block_size` tokens. With `repeats`, prompts of equal length
/// count as the same prompt, unless the file distinguishes them.
pub(super) fn load_requests(path: &Path, repeats: bool, block_size: u32) -> Result<RequestFile, FitError> {
    let (text, sha256) = read(path)?;
    let mut notes = Vec::new();
    let mut requests = match RequestFormat::detect(path, &text)? {
        RequestFormat::Durations => durations(path, &text)?,
        RequestFormat::Timestamps => timestamps(path, &text)?,
        RequestFormat::Results => results(path, &text, &mut notes)?,
        RequestFormat::Trace(format) => trace(path, format, block_size, &mut notes)?,
    };
    if requests.is_empty() {
        let mistake = Diagnostic::new("no request was completed").hint("is this the right file?");
        return Err(FitError::file(path, None, mistake));
    }
    requests.sort_by_key(|request| request.arrival_us);
    let first = requests[0].arrival_us;
    for request in &mut requests {
        request.arrival_us -= first;
    }
    let known = |request: &MeasuredRequest| request.prompt.is_some() || request.content != Content::UNIQUE;
    let prefixes_known = requests.iter().any(known);
    if repeats && !prefixes_known {
        repeat_by_length(&mut requests);
    }
    Ok(RequestFile { requests, sha256, prefixes_known, notes })
}

/// Gives prompts of equal length the same number.
fn repeat_by_length(requests: &mut [MeasuredRequest]) {
    let mut prompts = BTreeMap::new();
    for request in requests {
        let next = prompts.len() as u32;
        request.prompt = Some(*prompts.entry(request.input_tokens).or_insert(next));
    }
}

/// A trace, by the reader of `blis run`.
fn trace(
    path: &Path,
    format: TraceFormat,
    block_size: u32,
    notes: &mut Vec<String>,
) -> Result<Vec<MeasuredRequest>, FitError> {
    let options = TraceOptions {
        format: Some(format),
        block_size: NonZeroU32::new(block_size).unwrap_or(TraceOptions::default().block_size),
        recorded_times: true,
        ..TraceOptions::default()
    };
    let workload = open_trace(path, &options).map_err(|error| {
        let mistake = error.diagnostic();
        let of_bench = format == TraceFormat::VllmBench;
        let what = if of_bench { format!("{} (a result of `vllm bench serve`)", mistake.what) } else { mistake.what };
        FitError::File(Box::new(Diagnostic { what, ..mistake }))
    })?;
    let times: FxHashMap<RequestId, _> = workload.recorded.into_iter().collect();
    let (mut requests, mut unfinished) = (Vec::new(), 0_u64);
    for request in workload.requests {
        let Some(times) = times.get(&request.id).filter(|_| request.output_tokens > 0) else {
            unfinished += 1;
            continue;
        };
        requests.push(MeasuredRequest {
            arrival_us: request.arrival.0,
            input_tokens: request.input_tokens,
            output_tokens: request.output_tokens,
            ttft_us: times.ttft_us,
            e2e_us: times.e2e_us,
            queue_us: times.queue_us,
            split: RunSplit::Train,
            prompt: None,
            content: request.content,
            preemptions: times.preemptions,
        });
    }
    notes.extend(workload.notes);
    if requests.is_empty() && unfinished > 0 {
        let mistake = Diagnostic::new(format!("none of its {unfinished} requests has measured times"))
            .hint("a trace that was generated has none: record them on a server");
        return Err(FitError::file(path, None, mistake));
    }
    if unfinished > 0 {
        notes.push(format!("{unfinished} requests without measured times are left out, and the load that they were"));
    }
    Ok(requests)
}

/// The file of BLIS's `--metrics-path`.
#[derive(Deserialize)]
struct ResultsFile {
    requests: Vec<ResultRequest>,
}

#[derive(Deserialize)]
struct ResultRequest {
    /// Arrival, s.
    arrived_at: f64,
    num_prefill_tokens: u32,
    num_decode_tokens: u32,
    ttft_ms: f64,
    /// 0 for a request that did not complete.
    e2e_ms: f64,
    handled_by: Option<String>,
    status: Option<String>,
    preemption_count: Option<u32>,
}

fn results(path: &Path, text: &[u8], notes: &mut Vec<String>) -> Result<Vec<MeasuredRequest>, FitError> {
    let file: ResultsFile = serde_json::from_slice(text).map_err(|error| {
        let line = u64::try_from(error.line()).ok();
        FitError::file(path, line, Diagnostic::new(blis_diag::json_words(&error)))
    })?;
    let instances: BTreeSet<&str> = file.requests.iter().filter_map(|request| request.handled_by.as_deref()).collect();
    if instances.len() > 1 {
        let what = format!("its requests were served by {} instances; a measured run is one server", instances.len());
        return Err(FitError::file(path, None, Diagnostic::new(what).hint("write the results of one instance")));
    }
    let all = file.requests.len();
    let completed = |request: &ResultRequest| {
        request.status.as_deref().is_none_or(|status| status == "completed")
            && request.e2e_ms > 0.0
            && request.num_decode_tokens > 0
    };
    let mut requests = Vec::new();
    for request in file.requests.iter().filter(|request| completed(request)) {
        let ResultRequest { arrived_at, ttft_ms, e2e_ms, .. } = *request;
        let in_order = ttft_ms >= 0.0 && e2e_ms >= ttft_ms && e2e_ms.is_finite();
        let valid = (0.0..1e12).contains(&arrived_at) && in_order;
        if !valid {
            let what = format!("a request at {arrived_at} s: first token after {ttft_ms} ms, last after {e2e_ms} ms");
            return Err(FitError::file(path, None, Diagnostic::new(what).hint("is this a file of `--metrics-path`?")));
        }
        requests.push(MeasuredRequest {
            arrival_us: (arrived_at * 1e6).round() as u64,
            input_tokens: request.num_prefill_tokens,
            output_tokens: request.num_decode_tokens,
            ttft_us: ttft_ms * 1e3,
            e2e_us: e2e_ms * 1e3,
            // `scheduling_delay_ms` counts from the arrival, not from the queue.
            queue_us: None,
            split: RunSplit::Train,
            prompt: None,
            content: Content::UNIQUE,
            preemptions: request.preemption_count,
        });
    }
    if requests.len() < all {
        notes.push(format!("{} requests that did not complete are left out", all - requests.len()));
    }
    Ok(requests)
}

/// A line of a file with durations.
#[derive(Deserialize)]
struct RequestRow {
    arrival_us: u64,
    input_tokens: u32,
    output_tokens: u32,
    ttft_us: f64,
    e2e_us: f64,
    queue_us: Option<f64>,
    ok: Option<u8>,
    split: Option<String>,
    prompt: Option<String>,
}

fn durations(path: &Path, text: &[u8]) -> Result<Vec<MeasuredRequest>, FitError> {
    let mut prompts = BTreeMap::new();
    let mut requests = Vec::new();
    for (row, line) in rows::<RequestRow>(path, text)?.into_iter().zip(2..) {
        if row.ok == Some(0) {
            continue;
        }
        let wrong = |what: String, hint| FitError::file(path, Some(line), Diagnostic::new(what).hint(hint));
        let split = match row.split.as_deref() {
            None | Some("train" | "") => RunSplit::Train,
            Some("validation") => RunSplit::Validation,
            Some("test") => RunSplit::Test,
            Some(other) => {
                return Err(wrong(format!("unknown split `{other}`"), "known: train, validation, test"));
            }
        };
        if !(row.ttft_us >= 0.0 && row.e2e_us >= row.ttft_us && row.e2e_us.is_finite()) || row.output_tokens == 0 {
            let (ttft, e2e, tokens) = (row.ttft_us, row.e2e_us, row.output_tokens);
            return Err(wrong(
                format!("first token after {ttft} µs, last after {e2e} µs, of {tokens} tokens"),
                "leave out requests that failed, or mark them with `ok` 0",
            ));
        }
        let name = row.prompt.filter(|name| !name.is_empty());
        let next = prompts.len() as u32;
        requests.push(MeasuredRequest {
            arrival_us: row.arrival_us,
            input_tokens: row.input_tokens,
            output_tokens: row.output_tokens,
            ttft_us: row.ttft_us,
            e2e_us: row.e2e_us,
            queue_us: row.queue_us,
            split,
            prompt: name.map(|name| *prompts.entry(name).or_insert(next)),
            content: Content::UNIQUE,
            preemptions: None,
        });
    }
    Ok(requests)
}

/// A line of a file with timestamps, s, as in vLLM's `RequestStateStats`.
#[derive(Deserialize)]
struct TimestampRow {
    input_toks: u32,
    output_toks: u32,
    /// Time of day; the other timestamps count from the start of the machine.
    arrival_time: f64,
    queued_ts: f64,
    scheduled_ts: f64,
    first_token_ts: f64,
    last_token_ts: f64,
}

fn timestamps(path: &Path, text: &[u8]) -> Result<Vec<MeasuredRequest>, FitError> {
    let mut all = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.map_err(|source| FitError::Read { path: path.into(), source })?;
        if line.trim().is_empty() {
            continue;
        }
        let times: TimestampRow = serde_json::from_str(&line)
            .map_err(|error| FitError::file(path, Some(number), Diagnostic::new(error.to_string())))?;
        let ordered = [times.queued_ts, times.scheduled_ts, times.first_token_ts, times.last_token_ts];
        if !ordered.is_sorted() || !times.arrival_time.is_finite() || times.output_toks == 0 {
            let mistake = Diagnostic::new("its times are not in order").hint("leave out requests that failed");
            return Err(FitError::file(path, Some(number), mistake));
        }
        all.push(times);
    }
    // The two clocks are aligned at the request with the shortest time from arrival to queue.
    let offset = all.iter().map(|times| times.queued_ts - times.arrival_time).fold(f64::INFINITY, f64::min);
    let first = all.iter().map(|times| times.arrival_time).fold(f64::INFINITY, f64::min);
    let request = |times: &TimestampRow| MeasuredRequest {
        arrival_us: ((times.arrival_time - first) * 1e6).round() as u64,
        input_tokens: times.input_toks,
        output_tokens: times.output_toks,
        ttft_us: (times.first_token_ts - offset - times.arrival_time) * 1e6,
        e2e_us: (times.last_token_ts - offset - times.arrival_time) * 1e6,
        queue_us: Some((times.scheduled_ts - times.queued_ts) * 1e6),
        split: RunSplit::Train,
        prompt: None,
        content: Content::UNIQUE,
        preemptions: None,
    };
    Ok(all.iter().map(request).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "arrival_us,input_tokens,output_tokens,ttft_us,e2e_us,ok,split\n\
                        5000,100,11,30000,130000,1,train\n\
                        1000,100,2,20000,40000,1,validation\n\
                        2000,50,1,20000,20000,0,train\n";

    fn durations_of(text: &str) -> Result<Vec<MeasuredRequest>, FitError> {
        durations(Path::new("a.csv"), text.as_bytes())
    }

    #[test]
    fn failed_requests_are_left_out_and_equal_lengths_are_one_prompt() {
        let mut requests = durations_of(ROWS).unwrap();
        assert_eq!((requests.len(), requests[0].prompt), (2, None));
        repeat_by_length(&mut requests);
        assert_eq!((requests[0].prompt, requests[1].prompt), (Some(0), Some(0)));
        assert_eq!(requests[0].itl_us(), Some(10_000.0), "10 gaps between 11 tokens");
        assert_eq!(requests[1].split, RunSplit::Validation);
    }

    #[test]
    fn mistakes_have_a_location() {
        let error = |text: &str| durations_of(text).unwrap_err().to_string();
        let head = "arrival_us,input_tokens,output_tokens,ttft_us,e2e_us,split\n";
        assert!(error(&format!("{head}1,2,3,4,x,train\n")).starts_with("a.csv:2: "));
        assert!(
            error(&format!("{head}1,2,3,4,5,train\n1,2,3,4,5,later\n")).starts_with("a.csv:3: unknown split `later`")
        );
        let reversed = error(&format!("{head}1,2,3,9,5,train\n"));
        assert!(reversed.starts_with("a.csv:2: first token after 9 µs, last after 5 µs"), "{reversed}");
        assert!(error("arrival_us,input_tokens\n1,2\n").contains("missing field `output_tokens`"));
    }

    #[test]
    fn the_clocks_of_vllm_are_laid_over_each_other() {
        let line = |arrival: f64, queued: f64| {
            format!(
                "{{\"request_id\": \"r\", \"input_toks\": 10, \"output_toks\": 3, \"arrival_time\": {arrival}, \
                 \"queued_ts\": {queued}, \"scheduled_ts\": {}, \"first_token_ts\": {}, \"last_token_ts\": {}}}\n",
                queued + 0.5,
                queued + 0.75,
                queued + 1.0
            )
        };
        let text = format!("{}\n{}", line(1000.0, 50.0), line(1001.0, 51.25));
        let requests = timestamps(Path::new("a.jsonl"), text.as_bytes()).unwrap();
        assert_eq!((requests[0].ttft_us, requests[0].e2e_us), (750_000.0, 1_000_000.0));
        assert_eq!((requests[1].arrival_us, requests[1].ttft_us), (1_000_000, 1_000_000.0), "0.25 s on the way");
        assert_eq!(requests[1].queue_us, Some(500_000.0));
        let error = timestamps(Path::new("a.jsonl"), b"\n{\"input_toks\": 1}\n").unwrap_err().to_string();
        assert!(error.starts_with("a.jsonl:2: missing field `output_toks`"), "{error}");
    }
}
