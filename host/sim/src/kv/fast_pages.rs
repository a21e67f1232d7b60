//! Pages of groups for the fast engine: as [`GroupedKv`](super::pages::GroupedKv), without the identity of pages that no request can look
//! up.
//!
//! Most pages have content that no other request shares: only their number matters. The queue of free pages is therefore a list of
//! *nodes*: a run of anonymous pages, or one page with a hash by which it can be found; and a block table is a list of such parts. A group
//! that holds all tokens does not note the hashes of blocks that only its own request could find again: they get them when it is preempted.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use rustc_hash::FxHashMap;

use super::paged::NONE;
use super::pages::{
    HeldTable, HitOfGroup, KvGroup, LayerRule, PageDemand, PageHash, PageHit, PageRules, StateMode, blocks_of_window,
    hash_of, is_state, skipped_tokens,
};
use crate::numbers::count;
use crate::request::{BlockKey, Request};

/// The number of the pages of one request.
pub(crate) type PagesNumber = NonZeroU32;

#[derive(Clone, Copy, Debug)]
struct PageNode {
    /// Content by which it can be found; none of a run, and of a page that is written over while others hold it.
    hash: Option<PageHash>,
    /// Length of a run of free pages; number of requests that hold a page.
    count: u32,
    is_run: bool,
    prev: u32,
    next: u32,
    /// The next page with the same content, in the order of their creation.
    duplicate: u32,
    /// The step that wrote its content last.
    step: u64,
}

/// Blocks of a request that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TablePart {
    /// Without pages: no later token reads them.
    Null(u32),
    /// With anonymous pages, which no request can look up.
    Run(u32),
    /// One block with a page that has a node.
    Page(u32),
}

impl TablePart {
    fn blocks(self) -> u32 {
        match self {
            Self::Null(blocks) | Self::Run(blocks) => blocks,
            Self::Page(_) => 1,
        }
    }

    fn pages(self) -> u32 {
        if matches!(self, Self::Null(_)) { 0 } else { self.blocks() }
    }
}

/// The block table of a request in one group.
#[derive(Clone, Debug, Default)]
struct PartTable {
    /// Leading blocks without a page, because no later token reads them.
    skipped: u32,
    /// The blocks behind them.
    parts: VecDeque<TablePart>,
    len: u32,
    /// Leading blocks of which the content is known to the prefix cache, as far as it shall be.
    registered: u32,
    /// Whether the end of the prompt is, which lies inside a block.
    end_registered: bool,
}

impl PartTable {
    fn clear(&mut self) {
        self.parts.clear();
        (self.skipped, self.len, self.registered, self.end_registered) = (0, 0, 0, false);
    }

    fn push(&mut self, part: TablePart) {
        self.len += part.blocks();
        match (self.parts.back_mut(), part) {
            (_, TablePart::Null(0) | TablePart::Run(0)) => {}
            (None, TablePart::Null(blocks)) => self.skipped += blocks,
            (Some(TablePart::Null(last)), TablePart::Null(blocks))
            | (Some(TablePart::Run(last)), TablePart::Run(blocks)) => {
                *last += blocks;
            }
            _ => self.parts.push_back(part),
        }
    }

    fn held(&self) -> u32 {
        self.parts.iter().map(|part| part.pages()).sum()
    }

    /// The part with block `block`, and the number of blocks before it in that part.
    fn locate(&self, block: u32) -> Option<(usize, u32)> {
        if block < self.skipped {
            return None;
        }
        // Most blocks that are looked for are among the last.
        let mut end = self.len;
        for (index, part) in self.parts.iter().enumerate().rev() {
            let start = end - part.blocks();
            if block >= start {
                return (block < end).then_some((index, block - start));
            }
            end = start;
        }
        None
    }

    /// The part of block `block`, if that has a page.
    fn page(&self, block: u32) -> Option<TablePart> {
        let (index, _) = self.locate(block)?;
        Some(self.parts[index]).filter(|part| !matches!(part, TablePart::Null(_)))
    }

