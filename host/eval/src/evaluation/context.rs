//! An evaluation suite in memory: every scenario is configured, every workload is generated once per seed, and every
//! run of the reference and of the baseline is simulated once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use blis_sim::metrics::Report;
use blis_sim::observer::Observer;
use blis_sim::request::Request;
use blis_sim::units::Micros;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::candidate::limits_of;
use super::run_cache::RunCache;
use crate::cancel::{CancelHandle, RunBudget, SimulationLimit};
use crate::cascade::{ClassSummary, PolicyRole, RunKey, RunSource, RunSummary, StagePlan, Task};
use crate::charges::{ClassEnds, ClassRules, EndLog};
use crate::counterfactual;
use crate::error::RunError;
use crate::experiment::{Experiment, OutputFiles, RegretSettings};
use crate::feedback::ScenarioRegret;
use crate::lock::lock;
use crate::measure::{self, Measurement};
use crate::open;
use crate::service;
use crate::spec::{ExperimentSpec, SettingKey, ValueForm};
use crate::suite::{Scenario, Suite, hex};
use crate::targets::NamedWorkload;
use crate::worker::wall;
use crate::workload_config::{FilesWithin, WorkloadConfig};
use crate::{Figure, Figures};
use blis_config::Deployment;
use blis_config::policy::{FilterSetting, ParameterInput, ParameterSetting, PolicySettings, SettingSource, Sourced};
use blis_diag::open_file;
use blis_plugin::{Kind, LoadedPlugin, Technology, check, script, wasm};
use blis_workload::spec::Spec;
use blis_workload::trace_v2::GoodputTargets;
use blis_workload::{Names, Workload};

/// A suite with its configured scenarios, its workloads and the runs of its reference and baseline in memory.
#[derive(Debug)]
pub struct EvaluationSuite {
    pub suite: Suite,
    /// SHA-256 of the suite and of all files that it names, hexadecimal.
    hash: String,
    pub(super) scenarios: Vec<PreparedScenario>,
    workloads: Mutex<HashMap<RunKey, Arc<ScenarioWorkload>>>,
    /// Summaries of runs that all candidates share, by policy, scenario and seed.
    shared_runs: Mutex<HashMap<(String, usize, u64), RunSummary>>,
    /// The same on the disk; `None` if they are not kept.
    run_cache: Option<RunCache>,
    /// The policies of the suite by name, once this process cannot open their files any more.
    named: Mutex<HashMap<String, EvaluatedPolicy>>,
    self_contained: OnceLock<bool>,
    /// What has been added to the two since [`EvaluationSuite::begin`].
    added: Mutex<Additions>,
    /// Workloads that workers have generated and this process has not.
    missing: Mutex<Vec<RunKey>>,
}

/// Runs and workloads that a worker has added to its copy of a suite.
#[derive(Debug, Default)]
struct Additions {
    runs: Vec<SharedRun>,
    workloads: Vec<RunKey>,
}

/// The summary of a run that all candidates share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SharedRun {
    policy: String,
    scenario: usize,
    seed: u64,
    summary: RunSummary,
    /// Whether it is to be kept on the disk.
    is_fresh: bool,
}

#[derive(Debug)]
pub(super) struct PreparedScenario {
    config: Experiment,
    pub(super) deployment: Deployment,
}

impl PreparedScenario {
    /// Whether its workload is in a file, which is read when the workload is generated.
    fn reads_files(&self) -> bool {
        matches!(self.config.workload, WorkloadConfig::Trace(_) | WorkloadConfig::Recorded { .. })
    }
}

/// The requests of one scenario under one seed.
pub(super) struct ScenarioWorkload {
    pub(super) names: Names,
    pub(super) slo_targets: BTreeMap<String, GoodputTargets>,
    horizon: Micros,
    /// `None` in a closed loop: the clients wait for outputs, so the requests are generated again for each run.
    kept: Option<Arc<[Request]>>,
}

impl std::fmt::Debug for ScenarioWorkload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScenarioWorkload")
            .field("requests", &self.kept.as_ref().map(|kept| kept.len()))
            .finish_non_exhaustive()
    }
}

