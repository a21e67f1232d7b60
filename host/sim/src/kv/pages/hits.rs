//! The longest cached prefix: it ends where every group can go on (vLLM's `HybridKVCacheCoordinator`).

use super::layers::LayerRule;
use super::plan::KvGroup;
use super::rules::{PageHit, PageRules, blocks_of_window, is_state};

impl PageRules {
    /// The longest cached prefix of at most `tokens` tokens, if `find` finds the page of a group that ends with so many tokens.
    pub fn look_up(&self, tokens: u32, find: impl Fn(usize, u32) -> Option<u32>) -> PageHit {
        if !self.settings.caching {
            return PageHit::default();
        }
        let most = tokens / self.layout.hit_alignment * self.layout.hit_alignment;
        let groups = || self.layout.groups.iter().enumerate().filter(|(_, group)| group.is_cacheable());
        let mut found = most;
        // Those that hold all tokens first: theirs is a run from the start.
        for (index, group) in groups().filter(|(_, group)| group.rule.holds_all()) {
            found = self.shortened(index, group, &find, found);
        }
        loop {
            let before = found;
            for (index, group) in groups().filter(|(_, group)| !group.rule.holds_all()) {
                found = self.shortened(index, group, &find, found);
            }
            for (index, group) in groups().filter(|(_, group)| group.rule.holds_all()) {
                found = self.shortened(index, group, &find, found);
            }
            if found == before {
                break;
            }
        }
        let alone = || groups().map(|(index, group)| self.shortened(index, group, &find, most)).max();
        let junction = (self.layout.groups.len() > 1).then(alone).flatten().filter(|&alone| alone > found);
        let pages = self.layout.groups.iter().enumerate();
        let pages = pages.map(|(index, group)| self.cached_pages(index, group, &find, found)).collect();
        PageHit { tokens: found, junction, pages }
    }

    /// The longest hit of at most `most` tokens that the group allows.
    fn shortened(&self, index: usize, group: &KvGroup, find: &impl Fn(usize, u32) -> Option<u32>, most: u32) -> u32 {
        let align = self.layout.hit_alignment;
        let found = |tokens: u32| find(index, tokens).is_some();
        let cached = |block: u32| found((block + 1) * group.block);
        match group.rule {
            LayerRule::Full | LayerRule::Latent { .. } => {
                let run = (0..most / group.block).take_while(|&block| cached(block)).count();
                let run = u32::try_from(run).unwrap_or(u32::MAX) * group.block;
                // The end of another prompt may lie inside the next block.
                let further = multiples(most.min(run + group.block - 1), align)
                    .take_while(|&end| end > run)
                    .find(|&end| found(end));
                further.unwrap_or(run / align * align)
            }
            LayerRule::Window(_) | LayerRule::LatentWindow(_) => {
                let before = blocks_of_window(group);
                let complete = |&end: &u32| {
                    let blocks = end / group.block;
                    (blocks.saturating_sub(before)..blocks).rev().all(cached)
                };
                multiples(most, align).find(complete).unwrap_or(0)
            }
            LayerRule::Chunk(chunk) => {
                let first = most / chunk * chunk / group.block;
                let run = (first..most / group.block).take_while(|&block| cached(block)).count();
                let run = first + u32::try_from(run).unwrap_or(u32::MAX);
                (run * group.block).min(most) / align * align
            }
            LayerRule::State { .. } => multiples(most, align).find(|&end| found(end)).unwrap_or(0),
        }
    }

    /// The pages that a hit of `tokens` tokens claims in the group: those that a later token reads.
    fn cached_pages(
        &self,
        index: usize,
        group: &KvGroup,
        find: &impl Fn(usize, u32) -> Option<u32>,
        tokens: u32,
    ) -> Vec<u32> {
        if tokens == 0 || !group.is_cacheable() {
            return Vec::new();
        }
        if is_state(group) {
            return find(index, tokens).into_iter().collect();
        }
        let blocks = tokens / group.block;
        let first = match group.rule {
            LayerRule::Full | LayerRule::Latent { .. } => 0,
            LayerRule::Chunk(chunk) => tokens / chunk * chunk / group.block,
            _ => blocks.saturating_sub(blocks_of_window(group)),
        };
        let ends = (first..blocks).map(|block| (block + 1) * group.block);
        let partial = (!tokens.is_multiple_of(group.block)).then_some(tokens);
        ends.chain(partial).filter_map(|end| find(index, end)).collect()
    }
}

/// The multiples of `align` from `most` down, without 0.
fn multiples(most: u32, align: u32) -> impl Iterator<Item = u32> {
    (1..=most / align).rev().map(move |times| times * align)
}
