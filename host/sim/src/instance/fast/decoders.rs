//! The requests that compute one token per step, without touching them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::live::Key;

/// A cache line, and `fills`.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Decoders {
    block_size: u64,
    /// Σ computed.
    pub context: u64,
    /// By `v mod block_size`: how many start a new KV block in such a step.
    starts: Box<[u32]>,
    /// (virtual time of the last token, request), with entries of requests that left since.
    finish: BinaryHeap<Reverse<(u64, Key)>>,
    pub count: u32,
    /// Entries in `fills`.
    tracked: u32,
    /// Those whose blocks other requests may ask for, by the `v mod block_size` of the step that
    /// fills a block. With entries of requests that left since.
    fills: Vec<Vec<Key>>,
}

impl Decoders {
    pub fn new(block_size: u32) -> Self {
        Self {
            block_size: block_size.into(),
            count: 0,
            context: 0,
            starts: vec![0; block_size as usize].into(),
            fills: Vec::new(),
            tracked: 0,
            finish: BinaryHeap::new(),
        }
    }

    /// A request that has computed `computed` tokens before step `v` joins.
    pub fn join(&mut self, key: Key, computed: u32, v: u64, finish_v: u64) {
        self.count += 1;
        self.context += u64::from(computed);
        let phase = self.phase(computed, v);
        self.starts[phase] += 1;
        self.finish.push(Reverse((finish_v, key)));
    }

    /// It leaves, having computed `computed` tokens before step `v`.
    pub fn leave(&mut self, computed: u32, v: u64) {
        self.count -= 1;
        self.context -= u64::from(computed);
        let phase = self.phase(computed, v);
        self.starts[phase] -= 1;
    }

    /// A decoder was left out of the step that ended: at `v` it still has `computed` tokens.
    pub fn delay(&mut self, key: Key, computed: u32, v: u64, finish_v: u64) {
        let (before, after) = (self.phase(computed + 1, v), self.phase(computed, v));
        self.starts[before] -= 1;
        self.starts[after] += 1;
        self.finish.push(Reverse((finish_v, key)));
    }

    /// From now on [`Self::take_filling`] names the request when it fills a block; or one step
    /// later, if what fills it is known only then.
    pub fn track(&mut self, key: Key, computed: u32, v: u64, one_later: bool) {
        if self.fills.is_empty() {
            self.fills = vec![Vec::new(); self.starts.len()];
        }
        let starts_block = self.phase(computed, v) as u64;
        let fills_block = if one_later { starts_block } else { starts_block + self.block_size - 1 };
        self.fills[(fills_block % self.block_size) as usize].push(key);
        self.tracked += 1;
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
        self.tracked > 0 && !self.fills[(v % self.block_size) as usize].is_empty()
    }

    /// Takes the requests that may fill a block in step `v`; give back those that stay tracked.
    pub fn take_filling(&mut self, v: u64) -> Vec<Key> {
        if self.tracked == 0 {
            return Vec::new();
        }
        let keys = std::mem::take(&mut self.fills[(v % self.block_size) as usize]);
        self.tracked -= keys.len() as u32;
        keys
    }

    /// New KV blocks needed by step `v`.
    #[inline]
    pub fn starting(&self, v: u64) -> u32 {
        self.starts[(v % self.block_size) as usize]
    }

    /// New KV blocks needed by `steps` steps from `v` on, in O(block size).
    pub fn starting_in(&self, v: u64, steps: u64) -> u64 {
        let cycles = steps / self.block_size * u64::from(self.count);
        let (phase, rest) = ((v % self.block_size) as usize, (steps % self.block_size) as usize);
        let (end, size) = (phase + rest, self.starts.len());
        let sum = |starts: &[u32]| starts.iter().map(|&count| u64::from(count)).sum::<u64>();
        cycles + sum(&self.starts[phase..end.min(size)]) + sum(&self.starts[..end.saturating_sub(size)])
    }

    /// No decoder finishes before this virtual time.
    pub fn soonest_finish(&self) -> u64 {
        self.finish.peek().map_or(0, |&Reverse((finish_v, _))| finish_v)
    }

    /// The virtual time of the next finish, `stands` telling which entries still count. `popped`
    /// decoders were taken by [`Self::pop_finished`] and have not left yet.
    pub fn next_finish(&mut self, popped: usize, stands: impl Fn(Key, u64) -> bool) -> Option<u64> {
        // As many entries as decoders, each of which has one: all of them count.
        let all_stand = self.finish.len() + popped == self.count as usize;
        while let Some(&Reverse((finish_v, key))) = self.finish.peek() {
            if all_stand || stands(key, finish_v) {
                return Some(finish_v);
            }
            self.finish.pop();
        }
        None
    }

    /// The next request whose last token is out at `v`.
    pub fn pop_finished(&mut self, v: u64, popped: usize, stands: impl Fn(Key, u64) -> bool) -> Option<Key> {
        (self.next_finish(popped, stands)? == v).then(|| self.finish.pop().expect("peeked").0.1)
    }

    /// `v mod block_size` of the steps in which a request that has `computed` tokens before step
    /// `v` starts a block: those where `computed` has become a multiple of the block size.
    fn phase(&self, computed: u32, v: u64) -> usize {
        let until = (self.block_size - u64::from(computed) % self.block_size) % self.block_size;
        ((v + until) % self.block_size) as usize
    }
}
