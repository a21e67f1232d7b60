//! The CPU tiers of the other replicas as a tier below (vLLM 0.33's `secondary_tiers` of type `p2p`, with llm-d's router, which names
//! the replica that has most of a prompt).
//!
//! An index has what each replica holds in its CPU tier, as of the latency ago ([`PeerIndex`]). A chunk that the own tier does not have
//! and another has is fetched: the request for it takes the latency, the other replica pins the chunk ([`PeerTier::serve`]), and the
//! chunk arrives in the own tier the latency and the transfer later. A chunk that has left the other tier in the meantime is refused:
//! its room is free again at the time at which it would have arrived, and it is computed.
//!
//! ```text
//! now             + latency              + 2 · latency            end
//! fetch is asked   pinned, or refused     refusals are known here  chunks are there, pins end
//! ```
//!
//! Each replica receives one fetch after the other. That a replica sends to several at a time slows down none of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::chunk::ChunkKey;
use super::{CpuTier, Lookup, SecondaryConfig, SecondaryCounters};
use crate::ids::{InstanceIndex, RequestId};
use crate::numbers::truncated;
use crate::units::Micros;

/// What one replica fetches from others, and what others fetch from it.
#[derive(Clone, Debug)]
pub struct PeerTier {
    index: InstanceIndex,
    config: SecondaryConfig,
    /// Size of a chunk, of all GPUs of the instance, bytes.
    chunk_bytes: u64,
    held: PeerIndex,
    /// For each request, what the index had when it first asked: whether another replica has the chunk.
    asked: FxHashMap<RequestId, FxHashMap<ChunkKey, bool>>,
    /// Fetches of the present step, by request, in the order of the first.
    new_fetches: Vec<(RequestId, Vec<ChunkKey>)>,
    /// Fetches that have not arrived, in the order of their ends.
    fetches: VecDeque<Fetch>,
    /// Number of fetches so far.
    number: u64,
    /// The end of the last one, µs.
    free_at: f64,
    /// Fetches of others that have not reached this replica, or were not looked at yet.
    inbox: BTreeMap<(Micros, InstanceIndex, u64), FetchRequest>,
    /// Chunks pinned for others, by the end of their transfer.
    pinned: BTreeMap<(Micros, InstanceIndex, u64), Vec<ChunkKey>>,
    news: PeerNews,
    counters: SecondaryCounters,
}

/// Chunks on their way to this replica.
#[derive(Clone, Debug)]
struct Fetch {
    number: u64,
    end: Micros,
    chunks: Vec<ChunkKey>,
    refused: FxHashSet<ChunkKey>,
}

/// The news of a replica for the others. None of it reaches them earlier than the latency after it happened.
#[derive(Clone, Debug, Default)]
pub struct PeerNews {
    /// Chunks that came into its CPU tier or left it, and when others know of it.
    pub held: Vec<(ChunkKey, bool, Micros)>,
    /// Fetches that it asks for.
    pub fetches: Vec<FetchRequest>,
    /// Chunks that it cannot send.
    pub refusals: Vec<FetchRefusal>,
}

/// One replica asks another for chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// The replica that has them.
    pub to: InstanceIndex,
    from: InstanceIndex,
    number: u64,
    /// When it reaches the replica.
    at: Micros,
    /// When the chunks have arrived.
    end: Micros,
    chunks: Vec<ChunkKey>,
}

/// Chunks of a fetch that are no longer there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRefusal {
    /// The replica that asked for them.
    pub to: InstanceIndex,
    number: u64,
    chunks: Vec<ChunkKey>,
}

/// What the end of a fetch, or of a transfer to another replica, means for the own CPU tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerChange {
    /// These chunks have arrived, or, if `false`, will not.
    Fetched(Vec<ChunkKey>, bool),
    /// These chunks were sent: a pin of each ends.
    Sent(Vec<ChunkKey>),
}

impl PeerTier {
    /// The tier of instance `index`, with chunks of `chunk_bytes` bytes, ≥ 1.
    #[must_use]
    pub fn new(index: InstanceIndex, config: SecondaryConfig, chunk_bytes: u64) -> Self {
        Self {
            index,
            config,
            chunk_bytes,
            held: PeerIndex::default(),
            asked: FxHashMap::default(),
            new_fetches: Vec::new(),
            fetches: VecDeque::new(),
            number: 0,
            free_at: 0.0,
            inbox: BTreeMap::new(),
            pinned: BTreeMap::new(),
            news: PeerNews::default(),
            counters: SecondaryCounters::default(),
        }
    }

