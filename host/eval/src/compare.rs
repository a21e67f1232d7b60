//! Comparison of several policies, or of whole deployments, under the same requests, seed by seed.

use std::collections::BTreeMap;
use std::path::Path;

use blis_config::Deployment;
use blis_plugin::Kind;
use blis_report::{Caveat, CaveatCode, Concludes as _, ConclusionKind, LoadLog};
use blis_sim::request::Request;
use blis_sim::units::Micros;
use blis_stats::{RunState, StateReport, StepFactors};
use blis_workload::spec::SteadySessions;
use blis_workload::trace_v2::GoodputTargets;
use blis_workload::{Names, Workload};

use crate::charges::ClassRules;
use crate::comparison_rules::{ComparisonRules, ModelSign};
use crate::error::RunError;
use crate::experiment::{Experiment, OutputFiles};
use crate::figures::{Figure, Figures};
use crate::fitness::{FitnessScale, FitnessWeights};
use crate::load_warnings::load_of_run;
use crate::measure::{self, no_sample};
use crate::named_policy::OtherPolicies;
use crate::objective::ChargedFigures;
use crate::open;
use crate::planning::{ModelErrorDraws, Variation, check_same_requests, combinations, factors, in_words, scaled};
use crate::run;
use crate::run_state::{RunTraces, caveat_of, state_of_run};
use crate::runs::{at_once, on_threads, run_all};
use crate::service;
use crate::spec::ExperimentSpec;
use crate::table::Comparison;
use crate::targets::NamedWorkload;
use crate::within_trace::{RequestLatencies, WithinTrace, within_trace};
use crate::workload_config::{TraceConfig, WorkloadConfig};

/// A comparison with checked settings.
pub struct CompareConfig {
    /// Workload and output, the same for all; and the deployment of the first.
    pub base: Experiment,
    /// Each policy or deployment as named on the command line, with its experiment. The first is the baseline of the
    /// comparison.
    pub policies: Vec<(String, Experiment)>,
    /// Whether each has a deployment of its own.
    own_deployments: bool,
    seeds: Vec<u64>,
    /// Number of threads; 0 for one per core.
    threads: usize,
    rules: ComparisonRules,
    model_error: ModelErrorDraws,
}

impl CompareConfig {
    /// The same with other rules, and errors of the latency model, which count where deployments are compared.
    #[must_use]
    pub fn with_rules(self, rules: ComparisonRules, model_error: ModelErrorDraws) -> Self {
        Self { rules, model_error, ..self }
    }

    /// The seeds under which each is run.
    #[must_use]
    pub fn seeds(&self) -> &[u64] {
        &self.seeds
    }

    /// `names`: policies, lists of scorers or bundles; the others are compared with the first. `seeds`: how many,
    /// counted from the seed of `spec`. `threads`: 0 for one per core.
    ///
    /// # Errors
    /// If there are fewer than two names, a name is repeated, or a name or `spec` is invalid.
    pub fn new(spec: ExperimentSpec, names: &[String], seeds: u32, threads: usize) -> Result<Self, RunError> {
        if names.len() < 2 {
            return Err(RunError::usage("a comparison needs at least two policies")
                .hint("name two or more: `blis compare round-robin least-loaded --model …`"));
        }
        if let Some(twin) = names.iter().enumerate().find(|&(i, name)| names[..i].contains(name)) {
            return Err(RunError::usage(format_args!("the policy `{}` is named twice", twin.1))
                .hint("leave out one of the two"));
        }
        let base = Experiment::for_comparison(spec, "`blis compare`")?;
        let policy = |name: &String| Ok((name.clone(), base.with_policy(name, OtherPolicies::Kept)?));
        let policies = names.iter().map(policy).collect::<Result<_, RunError>>()?;
        let seeds = (0..u64::from(seeds)).map(|n| base.seed.wrapping_add(n)).collect();
        let (rules, model_error) = Default::default();
        Ok(Self { policies, own_deployments: false, seeds, threads, base, rules, model_error })
    }

