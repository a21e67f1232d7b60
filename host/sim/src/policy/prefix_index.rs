//! Index of cached prefix blocks: a bit per instance for every block key.
//!
//! Routing needs, for each instance, the number of leading blocks of a prompt that the instance has. One walk along the
//! prompt computes it for all instances at once: the sets of the keys are intersected until the intersection is empty,
//! and the count of an instance is the depth at which it leaves the intersection. With 256 instances a key costs four
//! words, where a table per instance would cost 256 look-ups.
//!
//! Keys are dense numbers ([`BlockKey`]), so sets lie in pages of [`PAGE_KEYS`] keys, and a page is allocated only when
//! one of its keys is first set. Clones share pages until one side writes, so a frozen copy (a stale signal, a fork)
//! costs a pointer per page.

use std::sync::Arc;

use crate::ids::InstanceIndex;
use crate::numbers::count;
use crate::request::BlockKey;

/// Number of keys in a page.
const PAGE_KEYS: usize = 512;

/// Number of instances in a word of a set.
const WORD_BITS: usize = u64::BITS as usize;

/// A map from block keys to sets of instances.
#[derive(Clone, Debug, Default)]
pub struct PrefixIndex {
    instances: usize,
    /// Each page: `PAGE_KEYS` sets one after the other, each of [`Self::words`] words.
    pages: Vec<Option<Arc<[u64]>>>,
    /// The instances that have every block so far, during [`Self::leading`].
    alive: Vec<u64>,
}

impl PrefixIndex {
    /// An index for instances `0..instances` in which no block is set.
    #[must_use]
    pub fn new(instances: usize) -> Self {
        Self { instances, pages: Vec::new(), alive: Vec::new() }
    }