    /// Whether another replica has `key`, for `request` in the step that is planned at `now`. For one request the first result holds.
    pub fn has(&mut self, now: Micros, request: RequestId, key: ChunkKey) -> bool {
        let (held, own) = (&self.held, self.index);
        let found = self.asked.entry(request).or_default();
        *found.entry(key).or_insert_with(|| held.holders(key, now).any(|holder| holder != own))
    }

    /// The own CPU tier has no room for a chunk that another has.
    pub fn refuse(&mut self) {
        self.counters.refused += 1;
    }

    /// Fetches `key` into the own CPU tier, which has room for it, for `request`.
    pub fn fetch(&mut self, request: RequestId, key: ChunkKey) {
        match self.new_fetches.iter_mut().find(|(other, _)| *other == request) {
            Some((_, chunks)) => chunks.push(key),
            None => self.new_fetches.push((request, vec![key])),
        }
    }

    /// A request loads chunks of `tokens` tokens in total that had to be fetched.
    pub fn count_hits(&mut self, tokens: u64) {
        self.counters.hit_tokens += tokens;
        self.counters.hit_tokens_of_others += tokens;
    }

    /// Asks for the fetches of the step that was planned at `now`.
    pub fn end_planning(&mut self, now: Micros) {
        for (_, chunks) in std::mem::take(&mut self.new_fetches) {
            self.ask(now, chunks);
        }
    }

    /// Asks the replica that has most leading chunks for these, then the one that has most of the rest, and so on.
    fn ask(&mut self, now: Micros, chunks: Vec<ChunkKey>) {
        let bytes = self.chunk_bytes * chunks.len() as u64;
        let begin = self.free_at.max(now.0 as f64);
        self.free_at = begin + 2.0 * self.config.latency.0 as f64 + bytes as f64 / self.config.bandwidth;
        let end = Micros(truncated(self.free_at.ceil()));
        self.number += 1;
        self.counters.read_bytes += bytes;
        let mut fetch = Fetch { number: self.number, end, chunks, refused: FxHashSet::default() };
        let mut rest = &fetch.chunks[..];
        while let Some(&first) = rest.first() {
            let Some((to, count)) = self.held.source(rest, now, self.index) else {
                fetch.refused.insert(first);
                rest = &rest[1..];
                continue;
            };
            let (from, number, at) = (self.index, self.number, now.saturating_add(self.config.latency));
            self.news.fetches.push(FetchRequest { to, from, number, at, end, chunks: rest[..count].to_vec() });
            rest = &rest[count..];
        }
        self.fetches.push_back(fetch);
    }

    /// A chunk came into the own CPU tier at `now`, or left it.
    pub fn announce(&mut self, now: Micros, key: ChunkKey, present: bool) {
        self.news.held.push((key, present, now.saturating_add(self.config.latency)));
    }

    /// Removes and returns the news since the last call.
    pub fn take_news(&mut self) -> PeerNews {
        std::mem::take(&mut self.news)
    }

    /// This replica is gone at `now`: fetches that reach it from then on are refused. Those that reached it before are sent.
    pub fn leave(&mut self, now: Micros, tier: &mut CpuTier) {
        self.serve(now.saturating_sub(Micros(1)), tier);
        for (_, FetchRequest { from, number, chunks, .. }) in std::mem::take(&mut self.inbox) {
            self.news.refusals.push(FetchRefusal { to: from, number, chunks });
        }
    }

    /// As [`Self::take_news`], of refusals only.
    pub fn take_refusals(&mut self) -> Vec<FetchRefusal> {
        std::mem::take(&mut self.news.refusals)
    }

    /// What all replicas hold, as far as it is known.
    pub fn share(&mut self, held: &PeerIndex) {
        self.held.clone_from(held);
    }

    /// Another replica asks for chunks.
    pub fn receive(&mut self, request: FetchRequest) {
        self.inbox.insert((request.at, request.from, request.number), request);
    }

    /// Another replica cannot send chunks.
    pub fn receive_refusal(&mut self, refusal: FetchRefusal) {
        if refusal.number > self.number {
            // The replica that asked for them is gone: what remains under its index has asked for nothing.
            return;
        }
        let fetch = self.fetches.iter_mut().find(|fetch| fetch.number == refusal.number);
        fetch.expect("a refusal comes before the end of the fetch").refused.extend(refusal.chunks);
    }

