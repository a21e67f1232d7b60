//! Prompts known by a hash id per block of so many tokens: Mooncake, Bailian, vllm-vcr.
//!
//! Tokens are never made up from the ids. An engine block belongs to the hash block that holds its
//! last token, so keys of any block size follow by arithmetic.

use std::num::NonZeroU32;

use super::TraceOptions;
use super::error::TraceError;
use super::prefix::{Node, PrefixTree, ROOT};
use super::row::Terms;
use super::rows::{Intake, Shared};
use blis_diag::RowError;

/// All prompts of a trace.
pub(super) struct HashedPrompts {
    tree: PrefixTree,
    /// Tokens per hash id.
    pub hash_block: NonZeroU32,
    /// Prompts longer than their ids tell.
    short: u64,
}

impl HashedPrompts {
    /// `usual`: tokens per hash id, unless the options say it.
    pub fn new(options: &TraceOptions, usual: NonZeroU32) -> Self {
        Self { tree: PrefixTree::new(), hash_block: options.hash_block_size.unwrap_or(usual), short: 0 }
    }

    /// That a prompt of `input` tokens has no more than `ids` hash ids.
    pub fn check(&self, ids: usize, input: u32, name: &str) -> Result<(), RowError> {
        let blocks = input.div_ceil(self.hash_block.get());
        if ids <= blocks as usize {
            return Ok(());
        }
        let fault =
            RowError::new(format!("{ids} `{name}`, but {input} tokens are {blocks} blocks of {}", self.hash_block));
        Err(fault.hint("set the hash block size to that of the trace (Mooncake 512, Bailian 16)"))
    }

    /// A checked prompt of `input` tokens; its node is for [`Row::prefix`](super::row::Row::prefix).
    pub fn insert<T: Terms>(&mut self, ids: &[u64], input: u32, intake: &Intake<'_, T>) -> Result<Node, TraceError> {
        self.short += u64::from(!ids.is_empty() && ids.len() < (input / self.hash_block) as usize);
        if ids.is_empty() {
            return Ok(ROOT);
        }
        self.tree.insert(ids.iter().copied()).map_err(|_| intake.too_many("shared KV blocks"))
    }

    /// What the prompts have in common. Leaves a note where the ids do not tell all.
    pub fn finish<T: Terms>(self, intake: &mut Intake<'_, T>, block_size: NonZeroU32) -> Result<Shared, TraceError> {
        if self.short > 0 {
            let short = self.short;
            intake
                .notes
                .push(format!("{short} prompts are longer than their hash ids tell; the rest is taken as unique"));
        }
        let (hash_block, block) = (u64::from(self.hash_block.get()), u64::from(block_size.get()));
        // A path is no longer than a 32-bit prompt, so the quotient fits.
        let blocks_to = |depth: u32| (u64::from(depth) * hash_block / block).min(u64::from(u32::MAX)) as u32;
        let (prefixes, renumbered) = self.tree.finish(blocks_to).map_err(|_| intake.too_many("shared KV blocks"))?;
        Ok(Shared { prefixes, renumbered, block_size: Some(block_size) })
    }
}
