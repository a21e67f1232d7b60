//! Pages of groups for the fast engine: as [`GroupedKv`](super::pages::GroupedKv), without the identity of pages that no request can look
//! up.
//!
//! Most pages have content that no other request shares: only their number matters. The queue of free pages ([`queue`]) has nodes for the
//! others, and a block table ([`table`]) is a list of runs of pages and of pages with nodes. A group that holds all tokens does not note the
//! hashes of blocks that only its own request could find again, and a window only their range: they get them when the request is preempted.
//! Between the first step in which a request decodes and the last its tables may stay behind: its pages are counted
//! (`instance::fast::page_cycle`).

mod by_hash;
mod queue;
mod table;

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::ops::Range;

use self::by_hash::PagesByHash;
use self::queue::PageQueue;
use self::table::{PartTable, TablePart};
use super::paged::NONE;
use super::pages::{
    HeldTable as _, HitOfGroup, KvGroup, LayerRule, PageDemand, PageHash, PageHit, PageRules, StateMode,
    blocks_of_window, hash_of, is_state, leading_pages, skipped_tokens,
};
use crate::numbers::count;
use crate::request::{BlockKey, Request};

/// The number of the pages of one request.
pub(crate) type PagesNumber = NonZeroU32;

/// The pages of one request, and what the engine has to know of their future.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldPages {
    groups: Vec<PartTable>,
    /// Where another prompt was seen to fork off, tokens: windows and states are kept there.
    pub junction: Option<u32>,
    /// The step in which it needs the pool next, while it decodes.
    pub next_event: u64,
    /// Whether its pages come and go with the steps of the block, and its tables stay behind meanwhile.
    pub is_counted: bool,
    /// Its tokens that the last step computed, if it was in prefill.
    pub in_flight: u32,
    /// The first step in which it decodes.
    pub decodes_from: u64,
    /// How many requests had these tables before.
    turn: u32,
    /// Whether no page has its own content yet: it was not preempted.
    is_first: bool,
    /// Whether pages that it could look up have left its windows.
    left_own: bool,
}

/// A page that left the window of a request, which finds it again if it is preempted while the page is free.
#[derive(Clone, Copy, Debug)]
struct LeftPage {
    /// In the queue of free pages.
    number: u64,
    request: PagesNumber,
    turn: u32,
    group: u32,
    block: u32,
}

/// Least number of pages that left windows at which those are dropped that no request can look up.
const LEFT_PAGES: usize = 512;

/// The pages of one instance, and the requests that hold some.
#[derive(Clone, Debug)]
pub(crate) struct FastPages {
    pub rules: PageRules,
    queue: PageQueue,
    by_hash: PagesByHash,
    /// In the order of their numbers. Includes those of requests that ended since.
    left: VecDeque<LeftPage>,
    /// Those of them that are not in the queue yet.
    leaving: u32,
    /// Number of `left` at which to drop those of requests that ended, and those that were taken.
    compact_at: usize,
    /// Pages that are copied in this step, and held until it is planned.
    copied: Vec<u32>,
    step: u64,
    /// Whether all groups hold all tokens or those of a window, and hits end at no other multiple than their blocks.
    is_simple: bool,
    /// By number - 1.
    held: Vec<HeldPages>,
    unused: Vec<PagesNumber>,
    pub hits: u64,
    pub misses: u64,
}

impl FastPages {
    /// A pool of `pages` empty pages, the null block not counted.
    pub fn new(rules: PageRules, pages: u32) -> Self {
        let is_simple = |group: &KvGroup| group.rule.holds_all() || group.rule.window() > Some(1);
        let is_simple = rules.layout.groups.iter().all(is_simple) && !rules.is_fine();
        Self {
            is_simple,
            queue: PageQueue::new(pages),
            by_hash: PagesByHash::new(rules.layout.groups.len()),
            rules,
            left: VecDeque::new(),
            leaving: 0,
            compact_at: LEFT_PAGES,
            copied: Vec::new(),
            step: 0,
            held: Vec::new(),
            unused: Vec::new(),
            hits: 0,
            misses: 0,
        }
    }