    /// Pins the chunks of `tier`, the own one, that others have asked for by `now`; no step was planned since.
    pub fn serve(&mut self, now: Micros, tier: &mut CpuTier) {
        while let Some(first) = self.inbox.first_entry().filter(|first| first.key().0 <= now) {
            let FetchRequest { from, number, end, chunks, .. } = first.remove();
            let (readable, absent): (Vec<_>, Vec<_>) =
                chunks.into_iter().partition(|&key| tier.lookup(key) == Lookup::Hit);
            if !absent.is_empty() {
                self.news.refusals.push(FetchRefusal { to: from, number, chunks: absent });
            }
            if !readable.is_empty() {
                tier.pin(&readable);
                self.counters.written_bytes += self.chunk_bytes * readable.len() as u64;
                self.pinned.entry((end, from, number)).or_default().extend(readable);
            }
        }
    }

    /// Notices the transfers that have ended by `now`, after [`Self::serve`] of that time.
    pub fn notice(&mut self, now: Micros) -> Vec<PeerChange> {
        let mut changes = Vec::new();
        while let Some(fetch) = self.fetches.pop_front_if(|fetch| fetch.end <= now) {
            let (absent, arrived): (Vec<_>, Vec<_>) =
                fetch.chunks.into_iter().partition(|key| fetch.refused.contains(key));
            changes.push(PeerChange::Fetched(arrived, true));
            changes.push(PeerChange::Fetched(absent, false));
        }
        while let Some(sent) = self.pinned.first_entry().filter(|sent| sent.key().0 <= now) {
            changes.push(PeerChange::Sent(sent.remove()));
        }
        changes
    }

    /// A request has ended.
    pub fn forget(&mut self, request: RequestId) {
        self.asked.remove(&request);
    }

    /// When the next fetch arrives; `None` if there is none.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Micros> {
        self.fetches.front().map(|fetch| fetch.end)
    }

    /// When the next transfer in either direction ends, of those that are known; `None` if there is none.
    #[must_use]
    pub fn next_end(&self) -> Option<Micros> {
        let asked = self.inbox.values().map(|request| request.end).min();
        let sent = self.pinned.first_key_value().map(|(&(end, ..), _)| end);
        self.next_arrival().into_iter().chain(asked).chain(sent).min()
    }

    /// Whether nothing is on its way, in either direction.
    #[must_use]
    pub fn is_still(&self) -> bool {
        self.fetches.is_empty() && self.inbox.is_empty() && self.pinned.is_empty()
    }

    /// The counters so far: of bytes written, those that were sent to others.
    #[must_use]
    pub fn counters(&self) -> SecondaryCounters {
        self.counters
    }
}

/// Which replicas have which chunks in their CPU tiers, and when that is known to all. A clone is a handle to the same content, until
/// one of the handles changes it.
#[derive(Clone, Debug, Default)]
pub struct PeerIndex(Arc<FxHashMap<ChunkKey, Vec<HeldChunk>>>);

/// A replica holds a chunk from one time on until another.
#[derive(Clone, Copy, Debug)]
struct HeldChunk {
    holder: InstanceIndex,
    from: Micros,
    until: Micros,
}

impl PeerIndex {
    /// The replicas that have `key`, as it is known at `now`.
    fn holders(&self, key: ChunkKey, now: Micros) -> impl Iterator<Item = InstanceIndex> {
        let held = self.0.get(&key).into_iter().flatten();
        held.filter(move |held| held.from <= now && now < held.until).map(|held| held.holder)
    }

    /// The replica other than `own` that has most of the leading chunks of `keys`, and their number; of several the first. `None` if
    /// none has the first chunk.
    fn source(&self, keys: &[ChunkKey], now: Micros, own: InstanceIndex) -> Option<(InstanceIndex, usize)> {
        let mut left: Vec<InstanceIndex> = self.holders(*keys.first()?, now).filter(|&holder| holder != own).collect();
        left.sort_unstable();
        let mut best = (*left.first()?, 1);
        for (count, &key) in (1..).zip(keys) {
            let holders: Vec<InstanceIndex> = self.holders(key, now).collect();
            left.retain(|holder| holders.contains(holder));
            let Some(&first) = left.first() else { break };
            best = (first, count);
        }
        Some(best)
    }

