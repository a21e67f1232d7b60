//! The same service under several settings: figures, cost, and which points no other one dominates.

use std::collections::BTreeSet;

use blis_config::Deployment;
use blis_config::policy::SettingSource;
use serde::Serialize;

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::runs::{on_threads, run_all};
use crate::spec::{ExperimentSpec, SettingKey};

use super::PlanConfig;
use super::length::RunLength;
use super::load::LoadUnit;
use super::load_run::{EarlyStop, LoadRun};
use super::slo::Slo;

/// Points of a sweep at most.
const MOST: usize = 10_000;

/// A setting and the values that a sweep gives it.
#[derive(Clone, Debug)]
pub struct Variation {
    key: &'static SettingKey,
    values: Vec<String>,
}

impl Variation {
    /// `NAME=VALUE,VALUE…`, a flag of `blis run` without its dashes.
    ///
    /// # Errors
    /// If there is no such flag, or a value is invalid or repeated.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((name, values)) = text.split_once('=') else {
            return Err(format!("`{text}` must be a flag and its values, like tp=1,2,4"));
        };
        let key = SettingKey::find(name.trim().trim_start_matches("--"))
            .map_err(|hint| format!("there is no flag `{}`: {hint}", name.trim()))?;
        if key.name == "seed" {
            return Err("`seed` cannot be varied: --seeds says how many seeds each point has".to_owned());
        }
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        for (index, value) in values.iter().enumerate() {
            if values[..index].contains(value) {
                return Err(format!("`{}` has the value `{value}` twice", key.name));
            }
            let refused = |message| format!("`{}` is `{value}`: {message}", key.name);
            ExperimentSpec::default().set(key, value, SettingSource::Flag("--vary".into())).map_err(refused)?;
        }
        Ok(Self { key, values })
    }
}

/// The points of a sweep, with checked settings.
pub struct SweepConfig {
    /// The varied settings of each point, with its experiment.
    points: Vec<(Vec<VariedSetting>, PlanConfig)>,
    slos: Vec<Slo>,
    threads: usize,
}

/// A setting of a point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VariedSetting {
    /// The flag, without dashes.
    pub name: String,
    pub value: String,
}

impl SweepConfig {
    /// All combinations of the values of `variations`, over `spec`. `slos`: the figures that are shown, with their limits;
    /// TTFT p90 and TPOT p50 without limits if there are none.
    ///
    /// # Errors
    /// If a setting is varied twice, there are too many points, or the settings of a point contradict each other.
    pub fn new(
        spec: &ExperimentSpec,
        variations: &[Variation],
        slos: &[Slo],
        (seeds, threads): (u32, usize),
    ) -> Result<Self, RunError> {
        let names: BTreeSet<&str> = variations.iter().map(|variation| variation.key.name).collect();
        if names.len() < variations.len() {
            return Err(RunError::usage("a setting is varied twice").hint("give all of its values in one `--vary`"));
        }
        let count = variations.iter().fold(1_usize, |count, of| count.saturating_mul(of.values.len()));
        if count > MOST {
            return Err(RunError::usage(format_args!("the sweep has {count} points, more than {MOST}"))
                .hint("vary fewer settings at a time"));
        }
        let slos = if slos.is_empty() { Slo::without_limits() } else { slos.to_vec() };
        let point = |number: usize| {
            let settings = settings_of(number, variations);
            let mut spec = spec.clone();
            for (key, value) in &settings {
                spec.unset(key);
                spec.set(key, value, SettingSource::Flag("--vary".into())).map_err(RunError::usage)?;
            }
            let config = PlanConfig::new(spec, &slos, seeds, threads)?;
            if config.policies.len() > 1 {
                return Err(RunError::usage("a point has one routing policy")
                    .hint("vary it: `--vary routing-policy=round-robin,weighted`"));
            }
            let settings = settings.into_iter().map(|(key, value)| VariedSetting { name: key.name.to_owned(), value });
            Ok((settings.collect(), config))
        };
        let points = (0..count).map(point).collect::<Result<_, RunError>>()?;
        Ok(Self { points, slos, threads })
    }

    /// The experiment of each point, behind its settings in words.
    pub fn experiments(&self) -> impl Iterator<Item = (String, &Experiment)> {
        self.points.iter().map(|(settings, point)| (in_words(settings), &point.base))
    }
}

/// `tp=2 max-num-seqs=64`.
pub(super) fn in_words(settings: &[VariedSetting]) -> String {
    let settings = settings.iter().map(|setting| format!("{}={}", setting.name, setting.value));
    settings.collect::<Vec<_>>().join(" ")
}

