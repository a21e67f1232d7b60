//! The filters of `weighted` routing: they leave out instances before the scores decide (llm-d's router, August 2026).
//! A filter that would leave out all keeps all.

use crate::policy::flow::ConcurrencyMode;
use crate::policy::{ClusterView, Reads, RequestView, RoutingStep};

/// A filter of a routing pipeline.
#[derive(Clone, Debug)]
pub enum FilterStep {
    /// One of this crate.
    BuiltIn(RoutingFilter),
    /// A plugin.
    Step(Box<dyn RoutingStep>),
}

/// A filter with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RoutingFilter {
    /// Instances that have the prefix in their cache, while their queue of prompts is not much longer than that of others.
    PrefixCache(PrefixCacheFilter),
    /// Instances that are not saturated.
    Saturation(SaturationFilter),
    /// Instances with few requests or prompt tokens in flight.
    Concurrency(ConcurrencyFilter),
}

/// llm-d's `prefix-cache-affinity-filter`, without exploration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefixCacheFilter {
    /// Cached share of the prompt from which an instance is *sticky*, 0 to 1.
    pub affinity: f64,
    /// Prefill throughput of an idle instance, tokens per second.
    pub peak_prefill: f64,
    /// If the sticky instances have so much more prefill before them than the others, all are kept, ms; 0 for never.
    pub max_penalty_ms: f64,
}

/// llm-d's `utilization-detector` as a filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SaturationFilter {
    /// Waiting requests of a saturated instance.
    pub queue_depth: f64,
    /// Used share of its KV blocks, 0 to 1.
    pub kv_utilization: f64,
    /// Share by which both may be exceeded, at least 0.
    pub headroom: f64,
}

/// llm-d's `concurrency-detector` as a filter (`Filter` of its detector.go): an instance is kept while it has fewer requests in
/// flight than the limit, and fewer prompt tokens; the tokens of the request itself, less those that are cached, must fit as
/// well, unless no token is in flight there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConcurrencyFilter {
    /// What counts. For [`ConcurrencyMode::Hybrid`] both limits hold.
    pub mode: ConcurrencyMode,
    /// Requests in flight on an instance, > 0.
    pub max_concurrency: f64,
    /// Prompt tokens in flight on an instance that were not cached, before the first token, > 0.
    pub max_tokens: f64,
    /// Share by which both may be exceeded, at least 0.
    pub headroom: f64,
}

impl RoutingFilter {
    /// The signals that it reads.
    #[must_use]
    pub fn reads(&self) -> Reads {
        match self {
            Self::PrefixCache(_) => Reads { cached_blocks: true, tokens: true, ..Reads::NOTHING },
            Self::Saturation(_) => Reads { load: true, ..Reads::NOTHING },
            Self::Concurrency(ConcurrencyFilter { mode: ConcurrencyMode::Requests, .. }) => {
                Reads { in_flight: true, ..Reads::NOTHING }
            }
            Self::Concurrency(_) => Reads { in_flight: true, tokens: true, cached_blocks: true, ..Reads::NOTHING },
        }
    }

    /// Sets the entries of instances that it leaves out to `false`.
    pub fn apply(&self, request: &RequestView<'_>, cluster: &ClusterView<'_>, kept: &mut [bool]) {
        match self {
            Self::PrefixCache(filter) => {
                if filter.sticks(request, cluster, kept) {
                    (0..kept.len()).for_each(|i| kept[i] &= filter.is_sticky(request, cluster, i));
                }
            }
            Self::Saturation(filter) => {
                let signals = cluster.signals;
                keep_some(kept, |i| filter.has_room(signals.queue_depth[i], signals.kv_utilization[i]));
            }
            Self::Concurrency(filter) => keep_some(kept, |i| filter.has_room(request, cluster, i)),
        }
    }
}

/// Leaves out the instances that are not `free`, unless none of those kept so far is.
fn keep_some(kept: &mut [bool], free: impl Fn(usize) -> bool) {
    if (0..kept.len()).any(|i| kept[i] && free(i)) {
        (0..kept.len()).for_each(|i| kept[i] &= free(i));
    }
}

impl PrefixCacheFilter {
    fn is_sticky(&self, request: &RequestView<'_>, cluster: &ClusterView<'_>, i: usize) -> bool {
        f64::from(cluster.signals.cached_tokens(request, i)) >= self.affinity * f64::from(request.input_tokens)
    }

    /// Whether any instance is sticky, and the wait there is not too long.
    fn sticks(&self, request: &RequestView<'_>, cluster: &ClusterView<'_>, kept: &[bool]) -> bool {
        // Wait for the prefills in flight, ms.
        let wait = |i: usize| cluster.signals.in_flight_tokens[i] as f64 / self.peak_prefill * 1000.0;
        let (mut here, mut elsewhere) = (None, None);
        for i in (0..kept.len()).filter(|&i| kept[i]) {
            let shortest: &mut Option<f64> =
                if self.is_sticky(request, cluster, i) { &mut here } else { &mut elsewhere };
            *shortest = Some(shortest.map_or(wait(i), |other| other.min(wait(i))));
        }
        match (here, elsewhere) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(here), Some(elsewhere)) => self.max_penalty_ms == 0.0 || here - elsewhere <= self.max_penalty_ms,
        }
    }
}

impl SaturationFilter {
    fn has_room(&self, waiting: u32, kv_utilization: f64) -> bool {
        (f64::from(waiting) / self.queue_depth).max(kv_utilization / self.kv_utilization) <= 1.0 + self.headroom
    }
}