    /// The comparison of policies, of configuration files, or of the values of `variations`; `seeds` and `threads` as of
    /// [`Self::new`].
    ///
    /// # Errors
    /// As [`Self::new`]; and if `names` are of both kinds.
    pub fn chosen(
        spec: ExperimentSpec,
        variations: &[Variation],
        names: &[String],
        seeds: u32,
        threads: usize,
    ) -> Result<Self, RunError> {
        if !variations.is_empty() {
            return Self::of_settings(&spec, variations, seeds, threads);
        }
        match names.iter().filter(|name| ExperimentSpec::is_deployment(Path::new(name))).count() {
            0 => Self::new(spec, names, seeds, threads),
            some if some == names.len() => Self::of_files(&spec, names, seeds, threads),
            _ => Err(mixed(names)),
        }
    }

    /// Compares whole deployments: all combinations of the values of `variations` over `spec`. `seeds` and `threads` as of
    /// [`Self::new`].
    ///
    /// # Errors
    /// If there are fewer than two combinations, one is invalid, or they would not serve the same requests.
    pub fn of_settings(
        spec: &ExperimentSpec,
        variations: &[Variation],
        seeds: u32,
        threads: usize,
    ) -> Result<Self, RunError> {
        let points = combinations(spec, variations)?.into_iter();
        Self::of_specs(points.map(|(settings, spec)| (in_words(&settings), spec)).collect(), seeds, threads)
    }

    /// Compares the deployments of configuration files, under the flags of `spec`, which win over them.
    ///
    /// # Errors
    /// As [`Self::of_settings`]; and what is wrong with a file.
    pub fn of_files(spec: &ExperimentSpec, files: &[String], seeds: u32, threads: usize) -> Result<Self, RunError> {
        let point = |file: &String| Ok((file.clone(), spec.clone().over(&ExperimentSpec::load(Path::new(file))?)));
        Self::of_specs(files.iter().map(point).collect::<Result<_, RunError>>()?, seeds, threads)
    }

    fn of_specs(specs: Vec<(String, ExperimentSpec)>, seeds: u32, threads: usize) -> Result<Self, RunError> {
        if specs.len() < 2 {
            return Err(RunError::usage("a comparison needs at least two deployments")
                .hint("vary a setting: `--vary tp=1,2`, or name two configuration files"));
        }
        if let Some(twin) =
            specs.iter().enumerate().find(|&(i, (name, _))| specs[..i].iter().any(|(other, _)| other == name))
        {
            return Err(RunError::usage(format_args!("`{}` is named twice", twin.1.0)).hint("leave out one of the two"));
        }
        let experiment = |(name, spec)| Ok((name, Experiment::new(spec, OutputFiles::default())?));
        let policies: Vec<(String, Experiment)> = specs.into_iter().map(experiment).collect::<Result<_, RunError>>()?;
        let base = policies[0].1.clone();
        policies.iter().try_for_each(|(name, other)| check_same_requests(&base, name, other))?;
        let seeds = (0..u64::from(seeds)).map(|n| base.seed.wrapping_add(n)).collect();
        let (rules, model_error) = Default::default();
        Ok(Self { policies, own_deployments: true, seeds, threads, base, rules, model_error })
    }

    /// The deployment of each policy.
    fn deployments(&self) -> Result<Vec<Deployment>, RunError> {
        if self.own_deployments {
            return self.policies.iter().map(|(_, service)| open::resolve(service)).collect();
        }
        Ok(vec![open::resolve(&self.base)?; self.policies.len()])
    }
}

/// Runs every policy under every seed, and under further ones until it is decided, if that is wanted. The result does not depend on the
/// number of threads.
///
/// # Errors
/// If a policy, the workload or the fitness is invalid, or a run fails.
pub fn compare(config: &CompareConfig) -> Result<Comparison, RunError> {
    let inputs = ComparedInputs::open(config)?;
    if config.rules.looks > 1 && inputs.workload.is_one_sample {
        return Err(RunError::usage("`--until-decided` runs more requests, and a trace has no others")
            .hint("leave it out, or compare on a longer trace"));
    }
    let deployments = config.deployments()?;
    let services: Vec<(&Experiment, &Deployment)> =
        config.policies.iter().map(|(_, service)| service).zip(&deployments).collect();
    let mut seeds = config.seeds.clone();
    let mut runs: Vec<Vec<ComparedRun>> = services.iter().map(|_| Vec::new()).collect();
    let mut looks = 0;
    loop {
        looks += 1;
        let further = &seeds[runs[0].len()..];
        for (all, new) in runs.iter_mut().zip(inputs.run(&services, further)?) {
            all.extend(new);
        }
        let comparison = inputs.compared(&seeds, &runs);
        if looks == config.rules.looks || comparison.conclusion().kind != ConclusionKind::UNDECIDED {
            let signs = inputs.model_signs(&services, &comparison)?;
            return Ok(comparison.with_model_signs(signs));
        }
        let next = seeds.len() as u64;
        seeds.extend((next..2 * next).map(|n| config.base.seed.wrapping_add(n)));
    }
}

