//! The same service under several settings: figures, cost, and which points no other one dominates.

use blis_config::Deployment;
use blis_sim::units::Micros;
use serde::Serialize;

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::paired::mean;
use crate::runs::{at_once, on_threads, run_all};
use crate::spec::ExperimentSpec;

use super::PlanConfig;
use super::length::RunLength;
use super::load::{LoadUnit, SeededLoad};
use super::load_run::{EarlyStop, LoadRun};
use super::slo::Slo;
use super::variation::{Variation, VariedSetting, combinations, in_words};

/// The points of a sweep, with checked settings.
pub struct SweepConfig {
    /// The varied settings of each point, with its experiment.
    points: Vec<(Vec<VariedSetting>, PlanConfig)>,
    by: ComparedBy,
    slos: Vec<Slo>,
    threads: usize,
}

/// What points are compared by, beside their cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ComparedBy {
    /// All figures, among the points within the limits.
    Figures,
    /// The share of the requests within all limits, among all points that are not saturated.
    Attainment,
}

impl SweepConfig {
    /// All combinations of the values of `variations`, over `spec`. `slos`: the figures that are shown, with their limits;
    /// TTFT p90 and TPOT p50 without limits if there are none. `by`: how points are compared.
    ///
    /// # Errors
    /// If a setting is varied twice, there are too many points, or the settings of a point contradict each other.
    pub fn new(
        spec: &ExperimentSpec,
        variations: &[Variation],
        slos: &[Slo],
        by: ComparedBy,
        seeds: u32,
        threads: usize,
    ) -> Result<Self, RunError> {
        let slos = if slos.is_empty() { Slo::without_limits() } else { slos.to_vec() };
        let point = |(settings, spec): (Vec<VariedSetting>, ExperimentSpec)| {
            let config = PlanConfig::new(spec, &slos, seeds, threads)?;
            if config.policies.len() > 1 {
                return Err(RunError::usage("a point has one routing policy")
                    .hint("vary it: `--vary routing-policy=round-robin,weighted`"));
            }
            Ok((settings, config))
        };
        let points = combinations(spec, variations)?.into_iter().map(point).collect::<Result<_, RunError>>()?;
        Ok(Self { points, by, slos, threads })
    }

    /// The seeds of the runs of each point.
    #[must_use]
    pub fn seeds(&self) -> &[u64] {
        self.points[0].1.seeds()
    }

    /// The experiment of each point, behind its settings in words.
    pub fn experiments(&self) -> impl Iterator<Item = (String, &Experiment)> {
        self.points.iter().map(|(settings, point)| (in_words(settings), &point.base))
    }
}

/// What `blis sweep` prints with `--output json`; docs/planning.md defines it.
#[derive(Clone, Debug, Serialize)]
pub struct Sweep {
    /// What points are compared by, beside their cost: all figures, or the share of requests within all limits.
    pub compared_by: ComparedBy,
    /// The figures, with their limits if SLOs are set.
    pub figures: Vec<String>,
    /// In the order of the values; the last `--vary` changes fastest.
    pub points: Vec<SweepPoint>,
}

/// A service under the settings of one point.
#[derive(Clone, Debug, Serialize)]
pub struct SweepPoint {
    /// The settings that are varied.
    pub settings: Vec<VariedSetting>,
    /// Why the point cannot be deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Its figures; absent if it cannot be deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredPoint>,
}

/// The figures of a point.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredPoint {
    /// The load that is offered. Unit: as `unit`.
    pub load: f64,
    /// Unit of the load.
    pub unit: LoadUnit,
    /// GPUs of all replicas; with an autoscaler those held on average. Unit: GPUs.
    pub gpus: f64,
    /// GPUs per unit of load. Unit: GPUs per `unit`.
    pub cost: f64,
    /// Price of a million output tokens over whole runs; `null` without a price list or output. Unit: $.
    pub usd_per_million_output_tokens: Option<f64>,
    /// Requests within all limits, mean over the seeds; `null` without limits. Unit: share.
    pub attainment: Option<f64>,
    /// Completed requests, mean over the seeds. Unit: requests/s.
    pub requests_per_s: f64,
    /// Requests within all limits, mean over the seeds; `null` without limits. Unit: requests/s.
    pub goodput_rps: Option<f64>,
    /// Output tokens of completed requests, mean over the seeds. Unit: tokens/s.
    pub output_tokens_per_s: f64,
    /// By figure: the median over the seeds; `null` without a finite one.
    pub values_ms: Vec<Option<f64>>,
    /// By figure: the lowest and the highest value of the seeds; `null` with one seed, or where a seed has no finite one.
    pub ranges_ms: Vec<Option<SeedRange>>,
    /// Seeds under which the requests in flight became more and more. Unit: seeds.
    pub saturated_seeds: u64,
    /// Whether the medians are within all limits, and no seed is saturated.
    pub meets_slos: bool,
    /// Whether no other point is at least as good in cost and in what points are compared by, and better in one; the
    /// cost is that in dollars if there are prices.
    pub non_dominated: bool,
    /// The command that serves a replica with vLLM.
    pub launch: String,
}

