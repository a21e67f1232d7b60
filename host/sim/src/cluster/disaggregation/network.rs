//! The network between prefill and decode instances: concurrent reads of KV blocks share the network cards max-min fairly.
//!
//! Every GPU has a network card of its own, and an instance as many as GPUs. A read uses the cards of both instances, so that
//! alone it has the bandwidth card · min(GPUs of prefill, GPUs of decode): with more decode ranks than prefill ranks, several of
//! them read slices of the heads of one; with fewer, each reads from several (NIXL). It begins to move bytes after a latency,
//! and the first read between two instances after a handshake as well.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashSet;

use crate::ids::{InstanceIndex, RequestId};
use crate::numbers::truncated;
use crate::policy::TransferLoad;
use crate::units::Micros;

/// The network, and how a request gets from one instance to another.
#[derive(Clone, Debug, PartialEq)]
pub struct KvNetwork {
    /// Bandwidth of the network card of a GPU, bytes/µs, > 0; may be infinite.
    pub card: f64,
    /// Time before the first byte of a read.
    pub latency: Micros,
    /// Time that the first read between two instances takes in addition.
    pub handshake: Micros,
    /// Time of a request or response by HTTP between the sidecar of the decode instance and an engine.
    pub hop: Micros,
    /// GPUs of each instance, ≥ 1.
    pub gpus: Vec<u32>,
    /// KV of a token that each instance reads, bytes: over all its GPUs, so that KV heads, or latent vectors,
    /// that several GPUs hold count several times.
    pub token_bytes: Vec<f64>,
    /// Embedding of a token of an image, audio or video, bytes. Each GPU of the instance that reads it gets a copy.
    pub embedding_bytes: f64,
}

/// A read that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndedRead {
    pub id: RequestId,
    /// The instance that has what is read.
    pub source: InstanceIndex,
    /// The instance that reads it.
    pub destination: InstanceIndex,
    pub moved: Moved,
}

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// KV blocks of a prompt, from the instance that prefilled it.
    Prefilled,
    /// KV blocks of this earlier turn, from the instance that decoded it, for the prefill of the next one.
    Decoded(RequestId),
    /// Embeddings of images, audio and video, from the instance that encoded them.
    Embeddings,
}

#[derive(Clone, Debug)]
struct Read {
    between: EndedRead,
    tokens: u32,
    /// Bytes that have not moved yet.
    left: f64,
    /// Bytes/µs; 0 until it has a share.
    rate: f64,
}

/// The reads in progress.
#[derive(Clone, Debug)]
pub(super) struct NetworkReads {
    settings: KvNetwork,
    /// The time of which the reads have the state.
    now: Micros,
    /// Reads before their first byte, by the time of it.
    starting: BinaryHeap<Reverse<(Micros, u64, usize)>>,
    /// Those reads; entries are reused.
    waiting: Vec<Option<Read>>,
    begun: u64,
    moving: Vec<Read>,
    next_end: Option<Micros>,
    /// Pairs of instances that have connected.
    connected: FxHashSet<(InstanceIndex, InstanceIndex)>,
    /// Of each instance as the source, then of each as the destination: bandwidth to be shared, and reads to share it.
    cards: Vec<(f64, u32)>,
}

impl NetworkReads {
    pub fn new(settings: KvNetwork) -> Self {
        Self {
            now: Micros::ZERO,
            starting: BinaryHeap::new(),
            waiting: Vec::new(),
            begun: 0,
            moving: Vec::new(),
            next_end: None,
            connected: FxHashSet::default(),
            cards: vec![(0.0, 0); 2 * settings.gpus.len()],
            settings,
        }
    }

    pub fn settings(&self) -> &KvNetwork {
        &self.settings
    }

