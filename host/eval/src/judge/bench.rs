//! An evaluation suite in memory: every scenario is configured, every workload is generated once per seed, and every
//! run of the baseline is simulated once.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use blis_sim::cluster::FollowUps;
use blis_sim::metrics::Report;
use blis_sim::observer::Observer;
use blis_sim::request::Request;
use blis_sim::units::Micros;
use rayon::prelude::*;
use sha2::{Digest as _, Sha256};

use super::candidate::limits_of;
use crate::cancel::{Hand, Leash};
use crate::cascade::{ClassFacts, Facts, Runs, Task, Who};
use crate::contest::Others;
use crate::error::Failure;
use crate::experiment::{Experiment, OutputFiles, RegretSettings};
use crate::feedback::Lesson;
use crate::measure::{self, Measured};
use crate::spec::{ExperimentSpec, Form, Key};
use crate::suite::{Scenario, Suite, hex};
use crate::{Figure, Figures};
use crate::{counterfactual, open};
use blis_config::Deployment;
use blis_config::policy::{Given, PolicySettings, Source, Sourced};
use blis_plugin::{Loaded, Technology};
use blis_workload::spec::Spec;
use blis_workload::spec::files::Beside;
use blis_workload::trace_v2::GoodputTargets;
use blis_workload::{Names, Workload};

/// A suite with its configured scenarios, its workloads and the runs of its baseline in memory.
#[derive(Debug)]
pub struct Bench {
    pub suite: Suite,
    /// SHA-256 of the suite and of all files that it names, hexadecimal.
    hash: String,
    scenarios: Vec<Prepared>,
    loads: Mutex<HashMap<(usize, u64), Arc<Load>>>,
    /// Summaries of runs that all candidates share, by policy, scenario and seed.
    known: Mutex<HashMap<(String, usize, u64), Facts>>,
}

#[derive(Debug)]
struct Prepared {
    config: Experiment,
    deployment: Deployment,
}

/// The requests of one scenario under one seed.
struct Load {
    names: Names,
    slo_targets: BTreeMap<String, GoodputTargets>,
    horizon: Micros,
    /// `None` in a closed loop: the clients wait for outputs, so the requests are generated again for each run.
    kept: Option<Arc<[Request]>>,
}

impl std::fmt::Debug for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Load").field("requests", &self.kept.as_ref().map(|kept| kept.len())).finish_non_exhaustive()
    }
}

/// Number of workloads kept in memory. More of them belong to epochs and seeds of earlier requests.
const MOST_LOADS: usize = 256;
/// Number of run summaries kept in memory, one or two kilobytes each.
const MOST_KNOWN: usize = 4096;

type Arrivals<'a> = (Box<dyn Iterator<Item = Request> + 'a>, Option<Box<dyn FollowUps + Send>>);

/// A policy with its experiment in every scenario.
#[derive(Clone, Debug)]
pub struct Player {
    /// Key of its runs in the memory of an evaluation suite.
    key: String,
    configs: Vec<Experiment>,
    /// Fuel or operations per request that all its decisions in a run may use together.
    per_request: u64,
}

impl Bench {
    /// Configures every scenario of `suite`. All mistakes that the suite itself can have are found here.
    pub fn new(suite: Suite) -> Result<Self, Failure> {
        let prepared = |scenario: &Scenario| -> Result<Prepared, Failure> {
            let config = configure(&suite, scenario).map_err(|failure| within(scenario, &failure))?;
            let deployment = open::resolve(&config).map_err(|failure| within(scenario, &failure))?;
            Ok(Prepared { config, deployment })
        };
        let scenarios: Vec<Prepared> = suite.scenarios.iter().map(prepared).collect::<Result<_, Failure>>()?;
        let hash = hash(&suite, &scenarios);
        Ok(Self { suite, hash, scenarios, loads: Mutex::default(), known: Mutex::default() })
    }

    /// SHA-256 of the suite and of all files that it names, hexadecimal.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// A policy by its name, as `blis compare` accepts it.
    pub fn named(&self, name: &str) -> Result<Player, Failure> {
        let config = |prepared: &Prepared| prepared.config.with_contestant(name, Others::Kept);
        let configs = self.scenarios.iter().map(config).collect::<Result<_, Failure>>()?;
        Ok(Player { key: format!("named:{name}"), configs, per_request: self.suite.limits.fuel_per_request })
    }