/// What a figure was under several seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SeedRange {
    /// The lowest value. Unit: ms.
    pub low: f64,
    /// The highest value. Unit: ms.
    pub high: f64,
}

impl SeedRange {
    /// That of the SLO with this index.
    fn of_slo(runs: &[LoadRun], slo: usize) -> Option<Self> {
        let values: Option<Vec<f64>> =
            runs.iter().map(|run| run.results[slo].value_ms.filter(|ms| ms.is_finite())).collect();
        let values = values.filter(|values| values.len() > 1)?;
        let (low, high) =
            values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &ms| (low.min(ms), high.max(ms)));
        Some(Self { low, high })
    }
}

/// Measures all points. The result does not depend on the number of threads.
///
/// # Errors
/// If a workload or a policy is invalid, a run fails, or the runs are too short to tell.
pub fn sweep(config: &SweepConfig) -> Result<Sweep, RunError> {
    let requests = config.points.iter().map(|(_, point)| point.base.spec.num_requests.map(u64::from));
    on_threads(at_once(config.threads, requests), || search(config))?
}

fn search(config: &SweepConfig) -> Result<Sweep, RunError> {
    let mut length = RunLength::new(&config.points[0].1)?;
    let measured = loop {
        let one = |(_, point): &(Vec<VariedSetting>, PlanConfig), _: u64| measure(point, length);
        let measured: Vec<Vec<Result<PointRuns, String>>> = run_all(&config.points, &[0], one)?;
        let measured: Vec<Result<PointRuns, String>> = measured.into_iter().flatten().collect();
        let runs = || measured.iter().flatten().flat_map(|of| &of.runs).filter(|run| !run.is_saturated());
        match runs().filter_map(|run| length.needed_by(run)).max().and_then(|wanted| length.extended(wanted)) {
            Some(longer) => length = longer,
            None => {
                runs().try_for_each(|run| length.check(run, &config.slos))?;
                break measured;
            }
        }
    };
    let points = config.points.iter().zip(measured).map(|((settings, point), measured)| {
        let (refused, measured) = match measured {
            Ok(runs) => (None, Some(runs.summary(point, &config.slos))),
            Err(what) => (Some(what), None),
        };
        SweepPoint { settings: settings.clone(), refused, measured }
    });
    let mut points: Vec<SweepPoint> = points.collect();
    mark_non_dominated(&mut points, config.by);
    Ok(Sweep { compared_by: config.by, figures: config.slos.iter().map(Slo::text).collect(), points })
}

/// The runs of a point, by seed.
struct PointRuns {
    deployment: Deployment,
    /// Those of its groups.
    further: Vec<Deployment>,
    load: f64,
    unit: LoadUnit,
    runs: Vec<LoadRun>,
}

/// The runs of `point`; `Err` in the result if it cannot be deployed.
fn measure(point: &PlanConfig, length: RunLength) -> Result<Result<PointRuns, String>, RunError> {
    let deployments = point.deployment().and_then(|first| Ok((first, point.base.further_deployments()?)));
    let (deployment, further) = match deployments {
        Ok(deployments) => deployments,
        Err(error) => return Ok(Err(error.diagnostic().headline().to_string())),
    };
    let mut loads = point.loads(&point.seeds, length.requests())?;
    if point.base.cluster.scaling.is_some() {
        // What an autoscaler costs and misses at first is part of it.
        loads = loads.into_iter().map(SeededLoad::whole).collect();
    }
    let runs = loads.iter().map(|seeded| {
        // Runs to their ends: the figures of points that miss an SLO are shown, too.
        let stop = EarlyStop(f64::INFINITY);
        LoadRun::new(&point.policies[0].1, &deployment, seeded, seeded.usual, &point.slos, stop)
    });
    let runs = runs.collect::<Result<_, _>>()?;
    Ok(Ok(PointRuns { load: loads[0].usual, unit: loads[0].unit, runs, deployment, further }))
}

impl PointRuns {
    fn summary(&self, point: &PlanConfig, slos: &[Slo]) -> MeasuredPoint {
        let saturated = self.runs.iter().filter(|run| run.is_saturated()).count();
        let values_ms: Vec<Option<f64>> = (0..slos.len()).map(|slo| super::median_ms(self.runs.iter(), slo)).collect();
        let meets = |(slo, value): (&Slo, &Option<f64>)| value.is_some_and(|ms| ms <= slo.limit.as_millis_f64());
        let has_limits = slos.iter().any(|slo| slo.limit != Micros::MAX);
        let attainment: Option<Vec<f64>> = self.runs.iter().map(|run| run.attainment).collect();
        let within_rps: Option<Vec<f64>> =
            self.runs.iter().map(|run| Some(run.attainment? * run.rates.arrived_per_s)).collect();
        let mean_rate = |rate: fn(&LoadRun) -> f64| mean(self.runs.iter().map(rate)).unwrap_or(0.0);
        let gpus = self.gpus(point);
        MeasuredPoint {
            requests_per_s: mean_rate(|run| run.rates.requests_per_s),
            output_tokens_per_s: mean_rate(|run| run.rates.output_tokens_per_s),
            goodput_rps: within_rps.filter(|_| has_limits).and_then(|rates| mean(rates.into_iter())),
            ranges_ms: (0..slos.len()).map(|slo| SeedRange::of_slo(&self.runs, slo)).collect(),
            load: self.load,
            unit: self.unit,
            gpus,
            cost: gpus / self.load,
            usd_per_million_output_tokens: self.usd_per_million_output_tokens(),
            attainment: attainment.filter(|_| has_limits).and_then(|shares| mean(shares.into_iter())),
            meets_slos: saturated == 0 && slos.iter().zip(&values_ms).all(meets),
            values_ms,
            saturated_seeds: saturated as u64,
            non_dominated: false,
            launch: launch(&point.base, &self.deployment),
        }
    }

