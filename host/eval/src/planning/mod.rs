//! Planning of capacity: the highest load within SLOs, the fewest replicas for a load, and
//! services under several settings.
//!
//! ```text
//! Slo ─► PlanConfig ─► load (the requests of a seed at any load) ─► load_run (one simulation) ─► capacity, size, elastic, sweep
//! ```

pub mod advise;
mod capacity;
mod conclusions;
mod csv;
mod diagnose;
mod elastic;
mod fewest;
mod length;
mod load;
mod load_run;
mod model_error;
mod size;
mod slo;
mod sweep;
mod text;
mod variation;

use blis_config::Deployment;
use blis_plugin::Kind;

use crate::error::RunError;
use crate::experiment::{Experiment, OutputFiles};
use crate::named_policy::OtherPolicies;
use crate::open;
use crate::service;
use crate::spec::{ExperimentSpec, SettingKey};
use crate::workload_config::{TraceConfig, WorkloadConfig};

pub use capacity::{Capacity, DrawnCapacity, PolicyCapacity, capacity};
pub use csv::CsvTable;
pub use diagnose::{
    Cause, CauseShare, CheckedSlo, DiagnoseConfig, Diagnosis, KnobResult, MovedHistogram, ScrapeDiagnosis, TriedKnob,
    diagnose, diagnose_metrics,
};
pub use elastic::{CurvePeriod, CurveRun, CurveStep, ElasticCurve, HeldReplicas, ReplicaRate, elastic};
pub use load::LoadUnit;
pub use model_error::{LatencyBand, ModelErrorDraws, ModelRisk};
pub(crate) use model_error::{factors, latency_bands, scaled};
pub use size::{ServiceSize, SizeCheck, SizeResult, size};
pub use slo::{Slo, SloMetric, SloStatistic};
pub use sweep::{ComparedBy, MeasuredPoint, SeedRange, Sweep, SweepConfig, SweepPoint, sweep};
pub use variation::{Variation, VariedSetting};
pub(crate) use variation::{check_same_requests, combinations, in_words};

use load::SeededLoad;
use load_run::{EarlyStop, LoadRun};

/// Requests that complete per second with a `share` of the users or concurrent sessions of `config`; `None` if its load is a rate, or that of
/// a trace.
///
/// # Errors
/// If the run fails.
pub(crate) fn throughput_of_fewer_users(
    config: &Experiment,
    deployment: &Deployment,
    share: f64,
) -> Result<Option<f64>, RunError> {
    // A workload of users and of rates has no load that is one number.
    if load::users(&config.workload).ok().flatten().is_none_or(|users| users < 2) {
        return Ok(None);
    }
    let seeded = SeededLoad::known(config.clone(), None)?;
    let stop = EarlyStop(f64::INFINITY);
    let run = LoadRun::new(config, deployment, &seeded, share * seeded.usual, &[], stop)?;
    Ok(Some(run.rates.requests_per_s))
}

/// What to plan, with checked settings.
pub struct PlanConfig {
    /// Deployment and workload, the same for all policies.
    pub base: Experiment,
    /// Each policy or deployment as it is named, with its experiment. The first is the one that the others are compared with.
    pub policies: Vec<(String, Experiment)>,
    /// Whether each has a deployment of its own.
    own_deployments: bool,
    slos: Vec<Slo>,
    seeds: Vec<u64>,
    /// Whether the settings or the workload say how many requests a run has.
    has_fixed_length: bool,
    /// Number of threads; 0 for one per core.
    threads: usize,
    /// Draws of the error of the latency model.
    model_error: ModelErrorDraws,
}

impl PlanConfig {
    /// `spec` may name several routing policies, separated by commas. `seeds`: how many, counted from the seed of `spec`.
    /// `threads`: 0 for one per core.
    ///
    /// # Errors
    /// If a figure has two limits, a policy is named twice, or a setting is invalid.
    pub fn new(mut spec: ExperimentSpec, slos: &[Slo], seeds: u32, threads: usize) -> Result<Self, RunError> {
        let has_end = end_of_runs(&mut spec);
        let (base, policies) = policies(spec)?;
        Self::checked(base, policies, has_end, slos, seeds, threads)
    }

