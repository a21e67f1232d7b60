//! Chunks by the ranks of a policy.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::cache_policy::{CachePolicy, EndedUse, OfferedChunk, RequestRank};
use super::chunk::{ChunkKey, ChunkSlot, Positioned};
use crate::policy::Rank;
use crate::policy::kv_cache::{
    CacheTier, ChunkOffer, ChunkTouch, ChunkUser, KvCacheDecisions, KvCachePolicy, KvChunk, KvHit,
};
use crate::units::Micros;

/// Evicts the chunk with the smallest rank that a [`KvCachePolicy`] gave it when it was touched. Of equal ranks the one that was
/// used least recently is evicted first, in the order of [`super::Lru`]: a request has one time for all its chunks, that of its
/// first access until it ends and that of its end from then on, and the tail of its prompt is evicted before its head.
#[derive(Debug)]
pub struct RankedChunks {
    policy: Box<dyn KvCachePolicy>,
    /// Tokens of a chunk.
    chunk_tokens: u32,
    /// By number of the chunk.
    chunks: Vec<Option<TouchedChunk>>,
    /// The chunks that can be evicted, the first to be evicted first.
    order: BTreeSet<EvictionKey>,
    /// The number of the last access or end of a request, and its time: never earlier than the one before, although a request
    /// may have ended some time before the policy hears of it.
    turn: u64,
    latest: Micros,
    /// Provisional turns of requests, with their times.
    turn_times: FxHashMap<u64, Micros>,
    /// Time and request of what happens now.
    now: Micros,
    user: ChunkUser,
    /// Memory for one call: numbers of chunks, their views and ranks.
    touched: Vec<ChunkSlot>,
    views: Vec<KvChunk>,
    ranks: Vec<f64>,
}

/// The smallest is evicted first: rank, turn of the last use, tail before head, number.
type EvictionKey = (Rank, u64, Reverse<u32>, ChunkSlot);

#[derive(Clone, Debug)]
struct TouchedChunk {
    view: KvChunk,
    rank: Rank,
    /// The turn of its last use, and the order in it.
    turn: u64,
    order: u32,
    evictable: bool,
}

impl TouchedChunk {
    fn key(&self, slot: ChunkSlot) -> EvictionKey {
        (self.rank, self.turn, Reverse(self.order), slot)
    }
}

impl RankedChunks {
    /// Chunks of `chunk_tokens` tokens, ranked by `policy`.
    #[must_use]
    pub fn new(policy: Box<dyn KvCachePolicy>, chunk_tokens: u32) -> Self {
        Self {
            policy,
            chunk_tokens,
            chunks: Vec::new(),
            order: BTreeSet::new(),
            turn: 0,
            latest: Micros::ZERO,
            turn_times: FxHashMap::default(),
            now: Micros::ZERO,
            user: ChunkUser::default(),
            touched: Vec::new(),
            views: Vec::new(),
            ranks: Vec::new(),
        }
    }

    /// A chunk that is stored now.
    fn view(user: ChunkUser, now: Micros, tokens: u32, position: Option<u32>) -> KvChunk {
        let mut view = KvChunk {
            created_us: now.0,
            last_use_us: now.0,
            tier: CacheTier::Cpu.number(),
            position: position.map_or(0, |end| end.saturating_sub(tokens)),
            tokens,
            uses: 1,
            touch: ChunkTouch::Stored.number(),
            ..KvChunk::default()
        };
        user.write_to(&mut view);
        view
    }

    fn next_turn(&mut self) -> u64 {
        self.turn += 1;
        self.latest = self.latest.max(self.now);
        self.turn
    }

    /// The provisional turn of a request and its time.
    fn turn_of(&mut self, request: &mut RequestRank<'_>) -> (u64, Micros) {
        let turn = request.get_or(|| {
            let turn = self.next_turn();
            self.turn_times.insert(turn, self.latest);
            turn
        });
        (turn, self.turn_times.get(&turn).copied().unwrap_or(self.now))
    }

    /// Changes chunk `slot`, which is ranked anew by [`Self::rank_touched`].
    fn touch(&mut self, slot: ChunkSlot, change: impl FnOnce(&mut TouchedChunk)) {
        if let Some(chunk) = self.chunks.get_mut(slot as usize).and_then(Option::as_mut) {
            if chunk.evictable {
                self.order.remove(&chunk.key(slot));
            }
            change(chunk);
            self.touched.push(slot);
        }
    }

    /// Asks the policy for the ranks of the chunks that were touched.
    fn rank_touched(&mut self) {
        if self.touched.is_empty() {
            return;
        }
        let chunks = &mut self.chunks;
        self.views.clear();
        self.views.extend(self.touched.iter().filter_map(|&slot| chunks[slot as usize].as_ref()).map(|one| one.view));
        self.ranks.clear();
        self.policy.keep(self.now, &self.views, &mut self.ranks);
        for (&slot, &rank) in self.touched.iter().zip(&self.ranks) {
            let Some(chunk) = &mut chunks[slot as usize] else { continue };
            chunk.rank = Rank::real(rank);
            if chunk.evictable {
                self.order.insert(chunk.key(slot));
            }
        }
        self.touched.clear();
    }
}