    /// Adds what `holder` has announced. What ended by `known`, a time before which no replica will be asked again, is forgotten.
    pub fn add(&mut self, holder: InstanceIndex, changes: &[(ChunkKey, bool, Micros)], known: Micros) {
        let all = Arc::make_mut(&mut self.0);
        for &(key, present, at) in changes {
            let held = all.entry(key).or_default();
            held.retain(|held| held.until > known);
            let open = held.iter_mut().find(|held| held.holder == holder && held.until == Micros::MAX);
            match (open, present) {
                (None, true) => held.push(HeldChunk { holder, from: at, until: Micros::MAX }),
                (Some(open), false) => open.until = at,
                _ => {}
            }
            if held.is_empty() {
                all.remove(&key);
            }
        }
    }

    /// `holder` is gone: at `at` all know it.
    pub fn remove(&mut self, holder: InstanceIndex, at: Micros) {
        let all = Arc::make_mut(&mut self.0);
        let held = all.values_mut().flatten().filter(|held| held.holder == holder);
        held.for_each(|held| held.until = held.until.min(at));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BackpressurePolicy, Lru, RequestAccess, SecondaryKind, TRACKED_CHUNKS};
    use super::*;

    fn changes(all: &[(u64, bool, u64)]) -> Vec<(ChunkKey, bool, Micros)> {
        all.iter().map(|&(key, present, at)| (ChunkKey(key), present, Micros(at))).collect()
    }

    /// What another replica fetches cannot be evicted from the time at which the request arrives until it was sent.
    #[test]
    fn pins_for_another_replica_end_with_the_transfer() {
        let config = SecondaryConfig {
            kind: SecondaryKind::Peers,
            bandwidth: 10.0,
            latency: Micros(100),
            backpressure: BackpressurePolicy::None,
            shared: false,
        };
        let mut tier = CpuTier::new(4, Box::new(Lru::default()), 0, TRACKED_CHUNKS);
        let keys = [1, 2, 3].map(ChunkKey);
        let mut access = RequestAccess::default();
        tier.store(&keys.map(|key| (key, None)), &mut access).expect("there is room");
        tier.written(&keys, true);
        tier.end(access);
        let mut peers = PeerTier::new(InstanceIndex(0), config, 1000);
        let chunks = vec![ChunkKey(1), ChunkKey(2), ChunkKey(9)];
        let (to, from, at, end) = (InstanceIndex(0), InstanceIndex(1), Micros(100), Micros(500));
        peers.receive(FetchRequest { to, from, number: 7, at, end, chunks });
        let mut evictable_at = |now| {
            peers.serve(Micros(now), &mut tier);
            for change in peers.notice(Micros(now)) {
                let PeerChange::Sent(sent) = change else { panic!("it fetches nothing") };
                tier.loaded(&sent);
            }
            (tier.used(), tier.evictable())
        };
        assert_eq!([99, 100, 499, 500].map(&mut evictable_at), [(3, 3), (3, 1), (3, 1), (3, 3)]);
        let refused = vec![FetchRefusal { to: from, number: 7, chunks: vec![ChunkKey(9)] }];
        assert_eq!((peers.take_refusals(), peers.is_still()), (refused, true));
    }

    #[test]
    fn the_replica_with_most_leading_chunks_is_the_source() {
        let mut index = PeerIndex::default();
        index.add(InstanceIndex(0), &changes(&[(1, true, 10), (2, true, 10)]), Micros::ZERO);
        index.add(InstanceIndex(1), &changes(&[(1, true, 10), (2, true, 10), (3, true, 20)]), Micros::ZERO);
        index.add(InstanceIndex(2), &changes(&[(1, true, 0), (3, true, 0)]), Micros::ZERO);
        let keys = [1, 2, 3].map(ChunkKey);
        let source = |index: &PeerIndex, now, own| {
            index.source(&keys, Micros(now), InstanceIndex(own)).map(|(source, count)| (source.0, count))
        };
        assert_eq!([5, 15, 20].map(|now| source(&index, now, 5)), [Some((2, 1)), Some((0, 2)), Some((1, 3))]);
        assert_eq!((source(&index, 20, 1), source(&index, 5, 2)), (Some((0, 2)), None));
        let branch = index.clone();
        index.add(InstanceIndex(1), &changes(&[(2, false, 30), (2, true, 40)]), Micros(20));
        assert_eq!([29, 30, 40].map(|now| source(&index, now, 0)), [Some((1, 3)), Some((1, 1)), Some((1, 3))]);
        index.remove(InstanceIndex(1), Micros(50));
        assert_eq!([49, 50].map(|now| source(&index, now, 0)), [Some((1, 3)), Some((2, 1))]);
        assert_eq!(source(&branch, 50, 0), Some((1, 3)));
    }
}
