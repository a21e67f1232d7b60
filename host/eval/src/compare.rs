//! Comparison of several policies, or of whole deployments, under the same requests, seed by seed.

use std::collections::BTreeMap;
use std::path::Path;

use blis_config::Deployment;
use blis_report::{Caveat, CaveatCode, LoadLog, LoadState};
use blis_sim::request::Request;
use blis_sim::units::Micros;
use blis_workload::trace_v2::GoodputTargets;
use blis_workload::{Names, Workload};

use crate::error::RunError;
use crate::experiment::{Experiment, OutputFiles};
use crate::figures::{Figure, Figures};
use crate::fitness::{FitnessScale, FitnessWeights};
use crate::load_warnings::load_of_run;
use crate::measure::{self, no_sample};
use crate::named_policy::OtherPolicies;
use crate::objective::ChargedFigures;
use crate::open;
use crate::planning::{Variation, check_same_requests, combinations, in_words};
use crate::run;
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
}

impl CompareConfig {
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
        Ok(Self { policies, own_deployments: false, seeds, threads, base })
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
        Ok(Self { policies, own_deployments: true, seeds, threads, base })
    }

    /// The deployment of each policy.
    fn deployments(&self) -> Result<Vec<Deployment>, RunError> {
        if self.own_deployments {
            return self.policies.iter().map(|(_, service)| open::resolve(service)).collect();
        }
        Ok(vec![open::resolve(&self.base)?; self.policies.len()])
    }
}

/// Runs every policy under every seed. The result does not depend on the number of threads.
pub fn compare(config: &CompareConfig) -> Result<Comparison, RunError> {
    let deployments = config.deployments()?;
    for (_, policy) in &config.policies {
        service::try_scripts(policy)?;
    }
    let workload = SharedWorkload::open(config)?;
    let sessions = open::steady_sessions(&config.base)?;
    let weights = config.base.evaluation.fitness.as_ref();
    if let Some(weights) = weights {
        measure::check_weights(weights, &config.base, &workload.names, &workload.slo_targets)?;
    }
    // Classes are worth the same under all policies, whatever their bundles say.
    let rules = measure::class_rules(&config.base, &workload.names);
    let services: Vec<(&Experiment, &Deployment)> =
        config.policies.iter().map(|(_, service)| service).zip(&deployments).collect();
    let one = |&(policy, deployment): &(&Experiment, &Deployment), seed: u64| -> Result<ComparedRun, RunError> {
        let run = policy.with_seed(seed);
        let run = Experiment { horizon: workload.horizon.unwrap_or(run.horizon), ..run };
        let SharedWorkload { names, slo_targets, .. } = &workload;
        let (requests, follow_ups) = open::kept_or_opened(workload.kept.as_deref(), &run)?;
        let is_open = follow_ups.is_none();
        let log = measure::end_log(&config.base, names, slo_targets);
        // Runs of one trace differ in nothing that others would show.
        let latencies = (workload.is_one_sample && seed == config.seeds[0]).then(|| RequestLatencies::new(run.warmup));
        let named = NamedWorkload { names, slo_targets };
        let observers = (log, (LoadLog::default(), latencies));
        let measured = measure::measure(&run, deployment, named, requests, follow_ups, observers)?;
        let (log, (load, latencies)) = measured.observer;
        let slots = run::slots(&run, deployment);
        let load = load_of_run(&load, slots, is_open, sessions.as_ref(), &measured.report);
        let state = load.and_then(|load| load.state);
        let figures = Figures::from(&measured.report);
        let charged = weights.zip(log);
        let charged =
            charged.map(|(weights, log)| log.charge(&measured.report, &rules, names).figures(weights, &figures));
        let latencies = latencies.map(RequestLatencies::sorted);
        Ok(ComparedRun { figures, charged: charged.unwrap_or_default(), state, latencies })
    };
    let requests = [config.base.spec.num_requests.map(u64::from)];
    let runs = on_threads(at_once(config.threads, requests.into_iter()), || run_all(&services, &config.seeds, one))??;
    let names: Vec<String> = config.policies.iter().map(|(name, _)| name.clone()).collect();
    let figures: Vec<Vec<Figures>> = runs.iter().map(|of| of.iter().map(|run| run.figures.clone()).collect()).collect();
    let comparison = Comparison::new(&names, &config.seeds, &figures);
    let comparison = match weights {
        Some(weights) => comparison.with_fitness(weights.scale(), &scores(config, weights, &runs)),
        None => comparison,
    };
    let latencies: Option<Vec<_>> = runs.iter().map(|of| of[0].latencies.as_ref()).collect();
    let comparison = match &latencies {
        Some(of) => comparison.of_one_trace(|figure, policy| within_trace(figure, of[0], of[policy])),
        None => comparison,
    };
    let states = runs.iter().map(|of| of.iter().map(|run| run.state).collect());
    let (mut caveats, is_overloaded) = caveats_of_states(&names, states);
    caveats.extend(workload.one_sample(config));
    caveats.extend(latencies.as_deref().and_then(missing_requests));
    Ok(comparison.with_multiplicity().with_caveats(caveats, is_overloaded))
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
fn caveats_of_states(
    names: &[String],
    states: impl Iterator<Item = Vec<Option<LoadState>>>,
) -> (Vec<Caveat>, Vec<bool>) {
    let states: Vec<Vec<Option<LoadState>>> = states.collect();
    let count = |of: &[Option<LoadState>], state| of.iter().filter(|one| **one == Some(state)).count();
    let caveats = names.iter().zip(&states).filter_map(|(name, of)| {
        let (overloaded, all) = (count(of, LoadState::Overloaded), of.len());
        let short = count(of, LoadState::TooShort);
        if overloaded > 0 {
            let what = "more requests arrive than are served, so latencies depend on the length of the run and are not compared";
            let text = format!("overloaded under `{name}` in {overloaded} of {all} runs: {what}");
            return Some(Caveat::new(CaveatCode::Overloaded, text));
        }
        let what = "the service, or its sessions, had no time to become steady; simulate more requests";
        let text = || format!("too short under `{name}` in {short} of {all} runs: {what}");
        (short > 0).then(|| Caveat::new(CaveatCode::TooShort, text()))
    });
    let is_overloaded = |of: &Vec<_>| count(of, LoadState::Overloaded) > 0;
    (caveats.collect(), states.iter().map(is_overloaded).collect())
}

/// The figures of one run, and those that its fitness reads.
struct ComparedRun {
    figures: Figures,
    charged: ChargedFigures,
    /// Whether the run is steady; `None` if clients wait for outputs.
    state: Option<LoadState>,
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
