//! The order of the requests of a flow.

use super::OrderingPolicy;
use crate::policy::RequestView;
use crate::units::Micros;

/// First come, first served (llm-d's `fcfs-ordering`).
#[derive(Clone, Copy, Debug, Default)]
pub struct ArrivalOrder;

impl OrderingPolicy for ArrivalOrder {
    fn rank(&mut self, _request: &RequestView<'_>, _now: Micros, _expires: Micros) -> f64 {
        0.0
    }

    fn fork(&self) -> Box<dyn OrderingPolicy> {
        Box::new(*self)
    }
}

/// Earliest deadline first: the moment at which the request would leave the queue unserved (llm-d's `edf-ordering`).
#[derive(Clone, Copy, Debug, Default)]
pub struct EarliestDeadline;

impl OrderingPolicy for EarliestDeadline {
    fn rank(&mut self, request: &RequestView<'_>, _now: Micros, expires: Micros) -> f64 {
        request.deadline.map_or(expires, |deadline| deadline.min(expires)).0 as f64
    }

    fn fork(&self) -> Box<dyn OrderingPolicy> {
        Box::new(*self)
    }
}

/// The moment at which the first token is due by the target of the class; requests without a target go last (llm-d's
/// `slo-deadline-ordering`).
#[derive(Clone, Debug, Default)]
pub struct SloDeadline {
    /// Target of TTFT by the index of the class's name; `None` without one.
    pub targets: Vec<Option<Micros>>,
}

impl OrderingPolicy for SloDeadline {
    fn rank(&mut self, request: &RequestView<'_>, now: Micros, _expires: Micros) -> f64 {
        let target = self.targets.get(request.tags.slo_class.index()).copied().flatten();
        target.map_or(f64::INFINITY, |target| now.saturating_add(target).0 as f64)
    }

    fn fork(&self) -> Box<dyn OrderingPolicy> {
        Box::new(self.clone())
    }
}