impl CachePolicy for RankedChunks {
    fn insert(&mut self, slot: ChunkSlot, (_, position): Positioned, request: &mut RequestRank<'_>) {
        let (turn, last_use) = match position {
            None => (self.next_turn(), self.now),
            Some(_) => self.turn_of(request),
        };
        let view = KvChunk { last_use_us: last_use.0, ..Self::view(self.user, self.now, self.chunk_tokens, position) };
        let chunk = TouchedChunk { view, rank: Rank::new(0), turn, order: position.unwrap_or(0), evictable: false };
        let index = slot as usize;
        if index >= self.chunks.len() {
            self.chunks.resize_with(index + 1, || None);
        }
        self.chunks[index] = Some(chunk);
        self.touched.push(slot);
    }

    fn inserted(&mut self) {
        self.rank_touched();
    }

    fn remove(&mut self, slot: ChunkSlot, _key: ChunkKey) {
        if let Some(chunk) = self.chunks[slot as usize].take().filter(|chunk| chunk.evictable) {
            self.order.remove(&chunk.key(slot));
        }
    }

    fn set_evictable(&mut self, slot: ChunkSlot, _key: ChunkKey, evictable: bool) {
        let Some(chunk) = &mut self.chunks[slot as usize] else { return };
        chunk.evictable = evictable;
        let key = chunk.key(slot);
        if evictable {
            self.order.insert(key);
        } else {
            self.order.remove(&key);
        }
    }

    fn missed(&mut self, _keys: &[ChunkKey]) {}

    fn used(&mut self, chunks: &[(Option<ChunkSlot>, Positioned)], request: &mut RequestRank<'_>) {
        let (turn, time) = self.turn_of(request);
        let user = self.user;
        for &(slot, (_, position)) in chunks {
            let Some(slot) = slot else { continue };
            self.touch(slot, |chunk| {
                let view = &mut chunk.view;
                view.touch = ChunkTouch::Reused.number();
                user.write_to(view);
                view.uses = view.uses.saturating_add(1);
                view.previous_use_us = view.last_use_us;
                if let Some(position) = position.filter(|_| chunk.turn < turn) {
                    (chunk.turn, chunk.order) = (turn, position);
                    view.last_use_us = time.0;
                }
            });
        }
        self.rank_touched();
    }

    fn ended(&mut self, chunks: &[EndedUse]) {
        let (turn, user) = (self.next_turn(), self.user);
        let now = self.latest;
        let present = chunks.iter().filter_map(|chunk| chunk.slot);
        for (order, slot) in (0..).zip(present) {
            self.touch(slot, |chunk| {
                (chunk.view.touch, chunk.view.last_use_us) = (ChunkTouch::Ended.number(), now.0);
                user.write_to(&mut chunk.view);
                (chunk.turn, chunk.order) = (turn, order);
            });
        }
        self.rank_touched();
    }

    fn evict(&mut self, number: usize, is_protected: &dyn Fn(ChunkSlot) -> bool, chosen: &mut Vec<ChunkSlot>) -> bool {
        let free = self.order.iter().map(|&(.., slot)| slot).filter(|&slot| !is_protected(slot));
        chosen.extend(free.take(number));
        if chosen.len() < number {
            chosen.clear();
            return false;
        }
        for &slot in &*chosen {
            if let Some(chunk) = self.chunks[slot as usize].take() {
                self.order.remove(&chunk.key(slot));
            }
        }
        true
    }

    fn decides(&self) -> Option<KvCacheDecisions> {
        Some(self.policy.decides())
    }

    fn set_moment(&mut self, now: Micros, user: ChunkUser) {
        (self.now, self.user) = (now, user);
    }

    fn load(&mut self, hit: &KvHit) -> bool {
        self.policy.load(hit)
    }

    fn store(&mut self, tier: &ChunkOffer, chunks: &[OfferedChunk], stored: &mut Vec<bool>) {
        let views = chunks.iter().map(|&OfferedChunk { position, offers, .. }| KvChunk {
            offers,
            ..Self::view(self.user, self.now, self.chunk_tokens, position)
        });
        self.views.clear();
        self.views.extend(views);
        self.policy.store(tier, &self.views, stored);
    }

    fn forget_rank(&mut self, rank: u64) {
        self.turn_times.remove(&rank);
    }

    fn fork(&self) -> Box<dyn CachePolicy> {
        Box::new(Self {
            policy: self.policy.fork(),
            chunks: self.chunks.clone(),
            order: self.order.clone(),
            turn_times: self.turn_times.clone(),
            touched: Vec::new(),
            views: Vec::new(),
            ranks: Vec::new(),
            ..*self
        })
    }
}
