//! The durations of recent steps, needed to retract the inter-token latencies of a request that does not complete.

use std::collections::VecDeque;

use crate::limits::STEP_LOG_ENTRIES;
use crate::numbers::{lower_half, narrow};
use crate::prefetch::soon;
use crate::units::Micros;

/// Consecutive steps of equal duration.
#[derive(Clone, Copy, Debug)]
struct StepRun {
    /// Number of steps; 0 means that `each` is the upper half of the next run's duration.
    steps: u32,
    /// Duration of each step, µs.
    each: u32,
}

/// Runs of equally long steps, oldest first. The entries are small because every step of every instance writes to the
/// end of the list: a step that takes longer than 71 minutes takes two entries.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(super) struct StepLog {
    runs: VecDeque<StepRun>,
    /// Length at which the owner should drop unneeded entries.
    trim_at: usize,
    /// Number of the first step in the log.
    first: u64,
}

impl StepLog {
    pub fn with_capacity(runs: usize) -> Self {
        Self { runs: VecDeque::with_capacity(runs), ..Self::default() }
    }

    /// Appends `steps` steps of duration `each`.
    #[inline]
    pub fn push(&mut self, steps: u64, each: Micros) {
        let fits = |run: &StepRun| u64::from(run.each) == each.0 && steps <= u64::from(u32::MAX - run.steps);
        let continues = self.runs.back().is_some_and(fits) && !self.ends_long();
        match self.runs.back_mut() {
            Some(last) if continues => last.steps += narrow(steps),
            _ => match (u32::try_from(steps), u32::try_from(each.0)) {
                (Ok(steps @ 1..), Ok(each)) => self.runs.push_back(StepRun { steps, each }),
                _ => self.push_large(steps, each),
            },
        }
    }

    #[cold]
    fn push_large(&mut self, steps: u64, Micros(each): Micros) {
        let mut left = steps;
        while left > 0 {
            let steps = u32::try_from(left).unwrap_or(u32::MAX);
            if each > u64::from(u32::MAX) {
                self.runs.push_back(StepRun { steps: 0, each: (each >> 32) as u32 });
            }
            self.runs.push_back(StepRun { steps, each: lower_half(each) });
            left -= u64::from(steps);
        }
    }

    /// Whether the duration of the last run takes two entries.
    fn ends_long(&self) -> bool {
        self.runs.iter().nth_back(1).is_some_and(|run| run.steps == 0)
    }

    /// Prefetches the end of the log, which will be read soon.
    pub fn prefetch(&self) {
        self.runs.back().into_iter().for_each(soon);
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether it is time to call [`Self::drop_before`].
    #[inline]
    pub fn needs_trim(&self) -> bool {
        self.runs.len() > self.trim_at.max(STEP_LOG_ENTRIES)
    }

    /// Drops steps before number `v`, which are no longer needed.
    pub fn drop_before(&mut self, v: u64) {
        let (mut done, mut first) = (0, self.first);
        let (front, back) = self.runs.as_slices();
        for (entry, run) in front.iter().chain(back).enumerate() {
            let next = first + u64::from(run.steps);
            if next > v {
                // Inter-token latencies of this step and those after it may still be retracted.
                break;
            }
            // The upper half of a long duration goes with its run.
            if run.steps > 0 {
                (done, first) = (entry + 1, next);
            }
        }
        self.first = first;
        self.runs.drain(..done);
        self.trim_at = self.runs.len() + self.runs.len() / 4;
    }

    /// The runs of steps `from..to`: (duration, number of steps).
    pub fn between(&self, from: u64, to: u64) -> impl Iterator<Item = (Micros, u64)> + '_ {
        let (mut next, mut upper) = (self.first, 0);
        let numbered = self.runs.iter().filter_map(move |run| {
            if run.steps == 0 {
                upper = u64::from(run.each) << 32;
                // The upper half of a long duration is no step of its own.
                return None;
            }
            let first = next;
            next += u64::from(run.steps);
            Some((first, next, Micros(std::mem::take(&mut upper) | u64::from(run.each))))
        });
        numbered
            .skip_while(move |&(_, end, _)| end <= from)
            .take_while(move |&(first, _, _)| first < to)
            .map(move |(first, end, each)| (each, end.min(to) - first.max(from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_are_merged_cut_and_dropped() {
        let mut log = StepLog::default();
        log.push(10, Micros(1));
        for each in [5, 5, 7, 5] {
            log.push(1, Micros(each));
        }
        log.push(6, Micros(5));
        assert_eq!(log.len(), 4);
        let cut = |log: &StepLog, from, to| log.between(from, to).map(|(d, n)| (d.0, n)).collect::<Vec<_>>();
        assert_eq!(cut(&log, 10, 20), [(5, 2), (7, 1), (5, 7)]);
        assert_eq!(cut(&log, 11, 15), [(5, 1), (7, 1), (5, 2)]);
        assert_eq!(cut(&log, 12, 12), []);
        log.drop_before(13);
        assert_eq!(cut(&log, 13, 20), [(5, 7)]);
    }

    #[test]
    fn runs_may_be_longer_than_an_entry_counts() {
        let mut log = StepLog::default();
        log.push(1 << 33, Micros(3));
        log.push(1 << 33, Micros(3 << 32 | 3));
        let total = |log: &StepLog, from, to| log.between(from, to).map(|(d, n)| u128::from(d.0) * u128::from(n)).sum();
        let expected = 3 * (1u128 << 33) + (3 << 32 | 3) * (1u128 << 33);
        assert_eq!(expected, total(&log, 0, 1 << 34));
        log.drop_before((1 << 33) + 5);
        assert_eq!((3 << 32 | 3) * ((1u128 << 33) - 5), total(&log, (1 << 33) + 5, 1 << 34));
    }

    proptest! {
        #[test]
        fn the_log_equals_a_list_of_durations(
            pushed in proptest::collection::vec((1u64..4, prop_oneof![0u64..3, (1u64 << 32) - 2..(1 << 32) + 3]), 0..40),
            dropped: prop::sample::Index, from: prop::sample::Index, to: prop::sample::Index,
        ) {
            let mut log = StepLog::default();
            let mut all = Vec::new();
            for (steps, each) in pushed {
                log.push(steps, Micros(each));
                all.extend(std::iter::repeat_n(Micros(each), steps as usize));
            }
            let dropped = dropped.index(all.len() + 1);
            log.drop_before(dropped as u64);
            let from = dropped + from.index(all.len() - dropped + 1);
            let to = from + to.index(all.len() - from + 1);
            let listed = log.between(from as u64, to as u64).flat_map(|(each, n)| std::iter::repeat_n(each, n as usize));
            prop_assert_eq!(listed.collect::<Vec<_>>(), &all[from..to]);
        }
    }
}