/// What the runs of a comparison share.
struct ComparedInputs<'a> {
    config: &'a CompareConfig,
    workload: SharedWorkload,
    sessions: Option<SteadySessions>,
    /// Classes are worth the same under all policies, whatever their bundles say.
    rules: ClassRules,
}

impl<'a> ComparedInputs<'a> {
    fn open(config: &'a CompareConfig) -> Result<Self, RunError> {
        for (_, policy) in &config.policies {
            service::try_scripts(policy)?;
        }
        let workload = SharedWorkload::open(config)?;
        if let Some(weights) = &config.base.evaluation.fitness {
            measure::check_weights(weights, &config.base, &workload.names, &workload.slo_targets)?;
        }
        let sessions = open::steady_sessions(&config.base)?;
        Ok(Self { rules: measure::class_rules(&config.base, &workload.names), config, workload, sessions })
    }

    /// The runs of each service, by seed.
    fn run(&self, services: &[(&Experiment, &Deployment)], seeds: &[u64]) -> Result<Vec<Vec<ComparedRun>>, RunError> {
        let requests = [self.config.base.spec.num_requests.map(u64::from)];
        let one = |&(service, deployment): &(&Experiment, &Deployment), seed| self.run_one(service, deployment, seed);
        on_threads(at_once(self.config.threads, requests.into_iter()), || run_all(services, seeds, one))?
    }

    fn run_one(&self, service: &Experiment, deployment: &Deployment, seed: u64) -> Result<ComparedRun, RunError> {
        let SharedWorkload { names, slo_targets, kept, is_one_sample, horizon } = &self.workload;
        let run = service.with_seed(seed);
        let run = Experiment { horizon: horizon.unwrap_or(run.horizon), ..run };
        let (requests, follow_ups) = open::kept_or_opened(kept.as_deref(), &run)?;
        let is_open = follow_ups.is_none();
        let log = measure::end_log(&self.config.base, names, slo_targets);
        // Runs of one trace differ in nothing that others would show.
        let latencies = (*is_one_sample && seed == self.config.base.seed).then(|| RequestLatencies::new(run.warmup));
        let named = NamedWorkload { names, slo_targets };
        let observers = (log, (LoadLog::default(), latencies));
        let measured = measure::measure(&run, deployment, named, requests, follow_ups, observers)?;
        let (log, (load_log, latencies)) = measured.observer;
        let (report, sessions) = (&measured.report, self.sessions.as_ref());
        let load = load_of_run(&load_log, run::slots(&run, deployment), is_open, sessions, report);
        let traces = RunTraces { report, log: &load_log, load: load.as_ref(), is_open, sessions };
        let state = state_of_run(&run, deployment, &traces)?;
        let figures = Figures::from(report);
        let charged = self.config.base.evaluation.fitness.as_ref().zip(log);
        let charged = charged.map(|(weights, log)| log.charge(report, &self.rules, names).figures(weights, &figures));
        let latencies = latencies.map(RequestLatencies::sorted);
        Ok(ComparedRun { figures, charged: charged.unwrap_or_default(), state, latencies })
    }

    /// The comparison of all runs so far, by policy and seed.
    fn compared(&self, seeds: &[u64], runs: &[Vec<ComparedRun>]) -> Comparison {
        let names: Vec<String> = self.config.policies.iter().map(|(name, _)| name.clone()).collect();
        let figures: Vec<Vec<Figures>> =
            runs.iter().map(|of| of.iter().map(|run| run.figures.clone()).collect()).collect();
        let comparison = Comparison::new(&names, seeds, &figures).with_rules(&self.config.rules);
        let comparison = match &self.config.base.evaluation.fitness {
            Some(weights) => comparison.with_fitness(weights.scale(), &scores(self.config, weights, runs)),
            None => comparison,
        };
        let latencies: Option<Vec<_>> = runs.iter().map(|of| of[0].latencies.as_ref()).collect();
        let comparison = match &latencies {
            Some(of) => comparison.of_one_trace(|figure, policy| within_trace(figure, of[0], of[policy])),
            None => comparison,
        };
        let states = runs.iter().map(|of| of.iter().map(|run| run.state).collect());
        let (mut caveats, is_overloaded) = caveats_of_states(&names, states);
        caveats.extend(self.workload.one_sample(self.config));
        caveats.extend(latencies.as_deref().and_then(missing_requests));
        comparison.with_multiplicity().with_caveats(caveats, is_overloaded)
    }

