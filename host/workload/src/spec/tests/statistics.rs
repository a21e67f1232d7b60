//! Every arrival process and length distribution against its formula, at fixed seeds.

use blis_sim::rng::Stream;
use statrs::distribution::{ContinuousCDF as _, Exp, Gamma, LogNormal, Normal, Pareto, Weibull};

use super::super::arrival::{IntervalShape, Intervals};
use super::super::lengths::{Bounds, LONGEST};
use super::*;

const COUNT: usize = 20_000;

/// The inter-arrival times of a single client with 50 requests per second.
fn intervals(arrival: Arrival) -> Vec<f64> {
    let client = Client { arrival, ..client("a", 1.0) };
    let (requests, _) = requests(&Spec { num_requests: Some(COUNT as u64 + 1), ..spec(50.0, vec![client]) });
    requests.windows(2).map(|pair| (pair[1].arrival.0 - pair[0].arrival.0) as f64).collect()
}

/// Truncation to whole µs, at least 1: drawn values from n to below n + 1 become n.
fn check_intervals(arrival: Arrival, cv: f64, cdf: impl Fn(f64) -> f64) {
    let stated = Intervals::new(arrival, 50.0).squared_cv;
    assert!((stated / (cv * cv) - 1.0).abs() < 1e-5, "{arrival:?}: {stated} is stated");
    let values = intervals(arrival);
    let (mean, _) = mean_and_stdev(values.iter().copied());
    // 99 % of the means of n independent values with this coefficient of variation are within it.
    let expected = 20_000.0;
    assert!((mean / expected - 1.0).abs() < 2.576 * cv / (COUNT as f64).sqrt() + 1e-4, "{arrival:?}: mean {mean} µs");
    check_cv(&values, cv, &format!("{arrival:?}"));
    let below = |us: f64| if us <= 1.0 { 0.0 } else { cdf(us) };
    let distance = kolmogorov_smirnov(values, below, |us| cdf(us + 1.0));
    assert!(distance < one_percent(COUNT), "{arrival:?}: distance {distance}");
}

/// Asserts that the coefficient of variation c of independent `values` lies within the 99 % interval around `cv`. By
/// the delta method its variance is c²/n ((κ − 1)/4 − c γ + c²), with skewness γ and kurtosis κ.
fn check_cv(values: &[f64], cv: f64, of: &str) {
    let n = values.len() as f64;
    let (mean, stdev) = mean_and_stdev(values.iter().copied());
    let moment = |power| values.iter().map(|value| ((value - mean) / stdev).powi(power)).sum::<f64>() / n;
    let seen = stdev / mean;
    let variance = seen * seen / n * ((moment(4) - 1.0) / 4.0 - seen * moment(3) + seen * seen);
    let most = 2.576 * variance.sqrt();
    assert!((seen - cv).abs() < most, "{of}: cv {seen}, not within {most} of {cv}");
    assert!(most < 0.1 * cv, "{of}: {most} says little about {cv}");
}

#[test]
fn poisson_intervals_are_exponential() {
    let exp = Exp::new(1.0 / 20_000.0).unwrap();
    check_intervals(Arrival::Poisson, 1.0, |us| exp.cdf(us));
}

#[test]
fn gamma_intervals_have_their_coefficient_of_variation() {
    for cv in [0.5_f64, 1.0, 3.5] {
        let gamma = Gamma::new(1.0 / (cv * cv), 1.0 / (cv * cv * 20_000.0)).unwrap();
        check_intervals(Arrival::Gamma(IntervalShape::Cv(cv)), cv, |us| gamma.cdf(us));
    }
}

#[test]
fn weibull_intervals_have_their_coefficient_of_variation() {
    // k from tables: CV 1 is k = 1, CV 2.236 is k = 0.5 (Γ(5) / Γ(3)² − 1 = 5).
    for (cv, shape, scale) in [(1.0, 1.0, 20_000.0), (5_f64.sqrt(), 0.5, 10_000.0)] {
        let weibull = Weibull::new(shape, scale).unwrap();
        check_intervals(Arrival::Weibull(IntervalShape::Cv(cv)), cv, |us| weibull.cdf(us));
    }
    for cv in [0.01, 0.1, 0.7, 3.0, 10.4] {
        let intervals = Intervals::new(Arrival::Weibull(IntervalShape::Cv(cv)), 1.0);
        assert!((intervals.mean_us / 1e6 - 1.0).abs() < 1e-6, "cv {cv}: mean {} µs", intervals.mean_us);
    }
}

#[test]
fn shape_and_scale_replace_the_rate() {
    let own = IntervalShape::Own { shape: 4.0, scale_us: 5_000.0 };
    let gamma = Gamma::new(4.0, 1.0 / 5_000.0).unwrap();
    check_intervals(Arrival::Gamma(own), 0.5, |us| gamma.cdf(us));
    let weibull = Weibull::new(2.0, 20_000.0 / statrs::function::gamma::gamma(1.5)).unwrap();
    let own = IntervalShape::Own { shape: 2.0, scale_us: weibull.scale() };
    check_intervals(Arrival::Weibull(own), 0.522_723, |us| weibull.cdf(us));
}