    /// Number of entries that a clone copies.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.queue.nodes.len() + self.by_hash.len() + self.left.len() + self.held.len() * self.rules.layout.groups.len()
    }

    pub fn free_pages(&self) -> u32 {
        self.queue.len
    }

    pub fn held(&self, number: PagesNumber) -> &HeldPages {
        &self.held[number.get() as usize - 1]
    }

    pub fn held_mut(&mut self, number: PagesNumber) -> &mut HeldPages {
        &mut self.held[number.get() as usize - 1]
    }

    /// A step begins: states that it registers can be found in later ones.
    pub fn begin_step(&mut self) {
        self.step += 1;
    }

    /// A step is planned: pages that it copies are no longer held for that.
    pub fn end_plan(&mut self) {
        if self.copied.is_empty() {
            return;
        }
        let mut copied = std::mem::take(&mut self.copied);
        let mut blank = 0;
        copied.drain(..).for_each(|node| blank += self.release_node(node, false));
        self.queue.prepend_blank(blank);
        self.copied = copied;
    }

    /// Pages that the demand takes from the free ones, as [`GroupedKv::needs`](super::pages::GroupedKv::needs). Of a request without pages
    /// `hit` is what it claims.
    pub fn needs(
        &self,
        number: Option<PagesNumber>,
        demand: &PageDemand<'_>,
        hit: Option<&PageHit>,
        capped: bool,
    ) -> u32 {
        if self.is_simple && !capped && number.is_none() && hit.is_none_or(|hit| hit.tokens == 0) {
            return self.rules.layout.groups.iter().map(|group| demand.end.div_ceil(group.block)).sum();
        }
        let held = number.map(|number| self.held(number));
        let groups = self.rules.layout.groups.iter().enumerate();
        let needs = groups.map(|(index, group)| {
            let table = held.map(|held| &held.groups[index]);
            let hit = HitOfGroup {
                tokens: hit.map_or(0, |hit| hit.tokens),
                claimed: hit.and_then(|hit| hit.pages.get(index)).map_or(0, |pages| self.free_among(pages)),
                keeps_last: table.is_some_and(|table| self.kept_last(table).is_some()),
            };
            self.rules.needs_in(group, table, demand, &hit, capped)
        });
        needs.sum()
    }

    fn free_among(&self, pages: &[u32]) -> u32 {
        count(pages.iter().filter(|&&page| self.queue.nodes[page as usize].count == 0).count())
    }

    /// The last page of `table`, if it can be found.
    fn kept_last(&self, table: &PartTable) -> Option<u32> {
        match table.parts.back() {
            Some(&TablePart::Page(node)) if self.queue.nodes[node as usize].hash.is_some() => Some(node),
            _ => None,
        }
    }

    /// The cached prefix of the first `tokens` tokens of `request`, which was `preempted` or not.
    pub fn look_up(&self, request: &Request, tokens: u32, preempted: bool) -> PageHit {
        if self.is_simple && !preempted && request.content.shared_blocks() == 0 {
            return PageHit::default(); // nothing of it can be in the cache
        }
        // A chunk counts as cached up to its start, and a window of one token reads no block at all.
        let needs_none = |group: &KvGroup| matches!(group.rule, LayerRule::Chunk(_)) || blocks_of_window(group) == 0;
        let tokens = if preempted || self.rules.layout.groups.iter().any(needs_none) {
            tokens
        } else {
            // Nothing else of it can be in the cache.
            tokens.min(request.content.shared_blocks().saturating_mul(self.rules.layout.hash_block))
        };
        if tokens == 0 {
            return PageHit::default();
        }
        let find = |group: usize, tokens: u32| {
            let index = (tokens / self.rules.layout.hash_block).checked_sub(1)?;
            self.by_hash.get(hash_of(request, group, index))
        };
        self.rules.look_up(tokens, find, |index, blocks| {
            let group = &self.rules.layout.groups[index];
            if preempted || group.block != self.rules.layout.hash_block {
                return leading_pages(blocks, |block| find(index, (block + 1) * group.block));
            }
            let mut keys = request.content.keys();
            leading_pages(blocks, |_| self.by_hash.get_shared(index, keys.next()?))
        })
    }

    /// Whether a state of `hit` was registered in this very step: then the request waits for the next one.
    pub fn is_too_new(&self, hit: &PageHit) -> bool {
        let states = self.rules.layout.groups.iter().zip(&hit.pages).filter(|(group, _)| is_state(group));
        states.flat_map(|(_, pages)| pages).any(|&page| self.queue.nodes[page as usize].step == self.step)
    }

    /// Tokens of the chunk of `demand`, as [`PageRules::cut_chunk`].
    pub fn cut_chunk(&self, demand: &PageDemand<'_>, known: u32, junction: Option<u32>, most: u32) -> u32 {
        if self.is_simple {
            return demand.end - demand.start;
        }
        self.rules.cut_chunk(demand, known, junction, most)
    }

    /// A request that holds nothing yet, and was `preempted` or not, takes its first pages. There must be enough free ones.
    pub fn enter(&mut self, demand: &PageDemand<'_>, hit: &PageHit, preempted: bool) -> PagesNumber {
        let number = self.unused.pop().unwrap_or_else(|| {
            let groups = vec![PartTable::default(); self.rules.layout.groups.len()];
            self.held.push(HeldPages { groups, ..HeldPages::default() });
            PagesNumber::new(count(self.held.len())).expect("one was just added")
        });
        let held = self.held_mut(number);
        (held.next_event, held.in_flight, held.decodes_from) = (0, 0, 0);
        (held.junction, held.is_first) = (hit.junction, !preempted);
        let finds_none = hit.tokens == 0 && hit.junction.is_none() && demand.request.content.shared_blocks() == 0;
        if self.is_simple && finds_none && !preempted && self.rules.settings.retention == Some(0) {
            self.enter_alone(number, demand);
            return number;
        }
        let mut held = std::mem::take(self.held_mut(number));
        self.claim(&mut held, demand.request, hit);
        self.take(&mut held, demand, hit.tokens);
        *self.held_mut(number) = held;
        number
    }

    /// As [`Self::enter`], of a request that shares nothing with others.
    fn enter_alone(&mut self, number: PagesNumber, demand: &PageDemand<'_>) {
        let Self { rules, held, .. } = self;
        let known = if rules.settings.caching { demand.end.min(demand.known) } else { 0 };
        let mut pages = 0;
        for (group, table) in rules.layout.groups.iter().zip(&mut held[number.get() as usize - 1].groups) {
            let blocks = demand.end.div_ceil(group.block);
            table.push(TablePart::Run(blocks));
            pages += blocks;
            table.registered = known / group.block;
            if group.rule.window().is_some()
                && let Some((from, to)) = rules.kept_before_end(group, demand.request.input_tokens)
                && from < to.min(table.registered)
            {
                table.own = (from, to.min(table.registered));
            }
        }
        self.take_pages(pages);
    }

    /// The tables begin with the cached pages. Those of which only a part is hit are copied.
    fn claim(&mut self, held: &mut HeldPages, request: &Request, hit: &PageHit) {
        for (index, pages) in hit.pages.iter().enumerate() {
            let group = self.rules.layout.groups[index];
            let blocks = hit.tokens / group.block;
            let skipped = skipped_tokens(&group, hit.tokens) / group.block;
            let is_partial = !hit.tokens.is_multiple_of(group.block) && !pages.is_empty();
            let (pages, part) = pages.split_at(pages.len() - usize::from(is_partial));
            let table = &mut held.groups[index];
            if group.rule.holds_all() {
                pages.iter().for_each(|&node| self.touch(node));
                table.claimed.extend_from_slice(pages);
                table.len = blocks;
            } else {
                let before = blocks - count(pages.len());
                table.push(TablePart::Null(before));
                for (&node, block) in pages.iter().zip(before..) {
                    // A look-up may find blocks that no token of this request will read.
                    if block < skipped && !is_state(&group) {
                        table.push(TablePart::Null(1));
                        continue;
                    }
                    table.push(TablePart::Page(node));
                    self.touch(node);
                }
            }
            table.registered = blocks;
            // A block behind the end of the prompt has the hash of all its tokens.
            table.end_registered = self.rules.last_boundary(request.input_tokens) < hit.tokens;
            part.iter().for_each(|&node| self.touch(node));
            self.copied.extend_from_slice(part);
        }
        self.hits += u64::from(hit.tokens);
    }

    /// Gives back what no later token of the request reads.
    pub fn drop_unread(&mut self, number: PagesNumber, finished: u32) {
        let mut held = std::mem::take(self.held_mut(number));
        self.drop_of(number, &mut held, finished);
        *self.held_mut(number) = held;
    }

    /// A request takes further pages. There must be enough free ones.
    pub fn extend(&mut self, number: PagesNumber, demand: &PageDemand<'_>) {
        let mut held = std::mem::take(self.held_mut(number));
        self.drop_of(number, &mut held, demand.finished);
        self.take(&mut held, demand, 0);
        *self.held_mut(number) = held;
    }

    /// The first `tokens` tokens of a request are known: full blocks get hashes.
    pub fn register(&mut self, number: PagesNumber, request: &Request, tokens: u32) {
        let has_more = |(group, table): (&KvGroup, &PartTable)| tokens / group.block > table.registered;
        let tables = &self.held(number).groups;
        if !self.rules.is_fine() && !self.rules.layout.groups.iter().zip(tables).any(has_more) {
            return; // no further block is full
        }
        let mut held = std::mem::take(self.held_mut(number));
        self.register_of(&mut held, request, tokens, None);
        *self.held_mut(number) = held;
    }

    fn drop_of(&mut self, number: PagesNumber, held: &mut HeldPages, finished: u32) {
        for (index, table) in held.groups.iter_mut().enumerate() {
            let group = self.rules.layout.groups[index];
            let block = skipped_tokens(&group, finished) / group.block;
            if block > table.skipped && !table.parts.is_empty() {
                held.left_own |= self.drop_of_table(number, held.turn, index, table, block);
            }
        }
    }

    /// Gives back the pages of the blocks before `block`, the youngest first. Returns whether the request could look up some of them.
    fn drop_of_table(
        &mut self,
        number: PagesNumber,
        turn: u32,
        group: usize,
        table: &mut PartTable,
        block: u32,
    ) -> bool {
        let (mut blank, mut has_own) = (0, false);
        let mut pages = Vec::new();
        let own = table.own;
        table.drop_before(block, |part, start| match part {
            TablePart::Run(blocks) => {
                let (from, to) = (own.0.clamp(start, start + blocks), own.1.clamp(start, start + blocks));
                blank += blocks - to.saturating_sub(from);
                if from < to {
                    pages.push(Err((from, to)));
                }
            }
            TablePart::Page(node) => pages.push(Ok(node)),
            TablePart::Null(_) => {}
        });
        for page in pages.into_iter().rev() {
            match page {
                Ok(node) => blank += self.release_node(node, false),
                Err(own) => {
                    has_own = true;
                    (own.0..own.1).rev().for_each(|block| self.leaves(number, turn, group, block));
                    self.give_left(0);
                }
            }
        }
        self.queue.prepend_blank(blank);
        has_own
    }

    /// The page of block `block`, which only its request can look up, leaves the window, as soon as [`Self::give_left`] is called.
    #[inline]
    pub fn leaves(&mut self, request: PagesNumber, turn: u32, group: usize, block: u32) {
        if self.left.len() >= self.compact_at {
            self.forget_left();
        }
        let number = self.queue.next_number() + u64::from(self.leaving);
        self.leaving += 1;
        self.left.push_back(LeftPage { number, request, turn, group: count(group), block });
    }

    /// Drops the pages that left windows and that no request can look up any more.
    #[cold]
    fn forget_left(&mut self) {
        let mut left = std::mem::take(&mut self.left);
        let next = self.queue.next_number();
        let is_free = |page: &LeftPage| page.number >= next || self.queue.contains(page.number);
        left.retain(|page| self.held(page.request).turn == page.turn && is_free(page));
        self.compact_at = (2 * left.len()).max(LEFT_PAGES);
        self.left = left;
    }

    /// Gives back the pages that leave, in their order, and `blank` pages without a hash.
    #[inline]
    pub fn give_left(&mut self, blank: u32) {
        if self.leaving > 0 {
            self.queue.append_run(std::mem::take(&mut self.leaving));
        }
        self.queue.prepend_blank(blank);
    }

    /// Takes the pages of `demand`, of which the first `hit` tokens are claimed, and registers the blocks that it fills.
    fn take(&mut self, held: &mut HeldPages, demand: &PageDemand<'_>, hit: u32) {
        let (mut pages, mut checkpoint) = (0, None);
        for (index, table) in held.groups.iter_mut().enumerate() {
            let group = self.rules.layout.groups[index];
            let blocks = demand.end.div_ceil(group.block);
            if !hit.is_multiple_of(group.block) {
                // Its tokens follow inside the block: it writes to a copy.
                table.push(TablePart::Run(1));
                pages += 1;
            }
            let Some(rule) = group.rule.of_states() else {
                let more = blocks.saturating_sub(table.len);
                table.push(TablePart::Run(more));
                pages += more;
                continue;
            };
            // All groups of states have equal blocks, and store the same checkpoint.
            checkpoint = self.rules.checkpoint_of(&group, rule, |block| table.has_page(block), demand);
            if table.len < blocks {
                let states = 1 + u32::from(checkpoint.is_some());
                table.push(TablePart::Null(blocks.saturating_sub(states).saturating_sub(table.len)));
                let more = blocks - table.len;
                table.push(TablePart::Run(more));
                pages += more;
            } else if let Some(kept) = self.kept_last(table) {
                // Of the state that can be found a copy is made in this step.
                table.parts.pop_back();
                table.len -= 1;
                table.push(TablePart::Run(1));
                pages += 1;
                self.queue.nodes[kept as usize].step = self.step;
                self.copied.push(kept);
            }
        }
        self.take_pages(pages);
        self.register_of(held, demand.request, demand.end.min(demand.known), checkpoint);
    }

    /// Registers the blocks of the first `tokens` tokens that the rules of retention keep. Block `checkpoint` of the states was stored on
    /// the way: it is kept only where the prompt may be found again.
    fn register_of(&mut self, held: &mut HeldPages, request: &Request, tokens: u32, checkpoint: Option<u32>) {
        if !self.rules.settings.caching {
            return;
        }
        let is_fine = self.rules.is_fine();
        for (index, table) in held.groups.iter_mut().enumerate() {
            let group = self.rules.layout.groups[index];
            let full = tokens / group.block;
            let first = table.registered;
            let checkpoint = checkpoint.filter(|_| is_state(&group));
            if full <= first && checkpoint.is_none() && !is_fine {
                continue; // no further block is full
            }
            table.registered = full.max(first);
            if group.rule.holds_all() {
                self.register_all(table, index, request, first, full);
            } else {
                if !is_fine
                    && held.junction.is_none()
                    && group.rule.window().is_some()
                    && let Some((from, to)) = self.rules.kept_before_end(&group, request.input_tokens)
                {
                    // Nothing was registered inside these blocks that would have to be forgotten.
                    self.hash_run(table, index, request, held.is_first, from.max(first)..to.min(full));
                    continue;
                }
                let kept = self.rules.kept(&group, request.input_tokens, held.junction);
                for block in first..full {
                    if checkpoint != Some(block) && kept.keeps(block) {
                        self.hash_block(table, index, request, block, (block + 1) * group.block);
                    } else {
                        self.write_over(table, block);
                    }
                }
                if let Some(block) = checkpoint
                    && let Some(end) = self.rules.checkpoint_end(&group, block, tokens, &kept)
                {
                    self.hash_block(table, index, request, block, end);
                }
            }
            if is_fine {
                self.register_end(table, index, request, tokens);
            }
        }
    }

    /// Registers the blocks `first..full` of a group that holds all tokens: those that other requests can find, and those that the end of a
    /// prompt is in.
    fn register_all(&mut self, table: &mut PartTable, index: usize, request: &Request, first: u32, full: u32) {
        let group = self.rules.layout.groups[index];
        let shared = self.shared_blocks(&group, request);
        for block in first..full.min(shared) {
            self.hash_block(table, index, request, block, (block + 1) * group.block);
        }
        if table.end_registered {
            let end = self.rules.last_boundary(request.input_tokens) / group.block;
            if (first.max(shared)..full).contains(&end) {
                self.hash_block(table, index, request, end, (end + 1) * group.block);
            }
        }
    }

    /// Leading blocks of `group` that other requests may have, too.
    fn shared_blocks(&self, group: &KvGroup, request: &Request) -> u32 {
        request.content.shared_blocks() / (group.block / self.rules.layout.hash_block)
    }

    /// Registers the end of a prompt inside a block, where hits may end.
    fn register_end(&mut self, table: &mut PartTable, index: usize, request: &Request, tokens: u32) {
        let group = self.rules.layout.groups[index];
        let end = self.rules.last_boundary(request.input_tokens);
        let inside = !end.is_multiple_of(group.block) && !table.end_registered;
        // A state is that of the end only in the step that stops there.
        let reached = if is_state(&group) { tokens == end } else { tokens >= end };
        if inside && reached && table.has_page(end / group.block) {
            table.end_registered = true;
            self.hash_block(table, index, request, end / group.block, end);
        }
    }

    /// The blocks of `run` can be found. Of those that no other request can find, of a request `is_first`
    /// that was not preempted, only the range is noted.
    fn hash_run(&mut self, table: &mut PartTable, group: usize, request: &Request, is_first: bool, run: Range<u32>) {
        let Range { start: from, end: to } = run;
        let size = self.rules.layout.groups[group].block;
        let shared = self.shared_blocks(&self.rules.layout.groups[group], request);
        let own = if is_first { from.max(shared) } else { to };
        for block in from..own.min(to) {
            self.hash_block(table, group, request, block, (block + 1) * size);
        }
        if own >= to {
            return;
        }
        if table.own.1 <= table.skipped || table.own.1 == own {
            let before = table.own;
            table.own = (if before.1 == own { before.0 } else { own }, to);
        } else {
            (own..to).for_each(|block| self.hash_block(table, group, request, block, (block + 1) * size));
        }
    }

    /// Block `block` can be found by the first `tokens` tokens of `request`, if it has a page.
    fn hash_block(&mut self, table: &mut PartTable, group: usize, request: &Request, block: u32, tokens: u32) {
        let Some((index, offset)) = table.locate(block) else { return };
        let hash = hash_of(request, group, tokens / self.rules.layout.hash_block - 1);
        let node = match table.parts[index] {
            TablePart::Null(_) => return,
            TablePart::Page(node) => node,
            TablePart::Run(_) => {
                let node = self.queue.page();
                table.replace(index, offset, TablePart::Page(node));
                node
            }
        };
        if let Some(before) = self.queue.nodes[node as usize].hash {
            self.by_hash.forget(&mut self.queue.nodes, node, before);
        }
        self.enter_hash(node, hash);
    }

    /// The content of block `block` is another one, without a hash.
    fn write_over(&mut self, table: &mut PartTable, block: u32) {
        if let Some(TablePart::Page(node)) = table.page(block)
            && let Some(before) = self.queue.nodes[node as usize].hash.take()
        {
            self.by_hash.forget(&mut self.queue.nodes, node, before);
        }
    }

    /// Gives all pages back: group after group, the last block first. Of a request that has ended; or that was preempted, and may look up its
    /// blocks again. `known` of its tokens are known.
    pub fn release(&mut self, number: PagesNumber, request: Option<&Request>, known: u32) {
        let mut held = std::mem::take(self.held_mut(number));
        if let Some(request) = request.filter(|_| held.left_own) {
            self.name_left(number, held.turn, request);
        }
        for (index, table) in held.groups.iter_mut().enumerate() {
            let group = self.rules.layout.groups[index];
            if self.rules.settings.caching && group.rule.holds_all() {
                table.registered = table.registered.max(known / group.block);
                table.own = (0, table.registered);
            }
            if let Some(request) = request {
                self.name_own(table, index, request);
            }
            self.release_table(table, request.is_none());
        }
        (held.junction, held.left_own) = (None, false);
        held.turn = held.turn.wrapping_add(1);
        *self.held_mut(number) = held;
        self.unused.push(number);
    }

    /// The pages that left the windows of a request, which was preempted, can be found from now on, if they are free.
    fn name_left(&mut self, number: PagesNumber, turn: u32, request: &Request) {
        let left = std::mem::take(&mut self.left);
        let is_of = |page: &LeftPage| page.request == number && page.turn == turn;
        for page in left.iter().filter(|page| is_of(page)) {
            if !self.queue.contains(page.number) {
                continue; // another request has taken it
            }
            let size = self.rules.layout.groups[page.group as usize].block;
            let node = self.queue.page();
            self.queue.nodes[node as usize].count = 0;
            self.queue.name_page(page.number, node);
            let last = (page.block + 1) * size / self.rules.layout.hash_block - 1;
            self.enter_hash(node, hash_of(request, page.group as usize, last));
        }
        self.left = left;
    }

    /// The blocks of runs that the request can look up can be found from now on.
    fn name_own(&mut self, table: &mut PartTable, group: usize, request: &Request) {
        let size = self.rules.layout.groups[group].block;
        let mut parts = VecDeque::with_capacity(table.parts.len());
        let mut start = table.start();
        for part in std::mem::take(&mut table.parts) {
            let end = start + part.blocks();
            let (from, to) = (table.own.0.clamp(start, end), table.own.1.clamp(start, end));
            if !matches!(part, TablePart::Run(_)) || from >= to {
                parts.push_back(part);
                start = end;
                continue;
            }
            parts.extend((from > start).then_some(TablePart::Run(from - start)));
            for block in from..to {
                let node = self.queue.page();
                self.enter_hash(node, hash_of(request, group, (block + 1) * size / self.rules.layout.hash_block - 1));
                parts.push_back(TablePart::Page(node));
            }
            parts.extend((end > to).then_some(TablePart::Run(end - to)));
            start = end;
        }
        table.parts = parts;
    }

    /// Gives back the pages of a table, the last block first.
    fn release_table(&mut self, table: &mut PartTable, has_ended: bool) {
        let mut blank = 0;
        let mut end = table.len;
        while let Some(part) = table.parts.pop_back() {
            let start = end - part.blocks();
            match part {
                TablePart::Null(_) => {}
                TablePart::Run(blocks) => {
                    let hashed = table.own_in(start, end);
                    blank += blocks - hashed;
                    self.queue.append_run(hashed);
                }
                TablePart::Page(node) => blank += self.release_node(node, has_ended),
            }
            end = start;
        }
        for &node in table.claimed.iter().rev() {
            match &mut self.queue.nodes[node as usize].count {
                // Most prefixes are shared by several requests.
                count if *count > 1 => *count -= 1,
                _ => blank += self.release_node(node, has_ended),
            }
        }
        self.queue.prepend_blank(blank);
        table.clear();
    }

    /// One request fewer holds the page; it is free if that was the last one. If the request `has_ended`, what only it could find is
    /// anonymous. Returns 1 if a page without a hash is to be put in front.
    fn release_node(&mut self, node: u32, has_ended: bool) -> u32 {
        let record = &mut self.queue.nodes[node as usize];
        record.count -= 1;
        if record.count > 0 {
            return 0; // another request holds it
        }
        match record.hash {
            None => {
                self.queue.forget(node);
                return 1;
            }
            Some(hash @ PageHash::Own { .. }) if has_ended => {
                self.by_hash.forget(&mut self.queue.nodes, node, hash);
                self.queue.forget(node);
                self.queue.append_run(1);
            }
            Some(_) => self.queue.append(node),
        }
        0
    }

    /// One more request holds the page.
    fn touch(&mut self, node: u32) {
        if self.queue.nodes[node as usize].count == 0 {
            self.queue.unlink(node);
        }
        self.queue.nodes[node as usize].count += 1;
    }

    /// Takes the next pages, and evicts their content. There must be as many free ones.
    pub fn take_pages(&mut self, pages: u32) {
        self.misses += u64::from(pages);
        let by_hash = &mut self.by_hash;
        self.queue.take(pages, |nodes, node| {
            if let Some(hash) = nodes[node as usize].hash {
                by_hash.forget(nodes, node, hash);
            }
        });
    }

    fn enter_hash(&mut self, node: u32, hash: PageHash) {
        let record = &mut self.queue.nodes[node as usize];
        (record.hash, record.step, record.duplicate) = (Some(hash), self.step, NONE);
        self.by_hash.enter(&mut self.queue.nodes, node, hash);
    }

    /// From now on changes are collected for [`Self::take_changes`].
    pub fn watch(&mut self) {
        self.by_hash.changes.get_or_insert_default();
    }

    /// Calls `each` for every shared key that may have come or gone in the first group since the last call, with its state.
    pub fn take_changes(&mut self, each: &mut dyn FnMut(BlockKey, bool)) {
        let Some(changes) = &mut self.by_hash.changes else { return };
        for key in std::mem::take(changes) {
            each(key, self.finds(key));
        }
    }

    /// Whether the first group has the block of hash `key`.
    pub fn finds(&self, key: BlockKey) -> bool {
        self.by_hash.get(PageHash::Shared { group: 0, key }).is_some()
    }
}

