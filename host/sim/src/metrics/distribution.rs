//! Distributions of durations, and the samples that they are computed from.

use crate::limits::FIRST_SAMPLES;
use crate::numbers::{index, truncated};
use crate::units::Micros;

/// A distribution of durations in figures. All in ms; all 0 if there are no samples.
///
/// The percentile p of n ascending samples x lies at rank `p/100·(n − 1)`, linearly interpolated between its neighbours
/// (Hyndman and Fan 1996, type 7; numpy's default).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Distribution {
    /// Number of samples, not in ms.
    pub count: u64,
    /// Arithmetic mean of the samples.
    pub mean_ms: f64,
    /// Smallest of the samples.
    pub min_ms: f64,
    /// Largest of the samples.
    pub max_ms: f64,
    /// Median of the samples (50th percentile).
    pub p50_ms: f64,
    /// 90th percentile of the samples.
    pub p90_ms: f64,
    /// 95th percentile of the samples.
    pub p95_ms: f64,
    /// 99th percentile of the samples.
    pub p99_ms: f64,
}

impl Distribution {
    /// The distribution of `samples`, which it reorders. O(n).
    #[must_use]
    pub fn from_samples(samples: &mut [Micros]) -> Self {
        let sum: u128 = samples.iter().map(|sample| u128::from(sample.0)).sum();
        let mut select = Selection::new(samples);
        Self::from_order(select.0.len() as u64, sum as f64, |rank| select.at(rank).0 as f64)
    }

    /// The distribution of `count` samples, where `at(rank)` is the sample (µs) of that rank, 0 being the smallest.
    /// Ranks are read in ascending order.
    pub(super) fn from_order(count: u64, sum: f64, mut at: impl FnMut(u64) -> f64) -> Self {
        if count == 0 {
            return Self::default();
        }
        let ranks = [0.0, 50.0, 90.0, 95.0, 99.0, 100.0].map(|percent| percent / 100.0 * (count - 1) as f64);
        let mut neighbours = [0; 12];
        for (pair, rank) in neighbours.chunks_exact_mut(2).zip(ranks) {
            pair.copy_from_slice(&[truncated(rank.floor()), truncated(rank.ceil())]);
        }
        neighbours.sort_unstable();
        let samples = neighbours.map(&mut at);
        let sample = |rank: f64| samples[neighbours.partition_point(|&other| other < truncated(rank))];
        let [min_ms, p50_ms, p90_ms, p95_ms, p99_ms, max_ms] = ranks.map(|rank| {
            let (low, high) = (sample(rank.floor()), sample(rank.ceil()));
            low / 1e3 + (high - low) * (rank - rank.floor()) / 1e3
        });
        Self { count, mean_ms: sum / count as f64 / 1e3, min_ms, max_ms, p50_ms, p90_ms, p95_ms, p99_ms }
    }
}

/// Order statistics by repeated selection: linear, where sorting is not.
///
/// Everything before the last selected rank is smaller, so only the rest is searched again.
struct Selection<'a, T>(&'a mut [T], usize);

impl<'a, T: Ord + Copy> Selection<'a, T> {
    fn new(samples: &'a mut [T]) -> Self {
        Self(samples, 0)
    }

    /// The sample of that rank, which may not be lower than the previous one.
    fn at(&mut self, rank: u64) -> T {
        let rank = index(rank);
        if rank >= self.1 {
            self.0[self.1..].select_nth_unstable(rank - self.1);
            self.1 = rank + 1;
        }
        self.0[rank]
    }
}

/// Durations: 4 bytes each, 8 for those that need more.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    small: Vec<u32>,
    /// Samples above [`u32::MAX`] µs, that is 71 minutes: larger than all of `small`.
    large: Vec<u64>,
}

impl Samples {
    pub fn extend(&mut self, sample: Option<Micros>) {
        let Some(Micros(us)) = sample else { return };
        if self.small.capacity() == 0 {
            self.small.reserve(FIRST_SAMPLES);
        }
        match u32::try_from(us) {
            Ok(us) => self.small.push(us),
            Err(_) => self.large.push(us),
        }
    }

    /// The samples of all `parts` together.
    pub fn merged<'a>(parts: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let (mut small, mut large) = (Vec::new(), Vec::new());
        small.reserve_exact(parts.clone().map(|part| part.small.len()).sum());
        large.reserve_exact(parts.clone().map(|part| part.large.len()).sum());
        for part in parts {
            small.extend_from_slice(&part.small);
            large.extend_from_slice(&part.large);
        }
        Self { small, large }
    }

    pub fn distribution(&mut self) -> Distribution {
        let small = self.small.len() as u64;
        let count = small + self.large.len() as u64;
        // Fewer than 2^32 samples, each below 2^32.
        let sum = u128::from(self.small.iter().map(|&us| u64::from(us)).sum::<u64>())
            + self.large.iter().map(|&us| u128::from(us)).sum::<u128>();
        let (mut low, mut high) = (Selection::new(&mut self.small), Selection::new(&mut self.large));
        Distribution::from_order(count, sum as f64, |rank| {
            (if rank < small { u64::from(low.at(rank)) } else { high.at(rank - small) }) as f64
        })
    }
}

