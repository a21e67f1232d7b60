//! Simulations of designs under the same requests, and what they cost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use blis_sim::units::Micros;

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::planning::load::SeededLoad;
use crate::planning::load_run::{EarlyStop, LoadRun};
use crate::planning::size::{SizeCheck, SizeResult};
use crate::planning::slo::{self, Slo};

use super::space::{Design, ReplicaLayout};

/// The requests of some seeds.
pub(super) type Loads = Arc<Vec<SeededLoad>>;

/// Simulates designs, and counts what it simulated.
pub(super) struct Bench<'a> {
    pub designs: &'a [Design],
    pub slos: &'a [Slo],
    simulated: Mutex<BTreeSet<(usize, ReplicaLayout)>>,
    runs: AtomicU64,
}

/// A deployment under all seeds of a set.
#[derive(Clone, Debug)]
pub(super) struct EvaluatedDeployment {
    pub check: SizeCheck,
    pub runs: Vec<LoadRun>,
    /// By SLO: the median over the seeds of its figure, ms; infinite if too many requests do not complete, `None` without a sample.
    pub values_ms: Vec<Option<f64>>,
    /// The least of the shares of the limits that the figures leave; below 0 if one is missed. Unit: share.
    pub slack: f64,
}

impl EvaluatedDeployment {
    fn new(replicas: u32, runs: Vec<LoadRun>, slos: &[Slo]) -> Self {
        let values_ms: Vec<Option<f64>> = (0..slos.len()).map(|slo| median(&runs, slo)).collect();
        let check = SizeCheck::of(replicas, &runs, slos);
        Self { slack: slack(slos, &values_ms), check, values_ms, runs }
    }

    pub fn holds(&self) -> bool {
        self.check.result == SizeResult::Holds
    }

    /// The figure that is closest to its limit, or furthest beyond: its index.
    pub fn binding(&self, slos: &[Slo]) -> usize {
        let ratio = |slo: usize| self.values_ms[slo].unwrap_or(0.0) / slos[slo].limit.as_millis_f64();
        (0..slos.len()).max_by(|&a, &b| ratio(a).total_cmp(&ratio(b)).then(b.cmp(&a))).unwrap_or(0)
    }

    /// Whether most runs had more arrivals than ends.
    pub fn is_overloaded(&self) -> bool {
        2 * self.check.saturated_seeds > self.runs.len() as u64
    }

    /// Mean share of requests within all limits; `None` without requests.
    pub fn attainment(&self) -> Option<f64> {
        crate::paired::mean(self.runs.iter().filter_map(|run| run.attainment).collect::<Vec<_>>().into_iter())
    }

    /// Mean over the seeds of the largest excess.
    pub fn excess(&self) -> f64 {
        let worst = |run: &LoadRun| run.results.iter().map(|of| of.excess).fold(f64::NEG_INFINITY, f64::max);
        self.runs.iter().map(worst).sum::<f64>() / self.runs.len().max(1) as f64
    }
}

