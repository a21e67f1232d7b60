//! How often intervals contain the true value, and how often there is one.

use super::processes::{
    ServiceTimes, Visit, ar1, closed, closed_response, many_servers_response, mixed, sessions, single_server,
    single_server_mean,
};
use crate::student::normal_quantile;
use crate::{
    CONFIDENCE, MeanEstimate, bootstrap_interval, mean_interval, mean_of_runs, mean_over_time, mser_5, quantile,
    quantile_of_runs,
};

type IntervalOf = Box<dyn Fn(u64) -> MeanEstimate>;

/// A figure of a process of which the true value is known.
struct CoveredCase {
    name: String,
    truth: f64,
    estimate: IntervalOf,
}

/// What replications of a case give.
struct Tally {
    /// Share of the replications with an interval.
    known: f64,
    /// Share of those intervals that contain the true value.
    coverage: f64,
    /// Shares of them that are below it, and above it.
    missed: [f64; 2],
}

impl CoveredCase {
    fn new(name: String, truth: f64, estimate: impl Fn(u64) -> MeanEstimate + 'static) -> Self {
        Self { name, truth, estimate: Box::new(estimate) }
    }

    fn mean(name: String, truth: f64, draw: impl Fn(u64) -> Vec<f64> + 'static) -> Self {
        Self::new(name, truth, move |seed| mean_interval(&draw(seed), CONFIDENCE).expect("finite values"))
    }

    fn tally(&self, replications: u64) -> Tally {
        let intervals: Vec<_> =
            (0..replications).filter_map(|seed| (self.estimate)(seed * 0x9E37_79B9 + 1_234_577).interval()).collect();
        let of_known = |count: usize| count as f64 / intervals.len().max(1) as f64;
        let below = intervals.iter().filter(|interval| interval.high < self.truth).count();
        let above = intervals.iter().filter(|interval| interval.low > self.truth).count();
        let missed = [of_known(below), of_known(above)];
        let known = intervals.len() as f64 / replications as f64;
        Tally { known, coverage: of_known(intervals.len() - below - above), missed }
    }

    /// Coverage of 90 to 97 % where a fifth of the runs or more have an interval, and at most a twentieth elsewhere; `slack` is for chance.
    fn check(&self, replications: u64, slack: f64) -> Result<(), String> {
        let Tally { known, coverage, missed } = self.tally(replications);
        let line = format!(
            "{:44} known {known:.3} coverage {coverage:.3} below {:.3} above {:.3}",
            self.name, missed[0], missed[1]
        );
        println!("{line}");
        let holds = match known {
            0.2.. => (0.90 - slack..=0.97 + slack).contains(&coverage),
            _ => known <= 0.05 + slack,
        };
        if holds { Ok(()) } else { Err(line) }
    }
}

