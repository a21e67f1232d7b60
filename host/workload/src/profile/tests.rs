use super::*;
use crate::{TraceOptions, mooncake, open_trace};
use blis_sim::ids::RequestId;
use blis_sim::request::{Content, Span};
use blis_sim::units::Micros;
use std::path::Path;

fn profile(text: &str) -> WorkloadProfile {
    let workload = mooncake::read(text.as_bytes(), "t.jsonl", &TraceOptions::default()).unwrap();
    WorkloadProfile::new(workload, 16).unwrap()
}

fn lines(times: &[u64]) -> String {
    let line = |(n, ms): (usize, &u64)| {
        let session = n % 2;
        format!(
            "{{\"timestamp\": {ms}, \"input_length\": {}, \"output_length\": {n}, \"hash_ids\": [1], \"session_id\": {session}}}\n",
            32 << n
        )
    };
    times.iter().enumerate().map(line).collect()
}

#[test]
fn figures_are_those_of_the_definition() {
    let profile = profile(&lines(&[0, 1_000, 2_000, 3_000]));
    assert_eq!((profile.requests, profile.span_s, profile.requests_per_s), (4, 3.0, Some(4.0 / 3.0)));
    assert_eq!((profile.interarrival_cv, profile.peak_requests_per_s), (Some(0.0), 1));
    let input = &profile.input_tokens;
    assert_eq!((input.total, input.mean, input.p50, input.p90, input.max), (480, 120.0, 64, 256, 256));
    // 32, 64 and 128 tokens were in the cache when the prompts of 64, 128 and 256 arrived.
    assert!((profile.ideal_prefix_hit - 224.0 / 480.0).abs() < 1e-12, "{}", profile.ideal_prefix_hit);
    assert_eq!((profile.sessions.count, profile.sessions.requests, profile.sessions.turns_max), (2, 4, 2));
    assert!(profile.classes.is_empty() && profile.models.is_empty());
    // Gaps of 0, 0, 0 and 4 s: mean 1, variance 3.
    let profile = self::profile(&lines(&[0, 0, 0, 0, 4_000]));
    assert!((profile.interarrival_cv.unwrap() - 3.0_f64.sqrt()).abs() < 1e-12);
    assert_eq!(profile.peak_requests_per_s, 4);
    assert_eq!(self::profile(&lines(&[7, 7])).requests_per_s, None);
}

#[test]
fn prefixes_of_billions_of_tokens_are_counted_by_the_run() {
    let request = |id: u32, spans: &[(u32, u32)]| {
        let spans: Vec<Span> = spans.iter().map(|&(first, len)| Span { first, len }).collect();
        let content = Content::shared(&spans);
        Request { content, ..Request::new(RequestId(id), Micros(0), 4_000_000_000, 1) }
    };
    let requests = vec![
        request(0, &[(0, 1_000_000_000)]),
        request(1, &[(2_000_000_000, 7), (500_000_000, 1_000_000_000)]),
        // All blocks of the first billion tokens, and of the half billion after it.
        request(2, &[(0, 2_000_000_000)]),
        // Not the 8th block of the second request; nothing after a gap is a hit.
        request(3, &[(2_000_000_000, 8), (0, 5)]),
    ];
    let (requests, count) = (Box::new(requests.into_iter()), Some(4));
    let (names, slo_targets, skipped, notes) = Default::default();
    let workload = Workload {
        requests,
        follow_ups: None,
        count,
        names,
        slo_targets,
        aside: std::collections::BTreeSet::new(),
        recorded: Vec::new(),
        skipped,
        notes,
    };
    let profile = WorkloadProfile::new(workload, 1).unwrap();
    assert_eq!(profile.ideal_prefix_hit, 1_500_000_007.0 / 16_000_000_000.0);
}

#[test]
fn a_profile_fits_its_terminal() {
    let profile = profile(&lines(&[0, 500, 2_000, 2_000, 9_000]));
    insta::assert_snapshot!(ProfileText { profile: &profile, width: 60, colour: false });
    for width in [0, 40, 77, 400] {
        let text = ProfileText { profile: &profile, width, colour: false }.to_string();
        let bars = text.lines().filter(|line| line.contains(['█', '▁', '▏', '▌']));
        assert!(bars.clone().count() >= 9);
        assert!(bars.map(|line| line.chars().count()).all(|n| n <= width.clamp(40, 100)), "{width}\n{text}");
        let coloured = ProfileText { profile: &profile, width, colour: true }.to_string();
        assert_eq!(coloured.replace("\x1b[36m", "").replace("\x1b[0m", ""), text);
    }
}

/// The table of published traces: number of requests, span, rate, CV, mean, p50, p90, p99, max, ideal hit rate in %.
#[test]
fn published_traces_have_their_published_figures() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/traces"));
    type PublishedFigures = [u32; 5];
    type Published = (&'static str, u64, [f64; 3], PublishedFigures, PublishedFigures, f64);
    let table: [Published; 3] = [
        (
            "azure-2023/AzureLLMInferenceTrace_code.csv",
            8_819,
            [3_436.0, 2.57, 13.2],
            [2_048, 1_469, 5_188, 7_436, 7_437],
            [28, 13, 55, 251, 1_899],
            0.0,
        ),
        (
            "azure-2023/AzureLLMInferenceTrace_conv.csv",
            19_366,
            [3_502.0, 5.53, 1.09],
            [1_155, 1_020, 2_734, 4_142, 14_050],
            [211, 129, 424, 601, 1_000],
            0.0,
        ),
        (
            "mooncake/synthetic_trace.jsonl",
            3_993,
            [1_022.0, 3.91, 1.01],
            [15_325, 11_587, 38_611, 66_456, 191_378],
            [149, 69, 389, 768, 893],
            65.1,
        ),
    ];
    for (file, requests, [span, rate, cv], input, output, hit) in table {
        let path = folder.join(file);
        if !path.exists() {
            #[allow(clippy::print_stderr, reason = "a test that did nothing must say so")]
            {
                eprintln!("skipped: {} is not there", path.display());
            }
            continue;
        }
        let profile = WorkloadProfile::new(open_trace(&path, &TraceOptions::default()).unwrap(), 16).unwrap();
        assert_eq!(profile.requests, requests);
        assert!((profile.span_s - span).abs() <= 1.0, "{file}: {}", profile.span_s);
        assert!((profile.requests_per_s.unwrap() - rate).abs() < 0.006, "{file}: {:?}", profile.requests_per_s);
        assert!((profile.interarrival_cv.unwrap() / cv - 1.0).abs() < 0.01, "{file}: {:?}", profile.interarrival_cv);
        assert!((profile.ideal_prefix_hit * 100.0 - hit).abs() < 0.05, "{file}: {}", profile.ideal_prefix_hit);
        for (lengths, [mean, p50, p90, p99, max]) in [(&profile.input_tokens, input), (&profile.output_tokens, output)]
        {
            assert_eq!(lengths.mean.round() as u32, mean, "{file}");
            // Between two ranks the table may contain the lower one.
            for (ours, published) in [(lengths.p50, p50), (lengths.p90, p90), (lengths.p99, p99), (lengths.max, max)] {
                let near = f64::from(ours.abs_diff(published)) <= (0.003 * f64::from(published)).max(1.0);
                assert!(near, "{file}: {ours} for {published}");
            }
        }
    }
}
