//! The steps in which decoding requests take, give back or register pages of KV groups.

use super::arena::RequestKey;
use super::page_cycle::PageCycle;
use crate::numbers::index;

/// The longest time between two looks at a decoding request, steps.
pub(super) const CALENDAR: usize = 1024;

/// The steps in which decoding requests need the pool.
#[derive(Clone, Debug)]
pub(super) struct PageCalendar {
    /// The requests, by the number of the step modulo the length. Includes some that left or moved since.
    by_step: Vec<Vec<RequestKey>>,
    /// Those of the present step.
    pub due: Vec<RequestKey>,
    /// Those that need it in the same steps of every block.
    pub cycle: Option<PageCycle>,
}

impl PageCalendar {
    pub fn new(cycle: Option<PageCycle>) -> Self {
        Self { by_step: vec![Vec::new(); CALENDAR], due: Vec::new(), cycle }
    }

    /// The requests of step `v`.
    pub fn at(&mut self, v: u64) -> &mut Vec<RequestKey> {
        &mut self.by_step[index(v % CALENDAR as u64)]
    }

    /// The first step from `v` on, at most the `most`-th, that may have an event.
    pub fn next(&self, v: u64, most: u64) -> u64 {
        let is_free = |&step: &u64| self.by_step[index(step % CALENDAR as u64)].is_empty();
        v + (v..v + most).take_while(is_free).count() as u64
    }
}