/// Number of requests in workloads kept in memory, some 200 bytes each. More of them belong to epochs and seeds of earlier
/// evaluations.
const MAX_KEPT_REQUESTS: usize = 2_000_000;
/// Number of run summaries kept in memory, one or two kilobytes each.
const MAX_SHARED_RUNS: usize = 4096;

/// A policy with its experiment in every scenario.
#[derive(Clone, Debug)]
pub struct EvaluatedPolicy {
    /// Key of its runs in the memory of an evaluation suite.
    key: String,
    pub(super) configs: Vec<Experiment>,
    /// Whether its key and the hash of the suite determine what it decides. A plugin that a suite names may change.
    is_fixed: bool,
    /// Fuel or operations per request that all its decisions in a run may use together.
    per_request: u64,
}

impl EvaluationSuite {
    /// Configures every scenario of `suite`. All mistakes that the suite itself can have are found here.
    pub fn new(suite: Suite) -> Result<Self, RunError> {
        let prepare = |scenario: &Scenario| -> Result<PreparedScenario, RunError> {
            let config = configure(&suite, scenario).map_err(|failure| in_scenario(scenario, &failure))?;
            let deployment = open::resolve(&config).map_err(|failure| in_scenario(scenario, &failure))?;
            Ok(PreparedScenario { config, deployment })
        };
        let scenarios: Vec<PreparedScenario> = suite.scenarios.iter().map(prepare).collect::<Result<_, RunError>>()?;
        let hash = hash(&suite, &scenarios);
        let prepared = Self {
            suite,
            hash,
            scenarios,
            workloads: Mutex::default(),
            shared_runs: Mutex::default(),
            run_cache: None,
            named: Mutex::default(),
            self_contained: OnceLock::new(),
            added: Mutex::default(),
            missing: Mutex::default(),
        };
        for name in
            [&prepared.suite.reference, &prepared.suite.baseline].into_iter().chain(&prepared.suite.reference_policies)
        {
            prepared.named(name).map_err(|failure| {
                RunError::usage(format_args!("{}: policy `{name}`: {}", prepared.suite.file, failure.text()))
            })?;
        }
        Ok(prepared)
    }

    /// Keeps the runs that all candidates share in `folder`, and uses those that are there.
    #[must_use]
    pub fn with_run_cache(self, folder: Option<&Path>) -> Self {
        let run_cache = folder.map(|folder| RunCache::new(folder, &self.hash));
        Self { run_cache, ..self }
    }

    /// SHA-256 of the suite and of all files that it names, hexadecimal.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// A policy by its name, as `blis compare` accepts it, or built-in policies of several kinds joined by ` + `.
    pub fn named(&self, name: &str) -> Result<EvaluatedPolicy, RunError> {
        if wall::is_up()
            && let Some(policy) = lock(&self.named).get(name)
        {
            return Ok(policy.clone());
        }
        let config = |prepared: &PreparedScenario| prepared.config.with_policies(name);
        let configs = self.scenarios.iter().map(config).collect::<Result<Vec<_>, RunError>>()?;
        let is_fixed = configs.iter().all(|config| config.cluster.policies.plugins().next().is_none());
        let per_request = self.suite.limits.fuel_per_request;
        Ok(EvaluatedPolicy { key: format!("named:{name}"), configs, is_fixed, per_request })
    }

