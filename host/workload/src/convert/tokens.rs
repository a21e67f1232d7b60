//! Hash ids and token ids for contents that are known only by their block keys.
//!
//! Blocks with equal keys get equal ids, all others unique ids: a reader of the ids finds the same shared contents, and
//! no others.

use std::num::NonZeroU32;

use blis_sim::request::Request;

/// Allocates ids and counts how many are used.
pub(super) struct Tokens {
    block: NonZeroU32,
    /// Number of blocks so far that no other request has.
    unique: u64,
    /// Highest key so far, plus 1.
    keys: u64,
}

impl Tokens {
    pub fn new(block: NonZeroU32) -> Self {
        Self { block, unique: 0, keys: 0 }
    }

    fn next_unique(&mut self) -> u64 {
        self.unique += 1;
        self.unique - 1
    }

    /// Token ids of input and output, one at a time, because there may be billions. `None` if 32 bits are too few for
    /// them. The first token of a block distinguishes it from others: keys count up from 0, unique blocks down from the
    /// maximum.
    pub fn prompt<'r>(&mut self, request: &'r Request) -> Option<impl Iterator<Item = u32> + use<'r>> {
        let all = u64::from(request.input_tokens) + u64::from(request.output_tokens);
        let block = u64::from(self.block.get());
        let mut keyed = all / block;
        for span in request.content.spans() {
            let len = keyed.min(span.len.into());
            keyed -= len;
            if len > 0 {
                self.keys = self.keys.max(u64::from(span.first) + len);
            }
        }
        let keyed = all / block - keyed;
        let mut next = self.unique;
        self.unique += all.div_ceil(block) - keyed;
        if self.keys + self.unique > 1 << 32 {
            return None;
        }
        let mut keys = request.content.keys().take(keyed as usize);
        Some((0..all).map(move |at| match at % block {
            0 => keys.next().unwrap_or_else(|| {
                next += 1;
                // There are no more than 32 bits can number, as checked above.
                u32::MAX - (next - 1) as u32
            }),
            _ => 0,
        }))
    }
}

/// One id per block of the prompt, including a partial last block. Keys come first; ids of unique blocks start where no
/// key can be.
pub(super) fn hash_ids(request: &Request, block_size: NonZeroU32, tokens: &mut Tokens) -> impl Iterator<Item = u64> {
    let full = request.input_tokens / block_size;
    let all = request.input_tokens.div_ceil(block_size.get());
    let keys = request.content.keys().take(full as usize).map(u64::from);
    let rest = all - request.content.shared_blocks().min(full);
    keys.chain((0..rest).map(move |_| (1 << 32) + tokens.next_unique()))
}
