//! Numbers of requests, sessions and blocks, and limits of the number of requests.

use blis_sim::ids::RequestId;
use blis_sim::request::{BlockKey, Name};
use blis_sim::units::Micros;

use super::options::GenerateOptions;
use crate::conversation::KeyAllocator;

/// The counters from which all requests of a workload are numbered.
#[derive(Clone, Debug)]
pub struct RequestNumbers {
    /// Id of the next request; `None` if all are used up.
    pub(super) next_id: Option<RequestId>,
    pub(super) next_session: Name,
    /// The next block keys.
    pub(super) keys: KeyAllocator,
    /// No request arrives at this time or later.
    pub(super) horizon: Micros,
    /// Remaining numbers of requests.
    pub(super) left: Budgets,
}

impl RequestNumbers {
    /// The first numbers, after those of names and prefixes.
    pub(super) fn new(options: &GenerateOptions, left: Budgets, first_key: BlockKey, first_session: Name) -> Self {
        Self {
            next_id: Some(RequestId(0)),
            next_session: first_session,
            keys: KeyAllocator::new(options.block_size, first_key),
            horizon: options.horizon,
            left,
        }
    }

    /// The number of a new session.
    pub(super) fn session(&mut self) -> Name {
        let session = self.next_session;
        self.next_session = Name(session.0.saturating_add(1));
        session
    }
}

/// Remaining numbers of requests: in total, and by part.
#[derive(Clone, Debug)]
pub(super) struct Budgets {
    /// The first entry is the total, `None` stands for no limit.
    left: Vec<Option<u64>>,
}

impl Budgets {
    /// The limit in total, then those of `parts`.
    pub fn new(all: Option<u64>, parts: impl Iterator<Item = Option<u64>>) -> Self {
        Self { left: std::iter::once(all).chain(parts).collect() }
    }

    /// Remaining number of requests of clients of `part`. Part 0 has no limit of its own.
    pub fn left(&self, part: usize) -> Option<u64> {
        let [all, own] = [self.left[0], self.left.get(part).copied().flatten()];
        all.map_or(own, |all| Some(own.map_or(all, |own| own.min(all))))
    }

    /// Counts a request of `part`.
    pub fn spend(&mut self, part: usize) {
        for index in [Some(0), Some(part).filter(|&part| part > 0)].into_iter().flatten() {
            if let Some(Some(left)) = self.left.get_mut(index) {
                *left = left.saturating_sub(1);
            }
        }
    }

    /// The total limit, if no part has one.
    pub fn of_all_alone(&self) -> Option<u64> {
        self.left[0].filter(|_| self.left[1..].iter().all(Option::is_none))
    }
}
