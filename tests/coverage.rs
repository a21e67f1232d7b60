//! Intervals of evaluations: how often they contain the true difference, by simulations of many epochs.

use std::fmt;
use std::sync::Arc;

use blis_eval::StratifiedDifference;
use blis_eval::cascade::{StagePlan, StageResult, run_single_stage};
use blis_eval::evaluation::context::{EvaluationContext, EvaluationSuite};
use blis_eval::suite::{Split, Suite};
use rayon::prelude::*;

/// Scenarios that are as similar as they can be: under a common seed, their runs differ from the mean together.
const ALIKE: &str = "schema: 1
name: alike
baseline: round-robin
weights: 'mean_e2e:0.5, mean_ttft:0.5'
seeds: {smoke: 1, train: 5}
run: {model: meta-llama/llama-3.1-8b-instruct, num-instances: 2, num-requests: 40, arrival-process: poisson, max-num-seqs: 8}
scenarios:
  - {name: one, splits: [smoke, train], run: {rate: 6}}
  - {name: two, splits: [train], run: {rate: 6.5}}
  - {name: three, splits: [train], run: {rate: 7}}
";

/// The intervals of many epochs.
struct Coverage {
    /// Share of epochs with an interval: without one nothing is claimed.
    decidable: f64,
    /// Share of these that contain the mean over all epochs.
    covered: f64,
    /// Share of epochs with an interval above 0, and below 0.
    better: f64,
    worse: f64,
    /// Mean width, relative to 2 · 1.96 standard deviations of the epochs' means: to the interval with a known
    /// variance.
    width: f64,
    /// Mean of the differences over all epochs, and its standard error.
    mean: f64,
    error: f64,
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { decidable, covered, better, worse, width, mean, error } = self;
        let percent = |share: &f64| 100.0 * share;
        write!(
            f,
            "{:.1} % have an interval, {:.1} % of them cover, width {width:.2}, better {:.1} %, worse {:.1} %, \
             difference {mean:+.5} ± {error:.5}",
            percent(decidable),
            percent(covered),
            percent(better),
            percent(worse)
        )
    }
}

