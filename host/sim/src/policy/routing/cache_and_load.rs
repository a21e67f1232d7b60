//! The routing policy `cache-and-load`.

use super::{LOAD, best, is_weight, loads};
use crate::policy::{ClusterView, Reads, Reason, RequestView, RoutingDecision, RoutingPolicy, Ties};

/// A weighted sum of free KV blocks and load: the meaning of `weighted` before scorers existed
/// (`--routing-cache-weight` and `--routing-load-weight`). Among equally good instances it chooses the first.
#[derive(Clone, Copy, Debug)]
pub struct CacheAndLoad {
    /// Weight of the free KV blocks; both weights add up to 1.
    cache_weight: f64,
    load_weight: f64,
}

impl CacheAndLoad {
    /// Routing with `cache_weight` for the free KV blocks relative to the instance with most of them, and `load_weight`
    /// for 1 / (1 + load). The weights are scaled to add up to 1.
    ///
    /// # Errors
    ///
    /// A message if a weight is not a finite number from 0 on, or if both are 0.
    pub fn new(cache_weight: f64, load_weight: f64) -> Result<Self, String> {
        for (name, weight) in [("cache", cache_weight), ("load", load_weight)] {
            if !(weight.is_finite() && weight >= 0.0) {
                return Err(format!("the {name} weight of routing is a finite number, 0 or more: not {weight}"));
            }
        }
        let sum = cache_weight + load_weight;
        if !is_weight(sum) {
            return Err(format!("the cache and load weights of routing add up to {sum}: one must be above 0"));
        }
        Ok(Self { cache_weight: cache_weight / sum, load_weight: load_weight / sum })
    }
}

impl RoutingPolicy for CacheAndLoad {
    fn reads(&self) -> Reads {
        LOAD
    }

    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        _: &Ties,
        scores: &mut Vec<f64>,
    ) -> RoutingDecision {
        let free = &cluster.signals.free_kv_blocks;
        let most_free = f64::from(free.iter().copied().max().unwrap_or(0).max(1));
        scores.extend(free.iter().zip(loads(cluster)).map(|(&free, load)| {
            self.cache_weight * (f64::from(free) / most_free) + self.load_weight * (1.0 / (1.0 + f64::from(load)))
        }));
        let target = best(scores, request.id, &Ties::LowestIndex);
        RoutingDecision { target, reason: Reason::Weighted(scores[target]) }
    }

    fn fork(&self) -> Box<dyn RoutingPolicy> {
        Box::new(*self)
    }
}
