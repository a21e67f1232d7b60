//! The figures of a simulation: counts, and the distributions of its latencies.
//!
//! A [`Sink`] that keeps three durations per request (12 bytes, 8 more for each that exceeds
//! 71 minutes) and, for inter-token latencies, one counter per distinct value: they outnumber
//! requests a thousandfold but take few values.

use std::collections::BTreeMap;

use crate::outcome::{Counters, Decision, DropReason, Outcome, Rejection, Sink, Status};
use crate::policy::Reads;
use crate::units::Micros;

/// Collects what [`Aggregate`] needs.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    counts: Counts,
    ttft: Samples,
    e2e: Samples,
    scheduling_delay: Samples,
    itl: Histogram,
}

/// Requests by the way they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All output tokens generated, or ended early at `max_model_len`.
    pub completed: u64,
    /// Those of `completed` that ended early at `max_model_len`.
    pub length_capped: u64,
    /// In the wait queue at the end of the simulation.
    pub queued: u64,
    /// In the running batch at the end of the simulation.
    pub running: u64,
    /// Between arrival and wait queue at the end of the simulation.
    pub arriving: u64,
    /// Given up by the client.
    pub timed_out: u64,
    /// Refused: the prompt alone reaches `max_model_len`.
    pub dropped_prompt_too_long: u64,
    /// Refused: prompt and budget exceed `max_model_len`.
    pub dropped_budget_too_long: u64,
    /// Refused: the prompt needs more KV blocks than there are.
    pub dropped_kv_too_small: u64,
    /// Refused by the admission policy.
    pub rejected_by_admission: u64,
    /// Refused because no instance serves their model.
    pub rejected_by_routing: u64,
    /// Σ generated tokens of completed requests.
    pub output_tokens: u64,
}

impl Counts {
    /// Requests refused because they can never be served.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped_prompt_too_long + self.dropped_budget_too_long + self.dropped_kv_too_small
    }

    /// Requests that reached the instance. Those still arriving are in no published count.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.completed + self.queued + self.running + self.dropped() + self.timed_out
    }
}

/// What one simulation came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Aggregate {
    /// Requests by the way they ended.
    pub counts: Counts,
    /// The instance's own counters.
    pub counters: Counters,
    /// Simulated time: the last executed event, at most the horizon.
    pub duration: Micros,
    /// Time to first token of every request that got one, completed or not.
    pub ttft: Distribution,
    /// Inter-token latencies of completed requests, pooled.
    pub itl: Distribution,
    /// End-to-end latency of completed requests.
    pub e2e: Distribution,
    /// Arrival to (last) admission into the batch, of every request ever admitted.
    pub scheduling_delay: Distribution,
}

impl Aggregate {
    /// Completed requests per simulated second; 0 if no time passed.
    #[must_use]
    pub fn responses_per_second(&self) -> f64 {
        self.per_second(self.counts.completed)
    }

    /// Output tokens of completed requests per simulated second; 0 if no time passed.
    #[must_use]
    pub fn tokens_per_second(&self) -> f64 {
        self.per_second(self.counts.output_tokens)
    }

    /// Share of prefix-cache look-ups that found their block, 0 to 1; 0 without look-ups.
    #[must_use]
    pub fn cache_hit_rate(&self) -> f64 {
        let lookups = self.counters.cache_hits + self.counters.cache_misses;
        if lookups == 0 { 0.0 } else { self.counters.cache_hits as f64 / lookups as f64 }
    }

    fn per_second(&self, count: u64) -> f64 {
        if self.duration == Micros::ZERO { 0.0 } else { count as f64 / self.duration.as_secs_f64() }
    }
}

impl Metrics {
    /// Nothing collected.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sums up. O(n), reorders its samples; may be called again after more outcomes.
    #[must_use]
    pub fn aggregate(&mut self, counters: &Counters, horizon: Micros) -> Aggregate {
        Aggregate {
            counts: self.counts,
            counters: *counters,
            duration: counters.clock.min(horizon),
            ttft: self.ttft.distribution(),
            itl: self.itl.distribution(),
            e2e: self.e2e.distribution(),
            scheduling_delay: self.scheduling_delay.distribution(),
        }
    }
}

