//! The numbers of requests, sessions and blocks, and how many there may still be.

use blis_sim::request::{BlockKey, Name};
use blis_sim::units::Micros;

use super::GenerateOptions;
use crate::conversation::Keys;

/// What all requests of a workload are numbered from.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// The next request, as long as there are numbers.
    pub(super) next_id: Option<u32>,
    pub(super) next_session: Name,
    /// The next block keys.
    pub(super) keys: Keys,
    /// No request arrives at this time or later.
    pub(super) horizon: Micros,
    /// How many more there may be.
    pub(super) left: Budgets,
}

impl Numbers {
    /// The first numbers, behind those of names and prefixes.
    pub(super) fn new(options: &GenerateOptions, left: Budgets, first_key: BlockKey, first_session: Name) -> Self {
        Self {
            next_id: Some(0),
            next_session: first_session,
            keys: Keys::new(options.block_size, first_key),
            horizon: options.horizon,
            left,
        }
    }

    /// A number for one more session.
    pub(super) fn session(&mut self) -> Name {
        let session = self.next_session;
        self.next_session = Name(session.0.saturating_add(1));
        session
    }
}

/// How many requests there may still be: of all clients, and of those of each part.
#[derive(Clone, Debug)]
pub(super) struct Budgets {
    /// The first is that of all. `None`: as many as come.
    left: Vec<Option<u64>>,
}

impl Budgets {
    /// `all`, then those of `parts`.
    pub fn new(all: Option<u64>, parts: impl Iterator<Item = Option<u64>>) -> Self {
        Self { left: std::iter::once(all).chain(parts).collect() }
    }

    /// What clients of `part` may still send. Part 0 has no budget of its own.
    pub fn left(&self, part: usize) -> Option<u64> {
        let [all, own] = [self.left[0], self.left.get(part).copied().flatten()];
        all.map_or(own, |all| Some(own.map_or(all, |own| own.min(all))))
    }

    /// A client of `part` sends a request.
    pub fn spend(&mut self, part: usize) {
        for place in [Some(0), Some(part).filter(|&part| part > 0)].into_iter().flatten() {
            if let Some(Some(left)) = self.left.get_mut(place) {
                *left = left.saturating_sub(1);
            }
        }
    }

    /// That of all, where no part has one.
    pub fn of_all_alone(&self) -> Option<u64> {
        self.left[0].filter(|_| self.left[1..].iter().all(Option::is_none))
    }
}