    /// GPUs of all replicas, those of groups included; with an autoscaler those held on average.
    fn gpus(&self, point: &PlanConfig) -> f64 {
        let cluster = &point.base.cluster;
        if cluster.scaling.is_some() {
            return mean(self.runs.iter().map(|run| run.held.mean)).unwrap_or(0.0);
        }
        let of_groups = cluster.groups.iter().zip(&self.further);
        let of_groups: u64 = of_groups.map(|(group, of)| u64::from(group.instances) * u64::from(of.gpus())).sum();
        (u64::from(cluster.num_instances) * u64::from(self.deployment.gpus()) + of_groups) as f64
    }

    fn usd_per_million_output_tokens(&self) -> Option<f64> {
        let usd: f64 = self.runs.iter().map(|run| run.held.usd).sum::<Option<f64>>()?;
        let tokens: u64 = self.runs.iter().map(|run| run.held.output_tokens).sum();
        (tokens > 0).then(|| 1e6 * usd / tokens as f64)
    }
}

impl MeasuredPoint {
    /// What the point is compared by, each the lower the better; `None` if it is not compared.
    fn compared(&self, by: ComparedBy) -> Option<Vec<f64>> {
        let cost = self.usd_per_million_output_tokens.unwrap_or(self.cost);
        match by {
            ComparedBy::Figures if self.meets_slos => {
                Some([Some(cost)].into_iter().chain(self.values_ms.iter().copied()).flatten().collect())
            }
            ComparedBy::Attainment if self.saturated_seeds == 0 => Some(vec![cost, 1.0 - self.attainment?]),
            ComparedBy::Figures | ComparedBy::Attainment => None,
        }
    }
}

fn mark_non_dominated(points: &mut [SweepPoint], by: ComparedBy) {
    let figures = |point: &SweepPoint| point.measured.as_ref()?.compared(by);
    let all: Vec<Option<Vec<f64>>> = points.iter().map(figures).collect();
    let dominates = |one: &[f64], other: &[f64]| {
        one.iter().zip(other).all(|(one, other)| one <= other) && one.iter().zip(other).any(|(one, other)| one < other)
    };
    for (point, own) in points.iter_mut().zip(&all) {
        if let (Some(measured), Some(own)) = (&mut point.measured, own) {
            measured.non_dominated = !all.iter().flatten().any(|other| dominates(other, own));
        }
    }
}

/// Settings that `vllm serve` has, too, with the name that it gives them.
const OF_VLLM: [(&str, &str); 11] = [
    ("max-model-len", "max-model-len"),
    ("block-size-in-tokens", "block-size"),
    ("gpu-memory-utilization", "gpu-memory-utilization"),
    ("dtype", "dtype"),
    ("quantization", "quantization"),
    ("kv-cache-dtype", "kv-cache-dtype"),
    ("long-prefill-token-threshold", "long-prefill-token-threshold"),
    ("scheduling-policy", "scheduling-policy"),
    ("enable-expert-parallel", "enable-expert-parallel"),
    ("enforce-eager", "enforce-eager"),
    ("enable-prefix-caching", "enable-prefix-caching"),
];

/// The command that serves a replica with vLLM: sizes and batch limits as they were resolved, and settings that differ from
/// defaults.
pub(super) fn launch(config: &Experiment, deployment: &Deployment) -> String {
    let mut line = format!("vllm serve {}", config.deployment.model);
    let sizes = [
        ("tensor-parallel-size", deployment.tensor_parallel_size, 0),
        ("pipeline-parallel-size", deployment.pipeline_parallel_size, 1),
        ("data-parallel-size", deployment.data_parallel_size, 1),
        ("max-num-seqs", deployment.batch_limits.max_num_seqs, 0),
        ("max-num-batched-tokens", deployment.batch_limits.max_num_batched_tokens, 0),
    ];
    for (name, value, usual) in sizes {
        if value != usual {
            line.push_str(&format!(" --{name} {value}"));
        }
    }
    for (key, values) in config.spec.entries() {
        let Some((_, name)) = OF_VLLM.iter().find(|(own, _)| *own == key.name) else { continue };
        match values.first().map(String::as_str) {
            Some("true") => line.push_str(&format!(" --{name}")),
            Some("false") => line.push_str(&format!(" --no-{name}")),
            Some(value) => line.push_str(&format!(" --{name} {value}")),
            None => {}
        }
    }
    line
}