    /// The policy of a candidate. `parameters` are those that differ from its defaults.
    pub fn candidate(&self, loaded: &LoadedPlugin, parameters: &[(String, f64)]) -> Result<EvaluatedPolicy, RunError> {
        let loaded = Arc::new(loaded.clone());
        let config = |prepared: &PreparedScenario| -> Result<Experiment, RunError> {
            let base = &prepared.config;
            let catalog = Arc::new(base.catalog.with(&loaded, limits_of(&self.suite.limits)));
            let source = || SettingSource::Other("the candidate".into());
            let kinds = &loaded.plugin.description().kinds;
            let mut choices = base.choices.clone();
            for kind in self.suite.decides.iter().copied().filter(|kind| kinds.contains(kind)) {
                if kind == Kind::RoutingFilter && !self.suite.decides.contains(&Kind::Routing) {
                    // The one filter of the pipeline; the scenario sets its scorers.
                    let given = parameters.iter().map(|(name, value)| (name.clone(), ParameterInput::Number(*value)));
                    let value = FilterSetting::Plugin { name: loaded.name.clone(), given: given.collect() };
                    choices.filters = Some(vec![Sourced { value, source: source() }]);
                    continue;
                }
                let name = Sourced { value: loaded.name.clone(), source: source() };
                choices = choices.without(kind).with(kind, name);
                let set = parameters.iter().map(|(name, value)| ParameterSetting {
                    kind,
                    name: name.clone(),
                    value: Sourced { value: ParameterInput::Number(*value), source: source() },
                    key: None,
                });
                choices.parameters.extend(set);
            }
            let policies =
                PolicySettings::choose(&choices, base.bundle.as_ref(), &*catalog).map_err(RunError::refused)?;
            let mut config = base.clone();
            config.engine.follow(&policies);
            config.cluster.policies = policies;
            config.catalog = catalog;
            Ok(config)
        };
        let configs = self.scenarios.iter().map(config).collect::<Result<_, RunError>>()?;
        let set: String = parameters.iter().map(|(name, value)| format!(":{name}={value}")).collect();
        let limits = &self.suite.limits;
        let per_request = match loaded.plugin.technology() {
            Technology::Script => limits.operations_per_request,
            Technology::Component | Technology::Native | Technology::BuiltIn => limits.fuel_per_request,
        };
        Ok(EvaluatedPolicy { key: format!("{}{set}", loaded.sha256), configs, is_fixed: true, per_request })
    }

    fn workload(&self, at: RunKey) -> Result<Arc<ScenarioWorkload>, RunError> {
        if let Some(workload) = lock(&self.workloads).get(&at) {
            return Ok(Arc::clone(workload));
        }
        let config = self.scenarios[at.scenario].config.with_seed(at.seed);
        let (generated, horizon) = open::open_until(&config)?;
        let Workload { requests, follow_ups, names, slo_targets, .. } = generated;
        measure::check_weights(&self.suite.weights, &config, &names, &slo_targets)?;
        let kept = follow_ups.is_none().then(|| requests.collect());
        let workload = Arc::new(ScenarioWorkload { names, slo_targets, horizon, kept });
        lock(&self.added).workloads.push(at);
        // Another thread may have generated the same workload meanwhile; then this one is dropped.
        let mut workloads = lock(&self.workloads);
        let kept = |workload: &Arc<ScenarioWorkload>| workload.kept.as_ref().map_or(0, |kept| kept.len());
        if workloads.values().map(kept).sum::<usize>() + kept(&workload) > MAX_KEPT_REQUESTS {
            workloads.clear(); // most likely those of earlier epochs
        }
        Ok(Arc::clone(workloads.entry(at).or_insert(workload)))
    }

    /// Simulates `policy` up to its `limit`; `observer` records the run.
    pub(super) fn simulate<S: Observer>(
        &self,
        policy: &EvaluatedPolicy,
        at: RunKey,
        limit: SimulationLimit<'_>,
        observer: impl FnOnce(&Experiment, &ScenarioWorkload) -> S,
    ) -> Result<(Measurement<S>, Experiment, Arc<ScenarioWorkload>), RunError> {
        let workload = self.workload(at)?;
        let mut config = Experiment { horizon: workload.horizon, ..policy.configs[at.scenario].with_seed(at.seed) };
        config.budget = Some(RunBudget::new(workload.limit(policy).max(limit.budget), limit.handle));
        let observer = observer(&config, &workload);
        let deployment = &self.scenarios[at.scenario].deployment;
        let (requests, follow_ups) = open::kept_or_opened(workload.kept.as_deref(), &config)?;
        let measured = measure::measure(&config, deployment, workload.named(), requests, follow_ups, observer)?;
        Ok((measured, config, workload))
    }

