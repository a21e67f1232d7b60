//! The reference KV cache as the specification describes it: one record per block, one list per request.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustc_hash::FxHashMap;

use super::hit::CachedPrefix;
use super::leading;
use super::pages::PageHit;
use crate::ids::RequestId;
use crate::instance::StoreFence;
use crate::numbers::count;
use crate::request::{BlockKey, Request};
use crate::semantics::Semantics;

/// Identity of a full block's content, including everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum BlockHash {
    /// A content that the workload has identified: other requests may have it, too.
    Shared(BlockKey),
    /// Block `index` of request `id`, which no other request has.
    Own { id: RequestId, index: u32 },
    /// A block with another block before it than its prompt has, or none: a number for each such pair. It stands behind a
    /// free full hit, or behind blocks that a reload of a lower tier has replaced.
    Detached(u32),
}

#[derive(Clone, Debug, Default)]
struct Block {
    refs: u32,
    tokens: u32,
    hash: Option<BlockHash>,
    /// The last store of it by a request that has ended; 0 for none.
    store: u64,
}

/// The blocks that one request holds.
#[derive(Clone, Debug, Default)]
struct OwnedBlocks {
    blocks: Vec<u32>,
    /// Index, in the request, of the first of `blocks`: not 0 only after a free full hit.
    first_index: u32,
}

/// A request for KV blocks.
pub struct AllocationRequest<'a> {
    /// The request that needs the blocks.
    pub request: &'a Request,
    /// First token to allocate; everything before is allocated.
    pub start: u32,
    /// End of the tokens to allocate, exclusive.
    pub end: u32,
    /// Whether the request is in prefill.
    pub prefill: bool,
    /// Whether the last of these tokens is still being generated (asynchronous scheduling): then a block that it fills
    /// can be hashed only with the next token.
    pub in_flight: bool,
    /// Cached blocks to claim, from [`PlainKv::cached_prefix`]; empty unless the request enters the batch.
    pub cached: &'a [u32],
    /// The same as pages of groups.
    pub hit: Option<&'a PageHit>,
    /// End of the prefill: the prompt, and after a preemption all tokens but the last.
    pub prefill_end: u32,
    /// Tokens that steps have computed which have finished; with asynchronous scheduling one step fewer than are planned.
    pub finished: u32,
}

impl<'a> AllocationRequest<'a> {
    /// For the tokens `start..end` of a prompt.
    #[must_use]
    pub fn of_prompt(request: &'a Request, start: u32, end: u32) -> Self {
        let prefill_end = request.input_tokens;
        let (prefill, in_flight) = (true, false);
        Self { request, start, end, prefill, in_flight, cached: &[], hit: None, prefill_end, finished: start }
    }

    /// The same after a claim of `cached`.
    #[must_use]
    pub fn claiming(self, cached: &'a CachedPrefix) -> Self {
        match cached {
            CachedPrefix::Blocks(cached) => Self { cached, ..self },
            CachedPrefix::Pages(hit) => Self { hit: Some(hit), ..self },
        }
    }
}

/// The state of all blocks, used and free.
#[derive(Clone, Debug)]
pub struct PlainKv {
    block_size: u32,
    caching: bool,
    semantics: Semantics,
    blocks: Vec<Block>,
    free: VecDeque<u32>,
    /// Number of blocks with `refs` above 0, counted where that changes: together with those in `free` they are all
    /// blocks.
    held: u32,
    by_hash: FxHashMap<BlockHash, Vec<u32>>,
    /// [`BlockHash::Detached`] by the hash of the block before it and the hash that it has in its prompt.
    detached: FxHashMap<(Option<BlockHash>, BlockHash), u32>,
    owned: BTreeMap<RequestId, OwnedBlocks>,
    /// The last store of a block that was taken or claimed since [`Self::take_flush`].
    flush: u64,
    /// The shared keys in the cache at the last report, if the cache is watched.
    reported: Option<BTreeSet<BlockKey>>,
    /// Number of cached blocks that were claimed.
    pub hits: u64,
    /// Number of blocks that were allocated without a hit.
    pub misses: u64,
}