impl Sink for Metrics {
    fn outcome(&mut self, outcome: &Outcome) {
        let counts = &mut self.counts;
        match outcome.status {
            Status::Completed => counts.completed += 1,
            Status::LengthCapped => {
                counts.completed += 1;
                counts.length_capped += 1;
            }
            Status::TimedOut => counts.timed_out += 1,
            Status::Dropped(DropReason::PromptTooLong) => counts.dropped_prompt_too_long += 1,
            Status::Dropped(DropReason::BudgetTooLong) => counts.dropped_budget_too_long += 1,
            Status::Dropped(DropReason::KvTooSmall) => counts.dropped_kv_too_small += 1,
            Status::Queued => counts.queued += 1,
            Status::Running => counts.running += 1,
            Status::Arriving => counts.arriving += 1,
            Status::Rejected(Rejection::Admission) => counts.rejected_by_admission += 1,
            Status::Rejected(Rejection::Routing) => counts.rejected_by_routing += 1,
        }
        if outcome.completed() {
            counts.output_tokens += u64::from(outcome.generated_tokens);
        }
        self.ttft.extend(outcome.ttft);
        self.e2e.extend(outcome.e2e);
        self.scheduling_delay.extend(outcome.scheduling_delay);
    }

    fn itl(&mut self, _instance: u32, gap: Micros, count: u64) {
        self.itl.add(gap, count);
    }

    fn retract_itl(&mut self, _instance: u32, gap: Micros, count: u64) {
        self.itl.retract(gap, count);
    }
}

/// Both sinks get everything.
impl<A: Sink, B: Sink> Sink for (A, B) {
    fn outcome(&mut self, outcome: &Outcome) {
        self.0.outcome(outcome);
        self.1.outcome(outcome);
    }

    fn itl(&mut self, instance: u32, gap: Micros, count: u64) {
        self.0.itl(instance, gap, count);
        self.1.itl(instance, gap, count);
    }

    fn retract_itl(&mut self, instance: u32, gap: Micros, count: u64) {
        self.0.retract_itl(instance, gap, count);
        self.1.retract_itl(instance, gap, count);
    }

    fn decision(&mut self, decision: &Decision<'_>) {
        self.0.decision(decision);
        self.1.decision(decision);
    }

    fn reads(&self) -> Reads {
        self.0.reads().and(self.1.reads())
    }
}

/// A sink that may be switched off.
impl<S: Sink> Sink for Option<S> {
    fn outcome(&mut self, outcome: &Outcome) {
        if let Some(sink) = self {
            sink.outcome(outcome);
        }
    }

    fn itl(&mut self, instance: u32, gap: Micros, count: u64) {
        if let Some(sink) = self {
            sink.itl(instance, gap, count);
        }
    }

    fn retract_itl(&mut self, instance: u32, gap: Micros, count: u64) {
        if let Some(sink) = self {
            sink.retract_itl(instance, gap, count);
        }
    }

    fn decision(&mut self, decision: &Decision<'_>) {
        if let Some(sink) = self {
            sink.decision(decision);
        }
    }

    fn reads(&self) -> Reads {
        self.as_ref().map_or(Reads::NOTHING, Sink::reads)
    }
}

/// A distribution of durations in figures. All in ms; all 0 if there are no samples.
///
/// The percentile p of n ascending samples x lies at rank `p/100·(n − 1)`, linearly interpolated
/// between its neighbours (Hyndman and Fan 1996, type 7; numpy's default).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Distribution {
    /// Samples.
    pub count: u64,
    /// Mean.
    pub mean_ms: f64,
    /// Smallest.
    pub min_ms: f64,
    /// Largest.
    pub max_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 90th percentile.
    pub p90_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
}

impl Distribution {
    /// Of `samples`, which it reorders. O(n).
    #[must_use]
    pub fn of(samples: &mut [Micros]) -> Self {
        let sum = samples.iter().map(|sample| u128::from(sample.0)).sum();
        let mut select = Selection::new(samples);
        Self::from_order(select.0.len() as u64, sum, |rank| select.at(rank).0)
    }