/// The settings of the point `number`; the last variation changes fastest.
fn settings_of(mut number: usize, variations: &[Variation]) -> Vec<(&'static SettingKey, String)> {
    let mut settings: Vec<(&'static SettingKey, String)> = Vec::new();
    for variation in variations.iter().rev() {
        settings.push((variation.key, variation.values[number % variation.values.len()].clone()));
        number /= variation.values.len();
    }
    settings.reverse();
    settings
}

/// What `blis sweep` found.
#[derive(Clone, Debug, Serialize)]
pub struct Sweep {
    /// The figures by which points are compared, each the lower the better; without limits unless SLOs are set.
    pub figures: Vec<String>,
    /// In the order of the values; the last `--vary` changes fastest.
    pub points: Vec<SweepPoint>,
}

/// A service under the settings of one point.
#[derive(Clone, Debug, Serialize)]
pub struct SweepPoint {
    pub settings: Vec<VariedSetting>,
    /// Why the point cannot be deployed; its figures are then missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredPoint>,
}

/// The figures of a point.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredPoint {
    /// The load that is offered, in `unit`.
    pub load: f64,
    pub unit: LoadUnit,
    /// GPUs of all replicas.
    pub gpus: u64,
    /// GPUs per unit of load.
    pub cost: f64,
    /// By figure: the median over the seeds, ms; `None` without a finite one.
    pub values_ms: Vec<Option<f64>>,
    /// Seeds under which the requests in flight became more and more.
    pub saturated_seeds: u64,
    /// Whether the medians meet all SLOs, and no seed is saturated.
    pub meets_slos: bool,
    /// Whether no other point that meets the SLOs is at least as good in cost and all figures, and better in one.
    pub non_dominated: bool,
    /// The command that serves a replica.
    pub launch: String,
}

/// Measures all points. The result does not depend on the number of threads.
///
/// # Errors
/// If a workload or a policy is invalid, a run fails, or the runs are too short to tell.
pub fn sweep(config: &SweepConfig) -> Result<Sweep, RunError> {
    on_threads(config.threads, || search(config))?
}

fn search(config: &SweepConfig) -> Result<Sweep, RunError> {
    let mut length = RunLength::new(&config.points[0].1);
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
    mark_non_dominated(&mut points);
    Ok(Sweep { figures: config.slos.iter().map(Slo::text).collect(), points })
}

/// The runs of a point, by seed.
struct PointRuns {
    deployment: Deployment,
    load: f64,
    unit: LoadUnit,
    runs: Vec<LoadRun>,
}

/// The runs of `point`; `Err` in the result if it cannot be deployed.
fn measure(point: &PlanConfig, length: RunLength) -> Result<Result<PointRuns, String>, RunError> {
    let deployment = match point.deployment() {
        Ok(deployment) => deployment,
        Err(error) => return Ok(Err(error.diagnostic().headline().to_string())),
    };
    let loads = point.loads(&point.seeds, length.requests())?;
    let runs = loads.iter().map(|seeded| {
        // Runs to their ends: the figures of points that miss an SLO are shown, too.
        let stop = EarlyStop(f64::INFINITY);
        LoadRun::new((&point.policies[0].1, &deployment), seeded, seeded.usual, (&point.slos, stop))
    });
    let runs = runs.collect::<Result<_, _>>()?;
    Ok(Ok(PointRuns { load: loads[0].usual, unit: loads[0].unit, runs, deployment }))
}

impl PointRuns {
    fn summary(&self, point: &PlanConfig, slos: &[Slo]) -> MeasuredPoint {
        let saturated = self.runs.iter().filter(|run| run.is_saturated()).count();
        let values_ms: Vec<Option<f64>> = (0..slos.len()).map(|slo| super::median_ms(self.runs.iter(), slo)).collect();
        let meets = |(slo, value): (&Slo, &Option<f64>)| value.is_some_and(|ms| ms <= slo.limit.as_millis_f64());
        let gpus = u64::from(point.base.cluster.num_instances) * u64::from(self.deployment.gpus());
        MeasuredPoint {
            load: self.load,
            unit: self.unit,
            gpus,
            cost: gpus as f64 / self.load,
            meets_slos: saturated == 0 && slos.iter().zip(&values_ms).all(meets),
            values_ms,
            saturated_seeds: saturated as u64,
            non_dominated: false,
            launch: launch(&point.base, &self.deployment),
        }
    }
}

fn mark_non_dominated(points: &mut [SweepPoint]) {
    let figures = |point: &SweepPoint| -> Option<Vec<f64>> {
        let measured = point.measured.as_ref().filter(|measured| measured.meets_slos)?;
        Some([Some(measured.cost)].into_iter().chain(measured.values_ms.iter().copied()).flatten().collect())
    };
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
fn launch(config: &Experiment, deployment: &Deployment) -> String {
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
