//! The pool of pages, their contents, and the order in which they are reused.
//!
//! A freed page without a hash is reused next, one with a hash last (`v1/core/block_pool.py`). What a request needs, takes, drops and
//! registers is `reference/memory.md` §3, for each rule of a group; states are in [`super::state`].

use rustc_hash::FxHashMap;

use super::hits::leading_pages;
use super::plan::{KvGroup, KvLayout};
use super::rules::{HitOfGroup, PageDemand, PageHash, PageHit, PageRules, hash_of, is_state, skipped_tokens};
use super::table::{BlockTable, PageTables};
use crate::numbers::count;
use crate::request::{BlockKey, Request};

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct KvPage {
    refs: u32,
    prev: u32,
    next: u32,
    /// Content by which it can be found: that of a full block, or until it is full that of the end of a prompt inside it.
    hash: Option<PageHash>,
    /// The step that registered the last hash.
    step: u64,
}

/// The KV pages of one instance.
#[derive(Clone, Debug)]
pub struct GroupedKv {
    rules: PageRules,
    pages: Vec<KvPage>,
    head: u32,
    tail: u32,
    free: u32,
    by_hash: FxHashMap<PageHash, Vec<u32>>,
    /// Pages that are copied in this step, and held until it is planned.
    copied: Vec<u32>,
    /// Number of steps begun.
    step: u64,
    /// Shared keys that came into the cache or left it, if it is watched.
    changes: Option<Vec<BlockKey>>,
    /// Tokens found, and pages taken.
    pub hits: u64,
    /// Number of pages that were taken without a hit.
    pub misses: u64,
}

impl GroupedKv {
    /// A pool of `pages` empty pages, the null block not counted.
    #[must_use]
    pub fn new(rules: PageRules, pages: u32) -> Self {
        let page = |index: u32| KvPage {
            refs: 0,
            prev: index.checked_sub(1).unwrap_or(NONE),
            next: if index + 1 == pages { NONE } else { index + 1 },
            hash: None,
            step: 0,
        };
        let (head, tail) = if pages == 0 { (NONE, NONE) } else { (0, pages - 1) };
        Self {
            rules,
            pages: (0..pages).map(page).collect(),
            head,
            tail,
            free: pages,
            by_hash: FxHashMap::default(),
            copied: Vec::new(),
            step: 0,
            changes: None,
            hits: 0,
            misses: 0,
        }
    }

    /// The groups that share the pool.
    #[must_use]
    pub fn layout(&self) -> &KvLayout {
        &self.rules.layout
    }

    /// Number of pages that no request holds.
    #[must_use]
    pub fn free_pages(&self) -> u32 {
        self.free
    }

    /// Number of all pages.
    #[must_use]
    pub fn total_pages(&self) -> u32 {
        count(self.pages.len())
    }

    /// A step begins: states that it registers can be found in later ones.
    pub fn begin_step(&mut self) {
        self.step += 1;
    }

    /// A step is planned: pages that it copies are no longer held for that.
    pub fn end_plan(&mut self) {
        let copied = std::mem::take(&mut self.copied);
        self.give_back(&copied);
    }

    /// Pages that the demand takes from the free ones: of a request that holds none with what it claims of `hit`. `capped`: what the
    /// whole prompt takes at once, of which windows hold no more than theirs.
    #[must_use]
    pub fn needs(&self, tables: &PageTables, demand: &PageDemand<'_>, hit: &PageHit, capped: bool) -> u32 {
        let groups = self.rules.layout.groups.iter().enumerate();
        groups.map(|(index, group)| self.needs_in(index, group, tables, demand, hit, capped)).sum()
    }

