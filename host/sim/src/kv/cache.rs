//! The KV cache of the reference engine: blocks of equal layers, or pages of groups.

use std::collections::BTreeMap;

use super::hit::CachedPrefix;
use super::pages::{GroupedKv, PageDemand, PageHit, PageTables};
use super::plain::{AllocationRequest, PlainKv};
use crate::ids::RequestId;
use crate::instance::StoreFence;
use crate::request::{BlockKey, Request};

/// The KV cache of one instance of the reference engine.
#[derive(Clone, Debug)]
pub enum PlainCache {
    /// All layers cache every token.
    Blocks(Box<PlainKv>),
    /// Groups of layers with rules of their own.
    Pages(Box<PagedCache>),
}

/// A pool of pages with the tables of the requests that hold some.
#[derive(Clone, Debug)]
pub struct PagedCache {
    pool: GroupedKv,
    tables: BTreeMap<RequestId, PageTables>,
}

impl AllocationRequest<'_> {
    fn demand(&self) -> PageDemand<'_> {
        PageDemand {
            request: self.request,
            start: self.start,
            end: self.end,
            known: if self.in_flight { self.start } else { self.end },
            prefill_end: self.prefill_end,
            finished: self.finished,
        }
    }

    fn page_hit(&self) -> PageHit {
        self.hit.cloned().unwrap_or_default()
    }
}

impl PlainCache {
    /// The blocks, if there are no groups.
    pub fn blocks_mut(&mut self) -> Option<&mut PlainKv> {
        match self {
            Self::Blocks(kv) => Some(kv),
            Self::Pages(_) => None,
        }
    }

    /// A pool of pages that no request holds.
    #[must_use]
    pub fn paged(pool: GroupedKv) -> Self {
        Self::Pages(Box::new(PagedCache { pool, tables: BTreeMap::new() }))
    }

    /// A step begins.
    pub fn begin_step(&mut self) {
        if let Self::Pages(cache) = self {
            cache.pool.begin_step();
        }
    }

    /// A step is planned.
    pub fn end_plan(&mut self) {
        if let Self::Pages(cache) = self {
            cache.pool.end_plan();
        }
    }

    /// Number of blocks or pages that no request holds.
    #[must_use]
    pub fn free_blocks(&self) -> u32 {
        match self {
            Self::Blocks(kv) => kv.free_blocks(),
            Self::Pages(cache) => cache.pool.free_pages(),
        }
    }

    /// Number of those that requests hold.
    #[must_use]
    pub fn held_blocks(&self) -> u32 {
        match self {
            Self::Blocks(kv) => kv.held_blocks(),
            Self::Pages(cache) => cache.pool.total_pages() - cache.pool.free_pages(),
        }
    }

    /// Number of those that request `id` holds, alone or together with others.
    #[must_use]
    pub fn held_by(&self, id: RequestId) -> u32 {
        match self {
            Self::Blocks(kv) => kv.held_by(id),
            Self::Pages(cache) => cache.tables.get(&id).map_or(0, PageTables::held),
        }
    }

    /// Pages held per group, by all requests together; shared ones count once per request. Empty without groups.
    #[must_use]
    pub fn held_by_group(&self) -> Vec<u32> {
        let Self::Pages(cache) = self else { return Vec::new() };
        let held = |group| cache.tables.values().map(|tables| tables.held_in(group)).sum();
        (0..cache.pool.layout().groups.len()).map(held).collect()
    }

    /// Number of leading blocks of request `id` that `requests` requests hold, for two requests or more; 0 with groups, of which no
    /// latency model reads common prefixes.
    #[must_use]
    pub fn common_blocks(&self, id: RequestId, requests: u32) -> u32 {
        match self {
            Self::Blocks(kv) => kv.common_blocks(id, requests),
            Self::Pages(_) => 0,
        }
    }

    /// What is cached of the first `tokens` tokens of `request`.
    #[must_use]
    pub fn cached_prefix(&self, request: &Request, tokens: u32) -> CachedPrefix {
        match self {
            Self::Blocks(kv) => CachedPrefix::Blocks(kv.cached_prefix(request, tokens)),
            Self::Pages(cache) => CachedPrefix::Pages(cache.pool.look_up(request, tokens)),
        }
    }

    /// Blocks or pages that the allocation takes from the free ones. `whole`: of a prompt that is admitted as a whole, of which
    /// windows hold no more than theirs.
    #[must_use]
    pub fn needs(&self, allocation: &AllocationRequest<'_>, whole: bool) -> u32 {
        match self {
            Self::Blocks(kv) => kv.needs(allocation.end, allocation.cached),
            Self::Pages(cache) => {
                let none = PageTables::default();
                let tables = cache.tables.get(&allocation.request.id).unwrap_or(&none);
                cache.pool.needs(tables, &allocation.demand(), &allocation.page_hit(), whole)
            }
        }
    }

    /// Blocks or pages that a request which has some takes for further tokens; `whole` as in [`Self::needs`].
    #[must_use]
    pub fn grows(&self, allocation: &AllocationRequest<'_>, whole: bool) -> u32 {
        match self {
            Self::Blocks(kv) => {
                let blocks = |tokens: u32| tokens.div_ceil(kv.block_size());
                blocks(allocation.end).saturating_sub(blocks(allocation.start))
            }
            Self::Pages(_) => self.needs(allocation, whole),
        }
    }