    /// Whole deployments instead of policies: all combinations of the values of `variations` over `spec`; the others as of
    /// [`Self::new`].
    ///
    /// # Errors
    /// As of [`Self::new`]; and if the deployments would not serve the same requests.
    pub fn of_settings(
        mut spec: ExperimentSpec,
        variations: &[Variation],
        slos: &[Slo],
        seeds: u32,
        threads: usize,
    ) -> Result<Self, RunError> {
        let has_end = end_of_runs(&mut spec);
        let experiment = |(settings, spec): (Vec<VariedSetting>, ExperimentSpec)| {
            Ok((in_words(&settings), Experiment::new(spec, OutputFiles::default())?))
        };
        let points = combinations(&spec, variations)?.into_iter().map(experiment);
        let points: Vec<(String, Experiment)> = points.collect::<Result<_, RunError>>()?;
        let base = points[0].1.clone();
        points.iter().try_for_each(|(name, other)| check_same_requests(&base, name, other))?;
        let reading = |of: &Experiment| (of.block_size(), of.engine.semantics);
        if let Some((name, _)) = points.iter().find(|(_, other)| reading(other) != reading(&base)) {
            let what = format!("`{name}` changes how requests are read: the size of KV blocks, or the reference");
            return Err(RunError::usage(what).hint("`blis sweep` measures points that differ in it"));
        }
        Ok(Self { own_deployments: true, ..Self::checked(base, points, has_end, slos, seeds, threads)? })
    }

    fn checked(
        base: Experiment,
        policies: Vec<(String, Experiment)>,
        has_end: bool,
        slos: &[Slo],
        seeds: u32,
        threads: usize,
    ) -> Result<Self, RunError> {
        let is_repeated = |(i, slo): &(usize, &Slo)| slos[..*i].iter().any(|other| other.figure() == slo.figure());
        if let Some((_, twin)) = slos.iter().enumerate().find(is_repeated) {
            let figure = twin.figure();
            return Err(RunError::usage(format_args!("`{figure}` has two limits")).hint("leave out one of them"));
        }
        let seeds = if is_one_sample(&base) { 1 } else { seeds };
        Ok(Self {
            slos: slos.to_vec(),
            seeds: (0..u64::from(seeds)).map(|n| base.seed.wrapping_add(n)).collect(),
            has_fixed_length: load::has_fixed_length(&base, has_end),
            threads,
            model_error: ModelErrorDraws::Off,
            own_deployments: false,
            base,
            policies,
        })
    }

    /// The same with draws of the error of the latency model.
    #[must_use]
    pub fn with_model_error(self, model_error: ModelErrorDraws) -> Self {
        Self { model_error, ..self }
    }

    /// The seeds of the search.
    #[must_use]
    pub fn seeds(&self) -> &[u64] {
        &self.seeds
    }

    /// Refuses replicas that come and go, or differ, in `what`, which searches with a fixed number of equal ones.
    ///
    /// # Errors
    /// If there are any.
    fn check_equal_replicas(&self, what: &str) -> Result<(), RunError> {
        let mut clusters = self.policies.iter().map(|(_, service)| &service.cluster);
        let has_scaling = clusters.clone().any(|cluster| cluster.scaling.is_some());
        let flag = match (has_scaling, clusters.any(|cluster| !cluster.groups.is_empty())) {
            (true, _) => "--autoscaler",
            (false, true) => "--group",
            (false, false) => return Ok(()),
        };
        Err(RunError::usage(format_args!("`{flag}` cannot be used with `blis {what}`")).hint(
            "the search needs a service that is the same at every load, of equal replicas; `blis sweep` and `compare` take it",
        ))
    }

    /// Resolves the deployment, and tries the scripts of all policies once.
    fn deployment(&self) -> Result<Deployment, RunError> {
        let deployment = open::resolve(&self.base)?;
        self.policies.iter().try_for_each(|(_, policy)| service::try_scripts(policy))?;
        Ok(deployment)
    }

    /// The deployment of each policy.
    fn deployments(&self) -> Result<Vec<Deployment>, RunError> {
        let first = self.deployment()?;
        if self.own_deployments {
            let others = self.policies[1..].iter().map(|(_, service)| open::resolve(service));
            return std::iter::once(Ok(first)).chain(others).collect();
        }
        Ok(vec![first; self.policies.len()])
    }

    /// The workload of each of `seeds`, with `requests` requests unless their number is fixed.
    fn loads(&self, seeds: &[u64], requests: Option<u64>) -> Result<Vec<SeededLoad>, RunError> {
        let lives = slo::lives(&self.slos);
        let load = |&seed| SeededLoad::new(&self.base, seed, requests, lives);
        self.with_classes(seeds.iter().map(load).collect::<Result<_, _>>()?)
    }

    /// The requests of each seed as they are, of a workload with a fixed number of them.
    fn known_loads(&self) -> Result<Vec<SeededLoad>, RunError> {
        let load = |&seed| SeededLoad::known(self.base.with_seed(seed), None);
        self.with_classes(self.seeds.iter().map(load).collect::<Result<_, _>>()?)
    }

    /// `loads`, if they have requests of the classes of all SLOs.
    fn with_classes(&self, loads: Vec<SeededLoad>) -> Result<Vec<SeededLoad>, RunError> {
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

/// Whether `spec` says when runs end. Users need an end, which the search replaces.
fn end_of_runs(spec: &mut ExperimentSpec) -> bool {
    let has_end = spec.num_requests.is_some() || spec.horizon.is_some();
    if spec.concurrency.is_some() && !has_end {
        spec.num_requests = Some(1);
    }
    has_end
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