impl PlainKv {
    /// A cache of `total` empty blocks of `block_size` tokens.
    #[must_use]
    pub fn new(total: u32, block_size: u32, caching: bool, semantics: Semantics) -> Self {
        Self {
            block_size,
            caching,
            semantics,
            blocks: vec![Block::default(); total as usize],
            free: (0..total).collect(),
            held: 0,
            by_hash: FxHashMap::default(),
            detached: FxHashMap::default(),
            owned: BTreeMap::new(),
            flush: 0,
            reported: None,
            hits: 0,
            misses: 0,
        }
    }

    /// Number of blocks that no request holds.
    #[must_use]
    pub fn free_blocks(&self) -> u32 {
        count(self.free.len())
    }

    /// Number of blocks that requests hold.
    #[must_use]
    pub fn held_blocks(&self) -> u32 {
        self.held
    }

    /// Number of blocks that request `id` holds, alone or together with others.
    #[must_use]
    pub fn held_by(&self, id: RequestId) -> u32 {
        self.owned.get(&id).map_or(0, |owned| count(owned.blocks.len()))
    }

    /// Number of leading blocks of request `id` that `requests` requests hold, for two requests or more.
    #[must_use]
    pub fn common_blocks(&self, id: RequestId, requests: u32) -> u32 {
        let Some(owned) = self.owned.get(&id).filter(|owned| owned.first_index == 0) else { return 0 };
        let held_by_all = |&block: &u32| self.blocks[block as usize].refs == requests;
        leading(|index| owned.blocks.get(index as usize).is_some_and(held_by_all))
    }

    /// From now on changes are collected for [`Self::take_changes`].
    pub fn watch(&mut self) {
        if self.reported.is_none() {
            self.reported = Some(self.shared_keys());
        }
    }

    /// Calls `each` for every shared key that was stored or evicted since the last call, with its present state.
    pub fn take_changes(&mut self, each: &mut dyn FnMut(BlockKey, bool)) {
        let Some(before) = &self.reported else { return };
        let now = self.shared_keys();
        for &key in before.symmetric_difference(&now) {
            each(key, now.contains(&key));
        }
        self.reported = Some(now);
    }

    fn shared_keys(&self) -> BTreeSet<BlockKey> {
        let shared = |hash: &BlockHash| match *hash {
            BlockHash::Shared(key) => Some(key),
            BlockHash::Own { .. } | BlockHash::Detached(_) => None,
        };
        self.by_hash.keys().filter_map(shared).collect()
    }

    /// Whether a look-up would find the block `key`.
    pub(crate) fn finds(&self, key: BlockKey) -> bool {
        self.find(BlockHash::Shared(key)).is_some()
    }

    /// The leading full blocks of the first `tokens` tokens of `request` that are in the cache.
    #[must_use]
    pub fn cached_prefix(&self, request: &Request, tokens: u32) -> Vec<u32> {
        if !self.caching {
            return Vec::new();
        }
        let keys: Vec<u32> = request.content.keys().collect();
        (0..tokens / self.block_size).map_while(|index| self.find(hash_of(request, &keys, index))).collect()
    }

    /// Number of free blocks that the first `tokens` tokens of a request need, after claiming `cached`.
    #[must_use]
    pub fn needs(&self, tokens: u32, cached: &[u32]) -> u32 {
        tokens.div_ceil(self.block_size) - count(cached.len()) + self.on_free_list(cached)
    }

    /// Allocates blocks for the tokens, or changes nothing and returns `false`.
    pub fn allocate(&mut self, allocation: &AllocationRequest<'_>) -> bool {
        let id = allocation.request.id;
        let owned = self.owned.get(&id);
        let spare =
            owned.and_then(|o| o.blocks.last()).map_or(0, |&last| self.block_size - self.blocks[last as usize].tokens);
        let fresh = (allocation.end - allocation.start).saturating_sub(spare).div_ceil(self.block_size);
        if fresh + self.on_free_list(allocation.cached) > self.free_blocks() {
            return false;
        }
        if allocation.start == allocation.end {
            return true; // nothing to allocate: not even the cached blocks are claimed
        }
        if owned.is_none() {
            for &block in allocation.cached {
                self.claim(block);
            }
            let first_index = if allocation.prefill { 0 } else { allocation.start / self.block_size };
            self.owned.insert(id, OwnedBlocks { blocks: allocation.cached.to_vec(), first_index });
        }
        self.write_tokens(allocation);
        true
    }

