//! Traces: requests that were read are valid, and can be written and read again.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use blis_sim::outcome::{Outcome, Status};
use blis_sim::request::Request;
use blis_sim::units::Micros;
use blis_workload::convert::{TargetFormat, WriteError};
use blis_workload::{TraceError, TraceFormat, TraceOptions, TraceWindow, Workload};
use blis_workload::{azure, blis_csv, mooncake, trace_v2};

/// The result of every trace reader.
type ReadResult = Result<Workload, TraceError>;

/// Reads `bytes` strictly, leniently, and a transformed part of them. The requests must be valid, and errors must have
/// a message.
pub fn read(bytes: &[u8], parser: impl Fn(&[u8], &str, &TraceOptions) -> ReadResult) {
    let lenient = TraceOptions { skip_bad_lines: true, ..TraceOptions::default() };
    let timed = TraceOptions { recorded_times: true, ..lenient.clone() };
    let part = TraceOptions {
        block_size: NonZeroU32::new(7).expect("not 0"),
        hash_block_size: NonZeroU32::new(10),
        max_requests: Some(20),
        window: TraceWindow {
            start: Micros(1),
            duration: Some(Micros(3_600_000_000)),
            repeat: NonZeroU32::new(3).expect("not 0"),
            time_scale: 0.37,
            spread: Some(Micros(1_000_000)),
        },
        horizon: Micros(2_000_000_000),
        ..lenient.clone()
    };
    for options in [TraceOptions::default(), lenient, timed, part] {
        match parser(bytes, "fuzz", &options) {
            Ok(workload) => check(workload, &options),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// Checks that the requests of a trace are valid, and as many as it declares.
pub fn check(workload: Workload, options: &TraceOptions) {
    let mut before = Micros::ZERO;
    let mut count = 0;
    for request in workload.requests {
        assert!(before <= request.arrival, "out of order");
        check_request(&request, options.block_size);
        before = request.arrival;
        count += 1;
    }
    assert_eq!(workload.count, Some(count));
}

fn check_request(request: &Request, block_size: NonZeroU32) {
    assert!(request.input_tokens > 0, "an empty prompt");
    let tokens = u64::from(request.input_tokens) + u64::from(request.output_tokens);
    let shared = u64::from(request.content.shared_blocks()) * u64::from(block_size.get());
    assert!(shared <= tokens, "{shared} shared tokens of {tokens}");
}

/// Completes at most `most` requests of `workload`, every fifth one by a timeout and the others with some of their
/// tokens: requests that follow are valid and never arrive before the end of the previous one.
pub fn follow(workload: Workload, most: usize) {
    let mut follow_ups = workload.follow_ups;
    let mut waiting: VecDeque<Request> = workload.requests.take(most).collect();
    let mut count = 0_u64;
    while let Some(request) = waiting.pop_front().filter(|_| count < 2 * most as u64) {
        assert!(request.input_tokens > 0, "an empty prompt");
        count += 1;
        let status = if count.is_multiple_of(5) { Status::TimedOut } else { Status::Completed };
        let ended_at = request.arrival.saturating_add(Micros(count * 1_000));
        let generated_tokens = request.output_tokens / (1 + count % 2) as u32;
        let outcome = Outcome { generated_tokens, ..Outcome::new(&request, status) }.ended_at(ended_at);
        if let Some(next) = follow_ups.as_mut().and_then(|follow_ups| follow_ups.next(&outcome)) {
            assert!(next.arrival >= ended_at, "it arrives before the end of the previous request");
            waiting.push_back(next);
        }
    }
}

/// Largest time for which a 64-bit float distinguishes half microseconds, µs.
const EXACT: u64 = 1 << 51;
/// Maximum number of tokens of a trace that are written one by one.
const WRITTEN: u64 = 100_000;

/// Writes the requests of `bytes` in every format that can be written, reads them again, and compares.
pub fn reread(bytes: &[u8]) {
    let Ok(format) = TraceFormat::detect("fuzz", bytes) else { return };
    for target in [TargetFormat::TraceV2, TargetFormat::Mooncake, TargetFormat::BlisCsv, TargetFormat::Azure] {
        let block_size = target.block_size();
        let options = TraceOptions { block_size, skip_bad_lines: true, ..TraceOptions::default() };
        let Ok(workload) = open(format, bytes, &options) else { return };
        let Workload { requests, names, .. } = workload;
        let requests: Vec<Request> = requests.collect();
        let tokens = |request: &Request| u64::from(request.input_tokens) + u64::from(request.output_tokens);
        let too_late = requests.last().is_none_or(|last| last.arrival.0 > EXACT);
        if too_late || requests.iter().map(tokens).sum::<u64>() > WRITTEN {
            return;
        }
        let mut text = Vec::new();
        let again = Workload {
            requests: Box::new(requests.clone().into_iter()),
            follow_ups: None,
            count: None,
            names,
            slo_targets: Default::default(),
            aside: Default::default(),
            recorded: Vec::new(),
            skipped: Default::default(),
            notes: Vec::new(),
        };
        match target.write(again, block_size, &mut text) {
            Ok((count, _)) => assert_eq!(count, requests.len() as u64),
            Err(WriteError::Io(error)) => panic!("{error}"),
            Err(error) => {
                assert!(error.to_string().contains("\nhint: "), "{error}");
                continue;
            }
        }
        let strict = TraceOptions { skip_bad_lines: false, ..options };
        let written = String::from_utf8_lossy(&text);
        let workload = match target {
            TargetFormat::TraceV2 => trace_v2::read(&*text, "again", &trace_v2::TraceHeader::default(), &strict),
            TargetFormat::Mooncake => mooncake::read(&*text, "again", &strict),
            TargetFormat::BlisCsv => blis_csv::read(&*text, "again", &strict),
            TargetFormat::Azure => azure::read(&*text, "again", &strict),
        };
        let workload = workload.unwrap_or_else(|error| panic!("{target:?}: {error}\n{written}"));
        let figures = |request: Request| (request.arrival, request.input_tokens, request.output_tokens);
        // These two begin with the first arrival.
        let cut = matches!(target, TargetFormat::Azure | TargetFormat::Mooncake);
        let start = if cut { requests[0].arrival } else { Micros::ZERO };
        let shifted = |request: Request| Request { arrival: request.arrival - start, ..request };
        let expected: Vec<_> = requests.into_iter().map(shifted).map(figures).collect();
        let found: Vec<_> = workload.requests.map(figures).collect();
        assert_eq!(found, expected, "{target:?}\n{written}");
    }
}

/// Reads `bytes` in `format`; for TraceV2 they are the data, with a default header.
fn open(format: TraceFormat, bytes: &[u8], options: &TraceOptions) -> ReadResult {
    use blis_workload::{aiperf, bailian, burstgpt, guidellm, otel, plain_csv, sglang_bench, sharegpt, vllm_bench, vllm_vcr};
    match format {
        TraceFormat::Azure => azure::read(bytes, "fuzz", options),
        TraceFormat::Mooncake => mooncake::read(bytes, "fuzz", options),
        TraceFormat::BlisCsv => blis_csv::read(bytes, "fuzz", options),
        TraceFormat::TraceV2 => trace_v2::read(bytes, "fuzz", &trace_v2::TraceHeader::default(), options),
        TraceFormat::Bailian => bailian::read(bytes, "fuzz", options),
        TraceFormat::BurstGpt => burstgpt::read(bytes, "fuzz", options),
        TraceFormat::VllmBench => vllm_bench::read(bytes, "fuzz", options),
        TraceFormat::SglangBench => sglang_bench::read(bytes, "fuzz", options),
        TraceFormat::AiPerf => aiperf::read(bytes, "fuzz", options),
        TraceFormat::Guidellm => guidellm::read(bytes, "fuzz", options),
        TraceFormat::Otel => otel::read(bytes, "fuzz", options),
        TraceFormat::VllmVcr => vllm_vcr::read(bytes, "fuzz", options),
        TraceFormat::Csv => plain_csv::read(bytes, "fuzz", options),
        TraceFormat::ShareGpt => sharegpt::read(bytes, "fuzz", options),
    }
}
