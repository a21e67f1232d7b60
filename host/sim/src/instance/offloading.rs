//! The CPU tier of an instance as vLLM 0.33's `OffloadingConnector` uses it; both engines share this.
//!
//! In the order of a step that starts at `now`:
//! 1. [`Offloading::notice`]: transfers that ended by now have ended for the scheduler, which looks only between steps.
//! 2. For a request that is about to be scheduled, [`Offloading::look_up`] asks for chunks behind the prefix that the GPU has. It
//!    defers a request with chunks that are being written, or loaded for another one. [`Offloading::load`] begins a load.
//! 3. [`Offloading::offer`]: each request of the step offers the chunks that the step completes.
//! 4. [`Offloading::start_loads`]: the loads go to the link. If a block with a store in progress was taken for another request, the
//!    step first waits for that store: a flush.
//! 5. [`Offloading::end_step`], at the end of the step: the stores go to the link, after the tokens of the step are sampled.
//!
//! With a secondary tier (`offload/secondary.rs`, or `offload/peers.rs`, which copies nothing): a chunk that was stored is copied there, a look-up that misses is continued
//! there, and what is found is read into the CPU tier, while its request is passed over.
//!
//! A store for which there was no room is offered again at every step in vLLM; here only after the tier has changed, because before
//! that there is no room either.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ids::{InstanceIndex, RequestId};
use crate::numbers::count;
use crate::offload::{
    ChunkKey, CpuTier, Lookup, MemoryLinks, OffloadConfig, PeerChange, PeerTier, Positioned, READ, RequestAccess,
    SecondaryLookup, SecondaryTier, SharedChunks, TransferDirection,
};
use crate::outcome::{LoadDecision, OffloadCounters};
use crate::policy::kv_cache::{ChunkUser, KvCacheChoice, KvHit};
use crate::request::{BlockKey, Content, Request};
use crate::units::Micros;

/// KV blocks of a request that ended while they were being stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreFence {
    /// Number of the last of these stores, > 0.
    pub store: u64,
    /// The first of the blocks, by its index in the request.
    pub from: u32,
    /// The block behind the last one.
    pub to: u32,
}

/// What the tier has for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TierHit {
    /// It is to be asked again at a later step.
    Deferred,
    /// This many tokens behind those that the GPU has, perhaps 0.
    Tokens(u32),
}

/// The state of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LoadProgress {
    #[default]
    None,
    InProgress,
    Done,
    /// Its request has ended: the KV blocks are to be released when the load has ended.
    Abandoned,
}

/// What a request has stored and loaded.
#[derive(Clone, Debug, Default)]
struct OffloadedRequest {
    access: RequestAccess,
    /// The first chunk to be offered.
    next_offer: u32,
    /// Number of its transfers in progress.
    transfers: u32,
    /// Its last store and the blocks of those in progress.
    fence: StoreFence,
    load: LoadProgress,
    /// [`Offloading::changes`] when there was no room for its chunks; `None` if there was.
    refused_at: Option<u64>,
    /// When it was deferred last, and with which prefix on the GPU: [`Offloading::changes`], [`Offloading::look_ups`], tokens.
    deferred_at: Option<(u64, u64, u32)>,
    /// Its metadata, for a policy that ranks chunks.
    user: Option<Box<ChunkUser>>,
    /// Whether it loads what the tier has, once that is decided.
    loads: Option<bool>,
    /// Whether the request has ended, and is kept for its transfers.
    ended: bool,
    /// Its chunks that the secondary tier had, and whether they were read for it: each is tried once, so that a tier that is
    /// smaller than its prompt does not read them for ever.
    promotions: FxHashMap<ChunkKey, bool>,
}

/// A transfer in progress, or about to begin.
#[derive(Clone, Debug)]
struct TransferJob {
    id: u64,
    request: RequestId,
    chunks: Vec<ChunkKey>,
    bytes: u64,
}

/// A request and its content, which is not in the request of each engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkSource<'a> {
    pub id: RequestId,
    pub request: &'a Request,
    pub content: &'a Content,
}

/// A step in which a policy decides whether a request loads what the tier has for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadMoment {
    pub instance: InstanceIndex,
    pub now: Micros,
    /// See [`KvHit`].
    pub prefill_tokens: u64,
    pub waiting: u32,
    pub running: u32,
}

