//! The durations of recent steps: what is needed to take back the inter-token latencies of a
//! request that does not complete.

use std::collections::VecDeque;

use crate::units::Micros;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Number of the first step of the run.
    first: u64,
    steps: u64,
    /// Duration of each.
    each: Micros,
}

/// Runs of equally long steps, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct StepLog {
    entries: VecDeque<Entry>,
    /// Length at which the owner should look for what can be dropped.
    trim_at: usize,
}

impl StepLog {
    #[inline]
    pub fn push(&mut self, first: u64, steps: u64, each: Micros) {
        match self.entries.back_mut() {
            Some(last) if last.each == each => last.steps += steps,
            _ => self.entries.push_back(Entry { first, steps, each }),
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it is time to call [`Self::drop_before`].
    #[inline]
    pub fn wants_trim(&self) -> bool {
        self.entries.len() > self.trim_at.max(1024)
    }

    /// Steps before number `v` are no longer needed.
    pub fn drop_before(&mut self, v: u64) {
        while self.entries.front().is_some_and(|entry| entry.first + entry.steps <= v) {
            self.entries.pop_front();
        }
        self.trim_at = 2 * self.entries.len();
    }

    /// The runs of steps `from..to`: (duration, how many).
    pub fn between(&self, from: u64, to: u64) -> impl Iterator<Item = (Micros, u64)> + '_ {
        let start = self.entries.partition_point(|entry| entry.first + entry.steps <= from);
        self.entries.range(start..).take_while(move |entry| entry.first < to).map(move |entry| {
            let (first, last) = (entry.first.max(from), (entry.first + entry.steps).min(to));
            (entry.each, last - first)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_merged_cut_and_dropped() {
        let mut log = StepLog::default();
        for (v, each) in [5, 5, 7, 5].into_iter().enumerate() {
            log.push(v as u64 + 10, 1, Micros(each));
        }
        log.push(14, 6, Micros(5));
        let cut = |log: &StepLog, from, to| log.between(from, to).map(|(d, n)| (d.0, n)).collect::<Vec<_>>();
        assert_eq!(cut(&log, 10, 20), [(5, 2), (7, 1), (5, 7)]);
        assert_eq!(cut(&log, 11, 15), [(5, 1), (7, 1), (5, 2)]);
        assert_eq!(cut(&log, 12, 12), []);
        log.drop_before(13);
        assert_eq!(cut(&log, 13, 20), [(5, 7)]);
    }
}
