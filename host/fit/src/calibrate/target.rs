//! A run prepared for fits: windows of requests, and the means that simulations of them gave.
//!
//! A fit simulates each run hundreds of times; fits to parts of the runs, with a model or a workload left out, share the
//! simulations that they have in common. Two properties of the model make many of them superfluous:
//! `arrival_us` and `first_token_us` shift all latencies of a run by themselves, and a coefficient without a part in the
//! step times of a run (experts of a dense model, collectives of one GPU) changes nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use blis_diag::Diagnostic;
use blis_sim::latency::Batch;
use blis_sim::units::Micros;

use super::coefficients::{ARRIVAL, CoefficientValues, FIRST_TOKEN, NAMES, Prior};
use crate::errors::{comparable, mean};
use crate::replay::{Predicted, replay};
use crate::runs::{FitError, MeasuredRequest, MeasuredRun, RunSplit};
use crate::validate::weighted;

/// Seconds at the start of a long run that are left out: caches fill, and kernels are still being compiled.
const WARM_UP_S: u64 = 30;

/// A shorter run has no warm-up that could be left out, s.
const LONG_RUN_S: u64 = 300;

/// As [`Prior::e2e_spread`], for the mean TTFT.
const TTFT_SPREAD: f64 = 0.1;

/// As [`Prior::e2e_spread`], for the mean time in the waiting queue.
const QUEUE_SPREAD: f64 = 0.2;

/// Added to both times in the waiting queue before they are compared, µs: about a step, below which waiting is chance.
const QUEUE_FLOOR_US: f64 = 10_000.0;

/// Weight of every run in windows, whatever its length.
const WINDOWS: f64 = 20.0;

/// A run prepared for fits: its training part, the requests served at the same time, and the windows of comparison.
pub struct FitTarget {
    run: MeasuredRun,
    windows: Vec<FitWindow>,
    /// Whether each coefficient changes how the run is served, beyond a shift of all its latencies.
    matters: [bool; NAMES.len()],
    simulated: Mutex<BTreeMap<SimulationKey, Arc<[WindowMeans]>>>,
}

/// The bits of the coefficients that matter, 0 for the others.
type SimulationKey = [u64; NAMES.len()];

/// Requests with means that are compared.
struct FitWindow {
    /// Their numbers.
    numbers: Vec<usize>,
    /// Measured mean end-to-end latency and TTFT, µs, where they are known.
    e2e_us: Option<f64>,
    ttft_us: Option<f64>,
    /// Measured mean time from QUEUED to SCHEDULED, µs, if the server reports it.
    queue_us: Option<f64>,
}

/// Simulated means of the requests of a window, µs, with `arrival_us` and `first_token_us` at 0.
struct WindowMeans {
    e2e_us: f64,
    ttft_us: f64,
    queue_us: f64,
}

impl FitTarget {
    /// Prepares `run`.
    ///
    /// # Errors
    /// If it cannot be simulated, or has no training request that can be compared.
    pub fn new(run: &MeasuredRun) -> Result<Self, FitError> {
        let run = training_part(run);
        let start = if last_training_us(&run) > LONG_RUN_S * 1_000_000 { WARM_UP_S * 1_000_000 } else { 0 };
        let mut numbers = comparable(&run, &[RunSplit::Train]);
        numbers.retain(|&number| run.requests[number].arrival_us >= start);
        if numbers.is_empty() {
            let mistake =
                Diagnostic::new("no training request can be compared").hint("the run is too short for its latencies");
            return Err(FitError::Run { run: run.name, mistake: Box::new(mistake) });
        }
        let windows = if run.percentiles.is_some() { stages(&run, numbers) } else { equal_parts(&run, &numbers) };
        Ok(Self { matters: matters(&run)?, run, windows, simulated: Mutex::default() })
    }

    /// Whether the coefficient with that index changes how the run is served.
    #[cfg(test)]
    pub(super) fn matters(&self, index: usize) -> bool {
        self.matters[index]
    }

    /// Number of simulations until now.
    #[cfg(test)]
    pub(super) fn simulations(&self) -> usize {
        self.simulated.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Errors of the simulation with these coefficients, one per window and figure, in expected deviations.
    pub(super) fn residuals(&self, weights: &CoefficientValues, e2e_spread: f64) -> Result<Vec<f64>, FitError> {
        let shift_us = weights[ARRIVAL] + weights[FIRST_TOKEN];
        let share = (WINDOWS / self.windows.len() as f64).sqrt();
        let mut residuals = Vec::with_capacity(2 * self.windows.len());
        for (window, means) in self.windows.iter().zip(&*self.means(weights)?) {
            if let Some(e2e_us) = window.e2e_us {
                residuals.push(share * robust(((means.e2e_us + shift_us) / e2e_us).ln() / e2e_spread));
            }
            if let Some(ttft_us) = window.ttft_us {
                residuals.push(share * robust(((means.ttft_us + shift_us) / ttft_us).ln() / TTFT_SPREAD));
            }
            if let Some(queue_us) = window.queue_us {
                let ratio = (means.queue_us + QUEUE_FLOOR_US) / (queue_us + QUEUE_FLOOR_US);
                residuals.push(share * robust(ratio.ln() / QUEUE_SPREAD));
            }
        }
        Ok(residuals)
    }

    /// The simulated means of each window, from memory if these coefficients were simulated before.
    fn means(&self, weights: &CoefficientValues) -> Result<Arc<[WindowMeans]>, FitError> {
        let mut relevant = *weights;
        relevant.iter_mut().zip(self.matters).filter(|(_, matters)| !matters).for_each(|(weight, _)| *weight = 0.0);
        let key = relevant.map(f64::to_bits);
        if let Some(known) = self.simulated.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Arc::clone(known));
        }
        let deployment = weighted(&self.run, &relevant)?;
        let predicted = replay(&self.run, &deployment, &deployment.latency)?;
        let means: Arc<[WindowMeans]> = self.windows.iter().map(|window| window.means(&predicted)).collect();
        self.simulated.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&means));
        Ok(means)
    }
}

