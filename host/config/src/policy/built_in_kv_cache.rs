//! Built-in policies of KV tiers as plugins: their rows as views.

use blis_sim::ids::RequestId;
use blis_sim::policy::kv_cache::{
    CacheTier, ChunkTouch, ChunkUser, ChunkView, KvCacheDecisions, KvCachePolicy, TierHitView, TierView,
};
use blis_sim::request::{Name, Tags};
use blis_sim::units::Micros;

use super::built_in::{BuiltInGuest, BuiltInPolicy};
use blis_plugin::rows::{ChunkOfferRow, ChunkRow, TierHitRow};
use blis_plugin::{Fault, KvCacheGuest, StartedGuest};

impl BuiltInPolicy for Box<dyn KvCachePolicy> {
    fn start(self) -> StartedGuest {
        StartedGuest::KvCache(Box::new(BuiltInGuest(self)))
    }

    fn copy(&self) -> Self {
        self.fork()
    }
}

impl KvCacheGuest for BuiltInGuest<Box<dyn KvCachePolicy>> {
    fn decides(&self) -> KvCacheDecisions {
        self.0.decides()
    }

    fn keep(&mut self, now: Micros, chunks: &[ChunkRow], ranks: &mut Vec<f64>) -> Result<(), Fault> {
        let chunks: Vec<ChunkView> = chunks.iter().map(chunk).collect();
        self.0.keep(now, &chunks, ranks);
        Ok(())
    }

    fn store(&mut self, offer: &ChunkOfferRow, chunks: &[ChunkRow], stored: &mut Vec<f64>) -> Result<(), Fault> {
        let ChunkOfferRow { now_us, queued_bytes, fill, capacity, .. } = *offer;
        let tier = TierView { now: Micros(now_us), fill, queued_bytes, capacity };
        let chunks: Vec<ChunkView> = chunks.iter().map(chunk).collect();
        let mut decided = Vec::with_capacity(chunks.len());
        self.0.store(&tier, &chunks, &mut decided);
        stored.extend(decided.into_iter().map(|stored| f64::from(u8::from(stored))));
        Ok(())
    }

    fn load(&mut self, hit: &TierHitRow) -> Result<bool, Fault> {
        let tags = Tags {
            slo_class: Name(hit.slo_class),
            tenant: Name(hit.tenant),
            session: Name(hit.session),
            prefix_group: Name(hit.prefix_group),
            round_index: hit.round,
            ..Tags::default()
        };
        Ok(self.0.load(&TierHitView {
            now: Micros(hit.now_us),
            request: RequestId(hit.request),
            user: ChunkUser { tags, input_tokens: hit.input_tokens },
            gpu_tokens: hit.gpu_tokens,
            tokens: hit.tokens,
            bytes: hit.bytes,
            queued_bytes: hit.queued_bytes,
            bandwidth: hit.bandwidth,
            prefill_tokens: u64::from(hit.prefill_tokens),
            waiting: hit.waiting,
            running: hit.running,
        }))
    }
}

fn chunk(row: &ChunkRow) -> ChunkView {
    let tags = Tags {
        slo_class: Name(row.slo_class),
        tenant: Name(row.tenant),
        session: Name(row.session),
        prefix_group: Name(row.prefix_group),
        client: Name(row.client),
        adapter: Name(row.adapter),
        round_index: row.round,
        ..Tags::default()
    };
    ChunkView {
        tier: CacheTier::ALL[row.tier.clamp(1, 3) as usize - 1],
        touch: ChunkTouch::ALL[row.touch.min(2) as usize],
        created: Micros(row.created_us),
        last_use: Micros(row.last_use_us),
        previous_use: row.previous_use().map(Micros),
        position: row.position,
        tokens: row.tokens,
        uses: row.uses,
        offers: row.offers,
        user: ChunkUser { tags, input_tokens: row.input_tokens },
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use blis_plugin::inputs::GuestCall;
    use blis_plugin::{Kind, Limits, Plugin, check, script};
    use blis_sim::policy::Ties;

    use crate::policy::BuiltIn;

    /// The outputs of `plugin` for generated inputs and those at the limits of their ranges.
    fn outputs(plugin: &dyn Plugin) -> Vec<String> {
        let setup = check::setup(plugin, Kind::KvCache, 4, &Limits::default());
        let mut guest = plugin.start(&setup).expect("it starts");
        let usual = (0..200).map(|item| GuestCall::plausible(Kind::KvCache, 1 + item as usize % 9, item));
        let calls = usual.chain(GuestCall::extreme(Kind::KvCache, 4).into_iter().map(|(_, call)| call));
        calls.map(|call| format!("{:?}", call.run(&mut guest, &Ties::LowestIndex))).collect()
    }

    #[test]
    fn scripts_of_the_built_ins_decide_alike() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/built-ins");
        for name in ["lru", "lfu", "slru"] {
            let row = BuiltIn::find(Kind::KvCache, name).expect("it is built in");
            let file = folder.join(format!("{name}.rhai"));
            let loaded = script::load_file(&file, &Limits::default()).expect("compiles");
            assert_eq!(outputs(&*loaded), outputs(&*row.load().plugin), "{name}");
        }
    }

    #[test]
    fn arc_is_no_plugin() {
        let row = BuiltIn::find(Kind::KvCache, "arc").expect("it is built in");
        let plugin = row.load().plugin;
        let refused = plugin.start(&check::setup(&*plugin, Kind::KvCache, 4, &Limits::default()));
        let fault = refused.map(|_| ()).expect_err("it ranks nothing").to_string();
        assert!(fault.contains("part of the tier"), "{fault}");
    }
}
