//! A tier below the CPU tier: files, or an object store (vLLM 0.33's `secondary_tiers` of type `fs` and `obj`).
//!
//! * A chunk that was written to the CPU tier is copied here as well, and is pinned there meanwhile ([`SecondaryTier::store`]).
//!   With back-pressure some copies are dropped ([`Backpressure`]).
//! * A look-up that misses in the CPU tier asks here. It takes its time: [`SecondaryTier::look_up`] first gives
//!   [`SecondaryLookup::Unknown`]. The result holds as long as a request that asked for it has not ended.
//! * What is found is read into the CPU tier ([`SecondaryTier::promote`]), and is loaded from there.
//!
//! Nothing is ever removed: vLLM's `fs` tier leaves that to the owner of the folder. Every instance has a folder of its own, or
//! those of a group share one: then each finds what the others wrote, from the end of the write on ([`SharedChunks`]).

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::chunk::ChunkKey;
use super::{LinkSpeed, MemoryLinks, SharedChunks, TransferDirection};
use crate::ids::RequestId;
use crate::numbers::truncated;
use crate::units::Micros;

/// What a secondary tier is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondaryKind {
    /// Files on a local disk (vLLM `fs`).
    Files,
    /// An object store or a file system over the network (vLLM `obj`, and `fs` with locality `REMOTE`).
    Objects,
    /// The CPU tiers of the other instances of its group (vLLM `p2p`), over a network: see [`PeerTier`](super::PeerTier).
    Peers,
}

impl SecondaryKind {
    /// All kinds, by vLLM's names.
    pub const ALL: [(&'static str, Self); 3] = [("fs", Self::Files), ("obj", Self::Objects), ("p2p", Self::Peers)];
}

/// What happens to copies while the tier is slow (vLLM `backpressure`, with `EMABackpressureDetector`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackpressurePolicy {
    /// They wait, however many they are: vLLM without the setting.
    #[default]
    None,
    /// They are dropped (`DropStorePolicy`).
    Drop,
    /// Some are dropped, the more the slower the tier is (`ThrottledDropPolicy`).
    Throttle,
}

impl BackpressurePolicy {
    /// All choices, by the names of the flag.
    pub const ALL: [(&'static str, Self); 3] =
        [("none", Self::None), ("drop", Self::Drop), ("throttle", Self::Throttle)];
}

/// The secondary tier of an instance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SecondaryConfig {
    /// What it is made of.
    pub kind: SecondaryKind,
    /// Bandwidth in each direction, bytes/µs, > 0. Reads and writes do not slow each other.
    pub bandwidth: f64,
    /// Time of an access before the first byte, and of a look-up of the chunks of one step.
    pub latency: Micros,
    /// What happens to copies while it is slow.
    pub backpressure: BackpressurePolicy,
    /// Whether the instances of a group share it, each over a link of its own. Then the latency is at least 1 µs, as with
    /// [`SecondaryKind::Peers`], which have nothing to share.
    pub shared: bool,
}

impl SecondaryConfig {
    /// Whether what an instance does there matters to the others of its group.
    #[must_use]
    pub fn connects(self) -> bool {
        self.shared || self.kind == SecondaryKind::Peers
    }

    /// vLLM's water marks of back-pressure, high and low, seconds per MiB: of a local disk, and of storage over the network.
    fn water_marks(self) -> (f64, f64) {
        let is_local = self.kind == SecondaryKind::Files && !self.shared;
        if is_local { (0.010, 0.002) } else { (0.050, 0.010) }
    }
}

/// What a look-up finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondaryLookup {
    /// The chunk is not there.
    Miss,
    /// It is being looked up: ask again at a later step.
    Unknown,
    /// It is there.
    Hit,
}

/// Counters of a secondary tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecondaryCounters {
    /// Bytes read into the CPU tier.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Chunks that were there, for which the CPU tier had no room, once for each attempt.
    pub refused: u64,
    /// Chunks that were not written because of back-pressure.
    pub dropped: u64,
    /// Prompt tokens that requests loaded from chunks that had to be read from here.
    pub hit_tokens: u64,
    /// Of them, those that another instance had written.
    pub hit_tokens_of_others: u64,
}

/// The direction of reads, into the CPU tier.
pub const READ: TransferDirection = TransferDirection::ToHost;
/// The direction of writes, away from the CPU tier.
pub const WRITE: TransferDirection = TransferDirection::ToGpu;