/// Requests of which pages come and go with the steps of a block: `instance::fast::page_cycle`.
impl FastPages {
    /// What `group` holds of a decoding request with `computed` tokens, if it only takes pages from now on, and in a window gives them back.
    pub fn course(&self, number: PagesNumber, group: usize, request: &Request, computed: u32) -> Option<GroupCourse> {
        let (table, group) = (&self.held(number).groups[group], &self.rules.layout.groups[group]);
        if table.len != computed.div_ceil(group.block) || self.may_register(group, table, request) {
            return None;
        }
        if group.rule.holds_all() {
            return Some(GroupCourse::default());
        }
        let shared = count(table.parts.iter().take_while(|part| matches!(part, TablePart::Page(_))).count());
        let mut behind = table.parts.range(shared as usize..);
        let is_run = matches!((behind.next(), behind.next()), (None | Some(TablePart::Run(_)), None));
        let shared = if shared > 0 { table.skipped + shared } else { 0 };
        is_run.then_some(GroupCourse { skipped: table.skipped, own: table.own, shared })
    }

    /// Gives back `pages` pages that no look-up finds.
    pub fn give_blank(&mut self, pages: u32) {
        self.queue.prepend_blank(pages);
    }

    /// How many requests had the tables of `number` before.
    pub fn turn(&self, number: PagesNumber) -> u32 {
        self.held(number).turn
    }