impl ConcurrencyFilter {
    fn has_room(&self, request: &RequestView<'_>, cluster: &ClusterView<'_>, i: usize) -> bool {
        let signals = cluster.signals;
        // llm-d's limits are whole numbers.
        let limit = |most: f64| (most * (1.0 + self.headroom)).floor();
        let requests_fit = || f64::from(signals.in_flight[i]) < limit(self.max_concurrency);
        let tokens_fit = || {
            let (there, most) = (signals.in_flight_tokens[i] as f64, limit(self.max_tokens));
            let uncached = f64::from(request.input_tokens - signals.cached_tokens(request, i));
            there < most && (there == 0.0 || there + uncached <= most)
        };
        match self.mode {
            ConcurrencyMode::Requests => requests_fit(),
            ConcurrencyMode::Tokens => tokens_fit(),
            ConcurrencyMode::Hybrid => requests_fit() && tokens_fit(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::{TestService, request, view_of};

    /// What a filter keeps of instances with these cached blocks of a prompt of 9 blocks and 3 more tokens, 147 tokens, and
    /// these prompt tokens in flight.
    fn kept(filter: PrefixCacheFilter, instances: &[(u32, u64)]) -> Vec<bool> {
        let service = TestService::idle(instances.len()).with(|signals| {
            signals.cached_blocks = instances.iter().map(|&(cached, _)| cached).collect();
            signals.in_flight_tokens = instances.iter().map(|&(_, in_flight)| in_flight).collect();
        });
        let mut kept = vec![true; instances.len()];
        RoutingFilter::PrefixCache(filter).apply(&view_of(&request(0, 9, &[])), &service.view(), &mut kept);
        kept
    }

    #[test]
    fn requests_stick_until_the_wait_is_too_long() {
        // 112 of 147 tokens are 0.762, 96 are 0.653.
        let filter = PrefixCacheFilter { affinity: 112.0 / 147.0, peak_prefill: 1000.0, max_penalty_ms: 2000.0 };
        assert_eq!(kept(filter, &[(7, 0), (6, 0), (9, 5000)]), [true, false, true]);
        assert_eq!(kept(filter, &[(0, 0), (6, 0)]), [true, true], "none is sticky");
        assert_eq!(kept(filter, &[(8, 9000), (9, 9000)]), [true, true], "all are");
        assert_eq!(kept(filter, &[(8, 2000), (0, 0)]), [true, false], "2000 ms more");
        assert_eq!(kept(filter, &[(8, 2001), (0, 0)]), [true, true], "2001 ms more");
        assert_eq!(kept(filter, &[(8, 2001), (8, 500), (0, 0)]), [true, true, false], "the shortest wait counts");
        let always = PrefixCacheFilter { max_penalty_ms: 0.0, ..filter };
        assert_eq!(kept(always, &[(8, 1_000_000), (0, 0)]), [true, false]);
    }

    #[test]
    fn saturated_instances_are_left_out_unless_all_are() {
        let saturated = |queue: &[u32], kv: &[f64], headroom: f64| {
            let service = TestService::idle(queue.len()).with(|signals| {
                signals.queue_depth = queue.to_vec();
                signals.kv_utilization = kv.to_vec();
            });
            let mut kept = vec![true; queue.len()];
            let filter = SaturationFilter { queue_depth: 5.0, kv_utilization: 0.8, headroom };
            RoutingFilter::Saturation(filter).apply(&view_of(&request(0, 9, &[])), &service.view(), &mut kept);
            kept
        };
        assert_eq!(saturated(&[5, 6, 0, 0], &[0.8, 0.0, 0.81, 0.0], 0.0), [true, false, false, true]);
        assert_eq!(saturated(&[6, 0], &[0.0, 0.9], 0.0), [true, true]);
        assert_eq!(saturated(&[6, 7], &[0.96, 0.0], 0.2), [true, false], "a fifth more");
    }

    #[test]
    fn instances_with_enough_in_flight_are_left_out() {
        // The prompt has 147 tokens, of which 112 are cached on the third instance.
        let kept = |mode, max_concurrency, max_tokens, headroom| {
            let service = TestService::idle(3).with(|signals| {
                signals.in_flight = vec![4, 3, 0];
                signals.in_flight_tokens = vec![0, 400, 460];
                signals.cached_blocks = vec![0, 0, 7];
            });
            let mut kept = vec![true; 3];
            let filter = ConcurrencyFilter { mode, max_concurrency, max_tokens, headroom };
            RoutingFilter::Concurrency(filter).apply(&view_of(&request(0, 9, &[])), &service.view(), &mut kept);
            kept
        };
        use ConcurrencyMode::{Hybrid, Requests, Tokens};
        assert_eq!(kept(Requests, 4.0, 1.0, 0.0), [false, true, true], "fewer than 4");
        assert_eq!(kept(Requests, 4.0, 1.0, 0.25), [true, true, true], "fewer than 5");
        assert_eq!(kept(Requests, 4.0, 1.0, 0.2), [false, true, true], "4.8 is 4");
        assert_eq!(kept(Tokens, 1.0, 500.0, 0.0), [true, false, true], "400 + 147, 460 + 35");
        assert_eq!(kept(Tokens, 1.0, 100.0, 0.0), [true, false, false], "none is in flight on the first");
        assert_eq!(kept(Hybrid, 4.0, 500.0, 0.0), [false, false, true]);
        assert_eq!(kept(Hybrid, 4.0, 450.0, 0.0), [true, true, true], "none has room");
    }
}