/// A transfer between the CPU tier and the secondary tier that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedTransfer {
    /// [`READ`], or the other one for writes.
    pub direction: TransferDirection,
    /// Its chunks.
    pub chunks: Vec<ChunkKey>,
}

#[derive(Clone, Debug)]
struct SecondaryJob {
    chunks: Vec<ChunkKey>,
    submitted: Micros,
    bytes: u64,
}

/// A look-up of a chunk.
#[derive(Clone, Debug, Default)]
struct Probe {
    /// Number of requests that have asked and not ended.
    requests: u32,
    /// Whether it is under way.
    in_flight: bool,
    found: Option<bool>,
}

/// Storage that several instances share, as one of them sees it.
#[derive(Clone, Debug, Default)]
struct StorageContent {
    /// What was written there, by all instances, as far as that was passed on.
    content: SharedChunks,
    /// What this instance writes and the others do not have yet, with the ends of the writes.
    written: Vec<(ChunkKey, Micros)>,
    /// The end of its last write, µs.
    last_end: f64,
}

/// The secondary tier of one instance, and its transfers.
#[derive(Clone, Debug)]
pub struct SecondaryTier {
    config: SecondaryConfig,
    /// Size of a chunk, of all GPUs of the instance, bytes.
    chunk_bytes: u64,
    /// What this instance has written.
    content: FxHashSet<ChunkKey>,
    /// `None` if no other instance uses it.
    shared: Option<StorageContent>,
    links: MemoryLinks,
    /// Transfers in progress, by direction, in the order of submission.
    jobs: [VecDeque<SecondaryJob>; 2],
    probes: FxHashMap<ChunkKey, Probe>,
    /// The chunks that a request has asked for.
    asked: FxHashMap<RequestId, Vec<ChunkKey>>,
    /// Look-ups of the present step.
    new_probes: Vec<ChunkKey>,
    /// Look-ups under way: when they end, and of which chunks.
    probing: VecDeque<(Micros, Vec<ChunkKey>)>,
    /// Reads of the present step, by request, in the order of the first.
    new_reads: Vec<(RequestId, Vec<ChunkKey>)>,
    backpressure: Option<Backpressure>,
    counters: SecondaryCounters,
    number: u64,
}

impl SecondaryTier {
    /// An empty tier for chunks of `chunk_bytes` bytes, ≥ 1.
    #[must_use]
    pub fn new(config: SecondaryConfig, chunk_bytes: u64) -> Self {
        let SecondaryConfig { bandwidth, latency, .. } = config;
        Self {
            config,
            chunk_bytes,
            content: FxHashSet::default(),
            shared: config.shared.then(StorageContent::default),
            links: MemoryLinks::new(LinkSpeed { alone: bandwidth, together: bandwidth, base: latency }),
            jobs: [VecDeque::new(), VecDeque::new()],
            probes: FxHashMap::default(),
            asked: FxHashMap::default(),
            new_probes: Vec::new(),
            probing: VecDeque::new(),
            new_reads: Vec::new(),
            backpressure: Backpressure::new(config),
            counters: SecondaryCounters::default(),
            number: 0,
        }
    }

    /// Whether `key` is there, for `request`.
    pub fn look_up(&mut self, request: RequestId, key: ChunkKey) -> SecondaryLookup {
        let asked = self.asked.entry(request).or_default();
        let probe = self.probes.entry(key).or_default();
        if !asked.contains(&key) {
            asked.push(key);
            probe.requests += 1;
        }
        match probe.found {
            Some(true) => SecondaryLookup::Hit,
            Some(false) => SecondaryLookup::Miss,
            None => {
                if !std::mem::replace(&mut probe.in_flight, true) {
                    self.new_probes.push(key);
                }
                SecondaryLookup::Unknown
            }
        }
    }

    /// The CPU tier has no room for a chunk that is here.
    pub fn refuse(&mut self) {
        self.counters.refused += 1;
    }

    /// A request loads `keys`, of `tokens` tokens each, which had to be read from here.
    pub fn count_hits(&mut self, keys: &[ChunkKey], tokens: u64) {
        for key in keys {
            self.counters.hit_tokens += tokens;
            self.counters.hit_tokens_of_others += if self.content.contains(key) { 0 } else { tokens };
        }
    }

