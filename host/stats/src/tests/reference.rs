//! `../shared/cases/statistics`: recipes of series with what the procedures say of them, and runs with their states.

use std::collections::BTreeMap;
use std::io::Read as _;

use flate2::read::GzDecoder;
use serde::Deserialize;

use super::processes::{ServiceTimes, TestStream, ar1, single_server};
use super::shared;
use crate::warm_up::{SlowClock, SlowPart};
use crate::{
    BetterSide, Correlation, Growth, MeanDifference, MeanEstimate, RunEvidence, WarmUp, mean_interval, mser_5, state_of,
};

#[derive(Deserialize)]
struct Recipe {
    id: String,
    process: String,
    seed: u64,
    n: usize,
    #[serde(default)]
    phi: f64,
    #[serde(default)]
    mean: f64,
    #[serde(default)]
    lambda: f64,
    #[serde(default)]
    spike: f64,
    #[serde(default)]
    height: f64,
    #[serde(default)]
    scale: f64,
    expected: ExpectedCase,
}

#[derive(Deserialize)]
struct ExpectedCase {
    mean: f64,
    autocovariance_0: f64,
    bandwidth: usize,
    block_length: f64,
    correlation_time: f64,
    mser5: Option<usize>,
    interval: ExpectedInterval,
    /// The conclusion, among others.
    #[serde(flatten)]
    others: BTreeMap<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct ExpectedInterval {
    state: String,
    half: Option<f64>,
    more: Option<f64>,
}

impl ExpectedCase {
    /// The conclusion about the mean, if the recipe has one: the first text of an object.
    fn conclusion(&self) -> Option<&str> {
        self.others.values().find_map(|value| value.as_object()?.values().find_map(serde_json::Value::as_str))
    }
}

impl Recipe {
    fn series(&self) -> Vec<f64> {
        let slow = || ar1(self.seed, self.n, self.phi).into_iter();
        match self.process.as_str() {
            "ar1" => slow().map(|x| self.mean + x).collect(),
            "ar1+spikes" => {
                let mut stream = TestStream::new(self.seed + 1);
                let spike = |stream: &mut TestStream| if stream.uniform() < 0.01 { 50.0 * self.spike } else { 0.0 };
                slow().map(|x| self.mean + x + spike(&mut stream)).collect()
            }
            "mm1" => single_server(self.seed, self.n, self.lambda, ServiceTimes::Exponential),
            "ramp" => slow().enumerate().map(|(i, x)| x + self.height * (-(i as f64) / self.scale).exp()).collect(),
            other => panic!("an unknown process: {other}"),
        }
    }
}

fn assert_close(id: &str, what: &str, found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{id}, {what}: {found}, not {expected}");
}

#[test]
fn numbers_are_those_of_the_reference() {
    let Some(text) = shared("processes.json") else { return };
    let recipes: Vec<Recipe> = serde_json::from_slice(&text).expect("recipes");
    for recipe in &recipes {
        let (id, values, expected) = (recipe.id.as_str(), recipe.series(), &recipe.expected);
        let found = Correlation::of(&[&values]).expect("finite");
        assert_close(id, "variance", found.variance, expected.autocovariance_0);
        assert_close(id, "block length", found.block_length, expected.block_length);
        assert_close(id, "correlation time", found.time, expected.correlation_time);
        assert_eq!((id, found.bandwidth), (id, expected.bandwidth));
        assert_eq!((id, mser_5(&values)), (id, Ok(expected.mser5)));
        check_interval(id, &values, expected);
    }
}

/// The reference has no correction for skewness: its half width is the standard error times the quantile.
fn check_interval(id: &str, values: &[f64], expected: &ExpectedCase) {
    let estimate = mean_interval(values, 0.95).expect("finite");
    assert_close(id, "mean", estimate.estimate(), expected.mean);
    match (&estimate, expected.interval.half) {
        (MeanEstimate::Known(interval), Some(half)) => {
            assert_eq!((id, expected.interval.state.as_str()), (id, "ok"));
            let quantile = crate::t_quantile(interval.freedom, 0.95);
            assert_close(id, "half width", quantile * interval.standard_error, half);
        }
        (MeanEstimate::TooShort(short), None) => {
            assert_close(id, "factor", short.factor, expected.interval.more.expect("a factor"));
        }
        _ => panic!("{id}: {estimate:?}, not {}", expected.interval.state),
    }
    if let Some(expected) = expected.conclusion() {
        let found = MeanDifference::conclude(&estimate, 0.0, BetterSide::Less).conclusion.name();
        assert_eq!((id, found), (id, expected));
    }
}

#[derive(Deserialize)]
struct LabelledRun {
    file: String,
    label: String,
}

/// A run of `state/`: what is known of it, and of its specification.
fn evidence(name: &str) -> Option<RunEvidence> {
    let bytes = shared(&format!("state/{name}"))?;
    let mut text = String::new();
    GzDecoder::new(&bytes[..]).read_to_string(&mut text).expect("a compressed file");
    let rows: Vec<(f64, Option<f64>, u8)> =
        csv::Reader::from_reader(text.as_bytes()).deserialize().map(|row| row.expect("a row")).collect();
    let arrivals: Vec<f64> = rows.iter().map(|row| row.0).collect();
    let ends: Vec<f64> = rows.iter().map(|row| row.1.unwrap_or(f64::INFINITY)).collect();
    let life_s = match name {
        "sessions-ramp-short.csv.gz" => 9.0 * 60.0 + 10.0,
        "sessions-70.csv.gz" => 9.0 * 20.0 + 10.0,
        "sessions-125-shared.csv.gz" => 19.0 * 10.0 + 20.0,
        _ => 0.0,
    };
    let warm_up = WarmUp::of(&[SlowClock { part: SlowPart::Sessions, time_s: life_s }], None).expect("valid");
    let lost = rows.iter().filter(|row| row.2 == 0).count();
    let span_s = arrivals[arrivals.len() - 1] - arrivals[0];
    let is_ramp = warm_up.warm_up_s >= span_s;
    let is_full = name == "closed-300-users.csv.gz";
    Some(RunEvidence {
        growth: (!is_ramp).then(|| Growth::of(&arrivals, &ends, warm_up.warm_up_s).expect("valid")),
        lost_share: lost as f64 / rows.len() as f64,
        span_s: Some(span_s),
        warm_up: Some(warm_up),
        throughput_of_fewer: is_full.then_some(1.0),
        queueing_share: is_full.then_some(0.95),
        ..RunEvidence::default()
    })
}

#[test]
fn states_are_those_of_the_labels() {
    let Some(text) = shared("state.json") else { return };
    let runs: Vec<LabelledRun> = serde_json::from_slice(&text).expect("labels");
    for run in &runs {
        let Some(evidence) = evidence(&run.file) else { return };
        let state = state_of(&evidence).state.name();
        let allowed: &[&str] = match run.label.as_str() {
            "not overloaded" => &["steady", "undecided"],
            "not steady" => &["overloaded", "undecided"],
            "too short" => &["too_short"],
            label => &[label],
        };
        assert!(allowed.contains(&state), "{}: {state}, not {}", run.file, run.label);
    }
}