impl ChunkSource<'_> {
    /// The keys of the chunks `from..to`, of `blocks` KV blocks each. A chunk has the content of its last block, which includes
    /// everything before.
    fn keys(self, from: u32, to: u32, blocks: u32) -> impl Iterator<Item = ChunkKey> {
        let mut spans = self.content.spans().iter();
        let (mut span, mut before) = (spans.next(), 0);
        (from..to).map(move |chunk| {
            let block = (chunk + 1) * blocks - 1;
            while let Some(present) = span {
                if block - before < present.len {
                    // A shared block has one key in all requests: what one stores, the others find.
                    return ChunkKey(u64::from(present.first + (block - before)));
                }
                before += present.len;
                span = spans.next();
            }
            // No other request has it.
            ChunkKey(1 << 63 | u64::from(self.id.0) << 31 | u64::from(block))
        })
    }
}

/// The CPU tier of one instance, and its transfers.
#[derive(Clone, Debug)]
pub(super) struct Offloading {
    config: OffloadConfig,
    /// Size of a KV block, tokens.
    block_size: u32,
    tier: CpuTier,
    secondary: Option<Box<SecondaryTier>>,
    /// The CPU tiers of other instances, instead of a secondary tier.
    peers: Option<Box<PeerTier>>,
    links: MemoryLinks,
    requests: FxHashMap<RequestId, OffloadedRequest>,
    /// Loads of this step, not yet on the link.
    new_loads: Vec<TransferJob>,
    /// Stores of this step, not yet on the link.
    new_stores: Vec<TransferJob>,
    /// Stores and loads on the links, in the order of submission.
    on_link: [VecDeque<TransferJob>; 2],
    /// Transfers that have ended since [`Self::notice`], stores and loads.
    unnoticed: Vec<TransferDirection>,
    /// The time at which the last of them was seen.
    advanced_to: Micros,
    /// Chunks that are being loaded.
    loading: FxHashSet<ChunkKey>,
    /// Requests that ended, with the number of steps before that, and the time.
    ended: Vec<(u64, RequestId, Micros)>,
    /// Abandoned loads that have ended.
    released: Vec<RequestId>,
    /// The last store that this step must wait for; 0 for none.
    flush: u64,
    /// The last store of a request that ended.
    last_fence: u64,
    /// Number of jobs so far.
    jobs: u64,
    /// Number of times at which chunks in the tier changed.
    changes: u64,
    /// Number of times at which look-ups in the secondary tier had ended.
    look_ups: u64,
    /// As it was before the offers of the last step.
    changes_before_offers: u64,
    /// Number of requests with chunks for which there was no room.
    refused: u32,
    /// Number of loads that ended requests have left behind.
    abandoned: u32,
    counters: OffloadCounters,
    chunks: Vec<Positioned>,
    /// Whether a policy ranks chunks, and whether it decides about loads.
    is_ranked: bool,
    decides_loads: bool,
    /// Decisions about loads that are made in advance, by request, for counterfactuals.
    forced_loads: Vec<(RequestId, bool)>,
    /// The start of the present step.
    now: Micros,
    /// What [`Self::take_changes`] reports; `None` without a reader.
    watched: Option<Box<WatchedTier>>,
}

/// Changes of the tier for the cache signal.
#[derive(Clone, Debug, Default)]
struct WatchedTier {
    changes: Vec<(ChunkKey, bool)>,
    /// The last store of which the chunks are among the changes, or were.
    last_store: u64,
}

impl WatchedTier {
    /// A store has ended.
    fn stored(&mut self, job: &TransferJob) {
        if job.id > self.last_store {
            self.last_store = job.id;
            self.changes.extend(job.chunks.iter().map(|&key| (key, true)));
        }
    }
}

/// These chunks were evicted at `now`: the cache signal and other instances learn of it.
fn announce_evicted(
    now: Micros,
    chunks: &[ChunkKey],
    watched: &mut Option<Box<WatchedTier>>,
    peers: &mut Option<Box<PeerTier>>,
) {
    if let Some(watched) = watched {
        watched.changes.extend(chunks.iter().map(|&key| (key, false)));
    }
    if let Some(peers) = peers {
        chunks.iter().for_each(|&key| peers.announce(now, key, false));
    }
}