    /// Whether `key` can be read at `at`. What other instances wrote counts if it was passed on.
    fn has(&self, key: ChunkKey, at: Micros) -> bool {
        self.content.contains(&key) || self.shared.as_ref().is_some_and(|shared| shared.content.has(key, at))
    }

    /// Removes and returns the chunks of writes since the last call, with their ends, for the instances that share the tier.
    /// They end at least the latency after their submission.
    pub fn take_written(&mut self) -> Vec<(ChunkKey, Micros)> {
        self.shared.as_mut().map(|shared| std::mem::take(&mut shared.written)).unwrap_or_default()
    }

    /// The instances that share the tier have written `content`.
    pub fn share(&mut self, content: &SharedChunks) {
        self.shared.iter_mut().for_each(|shared| shared.content.clone_from(content));
    }

    /// Reads `key` into the CPU tier, which has room for it, for `request`.
    pub fn promote(&mut self, request: RequestId, key: ChunkKey) {
        match self.new_reads.iter_mut().find(|(other, _)| *other == request) {
            Some((_, chunks)) => chunks.push(key),
            None => self.new_reads.push((request, vec![key])),
        }
    }

    /// Chunks were written to the CPU tier at `now`, after [`Self::notice`] of that time. Returns those that are copied here, to be pinned until the copy has ended.
    pub fn store(&mut self, now: Micros, chunks: &[ChunkKey]) -> Vec<ChunkKey> {
        if let Some(backpressure) = &mut self.backpressure
            && !backpressure.lets_through(now)
        {
            self.counters.dropped += chunks.len() as u64;
            return Vec::new();
        }
        let absent: Vec<ChunkKey> = chunks.iter().copied().filter(|&key| !self.has(key, now)).collect();
        if !absent.is_empty() {
            self.submit(now, WRITE, absent.clone());
        }
        absent
    }

    /// Submits the look-ups and reads of the step that was planned at `now`.
    pub fn end_planning(&mut self, now: Micros) {
        if !self.new_probes.is_empty() {
            // One thread looks up one step after the other.
            let free = self.probing.back().map_or(now, |&(end, _)| end.max(now));
            self.probing.push_back((free + self.config.latency, std::mem::take(&mut self.new_probes)));
        }
        for (_, chunks) in std::mem::take(&mut self.new_reads) {
            self.submit(now, READ, chunks);
        }
    }

    /// Whether a look-up has ended by `now` that [`Self::notice`] has not seen.
    #[must_use]
    pub fn ends_look_up(&self, now: Micros) -> bool {
        self.probing.front().is_some_and(|&(end, _)| end <= now)
    }

    /// Notices everything that has ended by `now`. Returns the transfers among it, in the order of their ends.
    pub fn notice(&mut self, now: Micros) -> Vec<EndedTransfer> {
        let mut ended = Vec::new();
        while let Some(&(end, _)) = self.probing.front()
            && end <= now
        {
            self.notice_transfers(end, &mut ended);
            for key in self.probing.pop_front().into_iter().flat_map(|(_, keys)| keys) {
                let found = self.has(key, end);
                let Some(probe) = self.probes.get_mut(&key) else { continue };
                probe.in_flight = false;
                probe.found = Some(found);
                if probe.requests == 0 {
                    self.probes.remove(&key);
                }
            }
        }
        self.notice_transfers(now, &mut ended);
        ended
    }

    fn notice_transfers(&mut self, now: Micros, ended: &mut Vec<EndedTransfer>) {
        while let Some(end) = self.links.next_end().filter(|&end| end <= now) {
            let mut directions = Vec::new();
            self.links.advance(end, |direction, _| directions.push(direction));
            for direction in directions {
                let SecondaryJob { chunks, submitted, bytes } =
                    self.jobs[direction as usize].pop_front().expect("it was submitted");
                if direction == WRITE {
                    self.content.extend(&chunks);
                    if let Some(backpressure) = &mut self.backpressure {
                        backpressure.completed(end, end - submitted, bytes);
                    }
                }
                ended.push(EndedTransfer { direction, chunks });
            }
        }
    }

