//! The CPU tiers of other instances as a tier below (vLLM 0.33's `secondary_tiers` of type `p2p`).
//!
//! The router names a source for a request: an instance that has more of its prompt in the CPU tier than the one that serves it.
//! Between the two, messages pass, each of which takes the latency, and which an instance reads when it plans a step, or at once
//! if it has no requests:
//!
//! ```text
//! consumer ── which of these chunks? ──► source      (chunks that its own tier has not, of the request's prompt)
//!          ◄──────── these ─────────────
//!          ──── send these chunks ─────►             the source pins them, and sends one request's after the other's
//!          ◄──────── sent ──────────────             they can be loaded from the consumer's CPU tier
//! ```
//!
//! A chunk that has left the source's tier between question and transfer is missing: the consumer computes it.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use super::{ChunkKey, CpuTier, Lookup, SecondaryConfig, SecondaryCounters, SecondaryLookup};
use crate::ids::{InstanceIndex, RequestId};
use crate::units::Micros;

/// A message from one instance to another.
#[derive(Clone, Debug)]
pub struct PeerMessage {
    /// The instance that receives it.
    pub to: InstanceIndex,
    /// When it arrives: at least the latency after it was sent.
    pub at: Micros,
    from: InstanceIndex,
    /// Its number among the messages of the sender.
    number: u64,
    request: RequestId,
    content: PeerContent,
}

#[derive(Clone, Debug)]
enum PeerContent {
    /// Which of these chunks can be read there?
    LookUp(Vec<ChunkKey>),
    /// For each chunk, whether it can.
    Found(Vec<(ChunkKey, bool)>),
    /// These chunks are to be sent.
    Fetch(Vec<ChunkKey>),
    /// For each chunk, whether it was sent.
    Sent(Vec<(ChunkKey, bool)>),
}

/// A request of which another instance has a part of the prompt.
#[derive(Clone, Debug)]
struct PulledRequest {
    source: InstanceIndex,
    /// The chunks that were looked up there; `None` until the reply.
    found: FxHashMap<ChunkKey, Option<bool>>,
}

/// Chunks that are being sent to another instance.
#[derive(Clone, Debug)]
struct SentChunks {
    end: Micros,
    to: InstanceIndex,
    request: RequestId,
    chunks: Vec<(ChunkKey, bool)>,
}

/// What one instance pulls from others, and sends to them.
#[derive(Clone, Debug)]
pub struct PeerTier {
    index: InstanceIndex,
    config: SecondaryConfig,
    /// Size of a chunk, of all GPUs of the instance, bytes.
    chunk_bytes: u64,
    requests: FxHashMap<RequestId, PulledRequest>,
    /// Look-ups and fetches of the present step, by request, in the order of the first.
    new_look_ups: Vec<(RequestId, Vec<ChunkKey>)>,
    new_fetches: Vec<(RequestId, Vec<ChunkKey>)>,
    /// Messages that have not been read, by time, sender and number.
    inbox: BTreeMap<(Micros, InstanceIndex, u64), PeerMessage>,
    outbox: Vec<PeerMessage>,
    /// Number of messages sent.
    sent: u64,
    /// Number of replies to come.
    awaited: u32,
    /// Transfers to other instances, one after the other.
    sending: VecDeque<SentChunks>,
    /// When the link to the others is free, µs.
    free_at: f64,
    counters: SecondaryCounters,
}

impl PeerTier {
    /// The tier of instance `index`, with chunks of `chunk_bytes` bytes, ≥ 1.
    #[must_use]
    pub fn new(index: InstanceIndex, config: SecondaryConfig, chunk_bytes: u64) -> Self {
        Self {
            index,
            config,
            chunk_bytes,
            requests: FxHashMap::default(),
            new_look_ups: Vec::new(),
            new_fetches: Vec::new(),
            inbox: BTreeMap::new(),
            outbox: Vec::new(),
            sent: 0,
            awaited: 0,
            sending: VecDeque::new(),
            free_at: 0.0,
            counters: SecondaryCounters::default(),
        }
    }

    /// `source` has more of the prompt of `request`.
    pub fn set_source(&mut self, request: RequestId, source: InstanceIndex) {
        self.requests.insert(request, PulledRequest { source, found: FxHashMap::default() });
    }

    /// Whether the source of `request` has `key`; a miss without a source.
    pub fn look_up(&mut self, request: RequestId, key: ChunkKey) -> SecondaryLookup {
        let Some(pulled) = self.requests.get_mut(&request) else { return SecondaryLookup::Miss };
        match pulled.found.get(&key) {
            Some(Some(true)) => SecondaryLookup::Hit,
            Some(Some(false)) => SecondaryLookup::Miss,
            Some(None) => SecondaryLookup::Unknown,
            None => {
                pulled.found.insert(key, None);
                add(&mut self.new_look_ups, request, key);
                SecondaryLookup::Unknown
            }
        }
    }

    /// The CPU tier has no room for a chunk that the source has.
    pub fn refuse(&mut self) {
        self.counters.refused += 1;
    }

    /// Fetches `key` into the CPU tier, which has room for it, for `request`.
    pub fn promote(&mut self, request: RequestId, key: ChunkKey) {
        add(&mut self.new_fetches, request, key);
    }

    /// A request loads chunks of `tokens` tokens in total that had to be pulled.
    pub fn count_hits(&mut self, tokens: u64) {
        self.counters.hit_tokens += tokens;
        self.counters.hit_tokens_of_others += tokens;
    }