    fn needs_in(
        &self,
        index: usize,
        group: &KvGroup,
        tables: &PageTables,
        demand: &PageDemand<'_>,
        hit: &PageHit,
        capped: bool,
    ) -> u32 {
        let table = tables.groups.get(index);
        let hit = HitOfGroup {
            tokens: hit.tokens,
            claimed: hit.pages.get(index).map_or(0, |pages| self.free_among(pages)),
            keeps_last: table.is_some_and(|table| self.keeps_last(table)),
        };
        self.rules.needs_in(group, table, demand, &hit, capped)
    }

    /// The cached prefix of the first `tokens` tokens of `request`.
    #[must_use]
    pub fn look_up(&self, request: &Request, tokens: u32) -> PageHit {
        let find = |group: usize, tokens: u32| self.find(request, group, tokens);
        let block = |group: usize| self.rules.layout.groups[group].block;
        self.rules.look_up(tokens, find, |group, blocks| {
            leading_pages(blocks, |index| find(group, (index + 1) * block(group)))
        })
    }

    /// Tokens of a chunk, as [`PageRules::cut_chunk`].
    #[must_use]
    pub fn cut_chunk(&self, demand: &PageDemand<'_>, known: u32, junction: Option<u32>, most: u32) -> u32 {
        self.rules.cut_chunk(demand, known, junction, most)
    }

    /// Whether a state of `hit` was registered in this very step: then the request waits for the next one.
    #[must_use]
    pub fn is_too_new(&self, hit: &PageHit) -> bool {
        let states = self.rules.layout.groups.iter().zip(&hit.pages).filter(|(group, _)| is_state(group));
        states.flat_map(|(_, pages)| pages).any(|&page| self.pages[page as usize].step == self.step)
    }

    /// Gives back what no later token reads.
    pub fn drop_unread(&mut self, tables: &mut PageTables, finished: u32) {
        for index in 0..tables.groups.len() {
            let group = self.rules.layout.groups[index];
            let block = skipped_tokens(&group, finished) / group.block;
            let dropped = tables.groups[index].drop_before(block);
            if !dropped.is_empty() {
                self.give_back(&dropped);
            }
        }
    }

    /// Takes the pages of `demand`, and registers the blocks that it fills. There must be enough free ones.
    pub fn take(&mut self, tables: &mut PageTables, demand: &PageDemand<'_>, hit: &PageHit) {
        let enters = tables.groups.is_empty();
        if enters {
            self.claim(tables, demand.request, hit);
        }
        let mut checkpoint = None;
        for index in 0..self.rules.layout.groups.len() {
            let group = self.rules.layout.groups[index];
            let blocks = demand.end.div_ceil(group.block);
            let table = &mut tables.groups[index];
            if enters && !hit.tokens.is_multiple_of(group.block) {
                // Its tokens follow inside the block: it writes to a copy.
                let copy = self.take_page();
                table.push(copy);
            }
            if let Some(rule) = group.rule.of_states() {
                // All groups of states have equal blocks, and store the same checkpoint.
                checkpoint = self.rules.checkpoint_of(&group, rule, |block| table.page(block).is_some(), demand);
                self.grow_states(table, blocks, checkpoint);
                continue;
            }
            while table.len() < blocks {
                let page = self.take_page();
                table.push(page);
            }
        }
        self.register(tables, demand.request, demand.end.min(demand.known), checkpoint);
    }