    fn submit(&mut self, now: Micros, direction: TransferDirection, chunks: Vec<ChunkKey>) {
        let bytes = self.chunk_bytes * chunks.len() as u64;
        match direction {
            READ => self.counters.read_bytes += bytes,
            WRITE => {
                self.counters.written_bytes += bytes;
                self.announce(now, bytes, &chunks);
            }
        }
        self.number += 1;
        self.links.submit(now, direction, bytes, self.number);
        self.jobs[direction as usize].push_back(SecondaryJob { chunks, submitted: now, bytes });
    }

    /// The write of `chunks` is submitted at `now`: the other instances can read them from its end on.
    fn announce(&mut self, now: Micros, bytes: u64, chunks: &[ChunkKey]) {
        let Some(shared) = &mut self.shared else { return };
        let begin = shared.last_end.max(now.0 as f64);
        shared.last_end = begin + self.config.latency.0 as f64 + bytes as f64 / self.config.bandwidth;
        let end = Micros(truncated(shared.last_end.ceil()));
        shared.written.extend(chunks.iter().map(|&key| (key, end)));
    }

    /// A request has ended: what it asked is forgotten, unless others asked it as well.
    pub fn forget(&mut self, request: RequestId) {
        for key in self.asked.remove(&request).unwrap_or_default() {
            let Some(probe) = self.probes.get_mut(&key) else { continue };
            probe.requests -= 1;
            if probe.requests == 0 && !probe.in_flight {
                self.probes.remove(&key);
            }
        }
    }

    /// When the next look-up or transfer ends; `None` if there is none.
    #[must_use]
    pub fn next_end(&self) -> Option<Micros> {
        let probe = self.probing.front().map(|&(end, _)| end);
        probe.into_iter().chain(self.links.next_end()).min()
    }

    /// Whether nothing is on its way.
    #[must_use]
    pub fn is_still(&self) -> bool {
        self.probing.is_empty() && self.jobs.iter().all(VecDeque::is_empty)
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> SecondaryCounters {
        self.counters
    }
}

/// vLLM's detector of a slow tier (`EMABackpressureDetector`) with its defaults: the moving average of seconds per MiB written.
#[derive(Clone, Debug)]
struct Backpressure {
    high: f64,
    low: f64,
    throttles: bool,
    /// Seconds per MiB.
    average: f64,
    /// The first copies, from which the average starts: their sum and number.
    warm_up: (f64, u32),
    updated: Micros,
    is_pressed: bool,
    /// When the pressure ended last.
    ended: Option<Micros>,
    /// Number of decisions since then.
    since_end: u32,
    /// Number of successive copies with an average below the low water mark.
    healthy: u32,
    /// Share of a copy that is to be dropped.
    to_drop: f64,
}

impl Backpressure {
    const WEIGHT: f64 = 0.15;
    const WARM_UP: u32 = 10;
    const HALF_LIFE: Micros = Micros(2_000_000);
    const COOL_DOWN: Micros = Micros(1_000_000);
    const HEALTHY: u32 = 10;
    /// Everything is dropped at this much above the high water mark, in units of it.
    const RAMP: f64 = 2.0;
    const MIB: f64 = (1_u64 << 20) as f64;

    fn new(config: SecondaryConfig) -> Option<Self> {
        let (high, low) = config.water_marks();
        (config.backpressure != BackpressurePolicy::None).then(|| Self {
            high,
            low,
            throttles: config.backpressure == BackpressurePolicy::Throttle,
            average: 0.0,
            warm_up: (0.0, 0),
            updated: Micros::ZERO,
            is_pressed: false,
            ended: None,
            since_end: 0,
            healthy: 0,
            to_drop: 0.0,
        })
    }

    /// A copy of `bytes` bytes ended at `now`, `elapsed` after its submission.
    fn completed(&mut self, now: Micros, elapsed: Micros, bytes: u64) {
        let each = elapsed.0 as f64 * 1e-6 / (bytes as f64 / Self::MIB);
        if self.warm_up.1 < Self::WARM_UP {
            self.warm_up = (self.warm_up.0 + each, self.warm_up.1 + 1);
            if self.warm_up.1 == Self::WARM_UP {
                (self.average, self.updated) = (self.warm_up.0 / f64::from(Self::WARM_UP), now);
            }
            return;
        }
        self.average = Self::WEIGHT * each + (1.0 - Self::WEIGHT) * self.average;
        self.updated = now;
        if self.average > self.high {
            (self.is_pressed, self.ended, self.healthy) = (true, None, 0);
        } else if self.average < self.low {
            if self.is_pressed {
                self.ends(now);
            }
            self.healthy += 1;
        } else {
            self.healthy = 0;
        }
    }

