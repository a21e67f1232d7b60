//! The perfect elastic curve: the fewest replicas at each time if arrivals are known and replicas are there at once.
//!
//! llm-d-autoscaling #1499 defines it: μ is the highest rate that one replica serves within the SLOs, and an interval with the
//! arrival rate λ has ⌈λ/μ⌉ replicas. μ is found as any capacity ([`capacity`](super::capacity)), with the same requests at a rate
//! that is the same in all intervals ([`SeededLoad::steady`]), because it is a rate of steady traffic. The curve is then
//! simulated, with the autoscaler `perfect`, and compared with the fewest fixed replicas.

use std::ops::Range;

use blis_config::Deployment;
use blis_config::policy::{ParameterInput, ScalingUse, SettingSource, Sourced};
use blis_sim::cluster::StartMode;
use blis_sim::scaling::Schedule;
use blis_sim::units::Micros;
use serde::Serialize;

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::paired::{CONFIDENCE, mean};
use crate::runs::{on_threads, run_all};
use crate::scaling::ScalingSettings;
use crate::startup::StartupSettings;

use super::PlanConfig;
use super::capacity::{PolicyCapacity, of_loads};
use super::length::RunLength;
use super::load::{LoadUnit, SeededLoad};
use super::load_run::{EarlyStop, LoadRun};
use super::size::SizeSearch;
use super::slo::Slo;

/// Rows of the table of periods at most, 24 for the hours of a day.
const MOST_PERIODS: usize = 24;
/// Intervals of a curve at most: a year of minutes has 525 600.
const MOST_INTERVALS: u64 = 1_000_000;
/// Replicas at a time at most.
const MOST_REPLICAS: u32 = 65_536;

/// What `blis size --elastic` prints with `--output json`; docs/planning.md defines it.
#[derive(Clone, Debug, Serialize)]
pub struct ElasticCurve {
    /// The SLOs, as they were set.
    pub slo: Vec<Slo>,
    /// Name of the routing policy.
    pub policy: String,
    /// GPUs of a replica. Unit: GPUs, 1 or more.
    pub gpus_per_replica: u32,
    /// Level of the interval. Unit: share.
    pub confidence: f64,
    /// Seeds of the runs. Unit: number.
    pub seeds: Vec<u64>,
    /// Width of the intervals.
    pub interval_s: f64,
    /// The highest rate of one replica within the SLOs.
    pub rate_per_replica: ReplicaRate,
    /// The curve: means over the seeds, and the largest peak.
    pub elastic: HeldReplicas,
    /// The fewest fixed replicas within the SLOs, over the same time.
    pub fixed: HeldReplicas,
    /// Part of the GPU-hours of the fixed replicas that the curve saves. Unit: share.
    pub saved: f64,
    /// Simulations of the curve, by seed.
    pub runs: Vec<CurveRun>,
    /// The curve of the first seed, at most 24 rows.
    pub periods: Vec<CurvePeriod>,
    /// The curve of the first seed.
    pub steps: Vec<CurveStep>,
    /// What to know about the figures.
    pub notes: Vec<String>,
}

impl ElasticCurve {
    /// The usual width of the intervals.
    pub const INTERVAL: Micros = Micros(60_000_000);
}

/// The highest rate of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReplicaRate {
    /// The rate of the curve: the lower limit of the interval, with one seed the only value. Unit: requests/s.
    pub planned: f64,
    /// Geometric mean over the seeds. Unit: requests/s.
    pub mean: f64,
    /// Lower limit of its interval; `null` with one seed. Unit: requests/s.
    pub low: Option<f64>,
    /// Upper limit of its interval; `null` with one seed. Unit: requests/s.
    pub high: Option<f64>,
}

/// Replicas over the time of the arrivals, in whole intervals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HeldReplicas {
    /// Mean number of replicas. Unit: replicas.
    pub mean: f64,
    /// Most replicas at a time. Unit: replicas.
    pub peak: u32,
    /// Time in which GPUs are held, summed over GPUs.
    pub gpu_hours: f64,
    /// Its price; `null` without a price list. Unit: $.
    pub usd: Option<f64>,
}