impl Coverage {
    fn of(differences: &[StratifiedDifference]) -> Self {
        let count = differences.len() as f64;
        let mean = differences.iter().map(|one| one.mean).sum::<f64>() / count;
        let variance = differences.iter().map(|one| (one.mean - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let intervals: Vec<_> = differences.iter().filter_map(|one| one.interval).collect();
        assert!(!intervals.is_empty(), "some epoch has an interval");
        let number = |of: &dyn Fn(f64, f64) -> bool| {
            intervals.iter().filter(|interval| of(interval.low, interval.high)).count() as f64
        };
        let decidable = intervals.len() as f64;
        let width = intervals.iter().map(|interval| interval.high - interval.low).sum::<f64>() / decidable;
        Self {
            decidable: decidable / count,
            covered: number(&|low, high| low <= mean && mean <= high) / decidable,
            better: number(&|low, _| low > 0.0) / count,
            worse: number(&|_, high| high < 0.0) / count,
            width: width / (2.0 * 1.96 * variance.sqrt()),
            mean,
            error: (variance / count).sqrt(),
        }
    }
}

/// The results of the stage train of `suite` for `candidate` relative to `reference`, in epochs from 0 on.
fn epochs(suite: Suite, candidate: &str, reference: &str, epochs: u64) -> Vec<StageResult> {
    let suite = Suite { baseline: reference.to_owned(), reference: reference.to_owned(), ..suite };
    let prepared = EvaluationSuite::new(suite).expect("a suite");
    let stage = |epoch: u64| {
        let context = EvaluationContext {
            prepared: &prepared,
            candidate: prepared.named(candidate).expect("a policy"),
            reference: prepared.named(reference).expect("a policy"),
            baseline: prepared.named(reference).expect("a policy"),
            incumbent: None,
            handle: Arc::default(),
            parallel: false,
        };
        let plan = StagePlan::new(&prepared.suite, Split::Train, epoch);
        let cascade = run_single_stage(&prepared.suite, &plan, &context).map_err(|(_, failure)| failure.text());
        cascade.expect("runs").stages.remove(0)
    };
    (0..epochs).into_par_iter().map(stage).collect()
}

/// One policy under the requests of two epochs each: a difference that is 0 on average.
fn of_itself(stages: &[StageResult]) -> Vec<StratifiedDifference> {
    let difference = |pair: &[StageResult]| {
        let mut scenarios: Vec<usize> = pair[0].runs.iter().map(|run| run.scenario).collect();
        scenarios.dedup();
        let scores = |stage: &StageResult, scenario: usize| -> Vec<f64> {
            stage.runs.iter().filter(|run| run.scenario == scenario).map(|run| run.score.ln()).collect()
        };
        let of = |&scenario: &usize| {
            let (one, other) = (scores(&pair[0], scenario), scores(&pair[1], scenario));
            one.iter().zip(other).map(|(one, other)| one - other).collect()
        };
        StratifiedDifference::stratified(&scenarios.iter().map(of).collect::<Vec<Vec<f64>>>())
    };
    stages.chunks_exact(2).map(difference).collect()
}

fn against_reference(stages: &[StageResult]) -> Coverage {
    Coverage::of(&stages.iter().map(|stage| stage.against_reference).collect::<Vec<_>>())
}

/// While all scenarios had the same seeds, such intervals contained the true difference in less than 80 % of the epochs.
#[test]
fn intervals_cover_where_scenarios_are_alike() {
    let suite = Suite::parse("alike.yaml", ALIKE).expect("a suite");
    let coverage = against_reference(&epochs(suite, "least-loaded", "round-robin", 160));
    println!("{coverage}");
    // Of 160 epochs, 95 % ± 1.7 % cover.
    assert!(coverage.covered >= 0.89, "{coverage}");
    assert!(coverage.width <= 1.3, "{coverage}");
}

/// Two lists of scorers with scores so fine that every run differs, and weights that are nearly equal.
const NEAR: [&str; 2] = ["load-balance:1.1,kv-utilization:1", "load-balance:1,kv-utilization:1"];
/// Two lists of which most runs are equal to the last bit.
const TIED: [&str; 2] = [
    "precise-prefix-cache:2,queue-depth:1,kv-utilization:1.3",
    "precise-prefix-cache:2,queue-depth:1,kv-utilization:1",
];

/// The suite `chat`, its runs shortened to `share` of their requests and of their warm-up.
fn chat(share: f64) -> Suite {
    let mut suite = Suite::open("chat").expect("built in");
    for (flag, value) in suite.scenarios.iter_mut().flat_map(|scenario| &mut scenario.flags) {
        let shortened = |value: &str| (value.parse::<f64>().expect("a number") * share).round();
        match flag.as_str() {
            "num-requests" => *value = shortened(value).to_string(),
            "warmup" => *value = format!("{}s", shortened(value.strip_suffix('s').expect("seconds"))),
            _ => {}
        }
    }
    suite
}

/// A number that the environment sets.
fn number(name: &str) -> Option<f64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// The number of epochs of an experiment. With runs in full length, 2 000 take hours: `BLIS_COVERAGE_SHARE=0.1` shortens them.
#[allow(clippy::print_stdout, reason = "a test that skips says so")]
fn count() -> Option<u64> {
    let count = number("BLIS_COVERAGE_EPOCHS").map(|count| count as u64);
    if count.is_none() {
        println!("skipped: BLIS_COVERAGE_EPOCHS is not set");
    }
    count
}

/// The suite that the environment asks for.
fn chosen() -> Suite {
    chat(number("BLIS_COVERAGE_SHARE").unwrap_or(1.0))
}

#[allow(clippy::print_stdout, reason = "the figures are what the experiment is for")]
fn assert_covers(name: &str, coverage: &Coverage) {
    println!("{name}: {coverage}");
    assert!((0.93..=0.97).contains(&coverage.covered), "{name}: {coverage}");
    assert!(coverage.width <= 1.3, "{name}: {coverage}");
    assert!(coverage.decidable > 0.999, "{name}: {coverage}");
}

/// The figures are in docs/fitness.md: `BLIS_COVERAGE_EPOCHS=2000 BLIS_COVERAGE_SHARE=0.1`, with `--release`.
#[test]
#[ignore = "an experiment: BLIS_COVERAGE_EPOCHS has the number of epochs"]
fn intervals_cover_in_the_suite_chat() {
    let Some(count) = count() else { return };
    let weighted = epochs(chosen(), "weighted", "round-robin", count);
    assert_covers("weighted against round-robin", &against_reference(&weighted));
    let null = Coverage::of(&of_itself(&weighted));
    assert_covers("weighted against itself under other requests", &null);
    assert!(null.better <= 0.035 && null.worse <= 0.035, "{null}");
}

/// Likewise.
#[test]
#[ignore = "an experiment: BLIS_COVERAGE_EPOCHS has the number of epochs"]
fn intervals_cover_for_near_equal_policies() {
    let Some(count) = count() else { return };
    assert_covers("two near-equal lists of scorers", &against_reference(&epochs(chosen(), NEAR[0], NEAR[1], count)));
    let tied = against_reference(&epochs(chosen(), TIED[0], TIED[1], count / 4));
    println!("two lists of which most runs tie: {tied}");
    // Its true difference is above 0.
    assert!(tied.worse <= 0.035, "{tied}");
}
