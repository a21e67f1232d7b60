//! The highest load that a service sustains within its SLOs.
//!
//! Each seed has requests of its own, and a critical load: below it, the run of this seed meets all SLOs and keeps up with its arrivals;
//! above, it does not. Bracketing by growing factors and bisection of the logarithm find it to [`PRECISION`]. The capacity is the
//! geometric mean over the seeds, with the interval of Student's t; its lower limit is the load to plan with. Policies serve
//! the same requests of the same seeds.

use blis_config::Deployment;
use blis_plugin::Kind;
use blis_stats::StepFactors;
use serde::Serialize;

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::paired::{CONFIDENCE, ConfidenceInterval, mean_interval};
use crate::runs::{at_once, on_threads, run_all};

use super::PlanConfig;
use super::length::{self, RunLength};
use super::load::{LoadUnit, SeededLoad};
use super::load_run::{ALONE, EarlyStop, LoadRun};
use super::model_error::{OUTSIDE, factors, scaled};
use super::size::SizeSearch;
use super::slo::Slo;

/// Ratio of neighbouring loads of which one meets the SLOs and one does not, at the end of the search.
const PRECISION: f64 = 1.02;
/// Loads beyond have no meaning: all requests arrive at once.
const MOST: f64 = 1e6;

/// What `blis capacity` prints with `--output json`; docs/planning.md defines it.
#[derive(Clone, Debug, Serialize)]
pub struct Capacity {
    /// The SLOs, as they were set.
    pub slo: Vec<Slo>,
    /// Unit of all loads.
    pub unit: LoadUnit,
    /// Level of the intervals. Unit: share.
    pub confidence: f64,
    /// Seeds of the runs, the same under every policy. Unit: number.
    pub seeds: Vec<u64>,
    /// Requests of each run; `null` in a closed loop of fixed length. Unit: requests.
    pub requests_per_run: Option<u64>,
    /// Instances of the service. Unit: replicas, 1 or more.
    pub replicas: u32,
    /// GPUs of an instance. Unit: GPUs, 1 or more.
    pub gpus_per_replica: u32,
    /// By routing policy; the others are compared with the first.
    pub policies: Vec<PolicyCapacity>,
    /// What to know about the figures.
    pub notes: Vec<String>,
}

/// The capacity under one policy.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyCapacity {
    /// Name of the policy, or the settings of the deployment.
    pub policy: String,
    /// GPUs of all replicas. Unit: GPUs.
    pub gpus: u64,
    /// The highest load within the SLOs: geometric mean over the seeds. Unit: as `unit`.
    pub capacity: f64,
    /// Lower limit of its interval: the load to plan with; `null` with one seed. Unit: as `unit`.
    pub low: Option<f64>,
    /// Upper limit of its interval; `null` with one seed. Unit: as `unit`.
    pub high: Option<f64>,
    /// The critical load of each seed. Unit: as `unit`.
    pub by_seed: Vec<f64>,
    /// With `--model-error`, the capacity in draws of the latency model's error; absent without draws.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_model_error: Option<DrawnCapacity>,
    /// The figure that a higher load misses first under most seeds, or `saturation`.
    pub binding: String,
    /// By SLO: the figure at the highest load that met all, median over the seeds; `null` without a sample.
    pub values_ms: Vec<Option<f64>>,
    /// Replicas that serve the lower limit of the first policy under this one; `null` for the first, and for users.
    /// Unit: replicas.
    pub replicas_needed: Option<u32>,
    /// GPUs that the first policy needs beyond this one for that load; below 0 if this one needs more; `null` for the
    /// first, and for users. Unit: GPUs.
    pub gpus_saved: Option<i64>,
}

/// The range of a capacity in draws of the latency model's error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DrawnCapacity {
    /// Equally likely errors of the times of prefill and decode. Unit: draws.
    pub draws: u64,
    /// The lowest capacity of a draw, without the lowest 5 % of the draws; 0 if no load is within the SLOs. Unit: as `unit`.
    pub low: f64,
    /// The highest one, likewise. Unit: as `unit`.
    pub high: f64,
}

impl PolicyCapacity {
    /// The load to plan with: the lower limit of the interval, or the only value.
    #[must_use]
    pub fn planned(&self) -> f64 {
        self.low.unwrap_or(self.capacity)
    }
}