    /// The pages of `number` are counted from now on. If the request `has_own` pages that only it can look up, some may leave its windows.
    pub fn count(&mut self, number: PagesNumber, has_own: bool) {
        let held = self.held_mut(number);
        held.is_counted = true;
        held.left_own |= has_own;
    }

    /// Gives back the pages of the blocks of `group` before `block`, after those that leave at the same time.
    pub fn drop_before(&mut self, number: PagesNumber, group: usize, block: u32) {
        self.give_left(0);
        let held = self.held_mut(number);
        let (turn, mut table) = (held.turn, std::mem::take(&mut held.groups[group]));
        let left_own = self.drop_of_table(number, turn, group, &mut table, block);
        let held = self.held_mut(number);
        held.left_own |= left_own;
        held.groups[group] = table;
    }

    /// Number of pages that can be taken before one that a look-up might find, if it is less than `enough`; otherwise `enough` or more.
    #[inline]
    pub fn unfindable(&mut self, enough: u32) -> u32 {
        let (blank, run) = self.queue.first_run();
        let Some((first, pages)) = run.filter(|_| blank < enough) else { return blank };
        while let Some(page) = self.left.front() {
            if page.number >= first + u64::from(enough) {
                return blank.saturating_add(pages.min(enough));
            }
            if page.number >= first && self.held(page.request).turn == page.turn {
                return blank + pages.min(u32::try_from(page.number - first).unwrap_or(u32::MAX));
            }
            self.left.pop_front(); // it is taken, or its request has ended
        }
        blank + pages
    }

