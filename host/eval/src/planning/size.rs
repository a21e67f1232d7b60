//! The fewest replicas that serve a load within SLOs.
//!
//! A number of replicas is tried under several seeds. It holds if the upper limit of the mean excess over each SLO is at most 0
//! and no run is saturated, fails if a lower limit is above 0 or most runs are saturated, and is undecided otherwise. The search takes
//! the excess as monotone in the number; its result is then checked under seeds that the search did not see, together with one
//! replica fewer.

use std::collections::BTreeMap;

use blis_config::Deployment;
use blis_plugin::Kind;
use blis_stats::StepFactors;
use serde::Serialize;

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::paired::{CONFIDENCE, mean_interval};
use crate::runs::{at_once, on_threads, run_all};

use super::PlanConfig;
use super::fewest::{Fewest, ProbeResult, fewest};
use super::length::{self, RunLength};
use super::load::{LoadUnit, SeededLoad};
use super::load_run::{ALONE, EarlyStop, LoadRun};
use super::model_error::{ModelRisk, factors, scaled};
use super::slo::Slo;

/// A run ends early with that many times the violations that a percentile allows: the excess is then far above 0.
const STOP: EarlyStop = EarlyStop(5.0);
/// Replicas at most.
const MOST: u32 = 65_536;
/// How many times the replicas a draw of the model's error may need.
const MOST_TIMES: u32 = 8;
/// Share of the draws that may fail.
const RISK: f64 = 0.1;

/// What `blis size` prints with `--output json`; docs/planning.md defines it.
#[derive(Clone, Debug, Serialize)]
pub struct ServiceSize {
    /// The SLOs, as they were set.
    pub slo: Vec<Slo>,
    /// The load that is served. Unit: as `unit`.
    pub load: f64,
    /// Unit of the load.
    pub unit: LoadUnit,
    /// Name of the routing policy.
    pub policy: String,
    /// The fewest replicas that hold, also under the unseen seeds. Unit: replicas, 1 or more.
    pub replicas: u32,
    /// GPUs of a replica. Unit: GPUs, 1 or more.
    pub gpus_per_replica: u32,
    /// GPUs of all replicas. Unit: GPUs, 1 or more.
    pub gpus: u64,
    /// Price of all GPUs; absent without a price list. Unit: $/h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd_per_hour: Option<f64>,
    /// Level of the intervals that decide. Unit: share.
    pub confidence: f64,
    /// Seeds of the search. Unit: number.
    pub seeds: Vec<u64>,
    /// Seeds of the checks, which the search did not use; none for a trace. Unit: number.
    pub unseen_seeds: Vec<u64>,
    /// Requests of each run; `null` in a closed loop of fixed length. Unit: requests.
    pub requests_per_run: Option<u64>,
    /// That number of replicas, and one fewer, under the unseen seeds if there are any.
    pub checks: Vec<SizeCheck>,
    /// What draws of the latency model's error would change, with `--model-error`; absent without draws.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_error: Option<ModelRisk>,
    /// What to know about the figures.
    pub notes: Vec<String>,
}

/// A number of replicas under several seeds.
#[derive(Clone, Debug, Serialize)]
pub struct SizeCheck {
    /// How many. Unit: replicas, 1 or more.
    #[serde(rename = "replicas")]
    pub count: u32,
    /// Whether they meet the SLOs.
    pub result: SizeResult,
    /// By SLO: the figure, median over the seeds; `null` without a finite one.
    pub values_ms: Vec<Option<f64>>,
    /// Seeds under which the requests in flight became more and more. Unit: seeds.
    pub saturated_seeds: u64,
}

impl SizeCheck {
    /// What `runs` of `count` replicas say, a run for each seed.
    pub(super) fn of(count: u32, runs: &[LoadRun], slos: &[Slo]) -> Self {
        // Runs that may only fill the service are too short, and are lengthened.
        let is_saturated = |run: &&LoadRun| run.is_saturated() && !length::may_only_fill(run);
        let saturated = runs.iter().filter(is_saturated).count();
        let limits = (0..slos.len()).map(|slo| {
            let excess: Vec<f64> = runs.iter().map(|run| run.results[slo].excess).collect();
            // An infinite excess of a mean has no interval, nor has a single seed.
            let worst = excess.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let interval = mean_interval(&excess).filter(|interval| interval.low.is_finite());
            interval.map_or((worst, worst), |interval| (interval.low, interval.high))
        });
        let limits: Vec<(f64, f64)> = limits.collect();
        let result = if limits.iter().any(|&(low, _)| low > 0.0) || 2 * saturated > runs.len() {
            SizeResult::Fails
        } else if saturated == 0 && limits.iter().all(|&(_, high)| high <= 0.0) {
            SizeResult::Holds
        } else {
            SizeResult::Undecided
        };
        let values_ms = (0..slos.len()).map(|slo| super::median_ms(runs.iter(), slo)).collect();
        Self { count, result, values_ms, saturated_seeds: saturated as u64 }
    }
}

