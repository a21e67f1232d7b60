//! The batch in the order of admission.

use std::collections::VecDeque;

use super::arena::RequestKey;
use crate::limits::ORDER_GAPS;
use crate::numbers::index;
use crate::prefetch::soon;

/// Running requests by the number of their admission. A request that leaves is removed by its number, without reading
/// other requests.
#[derive(Clone, Debug, Default)]
pub(super) struct BatchOrder {
    /// The keys in the order of admission; null for requests that have left.
    keys: VecDeque<RequestKey>,
    /// Admission number of the first key.
    first: u64,
    running: usize,
}

impl BatchOrder {
    pub fn with_capacity(requests: usize) -> Self {
        Self { keys: VecDeque::with_capacity(requests), ..Self::default() }
    }

    /// Adds `key` to the batch. Returns its admission number, larger than all before.
    pub fn join(&mut self, key: RequestKey) -> u64 {
        self.keys.push_back(key);
        self.running += 1;
        self.first + self.keys.len() as u64 - 1
    }

    /// Removes the request with that number.
    pub fn leave(&mut self, number: u64) {
        self.keys[index(number - self.first)] = RequestKey::NULL;
        self.running -= 1;
        while self.keys.front().is_some_and(|&key| key == RequestKey::NULL) {
            self.keys.pop_front();
            self.first += 1;
        }
    }

    /// Whether closing the gaps is worth the cost: a request that runs for long keeps the entries of all later requests
    /// that have left.
    pub fn needs_compaction(&self) -> bool {
        self.keys.len() > 4 * self.running + ORDER_GAPS
    }

    /// Closes the gaps. `renumber` is called with the new number of each request, in order.
    pub fn compact(&mut self, mut renumber: impl FnMut(RequestKey, u64)) {
        self.first += (self.keys.len() - self.running) as u64;
        self.keys.retain(|&key| key != RequestKey::NULL);
        for (number, &key) in (self.first..).zip(&self.keys) {
            renumber(key, number);
        }
    }

    /// The requests in the order of admission.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = RequestKey> + '_ {
        self.keys.iter().copied().filter(|&key| key != RequestKey::NULL)
    }

    /// The request admitted first.
    pub fn first(&self) -> Option<RequestKey> {
        self.keys.front().copied()
    }

    /// The request admitted last.
    pub fn last(&self) -> Option<RequestKey> {
        self.iter().next_back()
    }

    /// Prefetches both ends, which will be read soon.
    pub fn prefetch(&self) {
        self.keys.front().into_iter().chain(self.keys.back()).for_each(soon);
    }

    /// Prefetches the entry with that number.
    pub fn prefetch_number(&self, number: u64) {
        self.keys.get(index(number.wrapping_sub(self.first))).into_iter().for_each(soon);
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::arena::RequestArena;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_order_equals_a_list(steps in proptest::collection::vec(proptest::option::of(0usize..40), 0..300), often: bool) {
            let mut live: RequestArena<u64> = RequestArena::with_capacity(0);
            let (mut order, mut list) = (BatchOrder::default(), Vec::new());
            for step in steps {
                match step.filter(|_| !list.is_empty()) {
                    None => {
                        let key = live.insert(0);
                        live[key] = order.join(key);
                        list.push(key);
                    }
                    Some(index) => {
                        let key = list.remove(index % list.len());
                        order.leave(live.remove(key).expect("it is live"));
                    }
                }
                if often || order.needs_compaction() {
                    order.compact(|key, number| live[key] = number);
                }
                prop_assert!(order.iter().eq(list.iter().copied()));
                prop_assert_eq!(order.last(), list.last().copied());
                prop_assert!(list.is_sorted_by_key(|&key| live[key]));
                prop_assert!(order.len() <= 4 * list.len() + ORDER_GAPS);
            }
        }
    }
}
