//! A suite made ready: every scenario configured, every workload generated once per seed, every run of the
//! baseline known after the first.

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
use blis_config::policy::{ParameterSetting, PolicySettings, SettingSource, Sourced};
use blis_plugin::{LoadedPlugin, Technology};
use blis_workload::spec::Spec;
use blis_workload::spec::files::Beside;
use blis_workload::trace_v2::GoodputTargets;
use blis_workload::{Names, Workload};

/// A suite, ready.
#[derive(Debug)]
pub struct Bench {
    pub suite: Suite,
    /// Of the suite and all that it names.
    hash: String,
    scenarios: Vec<Prepared>,
    loads: Mutex<HashMap<(usize, u64), Arc<Load>>>,
    /// Runs of those that are the same for all candidates, by who, scenario and seed.
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
    /// `None`: clients wait for answers, so that they must be made anew each time.
    kept: Option<Arc<[Request]>>,
}

impl std::fmt::Debug for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Load").field("requests", &self.kept.as_ref().map(|kept| kept.len())).finish_non_exhaustive()
    }
}

/// Workloads that are kept; more are of epochs and seeds that nobody asks for any more.
const MOST_LOADS: usize = 256;
/// Runs that are kept, a kilobyte or two each.
const MOST_KNOWN: usize = 4096;

/// What comes by itself, and what follows from that.
type Arrivals<'a> = (Box<dyn Iterator<Item = Request> + 'a>, Option<Box<dyn FollowUps + Send>>);

/// Whose policies are simulated, in every scenario.
#[derive(Clone, Debug)]
pub struct Player {
    /// Tells its runs from those of others.
    key: String,
    configs: Vec<Experiment>,
    /// Fuel or operations of all its decisions together, per request.
    per_request: u64,
}

impl Bench {
    /// Everything of `suite` that can be found wrong is found here.
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

    /// SHA-256 of the suite and of all that it names, hexadecimal.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// A policy by its name, as contestants of `blis compare` are named.
    pub fn named(&self, name: &str) -> Result<Player, Failure> {
        let config = |prepared: &Prepared| prepared.config.with_contestant(name, Others::Kept);
        let configs = self.scenarios.iter().map(config).collect::<Result<_, Failure>>()?;
        Ok(Player { key: format!("named:{name}"), configs, per_request: self.suite.limits.fuel_per_request })
    }

    /// A candidate. `parameters` are set where they are not its defaults.
    pub fn candidate(&self, loaded: &LoadedPlugin, parameters: &[(String, f64)]) -> Result<Player, Failure> {
        let loaded = Arc::new(loaded.clone());
        let config = |prepared: &Prepared| -> Result<Experiment, Failure> {
            let base = &prepared.config;
            let catalog = Arc::new(base.catalog.with(&loaded, limits_of(&self.suite.limits)));
            let source = || SettingSource::Other("the candidate".into());
            let kinds = &loaded.plugin.description().kinds;
            let mut choices = base.choices.clone();
            for kind in self.suite.decides.iter().copied().filter(|kind| kinds.contains(kind)) {
                let name = Sourced { value: loaded.name.clone(), source: source() };
                choices = choices.without(kind).with(kind, name);
                let set = parameters.iter().map(|(name, value)| ParameterSetting {
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
        // Whoever comes second throws away what is the same.
        let mut loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        if loads.len() >= MOST_LOADS {
            loads.clear(); // of epochs gone by, most likely
        }
        Ok(Arc::clone(loads.entry((scenario, seed)).or_insert(load)))
    }

    /// Simulates `player`, watched by `observer`, until `hand` is pulled. `budget` is in place of the operations that a
    /// run may take, if it is more.
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

    /// One run.
    pub fn facts(&self, player: &Player, (scenario, seed): (usize, u64), hand: &Arc<Hand>) -> Result<Facts, Failure> {
        let (measured, _, load) = self.simulate(player, (scenario, seed), (hand, 0), |_, _| ())?;
        Ok(facts(&measured, &load.names))
    }

    /// One run that is the same for all candidates.
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

    /// Decisions of `player` in one run, which took so many `operations`, looked at: as many, up to `samples`, as
    /// `budget`, or what a run may take if that is more, will do for; `None` if that is next to none. Ends when `hand`
    /// is pulled.
    pub fn lesson(
        &self,
        player: &Player,
        (scenario, seed): (usize, u64),
        samples: u32,
        operations: u64,
        (hand, budget): (&Arc<Hand>, u64),
    ) -> Result<Option<Lesson>, Failure> {
        let budget = budget.max(self.load(scenario, seed)?.most(player));
        // One decision takes about one and a half times the operations of the run.
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

/// Fewer decisions tell nothing.
const LEAST_SAMPLES: u32 = 4;

impl Load {
    /// Fuel or operations that a run of `player` may take.
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

/// The runs of one candidate, its baseline and its incumbent.
pub struct Sitting<'a> {
    pub bench: &'a Bench,
    pub candidate: Player,
    pub baseline: Player,
    pub incumbent: Option<Player>,
    pub hand: Arc<Hand>,
    /// On all threads of the current pool; else one after the other.
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

/// What verdicts are built on.
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

/// Standard deviation over mean of the requests of each instance.
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

/// The settings of a scenario; of several with the same name the last counts.
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

/// Flags that a suite decides about in another way.
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

/// Of the suite's text, the files that its flags and contestants name, and what was made of all that they name in turn.
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

/// Which scenario it is that makes no sense.
fn within(scenario: &Scenario, failure: &Failure) -> Failure {
    Failure::usage(format_args!("{}: scenario `{}`: {}", scenario.spot, scenario.name, failure.text()))
}