    /// The summary of one run.
    pub fn run(
        &self,
        policy: &EvaluatedPolicy,
        at: RunKey,
        handle: &Arc<CancelHandle>,
    ) -> Result<RunSummary, RunError> {
        let observer = |config: &Experiment, workload: &ScenarioWorkload| {
            EndLog::new(&measure::metrics_options(config, &workload.names, &workload.slo_targets))
        };
        let limit = SimulationLimit { handle, budget: 0 };
        let (measured, _, workload) = self.simulate(policy, at, limit, observer)?;
        let rules = self.class_rules(at.scenario, &workload.names);
        Ok(summary(measured, &self.suite, &rules, &workload.names))
    }

    /// The rules of the classes of a scenario: the same for all policies, whatever priorities a bundle sets.
    fn class_rules(&self, scenario: usize, names: &Names) -> ClassRules {
        let classes = service::classes(&self.scenarios[scenario].config.cluster.policies, names);
        ClassRules::new(&classes, names, |name, usual| self.suite.class_rule(name, usual))
    }

    /// The summary of one run that all candidates share; simulated once and then kept in memory.
    pub(super) fn shared_run(
        &self,
        policy: &EvaluatedPolicy,
        at: RunKey,
        handle: &Arc<CancelHandle>,
    ) -> Result<RunSummary, RunError> {
        let RunKey { scenario, seed } = at;
        let key = (policy.key.clone(), scenario, seed);
        if let Some(summary) = lock(&self.shared_runs).get(&key) {
            return Ok(summary.clone());
        }
        let run_cache = self.run_cache.as_ref().filter(|_| policy.is_fixed);
        let mut is_fresh = false;
        let summary = match run_cache.and_then(|cache| cache.get(&policy.key, at)) {
            Some(summary) => summary,
            None => {
                let summary = self.run(policy, at, handle)?;
                // Behind the wall the process that started this one keeps it.
                is_fresh = run_cache.is_some() && wall::is_up();
                if let Some(cache) = run_cache.filter(|_| !is_fresh) {
                    cache.put(&policy.key, at, &summary);
                }
                summary
            }
        };
        let run = SharedRun { policy: policy.key.clone(), scenario, seed, summary: summary.clone(), is_fresh };
        lock(&self.added).runs.push(run.clone());
        self.keep(vec![run]);
        Ok(summary)
    }

    /// Keeps what a worker has added to its copy, for the workers that will be started: runs that all candidates share,
    /// and which workloads [`Self::generate_next`] generates.
    pub(super) fn keep_added(&self, runs: Vec<SharedRun>, workloads: Vec<RunKey>) {
        if let Some(cache) = &self.run_cache {
            for &SharedRun { ref policy, scenario, seed, ref summary, .. } in runs.iter().filter(|run| run.is_fresh) {
                cache.put(policy, RunKey { scenario, seed }, summary);
            }
        }
        self.keep(runs);
        lock(&self.missing).extend(workloads);
    }

    /// Whether evaluations on this suite read files only where they start: no workload is a trace, and no policy of the suite a
    /// plugin.
    pub(super) fn is_self_contained(&self) -> bool {
        *self.self_contained.get_or_init(|| {
            let suite = &self.suite;
            let mut names = [&suite.reference, &suite.baseline].into_iter().chain(&suite.reference_policies);
            self.scenarios.iter().all(|scenario| !scenario.reads_files())
                && names.all(|name| self.named(name).is_ok_and(|policy| policy.is_fixed))
        })
    }

    /// Reads what the runs of `plans` need from files, and finds the policies in `names`, before this process can open nothing any
    /// more. Returns whether that is all: the clients of a trace in a closed loop are read again in every run.
    pub(super) fn read_ahead(&self, plans: &[StagePlan], names: &BTreeSet<&String>) -> bool {
        let policies: Vec<(&String, EvaluatedPolicy)> =
            names.iter().filter_map(|name| Some((*name, self.named(name).ok()?))).collect();
        for &(scenario, ref seeds) in plans.iter().flat_map(|plan| &plan.scenarios) {
            for &seed in seeds {
                let at = RunKey { scenario, seed };
                if self.scenarios[scenario].reads_files() {
                    // An error comes again, and is reported, when the run needs it.
                    match self.workload(at) {
                        Ok(workload) if workload.kept.is_none() => return false,
                        Ok(_) | Err(_) => {}
                    }
                }
                for (_, policy) in &policies {
                    self.read_run(policy, at);
                }
            }
        }
        lock(&self.named).extend(policies.into_iter().map(|(name, policy)| (name.clone(), policy)));
        true
    }