fn check_all(cases: &[CoveredCase], replications: u64, slack: f64) {
    let wrong: Vec<String> = cases.iter().filter_map(|case| case.check(replications, slack).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn ar1_case(phi: f64, n: usize) -> CoveredCase {
    CoveredCase::mean(format!("AR(1) {phi}, {n}"), 0.0, move |seed| ar1(seed, n, phi))
}

fn mixed_case(phi: f64, weight: f64, n: usize) -> CoveredCase {
    CoveredCase::mean(format!("AR(1) {phi} × {weight} and noise, {n}"), 0.0, move |seed| mixed(seed, n, phi, weight))
}

fn queue_case(load: f64, service: ServiceTimes, n: usize) -> CoveredCase {
    let truth = single_server_mean(load, service);
    CoveredCase::mean(format!("M/G/1 {load} {service:?}, {n}"), truth, move |seed| {
        single_server(seed, n, load, service)
    })
}

/// The end-to-end times of `n` requests from `warm_up_s` on.
fn responses(visits: &[Visit], warm_up_s: f64, n: usize) -> Vec<f64> {
    warm(visits, warm_up_s, n).map(|visit| visit.end_s - visit.arrival_s).collect()
}

fn warm(visits: &[Visit], warm_up_s: f64, n: usize) -> impl Iterator<Item = &Visit> {
    visits.iter().filter(move |visit| visit.arrival_s >= warm_up_s).take(n)
}

/// A series that begins at `height` standard deviations, after MSER-5.
fn ramp_case(height: f64, scale: f64, n: usize) -> CoveredCase {
    CoveredCase::mean(format!("AR(1) 0.5 from {height} on, scale {scale}, {n}"), 0.0, move |seed| {
        let ramp = |i: usize| height * (-(i as f64) / scale).exp();
        let values: Vec<f64> = ar1(seed, n, 0.5).into_iter().enumerate().map(|(i, x)| x + ramp(i)).collect();
        let warm = mser_5(&values).expect("finite values").expect("the ramp is short");
        values[warm..].to_vec()
    })
}

fn closed_case(users: usize, think_s: f64, servers: usize, n: usize) -> CoveredCase {
    CoveredCase::mean(
        format!("closed, {users} users, {servers} servers, {n}"),
        closed_response(users, think_s, servers),
        move |seed| responses(&closed(seed, n + 20 * users, users, think_s, servers), 10.0 * think_s, n),
    )
}

/// Sessions of `rounds` rounds at four servers, of which each has the load `load`.
fn session_visits(seed: u64, load: f64, rounds: usize, think_s: f64, n: usize) -> (Vec<Visit>, f64) {
    let warm_up_s = 2.0 * rounds as f64 * (think_s + 2.0);
    let rate = 4.0 * load;
    let requests = n + (rate * 1.5 * warm_up_s) as usize;
    (sessions(seed, requests, rate / rounds as f64, rounds, think_s, 4), warm_up_s)
}

fn session_case(load: f64, rounds: usize, think_s: f64, n: usize) -> CoveredCase {
    CoveredCase::mean(
        format!("sessions, load {load}, {rounds} rounds, {n}"),
        many_servers_response(4.0 * load, 4),
        move |seed| {
            let (visits, warm_up_s) = session_visits(seed, load, rounds, think_s, n);
            responses(&visits, warm_up_s, n)
        },
    )
}

fn session_case_over_time(load: f64, rounds: usize, think_s: f64, n: usize) -> CoveredCase {
    CoveredCase::new(
        format!("sessions over time, load {load}, {rounds} rounds, {n}"),
        many_servers_response(4.0 * load, 4),
        move |seed| {
            let (visits, warm_up_s) = session_visits(seed, load, rounds, think_s, n);
            let times: Vec<f64> = warm(&visits, warm_up_s, n).map(|visit| visit.arrival_s).collect();
            mean_over_time(&times, &responses(&visits, warm_up_s, n), CONFIDENCE).expect("finite values")
        },
    )
}

fn queue_quantile_case(load: f64, q: f64, n: usize) -> CoveredCase {
    let truth = (load / (1.0 - q)).ln() / (1.0 - load);
    CoveredCase::new(format!("M/M/1 {load}, quantile {q}, {n}"), truth, move |seed| {
        let waits = single_server(seed, n, load, ServiceTimes::Exponential);
        quantile_of_runs(&[&waits], q, CONFIDENCE).expect("finite values")
    })
}

fn ar1_quantile_case(phi: f64, q: f64, n: usize) -> CoveredCase {
    CoveredCase::new(format!("AR(1) {phi}, quantile {q}, {n}"), normal_quantile(q), move |seed| {
        quantile_of_runs(&[&ar1(seed, n, phi)], q, CONFIDENCE).expect("finite values")
    })
}

/// Runs of an M/M/1 queue at 0.5, after a warm-up.
fn runs_case(runs: u64, n: usize) -> CoveredCase {
    CoveredCase::new(format!("{runs} runs of M/M/1 0.5, {n} each"), 1.0, move |seed| {
        let draw = |run: u64| single_server(seed ^ (run << 40), n + 200, 0.5, ServiceTimes::Exponential).split_off(200);
        let runs: Vec<Vec<f64>> = (0..runs).map(draw).collect();
        mean_of_runs(&runs.iter().map(Vec::as_slice).collect::<Vec<_>>(), CONFIDENCE).expect("finite values")
    })
}

fn bootstrap_case(load: f64, q: f64, n: usize) -> CoveredCase {
    let truth = (load / (1.0 - q)).ln() / (1.0 - load);
    CoveredCase::new(format!("M/M/1 {load}, bootstrap of quantile {q}, {n}"), truth, move |seed| {
        let waits = single_server(seed, n, load, ServiceTimes::Exponential);
        let figure = |columns: &[Vec<f64>]| quantile(&columns[0], q).expect("finite values");
        bootstrap_interval(&[&waits], CONFIDENCE, seed, figure).expect("finite values")
    })
}

#[test]
fn intervals_of_long_runs_cover_the_truth_and_short_runs_have_none() {
    let cases = [
        ar1_case(0.5, 500),
        ar1_case(0.5, 2000),
        queue_case(0.5, ServiceTimes::Exponential, 1500),
        queue_case(0.5, ServiceTimes::Exponential, 10_000),
        queue_case(0.5, ServiceTimes::Constant, 8000),
        ramp_case(10.0, 100.0, 5000),
        closed_case(5, 10.0, 1, 400),
        closed_case(5, 10.0, 1, 4000),
        session_case(0.5, 5, 5.0, 20_000),
        ar1_quantile_case(0.5, 0.9, 4000),
        queue_quantile_case(0.5, 0.9, 20_000),
        runs_case(8, 2000),
    ];
    check_all(&cases, 150, 0.04);
}

#[test]
#[ignore = "heavy: 1 000 replications of 50 cases"]
fn coverage_of_means() {
    let mut cases = Vec::new();
    for phi in [-0.5, 0.0, 0.3, 0.5, 0.8, 0.9, 0.95] {
        let time = (1.0 + phi) / (1.0 - phi);
        for times in [150.0, 1000.0, 4000.0] {
            cases.push(ar1_case(phi, (times * f64::max(time, 1.0)) as usize));
        }
    }
    cases.extend([5000, 50_000, 100_000].map(|n| mixed_case(0.99, 0.3, n)));
    for (load, service, lengths) in [
        (0.3, ServiceTimes::Exponential, [500, 4000, 20_000]),
        (0.5, ServiceTimes::Exponential, [1500, 8000, 40_000]),
        (0.8, ServiceTimes::Exponential, [10_000, 50_000, 160_000]),
        (0.5, ServiceTimes::Constant, [1000, 5000, 30_000]),
        (0.7, ServiceTimes::Constant, [2000, 15_000, 40_000]),
        (0.8, ServiceTimes::Constant, [6000, 30_000, 80_000]),
        (0.5, ServiceTimes::Hyperexponential, [6000, 25_000, 60_000]),
        (0.3, ServiceTimes::Lognormal(2.0), [1500, 30_000, 80_000]),
        (0.5, ServiceTimes::Lognormal(2.0), [5000, 50_000, 100_000]),
        (0.6, ServiceTimes::Lognormal(1.0), [3000, 15_000, 60_000]),
    ] {
        cases.extend(lengths.map(|n| queue_case(load, service, n)));
    }
    check_all(&cases, 1000, 0.01);
}

#[test]
#[ignore = "heavy: 1 000 replications of 20 cases"]
fn coverage_of_closed_networks_and_sessions() {
    let mut cases = Vec::new();
    cases.extend([400, 2000, 20_000].map(|n| closed_case(5, 10.0, 1, n)));
    cases.extend([4000, 20_000, 40_000].map(|n| closed_case(20, 12.5, 1, n)));
    cases.extend([800, 8000, 30_000].map(|n| closed_case(64, 20.0, 4, n)));
    cases.extend([2000, 20_000, 60_000].map(|n| session_case(0.4, 3, 5.0, n)));
    cases.extend([600, 1000, 3000, 20_000, 60_000].map(|n| session_case(0.6, 5, 5.0, n)));
    cases.extend([600, 3000, 40_000].map(|n| session_case(0.7, 5, 5.0, n)));
    cases.extend([800, 60_000].map(|n| session_case_over_time(0.6, 5, 5.0, n)));
    check_all(&cases, 1000, 0.01);
}

#[test]
#[ignore = "heavy: 1 000 replications of 16 cases"]
fn coverage_of_quantiles_several_runs_and_the_bootstrap() {
    let mut cases = Vec::new();
    for (q, n) in [(0.5, 5000), (0.9, 5000), (0.9, 40_000), (0.99, 40_000)] {
        cases.push(ar1_quantile_case(0.8, q, n));
        cases.push(queue_quantile_case(0.5, f64::max(q, 0.7), n.max(10_000)));
    }
    cases.push(queue_quantile_case(0.5, 0.99, 5000));
    cases.push(queue_quantile_case(0.8, 0.9, 60_000));
    cases.extend([(2, 10_000), (3, 5000), (5, 3000), (8, 1000), (20, 1000)].map(|(runs, n)| runs_case(runs, n)));
    cases.push(bootstrap_case(0.5, 0.9, 20_000));
    check_all(&cases, 1000, 0.01);
}

/// Where some runs have an interval and others do not, those that do are the runs that show little of the correlation: the true value is missed
/// from below, more often than in 5 %.
#[test]
#[ignore = "heavy: 1 000 replications of 20 cases"]
fn coverage_where_intervals_begin_to_exist() {
    let lengths: [(f64, ServiceTimes, &[usize]); 6] = [
        (0.3, ServiceTimes::Exponential, &[1500, 2000]),
        (0.5, ServiceTimes::Exponential, &[3000, 4000, 6000]),
        (0.8, ServiceTimes::Exponential, &[25_000, 30_000, 40_000]),
        (0.5, ServiceTimes::Constant, &[2000, 3000]),
        (0.5, ServiceTimes::Hyperexponential, &[10_000, 15_000]),
        (0.5, ServiceTimes::Lognormal(2.0), &[15_000, 20_000, 30_000]),
    ];
    let cases = lengths
        .into_iter()
        .flat_map(|(load, service, lengths)| lengths.iter().map(move |&n| queue_case(load, service, n)));
    for case in cases.chain([session_case(0.6, 5, 5.0, 10_000), closed_case(64, 20.0, 4, 4000)]) {
        case.check(1000, 1.0).expect("wide limits");
        let Tally { known, coverage, .. } = case.tally(200);
        assert!(known < 0.2 || coverage > 0.80, "{}: {coverage}", case.name);
    }
}
