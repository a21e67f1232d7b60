//! Several policies under the same requests, seed by seed.

use std::collections::BTreeMap;

use blis_sim::cluster::FollowUps;
use blis_sim::request::Request;
use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;
use blis_workload::trace_v2::GoodputTargets;
use blis_workload::{Names, Workload};

use crate::contest::Others;
use crate::error::Failure;
use crate::experiment::Experiment;
use crate::figures::Figures;
use crate::fitness::FitnessWeights;
use crate::measure::{self, no_sample};
use crate::open;
use crate::runs::run_all;
use crate::spec::ExperimentSpec;
use crate::table::Comparison;
use crate::workload_config::WorkloadConfig;

/// A comparison, ready to be run.
pub struct CompareConfig {
    /// Output, deployment, workload: the same for all.
    pub base: Experiment,
    /// As named on the command line, and what that means.
    pub contestants: Vec<(String, Experiment)>,
    seeds: Vec<u64>,
    /// 0: one per core.
    threads: usize,
}

impl CompareConfig {
    /// `names`: policies, lists of scorers or bundles; the first is what the others are compared with. `seeds`: how
    /// many, from that of `spec` on. `threads`: 0 for one per core.
    ///
    /// # Errors
    /// If there are fewer than two different names, or one of them or `spec` makes no sense.
    pub fn new(spec: ExperimentSpec, names: &[String], seeds: u32, threads: usize) -> Result<Self, Failure> {
        if names.len() < 2 {
            return Err(Failure::usage("one contestant has nothing to be compared with")
                .hint("name two or more: `blis compare round-robin least-loaded --model …`"));
        }
        if let Some(twin) = names.iter().enumerate().find(|&(i, name)| names[..i].contains(name)) {
            return Err(Failure::usage(format_args!("contestant `{}` is named twice", twin.1))
                .hint("it would be compared with itself"));
        }
        let base = Experiment::for_comparison(spec)?;
        let contestant = |name: &String| Ok((name.clone(), base.with_contestant(name, Others::Kept)?));
        let contestants = names.iter().map(contestant).collect::<Result<_, Failure>>()?;
        let seeds = (0..u64::from(seeds)).map(|n| base.seed.wrapping_add(n)).collect();
        Ok(Self { contestants, seeds, threads, base })
    }
}

/// Runs everything. The answer does not depend on the number of threads.
pub fn compare(config: &CompareConfig) -> Result<(Comparison, Vec<String>), Failure> {
    let deployment = open::resolve(&config.base)?;
    let load = Load::open(&config.base)?;
    let weights = config.base.evaluation.fitness.as_ref();
    if let Some(weights) = weights {
        measure::check_weights(weights, &config.base, &load.names, &load.slo_targets)?;
    }
    let one = |(_, contestant): &(String, Experiment), seed: u64| -> Result<Figures, Failure> {
        let run = contestant.with_seed(seed);
        let run = Experiment { horizon: load.horizon.unwrap_or(run.horizon), ..run };
        let named = (&load.names, &load.slo_targets);
        let requests = load.requests(&run)?;
        let measured = measure::measure(&run, &deployment, named, requests, ())?;
        Ok(Figures::from(&measured.report))
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(config.threads).build().map_err(Failure::runtime)?;
    let figures = pool.install(|| run_all(&config.contestants, &config.seeds, one))?;
    let names: Vec<String> = config.contestants.iter().map(|(name, _)| name.clone()).collect();
    let comparison = Comparison::new(&names, &config.seeds, &figures);
    Ok((with_fitness(comparison, weights, &figures, config.base.engine.semantics), load.notes(config)))
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

/// Requests that can be had again and again: drawn anew from each seed, or kept from a trace.
struct Load {
    names: Names,
    slo_targets: BTreeMap<String, GoodputTargets>,
    /// Of a trace.
    kept: Option<Vec<Request>>,
    /// That of BLIS's replay, where it is followed.
    horizon: Option<Micros>,
}

/// What comes by itself, and what follows from that.
type Arrivals<'a> = (Box<dyn Iterator<Item = Request> + 'a>, Option<Box<dyn FollowUps + Send>>);

impl Load {
    fn open(config: &Experiment) -> Result<Self, Failure> {
        let (workload, horizon) = open::open_until(config)?;
        let Workload { requests, follow_ups, names, slo_targets, .. } = workload;
        let kept = match config.workload {
            WorkloadConfig::Synthetic(_) | WorkloadConfig::Specified(_) => None,
            // Of those that wait for answers, only the first requests are known.
            WorkloadConfig::Trace(_) | WorkloadConfig::Recorded { .. } if follow_ups.is_some() => None,
            WorkloadConfig::Trace(_) | WorkloadConfig::Recorded { .. } => Some(requests.collect()),
        };
        Ok(Self { names, slo_targets, kept, horizon: (horizon != config.horizon).then_some(horizon) })
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

    fn notes(&self, config: &CompareConfig) -> Vec<String> {
        let same = self.kept.is_some() && config.seeds.len() > 1;
        same.then(|| "a trace has the same requests under every seed: only random ties differ".to_owned())
            .into_iter()
            .collect()
    }
}