    /// Takes a shared run into memory if it is on the disk.
    fn read_run(&self, policy: &EvaluatedPolicy, at: RunKey) {
        let RunKey { scenario, seed } = at;
        let key = (policy.key.clone(), scenario, seed);
        let Some(cache) = self.run_cache.as_ref().filter(|_| policy.is_fixed) else { return };
        if lock(&self.shared_runs).contains_key(&key) {
            return;
        }
        if let Some(summary) = cache.get(&policy.key, at) {
            let run = SharedRun { policy: key.0, scenario, seed, summary, is_fresh: false };
            lock(&self.added).runs.push(run.clone());
            self.keep(vec![run]);
        }
    }

    fn keep(&self, shared: Vec<SharedRun>) {
        let mut runs = lock(&self.shared_runs);
        if runs.len() + shared.len() > MAX_SHARED_RUNS {
            runs.clear();
        }
        for SharedRun { policy, scenario, seed, summary, .. } in shared {
            runs.insert((policy, scenario, seed), summary);
        }
    }

    /// Makes what workers would each make anew: the engines of scripts and components.
    pub(super) fn prepare_engines(&self) {
        // The engine for scripts makes its tables of functions when it first runs one.
        const SCRIPT: &str = "fn route(r, s) { -s.queue_depth + max(r.input_tokens, 1) }";
        let limits = limits_of(&self.suite.limits);
        if let Ok(plugin) = script::load(Path::new("prepare.rhai"), SCRIPT, &limits) {
            let _ = check::try_once(&*plugin, Kind::Routing, &limits);
        }
        // A machine that cannot run components refuses those that it gets.
        let _ = wasm::prepare(&wasm::WasmSettings::default());
    }

    /// From here on runs and workloads count as added.
    pub(super) fn begin(&self) {
        *lock(&self.added) = Additions::default();
    }

    /// The shared runs, and the workloads, that were added since [`Self::begin`].
    pub(super) fn added(&self) -> (Vec<SharedRun>, Vec<RunKey>) {
        let Additions { runs, workloads } = std::mem::take(&mut *lock(&self.added));
        (runs, workloads)
    }

    /// Generates a workload that workers had to generate. Returns `false` if there is none.
    pub(super) fn generate_next(&self) -> bool {
        let next = lock(&self.missing).pop();
        // A worker that needs it reports the error.
        next.map(|at| self.workload(at)).is_some()
    }

    /// Whether there are workloads for [`Self::generate_next`].
    pub(super) fn has_missing(&self) -> bool {
        !lock(&self.missing).is_empty()
    }

    /// The regret of decisions of `policy` in one run, which used `operations` operations. The number of decisions is
    /// at most `samples`, and at most what `limit` allows, or the limit of a run if that is larger. `None` if fewer
    /// than `MIN_SAMPLES` fit.
    pub fn scenario_regret(
        &self,
        policy: &EvaluatedPolicy,
        at: RunKey,
        samples: u32,
        operations: u64,
        limit: SimulationLimit<'_>,
    ) -> Result<Option<ScenarioRegret>, RunError> {
        let scenario = at.scenario;
        let budget = limit.budget.max(self.workload(at)?.limit(policy));
        // The branches of one decision take about one and a half times the operations of the run.
        let fitting = budget.saturating_mul(2) / operations.saturating_mul(3).max(1);
        let samples = samples.min(u32::try_from(fitting).unwrap_or(u32::MAX));
        if samples < MIN_SAMPLES {
            return Ok(None);
        }
        let mut sampled = policy.clone();
        sampled.configs[scenario].evaluation.regret = RegretSettings::brief(samples, &self.suite.decides);
        let observer = |config: &Experiment, workload: &ScenarioWorkload| {
            counterfactual::surveyor(config, &workload.names, &workload.slo_targets)
        };
        let limit = SimulationLimit { budget, ..limit };
        let (measured, config, workload) = self.simulate(&sampled, at, limit, observer)?;
        let survey = measured.observer.map(|surveyor| surveyor.survey).unwrap_or_default();
        let deployment = &self.scenarios[scenario].deployment;
        let regret = counterfactual::regret(&config, deployment, workload.named(), survey)?;
        Ok(Some(ScenarioRegret { scenario: self.suite.scenarios[scenario].name.clone(), regret }))
    }
}