/// Whether a number of replicas meets the SLOs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum SizeResult {
    Holds,
    Fails,
    /// The seeds differ too much to tell.
    Undecided,
}

/// Searches the fewest replicas that serve the load of `config`. The result does not depend on the number of threads.
///
/// # Errors
/// If the workload or the policy is invalid, a run fails, no number of replicas meets the SLOs, or the runs are too short.
pub fn size(config: &PlanConfig) -> Result<ServiceSize, RunError> {
    let [(policy, service)] = &config.policies[..] else {
        return Err(RunError::usage("`blis size` takes one policy").hint("`blis capacity` compares several"));
    };
    check_replicas(config)?;
    let deployment = config.deployment()?;
    let requests = [config.base.spec.num_requests.map(u64::from)];
    on_threads(at_once(config.threads, requests.into_iter()), || search(config, policy, service, &deployment))?
}

/// # Errors
/// If the number of replicas is set, or they are no fixed number of equal ones.
pub(super) fn check_replicas(config: &PlanConfig) -> Result<(), RunError> {
    config.check_equal_replicas("size")?;
    if config.base.spec.num_instances.is_some() {
        return Err(RunError::usage("`--num-instances` is what `blis size` searches").hint("leave it out"));
    }
    Ok(())
}

fn search(
    config: &PlanConfig,
    policy: &str,
    service: &Experiment,
    deployment: &Deployment,
) -> Result<ServiceSize, RunError> {
    let mut length = RunLength::new(config)?;
    let mut start = 1;
    let (loads, mut replicas, may_be_fewer, seen) = loop {
        let loads = config.loads(&config.seeds, length.requests())?;
        let mut sizes = SizeSearch::new(service, deployment, &loads, loads[0].usual, config);
        let fewest = sizes.fewest(start)?;
        match sizes.wanted_length(fewest, length)?.and_then(|wanted| length.extended(wanted)) {
            Some(longer) => (length, start) = (longer, fewest),
            None => {
                sizes.check_length(fewest, length)?;
                let may_be_fewer = fewest > 1 && sizes.tried(fewest - 1)?.result == SizeResult::Undecided;
                let seen = std::mem::take(&mut sizes.tried);
                break (loads, fewest, may_be_fewer, seen);
            }
        }
    };
    let (load, unit, requests_per_run) = (loads[0].usual, loads[0].unit, loads[0].requests());
    let unseen_seeds = config.unseen_seeds();
    let checked = if unseen_seeds.is_empty() {
        loads
    } else {
        // The requests of all seeds, of both sets together, need not fit the memory.
        drop(loads);
        config.loads(&unseen_seeds, length.requests())?
    };
    let mut sizes = SizeSearch::new(service, deployment, &checked, load, config);
    if !unseen_seeds.is_empty() {
        sizes.seen = seen;
    }
    while replicas < MOST && sizes.tried(replicas)?.result != SizeResult::Holds {
        replicas += 1;
    }
    if may_be_fewer && sizes.tried(replicas - 1)?.result == SizeResult::Holds {
        // The seeds of the search could not tell.
        replicas -= 1;
    }
    let numbers = [Some(replicas), replicas.checked_sub(1).filter(|&fewer| fewer > 0)];
    let checks = numbers.into_iter().flatten().map(|count| Ok(sizes.tried(count)?.clone()));
    let checks: Vec<SizeCheck> = checks.collect::<Result<_, RunError>>()?;
    let synchronised = checks.iter().find_map(|check| sizes.synchronised(check.count));
    let gpus = u64::from(replicas) * u64::from(deployment.gpus());
    let model_error = model_error(config, service, deployment, &checked[0], replicas)?;
    Ok(ServiceSize {
        model_error,
        slo: config.slos.clone(),
        load,
        unit,
        policy: policy.to_owned(),
        replicas,
        gpus_per_replica: deployment.gpus(),
        gpus,
        usd_per_hour: config.base.usd_per_gpu_hour(deployment)?.map(|usd| usd * gpus as f64),
        confidence: CONFIDENCE,
        seeds: config.seeds.clone(),
        unseen_seeds,
        requests_per_run,
        notes: notes(config, &checks, synchronised),
        checks,
    })
}

