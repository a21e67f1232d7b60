//! Adapters by the ranks of a policy.

use rustc_hash::FxHashMap;

use crate::ids::RequestId;
use crate::policy::Rank;
use crate::policy::kv_cache::{CacheTier, ChunkTouch, ChunkUser, KvCachePolicy, KvChunk};
use crate::request::{Name, Request};
use crate::units::Micros;

/// Chooses the adapter that makes room for another by a [`KvCachePolicy`], which ranks those that could when one has to: an
/// adapter is to it a chunk of [`CacheTier::AdapterSlots`] or [`CacheTier::AdapterMemory`] with the tokens 1.
#[derive(Debug)]
pub(super) struct RankedAdapters {
    policy: Box<dyn KvCachePolicy>,
    /// What the policy sees of each adapter that is held.
    views: FxHashMap<Name, KvChunk>,
    /// Memory for one decision.
    seen: Vec<KvChunk>,
    ranks: Vec<f64>,
    choices: Vec<AdapterChoice>,
    /// Choices decided in advance: of which request, where, and which adapter makes room.
    forced: Vec<(RequestId, CacheTier, Name)>,
}

/// Which adapter makes room in `tier`, of several that could, with the rank of each.
#[derive(Clone, Debug)]
pub(crate) struct AdapterChoice {
    pub tier: CacheTier,
    pub candidates: Vec<Name>,
    pub ranks: Vec<f64>,
    pub evicted: Name,
}

/// A clone forks the policy.
impl Clone for RankedAdapters {
    fn clone(&self) -> Self {
        Self { views: self.views.clone(), forced: self.forced.clone(), ..Self::new(self.policy.fork()) }
    }
}

impl RankedAdapters {
    pub fn new(policy: Box<dyn KvCachePolicy>) -> Self {
        Self {
            policy,
            views: FxHashMap::default(),
            seen: Vec::new(),
            ranks: Vec::new(),
            choices: Vec::new(),
            forced: Vec::new(),
        }
    }

    /// `request`, which names an adapter that is held, enters the batch at `now`.
    pub fn used(&mut self, request: &Request, now: Micros) {
        let user = ChunkUser { tags: request.tags, input_tokens: request.input_tokens };
        let touch = ChunkTouch::Ended.number();
        let first = KvChunk { created_us: now.0, last_use_us: now.0, touch, ..KvChunk::default() };
        let view = self.views.entry(request.tags.adapter).or_insert(first);
        if view.uses > 0 {
            view.previous_use_us = view.last_use_us;
        }
        view.last_use_us = now.0;
        user.write_to(view);
        view.uses = view.uses.saturating_add(1);
    }

    /// The adapter `name` is no longer held.
    pub fn forget(&mut self, name: Name) {
        self.views.remove(&name);
    }

    /// Decides in advance that `adapter` makes room when request `id` next needs some in `tier`, if it can then.
    pub fn force(&mut self, id: RequestId, tier: CacheTier, adapter: Name) {
        self.forced.push((id, tier, adapter));
    }

    /// The index in `candidates`, which are in `tier`, the least recently used first, of the one that makes room for the adapter of
    /// request `id`; there is at least one.
    pub fn choose(&mut self, now: Micros, id: RequestId, tier: CacheTier, candidates: Vec<Name>) -> usize {
        let (unknown, tier_number) = (KvChunk::default(), tier.number());
        let views =
            candidates.iter().map(|name| KvChunk { tier: tier_number, ..*self.views.get(name).unwrap_or(&unknown) });
        self.seen.clear();
        self.seen.extend(views);
        self.ranks.clear();
        self.policy.keep(now, &self.seen, &mut self.ranks);
        let first = (0..candidates.len()).min_by_key(|&index| self.ranks.get(index).map(|&rank| Rank::real(rank)));
        let forced = self.forced.iter().position(|&(of, within, _)| (of, within) == (id, tier));
        let forced = forced.map(|index| self.forced.swap_remove(index).2);
        let forced = forced.and_then(|adapter| candidates.iter().position(|&candidate| candidate == adapter));
        let chosen = forced.or(first).unwrap_or(0);
        if candidates.len() > 1 && self.ranks.len() == candidates.len() {
            let (evicted, ranks) = (candidates[chosen], self.ranks.clone());
            self.choices.push(AdapterChoice { tier, candidates, ranks, evicted });
        }
        chosen
    }

    /// Forgets the choices so far.
    pub fn clear_choices(&mut self) {
        self.choices.clear();
    }

    /// The choices between two adapters or more since they were cleared.
    pub fn choices(&self) -> &[AdapterChoice] {
        &self.choices
    }
}
