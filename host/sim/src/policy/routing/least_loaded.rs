//! The routing policy `least-loaded`.

use super::LOAD;
use super::loads::LeastLoadedIndex;
use crate::policy::{ClusterView, Reads, Reason, RequestView, RoutingDecision, RoutingPolicy, Ties};

/// Chooses the instance with the smallest effective load ([`ClusterView::effective_load`]).
#[derive(Clone, Debug, Default)]
pub struct LeastLoaded {
    loads: LeastLoadedIndex,
}

impl RoutingPolicy for LeastLoaded {
    fn reads(&self) -> Reads {
        LOAD
    }

    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        _: &mut Vec<f64>,
    ) -> RoutingDecision {
        let target = self.loads.least(request.id, cluster, ties);
        RoutingDecision { target, reason: Reason::LeastLoaded(cluster.effective_load(target)) }
    }

    fn fork(&self) -> Box<dyn RoutingPolicy> {
        Box::new(self.clone())
    }
}
