//! The errors of one latency over all pairs.

use blis_report::percentile;
use blis_sim::rng::Stream;
use rand::RngExt as _;
use serde::Serialize;

use super::pairs::LatencyPair;
use blis_sim::request::Name;

/// Samples of the bootstrap; fewer of many requests.
const SAMPLES: usize = 400;
/// Values that all samples together may have.
const VALUES: usize = 8_000_000;
/// Requests without a session that arrive in the same second are a block.
const BLOCK_US: u64 = 1_000_000;

/// Errors of a latency over all requests that have it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyErrors {
    /// Requests that have this latency. Unit: requests.
    pub count: u64,
    /// Mean of the values.
    pub mean: StatisticErrors,
    /// Median of the values.
    pub p50: StatisticErrors,
    /// 90th percentile of the values.
    pub p90: StatisticErrors,
    /// 99th percentile of the values.
    pub p99: StatisticErrors,
    /// Mean over requests of the absolute error relative to the measured latency; requests with a measured latency of 0
    /// are left out, and it is `null` if none is left.
    pub mape_percent: Option<f64>,
    /// Pearson's r between measured and simulated latencies; `null` if one is constant. Unit: correlation.
    pub pearson_r: Option<f64>,
    /// Largest distance between the two cumulative distributions (Kolmogorov and Smirnov). Unit: share, 0 to 1.
    pub ks_distance: f64,
}

/// A statistic of measured and simulated latencies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StatisticErrors {
    /// The statistic of measured latencies.
    pub measured_ms: f64,
    /// The statistic of simulated latencies.
    pub simulated_ms: f64,
    /// Signed error relative to the measured value; `null` if that is 0.
    pub error_percent: Option<f64>,
    /// 95 % interval of the error, by a bootstrap over sessions, or over seconds of arrivals; `null` with fewer than
    /// two of them.
    pub interval_percent: Option<ErrorInterval>,
}

/// The bounds of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ErrorInterval {
    /// Lower bound of the error. Unit: %.
    pub low: f64,
    /// Upper bound of the error. Unit: %.
    pub high: f64,
}

/// Measured and simulated values of a latency, µs, and the block of each request.
pub(super) struct PairedValues {
    /// For each request, (measured, simulated).
    values: Vec<(f64, f64)>,
    /// Ends of the blocks: the values of a block lie together.
    blocks: Vec<std::ops::Range<usize>>,
}

impl PairedValues {
    /// The values of those pairs that have the latency. Requests of a session are a block; others are by arrival.
    pub fn new(pairs: &[LatencyPair], latency: impl Fn(&LatencyPair) -> Option<(f64, f64)>) -> Self {
        let block = |pair: &LatencyPair| match pair.session {
            Name::NONE => (0, pair.arrival.0 / BLOCK_US),
            session => (1, u64::from(session.0)),
        };
        let mut known: Vec<((u8, u64), (f64, f64))> =
            pairs.iter().filter_map(|pair| Some((block(pair), latency(pair)?))).collect();
        known.sort_by_key(|&(block, _)| block);
        let mut blocks = Vec::new();
        for run in known.chunk_by(|(one, _), (other, _)| one == other) {
            let start = blocks.last().map_or(0, |last: &std::ops::Range<usize>| last.end);
            blocks.push(start..start + run.len());
        }
        Self { values: known.into_iter().map(|(_, values)| values).collect(), blocks }
    }

    /// Its errors; `None` without values.
    pub fn errors(&self, seed: u64) -> Option<LatencyErrors> {
        if self.values.is_empty() {
            return None;
        }
        let (measured, simulated): (Vec<f64>, Vec<f64>) = self.values.iter().copied().unzip();
        let (measured, simulated) = (SampleStatistics::from_values(measured), SampleStatistics::from_values(simulated));
        let intervals = self.intervals(seed);
        let of = |which: usize| {
            let (measured, simulated) = (measured.all[which], simulated.all[which]);
            StatisticErrors {
                measured_ms: measured / 1e3,
                simulated_ms: simulated / 1e3,
                error_percent: percent(measured, simulated),
                interval_percent: intervals[which],
            }
        };
        let relative: Vec<f64> = self
            .values
            .iter()
            .filter(|(measured, _)| *measured > 0.0)
            .map(|(measured, simulated)| ((simulated - measured) / measured).abs())
            .collect();
        Some(LatencyErrors {
            count: self.values.len() as u64,
            mean: of(0),
            p50: of(1),
            p90: of(2),
            p99: of(3),
            mape_percent: (!relative.is_empty()).then(|| 100.0 * mean(&relative)),
            pearson_r: pearson(&self.values),
            ks_distance: ks_distance(&measured.sorted, &simulated.sorted),
        })
    }

    /// Percentile intervals of the errors of the statistics.
    fn intervals(&self, seed: u64) -> [Option<ErrorInterval>; 4] {
        const SIDE: f64 = 2.5;
        if self.blocks.len() < 2 {
            return [None; 4];
        }
        let samples = (VALUES / self.values.len()).clamp(40, SAMPLES);
        let stream = Stream::new(seed, "calibration");
        let mut errors: [Vec<f64>; 4] = Default::default();
        for sample in 0..samples as u64 {
            let mut rng = stream.at(sample);
            let (mut measured, mut simulated) = (Vec::new(), Vec::new());
            for _ in 0..self.blocks.len() {
                let block = &self.blocks[rng.random_range(0..self.blocks.len())];
                for &(one, other) in &self.values[block.clone()] {
                    measured.push(one);
                    simulated.push(other);
                }
            }
            let (measured, simulated) =
                (SampleStatistics::from_values(measured), SampleStatistics::from_values(simulated));
            for (which, errors) in errors.iter_mut().enumerate() {
                errors.extend(percent(measured.all[which], simulated.all[which]));
            }
        }
        errors.map(|mut errors| {
            errors.sort_by(f64::total_cmp);
            (errors.len() > 1)
                .then(|| ErrorInterval { low: percentile(&errors, SIDE), high: percentile(&errors, 100.0 - SIDE) })
        })
    }
}