impl Offloading {
    pub fn new(config: OffloadConfig, choice: KvCacheChoice, block_size: u32, index: InstanceIndex) -> Self {
        let is_ranked = matches!(choice, KvCacheChoice::Custom(_));
        let tier = config.tier(choice, block_size);
        Self {
            config,
            block_size,
            is_ranked,
            decides_loads: tier.decides().load,
            tier,
            forced_loads: Vec::new(),
            now: Micros::ZERO,
            watched: None,
            secondary: config.secondary_tier().map(Box::new),
            peers: config.peer_tier(index).map(Box::new),
            links: MemoryLinks::new(config.speed),
            requests: FxHashMap::default(),
            new_loads: Vec::new(),
            new_stores: Vec::new(),
            on_link: [VecDeque::new(), VecDeque::new()],
            unnoticed: Vec::new(),
            advanced_to: Micros::ZERO,
            loading: FxHashSet::default(),
            ended: Vec::new(),
            released: Vec::new(),
            flush: 0,
            last_fence: 0,
            jobs: 0,
            changes: 0,
            look_ups: 0,
            changes_before_offers: 0,
            refused: 0,
            abandoned: 0,
            counters: OffloadCounters::default(),
            chunks: Vec::new(),
        }
    }

    /// Notices the transfers that have ended by `now`, after `steps` steps. The blocks of [`Self::take_released`] are free then.
    pub fn notice(&mut self, now: Micros, steps: u64) {
        self.now = now;
        self.notice_peers(now);
        self.forget_ended(steps);
        self.notice_secondary(now);
        self.advance(now);
        for direction in std::mem::take(&mut self.unnoticed) {
            let job = self.on_link[direction as usize].pop_front().expect("it was submitted");
            match direction {
                TransferDirection::ToHost => {
                    self.tier.written(&job.chunks, true);
                    if let Some(watched) = &mut self.watched {
                        watched.stored(&job);
                    }
                    if let Some(secondary) = &mut self.secondary {
                        self.tier.pin(&secondary.store(now, &job.chunks));
                    }
                    if let Some(peers) = &mut self.peers {
                        job.chunks.iter().for_each(|&key| peers.announce(now, key, true));
                    }
                }
                TransferDirection::ToGpu => {
                    self.tier.loaded(&job.chunks);
                    job.chunks.iter().for_each(|key| {
                        self.loading.remove(key);
                    });
                }
            }
            self.changes += 1;
            let state = self.requests.get_mut(&job.request).expect("it is kept for its transfers");
            state.transfers -= 1;
            match state.load {
                LoadProgress::InProgress if direction == TransferDirection::ToGpu => state.load = LoadProgress::Done,
                LoadProgress::Abandoned if direction == TransferDirection::ToGpu => {
                    state.load = LoadProgress::None;
                    self.abandoned -= 1;
                    self.released.push(job.request);
                }
                _ => {}
            }
            if state.ended && state.transfers == 0 {
                self.requests.remove(&job.request);
            }
        }
        self.changes_before_offers = self.changes;
    }

    fn notice_secondary(&mut self, now: Micros) {
        // Without a secondary tier nothing moves below the CPU tier.
        let Some(secondary) = &mut self.secondary else { return };
        self.look_ups += u64::from(secondary.ends_look_up(now));
        for transfer in secondary.notice(now) {
            if transfer.direction == READ {
                self.tier.written(&transfer.chunks, true);
                if let Some(watched) = &mut self.watched {
                    watched.changes.extend(transfer.chunks.iter().map(|&key| (key, true)));
                }
            } else {
                self.tier.loaded(&transfer.chunks);
            }
            self.changes += 1;
        }
    }

    fn notice_peers(&mut self, now: Micros) {
        // Without peers no chunk moves between replicas.
        let Some(peers) = &mut self.peers else { return };
        peers.serve(now, &mut self.tier);
        for change in peers.notice(now) {
            self.changes += 1;
            match change {
                PeerChange::Sent(chunks) => self.tier.loaded(&chunks),
                PeerChange::Fetched(chunks, arrived) => {
                    self.tier.written(&chunks, arrived);
                    if arrived {
                        chunks.iter().for_each(|&key| peers.announce(now, key, true));
                    }
                    if let Some(watched) = self.watched.as_mut().filter(|_| arrived) {
                        watched.changes.extend(chunks.iter().map(|&key| (key, true)));
                    }
                }
            }
        }
    }

