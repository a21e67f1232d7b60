//! Results of `vllm bench serve --save-result --save-detailed`: one JSON object, or several with `--append-result`.
//!
//! Request `i` arrives at `start_times[i]` (s) minus the earliest of them; its lengths are `input_lens[i]` and
//! `output_lens[i]`. Failed requests, which have an error or no output tokens, are left out and counted. Each of
//! several runs starts at the end of the one before. Latencies, where they are wanted: `ttfts[i]` (s), and `latencies[i]`
//! or else the sum of `itls[i]` after it.

use std::io::BufRead;

use super::bench::{self, BenchRun};
use super::error::TraceError;
use super::json::{Number, SECOND};
use super::{TraceOptions, Workload};
use blis_diag::RowError;

/// Reads results of `vllm bench serve`.
///
/// # Errors
/// See [`TraceError`].
pub fn read(input: impl BufRead, file: &str, options: &TraceOptions) -> Result<Workload, TraceError> {
    if options.recorded_times {
        bench::read::<true>(input, file, options, "--save-detailed", arrivals)
    } else {
        bench::read::<false>(input, file, options, "--save-detailed", arrivals)
    }
}

/// The arrivals of a run, µs from its start, and its end.
fn arrivals<const TIMES: bool>(run: &BenchRun<TIMES>, _: usize) -> Result<(Vec<u64>, u64), RowError> {
    let starts = run.start_times().map_err(|fault| fault.hint("benchmark with `--save-detailed`"))?;
    let first = starts.iter().copied().fold(f64::INFINITY, f64::min);
    let at = |&start: &f64| Number::Real(start - first).micros("start_times", SECOND);
    let at = starts.iter().map(at).collect::<Result<Vec<u64>, RowError>>()?;
    let end = run.end(at.iter().copied().max().unwrap_or(0))?;
    Ok((at, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trace(text: &str) -> Result<Workload, TraceError> {
        read(text.as_bytes(), "v.json", &TraceOptions::default())
    }

    const RUN: &str = r#"{"date": "20250101-000000", "model_id": "m", "num_prompts": 4, "request_rate": "inf",
        "duration": 12.5, "mean_ttft_ms": NaN, "input_lens": [10, 20, 30, 40], "output_lens": [5, 0, 7, 8],
        "ttfts": [0.1, 0.2, NaN, 0.3], "itls": [[0.01], [], [0.1, 0.2], []], "generated_texts": ["a \"{", "", "NaN", "d"],
        "start_times": [1000.5, 1000.25, 1001.25, 1000.75], "errors": ["", "boom", "", ""]}"#;

    #[test]
    fn arrivals_count_from_the_earliest_start() {
        let workload = trace(RUN).unwrap();
        let notes = [
            "recorded with `m`",
            "1 failed request left out",
            "the rows are not in order of arrival; they were sorted",
        ];
        assert_eq!(workload.notes, notes);
        let seen: Vec<_> =
            workload.requests.map(|r| (r.id.0, r.arrival.0, r.input_tokens, r.output_tokens, r.tags.model.0)).collect();
        // It may be simulated with another model.
        assert_eq!(seen, [(0, 250_000, 10, 5, 0), (3, 500_000, 40, 8, 0), (2, 1_000_000, 30, 7, 0)]);
    }

    #[test]
    fn latencies_are_the_first_gap_and_all_gaps() {
        let options = TraceOptions { recorded_times: true, ..TraceOptions::default() };
        let run = RUN.replace("0.2, NaN, 0.3", "0.2, 0.25, 0.3");
        let read = |text: &str| read(text.as_bytes(), "v.json", &options);
        let of = |text: &str| -> Vec<_> {
            let recorded = read(text).unwrap().recorded.into_iter();
            recorded.map(|(id, times)| (id.0, times.ttft_us.round(), times.e2e_us.round())).collect()
        };
        // 0.1 + 0.01, 0.25 + 0.1 + 0.2 and 0.3 s; the second request failed.
        let gaps = [(0, 100_000.0, 110_000.0), (2, 250_000.0, 550_000.0), (3, 300_000.0, 300_000.0)];
        assert_eq!(of(&run), gaps);
        let latencies = run.replace("\"itls\"", "\"latencies\": [0.2, NaN, 0.6, 0.3], \"itls\"");
        assert_eq!(of(&latencies)[0], (0, 100_000.0, 200_000.0));
        insta::assert_snapshot!(read(RUN).unwrap_err(), @"v.json:4: request 2 has no valid latencies: `ttfts`, `itls` or `latencies`");
        insta::assert_snapshot!(read(&run.replace("\"ttfts\"", "\"x\"")).unwrap_err(), @r"
        v.json:4: the list is missing: `ttfts`
        hint: the result contains no latencies of single requests; benchmark with `--save-detailed`
        ");
        assert!(trace(RUN).unwrap().recorded.is_empty(), "a replay needs no latencies");
    }

    #[test]
    fn appended_runs_follow_each_other() {
        let workload = trace(&format!("{RUN}\n{RUN}\n")).unwrap();
        assert!(workload.notes.contains(&"2 consecutive runs".to_owned()), "{:?}", workload.notes);
        let seen: Vec<_> = workload.requests.map(|r| (r.id.0, r.arrival.0)).collect();
        let expected = [(0, 250_000), (3, 500_000), (2, 1_000_000), (4, 12_750_000), (7, 13_000_000), (6, 13_500_000)];
        assert_eq!(seen, expected);
    }

    #[test]
    fn errors_say_where() {
        let error = |from: &str, to: &str| trace(&RUN.replace(from, to)).unwrap_err().to_string();
        insta::assert_snapshot!(error("\"start_times\"", "\"times\""), @r"
        v.json:4: `start_times` is missing
        hint: benchmark with `--save-detailed`
        ");
        insta::assert_snapshot!(error("\"input_lens\"", "\"lens\""), @r"
        v.json:4: the list is missing: `input_lens`
        hint: the result contains no single requests; benchmark with `--save-detailed`
        ");
        insta::assert_snapshot!(error("[5, 0, 7, 8]", "[5, 0, 7]"), @"v.json:4: 4 `input_lens`, but 3 `output_lens`");
        insta::assert_snapshot!(error("[5, 0, 7, 8]", "[5, 0, -7, 8]"), @"v.json:2:106: `output_lens[2]` is negative: `-7`");
        insta::assert_snapshot!(error("1001.25", "NaN"), @"v.json:4:43: not a finite number");
        insta::assert_snapshot!(error("\"itls\"", "\"errors\": [], \"itls\""), @"v.json:4:91: duplicate field `errors`");
        insta::assert_snapshot!(trace(&RUN[..300]).unwrap_err(), @"v.json:3:106: EOF while parsing a value");
        insta::assert_snapshot!(trace("[]").unwrap_err(), @"v.json:1:1: invalid type: sequence, expected an object with the results of a benchmark");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, at in 0_usize..400, byte: u8) {
            let _ = read(bytes.as_slice(), "x", &TraceOptions::default());
            let mut run = RUN.as_bytes().to_vec();
            run[at % RUN.len()] = byte;
            let _ = read(run.as_slice(), "x", &TraceOptions::default());
        }
    }
}
