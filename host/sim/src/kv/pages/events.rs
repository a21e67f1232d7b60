//! When a decoding request needs the pool: in the steps between, its pages stay as they are.

use super::layers::{LayerRule, StateMode};
use super::plan::KvGroup;
use super::pool::GroupedKv;
use super::table::{BlockTable, PageTables};

impl GroupedKv {
    /// The number of steps, each of one token, after which a request with `computed` tokens takes, gives back or registers a page; 0 if
    /// the next step does. `in_flight` of its tokens, 0 or 1, are those of a step that has not finished when the next one is planned.
    #[must_use]
    pub fn steps_to_event(&self, tables: &PageTables, computed: u32, in_flight: u32) -> u32 {
        let groups = self.layout.groups.iter().zip(&tables.groups);
        let next = groups.map(|(group, table)| self.next_in(group, table, in_flight)).min();
        let steps = next.unwrap_or(u64::MAX).saturating_sub(u64::from(computed));
        u32::try_from(steps).unwrap_or(u32::MAX)
    }

    /// The number of computed tokens with which the next event in `group` comes.
    fn next_in(&self, group: &KvGroup, table: &BlockTable, in_flight: u32) -> u64 {
        let (block, in_flight) = (u64::from(group.block), u64::from(in_flight));
        let takes = u64::from(table.len()) * block;
        // The last token of a block is known one step later if its step is still in flight.
        let fills = (u64::from(table.registered) + 1) * block - (1 - in_flight);
        let fills = if self.settings.caching { fills } else { u64::MAX };
        let leaves = table.first_held().map(|first| (u64::from(first) + 1) * block);
        let drops = leaves.and_then(|end| tokens_that_skip(group.rule, end)).map(|tokens| tokens + in_flight);
        takes.min(fills).min(drops.unwrap_or(u64::MAX))
    }
}

/// The computed tokens from which on no later token reads the first `end` tokens of a request; `None` if all are read for ever.
fn tokens_that_skip(rule: LayerRule, end: u64) -> Option<u64> {
    match rule {
        LayerRule::Full | LayerRule::Latent { .. } | LayerRule::State { mode: StateMode::None, .. } => None,
        LayerRule::Window(window) | LayerRule::LatentWindow(window) => {
            Some((end + u64::from(window)).saturating_sub(1))
        }
        LayerRule::Chunk(chunk) => Some(end.next_multiple_of(u64::from(chunk))),
        LayerRule::State { mode: StateMode::Align, .. } => Some(end + 1),
    }
}
