//! Conclusions about two policies that are the same, and about two that are not.

use super::processes::{ServerChoice, TestStream, ar1, routed};
use crate::{
    BetterSide, ComparisonRow, ComparisonRule, DifferenceConclusion, MeanDifference, MeanEstimate, MeanInterval,
    PairedRun, StatisticsError, TooShort, UntilDecided, allow_for_multiplicity, compare_paired, confidence_sequence,
    mean_interval, prediction_interval, quantile_difference, sample_interval, with_lost,
};

const LESS: ComparisonRule = ComparisonRule { margin_share: 0.0, ..ComparisonRule::standard(BetterSide::Less) };

/// Waiting times of one trace under the same policy twice, with other ties.
fn same(seed: u64, n: usize, load: f64, routing: ServerChoice) -> [Vec<f64>; 2] {
    let run = |ties| routed(seed * 7919 + 5, ties, n, load, 4, routing);
    [run(seed * 31 + 1_000_003), run(seed * 37 + 9_000_011)]
}

/// The share of comparisons of the mean that find a difference, and of those of the 90th percentile.
fn false_conclusions(replications: u64, n: usize, load: f64, routing: ServerChoice) -> [f64; 2] {
    let mut found = [0.0; 2];
    for seed in 0..replications {
        let [a, b] = same(seed, n, load, routing);
        let mean = compare_paired(&[PairedRun { a: &a, b: &b }], &LESS).expect("finite").difference;
        let tail = quantile_difference(&[&a], &[&b], 0.9, 0.95).expect("finite");
        let tail = MeanDifference::conclude(&tail, 0.0, BetterSide::Less);
        for (found, difference) in found.iter_mut().zip([mean, tail]) {
            let is_decided =
                matches!(difference.conclusion, DifferenceConclusion::Better | DifferenceConclusion::Worse);
            *found += f64::from(u8::from(is_decided)) / replications as f64;
        }
    }
    found
}

#[test]
fn a_policy_beside_itself_is_undecided() {
    for (n, load, routing) in [(3000, 0.6, ServerChoice::TwoChoices), (1500, 0.9, ServerChoice::Random)] {
        let [mean, tail] = false_conclusions(100, n, load, routing);
        assert!(mean <= 0.08 && tail <= 0.08, "{routing:?} {load}, {n}: {mean} {tail}");
    }
    let [a, _] = same(1, 3000, 0.6, ServerChoice::Random);
    let comparison = compare_paired(&[PairedRun { a: &a, b: &a }], &ComparisonRule::standard(BetterSide::Less));
    let comparison = comparison.expect("finite");
    assert_eq!((comparison.difference.conclusion, comparison.difference.estimate), (DifferenceConclusion::Equal, 0.0));
}