#[cfg(test)]
mod leaks;

/// With fewer decisions the mean regret says nothing.
const MIN_SAMPLES: u32 = 4;

impl ScenarioWorkload {
    /// What its requests name.
    pub(super) fn named(&self) -> NamedWorkload<'_> {
        NamedWorkload { names: &self.names, slo_targets: &self.slo_targets }
    }
    /// Fuel or operations that a run of `policy` may use.
    fn limit(&self, policy: &EvaluatedPolicy) -> u64 {
        let requests = self.kept.as_ref().map_or(1000, |kept| kept.len() as u64);
        policy.per_request.saturating_mul(requests.max(100))
    }
}

/// One evaluation: the candidate, its reference, its baseline and its incumbent on a suite.
pub struct EvaluationContext<'a> {
    pub prepared: &'a EvaluationSuite,
    pub candidate: EvaluatedPolicy,
    pub reference: EvaluatedPolicy,
    pub baseline: EvaluatedPolicy,
    pub incumbent: Option<EvaluatedPolicy>,
    pub handle: Arc<CancelHandle>,
    /// Whether the runs use all threads of the current pool; if not, they run one after the other.
    pub parallel: bool,
}

impl EvaluationContext<'_> {
    fn run_task(&self, task: &Task) -> Result<RunSummary, (PolicyRole, RunError)> {
        let Task { scenario, seed, .. } = *task;
        let at = RunKey { scenario, seed };
        let summary = match (task.role, &self.incumbent) {
            (PolicyRole::Candidate, _) => self.prepared.run(&self.candidate, at, &self.handle),
            (PolicyRole::Incumbent, Some(incumbent)) => self.prepared.shared_run(incumbent, at, &self.handle),
            (PolicyRole::Baseline, _) => self.prepared.shared_run(&self.baseline, at, &self.handle),
            (PolicyRole::Reference | PolicyRole::Incumbent, _) => {
                self.prepared.shared_run(&self.reference, at, &self.handle)
            }
        };
        summary.map_err(|failure| (task.role, failure))
    }
}

impl RunSource for EvaluationContext<'_> {
    type Error = (PolicyRole, RunError);

    fn run(&self, tasks: &[Task]) -> Result<Vec<RunSummary>, Self::Error> {
        if self.parallel {
            let all: Vec<_> = tasks.par_iter().map(|task| self.run_task(task)).collect();
            all.into_iter().collect()
        } else {
            tasks.iter().map(|task| self.run_task(task)).collect()
        }
    }
}

/// The results of a run that the cascade uses.
fn summary(measured: Measurement<EndLog>, suite: &Suite, rules: &ClassRules, names: &Names) -> RunSummary {
    let Measurement { report, observer, plugin_use: (decisions, operations), .. } = measured;
    let all = Figures::from(&report);
    let figures = Figure::ALL.iter().filter_map(|&figure| Some((figure.key().to_owned(), all.get(figure)?)));
    let charges = observer.charge(&report, rules, names);
    let class = |(name, ends): (String, ClassEnds)| {
        let ClassEnds { arrived, completed, lost, mean_e2e_ms, sheddable } = ends;
        (name, ClassSummary { arrived, completed, lost, mean_e2e_ms, sheddable })
    };
    let classes = charges.classes();
    let several = classes.len() > 1;
    let blocked: usize = report.anomalies.head_of_line_blocking.len();
    let anomalies = [
        ("priority_inversions", report.anomalies.priority_inversions.unwrap_or(0)),
        ("head_of_line_blocked_instances", blocked as u64),
        ("rejected", report.anomalies.rejected_by_admission + report.anomalies.rejected_by_routing),
        ("dropped", report.anomalies.dropped),
        ("timed_out", report.anomalies.timed_out),
    ];
    RunSummary {
        figures: figures.collect(),
        charged: charges.figures(&suite.weights, &all),
        classes: classes.into_iter().filter(|_| several).map(class).collect(),
        imbalance: imbalance(&report),
        anomalies: anomalies.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
        decisions,
        operations,
    }
}

