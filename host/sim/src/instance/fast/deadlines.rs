//! Deadlines of queued and running requests.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::limits::DEADLINES_GONE;
use crate::numbers::count;
use crate::prefetch::{prefetch_end, soon};
use crate::units::Micros;

/// Deadlines ordered by time. Most requests end long before their deadline, and a check whether a request has ended
/// would have to read the request. Therefore every deadline has a number (32 bits, as requests have) and a bit that
/// says whether it is still needed: removing a deadline reads one cache line of these bits.
#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Deadlines {
    /// (time, number, slot of the request), including entries of requests that have ended since.
    heap: BinaryHeap<Reverse<(Micros, u32, u32)>>,
    /// Whether the request has ended, by number from `64 * first` on.
    ended: Vec<u64>,
    /// Number of words of bits dropped in front.
    first: u32,
    /// Number of entries of ended requests.
    gone: u32,
    /// Number of deadlines so far.
    numbers: u32,
}

impl Deadlines {
    pub fn with_capacity(requests: usize) -> Self {
        Self { heap: BinaryHeap::with_capacity(requests), ..Self::default() }
    }

    /// Adds the deadline `at` of the request in `slot`. Returns the number of this deadline, not 0.
    pub fn watch(&mut self, at: Micros, slot: u32) -> u32 {
        self.numbers = self.numbers.checked_add(1).expect("request ids are of 32 bits");
        let number = self.numbers;
        if number / 64 - self.first >= count(self.ended.len()) {
            self.ended.push(0);
        }
        self.heap.push(Reverse((at, number, slot)));
        number
    }

    /// Prefetches the ends of the tables, where a new deadline will be added.
    pub fn prefetch(&self) {
        self.ended.last().into_iter().for_each(soon);
        prefetch_end(self.heap.as_slice());
    }

    /// Prefetches the bit of the deadline with that number.
    pub fn prefetch_number(&self, number: u32) {
        self.ended.get((number / 64).wrapping_sub(self.first) as usize).into_iter().for_each(soon);
    }

    /// Removes deadline `number`, because its request has ended. Returns whether [`Self::next`] may have changed.
    pub fn forget(&mut self, number: u32) -> bool {
        self.ended[(number / 64 - self.first) as usize] |= 1 << (number % 64);
        self.gone += 1;
        let much = self.gone as usize > self.heap.len() / 2 + DEADLINES_GONE;
        if much {
            self.clean();
        }
        much
    }

    /// Time of the next deadline, perhaps of a request that has ended; [`NEVER`] if there is none.
    pub fn next(&self) -> Micros {
        self.heap.peek().map_or(NEVER, |&Reverse((at, _, _))| at)
    }

    /// Removes the next deadline and returns the slot of its request; `None` if the request has ended.
    pub fn pop(&mut self) -> Option<u32> {
        let Reverse((_, number, slot)) = self.heap.pop()?;
        if self.has_ended(number) {
            self.gone -= 1;
            // The entry of a request that ended before its deadline stays in the heap until its time comes.
            return None;
        }
        Some(slot)
    }

    fn has_ended(&self, number: u32) -> bool {
        self.ended[(number / 64 - self.first) as usize] >> (number % 64) & 1 == 1
    }

    fn clean(&mut self) {
        let mut heap = std::mem::take(&mut self.heap);
        heap.retain(|&Reverse((_, number, _))| !self.has_ended(number));
        let oldest = heap.iter().map(|&Reverse((_, number, _))| number).min().unwrap_or(self.numbers);
        let unused = (oldest / 64 - self.first).min(count(self.ended.len()));
        self.ended.drain(..unused as usize);
        self.first += unused;
        self.heap = heap;
        self.gone = 0;
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.heap.len() + self.ended.len()
    }
}

/// A time later than every event.
pub(super) const NEVER: Micros = Micros(u64::MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn only_waiting_requests_time_out(
            steps in proptest::collection::vec((0u8..3, 0u64..50, 0usize..40), 0..400),
        ) {
            let mut slots = 0;
            let mut deadlines = Deadlines::default();
            let mut waiting: Vec<(u64, u32, u32)> = Vec::new();
            for (what, at, which) in steps {
                match what {
                    0 => {
                        slots += 1;
                        let slot = slots;
                        waiting.push((at, deadlines.watch(Micros(at), slot), slot));
                    }
                    1 if !waiting.is_empty() => {
                        let (_, number, _) = waiting.swap_remove(which % waiting.len());
                        deadlines.forget(number);
                    }
                    _ => {
                        let popped = std::iter::from_fn(|| (deadlines.next() != NEVER).then(|| deadlines.pop())).flatten().next();
                        let expected = waiting.iter().copied().min();
                        prop_assert_eq!(popped, expected.map(|(_, _, slot)| slot));
                        waiting.retain(|&(_, _, slot)| Some(slot) != popped);
                    }
                }
                prop_assert!(deadlines.heap.len() <= 2 * waiting.len() + 2 * DEADLINES_GONE + 2);
            }
        }
    }
}