/// The replicas that each draw of the model's error needs, with the requests of one seed: errors are larger than what seeds change.
fn model_error(
    config: &PlanConfig,
    service: &Experiment,
    deployment: &Deployment,
    seeded: &SeededLoad,
    replicas: u32,
) -> Result<Option<ModelRisk>, RunError> {
    let draws = config.model_error.count(seeded.requests());
    // The error of a latency model that is a plugin is unknown.
    if draws == 0 || service.cluster.policies.plugin(Kind::Latency).is_some() {
        return Ok(None);
    }
    let seeded = seeded.shortened();
    let load = seeded.usual;
    let needed = |&factors: &StepFactors, _: u64| -> Result<Option<u32>, RunError> {
        let deployment = scaled(deployment, factors);
        let found = fewest(replicas, 1, replicas.saturating_mul(MOST_TIMES).min(MOST), |count| {
            let mut service = service.clone();
            service.cluster.num_instances = count;
            Ok(probe(&LoadRun::new(&service, &deployment, &seeded, load, &config.slos, EarlyStop(1.0))?, count))
        })?;
        Ok(if let Fewest::Found(count) = found { Some(count) } else { None })
    };
    let draws = factors(deployment, draws)?;
    let needed: Vec<Option<u32>> = run_all(&draws, &[0], needed)?.into_iter().flatten().collect();
    Ok(Some(ModelRisk::new(&needed, replicas, RISK)))
}

fn notes(config: &PlanConfig, checks: &[SizeCheck], synchronised: Option<f64>) -> Vec<String> {
    let mut notes = config.notes();
    if let Some(dispersion) = synchronised {
        notes.push(format!(
            "synchronised: clients wait for outputs and send together, variance/mean {dispersion:.1} of arrivals per second; think times and \
             lengths that vary more may need fewer replicas"
        ));
    }
    if let Some(fewer) = checks.get(1).filter(|fewer| fewer.result != SizeResult::Fails) {
        notes.push(format!(
            "{} replicas are near the limit (result: {}); longer runs (--num-requests) or more --seeds decide",
            fewer.count,
            fewer.result.into_str()
        ));
    }
    notes
}

/// Numbers of replicas under the same seeds.
pub(super) struct SizeSearch<'a> {
    service: &'a Experiment,
    deployment: &'a Deployment,
    loads: &'a [SeededLoad],
    load: f64,
    slos: &'a [Slo],
    tried: BTreeMap<u32, (SizeCheck, Vec<LoadRun>)>,
    /// What was tried under other seeds. It counts where these seeds alone cannot decide.
    seen: BTreeMap<u32, (SizeCheck, Vec<LoadRun>)>,
}

impl<'a> SizeSearch<'a> {
    pub(super) fn new(
        service: &'a Experiment,
        deployment: &'a Deployment,
        loads: &'a [SeededLoad],
        load: f64,
        config: &'a PlanConfig,
    ) -> Self {
        Self { service, deployment, loads, load, slos: &config.slos, tried: BTreeMap::new(), seen: BTreeMap::new() }
    }

    /// The fewest replicas that hold, searched from `start`.
    pub(super) fn fewest(&mut self, start: u32) -> Result<u32, RunError> {
        let is_known = start > 1 || self.loads.len() == 1;
        let start = if is_known { start } else { self.fewest_of_first_seed()? };
        let (mut below, mut above, mut count, mut step) = (0, None, start, 1);
        loop {
            if self.tried(count)?.result == SizeResult::Holds {
                above = Some(count);
            } else {
                below = count;
                self.check_idle(count)?;
            }
            // The number is most likely next to where the search began, and farther away the less likely.
            let next = match above {
                Some(above) if above - below == 1 => return Ok(above),
                Some(above) if below == 0 => above.saturating_sub(step).max(1),
                Some(above) => below.midpoint(above),
                None if below >= MOST => return Err(self.without_size(count)),
                None => below.saturating_add(step).min(MOST),
            };
            (count, step) = (next, 2 * step);
        }
    }

    /// The fewest replicas that meet the SLOs under the first seed: close to what all seeds together say, for a part of the cost.
    fn fewest_of_first_seed(&self) -> Result<u32, RunError> {
        let first = self.loads[0].shortened();
        let (mut below, mut above, mut count) = (0, None, 1);
        loop {
            let run = self.run(&self.with(count), &first, EarlyStop(1.0))?;
            if run.meets_all() || length::may_only_fill(&run) {
                above = Some(count);
            } else {
                below = count;
            }
            match above {
                Some(above) if above - below == 1 => return Ok(above),
                Some(above) => count = below.midpoint(above),
                // With all seeds the search says why none holds.
                None if below >= MOST || is_idle(&run, count) => return Ok(count),
                None => count = (2 * below).min(MOST),
            }
        }
    }