/// Standard deviation over mean of the number of requests per instance.
fn imbalance(report: &Report) -> f64 {
    let counts: Vec<f64> = report.instances.iter().map(|instance| instance.counts.injected() as f64).collect();
    let mean = counts.iter().sum::<f64>() / counts.len().max(1) as f64;
    let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len().max(1) as f64;
    if mean > 0.0 { variance.sqrt() / mean } else { 0.0 }
}

/// The experiment of a scenario.
fn configure(suite: &Suite, scenario: &Scenario) -> Result<Experiment, RunError> {
    let config = Experiment::new(scenario_spec(suite, scenario)?, OutputFiles::default())?;
    let Some(text) = &scenario.workload else { return Ok(config) };
    let name = format!("{} (workload of {})", suite.file, scenario.name);
    let within = suite.surroundings();
    let files = FilesWithin { folder: within.folder.clone(), within: Some(within) };
    let spec = Spec::parse(&name, text, &files).map_err(RunError::refused)?;
    Ok(config.with_spec(&name, spec))
}

/// The settings of a scenario. If a name is repeated, the last value counts.
fn scenario_spec(suite: &Suite, scenario: &Scenario) -> Result<ExperimentSpec, RunError> {
    let mut spec = ExperimentSpec::default();
    spec.beside = Some(suite.surroundings());
    for (name, value) in &scenario.flags {
        let off = name.strip_prefix("no-").and_then(|name| SettingKey::get(name));
        let off = off.filter(|key| key.form == ValueForm::Switch);
        let key = SettingKey::get(name).or(off);
        if key.is_some_and(|key| !key.suites && key.permission.is_none()) {
            return Err(RunError::usage(format_args!("`{name}` cannot be set in a suite"))
                .hint("seeds follow from the split, and an evaluation writes no files of a run"));
        }
        match off {
            Some(key) if value == "true" => spec.set_named(key.name, "false")?,
            Some(_) => {}
            None => spec.set_named(name, value)?,
        }
    }
    Ok(spec)
}

/// Hash of the text of the suite, of the files that its flags and policies name, and of the workloads and deployments
/// that follow from them. It does not depend on where the file of the suite lies.
fn hash(suite: &Suite, scenarios: &[PreparedScenario]) -> String {
    let mut digest = Sha256::new();
    digest.update(&suite.hash);
    let flags = suite.scenarios.iter().flat_map(|scenario| &scenario.flags).map(|(_, value)| value);
    for named in flags.chain([&suite.baseline, &suite.reference]).chain(&suite.reference_policies) {
        let mut content = Sha256::new();
        // In parts: a trace may be longer than memory. Writing to a digest does not fail.
        if open_file(Path::new(named)).and_then(|mut file| io::copy(&mut file, &mut content)).is_ok() {
            digest.update(content.finalize());
        }
    }
    // As the names of workloads have it.
    let file = format!("{:?}", suite.file);
    let file = format!("{} (", file.trim_matches('"'));
    for PreparedScenario { config, deployment } in scenarios {
        let workload = format!("{:?}", config.workload);
        digest.update(workload.replace(&file, ""));
        digest.update(format!(" {deployment:?}"));
    }
    hex(&digest.finalize())
}

/// Adds the location and the name of the scenario to an error.
fn in_scenario(scenario: &Scenario, failure: &RunError) -> RunError {
    RunError::usage(format_args!("{}: scenario `{}`: {}", scenario.location, scenario.name, failure.text()))
}