    fn ends(&mut self, now: Micros) {
        (self.is_pressed, self.ended, self.since_end) = (false, Some(now), 0);
    }

    /// Whether a copy is made that would be submitted at `now`.
    fn lets_through(&mut self, now: Micros) -> bool {
        if self.is_pressed {
            // Without copies the average halves again and again, so that one is tried again.
            let idle = now.saturating_sub(self.updated);
            self.average *= 0.5_f64.powf(idle.0 as f64 / Self::HALF_LIFE.0 as f64);
            self.updated = self.updated.max(now);
            if self.average < self.low {
                self.ends(now);
            }
        } else if self.healthy >= Self::HEALTHY {
            return true;
        }
        if !self.is_pressed && self.ended.is_some_and(|ended| now.saturating_sub(ended) < Self::COOL_DOWN) {
            self.since_end += 1;
            if self.since_end.is_multiple_of(2) {
                return false;
            }
        }
        !self.is_pressed || self.throttles && !self.drops()
    }

    /// Under pressure: whether the next copy is dropped.
    fn drops(&mut self) -> bool {
        let rate = ((self.average - self.high).max(0.0) / self.high / Self::RAMP).min(1.0);
        if rate >= 1.0 {
            return true;
        }
        self.to_drop += rate;
        let drops = self.to_drop >= 1.0;
        if drops {
            self.to_drop -= 1.0;
        }
        drops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn tier(backpressure: BackpressurePolicy) -> SecondaryTier {
        let kind = SecondaryKind::Files;
        let (bandwidth, latency) = (MIB as f64 / 1000.0, Micros(100));
        let config = SecondaryConfig { kind, bandwidth, latency, backpressure, shared: false };
        SecondaryTier::new(config, MIB)
    }

    fn keys(keys: impl IntoIterator<Item = u64>) -> Vec<ChunkKey> {
        keys.into_iter().map(ChunkKey).collect()
    }

    /// A chunk takes 1 ms, and every access 0.1 ms.
    #[test]
    fn what_was_written_is_found_after_a_look_up_and_read() {
        let mut tier = tier(BackpressurePolicy::None);
        assert_eq!(tier.store(Micros(0), &keys([1, 2])), keys([1, 2]));
        assert_eq!(tier.next_end(), Some(Micros(2_100)));
        assert_eq!(tier.look_up(RequestId(7), ChunkKey(1)), SecondaryLookup::Unknown);
        tier.end_planning(Micros(1_000));
        assert_eq!(tier.notice(Micros(1_100)), []);
        assert_eq!(tier.look_up(RequestId(7), ChunkKey(1)), SecondaryLookup::Miss, "it was not written yet");
        assert_eq!(tier.notice(Micros(2_100)), [EndedTransfer { direction: WRITE, chunks: keys([1, 2]) }]);
        assert_eq!(tier.look_up(RequestId(7), ChunkKey(1)), SecondaryLookup::Miss, "as long as the request is there");
        tier.forget(RequestId(7));
        assert_eq!(tier.look_up(RequestId(8), ChunkKey(1)), SecondaryLookup::Unknown);
        tier.end_planning(Micros(3_000));
        tier.notice(Micros(3_100));
        assert_eq!(tier.look_up(RequestId(8), ChunkKey(1)), SecondaryLookup::Hit);
        tier.promote(RequestId(8), ChunkKey(1));
        tier.end_planning(Micros(3_100));
        assert_eq!(tier.next_end(), Some(Micros(4_200)));
        assert_eq!(tier.notice(Micros(4_200)), [EndedTransfer { direction: READ, chunks: keys([1]) }]);
        assert!(tier.is_still());
        assert_eq!((tier.counters().read_bytes, tier.counters().written_bytes), (MIB, 2 * MIB));
        assert_eq!(tier.store(Micros(5_000), &keys([1, 3])), keys([3]), "what is there is not written again");
    }

    /// Both write from 0 on, the second one after its first write: chunk 1 can be read from 1 100 on, chunk 2 from 2 200.
    #[test]
    fn what_an_instance_writes_the_others_find_from_its_end_on() {
        let one = tier(BackpressurePolicy::None).config;
        let shared = SecondaryConfig { shared: true, ..one };
        let (mut writer, mut reader) = (SecondaryTier::new(shared, MIB), SecondaryTier::new(shared, MIB));
        writer.store(Micros(0), &keys([1]));
        writer.store(Micros(0), &keys([2]));
        let written = writer.take_written();
        assert_eq!(written, [(ChunkKey(1), Micros(1_100)), (ChunkKey(2), Micros(2_200))]);
        assert_eq!(writer.take_written(), []);
        let ends: Vec<Micros> = std::iter::from_fn(|| {
            let end = writer.next_end()?;
            writer.notice(end);
            Some(end)
        })
        .collect();
        assert_eq!(ends, [Micros(1_100), Micros(2_200)], "as announced");
        let mut content = SharedChunks::default();
        content.add(&written);
        reader.share(&content);
        for key in [1, 2] {
            reader.look_up(RequestId(7), ChunkKey(key));
        }
        reader.end_planning(Micros(2_000));
        reader.notice(Micros(2_100));
        let found = [1, 2].map(|key| reader.look_up(RequestId(7), ChunkKey(key)));
        assert_eq!(found, [SecondaryLookup::Hit, SecondaryLookup::Miss]);
        assert_eq!(reader.store(Micros(2_199), &keys([1, 2])), keys([2]), "what is there is not written again");
        reader.count_hits(&keys([1]), 16);
        assert_eq!((reader.counters().hit_tokens, reader.counters().hit_tokens_of_others), (16, 16));
    }

    #[test]
    fn requests_that_end_take_their_look_ups_along() {
        let mut tier = tier(BackpressurePolicy::None);
        for request in [1, 2] {
            tier.look_up(RequestId(request), ChunkKey(1));
        }
        tier.end_planning(Micros(0));
        tier.forget(RequestId(1));
        tier.notice(Micros(100));
        assert_eq!(tier.look_up(RequestId(2), ChunkKey(1)), SecondaryLookup::Miss);
        tier.forget(RequestId(2));
        assert!(tier.probes.is_empty() && tier.asked.is_empty());
        // One that ends before its look-up.
        tier.look_up(RequestId(3), ChunkKey(1));
        tier.end_planning(Micros(200));
        tier.forget(RequestId(3));
        assert_eq!(tier.probes.len(), 1);
        tier.notice(Micros(300));
        assert!(tier.probes.is_empty());
    }

    /// The tier writes 1 MiB in 1 ms, and copies of one chunk come every 0.1 ms: the queue grows, and with it the time of a
    /// copy, to the high water mark of 10 ms.
    #[test]
    fn a_tier_that_falls_behind_drops_copies() {
        let dropped = |policy| {
            let mut tier = tier(policy);
            for turn in 0..20_000_u64 {
                let now = Micros(turn * 100);
                tier.notice(now);
                tier.store(now, &keys([turn]));
            }
            (tier.counters().dropped, tier.jobs[WRITE as usize].len() as u64)
        };
        assert_eq!(dropped(BackpressurePolicy::None).0, 0);
        let (all, queued) = dropped(BackpressurePolicy::Drop);
        let (some, longer) = dropped(BackpressurePolicy::Throttle);
        // It can write 1 800 of 20 000 in that time, and is idle after each burst until the average has fallen.
        for (dropped, left) in [(all, queued), (some, longer)] {
            assert!((18_200..19_900).contains(&dropped) && left < 200, "{dropped} dropped, {left} left");
        }
    }

    #[test]
    fn pressure_ends_after_some_idle_time_and_then_every_second_copy_is_made() {
        let mut pressure = Backpressure::new(tier(BackpressurePolicy::Drop).config).expect("drops");
        for _ in 0..Backpressure::WARM_UP {
            pressure.completed(Micros(0), Micros(100), MIB);
        }
        pressure.completed(Micros(0), Micros(200_000), MIB);
        assert!(pressure.is_pressed);
        assert!(!pressure.lets_through(Micros(1_000_000)));
        // From 0.03 s to 0.002 s per MiB: four half-lives.
        assert!(!pressure.lets_through(Micros(7_000_000)));
        let after: Vec<bool> = (0..4).map(|turn| pressure.lets_through(Micros(8_000_000 + turn))).collect();
        assert_eq!(after, [true, false, true, false]);
        assert!(pressure.lets_through(Micros(9_100_000)) && pressure.lets_through(Micros(9_100_001)));
    }
}
