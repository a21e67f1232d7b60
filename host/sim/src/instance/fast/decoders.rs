//! The requests that compute one token per step, as sums that are updated without reading the requests.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::arena::{RequestArena, RequestKey};
use super::live::{LiveRequest, RequestState};
use crate::numbers::{count, index, lower_half};
use crate::prefetch::{prefetch_end, soon};
use crate::sampling::{SampledRows, Sampling};

/// One cache line, then what few steps read.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Decoders {
    /// The step number that corresponds to virtual time 0 in `finish`.
    origin: u64,
    /// Sum of the tokens computed by the decoders.
    pub context: u64,
    /// Indexed by `v mod block_size`: the number of decoders that start a new KV block in such a step.
    starts: Box<[u32]>,
    /// Each entry holds the virtual time of a last token, relative to `origin`, in the upper half, and the slot of the
    /// request in the lower: with many instances this needs half as many cache lines. Includes entries of requests that
    /// left since.
    finish: BinaryHeap<Reverse<u64>>,
    pub count: u32,
    /// Number of entries in `fills`.
    tracked: u32,
    /// Decoders with sampling parameters of their own.
    pub sampled: SampledRows,
    /// The decoders with blocks that other requests may share, by the `v mod block_size` of the step that fills a
    /// block. Includes entries of requests that left since.
    fills: Vec<Vec<RequestKey>>,
}

impl Decoders {
    pub fn new(block_size: u32, requests: usize) -> Self {
        Self {
            origin: 0,
            count: 0,
            context: 0,
            starts: vec![0; block_size as usize].into(),
            fills: Vec::new(),
            tracked: 0,
            sampled: SampledRows::default(),
            finish: BinaryHeap::with_capacity(requests),
        }
    }

    /// Prefetches the data that a step and a finish will read.
    pub fn prefetch(&self) {
        soon(&*self.starts);
        let finish = self.finish.as_slice();
        finish.first().into_iter().for_each(soon);
        prefetch_end(finish);
    }

    /// The slot of the request that finishes next, unless it has left since.
    pub fn next_to_finish(&self) -> Option<u32> {
        self.finish.peek().map(|&Reverse(entry)| lower_half(entry))
    }

    /// Adds a request that has computed `computed` tokens before step `v`.
    pub fn join(&mut self, key: RequestKey, computed: u32, v: u64, finish_v: u64, sampling: Option<Sampling>) {
        self.count += 1;
        self.sampled.add(sampling);
        self.context += u64::from(computed);
        let phase = self.phase(computed, v);
        self.starts[phase] += 1;
        self.will_finish(key, v, finish_v);
    }

    fn will_finish(&mut self, key: RequestKey, v: u64, finish_v: u64) {
        if finish_v - self.origin > u64::from(u32::MAX) {
            self.move_origin(v);
        }
        self.finish.push(Reverse((finish_v - self.origin) << 32 | u64::from(key.slot_index())));
    }

    /// Moves the origin to the present step: no request finishes 2^32 steps ahead, and entries of the past belong to
    /// requests that left.
    fn move_origin(&mut self, v: u64) {
        let passed = v - self.origin;
        let later = |Reverse(entry): Reverse<u64>| {
            let ahead = (entry >> 32).checked_sub(passed)?;
            Some(Reverse(ahead << 32 | entry & u64::from(u32::MAX)))
        };
        self.finish = std::mem::take(&mut self.finish).into_iter().filter_map(later).collect();
        self.origin = v;
    }

    /// Removes a request that has computed `computed` tokens before step `v`.
    pub fn leave(&mut self, computed: u32, v: u64, sampling: Option<Sampling>) {
        self.count -= 1;
        self.sampled.remove(sampling);
        self.context -= u64::from(computed);
        let phase = self.phase(computed, v);
        self.starts[phase] -= 1;
    }

    /// Delays a decoder that was left out of the step that ended: at `v` it still has `computed` tokens.
    pub fn delay(&mut self, key: RequestKey, computed: u32, v: u64, finish_v: u64) {
        let (before, after) = (self.phase(computed + 1, v), self.phase(computed, v));
        self.starts[before] -= 1;
        self.starts[after] += 1;
        self.will_finish(key, v, finish_v);
    }