    /// The policy of a candidate. `parameters` are those that differ from its defaults.
    pub fn candidate(&self, loaded: &Loaded, parameters: &[(String, f64)]) -> Result<Player, Failure> {
        let loaded = Arc::new(loaded.clone());
        let config = |prepared: &Prepared| -> Result<Experiment, Failure> {
            let base = &prepared.config;
            let catalog = Arc::new(base.catalog.with(&loaded, limits_of(&self.suite.limits)));
            let source = || Source::Told("the candidate".into());
            let kinds = &loaded.plugin.description().kinds;
            let mut choices = base.choices.clone();
            for kind in self.suite.decides.iter().copied().filter(|kind| kinds.contains(kind)) {
                let name = Sourced { value: loaded.name.clone(), source: source() };
                choices = choices.without(kind).with(kind, name);
                let set = parameters.iter().map(|(name, value)| Given {
                    kind,
                    name: name.clone(),
                    value: Sourced { value: *value, source: source() },
                    key: None,
                });
                choices.parameters.extend(set);
            }
            let policies =
                PolicySettings::choose(&choices, base.bundle.as_ref(), &*catalog).map_err(Failure::refused)?;
            let mut config = base.clone();
            config.engine.follow(&policies);
            config.cluster.policies = policies;
            config.catalog = catalog;
            Ok(config)
        };
        let configs = self.scenarios.iter().map(config).collect::<Result<_, Failure>>()?;
        let set: String = parameters.iter().map(|(name, value)| format!(":{name}={value}")).collect();
        let limits = &self.suite.limits;
        let per_request = match loaded.plugin.technology() {
            Technology::Script => limits.operations_per_request,
            Technology::Component | Technology::Native | Technology::BuiltIn => limits.fuel_per_request,
        };
        Ok(Player { key: format!("{}{set}", loaded.sha256), configs, per_request })
    }

    fn load(&self, scenario: usize, seed: u64) -> Result<Arc<Load>, Failure> {
        if let Some(load) = self.loads.lock().unwrap_or_else(PoisonError::into_inner).get(&(scenario, seed)) {
            return Ok(Arc::clone(load));
        }
        let config = self.scenarios[scenario].config.with_seed(seed);
        let (workload, horizon) = open::open_until(&config)?;
        let Workload { requests, follow_ups, names, slo_targets, .. } = workload;
        let kept = follow_ups.is_none().then(|| requests.collect());
        let load = Arc::new(Load { names, slo_targets, horizon, kept });
        // Another thread may have generated the same workload meanwhile; then this one is dropped.
        let mut loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        if loads.len() >= MOST_LOADS {
            loads.clear(); // most likely those of earlier epochs
        }
        Ok(Arc::clone(loads.entry((scenario, seed)).or_insert(load)))
    }

    /// Simulates `policy` until `handle` is used; `observer` records the run. `budget` replaces the limit of
    /// operations of a run if it is larger.
    fn simulate<S: Observer>(
        &self,
        player: &Player,
        (scenario, seed): (usize, u64),
        (hand, budget): (&Arc<Hand>, u64),
        observer: impl FnOnce(&Experiment, &Load) -> S,
    ) -> Result<(Measured<S>, Experiment, Arc<Load>), Failure> {
        let load = self.load(scenario, seed)?;
        let mut config = Experiment { horizon: load.horizon, ..player.configs[scenario].with_seed(seed) };
        config.leash = Some(Leash::new(load.most(player).max(budget), hand));
        let observer = observer(&config, &load);
        let deployment = &self.scenarios[scenario].deployment;
        let named = (&load.names, &load.slo_targets);
        let measured = measure::measure(&config, deployment, named, load.requests(&config)?, observer)?;
        Ok((measured, config, load))
    }

    /// The summary of one run.
    pub fn facts(&self, player: &Player, (scenario, seed): (usize, u64), hand: &Arc<Hand>) -> Result<Facts, Failure> {
        let (measured, _, load) = self.simulate(player, (scenario, seed), (hand, 0), |_, _| ())?;
        Ok(facts(&measured, &load.names))
    }

