//! Chunks of a KV tier, the tier, and what it has for a request, from named values.

use super::replicas::{NamedRow, RowNumber, numbers};
use super::{LATEST_US, real, time, whole};
use crate::rows::{ChunkOfferRow, ChunkRow, NONE_U64, TierHitRow};

impl NamedRow for ChunkRow {
    const WHAT: &'static str = "a chunk";
    const NUMBERS: &'static [RowNumber<Self>] = numbers! { ChunkRow
        created_us: time ["created", "created_us"],
        last_use_us: time ["last_use", "last_use_us"],
        previous_use_us: date ["previous_use", "previous_use_us"],
        tier: count ["tier"],
        position: count ["position"],
        tokens: count ["tokens"],
        uses: count ["uses"],
        offers: count ["offers"],
        touch: count ["touch"],
        slo_class: count ["slo_class"],
        tenant: count ["tenant"],
        session: count ["session"],
        prefix_group: count ["prefix_group"],
        round: count ["round"],
        input_tokens: count ["input_tokens"],
        client: count ["client"],
        adapter: count ["adapter"],
    };

    fn name(&mut self, field: &str) -> Option<&mut u32> {
        Some(match field {
            "slo_class" => &mut self.slo_class,
            "tenant" => &mut self.tenant,
            "session" => &mut self.session,
            "prefix_group" => &mut self.prefix_group,
            "client" => &mut self.client,
            "adapter" => &mut self.adapter,
            _ => return None,
        })
    }
}

impl NamedRow for ChunkOfferRow {
    const WHAT: &'static str = "a tier";
    const NUMBERS: &'static [RowNumber<Self>] = numbers! { ChunkOfferRow
        now_us: time ["now", "now_us"],
        queued_bytes: tokens ["queued_bytes"],
        fill: real ["fill"],
        tier: count ["tier"],
        capacity: count ["capacity"],
    };
}

impl NamedRow for TierHitRow {
    const WHAT: &'static str = "a hit in a tier";
    const NUMBERS: &'static [RowNumber<Self>] = numbers! { TierHitRow
        now_us: time ["now", "now_us"],
        bytes: tokens ["bytes"],
        queued_bytes: tokens ["queued_bytes"],
        bandwidth: real ["bandwidth"],
        request: count ["request"],
        gpu_tokens: count ["gpu_tokens"],
        tokens: count ["tokens"],
        input_tokens: count ["input_tokens"],
        prefill_tokens: count ["prefill_tokens"],
        waiting: count ["waiting"],
        running: count ["running"],
        slo_class: count ["slo_class"],
        tenant: count ["tenant"],
        session: count ["session"],
        prefix_group: count ["prefix_group"],
        round: count ["round"],
    };

    fn name(&mut self, field: &str) -> Option<&mut u32> {
        Some(match field {
            "slo_class" => &mut self.slo_class,
            "tenant" => &mut self.tenant,
            "session" => &mut self.session,
            "prefix_group" => &mut self.prefix_group,
            _ => return None,
        })
    }
}