    /// From now on [`Self::take_filling`] returns the request when it fills a block; or one step later, if the content
    /// of the block is known only then.
    pub fn track(&mut self, key: RequestKey, computed: u32, v: u64, one_later: bool) {
        if self.fills.is_empty() {
            self.fills = vec![Vec::new(); self.starts.len()];
        }
        let starts_block = self.phase(computed, v) as u64;
        let fills_block = if one_later { starts_block } else { starts_block + self.block_size() - 1 };
        let phase = self.phase_of(fills_block);
        self.fills[phase].push(key);
        self.tracked += 1;
    }

    fn block_size(&self) -> u64 {
        self.starts.len() as u64
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.starts.len() + self.tracked as usize + self.finish.len()
    }

    /// Whether any request is tracked.
    pub fn tracks(&self) -> bool {
        self.tracked > 0
    }

    /// Whether a tracked request may fill a block in step `v`.
    pub fn fills_in(&self, v: u64) -> bool {
        self.tracked > 0 && !self.fills[self.phase_of(v)].is_empty()
    }

    /// Removes and returns the requests that may fill a block in step `v`; the caller adds those again that remain
    /// tracked.
    pub fn take_filling(&mut self, v: u64) -> Vec<RequestKey> {
        if self.tracked == 0 {
            // Few runs have decoders that fill shared blocks: without any the lists may not exist.
            return Vec::new();
        }
        let phase = self.phase_of(v);
        let keys = std::mem::take(&mut self.fills[phase]);
        self.tracked -= count(keys.len());
        keys
    }

    /// Number of new KV blocks needed by step `v`.
    #[inline]
    pub fn starting(&self, v: u64) -> u32 {
        self.starts[self.phase_of(v)]
    }

    /// The phase of step `v`. Steps of the same phase need the same number of new KV blocks.
    pub fn phase_of(&self, v: u64) -> usize {
        index(v % self.block_size())
    }

    /// Number of new KV blocks needed by a step of `phase`, which is then advanced to the next step's.
    #[inline]
    pub fn starting_in_turn(&self, phase: &mut usize) -> u32 {
        let blocks = self.starts[*phase];
        *phase = if *phase + 1 == self.starts.len() { 0 } else { *phase + 1 };
        blocks
    }

    /// Number of new KV blocks needed by `steps` steps from `v` on, in O(block size).
    pub fn starting_in(&self, v: u64, steps: u64) -> u64 {
        let cycles = steps / self.block_size() * u64::from(self.count);
        let (phase, rest) = (self.phase_of(v), index(steps % self.block_size()));
        let (end, size) = (phase + rest, self.starts.len());
        let sum = |starts: &[u32]| starts.iter().map(|&count| u64::from(count)).sum::<u64>();
        cycles + sum(&self.starts[phase..end.min(size)]) + sum(&self.starts[..end.saturating_sub(size)])
    }

    /// A lower bound of the virtual time at which the next decoder finishes.
    #[inline]
    pub fn soonest_finish(&self) -> u64 {
        self.finish.peek().map_or(0, |&Reverse(entry)| self.origin + (entry >> 32))
    }

    /// The virtual time of the next finish. `popped` decoders were removed by [`Self::pop_finished`] and have not left
    /// yet.
    pub fn next_finish(&mut self, popped: usize, live: &RequestArena<LiveRequest>) -> Option<u64> {
        // There are as many entries as decoders, and each decoder has one: all entries are valid.
        let all_stand = self.finish.len() + popped == self.count as usize;
        while let Some(&Reverse(entry)) = self.finish.peek() {
            let finish_v = self.origin + (entry >> 32);
            let stands = |live: &LiveRequest| live.finish_v == finish_v && live.state == RequestState::Decoding;
            if all_stand || live.at(lower_half(entry)).is_some_and(|(_, live)| stands(live)) {
                // It still decodes; what preempted requests left in the heap is skipped here.
                return Some(finish_v);
            }
            self.finish.pop();
        }
        None
    }

    /// The slot of the next request that generates its last token at `v`.
    pub fn pop_finished(&mut self, v: u64, popped: usize, live: &RequestArena<LiveRequest>) -> Option<u32> {
        (self.next_finish(popped, live)? == v).then(|| lower_half(self.finish.pop().expect("peeked").0))
    }

    /// `v mod block_size` of the steps in which a request that has `computed` tokens before step `v` starts a block:
    /// those where `computed` has become a multiple of the block size.
    fn phase(&self, computed: u32, v: u64) -> usize {
        let until = (self.block_size() - u64::from(computed) % self.block_size()) % self.block_size();
        self.phase_of(v + until)
    }
}
