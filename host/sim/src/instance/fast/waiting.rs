//! The waiting queue of an instance, in the order of its scheduler.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::arena::RequestKey;
use crate::instance::policy::QueueKey;

/// Requests by their sort keys. The head lies outside the tree: below saturation the queue has no other request, and the
/// tree would allocate a node for each.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitingQueue {
    /// The request with the smallest sort key; `None` if the queue is empty.
    head: Option<(QueueKey, RequestKey)>,
    rest: BTreeMap<QueueKey, RequestKey>,
}

impl WaitingQueue {
    pub fn len(&self) -> usize {
        usize::from(self.head.is_some()) + self.rest.len()
    }

    pub fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// The request that is served first.
    pub fn head(&self) -> Option<(QueueKey, RequestKey)> {
        self.head
    }

    /// The first request behind `after`.
    pub fn behind(&self, after: &QueueKey) -> Option<(QueueKey, RequestKey)> {
        if let Some(head) = self.head.filter(|(head, _)| head > after) {
            // The head, which the tree does not hold, comes before all requests in it.
            return Some(head);
        }
        let behind = self.rest.range((Bound::Excluded(after), Bound::Unbounded)).next();
        behind.map(|(&queue_key, &key)| (queue_key, key))
    }

    /// The requests in the order of the queue.
    pub fn requests(&self) -> impl Iterator<Item = RequestKey> {
        self.head.iter().map(|&(_, key)| key).chain(self.rest.values().copied())
    }

    pub fn insert(&mut self, queue_key: QueueKey, key: RequestKey) {
        match &mut self.head {
            None => self.head = Some((queue_key, key)),
            Some(head) if queue_key < head.0 => {
                let (behind, request) = std::mem::replace(head, (queue_key, key));
                self.rest.insert(behind, request);
            }
            Some(_) => {
                self.rest.insert(queue_key, key);
            }
        }
    }

    pub fn remove(&mut self, queue_key: &QueueKey) {
        if self.head.is_some_and(|(head, _)| head == *queue_key) {
            self.head = self.rest.pop_first();
        } else {
            self.rest.remove(queue_key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RequestId;
    use crate::instance::fast::arena::RequestArena;
    use crate::policy::Rank;
    use crate::request::Request;
    use crate::units::Micros;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_order_is_that_of_a_tree(changes in proptest::collection::vec((any::<bool>(), 0_u8..12), 0..60)) {
            let mut arena = RequestArena::with_capacity(12);
            let keys: Vec<(QueueKey, RequestKey)> = (0..12)
                .map(|rank| {
                    let request = Request::new(RequestId(rank), Micros(0), 1, 1);
                    (QueueKey::new(Rank::new(i64::from(rank)), &request), arena.insert(rank))
                })
                .collect();
            let (mut queue, mut tree) = (WaitingQueue::default(), BTreeMap::new());
            for (joins, rank) in changes {
                let (queue_key, key) = keys[usize::from(rank)];
                match (joins, tree.contains_key(&queue_key)) {
                    (true, false) => {
                        queue.insert(queue_key, key);
                        tree.insert(queue_key, key);
                    }
                    (true, true) => {}
                    (false, _) => {
                        queue.remove(&queue_key);
                        tree.remove(&queue_key);
                    }
                }
                prop_assert_eq!(queue.requests().collect::<Vec<_>>(), tree.values().copied().collect::<Vec<_>>());
                prop_assert_eq!(queue.head(), tree.first_key_value().map(|(&queue_key, &key)| (queue_key, key)));
                for (queue_key, _) in &keys {
                    let behind = tree.range((Bound::Excluded(queue_key), Bound::Unbounded)).next();
                    let expected = behind.map(|(&queue_key, &key)| (queue_key, key));
                    prop_assert_eq!(queue.behind(queue_key), expected);
                }
                prop_assert_eq!((queue.len(), queue.is_empty()), (tree.len(), tree.is_empty()));
            }
        }
    }
}
