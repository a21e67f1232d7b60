//! The request in flight that is ended to make room.

use std::cmp::Reverse;

use super::{Band, EvictionPolicy, InFlight};
use crate::units::Micros;

/// The lowest priority, and of these the request that was dispatched last (llm-d's default).
#[derive(Clone, Copy, Debug, Default)]
pub struct LowestPriorityNewest;

impl EvictionPolicy for LowestPriorityNewest {
    fn victim(&mut self, _now: Micros, _demand: Band, in_flight: &[InFlight]) -> Option<usize> {
        let order = |request: &InFlight| (request.priority, Reverse(request.dispatched_us), Reverse(request.id));
        (0..in_flight.len()).min_by_key(|&index| order(&in_flight[index]))
    }

    fn fork(&self) -> Box<dyn EvictionPolicy> {
        Box::new(*self)
    }
}