#[test]
#[ignore = "heavy: 1 000 replications of 40 comparisons"]
fn false_conclusions_are_at_most_five_percent() {
    let mut wrong = Vec::new();
    for routing in [ServerChoice::Random, ServerChoice::TwoChoices, ServerChoice::LeastWork] {
        for load in [0.3, 0.6, 0.8, 0.9] {
            for n in [1000, 2000, 4000, 20_000] {
                let [mean, tail] = false_conclusions(1000, n, load, routing);
                let line = format!("A beside A, {routing:?} {load}, {n}: mean {mean:.3} p90 {tail:.3}");
                println!("{line}");
                if mean > 0.06 || tail > 0.075 {
                    wrong.push(line);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// All rows of a table together: mean, three percentiles and a second figure, by Holm's procedure.
#[test]
#[ignore = "heavy: 300 replications of five rows"]
fn false_conclusions_of_a_table_are_at_most_five_percent() {
    let mut wrong = 0;
    for seed in 0..300 {
        let [a, b] = same(seed, 20_000, 0.6, ServerChoice::TwoChoices);
        let mean = compare_paired(&[PairedRun { a: &a, b: &b }], &LESS).expect("finite").difference;
        let tails = [0.5, 0.9, 0.95, 0.99].map(|q| {
            let difference = quantile_difference(&[&a], &[&b], q, 0.95).expect("finite");
            MeanDifference::conclude(&difference, 0.0, BetterSide::Less)
        });
        let row = |difference| ComparisonRow { difference, is_primary: true, margin: 0.0 };
        let mut rows: Vec<ComparisonRow> = [mean].into_iter().chain(tails).map(row).collect();
        allow_for_multiplicity(&mut rows, 0.05);
        wrong += u32::from(rows.iter().any(|row| row.difference.conclusion != DifferenceConclusion::Undecided));
    }
    println!("tables with a false conclusion: {wrong} of 300");
    assert!(wrong <= 24, "{wrong} of 300");
}

#[test]
fn a_better_policy_is_better_and_never_worse() {
    let (mut better, mut worse) = (0, 0);
    for seed in 0..20 {
        let a = routed(seed, 77, 8000, 0.4, 4, ServerChoice::Random);
        let b = routed(seed, 77, 8000, 0.4, 4, ServerChoice::LeastWork);
        let found = compare_paired(&[PairedRun { a: &a, b: &b }], &ComparisonRule::standard(BetterSide::Less));
        let found = found.expect("finite").difference.conclusion;
        better += u32::from(found == DifferenceConclusion::Better);
        worse += u32::from(found == DifferenceConclusion::Worse);
    }
    assert!(better >= 15 && worse == 0, "{better} better, {worse} worse");
}

#[test]
fn conclusions_follow_from_limits_and_margin() {
    let conclude = |low: f64, high: f64, margin: f64, direction| {
        let estimate = f64::midpoint(low, high);
        let standard_error = (high - low) / 4.0;
        let interval = MeanInterval { estimate, low, high, standard_error, freedom: 29.0, confidence: 0.95 };
        MeanDifference::conclude(&MeanEstimate::Known(interval), margin, direction)
    };
    let name = |low, high, margin, direction| conclude(low, high, margin, direction).conclusion.name();
    assert_eq!(name(-3.0, -2.0, 1.0, BetterSide::Less), "better");
    assert_eq!(name(-3.0, -2.0, 1.0, BetterSide::More), "worse");
    assert_eq!(name(2.0, 3.0, 1.0, BetterSide::Less), "worse");
    assert_eq!(name(-0.5, 0.5, 1.0, BetterSide::Less), "equal");
    assert_eq!(name(-3.0, -0.5, 1.0, BetterSide::Less), "undecided");
    // Half the width is 2, the difference 1 beyond the margin of 1: four times as many would tell.
    let undecided = conclude(0.0, 4.0, 1.0, BetterSide::Less);
    assert_eq!((undecided.conclusion, undecided.times_more), (DifferenceConclusion::Undecided, Some(4.0)));
    assert_eq!(conclude(0.0, 0.0, 0.0, BetterSide::Less).times_more, Some(1000.0));
    let decided = conclude(-3.0, -2.0, 0.0, BetterSide::Less);
    assert!(decided.p < 1e-6 && decided.times_more.is_none());
    let short = MeanEstimate::TooShort(TooShort { estimate: 5.0, factor: 3.5 });
    let short = MeanDifference::conclude(&short, 0.0, BetterSide::Less);
    assert_eq!((short.conclusion, short.times_more, short.p), (DifferenceConclusion::Undecided, Some(3.5), 1.0));
}

/// p-values and conclusions agree: 5 % where a limit is at the margin.
#[test]
fn p_values_are_those_of_the_limits() {
    for (low, estimate, high, margin) in [(0.0, 1.5, 4.0, 0.0), (1.0, 4.0, 7.0, 1.0), (-4.0, -1.0, 0.0, 0.0)] {
        let interval = MeanInterval { estimate, low, high, standard_error: 1.0, freedom: 29.0, confidence: 0.95 };
        let p = MeanDifference::conclude(&MeanEstimate::Known(interval), margin, BetterSide::Less).p;
        assert!((p - 0.05).abs() < 1e-9, "{low} {high}: {p}");
    }
}

#[test]
fn broken_input_is_an_error() {
    let compare = |a: &[f64], b: &[f64]| compare_paired(&[PairedRun { a, b }], &LESS).map(|found| found.mean_a);
    assert_eq!(compare(&[1.0], &[]), Err(StatisticsError::Lengths { left: 1, right: 0 }));
    assert_eq!(compare(&[], &[]), Err(StatisticsError::Empty));
    assert_eq!(compare(&[1.0, f64::INFINITY], &[1.0, 2.0]), Err(StatisticsError::NotFinite { index: 1 }));
    assert!(compare_paired(&[], &LESS).is_err());
    assert!(UntilDecided::new(0).is_err() && UntilDecided::new(6).is_err());
    assert!(confidence_sequence(&[1.0], 0.05, 50).is_err() && confidence_sequence(&[1.0, 2.0], 0.7, 50).is_err());
    assert!(sample_interval(&[1.0], 0.95).is_err() && prediction_interval(&[1.0; 4], 0.95).is_err());
}

#[test]
fn lost_requests_count_as_their_deadline() {
    let values = [Some(1.0), None, Some(3.0)];
    assert_eq!(with_lost(&values, Some(30.0)), [1.0, 30.0, 3.0]);
    assert_eq!(with_lost(&values, None), [1.0, 3.0, 3.0]);
    assert_eq!(with_lost(&[None], None), [0.0]);
}

/// Differences −2, −4, −3, −5, −1: mean −3, s² = 10/4, s/√5 = √0.5, t₄ = 2.776445; the next one: s·√1.2.
#[test]
fn samples_by_hand() {
    let samples = [-2.0, -4.0, -3.0, -5.0, -1.0];
    let interval = sample_interval(&samples, 0.95).expect("five");
    assert!((interval.low + 4.963_243_161).abs() < 1e-8 && (interval.high + 1.036_756_839).abs() < 1e-8);
    let next = prediction_interval(&samples, 0.95).expect("five");
    assert!((next.half_width() - 2.776_445_105 * 3.0_f64.sqrt()).abs() < 1e-8, "{next:?}");
}

#[test]
fn looks_stop_when_it_is_decided_or_at_the_last_one() {
    let interval = |estimate| MeanEstimate::Known(MeanInterval::symmetric(estimate, 1.0, 29.0, 0.95));
    let mut until = UntilDecided::new(3).expect("three looks");
    let first = until.look(&interval(-2.2), 0.0, BetterSide::Less);
    assert_eq!(
        (first.difference.conclusion, first.lengthen),
        (DifferenceConclusion::Undecided, Some(2.0)),
        "2.2 < 2.41"
    );
    let second = until.look(&interval(-2.6), 0.0, BetterSide::Less);
    assert_eq!((second.difference.conclusion, second.lengthen), (DifferenceConclusion::Better, None));
    let mut until = UntilDecided::new(1).expect("one look");
    assert_eq!(until.look(&interval(0.1), 0.0, BetterSide::Less).lengthen, None);
}

/// The share of A beside A that one of the looks finds a difference in, data doubling.
#[test]
#[ignore = "heavy: 2 000 replications of up to five looks"]
fn looks_together_are_wrong_in_five_percent() {
    for looks in [1, 3, 5] {
        let mut wrong = 0;
        for seed in 0..2000 {
            let values = ar1(seed * 7919 + 5, 4000 << (looks - 1), 0.5);
            let mut until = UntilDecided::new(looks).expect("in range");
            for look in 0..looks {
                let estimate = mean_interval(&values[..4000 << look], 0.95).expect("finite");
                let found = until.look(&estimate, 0.0, BetterSide::Less).difference.conclusion;
                if found != DifferenceConclusion::Undecided {
                    wrong += 1;
                    break;
                }
            }
        }
        println!("{looks} looks: {wrong} of 2000");
        assert!(wrong <= 120, "{looks} looks: {wrong} of 2000");
    }
}

#[test]
fn a_confidence_sequence_holds_at_all_times() {
    let mut wrong = 0;
    for seed in 0..300 {
        let values = ar1(seed, 400, 0.0);
        let holds = |n: usize| confidence_sequence(&values[..n], 0.05, 50).expect("finite").contains(0.0);
        wrong += u32::from(!(20..400).all(holds));
    }
    assert!(wrong <= 24, "{wrong} of 300");
}

/// Probability that one of `looks` looks, at data that double, is beyond `constant` standard errors: the density of the sum within the
/// limits, by Simpson's rule from look to look.
fn crossing(looks: usize, constant: f64) -> f64 {
    const STEPS: usize = 200;
    let grid = |n: f64| -> Vec<f64> {
        let most = constant * n.sqrt();
        (0..=STEPS).map(|step| most * (2.0 * step as f64 / STEPS as f64 - 1.0)).collect()
    };
    let simpson = |density: &[f64], xs: &[f64]| -> f64 {
        let weight = |step: usize| if step == 0 || step == STEPS { 1.0 } else { 2.0 + 2.0 * (step % 2) as f64 };
        density.iter().enumerate().map(|(step, f)| weight(step) * f).sum::<f64>() * (xs[1] - xs[0]) / 3.0
    };
    let normal = |x: f64, variance: f64| (-x * x / (2.0 * variance)).exp() / (std::f64::consts::TAU * variance).sqrt();
    let (mut n, mut xs) = (1.0, grid(1.0));
    let mut density: Vec<f64> = xs.iter().map(|&x| normal(x, 1.0)).collect();
    for _ in 1..looks {
        let next = grid(2.0 * n);
        let at = |y: f64| {
            let moved: Vec<f64> = density.iter().zip(&xs).map(|(f, x)| f * normal(y - x, n)).collect();
            simpson(&moved, &xs)
        };
        density = next.iter().map(|&y| at(y)).collect();
        (n, xs) = (2.0 * n, next);
    }
    1.0 - simpson(&density, &xs)
}

#[test]
fn constants_of_looks_are_wrong_in_five_percent() {
    for (looks, constant) in crate::looks::CONSTANTS.into_iter().enumerate() {
        let wrong = crossing(looks + 1, constant);
        assert!((wrong - 0.05).abs() < 2e-4, "{} looks: {wrong}", looks + 1);
    }
}

/// Differences that are 0 but for a few requests decide nothing, however large those are.
#[test]
fn few_differences_decide_nothing() {
    let mut stream = TestStream::new(3);
    let a: Vec<f64> = (0..5000).map(|_| stream.exp(1.0)).collect();
    let b: Vec<f64> = a.iter().enumerate().map(|(i, a)| if i % 500 == 7 { a + 10.0 } else { *a }).collect();
    let found = compare_paired(&[PairedRun { a: &a, b: &b }], &LESS).expect("finite").difference;
    assert_eq!((found.conclusion, found.times_more), (DifferenceConclusion::Undecided, Some(2.0)));
}