/// `run` without the requests that arrived long after the last training request: of later ones only the arrivals are needed,
/// as training requests were served at the same time as the first of them.
fn training_part(run: &MeasuredRun) -> MeasuredRun {
    let mut run = run.clone();
    let trained = run.requests.iter().filter(|request| request.split == RunSplit::Train);
    let longest = trained.map(|request| request.e2e_us).fold(0.0, f64::max);
    let (total, limit) = (run.requests.len(), last_training_us(&run) as f64 + 2.0 * longest);
    run.requests.retain(|request| request.arrival_us as f64 <= limit);
    run.cut_off |= run.requests.len() < total;
    run
}

/// The last arrival of a training request, µs; 0 without any.
fn last_training_us(run: &MeasuredRun) -> u64 {
    let trained = run.requests.iter().filter(|request| request.split == RunSplit::Train);
    trained.map(|request| request.arrival_us).max().unwrap_or(0)
}

/// A residual that has the soft-L1 loss of `r` as its square: quadratic for small ones, linear for large ones.
pub(crate) fn robust(r: f64) -> f64 {
    (2.0 * ((1.0 + r * r).sqrt() - 1.0)).sqrt().copysign(r)
}

/// Which coefficients change the time of a step with decodes and prompts, or the way to the queue by input tokens.
fn matters(run: &MeasuredRun) -> Result<[bool; NAMES.len()], FitError> {
    let mut step = Batch::default();
    (0..20).for_each(|_| step.add_decode(1000));
    step.add_prefill(100, 500, 600);
    let times = |weights: &CoefficientValues| -> Result<(Micros, Micros), FitError> {
        let latency = weighted(run, weights)?.latency;
        Ok((latency.step_time(&step), latency.queueing_time(100_000)))
    };
    let usual = Prior::GENERAL.values;
    let usual_times = times(&usual)?;
    let mut matters = [false; NAMES.len()];
    for (index, matters) in matters.iter_mut().enumerate() {
        let mut changed = usual;
        changed[index] = 2.0 * usual[index] + 1.0;
        *matters = index != ARRIVAL && index != FIRST_TOKEN && times(&changed)? != usual_times;
    }
    Ok(matters)
}

impl FitWindow {
    fn new(run: &MeasuredRun, numbers: Vec<usize>, e2e: bool, ttft: bool) -> Self {
        let of = |what: fn(&MeasuredRequest) -> f64| {
            mean(&numbers.iter().map(|&number| what(&run.requests[number])).collect::<Vec<_>>())
        };
        let queued = numbers.iter().all(|&number| run.requests[number].queue_us.is_some());
        Self {
            queue_us: (ttft && queued).then(|| of(|request| request.queue_us.unwrap_or_default())),
            e2e_us: e2e.then(|| of(|request| request.e2e_us)),
            ttft_us: ttft.then(|| of(|request| request.ttft_us)),
            numbers,
        }
    }

    fn means(&self, predicted: &[Predicted]) -> WindowMeans {
        let of = |what: fn(&Predicted) -> f64| {
            mean(&self.numbers.iter().map(|&number| what(&predicted[number])).collect::<Vec<_>>())
        };
        WindowMeans {
            e2e_us: of(|request| request.e2e_us),
            ttft_us: of(|request| request.ttft_us),
            queue_us: of(|request| request.queue_us),
        }
    }
}

/// The windows of a run of which only means are known: the stages by their end-to-end latency, and all by their TTFT.
fn stages(run: &MeasuredRun, numbers: Vec<usize>) -> Vec<FitWindow> {
    let same = |&a: &usize, &b: &usize| run.requests[a].e2e_us == run.requests[b].e2e_us;
    let stages = numbers.chunk_by(same).map(|stage| FitWindow::new(run, stage.to_vec(), true, false));
    let mut windows: Vec<FitWindow> = stages.collect();
    windows.push(FitWindow::new(run, numbers, false, true));
    windows
}

/// Windows of equally many requests.
fn equal_parts(run: &MeasuredRun, numbers: &[usize]) -> Vec<FitWindow> {
    /// Number of requests that gives a reliable mean, and maximum number of windows.
    const REQUESTS: usize = 30;
    const MOST: usize = 40;
    let count = (numbers.len() / REQUESTS).clamp(1, MOST);
    let part = |window| &numbers[window * numbers.len() / count..(window + 1) * numbers.len() / count];
    (0..count).map(|window| FitWindow::new(run, part(window).to_vec(), true, true)).collect()
}