    /// Hashes a block that the last of `computed` tokens filled, because that token is no longer in flight.
    pub fn finish_in_flight(&mut self, request: &Request, computed: u32) {
        let one_token = self.block_size == 1 && self.semantics.skip_one_token_decode_blocks;
        if computed.is_multiple_of(self.block_size) && !one_token && self.owned.contains_key(&request.id) {
            let keys: Vec<u32> = request.content.keys().collect();
            self.hash_last_block(request, &keys, computed);
        }
    }

    /// Hashes the first `blocks` blocks of `request`, because they are loaded.
    pub fn hash_loaded(&mut self, request: &Request, blocks: u32) {
        let keys: Vec<u32> = request.content.keys().collect();
        for index in 0..blocks {
            let block = self.owned[&request.id].blocks[index as usize];
            if self.blocks[block as usize].hash.is_none() {
                self.hash_block(block, hash_of(request, &keys, index));
            }
        }
    }

    /// Request `id` has ended, and these of its blocks are being stored.
    pub(crate) fn fence(&mut self, id: RequestId, fence: StoreFence) {
        let Some(owned) = self.owned.get(&id) else { return };
        for &block in &owned.blocks[fence.from as usize..fence.to as usize] {
            let store = &mut self.blocks[block as usize].store;
            *store = fence.store.max(*store);
        }
    }

    /// The last store, perhaps ended, of a block that was taken or claimed since the last call; 0 for none.
    pub fn take_flush(&mut self) -> u64 {
        std::mem::take(&mut self.flush)
    }

    /// Releases all blocks that `id` holds, its last block first. Blocks without a hash are reused first, if the
    /// semantics say so.
    pub fn release(&mut self, id: RequestId) {
        let Some(owned) = self.owned.remove(&id) else { return };
        for &block in owned.blocks.iter().rev() {
            let record = &mut self.blocks[block as usize];
            record.refs -= 1;
            if record.refs == 0 {
                self.held -= 1;
                if self.semantics.free_unhashed_first && record.hash.is_none() {
                    self.free.push_front(block);
                } else {
                    self.free.push_back(block);
                }
            }
        }
    }

    fn on_free_list(&self, blocks: &[u32]) -> u32 {
        count(blocks.iter().filter(|&&block| self.blocks[block as usize].refs == 0).count())
    }

    fn claim(&mut self, block: u32) {
        if self.blocks[block as usize].refs == 0 {
            self.free.retain(|&free| free != block);
            self.held += 1;
        }
        self.blocks[block as usize].refs += 1;
        self.flush = self.flush.max(self.blocks[block as usize].store);
        self.hits += 1;
    }

    fn write_tokens(&mut self, allocation: &AllocationRequest<'_>) {
        let id = allocation.request.id;
        let keys: Vec<u32> = allocation.request.content.keys().collect();
        let one_token = self.block_size == 1 && self.semantics.skip_one_token_decode_blocks;
        if allocation.in_flight && allocation.start.is_multiple_of(self.block_size) && !one_token {
            self.hash_last_block(allocation.request, &keys, allocation.start);
        }
        let mut left = allocation.end - allocation.start;
        while left > 0 {
            let owned = &self.owned[&id];
            let partial =
                owned.blocks.last().copied().filter(|&last| self.blocks[last as usize].tokens < self.block_size);
            let (block, started) = match partial {
                Some(block) => (block, false),
                None => (self.take(), true),
            };
            if started {
                self.owned.get_mut(&id).expect("inserted by allocate").blocks.push(block);
            }
            let record = &mut self.blocks[block as usize];
            let written = left.min(self.block_size - record.tokens);
            record.tokens += written;
            left -= written;
            let full = record.tokens == self.block_size;
            let unhashed = started && !allocation.prefill && self.semantics.skip_one_token_decode_blocks;
            if full && !unhashed && !allocation.in_flight {
                self.hash_last_block(allocation.request, &keys, allocation.end - left);
            }
        }
    }

    /// Hashes the last block of `request`, which the last of its first `tokens` tokens fills.
    fn hash_last_block(&mut self, request: &Request, keys: &[u32], tokens: u32) {
        if !self.caching {
            return;
        }
        let owned = &self.owned[&request.id];
        let Some((&block, before)) = owned.blocks.split_last() else { return };
        if self.blocks[block as usize].hash.is_none() {
            let before = before.last().and_then(|&before| self.blocks[before as usize].hash);
            let index = (tokens / self.block_size).saturating_sub(1);
            let hash = hash_of(request, keys, index);
            let hash = if before == hash_before(request, keys, index) {
                hash
            } else {
                let next = count(self.detached.len());
                BlockHash::Detached(*self.detached.entry((before, hash)).or_insert(next))
            };
            self.hash_block(block, hash);
        }
    }

