//! Hash ids and token ids for contents that are known by their block keys only.
//!
//! Blocks with equal keys get equal ids, all others ids of their own: so whoever reads them finds the
//! same contents in common, and no more.

use std::num::NonZeroU32;

use blis_sim::request::Request;

/// Hands out ids, and remembers how many are spent.
pub(super) struct Tokens {
    block: NonZeroU32,
    /// Blocks so far that no other request has.
    unique: u64,
    /// Highest key so far, plus 1.
    keys: u64,
    /// The present request's.
    tokens: Vec<u32>,
}

impl Tokens {
    pub fn new(block: NonZeroU32) -> Self {
        Self { block, unique: 0, keys: 0, tokens: Vec::new() }
    }

    fn next_unique(&mut self) -> u64 {
        self.unique += 1;
        self.unique - 1
    }

    /// Token ids of prompt and answer; `None` if 32 bits are too few for them. The first token of a
    /// block tells it from others: keys count up from 0, unique blocks down from the top.
    pub fn of(&mut self, request: &Request) -> Option<&[u32]> {
        let all = request.input_tokens as usize + request.output_tokens as usize;
        let block = self.block.get() as usize;
        self.tokens.clear();
        self.tokens.resize(all, 0);
        let mut keys = request.content.keys();
        for start in (0..all).step_by(block) {
            let key = if start + block <= all { keys.next() } else { None };
            self.tokens[start] = match key {
                Some(key) => {
                    self.keys = self.keys.max(u64::from(key) + 1);
                    key
                }
                None => {
                    let number = self.next_unique();
                    u32::try_from(u64::from(u32::MAX).checked_sub(number)?).ok()?
                }
            };
        }
        (self.keys + self.unique <= 1 << 32).then_some(&self.tokens)
    }
}

/// An id per block of the prompt, the last one included if it is only begun. Keys first; what is unique
/// counts from where no key can be.
pub(super) fn hash_ids(request: &Request, block_size: NonZeroU32, tokens: &mut Tokens) -> impl Iterator<Item = u64> {
    let full = request.input_tokens / block_size;
    let all = request.input_tokens.div_ceil(block_size.get());
    let keys = request.content.keys().take(full as usize).map(u64::from);
    let rest = all - request.content.shared_blocks().min(full);
    keys.chain((0..rest).map(move |_| (1 << 32) + tokens.next_unique()))
}