    /// The summary of one run that all candidates share; simulated once and then kept in memory.
    fn known(&self, player: &Player, (scenario, seed): (usize, u64), hand: &Arc<Hand>) -> Result<Facts, Failure> {
        let key = (player.key.clone(), scenario, seed);
        if let Some(facts) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(facts.clone());
        }
        let facts = self.facts(player, (scenario, seed), hand)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(key, facts.clone());
        Ok(facts)
    }

    /// The regret of decisions of `policy` in one run, which used `operations` operations. The number of decisions is
    /// at most `samples`, and at most what `budget` allows, or the limit of a run if that is larger. `None` if fewer
    /// than [`LEAST_SAMPLES`] fit. Ends when `handle` is used.
    pub fn lesson(
        &self,
        player: &Player,
        (scenario, seed): (usize, u64),
        samples: u32,
        operations: u64,
        (hand, budget): (&Arc<Hand>, u64),
    ) -> Result<Option<Lesson>, Failure> {
        let budget = budget.max(self.load(scenario, seed)?.most(player));
        // The branches of one decision take about one and a half times the operations of the run.
        let fitting = budget.saturating_mul(2) / operations.saturating_mul(3).max(1);
        let samples = samples.min(u32::try_from(fitting).unwrap_or(u32::MAX));
        if samples < LEAST_SAMPLES {
            return Ok(None);
        }
        let mut asked = player.clone();
        asked.configs[scenario].evaluation.regret = RegretSettings::brief(samples);
        let watch = |config: &Experiment, load: &Load| counterfactual::surveyor(config, &load.names, &load.slo_targets);
        let (measured, config, load) = self.simulate(&asked, (scenario, seed), (hand, budget), watch)?;
        let survey = measured.observer.map(|surveyor| surveyor.survey).unwrap_or_default();
        let deployment = &self.scenarios[scenario].deployment;
        let regret = counterfactual::judge(&config, deployment, (&load.names, &load.slo_targets), survey)?;
        Ok(Some(Lesson { scenario: self.suite.scenarios[scenario].name.clone(), regret }))
    }
}

/// With fewer decisions the mean regret says nothing.
const LEAST_SAMPLES: u32 = 4;

impl Load {
    /// Fuel or operations that a run of `policy` may use.
    fn most(&self, player: &Player) -> u64 {
        let requests = self.kept.as_ref().map_or(1000, |kept| kept.len() as u64);
        player.per_request.saturating_mul(requests.max(100))
    }

    fn requests(&self, config: &Experiment) -> Result<Arrivals<'_>, Failure> {
        Ok(match &self.kept {
            Some(requests) => (Box::new(requests.iter().cloned()), None),
            None => {
                let Workload { requests, follow_ups, .. } = open::open(config)?;
                (requests, follow_ups)
            }
        })
    }
}

/// One evaluation: the candidate, its baseline and its incumbent on a suite.
pub struct Sitting<'a> {
    pub bench: &'a Bench,
    pub candidate: Player,
    pub baseline: Player,
    pub incumbent: Option<Player>,
    pub hand: Arc<Hand>,
    /// Whether the runs use all threads of the current pool; if not, they run one after the other.
    pub parallel: bool,
}

impl Sitting<'_> {
    fn one(&self, task: &Task) -> Result<Facts, (Who, Failure)> {
        let at = (task.scenario, task.seed);
        let facts = match (task.who, &self.incumbent) {
            (Who::Candidate, _) => self.bench.facts(&self.candidate, at, &self.hand),
            (Who::Incumbent, Some(incumbent)) => self.bench.known(incumbent, at, &self.hand),
            (Who::Baseline | Who::Incumbent, _) => self.bench.known(&self.baseline, at, &self.hand),
        };
        facts.map_err(|failure| (task.who, failure))
    }
}

impl Runs for Sitting<'_> {
    type Error = (Who, Failure);

    fn run(&self, tasks: &[Task]) -> Result<Vec<Facts>, Self::Error> {
        if self.parallel {
            let all: Vec<_> = tasks.par_iter().map(|task| self.one(task)).collect();
            all.into_iter().collect()
        } else {
            tasks.iter().map(|task| self.one(task)).collect()
        }
    }
}

