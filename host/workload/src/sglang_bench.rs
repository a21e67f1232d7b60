//! Results of SGLang's `bench_serving --output-details`: JSON lines, one per run.
//!
//! The results contain no start times. Requests arrive at constant inter-arrival times, `request_rate` per second;
//! where that is `inf` (all at once) or `trace`, nothing is known of the arrivals and the file is refused. Each of
//! several runs starts at the end of the one before.

use std::io::BufRead;

use super::bench::{self, Rate};
use super::error::TraceError;
use super::{TraceOptions, Workload};
use blis_diag::RowError;

/// Reads results of SGLang's `bench_serving`.
///
/// # Errors
/// See [`TraceError`].
pub fn read(input: impl BufRead, file: &str, options: &TraceOptions) -> Result<Workload, TraceError> {
    bench::read::<false>(input, file, options, "--output-details", |run, requests| {
        let rate = match &run.request_rate {
            Some(Rate::Finite(rate)) if *rate > 0.0 => *rate,
            Some(Rate::Finite(rate)) => return Err(RowError::new(format!("`request_rate` is {rate}, not above 0"))),
            Some(Rate::Word(word)) => {
                return Err(RowError::new(format!(
                    "`request_rate` is `{word}`: the file does not contain when requests arrived"
                ))
                .hint("benchmark at a rate of so many requests per second, or replay the trace that was used"));
            }
            None => return Err(RowError::new("`request_rate` is missing")),
        };
        let at: Vec<u64> = (0..requests).map(|index| (index as f64 * 1e6 / rate) as u64).collect();
        let end = run.end((requests as f64 * 1e6 / rate) as u64)?;
        Ok((at, end))
    })
    .map(|mut workload| {
        workload.notes.push(
            "arrivals are not recorded: requests arrive at constant inter-arrival times, by `request_rate`".into(),
        );
        workload
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(text: &str) -> Result<Workload, TraceError> {
        read(text.as_bytes(), "s.jsonl", &TraceOptions::default())
    }

    const RUN: &str = r#"{"tag": null, "backend": "sglang", "dataset_name": "random", "request_rate": 4.0, "duration": 2.0,
        "completed": 2, "input_lens": [10, 20, 30], "output_lens": [5, 6, 0], "ttfts": [0.1, 0.2, 0.0], "errors": ["", "", "x"]}"#;

    #[test]
    fn arrivals_follow_from_the_rate() {
        let workload = trace(&format!("{RUN}\n{RUN}")).unwrap();
        let arrivals: Vec<_> = workload.requests.map(|r| (r.id.0, r.arrival.0, r.input_tokens)).collect();
        assert_eq!(arrivals, [(0, 0, 10), (1, 250_000, 20), (3, 2_000_000, 10), (4, 2_250_000, 20)]);
    }

    #[test]
    fn without_a_rate_nothing_is_made_up() {
        let error = |rate: &str| trace(&RUN.replace("4.0", rate)).unwrap_err().to_string();
        insta::assert_snapshot!(error("\"trace\""), @r"
        s.jsonl:2: `request_rate` is `trace`: the file does not contain when requests arrived
        hint: benchmark at a rate of so many requests per second, or replay the trace that was used
        ");
        insta::assert_snapshot!(error("Infinity"), @r"
        s.jsonl:2: `request_rate` is `inf`: the file does not contain when requests arrived
        hint: benchmark at a rate of so many requests per second, or replay the trace that was used
        ");
        insta::assert_snapshot!(error("0"), @"s.jsonl:2: `request_rate` is 0, not above 0");
        insta::assert_snapshot!(trace(&RUN.replace("\"input_lens\"", "\"x\"")).unwrap_err(), @r"
        s.jsonl:2: the list is missing: `input_lens`
        hint: the result contains no single requests; benchmark with `--output-details`
        ");
    }
}
