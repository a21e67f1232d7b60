//! The KV cache without the blocks that no request can look up.
//!
//! Most blocks have content that no other request shares: only their number matters. The queue of free blocks is
//! therefore a list of *nodes*: a run of anonymous blocks, or one block with a key by which it can be found. A
//! request holds a list of keyed blocks (its shared prefix) and a count of anonymous ones, and allocating k anonymous
//! blocks costs O(1).
//!
//! A preempted request may find its own blocks again. When it is preempted, these blocks get *private* keys.

use rustc_hash::FxHashMap;

use super::fast_pages::{FastPages, PagesNumber};
use super::leading;
use super::paged::{NONE, Pages};
use crate::instance::StoreFence;
use crate::limits::CACHE_CHANGES;
use crate::numbers::{count, narrow};
use crate::prefetch::soon;
use crate::request::{BlockKey, Content, Request};
use crate::semantics::Semantics;

/// Keys from here on belong to one preempted request each; smaller keys come from the workload.
const FIRST_PRIVATE: u64 = 1 << 32;
/// The key of a run of anonymous blocks.
const ANONYMOUS: u64 = u64::MAX;
/// The key of a run of anonymous blocks that a request left behind while they were being stored.
const FENCED: u64 = ANONYMOUS - 1;

#[derive(Clone, Copy, Debug)]
struct BlockNode {
    key: u64,
    /// Anonymous: length of the run. Keyed: number of requests that hold the block; at 0 it is in the free list.
    count: u32,
    prev: u32,
    next: u32,
    /// The next block with the same content, in the order of their creation.
    duplicate: u32,
}

/// The contents of a request's blocks: keys shared with others, then keys of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockKeys {
    pub content: Content,
    shared: u32,
    /// Number of private keys, and the first of them; none before a preemption.
    privates: u32,
    first_private: u64,
}

impl BlockKeys {
    pub fn new(content: Content) -> Self {
        let shared = content.shared_blocks();
        Self { content, shared, privates: 0, first_private: FIRST_PRIVATE }
    }

    /// Number of leading blocks that other requests may have, too.
    pub fn shared(&self) -> u32 {
        self.shared
    }

    /// Number of leading blocks that have keys.
    fn len(&self) -> u32 {
        self.shared + self.privates
    }

    /// Keys of the blocks from index `start` on.
    fn from(&self, start: u32) -> impl Iterator<Item = u64> + '_ {
        let mut skip = start;
        let shared = self.content.spans().iter().flat_map(move |span| {
            let skipped = skip.min(span.len);
            skip -= skipped;
            u64::from(span.first + skipped)..u64::from(span.first + span.len)
        });
        let skip_private = start.saturating_sub(self.shared).min(self.privates);
        let private = self.first_private + u64::from(skip_private)..self.first_private + u64::from(self.privates);
        shared.chain(private)
    }
}

/// The blocks that one request holds: keyed ones from its first block on, then anonymous ones, as many as its tokens
/// need.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldBlocks {
    keyed: Vec<u32>,
    /// Number of blocks of the request before the first one that it holds: a free full hit claims nothing.
    pub skipped: u32,
    /// Its pages instead, if the model has KV groups.
    pub pages: Option<PagesNumber>,
}

impl HeldBlocks {
    /// Number of leading blocks that other requests can find.
    pub fn keyed_blocks(&self) -> u32 {
        count(self.keyed.len())
    }
}

/// The result of a look-up; the cached blocks themselves are in [`FastKv::found`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrefixHit {
    /// Number of leading full blocks that are in the cache.
    pub blocks: u32,
    /// Number of these blocks that no request holds: claiming them uses up free blocks.
    pub unheld: u32,
}

/// Shared keys that were stored in or evicted from the cache since they were last read, once for each time.
#[derive(Clone, Debug, Default)]
struct CacheChanges {
    keys: Vec<BlockKey>,
    /// Length at which to drop keys that flipped an even number of times.
    compact_at: usize,
}

impl CacheChanges {
    fn push(&mut self, key: BlockKey) {
        if self.keys.len() >= self.compact_at {
            self.compact();
        }
        self.keys.push(key);
    }