    /// Number of instances in a set.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.instances
    }

    /// Makes room for instances `0..instances`, if these are more than before; the new ones have no blocks.
    pub fn grow(&mut self, instances: usize) {
        if instances <= self.instances {
            return;
        }
        let (old, new) = (self.words(), instances.div_ceil(WORD_BITS));
        self.instances = instances;
        if old == new || old == 0 {
            return;
        }
        for page in self.pages.iter_mut().flatten() {
            let mut wider = vec![0; PAGE_KEYS * new];
            for (set, wide) in page.chunks_exact(old).zip(wider.chunks_exact_mut(new)) {
                wide[..old].copy_from_slice(set);
            }
            *page = wider.into();
        }
    }

    /// Sets whether `instance` has `key`. Returns whether that changed anything.
    pub fn set(&mut self, key: BlockKey, instance: InstanceIndex, present: bool) -> bool {
        let instance = instance.index();
        assert!(instance < self.instances, "instance {instance} of {}", self.instances);
        let words = self.words();
        let (page, offset) = position(key, words);
        if page >= self.pages.len() {
            if !present {
                return false;
            }
            self.pages.resize(page + 1, None);
        }
        let page = match &mut self.pages[page] {
            Some(page) => page,
            None if !present => return false,
            slot => slot.insert(vec![0; PAGE_KEYS * words].into()),
        };
        let word = &mut Arc::make_mut(page)[offset + instance / WORD_BITS];
        let bit = 1 << (instance % WORD_BITS);
        let cached = *word & bit != 0;
        *word = if present { *word | bit } else { *word & !bit };
        cached != present
    }

    /// Removes all blocks of `instance`; calls `each` with their keys, in order.
    pub fn remove(&mut self, instance: InstanceIndex, mut each: impl FnMut(BlockKey)) {
        let (word, bit) = (instance.index() / WORD_BITS, 1 << (instance.index() % WORD_BITS));
        let words = self.words();
        for (page, number) in self.pages.iter_mut().zip(0u32..) {
            let Some(page) =
                page.as_mut().filter(|page| page.iter().skip(word).step_by(words).any(|set| set & bit != 0))
            else {
                continue;
            };
            let sets = Arc::make_mut(page).iter_mut().skip(word).step_by(words);
            for (set, key) in sets.zip(number * count(PAGE_KEYS)..).filter(|(set, _)| **set & bit != 0) {
                *set &= !bit;
                each(key);
            }
        }
    }

    /// Whether `instance` has `key`.
    #[must_use]
    pub fn contains(&self, key: BlockKey, instance: InstanceIndex) -> bool {
        let instance = instance.index();
        self.row(key).is_some_and(|set| set[instance / WORD_BITS] >> (instance % WORD_BITS) & 1 == 1)
    }

    /// For each instance, the number of `keys` that it has from the first on without a gap. `counts` is overwritten.
    pub fn leading(&mut self, keys: impl Iterator<Item = BlockKey>, counts: &mut Vec<u32>) {
        counts.clear();
        counts.resize(self.instances, 0);
        let mut alive = std::mem::take(&mut self.alive);
        all(self.instances, &mut alive);
        let depth = self.walk(keys, &mut alive, counts);
        for (word, &set) in alive.iter().enumerate() {
            write(counts, word, set, depth);
        }
        self.alive = alive;
    }

    /// Walks along `keys` as long as any instance in `alive` has them. Writes the counts of the instances that leave
    /// the intersection, and returns the depth reached.
    fn walk(&self, keys: impl Iterator<Item = BlockKey>, alive: &mut [u64], counts: &mut [u32]) -> u32 {
        if let [alive] = alive {
            return self.walk_one_word(keys, alive, counts);
        }
        let mut depth = 0;
        for key in keys {
            let Some(row) = self.row(key) else { return depth };
            let mut left = 0;
            for (word, (alive, &set)) in alive.iter_mut().zip(row).enumerate() {
                let lost = *alive & !set;
                if lost != 0 {
                    write(counts, word, lost, depth);
                }
                *alive &= set;
                left |= *alive;
            }
            if left == 0 {
                return depth;
            }
            depth += 1;
        }
        depth
    }

    /// As [`Self::walk`], where a set is one word.
    fn walk_one_word(&self, keys: impl Iterator<Item = BlockKey>, alive: &mut u64, counts: &mut [u32]) -> u32 {
        let mut depth = 0;
        for key in keys {
            let (page, offset) = position(key, 1);
            let Some(Some(page)) = self.pages.get(page) else { return depth };
            let lost = *alive & !page[offset];
            if lost != 0 {
                write(counts, 0, lost, depth);
                *alive &= page[offset];
                if *alive == 0 {
                    return depth;
                }
            }
            depth += 1;
        }
        depth
    }

    /// The set of `key`, if its page exists.
    fn row(&self, key: BlockKey) -> Option<&[u64]> {
        let words = self.words();
        let (page, offset) = position(key, words);
        self.pages.get(page)?.as_ref().map(|page| &page[offset..offset + words])
    }

    /// Number of words in a set.
    fn words(&self) -> usize {
        self.instances.div_ceil(WORD_BITS)
    }
}

/// Page of `key`, and the offset of its set in it.
fn position(key: BlockKey, words: usize) -> (usize, usize) {
    let key = key as usize;
    (key / PAGE_KEYS, key % PAGE_KEYS * words)
}

/// Writes the full set `0..instances` to `set`.
fn all(instances: usize, set: &mut Vec<u64>) {
    set.clear();
    set.resize(instances.div_ceil(WORD_BITS), u64::MAX);
    if let (Some(last), rest @ 1..) = (set.last_mut(), instances % WORD_BITS) {
        *last = (1 << rest) - 1;
    }
}