    /// Adds an instance with so many GPUs, of which a token that it reads has so many bytes, behind the others.
    pub fn add(&mut self, gpus: u32, token_bytes: f64) {
        self.settings.gpus.push(gpus);
        self.settings.token_bytes.push(token_bytes);
        // Shares are computed anew at every event; those of reads in progress stay as they are.
        self.cards = vec![(0.0, 0); 2 * self.settings.gpus.len()];
    }

    /// Number of reads in progress.
    pub fn count(&self) -> usize {
        self.starting.len() + self.moving.len()
    }

    /// The reads in progress, in total and by instance, which `by_instance` gets.
    pub fn loads(&self, by_instance: &mut Vec<TransferLoad>) -> TransferLoad {
        by_instance.clear();
        by_instance.resize(self.settings.gpus.len(), TransferLoad::default());
        let mut total = TransferLoad::default();
        for read in self.moving.iter().chain(self.waiting.iter().flatten()) {
            let EndedRead { source, destination, .. } = read.between;
            let ends = [source, destination].map(InstanceIndex::index);
            let of_ends = by_instance.iter_mut().enumerate().filter(|(index, _)| ends.contains(index));
            for load in of_ends.map(|(_, load)| load).chain([&mut total]) {
                load.count += 1;
                // Tokens of KV: an embedding has far fewer bytes.
                if read.between.moved == Moved::Prefilled {
                    load.tokens = load.tokens.saturating_add(read.tokens);
                }
            }
        }
        total
    }

    /// Begins a read of `tokens` tokens at `now`, which is not before an earlier event.
    pub fn begin(&mut self, now: Micros, between: EndedRead, tokens: u32) {
        let first = self.connected.insert((between.source, between.destination));
        let handshake = if first { self.settings.handshake } else { Micros::ZERO };
        let starts = now.saturating_add(self.settings.latency).saturating_add(handshake);
        let bytes = f64::from(tokens) * self.token_bytes(between);
        let read = Read { between, tokens, left: bytes, rate: 0.0 };
        let free = self.waiting.iter().position(Option::is_none);
        let slot = free.unwrap_or_else(|| {
            self.waiting.push(None);
            self.waiting.len() - 1
        });
        self.waiting[slot] = Some(read);
        self.begun += 1;
        self.starting.push(Reverse((starts, self.begun, slot)));
    }

    /// What a token has, bytes.
    fn token_bytes(&self, EndedRead { destination, moved, .. }: EndedRead) -> f64 {
        match moved {
            Moved::Prefilled | Moved::Decoded(_) => self.settings.token_bytes[destination.index()],
            Moved::Embeddings => self.settings.embedding_bytes * f64::from(self.settings.gpus[destination.index()]),
        }
    }

    /// Time of the next event: a read moves its first byte, or ends.
    pub fn next_event(&self) -> Option<Micros> {
        let starts = self.starting.peek().map(|&Reverse((at, ..))| at);
        starts.into_iter().chain(self.next_end).min()
    }

    /// Executes the events at `now`, the time of the next one. Returns the reads that have ended, in the order of their beginnings.
    pub fn advance(&mut self, now: Micros) -> Vec<EndedRead> {
        let passed = (now - self.now).0 as f64;
        self.now = now;
        let mut ended = Vec::new();
        self.moving.retain_mut(|read| {
            if passed > 0.0 {
                read.left -= read.rate * passed;
            }
            // The end was rounded up to a microsecond; what is left is an error of rounding.
            let is_over = read.left <= read.rate * 1e-6;
            if is_over {
                ended.push(read.between);
            }
            !is_over
        });
        while let Some(&Reverse((at, _, slot))) = self.starting.peek()
            && at <= now
        {
            self.starting.pop();
            self.moving.extend(self.waiting[slot].take());
        }
        self.share();
        ended
    }