    /// What is clear between deployments, under draws of the error of the latency model: at the same quantile of the errors of each, with the
    /// requests of the first seed. Errors are larger than what seeds change.
    fn model_signs(
        &self,
        services: &[(&Experiment, &Deployment)],
        comparison: &Comparison,
    ) -> Result<Vec<Option<ModelSign>>, RunError> {
        let clear: Vec<Option<(Figure, f64)>> = (1..services.len())
            .map(|number| comparison.first_clear(number).and_then(|(key, by)| Some((Figure::find(key)?, by))))
            .collect();
        // The error of a latency model that is a plugin is unknown.
        let is_plugin = services.iter().any(|(service, _)| service.cluster.policies.plugin(Kind::Latency).is_some());
        let draws = self.config.model_error.count(self.config.base.spec.num_requests.map(u64::from));
        if !self.config.own_deployments || is_plugin || draws == 0 || clear.iter().all(Option::is_none) {
            return Ok(Vec::new());
        }
        let errors: Vec<Vec<StepFactors>> =
            services.iter().map(|(_, deployment)| factors(deployment, draws)).collect::<Result<_, _>>()?;
        let mut same_sign = vec![0; clear.len()];
        for draw in 0..draws {
            let drawn = services.iter().zip(&errors).map(|((_, deployment), own)| scaled(deployment, own[draw]));
            let scaled: Vec<Deployment> = drawn.collect();
            let services: Vec<_> = services.iter().map(|(service, _)| *service).zip(&scaled).collect();
            let runs = self.run(&services, &[self.config.base.seed])?;
            for ((clear, same), run) in clear.iter().zip(&mut same_sign).zip(&runs[1..]) {
                let Some((figure, by)) = clear else { continue };
                let [first, other] = [&runs[0], run].map(|of| of[0].figures.get(*figure));
                let drawn = first.zip(other).map_or(0.0, |(first, other)| other - first);
                *same += u64::from(drawn * by > 0.0);
            }
        }
        let names = self.config.policies[1..].iter().map(|(name, _)| name.clone());
        let signs = names.zip(clear).zip(same_sign).map(|((candidate, clear), same_sign)| {
            let draws = draws as u64;
            clear.map(|(figure, _)| ModelSign { candidate, figure: figure.key(), draws, same_sign })
        });
        Ok(signs.collect())
    }
}

/// How much longer a trace would have to be for an interval of the mean TTFT, the figure that needs least.
fn missing_requests(latencies: &[&RequestLatencies]) -> Option<Caveat> {
    let (first, others) = latencies.split_first()?;
    let times = others.iter().filter_map(|other| match within_trace(Figure::MeanTtft, first, other) {
        Some(WithinTrace::TooShort { times }) => Some(times),
        Some(WithinTrace::Limits(_)) | None => None,
    });
    let times = times.reduce(f64::max)?;
    let text = format!(
        "the trace is too short to tell: about {times:.0} times as many requests would do for mean_ttft, more for percentiles"
    );
    Some(Caveat::new(CaveatCode::TooShort, text))
}