/// Mean, p50, p90 and p99 of values, which it sorts.
struct SampleStatistics {
    sorted: Vec<f64>,
    all: [f64; 4],
}

impl SampleStatistics {
    fn from_values(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let all = [mean(&values), percentile(&values, 50.0), percentile(&values, 90.0), percentile(&values, 99.0)];
        Self { sorted: values, all }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn percent(measured: f64, simulated: f64) -> Option<f64> {
    (measured > 0.0).then(|| 100.0 * (simulated - measured) / measured)
}

fn pearson(values: &[(f64, f64)]) -> Option<f64> {
    let count = values.len() as f64;
    let (x, y) = values.iter().fold((0.0, 0.0), |(x, y), &(one, other)| (x + one / count, y + other / count));
    let sum = |of: &dyn Fn(f64, f64) -> f64| values.iter().map(|&(one, other)| of(one - x, other - y)).sum::<f64>();
    let (xx, yy, xy) = (sum(&|x, _| x * x), sum(&|_, y| y * y), sum(&|x, y| x * y));
    (xx > 0.0 && yy > 0.0).then(|| (xy / (xx.sqrt() * yy.sqrt())).clamp(-1.0, 1.0))
}

/// The largest distance between the shares of values up to any x.
fn ks_distance(one: &[f64], other: &[f64]) -> f64 {
    let share =
        |sorted: &[f64], x: f64| sorted.partition_point(|&value| value <= x) as f64 / sorted.len().max(1) as f64;
    let distance = |&x: &f64| (share(one, x) - share(other, x)).abs();
    one.iter().chain(other).map(distance).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_sim::ids::RequestId;
    use blis_sim::units::Micros;
    use blis_workload::RecordedTimes;
    use proptest::prelude::*;

    fn pairs(values: &[(f64, f64)]) -> Vec<LatencyPair> {
        let times = |us: f64| RecordedTimes::new(us, us).unwrap();
        let pair = |(number, &(measured, simulated)): (u32, &(f64, f64))| LatencyPair {
            id: RequestId(number),
            arrival: Micros(u64::from(number) * 400_000),
            session: Name::NONE,
            input_tokens: 1,
            output_tokens: 1,
            measured: times(measured),
            simulated: times(simulated),
            preemptions: 0,
        };
        (0..).zip(values).map(pair).collect()
    }

    fn errors(values: &[(f64, f64)]) -> LatencyErrors {
        let paired = PairedValues::new(&pairs(values), |pair| Some((pair.measured.ttft_us, pair.simulated.ttft_us)));
        paired.errors(1).expect("values")
    }

    #[test]
    fn errors_are_signed_and_relative_to_what_was_measured() {
        let errors = errors(&[(1000.0, 1100.0), (2000.0, 2200.0), (3000.0, 3300.0), (4000.0, 4400.0)]);
        assert_eq!((errors.count, errors.mean.measured_ms, errors.mean.simulated_ms), (4, 2.5, 2.75));
        let close = |value: Option<f64>, expected: f64| assert!((value.unwrap() - expected).abs() < 1e-9, "{value:?}");
        for error in [errors.mean, errors.p50, errors.p90, errors.p99] {
            close(error.error_percent, 10.0);
            let interval = error.interval_percent.expect("two blocks");
            close(Some(interval.low), 10.0);
            close(Some(interval.high), 10.0);
        }
        close(errors.mape_percent, 10.0);
        close(errors.pearson_r, 1.0);
        assert!((errors.ks_distance - 0.25).abs() < 1e-12, "{errors:?}");
    }

    #[test]
    fn what_cannot_be_computed_is_absent() {
        let same = errors(&[(0.0, 1.0), (0.0, 1.0)]);
        assert_eq!((same.mean.error_percent, same.mape_percent, same.pearson_r), (None, None, None));
        assert_eq!(same.mean.interval_percent, None, "one block");
        assert!((same.ks_distance - 1.0).abs() < 1e-12);
        assert_eq!(PairedValues::new(&[], |_| None).errors(1), None);
    }

    proptest! {
        /// A trace beside itself has no error of any kind.
        #[test]
        fn nothing_differs_from_itself(values in proptest::collection::vec(1.0..1e7_f64, 1..60)) {
            let errors = errors(&values.iter().map(|&us| (us, us)).collect::<Vec<_>>());
            for error in [errors.mean, errors.p50, errors.p90, errors.p99] {
                prop_assert_eq!(error.error_percent, Some(0.0));
                prop_assert!(error.interval_percent.is_none_or(|bounds| bounds.low == 0.0 && bounds.high == 0.0));
            }
            prop_assert_eq!((errors.mape_percent, errors.ks_distance), (Some(0.0), 0.0));
            prop_assert!(errors.pearson_r.is_none_or(|r| (r - 1.0).abs() < 1e-6));
        }
    }
}