/// A simulation of the curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CurveRun {
    /// Its seed. Unit: number.
    pub seed: u64,
    /// Requests within all limits, of all requests; `null` without requests. Unit: share.
    pub attainment: Option<f64>,
    /// By SLO: the figure over all requests; `null` without a finite one.
    pub values_ms: Vec<Option<f64>>,
    /// Whether it meets all SLOs.
    pub meets_slos: bool,
    /// Mean number of replicas, those that serve their last requests included. Unit: replicas.
    pub mean_replicas: f64,
    /// Time in which GPUs were held, summed over GPUs.
    pub gpu_hours: f64,
}

/// Some intervals of the curve in a row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePeriod {
    /// Time at which it begins.
    pub from_s: f64,
    /// Time at which it ends.
    pub to_s: f64,
    /// Requests that arrive. Unit: requests.
    pub requests: u64,
    /// Arrival rate. Unit: requests/s.
    pub rate: f64,
    #[serde(flatten)]
    pub replicas: HeldReplicas,
}

/// The number of replicas from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurveStep {
    /// Time at which it begins.
    pub from_s: f64,
    /// Replicas from then on. Unit: replicas.
    pub replicas: u32,
}

/// Searches the elastic curve of `config` with intervals of that width. The result does not depend on the number of threads.
///
/// # Errors
/// If the workload, the policy or the interval is invalid, a run fails, no number of replicas meets the SLOs, or the runs are too
/// short to tell.
pub fn elastic(config: &PlanConfig, interval: Micros) -> Result<ElasticCurve, RunError> {
    let [(policy, service)] = &config.policies[..] else {
        return Err(RunError::usage("`blis size` takes one policy").hint("run it for each of them"));
    };
    super::size::check_replicas(config)?;
    if !config.has_fixed_length {
        return Err(RunError::usage("`--elastic` needs the time for which replicas are planned")
            .hint("use a trace, or set `--num-requests` or `--horizon`"));
    }
    let deployment = config.deployment()?;
    let usd_per_gpu_hour = config.base.usd_per_gpu_hour(&deployment)?;
    let search = ElasticSearch { config, policy, service, deployment: &deployment, interval, usd_per_gpu_hour };
    on_threads(config.threads, || search.document())?
}

struct ElasticSearch<'a> {
    config: &'a PlanConfig,
    policy: &'a str,
    service: &'a Experiment,
    deployment: &'a Deployment,
    interval: Micros,
    usd_per_gpu_hour: Option<f64>,
}