    /// Drops keys that flipped an even number of times: their state is as it was when last reported. Each remaining key
    /// was in the cache then or is now, so at most twice as many keys remain as there are blocks.
    fn compact(&mut self) {
        self.keys.sort_unstable();
        let odd = |run: &[BlockKey]| (!run.len().is_multiple_of(2)).then_some(run[0]);
        self.keys = self.keys.chunk_by(BlockKey::eq).filter_map(odd).collect();
        self.compact_at = (2 * self.keys.len()).max(CACHE_CHANGES);
    }
}

/// The KV cache of one instance.
///
/// The fields that plain decoding needs, and those that are reported, lie in the first cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct FastKv {
    free: u32,
    total: u32,
    head: u32,
    tail: u32,
    nodes: Vec<BlockNode>,
    misses: u64,
    hits: u64,
    /// The changes to report; allocated at the first change if the cache is watched.
    changes: Option<Box<CacheChanges>>,
    block_size: u32,
    caching: bool,
    watched: bool,
    semantics: Semantics,
    unused: Vec<u32>,
    shared: Pages,
    private: FxHashMap<u64, u32>,
    next_private: u64,
    /// Blocks found by the latest look-up.
    found: Vec<u32>,
    /// The last store of blocks of requests that have ended, by node.
    fences: FxHashMap<u32, u64>,
    /// The last of them of a block that was taken or claimed since [`Self::take_flush`].
    flush: u64,
    /// The pages, if the model has KV groups: then they are all that counts, and there are no blocks.
    pub pages: Option<Box<FastPages>>,
}

impl FastKv {
    pub fn new(total: u32, block_size: u32, caching: bool, semantics: Semantics) -> Self {
        let mut kv = Self {
            block_size,
            caching,
            semantics,
            free: 0,
            total,
            nodes: Vec::new(),
            unused: Vec::new(),
            head: NONE,
            tail: NONE,
            shared: Pages::default(),
            private: FxHashMap::default(),
            next_private: FIRST_PRIVATE,
            found: Vec::new(),
            fences: FxHashMap::default(),
            flush: 0,
            pages: None,
            changes: None,
            watched: false,
            hits: 0,
            misses: 0,
        };
        kv.append_anonymous(total);
        kv
    }

    /// With the pages of KV groups instead of blocks.
    pub fn with_pages(mut self, pages: Option<FastPages>) -> Self {
        self.pages = pages.map(Box::new);
        self
    }

    /// Counts the free pages, after a change of them.
    pub fn count_pages(&mut self) {
        if let Some(pages) = &self.pages {
            self.free = pages.free_pages();
        }
    }

