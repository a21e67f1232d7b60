//! Least recently used.

use std::collections::VecDeque;

use super::cache_policy::{CachePolicy, EndedUse, RequestRank};
use super::chunk::{ChunkKey, ChunkSlot, Positioned};

/// The time of a chunk that is not in the tier.
const ABSENT: u64 = 0;

/// Evicts the chunk with the oldest last use, as vLLM's `LRUCachePolicy`: when a load ends does not count, when the request
/// ends does. Of the chunks of one request, the tail of the prompt is evicted before its head.
#[derive(Clone, Debug, Default)]
pub struct Lru {
    /// By number of the chunk.
    chunks: Vec<RankedChunk>,
    /// Chunks by the time of their last use, the oldest first.
    groups: VecDeque<UseGroup>,
    /// The last time.
    now: u64,
    /// Number of entries in the groups, those included of chunks that are in another group since; and of chunks.
    entries: usize,
    present: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct RankedChunk {
    /// The time of its last use; [`ABSENT`] if it is not in the tier.
    time: u64,
    evictable: bool,
}

/// The chunks that one request used last, at `time`.
#[derive(Clone, Debug)]
struct UseGroup {
    time: u64,
    /// The order in the prompt, and the number: from head to tail. Entries of chunks that have another time are void.
    chunks: Vec<(u32, ChunkSlot)>,
}

/// Void entries up to this number are not removed.
const FEW_VOID: usize = 1024;

impl Lru {
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// The last use of `slot` is `time`, in the order `order` among others of that time.
    fn set_time(&mut self, slot: ChunkSlot, time: u64, order: u32) {
        let index = slot as usize;
        if index >= self.chunks.len() {
            self.chunks.resize(index + 1, RankedChunk::default());
        }
        self.present += usize::from(self.chunks[index].time == ABSENT);
        self.chunks[index].time = time;
        let group = self.group(time);
        let at = match group.chunks.last() {
            Some(&(last, _)) if last > order => group.chunks.partition_point(|&(other, _)| other <= order),
            _ => group.chunks.len(),
        };
        group.chunks.insert(at, (order, slot));
        self.entries += 1;
    }

    /// The group of `time`, which is added if it is missing.
    fn group(&mut self, time: u64) -> &mut UseGroup {
        let at = match self.groups.back() {
            Some(last) if last.time >= time => self.groups.partition_point(|group| group.time < time),
            _ => self.groups.len(),
        };
        if self.groups.get(at).is_none_or(|group| group.time != time) {
            self.groups.insert(at, UseGroup { time, chunks: Vec::new() });
        }
        &mut self.groups[at]
    }

    /// Removes void entries if there are many.
    fn clean(&mut self) {
        if self.entries <= 2 * self.present + FEW_VOID {
            return;
        }
        self.remove_void(self.groups.len());
        self.groups.retain(|group| !group.chunks.is_empty());
    }

    /// Removes the void entries of the first `groups` groups.
    fn remove_void(&mut self, groups: usize) {
        for group in self.groups.iter_mut().take(groups) {
            let (time, before) = (group.time, group.chunks.len());
            group.chunks.retain(|&(_, slot)| self.chunks[slot as usize].time == time);
            self.entries -= before - group.chunks.len();
        }
    }

    fn forget(&mut self, slot: ChunkSlot) {
        self.chunks[slot as usize] = RankedChunk::default();
        self.present -= 1;
    }
}

impl CachePolicy for Lru {
    fn insert(&mut self, slot: ChunkSlot, (_, position): Positioned, request: &mut RequestRank<'_>) {
        let time = match position {
            None => self.tick(),
            Some(_) => request.get_or(|| self.tick()),
        };
        self.set_time(slot, time, position.unwrap_or(0));
        self.chunks[slot as usize].evictable = false;
    }

    fn remove(&mut self, slot: ChunkSlot, _key: ChunkKey) {
        let time = self.chunks[slot as usize].time;
        let group = self.group(time);
        let before = group.chunks.len();
        group.chunks.retain(|&(_, other)| other != slot);
        let removed = before - group.chunks.len();
        self.entries -= removed;
        self.forget(slot);
    }

    fn set_evictable(&mut self, slot: ChunkSlot, _key: ChunkKey, evictable: bool) {
        self.chunks[slot as usize].evictable = evictable;
    }

    fn missed(&mut self, _keys: &[ChunkKey]) {}

    fn used(&mut self, chunks: &[(Option<ChunkSlot>, Positioned)], request: &mut RequestRank<'_>) {
        let time = request.get_or(|| self.tick());
        for &(slot, (_, position)) in chunks {
            let (Some(slot), Some(position)) = (slot, position) else { continue };
            if self.chunks[slot as usize].time < time {
                self.set_time(slot, time, position);
            }
        }
    }

    fn ended(&mut self, chunks: &[EndedUse]) {
        let time = self.tick();
        let present = chunks.iter().filter_map(|chunk| chunk.slot);
        let entries: Vec<(u32, ChunkSlot)> = (0..).zip(present).collect();
        if entries.is_empty() {
            return;
        }
        for &(_, slot) in &entries {
            self.chunks[slot as usize].time = time;
        }
        self.entries += entries.len();
        self.groups.push_back(UseGroup { time, chunks: entries });
        self.clean();
    }

    fn evict(&mut self, number: usize, is_protected: &dyn Fn(ChunkSlot) -> bool, chosen: &mut Vec<ChunkSlot>) -> bool {
        let chunks = &self.chunks;
        let is_free = |time: u64, slot: ChunkSlot| {
            let RankedChunk { time: own, evictable } = chunks[slot as usize];
            own == time && evictable && !is_protected(slot)
        };
        let mut touched = 0;
        for group in &self.groups {
            touched += 1;
            let free = group.chunks.iter().rev().map(|&(_, slot)| slot).filter(|&slot| is_free(group.time, slot));
            chosen.extend(free.take(number - chosen.len()));
            if chosen.len() == number {
                break;
            }
        }
        if chosen.len() < number {
            chosen.clear();
            return false;
        }
        for &slot in &*chosen {
            self.forget(slot);
        }
        self.remove_void(touched);
        while self.groups.front().is_some_and(|group| group.chunks.is_empty()) {
            self.groups.pop_front();
        }
        true
    }

    fn fork(&self) -> Box<dyn CachePolicy> {
        Box::new(self.clone())
    }
}