    /// Whether the hit needs a state that is written in this very step.
    #[must_use]
    pub fn is_too_new(&self, cached: &CachedPrefix) -> bool {
        match (self, cached) {
            (Self::Pages(cache), CachedPrefix::Pages(hit)) => cache.pool.is_too_new(hit),
            _ => false,
        }
    }

    /// Tokens of the chunk of `allocation`, cut so that states fall on block boundaries; `known` tokens are known in all, and no chunk
    /// has more than `most`.
    #[must_use]
    pub fn cut_chunk(&self, allocation: &AllocationRequest<'_>, known: u32, most: u32) -> u32 {
        let Self::Pages(cache) = self else { return allocation.end - allocation.start };
        let tables = cache.tables.get(&allocation.request.id);
        let junction = match tables {
            Some(tables) => GroupedKv::junction(tables),
            None => allocation.hit.and_then(|hit| hit.junction),
        };
        cache.pool.cut_chunk(&allocation.demand(), known, junction, most)
    }

    /// Allocates blocks or pages for the tokens, or returns `false`.
    pub fn allocate(&mut self, allocation: &AllocationRequest<'_>) -> bool {
        match self {
            Self::Blocks(kv) => kv.allocate(allocation),
            Self::Pages(cache) => cache.allocate(allocation),
        }
    }

    /// The last of `computed` tokens is no longer in flight: a block that it filled gets its hash.
    pub fn finish_in_flight(&mut self, request: &Request, computed: u32) {
        match self {
            Self::Blocks(kv) => kv.finish_in_flight(request, computed),
            Self::Pages(cache) => cache.register(request, computed),
        }
    }

    /// The load of the first `tokens` tokens of `request` was seen to have ended: in vLLM they get hashes before their request is admitted,
    /// so that a state among them is copied.
    pub fn register_loaded(&mut self, request: &Request, tokens: u32) {
        if let Self::Pages(cache) = self {
            cache.register(request, tokens);
        }
    }

    /// The first `tokens` tokens of `request` are loaded: its full blocks get hashes.
    pub fn hash_loaded(&mut self, request: &Request, tokens: u32, block_size: u32) {
        match self {
            Self::Blocks(kv) => kv.hash_loaded(request, tokens / block_size),
            Self::Pages(_) => {} // they have them
        }
    }

    /// Releases what `id` holds.
    pub fn release(&mut self, id: RequestId) {
        match self {
            Self::Blocks(kv) => kv.release(id),
            Self::Pages(cache) => {
                if let Some(mut tables) = cache.tables.remove(&id) {
                    cache.pool.release(&mut tables);
                }
            }
        }
    }

    /// Request `id` has ended, and these of its blocks are being stored. Only models without groups have a CPU tier.
    pub(crate) fn fence(&mut self, id: RequestId, fence: StoreFence) {
        if let Self::Blocks(kv) = self {
            kv.fence(id, fence);
        }
    }

    /// The last store of a block that was taken or claimed since the last call; 0 for none.
    pub fn take_flush(&mut self) -> u64 {
        self.blocks_mut().map_or(0, |kv| kv.take_flush())
    }

    /// From now on changes are collected for [`Self::take_changes`].
    pub fn watch(&mut self) {
        match self {
            Self::Blocks(kv) => kv.watch(),
            Self::Pages(cache) => cache.pool.watch(),
        }
    }

    /// Calls `each` for every shared key that was stored or evicted since the last call, with its present state.
    pub fn take_changes(&mut self, each: &mut dyn FnMut(BlockKey, bool)) {
        match self {
            Self::Blocks(kv) => kv.take_changes(each),
            Self::Pages(cache) => cache.pool.take_changes(each),
        }
    }

    /// Whether a look-up would find the block `key`.
    #[must_use]
    pub fn finds(&self, key: BlockKey) -> bool {
        match self {
            Self::Blocks(kv) => kv.finds(key),
            Self::Pages(cache) => cache.pool.finds(key),
        }
    }

    /// Number of blocks that were claimed of the prefix cache.
    #[must_use]
    pub fn hits(&self) -> u64 {
        match self {
            Self::Blocks(kv) => kv.hits,
            Self::Pages(cache) => cache.pool.hits / u64::from(cache.pool.layout().hash_block),
        }
    }

    /// Number of blocks or pages that were taken without a hit.
    #[must_use]
    pub fn misses(&self) -> u64 {
        match self {
            Self::Blocks(kv) => kv.misses,
            Self::Pages(cache) => cache.pool.misses,
        }
    }
}

impl PagedCache {
    fn allocate(&mut self, allocation: &AllocationRequest<'_>) -> bool {
        let (demand, hit) = (allocation.demand(), allocation.page_hit());
        let tables = self.tables.entry(allocation.request.id).or_default();
        self.pool.drop_unread(tables, demand.finished);
        if self.pool.needs(tables, &demand, &hit, false) > self.pool.free_pages() {
            if !tables.holds_any() {
                self.tables.remove(&allocation.request.id);
            }
            return false;
        }
        self.pool.take(tables, &demand, &hit);
        true
    }

    fn register(&mut self, request: &Request, tokens: u32) {
        if let Some(tables) = self.tables.get_mut(&request.id) {
            self.pool.register(tables, request, tokens, None);
        }
    }
}
