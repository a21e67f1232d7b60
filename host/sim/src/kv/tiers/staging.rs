//! The blocks on the CPU, and which of them can be evicted.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::kv::plain::BlockHash;

/// A block on the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CpuBlock {
    /// Storage is being read: nothing can read or evict the block yet.
    Arriving,
    /// It can be read and evicted; the smallest number is evicted first.
    Idle(u64),
    /// So many copies to storage are in progress: it can be read, and not evicted.
    Pinned(u32),
}

/// Blocks on the CPU by content. The least recently used idle block is evicted first.
#[derive(Clone, Debug)]
pub(super) struct CpuBlocks {
    capacity: u64,
    blocks: FxHashMap<BlockHash, CpuBlock>,
    idle: BTreeMap<u64, BlockHash>,
    next: u64,
}

impl CpuBlocks {
    pub fn new(capacity: u64) -> Self {
        Self { capacity, blocks: FxHashMap::default(), idle: BTreeMap::new(), next: 0 }
    }

    /// Whether the content is here and can be read.
    pub fn is_readable(&self, hash: BlockHash) -> bool {
        self.blocks.get(&hash).is_some_and(|block| *block != CpuBlock::Arriving)
    }

    /// Whether the content is being read from storage.
    pub fn is_arriving(&self, hash: BlockHash) -> bool {
        self.blocks.get(&hash) == Some(&CpuBlock::Arriving)
    }

    pub fn contains(&self, hash: BlockHash) -> bool {
        self.blocks.contains_key(&hash)
    }

    pub fn is_full(&self) -> bool {
        self.free() == 0
    }

    /// Marks the block as the one used last, if it is idle.
    pub fn touch(&mut self, hash: BlockHash) {
        if let Some(&CpuBlock::Idle(turn)) = self.blocks.get(&hash) {
            self.idle.remove(&turn);
            self.becomes_idle(hash);
        }
    }

    /// Stores a block that is not here; an idle one makes room for it if necessary. Returns `false` if there is none.
    pub fn store(&mut self, hash: BlockHash) -> bool {
        if self.is_full() && !self.evict() {
            return false;
        }
        self.becomes_idle(hash);
        true
    }

    /// Reserves room for those of `hashes` that are not here, for all or none, evicting idle blocks. Returns their number.
    pub fn reserve(&mut self, hashes: &[BlockHash]) -> u64 {
        let fresh: Vec<BlockHash> = hashes.iter().copied().filter(|&hash| !self.contains(hash)).collect();
        let count = fresh.len() as u64;
        if count > self.free() + self.idle.len() as u64 {
            return 0;
        }
        while self.free() < count {
            self.evict();
        }
        self.blocks.extend(fresh.into_iter().map(|hash| (hash, CpuBlock::Arriving)));
        count
    }

    /// A reserved block was read from storage.
    pub fn arrived(&mut self, hash: BlockHash) {
        if self.is_arriving(hash) {
            self.becomes_idle(hash);
        }
    }

    /// A copy of the block to storage begins. The block is readable.
    pub fn pin(&mut self, hash: BlockHash) {
        match self.blocks.get_mut(&hash) {
            Some(CpuBlock::Pinned(copies)) => *copies += 1,
            Some(block) => {
                if let CpuBlock::Idle(turn) = std::mem::replace(block, CpuBlock::Pinned(1)) {
                    self.idle.remove(&turn);
                }
            }
            None => {}
        }
    }

    /// A copy of the block to storage has ended.
    pub fn unpin(&mut self, hash: BlockHash) {
        match self.blocks.get_mut(&hash) {
            Some(CpuBlock::Pinned(1)) => self.becomes_idle(hash),
            Some(CpuBlock::Pinned(copies)) => *copies -= 1,
            _ => {}
        }
    }

    fn free(&self) -> u64 {
        self.capacity - self.blocks.len() as u64
    }

    fn becomes_idle(&mut self, hash: BlockHash) {
        self.blocks.insert(hash, CpuBlock::Idle(self.next));
        self.idle.insert(self.next, hash);
        self.next += 1;
    }

    fn evict(&mut self) -> bool {
        let victim = self.idle.pop_first();
        victim.is_some_and(|(_, hash)| self.blocks.remove(&hash).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes<const N: usize>(keys: [u32; N]) -> [BlockHash; N] {
        keys.map(BlockHash::Shared)
    }

    #[test]
    fn the_least_recently_used_idle_block_is_evicted() {
        let [a, b, c, d] = hashes([1, 2, 3, 4]);
        let mut cpu = CpuBlocks::new(3);
        assert!(cpu.store(a) && cpu.store(b) && cpu.store(c));
        cpu.touch(a);
        assert!(cpu.is_full() && cpu.store(d), "b makes room");
        assert_eq!([a, b, c, d].map(|hash| cpu.is_readable(hash)), [true, false, true, true]);
    }

    #[test]
    fn pinned_and_arriving_blocks_are_not_evicted() {
        let [a, b, c, d] = hashes([1, 2, 3, 4]);
        let mut cpu = CpuBlocks::new(2);
        assert!(cpu.store(a));
        cpu.pin(a);
        cpu.pin(a);
        assert_eq!(cpu.reserve(&[b]), 1);
        assert!(cpu.is_readable(a) && cpu.is_arriving(b) && !cpu.is_readable(b));
        assert!(!cpu.store(c), "one block is pinned, the other arriving");
        cpu.unpin(a);
        assert!(!cpu.store(c), "one of its two copies is still in progress");
        cpu.unpin(a);
        assert!(cpu.store(c) && !cpu.contains(a));
        cpu.arrived(b);
        assert!(cpu.is_readable(b) && cpu.store(d));
        assert!(!cpu.contains(c), "it became idle before b did");
    }

    #[test]
    fn room_is_reserved_for_all_or_none() {
        let [a, b, c, d, e] = hashes([1, 2, 3, 4, 5]);
        let mut cpu = CpuBlocks::new(3);
        assert!(cpu.store(a) && cpu.store(b));
        cpu.pin(b);
        assert_eq!(cpu.reserve(&[c, d, e]), 0, "one is free and one idle");
        assert!(cpu.contains(a), "nothing is evicted for it");
        assert_eq!(cpu.reserve(&[b, c, d]), 2, "b is here already");
        assert!(!cpu.contains(a) && cpu.is_full());
        assert_eq!(cpu.reserve(&[b, c]), 0, "nothing is missing");
    }
}
