//! Errors of a simulation relative to a measurement.

use serde::Serialize;

use super::replay::Predicted;
use super::runs::{MeasuredRequest, MeasuredRun, RunSplit, RunStage};

/// Signed relative errors on one run, %: positive if the simulation is slower.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Errors {
    /// Requests that were compared. Unit: requests.
    pub requests: usize,
    /// End-to-end latency of the request.
    pub e2e: DistributionErrors,
    /// Time to first token.
    pub ttft: DistributionErrors,
    /// Mean inter-token latency of a request; `null` if all requests have one output token.
    pub itl: Option<DistributionErrors>,
    /// Time in the waiting queue; `null` if it was not measured.
    pub queue: Option<StageErrors>,
    /// Mean absolute error of the end-to-end latency of single requests; `null` if only means were measured. Unit: %.
    pub e2e_mape: Option<f64>,
    /// Pearson's r between measured and simulated end-to-end latency; `null` if one is constant. Unit: correlation.
    pub e2e_pearson: Option<f64>,
}

/// Measured and simulated latency, and signed errors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DistributionErrors {
    /// Mean of the measured latency.
    pub measured_ms: f64,
    /// Mean of the simulated latency.
    pub simulated_ms: f64,
    /// Error of the mean. Unit: %.
    pub mean: f64,
    /// Error of the 90th percentile. Unit: %.
    pub p90: f64,
    /// Error of the 99th percentile. Unit: %.
    pub p99: f64,
}

/// Measured and simulated time in a stage, and its signed error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StageErrors {
    /// Mean of the measured latency.
    pub measured_ms: f64,
    /// Mean of the simulated latency.
    pub simulated_ms: f64,
    /// Error of the mean; `null` if the measured mean is below 1 µs. Unit: %.
    pub mean: Option<f64>,
}

/// Errors on one level of load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoadStageErrors {
    /// Arrival rate. Unit: requests/s.
    pub rate: f64,
    /// Requests that were compared. Unit: requests, 1 or more.
    pub requests: usize,
    /// Mean end-to-end latency.
    pub e2e: StageErrors,
    /// Mean time to first token; `null` if only the mean of all levels is known.
    pub ttft: Option<StageErrors>,
}

/// Errors by level of load, of the requests with those numbers; empty if the levels are not known. A level without any
/// of the requests is left out. Arrivals after the last level belong to it.
#[must_use]
pub fn compare_stages(run: &MeasuredRun, predicted: &[Predicted], numbers: &[usize]) -> Vec<LoadStageErrors> {
    let mut start_s = 0.0;
    let mut stages = Vec::new();
    for (index, &RunStage { rate, seconds }) in run.stages.iter().enumerate() {
        let last = index + 1 == run.stages.len();
        let (from, to) = (start_s, if last { f64::INFINITY } else { start_s + seconds });
        start_s += seconds;
        let within = |number: &usize| (from..to).contains(&(run.requests[*number].arrival_us as f64 / 1e6));
        let numbers: Vec<usize> = numbers.iter().copied().filter(within).collect();
        let stage = |measured: fn(&MeasuredRequest) -> f64, simulated: fn(&Predicted) -> f64| {
            let measured: Vec<f64> = numbers.iter().map(|&number| measured(&run.requests[number])).collect();
            let simulated: Vec<f64> = numbers.iter().map(|&number| simulated(&predicted[number])).collect();
            StageErrors::new(mean(&measured), mean(&simulated))
        };
        if !numbers.is_empty() {
            // Of runs without single requests, the TTFT is the mean of all levels.
            let known = run.percentiles.is_none() || run.stages.len() == 1;
            stages.push(LoadStageErrors {
                rate,
                requests: numbers.len(),
                e2e: stage(|request| request.e2e_us, |predicted| predicted.e2e_us),
                ttft: known.then(|| stage(|request| request.ttft_us, |predicted| predicted.ttft_us)),
            });
        }
    }
    stages
}

impl StageErrors {
    /// Compares two means, µs.
    fn new(measured_us: f64, simulated_us: f64) -> Self {
        Self {
            measured_ms: measured_us / 1e3,
            simulated_ms: simulated_us / 1e3,
            mean: (measured_us >= 1.0).then(|| percent(measured_us, simulated_us)),
        }
    }
}