    /// Removes and returns the next block for a request, and evicts its content.
    fn take(&mut self) -> u32 {
        let block = self.reuse();
        self.blocks[block as usize].refs = 1;
        self.held += 1;
        self.misses += 1;
        block
    }

    /// Removes the first free block, which becomes empty.
    fn reuse(&mut self) -> u32 {
        let block = self.free.pop_front().expect("allocate checked that there is room");
        let record = std::mem::take(&mut self.blocks[block as usize]);
        self.flush = self.flush.max(record.store);
        if let Some(hash) = record.hash {
            if self.semantics.forget_duplicate_blocks {
                self.by_hash.remove(&hash);
            } else if let Some(duplicates) = self.by_hash.get_mut(&hash) {
                duplicates.retain(|&duplicate| duplicate != block);
                if duplicates.is_empty() {
                    self.by_hash.remove(&hash);
                }
            }
        }
        block
    }

    fn hash_block(&mut self, block: u32, hash: BlockHash) {
        self.blocks[block as usize].hash = Some(hash);
        let duplicates = self.by_hash.entry(hash).or_default();
        if self.semantics.forget_duplicate_blocks {
            duplicates.clear();
        }
        duplicates.push(block);
    }

    fn find(&self, hash: BlockHash) -> Option<u32> {
        self.by_hash.get(&hash).and_then(|duplicates| duplicates.first().copied())
    }
}

/// What the tiers below the GPU do to it.
impl PlainKv {
    /// Size of a block, tokens.
    pub(super) fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Whether request `id` holds blocks.
    pub(super) fn holds(&self, id: RequestId) -> bool {
        self.owned.contains_key(&id)
    }

    /// Whether a block with that content is in the cache.
    pub(super) fn contains(&self, hash: BlockHash) -> bool {
        self.find(hash).is_some()
    }

    /// The contents of the blocks that request `id` holds, in their order; `None` for those without a hash.
    pub(super) fn held_hashes(&self, id: RequestId) -> impl Iterator<Item = Option<BlockHash>> + '_ {
        self.owned.get(&id).into_iter().flat_map(|owned| &owned.blocks).map(|&block| self.blocks[block as usize].hash)
    }

    /// The content of `block`.
    pub(super) fn hash_at(&self, block: u32) -> Option<BlockHash> {
        self.blocks[block as usize].hash
    }

    /// The contents of the full blocks of the prompt of `request` from index `first` on, if a block with hash `before`
    /// precedes them. They end where no block can have such a content.
    pub(super) fn prompt_hashes(&self, request: &Request, first: u32, before: Option<BlockHash>) -> Vec<BlockHash> {
        let keys: Vec<u32> = request.content.keys().collect();
        let full = request.input_tokens / self.block_size;
        let mut before = before;
        let next = |index: u32| {
            let hash = hash_of(request, &keys, index);
            let hash = if before == hash_before(request, &keys, index) {
                Some(hash)
            } else {
                self.detached.get(&(before, hash)).map(|&number| BlockHash::Detached(number))
            };
            before = hash;
            hash
        };
        (first..full).map_while(next).collect()
    }

    /// Puts a block with content `hash` at the end of the free blocks. The first free block is reused for it: there must be
    /// one.
    pub(super) fn reload(&mut self, hash: BlockHash) {
        let block = self.reuse();
        self.blocks[block as usize].tokens = self.block_size;
        self.hash_block(block, hash);
        self.free.push_back(block);
    }

    /// Appends cached blocks to those that request `id` holds.
    pub(super) fn claim_for(&mut self, id: RequestId, cached: &[u32]) {
        for &block in cached {
            self.claim(block);
            self.owned.entry(id).or_default().blocks.push(block);
        }
    }
}

/// The content of the block before block `index` of `request`; `None` before the first.
fn hash_before(request: &Request, keys: &[u32], index: u32) -> Option<BlockHash> {
    index.checked_sub(1).map(|before| hash_of(request, keys, before))
}

fn hash_of(request: &Request, keys: &[u32], index: u32) -> BlockHash {
    match keys.get(index as usize) {
        Some(&key) => BlockHash::Shared(key),
        None => BlockHash::Own { id: request.id, index },
    }
}