    /// Shares the network cards max-min fairly: again and again, the most crowded card is divided between its reads.
    fn share(&mut self) {
        let instances = self.settings.gpus.len();
        self.cards.fill((0.0, 0));
        let cards = |read: &Read| [read.between.source.index(), instances + read.between.destination.index()];
        for read in &mut self.moving {
            read.rate = 0.0;
            for card in cards(read) {
                self.cards[card].1 += 1;
            }
        }
        for (card, (bandwidth, _)) in self.cards.iter_mut().enumerate() {
            *bandwidth = self.settings.card * f64::from(self.settings.gpus[card % instances]);
        }
        let mut left = self.moving.len();
        while left > 0 {
            let shares = self.cards.iter().enumerate().filter(|(_, (_, reads))| *reads > 0);
            let shares = shares.map(|(card, &(bandwidth, reads))| (card, bandwidth / f64::from(reads)));
            let Some((crowded, share)) = shares.min_by(|a, b| a.1.total_cmp(&b.1)) else { break };
            for read in self.moving.iter_mut().filter(|read| read.rate == 0.0) {
                let between = cards(read);
                if !between.contains(&crowded) {
                    // Max-min: a read over other cards waits for a later round, which may give it a larger share.
                    continue;
                }
                read.rate = share;
                left -= 1;
                for card in between {
                    let (bandwidth, reads) = &mut self.cards[card];
                    // Infinite bandwidth stays; a rest that rounding makes negative is none.
                    if bandwidth.is_finite() {
                        *bandwidth = (*bandwidth - share).max(f64::MIN_POSITIVE);
                    }
                    *reads -= 1;
                }
            }
        }
        let end = |read: &Read| {
            let more = if read.rate.is_finite() { libm::ceil(read.left / read.rate).max(0.0) } else { 0.0 };
            self.now.saturating_add(Micros(truncated(more)))
        };
        self.next_end = self.moving.iter().map(end).min();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network(gpus: &[u32], card: f64) -> NetworkReads {
        NetworkReads::new(KvNetwork {
            card,
            latency: Micros(10),
            handshake: Micros::ZERO,
            hop: Micros::ZERO,
            gpus: gpus.to_vec(),
            token_bytes: vec![1000.0; gpus.len()],
            embedding_bytes: 50.0,
        })
    }

    fn read(id: u32, source: u32, destination: u32) -> EndedRead {
        let (source, destination) = (InstanceIndex(source), InstanceIndex(destination));
        EndedRead { id: RequestId(id), source, destination, moved: Moved::Prefilled }
    }

    /// The ends of all reads, in their order.
    fn ends(network: &mut NetworkReads) -> Vec<(u32, u64)> {
        let mut ends = Vec::new();
        while let Some(at) = network.next_event() {
            ends.extend(network.advance(at).into_iter().map(|read| (read.id.0, at.0)));
        }
        ends
    }

    #[test]
    fn reads_count_on_both_instances_from_their_begin_to_their_end() {
        let mut network = network(&[1, 1, 1], 100.0);
        let mut by_instance = Vec::new();
        network.begin(Micros(5), read(0, 0, 2), 10);
        network.begin(Micros(5), read(1, 1, 2), 30);
        let load = |count, tokens| TransferLoad { count, tokens };
        assert_eq!(network.loads(&mut by_instance), load(2, 40));
        assert_eq!(by_instance, [load(1, 10), load(1, 30), load(2, 40)]);
        // 10 µs until the first byte, then 100 bytes/µs for both together: the shorter one ends after 200 µs.
        assert!(network.advance(Micros(15)).is_empty());
        assert_eq!(network.loads(&mut by_instance), load(2, 40), "they move now");
        assert_eq!(network.next_event(), Some(Micros(215)));
        assert_eq!(network.advance(Micros(215)).len(), 1);
        assert_eq!(network.loads(&mut by_instance), load(1, 30));
        assert_eq!(by_instance, [load(0, 0), load(1, 30), load(1, 30)]);
    }

    #[test]
    fn a_read_has_the_cards_of_the_instance_with_fewer() {
        for (gpus, us) in [([1, 1], 100), ([1, 4], 100), ([4, 1], 100), ([2, 4], 50), ([4, 4], 25)] {
            let mut network = network(&gpus, 100.0);
            network.begin(Micros(5), read(0, 0, 1), 10);
            assert_eq!(ends(&mut network), [(0, 15 + us)], "{gpus:?}");
        }
    }

    #[test]
    fn reads_share_cards_and_speed_up_when_others_end() {
        // Two reads from one prefill instance: the shorter ends first, then the other has the whole card.
        let mut shared = network(&[1, 1, 1], 100.0);
        shared.begin(Micros(0), read(0, 0, 1), 10);
        shared.begin(Micros(0), read(1, 0, 2), 20);
        assert_eq!(ends(&mut shared), [(0, 210), (1, 310)]);
        // Max-min: the read that shares both cards leaves the other readers more than half.
        let mut fair = network(&[1, 1, 2, 2], 100.0);
        fair.begin(Micros(0), read(0, 0, 2), 10);
        fair.begin(Micros(0), read(1, 0, 3), 10);
        fair.begin(Micros(0), read(2, 1, 3), 15);
        // 50, 50 and 100 bytes/µs.
        assert_eq!(ends(&mut fair), [(2, 160), (0, 210), (1, 210)]);
    }

    /// A KV read of 10 000 bytes and one of embeddings share the card of the instance that reads them.
    #[test]
    fn embeddings_go_to_each_gpu_over_the_same_cards() {
        let mut shared = network(&[1, 1, 1], 100.0);
        shared.begin(Micros(0), EndedRead { moved: Moved::Embeddings, ..read(0, 0, 2) }, 100);
        shared.begin(Micros(0), read(1, 1, 2), 10);
        let mut by_instance = Vec::new();
        assert_eq!(shared.loads(&mut by_instance), TransferLoad { count: 2, tokens: 10 });
        assert_eq!(ends(&mut shared), [(0, 110), (1, 160)]);
        let mut wide = network(&[1, 4], 100.0);
        wide.begin(Micros(0), EndedRead { moved: Moved::Embeddings, ..read(0, 0, 1) }, 100);
        assert_eq!(ends(&mut wide), [(0, 210)], "four copies over the one card of the encoder");
    }

    #[test]
    fn infinite_bandwidth_takes_the_latency_alone() {
        let mut network = network(&[1, 1], f64::INFINITY);
        network.begin(Micros(7), read(0, 0, 1), 1_000_000);
        assert_eq!(ends(&mut network), [(0, 17)]);
    }

    proptest! {
        /// No card moves more than it can, and every read ends.
        #[test]
        fn cards_are_never_overcommitted(
            gpus in proptest::collection::vec(1u32..5, 2..6),
            begun in proptest::collection::vec((0u32..6, 0u32..6, 1u32..1000, 0u64..300), 1..25),
        ) {
            let mut network = network(&gpus, 40.0);
            let instances = gpus.len() as u32;
            let mut begun = begun;
            begun.sort_by_key(|&(.., at)| at);
            let mut ended = 0;
            for (id, &(source, destination, tokens, at)) in begun.iter().enumerate() {
                while let Some(next) = network.next_event().filter(|&next| next <= Micros(at)) {
                    ended += network.advance(next).len();
                }
                network.begin(Micros(at), read(id as u32, source % instances, destination % instances), tokens);
            }
            while let Some(next) = network.next_event() {
                ended += network.advance(next).len();
                for instance in 0..instances {
                    let most = 40.0 * f64::from(gpus[instance as usize]) * (1.0 + 1e-9);
                    let out: f64 = network.moving.iter().filter(|r| r.between.source.0 == instance).map(|r| r.rate).sum();
                    let into: f64 = network.moving.iter().filter(|r| r.between.destination.0 == instance).map(|r| r.rate).sum();
                    prop_assert!(out <= most && into <= most, "{out} and {into} of {most}");
                }
            }
            prop_assert_eq!(ended, begun.len());
        }
    }
}