/// Searches the capacity of `config` under each of its policies, or of each of its deployments. The result does not depend on the number of threads.
///
/// # Errors
/// If the workload or a policy is invalid, a run fails, no load meets the SLOs, or the runs are too short to tell.
pub fn capacity(config: &PlanConfig) -> Result<Capacity, RunError> {
    config.check_equal_replicas("capacity")?;
    let deployments = config.deployments()?;
    let requests = [config.base.spec.num_requests.map(u64::from)];
    on_threads(at_once(config.threads, requests.into_iter()), || search(config, &deployments))?
}

fn search(config: &PlanConfig, deployments: &[Deployment]) -> Result<Capacity, RunError> {
    let mut length = RunLength::new(config)?;
    let mut hints: Vec<Option<f64>> = vec![None; config.policies.len()];
    loop {
        let loads = config.loads(&config.seeds, length.requests())?;
        let found = critical_loads(config, deployments, &loads, &hints)?;
        let wanted = wanted_length(&found, &length);
        if let Some(requests) = wanted.and_then(|wanted| length.extended(wanted)) {
            hints = found.iter().map(|of| Some(geometric_mean(of))).collect();
            length = requests;
            continue;
        }
        check_lengths(&found, length, &config.slos)?;
        let policies = config.policies.iter().zip(deployments).zip(&found);
        let mut policies: Vec<PolicyCapacity> = policies
            .map(|(((name, service), deployment), of)| summary(name, service, deployment, of, &config.slos))
            .collect();
        add_savings(&mut policies, config, deployments, &loads)?;
        add_model_error(&mut policies, config, deployments, &loads)?;
        return Ok(document(config, &deployments[0], &loads, policies));
    }
}

/// The capacity under the first policy of `config` with these `loads`, of fixed length.
pub(super) fn of_loads(
    config: &PlanConfig,
    deployment: &Deployment,
    loads: &[SeededLoad],
) -> Result<PolicyCapacity, RunError> {
    let found = critical_loads(config, std::slice::from_ref(deployment), loads, &[None])?;
    check_lengths(&found, RunLength::Fixed, &config.slos)?;
    let (name, service) = &config.policies[0];
    Ok(summary(name, service, deployment, &found[0], &config.slos))
}

/// The highest load of `seeded` that meets `slos`; `None` if none does, or every one. `hint`: about where it is.
pub(super) fn critical_load(
    service: &Experiment,
    deployment: &Deployment,
    seeded: &SeededLoad,
    slos: &[Slo],
    hint: f64,
) -> Option<f64> {
    let bisection = Bisection { service, deployment, seeded, slos };
    bisection.critical_load(Some(hint)).ok().map(|found| found.load)
}

/// # Errors
/// If runs that decided a critical load are too short to tell.
fn check_lengths(found: &[Vec<CriticalLoad>], length: RunLength, slos: &[Slo]) -> Result<(), RunError> {
    for of in found.iter().flatten() {
        length.check(&of.below, slos)?;
        if of.above.is_undecided() {
            length.check(&of.above, slos)?;
        }
    }
    Ok(())
}

/// How many replicas the other policies need for the load that the first one serves.
fn add_savings(
    policies: &mut [PolicyCapacity],
    config: &PlanConfig,
    deployments: &[Deployment],
    loads: &[SeededLoad],
) -> Result<(), RunError> {
    let [first, others @ ..] = policies else { return Ok(()) };
    if loads[0].unit.is_whole() {
        return Ok(());
    }
    for ((of, (_, service)), deployment) in others.iter_mut().zip(&config.policies[1..]).zip(&deployments[1..]) {
        let mut sizes = SizeSearch::new(service, deployment, loads, first.planned(), config);
        let about = f64::from(service.cluster.num_instances) * first.planned() / of.planned();
        let needed = sizes.fewest(about.ceil().clamp(1.0, f64::from(u16::MAX)) as u32)?;
        of.replicas_needed = Some(needed);
        of.gpus_saved = Some(first.gpus as i64 - i64::from(needed) * i64::from(deployment.gpus()));
    }
    Ok(())
}

fn document(
    config: &PlanConfig,
    deployment: &Deployment,
    loads: &[SeededLoad],
    policies: Vec<PolicyCapacity>,
) -> Capacity {
    let mut notes = config.notes();
    for of in &policies {
        if let Some(share) = of.low.map(|low| 1.0 - low / of.capacity).filter(|&share| share > length::TOLERANCE) {
            notes.push(format!(
                "{}: the interval reaches {:.0} % below the capacity; longer runs (--num-requests) or more --seeds narrow it",
                of.policy,
                100.0 * share
            ));
        }
    }
    Capacity {
        slo: config.slos.clone(),
        unit: loads[0].unit,
        confidence: CONFIDENCE,
        seeds: config.seeds.clone(),
        requests_per_run: loads[0].requests(),
        replicas: config.base.cluster.num_instances,
        gpus_per_replica: deployment.gpus(),
        policies,
        notes,
    }
}

