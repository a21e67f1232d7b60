//! The filters of `weighted` routing: they leave out instances before the scores decide (llm-d's router, August 2026).
//! A filter that would leave out all keeps all.

use super::prompt_tokens::InstanceTokens;
use crate::policy::{ClusterView, Reads};

/// A filter with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RoutingFilter {
    /// Instances that have the prefix in their cache, while their queue of prompts is not much longer than that of others.
    PrefixCache(PrefixCacheFilter),
    /// Instances that are not saturated.
    Saturation(SaturationFilter),
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

impl RoutingFilter {
    /// The signals that it reads.
    pub fn reads(&self) -> Reads {
        match self {
            Self::PrefixCache(_) => Reads { cached_blocks: true, ..Reads::NOTHING },
            Self::Saturation(_) => Reads { load: true, ..Reads::NOTHING },
        }
    }

    /// Whether it reads the rows of prompt tokens.
    pub(super) fn reads_tokens(&self) -> bool {
        matches!(self, Self::PrefixCache(_))
    }

    /// Sets the entries of instances that it leaves out to `false`.
    pub(super) fn apply(
        &self,
        input_tokens: u32,
        cluster: &ClusterView<'_>,
        tokens: &[InstanceTokens],
        kept: &mut [bool],
    ) {
        match self {
            Self::PrefixCache(filter) => {
                if filter.sticks(input_tokens, tokens, kept) {
                    let sticky = tokens.iter().map(|row| filter.is_sticky(input_tokens, row));
                    kept.iter_mut().zip(sticky).for_each(|(kept, sticky)| *kept &= sticky);
                }
            }
            Self::Saturation(filter) => {
                let signals = cluster.signals;
                let free = |i: usize| filter.has_room(signals.queue_depth[i], signals.kv_utilization[i]);
                if (0..kept.len()).any(|i| kept[i] && free(i)) {
                    (0..kept.len()).for_each(|i| kept[i] &= free(i));
                }
            }
        }
    }
}

impl PrefixCacheFilter {
    fn is_sticky(&self, input_tokens: u32, row: &InstanceTokens) -> bool {
        f64::from(row.cached) >= self.affinity * f64::from(input_tokens)
    }

    /// Whether any instance is sticky, and the wait there is not too long.
    fn sticks(&self, input_tokens: u32, tokens: &[InstanceTokens], kept: &[bool]) -> bool {
        let kept = || tokens.iter().zip(kept).filter(|&(_, &kept)| kept).map(|(row, _)| row);
        // Wait for the prefills in flight, ms.
        let wait = |row: &InstanceTokens| row.in_flight as f64 / self.peak_prefill * 1000.0;
        let shortest = |sticky: bool| {
            let rows = kept().filter(|row| self.is_sticky(input_tokens, row) == sticky);
            rows.map(wait).reduce(f64::min)
        };
        match (shortest(true), shortest(false)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::InstanceIndex;
    use crate::policy::testing::TestService;

    /// Instances with these cached tokens of a prompt of 1000, and these uncached tokens in flight.
    fn rows(rows: &[(u32, u64)]) -> Vec<InstanceTokens> {
        let row = |(number, &(cached, in_flight))| InstanceTokens {
            number: InstanceIndex(number),
            cached,
            uncached: 1000 - cached,
            in_flight,
        };
        (0..).zip(rows).map(row).collect()
    }

    fn kept(filter: PrefixCacheFilter, instances: &[(u32, u64)]) -> Vec<bool> {
        let mut kept = vec![true; instances.len()];
        let service = TestService::idle(instances.len());
        RoutingFilter::PrefixCache(filter).apply(1000, &service.view(), &rows(instances), &mut kept);
        kept
    }

    #[test]
    fn requests_stick_until_the_wait_is_too_long() {
        let filter = PrefixCacheFilter { affinity: 0.8, peak_prefill: 1000.0, max_penalty_ms: 2000.0 };
        assert_eq!(kept(filter, &[(800, 0), (799, 0), (1000, 5000)]), [true, false, true]);
        assert_eq!(kept(filter, &[(0, 0), (799, 0)]), [true, true], "none is sticky");
        assert_eq!(kept(filter, &[(900, 9000), (1000, 9000)]), [true, true], "all are");
        assert_eq!(kept(filter, &[(900, 2000), (0, 0)]), [true, false], "2000 ms more");
        assert_eq!(kept(filter, &[(900, 2001), (0, 0)]), [true, true], "2001 ms more");
        assert_eq!(kept(filter, &[(900, 2001), (900, 500), (0, 0)]), [true, true, false], "the shortest wait counts");
        let always = PrefixCacheFilter { max_penalty_ms: 0.0, ..filter };
        assert_eq!(kept(always, &[(900, 1_000_000), (0, 0)]), [true, false]);
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
            RoutingFilter::Saturation(filter).apply(1000, &service.view(), &[], &mut kept);
            kept
        };
        assert_eq!(saturated(&[5, 6, 0, 0], &[0.8, 0.0, 0.81, 0.0], 0.0), [true, false, false, true]);
        assert_eq!(saturated(&[6, 0], &[0.0, 0.9], 0.0), [true, true]);
        assert_eq!(saturated(&[6, 7], &[0.96, 0.0], 0.2), [true, false], "a fifth more");
    }
}
