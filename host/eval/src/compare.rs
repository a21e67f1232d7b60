//! Comparison of several policies under the same requests, seed by seed.

use std::collections::BTreeMap;

use blis_sim::request::Request;
use blis_sim::units::Micros;
use blis_workload::trace_v2::GoodputTargets;
use blis_workload::{Names, Workload};

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::figures::Figures;
use crate::fitness::{FitnessScale, FitnessWeights};
use crate::measure::{self, no_sample};
use crate::named_policy::OtherPolicies;
use crate::objective::ChargedFigures;
use crate::open::{self, RequestStream};
use crate::runs::{on_threads, run_all};
use crate::service;
use crate::spec::ExperimentSpec;
use crate::table::Comparison;
use crate::workload_config::{TraceConfig, WorkloadConfig};

/// A comparison with checked settings.
pub struct CompareConfig {
    /// Deployment, workload and output: the same for all policies.
    pub base: Experiment,
    /// Each policy as named on the command line, with its experiment. The first is the baseline of the comparison.
    pub policies: Vec<(String, Experiment)>,
    seeds: Vec<u64>,
    /// Number of threads; 0 for one per core.
    threads: usize,
}

impl CompareConfig {
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
        Ok(Self { policies, seeds, threads, base })
    }
}

/// Runs every policy under every seed. The result does not depend on the number of threads.
pub fn compare(config: &CompareConfig) -> Result<(Comparison, Vec<String>), RunError> {
    let deployment = open::resolve(&config.base)?;
    for (_, policy) in &config.policies {
        service::try_scripts(policy)?;
    }
    let workload = SharedWorkload::open(&config.base)?;
    let weights = config.base.evaluation.fitness.as_ref();
    if let Some(weights) = weights {
        measure::check_weights(weights, &config.base, &workload.names, &workload.slo_targets)?;
    }
    // Classes are worth the same under all policies, whatever their bundles say.
    let rules = measure::class_rules(&config.base, &workload.names);
    let one = |(_, policy): &(String, Experiment), seed: u64| -> Result<ComparedRun, RunError> {
        let run = policy.with_seed(seed);
        let run = Experiment { horizon: workload.horizon.unwrap_or(run.horizon), ..run };
        let named = (&workload.names, &workload.slo_targets);
        let requests = workload.requests(&run)?;
        let log = measure::end_log(&config.base, named.0, named.1);
        let measured = measure::measure(&run, &deployment, named, requests, log)?;
        let figures = Figures::from(&measured.report);
        let charged = weights.zip(measured.observer);
        let charged =
            charged.map(|(weights, log)| log.charge(&measured.report, &rules, named.0).figures(weights, &figures));
        Ok(ComparedRun { figures, charged: charged.unwrap_or_default() })
    };
    let runs = on_threads(config.threads, || run_all(&config.policies, &config.seeds, one))??;
    let names: Vec<String> = config.policies.iter().map(|(name, _)| name.clone()).collect();
    let figures: Vec<Vec<Figures>> = runs.iter().map(|of| of.iter().map(|run| run.figures.clone()).collect()).collect();
    let comparison = Comparison::new(&names, &config.seeds, &figures);
    let comparison = match weights {
        Some(weights) => comparison.with_fitness(weights.scale(), &scores(config, weights, &runs)),
        None => comparison,
    };
    Ok((comparison, workload.notes(config)))
}

/// The figures of one run, and those that its fitness reads.
struct ComparedRun {
    figures: Figures,
    charged: ChargedFigures,
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
    /// The requests of a trace; `None` if they are generated again for each run.
    kept: Option<Vec<Request>>,
    /// The horizon of BLIS's replay, where it applies.
    horizon: Option<Micros>,
}

impl SharedWorkload {
    fn open(config: &Experiment) -> Result<Self, RunError> {
        let (workload, horizon) = open::open_until(config)?;
        let Workload { requests, follow_ups, names, slo_targets, .. } = workload;
        let kept = match config.workload {
            WorkloadConfig::Synthetic(_) | WorkloadConfig::Specified(_) => None,
            // Every seed draws its own arrivals.
            WorkloadConfig::Trace(TraceConfig { arrivals: Some(_), .. }) => None,
            // In a closed loop only the first request of each session is known before the run.
            WorkloadConfig::Trace(_) | WorkloadConfig::Recorded { .. } if follow_ups.is_some() => None,
            WorkloadConfig::Trace(_) | WorkloadConfig::Recorded { .. } => Some(requests.collect()),
        };
        Ok(Self { names, slo_targets, kept, horizon: (horizon != config.horizon).then_some(horizon) })
    }

    fn requests(&self, config: &Experiment) -> Result<RequestStream<'_>, RunError> {
        Ok(match &self.kept {
            Some(requests) => (Box::new(requests.iter().cloned()), None),
            None => {
                let Workload { requests, follow_ups, .. } = open::open(config)?;
                (requests, follow_ups)
            }
        })
    }

    fn notes(&self, config: &CompareConfig) -> Vec<String> {
        let same = self.kept.is_some() && config.seeds.len() > 1;
        same.then(|| {
            "a trace has the same requests under every seed: only the random choice among ties differs".to_owned()
        })
        .into_iter()
        .collect()
    }
}