#[test]
fn constant_intervals_truncate_as_in_blis() {
    let client = Client { arrival: Arrival::Constant, ..client("a", 0.5) };
    let (requests, _) = requests(&Spec { num_requests: Some(3), ..spec(10.0, vec![client]) });
    assert_eq!(requests.iter().map(|r| r.arrival.0).collect::<Vec<_>>(), [99_999, 199_998, 299_997]);
}

fn drawn(lengths: &Lengths) -> Vec<f64> {
    let stream = Stream::new(42, "lengths");
    (0..COUNT as u64).map(|n| f64::from(lengths.draw(&mut stream.at(n)))).collect()
}

/// Rounded and clamped: n stands for the interval from n − ½ to n + ½, the bounds for everything beyond.
fn check_lengths(lengths: &Lengths, min: f64, max: f64, cdf: impl Fn(f64) -> f64) {
    let values = drawn(lengths);
    assert!(values.iter().all(|tokens| (min..=max).contains(tokens) && tokens.fract() == 0.0), "{lengths:?}");
    let below = |tokens: f64| if tokens <= min { 0.0 } else { cdf(tokens - 0.5) };
    let at_most = |tokens: f64| if tokens >= max { 1.0 } else { cdf(tokens + 0.5) };
    let distance = kolmogorov_smirnov(values, below, at_most);
    assert!(distance < one_percent(COUNT), "{lengths:?}: distance {distance}");
}

#[test]
fn lengths_are_distributed_as_stated() {
    let longest = f64::from(LONGEST);
    let normal = Normal::new(500.0, 200.0).unwrap();
    check_lengths(&Lengths::gaussian(500.0, 200.0, 100, 900), 100.0, 900.0, |t| normal.cdf(t));
    let exp = Exp::new(1.0 / 300.0).unwrap();
    check_lengths(&Lengths::exponential(300.0), 1.0, longest, |t| exp.cdf(t));
    let bounds = Bounds { min: 50, max: 2000 };
    check_lengths(&Lengths::Exponential { mean: 300.0, bounds }, 50.0, 2000.0, |t| exp.cdf(t));
    let lognormal = LogNormal::new(6.0, 0.8).unwrap();
    check_lengths(&Lengths::LogNormal { mu: 6.0, sigma: 0.8, bounds }, 50.0, 2000.0, |t| lognormal.cdf(t));
    let pareto = Pareto::new(100.0, 1.5).unwrap();
    let mixed = Lengths::ParetoLogNormal { alpha: 1.5, xm: 100.0, mu: 6.0, sigma: 0.8, mix_weight: 0.3 };
    check_lengths(&mixed, 1.0, longest, |t| 0.3 * pareto.cdf(t) + 0.7 * lognormal.cdf(t));
    let uniform = Lengths::Uniform(Bounds { min: 11, max: 20 });
    check_lengths(&uniform, 11.0, 20.0, |t| (t - 10.5) / 10.0);
    assert!(drawn(&Lengths::Constant(7)).iter().all(|&tokens| tokens == 7.0));
}

#[test]
fn counted_lengths_come_as_often_as_counted() {
    let weights = [(700, 1.0), (10, 2.0), (30, 0.0), (20, 5.0), (40, -1.0)];
    let empirical = Lengths::Empirical(Empirical::new(weights).unwrap().into());
    let sum = |at_most: f64| {
        weights.iter().filter(|w| f64::from(w.0) <= at_most && w.1 > 0.0).map(|w| w.1).sum::<f64>() / 8.0
    };
    check_lengths(&empirical, 10.0, 700.0, sum);
    assert_eq!(Empirical::new([(1, 0.0)]), None);
}

#[test]
fn a_lognormal_distribution_has_the_mean_asked_for() {
    let lengths = Lengths::lognormal_of(4000.0, 2500.0, Bounds::NONE);
    let (mean, stdev) = mean_and_stdev(drawn(&lengths).into_iter());
    assert!((mean / 4000.0 - 1.0).abs() < 0.015 && (stdev / 2500.0 - 1.0).abs() < 0.06, "{mean} ± {stdev}");
}

/// Four clients at the same time: each has its share of the rate and its own coefficient of variation.
#[test]
fn each_client_has_its_share_and_its_burstiness() {
    let gamma = |cv| Arrival::Gamma(IntervalShape::Cv(cv));
    let of = |id: &str, share, arrival| Client { arrival, ..client(id, share) };
    let clients = vec![
        of("steady", 1.0, gamma(0.3)),
        of("poisson", 2.0, Arrival::Poisson),
        of("bursty", 4.0, gamma(2.0)),
        of("weibull", 3.0, Arrival::Weibull(IntervalShape::Cv(1.5))),
    ];
    let horizon = secs(1000);
    let (requests, names) = requests(&Spec { horizon: Some(horizon), ..spec(100.0, clients) });
    for (id, rate, cv) in [("steady", 10.0, 0.3), ("poisson", 20.0, 1.0), ("bursty", 40.0, 2.0), ("weibull", 30.0, 1.5)]
    {
        let arrivals: Vec<f64> = of_client(&requests, &names, id).iter().map(|r| r.0.0 as f64).collect();
        let count = arrivals.len() as f64;
        // The count of a renewal process has the variance n cv² (central limit theorem).
        let expected = rate * 1000.0;
        assert!((count - expected).abs() < 2.576 * cv * f64::sqrt(expected), "{id}: {count} of {expected}");
        let gaps: Vec<f64> = arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect();
        check_cv(&gaps, cv, id);
    }
}