/// Numbers of the requests of a run that can be compared: those of one of `splits`, except those close to the end of a
/// run that was cut off, because requests that were served at the same time are missing.
#[must_use]
pub fn comparable(run: &MeasuredRun, splits: &[RunSplit]) -> Vec<usize> {
    /// Width of that margin, in mean latencies.
    const MARGIN: f64 = 1.5;
    let last = run.requests.last().map_or(0.0, |request| request.arrival_us as f64);
    let mean = run.requests.iter().map(|request| request.e2e_us).sum::<f64>() / run.requests.len().max(1) as f64;
    let limit = if run.cut_off { last - MARGIN * mean } else { f64::INFINITY };
    let fits = |request: &MeasuredRequest| splits.contains(&request.split) && request.arrival_us as f64 <= limit;
    (0..run.requests.len()).filter(|&number| fits(&run.requests[number])).collect()
}

/// Compares the requests of `run` with those numbers; `None` if there are none.
#[must_use]
pub fn compare(run: &MeasuredRun, predicted: &[Predicted], numbers: &[usize]) -> Option<Errors> {
    let pairs: Vec<(&MeasuredRequest, &Predicted)> =
        numbers.iter().map(|&number| (&run.requests[number], &predicted[number])).collect();
    if pairs.is_empty() {
        return None;
    }
    let columns = |measured: fn(&MeasuredRequest) -> f64, simulated: fn(&MeasuredRequest, &Predicted) -> f64| {
        let measured: Vec<f64> = pairs.iter().map(|(request, _)| measured(request)).collect();
        let simulated: Vec<f64> = pairs.iter().map(|(request, predicted)| simulated(request, predicted)).collect();
        (measured, simulated)
    };
    let e2e = columns(|request| request.e2e_us, |_, predicted| predicted.e2e_us);
    let ttft = columns(|request| request.ttft_us, |_, predicted| predicted.ttft_us);
    let gap = |request: &MeasuredRequest, predicted: &Predicted| {
        (predicted.e2e_us - predicted.ttft_us) / f64::from(request.output_tokens.max(2) - 1)
    };
    let itl = pairs
        .iter()
        .all(|(request, _)| request.output_tokens > 1)
        .then(|| columns(|request| request.itl_us().unwrap_or(0.0), gap));
    let queue = pairs
        .iter()
        .all(|(request, _)| request.queue_us.is_some())
        .then(|| columns(|request| request.queue_us.unwrap_or(0.0), |_, predicted| predicted.queue_us));
    let single = run.percentiles.is_none();
    let absolute = e2e.0.iter().zip(&e2e.1).map(|(measured, simulated)| ((simulated - measured) / measured).abs());
    Some(Errors {
        requests: pairs.len(),
        e2e_mape: single.then(|| 100.0 * absolute.sum::<f64>() / pairs.len() as f64),
        e2e_pearson: pearson(&e2e.0, &e2e.1).filter(|_| single),
        e2e: of_distribution(e2e.0, e2e.1, run.percentiles.map(|known| known.e2e_ms)),
        ttft: of_distribution(ttft.0, ttft.1, run.percentiles.map(|known| known.ttft_ms)),
        itl: itl.map(|(measured, simulated)| of_distribution(measured, simulated, None)),
        queue: queue.map(|(measured, simulated)| StageErrors::new(mean(&measured), mean(&simulated))),
    })
}

/// Compares two samples; `percentiles` are the measured ones, ms, if single requests are not known.
fn of_distribution(
    mut measured: Vec<f64>,
    mut simulated: Vec<f64>,
    percentiles: Option<[f64; 2]>,
) -> DistributionErrors {
    measured.sort_by(f64::total_cmp);
    simulated.sort_by(f64::total_cmp);
    let [p90, p99] = percentiles
        .map_or_else(|| [90.0, 99.0].map(|share| percentile(&measured, share)), |known| known.map(|ms| ms * 1e3));
    DistributionErrors {
        measured_ms: mean(&measured) / 1e3,
        simulated_ms: mean(&simulated) / 1e3,
        mean: percent(mean(&measured), mean(&simulated)),
        p90: percent(p90, percentile(&simulated, 90.0)),
        p99: percent(p99, percentile(&simulated, 99.0)),
    }
}

/// Signed error of a simulated value in % of the measured one.
pub(super) fn percent(measured: f64, simulated: f64) -> f64 {
    100.0 * (simulated - measured) / measured
}

/// The arithmetic mean; NaN without values.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Linear interpolation between neighbours, as in NumPy. `sorted` must not be empty.
fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let rank = percent / 100.0 * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[rank.floor() as usize], sorted[rank.ceil() as usize]);
    low + (high - low) * rank.fract()
}

