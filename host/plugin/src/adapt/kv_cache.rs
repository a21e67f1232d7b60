//! Guests as policies of KV tiers.

use blis_sim::policy::kv_cache::{ChunkOffer, KvCacheDecisions, KvCachePolicy, KvChunk, KvHit};
use blis_sim::units::Micros;

use super::{PluginPolicy, fork};
use crate::rows::canonical;

impl KvCachePolicy for PluginPolicy {
    fn decides(&self) -> KvCacheDecisions {
        self.lock().decides()
    }

    fn keep(&mut self, now: Micros, chunks: &[KvChunk], ranks: &mut Vec<f64>) {
        let mut numbers = Vec::with_capacity(chunks.len());
        let kept = self.decide(now, |guest| guest.keep(now, chunks, &mut numbers));
        ranks.extend(if kept.is_some() { numbers } else { vec![0.0; chunks.len()] });
    }

    fn store(&mut self, tier: &ChunkOffer, chunks: &[KvChunk], stored: &mut Vec<bool>) {
        let tier = ChunkOffer { fill: canonical(tier.fill), ..*tier };
        let mut numbers = Vec::with_capacity(chunks.len());
        let decided = self.decide(Micros(tier.now_us), |guest| guest.store(&tier, chunks, &mut numbers));
        let all = decided.is_none();
        stored.extend((0..chunks.len()).map(|index| all || numbers[index] != 0.0));
    }

    fn load(&mut self, hit: &KvHit) -> bool {
        let hit = KvHit { bandwidth: canonical(hit.bandwidth), ..*hit };
        self.decide(Micros(hit.now_us), |guest| guest.load(&hit)).unwrap_or(true)
    }

    fork!(KvCachePolicy);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use blis_sim::cluster::Abort;
    use blis_sim::policy::BlockIds;

    use super::*;
    use crate::incidents::{Incidents, OnError};
    use crate::rows::NONE_U64;
    use crate::{FaultKind, Kind, Limits, check, script};

    /// A policy of the script `source` that falls back.
    fn policy(source: &str) -> (PluginPolicy, Incidents) {
        let limits = Limits::default();
        let plugin = script::load(Path::new("mine.rhai"), source, &limits).expect("compiles");
        let incidents = Incidents::new(OnError::Fallback, Abort::default());
        let guest = plugin.start(&check::setup(&*plugin, Kind::KvCache, 4, &limits));
        let guest = guest.expect("starts");
        (PluginPolicy::new("mine", plugin.description(), guest, BlockIds::KEYS, &incidents), incidents)
    }

    fn chunks() -> [KvChunk; 3] {
        [1, 2, 5].map(|uses| KvChunk {
            last_use_us: 100 * u64::from(uses),
            previous_use_us: if uses > 1 { 50 } else { NONE_U64 },
            uses,
            offers: uses,
            tokens: 16,
            ..KvChunk::default()
        })
    }

    fn ranks(source: &str) -> (Vec<f64>, Incidents) {
        let (mut policy, incidents) = policy(source);
        let mut ranks = Vec::new();
        policy.keep(Micros(600), &chunks(), &mut ranks);
        (ranks, incidents)
    }

    #[test]
    fn a_script_ranks_chunks() {
        assert_eq!(ranks("fn keep(c) { c.last_use + 1000.0 * c.uses }").0, [1100.0, 2200.0, 5500.0]);
        let source = "fn keep(c) { where(c.previous_use < c.now, c.last_use - c.previous_use, 0.0) }";
        assert_eq!(ranks(source).0, [0.0, 150.0, 450.0]);
        assert_eq!(ranks("fn keep(c) { if c.touch[0] == 0 && c.len == 3 { 7.0 } else { 0.0 } }").0, [7.0; 3]);
    }

    #[test]
    fn a_script_stores_chunks() {
        let (mut of, _) = policy("fn keep(c) { 0.0 } fn store(t, c) { c.offers >= 2.0 / t.fill }");
        assert_eq!(of.decides(), KvCacheDecisions { store: true, load: false });
        let tier = ChunkOffer { now_us: 9, queued_bytes: 3, fill: 0.5, tier: 1, capacity: 8 };
        let mut stored = Vec::new();
        of.store(&tier, &chunks(), &mut stored);
        assert_eq!(stored, [false, false, true]);
        let (mut all, _) = policy("fn store(t, c) { t.queued_bytes < t.capacity }");
        stored.clear();
        all.store(&tier, &chunks(), &mut stored);
        assert_eq!(stored, [true; 3]);
        let mut ranks = Vec::new();
        all.keep(Micros(9), &chunks(), &mut ranks);
        assert_eq!(ranks, [0.0; 3], "without a function `keep` it is least recently used");
    }

    #[test]
    fn a_script_loads_or_computes() {
        let (mut of, incidents) = policy("fn load(h) { (h.bytes + h.queued_bytes) / h.bandwidth < 20.0 * h.tokens }");
        assert_eq!(of.decides(), KvCacheDecisions { store: false, load: true });
        let hit = |tokens, queued_bytes| KvHit {
            now_us: 5,
            bytes: 10_000,
            queued_bytes,
            bandwidth: 100.0,
            request: 3,
            gpu_tokens: 16,
            tokens,
            prefill_tokens: 64,
            waiting: 1,
            running: 2,
            ..KvHit::default()
        };
        assert_eq!([of.load(&hit(16, 0)), of.load(&hit(16, 50_000))], [true, false]);
        assert!(incidents.first().is_none());
    }

    #[test]
    fn a_bad_output_is_that_of_least_recently_used() {
        for (source, kind, says) in [
            ("fn keep(c) { [1.0, 2.0] }", FaultKind::OutOfRange, "one for each of 3"),
            ("fn keep(c) { 0.0 * c.uses / 0.0 }", FaultKind::NotANumber, "NaN"),
            ("fn keep(c) { }", FaultKind::Trap, "a column"),
        ] {
            let (ranks, incidents) = ranks(source);
            let fault = incidents.first().expect("recorded").fault;
            assert!(fault.kind == kind && fault.to_string().contains(says), "{fault}");
            assert_eq!(ranks, [0.0; 3]);
        }
    }
}