    /// Requests that ended during their load, which has ended now.
    pub fn take_released(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.released)
    }

    /// What the tier has for a request of `tokens` tokens, of which the GPU has the first `local`, whole blocks.
    pub fn look_up(&mut self, source: ChunkSource<'_>, local: u32, tokens: u32) -> TierHit {
        let state = self.requests.entry(source.id).or_default();
        state.next_offer = 0;
        if self.is_ranked && state.user.is_none() {
            let Request { tags, input_tokens, .. } = *source.request;
            state.user = Some(Box::new(ChunkUser { tags, input_tokens }));
        }
        if state.transfers > 0 {
            // It was preempted during its stores: it asks again when these have ended.
            return TierHit::Deferred;
        }
        // In a long queue most requests wait for reads, and a look-up asks for every chunk of the prompt.
        let moment = (self.changes, self.look_ups, local);
        if state.deferred_at == Some(moment) {
            debug_assert_eq!(self.ask(source, local, tokens), TierHit::Deferred, "nothing has changed");
            // The tiers are as they were when it was deferred: to ask for each chunk again costs only time.
            return TierHit::Deferred;
        }
        let hit = self.ask(source, local, tokens);
        let state = self.requests.get_mut(&source.id).expect("just seen");
        state.deferred_at = (hit == TierHit::Deferred).then_some(moment);
        hit
    }

    /// As [`Self::look_up`], of a request without transfers in progress.
    fn ask(&mut self, source: ChunkSource<'_>, local: u32, tokens: u32) -> TierHit {
        let chunk = self.config.blocks_per_chunk * self.block_size;
        let (first, chunks) = (local / chunk, tokens / chunk);
        let (mut found, mut pending, mut unknown) = (first, false, false);
        for (index, key) in (first..).zip(source.keys(first, chunks, self.config.blocks_per_chunk)) {
            match self.tier.lookup(key) {
                Lookup::Miss => match self.look_up_below(source.id, (key, Some((index + 1) * chunk))) {
                    // KV is reused as a prefix only: behind a missing chunk nothing can be loaded.
                    SecondaryLookup::Miss => break,
                    SecondaryLookup::Unknown => {
                        unknown = true;
                        // A look-up in storage takes time: those of all chunks are in flight together.
                        continue;
                    }
                    SecondaryLookup::Hit => pending = true,
                },
                Lookup::Hit => pending |= self.loading.contains(&key),
                Lookup::Pending => pending = true,
            }
            found += 1;
        }
        if unknown {
            // How much of the prompt can be loaded is open until all its look-ups have ended.
            return TierHit::Deferred;
        }
        // Less than a chunk is not loaded.
        let hit = (found * chunk).saturating_sub(local);
        match (hit >= chunk, pending) {
            (false, _) => TierHit::Tokens(0),
            (true, true) => TierHit::Deferred,
            (true, false) => TierHit::Tokens(hit),
        }
    }

    /// Looks up `chunk` in the secondary tier. If it is there, its read into the CPU tier begins; without room for it, it is a
    /// miss.
    fn look_up_below(&mut self, id: RequestId, chunk: Positioned) -> SecondaryLookup {
        let found = match (&mut self.secondary, &mut self.peers) {
            (Some(secondary), _) => secondary.look_up(id, chunk.0),
            (None, Some(peers)) => match peers.has(self.now, id, chunk.0) {
                true => SecondaryLookup::Hit,
                false => SecondaryLookup::Miss,
            },
            (None, None) => SecondaryLookup::Miss,
        };
        if found != SecondaryLookup::Hit {
            // Only what is known to be below can be read into the CPU tier.
            return found;
        }
        if self.is_ranked {
            self.set_moment(id, self.now);
        }
        let state = self.requests.get_mut(&id).expect("it is being looked up");
        // A chunk is read once for each request: a tier smaller than the prompt would read for ever.
        let Entry::Vacant(promotion) = state.promotions.entry(chunk.0) else { return SecondaryLookup::Miss };
        let is_read = promotion.insert(false);
        let Some(stored) = self.tier.store(&[chunk], &mut state.access) else {
            self.secondary.iter_mut().for_each(|secondary| secondary.refuse());
            self.peers.iter_mut().for_each(|peers| peers.refuse());
            // Without room in the CPU tier the chunk cannot be loaded, and is computed.
            return SecondaryLookup::Miss;
        };
        announce_evicted(self.now, &stored.evicted, &mut self.watched, &mut self.peers);
        if stored.chunks.is_empty() {
            return SecondaryLookup::Miss; // it was offered too rarely, or the policy does not store it
        }
        self.changes += 1;
        self.counters.evicted += stored.evicted.len() as u64;
        self.secondary.iter_mut().for_each(|secondary| secondary.promote(id, chunk.0));
        self.peers.iter_mut().for_each(|peers| peers.fetch(id, chunk.0));
        *is_read = true;
        SecondaryLookup::Hit
    }

    /// Whether a look-up does more than to find: a policy for loads is asked at the first step with a hit, and a secondary tier
    /// is looked up and read.
    pub fn look_ups_have_effects(&self) -> bool {
        self.decides_loads || self.secondary.is_some() || self.peers.is_some()
    }

    /// Whether a policy decides about loads.
    pub fn decides_loads(&self) -> bool {
        self.decides_loads
    }

    /// Decides in advance whether request `id` loads what the tier has for it.
    pub fn force_load(&mut self, id: RequestId, loads: bool) {
        self.forced_loads.push((id, loads));
    }

    /// Whether the request loads the `tokens` tokens that [`Self::look_up`] has found behind `local` ones, and the decision if it is
    /// made now.
    pub fn loads(
        &mut self,
        source: ChunkSource<'_>,
        local: u32,
        tokens: u32,
        moment: LoadMoment,
    ) -> (bool, Option<LoadDecision>) {
        let state = self.requests.get_mut(&source.id).expect("it was looked up");
        if let Some(loads) = state.loads {
            // A request that waits for KV blocks is not decided about at every step again.
            return (loads, None);
        }
        let ChunkUser { tags, input_tokens } = state.user.as_deref().copied().unwrap_or_default();
        let LoadMoment { instance, now, prefill_tokens, waiting, running } = moment;
        let queued = self.on_link[TransferDirection::ToGpu as usize].iter().chain(&self.new_loads);
        let hit = KvHit {
            now_us: now.0,
            bytes: u64::from(tokens / self.block_size) * self.config.block_bytes,
            queued_bytes: queued.map(|job| job.bytes).sum(),
            bandwidth: self.config.speed.alone,
            request: source.id.0,
            gpu_tokens: local,
            tokens,
            input_tokens,
            prefill_tokens: u32::try_from(prefill_tokens).unwrap_or(u32::MAX),
            waiting,
            running,
            slo_class: tags.slo_class.0,
            tenant: tags.tenant.0,
            session: tags.session.0,
            prefix_group: tags.prefix_group.0,
            round: tags.round_index,
        };
        let chosen = self.tier.loads(&hit);
        let forced = self.forced_loads.iter().position(|&(id, _)| id == source.id);
        let loads = forced.map_or(chosen, |index| self.forced_loads.swap_remove(index).1);
        self.requests.get_mut(&source.id).expect("just seen").loads = Some(loads);
        (loads, Some(LoadDecision { instance, hit, loads }))
    }

    /// Begins the load of `tokens` tokens that [`Self::look_up`] has found behind `local` ones.
    pub fn load(&mut self, source: ChunkSource<'_>, local: u32, tokens: u32) {
        let end = (local + tokens) / self.chunk_tokens();
        self.take_chunks(source, local / self.chunk_tokens(), end);
        if self.is_ranked {
            self.set_moment(source.id, self.now);
        }
        let state = self.requests.get_mut(&source.id).expect("it was looked up");
        self.tier.load(&self.chunks, &mut state.access);
        state.next_offer = end;
        state.transfers += 1;
        state.load = LoadProgress::InProgress;
        let chunks: Vec<ChunkKey> = self.chunks.iter().map(|&(key, _)| key).collect();
        if !state.promotions.is_empty() {
            let promotions = std::mem::take(&mut state.promotions);
            let hits = chunks.iter().copied().filter(|key| promotions.get(key) == Some(&true));
            let (hits, tokens) = (hits.collect::<Vec<_>>(), u64::from(self.config.blocks_per_chunk * self.block_size));
            self.secondary.iter_mut().for_each(|secondary| secondary.count_hits(&hits, tokens));
            self.peers.iter_mut().for_each(|peers| peers.count_hits(tokens * hits.len() as u64));
        }
        self.loading.extend(&chunks);
        self.jobs += 1;
        let bytes = u64::from(tokens / self.block_size) * self.config.block_bytes;
        self.counters.loads += 1;
        self.counters.loaded_bytes += bytes * u64::from(self.config.gpus);
        self.new_loads.push(TransferJob { id: self.jobs, request: source.id, chunks, bytes });
    }

    /// Whether the load of this request has ended.
    pub fn is_loaded(&self, id: RequestId) -> bool {
        self.requests.get(&id).is_some_and(|state| state.load == LoadProgress::Done)
    }

    /// The request enters the batch after its load.
    pub fn enters(&mut self, id: RequestId) {
        if let Some(state) = self.requests.get_mut(&id) {
            state.load = LoadProgress::None;
        }
    }

    /// A request of this step will have computed `computed` tokens after it, and has a prompt of `prompt`: offers its new chunks.
    pub fn offer(&mut self, source: ChunkSource<'_>, computed: u32, prompt: u32) {
        let tokens = if self.config.prompt_only { computed.min(prompt) } else { computed };
        let end = tokens / self.chunk_tokens();
        // A request that read its KV blocks from another instance was never looked up, and stores nothing.
        let Some(state) = self.requests.get_mut(&source.id) else { return };
        let start = state.next_offer;
        if start >= end || state.refused_at == Some(self.changes) {
            // No further chunk is complete, or the tier is unchanged since it had no room for these.
            return;
        }
        self.take_chunks(source, start, end);
        if self.is_ranked {
            self.set_moment(source.id, self.now);
        }
        let state = self.requests.get_mut(&source.id).expect("just seen");
        let stored = self.tier.store(&self.chunks, &mut state.access);
        self.refused -= u32::from(state.refused_at.is_some());
        state.refused_at = stored.is_none().then_some(self.changes);
        let Some(stored) = stored else {
            self.refused += 1;
            // Nothing of the offer is stored; it is repeated when the tier has changed.
            return;
        };
        state.next_offer = end;
        self.counters.evicted += stored.evicted.len() as u64;
        announce_evicted(self.now, &stored.evicted, &mut self.watched, &mut self.peers);
        // What is in the tier already, or not worth storing, needs no transfer.
        let Some((first, last)) = stored.chunks.first().zip(stored.chunks.last()) else { return };
        let at = |key: &ChunkKey| count(self.chunks.iter().position(|(chunk, _)| chunk == key).expect("offered"));
        let blocks = self.config.blocks_per_chunk;
        let (from, to) = ((start + at(first)) * blocks, (start + at(last) + 1) * blocks);
        self.jobs += 1;
        self.changes += 1;
        let others = if state.transfers > 0 { state.fence } else { StoreFence { from, to, store: 0 } };
        state.fence = StoreFence { store: self.jobs, from: others.from.min(from), to: others.to.max(to) };
        state.transfers += 1;
        let bytes = u64::from(blocks) * stored.chunks.len() as u64 * self.config.block_bytes;
        self.counters.stored_bytes += bytes * u64::from(self.config.gpus);
        self.new_stores.push(TransferJob { id: self.jobs, request: source.id, chunks: stored.chunks, bytes });
    }

    /// This step must wait until `store` has ended, and with it all stores before; 0 for none.
    pub fn flush(&mut self, store: u64) {
        self.flush = self.flush.max(store);
    }

    /// Submits the loads of the step that starts at `now`. Returns how long the step waits before it computes.
    pub fn start_loads(&mut self, now: Micros) -> Micros {
        let mut stall = Micros::ZERO;
        let flush = std::mem::take(&mut self.flush);
        let stores = &self.on_link[TransferDirection::ToHost as usize];
        let last = stores.iter().rev().find(|job| job.id <= flush).map(|job| job.id);
        if let Some(end) = last.and_then(|id| self.links.end_of(TransferDirection::ToHost, id)) {
            stall = end.saturating_sub(now);
            self.counters.flushes += 1;
            self.counters.flush_time += stall;
            self.advance(end);
        }
        for job in std::mem::take(&mut self.new_loads) {
            self.submit(now + stall, TransferDirection::ToGpu, job);
        }
        if let Some(secondary) = &mut self.secondary {
            secondary.end_planning(now);
        }
        if let Some(peers) = &mut self.peers {
            peers.end_planning(now);
        }
        stall
    }

    /// Step number `step` (from 1) ends at `end`: submits its stores, and forgets the requests that ended before it.
    pub fn end_step(&mut self, end: Micros, step: u64) {
        self.forget_ended(step);
        if !self.new_stores.is_empty() {
            self.advance(end);
            for job in std::mem::take(&mut self.new_stores) {
                self.submit(end, TransferDirection::ToHost, job);
            }
        }
    }

    /// Forgets the requests that ended before step `step`: what they used was used now.
    pub fn forget_ended(&mut self, step: u64) {
        let before = self.ended.partition_point(|&(steps, ..)| steps < step);
        for (_, id, at) in self.ended.drain(..before) {
            let state = self.requests.get_mut(&id).expect("it is kept until now");
            if let Some(user) = &state.user {
                self.tier.set_moment(at, **user, 0);
            }
            self.tier.end(std::mem::take(&mut state.access));
            state.ended = true;
            self.secondary.iter_mut().for_each(|secondary| secondary.forget(id));
            self.peers.iter_mut().for_each(|peers| peers.forget(id));
            if state.transfers == 0 {
                self.requests.remove(&id);
            }
        }
    }

    /// A request in queue or batch ends at `now`, after `steps` steps. Returns the blocks that are still being stored.
    pub fn end(&mut self, id: RequestId, now: Micros, steps: u64) -> Option<StoreFence> {
        let state = self.requests.get_mut(&id)?;
        self.ended.push((steps, id, now));
        self.refused -= u32::from(state.refused_at.take().is_some());
        let fence = (state.transfers > 0 && state.load == LoadProgress::None).then_some(state.fence)?;
        self.last_fence = self.last_fence.max(fence.store);
        Some(fence)
    }

    /// A request ends that waits for its load. Returns whether its blocks can be released now; if not, [`Self::take_released`] will have
    /// it.
    pub fn abandon(&mut self, id: RequestId, now: Micros, steps: u64) -> bool {
        let _ = self.end(id, now, steps);
        let state = self.requests.get_mut(&id).expect("it loads");
        let is_over = state.load == LoadProgress::Done;
        state.load = if is_over { LoadProgress::None } else { LoadProgress::Abandoned };
        self.abandoned += u32::from(!is_over);
        is_over
    }

    /// A request is preempted: the step waits for its stores in progress.
    pub fn preempted(&mut self, id: RequestId) {
        if let Some(state) = self.requests.get_mut(&id) {
            self.refused -= u32::from(state.refused_at.take().is_some());
            state.loads = None;
            if state.transfers > 0 {
                self.flush = self.flush.max(state.fence.store);
            }
        }
    }

    /// The end of the first transfer that [`Self::notice`] has not seen; `None` if there is none.
    pub fn next_end(&self) -> Option<Micros> {
        let end = if self.unnoticed.is_empty() { self.links.next_end() } else { Some(self.advanced_to) };
        let below = self.secondary.as_ref().and_then(|secondary| secondary.next_end());
        let fetched = self.peers.as_ref().and_then(|peers| peers.next_arrival());
        end.into_iter().chain(below).chain(fetched).min()
    }

    /// As [`Self::next_end`], transfers to other instances included: they pin chunks.
    pub fn next_change(&self) -> Option<Micros> {
        let sent = self.peers.as_ref().and_then(|peers| peers.next_end());
        self.next_end().into_iter().chain(sent).min()
    }

    /// Whether the ends of transfers matter to requests that no step would otherwise look at: loads, and stores without room.
    pub fn is_awaited(&self) -> bool {
        !self.on_link[TransferDirection::ToGpu as usize].is_empty()
            || self.refused > 0
            || (self.secondary.is_some() || self.peers.is_some()) && !self.is_still()
    }

    /// Whether loads of ended requests hold KV blocks.
    pub fn has_abandoned(&self) -> bool {
        self.abandoned > 0
    }

    /// Whether nothing is on its way.
    pub fn is_still(&self) -> bool {
        self.on_link.iter().all(VecDeque::is_empty)
            && self.secondary.as_ref().is_none_or(|secondary| secondary.is_still())
            && self.peers.as_ref().is_none_or(|peers| peers.is_still())
    }

    /// Whether a store of a request that ended may be in progress.
    pub fn has_fences(&self) -> bool {
        let last = self.on_link[TransferDirection::ToHost as usize].front();
        last.is_some_and(|job| job.id <= self.last_fence)
    }

    /// Whether generated tokens are stored, too.
    pub fn stores_output(&self) -> bool {
        !self.config.prompt_only
    }

    /// Whether chunks without room are offered again at the next step, because the last one has changed the tier.
    pub fn repeats_offers(&self) -> bool {
        self.refused > 0 && self.changes != self.changes_before_offers
    }

    /// Whether requests that generate tokens offer chunks.
    pub fn is_offered_output(&self) -> bool {
        !self.config.prompt_only || self.refused > 0
    }

    /// Collects changes of the tier from now on. Returns the number of KV blocks of a chunk.
    pub fn watch(&mut self) -> u32 {
        self.watched.get_or_insert_default();
        self.config.blocks_per_chunk
    }

    /// Removes and returns the changes until `now` of chunks that requests may share: chunks are there from the end of their
    /// store on, although the scheduler may notice that later.
    pub fn take_changes(&mut self, now: Micros, each: &mut dyn FnMut(BlockKey, bool)) {
        // Without a cache signal nothing reads the changes.
        let Some(watched) = &mut self.watched else { return };
        let stores = &self.on_link[TransferDirection::ToHost as usize];
        if stores.back().is_some_and(|job| job.id > watched.last_store) {
            let is_store = |direction: &TransferDirection| *direction == TransferDirection::ToHost;
            let mut ended = self.unnoticed.iter().copied().filter(is_store).count();
            self.links.clone().advance(now, |direction, _| ended += usize::from(is_store(&direction)));
            stores.iter().take(ended).for_each(|job| watched.stored(job));
        }
        for (ChunkKey(key), present) in watched.changes.drain(..) {
            // Others are of one request alone.
            if let Ok(key) = BlockKey::try_from(key) {
                each(key, present);
            }
        }
    }

    /// See [`SecondaryTier::take_written`].
    pub fn take_written(&mut self) -> Vec<(ChunkKey, Micros)> {
        self.secondary.as_mut().map(|secondary| secondary.take_written()).unwrap_or_default()
    }

    /// See [`SecondaryTier::share`].
    pub fn share(&mut self, content: &SharedChunks) {
        self.secondary.iter_mut().for_each(|secondary| secondary.share(content));
    }

    /// The CPU tiers of other instances as this one sees them, and its own tier.
    pub fn peers(&mut self) -> Option<(&mut PeerTier, &mut CpuTier)> {
        Some((self.peers.as_deref_mut()?, &mut self.tier))
    }

    pub fn counters(&self) -> OffloadCounters {
        let storage = self.secondary.as_ref().map(|secondary| secondary.counters());
        let secondary = storage.or_else(|| self.peers.as_ref().map(|peers| peers.counters())).unwrap_or_default();
        OffloadCounters { skipped: self.tier.skipped(), refused: self.tier.refused(), secondary, ..self.counters }
    }

    /// Waits for all transfers. Numbers of chunks in the tier, of those that can be evicted, and of requests that are remembered.
    #[cfg(test)]
    pub fn without_transfers(&mut self) -> (usize, usize, usize) {
        self.forget_ended(u64::MAX);
        while let Some(end) = self.next_change() {
            self.notice(end, u64::MAX);
        }
        (self.tier.used(), self.tier.evictable(), self.requests.len())
    }

    /// What the tier does from here on concerns request `id`, at `now`.
    fn set_moment(&mut self, id: RequestId, now: Micros) {
        let Some(user) = self.requests.get(&id).and_then(|state| state.user.as_deref()) else { return };
        let queued = self.on_link[TransferDirection::ToHost as usize].iter().chain(&self.new_stores);
        let queued_bytes = if self.tier.decides().store { queued.map(|job| job.bytes).sum() } else { 0 };
        self.tier.set_moment(now, *user, queued_bytes);
    }

    fn chunk_tokens(&self) -> u32 {
        self.config.blocks_per_chunk * self.block_size
    }

    /// Fills [`Self::chunks`] with the chunks `from..to`.
    fn take_chunks(&mut self, source: ChunkSource<'_>, from: u32, to: u32) {
        let chunk = self.chunk_tokens();
        self.chunks.clear();
        let keys = source.keys(from, to, self.config.blocks_per_chunk);
        self.chunks.extend(keys.zip(from..).map(|(key, index)| (key, Some((index + 1) * chunk))));
    }

    fn submit(&mut self, now: Micros, direction: TransferDirection, job: TransferJob) {
        self.links.submit(now, direction, job.bytes, job.id);
        self.on_link[direction as usize].push_back(job);
    }

    fn advance(&mut self, now: Micros) {
        self.advanced_to = now;
        let unnoticed = &mut self.unnoticed;
        self.links.advance(now, |direction, _| unnoticed.push(direction));
    }
}
