//! Guests as policies of KV tiers.

use blis_sim::policy::kv_cache::{
    CacheTier, ChunkTouch, ChunkView, KvCacheDecisions, KvCachePolicy, TierHitView, TierView,
};
use blis_sim::units::Micros;

use super::PluginPolicy;
use crate::rows::{ChunkOfferRow, ChunkRow, NONE_U64, TierHitRow, canonical, first_nan};
use crate::{Fault, KvCacheGuest};

impl KvCachePolicy for PluginPolicy<dyn KvCacheGuest> {
    fn decides(&self) -> KvCacheDecisions {
        self.lock().decides()
    }

    fn keep(&mut self, now: Micros, chunks: &[ChunkView], ranks: &mut Vec<f64>) {
        let rows: Vec<ChunkRow> = chunks.iter().map(chunk_row).collect();
        let mut numbers = Vec::with_capacity(rows.len());
        let kept = self.guest().keep(now, &rows, &mut numbers);
        let numbers = kept.and_then(|()| self.one_for_each("keep", &rows, numbers));
        ranks.extend(self.checked(now, numbers, || vec![0.0; rows.len()]));
    }

    fn store(&mut self, tier: &TierView, chunks: &[ChunkView], stored: &mut Vec<bool>) {
        let rows: Vec<ChunkRow> = chunks.iter().map(chunk_row).collect();
        let TierView { now, fill, queued_bytes, capacity } = *tier;
        let offer = ChunkOfferRow {
            now_us: now.0,
            queued_bytes,
            fill: canonical(fill),
            tier: CacheTier::Cpu.number(),
            capacity,
        };
        let mut numbers = Vec::with_capacity(rows.len());
        let decided = self.guest().store(&offer, &rows, &mut numbers);
        let numbers = decided.and_then(|()| self.one_for_each("store", &rows, numbers));
        let numbers = self.checked(now, numbers, || vec![1.0; rows.len()]);
        stored.extend(numbers.into_iter().map(|number| number != 0.0));
    }

    fn load(&mut self, hit: &TierHitView) -> bool {
        let loads = self.guest().load(&hit_row(hit));
        self.checked(hit.now, loads, || true)
    }

    fn fork(&self) -> Box<dyn KvCachePolicy> {
        Box::new(self.copy())
    }
}

impl PluginPolicy<dyn KvCacheGuest> {
    /// `numbers`, unless there is not one for each of `chunks`, or one is NaN.
    fn one_for_each(&self, function: &str, chunks: &[ChunkRow], numbers: Vec<f64>) -> Result<Vec<f64>, Fault> {
        if numbers.len() != chunks.len() {
            let output = format!("{} numbers", numbers.len());
            return Err(self.out_of_range(function, output, &format!("one for each of {} chunks", chunks.len())));
        }
        match first_nan(&numbers) {
            Some(index) => Err(self.not_a_number(function, &format!(" for chunk {index}"))),
            None => Ok(numbers),
        }
    }
}

/// A chunk as guests get it.
#[must_use]
pub fn chunk_row(chunk: &ChunkView) -> ChunkRow {
    let tags = chunk.user.tags;
    ChunkRow {
        created_us: chunk.created.0,
        last_use_us: chunk.last_use.0,
        previous_use_us: chunk.previous_use.map_or(NONE_U64, |at| at.0),
        tier: chunk.tier.number(),
        position: chunk.position,
        tokens: chunk.tokens,
        uses: chunk.uses,
        offers: chunk.offers,
        touch: match chunk.touch {
            ChunkTouch::Stored => 0,
            ChunkTouch::Reused => 1,
            ChunkTouch::Ended => 2,
        },
        slo_class: tags.slo_class.0,
        tenant: tags.tenant.0,
        session: tags.session.0,
        prefix_group: tags.prefix_group.0,
        round: tags.round_index,
        input_tokens: chunk.user.input_tokens,
        client: tags.client.0,
        adapter: tags.adapter.0,
    }
}

fn hit_row(hit: &TierHitView) -> TierHitRow {
    let tags = hit.user.tags;
    TierHitRow {
        now_us: hit.now.0,
        bytes: hit.bytes,
        queued_bytes: hit.queued_bytes,
        bandwidth: canonical(hit.bandwidth),
        request: hit.request.0,
        gpu_tokens: hit.gpu_tokens,
        tokens: hit.tokens,
        input_tokens: hit.user.input_tokens,
        prefill_tokens: u32::try_from(hit.prefill_tokens).unwrap_or(u32::MAX),
        waiting: hit.waiting,
        running: hit.running,
        slo_class: tags.slo_class.0,
        tenant: tags.tenant.0,
        session: tags.session.0,
        prefix_group: tags.prefix_group.0,
        round: tags.round_index,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use blis_sim::cluster::Abort;
    use blis_sim::ids::RequestId;
    use blis_sim::policy::BlockIds;
    use blis_sim::policy::kv_cache::ChunkUser;

    use super::*;
    use crate::incidents::{Incidents, OnError};
    use crate::{FaultKind, Kind, Limits, StartedGuest, check, script};

    /// A policy of the script `source` that falls back.
    fn policy(source: &str) -> (PluginPolicy<dyn KvCacheGuest>, Incidents) {
        let limits = Limits::default();
        let plugin = script::load(Path::new("mine.rhai"), source, &limits).expect("compiles");
        let incidents = Incidents::new(OnError::Fallback, Abort::default());
        let guest = plugin.start(&check::setup(&*plugin, Kind::KvCache, 4, &limits));
        let guest = guest.and_then(StartedGuest::into_kind).expect("starts");
        (PluginPolicy::new("mine", plugin.description(), guest, BlockIds::KEYS, &incidents), incidents)
    }

    fn chunks() -> [ChunkView; 3] {
        [1, 2, 5].map(|uses| ChunkView {
            last_use: Micros(100 * u64::from(uses)),
            previous_use: (uses > 1).then_some(Micros(50)),
            uses,
            offers: uses,
            tokens: 16,
            ..ChunkView::default()
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
        let tier = TierView { now: Micros(9), fill: 0.5, queued_bytes: 3, capacity: 8 };
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
        let hit = |tokens, queued_bytes| TierHitView {
            now: Micros(5),
            request: RequestId(3),
            user: ChunkUser::default(),
            gpu_tokens: 16,
            tokens,
            bytes: 10_000,
            queued_bytes,
            bandwidth: 100.0,
            prefill_tokens: 64,
            waiting: 1,
            running: 2,
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