/// What the states of the runs limit, by policy; and whether more requests arrive than a run of the policy serves.
fn caveats_of_states(names: &[String], states: impl Iterator<Item = Vec<StateReport>>) -> (Vec<Caveat>, Vec<bool>) {
    let states: Vec<Vec<StateReport>> = states.collect();
    let count = |of: &[StateReport], state| of.iter().filter(|one| one.state == state).count();
    let caveats = names.iter().zip(&states).filter_map(|(name, of)| {
        let (overloaded, all) = (count(of, RunState::Overloaded), of.len());
        let short = count(of, RunState::TooShort);
        if overloaded > 0 {
            let what = "more requests arrive than are served, so latencies depend on the length of the run and are not compared";
            let text = format!("overloaded under `{name}` in {overloaded} of {all} runs: {what}");
            return Some(Caveat::new(CaveatCode::Overloaded, text));
        }
        if short > 0 {
            let what = "the service, or its sessions, had no time to become steady; simulate more requests";
            let text = format!("too short under `{name}` in {short} of {all} runs: {what}");
            return Some(Caveat::new(CaveatCode::TooShort, text));
        }
        let caveat = of.iter().find_map(caveat_of)?;
        Some(Caveat { text: format!("under `{name}`: {}", caveat.text), ..caveat })
    });
    let is_overloaded = |of: &Vec<_>| count(of, RunState::Overloaded) > 0;
    (caveats.collect(), states.iter().map(is_overloaded).collect())
}

/// The figures of one run, and those that its fitness reads.
struct ComparedRun {
    figures: Figures,
    charged: ChargedFigures,
    state: StateReport,
    /// Of the first run on a trace.
    latencies: Option<RequestLatencies>,
}

/// The fitness of each run, by policy and seed.
fn scores(config: &CompareConfig, weights: &FitnessWeights, runs: &[Vec<ComparedRun>]) -> Vec<Vec<f64>> {
    let no_sample = no_sample(config.base.engine.semantics);
    let score = |run: &ComparedRun, first: &ComparedRun| match weights.scale() {
        FitnessScale::Ratio => weights.relative(&run.charged, &first.charged).score,
        FitnessScale::Blis => weights.blis(&run.figures, no_sample).score,
    };
    runs.iter().map(|of| of.iter().zip(&runs[0]).map(|(run, first)| score(run, first)).collect()).collect()
}

/// A workload that can be read repeatedly: generated again from each seed, or kept in memory if it is a trace.
struct SharedWorkload {
    names: Names,
    slo_targets: BTreeMap<String, GoodputTargets>,
    /// The requests of a trace; `None` if they are generated or read again for each run.
    kept: Option<Vec<Request>>,
    /// Whether every seed has the same requests.
    is_one_sample: bool,
    /// The horizon of BLIS's replay, where it applies.
    horizon: Option<Micros>,
}

impl SharedWorkload {
    fn open(compared: &CompareConfig) -> Result<Self, RunError> {
        let config = &compared.base;
        let (workload, horizon) = open::open_until(config)?;
        let Workload { requests, follow_ups, names, slo_targets, .. } = workload;
        let reading = |of: &Experiment| (of.block_size(), of.engine.semantics);
        let is_read_once = compared.policies.iter().all(|(_, other)| reading(other) == reading(config));
        let is_one_sample = match config.workload {
            WorkloadConfig::Synthetic(_) | WorkloadConfig::Specified(_) => false,
            // Every seed draws its own arrivals.
            WorkloadConfig::Trace(TraceConfig { arrivals: Some(_), .. }) => false,
            // In a closed loop only the first request of each session is known before the run.
            WorkloadConfig::Trace(_) | WorkloadConfig::Recorded { .. } => follow_ups.is_none(),
        };
        // Blocks of another size have other hashes.
        let kept = (is_one_sample && is_read_once).then(|| requests.collect());
        Ok(Self { names, slo_targets, kept, is_one_sample, horizon: (horizon != config.horizon).then_some(horizon) })
    }

    fn one_sample(&self, config: &CompareConfig) -> Option<Caveat> {
        let text = "a trace has the same requests under every seed: it is one sample of its traffic, and conclusions are about it alone";
        (self.is_one_sample && config.seeds.len() > 1).then(|| Caveat::new(CaveatCode::OneSample, text))
    }
}

/// The error about configuration files beside other names, one of which may be a file that is not there.
fn mixed(names: &[String]) -> RunError {
    let is_missing = |name: &&String| (name.ends_with(".yaml") || name.ends_with(".yml")) && !Path::new(name).exists();
    match names.iter().find(is_missing) {
        Some(name) => RunError::usage(format_args!("cannot read `{name}`: no such file"))
            .hint("configuration files are compared with each other: check its name"),
        None => RunError::usage("configuration files and policies cannot be compared with each other")
            .hint("name configuration files only, each with its `routing-policy`; or policies only"),
    }
}
