//! Comparison of several policies under the same requests, seed by seed.

use std::collections::BTreeMap;

use blis_sim::request::Request;
use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;
use blis_workload::trace_v2::GoodputTargets;
use blis_workload::{Names, Workload};

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::figures::Figures;
use crate::fitness::FitnessWeights;
use crate::measure::{self, no_sample};
use crate::named_policy::OtherPolicies;
use crate::open::{self, RequestStream};
use crate::runs::run_all;
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
        let base = Experiment::for_comparison(spec)?;
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
    let one = |(_, policy): &(String, Experiment), seed: u64| -> Result<Figures, RunError> {
        let run = policy.with_seed(seed);
        let run = Experiment { horizon: workload.horizon.unwrap_or(run.horizon), ..run };
        let named = (&workload.names, &workload.slo_targets);
        let requests = workload.requests(&run)?;
        let measured = measure::measure(&run, &deployment, named, requests, ())?;
        Ok(Figures::from(&measured.report))
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(config.threads).build().map_err(RunError::runtime)?;
    let figures = pool.install(|| run_all(&config.policies, &config.seeds, one))?;
    let names: Vec<String> = config.policies.iter().map(|(name, _)| name.clone()).collect();
    let comparison = Comparison::new(&names, &config.seeds, &figures);
    Ok((with_fitness(comparison, weights, &figures, config.base.engine.semantics), workload.notes(config)))
}

fn with_fitness(
    comparison: Comparison,
    weights: Option<&FitnessWeights>,
    figures: &[Vec<Figures>],
    semantics: Semantics,
) -> Comparison {
    match weights {
        Some(weights) => comparison.with_fitness(weights, no_sample(semantics), figures),
        None => comparison,
    }
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
