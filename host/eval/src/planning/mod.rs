//! Planning of capacity: the highest load within SLOs, the fewest replicas for a load, and
//! services under several settings.
//!
//! ```text
//! Slo ─► PlanConfig ─► load (the requests of a seed at any load) ─► load_run (one simulation) ─► capacity, size, sweep
//! ```

mod capacity;
mod csv;
mod length;
mod load;
mod load_run;
mod size;
mod slo;
mod sweep;
mod text;

use blis_config::Deployment;
use blis_plugin::Kind;

use crate::error::RunError;
use crate::experiment::{Experiment, OutputFiles};
use crate::named_policy::OtherPolicies;
use crate::open;
use crate::scaling::ScalingSettings;
use crate::service;
use crate::spec::{ExperimentSpec, SettingKey};
use crate::workload_config::{TraceConfig, WorkloadConfig};

pub use capacity::{Capacity, PolicyCapacity, capacity};
pub use csv::CsvTable;
pub use load::LoadUnit;
pub use size::{ServiceSize, SizeCheck, SizeResult, size};
pub use slo::{Slo, SloMetric, SloStatistic};
pub use sweep::{MeasuredPoint, Sweep, SweepConfig, SweepPoint, Variation, VariedSetting, sweep};

use load::SeededLoad;
use load_run::LoadRun;

/// What to plan, with checked settings.
pub struct PlanConfig {
    /// Deployment and workload, the same for all policies.
    pub base: Experiment,
    /// Each policy as it is named, with its experiment. The first is the one that the others are compared with.
    pub policies: Vec<(String, Experiment)>,
    slos: Vec<Slo>,
    seeds: Vec<u64>,
    /// Whether the settings or the workload say how many requests a run has.
    has_fixed_length: bool,
    /// Number of threads; 0 for one per core.
    threads: usize,
}

impl PlanConfig {
    /// `spec` may name several routing policies, separated by commas. `seeds`: how many, counted from the seed of `spec`.
    /// `threads`: 0 for one per core.
    ///
    /// # Errors
    /// If a figure has two limits, a policy is named twice, or a setting is invalid.
    pub fn new(mut spec: ExperimentSpec, slos: &[Slo], seeds: u32, threads: usize) -> Result<Self, RunError> {
        ScalingSettings::refuse_in_planning(&spec)?;
        let is_repeated = |(i, slo): &(usize, &Slo)| slos[..*i].iter().any(|other| other.figure() == slo.figure());
        if let Some((_, twin)) = slos.iter().enumerate().find(is_repeated) {
            let figure = twin.figure();
            return Err(RunError::usage(format_args!("`{figure}` has two limits")).hint("leave out one of them"));
        }
        let has_end = spec.num_requests.is_some() || spec.horizon.is_some();
        // Users need an end, which the search replaces.
        if spec.concurrency.is_some() && !has_end {
            spec.num_requests = Some(1);
        }
        let (base, policies) = policies(spec)?;
        let seeds = if is_one_sample(&base) { 1 } else { seeds };
        Ok(Self {
            slos: slos.to_vec(),
            seeds: (0..u64::from(seeds)).map(|n| base.seed.wrapping_add(n)).collect(),
            has_fixed_length: load::has_fixed_length(&base, has_end),
            threads,
            base,
            policies,
        })
    }

    /// Resolves the deployment, and tries the scripts of all policies once.
    fn deployment(&self) -> Result<Deployment, RunError> {
        let deployment = open::resolve(&self.base)?;
        self.policies.iter().try_for_each(|(_, policy)| service::try_scripts(policy))?;
        Ok(deployment)
    }

    /// The workload of each of `seeds`, with `requests` requests unless their number is fixed.
    fn loads(&self, seeds: &[u64], requests: Option<u64>) -> Result<Vec<SeededLoad>, RunError> {
        let loads: Vec<SeededLoad> =
            seeds.iter().map(|&seed| SeededLoad::new(&self.base, seed, requests)).collect::<Result<_, _>>()?;
        let first = loads.first();
        self.slos.iter().try_for_each(|slo| first.map_or(Ok(()), |load| load.check_class(slo)))?;
        Ok(loads)
    }

    /// As many seeds again, behind those of the search; none if all seeds have the same requests.
    fn unseen_seeds(&self) -> Vec<u64> {
        if is_one_sample(&self.base) {
            return Vec::new();
        }
        self.seeds.iter().map(|seed| seed.wrapping_add(self.seeds.len() as u64)).collect()
    }

    /// What to know about figures of these settings.
    fn notes(&self) -> Vec<String> {
        let one_sample = "a trace is one sample of its traffic: there is no interval, and one seed";
        let single = "one seed has no spread, so there is no interval: use 5 or more";
        let note = match (is_one_sample(&self.base), self.seeds.len()) {
            (true, _) => one_sample,
            (false, 1) => single,
            (false, _) => return Vec::new(),
        };
        vec![note.to_owned()]
    }
}

/// The experiment of each policy that `spec` names, behind that of the shared settings.
fn policies(mut spec: ExperimentSpec) -> Result<(Experiment, Vec<(String, Experiment)>), RunError> {
    let named = spec.routing_policy.clone().unwrap_or_default();
    let names: Vec<&str> = named.split(',').map(str::trim).collect();
    if let Some((_, twin)) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
        return Err(
            RunError::usage(format_args!("the policy `{twin}` is named twice")).hint("leave out one of the two")
        );
    }
    if names.len() == 1 {
        let base = Experiment::new(spec, OutputFiles::default())?;
        let name = base.cluster.policies.name(Kind::Routing).to_owned();
        return Ok((base.clone(), vec![(name, base)]));
    }
    spec.unset(SettingKey::named("routing-policy"));
    let base = Experiment::for_comparison(spec, "several policies")?;
    let policy = |name: &str| Ok((name.to_owned(), base.with_policy(name, OtherPolicies::Kept)?));
    let policies = names.into_iter().map(policy).collect::<Result<_, RunError>>()?;
    Ok((base, policies))
}

/// Whether every seed has the same requests.
fn is_one_sample(base: &Experiment) -> bool {
    match &base.workload {
        WorkloadConfig::Trace(TraceConfig { arrivals, .. }) => arrivals.is_none(),
        WorkloadConfig::Recorded { .. } => true,
        WorkloadConfig::Synthetic(_) | WorkloadConfig::Specified(_) => false,
    }
}

/// The median over `runs` of the figure of the SLO `slo`, ms; `None` if that is no finite number.
fn median_ms<'a>(runs: impl Iterator<Item = &'a LoadRun>, slo: usize) -> Option<f64> {
    let mut values: Vec<f64> = runs.filter_map(|run| run.results[slo].value_ms).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().filter(|ms| ms.is_finite())
}

fn value_in_words(value_ms: Option<f64>) -> String {
    value_ms.map_or("infinite, because requests do not complete".to_owned(), |ms| format!("{ms:.1} ms"))
}