impl ElasticSearch<'_> {
    fn document(&self) -> Result<ElasticCurve, RunError> {
        let config = self.config;
        let loads = config.known_loads()?;
        if let Some(load) = loads.iter().find(|load| load.unit != LoadUnit::RequestsPerS) {
            let what = format!("the elastic curve needs arrivals that are known in advance, not {}", load.unit.name());
            return Err(RunError::usage(what).hint("leave out `--elastic`, or use a workload in open loop"));
        }
        loads.iter().try_for_each(|load| self.check_interval(load))?;
        let found = self.rate_of_one(&loads)?;
        let rate = found.planned();
        let whole: Vec<SeededLoad> = loads.into_iter().map(SeededLoad::whole).collect();
        let curves: Vec<SeededCurve> = whole.iter().map(|load| SeededCurve::new(load, rate, self.interval)).collect();
        let fixed = self.fixed(&whole)?;
        let runs = self.runs(&whole, &curves, rate)?;
        let held = |curve: &SeededCurve| self.held(&curve.replicas);
        let elastic = mean_of(curves.iter().map(held));
        let fixed = mean_of(curves.iter().map(|curve| self.held(&vec![fixed; curve.replicas.len()])));
        Ok(ElasticCurve {
            slo: config.slos.clone(),
            policy: self.policy.to_owned(),
            gpus_per_replica: self.deployment.gpus(),
            confidence: CONFIDENCE,
            seeds: config.seeds.clone(),
            interval_s: self.interval.as_secs_f64(),
            rate_per_replica: ReplicaRate { planned: rate, mean: found.capacity, low: found.low, high: found.high },
            saved: 1.0 - elastic.gpu_hours / fixed.gpu_hours,
            elastic,
            fixed,
            notes: self.notes(&runs),
            runs,
            periods: self.periods(&curves[0]),
            steps: curves[0].steps(self.interval),
        })
    }

    /// # Errors
    /// If the interval is too short or too long for the arrivals.
    fn check_interval(&self, load: &SeededLoad) -> Result<(), RunError> {
        let end = load.kept.iter().flatten().last().map_or(Micros::ZERO, |last| last.arrival);
        let seconds = self.interval.as_secs_f64();
        if !(1e-3..=1e6).contains(&seconds) {
            let what = format!("`--interval` is {seconds} s, not within 1 ms and 1000000 s");
            return Err(RunError::usage(what).hint("how often an autoscaler decides: 15s to 5m"));
        }
        if end.0 / self.interval.0 >= MOST_INTERVALS {
            let what = format!("requests arrive for {:.0} s, more than {MOST_INTERVALS} intervals", end.as_secs_f64());
            return Err(RunError::usage(what).hint("lengthen `--interval`"));
        }
        Ok(())
    }

    /// The highest rate of one replica within the SLOs, if arrivals are steady.
    fn rate_of_one(&self, loads: &[SeededLoad]) -> Result<PolicyCapacity, RunError> {
        let steady: Vec<SeededLoad> = loads.iter().filter_map(|load| load.steady(self.interval)).collect();
        of_loads(self.config, self.deployment, &steady)
    }

    /// The fewest fixed replicas that hold under the seeds.
    fn fixed(&self, loads: &[SeededLoad]) -> Result<u32, RunError> {
        let mut sizes = SizeSearch::new(self.service, self.deployment, loads, loads[0].usual, self.config);
        let fewest = sizes.fewest(1)?;
        sizes.check_length(fewest, RunLength::new(self.config)?)?;
        Ok(fewest)
    }

    /// A simulation of the curve of each seed.
    fn runs(&self, loads: &[SeededLoad], curves: &[SeededCurve], rate: f64) -> Result<Vec<CurveRun>, RunError> {
        let seeds: Vec<u64> = loads.iter().map(SeededLoad::seed).collect();
        let one = |(): &(), seed: u64| -> Result<CurveRun, RunError> {
            let mut of_seed = loads.iter().zip(curves);
            let (load, curve) = of_seed.find(|(load, _)| load.seed() == seed).expect("a workload for each seed");
            let service = self.scaled(curve, rate)?;
            let stop = EarlyStop(f64::INFINITY);
            let run = LoadRun::new(&service, self.deployment, load, load.usual, &self.config.slos, stop)?;
            Ok(CurveRun {
                seed,
                attainment: run.attainment,
                values_ms: run.results.iter().map(|of| of.value_ms.filter(|ms| ms.is_finite())).collect(),
                meets_slos: run.meets_slos(),
                mean_replicas: run.held.mean / f64::from(self.deployment.gpus()),
                gpu_hours: run.held.gpu_hours,
            })
        };
        run_all(&[()], &seeds, one).map(|mut runs| runs.remove(0))
    }

    /// The service with the replicas of `curve`, at least one, which are there at once.
    fn scaled(&self, curve: &SeededCurve, rate: f64) -> Result<Experiment, RunError> {
        let peak = curve.replicas.iter().copied().max().unwrap_or(0);
        if peak > MOST_REPLICAS {
            let what = format!("the curve has up to {peak} replicas, more than {MOST_REPLICAS}");
            return Err(RunError::runtime(what).hint("raise the limits of `--slo`, or use more GPUs for a replica"));
        }
        let source = || SettingSource::Flag("--elastic".into());
        let parameter =
            |name: &str, value| (name.to_owned(), Sourced { value: ParameterInput::Number(value), source: source() });
        let parameters = [parameter("rate", rate), parameter("interval-s", self.interval.as_secs_f64())];
        let perfect = ScalingUse::choose(&Sourced { value: "perfect".to_owned(), source: source() }, &parameters);
        let perfect = perfect.map_err(RunError::refused)?;
        let mut service = self.service.clone();
        service.cluster.num_instances = curve.replicas.first().map_or(1, |&first| first.max(1));
        service.cluster.scaling = Some(ScalingSettings {
            behaviour: perfect.build(Vec::new).behaviour(),
            built_in: Some(perfect),
            min: 1,
            max: peak.max(1),
            scrape: self.interval,
            sync: self.interval,
            start: StartupSettings::NONE,
            mode: StartMode::Cold,
        });
        Ok(service)
    }

    /// The figures of so many replicas by interval.
    fn held(&self, replicas: &[u32]) -> HeldReplicas {
        let total: f64 = replicas.iter().copied().map(f64::from).sum();
        let gpu_hours = total * self.interval.as_secs_f64() * f64::from(self.deployment.gpus()) / 3600.0;
        HeldReplicas {
            mean: total / replicas.len().max(1) as f64,
            peak: replicas.iter().copied().max().unwrap_or(0),
            gpu_hours,
            usd: self.usd_per_gpu_hour.map(|usd| usd * gpu_hours),
        }
    }

    fn periods(&self, curve: &SeededCurve) -> Vec<CurvePeriod> {
        let width = self.interval.as_secs_f64();
        let period = |Range { start, end }: Range<usize>| {
            let requests = curve.arrivals[start..end].iter().sum();
            let (from_s, to_s) = (start as f64 * width, end as f64 * width);
            let rate = requests as f64 / (to_s - from_s);
            CurvePeriod { from_s, to_s, requests, rate, replicas: self.held(&curve.replicas[start..end]) }
        };
        let (count, each) = (curve.replicas.len(), curve.replicas.len().div_ceil(MOST_PERIODS).max(1));
        (0..count).step_by(each).map(|start| period(start..(start + each).min(count))).collect()
    }

    fn notes(&self, runs: &[CurveRun]) -> Vec<String> {
        let mut notes = self.config.notes();
        let missing = runs.iter().filter(|run| !run.meets_slos).count();
        if missing > 0 {
            notes.push(format!(
                "the simulated curve misses an SLO under {missing} of {} seeds: requests of an interval that last into the next \
                 one meet fewer replicas, and arrivals within an interval are uneven; a shorter --interval follows them",
                runs.len()
            ));
        }
        notes
    }
}