/// The results of a run that the cascade uses.
fn facts(measured: &Measured<()>, names: &Names) -> Facts {
    let report = &measured.report;
    let figures = Figures::from(report);
    let figures = Figure::ALL.iter().filter_map(|&figure| Some((figure.key().to_owned(), figures.get(figure)?)));
    let class = |(name, class): &(blis_sim::request::Name, blis_sim::metrics::ClassReport)| {
        let facts = ClassFacts {
            arrived: class.counts.arrived(),
            completed: class.counts.completed,
            mean_e2e_ms: class.e2e.mean_ms,
        };
        (names.text(*name).to_owned(), facts)
    };
    let several = report.classes.len() > 1;
    let blocked: usize = report.anomalies.head_of_line_blocking.len();
    let anomalies = [
        ("priority_inversions", report.anomalies.priority_inversions.unwrap_or(0)),
        ("head_of_line_blocked_instances", blocked as u64),
        ("rejected", report.anomalies.rejected_by_admission + report.anomalies.rejected_by_routing),
        ("dropped", report.anomalies.dropped),
        ("timed_out", report.anomalies.timed_out),
    ];
    let (decisions, operations) = measured.used;
    Facts {
        figures: figures.collect(),
        classes: report.classes.iter().filter(|_| several).map(class).collect(),
        imbalance: imbalance(report),
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
fn configure(suite: &Suite, scenario: &Scenario) -> Result<Experiment, Failure> {
    let config = Experiment::new(scenario_spec(scenario)?, OutputFiles::default())?;
    let Some(text) = &scenario.workload else { return Ok(config) };
    let name = format!("{} (workload of {})", suite.file, scenario.name);
    let beside = Path::new(&suite.file).parent().unwrap_or(Path::new("")).to_owned();
    let spec = Spec::parse(&name, text, &Beside(beside)).map_err(Failure::refused)?;
    Ok(config.with_spec(&name, spec))
}

/// The settings of a scenario. If a name is repeated, the last value counts.
fn scenario_spec(scenario: &Scenario) -> Result<ExperimentSpec, Failure> {
    let mut spec = ExperimentSpec::default();
    for (name, value) in &scenario.flags {
        if ELSEWHERE.contains(&name.as_str()) {
            return Err(Failure::usage(format_args!("`{name}` does not belong into a suite"))
                .hint("seeds follow from the split, and files are not written"));
        }
        let off = name.strip_prefix("no-").and_then(|name| Key::find(name).ok()).filter(|key| key.form == Form::Switch);
        match off {
            Some(key) if value == "true" => spec.set_named(key.name, "false")?,
            Some(_) => {}
            None => spec.set_named(name, value)?,
        }
    }
    Ok(spec)
}

/// Settings that a scenario cannot have, because the evaluation sets them or writes no such file.
const ELSEWHERE: [&str; 16] = [
    "seed",
    "metrics-path",
    "results-path",
    "trace-path",
    "trace-level",
    "trace-output",
    "export",
    "regret",
    "regret-path",
    "explain-config",
    "fitness-weights",
    "baseline",
    "latency-plugin",
    "on-plugin-error",
    "output",
    "summarize-trace",
];

/// Hash of the text of the suite, of the files that its flags and policies name, and of the workloads and deployments
/// that follow from them.
fn hash(suite: &Suite, scenarios: &[Prepared]) -> String {
    let mut digest = Sha256::new();
    digest.update(&suite.hash);
    let flags = suite.scenarios.iter().flat_map(|scenario| &scenario.flags).map(|(_, value)| value);
    for named in flags.chain([&suite.baseline]).chain(&suite.rivals) {
        if let (true, Ok(bytes)) = (Path::new(named).is_file(), std::fs::read(named)) {
            digest.update(Sha256::digest(bytes));
        }
    }
    for Prepared { config, deployment } in scenarios {
        digest.update(format!("{:?} {deployment:?}", config.workload));
    }
    hex(&digest.finalize())
}

/// Adds the location and the name of the scenario to an error.
fn within(scenario: &Scenario, failure: &Failure) -> Failure {
    Failure::usage(format_args!("{}: scenario `{}`: {}", scenario.spot, scenario.name, failure.text()))
}