    /// `at(rank)` is the sample (µs) of that rank, 0 being the smallest; ranks are asked for in
    /// ascending order.
    fn from_order(count: u64, sum: u128, mut at: impl FnMut(u64) -> u64) -> Self {
        if count == 0 {
            return Self::default();
        }
        let ranks = [0.0, 50.0, 90.0, 95.0, 99.0, 100.0].map(|percent| percent / 100.0 * (count - 1) as f64);
        let mut neighbours = [0; 12];
        for (pair, rank) in neighbours.chunks_exact_mut(2).zip(ranks) {
            pair.copy_from_slice(&[rank.floor() as u64, rank.ceil() as u64]);
        }
        neighbours.sort_unstable();
        let samples = neighbours.map(|rank| at(rank) as f64);
        let sample = |rank: f64| samples[neighbours.partition_point(|&other| other < rank as u64)];
        let [min_ms, p50_ms, p90_ms, p95_ms, p99_ms, max_ms] = ranks.map(|rank| {
            let (low, high) = (sample(rank.floor()), sample(rank.ceil()));
            low / 1e3 + (high - low) * (rank - rank.floor()) / 1e3
        });
        Self { count, mean_ms: sum as f64 / count as f64 / 1e3, min_ms, max_ms, p50_ms, p90_ms, p95_ms, p99_ms }
    }
}

/// Order statistics by repeated selection: linear, where sorting is not.
///
/// Everything before the last rank asked for is smaller, so only the rest is searched again.
struct Selection<'a, T>(&'a mut [T], usize);

impl<'a, T: Ord + Copy> Selection<'a, T> {
    fn new(samples: &'a mut [T]) -> Self {
        Self(samples, 0)
    }

    /// The sample of that rank, which may not be lower than the one before.
    fn at(&mut self, rank: u64) -> T {
        let rank = rank as usize;
        if rank >= self.1 {
            self.0[self.1..].select_nth_unstable(rank - self.1);
            self.1 = rank + 1;
        }
        self.0[rank]
    }
}

/// Durations: 4 bytes each, 8 for those that need more.
#[derive(Clone, Debug, Default)]
struct Samples {
    small: Vec<u32>,
    /// Above [`u32::MAX`] µs, that is 71 minutes: larger than all of `small`.
    large: Vec<u64>,
}

impl Samples {
    fn extend(&mut self, sample: Option<Micros>) {
        let Some(Micros(us)) = sample else { return };
        match u32::try_from(us) {
            Ok(us) => self.small.push(us),
            Err(_) => self.large.push(us),
        }
    }

    fn distribution(&mut self) -> Distribution {
        let small = self.small.len() as u64;
        let count = small + self.large.len() as u64;
        let sum = self.small.iter().map(|&us| u128::from(us)).sum::<u128>()
            + self.large.iter().map(|&us| u128::from(us)).sum::<u128>();
        let (mut low, mut high) = (Selection::new(&mut self.small), Selection::new(&mut self.large));
        Distribution::from_order(
            count,
            sum,
            |rank| {
                if rank < small { u64::from(low.at(rank)) } else { high.at(rank - small) }
            },
        )
    }
}

/// Durations as a count per value.
#[derive(Clone, Debug, Default)]
struct Histogram {
    /// Counts by µs; grows to the largest value seen below [`Histogram::DENSE`].
    dense: Vec<u64>,
    /// The rest.
    sparse: BTreeMap<u64, u64>,
}

impl Histogram {
    /// Values below are indices of a vector of at most 1 MiB; a step seldom takes longer (131 ms).
    const DENSE: u64 = 1 << 17;

    fn add(&mut self, Micros(us): Micros, count: u64) {
        match self.dense.get_mut(us as usize) {
            Some(counter) => *counter += count,
            None => self.add_new(us, count),
        }
    }

    #[cold]
    fn add_new(&mut self, us: u64, count: u64) {
        if us < Self::DENSE {
            self.dense.resize((us as usize + 1).next_power_of_two(), 0);
            self.dense[us as usize] += count;
        } else {
            *self.sparse.entry(us).or_default() += count;
        }
    }

