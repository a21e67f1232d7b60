//! When the clients of queued and running requests give up.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::live::Key;
use crate::units::Micros;

/// Deadlines by time. Most requests end long before theirs, and looking whether one has would mean
/// to touch it; so every deadline has a number, and a bit says whether it still matters.
#[derive(Clone, Debug, Default)]
pub(super) struct Deadlines {
    /// With entries of requests that ended since.
    heap: BinaryHeap<Reverse<(Micros, u64, Key)>>,
    /// Whether the request has ended, by number from `64 * first` on.
    ended: VecDeque<u64>,
    /// Words of bits dropped in front.
    first: u64,
    /// Deadlines ever.
    numbers: u64,
    /// Entries of ended requests.
    gone: usize,
}

impl Deadlines {
    /// `key` gives up at `at`. Returns the number of this deadline.
    pub fn watch(&mut self, at: Micros, key: Key) -> u64 {
        let number = self.numbers;
        self.numbers += 1;
        if number / 64 - self.first >= self.ended.len() as u64 {
            self.ended.push_back(0);
        }
        self.heap.push(Reverse((at, number, key)));
        number
    }

    /// The request with deadline `number` has ended otherwise.
    pub fn forget(&mut self, number: u64) {
        self.ended[(number / 64 - self.first) as usize] |= 1 << (number % 64);
        self.gone += 1;
        if self.gone > self.heap.len() / 2 + 32 {
            self.clean();
        }
    }

    /// The next one, perhaps of a request that has ended.
    pub fn next(&self) -> Option<Micros> {
        self.heap.peek().map(|&Reverse((at, _, _))| at)
    }

    /// Takes the next one; `None` if its request has ended.
    pub fn pop(&mut self) -> Option<Key> {
        let Reverse((_, number, key)) = self.heap.pop()?;
        if self.has_ended(number) {
            self.gone -= 1;
            return None;
        }
        Some(key)
    }

    fn has_ended(&self, number: u64) -> bool {
        self.ended[(number / 64 - self.first) as usize] >> (number % 64) & 1 == 1
    }

    fn clean(&mut self) {
        let mut heap = std::mem::take(&mut self.heap);
        heap.retain(|&Reverse((_, number, _))| !self.has_ended(number));
        let oldest = heap.iter().map(|&Reverse((_, number, _))| number).min().unwrap_or(self.numbers);
        let unused = (oldest / 64 - self.first).min(self.ended.len() as u64);
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use slotmap::SlotMap;

    proptest! {
        #[test]
        fn only_those_who_wait_give_up(
            steps in proptest::collection::vec((0u8..3, 0u64..50, 0usize..40), 0..400),
        ) {
            let mut keys: SlotMap<Key, ()> = SlotMap::with_key();
            let mut deadlines = Deadlines::default();
            let mut waiting: Vec<(u64, u64, Key)> = Vec::new();
            for (what, at, which) in steps {
                match what {
                    0 => {
                        let key = keys.insert(());
                        waiting.push((at, deadlines.watch(Micros(at), key), key));
                    }
                    1 if !waiting.is_empty() => {
                        let (_, number, _) = waiting.swap_remove(which % waiting.len());
                        deadlines.forget(number);
                    }
                    _ => {
                        let popped = std::iter::from_fn(|| deadlines.next().map(|_| deadlines.pop())).flatten().next();
                        let expected = waiting.iter().copied().min();
                        prop_assert_eq!(popped, expected.map(|(_, _, key)| key));
                        waiting.retain(|&(_, _, key)| Some(key) != popped);
                    }
                }
                prop_assert!(deadlines.heap.len() <= 2 * waiting.len() + 66);
            }
        }
    }
}