/// Replicas and arrivals by interval.
struct SeededCurve {
    replicas: Vec<u32>,
    arrivals: Vec<u64>,
}

impl SeededCurve {
    /// The replicas for the arrivals of `load`, of which each serves `rate` requests per second.
    fn new(load: &SeededLoad, rate: f64, interval: Micros) -> Self {
        let times = || load.kept.iter().flatten().map(|request| request.arrival);
        let count = times().next_back().map_or(0, |last| last.0 / interval.0 + 1) as usize;
        let mut arrivals = vec![0; count];
        times().for_each(|at| arrivals[(at.0 / interval.0) as usize] += 1);
        let schedule = Schedule::perfect(times(), rate, interval, Micros::ZERO);
        let mut replicas = vec![0; count];
        let first =
            |step: Option<&(Micros, u32)>| step.map_or(count, |(from, _)| count.min((from.0 / interval.0) as usize));
        for (index, step) in schedule.steps().iter().enumerate() {
            replicas[first(Some(step))..first(schedule.steps().get(index + 1))].fill(step.1);
        }
        Self { replicas, arrivals }
    }

    fn steps(&self, interval: Micros) -> Vec<CurveStep> {
        let mut steps: Vec<CurveStep> = Vec::new();
        for (index, &replicas) in self.replicas.iter().enumerate() {
            if steps.last().is_none_or(|last| last.replicas != replicas) {
                steps.push(CurveStep { from_s: index as f64 * interval.as_secs_f64(), replicas });
            }
        }
        steps
    }
}

/// The means over seeds, and the largest peak.
fn mean_of(held: impl Iterator<Item = HeldReplicas>) -> HeldReplicas {
    let held: Vec<HeldReplicas> = held.collect();
    let mean_over = |figure: fn(&HeldReplicas) -> f64| mean(held.iter().map(figure)).unwrap_or(0.0);
    HeldReplicas {
        mean: mean_over(|of| of.mean),
        peak: held.iter().map(|of| of.peak).max().unwrap_or(0),
        gpu_hours: mean_over(|of| of.gpu_hours),
        usd: held.iter().all(|of| of.usd.is_some()).then(|| mean_over(|of| of.usd.unwrap_or(0.0))),
    }
}
