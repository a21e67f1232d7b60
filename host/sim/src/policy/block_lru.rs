//! A router's record of the prompt blocks that it sent to one instance: a bounded number, with the least recently sent
//! evicted first.
//!
//! Every full block of a prompt takes an entry of the capacity, including blocks that no other request can match. A
//! request sends such blocks once and all together, so they are kept as a counted run, which shrinks block by block
//! from its oldest end.

use rustc_hash::FxHashMap;

use crate::numbers::count;
use crate::request::BlockKey;

/// Marks the absence of an entry.
const NONE: u32 = u32::MAX;

/// The blocks most recently sent to one instance.
#[derive(Clone, Debug)]
pub(super) struct BlockLru {
    /// Maximum number of blocks.
    capacity: u64,
    /// Number of blocks held.
    held: u64,
    /// The entries, linked from oldest to newest.
    entries: Vec<LruEntry>,
    /// Unused indices of `entries`.
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    /// Index of the entry of each held key.
    indices: FxHashMap<BlockKey, u32>,
}

#[derive(Clone, Copy, Debug)]
struct LruEntry {
    older: u32,
    newer: u32,
    what: LruBlocks,
}

#[derive(Clone, Copy, Debug)]
enum LruBlocks {
    /// A block that other requests may send, too.
    Shared(BlockKey),
    /// A run of blocks that only one request has; its length is more than 0.
    Unique(u64),
}

impl BlockLru {
    /// An empty record of at most `capacity` blocks.
    pub fn new(capacity: u32) -> Self {
        assert!(capacity > 0, "the capacity is above 0");
        Self {
            capacity: u64::from(capacity),
            held: 0,
            entries: Vec::new(),
            free: Vec::new(),
            oldest: NONE,
            newest: NONE,
            indices: FxHashMap::default(),
        }
    }

    /// Records that a prompt of `blocks` blocks was sent: the `shared` ones, then unique ones. Calls `changed` for
    /// every shared block that is inserted (`true`) or evicted (`false`), in that order.
    pub fn record(
        &mut self,
        shared: impl Iterator<Item = BlockKey>,
        blocks: u32,
        changed: &mut impl FnMut(BlockKey, bool),
    ) {
        let mut unique = u64::from(blocks);
        for key in shared {
            unique -= 1;
            if let Some(&index) = self.indices.get(&key) {
                self.unlink(index);
                self.link_newest(index);
            } else {
                let index = self.insert(LruBlocks::Shared(key), 1);
                self.indices.insert(key, index);
                changed(key, true);
                self.shrink(changed);
            }
        }
        if unique > 0 {
            self.insert(LruBlocks::Unique(unique), unique);
            self.shrink(changed);
        }
    }

    /// Adds `what`, which has `blocks` blocks, as the newest entry.
    fn insert(&mut self, what: LruBlocks, blocks: u64) -> u32 {
        let entry = LruEntry { older: NONE, newer: NONE, what };
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                count(self.entries.len()) - 1
            }
        };
        self.held += blocks;
        self.link_newest(index);
        index
    }

    /// Evicts the oldest blocks until the rest fits.
    fn shrink(&mut self, changed: &mut impl FnMut(BlockKey, bool)) {
        while self.held > self.capacity {
            let index = self.oldest;
            let excess = self.held - self.capacity;
            let gone = match &mut self.entries[index as usize].what {
                LruBlocks::Unique(blocks) if *blocks > excess => {
                    *blocks -= excess;
                    self.held = self.capacity;
                    return;
                }
                LruBlocks::Unique(blocks) => *blocks,
                LruBlocks::Shared(key) => {
                    self.indices.remove(key);
                    changed(*key, false);
                    1
                }
            };
            self.held -= gone;
            self.unlink(index);
            self.free.push(index);
        }
    }

    fn link_newest(&mut self, index: u32) {
        let older = std::mem::replace(&mut self.newest, index);
        let entry = &mut self.entries[index as usize];
        (entry.older, entry.newer) = (older, NONE);
        match older {
            NONE => self.oldest = index,
            older => self.entries[older as usize].newer = index,
        }
    }

    fn unlink(&mut self, index: u32) {
        let LruEntry { older, newer, .. } = self.entries[index as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;
    use rustc_hash::FxHashSet;

    use super::*;

    /// The reference implementation: one hash per block, as in BLIS. Shared blocks are hashed by key, unique ones by a
    /// fresh number.
    #[derive(Default)]
    struct HashPerBlock {
        capacity: usize,
        hashes: VecDeque<u64>,
        fresh: u64,
    }

    impl HashPerBlock {
        fn send(&mut self, hash: u64) {
            self.hashes.retain(|&other| other != hash);
            self.hashes.push_back(hash);
            if self.hashes.len() > self.capacity {
                self.hashes.pop_front();
            }
        }

        fn record(&mut self, shared: &[BlockKey], unique: u32) {
            for &key in shared {
                self.send(u64::from(key));
            }
            for _ in 0..unique {
                self.fresh += 1;
                self.send(u64::from(u32::MAX) + self.fresh);
            }
        }

        fn shared(&self) -> FxHashSet<BlockKey> {
            self.hashes.iter().filter_map(|&hash| BlockKey::try_from(hash).ok()).collect()
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_hash_per_block(
            capacity in 1..12_u32,
            prompts in prop::collection::vec((0..6_u32, 0..6_u32, 0..15_u32), 1..60),
        ) {
            let mut lru = BlockLru::new(capacity);
            let mut naive = HashPerBlock { capacity: capacity as usize, ..HashPerBlock::default() };
            let mut known = FxHashSet::default();
            for (first, len, unique) in prompts {
                let shared: Vec<BlockKey> = (first..first + len).collect();
                lru.record(shared.iter().copied(), len + unique, &mut |key, present| {
                    let is_change = if present { known.insert(key) } else { known.remove(&key) };
                    assert!(is_change, "{key} reported twice");
                });
                naive.record(&shared, unique);
                prop_assert_eq!(&known, &naive.shared());
                prop_assert_eq!(lru.held, naive.hashes.len() as u64);
                prop_assert!(lru.entries.len() - lru.free.len() <= capacity as usize);
            }
        }
    }
}
