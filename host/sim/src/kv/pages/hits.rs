//! The longest cached prefix: it ends where every group can go on (vLLM's `HybridKVCacheCoordinator`).

use super::layers::LayerRule;
use super::plan::KvGroup;
use super::rules::{PageHit, PageRules, blocks_of_window, is_state};
use crate::numbers::count;

impl PageRules {
    /// The longest cached prefix of at most `tokens` tokens, if `find` finds the page of a group that ends with so many tokens, and `run`
    /// those of the first blocks of a group, up to the first that is not cached.
    pub fn look_up(
        &self,
        tokens: u32,
        find: impl Fn(usize, u32) -> Option<u32>,
        run: impl Fn(usize, u32) -> Vec<u32>,
    ) -> PageHit {
        if !self.settings.caching {
            return PageHit::default();
        }
        let most = tokens / self.layout.hit_alignment * self.layout.hit_alignment;
        let look_up = LookUp::new(self, most, find, run);
        let groups = || self.layout.groups.iter().enumerate().filter(|(_, group)| group.is_cacheable());
        let mut found = most;
        // Those that hold all tokens first: theirs is a run from the start.
        for (index, group) in groups().filter(|(_, group)| group.rule.holds_all()) {
            found = look_up.shortened(index, group, found);
        }
        loop {
            let before = found;
            for (index, group) in groups().filter(|(_, group)| !group.rule.holds_all()) {
                found = look_up.shortened(index, group, found);
            }
            for (index, group) in groups().filter(|(_, group)| group.rule.holds_all()) {
                found = look_up.shortened(index, group, found);
            }
            if found == before {
                break;
            }
        }
        let alone = || groups().map(|(index, group)| look_up.shortened(index, group, most)).max();
        let junction = (self.layout.groups.len() > 1 && found < most).then(alone).flatten();
        let pages = self.layout.groups.iter().enumerate();
        let pages = pages.map(|(index, group)| look_up.cached_pages(index, group, found)).collect();
        PageHit { tokens: found, junction: junction.filter(|&alone| alone > found), pages }
    }
}

/// What is cached of one request.
struct LookUp<'a, F> {
    rules: &'a PageRules,
    find: F,
    /// Of each group that holds all tokens: the pages of its leading cached blocks.
    runs: Vec<Vec<u32>>,
}

impl<'a, F: Fn(usize, u32) -> Option<u32>> LookUp<'a, F> {
    /// Of the first `most` tokens.
    fn new(rules: &'a PageRules, most: u32, find: F, run: impl Fn(usize, u32) -> Vec<u32>) -> Self {
        let of_group = |(index, group): (usize, &KvGroup)| match group.rule.holds_all() {
            true => run(index, most / group.block),
            false => Vec::new(),
        };
        let runs = rules.layout.groups.iter().enumerate().map(of_group).collect();
        Self { rules, find, runs }
    }

    /// The longest hit of at most `most` tokens that the group allows.
    fn shortened(&self, index: usize, group: &KvGroup, most: u32) -> u32 {
        let align = self.rules.layout.hit_alignment;
        let found = |tokens: u32| (self.find)(index, tokens).is_some();
        let cached = |block: u32| found((block + 1) * group.block);
        match group.rule {
            LayerRule::Full | LayerRule::Latent { .. } => {
                let run = count(self.runs[index].len()).min(most / group.block) * group.block;
                if !self.rules.is_fine() {
                    return run / align * align;
                }
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
                let run = first + count(run);
                (run * group.block).min(most) / align * align
            }
            LayerRule::State { .. } => multiples(most, align).find(|&end| found(end)).unwrap_or(0),
        }
    }

    /// The pages that a hit of `tokens` tokens claims in the group: those that a later token reads.
    fn cached_pages(&self, index: usize, group: &KvGroup, tokens: u32) -> Vec<u32> {
        if tokens == 0 || !group.is_cacheable() {
            return Vec::new();
        }
        let find = |end: u32| (self.find)(index, end);
        if is_state(group) {
            return find(tokens).into_iter().collect();
        }
        let blocks = tokens / group.block;
        let partial = (!tokens.is_multiple_of(group.block)).then_some(tokens);
        if group.rule.holds_all() {
            let run = self.runs[index].iter().copied().take(blocks as usize);
            return run.chain(partial.and_then(find)).collect();
        }
        let first = match group.rule {
            LayerRule::Chunk(chunk) => tokens / chunk * chunk / group.block,
            _ => blocks.saturating_sub(blocks_of_window(group)),
        };
        let ends = (first..blocks).map(|block| (block + 1) * group.block);
        ends.chain(partial).filter_map(find).collect()
    }
}

/// The pages of the first blocks, at most `blocks`, up to the first that `find` does not find.
pub fn leading_pages(blocks: u32, mut find: impl FnMut(u32) -> Option<u32>) -> Vec<u32> {
    let mut pages = Vec::with_capacity(blocks as usize);
    for block in 0..blocks {
        let Some(page) = find(block) else { break };
        pages.push(page);
    }
    pages
}

/// The multiples of `align` from `most` down, without 0.
fn multiples(most: u32, align: u32) -> impl Iterator<Item = u32> {
    (1..=most / align).rev().map(move |times| times * align)
}