    /// The table of a request in `group` follows what was counted: it has computed `computed` tokens, and `skipped` leading blocks left its
    /// window.
    pub fn settle(&mut self, number: PagesNumber, group: usize, computed: u32, skipped: u32) {
        let block = self.rules.layout.groups[group].block;
        let table = &mut self.held_mut(number).groups[group];
        let more = computed.div_ceil(block).saturating_sub(table.len);
        table.push(TablePart::Run(more));
        if skipped > table.skipped {
            table.drop_before(skipped, |_, _| {});
        }
        // Of what it decoded only the last block may have to be registered.
        table.registered = table.registered.max(table.len.saturating_sub(1));
    }

    /// Pages that a request holds in `group`, which has computed `computed` tokens, with `skipped` leading blocks before its window.
    pub fn held_at(&self, number: PagesNumber, group: usize, computed: u32, skipped: u32) -> u32 {
        let table = &self.held(number).groups[group];
        let more = computed.div_ceil(self.rules.layout.groups[group].block).saturating_sub(table.len);
        table.held() + more - skipped.saturating_sub(table.skipped)
    }

    /// Pages that all tables hold in `group`.
    pub fn all_held_in(&self, group: usize) -> i64 {
        self.held.iter().map(|held| i64::from(held.groups[group].held())).sum()
    }

