//! What the groups need, register, find and give back, whatever the pool: `reference/memory.md` §3. Of a state see [`super::state`].

use super::layers::LayerRule;
use super::plan::{KvGroup, KvLayout};
use crate::ids::RequestId;
use crate::request::{BlockKey, Request};

/// The groups of a model, and how a pool treats them.
#[derive(Clone, Debug)]
pub struct PageRules {
    /// The groups, in the order in which they take pages.
    pub layout: KvLayout,
    /// What the flags of a server decide beside them.
    pub settings: PagePoolSettings,
}

/// What the pool does beside the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePoolSettings {
    /// Whether blocks can be found again.
    pub caching: bool,
    /// Windows and states are kept at multiples of so many tokens, beside the end of a prompt and where prompts fork; 0 only
    /// there, `None` at every boundary (vLLM's `prefix_cache_retention_interval`).
    pub retention: Option<u32>,
    /// Most tokens of a request.
    pub max_model_len: u32,
    /// Tokens of the steps in flight, as in [`super::StartLimits`].
    pub tokens_in_flight: u64,
    /// Most tokens of one chunk of a prompt, as the flags set it: with it blocks of states are compared.
    pub longest_chunk: u32,
}

/// Content of a block, with everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageHash {
    Shared {
        group: u16,
        key: BlockKey,
    },
    /// Hash block `index` of request `id`, which no other request has.
    Own {
        group: u16,
        id: RequestId,
        index: u32,
    },
}

/// The cached pages that a request would claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageHit {
    /// Leading tokens that need not be computed.
    pub tokens: u32,
    /// Where a group alone would have hit further.
    pub junction: Option<u32>,
    /// Per group: the pages of its last cached blocks, up to the end of the hit.
    pub(in crate::kv) pages: Vec<Vec<u32>>,
}

/// Tokens of a request that shall have pages.
#[derive(Clone, Copy, Debug)]
pub struct PageDemand<'a> {
    /// The request with its content.
    pub request: &'a Request,
    /// Tokens that it has before this step, hits included.
    pub start: u32,
    /// Tokens that it has after this step.
    pub end: u32,
    /// Tokens of which the content is known: blocks up to there get hashes.
    pub known: u32,
    /// End of its prefill: the prompt, and after a preemption all its tokens but the last.
    pub prefill_end: u32,
    /// Tokens of the steps that have finished: what lies before their windows is given back.
    pub finished: u32,
}

/// The block table of a request in one group.
pub(in crate::kv) trait HeldTable {
    /// Number of blocks, those without a page included.
    fn blocks(&self) -> u32;
    /// Whether block `block` has a page.
    fn has_page(&self, block: u32) -> bool;
}

/// What counts in one group beside its table.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::kv) struct HitOfGroup {
    /// Tokens that are found, of a request that enters.
    pub tokens: u32,
    /// Pages of them that no request holds.
    pub claimed: u32,
    /// Whether the last page of the table can be found.
    pub keeps_last: bool,
}

impl PageRules {
    /// Pages that the demand takes from the free ones in `group`, of which it has a table of `held` blocks; without one, those behind a
    /// hit of `hit` tokens, and the `claimed` free pages of that.
    pub(in crate::kv) fn needs_in(
        &self,
        group: &KvGroup,
        table: Option<&impl HeldTable>,
        demand: &PageDemand<'_>,
        hit: &HitOfGroup,
        capped: bool,
    ) -> u32 {
        let partial = u32::from(!hit.tokens.is_multiple_of(group.block));
        if let Some(rule) = group.rule.of_states() {
            let has_page = |block| table.is_some_and(|table| table.has_page(block));
            let checkpoint = self.checkpoint_of(group, rule, has_page, demand);
            let held = table.map_or(hit.tokens.div_ceil(group.block), HeldTable::blocks);
            let grows = demand.end.div_ceil(group.block) > held;
            // Of a state that can be found a copy is made.
            let grown = if grows { 1 + u32::from(checkpoint.is_some()) } else { u32::from(hit.keeps_last) };
            return hit.claimed + partial + grown;
        }
        let required = self.required(group, demand.end, capped);
        match table {
            Some(table) => required.saturating_sub(table.blocks()),
            None => {
                let skipped = skipped_tokens(group, hit.tokens) / group.block;
                required.saturating_sub(skipped.max(hit.tokens.div_ceil(group.block))) + hit.claimed + partial
            }
        }
    }

    /// Blocks for `tokens` tokens; `capped` to what a window or chunk and the tokens in flight hold at most.
    fn required(&self, group: &KvGroup, tokens: u32, capped: bool) -> u32 {
        let required = tokens.div_ceil(group.block);
        let PagePoolSettings { tokens_in_flight, max_model_len, .. } = self.settings;
        let within = |held: u64| {
            let held = held.min(u64::from(max_model_len)).div_ceil(u64::from(group.block));
            u32::try_from(held).unwrap_or(u32::MAX)
        };
        match group.rule {
            _ if !capped => required,
            LayerRule::Window(window) | LayerRule::LatentWindow(window) => {
                let held = u64::from(window.saturating_sub(1)).saturating_add(tokens_in_flight);
                required.min(within(held).saturating_add(1))
            }
            LayerRule::Chunk(chunk) => required.min(within(u64::from(chunk).saturating_add(tokens_in_flight))),
            _ => required,
        }
    }

