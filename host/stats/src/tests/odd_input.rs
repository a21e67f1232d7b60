//! Series that no run should give: an error or a result, never a panic.

use super::processes::ar1;
use crate::warm_up::{SlowClock, SlowPart};
use crate::{
    BetterSide, ComparisonRule, Correlation, ErrorBands, Growth, ModelErrorRow, PairedRun, RunEvidence, WarmUp,
    bootstrap_interval, compare_paired, confidence_sequence, dispersion, mean_interval, mean_of_runs, mean_over_time,
    mser_5, quantile_of_runs, ratio_interval, sample_interval, share_of_runs, state_of,
};

fn odd_series() -> Vec<Vec<f64>> {
    let mut outlier = ar1(1, 1000, 0.5);
    outlier[500] = 1e300;
    let steps: Vec<f64> = (0..1000).map(|i| f64::from(i / 500)).collect();
    vec![
        vec![],
        vec![1.0],
        vec![1.0, 2.0],
        vec![0.0; 99],
        vec![0.1; 1000],
        vec![-1e308; 700],
        vec![f64::MIN_POSITIVE; 700],
        vec![f64::NAN; 700],
        vec![1.0, f64::INFINITY],
        (0..1000).map(|i| f64::from(i % 2)).collect(),
        (0..1000).map(f64::from).collect(),
        steps,
        outlier,
    ]
}

#[test]
fn nothing_panics() {
    for a in odd_series() {
        let _ = (mser_5(&a), Correlation::of(&[&a]), mean_interval(&a, 0.95), sample_interval(&a, 0.95));
        let _ = (mean_interval(&a, f64::NAN), mean_interval(&a, 1.0), mean_interval(&a, 0.0));
        let _ = (dispersion(&a), confidence_sequence(&a, 0.05, 50), share_of_runs(&[&a], 0.95));
        let _ = (quantile_of_runs(&[&a], 0.9, 0.95), quantile_of_runs(&[&a], 0.0, 0.95));
        for b in odd_series().into_iter().step_by(2) {
            let _ = (Growth::of(&a, &b, 1.0), ratio_interval(&a, &b, 0.95), mean_over_time(&a, &b, 0.95));
            let _ = (mean_of_runs(&[&a, &b], 0.95), mean_of_runs(&[&a, &b, &a, &b, &a, &b, &a, &b], 0.95));
            let rule = ComparisonRule::standard(BetterSide::More);
            let _ = compare_paired(&[PairedRun { a: &a, b: &b }, PairedRun { a: &b, b: &a }], &rule);
            let _ = bootstrap_interval(&[&a, &b], 0.95, 1, |columns| columns[0][0] / columns[1][0]);
        }
        let row = |&error: &f64| ModelErrorRow { class: "c", model: "m", deployment: "d", error };
        let _ = ErrorBands::calibrate(&a.iter().map(row).collect::<Vec<_>>(), 0.9);
        let clocks: Vec<SlowClock> = a.iter().map(|&time_s| SlowClock { part: SlowPart::Queue, time_s }).collect();
        let _ = WarmUp::of(&clocks, a.first().copied());
        let nan = RunEvidence { lost_share: f64::NAN, requests_by_instance: vec![0, 0], ..RunEvidence::default() };
        let _ = state_of(&nan);
    }
}

/// What does not vary is known exactly.
#[test]
fn constant_series_have_an_interval_without_width() {
    for runs in 1..10 {
        let series = vec![vec![0.1; 800]; runs];
        let slices: Vec<&[f64]> = series.iter().map(Vec::as_slice).collect();
        let interval = mean_of_runs(&slices, 0.95).expect("finite").interval().expect("long enough");
        assert!((interval.estimate - 0.1).abs() < 1e-15 && interval.half_width() < 1e-12, "{runs} runs: {interval:?}");
    }
}
