//! The durations of recent steps: what is needed to take back the inter-token latencies of a
//! request that does not complete.

use std::collections::VecDeque;

use crate::units::Micros;

/// Steps of equal duration, one after the other.
#[derive(Clone, Copy, Debug)]
struct Run {
    steps: u64,
    /// Duration of each.
    each: Micros,
}

/// Runs of equally long steps, oldest first. Small, because every step of every instance writes to
/// its end.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(super) struct StepLog {
    runs: VecDeque<Run>,
    /// Length at which the owner should look for what can be dropped.
    trim_at: usize,
    /// Number of the first step in it.
    first: u64,
}

impl StepLog {
    pub fn with_capacity(runs: usize) -> Self {
        Self { runs: VecDeque::with_capacity(runs), ..Self::default() }
    }

    /// `steps` steps of `each` happened, after all before.
    #[inline]
    pub fn push(&mut self, steps: u64, each: Micros) {
        match self.runs.back_mut() {
            Some(last) if last.each == each => last.steps += steps,
            _ => self.runs.push_back(Run { steps, each }),
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether it is time to call [`Self::drop_before`].
    #[inline]
    pub fn wants_trim(&self) -> bool {
        self.runs.len() > self.trim_at.max(64)
    }

    /// Steps before number `v` are no longer needed.
    pub fn drop_before(&mut self, v: u64) {
        while let Some(run) = self.runs.front()
            && self.first + run.steps <= v
        {
            self.first += run.steps;
            self.runs.pop_front();
        }
        self.trim_at = self.runs.len() + self.runs.len() / 4;
    }

    /// The runs of steps `from..to`: (duration, how many).
    pub fn between(&self, from: u64, to: u64) -> impl Iterator<Item = (Micros, u64)> + '_ {
        let numbered = self.runs.iter().scan(self.first, |next, run| {
            let first = std::mem::replace(next, *next + run.steps);
            Some((first, run))
        });
        let ended = move |&(first, run): &(u64, &Run)| first + run.steps <= from;
        let started = move |&(first, _): &(u64, &Run)| first < to;
        numbered
            .skip_while(ended)
            .take_while(started)
            .map(move |(first, run)| (run.each, (first + run.steps).min(to) - first.max(from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_merged_cut_and_dropped() {
        let mut log = StepLog::default();
        log.push(10, Micros(1));
        for each in [5, 5, 7, 5] {
            log.push(1, Micros(each));
        }
        log.push(6, Micros(5));
        let cut = |log: &StepLog, from, to| log.between(from, to).map(|(d, n)| (d.0, n)).collect::<Vec<_>>();
        assert_eq!(cut(&log, 10, 20), [(5, 2), (7, 1), (5, 7)]);
        assert_eq!(cut(&log, 11, 15), [(5, 1), (7, 1), (5, 2)]);
        assert_eq!(cut(&log, 12, 12), []);
        log.drop_before(13);
        assert_eq!(cut(&log, 13, 20), [(5, 7)]);
    }
}