    /// `part`, of one block, replaces block number `offset` of the part at `index`.
    fn replace(&mut self, index: usize, offset: u32, part: TablePart) {
        let before = std::mem::replace(&mut self.parts[index], part);
        let TablePart::Run(blocks) = before else { return };
        if offset + 1 < blocks {
            self.parts.insert(index + 1, TablePart::Run(blocks - offset - 1));
        }
        if offset > 0 {
            self.parts.insert(index, TablePart::Run(offset));
        }
    }
}

impl HeldTable for PartTable {
    fn blocks(&self) -> u32 {
        self.len
    }

    fn has_page(&self, block: u32) -> bool {
        self.page(block).is_some()
    }
}

/// The pages of one request, and what the engine has to know of their future.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldPages {
    groups: Vec<PartTable>,
    /// Where another prompt was seen to fork off, tokens: windows and states are kept there.
    pub junction: Option<u32>,
    /// The step in which it needs the pool next, while it decodes.
    pub next_event: u64,
    /// Its tokens that the last step computed, if it was in prefill.
    pub in_flight: u32,
    /// The first step in which it decodes.
    pub decodes_from: u64,
}

impl HeldPages {
    /// Pages held, over all groups.
    pub fn held(&self) -> u32 {
        self.groups.iter().map(PartTable::held).sum()
    }

    /// Pages held in group `group`.
    pub fn held_in(&self, group: usize) -> u32 {
        self.groups[group].held()
    }
}

/// The pages of one instance, and the requests that hold some.
#[derive(Clone, Debug)]
pub(crate) struct FastPages {
    pub rules: PageRules,
    free: u32,
    head: u32,
    tail: u32,
    nodes: Vec<PageNode>,
    unused_nodes: Vec<u32>,
    by_hash: FxHashMap<PageHash, u32>,
    /// Pages that are copied in this step, and held until it is planned.
    copied: Vec<u32>,
    step: u64,
    /// Shared keys that came into the cache or left it, if it is watched.
    changes: Option<Vec<BlockKey>>,
    /// By number - 1.
    held: Vec<HeldPages>,
    unused: Vec<PagesNumber>,
    pub hits: u64,
    pub misses: u64,
}

impl FastPages {
    /// A pool of `pages` empty pages, the null block not counted.
    pub fn new(rules: PageRules, pages: u32) -> Self {
        let mut pool = Self {
            rules,
            free: 0,
            head: NONE,
            tail: NONE,
            nodes: Vec::new(),
            unused_nodes: Vec::new(),
            by_hash: FxHashMap::default(),
            copied: Vec::new(),
            step: 0,
            changes: None,
            held: Vec::new(),
            unused: Vec::new(),
            hits: 0,
            misses: 0,
        };
        pool.append_run(pages);
        pool
    }

    pub fn free_pages(&self) -> u32 {
        self.free
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
        let mut copied = std::mem::take(&mut self.copied);
        let mut unhashed = 0;
        copied.drain(..).for_each(|node| unhashed += self.release_node(node, false));
        self.prepend_run(unhashed);
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
        count(pages.iter().filter(|&&page| self.nodes[page as usize].count == 0).count())
    }

    /// The last page of `table`, if it can be found.
    fn kept_last(&self, table: &PartTable) -> Option<u32> {
        match table.parts.back() {
            Some(&TablePart::Page(node)) if self.nodes[node as usize].hash.is_some() => Some(node),
            _ => None,
        }
    }

    /// The cached prefix of the first `tokens` tokens of `request`, which was `preempted` or not.
    pub fn look_up(&self, request: &Request, tokens: u32, preempted: bool) -> PageHit {
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
        self.rules.look_up(tokens, |group, tokens| {
            let index = (tokens / self.rules.layout.hash_block).checked_sub(1)?;
            self.by_hash.get(&hash_of(request, group, index)).copied()
        })
    }