    /// Sends the look-ups and fetches of the step that was planned at `now`.
    pub fn end_planning(&mut self, now: Micros) {
        for (request, keys) in std::mem::take(&mut self.new_look_ups) {
            self.ask(now, request, PeerContent::LookUp(keys));
        }
        for (request, keys) in std::mem::take(&mut self.new_fetches) {
            self.counters.read_bytes += self.chunk_bytes * keys.len() as u64;
            self.ask(now, request, PeerContent::Fetch(keys));
        }
    }

    fn ask(&mut self, now: Micros, request: RequestId, content: PeerContent) {
        let source = self.requests.get(&request).map(|pulled| pulled.source).expect("it was looked up in this step");
        self.awaited += 1;
        self.send(now, source, request, content);
    }

    fn send(&mut self, now: Micros, to: InstanceIndex, request: RequestId, content: PeerContent) {
        let at = now.saturating_add(self.config.latency);
        self.sent += 1;
        self.outbox.push(PeerMessage { to, at, from: self.index, number: self.sent, request, content });
    }

    /// `message` will arrive.
    pub fn receive(&mut self, message: PeerMessage) {
        self.inbox.insert((message.at, message.from, message.number), message);
    }

    /// Removes and returns the messages sent since the last call.
    pub fn take_messages(&mut self) -> Vec<PeerMessage> {
        std::mem::take(&mut self.outbox)
    }

    /// Reads the messages that have arrived by `now`, and notices the transfers that have ended. `tier` is the instance's own CPU tier. Returns
    /// the chunks that were pulled, and whether they were sent.
    pub fn notice(&mut self, now: Micros, tier: &mut CpuTier) -> Vec<(ChunkKey, bool)> {
        let mut pulled = Vec::new();
        while let Some(first) = self.inbox.first_entry().filter(|first| first.key().0 <= now) {
            let PeerMessage { from, request, content, .. } = first.remove();
            match content {
                PeerContent::LookUp(keys) => {
                    self.send(now, from, request, PeerContent::Found(readable(tier, &keys)));
                }
                PeerContent::Found(chunks) => {
                    self.awaited -= 1;
                    let found = self.requests.get_mut(&request).map(|pulled| &mut pulled.found);
                    found.into_iter().for_each(|found| found.extend(chunks.iter().map(|&(key, is)| (key, Some(is)))));
                }
                PeerContent::Fetch(keys) => self.serve(now, from, request, readable(tier, &keys), tier),
                PeerContent::Sent(chunks) => {
                    self.awaited -= 1;
                    pulled.extend(chunks);
                }
            }
        }
        while let Some(ended) = self.sending.pop_front_if(|first| first.end <= now) {
            tier.loaded(&sent(&ended.chunks));
            self.send(now, ended.to, ended.request, PeerContent::Sent(ended.chunks));
        }
        pulled
    }

    /// Sends those of `chunks` that can be read.
    fn serve(
        &mut self,
        now: Micros,
        to: InstanceIndex,
        request: RequestId,
        chunks: Vec<(ChunkKey, bool)>,
        tier: &mut CpuTier,
    ) {
        let keys = sent(&chunks);
        tier.pin(&keys);
        let bytes = self.chunk_bytes * keys.len() as u64;
        let begin = self.free_at.max(now.0 as f64);
        self.free_at = begin + self.config.latency.0 as f64 + bytes as f64 / self.config.bandwidth;
        self.counters.written_bytes += bytes;
        self.sending.push_back(SentChunks { end: Micros(self.free_at.ceil() as u64), to, request, chunks });
    }

    /// A request has ended.
    pub fn forget(&mut self, request: RequestId) {
        self.requests.remove(&request);
    }

    /// When the next message arrives or the next transfer to another instance ends; `None` if nothing is known to come.
    #[must_use]
    pub fn next_event(&self) -> Option<Micros> {
        let message = self.inbox.first_key_value().map(|(&(at, ..), _)| at);
        message.into_iter().chain(self.sending.front().map(|first| first.end)).min()
    }

    /// Whether a reply of another instance is to come.
    #[must_use]
    pub fn awaits_replies(&self) -> bool {
        self.awaited > 0
    }

    /// Whether nothing is on its way.
    #[must_use]
    pub fn is_still(&self) -> bool {
        self.awaited == 0 && self.inbox.is_empty() && self.sending.is_empty()
    }

    /// The counters so far: of bytes written those that were sent to other instances.
    #[must_use]
    pub fn counters(&self) -> SecondaryCounters {
        self.counters
    }
}

/// Adds `key` to the chunks of `request`.
fn add(all: &mut Vec<(RequestId, Vec<ChunkKey>)>, request: RequestId, key: ChunkKey) {
    match all.iter_mut().find(|(other, _)| *other == request) {
        Some((_, chunks)) => chunks.push(key),
        None => all.push((request, vec![key])),
    }
}

fn readable(tier: &CpuTier, keys: &[ChunkKey]) -> Vec<(ChunkKey, bool)> {
    keys.iter().map(|&key| (key, tier.lookup(key) == Lookup::Hit)).collect()
}

fn sent(chunks: &[(ChunkKey, bool)]) -> Vec<ChunkKey> {
    chunks.iter().filter(|(_, sent)| *sent).map(|&(key, _)| key).collect()
}