    /// The page tables begin with the cached pages. Those of which only a part is hit are copied.
    fn claim(&mut self, tables: &mut PageTables, request: &Request, hit: &PageHit) {
        tables.junction = hit.junction;
        tables.groups = vec![BlockTable::default(); self.rules.layout.groups.len()];
        for (index, pages) in hit.pages.iter().enumerate() {
            let group = self.rules.layout.groups[index];
            let blocks = hit.tokens / group.block;
            let skipped = skipped_tokens(&group, hit.tokens) / group.block;
            let table = &mut tables.groups[index];
            let (pages, part) =
                pages.split_at(pages.len() - usize::from(!hit.tokens.is_multiple_of(group.block) && !pages.is_empty()));
            (0..blocks - count(pages.len())).for_each(|_| table.push_null());
            for (&page, block) in pages.iter().zip(blocks - count(pages.len())..) {
                // A look-up may find blocks that no token of this request will read.
                if block < skipped && !is_state(&group) {
                    table.push_null();
                    continue;
                }
                table.push(page);
            }
            table.registered = blocks;
            // A block behind the end of the prompt has the hash of all its tokens.
            table.end_registered = self.rules.last_boundary(request.input_tokens) < hit.tokens;
            let claimed: Vec<u32> = table.oldest_first().collect();
            claimed.iter().chain(part).for_each(|&page| self.touch(page));
            self.copied.extend_from_slice(part);
        }
        self.hits += u64::from(hit.tokens);
    }

    /// Gives all pages back: group after group, the last block first.
    pub fn release(&mut self, tables: &mut PageTables) {
        for table in std::mem::take(&mut tables.groups) {
            let pages: Vec<u32> = table.youngest_first().collect();
            self.give_back(&pages);
        }
        tables.junction = None;
    }

    /// Registers the blocks of the first `tokens` tokens that the rules of retention keep. Block `checkpoint` of the states was
    /// stored on the way: it is kept only where the prompt may be found again.
    pub fn register(&mut self, tables: &mut PageTables, request: &Request, tokens: u32, checkpoint: Option<u32>) {
        if !self.rules.settings.caching {
            return;
        }
        for index in 0..tables.groups.len() {
            let group = self.rules.layout.groups[index];
            let full = tokens / group.block;
            let first = tables.groups[index].registered;
            let checkpoint = checkpoint.filter(|_| is_state(&group));
            if full <= first && checkpoint.is_none() && !self.rules.is_fine() {
                continue; // no further block is full
            }
            tables.groups[index].registered = full.max(first);
            let kept = self.rules.kept(&group, request.input_tokens, tables.junction);
            for block in first..full {
                let Some(page) = tables.groups[index].page(block) else { continue };
                if checkpoint != Some(block) && kept.keeps(block) {
                    self.hash_page(page, index, request, (block + 1) * group.block);
                } else if let Some(before) = self.pages[page as usize].hash.take() {
                    // The end of a prompt in it is written over.
                    self.forget(page, before);
                }
            }
            if let Some(block) = checkpoint
                && let Some(end) = self.rules.checkpoint_end(&group, block, tokens, &kept)
                && let Some(page) = tables.groups[index].page(block)
            {
                self.hash_page(page, index, request, end);
            }
            self.register_end(&mut tables.groups[index], index, request, tokens);
        }
    }

    /// Registers the end of a prompt inside a block.
    fn register_end(&mut self, table: &mut BlockTable, index: usize, request: &Request, tokens: u32) {
        let group = self.rules.layout.groups[index];
        let end = self.rules.last_boundary(request.input_tokens);
        let inside = self.rules.is_fine() && !end.is_multiple_of(group.block) && !table.end_registered;
        // A state is that of the end only in the step that stops there.
        let reached = if is_state(&group) { tokens == end } else { tokens >= end };
        if inside
            && reached
            && let Some(page) = table.page(end / group.block)
        {
            table.end_registered = true;
            self.hash_page(page, index, request, end);
        }
    }

    /// `page` can be found by the first `tokens` tokens of `request`.
    fn hash_page(&mut self, page: u32, group: usize, request: &Request, tokens: u32) {
        let hash = hash_of(request, group, tokens / self.rules.layout.hash_block - 1);
        let record = &mut self.pages[page as usize];
        record.step = self.step;
        if let Some(before) = record.hash.replace(hash) {
            self.forget(page, before);
        }
        let pages = self.by_hash.entry(hash).or_default();
        pages.push(page);
        if let (1, PageHash::Shared { group: 0, key }, Some(changes)) = (pages.len(), hash, &mut self.changes) {
            changes.push(key);
        }
    }

