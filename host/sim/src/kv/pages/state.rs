//! Pages of recurrent states: a request holds the state at its end, for one step after a block boundary the one before, and where the
//! last chunk of its prompt stores a checkpoint, that. Prompts are cut so that states fall on block boundaries.

use super::layers::StateRule;
use super::plan::KvGroup;
use super::pool::GroupedKv;
use super::rules::{PageDemand, PageRules};
use super::table::{BlockTable, PageTables};

impl PageRules {
    /// The block of the checkpoint that a chunk stores beside its last state, if it stores one: a chunk that ends the prefill goes
    /// past the last block boundary instead of ending there.
    pub(in crate::kv) fn checkpoint_of(
        &self,
        group: &KvGroup,
        rule: StateRule,
        has_page: impl FnOnce(u32) -> bool,
        demand: &PageDemand<'_>,
    ) -> Option<u32> {
        let block = demand.end.div_ceil(group.block).checked_sub(2)?;
        let boundary = self.last_boundary(demand.end);
        let stores = rule.checkpoints > 0
            && demand.end >= demand.prefill_end
            && self.is_valid_checkpoint(group, rule, demand.start, demand.end, boundary)
            && !has_page(block);
        stores.then_some(block)
    }

    /// Whether a chunk from `start` to `end` can store the state at `boundary` on its way.
    fn is_valid_checkpoint(&self, group: &KvGroup, rule: StateRule, start: u32, end: u32, boundary: u32) -> bool {
        let unit = self.layout.hash_block;
        let before = i64::from(start) - 1;
        let last_but_one = i64::from(end.div_ceil(group.block)) - 2;
        start.is_multiple_of(unit)
            && last_but_one > before.div_euclid(i64::from(group.block))
            && start + unit <= boundary
            && boundary < end
            && (boundary - start).is_multiple_of(rule.alignment)
    }

    /// Tokens of a chunk that starts at `demand.start` and would end at `demand.end`, cut so that states fall on block boundaries
    /// (vLLM's `_mamba_block_aligned_split`); 0 if the request waits for a larger chunk. None is larger than `most`, which a batching
    /// policy sets.
    #[must_use]
    pub fn cut_chunk(&self, demand: &PageDemand<'_>, known: u32, junction: Option<u32>, most: u32) -> u32 {
        let states = self.layout.groups.iter().find_map(|group| Some((group, group.rule.of_states()?)));
        let Some((group, rule)) = states.filter(|_| self.settings.caching) else { return demand.end - demand.start };
        let (start, mut end, last) = (demand.start, demand.end, demand.prefill_end);
        if start >= last {
            return end - start; // decode
        }
        let block = group.block;
        if end < last {
            let aligned = end / block * block;
            if aligned > start || block <= self.settings.longest_chunk.min(most) {
                end = aligned;
            }
        }
        if end <= start {
            return 0;
        }
        let inside = |stop: &u32| start < *stop && *stop < end;
        let junction = junction.filter(|&junction| junction > start);
        let junction = junction.map(|junction| start + (junction - start) / block * block).filter(inside);
        let stores = rule.checkpoints > 0
            && end >= last
            && self.is_valid_checkpoint(group, rule, start, end, self.last_boundary(last));
        if stores {
            return junction.unwrap_or(end) - start;
        }
        let next_boundary = (!start.is_multiple_of(block)).then(|| start.div_ceil(block) * block);
        let last_boundary = Some(known.saturating_sub(1) / block * block);
        let unit = self.layout.hash_block;
        let is_fine = self.layout.hit_alignment < self.layout.scheduler_block;
        let prompt_end = is_fine.then(|| demand.request.input_tokens.saturating_sub(1) / unit * unit);
        let stops = [next_boundary, last_boundary, prompt_end, junction];
        let stop = stops.into_iter().flatten().filter(inside).min();
        stop.unwrap_or(end) - start
    }
}

impl GroupedKv {
    /// Whether the last state can be found: it is that of the end of a prompt, inside its block.
    pub(super) fn keeps_last(&self, table: &BlockTable) -> bool {
        table.last().is_some_and(|page| self.has_hash(page))
    }

    /// The table grows to `blocks` blocks: the last has the state at the end, and `checkpoint` the one at its end.
    pub(super) fn grow_states(&mut self, table: &mut BlockTable, blocks: u32, checkpoint: Option<u32>) {
        if table.len() >= blocks {
            if self.keeps_last(table) {
                // Of the state that can be found a copy is made in this step.
                let copy = self.take_page();
                if let Some(kept) = table.replace_last(copy) {
                    self.copies(kept);
                }
            }
            return; // otherwise the state stays in its page
        }
        while table.len() + 1 + u32::from(checkpoint.is_some()) < blocks {
            table.push_null();
        }
        while table.len() < blocks {
            let page = self.take_page();
            table.push(page);
        }
    }

    /// Where `tables` keep states because another prompt forks off there.
    #[must_use]
    pub fn junction(tables: &PageTables) -> Option<u32> {
        tables.junction
    }
}