    /// Blocks found, and blocks taken without being found.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        match &self.pages {
            Some(pages) => (pages.hits / u64::from(pages.rules.layout.hash_block), pages.misses),
            None => (self.hits, self.misses),
        }
    }

    /// A step begins.
    pub fn begin_step(&mut self) {
        self.pages.iter_mut().for_each(|pages| pages.begin_step());
    }

    /// Releases the pages of a preempted request, which may look them up again.
    pub fn release_pages_for_resume(&mut self, number: PagesNumber, request: &Request, known: u32) {
        if let Some(pages) = &mut self.pages {
            pages.release(number, Some(request), known);
        }
        self.count_pages();
    }

    /// A step is planned.
    pub fn end_plan(&mut self) {
        if let Some(pages) = &mut self.pages {
            pages.end_plan();
            self.free = pages.free_pages();
        }
    }

    #[cold]
    fn release_pages(&mut self, number: PagesNumber, known: u32) {
        if let Some(pages) = &mut self.pages {
            pages.release(number, None, known);
        }
        self.count_pages();
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        let changes = self.changes.as_ref().map_or(0, |changes| changes.keys.len());
        let pages = self.pages.as_ref().map_or(0, |pages| pages.len());
        self.nodes.len() + self.private.len() + self.shared.len() + changes + pages
    }

    /// Whether a look-up would find the block `key`.
    pub fn finds(&self, key: BlockKey) -> bool {
        self.pages.as_ref().map_or(self.shared.get(key) != NONE, |pages| pages.finds(key))
    }

    /// From now on changes are collected for [`Self::take_changes`].
    pub fn watch(&mut self) {
        self.watched = true;
        self.pages.iter_mut().for_each(|pages| pages.watch());
    }

    /// Whether there may be changes for [`Self::take_changes`].
    #[inline]
    pub fn has_changes(&self) -> bool {
        self.changes.as_ref().is_some_and(|changes| !changes.keys.is_empty()) || self.pages.is_some()
    }

    /// Calls `each` for every shared key that may have been stored or evicted since the last call, with its present
    /// state.
    pub fn take_changes(&mut self, each: &mut dyn FnMut(BlockKey, bool)) {
        if let Some(pages) = &mut self.pages {
            return pages.take_changes(each);
        }
        let Some(changes) = &mut self.changes else { return };
        for key in changes.keys.drain(..) {
            each(key, self.shared.get(key) != NONE);
        }
    }

    /// Prefetches both ends of the free list, where blocks are allocated and released.
    pub fn prefetch(&self) {
        let ends = [self.head, self.tail].map(|node| self.nodes.get(node as usize));
        ends.into_iter().flatten().for_each(soon);
    }

    /// Number of all blocks, used and free.
    pub fn total_blocks(&self) -> u32 {
        self.total
    }

    /// Number of blocks that no request holds.
    pub fn free_blocks(&self) -> u32 {
        self.free
    }

    /// Number of blocks, or fewer, that can be taken before one with content is evicted.
    pub fn without_eviction(&self) -> u32 {
        self.nodes.get(self.head as usize).filter(|node| node.key >= FENCED).map_or(0, |node| node.count)
    }

    /// Number of leading blocks of `holding` that `requests` requests hold, for two requests or more.
    pub fn common_blocks(&self, holding: &HeldBlocks, requests: u32) -> u32 {
        let held_by_all = |&node: &u32| self.nodes[node as usize].count == requests;
        let keyed = if holding.skipped == 0 { &holding.keyed[..] } else { &[] };
        leading(|index| keyed.get(index as usize).is_some_and(held_by_all))
    }

    /// Looks up the leading full blocks of the first `tokens` tokens.
    #[inline]
    pub fn look_up(&mut self, keys: &BlockKeys, tokens: u32) -> PrefixHit {
        self.found.clear();
        if self.caching && keys.len() > 0 { self.find_all(keys, tokens) } else { PrefixHit::default() }
    }

    fn find_all(&mut self, keys: &BlockKeys, tokens: u32) -> PrefixHit {
        let (mut found, mut unheld) = (std::mem::take(&mut self.found), 0);
        for key in keys.from(0).take((tokens / self.block_size) as usize) {
            let node = self.find(key);
            if node == NONE {
                break;
            }
            found.push(node);
            unheld += u32::from(self.nodes[node as usize].count == 0);
        }
        self.found = found;
        PrefixHit { blocks: count(self.found.len()), unheld }
    }

    /// Assigns the blocks of the latest look-up to a request that holds nothing yet.
    #[inline]
    pub fn claim_found(&mut self, holding: &mut HeldBlocks) {
        if !self.found.is_empty() {
            self.claim_all(holding);
        }
    }

    fn claim_all(&mut self, holding: &mut HeldBlocks) {
        for i in 0..self.found.len() {
            let node = self.found[i];
            if self.nodes[node as usize].count == 0 {
                self.unlink(node);
                self.free -= 1;
            }
            self.nodes[node as usize].count += 1;
        }
        if !self.fences.is_empty() {
            self.found.iter().for_each(|node| self.flush = self.flush.max(self.fences.get(node).copied().unwrap_or(0)));
        }
        self.hits += self.found.len() as u64;
        holding.keyed.extend_from_slice(&self.found);
    }

    /// Allocates the tokens `from..to` of a prompt. The caller has checked that there are enough free blocks.
    pub fn extend(&mut self, holding: &mut HeldBlocks, keys: &BlockKeys, from: u32, to: u32) {
        let (held, needed) = (from.div_ceil(self.block_size), to.div_ceil(self.block_size));
        let first = from / self.block_size;
        let full = if self.caching { (to / self.block_size).min(keys.len()) } else { 0 };
        if !self.semantics.forget_duplicate_blocks {
            self.take(needed - held);
            for key in keys.from(first).take(full.saturating_sub(first) as usize) {
                self.hash_block(holding, key);
            }
            return;
        }
        // Reusing a block can hide a duplicate hashed just before: one block at a time.
        let mut started = held;
        for (index, key) in (first..full).zip(keys.from(first)) {
            if index >= started {
                self.take(1);
                started += 1;
            }
            self.hash_block(holding, key);
        }
        self.take(needed - started);
    }

    /// Hashes the first `blocks` blocks of `holding`, because they are loaded.
    pub fn hash_loaded(&mut self, holding: &mut HeldBlocks, keys: &BlockKeys, blocks: u32) {
        let known = holding.keyed_blocks();
        for key in keys.from(known).take(blocks.min(keys.len()).saturating_sub(known) as usize) {
            self.hash_block(holding, key);
        }
    }

    /// Hashes a block of shared content that became full during decode.
    pub fn filled(&mut self, holding: &mut HeldBlocks, keys: &BlockKeys, index: u32) {
        let key = keys.from(index).next().expect("the caller asks only for keyed blocks");
        self.hash_block(holding, key);
    }

    /// Allocates `count` blocks. The caller has checked that there are as many free blocks.
    #[inline]
    pub fn take(&mut self, count: u32) {
        if count == 0 {
            return;
        }
        self.misses += u64::from(count);
        self.free -= count;
        match self.nodes.get_mut(self.head as usize) {
            // Mostly the first free blocks are many without content.
            Some(node) if node.key == ANONYMOUS && node.count > count => node.count -= count,
            _ => self.take_some(count),
        }
    }

    fn take_some(&mut self, count: u32) {
        let mut left = count;
        let has_fences = !self.fences.is_empty();
        while left > 0 {
            let head = self.head;
            if has_fences {
                self.reuse(head);
            }
            let node = &mut self.nodes[head as usize];
            let is_run = node.key >= FENCED;
            if is_run && node.count > left {
                node.count -= left;
                return;
            }
            let next = node.next;
            if is_run {
                left -= node.count;
            } else {
                left -= 1;
                self.evict(head);
            }
            if has_fences {
                self.fences.remove(&head);
            }
            self.head = next;
            match next {
                NONE => self.tail = NONE,
                next => self.nodes[next as usize].prev = NONE,
            }
            self.unused.push(head);
        }
    }

    /// A block of `node` gets another owner.
    fn reuse(&mut self, node: u32) {
        if let Some(&store) = self.fences.get(&node) {
            self.flush = self.flush.max(store);
        }
    }

    /// The last store, perhaps ended, of a block that was taken or claimed since the last call; 0 for none.
    pub fn take_flush(&mut self) -> u64 {
        std::mem::take(&mut self.flush)
    }

    /// No store of a request that has ended is in progress.
    pub fn forget_fences(&mut self) {
        self.fences.clear();
    }

    /// As [`Self::release`], if a request has ended with some of its blocks still being stored. They are blocks of its prompt.
    pub fn release_fenced(&mut self, holding: &mut HeldBlocks, tokens: u32, known: u32, fence: StoreFence) {
        let keyed = count(holding.keyed.len());
        for &node in &holding.keyed[fence.from.min(keyed) as usize..fence.to.min(keyed) as usize] {
            let store = self.fences.entry(node).or_default();
            *store = fence.store.max(*store);
        }
        let (from, to) = (fence.from.max(keyed), fence.to.max(keyed));
        if from == to {
            return self.release(holding, tokens, known);
        }
        let blocks = tokens.div_ceil(self.block_size);
        let hashed = known / self.block_size;
        self.free_anonymous(blocks - to, blocks - hashed.max(to));
        self.append_fenced(to - from, fence.store);
        self.append_anonymous(from - keyed);
        self.release_keyed(holding);
    }

    /// Releases all blocks, the last block first; `tokens` tokens are allocated, of which the first `known` are
    /// generated: blocks that they fill have hashes.
    pub fn release(&mut self, holding: &mut HeldBlocks, tokens: u32, known: u32) {
        if let Some(number) = holding.pages.take() {
            return self.release_pages(number, known);
        }
        let anonymous = tokens.div_ceil(self.block_size) - holding.skipped - count(holding.keyed.len());
        let hashed =
            if self.caching { (known / self.block_size).saturating_sub(count(holding.keyed.len())) } else { 0 };
        self.free_anonymous(anonymous, anonymous.saturating_sub(hashed));
        if holding.keyed.is_empty() {
            holding.skipped = 0;
        } else {
            self.release_keyed(holding);
        }
    }

    fn release_keyed(&mut self, holding: &mut HeldBlocks) {
        while let Some(node) = holding.keyed.pop() {
            let record = &mut self.nodes[node as usize];
            record.count -= 1;
            if record.count > 0 {
                continue;
            }
            if record.key >= FIRST_PRIVATE {
                self.evict_private(node); // its owner has ended: no request can look it up
                self.unused.push(node);
                match self.fences.remove(&node) {
                    None => self.append_anonymous(1),
                    Some(store) => self.append_fenced(1, store),
                }
            } else {
                self.append(node);
                self.free += 1;
            }
        }
        holding.skipped = 0;
    }

    /// Releases all blocks of a preempted request, which may look up its blocks again: the first `hashed` of them now,
    /// at most the first `most` later.
    pub fn release_for_resume(
        &mut self,
        holding: &mut HeldBlocks,
        keys: &mut BlockKeys,
        tokens: u32,
        hashed: u32,
        most: u32,
    ) {
        if self.caching && holding.skipped == 0 {
            if keys.privates == 0 && most > keys.shared {
                (keys.privates, keys.first_private) = (most - keys.shared, self.next_private);
                self.next_private += u64::from(most - keys.shared);
            }
            let full = hashed.min(most).min(keys.len());
            let known = count(holding.keyed.len());
            for (_, key) in (known..full).zip(keys.from(known)) {
                self.hash_block(holding, key);
            }
        }
        let anonymous = tokens.div_ceil(self.block_size) - holding.skipped - count(holding.keyed.len());
        // Generated blocks of a request that starts again have hashes, too, although nothing looks them up.
        let cached = self.caching && holding.skipped == 0;
        let hashed = if cached { hashed.saturating_sub(count(holding.keyed.len())) } else { 0 };
        self.free_anonymous(anonymous, anonymous.saturating_sub(hashed));
        while let Some(node) = holding.keyed.pop() {
            self.nodes[node as usize].count -= 1;
            if self.nodes[node as usize].count == 0 {
                self.append(node);
                self.free += 1;
            }
        }
        holding.skipped = 0;
    }

    /// Hashes the next block of `holding`; its content is `key`.
    fn hash_block(&mut self, holding: &mut HeldBlocks, key: u64) {
        let node = self.new_node(BlockNode { key, count: 1, prev: NONE, next: NONE, duplicate: NONE });
        holding.keyed.push(node);
        if self.semantics.forget_duplicate_blocks {
            self.set(key, node);
        } else if let Some(first) = self.enter(key, node) {
            let mut last = first;
            while self.nodes[last as usize].duplicate != NONE {
                last = self.nodes[last as usize].duplicate;
            }
            self.nodes[last as usize].duplicate = node;
        }
    }

    /// Removes block `node`, which is reused, from the table of contents.
    fn evict(&mut self, node: u32) {
        let BlockNode { key, duplicate, .. } = self.nodes[node as usize];
        if self.semantics.forget_duplicate_blocks {
            self.set(key, NONE);
            return;
        }
        if key < FIRST_PRIVATE && self.shared.replace(narrow(key), node, duplicate) {
            if duplicate == NONE {
                self.record_change(narrow(key));
            }
            return;
        }
        let mut before = self.find(key);
        if before == node {
            self.set(key, duplicate);
            return;
        }
        while self.nodes[before as usize].duplicate != node {
            before = self.nodes[before as usize].duplicate;
        }
        self.nodes[before as usize].duplicate = duplicate;
    }

    /// As [`Self::evict`], for a block of a request that has ended: its newer duplicates are useless, too.
    fn evict_private(&mut self, node: u32) {
        if !self.semantics.forget_duplicate_blocks || self.find(self.nodes[node as usize].key) == node {
            self.evict(node);
        }
    }

    #[inline]
    fn find(&self, key: u64) -> u32 {
        if key < FIRST_PRIVATE { self.shared.get(narrow(key)) } else { self.find_private(key) }
    }

    /// Inlined into [`Self::find_all`] it would cost each shared block some instructions, too.
    #[inline(never)]
    fn find_private(&self, key: u64) -> u32 {
        self.private.get(&key).copied().unwrap_or(NONE)
    }

    /// Enters `node` for `key`, unless there is an entry already, which is returned.
    fn enter(&mut self, key: u64, node: u32) -> Option<u32> {
        if key < FIRST_PRIVATE {
            let first = self.shared.get_or_insert(narrow(key), node);
            if first.is_none() {
                self.record_change(narrow(key));
            }
            return first;
        }
        let first = *self.private.entry(key).or_insert(node);
        (first != node).then_some(first)
    }

    fn set(&mut self, key: u64, node: u32) {
        if key < FIRST_PRIVATE {
            let before = self.shared.set(narrow(key), node);
            if (before == NONE) != (node == NONE) {
                self.record_change(narrow(key));
            }
        } else if node == NONE {
            self.private.remove(&key);
        } else {
            self.private.insert(key, node);
        }
    }

    /// Records that the shared block `key` was stored in or evicted from the cache.
    fn record_change(&mut self, key: BlockKey) {
        if self.watched {
            self.changes.get_or_insert_default().push(key);
        }
    }

    fn new_node(&mut self, node: BlockNode) -> u32 {
        if let Some(index) = self.unused.pop() {
            self.nodes[index as usize] = node;
            index
        } else {
            self.nodes.push(node);
            count(self.nodes.len()) - 1
        }
    }

    /// Frees `count` anonymous blocks, of which `unhashed` have no hash.
    fn free_anonymous(&mut self, count: u32, unhashed: u32) {
        if self.semantics.free_unhashed_first {
            self.prepend_anonymous(unhashed);
            self.append_anonymous(count - unhashed);
        } else {
            self.append_anonymous(count);
        }
    }

    fn prepend_anonymous(&mut self, count: u32) {
        if count == 0 || self.head == NONE {
            return self.append_anonymous(count);
        }
        self.free += count;
        let head = self.head;
        if self.nodes[head as usize].key == ANONYMOUS {
            self.nodes[head as usize].count += count;
            return;
        }
        let node = self.new_node(BlockNode { key: ANONYMOUS, count, prev: NONE, next: head, duplicate: NONE });
        self.nodes[head as usize].prev = node;
        self.head = node;
    }

    fn append_anonymous(&mut self, count: u32) {
        if count == 0 {
            return;
        }
        self.free += count;
        if self.tail != NONE && self.nodes[self.tail as usize].key == ANONYMOUS {
            self.nodes[self.tail as usize].count += count;
            return;
        }
        let node = self.new_node(BlockNode { key: ANONYMOUS, count, prev: NONE, next: NONE, duplicate: NONE });
        self.append(node);
    }

    fn append_fenced(&mut self, count: u32, store: u64) {
        self.free += count;
        let node = self.new_node(BlockNode { key: FENCED, count, prev: NONE, next: NONE, duplicate: NONE });
        self.fences.insert(node, store);
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

    /// Removes `node` from the free list; anonymous runs that become neighbours are merged.
    fn unlink(&mut self, node: u32) {
        let BlockNode { prev, next, .. } = self.nodes[node as usize];
        match prev {
            NONE => self.head = next,
            prev => self.nodes[prev as usize].next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => self.nodes[next as usize].prev = prev,
        }
        if prev != NONE && next != NONE {
            let (a, b) = (self.nodes[prev as usize], self.nodes[next as usize]);
            if a.key == ANONYMOUS && b.key == ANONYMOUS {
                self.nodes[prev as usize].count += b.count;
                self.unlink(next);
                self.unused.push(next);
            }
        }
    }
}