    /// Takes back what was added before: never more of a value than there is.
    fn retract(&mut self, Micros(us): Micros, count: u64) {
        let counter = match self.dense.get_mut(us as usize) {
            Some(counter) => Some(counter),
            None => self.sparse.get_mut(&us),
        };
        let left = counter.as_deref().copied().unwrap_or(0).checked_sub(count);
        assert!(left.is_some(), "{count} inter-token latencies of {us} µs retracted that were never reported");
        if let (Some(counter), Some(left)) = (counter, left) {
            *counter = left;
        }
    }

    /// (value, count) in ascending order, without empty ones.
    fn values(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let dense = self.dense.iter().enumerate().map(|(us, &count)| (us as u64, count));
        dense.chain(self.sparse.iter().map(|(&us, &count)| (us, count))).filter(|&(_, count)| count > 0)
    }

    fn distribution(&self) -> Distribution {
        let count = self.values().map(|(_, n)| n).sum();
        let sum = self.values().map(|(us, n)| u128::from(us) * u128::from(n)).sum();
        let mut values = self.values();
        let (mut value, mut seen) = (0, 0);
        Distribution::from_order(count, sum, |rank| {
            while rank >= seen {
                let Some((us, n)) = values.next() else { break };
                (value, seen) = (us, seen + n);
            }
            value
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;
    use proptest::prelude::*;

    fn of(samples: &[u64]) -> Distribution {
        Distribution::of(&mut samples.iter().copied().map(Micros).collect::<Vec<_>>())
    }

    fn finished(status: Status) -> Outcome {
        let request = Request::new(0, Micros(5), 100, 10);
        Outcome { generated_tokens: 7, ..Outcome::new(&request, status) }
    }

    #[test]
    fn percentiles_interpolate_between_neighbours() {
        // Ranks 2, 3.6, 3.8 and 3.96 of 10, 20, 30, 40, 50 ms.
        let five = of(&[50_000, 10_000, 40_000, 20_000, 30_000]);
        assert_eq!((five.count, five.mean_ms, five.min_ms, five.max_ms), (5, 30.0, 10.0, 50.0));
        assert_eq!([five.p50_ms, five.p90_ms, five.p95_ms], [30.0, 46.0, 48.0]);
        assert!((five.p99_ms - 49.6).abs() < 1e-12);
        // numpy.percentile([1, 2, 3, 4], 50) = 2.5
        assert_eq!(of(&[1_000, 2_000, 3_000, 4_000]).p50_ms, 2.5);
    }

    #[test]
    fn one_sample_is_every_percentile_and_none_is_zero() {
        let one = of(&[7]);
        assert_eq!([one.min_ms, one.p50_ms, one.p99_ms, one.max_ms, one.mean_ms], [0.007; 5]);
        assert_eq!(of(&[]), Distribution::default());
    }

    #[test]
    fn statuses_count_where_they_belong() {
        let mut metrics = Metrics::new();
        let dropped =
            [DropReason::PromptTooLong, DropReason::BudgetTooLong, DropReason::KvTooSmall].map(Status::Dropped);
        let others = [Status::Completed, Status::LengthCapped, Status::TimedOut];
        let unfinished = [Status::Queued, Status::Running, Status::Arriving];
        for status in dropped.into_iter().chain(others).chain(unfinished) {
            metrics.outcome(&finished(status));
        }
        let counts = metrics.aggregate(&Counters::default(), Micros::MAX).counts;
        assert_eq!((counts.completed, counts.length_capped, counts.timed_out, counts.dropped()), (2, 1, 1, 3));
        assert_eq!((counts.queued, counts.running, counts.arriving), (1, 1, 1));
        assert_eq!(counts.injected(), 8, "a request still arriving is not injected");
        assert_eq!(counts.output_tokens, 14, "completed requests only");
    }

    #[test]
    fn rates_guard_against_nothing() {
        let nothing = Metrics::new().aggregate(&Counters::default(), Micros::MAX);
        assert_eq!(
            (nothing.responses_per_second(), nothing.tokens_per_second(), nothing.cache_hit_rate()),
            (0., 0., 0.)
        );
        let counters = Counters { clock: Micros(4_000_000), cache_hits: 1, cache_misses: 3, ..Counters::default() };
        let mut metrics = Metrics::new();
        metrics.outcome(&finished(Status::Completed));
        let all = metrics.aggregate(&counters, Micros::MAX);
        assert_eq!((all.responses_per_second(), all.tokens_per_second(), all.cache_hit_rate()), (0.25, 1.75, 0.25));
        assert_eq!(metrics.aggregate(&counters, Micros(1_000_000)).duration, Micros(1_000_000));
    }

    #[test]
    fn a_first_token_counts_although_the_request_timed_out() {
        let mut metrics = Metrics::new();
        metrics.outcome(&Outcome { ttft: Some(Micros(9_000)), ..finished(Status::TimedOut) });
        let all = metrics.aggregate(&Counters::default(), Micros::MAX);
        assert_eq!((all.ttft.count, all.ttft.mean_ms, all.e2e.count), (1, 9.0, 0));
    }

    #[test]
    #[should_panic(expected = "never reported")]
    fn retracting_what_was_not_reported_is_a_bug() {
        Metrics::new().retract_itl(0, Micros(3), 1);
    }

    #[test]
    fn sinks_combine() {
        let mut both = (Metrics::new(), Some(Metrics::new()));
        both.itl(0, Micros(5), 2);
        both.retract_itl(0, Micros(5), 1);
        both.outcome(&finished(Status::Completed));
        let first = both.0.aggregate(&Counters::default(), Micros::MAX);
        assert_eq!(first.itl.count, 1);
        assert_eq!(both.1.map(|mut other| other.aggregate(&Counters::default(), Micros::MAX)), Some(first));
    }

    /// Straddles both boundaries: of the dense histogram and of 32-bit samples.
    fn duration() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..200u64,
            Histogram::DENSE - 5..Histogram::DENSE + 5,
            4_294_967_290..4_294_967_300u64,
            0..1u64 << 50
        ]
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

    fn figures(d: &Distribution) -> Vec<f64> {
        vec![d.min_ms, d.p50_ms, d.p90_ms, d.p95_ms, d.p99_ms, d.max_ms]
    }

    proptest! {
        #[test]
        fn percentiles_ascend(samples in prop::collection::vec(duration(), 1..200)) {
            let d = of(&samples);
            prop_assert!(figures(&d).is_sorted(), "{d:?}");
            prop_assert!(d.min_ms * (1.0 - 1e-12) <= d.mean_ms && d.mean_ms <= d.max_ms * (1.0 + 1e-12), "{d:?}");
        }

        #[test]
        fn three_ways_agree(counted in prop::collection::vec((duration(), 1..20u64), 1..40)) {
            let mut histogram = Histogram::default();
            let mut samples = Samples::default();
            let mut expanded = Vec::new();
            for &(us, count) in &counted {
                histogram.add(Micros(us), count);
                for _ in 0..count {
                    samples.extend(Some(Micros(us)));
                    expanded.push(us);
                }
            }
            prop_assert_eq!(histogram.distribution(), of(&expanded));
            prop_assert_eq!(samples.distribution(), of(&expanded));
            prop_assert_eq!(samples.distribution(), of(&expanded), "a second time, on reordered samples");
            prop_assert_eq!(figures(&of(&expanded)), naive(expanded));
        }

        #[test]
        fn retracting_undoes_adding(
            kept in prop::collection::vec((duration(), 1..20u64), 0..20),
            gone in prop::collection::vec((duration(), 1..20u64), 0..20),
        ) {
            let (mut plain, mut retracted) = (Histogram::default(), Histogram::default());
            for &(us, count) in &kept {
                plain.add(Micros(us), count);
                retracted.add(Micros(us), count);
            }
            gone.iter().for_each(|&(us, count)| retracted.add(Micros(us), count));
            gone.iter().for_each(|&(us, count)| retracted.retract(Micros(us), count));
            prop_assert_eq!(plain.distribution(), retracted.distribution());
        }
    }
}