    /// Whether a state of `hit` was registered in this very step: then the request waits for the next one.
    pub fn is_too_new(&self, hit: &PageHit) -> bool {
        let states = self.rules.layout.groups.iter().zip(&hit.pages).filter(|(group, _)| is_state(group));
        states.flat_map(|(_, pages)| pages).any(|&page| self.nodes[page as usize].step == self.step)
    }

    /// Tokens of the chunk of `demand`, as [`PageRules::cut_chunk`].
    pub fn cut_chunk(&self, demand: &PageDemand<'_>, known: u32, junction: Option<u32>, most: u32) -> u32 {
        self.rules.cut_chunk(demand, known, junction, most)
    }

    /// A request that holds nothing yet takes its first pages. There must be enough free ones.
    pub fn enter(&mut self, demand: &PageDemand<'_>, hit: &PageHit) -> PagesNumber {
        let number = self.unused.pop().unwrap_or_else(|| {
            let groups = vec![PartTable::default(); self.rules.layout.groups.len()];
            self.held.push(HeldPages { groups, ..HeldPages::default() });
            PagesNumber::new(count(self.held.len())).expect("one was just added")
        });
        let mut held = std::mem::take(self.held_mut(number));
        (held.next_event, held.in_flight, held.decodes_from) = (0, 0, 0);
        held.junction = hit.junction;
        self.claim(&mut held, hit);
        self.take(&mut held, demand, hit.tokens);
        *self.held_mut(number) = held;
        number
    }

    /// The tables begin with the cached pages. Those of which only a part is hit are copied.
    fn claim(&mut self, held: &mut HeldPages, hit: &PageHit) {
        for (index, pages) in hit.pages.iter().enumerate() {
            let group = self.rules.layout.groups[index];
            let blocks = hit.tokens / group.block;
            let skipped = skipped_tokens(&group, hit.tokens) / group.block;
            let is_partial = !hit.tokens.is_multiple_of(group.block) && !pages.is_empty();
            let (pages, part) = pages.split_at(pages.len() - usize::from(is_partial));
            let table = &mut held.groups[index];
            table.push(TablePart::Null(blocks - count(pages.len())));
            for (&node, block) in pages.iter().zip(blocks - count(pages.len())..) {
                // A look-up may find blocks that no token of this request will read.
                if block < skipped && !is_state(&group) {
                    table.push(TablePart::Null(1));
                    continue;
                }
                table.push(TablePart::Page(node));
                self.touch(node);
            }
            table.registered = blocks;
            part.iter().for_each(|&node| self.touch(node));
            self.copied.extend_from_slice(part);
        }
        self.hits += u64::from(hit.tokens);
    }

    /// Gives back what no later token of the request reads.
    pub fn drop_unread(&mut self, number: PagesNumber, finished: u32) {
        let mut held = std::mem::take(self.held_mut(number));
        self.drop_of(&mut held, finished);
        *self.held_mut(number) = held;
    }

    /// A request takes further pages. There must be enough free ones.
    pub fn extend(&mut self, number: PagesNumber, demand: &PageDemand<'_>) {
        let mut held = std::mem::take(self.held_mut(number));
        self.drop_of(&mut held, demand.finished);
        self.take(&mut held, demand, 0);
        *self.held_mut(number) = held;
    }

    /// The first `tokens` tokens of a request are known: full blocks get hashes.
    pub fn register(&mut self, number: PagesNumber, request: &Request, tokens: u32) {
        let mut held = std::mem::take(self.held_mut(number));
        self.register_of(&mut held, request, tokens, None);
        *self.held_mut(number) = held;
    }

    fn drop_of(&mut self, held: &mut HeldPages, finished: u32) {
        for (index, table) in held.groups.iter_mut().enumerate() {
            let group = self.rules.layout.groups[index];
            let block = skipped_tokens(&group, finished) / group.block;
            if block > table.skipped && !table.parts.is_empty() {
                self.drop_before(table, block);
            }
        }
    }

