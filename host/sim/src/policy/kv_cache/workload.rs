//! Chunks by the reuse that the workload has shown so far.

use rustc_hash::FxHashMap;

use super::{CacheTier, ChunkTouch, KvCachePolicy, KvChunk};
use crate::units::Micros;

/// Evicts the chunk that became improbable to be reused first. Our reading of the workload-aware policy of arXiv 2506.02634, which
/// evicts by the probability of reuse, with a distribution of reuse times for each kind of request and turn.
///
/// Chunks are divided into categories by client, prefix group and round of the request that used them last. Of each category it
/// counts uses `n` and reuses `r`, and averages the times `m` between both; a use in round k ≥ 1 that finds a chunk is a reuse of
/// the category of round k − 1, one in round 0 of its own. A chunk is reused with probability `p = (r + a) / (n + 1)` (`a`: the same
/// share of all categories), after a time that is exponentially distributed with mean `m`. After the time `t = m · ln(p / q)` the
/// probability that it is still to be reused, `p · exp(−t / m)`, is the threshold `q`. The rank is the moment at which that is
/// the case, the last use + `t`; `t` may be negative.
#[derive(Clone, Debug)]
pub struct WorkloadAware {
    /// The threshold `q`, > 0, < 1.
    least_probability: f64,
    categories: FxHashMap<ReuseCategory, ReuseStatistics>,
    all: ReuseStatistics,
}

/// Requests of which the chunks are reused alike: client (the `type` of a Bailian trace), prefix group, and round in the session, up to
/// [`LAST_ROUND`].
type ReuseCategory = (u32, u32, u32);

/// Uses of the chunks of a category.
#[derive(Clone, Copy, Debug, Default)]
struct ReuseStatistics {
    uses: f64,
    reuses: f64,
    /// Sum of the times from a use to the reuse, µs.
    between: f64,
}

/// Rounds from this one on are one category.
const LAST_ROUND: u32 = 8;
/// Number of categories with statistics of their own; others have those of all.
const MOST_CATEGORIES: usize = 4096;
/// Time between uses while none was seen, µs.
const UNKNOWN_INTERVAL_US: f64 = 60e6;

impl WorkloadAware {
    /// A policy that has seen nothing; `least_probability` is the threshold `q`.
    #[must_use]
    pub fn new(least_probability: f64) -> Self {
        Self { least_probability, categories: FxHashMap::default(), all: ReuseStatistics::default() }
    }

    fn category(&mut self, chunk: &KvChunk, round: u32) -> Option<&mut ReuseStatistics> {
        let key = (chunk.client, chunk.prefix_group, round.min(LAST_ROUND));
        if self.categories.len() >= MOST_CATEGORIES && !self.categories.contains_key(&key) {
            return None;
        }
        Some(self.categories.entry(key).or_default())
    }

    fn learn(&mut self, chunk: &KvChunk) {
        if let Some(previous) = chunk.previous_use().filter(|_| chunk.touch == ChunkTouch::Reused.number()) {
            let between = chunk.last_use_us.saturating_sub(previous) as f64;
            let reuse = |of: &mut ReuseStatistics| (of.reuses, of.between) = (of.reuses + 1.0, of.between + between);
            reuse(&mut self.all);
            self.category(chunk, chunk.round.saturating_sub(1)).map(reuse);
        }
        if chunk.touch != ChunkTouch::Ended.number() {
            self.all.uses += 1.0;
            if let Some(of) = self.category(chunk, chunk.round) {
                of.uses += 1.0;
            }
        }
    }

    fn rank(&self, chunk: &KvChunk) -> f64 {
        let key = (chunk.client, chunk.prefix_group, chunk.round.min(LAST_ROUND));
        let share = (self.all.reuses / self.all.uses.max(1.0)).clamp(self.least_probability, 1.0);
        let of = self.categories.get(&key).copied().unwrap_or_default();
        let probability = ((of.reuses + share) / (of.uses + 1.0)).min(1.0);
        let mean = |of: &ReuseStatistics| (of.reuses > 0.0).then(|| of.between / of.reuses);
        let interval = mean(&of).or_else(|| mean(&self.all)).unwrap_or(UNKNOWN_INTERVAL_US);
        chunk.last_use_us as f64 + interval * (probability / self.least_probability).ln()
    }
}

impl KvCachePolicy for WorkloadAware {
    fn keep(&mut self, _now: Micros, chunks: &[KvChunk], ranks: &mut Vec<f64>) {
        let is_adapter = chunks.first().is_some_and(|chunk| chunk.tier != CacheTier::Cpu.number());
        if is_adapter {
            // The least recently used one makes room.
            ranks.extend(chunks.iter().map(|_| 0.0));
            return;
        }
        chunks.iter().for_each(|chunk| self.learn(chunk));
        ranks.extend(chunks.iter().map(|chunk| self.rank(chunk)));
    }

    fn fork(&self) -> Box<dyn KvCachePolicy> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(group: u32, touch: ChunkTouch, last_use: u64, previous: Option<u64>) -> KvChunk {
        KvChunk {
            touch: touch.number(),
            last_use_us: last_use,
            previous_use_us: previous.unwrap_or(u64::MAX),
            prefix_group: group,
            ..KvChunk::default()
        }
    }

    fn rank(policy: &mut WorkloadAware, chunk: KvChunk) -> f64 {
        let mut ranks = Vec::new();
        policy.keep(Micros(chunk.last_use_us), &[chunk], &mut ranks);
        ranks[0]
    }

    /// Group 1 was stored once and reused once, 100 s later: n = 2, r = 1; all: n = 2, r = 1. p = (1 + 1/2) / 3 = 1/2, m = 100 s.
    #[test]
    fn the_rank_is_the_time_at_which_reuse_is_improbable() {
        let mut policy = WorkloadAware::new(0.1);
        rank(&mut policy, chunk(1, ChunkTouch::Stored, 0, None));
        let reused = rank(&mut policy, chunk(1, ChunkTouch::Reused, 100_000_000, Some(0)));
        assert!((reused - (1e8 + 1e8 * 5.0_f64.ln())).abs() < 1e-3, "{reused}");
        // An end is no use.
        assert_eq!(rank(&mut policy, chunk(1, ChunkTouch::Ended, 100_000_000, Some(0))), reused);
    }

    #[test]
    fn a_category_without_reuse_is_evicted_first() {
        let mut policy = WorkloadAware::new(0.05);
        for at in 0..20 {
            rank(&mut policy, chunk(2, ChunkTouch::Stored, at, None));
            rank(&mut policy, chunk(1, ChunkTouch::Reused, 1000 * (at + 1), Some(1000 * at)));
        }
        let [often, never] = [1, 2].map(|group| rank(&mut policy, chunk(group, ChunkTouch::Ended, 50_000, None)));
        assert!(never < 50_000.0 && often > 50_000.0, "{never} {often}");
    }
}