/// The critical load of one seed.
struct CriticalLoad {
    load: f64,
    /// The run at the highest load that met the SLOs.
    below: LoadRun,
    /// The run at the lowest load that did not.
    above: LoadRun,
}

impl CriticalLoad {
    /// The figure that the lowest load beyond missed.
    fn binding(&self, slos: &[Slo]) -> String {
        let binding = self.above.binding(slos);
        let missed = self.above.results[binding].excess > 0.0;
        if missed { slos[binding].figure() } else { SATURATION.to_owned() }
    }
}

/// By policy, then by seed. The first seed of each policy is searched first; the others start from its result.
fn critical_loads(
    config: &PlanConfig,
    deployments: &[Deployment],
    loads: &[SeededLoad],
    hints: &[Option<f64>],
) -> Result<Vec<Vec<CriticalLoad>>, RunError> {
    let numbered = |hints: &[Option<f64>]| -> Vec<(usize, Option<f64>)> { hints.iter().copied().enumerate().collect() };
    let one = |&(policy, hint): &(usize, Option<f64>), seed: u64| {
        let seeded = loads.iter().find(|seeded| seeded.seed() == seed).expect("a workload for each seed");
        let (service, deployment) = (&config.policies[policy].1, &deployments[policy]);
        let bisection = Bisection { service, deployment, seeded, slos: &config.slos };
        bisection.critical_load(hint)
    };
    let mut found = run_all(&numbered(hints), &config.seeds[..1], one)?;
    let hints: Vec<Option<f64>> = found.iter().map(|of| Some(of[0].load)).collect();
    let others = run_all(&numbered(&hints), &config.seeds[1..], one)?;
    found.iter_mut().zip(others).for_each(|(of, others)| of.extend(others));
    Ok(found)
}

/// A load, and its run.
type TriedLoad = (f64, LoadRun);

/// The search for the critical load of one seed.
struct Bisection<'a> {
    service: &'a Experiment,
    deployment: &'a Deployment,
    seeded: &'a SeededLoad,
    slos: &'a [Slo],
}

impl Bisection<'_> {
    fn critical_load(&self, hint: Option<f64>) -> Result<CriticalLoad, RunError> {
        let (mut below, mut above) = self.bracket(hint)?;
        while let Some(load) = self.between(below.0, above.0) {
            let run = self.run(load)?;
            if run.meets_all() {
                below = (load, run);
            } else {
                above = (load, run);
            }
        }
        let load = if self.seeded.unit.is_whole() { below.0 } else { (below.0 * above.0).sqrt() };
        Ok(CriticalLoad { load, below: below.1, above: above.1 })
    }

    /// Two loads, of which the first meets the SLOs and the second does not, each with its run.
    fn bracket(&self, hint: Option<f64>) -> Result<(TriedLoad, TriedLoad), RunError> {
        let (mut load, mut step) = hint.map_or((self.seeded.usual, 2.0), |hint| (hint, 1.05));
        load = self.whole(load);
        let first = self.run(load)?;
        let up = first.meets_all();
        let mut last = (load, first);
        loop {
            load = self.whole(if up { (last.0 * step).max(self.least_above(last.0)) } else { last.0 / step });
            if load > MOST {
                return Err(self.without_limit());
            }
            if load >= last.0 && !up {
                return Err(self.without_capacity(&last.1));
            }
            let run = self.run(load)?;
            if run.meets_all() != up {
                let next = (load, run);
                return Ok(if up { (last, next) } else { (next, last) });
            }
            if !up && run.load.is_some_and(|load| load.in_flight_mean < ALONE) {
                return Err(self.without_capacity(&run));
            }
            last = (load, run);
            step = (step * step).min(4.0);
        }
    }

    /// The load to try next; `None` if the two are close.
    fn between(&self, below: f64, above: f64) -> Option<f64> {
        let load = self.whole((below * above).sqrt()).max(self.least_above(below));
        (above / below > PRECISION && load < above).then_some(load)
    }

    fn least_above(&self, load: f64) -> f64 {
        if self.seeded.unit.is_whole() { load + 1.0 } else { load }
    }

    fn whole(&self, load: f64) -> f64 {
        if self.seeded.unit.is_whole() { load.round().max(1.0) } else { load }
    }

    fn run(&self, load: f64) -> Result<LoadRun, RunError> {
        LoadRun::new(self.service, self.deployment, self.seeded, load, self.slos, EarlyStop(1.0))
    }

    fn without_capacity(&self, run: &LoadRun) -> RunError {
        let missed = run.binding(self.slos);
        let value = super::value_in_words(run.results[missed].value_ms.filter(|ms| ms.is_finite()));
        RunError::runtime(format_args!(
            "no load meets the SLO {}: with hardly any load the value is {value}",
            self.slos[missed]
        ))
        .hint("raise the limit, or serve with more or faster GPUs (--tp, --hardware)")
    }

    fn without_limit(&self) -> RunError {
        let unit = self.seeded.unit.name();
        RunError::runtime(format_args!(
            "the SLOs hold up to {MOST:e} {unit}: all requests of a run together are no load"
        ))
        .hint("simulate more requests: `--num-requests`")
    }
}

