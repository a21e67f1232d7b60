#![no_main]

use blis_sim::units::Micros;
use blis_workload::TraceOptions;
use blis_workload::profile::WorkloadProfile;
use blis_workload::trace_v2::{ClosedLoop, ThinkTime, read, read_header};

// Both files of a trace, separated by a line `---`: as recorded, and in closed loop.
libfuzzer_sys::fuzz_target!(|text: &str| {
    let (header, data) = text.split_once("\n---\n").unwrap_or(("", text));
    let Ok(header) = read_header(header.as_bytes(), "fuzz.yaml") else { return };
    let whole = TraceOptions { skip_bad_lines: true, ..TraceOptions::default() };
    if let Ok(workload) = read(data.as_bytes(), "fuzz.csv", &header, &whole) {
        let profile = WorkloadProfile::new(workload, whole.block_size.get()).expect("an empty trace is refused");
        assert!((0.0..=1.0).contains(&profile.ideal_prefix_hit), "{profile:?}");
    }
    let drawn = ThinkTime::LogNormal { mu: 2.0, sigma: 0.6, min: Micros(3_000_000), max: Micros(30_000_000) };
    for (think_time, timeout) in [(None, None), (Some(drawn), Some(Micros(300_000_000)))] {
        let closed_loop = Some(ClosedLoop { think_time, seed: 1, timeout });
        match read(data.as_bytes(), "fuzz.csv", &header, &TraceOptions { closed_loop, ..whole.clone() }) {
            Ok(workload) => blis_fuzz::follow(workload, 100),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
});