fn median(runs: &[LoadRun], slo: usize) -> Option<f64> {
    let mut values: Vec<f64> = runs.iter().filter_map(|run| run.results[slo].value_ms).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The least of the shares of the limits that `values_ms` leave.
pub(super) fn slack(slos: &[Slo], values_ms: &[Option<f64>]) -> f64 {
    let limits = slos.iter().zip(values_ms).filter(|(slo, _)| slo.limit != Micros::MAX);
    let of = limits.filter_map(|(slo, value)| value.map(|ms| 1.0 - ms / slo.limit.as_millis_f64()));
    of.fold(1.0, f64::min)
}

impl<'a> Bench<'a> {
    pub fn new(designs: &'a [Design], slos: &'a [Slo]) -> Self {
        Self { designs, slos, simulated: Mutex::default(), runs: AtomicU64::new(0) }
    }

    /// How many deployments were simulated: designs with a number of replicas each.
    pub fn simulated(&self) -> u64 {
        self.simulated.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    /// How many simulations there were.
    pub fn runs(&self) -> u64 {
        self.runs.load(Ordering::Relaxed)
    }

    /// One run of the design `index`; `load_factor`: the load, as a multiple of that of the settings.
    pub fn run(
        &self,
        index: usize,
        layout: ReplicaLayout,
        seeded: &SeededLoad,
        load_factor: f64,
        stop: EarlyStop,
    ) -> Result<LoadRun, RunError> {
        let design = &self.designs[index];
        self.note(index, layout);
        let load = changed_load(seeded, load_factor);
        LoadRun::new(&design.with(layout), &design.deployment, seeded, load, self.slos, stop)
    }

    fn note(&self, index: usize, layout: ReplicaLayout) {
        self.simulated.lock().unwrap_or_else(PoisonError::into_inner).insert((index, layout));
        self.count_run();
    }

    /// Counts a run of a deployment that is simulated otherwise, too, or is no candidate.
    pub fn count_run(&self) {
        self.runs.fetch_add(1, Ordering::Relaxed);
    }

    /// The design `index` under all of `loads`.
    pub fn evaluate(
        &self,
        index: usize,
        layout: ReplicaLayout,
        loads: &[SeededLoad],
        stop: EarlyStop,
    ) -> Result<EvaluatedDeployment, RunError> {
        self.evaluate_at(index, layout, loads, 1.0, stop)
    }

    /// As [`Self::evaluate`], at that multiple of the load.
    pub fn evaluate_at(
        &self,
        index: usize,
        layout: ReplicaLayout,
        loads: &[SeededLoad],
        load_factor: f64,
        stop: EarlyStop,
    ) -> Result<EvaluatedDeployment, RunError> {
        let design = &self.designs[index];
        let service: Experiment = design.with(layout);
        let runs = loads.iter().map(|seeded| {
            self.note(index, layout);
            LoadRun::new(&service, &design.deployment, seeded, changed_load(seeded, load_factor), self.slos, stop)
        });
        Ok(EvaluatedDeployment::new(layout.replicas, runs.collect::<Result<_, _>>()?, self.slos))
    }
}

/// The load of `seeded` times `factor`, in whole users.
fn changed_load(seeded: &SeededLoad, factor: f64) -> f64 {
    let load = seeded.usual * factor;
    if seeded.unit.is_whole() { load.round().max(1.0) } else { load }
}

/// The requests of the search by block size, since the size decides which prefixes they share; drawn when they are first needed.
pub(super) struct SearchRequests<'a> {
    designs: &'a [Design],
    lives: f64,
    known: Mutex<BTreeMap<LoadsKey, Loads>>,
}

/// Which requests are meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LoadsKey {
    block_size: u32,
    seeds: Vec<u64>,
    length: Option<u64>,
}

impl<'a> SearchRequests<'a> {
    pub fn new(designs: &'a [Design], slos: &[Slo]) -> Self {
        Self { designs, lives: slo::lives(slos), known: Mutex::default() }
    }

    /// The requests for the design `index`; `length`: their number, unless the workload fixes it.
    pub fn of(&self, index: usize, seeds: &[u64], length: Option<u64>) -> Result<Loads, RunError> {
        let service = &self.designs[index].service;
        let key = LoadsKey { block_size: service.block_size(), seeds: seeds.to_vec(), length };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loads) = known.get(&key) {
            return Ok(Arc::clone(loads));
        }
        // Lengths that are no longer needed would fill the memory.
        known.retain(|other, _| other.length <= length);
        let load = |&seed: &u64| SeededLoad::new(service, seed, length, self.lives);
        let loads: Loads = Arc::new(seeds.iter().map(load).collect::<Result<_, _>>()?);
        known.insert(key, Arc::clone(&loads));
        Ok(loads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slack_is_that_of_the_worst_figure() {
        let slos = ["ttft_p95=1s", "tpot_p90=40ms"].map(|text| Slo::parse(text).expect("valid"));
        assert_eq!(slack(&slos, &[Some(500.0), Some(30.0)]), 0.25);
        assert_eq!(slack(&slos, &[Some(f64::INFINITY), Some(30.0)]), f64::NEG_INFINITY);
        assert_eq!(slack(&slos, &[None, Some(10.0)]), 0.75);
        assert_eq!(slack(&slos, &[None, None]), 1.0);
    }
}