/// Pearson's r; `None` if one of them is constant.
pub(super) fn pearson(x: &[f64], y: &[f64]) -> Option<f64> {
    let (mean_x, mean_y) = (mean(x), mean(y));
    let sum = |f: &dyn Fn(f64, f64) -> f64| x.iter().zip(y).map(|(x, y)| f(x - mean_x, y - mean_y)).sum::<f64>();
    let (xx, yy, xy) = (sum(&|x, _| x * x), sum(&|_, y| y * y), sum(&|x, y| x * y));
    (xx > 0.0 && yy > 0.0).then(|| xy / (xx * yy).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_config::DeploymentArgs;

    fn run(latencies: &[(f64, f64)]) -> MeasuredRun {
        let request = |(at, &(ttft_us, e2e_us)): (u64, &(f64, f64))| MeasuredRequest {
            arrival_us: at * 1000,
            input_tokens: 10,
            output_tokens: 11,
            ttft_us,
            e2e_us,
            queue_us: None,
            split: if at < 2 { RunSplit::Train } else { RunSplit::Test },
            prompt: None,
            content: Default::default(),
            preemptions: None,
        };
        MeasuredRun {
            name: "test".into(),
            workload: "test".into(),
            deployment: DeploymentArgs::new("m"),
            engine: crate::runs::MEASURED_ENGINE,
            max_num_seqs: 1,
            max_num_batched_tokens: 1,
            prefix_caching: false,
            shared_prefix_tokens: 0,
            cut_off: false,
            requests: (0..).zip(latencies).map(request).collect(),
            sha256: String::new(),
            percentiles: None,
            stages: Vec::new(),
            prefixes_known: true,
            parity: false,
            notes: Vec::new(),
        }
    }

    #[test]
    fn errors_are_signed_and_of_the_true_inter_token_latency() {
        let run = run(&[(100.0, 1100.0), (100.0, 2100.0), (100.0, 3100.0)]);
        let predicted: Vec<Predicted> = run
            .requests
            .iter()
            .map(|request| Predicted { ttft_us: 110.0, e2e_us: request.e2e_us * 1.1, queue_us: 0.0 })
            .collect();
        let errors = compare(&run, &predicted, &[0, 1, 2]).unwrap();
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} is not {b}");
        close(errors.e2e.mean, 10.0);
        close(errors.e2e.p99, 10.0);
        close(errors.ttft.mean, 10.0);
        close(errors.itl.unwrap().measured_ms, 0.2);
        close(errors.itl.unwrap().mean, 10.0);
        close(errors.e2e_mape.unwrap(), 10.0);
        close(errors.e2e_pearson.unwrap(), 1.0);
        assert_eq!(errors.queue, None);
        assert_eq!(compare(&run, &predicted, &[]), None);
    }

    #[test]
    fn levels_of_load_are_compared_one_by_one() {
        let mut run = run(&[(100.0, 1000.0), (100.0, 1000.0), (200.0, 2000.0)]);
        let predicted =
            [110.0, 90.0, 220.0].map(|ttft_us| Predicted { ttft_us, e2e_us: ttft_us * 10.0, queue_us: 0.0 });
        assert_eq!(compare_stages(&run, &predicted, &[0, 1, 2]), []);
        // Arrivals at 0, 1 and 2 ms; the second level begins at 1.5 ms.
        run.stages =
            [(8.0, 0.0015), (20.0, 0.0001), (1.0, 5.0)].map(|(rate, seconds)| RunStage { rate, seconds }).into();
        let stages = compare_stages(&run, &predicted, &[0, 1, 2]);
        assert_eq!(stages.iter().map(|stage| (stage.rate, stage.requests)).collect::<Vec<_>>(), [(8.0, 2), (1.0, 1)]);
        let means = |of: fn(&LoadStageErrors) -> f64| stages.iter().map(of).map(f64::round).collect::<Vec<_>>();
        assert_eq!(means(|stage| stage.e2e.mean.unwrap()), [0.0, 10.0], "+10 and −10 %, then +10 %");
        assert_eq!(means(|stage| stage.ttft.unwrap().measured_ms * 1e3), [100.0, 200.0]);
        run.percentiles = Some(crate::runs::RunPercentiles { e2e_ms: [1.0, 1.0], ttft_ms: [1.0, 1.0] });
        assert_eq!(compare_stages(&run, &predicted, &[0])[0].ttft, None, "the TTFT of the level is not known");
    }

    #[test]
    fn what_is_compared_is_of_the_split_and_before_the_cut() {
        let mut run = run(&[(1.0, 1000.0); 5]);
        assert_eq!(comparable(&run, &[RunSplit::Train]), [0, 1]);
        assert_eq!(comparable(&run, &[RunSplit::Test, RunSplit::Validation]), [2, 3, 4]);
        run.cut_off = true;
        assert_eq!(comparable(&run, &[RunSplit::Test]), [2], "1.5 ms before the last arrival at 4 ms");
    }
}
