//! What to know of the KV cache of models with layers that keep less than every token.

use blis_sim::kv::pages::{KvGroup, KvLayout};

use super::memory_balance::has_groups;
use super::{DeployedCache, Resolution};
use crate::KvBlocksSource;

impl Resolution<'_> {
    /// The longest request that the options allow, tokens: vLLM starts only if one fits its KV cache.
    pub(super) fn request_tokens(&self) -> Option<u64> {
        let given = self.args.max_model_len.filter(|given| *given > 0).map(u64::from);
        given.or(self.config.and_then(|model| model.config.max_model_len))
    }

    /// Notes the groups of the KV cache, and what is simulated of them.
    pub(super) fn note_cache(&self, cache: &DeployedCache, notes: &mut Vec<String>) {
        if self.args.batch.engine.is_none() {
            let unequal = self.config.is_some_and(|model| model.config.architecture.is_some());
            if unequal && cache.source == KvBlocksSource::Computed {
                notes
                    .push(format!("KV blocks of {}: by BLIS's formula, which takes all layers to be equal", self.name));
            }
            return;
        }
        let Some(layout) = cache.layout.as_ref().filter(|layout| has_groups(layout)) else { return };
        notes.push(format!(
            "{} KV pages of {} in groups: {}",
            cache.total_kv_blocks,
            page_text(layout),
            groups_text(layout)
        ));
        if self.keeps_one_number(layout) {
            notes.push(
                "the CPU tier knows no KV groups: blocks of equal layers are simulated, and states take what one request of \
                 max_model_len takes"
                    .to_owned(),
            );
        }
    }
}

fn page_text(layout: &KvLayout) -> String {
    format!("{:.1} KiB", layout.bytes_per_block as f64 / 1024.0)
}

/// Kinds of groups in their order, each with the layers of its groups and its block.
fn groups_text(layout: &KvLayout) -> String {
    let text = |group: &KvGroup| {
        let window = group.rule.window().map(|window| format!(" of {window}")).unwrap_or_default();
        format!("{}{window} × {} layers with blocks of {} tokens", group.rule.name(), group.layers, group.block)
    };
    layout.groups.iter().map(text).collect::<Vec<_>>().join(", ")
}