/// Durations that are means and therefore not whole µs. 8 bytes each.
#[derive(Clone, Debug, Default)]
pub(super) struct Means(Vec<f64>);

impl Means {
    pub fn push(&mut self, us: f64) {
        self.0.push(us);
    }

    /// The distribution. O(n log n): summed in ascending order, so that the order of arrival does not affect the last
    /// digits.
    pub fn distribution(&mut self) -> Distribution {
        self.0.sort_unstable_by(f64::total_cmp);
        Distribution::from_order(self.0.len() as u64, self.0.iter().sum(), |rank| self.0[index(rank)])
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(in crate::metrics) fn from_samples(samples: &[u64]) -> Distribution {
        Distribution::from_samples(&mut samples.iter().copied().map(Micros).collect::<Vec<_>>())
    }

    #[test]
    fn percentiles_interpolate_between_neighbours() {
        // Ranks 2, 3.6, 3.8 and 3.96 of 10, 20, 30, 40, 50 ms.
        let five = from_samples(&[50_000, 10_000, 40_000, 20_000, 30_000]);
        assert_eq!((five.count, five.mean_ms, five.min_ms, five.max_ms), (5, 30.0, 10.0, 50.0));
        assert_eq!([five.p50_ms, five.p90_ms, five.p95_ms], [30.0, 46.0, 48.0]);
        assert!((five.p99_ms - 49.6).abs() < 1e-12);
        // numpy.percentile([1, 2, 3, 4], 50) = 2.5
        assert_eq!(from_samples(&[1_000, 2_000, 3_000, 4_000]).p50_ms, 2.5);
    }

    #[test]
    fn one_sample_is_every_percentile_and_none_is_zero() {
        let one = from_samples(&[7]);
        assert_eq!([one.min_ms, one.p50_ms, one.p99_ms, one.max_ms, one.mean_ms], [0.007; 5]);
        assert_eq!(from_samples(&[]), Distribution::default());
    }

    #[test]
    fn fractions_of_a_microsecond_count_in_means() {
        let mut means = Means::default();
        [2_500.5, 1_000.25].into_iter().for_each(|us| means.push(us));
        let d = means.distribution();
        assert_eq!((d.count, d.min_ms, d.max_ms, d.mean_ms), (2, 1.00025, 2.5005, 1.750375));
    }

    fn figures(d: &Distribution) -> Vec<f64> {
        vec![d.min_ms, d.p50_ms, d.p90_ms, d.p95_ms, d.p99_ms, d.max_ms]
    }

    fn naive(mut samples: Vec<u64>) -> Vec<f64> {
        samples.sort_unstable();
        let rank = |percent: f64| percent / 100.0 * (samples.len() - 1) as f64;
        [0.0, 50.0, 90.0, 95.0, 99.0, 100.0]
            .iter()
            .map(|&percent| {
                let (low, high) = (rank(percent).floor() as usize, rank(percent).ceil() as usize);
                let (x, y) = (samples[low] as f64, samples[high] as f64);
                x / 1e3 + (y - x) * (rank(percent) - low as f64) / 1e3
            })
            .collect()
    }

    /// Durations around the boundary of 32-bit samples.
    fn duration() -> impl Strategy<Value = u64> {
        prop_oneof![0..200u64, 4_294_967_290..4_294_967_300u64, 0..1u64 << 50]
    }

    proptest! {
        #[test]
        fn percentiles_ascend(samples in prop::collection::vec(duration(), 1..200)) {
            let d = from_samples(&samples);
            prop_assert!(figures(&d).is_sorted(), "{d:?}");
            prop_assert!(d.min_ms * (1.0 - 1e-12) <= d.mean_ms && d.mean_ms <= d.max_ms * (1.0 + 1e-12), "{d:?}");
        }

        #[test]
        fn every_way_gives_the_same(parts in prop::collection::vec(prop::collection::vec(duration(), 0..50), 1..5)) {
            let all: Vec<u64> = parts.concat();
            let parts: Vec<Samples> = parts
                .iter()
                .map(|part| {
                    let mut samples = Samples::default();
                    part.iter().for_each(|&us| samples.extend(Some(Micros(us))));
                    samples
                })
                .collect();
            let mut merged = Samples::merged(parts.iter());
            prop_assert_eq!(merged.distribution(), from_samples(&all));
            prop_assert_eq!(merged.distribution(), from_samples(&all), "a second time, on reordered samples");
            if !all.is_empty() {
                prop_assert_eq!(figures(&from_samples(&all)), naive(all));
            }
        }
    }
}
