//! The routing policy `always-busiest`.

use super::{LOAD, loads};
use crate::policy::{ClusterView, Reads, Reason, RequestView, RoutingDecision, RoutingPolicy, Ties};

/// Chooses the instance with the largest load, the first of several. It is a bad policy on purpose: evaluations must
/// rank it last.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysBusiest;

impl RoutingPolicy for AlwaysBusiest {
    fn reads(&self) -> Reads {
        LOAD
    }

    fn route(&mut self, _: &RequestView<'_>, cluster: &ClusterView<'_>, _: &Ties, _: &mut Vec<f64>) -> RoutingDecision {
        let most = loads(cluster).fold(0, u32::max);
        let target = loads(cluster).position(|load| load == most).expect("it is one of them");
        RoutingDecision { target, reason: Reason::AlwaysBusiest(cluster.effective_load(target)) }
    }

    fn fork(&self) -> Box<dyn RoutingPolicy> {
        Box::new(*self)
    }
}
