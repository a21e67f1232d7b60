//! The routing policy `round-robin`.

use crate::numbers::index;
use crate::policy::{ClusterView, Reads, Reason, RequestView, RoutingDecision, RoutingPolicy, Ties};

/// Chooses the instances in turn. The turn continues when the set of instances changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    turn: u64,
}

impl RoutingPolicy for RoundRobin {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn route(&mut self, _: &RequestView<'_>, cluster: &ClusterView<'_>, _: &Ties, _: &mut Vec<f64>) -> RoutingDecision {
        let turn = self.turn;
        self.turn += 1;
        RoutingDecision { target: index(turn % cluster.len() as u64), reason: Reason::RoundRobin(turn) }
    }

    fn fork(&self) -> Box<dyn RoutingPolicy> {
        Box::new(*self)
    }
}