/// Sets `counts[i] = depth` for the members of word number `word` of a set.
fn write(counts: &mut [u32], word: usize, mut set: u64, depth: u32) {
    while set != 0 {
        counts[word * WORD_BITS + set.trailing_zeros() as usize] = depth;
        set &= set - 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustc_hash::FxHashSet;

    use super::*;

    #[test]
    fn the_count_ends_at_the_first_gap() {
        let mut index = PrefixIndex::new(3);
        for (key, instance) in [(7, 0), (8, 0), (9, 0), (7, 1), (9, 1), (8, 2), (9, 2)] {
            index.set(key, InstanceIndex(instance), true);
        }
        let mut counts = vec![99; 9];
        index.leading([7, 8, 9, 2000].into_iter(), &mut counts);
        assert_eq!(counts, [3, 1, 0], "block 8 is a gap for 1, block 7 for 2, 2000 is on no instance");
        index.set(8, InstanceIndex(0), false);
        index.leading([7, 8, 9].into_iter(), &mut counts);
        assert_eq!(counts, [1, 1, 0]);
    }

    #[test]
    fn the_blocks_of_one_instance_are_removed() {
        let mut index = PrefixIndex::new(70);
        for (key, instance) in [(7, 69), (600, 69), (600, 5), (8, 5)] {
            index.set(key, InstanceIndex(instance), true);
        }
        let copy = index.clone();
        let mut removed = Vec::new();
        index.remove(InstanceIndex(69), |key| removed.push(key));
        assert_eq!(removed, [7, 600]);
        let has = |index: &PrefixIndex, key, instance| index.contains(key, InstanceIndex(instance));
        assert!(!has(&index, 7, 69) && !has(&index, 600, 69) && has(&index, 600, 5) && has(&index, 8, 5));
        assert!(has(&copy, 600, 69), "a copy stays as it was");
        index.remove(InstanceIndex(3), |_| unreachable!("it has none"));
    }

    #[test]
    fn a_prompt_without_shared_blocks_is_cached_nowhere() {
        let mut counts = Vec::new();
        PrefixIndex::new(2).leading(std::iter::empty(), &mut counts);
        assert_eq!(counts, [0, 0]);
    }

    #[test]
    fn a_copy_stays_as_it_was() {
        let mut index = PrefixIndex::new(1);
        let instance = InstanceIndex(0);
        index.set(5, instance, true);
        let frozen = index.clone();
        index.set(5, instance, false);
        assert_eq!((frozen.contains(5, instance), index.contains(5, instance)), (true, false));
    }

    /// An operation on an index and on its reference implementation.
    #[derive(Clone, Debug)]
    enum IndexOperation {
        Set { key: BlockKey, instance: usize, present: bool },
        Grow { instances: usize },
        LookUp { keys: Vec<BlockKey> },
    }

    fn operations() -> impl Strategy<Value = Vec<IndexOperation>> {
        // Few keys, so that prompts hit, and across a page boundary.
        let key = || prop_oneof![0..4_u32, 510..514_u32];
        let operation = prop_oneof![
            8 => (key(), 0..200_usize, prop::bool::weighted(0.8))
                .prop_map(|(key, instance, present)| IndexOperation::Set { key, instance, present }),
            1 => (1..200_usize).prop_map(|instances| IndexOperation::Grow { instances }),
            3 => prop::collection::vec(key(), 0..6).prop_map(|keys| IndexOperation::LookUp { keys }),
        ];
        prop::collection::vec(operation, 1..200)
    }

    proptest! {
        #[test]
        fn agrees_with_a_set_per_instance(first in 1..200_usize, operations in operations()) {
            let mut index = PrefixIndex::new(first);
            let mut naive = vec![FxHashSet::default(); first];
            let mut counts = Vec::new();
            for operation in operations {
                match operation {
                    IndexOperation::Set { key, instance, present } => {
                        let instance = instance % naive.len();
                        index.set(key, InstanceIndex::at(instance), present);
                        if present { naive[instance].insert(key); } else { naive[instance].remove(&key); }
                    }
                    IndexOperation::Grow { instances } => {
                        index.grow(instances);
                        naive.resize(instances.max(naive.len()), FxHashSet::default());
                    }
                    IndexOperation::LookUp { keys } => {
                        index.leading(keys.iter().copied(), &mut counts);
                        let expected: Vec<u32> = naive
                            .iter()
                            .map(|cached| keys.iter().take_while(|&key| cached.contains(key)).count() as u32)
                            .collect();
                        prop_assert_eq!(&counts, &expected);
                    }
                }
            }
        }
    }
}