    /// The page of `group` that ends with the first `tokens` tokens of `request`, a multiple of the hash block.
    pub(super) fn find(&self, request: &Request, group: usize, tokens: u32) -> Option<u32> {
        let hash = hash_of(request, group, (tokens / self.rules.layout.hash_block).checked_sub(1)?);
        self.by_hash.get(&hash).and_then(|pages| pages.first().copied())
    }

    /// Whether `page` can be found.
    pub(super) fn has_hash(&self, page: u32) -> bool {
        self.pages[page as usize].hash.is_some()
    }

    /// What `page` holds is copied in this step.
    pub(super) fn copies(&mut self, page: u32) {
        self.pages[page as usize].step = self.step;
        self.copied.push(page);
    }

    fn free_among(&self, pages: &[u32]) -> u32 {
        count(pages.iter().filter(|&&page| self.pages[page as usize].refs == 0).count())
    }

    /// Takes the next page, and evicts its content.
    pub(super) fn take_page(&mut self) -> u32 {
        let page = self.head;
        assert!(page != NONE, "the caller checked that there is a free page");
        self.unlink(page);
        self.misses += 1;
        let record = &mut self.pages[page as usize];
        record.refs = 1;
        if let Some(hash) = record.hash.take() {
            self.forget(page, hash);
        }
        page
    }

    fn forget(&mut self, page: u32, hash: PageHash) {
        let Some(pages) = self.by_hash.get_mut(&hash) else { return };
        pages.retain(|&other| other != page);
        if pages.is_empty() {
            self.by_hash.remove(&hash);
            if let (PageHash::Shared { group: 0, key }, Some(changes)) = (hash, &mut self.changes) {
                changes.push(key);
            }
        }
    }

    /// One more request holds `page`.
    fn touch(&mut self, page: u32) {
        if self.pages[page as usize].refs == 0 {
            self.unlink(page);
        }
        self.pages[page as usize].refs += 1;
    }

    /// Gives back pages at once: those without a hash are reused first, in this order; those with one last.
    pub(super) fn give_back(&mut self, pages: &[u32]) {
        let mut unhashed = Vec::new();
        for &page in pages {
            let record = &mut self.pages[page as usize];
            record.refs -= 1;
            if record.refs > 0 {
                continue; // another request holds it
            }
            if record.hash.is_none() { unhashed.push(page) } else { self.append(page) }
        }
        for page in unhashed.into_iter().rev() {
            self.prepend(page);
        }
    }

    fn append(&mut self, page: u32) {
        let tail = std::mem::replace(&mut self.tail, page);
        (self.pages[page as usize].prev, self.pages[page as usize].next) = (tail, NONE);
        self.set_next(tail, page);
        self.free += 1;
    }

    fn prepend(&mut self, page: u32) {
        let head = std::mem::replace(&mut self.head, page);
        (self.pages[page as usize].prev, self.pages[page as usize].next) = (NONE, head);
        self.set_prev(head, page);
        self.free += 1;
    }

    fn unlink(&mut self, page: u32) {
        let KvPage { prev, next, .. } = self.pages[page as usize];
        self.set_next(prev, next);
        self.set_prev(next, prev);
        self.free -= 1;
    }

    /// `next` follows `page`, or is the first free page.
    fn set_next(&mut self, page: u32, next: u32) {
        match self.pages.get_mut(page as usize) {
            Some(record) => record.next = next,
            None => self.head = next,
        }
    }

    /// `prev` precedes `page`, or is the last free page.
    fn set_prev(&mut self, page: u32, prev: u32) {
        match self.pages.get_mut(page as usize) {
            Some(record) => record.prev = prev,
            None => self.tail = prev,
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
    #[must_use]
    pub fn finds(&self, key: BlockKey) -> bool {
        self.by_hash.contains_key(&PageHash::Shared { group: 0, key })
    }
}