/// What binds if all SLOs hold and the service does not keep up.
const SATURATION: &str = "saturation";

/// Requests with which the runs would tell enough; `None` if they do.
fn wanted_length(found: &[Vec<CriticalLoad>], length: &RunLength) -> Option<u64> {
    let undecided = |of: &'_ CriticalLoad| of.above.is_undecided().then(|| length.needed_by(&of.above))?;
    let runs = found.iter().flatten().filter_map(|of| length.needed_by(&of.below).max(undecided(of)));
    let spread = found.iter().filter_map(|of| {
        let interval = interval(of)?;
        length.narrowed((interval.high / interval.low).ln() / 2.0)
    });
    runs.chain(spread).max()
}

fn geometric_mean(of: &[CriticalLoad]) -> f64 {
    (of.iter().map(|critical| critical.load.ln()).sum::<f64>() / of.len() as f64).exp()
}

fn interval(of: &[CriticalLoad]) -> Option<ConfidenceInterval> {
    let logs: Vec<f64> = of.iter().map(|critical| critical.load.ln()).collect();
    mean_interval(&logs).map(|interval| ConfidenceInterval { low: interval.low.exp(), high: interval.high.exp() })
}

fn summary(
    name: &str,
    service: &Experiment,
    deployment: &Deployment,
    of: &[CriticalLoad],
    slos: &[Slo],
) -> PolicyCapacity {
    let interval = interval(of);
    let values = (0..slos.len()).map(|slo| super::median_ms(of.iter().map(|critical| &critical.below), slo));
    PolicyCapacity {
        policy: name.to_owned(),
        gpus: u64::from(service.cluster.num_instances) * u64::from(deployment.gpus()),
        capacity: geometric_mean(of),
        low: interval.map(|interval| interval.low),
        high: interval.map(|interval| interval.high),
        by_seed: of.iter().map(|critical| critical.load).collect(),
        binding: most_frequent(&of.iter().map(|critical| critical.binding(slos)).collect::<Vec<_>>()),
        values_ms: values.collect(),
        with_model_error: None,
        replicas_needed: None,
        gpus_saved: None,
    }
}

/// Adds what the capacity of each policy would be in draws of the model's error, with the requests of one seed.
fn add_model_error(
    policies: &mut [PolicyCapacity],
    config: &PlanConfig,
    deployments: &[Deployment],
    loads: &[SeededLoad],
) -> Result<(), RunError> {
    let seeded = loads[0].shortened();
    let draws = config.model_error.count(seeded.requests());
    for ((of, (_, service)), deployment) in policies.iter_mut().zip(&config.policies).zip(deployments) {
        // The error of a latency model that is a plugin is unknown.
        if draws == 0 || service.cluster.policies.plugin(Kind::Latency).is_some() {
            continue;
        }
        let one = |&drawn: &StepFactors, _: u64| -> Result<Option<f64>, RunError> {
            Ok(critical_load(service, &scaled(deployment, drawn), &seeded, &config.slos, of.capacity))
        };
        let drawn = run_all(&factors(deployment, draws)?, &[0], one)?;
        // A draw in which no load is within the SLOs has no capacity.
        let mut drawn: Vec<f64> = drawn.into_iter().flatten().map(|load| load.unwrap_or(0.0)).collect();
        drawn.sort_by(f64::total_cmp);
        let outside = (OUTSIDE * draws as f64) as usize;
        let (low, high) = (drawn[outside], drawn[draws - 1 - outside]);
        of.with_model_error = Some(DrawnCapacity { draws: draws as u64, low, high });
    }
    Ok(())
}

/// The first of the most frequent texts.
fn most_frequent(texts: &[String]) -> String {
    let count = |text: &String| texts.iter().filter(|other| *other == text).count();
    texts.iter().rev().max_by_key(|text| count(text)).cloned().unwrap_or_default()
}