    /// What `count` replicas do.
    pub(super) fn tried(&mut self, count: u32) -> Result<&SizeCheck, RunError> {
        if !self.tried.contains_key(&count) {
            let runs = self.runs(count)?;
            let mut check = self.check(count, &runs);
            if let Some((_, seen)) = self.seen.get(&count).filter(|_| check.result == SizeResult::Undecided) {
                let all: Vec<LoadRun> = runs.iter().chain(seen).cloned().collect();
                check.result = self.check(count, &all).result;
            }
            self.tried.insert(count, (check, runs));
        }
        Ok(&self.tried[&count].0)
    }

    /// Variance over mean of the arrivals per second under `count` replicas, if clients send together.
    fn synchronised(&self, count: u32) -> Option<f64> {
        self.tried.get(&count)?.1.iter().filter_map(|run| run.synchronised).reduce(f64::max)
    }

    /// The service with `count` replicas.
    fn with(&self, count: u32) -> Experiment {
        let mut service = self.service.clone();
        service.cluster.num_instances = count;
        service
    }

    fn run(&self, service: &Experiment, seeded: &SeededLoad, stop: EarlyStop) -> Result<LoadRun, RunError> {
        LoadRun::new(service, self.deployment, seeded, self.load, self.slos, stop)
    }

    fn runs(&self, count: u32) -> Result<Vec<LoadRun>, RunError> {
        let seeds: Vec<u64> = self.loads.iter().map(SeededLoad::seed).collect();
        let one = |service: &Experiment, seed: u64| {
            let seeded = self.loads.iter().find(|seeded| seeded.seed() == seed).expect("a workload for each seed");
            self.run(service, seeded, STOP)
        };
        run_all(&[self.with(count)], &seeds, one).map(|mut runs| runs.remove(0))
    }

    fn check(&self, count: u32, runs: &[LoadRun]) -> SizeCheck {
        SizeCheck::of(count, runs, self.slos)
    }

    /// # Errors
    /// If `count` replicas miss the SLOs although they are nearly idle.
    fn check_idle(&self, count: u32) -> Result<(), RunError> {
        let (_, runs) = &self.tried[&count];
        if runs.iter().all(|run| is_idle(run, count)) { Err(self.without_size(count)) } else { Ok(()) }
    }

    fn without_size(&self, count: u32) -> RunError {
        let (check, runs) = &self.tried[&count];
        let slo = runs[0].binding(self.slos);
        let value = super::value_in_words(check.values_ms[slo]);
        RunError::runtime(format_args!(
            "no number of replicas meets the SLO {}: with {count} the value is {value}",
            self.slos[slo]
        ))
        .hint("raise the limit, or use more or faster GPUs for a replica (--tp, --hardware)")
    }

    /// Requests with which the runs at `fewest` replicas, and at one fewer, would tell enough; `None` if they do.
    fn wanted_length(&mut self, fewest: u32, length: RunLength) -> Result<Option<u64>, RunError> {
        let mut wanted = self.tried[&fewest].1.iter().filter_map(|run| length.needed_by(run)).max();
        let fewer = fewest - 1;
        if fewer > 0 && self.tried(fewer)?.result == SizeResult::Undecided {
            wanted = wanted.max(length.requests().and_then(|requests| length.to_decide(4 * requests)));
        }
        Ok(wanted)
    }

    pub(super) fn check_length(&self, fewest: u32, length: RunLength) -> Result<(), RunError> {
        self.tried[&fewest].1.iter().try_for_each(|run| length.check(run, self.slos))
    }
}

/// What one run says of its number of replicas.
pub(in crate::planning) fn probe(run: &LoadRun, replicas: u32) -> ProbeResult {
    if run.meets_all() || length::may_only_fill(run) {
        ProbeResult::Holds
    } else if is_idle(run, replicas) {
        ProbeResult::Idle
    } else {
        ProbeResult::Fails
    }
}

/// Whether `count` replicas have so little to do that more of them change nothing.
pub(super) fn is_idle(run: &LoadRun, count: u32) -> bool {
    count > 1 && run.load.is_some_and(|load| load.in_flight_mean < ALONE * f64::from(count))
}
