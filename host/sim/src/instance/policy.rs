//! The built-in orders of the wait queue and choices of a victim.

use std::cmp::Ordering;

use crate::request::Request;
use crate::units::Micros;

/// Order of the wait queue. Ties go to the earlier arrival, then to the request id *as text*
/// (`request_10` before `request_2`), which is what both vLLM and BLIS compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// In the order of insertion; preempted requests go to the front.
    #[default]
    Fcfs,
    /// Most urgent first (vLLM's `priority` policy).
    PriorityFcfs,
    /// Shortest prompt first.
    Sjf,
    /// Least urgent first: pathological, for comparison.
    ReversePriority,
}

/// Who leaves the batch when KV runs out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preemption {
    /// The request admitted last.
    #[default]
    Fcfs,
    /// The least urgent; among equals the one that arrived last.
    Priority,
}

/// Place of a request in the wait queue: smaller is served first. Total, because ids are unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueKey {
    rank: i64,
    arrival: Micros,
    id: TextOrder,
}

impl Scheduler {
    /// The key of a request that joins the queue. `turn` is its number in the order of joining,
    /// negative for those put in front.
    pub(super) fn key(self, request: &Request, turn: i64) -> QueueKey {
        let rank = match self {
            Self::Fcfs => return QueueKey { rank: turn, arrival: Micros::ZERO, id: TextOrder(0) },
            Self::PriorityFcfs => request.priority,
            Self::Sjf => i64::from(request.input_tokens),
            Self::ReversePriority => -request.priority,
        };
        QueueKey { rank, arrival: request.arrival, id: TextOrder(request.id) }
    }
}

/// A number that sorts like its decimal text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TextOrder(u32);

impl Ord for TextOrder {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.0 == other.0 {
            return Ordering::Equal; // by far the most frequent case under FCFS
        }
        // Pad the shorter number with zeros; if that makes them equal, the shorter text is a
        // prefix of the longer and comes first.
        let digits = |n: u32| n.checked_ilog10().unwrap_or(0);
        let (a, b) = (digits(self.0), digits(other.0));
        let widest = a.max(b);
        let pad = |n: u32, d: u32| u64::from(n) * 10u64.pow(widest - d);
        pad(self.0, a).cmp(&pad(other.0, b)).then(a.cmp(&b))
    }
}

impl PartialOrd for TextOrder {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_sort_like_their_text(a: u32, b: u32, small_a in 0u32..200, small_b in 0u32..200) {
            prop_assert_eq!(TextOrder(a).cmp(&TextOrder(b)), a.to_string().cmp(&b.to_string()));
            prop_assert_eq!(
                TextOrder(small_a).cmp(&TextOrder(small_b)),
                small_a.to_string().cmp(&small_b.to_string())
            );
        }
    }
}