    /// Whether a hit may end inside a block.
    pub fn is_fine(&self) -> bool {
        self.layout.hit_alignment < self.layout.scheduler_block
    }

    /// The last token before the end of `tokens` tokens after which a hit may end.
    pub fn last_boundary(&self, tokens: u32) -> u32 {
        tokens.saturating_sub(1) / self.layout.hit_alignment * self.layout.hit_alignment
    }

    /// As [`Self::kept`], of a window and without a junction: the blocks from the first up to the second, if only those before the end of the
    /// prompt are kept, and hits end at no other multiple.
    pub(in crate::kv) fn kept_before_end(&self, group: &KvGroup, prompt: u32) -> Option<(u32, u32)> {
        let boundary = self.last_boundary(prompt);
        let first = boundary.div_ceil(group.block).saturating_sub(blocks_of_window(group));
        let only_there = self.settings.retention == Some(0) && self.layout.hit_alignment == self.layout.scheduler_block;
        only_there.then_some((first, boundary / group.block))
    }

    /// The tokens up to the checkpoint of a state that a request keeps in block `block` of `group`, if the first `tokens` tokens are known and it
    /// is among `kept`.
    pub(in crate::kv) fn checkpoint_end(
        &self,
        group: &KvGroup,
        block: u32,
        tokens: u32,
        kept: &RegisteredBlocks,
    ) -> Option<u32> {
        let end = self.last_boundary(tokens);
        // What is read from another instance has no checkpoint on the way.
        (end > block * group.block && kept.ends.contains(&Some(end))).then_some(end)
    }

    /// Which blocks of a prompt of `prompt` tokens are registered in `group`.
    pub(in crate::kv) fn kept(&self, group: &KvGroup, prompt: u32, junction: Option<u32>) -> RegisteredBlocks {
        let multiple = self.layout.scheduler_block;
        let boundary = prompt.saturating_sub(1) / multiple * multiple;
        RegisteredBlocks {
            all: group.rule.holds_all() || matches!(group.rule, LayerRule::Chunk(_)),
            block: group.block,
            before: blocks_of_window(group),
            ends: [Some(boundary), junction, Some(self.last_boundary(prompt))],
            interval: match self.settings.retention {
                Some(0) => None,
                Some(interval) => Some(interval),
                None if is_state(group) => Some(group.block),
                None => Some(multiple),
            },
        }
    }
}

/// Which blocks of a group are registered when they are full.
pub struct RegisteredBlocks {
    all: bool,
    block: u32,
    /// Blocks before a boundary that are needed there.
    before: u32,
    /// Boundaries at which windows and states are kept, tokens.
    pub ends: [Option<u32>; 3],
    /// Further boundaries at multiples of so many tokens.
    interval: Option<u32>,
}

impl RegisteredBlocks {
    pub fn keeps(&self, block: u32) -> bool {
        let (from, to) = (block * self.block, (block + 1) * self.block);
        let covers = |end: u32| to <= end && end <= from.saturating_add(self.before.saturating_mul(self.block));
        self.all
            || self.ends.into_iter().flatten().any(covers)
            || self.interval.is_some_and(|interval| covers(to.div_ceil(interval).saturating_mul(interval)))
    }
}

/// Blocks that a hit at a boundary reads before it.
pub fn blocks_of_window(group: &KvGroup) -> u32 {
    group.rule.window().map_or(1, |window| window.saturating_sub(1).div_ceil(group.block))
}

pub fn is_state(group: &KvGroup) -> bool {
    matches!(group.rule, LayerRule::State { .. })
}

/// Leading tokens that nothing reads any more when `computed` tokens are computed.
pub fn skipped_tokens(group: &KvGroup, computed: u32) -> u32 {
    match group.rule {
        LayerRule::Full | LayerRule::Latent { .. } | LayerRule::State { mode: super::StateMode::None, .. } => 0,
        LayerRule::Window(window) | LayerRule::LatentWindow(window) => (computed + 1).saturating_sub(window),
        LayerRule::Chunk(chunk) => computed / chunk * chunk,
        LayerRule::State { mode: super::StateMode::Align, .. } => computed.saturating_sub(1),
    }
}

/// The hash of hash block `index` of `request` in `group`.
pub fn hash_of(request: &Request, group: usize, index: u32) -> PageHash {
    let group = u16::try_from(group).unwrap_or(u16::MAX);
    let mut skip = index;
    for span in request.content.spans() {
        if skip < span.len {
            return PageHash::Shared { group, key: span.first + skip };
        }
        skip -= span.len;
    }
    PageHash::Own { group, id: request.id, index }
}