    /// Pages that a request holds in `group` by its table.
    pub fn held_in(&self, number: PagesNumber, group: usize) -> u32 {
        self.held(number).groups[group].held()
    }
}

/// The pages of a decoding request in a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupCourse {
    /// Leading blocks that left the window.
    pub skipped: u32,
    /// The blocks that only the request could look up, if it was preempted, from the first up to the second.
    pub own: (u32, u32),
    /// End of the leading blocks with nodes; 0 if there are none.
    pub shared: u32,
}

/// When a decoding request needs the pool: in the steps between, its pages stay as they are.
impl FastPages {
    /// The number of steps, each of one token, after which `request` with `computed` tokens takes, gives back or registers a page; 0 if the
    /// next step does. `in_flight` of its tokens, 0 or 1, are those of a step that has not finished when the next one is planned.
    pub fn steps_to_event(&self, number: PagesNumber, request: &Request, computed: u32, in_flight: u32) -> u32 {
        let groups = self.rules.layout.groups.iter().zip(&self.held(number).groups);
        let next = groups.map(|(group, table)| {
            let block = u64::from(group.block);
            let takes = u64::from(table.len) * block;
            let leaves = (!table.parts.is_empty()).then(|| (u64::from(table.skipped) + 1) * block);
            let drops = leaves.and_then(|end| tokens_that_skip(group.rule, end)).map(|end| end + u64::from(in_flight));
            let fills = self.may_register(group, table, request).then(|| {
                // The last token of a block is known one step later if its step is still in flight.
                (u64::from(table.registered) + 1) * block - u64::from(1 - in_flight)
            });
            [Some(takes), drops, fills].into_iter().flatten().min().unwrap_or(takes)
        });
        let steps = next.min().unwrap_or(u64::MAX).saturating_sub(u64::from(computed));
        u32::try_from(steps).unwrap_or(u32::MAX)
    }

    /// Whether the next block that a decoding request fills may get a hash that another request, or this one later, finds.
    fn may_register(&self, group: &KvGroup, table: &PartTable, request: &Request) -> bool {
        let settings = &self.rules.settings;
        if group.rule.holds_all() {
            settings.caching && (self.rules.is_fine() || table.registered < self.shared_blocks(group, request))
        } else {
            // What is kept only at the end of a prompt is registered with it.
            settings.caching && (settings.retention != Some(0) || matches!(group.rule, LayerRule::Chunk(_)))
        }
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