    /// Gives back the pages of the blocks before `block`, the youngest first.
    fn drop_before(&mut self, table: &mut PartTable, block: u32) {
        let mut unhashed = 0;
        let mut pages = Vec::new();
        while table.skipped < block
            && let Some(first) = table.parts.front_mut()
        {
            let wanted = block - table.skipped;
            match first {
                TablePart::Null(blocks) | TablePart::Run(blocks) if *blocks > wanted => {
                    *blocks -= wanted;
                    table.skipped = block;
                    unhashed += if matches!(first, TablePart::Run(_)) { wanted } else { 0 };
                }
                &mut whole => {
                    table.skipped += whole.blocks();
                    match whole {
                        TablePart::Run(blocks) => unhashed += blocks,
                        TablePart::Page(node) => pages.push(node),
                        TablePart::Null(_) => {}
                    }
                    table.parts.pop_front();
                }
            }
        }
        while let Some(&TablePart::Null(blocks)) = table.parts.front() {
            table.skipped += blocks;
            table.parts.pop_front();
        }
        for node in pages.into_iter().rev() {
            unhashed += self.release_node(node, false);
        }
        self.prepend_run(unhashed);
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
                self.nodes[kept as usize].step = self.step;
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
                let kept = self.rules.kept(&group, request.input_tokens, held.junction);
                for block in first..full {
                    if checkpoint != Some(block) && kept.keeps(block) {
                        self.hash_block(table, index, request, block, (block + 1) * group.block);
                    } else {
                        self.write_over(table, block);
                    }
                }
                if let Some((block, end)) = checkpoint.map(|block| (block, self.rules.last_boundary(tokens)))
                    && kept.ends.contains(&Some(end))
                {
                    self.hash_block(table, index, request, block, end);
                }
            }
            self.register_end(table, index, request, tokens);
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
        let end = self.rules.last_boundary(request.input_tokens) / group.block;
        if table.end_registered && (first.max(shared)..full).contains(&end) {
            self.hash_block(table, index, request, end, (end + 1) * group.block);
        }
    }

    /// Leading blocks of `group` that other requests may have, too.
    fn shared_blocks(&self, group: &KvGroup, request: &Request) -> u32 {
        request.content.shared_blocks() / (group.block / self.rules.layout.hash_block)
    }

    /// Registers the end of a prompt inside a block.
    fn register_end(&mut self, table: &mut PartTable, index: usize, request: &Request, tokens: u32) {
        let group = self.rules.layout.groups[index];
        let end = self.rules.last_boundary(request.input_tokens);
        let inside = self.rules.is_fine() && !end.is_multiple_of(group.block) && !table.end_registered;
        // A state is that of the end only in the step that stops there.
        let reached = if is_state(&group) { tokens == end } else { tokens >= end };
        if inside && reached && table.has_page(end / group.block) {
            table.end_registered = true;
            self.hash_block(table, index, request, end / group.block, end);
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
                let node = self.new_node(1, false);
                table.replace(index, offset, TablePart::Page(node));
                node
            }
        };
        if let Some(before) = self.nodes[node as usize].hash {
            self.forget(node, before);
        }
        self.enter_hash(node, hash);
    }

    /// The content of block `block` is another one, without a hash.
    fn write_over(&mut self, table: &mut PartTable, block: u32) {
        if let Some(TablePart::Page(node)) = table.page(block)
            && let Some(before) = self.nodes[node as usize].hash.take()
        {
            self.forget(node, before);
        }
    }

    /// Gives all pages back: group after group, the last block first. Of a request that has ended; or that was preempted, and may look up its
    /// blocks again. `known` of its tokens are known.
    pub fn release(&mut self, number: PagesNumber, request: Option<&Request>, known: u32) {
        let mut held = std::mem::take(self.held_mut(number));
        for (index, table) in held.groups.iter_mut().enumerate() {
            let group = self.rules.layout.groups[index];
            let has_hashes = self.rules.settings.caching && group.rule.holds_all();
            let mut hashed = 0;
            if has_hashes {
                table.registered = table.registered.max(known / group.block);
                hashed = table.registered;
                if let Some(request) = request {
                    self.hash_own(table, index, request);
                }
            }
            self.release_table(table, hashed, request.is_none());
        }
        held.junction = None;
        *self.held_mut(number) = held;
        self.unused.push(number);
    }

    /// The anonymous blocks that have hashes can be found from now on.
    fn hash_own(&mut self, table: &mut PartTable, group: usize, request: &Request) {
        let size = self.rules.layout.groups[group].block;
        let mut parts = VecDeque::with_capacity(table.parts.len());
        let mut block = table.skipped;
        for part in std::mem::take(&mut table.parts) {
            let end = block + part.blocks();
            let TablePart::Run(_) = part else {
                parts.push_back(part);
                block = end;
                continue;
            };
            for block in block..end.min(table.registered) {
                let node = self.new_node(1, false);
                self.enter_hash(node, hash_of(request, group, (block + 1) * size / self.rules.layout.hash_block - 1));
                parts.push_back(TablePart::Page(node));
            }
            if end > table.registered.max(block) {
                parts.push_back(TablePart::Run(end - table.registered.max(block)));
            }
            block = end;
        }
        table.parts = parts;
    }

    /// Gives back the pages of a table, the last block first; the first `hashed` anonymous blocks have hashes.
    fn release_table(&mut self, table: &mut PartTable, hashed: u32, has_ended: bool) {
        let mut unhashed = 0;
        let mut end = table.len;
        while let Some(part) = table.parts.pop_back() {
            let start = end - part.blocks();
            match part {
                TablePart::Null(_) => {}
                TablePart::Run(blocks) => {
                    let with_hash = end.min(hashed).saturating_sub(start);
                    unhashed += blocks - with_hash;
                    self.append_run(with_hash);
                }
                TablePart::Page(node) => unhashed += self.release_node(node, has_ended),
            }
            end = start;
        }
        self.prepend_run(unhashed);
        table.clear();
    }

    /// One request fewer holds the page; it is free if that was the last one. If the request `has_ended`, what only it could find is
    /// anonymous. Returns 1 if a page without a hash is to be put in front.
    fn release_node(&mut self, node: u32, has_ended: bool) -> u32 {
        let record = &mut self.nodes[node as usize];
        record.count -= 1;
        if record.count > 0 {
            return 0; // another request holds it
        }
        match record.hash {
            None => {
                self.unused_nodes.push(node);
                return 1;
            }
            Some(hash @ PageHash::Own { .. }) if has_ended => {
                self.forget(node, hash);
                self.unused_nodes.push(node);
                self.append_run(1);
            }
            Some(_) => {
                self.append(node);
                self.free += 1;
            }
        }
        0
    }

    /// One more request holds the page.
    fn touch(&mut self, node: u32) {
        if self.nodes[node as usize].count == 0 {
            self.unlink(node);
            self.free -= 1;
        }
        self.nodes[node as usize].count += 1;
    }

    /// Takes the next pages, and evicts their content. There must be as many free ones.
    fn take_pages(&mut self, pages: u32) {
        self.misses += u64::from(pages);
        self.free -= pages;
        let mut left = pages;
        while left > 0 {
            let head = self.head;
            let node = &mut self.nodes[head as usize];
            if node.is_run && node.count > left {
                node.count -= left;
                return;
            }
            left -= if node.is_run { node.count } else { 1 };
            self.head = node.next;
            match self.head {
                NONE => self.tail = NONE,
                next => self.nodes[next as usize].prev = NONE,
            }
            if let Some(hash) = self.nodes[head as usize].hash {
                self.forget(head, hash);
            }
            self.unused_nodes.push(head);
        }
    }

    fn enter_hash(&mut self, node: u32, hash: PageHash) {
        let record = &mut self.nodes[node as usize];
        (record.hash, record.step, record.duplicate) = (Some(hash), self.step, NONE);
        let first = *self.by_hash.entry(hash).or_insert(node);
        if first == node {
            return self.changed(hash);
        }
        let mut last = first;
        while self.nodes[last as usize].duplicate != NONE {
            last = self.nodes[last as usize].duplicate;
        }
        self.nodes[last as usize].duplicate = node;
    }

    /// Page `node` can no longer be found by `hash`.
    fn forget(&mut self, node: u32, hash: PageHash) {
        let after = self.nodes[node as usize].duplicate;
        let first = self.by_hash.get_mut(&hash).expect("it was entered");
        if *first != node {
            let mut before = *first;
            while self.nodes[before as usize].duplicate != node {
                before = self.nodes[before as usize].duplicate;
            }
            self.nodes[before as usize].duplicate = after;
        } else if after != NONE {
            *first = after;
        } else {
            self.by_hash.remove(&hash);
            self.changed(hash);
        }
    }

    fn changed(&mut self, hash: PageHash) {
        if let (PageHash::Shared { group: 0, key }, Some(changes)) = (hash, &mut self.changes) {
            changes.push(key);
        }
    }

    /// From now on changes are collected for [`Self::take_changes`].
    pub fn watch(&mut self) {
        self.changes.get_or_insert_default();
    }

    /// Calls `each` for every shared key that may have come or gone in the first group since the last call, with its state.
    pub fn take_changes(&mut self, each: &mut dyn FnMut(BlockKey, bool)) {
        let Some(changes) = &mut self.changes else { return };
        for key in std::mem::take(changes) {
            each(key, self.finds(key));
        }
    }

    /// Whether the first group has the block of hash `key`.
    pub fn finds(&self, key: BlockKey) -> bool {
        self.by_hash.contains_key(&PageHash::Shared { group: 0, key })
    }

    fn new_node(&mut self, count_of: u32, is_run: bool) -> u32 {
        let node =
            PageNode { hash: None, count: count_of, is_run, prev: NONE, next: NONE, duplicate: NONE, step: self.step };
        if let Some(index) = self.unused_nodes.pop() {
            self.nodes[index as usize] = node;
            index
        } else {
            self.nodes.push(node);
            count(self.nodes.len()) - 1
        }
    }

    fn prepend_run(&mut self, pages: u32) {
        if pages == 0 || self.head == NONE {
            return self.append_run(pages);
        }
        self.free += pages;
        let head = self.head;
        if self.nodes[head as usize].is_run {
            self.nodes[head as usize].count += pages;
            return;
        }
        let node = self.new_node(pages, true);
        self.nodes[node as usize].next = head;
        self.nodes[head as usize].prev = node;
        self.head = node;
    }

    fn append_run(&mut self, pages: u32) {
        if pages == 0 {
            return;
        }
        self.free += pages;
        if self.tail != NONE && self.nodes[self.tail as usize].is_run {
            self.nodes[self.tail as usize].count += pages;
            return;
        }
        let node = self.new_node(pages, true);
        self.append(node);
    }

    fn append(&mut self, node: u32) {
        self.nodes[node as usize].prev = self.tail;
        self.nodes[node as usize].next = NONE;
        match self.tail {
            NONE => self.head = node,
            tail => self.nodes[tail as usize].next = node,
        }
        self.tail = node;
    }

    fn unlink(&mut self, node: u32) {
        let PageNode { prev, next, .. } = self.nodes[node as usize];
        match prev {
            NONE => self.head = next,
            prev => self.nodes[prev as usize].next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => self.nodes[next as usize].prev = prev,
        }
    }
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
